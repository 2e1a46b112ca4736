//! A reactor that sleeps: what wakes it, and what keeps it from sleeping.

use std::convert::Infallible;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use frwr_mempool::Bell;
use frwr_reactor::{
    Context, CoreIndex, Idle, Now, Options, Outbox, Placement, Poller, PollerAdder, Reactors, Running, Schedule, Seat,
    Sleep, Source, Turn,
};

struct Nothing;

impl Context for Nothing {
    type Message = ();

    fn message(&mut self, _: Source, _: (), _: &Now) {}
}

/// What others write, and a poller looks at.
#[derive(Default)]
struct Device {
    written: AtomicU32,
    seen: AtomicU32,
    bell: Bell,
}

struct Looks {
    device: Arc<Device>,
    /// It can be woken.
    arms: bool,
}

impl Poller<Nothing> for Looks {
    fn poll(&mut self, _: &mut Nothing, _: &Now) -> u32 {
        let written = self.device.written.swap(0, Ordering::Acquire);
        self.device.seen.fetch_add(written, Ordering::Release);
        written
    }

    fn sleep_until(&self, _: &Nothing) -> Sleep {
        Sleep::Forever
    }

    fn arm(&mut self, _: &mut Nothing) -> bool {
        self.device.bell.arm();
        self.arms
    }
}

type Prepare = fn(&Seat<()>, &Arc<Device>);

/// One reactor over a device; `descriptor` wakes it where there is one.
fn run(
    device: &Arc<Device>,
    arms: bool,
    descriptor: Option<std::io::PipeReader>,
    prepare: Prepare,
) -> Running<(), Nothing> {
    let (device, mut descriptor) = (Arc::clone(device), descriptor);
    let init = |_: CoreIndex| {
        let (device, descriptor) = (Arc::clone(&device), descriptor.take());
        move |seat: Seat<()>, _: Outbox<()>| {
            prepare(&seat, &device);
            let mut reactor = seat.reactor(Nothing);
            if let Some(descriptor) = &descriptor {
                reactor.wake_by(descriptor.as_fd()).unwrap();
            }
            // It lives as long as who looks at it.
            let looks = (Looks { device, arms }, descriptor);
            reactor.add("looks", Schedule::Busy, Holds(looks.0, looks.1)).unwrap();
            Ok::<_, Infallible>(reactor)
        }
    };
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
    Reactors::new(Placement::Unpinned { reactors: 1 }).options(options).launch(init).unwrap()
}

/// A poller with what it holds.
struct Holds(Looks, #[expect(dead_code, reason = "it is closed with the poller")] Option<std::io::PipeReader>);

impl Poller<Nothing> for Holds {
    fn poll(&mut self, core: &mut Nothing, now: &Now) -> u32 {
        self.0.poll(core, now)
    }

    fn sleep_until(&self, core: &Nothing) -> Sleep {
        self.0.sleep_until(core)
    }

    fn arm(&mut self, core: &mut Nothing) -> bool {
        self.0.arm(core)
    }
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

fn is_asleep(running: &Running<(), Nothing>) -> bool {
    running.pulses().all(|pulse| pulse.turn == Turn::Asleep)
}

fn end(running: Running<(), Nothing>) {
    let ended = running.shutdown(Duration::from_secs(60));
    assert!(ended.into_iter().all(|ended| ended.unwrap().report.undrained.is_empty()));
}

/// By a waker, whether it parks or waits for descriptors too.
#[test]
fn a_bell_wakes_a_reactor_that_sleeps() {
    for with_descriptor in [false, true] {
        let device = Arc::<Device>::default();
        let (reader, writer) = std::io::pipe().unwrap();
        let running =
            run(&device, true, with_descriptor.then_some(reader), |seat, device| device.bell.wakes(&seat.waker()));
        for round in 1..=20 {
            until(|| is_asleep(&running));
            device.written.fetch_add(1, Ordering::Release);
            device.bell.ring();
            until(|| device.seen.load(Ordering::Acquire) == round);
        }
        end(running);
        drop(writer);
    }
}

#[test]
fn a_descriptor_that_becomes_readable_wakes_a_reactor_and_need_not_be_read() {
    use std::io::Write as _;
    let device = Arc::<Device>::default();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let running = run(&device, true, Some(reader), |_, _| ());
    for round in 1..=20 {
        until(|| is_asleep(&running));
        device.written.fetch_add(1, Ordering::Release);
        writer.write_all(b"x").unwrap();
        until(|| device.seen.load(Ordering::Acquire) == round);
    }
    until(|| is_asleep(&running));
    end(running);
}

/// One reactor with nothing to poll, and who adds pollers to it; it waits for descriptors where it has one.
fn run_empty(descriptor: Option<std::io::PipeReader>) -> (Running<(), Nothing>, PollerAdder<Nothing>) {
    let (adders, mut descriptor) = (std::sync::mpsc::channel(), descriptor);
    let init = |_: CoreIndex| {
        let (adder, descriptor) = (adders.0.clone(), descriptor.take());
        move |seat: Seat<()>, _: Outbox<()>| {
            let mut reactor = seat.reactor(Nothing);
            if let Some(descriptor) = &descriptor {
                reactor.wake_by(descriptor.as_fd()).unwrap();
            }
            adder.send(reactor.adder()).unwrap();
            Ok::<_, Infallible>(reactor)
        }
    };
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
    let running = Reactors::new(Placement::Unpinned { reactors: 1 }).options(options).launch(init).unwrap();
    (running, adders.1.recv().unwrap())
}

/// The reactor is asleep when both come.
#[test]
fn a_poller_that_is_added_to_a_reactor_that_sleeps_brings_a_descriptor_that_wakes_it() {
    use std::io::Write as _;
    let (first, kept) = std::io::pipe().unwrap();
    let (running, adder) = run_empty(Some(first));
    until(|| is_asleep(&running));
    let (device, (reader, mut writer)) = (Arc::<Device>::default(), std::io::pipe().unwrap());
    adder.wake_by(reader.as_fd()).unwrap();
    let looks = Looks { device: Arc::clone(&device), arms: true };
    adder.add("looks", Schedule::Busy, Holds(looks, Some(reader))).unwrap();
    for round in 1..=20 {
        until(|| is_asleep(&running));
        device.written.fetch_add(1, Ordering::Release);
        writer.write_all(b"x").unwrap();
        until(|| device.seen.load(Ordering::Acquire) == round);
    }
    end(running);
    drop(kept);
}

#[test]
fn a_reactor_that_parks_takes_no_descriptor_while_it_runs() {
    let (running, adder) = run_empty(None);
    let (reader, writer) = std::io::pipe().unwrap();
    let refused = adder.wake_by(reader.as_fd()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported, "{refused}");
    // It goes on, and takes pollers that wake otherwise.
    let device = Arc::<Device>::default();
    device.written.store(1, Ordering::Release);
    adder.add("looks", Schedule::Busy, Looks { device: Arc::clone(&device), arms: true }).unwrap();
    until(|| device.seen.load(Ordering::Acquire) == 1);
    end(running);
    drop(writer);
}

#[test]
fn who_cannot_be_woken_is_polled_on() {
    let device = Arc::<Device>::default();
    let running = run(&device, false, None, |_, device| device.bell.wakes(Waker::noop()));
    for round in 1..=20 {
        device.written.fetch_add(1, Ordering::Release);
        until(|| device.seen.load(Ordering::Acquire) == round);
    }
    let figures = running.statistics();
    end(running);
    assert!(figures.iter().all(|figures| figures.asleep == Duration::ZERO), "{figures:?}");
}

/// Has something to do at a time of its own, again and again.
struct Punctual {
    due: Duration,
    /// It was polled in time.
    in_time: Arc<AtomicBool>,
    descriptor: std::io::PipeReader,
}

/// Far below a millisecond, the unit of epoll_wait(2).
const PERIOD: Duration = Duration::from_micros(200);

impl Poller<Nothing> for Punctual {
    fn poll(&mut self, _: &mut Nothing, now: &Now) -> u32 {
        let Some(late) = now.time().checked_sub(self.due) else { return 0 };
        self.in_time.fetch_or(!self.due.is_zero() && late < PERIOD, Ordering::Relaxed);
        self.due = now.time() + PERIOD;
        1
    }

    fn sleep_until(&self, _: &Nothing) -> Sleep {
        Sleep::Until(self.due)
    }

    fn arm(&mut self, _: &mut Nothing) -> bool {
        true
    }
}

/// Of many sleeps one ends in time on any machine.
#[test]
fn a_reactor_that_waits_for_descriptors_wakes_in_time() {
    let in_time = Arc::<AtomicBool>::default();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut poller = Some(Punctual { due: Duration::ZERO, in_time: Arc::clone(&in_time), descriptor: reader });
    let init = |_: CoreIndex| {
        let poller = poller.take().unwrap();
        move |seat: Seat<()>, _: Outbox<()>| {
            let mut reactor = seat.reactor(Nothing);
            reactor.wake_by(poller.descriptor.as_fd()).unwrap();
            reactor.add("punctual", Schedule::Busy, poller).unwrap();
            Ok::<_, Infallible>(reactor)
        }
    };
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
    let running = Reactors::new(Placement::Unpinned { reactors: 1 }).options(options).launch(init).unwrap();
    until(|| in_time.load(Ordering::Relaxed) && running.statistics()[0].asleep > Duration::ZERO);
    end(running);
    drop(writer);
}

#[test]
fn a_reactor_that_is_to_stay_awake_never_sleeps_beside_one_that_does() {
    let init = |core: CoreIndex| {
        move |seat: Seat<()>, _: Outbox<()>| {
            let seat = if core.index() == 1 { seat.awake() } else { seat };
            Ok::<_, Infallible>(seat.reactor(Nothing))
        }
    };
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
    let running = Reactors::new(Placement::Unpinned { reactors: 2 }).options(options).launch(init).unwrap();
    until(|| running.pulses().next().is_some_and(|pulse| pulse.turn == Turn::Asleep));
    until(|| running.statistics()[1].iterations > 1000);
    let ended = running.shutdown(Duration::from_secs(60)).into_iter();
    let [asleep, awake] = ended.map(|ended| ended.unwrap().report.statistics).collect::<Vec<_>>().try_into().unwrap();
    assert!(asleep.sleeps > 0 && asleep.asleep > Duration::ZERO, "{asleep:?}");
    assert_eq!((awake.sleeps, awake.asleep), (0, Duration::ZERO));
}
