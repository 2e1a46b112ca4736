//! What the requests of a time came to.

use super::Operation;
use core::hint::black_box;
use hdrhistogram::{CreationError, Histogram};

/// Longest latency told apart, in nanoseconds: a minute. More counts as a minute.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Significant decimal digits of a latency: 3, as fio and perftest print.
const LATENCY_DIGITS: u8 = 3;

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Side {
    /// How many ended.
    pub requests: u64,
    /// Bytes that those moved, or deallocated, which succeeded.
    pub bytes: u64,
    /// How long they took, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Side {
    fn new() -> Result<Self, CreationError> {
        // All counts are written, zero or not, so that no request faults on a page of them.
        let mut latency = black_box(Histogram::new_with_bounds(1, MAX_LATENCY_NS, LATENCY_DIGITS)?);
        latency.reset();
        Ok(Self { requests: 0, bytes: 0, latency })
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        // All have the same bounds.
        let _ = self.latency.add(&other.latency);
    }

    fn clear(&mut self) {
        (self.requests, self.bytes) = (0, 0);
        self.latency.reset();
    }
}

/// Requests of all kinds. All memory is taken at the start.
#[derive(Clone, Debug)]
pub struct Tally {
    reads: Side,
    writes: Side,
    others: Side,
}

impl Tally {
    /// Of nothing yet.
    ///
    /// # Errors
    /// The reason why no histogram could be made.
    pub fn new() -> Result<Self, CreationError> {
        Ok(Self { reads: Side::new()?, writes: Side::new()?, others: Side::new()? })
    }

    /// A request ended that took so long, and moved so many bytes.
    pub(super) fn count(&mut self, operation: Operation, bytes: u64, nanoseconds: u128) {
        let side = match operation {
            Operation::Read => &mut self.reads,
            Operation::Write => &mut self.writes,
            Operation::Trim | Operation::Flush => &mut self.others,
        };
        side.requests += 1;
        side.bytes += bytes;
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(MAX_LATENCY_NS);
        side.latency.saturating_record(nanoseconds.clamp(1, MAX_LATENCY_NS));
    }

    /// Reads.
    #[must_use]
    pub fn reads(&self) -> &Side {
        &self.reads
    }

    /// Writes.
    #[must_use]
    pub fn writes(&self) -> &Side {
        &self.writes
    }

    /// Trims and flushes.
    #[must_use]
    pub fn others(&self) -> &Side {
        &self.others
    }

    fn sides(&self) -> [&Side; 3] {
        [&self.reads, &self.writes, &self.others]
    }

    /// All together, in a histogram of its own.
    #[must_use]
    pub fn total(&self) -> Side {
        let mut total = self.reads.clone();
        self.sides()[1..].iter().for_each(|side| total.add(side));
        total
    }

    /// Requests of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.sides().iter().map(|side| side.requests).sum()
    }

    /// What they have moved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sides().iter().map(|side| side.bytes).sum()
    }

    /// Counts what another one has as well.
    pub fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.others.add(&other.others);
    }

    /// Of nothing again.
    pub fn clear(&mut self) {
        [&mut self.reads, &mut self.writes, &mut self.others].into_iter().for_each(Side::clear);
    }
}
