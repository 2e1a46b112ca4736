//! What was done, and whether memory stayed flat.

use super::{plan::End, process::Usage};
use core::{fmt, time::Duration};
use std::collections::VecDeque;

/// Cycles until the target and those who look on have what they will ever need.
const WARM_UP_CYCLES: u64 = 50;
/// How much more may be allocated at the end: one part in this many, which is 1 %.
const FLATNESS: usize = 100;
/// How much more memory may be resident: one part in this many. It is what leaks without an allocator, such as a mapping; what the
/// system's allocator keeps of ended threads grows by more than a tenth in some runs, and stays there.
const RESIDENT_FLATNESS: u64 = 4;
/// Readings of which the least counts: for a few cycles some MiB more are resident. What leaks is in every reading.
const READINGS: usize = 20;
/// KiB of a page as statm counts them on x86_64.
const PAGE_KIB: u64 = 4;

/// Of a whole run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Hosts that came and went.
    pub cycles: u64,
    /// Sessions, those that hosts set up again themselves included.
    pub sessions: u64,
    /// Requests that ended.
    pub requests: u64,
    ends: [u64; End::ALL.len()],
    /// Behind the warm-up.
    first: Option<Memory>,
    /// The last readings.
    recent: VecDeque<Memory>,
}

/// When nobody was there.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// Bytes.
    allocated: usize,
    /// Pages.
    resident: u64,
}

impl Summary {
    /// A host came and went.
    pub(super) fn add(&mut self, end: End, sessions: u64, requests: u64) {
        self.cycles += 1;
        self.sessions += sessions;
        self.requests += requests;
        self.ends[end as usize] += 1;
    }

    /// Nobody is there.
    pub(super) fn add_usage(&mut self, usage: Usage) {
        if self.cycles < WARM_UP_CYCLES {
            return;
        }
        self.recent.truncate(READINGS - 1);
        self.recent.push_front(Memory { allocated: usage.live, resident: usage.resident });
        if self.first.is_none() && self.recent.len() == READINGS {
            self.first = Some(self.least());
        }
    }

    /// Of the last readings, one by one.
    fn least(&self) -> Memory {
        let allocated = self.recent.iter().map(|reading| reading.allocated).min().unwrap_or_default();
        let resident = self.recent.iter().map(|reading| reading.resident).min().unwrap_or_default();
        Memory { allocated, resident }
    }

    /// The memory at the end is that behind the warm-up.
    ///
    /// # Errors
    /// How much more it is.
    pub(super) fn is_flat(&self) -> Result<(), String> {
        let (Some(first), last) = (self.first, self.least()) else { return Ok(()) };
        if last.allocated > first.allocated + first.allocated / FLATNESS {
            return Err(format!("more is allocated, by more than 1 %: {self}"));
        }
        if last.resident > first.resident + first.resident / RESIDENT_FLATNESS {
            return Err(format!("more is resident, by more than 25 %: {self}"));
        }
        Ok(())
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes allocated, {} KiB resident", self.allocated, self.resident * PAGE_KIB)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cycles, {} sessions, {} requests; ends:", self.cycles, self.sessions, self.requests)?;
        for (end, count) in End::ALL.iter().zip(self.ends) {
            write!(f, " {end:?} {count}")?;
        }
        match self.first {
            Some(first) => write!(f, "; first {first}; now {}", self.least()),
            None => write!(f, "; warming up"),
        }
    }
}

/// A line now and then.
pub(super) struct Line(Duration);

impl Line {
    /// From now on.
    pub(super) fn begin(now: Duration) -> Self {
        Self(now)
    }

    /// What there is to say, once a period is over.
    pub(super) fn next(&mut self, now: Duration, period: Duration, summary: &Summary) -> Option<String> {
        if now < self.0 + period {
            return None;
        }
        self.0 = now;
        Some(format!("{:>5} s  {summary}", now.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with so much behind each cycle.
    fn run(readings: impl IntoIterator<Item = (usize, u64)>) -> Summary {
        let mut summary = Summary::default();
        for (live, resident) in readings {
            summary.add(End::ALL[0], 1, 1);
            summary.add_usage(Usage { live, resident, ..Usage::default() });
        }
        summary
    }

    #[test]
    fn what_leaks_is_told_and_what_comes_back_is_not() {
        let peak = |cycle: usize| 10_000 + if cycle.is_multiple_of(7) { 1_500 } else { 0 };
        let allocated = |of: &dyn Fn(usize) -> usize| run((0..204).map(|cycle| (of(cycle), 5_000)));
        let resident = |of: &dyn Fn(u64) -> u64| run((0..204).map(|cycle| (10_000, of(cycle))));
        for (name, flat, summary) in [
            ("flat", true, allocated(&|_| 10_000)),
            ("a peak at the end", true, allocated(&peak)),
            ("a peak behind the warm-up", true, allocated(&|cycle| peak(cycle + 6))),
            ("a warm-up", true, allocated(&|cycle| 5_000 + 100 * cycle.min(49))),
            ("a few bytes each cycle", false, allocated(&|cycle| 10_000 + 2 * cycle)),
            ("the same with peaks", false, allocated(&|cycle| peak(cycle) + 2 * cycle)),
            ("pages that are kept", true, resident(&|cycle| 5_000 + 500 * u64::from(cycle > 100))),
            ("a mapping each cycle", false, resident(&|cycle| 5_000 + 16 * cycle)),
            ("too short", true, run((0..60).map(|cycle| (10_000 + 100 * cycle, 5_000)))),
        ] {
            assert_eq!(summary.is_flat().is_ok(), flat, "{name}: {summary}");
        }
    }
}
