//! Registrations and the reservation of one namespace, and what the commands do to them (Base 8.19). Plain values.

use super::rules::Standing;
#[cfg(test)]
use super::rules::{Access, permits};
use crate::wire::{
    AcquireAction, PersistChange, RegisterAction, RegisteredControllerExtended, ReleaseAction, ReservationStatus,
    ReservationType, Status,
};
use arrayvec::ArrayVec;

/// HOSTID.
pub(in super::super) type HostId = [u8; 16];

/// A host that does not say who it is, and so cannot be told from others (Base 5.27.1.25).
const NOBODY: HostId = [0; 16];

/// Hosts that are registered with a namespace at a time: with the head a report of 4096 bytes, which any data buffer holds.
pub const MAX_REGISTRANTS: usize = 63;
const _: () = assert!((MAX_REGISTRANTS + 1) * RegisteredControllerExtended::BYTES <= 4096);

/// A set of hosts.
pub(in super::super) type Hosts = ArrayVec<HostId, MAX_REGISTRANTS>;

/// What is asked of the state, by a host with its current key and another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Request {
    Register { action: RegisterAction, ignore_key: bool, persist: PersistChange },
    Acquire { action: AcquireAction, kind: ReservationType },
    Release { action: ReleaseAction, kind: u8 },
}

/// A host that is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registrant {
    pub(super) host: HostId,
    pub(super) key: u64,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) kind: ReservationType,
    /// Who acquired it; where all registrants hold it this says nothing.
    pub(super) holder: HostId,
}

/// What a request has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Something is not as before.
    pub(super) changed: bool,
    /// Hosts that somebody else unregistered.
    pub(super) unregistered: Hosts,
}

/// All of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) generation: u32,
    pub(super) registrants: ArrayVec<Registrant, MAX_REGISTRANTS>,
    pub(super) held: Option<Held>,
    /// PTPL: a loss of power changes nothing.
    pub(super) persists: bool,
}

/// The host may not do this as things are.
const CONFLICT: Status = Status::RESERVATION_CONFLICT.do_not_retry();
const INVALID: Status = Status::INVALID_FIELD.do_not_retry();

impl State {
    fn key_of(&self, host: &HostId) -> Option<u64> {
        self.registrants.iter().find(|registrant| registrant.host == *host).map(|registrant| registrant.key)
    }

    pub(super) fn standing(&self, host: &HostId) -> Standing {
        match self.held {
            _ if self.key_of(host).is_none() => Standing::Other,
            Some(held) if held.kind.is_held_by_all() || held.holder == *host => Standing::Holder,
            _ => Standing::Registrant,
        }
    }

    /// A command of a host may be executed; on cores [`super::published::Published`] says so.
    #[cfg(test)]
    pub(super) fn permits(&self, host: &HostId, access: Access) -> bool {
        self.held.is_none_or(|held| permits(held.kind, access, self.standing(host)))
    }

    /// Does what a host asks for. `can_persist`: there is something that survives a loss of power.
    pub(super) fn apply(
        &mut self,
        host: &HostId,
        request: Request,
        (current, other): (u64, u64),
        can_persist: bool,
    ) -> Result<Effect, Status> {
        if let Request::Register { action, ignore_key, persist } = request {
            if *host == NOBODY || persist == PersistChange::Set && !can_persist {
                return Err(INVALID);
            }
            return self.register(host, action, (current, other), ignore_key).map(|effect| self.keep(persist, effect));
        }
        if self.key_of(host) != Some(current) {
            return Err(CONFLICT);
        }
        match request {
            Request::Acquire { action: AcquireAction::Acquire, kind } => self.acquire(host, kind),
            Request::Acquire { kind, .. } => self.preempt(host, other, kind),
            Request::Release { action: ReleaseAction::Release, kind } => self.release(host, kind),
            Request::Release { action: ReleaseAction::Clear, .. } => Ok(self.clear(host)),
            Request::Register { .. } => Err(INVALID),
        }
    }

    fn keep(&mut self, persist: PersistChange, mut effect: Effect) -> Effect {
        let wanted = match persist {
            PersistChange::None => self.persists,
            PersistChange::Clear => false,
            PersistChange::Set => true,
        };
        effect.changed |= self.persists != wanted;
        self.persists = wanted;
        effect
    }

    fn register(
        &mut self,
        host: &HostId,
        action: RegisterAction,
        (current, new): (u64, u64),
        ignore_key: bool,
    ) -> Result<Effect, Status> {
        let known = self.key_of(host);
        match action {
            // No key is 0: it stands for none where keys are preempted.
            RegisterAction::Register | RegisterAction::Replace if new == 0 => return Err(INVALID),
            RegisterAction::Register if known.is_some_and(|key| key != new) => return Err(CONFLICT),
            // IEKEY: whatever key it has, and whether it has one (Base 8.19.3).
            RegisterAction::Register | RegisterAction::Replace
                if known.is_none() && (ignore_key || action == RegisterAction::Register) =>
            {
                // There is no status for it. Hosts may go.
                let added = self.registrants.try_push(Registrant { host: *host, key: new });
                added.map_err(|_| Status::INTERNAL_ERROR)?;
            }
            RegisterAction::Register => {}
            _ if known.is_none_or(|key| key != current && !ignore_key) => return Err(CONFLICT),
            RegisterAction::Replace => {
                for registrant in self.registrants.iter_mut().filter(|registrant| registrant.host == *host) {
                    registrant.key = new;
                }
            }
            RegisterAction::Unregister => self.unregister(|registrant| registrant.host == *host),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(Effect { changed: true, ..Effect::default() })
    }

    /// Those hosts are registered no more. A reservation goes with its holder, or with the last one of all that hold it.
    fn unregister(&mut self, goes: impl Fn(&Registrant) -> bool) {
        self.registrants.retain(|registrant| !goes(registrant));
        let Self { registrants, held, .. } = self;
        let stays = |held: &mut Held| match held.kind.is_held_by_all() {
            true => !registrants.is_empty(),
            false => registrants.iter().any(|registrant| registrant.host == held.holder),
        };
        *held = held.take_if(stays);
    }

    fn acquire(&mut self, host: &HostId, kind: ReservationType) -> Result<Effect, Status> {
        match self.held {
            None => {
                self.held = Some(Held { kind, holder: *host });
                Ok(Effect { changed: true, ..Effect::default() })
            }
            Some(held) if held.kind == kind && self.standing(host) == Standing::Holder => Ok(Effect::default()),
            Some(_) => Err(CONFLICT),
        }
    }

    fn preempt(&mut self, host: &HostId, key: u64, kind: ReservationType) -> Result<Effect, Status> {
        let takes = match self.held {
            Some(held) if held.kind.is_held_by_all() => key == 0,
            Some(held) if self.key_of(&held.holder) == Some(key) => true,
            Some(_) if key == 0 => return Err(INVALID),
            Some(_) | None => false,
        };
        let all = takes && key == 0;
        // Who takes a reservation stays registered, whatever its key.
        let goes = |registrant: &Registrant| match registrant.host == *host {
            true => !takes && registrant.key == key,
            false => all || registrant.key == key,
        };
        let gone = self.registrants.iter().filter(|registrant| goes(registrant)).map(|registrant| registrant.host);
        let gone: Hosts = gone.collect();
        if gone.is_empty() && !takes {
            return Err(CONFLICT);
        }
        self.unregister(goes);
        if takes {
            self.held = Some(Held { kind, holder: *host });
        }
        self.generation = self.generation.wrapping_add(1);
        let unregistered = gone.into_iter().filter(|gone| gone != host).collect();
        Ok(Effect { changed: true, unregistered })
    }

    fn release(&mut self, host: &HostId, kind: u8) -> Result<Effect, Status> {
        match self.held {
            Some(held) if self.standing(host) == Standing::Holder => {
                if held.kind as u8 != kind {
                    return Err(INVALID);
                }
                self.held = None;
                Ok(Effect { changed: true, ..Effect::default() })
            }
            // Nothing of this host's is held.
            Some(_) | None => Ok(Effect::default()),
        }
    }

    fn clear(&mut self, host: &HostId) -> Effect {
        let others = self.registrants.iter().map(|registrant| registrant.host).filter(|other| other != host);
        let unregistered = others.collect();
        self.unregister(|_| true);
        self.generation = self.generation.wrapping_add(1);
        Effect { changed: true, unregistered }
    }

    /// Head of a report, and its entries.
    pub(super) fn report(&self) -> (ReservationStatus, impl Iterator<Item = RegisteredControllerExtended>) {
        let mut head = ReservationStatus::default();
        head.generation = self.generation.into();
        head.kind = self.held.map_or(0, |held| held.kind as u8);
        // At most MAX_REGISTRANTS.
        head.registered = (self.registrants.len() as u16).into();
        head.persists = self.persists.into();
        let entries = self.registrants.iter().map(|registrant| {
            let mut entry = RegisteredControllerExtended::default();
            entry.controller_id = RegisteredControllerExtended::DYNAMIC.into();
            let holds = self.held.is_some() && self.standing(&registrant.host) == Standing::Holder;
            entry.status = if holds { RegisteredControllerExtended::HOLDER } else { 0 };
            (entry.key, entry.host_id) = (registrant.key.into(), registrant.host);
            entry
        });
        (head, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, HostId, Request, State};
    use crate::wire::{AcquireAction, PersistChange, RegisterAction, ReleaseAction, ReservationType, Status};

    const A: HostId = [1; 16];
    const B: HostId = [2; 16];
    const C: HostId = [3; 16];

    fn register(state: &mut State, host: &HostId, key: u64) {
        let request =
            Request::Register { action: RegisterAction::Register, ignore_key: false, persist: PersistChange::None };
        state.apply(host, request, (0, key), false).unwrap();
    }

    fn change(action: RegisterAction, ignore_key: bool) -> Request {
        Request::Register { action, ignore_key, persist: PersistChange::None }
    }

    fn acquire(kind: ReservationType) -> Request {
        Request::Acquire { action: AcquireAction::Acquire, kind }
    }

    fn preempt(kind: ReservationType) -> Request {
        Request::Acquire { action: AcquireAction::Preempt, kind }
    }

    fn release(kind: ReservationType) -> Request {
        Request::Release { action: ReleaseAction::Release, kind: kind as u8 }
    }

    fn code(result: Result<super::Effect, Status>) -> Status {
        result.map_or_else(Status::without_flags, |_| Status::SUCCESS)
    }

    fn three() -> State {
        let mut state = State::default();
        for (host, key) in [(A, 10), (B, 20), (C, 30)] {
            register(&mut state, &host, key);
        }
        state
    }

    #[test]
    fn registrations_go_by_their_keys_unless_those_are_ignored() {
        use RegisterAction::{Register, Replace, Unregister};
        let mut state = State::default();
        let mut ask = |host: &HostId, request, keys| code(state.apply(host, request, keys, false));
        assert_eq!(ask(&[0; 16], change(Register, false), (0, 1)), Status::INVALID_FIELD, "it has no identifier");
        assert_eq!(ask(&A, change(Register, false), (0, 0)), Status::INVALID_FIELD);
        assert_eq!(ask(&A, change(Unregister, true), (0, 0)), Status::RESERVATION_CONFLICT, "it is not registered");
        assert_eq!(ask(&A, change(Replace, false), (0, 1)), Status::RESERVATION_CONFLICT);
        assert_eq!(ask(&A, change(Replace, true), (9, 1)), Status::SUCCESS, "whether it is registered or not");
        assert_eq!(ask(&A, change(Unregister, true), (0, 0)), Status::SUCCESS);
        assert_eq!(ask(&A, change(Register, false), (0, 1)), Status::SUCCESS);
        assert_eq!(ask(&A, change(Register, false), (0, 1)), Status::SUCCESS, "the same key");
        assert_eq!(ask(&A, change(Register, false), (0, 2)), Status::RESERVATION_CONFLICT);
        assert_eq!(ask(&A, change(Replace, false), (3, 2)), Status::RESERVATION_CONFLICT);
        assert_eq!(ask(&A, change(Replace, false), (1, 2)), Status::SUCCESS);
        assert_eq!(ask(&A, change(Replace, true), (9, 3)), Status::SUCCESS);
        assert_eq!(ask(&A, change(Unregister, false), (2, 0)), Status::RESERVATION_CONFLICT);
        assert_eq!(ask(&A, change(Unregister, false), (3, 0)), Status::SUCCESS);
        assert_eq!(ask(&A, acquire(ReservationType::WriteExclusive), (3, 0)), Status::RESERVATION_CONFLICT);
        assert_eq!(state, State { generation: 7, ..State::default() });
    }

    #[test]
    fn what_would_not_survive_is_not_said_to() {
        let persist = |persist| Request::Register { action: RegisterAction::Register, ignore_key: false, persist };
        let mut state = State::default();
        assert_eq!(code(state.apply(&A, persist(PersistChange::Set), (0, 1), false)), Status::INVALID_FIELD);
        assert_eq!(state, State::default());
        state.apply(&A, persist(PersistChange::Set), (0, 1), true).unwrap();
        assert!(state.persists);
        state.apply(&A, persist(PersistChange::None), (0, 1), true).unwrap();
        assert!(state.persists);
        state.apply(&A, persist(PersistChange::Clear), (0, 1), true).unwrap();
        assert!(!state.persists);
    }

    #[test]
    fn a_reservation_is_its_holders_until_that_releases_it_or_goes() {
        for kind in ReservationType::ALL {
            let mut state = three();
            assert_eq!(code(state.apply(&A, acquire(kind), (20, 0), false)), Status::RESERVATION_CONFLICT);
            assert_eq!(code(state.apply(&A, acquire(kind), (10, 0), false)), Status::SUCCESS);
            assert_eq!(code(state.apply(&A, acquire(kind), (10, 0), false)), Status::SUCCESS, "it holds it");
            let others = if kind.is_held_by_all() { Status::SUCCESS } else { Status::RESERVATION_CONFLICT };
            assert_eq!(code(state.apply(&B, acquire(kind), (20, 0), false)), others);
            let other = ReservationType::ALL.into_iter().find(|other| *other != kind).unwrap();
            assert_eq!(code(state.apply(&A, acquire(other), (10, 0), false)), Status::RESERVATION_CONFLICT);
            assert_eq!(code(state.apply(&A, release(other), (10, 0), false)), Status::INVALID_FIELD);
            let before = state.clone();
            if !kind.is_held_by_all() {
                assert_eq!(code(state.apply(&B, release(kind), (20, 0), false)), Status::SUCCESS, "of nothing");
                assert_eq!(state, before);
            }
            assert_eq!(code(state.apply(&A, release(kind), (10, 0), false)), Status::SUCCESS);
            assert!(state.held.is_none() && state.registrants.len() == 3);
            state.clone_from(&before);
            state.apply(&A, change(RegisterAction::Unregister, true), (0, 0), false).unwrap();
            assert_eq!(state.held.is_some(), kind.is_held_by_all(), "others hold it");
            for host in [B, C] {
                state.apply(&host, change(RegisterAction::Unregister, true), (0, 0), false).unwrap();
            }
            assert!(state.held.is_none());
        }
    }

    #[test]
    fn a_preemption_takes_what_its_key_names() {
        use ReservationType::{ExclusiveAccess, ExclusiveAccessAll, WriteExclusive};
        // Nobody holds anything: registrations go, and nothing is taken.
        let mut state = three();
        assert_eq!(code(state.apply(&A, preempt(WriteExclusive), (10, 40), false)), Status::RESERVATION_CONFLICT);
        let effect = state.apply(&A, preempt(WriteExclusive), (10, 20), false).unwrap();
        assert_eq!((effect.unregistered.as_slice(), state.held), ([B].as_slice(), None));
        // The holder's key.
        let mut state = three();
        state.apply(&B, acquire(WriteExclusive), (20, 0), false).unwrap();
        assert_eq!(code(state.apply(&A, preempt(WriteExclusive), (10, 0), false)), Status::INVALID_FIELD);
        let effect = state.apply(&A, preempt(ExclusiveAccess), (10, 20), false).unwrap();
        assert_eq!(effect.unregistered.as_slice(), [B]);
        assert!(
            state.permits(&A, Access::Write) && !state.permits(&B, Access::Read) && !state.permits(&C, Access::Read)
        );
        // Its own: another type.
        let effect = state.apply(&A, preempt(WriteExclusive), (10, 10), false).unwrap();
        assert!(effect.unregistered.is_empty() && state.permits(&C, Access::Read) && state.permits(&A, Access::Write));
        // Another registrant's: the reservation stays.
        let effect = state.apply(&A, preempt(ExclusiveAccess), (10, 30), false).unwrap();
        assert_eq!((effect.unregistered.as_slice(), state.held.unwrap().kind), ([C].as_slice(), WriteExclusive));
        // All hold it: 0 stands for all others.
        let mut state = three();
        state.apply(&B, acquire(ExclusiveAccessAll), (20, 0), false).unwrap();
        let effect = state.apply(&C, preempt(ExclusiveAccessAll), (30, 20), false).unwrap();
        assert_eq!(effect.unregistered.as_slice(), [B]);
        assert!(state.permits(&A, Access::Write));
        let effect = state.apply(&C, preempt(WriteExclusive), (30, 0), false).unwrap();
        assert_eq!(effect.unregistered.as_slice(), [A]);
        assert!(!state.permits(&A, Access::Write) && state.permits(&C, Access::Write));
    }

    #[test]
    fn clear_ends_everything_and_only_a_registrant_may() {
        let mut state = three();
        state.apply(&B, acquire(ReservationType::ExclusiveAccess), (20, 0), false).unwrap();
        let clear = Request::Release { action: ReleaseAction::Clear, kind: 0 };
        assert_eq!(code(state.apply(&A, clear, (11, 0), false)), Status::RESERVATION_CONFLICT);
        let effect = state.apply(&A, clear, (10, 0), false).unwrap();
        assert_eq!(effect.unregistered.as_slice(), [B, C]);
        assert!(state.held.is_none() && state.registrants.is_empty() && state.permits(&C, Access::Write));
    }

    #[test]
    fn a_registrant_too_many_is_refused_and_the_others_stay() {
        let mut state = State::default();
        for host in 1..=super::MAX_REGISTRANTS as u8 {
            register(&mut state, &[host; 16], 1);
        }
        let before = state.clone();
        let asked = change(RegisterAction::Register, false);
        assert_eq!(code(state.apply(&[0xff; 16], asked, (0, 1), false)), Status::INTERNAL_ERROR);
        assert_eq!(state, before);
    }
}
