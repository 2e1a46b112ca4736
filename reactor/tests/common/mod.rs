//! A context that writes down what happens, and reactors on a virtual clock.
#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use frwr_reactor::{
    Clock, Context, CoreIndex, ForeignOutbox, Now, Options, Outbox, Poller, Reactor, ShutdownHandle, Sleep, Source,
    VirtualClock, Wiring,
};

pub(crate) struct Journal {
    pub(crate) log: Vec<String>,
    pub(crate) received: Vec<(Source, u32)>,
    pub(crate) outbox: Outbox<u32>,
}

impl Context for Journal {
    type Message = u32;

    fn message(&mut self, from: Source, message: u32, _now: &Now) {
        self.log.push(format!("message {message}"));
        self.received.push((from, message));
    }
}

/// Writes its calls into the context's log.
pub(crate) struct Scribe {
    pub(crate) name: &'static str,
    /// Work units of the coming polls; zero when they are used up.
    pub(crate) work: Vec<u32>,
    pub(crate) sleep: Sleep,
    /// Iterations it needs to drain once told; `None` never drains.
    pub(crate) drains_after: Option<u32>,
    pub(crate) draining: bool,
}

impl Scribe {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, work: Vec::new(), sleep: Sleep::Busy, drains_after: Some(0), draining: false }
    }

    pub(crate) fn with_work(name: &'static str, mut work: Vec<u32>) -> Self {
        work.reverse();
        Self { work, ..Self::new(name) }
    }
}

impl Poller<Journal> for Scribe {
    fn poll(&mut self, context: &mut Journal, now: &Now) -> u32 {
        context.log.push(format!("poll {} {}", self.name, now.nanoseconds()));
        if self.draining {
            self.drains_after = self.drains_after.map(|left| left.saturating_sub(1));
        }
        self.work.pop().unwrap_or(0)
    }

    fn flush(&mut self, context: &mut Journal, _now: &Now) {
        context.log.push(format!("flush {}", self.name));
    }

    fn sleep_until(&self, _context: &Journal) -> Sleep {
        self.sleep
    }

    fn begin_shutdown(&mut self, context: &mut Journal, _now: &Now) {
        context.log.push(format!("shutdown {}", self.name));
        self.draining = true;
    }

    fn drained(&self, _context: &Journal) -> bool {
        self.drains_after == Some(0)
    }
}

pub(crate) struct World {
    pub(crate) clock: VirtualClock,
    pub(crate) reactors: Vec<Reactor<Journal>>,
    pub(crate) foreign: Vec<ForeignOutbox<u32>>,
    pub(crate) shutdown: ShutdownHandle,
}

pub(crate) fn world(reactors: usize, foreign: usize, options: Options) -> World {
    let clock = VirtualClock::new();
    let wiring = Wiring::new(reactors, foreign, &Clock::from(&clock), options).expect("within limits");
    let seat = |(seat, outbox): (frwr_reactor::Seat<u32>, Outbox<u32>)| {
        seat.reactor(Journal { log: Vec::new(), received: Vec::new(), outbox })
    };
    let reactors = wiring.seats.into_iter().map(seat).collect();
    World { clock, reactors, foreign: wiring.foreign, shutdown: wiring.shutdown }
}

/// One reactor alone.
pub(crate) fn alone(options: Options) -> (VirtualClock, Reactor<Journal>) {
    let mut world = world(1, 0, options);
    (world.clock, world.reactors.remove(0))
}

pub(crate) fn take_log(reactor: &mut Reactor<Journal>) -> Vec<String> {
    std::mem::take(&mut reactor.context_mut().log)
}

pub(crate) const fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

pub(crate) const FIRST: CoreIndex = CoreIndex(0);
pub(crate) const SECOND: CoreIndex = CoreIndex(1);
