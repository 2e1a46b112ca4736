//! Row A6: an iteration of a reactor that finds nothing.

use core::convert::Infallible;
use core::time::Duration;

use frwr_engine::provider::{CompletionBatch, CompletionQueue, Port};
use frwr_reactor::{Clock, Context, Options, Schedule, Source, Step, Wiring, poll_fn};

use crate::null_device::NullPort;

/// A core without state.
struct Nothing;

impl Context for Nothing {
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: Duration) {
        match message {}
    }
}

/// Steps a reactor of this many (the others only send to it: its inbox has a lane of each) with one poller, which polls this many
/// empty completion queues. Returns how many steps found nothing: all.
///
/// # Errors
/// A text, where the device or the reactor refuses.
pub fn run(reactors: usize, queues: usize, iterations: u64) -> Result<u64, String> {
    let mut ports: Vec<_> = (0..queues).map(|_| NullPort::new(true)).collect();
    let wiring = Wiring::new(reactors, 0, &Clock::calibrated(), Options::default());
    let mut wiring = wiring.map_err(|error| error.to_string())?;
    // The other reactors' ends live as long as this one is stepped.
    let (seat, _outbox) = wiring.seats.swap_remove(0);
    let mut reactor = seat.reactor(Nothing);
    let mut batch = CompletionBatch::new();
    let poll = move |_: &mut Nothing, _: Duration| {
        let mut found = 0;
        for port in &mut ports {
            found += port.poll(CompletionQueue::Send, &mut batch);
        }
        if found > 0 {
            batch.clear();
        }
        found as u32
    };
    reactor.add("queues", Schedule::Busy, poll_fn(poll)).map_err(|error| error.to_string())?;
    let mut idle = 0;
    for _ in 0..iterations {
        idle += u64::from(reactor.step() == Step::Idle);
    }
    Ok(idle)
}
