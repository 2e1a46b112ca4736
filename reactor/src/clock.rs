//! Time, as a `Duration` since the start of the clock.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::cpu;

/// How long the time stamp counter is compared with clock_gettime. Both ends are known to about 50 ns, so the rate is
/// known to about 5 parts in a million.
const CALIBRATION: Duration = Duration::from_millis(20);
/// A pair of readings is taken this often at each end; the tightest pair counts, so an interrupt does no harm.
const CALIBRATION_TRIES: usize = 16;
/// The rate is a fixed-point number with this many fraction bits: nanoseconds = ticks * rate >> 32.
const RATE_BITS: u32 = 32;
const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
const _: () = assert!(NANOSECONDS_PER_SECOND < 1 << RATE_BITS, "a second in fixed point fits 64 bits");
/// Where the kernel names the counter it trusts.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Where a reactor takes its time from. Clones share the start, so times of different cores compare.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Ticks { start: u64, rate: u64 },
    System { start: Instant },
    Virtual(VirtualClock),
}

impl Clock {
    /// The fastest clock of this machine: the time stamp counter where it is invariant and the kernel trusts it
    /// (spends 20 ms on calibration), clock_gettime elsewhere. Make one per process and clone it.
    #[must_use]
    pub fn calibrated() -> Self {
        let source = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
        if !cpu::has_invariant_ticks() || kernel_distrusts_ticks(&source) {
            return Self::system();
        }
        calibrate().map_or_else(Self::system, |rate| Self(Kind::Ticks { start: cpu::ticks(), rate }))
    }

    /// clock_gettime(CLOCK_MONOTONIC).
    #[must_use]
    pub fn system() -> Self {
        Self(Kind::System { start: Instant::now() })
    }

    /// What reads the time: "tsc", "clock_gettime" or "virtual".
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.0 {
            Kind::Ticks { .. } => "tsc",
            Kind::System { .. } => "clock_gettime",
            Kind::Virtual(_) => "virtual",
        }
    }

    /// Time since the start. A counter that reads before the start is the start.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds())
    }

    /// The same as nanoseconds: a loop that computes with `Duration` pays for carrying between its two halves.
    #[inline]
    pub(crate) fn nanoseconds(&self) -> u64 {
        match &self.0 {
            Kind::Ticks { start, rate } => scale(cpu::ticks().saturating_sub(*start), *rate),
            Kind::System { start } => nanoseconds(start.elapsed()),
            Kind::Virtual(clock) => clock.0.load(Ordering::Relaxed),
        }
    }
}

impl From<&VirtualClock> for Clock {
    fn from(clock: &VirtualClock) -> Self {
        Self(Kind::Virtual(clock.clone()))
    }
}

/// One time, as a loop computes with it and as pollers are told it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Nanoseconds since the clock's start.
    pub(crate) nanoseconds: u64,
    /// The same.
    pub(crate) time: Duration,
}

/// Reads a clock in every iteration of one loop: within a second, a reading of the time stamp counter takes one
/// multiplication of 64 bits and no division.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Clock,
    /// Ticks at which the current second began.
    second_began: u64,
    /// Ticks of a second, rounded down; 0 where the clock does not count ticks, and before the first reading.
    ticks_per_second: u64,
    rate: u64,
    /// The current second, and its nanoseconds.
    second: u64,
    nanoseconds: u64,
}

impl Ticker {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, second_began: 0, ticks_per_second: 0, rate: 0, second: 0, nanoseconds: 0 }
    }

    /// The time, or `before` if that is later.
    #[inline]
    pub(crate) fn now(&mut self, before: u64) -> Moment {
        let ticks = cpu::ticks().wrapping_sub(self.second_began);
        // Neither a counter that went back nor the next second passes. The product is below 10^9 * 2^32.
        if ticks < self.ticks_per_second {
            let within = (ticks * self.rate) >> RATE_BITS;
            let nanoseconds = self.nanoseconds + within;
            if nanoseconds >= before {
                // Below 10^9.
                return Moment { nanoseconds, time: Duration::new(self.second, within as u32) };
            }
        }
        self.next_second(before)
    }

    /// The same by the clock itself, and the second that it is in.
    #[cold]
    fn next_second(&mut self, before: u64) -> Moment {
        let nanoseconds = self.clock.nanoseconds().max(before);
        let time = Duration::from_nanos(nanoseconds);
        if let Kind::Ticks { start, rate } = self.clock.0 {
            let began = nanoseconds - u64::from(time.subsec_nanos());
            let ticks = (u128::from(began) << RATE_BITS).div_ceil(u128::from(rate.max(1)));
            self.second_began = start.wrapping_add(u64::try_from(ticks).unwrap_or(u64::MAX));
            self.ticks_per_second = (NANOSECONDS_PER_SECOND << RATE_BITS) / rate.max(1);
            (self.rate, self.second, self.nanoseconds) = (rate, time.as_secs(), began);
        }
        Moment { nanoseconds, time }
    }
}

/// A clock that only its owner moves. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// Starts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time it was set to.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// Moves time forward; stops at the largest time (584 years).
    pub fn advance(&self, by: Duration) {
        self.set(self.now().saturating_add(by));
    }

    /// Jumps, also backwards: reactors hold their own time then, so simulations can play a broken clock.
    pub fn set(&self, to: Duration) {
        self.0.store(nanoseconds(to), Ordering::Relaxed);
    }
}

/// Nanoseconds, cut at 64 bits (584 years).
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Ticks to nanoseconds.
#[inline]
fn scale(ticks: u64, rate: u64) -> u64 {
    let nanoseconds = (u128::from(ticks) * u128::from(rate)) >> RATE_BITS;
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// The kernel leaves the time stamp counter for these when cores disagree about it.
fn kernel_distrusts_ticks(clock_source: &str) -> bool {
    matches!(clock_source.trim(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies")
}

/// Nanoseconds per tick as a fixed-point number; `None` if the counter does not behave.
fn calibrate() -> Option<u64> {
    let (first_time, first_ticks) = reading();
    while first_time.elapsed() < CALIBRATION {
        core::hint::spin_loop();
    }
    let (last_time, last_ticks) = reading();
    let ticks = last_ticks.checked_sub(first_ticks).filter(|&ticks| ticks > 0)?;
    let elapsed = last_time.saturating_duration_since(first_time).as_nanos();
    u64::try_from((elapsed << RATE_BITS) / u128::from(ticks)).ok().filter(|&rate| rate > 0)
}

/// Time and counter at one moment: the pair with the least ticks around the reading of the time.
fn reading() -> (Instant, u64) {
    let pair = || {
        let before = cpu::ticks();
        let time = Instant::now();
        let width = cpu::ticks().saturating_sub(before);
        (width, time, before.saturating_add(width / 2))
    };
    let mut best = pair();
    for _ in 1..CALIBRATION_TRIES {
        let next = pair();
        if next.0 < best.0 {
            best = next;
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_convert_without_overflow() {
        let one_nanosecond = 1 << RATE_BITS;
        assert_eq!(scale(1_000_000_007, one_nanosecond), 1_000_000_007);
        assert_eq!(scale(3, one_nanosecond / 2), 1);
        assert_eq!(scale(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn ticker_tells_what_the_clock_does() {
        for mut ticker in [Clock::calibrated(), Clock::system()].map(Ticker::new) {
            let mut before = 0;
            for _ in 0..100_000 {
                let first = ticker.clock.nanoseconds();
                let Moment { nanoseconds, time } = ticker.now(before);
                let last = ticker.clock.nanoseconds();
                assert_eq!(time, Duration::from_nanos(nanoseconds));
                // Rounded down twice.
                assert!(
                    nanoseconds >= before && (first..=last + 2).contains(&(nanoseconds + 2)),
                    "{first} {nanoseconds} {last}"
                );
                before = nanoseconds;
            }
            assert_eq!(ticker.now(u64::MAX).nanoseconds, u64::MAX, "held");
        }
    }

    #[test]
    fn counter_is_refused_where_the_kernel_left_it() {
        assert!(kernel_distrusts_ticks("hpet\n"));
        assert!(!kernel_distrusts_ticks("tsc\n"));
        assert!(!kernel_distrusts_ticks(""));
    }
}
