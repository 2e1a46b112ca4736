//! The host's time: the caller's, by which it does what it chooses to, and watched time, by which deadlines of others pass.

use core::time::Duration;
use frwr_engine::WatchedClock;

/// The time of one poll, and what is known of those in which nobody polled.
#[derive(Debug)]
pub(super) struct Time {
    now: Duration,
    clock: WatchedClock,
    watched: Duration,
    /// This poll looks at what passes without an event, and may compare deadlines.
    looks: bool,
    judges: bool,
    /// How long this host had stood still when it began to connect.
    stood_still_before: Duration,
}

impl Time {
    pub(super) fn new() -> Self {
        Self {
            now: Duration::ZERO,
            clock: WatchedClock::new(WatchedClock::STANDSTILL),
            watched: Duration::ZERO,
            looks: false,
            judges: false,
            stood_still_before: Duration::ZERO,
        }
    }

    /// A poll begins, at a time of the caller's, which does not go back here.
    pub(super) fn begin(&mut self, now: Duration) {
        self.now = now.max(self.now);
        self.looks = self.clock.is_due(self.now);
        self.watched = self.clock.watched(self.now);
    }

    /// Behind what the poll read. `unread` and `polls` as in [`WatchedClock::judges`]: what the controller said in time may
    /// stand behind what was read.
    pub(super) fn judge(&mut self, unread: bool, polls: u32) {
        self.judges = self.looks && self.clock.judges(unread, polls);
    }

    /// The first connection of a session is opened.
    pub(super) fn connects(&mut self) {
        self.stood_still_before = self.clock.stood_still();
    }

    /// Something is due at once that is found by looking.
    pub(super) fn look(&mut self) {
        self.clock.look_by(self.watched);
    }

    /// The caller's time.
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// Watched time.
    pub(super) fn watched(&self) -> Duration {
        self.watched
    }

    pub(super) fn looks(&self) -> bool {
        self.looks
    }

    /// When something is to be done, by the caller's time; options may say never ([`Duration::MAX`]).
    pub(super) fn after(&self, time: Duration) -> Duration {
        self.now.saturating_add(time)
    }

    /// The deadline of somebody else, in watched time; options may say for ever.
    pub(super) fn deadline_in(&self, time: Duration) -> Duration {
        self.watched.saturating_add(time)
    }

    /// A deadline of watched time is over, and this poll may say so.
    pub(super) fn has_passed(&self, deadline: Duration) -> bool {
        self.judges && self.watched >= deadline
    }

    /// So much watched time is over since `since`, whoever may say so.
    pub(super) fn is_over(&self, since: Duration, time: Duration) -> bool {
        self.watched.saturating_sub(since) >= time
    }

    /// As [`Time::is_over`], and this poll may say so.
    pub(super) fn has_waited(&self, since: Duration, time: Duration) -> bool {
        self.judges && self.is_over(since, time)
    }

    /// How long nobody polled since it began to connect.
    pub(super) fn stood_still(&self) -> Duration {
        self.clock.stood_still().saturating_sub(self.stood_still_before)
    }

    /// The caller's time at which a deadline of watched time is judged.
    pub(super) fn judged_at(&self, deadline: Duration) -> Duration {
        self.clock.judged_at(deadline)
    }

    /// The caller's time at which something is seen that is due at `at`.
    pub(super) fn seen_at(&self, at: Duration) -> Duration {
        at.max(self.clock.looks_at())
    }

    /// Takes note that the caller may sleep until a time of its own.
    pub(super) fn announce(&self, until: Option<Duration>) {
        self.clock.announce(until.unwrap_or(Duration::MAX));
    }
}
