//! Random event sequences: no illegal edge, no work request that a device would refuse, no fence that does not hold.

use crate::common::*;
use frwr_engine::mr::{ConnectionKey, Mr, MrError, Opening, ReturnPolicy, State};
use frwr_engine::provider::{BaseId, RegistrationId};
use proptest::prelude::*;
use std::collections::VecDeque;

/// The arrows between the states, and those of a refused post and of early return.
const EDGES: [(&str, &str); 36] = [
    ("absent", "idle"),
    ("idle", "registering"),
    ("idle", "stale"),
    ("idle", "absent"),
    ("spent", "spent"),
    ("spent", "registering"),
    ("spent", "stale"),
    ("spent", "absent"),
    ("mapped", "idle"),
    ("mapped", "idle_pending"),
    ("mapped", "mapped"),
    ("mapped", "stale"),
    ("registering", "mapped"),
    ("registering", "registering"),
    ("registering", "valid"),
    ("registering", "invalidating"),
    ("registering", "idle_pending"),
    ("registering", "spent"),
    ("registering", "stale"),
    ("valid", "valid"),
    ("valid", "invalidating"),
    ("valid", "idle_pending"),
    ("valid", "spent"),
    ("valid", "stale"),
    ("invalidating", "invalidating"),
    ("invalidating", "spent"),
    ("invalidating", "stale"),
    ("idle_pending", "idle_pending"),
    ("idle_pending", "idle"),
    ("idle_pending", "spent"),
    ("idle_pending", "registering"),
    ("idle_pending", "stale"),
    ("stale", "stale"),
    ("stale", "recovering"),
    ("stale", "absent"),
    ("recovering", "absent"),
];

/// Calls of [`call`] that make a key, and those that make a registration.
const INSTALLS: u8 = 0;
const OPENS: [u8; 2] = [1, 2];

fn policy(early: bool) -> ReturnPolicy {
    if early { ReturnPolicy::OnInvalidatePosted } else { ReturnPolicy::OnInvalidateCompleted }
}

/// One random call with arguments that are right, nearly right or wrong.
fn call(mr: &mut Mr, step: u8, near: u8, early: bool) -> Result<(), MrError> {
    let generation = generation(mr).wrapping_sub(u32::from(near % 3));
    let connection = ConnectionKey { epoch: CONNECTION.epoch + u16::from(near == 7), ..CONNECTION };
    let key = mr.key().wrapping_add(u32::from(near == 6));
    match step {
        INSTALLS => mr.install(RegistrationId(u32::from(near)), KEY, CONNECTION),
        1 => open_on(mr, connection, &Opening { bytes: 4096 * (1 + u32::from(near)), ..OPENING }).map(drop),
        2 => open_as_pad(mr, connection).map(drop),
        3 => mr.give_back(),
        4 => mr.register_refused(),
        5 => mr.registered(generation),
        6 => mr.invalidate_posted(key, policy(early)).map(drop),
        7 => mr.invalidated(generation).map(drop),
        8 => mr.remotely_invalidated(OWNER, connection, key),
        9 => mr.register_failed(generation),
        10 => mr.invalidate_failed(generation),
        11 => mr.invalidate_refused(generation),
        12 => mr.connection_lost(connection),
        13 => mr.begin_recovery(),
        _ => mr.destroyed(),
    }
}

/// What one work request does on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Register { key: u32 },
    Invalidate { key: u32 },
}

/// A strict device with one object: work in order, completions later.
#[derive(Default)]
struct Device {
    queue: VecDeque<(Work, u32)>,
    completions: VecDeque<(Work, u32)>,
    valid: Option<u32>,
}

impl Device {
    /// Executes the oldest work request as rxe would, except that it complains instead of crashing.
    fn execute(&mut self) {
        let Some((work, generation)) = self.queue.pop_front() else { return };
        match work {
            Work::Register { key } => {
                assert_eq!(self.valid, None, "registered over a live key");
                self.valid = Some(key);
            }
            Work::Invalidate { key } => {
                assert_eq!(self.valid, Some(key), "invalidated a key that is not valid");
                self.valid = None;
            }
        }
        self.completions.push_back((work, generation));
    }

    /// Whether a peer can reach memory through the object, now or after what is queued.
    fn open(&self) -> bool {
        self.valid.is_some() || !self.queue.is_empty()
    }
}

/// An MR and its device, driven as an engine drives them.
struct Pair {
    mr: Mr,
    device: Device,
    connection: ConnectionKey,
    owner: u32,
    late: Vec<(Work, u32)>,
}

impl Pair {
    fn new() -> Self {
        Self { mr: idle(), device: Device::default(), connection: CONNECTION, owner: 0, late: Vec::new() }
    }

    fn step(&mut self, step: u8, early: bool) {
        match step {
            0..=2 => {
                self.owner += 1;
                let opening = Opening { owner: self.owner, base: BaseId(self.owner), ..OPENING };
                if let Ok(fields) = open_on(&mut self.mr, self.connection, &opening) {
                    self.device.queue.push_back((Work::Register { key: fields.key }, generation(&self.mr)));
                }
            }
            // The post is refused.
            3 => {
                if open_on(&mut self.mr, self.connection, &OPENING).is_ok() {
                    self.mr.register_refused().expect("registering");
                }
            }
            4 => drop(self.mr.give_back()),
            5 | 6 => {
                let (key, generation) = (self.mr.key(), generation(&self.mr));
                if self.mr.invalidate_posted(key, policy(early)).is_ok() {
                    self.device.queue.push_back((Work::Invalidate { key }, generation));
                }
            }
            7 | 8 => self.device.execute(),
            9 | 10 => self.complete(),
            11 => self.remote_invalidation(),
            12 => self.late_completion(),
            _ => self.disconnect(),
        }
    }

    fn complete(&mut self) {
        if let Some((work, generation)) = self.device.completions.pop_front() {
            // With early return a later use may have overtaken it; it is then refused and dropped.
            let _ = match work {
                Work::Register { .. } => self.mr.registered(generation),
                Work::Invalidate { .. } => self.mr.invalidated(generation).map(drop),
            };
            self.late.push((work, generation));
        }
    }

    /// The peer was told a key that is valid, and no local invalidation of it was posted.
    fn remote_invalidation(&mut self) {
        let invalidating = self.device.queue.iter().any(|(work, _)| matches!(work, Work::Invalidate { .. }));
        if let (Some(key), false) = (self.device.valid, invalidating) {
            self.device.valid = None;
            let owner = self.mr.owner().expect("a valid key belongs to a request");
            assert_eq!(self.mr.remotely_invalidated(owner, self.connection, key), Ok(()));
        }
    }

    /// Completions of an earlier use come once more.
    fn late_completion(&mut self) {
        let generation = generation(&self.mr);
        for &(work, late) in self.late.iter().filter(|(_, late)| *late != generation) {
            let before = view(&self.mr);
            let pending = matches!(
                before.state,
                State::IdlePending { .. }
                    | State::Mapped { pending: Some(_), .. }
                    | State::Registering { pending: Some(_), .. }
            );
            if pending {
                continue;
            }
            let result = match work {
                Work::Register { .. } => self.mr.register_failed(late),
                Work::Invalidate { .. } => self.mr.invalidate_failed(late),
            };
            assert_eq!(result, Err(MrError::StaleCompletion));
            assert_eq!(view(&self.mr), before);
        }
    }

    /// Error, drain, destroy, a new connection.
    fn disconnect(&mut self) {
        while !self.device.completions.is_empty() {
            self.complete();
        }
        for (work, generation) in core::mem::take(&mut self.device.queue) {
            let _ = match work {
                Work::Register { .. } => self.mr.register_failed(generation),
                Work::Invalidate { .. } => self.mr.invalidate_failed(generation),
            };
        }
        self.mr.connection_lost(self.connection).expect("it has an object");
        self.check();
        self.device.valid = None;
        self.mr.destroyed().expect("stale");
        self.connection.epoch += 1;
        self.mr.install(RegistrationId(77), KEY, self.connection).expect("absent");
    }

    fn check(&self) {
        if self.device.open() {
            assert!(self.mr.is_live(), "{:?}", self.mr.state());
        }
    }

    /// Everything posted completes: nothing may stay on its way.
    fn settle(&mut self) {
        while !self.device.queue.is_empty() {
            self.device.execute();
        }
        while !self.device.completions.is_empty() {
            self.complete();
        }
        let open = self.device.valid.is_some();
        let live_while_open = matches!(self.mr.state(), State::Registering { .. } | State::Valid { .. });
        assert_eq!((self.mr.is_live(), live_while_open), (open, open), "{:?}", self.mr.state());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever is called in whatever order: only arrows of the diagram, and a refusal changes nothing.
    #[test]
    fn i_random_calls_never_reach_an_illegal_edge(
        steps in proptest::collection::vec((0u8..15, 0u8..8, any::<bool>()), 1..200),
    ) {
        let mut mr = absent();
        for (step, near, early) in steps {
            let before = view(&mr);
            let result = call(&mut mr, step, near, early);
            let after = view(&mr);
            if result.is_err() {
                prop_assert_eq!(before, after);
                continue;
            }
            let edge = (name_of(before.state), name_of(after.state));
            // A repeated completion of the registration is allowed and changes nothing.
            let legal = EDGES.contains(&edge) && (edge != ("spent", "spent") || before == after);
            prop_assert!(legal, "{:?} by call {}", edge, step);
            let opens = OPENS.contains(&step);
            prop_assert!(opens || step == INSTALLS || before.key == after.key, "key changed by call {}", step);
            prop_assert!(opens || before.token == after.token, "generation changed by call {}", step);
        }
    }

    /// Against a strict device: never a registration over a live key, never a second invalidation, never a fence that
    /// does not hold; and when everything has completed, nothing is left on its way.
    #[test]
    fn i_device_agrees_with_the_state_machine(
        steps in proptest::collection::vec((0u8..14, any::<bool>()), 1..300),
        early_return in any::<bool>(),
        disconnects in any::<bool>(),
    ) {
        let mut pair = Pair::new();
        for (step, early) in steps {
            if step < 13 || disconnects {
                pair.step(step, early && early_return);
                pair.check();
            }
        }
        pair.settle();
    }
}
