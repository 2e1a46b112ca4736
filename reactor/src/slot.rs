//! A poller in its reactor: when it runs, and what it is charged.

use core::time::Duration;

use crate::clock::{Now, nanoseconds};
use crate::poller::{Poller, Schedule, Sleep, Wish, WishCell};
use crate::statistics::{Longest, PollerStatistics};

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
    /// Its number among the slots.
    pub(crate) number: usize,
    /// Polls, but those of the iterations since it is busy.
    polls: u64,
    /// The iteration from which on it is busy: it is polled in each, so that nobody counts.
    busy_from: u64,
    /// Polls that found work.
    found: u64,
    timer: Option<Timer>,
    wish: WishCell,
    /// What its handle wishes, as of the reactor's last look.
    active: bool,
    /// Its flush does something.
    flushes: bool,
    /// The longest iteration in which it found work, and when that began; in ticks.
    longest: (u64, u64),
    /// But for what stands above.
    counters: PollerStatistics,
}

impl<C> Slot<C> {
    pub(crate) fn new(
        name: &'static str,
        schedule: Schedule,
        poller: Box<dyn Poller<C>>,
        wish: WishCell,
        now: u64,
        iteration: u64,
    ) -> Self {
        let mut slot = Self {
            busy: false,
            flushed: false,
            worked: false,
            flushes: poller.flushes(),
            poller,
            number: 0,
            polls: 0,
            busy_from: iteration,
            found: 0,
            timer: Timer::new(schedule, now),
            wish,
            active: false,
            longest: (0, 0),
            counters: PollerStatistics { name, ..PollerStatistics::default() },
        };
        slot.follow(iteration);
        slot
    }

    /// Does what its handle wishes, from the iteration of this number on. False if that is to be dropped.
    pub(crate) fn follow(&mut self, iteration: u64) -> bool {
        (self.polls, self.busy_from) = (self.polls_before(iteration), iteration);
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

    /// Arranges for what wakes it. A timed poller is woken by its time.
    pub(crate) fn arm(&mut self, context: &mut C) -> bool {
        !self.busy || self.poller.arm(context)
    }

    /// How often it was polled before the iteration of this number.
    fn polls_before(&self, iteration: u64) -> u64 {
        if self.busy { self.polls + iteration.saturating_sub(self.busy_from) } else { self.polls }
    }

    /// Counts what a poll found, which is not zero.
    #[inline]
    pub(crate) fn count_work(&mut self, work: u32) {
        self.found += 1;
        self.counters.work += u64::from(work);
        self.worked = true;
    }

    /// A timed poller that is due is about to be polled.
    pub(crate) fn begin_timed(&mut self, now: u64) {
        self.polls += 1;
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

    /// Charges it with a long iteration, if it found work in it, and says whether it did.
    pub(crate) fn charge_long(&mut self) -> bool {
        self.counters.long_iterations += u64::from(self.worked);
        self.worked
    }

    /// Ends an iteration that took so long, in ticks.
    #[inline]
    pub(crate) fn end_iteration(&mut self, duration: u64, began: u64) {
        if core::mem::take(&mut self.worked) && duration > self.longest.0 {
            self.longest = (duration, began);
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.counters.name
    }

    /// What it was charged before the iteration of this number. `now` says what ticks are.
    pub(crate) fn figures(&self, iteration: u64, now: &Now) -> PollerStatistics {
        let polls = self.polls_before(iteration);
        let empty_polls = polls.saturating_sub(self.found);
        let longest_iteration = Longest::of_ticks(self.longest, now);
        PollerStatistics { polls, empty_polls, longest_iteration, ..self.counters.clone() }
    }
}
