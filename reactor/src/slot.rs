//! A poller in its reactor: when it runs, and what it is charged.

use core::time::Duration;

use crate::clock::nanoseconds;
use crate::poller::{Poller, Schedule, Sleep, Wish, WishCell};
use crate::statistics::PollerStatistics;

/// Times of the loop are nanoseconds of its clock.
#[derive(Clone, Copy)]
pub(crate) struct Timer {
    period: u64,
    pub(crate) due: u64,
}

impl Timer {
    /// `None` for a schedule that is every iteration.
    fn new(schedule: Schedule, now: u64) -> Option<Self> {
        match schedule {
            Schedule::Busy | Schedule::Every(Duration::ZERO) => None,
            Schedule::Every(period) => {
                let period = nanoseconds(period);
                Some(Self { period, due: now.saturating_add(period) })
            }
        }
    }

    /// The next time after `now`; what was missed is skipped.
    fn rearm(&mut self, now: u64) {
        let next = self.due.saturating_add(self.period);
        self.due = if next > now { next } else { now.saturating_add(self.period) };
    }
}

/// A poller in its reactor. What every iteration looks at comes first.
pub(crate) struct Slot<C> {
    /// It is polled in every iteration: active, and not timed.
    pub(crate) busy: bool,
    /// It is flushed at the end of this iteration. Of busy pollers it says so all the time.
    pub(crate) flushed: bool,
    /// It found work in this iteration.
    pub(crate) worked: bool,
    pub(crate) poller: Box<dyn Poller<C>>,
    polls: u64,
    /// Polls that found work.
    found: u64,
    timer: Option<Timer>,
    wish: WishCell,
    /// What its handle wishes, as of the reactor's last look.
    active: bool,
    /// Its flush does something.
    flushes: bool,
    /// But for the numbers of polls.
    counters: PollerStatistics,
}

impl<C> Slot<C> {
    pub(crate) fn new(
        name: &'static str,
        schedule: Schedule,
        poller: Box<dyn Poller<C>>,
        wish: WishCell,
        now: u64,
    ) -> Self {
        let counters = PollerStatistics { name, ..PollerStatistics::default() };
        let (timer, flushes) = (Timer::new(schedule, now), poller.flushes());
        let (busy, flushed, worked, active) = (false, false, false, false);
        let mut slot =
            Self { busy, flushed, worked, poller, polls: 0, found: 0, timer, wish, active, flushes, counters };
        slot.follow();
        slot
    }

    /// Does what its handle wishes, from now on. False if that is to be dropped.
    pub(crate) fn follow(&mut self) -> bool {
        let wish = self.wish.get();
        self.active = wish == Wish::Active;
        self.busy = self.active && self.timer.is_none();
        self.flushed = self.busy && self.flushes;
        wish != Wish::Removed
    }

    /// Whether it is polled, be it in every iteration or from time to time.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// When it is polled next, if it is a timed one and active.
    pub(crate) fn due(&self) -> Option<u64> {
        self.timer.filter(|_| self.active).map(|timer| timer.due)
    }

    /// Until when it lets the reactor sleep.
    pub(crate) fn sleep_until(&self, context: &C) -> Sleep {
        // A timed poller rests until it is due.
        self.timer
            .map_or_else(|| self.poller.sleep_until(context), |timer| Sleep::Until(Duration::from_nanos(timer.due)))
    }

    /// Counts a poll.
    #[inline]
    pub(crate) fn count_poll(&mut self) {
        self.polls += 1;
    }

    /// Counts what a poll found, which is not zero.
    pub(crate) fn count_work(&mut self, work: u32) {
        self.found += 1;
        self.counters.work += u64::from(work);
        self.worked = true;
    }

    /// A timed poller that is due is about to be polled.
    pub(crate) fn begin_timed(&mut self, now: u64) {
        if let Some(timer) = &mut self.timer {
            timer.rearm(now);
        }
        self.flushed = self.flushes;
    }

    /// What a timed poller was polled in is over.
    pub(crate) fn end_timed(&mut self) {
        self.flushed = self.busy && self.flushes;
    }

    /// It is flushed next, although it was not polled.
    pub(crate) fn flush_anyhow(&mut self, wanted: bool) {
        self.flushed = wanted && self.active && self.flushes;
    }

    /// Charges a poll's time.
    pub(crate) fn charge(&mut self, time: Duration, began: Duration) {
        self.counters.time = self.counters.time.saturating_add(time);
        self.counters.longest_poll.observe(time, began);
    }

    /// Ends an iteration that took so long.
    pub(crate) fn end_iteration(&mut self, duration: Duration, began: Duration) {
        if core::mem::take(&mut self.worked) {
            self.counters.longest_iteration.observe(duration, began);
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.counters.name
    }

    /// What it was charged so far.
    pub(crate) fn figures(&self) -> PollerStatistics {
        let empty_polls = self.polls.saturating_sub(self.found);
        PollerStatistics { polls: self.polls, empty_polls, ..self.counters.clone() }
    }
}
