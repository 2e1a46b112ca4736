//! Iterations beyond a threshold: seen from outside while they last, and told by the reactor when they are over.

use std::convert::Infallible;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use frwr_reactor::{
    Cause, Context, CoreIndex, Idle, Now, Options, Outbox, Placement, Poller, Pulse, Reactors, Running, Schedule, Seat,
    Sleep, Source, Stall, Turn, poll_fn,
};

const FIRST: CoreIndex = CoreIndex(0);
const THRESHOLD: Duration = Duration::from_millis(1);

struct Nothing;

impl Context for Nothing {
    type Message = ();

    fn message(&mut self, _: Source, _: (), _: &Now) {}
}

/// Stands still whenever it is told to, until it may go on; what it found is told with that.
struct Stands {
    begin: mpsc::Receiver<()>,
    arrived: mpsc::Sender<()>,
    release: mpsc::Receiver<u32>,
}

impl Poller<Nothing> for Stands {
    fn poll(&mut self, _: &mut Nothing, _: &Now) -> u32 {
        if self.begin.try_recv().is_err() {
            return 0;
        }
        self.arrived.send(()).unwrap();
        self.release.recv().unwrap_or(0)
    }

    fn sleep_until(&self, _: &Nothing) -> Sleep {
        Sleep::Busy
    }
}

/// The other side of it.
struct Keeper {
    begin: mpsc::Sender<()>,
    arrived: mpsc::Receiver<()>,
    release: mpsc::Sender<u32>,
}

impl Keeper {
    fn stop(&self) {
        self.begin.send(()).unwrap();
        self.arrived.recv().unwrap();
    }
}

fn run(stall_threshold: Duration) -> (Running<(), Nothing>, Keeper) {
    let (begin, begun) = mpsc::channel();
    let (arrive, arrived) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let mut poller = Some(Stands { begin: begun, arrived: arrive, release: released });
    let init = |_: CoreIndex| {
        let poller = poller.take().unwrap();
        move |seat: Seat<()>, _: Outbox<()>| {
            let mut reactor = seat.reactor(Nothing);
            reactor.add("idle", Schedule::Busy, poll_fn(|_: &mut Nothing, _: &Now| 0)).unwrap();
            reactor.add("stands", Schedule::Busy, poller).unwrap();
            Ok::<_, Infallible>(reactor)
        }
    };
    let options = Options::default().stall_threshold(stall_threshold);
    let running = Reactors::new(Placement::Unpinned { reactors: 1 }).options(options).launch(init).unwrap();
    (running, Keeper { begin, arrived, release })
}

fn pulse(running: &Running<(), Nothing>) -> Pulse {
    running.pulses().next().unwrap()
}

/// Waits until this is seen.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::yield_now();
    }
}

/// The kernel's letter for what a thread of this process does.
fn state(thread: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_probe_is_answered_by_a_core_that_goes_on_and_by_no_other() {
    let (running, keeper) = run(Duration::MAX);
    assert!(!pulse(&running).probed);
    for _ in 0..3 {
        running.probe(FIRST);
        wait_for(|| (!pulse(&running).probed).then_some(()));
    }
    keeper.stop();
    // The iteration that it stands in may still answer what was asked before.
    wait_for(|| (!pulse(&running).probed).then_some(()));
    running.probe(FIRST);
    for _ in 0..100 {
        let Pulse { probed, turn, .. } = pulse(&running);
        assert_eq!((probed, turn), (true, Turn::Poller("stands")));
        running.probe(FIRST);
    }
    running.probe(CoreIndex(7));
    keeper.release.send(0).unwrap();
    wait_for(|| (!pulse(&running).probed).then_some(()));
    assert_eq!(running.last_stall(FIRST), None, "no iteration is longer than the longest time");
    assert!(running.shutdown(Duration::ZERO).into_iter().all(|ended| ended.is_ok()));
}

/// One that waited in the kernel for longer than the threshold, and then found so much. On a machine that is not quiet another one may
/// hide it, so that it is done again then.
fn stall(running: &Running<(), Nothing>, keeper: &Keeper, found: u32) -> Stall {
    let thread = wait_for(|| Some(pulse(running).thread).filter(|thread| *thread > 0));
    loop {
        let before = running.last_stall(FIRST).map_or(0, |stall| stall.number);
        keeper.stop();
        wait_for(|| (state(thread) == Some('S')).then_some(()));
        let began = Instant::now();
        wait_for(|| (began.elapsed() > THRESHOLD).then_some(()));
        keeper.release.send(found).unwrap();
        let stall = wait_for(|| running.last_stall(FIRST).filter(|stall| stall.number > before));
        if stall.voluntary_switches > 0 {
            return stall;
        }
    }
}

#[test]
fn a_stall_that_is_over_is_told_with_its_length_and_its_cause() {
    let (running, keeper) = run(THRESHOLD);
    for found in [0, 5] {
        let stall = stall(&running, &keeper, found);
        assert!(stall.duration > THRESHOLD && stall.began > Duration::ZERO, "{stall:?}");
        // Others may have had its processor, or it may have lost pages.
        assert!(matches!(stall.cause, Cause::Wait | Cause::Switch | Cause::PageFault), "{stall:?}");
        assert_eq!(stall.poller, (found > 0).then_some("stands"), "{stall:?}");
    }
    let figures = &running.statistics()[0];
    assert!(figures.long.total() >= 2 && figures.pollers.len() == 2, "{figures:?}");
    assert!(running.shutdown(Duration::ZERO).into_iter().all(|ended| ended.is_ok()));
}

/// Works for longer than the threshold, and lets the reactor sleep in between.
#[derive(Default)]
struct WorksAndSleeps {
    worked_at: Duration,
    now: Duration,
}

/// Sleeps between two works.
const NAPS: u32 = 5;

impl Poller<Nothing> for WorksAndSleeps {
    fn poll(&mut self, _: &mut Nothing, now: &Now) -> u32 {
        self.now = now.time();
        if self.now < self.worked_at + NAPS * THRESHOLD {
            return 0;
        }
        let began = Instant::now();
        while began.elapsed() <= 2 * THRESHOLD {}
        self.worked_at = self.now + 2 * THRESHOLD;
        1
    }

    fn sleep_until(&self, _: &Nothing) -> Sleep {
        Sleep::Until(self.now + THRESHOLD)
    }

    fn arm(&mut self, _: &mut Nothing) -> bool {
        true
    }
}

#[test]
fn what_a_core_slept_before_is_no_wait_of_its_stall() {
    let init = |_: CoreIndex| {
        |seat: Seat<()>, _: Outbox<()>| {
            let mut reactor = seat.reactor(Nothing);
            reactor.add("works", Schedule::Busy, WorksAndSleeps::default()).unwrap();
            Ok::<_, Infallible>(reactor)
        }
    };
    let options = Options::default().stall_threshold(THRESHOLD).idle(Idle::SleepAfter(Duration::ZERO));
    let running = Reactors::new(Placement::Unpinned { reactors: 1 }).options(options).launch(init).unwrap();
    for before in 0..5 {
        let stall = wait_for(|| running.last_stall(FIRST).filter(|stall| stall.number > before));
        // Who gets a page may wait for it.
        let no_wait = stall.voluntary_switches == 0 || stall.page_faults > 0;
        assert!(no_wait && stall.cause != Cause::Wait, "{stall:?}");
    }
    let figures = &running.statistics()[0];
    assert!(figures.asleep > Duration::ZERO && figures.long.wait.total() == 0, "{figures:?}");
    assert!(running.shutdown(Duration::ZERO).into_iter().all(|ended| ended.is_ok()));
}
