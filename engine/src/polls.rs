//! The polls of one engine: how many there were, when, and what they found or left unread.

use crate::timestamp::Timestamp;

/// See the module.
#[derive(Debug)]
pub(crate) struct Polls {
    /// The time that the last one was told; never goes back.
    now: Timestamp,
    begun: u64,
    /// Those that found work.
    full: u64,
    /// The last one, counted from 1, that left its completions where they are, because too many events wait to be taken.
    skipped_in: u64,
    /// Those that found the receive completion queue empty, while a connection opened or ended.
    without_receives: u64,
}

impl Polls {
    /// Before the first.
    pub(crate) const NONE: Self = Self { now: Timestamp::EPOCH, begun: 0, full: 0, skipped_in: 0, without_receives: 0 };

    /// One begins. Returns how many there were before.
    #[inline(always)]
    pub(crate) fn begin(&mut self, now: Timestamp) -> u64 {
        self.now = self.now.max(now);
        self.begun += 1;
        self.begun - 1
    }

    /// The time of the last one.
    #[inline(always)]
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// It found work.
    #[inline(always)]
    pub(crate) fn found_work(&mut self) {
        self.full += 1;
    }

    /// It takes no completions.
    pub(crate) fn skip(&mut self) {
        self.skipped_in = self.begun;
    }

    /// Whether it took none.
    pub(crate) fn was_skipped(&self) -> bool {
        self.skipped_in == self.begun
    }

    /// It has read all receives that have completed. Only whoever ends asks for this.
    pub(crate) fn read_all_receives(&mut self) {
        self.without_receives += 1;
    }

    /// So many have.
    pub(crate) fn without_receives(&self) -> u64 {
        self.without_receives
    }

    /// All, and those that found nothing.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.begun, self.begun - self.full)
    }
}
