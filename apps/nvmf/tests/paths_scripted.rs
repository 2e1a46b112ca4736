//! Several paths to controllers that say what a test wants: which of them a request takes that one refuses because of the path, and by which
//! names a namespace is told from another one.

use core::cell::Cell;
use core::time::Duration;
use frwr_engine::MemoryAccess;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_nvmf::host::{
    Host, HostCompletion, HostFailure, HostOptions, IoError, PathRefusal, PathState, Paths, PathsOptions,
};
use frwr_nvmf::wire::{Command, Identify, Status, cns};
use frwr_support::Random;
use frwr_support::nvmf_harness::scripted::{Answer, Asked, Controller, Scripted};
use frwr_support::nvmf_harness::{BLOCK, engine_of, host_options, memory};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Path related, and may be tried again by another path.
const OF_PATH: [Status; 6] = [
    Status::INTERNAL_PATH_ERROR,
    Status::CONTROLLER_PATHING_ERROR,
    Status::HOST_PATHING_ERROR,
    Status::COMMAND_ABORTED_BY_HOST,
    Status::ANA_INACCESSIBLE,
    Status::ANA_TRANSITION,
];

/// What an I/O command is answered with; `None` is success.
type Refuses = Rc<Cell<Option<Status>>>;

struct Two {
    controllers: Vec<Controller>,
    refuses: Vec<Refuses>,
    controls: Vec<Control<SoftDevice>>,
    paths: Paths<SoftPort>,
    data: MemoryId,
    now: Duration,
    tick: Duration,
    completions: Vec<HostCompletion>,
}

fn is_io(asked: &Asked) -> bool {
    matches!(asked.command, Command::Read(_) | Command::Write(_) | Command::Flush { .. })
}

impl Two {
    /// `prepare` says what the controllers are before anybody asks them.
    fn new(options: &HostOptions, paths: PathsOptions, prepare: impl Fn(usize, &mut Controller)) -> Self {
        let fabric = SoftFabric::new();
        let (mut controllers, mut refuses, mut controls, mut hosts) = (vec![], vec![], vec![], vec![]);
        for at in 0..2 {
            let address = SocketAddr::from(([127, 0, 0, 1], 4420 + at as u16));
            let mut controller = Controller::at(&fabric, "reg_mr", address);
            controller.namespace.nguid = [7; 16];
            let says = Refuses::default();
            let of_rule = Rc::clone(&says);
            controller.rule =
                Box::new(move |asked| of_rule.get().filter(|_| is_io(asked)).map(|with| Answer::Status(with, 0)));
            prepare(at, &mut controller);
            controllers.push(controller);
            refuses.push(says);
            let options = options.clone().address(address);
            let mut control = Control::new(fabric.device(SoftOptions::new("reg_mr".parse().unwrap())));
            let engine = engine_of(&mut control, options.engine());
            hosts.push(Host::new(engine, memory(options.memory_bytes()), options).unwrap());
            controls.push(control);
        }
        let mut paths = Paths::new(hosts, paths).unwrap();
        let data = paths.add_memory(&memory(1 << 20), MemoryAccess::ReadWrite).unwrap();
        paths.start();
        let (now, tick) = (Duration::ZERO, Duration::from_micros(10));
        Self { controllers, refuses, controls, paths, data, now, tick, completions: Vec::new() }
    }

    /// Both paths serve.
    fn ready(paths: PathsOptions) -> Self {
        let mut two = Self::new(&host_options(), paths, |_, _| {});
        two.until("ready", |two| (0..2).all(|path| two.serves(path)));
        two
    }

    fn serves(&self, path: u16) -> bool {
        self.paths.state(path).is_some_and(PathState::serves)
    }

    fn step(&mut self) {
        self.now += self.tick;
        self.controls.iter_mut().for_each(|control| {
            control.poll();
        });
        self.paths.poll(self.now);
        self.paths.flush();
        while let Some(completion) = self.paths.next_completion() {
            self.completions.push(completion);
        }
        self.controllers.iter_mut().for_each(|controller| controller.step(self.now));
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..100_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("never {what}; {:?} {:?}", self.paths.state(0), self.paths.state(1));
    }

    fn write(&mut self, block: u64) {
        let segment = Segment { memory: self.data, offset: block * u64::from(BLOCK), length: BLOCK };
        self.paths.write(block, &[segment], block).unwrap();
    }

    fn ended(&mut self) -> Result<(), IoError> {
        self.until("ended", |two| !two.completions.is_empty());
        self.completions.remove(0).result
    }

    /// Commands of I/O that each controller had.
    fn had(&self) -> [usize; 2] {
        [0, 1].map(|at: usize| self.controllers[at].count(is_io))
    }

    fn finish(mut self) {
        self.paths.shut_down();
        self.until("stopped", |two| two.paths.is_stopped());
    }
}

#[test]
fn what_a_path_fails_goes_to_the_other_at_once() {
    let mut two = Two::ready(PathsOptions::default());
    for (before, status) in OF_PATH.into_iter().enumerate() {
        two.refuses[0].set(Some(status));
        two.write(1);
        let since = two.now;
        assert_eq!(two.ended(), Ok(()), "{status}");
        assert!(two.now - since < 50 * MS, "{status} {:?}", two.now - since);
        assert_eq!(two.had(), [before + 1, before + 1], "{status}");
    }
    let counted = [0, 1].map(|path| two.paths.path_statistics(path));
    assert_eq!(counted.map(|one| (one.requests, one.refused, one.resubmitted)), [(6, 6, 0), (6, 0, 6)]);
    assert_eq!(counted.map(|one| (one.lost, one.fenced)), [(0, 0); 2], "it was answered");
    two.finish();
}

#[test]
fn a_queue_that_asks_for_a_proof_once_more_keeps_no_request_whatever_it_says_of_retries() {
    let mut two = Two::ready(PathsOptions::default());
    for (before, status) in
        [Status::AUTHENTICATION_REQUIRED, Status::AUTHENTICATION_REQUIRED.do_not_retry()].into_iter().enumerate()
    {
        two.refuses[0].set(Some(status));
        two.write(1);
        assert_eq!(two.ended(), Ok(()), "{status}");
        assert_eq!(two.had(), [before + 1, before + 1], "{status}");
    }
    two.finish();
}

#[test]
fn what_no_controller_would_execute_is_tried_by_none() {
    let mut two = Two::ready(PathsOptions::default());
    for status in OF_PATH.map(Status::do_not_retry).into_iter().chain([Status::LBA_OUT_OF_RANGE]) {
        two.refuses[0].set(Some(status));
        two.write(1);
        assert_eq!(two.ended(), Err(IoError::Status(status)));
    }
    assert_eq!(two.had()[1], 0);
    two.finish();
}

#[test]
fn what_all_paths_refuse_is_tried_by_each_behind_pauses_and_ends_in_time() {
    let mut two = Two::ready(PathsOptions::default().path_timeout(20 * SECOND));
    let refuse = |two: &Two| two.refuses.iter().for_each(|one| one.set(Some(Status::INTERNAL_PATH_ERROR)));
    refuse(&two);
    two.write(1);
    two.tick = MS;
    let since = two.now;
    two.until("tried", |two| two.now > since + 10 * SECOND);
    let had = two.had();
    assert!(had.iter().all(|had| (5..60).contains(had)), "each now and then: {had:?}");
    // Whichever of them is back takes it.
    two.refuses[1].set(None);
    assert_eq!(two.ended(), Ok(()));
    refuse(&two);
    two.write(1);
    let since = two.now;
    assert_eq!(two.ended(), Err(IoError::Status(Status::INTERNAL_PATH_ERROR)));
    assert!((20 * SECOND..24 * SECOND).contains(&(two.now - since)), "{:?}", two.now - since);
    two.finish();
}

#[test]
fn a_path_that_comes_takes_what_the_others_refuse_and_the_time_begins_anew() {
    let rejects = |at, controller: &mut Controller| {
        if at == 1 {
            controller.rejects_with = Some(Vec::new());
        }
    };
    let options = host_options().max_attempts(u32::MAX);
    let mut two = Two::new(&options, PathsOptions::default().path_timeout(5 * SECOND), rejects);
    two.until("ready", |two| two.serves(0));
    two.refuses.iter().for_each(|one| one.set(Some(Status::INTERNAL_PATH_ERROR)));
    two.write(1);
    two.tick = MS;
    let since = two.now;
    two.until("refused", |two| two.now > since + 3 * SECOND);
    two.controllers[1].rejects_with = None;
    two.until("refused by both", |two| two.had()[1] > 0);
    two.until("refused for longer than that", |two| two.now > since + 7 * SECOND);
    assert_eq!(two.completions, []);
    two.refuses[1].set(None);
    assert_eq!(two.ended(), Ok(()));
    two.finish();
}

#[test]
fn requests_end_once_however_paths_refuse_them_and_none_is_with_two_controllers() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let mut two = Two::ready(PathsOptions::default().path_timeout(600 * SECOND).command_retries(None));
        two.tick = MS;
        let (mut outstanding, mut ended, mut seen) = (HashMap::new(), 0, [0; 2]);
        for _ in 0..4000 {
            let block = random.below(16);
            if two.paths.free_requests() > 0 && !outstanding.contains_key(&block) {
                outstanding.insert(block, 0_u32);
                two.write(block);
            }
            for one in &two.refuses {
                if random.one_in(8) {
                    one.set(random.one_in(2).then(|| random.of(&OF_PATH)));
                }
            }
            two.step();
            // What a controller has executed is asked of nobody again, and of one at a time.
            for (at, seen) in seen.iter_mut().enumerate() {
                let io: Vec<_> = two.controllers[at].asked.iter().filter(|asked| is_io(asked)).collect();
                for asked in &io[*seen..] {
                    let Command::Write(range) = asked.command else { panic!("{asked:?}") };
                    *outstanding.get_mut(&range.lba).expect("somebody waits for it") += 1;
                }
                *seen = io.len();
            }
            for completion in std::mem::take(&mut two.completions) {
                assert_eq!(completion.result, Ok(()), "{seed}");
                let times = outstanding.remove(&completion.cookie).expect("once");
                assert!(times > 0, "{seed}: it was executed");
                ended += 1;
            }
        }
        assert!(ended > 100, "{seed}: {ended}");
        let refused: u64 = (0..2).map(|path| two.paths.path_statistics(path).refused).sum();
        assert!(refused > 10, "{seed}: {refused}");
        two.refuses.iter().for_each(|one| one.set(None));
        two.until("all", |two| two.paths.outstanding() == 0);
        two.finish();
    }
}

/// A list with an EUI64 in front of the UUID.
fn descriptors(uuid: [u8; 16]) -> Answer {
    let mut list = vec![1, 8, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 3, 16, 0, 0];
    list.extend(uuid);
    Answer::Data(list)
}

fn asks_for_descriptors(asked: &Asked) -> bool {
    matches!(asked.command, Command::Identify(Identify { structure: cns::DESCRIPTORS, .. }))
}

#[test]
fn a_path_to_a_namespace_with_another_uuid_is_refused() {
    for (other, expected) in [(5, None), (6, Some(PathRefusal::OtherNamespace))] {
        let two = Two::new(&host_options(), PathsOptions::default(), |at, controller| {
            let uuid = if at == 0 { [5; 16] } else { [other; 16] };
            controller.rule = Box::new(move |asked| asks_for_descriptors(asked).then(|| descriptors(uuid)));
        });
        let mut two = two;
        let judged = |two: &Two, path| two.serves(path) || matches!(two.paths.state(path), Some(PathState::Refused(_)));
        two.until("judged", |two| (0..2).all(|path| judged(two, path)));
        let refusals: Vec<_> = (0..2)
            .filter_map(|path| match two.paths.state(path) {
                Some(PathState::Refused(refusal)) => Some(refusal),
                _ => None,
            })
            .collect();
        assert_eq!(refusals, Vec::from_iter(expected));
        two.finish();
    }
}

#[test]
fn a_namespace_that_comes_back_with_another_uuid_is_another_one_and_a_refused_list_says_nothing() {
    for (then, lasts) in [(Some([5; 16]), true), (None, true), (Some([6; 16]), false), (Some([0; 16]), false)] {
        let uuid = Rc::new(Cell::new(Some([5; 16])));
        let of_rule = Rc::clone(&uuid);
        let mut scripted = Scripted::ready("reg_mr", host_options(), |controller| {
            controller.namespace.nguid = [7; 16];
            controller.rule = Box::new(move |asked| {
                let refused = || Answer::Status(Status::INVALID_FIELD.do_not_retry(), 0);
                asks_for_descriptors(asked).then(|| of_rule.get().map_or_else(refused, descriptors))
            });
        });
        for (session, says) in [(2, then), (3, Some([5; 16]))] {
            uuid.set(says);
            scripted.tick = MS;
            scripted.controller.hang_up();
            scripted.until("back, or given up", |scripted| {
                let host = &scripted.lone.host;
                host.failure().is_some() || (host.is_ready() && host.session() == session)
            });
        }
        let expected = (!lasts).then_some(HostFailure::NamespaceChanged);
        assert_eq!(scripted.lone.host.failure(), expected, "{then:?}");
    }
}
