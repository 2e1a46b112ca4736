//! Time that counts against a peer: the caller's, without that in which nobody polled.

use core::{cell::Cell, time::Duration};

/// Looks in the time of a standstill: so much finer is what is known of when nobody polled.
const LOOKS_PER_STANDSTILL: u32 = 10;

/// Looks in a row, each behind a standstill, that judge nobody. Of a caller that always polls so rarely, the next ones do.
const MAX_STANDSTILLS_IN_A_ROW: u32 = 8;

/// A clock that stands still while nobody polls. Deadlines of peers are set in its time ([`WatchedClock::watched`]) and compared with it
/// where [`WatchedClock::judges`] says so:
///
/// * **Time in which nobody polled is nobody's silence.** A core that was stopped, or a thread that another one kept from its
///   core, has read nothing meanwhile, and the peer may have been stopped with it. So of the time between two looks no more counts than a
///   named bound; the rest is a standstill. A caller that always polls more rarely than that still sees every deadline pass, later.
/// * **What has arrived is read first.** A poll takes a bounded number of completions, so that what the peer said in time may
///   stand behind others. Deadlines are judged in a poll that left nothing unread, or in the one with which all has been read that stood in
///   the queues when judging was put off: a peer that floods them puts off nobody's deadline for longer.
/// * **Time that was announced counts.** A caller that sleeps until a time that [`WatchedClock::announce`] gave it was idle, not stopped,
///   if it comes back at that time.
///
/// It looks at the time ten times in such a bound, and when the next deadline may have passed ([`WatchedClock::look_by`]), so that a poll
/// costs one comparison. One core owns it.
#[derive(Clone, Debug)]
pub struct WatchedClock {
    /// Of the time between two looks no more counts.
    bound: Duration,
    /// When it looked last, and when it looks again; of the caller's time.
    looked: Duration,
    look_at: Duration,
    /// All that did not count.
    stood_still: Duration,
    /// Looks in a row that followed a standstill.
    standstills: u32,
    /// Polls that put off judging because something was unread.
    put_off: u32,
    /// Until when the caller was told that it may sleep.
    announced: Cell<Duration>,
}

impl WatchedClock {
    /// The bound of those that judge within seconds: a poll loop comes round within a few milliseconds, and a machine whose cores are shared
    /// keeps a thread from its core for tens of them. A tenth of the shortest time-outs that NVMe counts in, a second.
    pub const STANDSTILL: Duration = Duration::from_millis(100);

    /// At the caller's epoch. `bound`: of the time between two looks no more counts. What is judged should be some times as long.
    #[must_use]
    pub const fn new(bound: Duration) -> Self {
        Self {
            bound,
            looked: Duration::ZERO,
            look_at: Duration::ZERO,
            stood_still: Duration::ZERO,
            standstills: 0,
            put_off: 0,
            announced: Cell::new(Duration::ZERO),
        }
    }

    /// A poll begins, at a time of the caller's. Whether this one may judge: to be asked before anything that came is looked at, so that it
    /// has come behind a standstill.
    #[inline(always)]
    #[must_use]
    pub fn is_due(&mut self, now: Duration) -> bool {
        now >= self.look_at && self.look(now)
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.looked);
        // A caller's first time may be any: nothing was awaited before.
        let is_first = self.look_at == Duration::ZERO;
        let slept = now <= self.announced.take().saturating_add(self.bound);
        if passed <= self.bound || slept {
            self.standstills = 0;
        } else {
            self.stood_still += passed - if is_first { Duration::ZERO } else { self.bound };
            self.standstills = if is_first { 0 } else { self.standstills.saturating_add(1) };
        }
        self.looked = now;
        self.look_at = now.saturating_add(self.bound / LOOKS_PER_STANDSTILL);
        true
    }

    /// This clock's time at a time of the caller's.
    #[inline]
    #[must_use]
    pub fn watched(&self, now: Duration) -> Duration {
        now.saturating_sub(self.stood_still)
    }

    /// Behind [`WatchedClock::is_due`], and behind what the poll read: whether deadlines are to be compared now. `unread`: something that has
    /// arrived may not have been read. `polls`: after so many all has been read that is there now.
    #[must_use]
    pub fn judges(&mut self, unread: bool, polls: u32) -> bool {
        if unread && self.put_off < polls {
            self.put_off += 1;
            // The next poll, whenever it is.
            self.look_at = self.looked;
            return false;
        }
        self.put_off = 0;
        // What came meanwhile is read, but who stood still as well, as another process of the same machine, needs a moment to say it.
        !(1..=MAX_STANDSTILLS_IN_A_ROW).contains(&self.standstills)
    }

    /// Looks again when a deadline of this clock's time may have passed, if not before.
    #[inline]
    pub fn look_by(&mut self, deadline: Duration) {
        self.look_at = self.look_at.min(deadline.saturating_add(self.stood_still));
    }

    /// The caller's time at which it looks again, if no deadline makes it look before.
    #[must_use]
    pub fn looks_at(&self) -> Duration {
        self.look_at
    }

    /// All time so far that did not count.
    #[must_use]
    pub fn stood_still(&self) -> Duration {
        self.stood_still
    }

    /// The caller's time at which a deadline of this clock's time is judged if nothing stands still until then; the caller may sleep so long.
    #[must_use]
    pub fn judged_at(&self, deadline: Duration) -> Duration {
        deadline.saturating_add(self.stood_still).max(self.look_at)
    }

    /// Takes note that the caller may sleep until a time of its own.
    pub fn announce(&self, until: Duration) {
        self.announced.set(until);
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_STANDSTILLS_IN_A_ROW, WatchedClock};
    use core::time::Duration;

    const BOUND: Duration = WatchedClock::STANDSTILL;
    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn polled(from: Duration) -> WatchedClock {
        let mut clock = WatchedClock::new(BOUND);
        assert!(clock.is_due(from));
        clock
    }

    /// Polls every so often until a deadline passes; returns the caller's time.
    fn passes(clock: &mut WatchedClock, from: Duration, period: Duration, deadline: Duration) -> Duration {
        let mut now = from;
        for _ in 0..1_000_000 {
            if clock.is_due(now) && clock.judges(false, 0) && clock.watched(now) >= deadline {
                return now;
            }
            now += period;
        }
        panic!("never");
    }

    #[test]
    fn whoever_polls_sees_a_deadline_pass_in_time_wherever_its_epoch_is() {
        for epoch in [Duration::ZERO, MS, 77 * SECOND, Duration::from_secs(1 << 40)] {
            for period in [MS / 1000, MS, 7 * MS, BOUND] {
                let mut clock = polled(epoch);
                let deadline = clock.watched(epoch) + SECOND / 2;
                let late = passes(&mut clock, epoch, period, deadline) - epoch - SECOND / 2;
                assert!(late < period + BOUND / 10 + MS, "{period:?} {late:?}");
                assert_eq!(clock.stood_still(), clock.stood_still().min(epoch));
            }
        }
    }

    #[test]
    fn a_standstill_of_any_length_moves_what_is_left_of_a_deadline() {
        for stop in [BOUND + MS, SECOND, 60 * SECOND, Duration::from_secs(1 << 30)] {
            let mut clock = polled(SECOND);
            let deadline = clock.watched(SECOND) + SECOND;
            let mut now = SECOND;
            for _ in 0..500 {
                let _ = clock.is_due(now);
                now += MS;
            }
            now += stop;
            let passed = passes(&mut clock, now, MS, deadline);
            // Half of it was over, and of the standstill so much counts as is taken for polling.
            let least = SECOND / 2 - BOUND - BOUND / 10;
            assert!(passed - now >= least && passed - now <= SECOND / 2 + BOUND, "{stop:?} {:?}", passed - now);
        }
    }

    #[test]
    fn a_poll_behind_a_standstill_judges_nobody_and_the_next_look_does() {
        let mut clock = polled(SECOND);
        let deadline = clock.watched(SECOND) + BOUND;
        let now = 9 * SECOND;
        assert!(clock.is_due(now) && !clock.judges(false, 0));
        assert!(clock.watched(now) >= deadline);
        assert!(!clock.is_due(now + MS));
        assert!(clock.is_due(now + BOUND / 10) && clock.judges(false, 0));
    }

    #[test]
    fn a_loop_that_is_slower_than_the_bound_still_comes_to_every_deadline() {
        for period in [BOUND + MS, SECOND, 60 * SECOND] {
            let mut clock = polled(SECOND);
            let deadline = clock.watched(SECOND) + 5 * SECOND;
            let polls = (passes(&mut clock, SECOND, period, deadline) - SECOND).as_nanos() / period.as_nanos();
            assert!(polls <= 50, "{period:?} {polls}");
            let mut clock = polled(SECOND);
            let deadline = clock.watched(SECOND);
            let polls = (passes(&mut clock, SECOND + period, period, deadline) - SECOND).as_nanos() / period.as_nanos();
            assert_eq!(polls, u128::from(MAX_STANDSTILLS_IN_A_ROW + 1), "{period:?}");
        }
    }

    #[test]
    fn a_caller_that_sleeps_as_long_as_it_was_told_was_idle() {
        let mut clock = polled(SECOND);
        let deadline = clock.watched(SECOND) + 30 * SECOND;
        let until = clock.judged_at(deadline);
        clock.announce(until);
        assert!(clock.is_due(until) && clock.judges(false, 0));
        assert!(clock.watched(until) >= deadline);
        assert_eq!(clock.stood_still(), SECOND);
        // Once: the same word says nothing of the next time.
        assert!(clock.is_due(until + SECOND) && clock.stood_still() > SECOND);
    }

    #[test]
    fn a_deadline_that_is_nearer_than_the_next_look_passes_in_time() {
        let mut clock = polled(SECOND);
        let deadline = clock.watched(SECOND) + MS;
        assert!(!clock.is_due(SECOND + MS));
        clock.look_by(deadline);
        assert!(!clock.is_due(SECOND + MS - MS / 1000));
        assert!(clock.is_due(SECOND + MS) && clock.judges(false, 0));
    }

    #[test]
    fn one_that_oversleeps_was_stopped() {
        let mut clock = polled(SECOND);
        clock.announce(clock.judged_at(clock.watched(SECOND) + 30 * SECOND));
        let now = 91 * SECOND;
        assert!(clock.is_due(now) && !clock.judges(false, 0));
        assert_eq!(clock.watched(now), BOUND);
    }

    #[test]
    fn what_is_unread_puts_judging_off_until_all_was_read_that_was_there_and_no_longer() {
        for polls in [0, 1, 2, 63] {
            let mut clock = polled(SECOND);
            for _ in 0..3 {
                let now = clock.judged_at(Duration::ZERO);
                for _ in 0..polls {
                    assert!(clock.is_due(now) && !clock.judges(true, polls));
                }
                assert!(clock.is_due(now) && clock.judges(true, polls), "{polls}");
            }
            let now = clock.judged_at(Duration::ZERO);
            assert!(clock.is_due(now) && (polls == 0 || !clock.judges(true, polls)));
            assert!(clock.is_due(clock.judged_at(Duration::ZERO)) && clock.judges(false, polls));
        }
    }
}
