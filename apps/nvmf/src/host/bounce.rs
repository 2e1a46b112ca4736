//! Bounce buffers: memory of the host's own for blocks whose bytes lie in several ranges, and for lists of ranges.

use crate::wire::{DatasetRange, ReservationKeys};
use frwr_engine::gather::{MemoryId, Segment};
use frwr_mempool::DeviceMemory;
use zerocopy::IntoBytes;

/// Buffers of one size behind the admin data.
#[derive(Debug)]
pub(super) struct Bounce {
    memory: DeviceMemory,
    id: MemoryId,
    first: usize,
    bytes: usize,
    count: u16,
    free: Vec<u16>,
}

impl Bounce {
    /// As many buffers of `bytes` bytes as fit into `memory` from `first` on, and `most` at most.
    pub(super) fn new(memory: DeviceMemory, id: MemoryId, first: usize, bytes: u32, most: u16) -> Self {
        let bytes = bytes as usize;
        let fit = memory.len().saturating_sub(first).checked_div(bytes).unwrap_or(0);
        let count = u16::try_from(fit).unwrap_or(u16::MAX).min(most);
        Self { memory, id, first, bytes, count, free: (0..count).rev().collect() }
    }

    /// Bytes of a buffer.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// There are some, in use or not.
    pub(super) fn exists(&self) -> bool {
        self.count > 0
    }

    /// A buffer for as many bytes, if there is one and it is large enough.
    pub(super) fn take(&mut self, bytes: usize) -> Option<u16> {
        if bytes > self.bytes { None } else { self.free.pop() }
    }

    pub(super) fn give_back(&mut self, buffer: u16) {
        self.free.push(buffer);
    }

    fn offset(&self, buffer: u16) -> usize {
        self.first + usize::from(buffer) * self.bytes
    }

    /// The first bytes of a buffer.
    pub(super) fn segment(&self, buffer: u16, length: u32) -> Segment {
        Segment { memory: self.id, offset: self.offset(buffer) as u64, length }
    }

    /// Writes the list of a Dataset Management command (NVM figure 45).
    pub(super) fn write_ranges(&self, buffer: u16, ranges: &[(u64, u32)]) {
        let mut at = self.offset(buffer);
        for &(lba, blocks) in ranges {
            let range = DatasetRange { attributes: 0.into(), blocks: blocks.into(), lba: lba.into() };
            // The buffer was taken for as many.
            let _ = self.memory.write(at, range.as_bytes());
            at += size_of::<DatasetRange>();
        }
    }

    /// Writes the data of a command about reservations.
    pub(super) fn write_keys(&self, buffer: u16, keys: &ReservationKeys) {
        // The buffer was taken for as many.
        let _ = self.memory.write(self.offset(buffer), keys.as_bytes());
    }

    /// Copies between a buffer and `memory` at `offset`; `to_buffer` says in which direction. `at` is the place in the
    /// buffer.
    pub(super) fn copy(
        &self,
        buffer: u16,
        at: usize,
        memory: &DeviceMemory,
        offset: u64,
        length: usize,
        to_buffer: bool,
    ) {
        let Ok(offset) = usize::try_from(offset) else { return };
        let ours = self.offset(buffer) + at;
        // Both ranges were checked when the request was cut.
        let _ = if to_buffer {
            memory.copy_within_to(offset, &self.memory, ours, length)
        } else {
            self.memory.copy_within_to(ours, memory, offset, length)
        };
    }
}
