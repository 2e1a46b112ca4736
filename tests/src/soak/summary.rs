//! What was done, and whether memory stayed flat.

use super::{plan::End, process::Usage};
use core::{fmt, time::Duration};

/// Cycles until the allocator and the target have what they will ever need.
const WARM_UP_CYCLES: u64 = 50;
/// How much more memory may be resident at the end: one part in this many, which is 1 %.
const FLATNESS: u64 = 100;
/// Bytes of a page as statm counts them on x86_64.
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
    /// Resident pages: behind the warm-up, and last; with the cycles that had ended.
    first: Option<(u64, u64)>,
    last: (u64, u64),
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
        self.last = (self.cycles, usage.resident);
        if self.first.is_none() && self.cycles >= WARM_UP_CYCLES {
            self.first = Some(self.last);
        }
    }

    /// The memory at the end is that behind the warm-up.
    ///
    /// # Errors
    /// How much more it is.
    pub(super) fn is_flat(&self) -> Result<(), String> {
        let (Some(first), last) = (self.first, self.last) else { return Ok(()) };
        if last.1 <= first.1 + first.1 / FLATNESS {
            return Ok(());
        }
        Err(format!("memory grew by more than 1 %: {self}"))
    }

    fn resident(&self) -> String {
        let said = |(cycle, pages): (u64, u64)| format!("{} KiB at cycle {cycle}", pages * PAGE_KIB);
        let first = self.first.map_or_else(|| format!("no {WARM_UP_CYCLES} cycles"), said);
        format!("resident first {first}, last {}", said(self.last))
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
