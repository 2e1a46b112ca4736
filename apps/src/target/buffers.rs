//! The fixed pool of data buffers of one core.

use frwr_engine::gather::{MemoryId, Segment};
use frwr_mempool::DeviceMemory;
use frwr_mempool::device_memory::OutOfBounds;

/// One data buffer in use. Whoever holds it gives it back by [`Buffers::put`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the buffer is lost to the pool until it is put back"]
pub(super) struct Buffer(u32);

/// Equal buffers in one memory, the last used first.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: DeviceMemory,
    id: MemoryId,
    bytes: u32,
    count: u32,
    free: Vec<u32>,
}

impl Buffers {
    /// As many buffers as fit.
    pub(super) fn new(memory: DeviceMemory, id: MemoryId, bytes: u32) -> Self {
        // An index times the size lies in the memory, so it fits; more than u32::MAX buffers are not used.
        let count = u32::try_from(memory.len() / bytes.max(1) as usize).unwrap_or(u32::MAX);
        Self { memory, id, bytes, count, free: (0..count).rev().collect() }
    }

    /// All of them.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn available(&self) -> usize {
        self.free.len()
    }

    pub(super) fn take(&mut self) -> Option<Buffer> {
        self.free.pop().map(Buffer)
    }

    pub(super) fn put(&mut self, buffer: Buffer) {
        self.free.push(buffer.0);
    }

    /// Where the buffer lies in the memory that storage knows.
    pub(super) fn offset(&self, buffer: &Buffer) -> usize {
        buffer.0 as usize * self.bytes as usize
    }

    /// The first `length` bytes for the engine.
    pub(super) fn segment(&self, buffer: &Buffer, length: u32) -> Segment {
        Segment { memory: self.id, offset: self.offset(buffer) as u64, length: length.min(self.bytes) }
    }

    /// Makes the first `length` bytes zeros.
    pub(super) fn clear(&self, buffer: &Buffer, length: usize) -> Result<(), OutOfBounds> {
        self.memory.fill(self.offset(buffer), length, 0)
    }

    pub(super) fn read(&self, buffer: &Buffer, from: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        self.memory.read(self.offset(buffer) + from, into)
    }

    pub(super) fn write(&self, buffer: &Buffer, to: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.memory.write(self.offset(buffer) + to, bytes)
    }
}
