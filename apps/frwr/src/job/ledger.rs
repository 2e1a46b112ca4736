//! What the job has written where: a version for each unit of a range, so that what is read can be checked without a copy of it.

use core::ops::Range;

/// Units that a ledger has at most: 512 MiB of memory, for 512 GiB in units of 4 KiB.
pub(crate) const MAX_UNITS: u64 = 1 << 27;
/// Bytes of memory that a unit takes.
pub(crate) const UNIT_BYTES: u64 = size_of::<u32>() as u64;
/// A request is in flight. What is left counts the writes.
const BUSY: u32 = 1 << 31;

/// Versions of units, and which of them a request is working on: no two at a time, so that it is known what is there.
#[derive(Debug)]
pub(super) struct Ledger {
    first: u64,
    entries: Box<[u32]>,
}

impl Ledger {
    /// Of these units; nothing is known of what is in them. The system gives the memory when a unit is first used.
    pub(super) fn new(units: Range<u64>) -> Self {
        Self { first: units.start, entries: vec![0; (units.end - units.start) as usize].into() }
    }

    fn entry(&self, unit: u64) -> u32 {
        self.entries.get((unit - self.first) as usize).copied().unwrap_or(BUSY)
    }

    fn change(&mut self, units: Range<u64>, change: impl Fn(u32) -> u32) {
        let range = (units.start - self.first) as usize..(units.end - self.first) as usize;
        if let Some(entries) = self.entries.get_mut(range) {
            entries.iter_mut().for_each(|entry| *entry = change(*entry));
        }
    }

    /// No request works on any of them.
    pub(super) fn is_free(&self, mut units: Range<u64>) -> bool {
        units.all(|unit| self.entry(unit) & BUSY == 0)
    }

    /// Which write of it was the last that began; 0 for none.
    pub(super) fn version(&self, unit: u64) -> u32 {
        self.entry(unit) & !BUSY
    }

    /// Which one the next will be.
    pub(super) fn next_version(&self, unit: u64) -> u32 {
        following(self.entry(unit) & !BUSY)
    }

    /// A request begins that reads them.
    pub(super) fn begin_read(&mut self, units: Range<u64>) {
        self.change(units, |entry| entry | BUSY);
    }

    /// A request begins that writes their next version.
    pub(super) fn begin_write(&mut self, units: Range<u64>) {
        self.change(units, |entry| following(entry & !BUSY) | BUSY);
    }

    /// A request begins behind which nobody knows what they hold.
    pub(super) fn begin_trim(&mut self, units: Range<u64>) {
        self.change(units, |_| BUSY);
    }

    /// The request has ended.
    pub(super) fn end(&mut self, units: Range<u64>) {
        self.change(units, |entry| entry & !BUSY);
    }
}

/// Never 0, which stands for none.
fn following(version: u32) -> u32 {
    ((version + 1) & !BUSY).max(1)
}

#[cfg(test)]
mod tests {
    use super::{BUSY, Ledger, following};

    #[test]
    fn a_write_counts_and_a_trim_forgets() {
        let mut ledger = Ledger::new(100..110);
        assert_eq!((ledger.version(105), ledger.next_version(105)), (0, 1));
        ledger.begin_write(104..106);
        assert!(!ledger.is_free(105..108) && !ledger.is_free(100..105) && ledger.is_free(106..110));
        ledger.end(104..106);
        assert!(ledger.is_free(100..110));
        assert_eq!([103, 104, 105, 106].map(|unit| ledger.version(unit)), [0, 1, 1, 0]);
        ledger.begin_read(104..105);
        assert_eq!((ledger.version(104), ledger.is_free(104..105)), (1, false));
        ledger.end(104..105);
        ledger.begin_trim(104..105);
        ledger.end(104..105);
        assert_eq!([104, 105].map(|unit| ledger.version(unit)), [0, 1]);
        // What is none of its own is nobody's to use.
        assert!(!ledger.is_free(109..111));
    }

    #[test]
    fn versions_never_say_that_there_is_none() {
        assert_eq!([0, 1, BUSY - 2, BUSY - 1].map(following), [1, 2, BUSY - 1, 1]);
    }
}
