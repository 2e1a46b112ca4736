//! A host and a target of which each iteration finds work, on a reactor that may sleep or may not (goal A26: with load, sleeping
//! costs nothing that can be felt).

use crate::nvmf::{BLOCKS, HostSide, TargetSide, connect, nic};
use core::{convert::Infallible, time::Duration};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric};
use frwr_reactor::{
    Clock, Context, Idle, Now, Options, Poller, Reactor, Schedule, ShutdownHandle, Sleep, Source, Statistics, Wiring,
    poll_fn,
};
use std::error::Error;

/// As long as no run takes: who looks for it all the time, and never sleeps.
const LONG: Duration = Duration::from_secs(60 * 60);
/// What a core does before it sleeps unless it is told otherwise (`frwr serve --idle sleep`).
const USUAL: Duration = Duration::from_micros(50);

/// Both sides on one core, so that a run is the same each time.
struct Pair {
    host: HostSide<SoftDevice>,
    target: TargetSide<SoftDevice>,
    /// When the reactor's time began.
    began: Duration,
    batch: u64,
    left: u64,
    in_flight: u64,
    failed: u64,
    end: ShutdownHandle,
}

impl Context for Pair {
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: &Now) {
        match message {}
    }
}

impl Pair {
    fn poll_host(&mut self, now: &Now) -> u32 {
        let host = &mut self.host.host;
        let work = host.poll(self.began + now.time());
        while let Some(completion) = host.next_completion() {
            self.failed += u64::from(completion.result.is_err());
            self.in_flight -= 1;
        }
        while self.left > 0 && self.in_flight < self.batch {
            let block = self.left % BLOCKS;
            let segments = &self.host.segments[block as usize..=block as usize];
            if host.read(block, segments, self.left).is_err() {
                break;
            }
            self.left -= 1;
            self.in_flight += 1;
        }
        if self.left + self.in_flight == 0 {
            self.end.request(LONG);
        }
        work
    }
}

struct HostPoller;

impl Poller<Pair> for HostPoller {
    fn poll(&mut self, pair: &mut Pair, now: &Now) -> u32 {
        pair.poll_host(now)
    }

    fn flush(&mut self, pair: &mut Pair, _: &Now) {
        pair.host.host.flush();
    }

    fn sleep_until(&self, pair: &Pair) -> Sleep {
        if pair.host.host.engine().rests() { Sleep::Forever } else { Sleep::Busy }
    }

    fn arm(&mut self, pair: &mut Pair) -> bool {
        pair.host.host.engine_mut().arm()
    }
}

struct TargetPoller;

impl Poller<Pair> for TargetPoller {
    fn poll(&mut self, pair: &mut Pair, now: &Now) -> u32 {
        pair.target.target.poll(pair.began + now.time())
    }

    fn flush(&mut self, pair: &mut Pair, _: &Now) {
        pair.target.target.flush();
    }

    fn sleep_until(&self, pair: &Pair) -> Sleep {
        pair.target.target.sleeps_until().map_or(Sleep::Busy, |_| Sleep::Forever)
    }

    fn arm(&mut self, pair: &mut Pair) -> bool {
        pair.target.target.arm()
    }
}

/// Seconds that are one to iterations that find nothing: what takes the processor from them makes none of them a long
/// one, which the reactor would account for, and none of them copies figures out because its time has come.
const SLOWED: u64 = 1_000_000;

fn wiring(idle: Idle, clock: &Clock) -> Result<Wiring<Infallible>, String> {
    let options = Options::default().idle(idle).stall_threshold(Duration::MAX);
    Wiring::new(1, 0, clock, options).map_err(|error| error.to_string())
}

/// Reads of 4 KiB, `batch` at a time, over the software NIC. With `sleeps` the core may, and everything that arrives wakes it.
///
/// # Errors
/// What engine, host, target or reactor refuse, and reads that fail.
pub fn load(sleeps: bool, batch: u64, reads: u64) -> Result<Statistics, Box<dyn Error>> {
    let idle = if sleeps { Idle::SleepAfter(USUAL) } else { Idle::Spin };
    let mut wiring = wiring(idle, &Clock::calibrated())?;
    let (seat, _outbox) = wiring.seats.swap_remove(0);
    let waker = sleeps.then(|| seat.waker());
    let fabric = SoftFabric::new();
    let mut host = HostSide::woken_by(nic(&fabric), waker.as_ref())?;
    let mut target = TargetSide::woken_by(nic(&fabric), waker.as_ref())?;
    let began = connect(&mut host, &mut target)?;
    let end = seat.shutdown_handle();
    let mut reactor = seat.reactor(Pair { host, target, began, batch, left: reads, in_flight: 0, failed: 0, end });
    reactor.add("target", Schedule::Busy, TargetPoller)?;
    reactor.add("host", Schedule::Busy, HostPoller)?;
    run(&mut reactor);
    let finished = reactor.finish();
    match finished.context.failed {
        0 => Ok(finished.report.statistics),
        failed => Err(format!("{failed} of {reads} reads failed").into()),
    }
}

/// Iterations that find nothing, of a core that may sleep and does not yet, or of one that may not.
///
/// # Errors
/// What the reactor refuses.
pub fn idle(sleeps: bool, iterations: u64) -> Result<Statistics, Box<dyn Error>> {
    struct Nothing;
    impl Context for Nothing {
        type Message = Infallible;

        fn message(&mut self, _: Source, message: Infallible, _: &Now) {
            match message {}
        }
    }
    let idle = if sleeps { Idle::SleepAfter(LONG) } else { Idle::Spin };
    let mut wiring = wiring(idle, &Clock::calibrated().slowed(SLOWED))?;
    let (seat, _outbox) = wiring.seats.swap_remove(0);
    let (end, mut left) = (seat.shutdown_handle(), iterations);
    let mut reactor = seat.reactor(Nothing);
    let poller = poll_fn(move |_: &mut Nothing, _: &Now| {
        left = left.saturating_sub(1);
        if left == 0 {
            end.request(LONG);
        }
        0
    });
    reactor.add("nothing", Schedule::Busy, poller)?;
    run(&mut reactor);
    Ok(reactor.finish().report.statistics)
}

// A function of its own, as a reactor's thread has one.
#[inline(never)]
fn run<C: Context>(reactor: &mut Reactor<C>) {
    reactor.run();
}
