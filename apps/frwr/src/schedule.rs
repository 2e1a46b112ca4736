//! When requests are meant to begin.

use core::time::Duration;

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// A constant rate. A request's time counts from when it was meant to begin, so that one which had to wait for a stall in
/// front of it shows it (coordinated omission).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    start: Duration,
    /// Per second, over all that share it.
    rate: u64,
    /// One in so many is ours.
    sharers: u64,
    /// Which of them.
    share: u64,
    /// Requests taken so far.
    taken: u64,
    /// When the next one is meant to begin: asked in each iteration, and divided for once.
    due: Duration,
}

impl Schedule {
    /// So many requests per second from `start` on, of which every `sharers`-th from `share` on is ours. Rate and sharers
    /// are above 0.
    pub(crate) fn new(start: Duration, rate: u64, share: u64, sharers: u64) -> Self {
        let schedule = Self { start, rate: rate.max(1), sharers: sharers.max(1), share, taken: 0, due: start };
        Self { due: schedule.due_of(0), ..schedule }
    }

    fn after(&self, periods: u128) -> Duration {
        let nanoseconds = periods.saturating_mul(SECOND) / u128::from(self.rate);
        self.start.saturating_add(Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)))
    }

    /// When a request of ours is meant to begin, counted from 0.
    fn due_of(&self, request: u64) -> Duration {
        self.after(u128::from(request) * u128::from(self.sharers) + u128::from(self.share))
    }

    /// When the next request is meant to begin.
    pub(crate) fn next(&self) -> Duration {
        self.due
    }

    /// Takes the next request if it is due.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Duration> {
        self.take_several(now, 1)
    }

    /// Takes so many periods in a row, as one, if the first is due: where periods are bytes, a request takes as many as it moves.
    pub(crate) fn take_several(&mut self, now: Duration, periods: u64) -> Option<Duration> {
        let next = self.due;
        (next <= now).then(|| {
            self.taken = self.taken.saturating_add(periods);
            self.due = self.due_of(self.taken);
            next
        })
    }

    /// When the last of the periods ends that the taken requests stand for: a rate is requests by whole periods, and the last request
    /// begins at the beginning of its own.
    pub(crate) fn covered(&self) -> Duration {
        self.end_of(self.taken)
    }

    /// When the period of the last of so many requests of ours ends.
    pub(crate) fn end_of(&self, requests: u64) -> Duration {
        self.after(u128::from(requests).saturating_mul(u128::from(self.sharers)))
    }

    /// Requests that were meant to begin before `end` and did not.
    pub(crate) fn missed(&self, end: Duration) -> u64 {
        let nanoseconds = end.saturating_sub(self.start).as_nanos();
        // Those of all sharers with a time before the end: the first is at 0.
        let all = (nanoseconds * u128::from(self.rate)).div_ceil(SECOND);
        let ours = all.saturating_sub(u128::from(self.share)).div_ceil(u128::from(self.sharers));
        u64::try_from(ours).unwrap_or(u64::MAX).saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;
    use core::time::Duration;
    use proptest::prelude::*;

    #[test]
    fn requests_are_due_at_their_times_and_none_is_lost_to_a_stall() {
        let start = Duration::from_secs(5);
        let mut schedule = Schedule::new(start, 1000, 0, 1);
        assert_eq!(schedule.take(start - Duration::from_nanos(1)), None);
        assert_eq!(schedule.take(start), Some(start));
        assert_eq!(schedule.take(start), None);
        // A stall of ten milliseconds: all that were meant to begin meanwhile do, with the times that were meant.
        let late = start + Duration::from_millis(10);
        let times: Vec<_> = core::iter::from_fn(|| schedule.take(late)).collect();
        assert_eq!(times, (1..=10).map(|at| start + Duration::from_millis(at)).collect::<Vec<_>>());
        assert_eq!(schedule.missed(late), 0);
        assert_eq!(schedule.missed(start + Duration::from_secs(1)), 989);
    }

    #[test]
    fn requests_cover_as_many_periods() {
        for (share, sharers) in [(0, 1), (0, 2), (1, 2)] {
            let start = Duration::from_secs(3);
            let mut schedule = Schedule::new(start, 10, share, sharers);
            assert_eq!(schedule.covered(), start);
            let end = start + Duration::from_secs(1);
            while schedule.next() < end {
                schedule.take(end);
            }
            assert_eq!(schedule.covered(), end, "{share} of {sharers}");
        }
    }

    #[test]
    fn sharers_take_turns() {
        let start = Duration::ZERO;
        let mut all: Vec<Duration> = Vec::new();
        for share in 0..3 {
            let mut schedule = Schedule::new(start, 3_000_000, share, 3);
            all.extend(core::iter::from_fn(|| schedule.take(Duration::from_micros(99))));
        }
        all.sort_unstable();
        let mut one = Schedule::new(start, 3_000_000, 0, 1);
        let whole: Vec<_> = core::iter::from_fn(|| one.take(Duration::from_micros(99))).collect();
        assert_eq!(all, whole);
    }

    proptest! {
        #[test]
        fn what_is_taken_and_what_is_missed_are_all(
            rate in 1_u64..10_000_000, sharers in 1_u64..8, share in 0_u64..8, taken in 0_u64..200, nanoseconds in 0_u64..1_000_000,
        ) {
            let share = share % sharers;
            let mut schedule = Schedule::new(Duration::ZERO, rate, share, sharers);
            let end = Duration::from_nanos(nanoseconds);
            let before = |schedule: &Schedule| schedule.next() < end;
            let mut count = 0;
            while count < taken && before(&schedule) {
                schedule.take(end);
                count += 1;
            }
            let missed = schedule.missed(end);
            let mut left = 0;
            while before(&schedule) {
                schedule.take(end);
                left += 1;
            }
            prop_assert!(missed.abs_diff(left) <= 1, "{missed} {left}");
        }
    }
}
