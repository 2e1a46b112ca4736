//! What was done, and whether memory stayed flat.

use super::{plan::End, process::Usage};
use core::{fmt, time::Duration};
use std::collections::VecDeque;

/// Cycles until the allocator and the target have what they will ever need.
const WARM_UP_CYCLES: u64 = 50;
/// How much more memory may be resident at the end: one part in this many, which is 1 %.
const FLATNESS: u64 = 100;
/// Readings of which the least counts: where ended threads interleaved unluckily, the allocator holds some MiB more for a few cycles
/// and gives them back. What leaks is in every reading.
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
    /// Resident pages behind the warm-up.
    first: Option<Reading>,
    /// The last readings.
    recent: VecDeque<Reading>,
}

/// Resident pages when nobody was there.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    pages: u64,
    /// Hosts that had come and gone.
    cycles: u64,
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
        // Of those of the warm-up the last one is enough.
        self.recent.truncate(if self.cycles <= WARM_UP_CYCLES { 0 } else { READINGS - 1 });
        self.recent.push_front(Reading { pages: usage.resident, cycles: self.cycles });
        if self.first.is_none() && self.recent.len() == READINGS {
            self.first = Some(self.least());
        }
    }

    /// Of the last readings.
    fn least(&self) -> Reading {
        self.recent.iter().copied().min_by_key(|reading| reading.pages).unwrap_or_default()
    }

    /// The memory at the end is that behind the warm-up.
    ///
    /// # Errors
    /// How much more it is.
    pub(super) fn is_flat(&self) -> Result<(), String> {
        let Some(first) = self.first else { return Ok(()) };
        if self.least().pages <= first.pages + first.pages / FLATNESS {
            return Ok(());
        }
        Err(format!("memory grew by more than 1 %: {self}"))
    }

    fn resident(&self) -> String {
        let first = self.first.map_or_else(|| format!("no {WARM_UP_CYCLES} cycles"), |first| first.to_string());
        format!("resident first {first}, last {}", self.least())
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB at cycle {}", self.pages * PAGE_KIB, self.cycles)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cycles, {} sessions, {} requests; ends:", self.cycles, self.sessions, self.requests)?;
        for (end, count) in End::ALL.iter().zip(self.ends) {
            write!(f, " {end:?} {count}")?;
        }
        write!(f, "; {}", self.resident())
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

    /// A run in which so many pages were resident behind each cycle.
    fn run(pages: impl IntoIterator<Item = u64>) -> Summary {
        let mut summary = Summary::default();
        for resident in pages {
            summary.add(End::ALL[0], 1, 1);
            summary.add_usage(Usage { resident, ..Usage::default() });
        }
        summary
    }

    #[test]
    fn what_leaks_is_told_and_what_comes_back_is_not() {
        let peaks = |cycle: u64| 10_000 + if cycle.is_multiple_of(7) { 1_500 } else { 0 };
        for (name, flat, summary) in [
            ("flat", true, run([10_000; 200])),
            ("a peak at the end", true, run((1..=203).map(peaks))),
            ("a peak behind the warm-up", true, run((0..200).map(|cycle| if cycle == 50 { 11_500 } else { 10_000 }))),
            ("a warm-up", true, run((0..200).map(|cycle| 5_000 + 100 * cycle.min(50)))),
            ("a page each cycle", false, run((0..200).map(|cycle| 10_000 + cycle))),
            ("the same with peaks", false, run((0..200).map(|cycle| peaks(cycle) + cycle))),
            ("a peak behind the warm-up hides no leak", false, run((0..400).map(|cycle| peaks(cycle + 6) + cycle))),
            ("too short", true, run((0..40).map(|cycle| 10_000 + 100 * cycle))),
        ] {
            assert_eq!(summary.is_flat().is_ok(), flat, "{name}: {summary}");
        }
    }
}
