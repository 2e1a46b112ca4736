//! What became of a request, and whether what it read is right.

use super::{
    Job,
    next::file_bytes,
    options::Content,
    pattern::{self, Mismatch},
    request::{Caught, Operation, Phase, Request},
};
use core::time::Duration;
use std::sync::Arc;

impl Job {
    /// A request ended, with success or not. A slot without a request is ignored.
    pub fn completed(&mut self, slot: u32, success: bool, now: Duration) {
        let Some(entry) = self.slots.get_mut(slot as usize) else { return };
        let Some(request) = entry.request.take() else { return };
        let started = entry.started;
        self.in_flight -= 1;
        self.requests += 1;
        let moved = if success && request.operation != Operation::Flush { u64::from(request.bytes) } else { 0 };
        self.bytes += moved;
        if self.load.times().is_none_or(|times| started >= times.counts) {
            let nanoseconds = now.saturating_sub(started).as_nanos();
            let interval = self.interval.as_deref_mut();
            for tally in core::iter::once(&mut self.tally).chain(interval) {
                tally.count(request.operation, moved, nanoseconds);
            }
        }
        let units = self.units_of(request);
        // Its units are its own until it is checked.
        if success && request.operation == Operation::Read && self.ledger.is_some() {
            self.check(request);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.end(units);
        }
        if !success {
            self.caught.get_or_insert(Caught::Failed { lba: request.lba });
        }
    }

    fn check(&mut self, request: Request) {
        let (units, bytes) = (self.units_of(request), request.bytes as usize);
        for (offset, range) in self.layout.pieces(request.slot, bytes) {
            let _ = self.memory.read(offset, &mut self.block[range]);
        }
        let extent = self.extent(units.clone());
        if self.phase == Phase::Read
            && let Some(read_back) = Arc::get_mut(&mut self.read_back)
        {
            read_back[extent.start as usize..extent.end as usize].copy_from_slice(&self.block[..bytes]);
        }
        let unit_bytes = self.unit_bytes() as usize;
        for (unit, at) in units.zip((0..bytes).step_by(unit_bytes)) {
            let block = &self.block[at..(at + unit_bytes).min(bytes)];
            match self.check_unit(unit, block) {
                None => self.unchecked_bytes += block.len() as u64,
                Some(Ok(())) => {}
                Some(Err(mismatch)) => {
                    self.caught.get_or_insert(Caught::Block { lba: self.options.first + unit, mismatch });
                }
            }
        }
    }

    /// `None` where nobody knows what there should be.
    fn check_unit(&self, unit: u64, block: &[u8]) -> Option<Result<(), Mismatch>> {
        let version = self.ledger.as_ref()?.version(unit);
        if version != 0 {
            return Some(pattern::check(block, self.options.seed, unit, version));
        }
        let extent = self.extent(unit..unit + 1);
        match &self.options.content {
            Content::File { .. } if self.phase == Phase::Read => {
                Some(pattern::check_bytes(block, file_bytes(&self.options, extent.start, block.len())))
            }
            // What was read first has been compared with the file.
            Content::File { .. } | Content::Found { .. } => {
                Some(pattern::check_bytes(block, &self.read_back[extent.start as usize..extent.end as usize]))
            }
            Content::Range { .. } => None,
        }
    }
}
