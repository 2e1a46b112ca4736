//! In steady state a reactor does not allocate.

mod common;

use std::time::Duration;

use frwr_allocations::allocations;
use frwr_reactor::{Clock, Context, Idle, Now, Options, Outbox, Schedule, Source, Step, Wiring, poll_fn};

#[global_allocator]
static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;

/// Messages that are to be seen at least: one goes round in an iteration.
const MESSAGES: u64 = 1000;

struct Echo {
    outbox: Outbox<u64>,
    received: u64,
}

impl Context for Echo {
    type Message = u64;

    fn message(&mut self, _: Source, message: u64, _: &Now) {
        self.received += message;
    }
}

#[test]
fn steady_state_does_not_allocate() {
    for (idle, time_pollers) in [(Idle::Spin, false), (Idle::SleepAfter(Duration::ZERO), true)] {
        let options = Options::default().idle(idle).time_pollers(time_pollers).lane_capacity(16);
        let clock = Clock::system();
        let wiring = Wiring::new(1, 0, &clock, options).unwrap();
        let (seat, outbox) = wiring.seats.into_iter().next().unwrap();
        let mut reactor = seat.reactor(Echo { outbox, received: 0 });
        let send = |echo: &mut Echo, _: &Now| u32::from(echo.outbox.send(common::FIRST, 1).is_ok());
        reactor.add("sends", Schedule::Busy, poll_fn(send)).unwrap();
        reactor.add("ticks", Schedule::Every(Duration::from_nanos(1)), poll_fn(|_: &mut Echo, _| 0)).unwrap();
        // Pausing and resuming are for every day.
        let rests = reactor.add("rests", Schedule::Busy, poll_fn(|_: &mut Echo, _| 0)).unwrap();
        let mut paused = false;
        let switches = move |_: &mut Echo, _: &Now| {
            paused = !paused;
            if paused {
                rests.pause()
            } else {
                rests.resume()
            }
            0
        };
        reactor.add("switches", Schedule::Busy, poll_fn(switches)).unwrap();
        let before = allocations();
        // Long enough for several publications of the statistics, and for many messages however slow the machine.
        let (end, mut steps) = (clock.now() + Duration::from_millis(50), 0);
        while clock.now() < end || steps < 2 * MESSAGES {
            assert!(matches!(reactor.step(), Step::Worked(_)));
            steps += 1;
        }
        assert_eq!(allocations(), before);
        assert!(reactor.context().received > MESSAGES);
    }
}
