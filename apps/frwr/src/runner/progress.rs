//! What the cores tell the main thread while they run, and the other way round: plain stores and loads of words that one
//! side writes and the other reads. Nobody waits for anybody.

use crate::job::Phase;
use core::{ops::Add, task::Waker};
use crossbeam_utils::CachePadded;
use frwr_mempool::Bell;
use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

/// What the core that is reported of is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The host has no session yet.
    Connecting,
    /// The host's job.
    Job(Phase),
    /// The target has not been told that it listens.
    OpeningListener,
    /// The target listens.
    Serving,
    /// The target cannot listen.
    CannotListen,
}

/// All, by the number that stands for it.
const ALL: [Doing; 11] = [
    Doing::Connecting,
    Doing::Job(Phase::Write),
    Doing::Job(Phase::Flush),
    Doing::Job(Phase::Read),
    Doing::Job(Phase::Digest),
    Doing::Job(Phase::Load),
    Doing::Job(Phase::Drain),
    Doing::Job(Phase::Done),
    Doing::OpeningListener,
    Doing::Serving,
    Doing::CannotListen,
];

impl Doing {
    fn number(self) -> u8 {
        match self {
            Self::Connecting => 0,
            Self::Job(phase) => 1 + phase as u8,
            Self::OpeningListener => 8,
            Self::Serving => 9,
            Self::CannotListen => 10,
        }
    }
}

/// What was moved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IoCounters {
    /// A host's requests that have ended; a target's reads, writes, flushes, compares and writes of zeros that succeeded. Nothing of
    /// an admin queue.
    pub(super) commands: u64,
    /// What they have read and written.
    pub(super) bytes: u64,
}

impl IoCounters {
    /// What was moved since then.
    pub(super) fn since(self, then: Self) -> Self {
        let Self { commands, bytes } = self;
        Self { commands: commands.saturating_sub(then.commands), bytes: bytes.saturating_sub(then.bytes) }
    }
}

impl Add for IoCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { commands: self.commands + other.commands, bytes: self.bytes + other.bytes }
    }
}

/// Written by one core that is reported of: a host's where there is one, else a target's.
#[derive(Debug, Default)]
struct FromCore {
    commands: AtomicU64,
    bytes: AtomicU64,
    doing: AtomicU8,
    finished: AtomicBool,
    kill_peer: AtomicBool,
    broken_storage: AtomicBool,
}

/// Written by the main thread.
#[derive(Debug, Default)]
struct FromMain {
    /// [`STOP`], [`END_LOAD`], and above them how often there were orders: one word, for a core to look at in each poll.
    asks: AtomicU32,
}

/// End early.
const STOP: u32 = 1;
/// The load has gone on for long enough.
const END_LOAD: u32 = 2;
/// Once more an order.
const ORDER: u32 = 4;

/// All directions, each on cache lines of its own.
#[derive(Debug)]
struct Shared {
    cores: Box<[CachePadded<FromCore>]>,
    main: CachePadded<FromMain>,
    /// Rung by cores behind what the main thread does not look for by itself for long.
    bell: Bell,
    /// Of each core, rung by the main thread behind what it asks for.
    of_cores: Box<[CachePadded<Bell>]>,
}

/// The progress of all cores that are reported of, as one of them, or the main thread, has it. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    shared: Arc<Shared>,
    /// Which part the owner writes.
    part: usize,
}

impl Progress {
    /// Of so many cores.
    pub(super) fn new(cores: usize) -> Self {
        let of_cores = (0..cores).map(|_| CachePadded::default()).collect();
        let cores = (0..cores).map(|_| CachePadded::default()).collect();
        let (main, bell) = (CachePadded::default(), Bell::default());
        Self { shared: Arc::new(Shared { cores, main, bell, of_cores }), part: 0 }
    }

    /// Of so many parts whose owners come and go. None has one by now, and who is not there keeps nobody waiting.
    pub(super) fn vacant(parts: usize) -> Self {
        let progress = Self::new(parts);
        (0..parts).for_each(|part| progress.vacate(part));
        progress
    }

    /// The main thread: a part is to have an owner, which is so far. Before that one writes.
    pub(super) fn occupy(&self, part: usize, doing: Doing) {
        if let Some(core) = self.shared.cores.get(part) {
            core.doing.store(doing.number(), Relaxed);
            core.finished.store(false, Relaxed);
        }
    }

    /// The main thread: a part has no owner any more, and nothing that was moved.
    pub(super) fn vacate(&self, part: usize) {
        let Some(core) = self.shared.cores.get(part) else { return };
        core.commands.store(0, Relaxed);
        core.bytes.store(0, Relaxed);
        core.doing.store(Doing::Serving.number(), Relaxed);
        core.finished.store(true, Relaxed);
    }

    /// For the core that writes this part. One that is not reported of may have a number beyond: what it says is dropped.
    pub(super) fn part(&self, part: usize) -> Self {
        Self { shared: Arc::clone(&self.shared), part }
    }

    fn own(&self) -> Option<&FromCore> {
        self.shared.cores.get(self.part).map(|core| &**core)
    }

    fn all(&self) -> impl Iterator<Item = &FromCore> {
        self.shared.cores.iter().map(|core| &**core)
    }

    /// The core: what it has moved, and what it is doing.
    pub(super) fn publish(&self, io: IoCounters, doing: Doing) {
        if let Some(own) = self.own() {
            own.commands.store(io.commands, Relaxed);
            own.bytes.store(io.bytes, Relaxed);
            if own.doing.load(Relaxed) != doing.number() {
                own.doing.store(doing.number(), Relaxed);
                self.tell();
            }
        }
    }

    /// The core: there is something for the main thread, as an answer.
    #[cold]
    pub(super) fn tell(&self) {
        self.shared.bell.ring();
    }

    /// The main thread: how it is woken.
    pub(super) fn wakes(&self, waker: &Waker) {
        self.shared.bell.wakes(waker);
    }

    /// The main thread: what a core tells from now on wakes it, once. It looks once more before it waits.
    pub(super) fn arm(&self) {
        self.shared.bell.arm();
    }

    /// A core that may sleep: how it is woken. One for each part.
    pub(super) fn wakes_core(&self, waker: &Waker) {
        self.shared.of_cores.get(self.part).into_iter().for_each(|bell| bell.wakes(waker));
    }

    /// A core: what the main thread asks for from now on wakes it, once. It looks once more before it sleeps.
    pub(super) fn arm_core(&self) {
        self.shared.of_cores.get(self.part).into_iter().for_each(|bell| bell.arm());
    }

    fn ring_cores(&self) {
        self.shared.of_cores.iter().for_each(|bell| bell.ring());
    }

    /// A target's core: it has listened, as it said.
    #[must_use]
    pub(super) fn is_serving(&self) -> bool {
        self.own().is_some_and(|own| own.doing.load(Relaxed) == Doing::Serving.number())
    }

    /// A target's core: a storage takes no operations any more.
    pub(super) fn tell_broken_storage(&self) {
        if let Some(own) = self.own() {
            own.broken_storage.store(true, Relaxed);
        }
    }

    /// Whether one does, on any core.
    #[must_use]
    pub(super) fn has_broken_storage(&self) -> bool {
        self.all().any(|core| core.broken_storage.load(Relaxed))
    }

    /// What all cores have moved so far.
    #[must_use]
    pub(super) fn io(&self) -> IoCounters {
        let of =
            |core: &FromCore| IoCounters { commands: core.commands.load(Relaxed), bytes: core.bytes.load(Relaxed) };
        self.all().map(of).fold(IoCounters::default(), Add::add)
    }

    /// What the core does that is behind all others, or that one of them cannot listen.
    #[must_use]
    pub(super) fn doing(&self) -> Doing {
        let numbers = || self.all().map(|core| core.doing.load(Relaxed));
        if numbers().any(|number| number == Doing::CannotListen.number()) {
            return Doing::CannotListen;
        }
        numbers().min().and_then(|number| ALL.get(usize::from(number)).copied()).unwrap_or(Doing::Connecting)
    }

    /// The core: its work is over.
    pub(super) fn finish(&self) {
        if let Some(own) = self.own() {
            own.finished.store(true, Relaxed);
            self.tell();
        }
    }

    /// Whether that of all cores is, or one cannot begin.
    #[must_use]
    pub(super) fn is_finished(&self) -> bool {
        self.all().all(|core| core.finished.load(Relaxed)) || self.doing() == Doing::CannotListen
    }

    /// A host's core: now is the time for the target to drop the connection.
    pub(super) fn kill_peer(&self) {
        if let Some(own) = self.own() {
            own.kill_peer.store(true, Relaxed);
        }
    }

    /// A target's core: whether it shall.
    #[must_use]
    pub(super) fn wants_kill(&self) -> bool {
        self.all().any(|core| core.kill_peer.load(Relaxed))
    }

    /// The main thread: end early.
    pub(super) fn stop(&self) {
        self.ask_for(STOP);
    }

    /// The main thread: end the load, which is no interruption.
    pub(super) fn end_load(&self) {
        self.ask_for(END_LOAD);
    }

    /// The main thread, as often as it likes: who has heard of it is not woken again.
    fn ask_for(&self, what: u32) {
        if self.shared.main.asks.fetch_or(what, Relaxed) & what == 0 {
            self.ring_cores();
        }
    }

    /// The main thread: cores shall look for their orders, all that was given before among them.
    pub(super) fn ask(&self) {
        self.shared.main.asks.fetch_add(ORDER, Release);
        self.ring_cores();
    }

    /// A core: what it is asked for; another value than before where there is news.
    #[must_use]
    pub(super) fn asks(&self) -> Asks {
        Asks(self.shared.main.asks.load(Relaxed))
    }
}

/// What the main thread asks of the cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asks(u32);

impl Asks {
    /// To end early.
    pub(super) fn to_stop(self) -> bool {
        self.0 & STOP != 0
    }

    /// To end the load.
    pub(super) fn to_end_load(self) -> bool {
        self.0 & END_LOAD != 0
    }

    /// To look for orders, since then; each that was told of before is there to be found.
    pub(super) fn has_orders_since(self, then: Self) -> bool {
        // With the release of who has given them. The look at the word, in each poll, needs none.
        fence(Acquire);
        self.0 / ORDER != then.0 / ORDER
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Asks, Doing, IoCounters, Progress};
    use crate::job::Phase;
    use core::{convert::Infallible, task::Waker, time::Duration};
    use frwr_reactor::{
        Context, CoreIndex, Idle, Now, Options, Outbox, Placement, Poller, Reactors, Schedule, Seat, Sleep, Source,
    };
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering::Relaxed},
            mpsc,
        },
        task::Wake,
    };

    #[test]
    fn what_a_core_does_is_told_from_everything_else() {
        let progress = Progress::new(1);
        for (count, doing) in ALL.into_iter().enumerate() {
            let io = IoCounters { commands: count as u64, bytes: 512 * count as u64 };
            progress.publish(io, doing);
            assert_eq!((progress.io(), progress.doing()), (io, doing));
        }
    }

    #[test]
    fn several_cores_are_as_far_as_the_last_of_them() {
        let main = Progress::new(2);
        let cores = [main.part(0), main.part(1)];
        cores[0].publish(IoCounters { commands: 3, bytes: 30 }, Doing::Job(Phase::Load));
        cores[1].publish(IoCounters { commands: 4, bytes: 50 }, Doing::Job(Phase::Read));
        assert_eq!((main.io(), main.doing()), (IoCounters { commands: 7, bytes: 80 }, Doing::Job(Phase::Read)));
        cores[0].finish();
        assert!(!main.is_finished());
        cores[1].finish();
        assert!(main.is_finished());
    }

    #[test]
    fn a_core_hears_of_each_order_and_of_the_end() {
        let main = Progress::new(1);
        let core = main.part(0);
        let before = core.asks();
        assert!(!before.to_stop() && !core.asks().has_orders_since(before));
        main.ask();
        let then = core.asks();
        assert!(then.has_orders_since(before) && !then.to_stop());
        main.end_load();
        assert!(core.asks().to_end_load() && !core.asks().to_stop() && !core.asks().has_orders_since(then));
        main.stop();
        main.stop();
        assert!(core.asks().to_stop() && core.asks() != then && !core.asks().has_orders_since(then));
        main.ask();
        assert!(core.asks().to_stop() && core.asks().to_end_load() && core.asks().has_orders_since(then));
    }

    #[test]
    fn who_is_not_there_keeps_nobody_waiting_and_has_moved_nothing() {
        let main = Progress::vacant(3);
        assert!(main.is_finished() && main.doing() == Doing::Serving);
        main.occupy(1, Doing::OpeningListener);
        assert!(!main.is_finished() && main.doing() == Doing::OpeningListener);
        let moved = IoCounters { commands: 3, bytes: 30 };
        main.part(1).publish(moved, Doing::Serving);
        assert!(!main.is_finished() && main.doing() == Doing::Serving && main.io() == moved);
        main.vacate(1);
        assert!(main.is_finished() && main.io() == IoCounters::default());
    }

    #[test]
    fn one_core_that_cannot_listen_ends_the_run() {
        let main = Progress::new(2);
        main.part(0).publish(IoCounters::default(), Doing::Serving);
        main.part(1).publish(IoCounters::default(), Doing::CannotListen);
        assert_eq!(main.doing(), Doing::CannotListen);
        assert!(main.is_finished());
    }

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn each_core_that_sleeps_is_woken_once_by_what_is_new_to_it() {
        let main = Progress::new(2);
        let cores = [main.part(0), main.part(1)];
        let woken = cores.each_ref().map(|core| {
            let woken = Arc::<Woken>::default();
            core.wakes_core(&Waker::from(Arc::clone(&woken)));
            woken
        });
        let counts = || woken.each_ref().map(|woken| woken.0.load(Relaxed));
        main.ask();
        assert_eq!(counts(), [0, 0], "both are awake");
        let asks: [fn(&Progress); 3] = [Progress::ask, Progress::end_load, Progress::stop];
        for (before, ask) in (0..).zip(asks) {
            cores[0].arm_core();
            ask(&main);
            ask(&main);
            assert_eq!(counts(), [before + 1, 0]);
        }
        cores.iter().for_each(Progress::arm_core);
        main.stop();
        main.end_load();
        assert_eq!(counts(), [3, 0], "it was heard of before");
        main.ask();
        assert_eq!(counts(), [4, 1]);
    }

    struct Nothing;

    impl Context for Nothing {
        type Message = ();

        fn message(&mut self, _: Source, (): (), _: &Now) {}
    }

    /// When it gives itself an order while it falls asleep.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Orders {
        BeforeItArms,
        BehindThat,
        Never,
    }

    /// Sleeps until it is asked, for ever where nobody wakes it, and says what it heard.
    struct Hears {
        progress: Progress,
        heard: Asks,
        says: mpsc::Sender<Asks>,
        orders: Orders,
    }

    impl Poller<Nothing> for Hears {
        fn poll(&mut self, _: &mut Nothing, _: &Now) -> u32 {
            let before = core::mem::replace(&mut self.heard, self.progress.asks());
            if self.heard != before {
                self.says.send(self.heard).unwrap();
            }
            0
        }

        fn sleep_until(&self, _: &Nothing) -> Sleep {
            Sleep::Forever
        }

        fn arm(&mut self, _: &mut Nothing) -> bool {
            let orders = core::mem::replace(&mut self.orders, Orders::Never);
            if orders == Orders::BeforeItArms {
                self.progress.ask();
            }
            self.progress.arm_core();
            if orders == Orders::BehindThat {
                self.progress.ask();
            }
            true
        }
    }

    /// Where one were slept over this would not end.
    #[test]
    fn no_order_is_slept_over() {
        for orders in [Orders::BeforeItArms, Orders::BehindThat] {
            let (main, (says, said)) = (Progress::new(1), mpsc::channel());
            let init = |_: CoreIndex| {
                let (progress, says, heard) = (main.part(0), says.clone(), main.asks());
                move |seat: Seat<()>, _: Outbox<()>| {
                    progress.wakes_core(&seat.waker());
                    let mut reactor = seat.reactor(Nothing);
                    reactor.add("hears", Schedule::Busy, Hears { progress, heard, says, orders }).unwrap();
                    Ok::<_, Infallible>(reactor)
                }
            };
            let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
            let reactors = Reactors::<()>::new(Placement::Unpinned { reactors: 1 }).options(options);
            let running = reactors.launch(init).unwrap();
            assert!(said.recv().unwrap().has_orders_since(Asks::default()), "its own, {orders:?}");
            for _ in 0..1000 {
                let before = main.asks();
                main.ask();
                assert!(said.recv().unwrap().has_orders_since(before));
            }
            main.end_load();
            assert!(said.recv().unwrap().to_end_load());
            main.stop();
            assert!(said.recv().unwrap().to_stop());
            assert!(running.shutdown(Duration::ZERO).into_iter().all(|ended| ended.is_ok()));
        }
    }
}
