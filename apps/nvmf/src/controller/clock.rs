//! A target's time: what its caller says, and what of it counts against peers.

use core::time::Duration;
use frwr_engine::WatchedClock;

/// Two times: the caller's, and by which peers' deadlines pass, which stands still while nobody polls.
#[derive(Debug)]
pub(super) struct Clock {
    now: Duration,
    /// The same, as it is told.
    nanoseconds: u64,
    clock: WatchedClock,
    watched: Duration,
}

impl Clock {
    pub(super) fn new() -> Self {
        let clock = WatchedClock::new(WatchedClock::STANDSTILL);
        Self { now: Duration::ZERO, nanoseconds: 0, clock, watched: Duration::ZERO }
    }

    /// A poll begins. True where it has to look at deadlines.
    #[inline]
    pub(super) fn begin(&mut self, now: Duration) -> bool {
        self.now = now.max(self.now);
        // What does not fit wraps.
        self.nanoseconds = self.now.as_nanos() as u64;
        let looks = self.clock.is_due(self.now);
        self.watched = self.clock.watched(self.now);
        looks
    }

    /// That of this poll.
    #[inline]
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// The same in nanoseconds, for differences: it may wrap.
    #[inline]
    pub(super) fn nanoseconds(&self) -> u64 {
        self.nanoseconds
    }

    /// By which peers' deadlines pass, in this poll.
    #[inline]
    pub(super) fn watched(&self) -> Duration {
        self.watched
    }

    /// For how long nobody polled, all in all.
    pub(super) fn stood_still(&self) -> Duration {
        self.clock.stood_still()
    }

    /// Some deadline passes then, in watched time.
    pub(super) fn look_by(&mut self, at: Option<Duration>) {
        if let Some(at) = at {
            self.clock.look_by(at);
        }
    }

    /// Deadlines may pass now ([`WatchedClock::judges`]).
    pub(super) fn judges(&mut self, may_have_unread: bool, polls_of_full_queues: u32) -> bool {
        self.clock.judges(may_have_unread, polls_of_full_queues)
    }
}
