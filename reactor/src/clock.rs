//! Time, as a `Duration` since the start of the clock.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::cpu;

/// How long the time stamp counter is compared with clock_gettime, at least. Both ends are known to about 50 ns, so the rate is
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
    Ticks {
        start: u64,
        rate: u64,
    },
    /// What the clock read at its start, in nanoseconds.
    System {
        start: u64,
    },
    Virtual(VirtualClock),
}

impl Clock {
    /// The fastest clock of this machine: the time stamp counter where it is invariant and the kernel trusts it
    /// (sleeps for 20 ms to calibrate it), clock_gettime elsewhere. Make one per process and clone it.
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
        Self(Kind::System { start: cpu::monotonic() })
    }

    /// The same clock, for which so many seconds are one: for who counts what iterations do, and wants none of them
    /// long, whatever else the machine does meanwhile. Of a clock that does not count ticks nothing changes.
    #[must_use]
    pub fn slowed(self, times: u64) -> Self {
        match self.0 {
            Kind::Ticks { start, rate } => Self(Kind::Ticks { start, rate: (rate / times.max(1)).max(1) }),
            kind @ (Kind::System { .. } | Kind::Virtual(_)) => Self(kind),
        }
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

    /// Whether somebody moves it by hand.
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self.0, Kind::Virtual(_))
    }

    /// Time since the start. A counter that reads before the start is the start.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds())
    }

    /// The same as nanoseconds.
    #[inline]
    pub(crate) fn nanoseconds(&self) -> u64 {
        match &self.0 {
            Kind::Ticks { start, rate } => scale(cpu::ticks().saturating_sub(*start), *rate),
            // The kernel's goes never back, but for cores that disagree about it.
            Kind::System { start } => cpu::monotonic().saturating_sub(*start),
            Kind::Virtual(clock) => clock.0.load(Ordering::Relaxed),
        }
    }
}

impl From<&VirtualClock> for Clock {
    fn from(clock: &VirtualClock) -> Self {
        Self(Kind::Virtual(clock.clone()))
    }
}

/// The time of one iteration: a reading of the clock that is turned into nanoseconds by whoever asks, and costs an iteration in
/// which nobody asks no more than the reading.
///
/// Times of one clock compare. A poller that needs the time more than once keeps what it got.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// What the clock read; of clocks that do not count ticks: nanoseconds.
    pub(crate) ticks: u64,
    scale: Scale,
}

impl Now {
    /// This time, for whoever calls a poller or a context by hand.
    #[must_use]
    pub fn at(time: Duration) -> Self {
        Self { ticks: nanoseconds(time), scale: Scale::NANOSECONDS }
    }

    /// Time since the start of the clock: a multiplication, and what it takes to part seconds from nanoseconds.
    #[inline]
    #[must_use]
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds())
    }

    /// The same in nanoseconds: one multiplication.
    #[inline]
    #[must_use]
    pub fn nanoseconds(&self) -> u64 {
        self.scale.nanoseconds(self.ticks)
    }

    /// Another reading of the same clock.
    pub(crate) fn with_ticks(self, ticks: u64) -> Self {
        Self { ticks, ..self }
    }

    /// How long so many ticks are, in nanoseconds.
    #[inline]
    pub(crate) fn span(&self, ticks: u64) -> u64 {
        self.scale.span(ticks)
    }

    /// The first reading of the clock that is not before a time in nanoseconds; the last one there is where it never gets there.
    pub(crate) fn ticks_at(&self, nanoseconds: u64) -> u64 {
        self.scale.ticks_at(nanoseconds)
    }
}

/// What a reading of a clock means.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// What the clock read at its start.
    start: u64,
    /// Nanoseconds per tick, a fixed-point number.
    rate: u64,
}

impl Scale {
    /// That of a clock that reads nanoseconds since its start.
    const NANOSECONDS: Self = Self { start: 0, rate: 1 << RATE_BITS };

    #[inline]
    fn nanoseconds(self, ticks: u64) -> u64 {
        self.span(ticks.wrapping_sub(self.start))
    }

    #[inline]
    fn span(self, ticks: u64) -> u64 {
        // Cut at 64 bits, which is 584 years of a counter that began at its start.
        ((u128::from(ticks) * u128::from(self.rate)) >> RATE_BITS) as u64
    }

    fn ticks_at(self, nanoseconds: u64) -> u64 {
        let ticks = (u128::from(nanoseconds) << RATE_BITS).div_ceil(u128::from(self.rate.max(1)));
        u64::try_from(ticks).unwrap_or(u64::MAX).saturating_add(self.start)
    }
}

/// Reads a clock once in every iteration of one loop.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Clock,
    scale: Scale,
}

impl Ticker {
    pub(crate) fn new(clock: Clock) -> Self {
        let scale = match clock.0 {
            Kind::Ticks { start, rate } => Scale { start, rate },
            Kind::System { .. } | Kind::Virtual(_) => Scale::NANOSECONDS,
        };
        Self { clock, scale }
    }

    /// Whether the processor's counter is the clock.
    pub(crate) fn counts_ticks(&self) -> bool {
        matches!(self.clock.0, Kind::Ticks { .. })
    }

    /// What the clock reads, given what the processor's counter did, but nothing before its start.
    pub(crate) fn read(&self, counter: u64) -> u64 {
        if self.counts_ticks() { counter.max(self.scale.start) } else { self.clock.nanoseconds() }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Now {
        Now { ticks: self.read(cpu::ticks()), scale: self.scale }
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
    std::thread::sleep(CALIBRATION);
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
        for ticker in [Clock::calibrated(), Clock::system()].map(Ticker::new) {
            for _ in 0..100_000 {
                let first = ticker.clock.nanoseconds();
                let now = ticker.now();
                let last = ticker.clock.nanoseconds();
                assert_eq!(now.time(), Duration::from_nanos(now.nanoseconds()));
                assert!((first..=last).contains(&now.nanoseconds()), "{first} {now:?} {last}");
            }
        }
    }

    #[test]
    fn a_slowed_clock_is_slower_by_that_and_reads_the_same_counter() {
        let clock = Clock(Kind::Ticks { start: 0, rate: 4 << RATE_BITS });
        for (times, nanoseconds) in [(1, 4_000_000), (4, 1_000_000), (4096, 976), (0, 4_000_000)] {
            let now = Ticker::new(clock.clone().slowed(times)).now().with_ticks(1_000_000);
            assert_eq!(now.nanoseconds(), nanoseconds, "{times}");
        }
        assert!(Ticker::new(clock.slowed(u64::MAX)).counts_ticks());
        let moved = VirtualClock::new();
        moved.set(Duration::from_secs(7));
        assert_eq!(Clock::from(&moved).slowed(7).now(), Duration::from_secs(7));
    }

    #[test]
    fn a_time_is_reached_at_its_first_reading() {
        let scale = Scale { start: 1_000_003, rate: (1 << RATE_BITS) / 3 + 7 };
        for nanoseconds in [0, 1, 2, 999, 1_000_000_007, 1 << 50] {
            let ticks = scale.ticks_at(nanoseconds);
            assert!(scale.nanoseconds(ticks) >= nanoseconds, "{nanoseconds} are not fired before");
            assert!(nanoseconds == 0 || scale.nanoseconds(ticks - 1) < nanoseconds, "{nanoseconds} are not fired late");
        }
        assert_eq!(scale.ticks_at(u64::MAX), u64::MAX, "never");
        assert_eq!(Now::at(Duration::from_nanos(7)).nanoseconds(), 7);
    }

    #[test]
    fn counter_is_refused_where_the_kernel_left_it() {
        assert!(kernel_distrusts_ticks("hpet\n"));
        assert!(!kernel_distrusts_ticks("tsc\n"));
        assert!(!kernel_distrusts_ticks(""));
    }
}
