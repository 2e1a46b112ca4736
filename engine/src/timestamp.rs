//! The caller's time.

use core::time::Duration;

/// A time: nanoseconds since an epoch of the caller's choosing, 584 years of them.
///
/// One number, because a core that waits tells its engine the time in every iteration: a `Duration` is two, and most clocks
/// would have to divide for it. Whoever has a `Duration` hands that over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The caller's epoch.
    pub const EPOCH: Self = Self(0);

    /// So many nanoseconds after the epoch.
    #[inline(always)]
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the epoch.
    #[inline(always)]
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Time since the epoch.
    #[inline]
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl From<Duration> for Timestamp {
    /// What is later than the last time there is, is that one.
    #[inline]
    fn from(since_epoch: Duration) -> Self {
        Self(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_convert_both_ways_and_stop_at_the_last_time() {
        let time = Duration::new(7, 5);
        assert_eq!(Timestamp::from(time), Timestamp::from_nanoseconds(7_000_000_005));
        assert_eq!(Timestamp::from(time).since_epoch(), time);
        assert_eq!(Timestamp::from(Duration::MAX).nanoseconds(), u64::MAX);
    }
}
