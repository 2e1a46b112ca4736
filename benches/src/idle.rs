//! Row A6: an iteration of a reactor that finds nothing.

use core::convert::Infallible;

use frwr_engine::Timestamp;
use frwr_engine::provider::soft::SoftProfile;
use frwr_engine::provider::{CompletionBatch, CompletionQueue, Port};
use frwr_reactor::{Clock, Context, Now, Options, Poller, Reactor, Schedule, Sleep, Source, Step, Wiring, poll_fn};

use crate::null_device::{NullDevice, NullPort};
use crate::requester::{Requester, usual_options};

/// A core without state.
struct Nothing;

impl Context for Nothing {
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: &Now) {
        match message {}
    }
}

/// Steps a reactor of this many (the others only send to it: its inbox has a lane of each) with one poller, which polls this many
/// empty completion queues. Returns how many steps found nothing: all.
///
/// # Errors
/// A text, where the device or the reactor refuses.
pub fn run(reactors: usize, queues: usize, iterations: u64) -> Result<u64, String> {
    let ports = (0..queues).map(|_| NullPort::new(true)).collect();
    let mut queues = Queues { ports, batch: CompletionBatch::new() };
    idle_with(reactors, poll_fn(move |_: &mut Nothing, _: &Now| queues.poll()), iterations)
}

/// The same with a poller that polls and flushes an engine with one ready connection, whose port has two completion queues, and
/// looks for its events.
///
/// # Errors
/// A text, where the device, the engine or the reactor refuses.
pub fn run_engine(reactors: usize, iterations: u64) -> Result<u64, String> {
    let device = NullDevice::new(SoftProfile::RegMr.capabilities(), NullPort::new(true));
    let requester = Requester::open(device, &usual_options()).map_err(|error| error.to_string())?;
    idle_with(reactors, EnginePoller { requester, ended: 0 }, iterations)
}

fn idle_with(reactors: usize, poller: impl Poller<Nothing> + 'static, iterations: u64) -> Result<u64, String> {
    let wiring = Wiring::new(reactors, 0, &Clock::calibrated(), Options::default());
    let mut wiring = wiring.map_err(|error| error.to_string())?;
    // The other reactors' ends live as long as this one is stepped.
    let (seat, _outbox) = wiring.seats.swap_remove(0);
    let mut reactor = seat.reactor(Nothing);
    reactor.add("queues", Schedule::Busy, poller).map_err(|error| error.to_string())?;
    Ok(step(&mut reactor, iterations))
}

/// An engine as programs run one.
struct EnginePoller {
    requester: Requester<NullDevice<NullPort>>,
    ended: u32,
}

impl EnginePoller {
    /// Takes what has ended.
    #[cold]
    #[inline(never)]
    fn take_events(&mut self) -> u32 {
        let before = self.ended;
        while self.requester.engine.next_event().is_some() {
            self.ended += 1;
        }
        self.ended - before
    }
}

impl Poller<Nothing> for EnginePoller {
    fn poll(&mut self, _: &mut Nothing, now: &Now) -> u32 {
        let time = Timestamp::from_nanoseconds(now.nanoseconds());
        let work = self.requester.engine.poll(time, &mut self.requester.protocol);
        if work == 0 { 0 } else { work + self.take_events() }
    }

    fn flush(&mut self, _: &mut Nothing, _: &Now) {
        self.requester.engine.flush();
    }

    fn sleep_until(&self, _: &Nothing) -> Sleep {
        Sleep::Busy
    }
}

/// Completion queues that never hold anything.
struct Queues {
    ports: Vec<NullPort>,
    batch: CompletionBatch,
}

impl Queues {
    #[inline]
    fn poll(&mut self) -> u32 {
        if self.ports.iter().any(|port| port.may_have_completions(CompletionQueue::Send)) { self.take() } else { 0 }
    }

    /// Takes what they hold. Also in a program the look at empty queues shall not pay for this.
    #[cold]
    #[inline(never)]
    fn take(&mut self) -> u32 {
        let batch = &mut self.batch;
        let found = self.ports.iter_mut().map(|port| port.poll(CompletionQueue::Send, batch) as u32).sum();
        batch.clear();
        found
    }
}

// A function of its own, as `Reactor::run` is. It ends where a step is not idle, which shows in what it returns.
#[inline(never)]
fn step(reactor: &mut Reactor<Nothing>, iterations: u64) -> u64 {
    let mut left = iterations;
    while left > 0 && reactor.step() == Step::Idle {
        left -= 1;
    }
    iterations - left
}
