//! The job's next request, and what a write of it has.

use super::{
    Job, Slot,
    load::Choice,
    options::{Content, JobOptions},
    pattern,
    request::{Operation, Phase, Request},
};
use core::{ops::Range, time::Duration};

impl Job {
    /// The next request to submit, if the job wants one by now and has a slot for it. The caller either submits it and says
    /// [`Job::submitted`], or drops it and is offered one again.
    pub fn next_request(&mut self, now: Duration) -> Option<Request> {
        if self.in_flight as usize == self.slots.len() {
            return None;
        }
        let Choice { operation, first, units } = self.choice(now)?;
        let slot = self.slots.iter().position(|slot| slot.request.is_none())? as u32;
        let bytes = self.extent(first..first + units);
        let bytes = (bytes.end - bytes.start) as u32;
        let request = Request { operation, lba: self.options.first + first, bytes, slot };
        // Where there is no room it is offered in each iteration.
        if self.offered.replace(request) != Some(request) && operation == Operation::Write {
            self.fill(request);
        }
        Some(request)
    }

    fn choice(&mut self, now: Duration) -> Option<Choice> {
        let per_block = u64::from(self.options.load.sizes.most() / self.unit_bytes());
        let of_block = |operation, block: u64| Choice { operation, first: block * per_block, units: per_block };
        match self.phase {
            Phase::Write if self.next < self.blocks => Some(of_block(Operation::Write, self.next)),
            Phase::Flush if self.next == 0 => Some(Choice { operation: Operation::Flush, first: 0, units: 0 }),
            Phase::Read if self.next < self.blocks => Some(of_block(Operation::Read, self.order.at(self.next))),
            Phase::Load => {
                let Self { load, random, ledger, .. } = self;
                load.choose(now, random, |units| ledger.as_ref().is_none_or(|ledger| ledger.is_free(units)))
            }
            _ => None,
        }
    }

    /// Which of the content's units a request is of.
    pub(super) fn units_of(&self, request: Request) -> Range<u64> {
        let first = request.lba - self.options.first;
        first..first + u64::from(request.bytes.div_ceil(self.unit_bytes()))
    }

    /// Where units lie in the content, and in the read-back memory; only the last may be short.
    pub(super) fn extent(&self, units: Range<u64>) -> Range<u64> {
        let at = |unit: u64| (unit * u64::from(self.unit_bytes())).min(self.bytes_in_all);
        at(units.start)..at(units.end)
    }

    fn fill(&mut self, request: Request) {
        let (units, unit_bytes) = (self.units_of(request), self.unit_bytes() as usize);
        let (mut bytes, seed) = (request.bytes as usize, self.options.seed);
        match &self.ledger {
            _ if self.phase == Phase::Write => {
                let block = &mut self.block[..bytes];
                let content = file_bytes(&self.options, units.start * unit_bytes as u64, bytes);
                let (held, padding) = block.split_at_mut(content.len());
                held.copy_from_slice(content);
                padding.fill(0);
            }
            Some(ledger) => {
                for (unit, place) in units.zip(self.block[..bytes].chunks_mut(unit_bytes)) {
                    pattern::fill(place, seed, unit, ledger.next_version(unit));
                }
            }
            None => {
                // What nobody checks is written as it was before: as fio does it, and so as fast as the processor allows.
                if core::mem::replace(&mut self.slots[request.slot as usize].filled, true) {
                    return;
                }
                bytes = self.block.len();
                pattern::fill(&mut self.block, seed, request.slot.into(), 1);
            }
        }
        for (offset, range) in self.layout.pieces(request.slot, bytes) {
            // The memory has room for every slot.
            let _ = self.memory.write(offset, &self.block[range]);
        }
    }

    /// The request of [`Job::next_request`] is on its way.
    pub fn submitted(&mut self, request: Request, now: Duration) {
        let (units, loading) = (self.units_of(request), self.phase == Phase::Load);
        self.offered = None;
        let mut started = now;
        if loading {
            let choice = Choice { operation: request.operation, first: units.start, units: units.end - units.start };
            started = self.load.submitted(choice, request.bytes.into(), now);
        } else {
            self.next += 1;
        }
        let slot = &mut self.slots[request.slot as usize];
        *slot = Slot { request: Some(request), started, ..*slot };
        self.in_flight += 1;
        if let Some(ledger) = &mut self.ledger {
            match request.operation {
                Operation::Write if loading => ledger.begin_write(units),
                Operation::Read | Operation::Write => ledger.begin_read(units),
                Operation::Trim => ledger.begin_trim(units),
                Operation::Flush => {}
            }
        }
    }
}

/// The file's bytes from `first` on, `most` at most; none where there is no file.
pub(super) fn file_bytes(options: &JobOptions, first: u64, most: usize) -> &[u8] {
    let Content::File { bytes, .. } = &options.content else { return &[] };
    let first = (first as usize).min(bytes.len());
    &bytes[first..(first + most).min(bytes.len())]
}
