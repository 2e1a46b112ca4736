//! Reactors on threads of their own: pinning, errors, panics, sleep, published figures.

use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use frwr_reactor::{
    Clock, Context, CoreIndex, CpuId, Idle, LaunchError, Now, Options, Outbox, Placement, PlacementError, Poller,
    Reactor, Reactors, Running, RunningError, Schedule, Seat, ShutdownHandle, Sleep, Source, Statistics, Topology,
    VirtualClock, poll_fn,
};

const FIRST: CoreIndex = CoreIndex(0);
/// Longer than any test: draining ends these tests, not the deadline.
const GRACE: Duration = Duration::from_secs(60);

/// Passes each message on to the other reactor until the count is over.
#[derive(Debug)]
struct Relay {
    outbox: Outbox<u32>,
    shutdown: ShutdownHandle,
    received: u32,
    cpu_inside: Option<CpuId>,
}

impl Context for Relay {
    type Message = u32;

    fn message(&mut self, _from: Source, message: u32, _now: &Now) {
        self.received += 1;
        match message {
            0 => self.shutdown.request(GRACE),
            _ => {
                let other = (usize::from(self.outbox.core().0) + 1) % self.outbox.reactors();
                self.outbox.send(CoreIndex(u16::try_from(other).unwrap()), message - 1).unwrap();
            }
        }
    }
}

fn relay(seat: Seat<u32>, outbox: Outbox<u32>) -> Result<Reactor<Relay>, Infallible> {
    let shutdown = seat.shutdown_handle();
    Ok(seat.reactor(Relay { outbox, shutdown, received: 0, cpu_inside: own_cpu() }))
}

/// The only CPU that the calling thread may use, if it is one.
fn own_cpu() -> Option<CpuId> {
    let machine = Topology::of_machine();
    (machine.allowed().len() == 1).then(|| machine.allowed().iter().next()).flatten()
}

fn unpinned(reactors: usize) -> Reactors<u32> {
    Reactors::new(Placement::Unpinned { reactors })
}

/// Rests until a message comes.
struct Rests;

impl Poller<Relay> for Rests {
    fn poll(&mut self, _: &mut Relay, _: &Now) -> u32 {
        0
    }

    fn sleep_until(&self, _: &Relay) -> Sleep {
        Sleep::Forever
    }
}

fn play(mut running: Running<u32, Relay>, rounds: u32) -> Vec<frwr_reactor::Finished<Relay>> {
    running.take_foreign().expect("asked for").send(FIRST, rounds).unwrap();
    running.join().into_iter().map(|ended| ended.expect("no panic")).collect()
}

#[test]
fn pinned_reactors_run_where_they_were_told() {
    let machine = Topology::of_machine();
    let wanted: Vec<CpuId> = machine.allowed().iter().filter(|&cpu| machine.online().contains(cpu)).take(2).collect();
    let before = *machine.allowed();
    let reactors = Reactors::new(Placement::Cores(wanted.clone())).allow_siblings(true).foreign(1);
    let running = reactors.launch(|_| relay).unwrap();
    assert!(running.cpus().eq(wanted.iter().copied().map(Some)));
    let finished = play(running, 1000);
    for (finished, &cpu) in finished.iter().zip(&wanted) {
        assert_eq!(finished.context.cpu_inside, Some(cpu), "the context is built on the pinned thread");
        assert_eq!(finished.report.statistics.cpu, Some(cpu));
    }
    assert_eq!(finished.iter().map(|finished| finished.context.received).sum::<u32>(), 1001);
    assert_eq!(Topology::of_machine().allowed(), &before, "the caller's affinity is untouched");
}

#[test]
fn same_core_twice_is_refused_by_name() {
    let core = Topology::of_machine().allowed().iter().next().unwrap();
    let error = Reactors::<u32>::new(Placement::Cores(vec![core, core])).launch(|_| relay).unwrap_err();
    assert!(matches!(error, LaunchError::Placement(PlacementError::Twice { core: named }) if named == core));
}

#[test]
fn core_that_the_kernel_refuses_is_an_error() {
    let ghost = CpuId::new(1023).unwrap();
    let fake = Topology::read(std::path::Path::new("/nonexistent"), [ghost].into_iter().collect());
    let error = Reactors::<u32>::new(Placement::Cores(vec![ghost])).topology(fake).launch(|_| relay).unwrap_err();
    assert!(matches!(error, LaunchError::Pin { core: FIRST, .. }), "{error}");
    assert!(error.to_string().contains("core 1023"));
}

#[test]
fn unpinned_reactors_say_so() {
    let finished = play(unpinned(3).foreign(1).launch(|_| relay).unwrap(), 100);
    assert_eq!(finished.len(), 3);
    assert!(finished.iter().all(|finished| finished.report.statistics.cpu.is_none()));
    assert!(finished.iter().all(|finished| finished.report.undrained.is_empty()));
}

#[test]
fn failed_initialisation_stops_all() {
    let init = |core: CoreIndex| {
        move |seat, outbox| match core {
            CoreIndex(1) => Err(std::io::Error::other("no memory on this node")),
            _ => Ok(relay(seat, outbox).unwrap_or_else(|never| match never {})),
        }
    };
    let error = unpinned(3).launch(init).unwrap_err();
    assert!(matches!(error, LaunchError::Init { core: CoreIndex(1), .. }));
    assert_eq!(error.to_string(), "reactor 1: no memory on this node");
}

/// What a program carries and has not looked at, of more pages than the kernel maps around one that is touched.
static UNREAD: [u8; 1 << 20] = [7; 1 << 20];
const PAGE: usize = 4096;

/// How many of the pages that lie wholly in these bytes are mapped, and how many there are (proc_pid_pagemap(5)): asked without a
/// look at them, and without what a sanitizer notes of each look.
fn mapped(bytes: &[u8]) -> (usize, usize) {
    let first = bytes.as_ptr().addr().div_ceil(PAGE);
    let pages = (bytes.as_ptr().addr() + bytes.len()) / PAGE - first;
    let mut entries = vec![0; pages * size_of::<u64>()];
    let pagemap = File::open("/proc/self/pagemap").expect("Linux has it");
    pagemap.read_exact_at(&mut entries, (first * size_of::<u64>()) as u64).expect("an entry of each page");
    // Bit 63: present.
    (entries.chunks_exact(size_of::<u64>()).filter(|entry| entry[7] & 0x80 != 0).count(), pages)
}

#[test]
fn code_and_constants_are_there_before_a_core_runs() {
    let (send, counts) = std::sync::mpsc::channel();
    let init = move |_| {
        let send = send.clone();
        move |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            let poll = move |relay: &mut Relay, _: &Now| {
                send.send(mapped(&UNREAD)).expect("the test listens");
                relay.shutdown.request(GRACE);
                1
            };
            reactor.add("reader", Schedule::Busy, poll_fn(poll)).expect("room");
            Ok::<_, Infallible>(reactor)
        }
    };
    assert!(unpinned(1).launch(init).unwrap().join().remove(0).is_ok());
    let (mapped, pages) = counts.recv().unwrap();
    // The kernel may take single pages back.
    assert!(mapped > pages * 15 / 16, "{mapped} of {pages}");
}

/// As `?` makes it of whatever there is.
#[test]
fn an_initialisation_may_fail_with_any_error() {
    type Any = Box<dyn std::error::Error + Send + Sync>;
    let init = |_| |_: Seat<u32>, _: Outbox<u32>| -> Result<Reactor<Relay>, Any> { Err("no disk".into()) };
    let error = unpinned(1).launch(init).unwrap_err();
    assert_eq!(error.to_string(), "reactor 0: no disk");
    let LaunchError::Init { error, .. } = error else { panic!("{error}") };
    assert_eq!(error.to_string(), "no disk");
}

#[test]
fn panic_while_set_up_is_an_error() {
    let init = |_| |_: Seat<u32>, _: Outbox<u32>| -> Result<Reactor<Relay>, Infallible> { panic!("bad start") };
    let error = unpinned(1).launch(init).unwrap_err();
    assert!(matches!(error, LaunchError::Panicked { message, .. } if message == "bad start"));
}

#[test]
fn panic_of_a_poller_names_core_and_poller_and_ends_the_others() {
    let init = |core: CoreIndex| {
        move |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            let poll = move |_: &mut Relay, _: &Now| if core.0 == 1 { panic!("out of luck") } else { 0 };
            reactor.add("gambler", Schedule::Busy, poll_fn(poll)).expect("room");
            Ok::<_, Infallible>(reactor)
        }
    };
    let mut ended = unpinned(2).launch(init).unwrap().join();
    let error = ended.remove(1).unwrap_err();
    let RunningError::Panicked { core, poller, ref message, .. } = error else { panic!("{error}") };
    assert_eq!((core, poller, message.as_str()), (CoreIndex(1), Some("gambler"), "out of luck"));
    assert!(error.to_string().starts_with("reactor 1 (unpinned) panicked in gambler"));
    assert!(ended.remove(0).is_ok());
}

/// Says when it is flushed; panics when its polls are used up.
struct Flushes {
    flushed: std::sync::mpsc::Sender<&'static str>,
    name: &'static str,
    polls_left: Option<u32>,
}

impl Poller<Relay> for Flushes {
    fn poll(&mut self, _: &mut Relay, _: &Now) -> u32 {
        self.polls_left = self.polls_left.map(|left| left.checked_sub(1).expect("polls are left"));
        1
    }

    fn flush(&mut self, _: &mut Relay, _: &Now) {
        self.flushed.send(self.name).expect("the test listens");
    }

    fn sleep_until(&self, _: &Relay) -> Sleep {
        Sleep::Busy
    }
}

#[test]
fn others_are_flushed_after_a_panic() {
    let (send, flushed) = std::sync::mpsc::channel();
    let init = move |_| {
        let send = send.clone();
        move |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            let poller = |name, polls_left| Flushes { flushed: send.clone(), name, polls_left };
            reactor.add("gathers", Schedule::Busy, poller("gathers", None)).expect("room");
            reactor.add("breaks", Schedule::Busy, poller("breaks", Some(1))).expect("room");
            Ok::<_, Infallible>(reactor)
        }
    };
    assert!(unpinned(1).launch(init).unwrap().join().remove(0).is_err());
    assert_eq!(flushed.try_iter().collect::<Vec<_>>(), ["breaks", "gathers", "gathers"]);
}

/// Panics in one of the calls beside poll and flush.
#[derive(Clone, Copy, PartialEq)]
enum Shy {
    Sleeps,
    ShutsDown,
    Drains,
}

impl Poller<Relay> for Shy {
    fn poll(&mut self, _: &mut Relay, _: &Now) -> u32 {
        0
    }

    fn sleep_until(&self, _: &Relay) -> Sleep {
        assert!(*self != Self::Sleeps);
        Sleep::Busy
    }

    fn begin_shutdown(&mut self, _: &mut Relay, _: &Now) {
        assert!(*self != Self::ShutsDown);
    }

    fn drained(&self, _: &Relay) -> bool {
        assert!(*self != Self::Drains);
        true
    }
}

#[test]
fn panic_of_a_poller_is_its_own_whatever_it_was_asked() {
    for shy in [Shy::Sleeps, Shy::ShutsDown, Shy::Drains] {
        let init = |_| {
            move |seat, outbox| {
                let mut reactor = relay(seat, outbox)?;
                reactor.add("rests", Schedule::Busy, Rests).expect("room");
                reactor.add("shy", Schedule::Busy, shy).expect("room");
                Ok::<_, Infallible>(reactor)
            }
        };
        let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
        let running = unpinned(1).options(options).launch(init).unwrap();
        // Who panics for being asked to sleep ends by itself.
        let mut ended = if shy == Shy::Sleeps { running.join() } else { running.shutdown(GRACE) };
        let RunningError::Panicked { poller, .. } = ended.remove(0).unwrap_err() else { panic!() };
        assert_eq!(poller, Some("shy"));
    }
}

/// Panics when it is dropped.
struct Brittle;

impl Poller<Relay> for Brittle {
    fn poll(&mut self, _: &mut Relay, _: &Now) -> u32 {
        0
    }

    fn sleep_until(&self, _: &Relay) -> Sleep {
        Sleep::Busy
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        panic!("cannot let go");
    }
}

#[test]
fn panic_of_a_poller_that_is_dropped_at_the_end_says_what_it_says() {
    let init = |_| {
        |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            reactor.add("brittle", Schedule::Busy, Brittle).expect("room");
            Ok::<_, Infallible>(reactor)
        }
    };
    let error = unpinned(1).launch(init).unwrap().shutdown(GRACE).remove(0).unwrap_err();
    let RunningError::Panicked { ref message, .. } = error else { panic!("{error}") };
    assert_eq!(message, "cannot let go", "{error}");
}

#[test]
fn sleeping_reactors_are_woken_by_messages() {
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
    let init = |_| {
        |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            reactor.add("rests", Schedule::Busy, Rests).expect("room");
            Ok::<_, Infallible>(reactor)
        }
    };
    let running = unpinned(2).options(options).foreign(1).launch(init).unwrap();
    // A lost wake-up would leave both asleep for ever.
    let finished = play(running, 20_000);
    assert_eq!(finished.iter().map(|finished| finished.context.received).sum::<u32>(), 20_001);
}

#[test]
fn sleeping_reactors_are_woken_by_pollers_and_shutdown() {
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
    let (send, adders) = std::sync::mpsc::channel();
    let init = |_| {
        let send = send.clone();
        move |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            reactor.add("rests", Schedule::Busy, Rests).expect("room");
            send.send(reactor.adder()).expect("the test waits");
            Ok::<_, Infallible>(reactor)
        }
    };
    let running = unpinned(1).options(options).launch(init).unwrap();
    let (ran, has_run) = std::sync::mpsc::channel();
    let poll = move |_: &mut Relay, _: &Now| {
        let _ = ran.send(());
        1
    };
    let handle = adders.recv().unwrap().add("late", Schedule::Busy, poll_fn(poll)).unwrap();
    has_run.recv().unwrap();
    handle.remove();
    while has_run.recv().is_ok() {}
    assert!(running.shutdown(GRACE).remove(0).unwrap().report.undrained.is_empty());
}

#[test]
fn figures_can_be_read_while_it_runs() {
    let init = |_| {
        |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            reactor.add("counts", Schedule::Busy, poll_fn(|_: &mut Relay, _| 3)).expect("room");
            Ok::<_, Infallible>(reactor)
        }
    };
    let running = unpinned(1).launch(init).unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let figures = loop {
            let figures = running.statistics().remove(0);
            if figures.work > last {
                break figures;
            }
            std::thread::yield_now();
        };
        assert_eq!(figures.work, 3 * figures.pollers[0].polls, "a copy belongs together");
        assert_eq!((figures.pollers[0].name, figures.iterations), ("counts", figures.pollers[0].polls));
        last = figures.work;
    }
    let report = running.shutdown(GRACE).remove(0).unwrap().report;
    assert!(report.statistics.work >= last && report.statistics.busy_share() > 0.0);
}

#[test]
fn dropping_running_reactors_ends_them() {
    let (alive, ended) = std::sync::mpsc::channel::<()>();
    let init = |_| {
        let alive = alive.clone();
        move |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            let poll = move |_: &mut Relay, _: &Now| {
                let _ = &alive;
                0
            };
            reactor.add("keeps the channel", Schedule::Busy, poll_fn(poll)).expect("room");
            Ok::<_, Infallible>(reactor)
        }
    };
    drop(unpinned(2).launch(init).unwrap());
    drop(alive);
    assert!(ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected), "both threads are gone");
}

/// Ignores what it is sent.
struct Stuffed(Outbox<u32>);

impl Context for Stuffed {
    type Message = u32;

    fn message(&mut self, _from: Source, _message: u32, _now: &Now) {}
}

#[test]
fn a_change_of_pollers_keeps_the_published_figures() {
    let (send, adders) = std::sync::mpsc::channel();
    let init = |_| {
        let send = send.clone();
        move |seat: Seat<u32>, outbox| {
            let mut reactor = seat.reactor(Stuffed(outbox));
            let mut full = false;
            let stuff = move |context: &mut Stuffed, _: &Now| {
                while !full {
                    full = context.0.send(FIRST, 0).is_err();
                }
                1
            };
            reactor.add("stuffs", Schedule::Busy, poll_fn(stuff)).expect("room");
            send.send(reactor.adder()).expect("the test waits");
            Ok::<_, Infallible>(reactor)
        }
    };
    // The clock stands still: figures are published in the first iteration, and when the list of pollers changes.
    let clock = Clock::from(&VirtualClock::new());
    let running = unpinned(1).clock(clock).launch(init).unwrap();
    let figures = |ready: fn(&Statistics) -> bool| loop {
        match running.statistics().remove(0) {
            figures if ready(&figures) => return figures,
            _ => std::thread::yield_now(),
        }
    };
    assert_eq!(figures(|figures| figures.would_blocks > 0).pollers.len(), 1);
    adders.recv().unwrap().add("late", Schedule::Busy, poll_fn(|_: &mut Stuffed, _| 0)).unwrap();
    assert_eq!(figures(|figures| figures.pollers.len() > 1).would_blocks, 1);
}

/// Objects to sleep when asked for the second time, and ends the reactor then. Each poll takes a nanosecond.
struct Asked {
    clock: VirtualClock,
    polls: u32,
    asked_at: std::sync::mpsc::Sender<u32>,
    asked: std::cell::Cell<u32>,
}

impl Poller<Relay> for Asked {
    fn poll(&mut self, _: &mut Relay, _: &Now) -> u32 {
        self.polls += 1;
        self.clock.advance(Duration::from_nanos(1));
        u32::from(self.polls == 5)
    }

    fn sleep_until(&self, context: &Relay) -> Sleep {
        self.asked_at.send(self.polls).unwrap();
        if self.asked.replace(1) == 0 {
            return Sleep::Forever;
        }
        context.shutdown.request(Duration::ZERO);
        Sleep::Busy
    }
}

#[test]
fn work_found_on_the_way_to_sleep_starts_the_count_again() {
    let (asked_at, asked) = std::sync::mpsc::channel();
    let options = Options::default().idle(Idle::SleepAfter(Duration::from_nanos(3)));
    let clock = VirtualClock::new();
    let running = unpinned(1).options(options).clock(Clock::from(&clock)).launch(|_| {
        let poller = Asked { clock: clock.clone(), polls: 0, asked_at: asked_at.clone(), asked: Default::default() };
        move |seat, outbox| {
            let mut reactor = relay(seat, outbox)?;
            reactor.add("asked", Schedule::Busy, poller).unwrap();
            Ok::<_, Infallible>(reactor)
        }
    });
    drop(running.unwrap().join());
    drop(asked_at);
    // Three nanoseconds are over in the fourth empty iteration; the fifth, which was to be the last before sleep, found work.
    assert_eq!(asked.iter().collect::<Vec<_>>(), [4, 9]);
}
