//! A namespace in memory.

use super::{
    AttachError, Changing, Completion, CompletionBatch, Cookie, Features, Geometry, GeometryError, Operation,
    QueueFull, ResizeError, Storage, StorageError, StorageStatistics,
};
use core::time::Duration;
use frwr_mempool::DeviceMemory;
use std::collections::VecDeque;

/// Keeps blocks in memory and completes every operation at the first poll behind its flush. Cores that serve the same
/// namespace each have one over clones of the same memory; blocks that two cores write at once may end up mixed, as on
/// any disk without atomic writes. It compares and writes where it lies in a [`super::Comparing`].
#[derive(Debug)]
pub struct MemoryStorage {
    geometry: Geometry,
    medium: DeviceMemory,
    buffers: Option<DeviceMemory>,
    queue: VecDeque<(Cookie, Operation)>,
    /// Operations it holds at most; the queue never grows beyond.
    depth: usize,
    /// Operations at the front of the queue that were flushed.
    started: usize,
    read_only: bool,
    statistics: StorageStatistics,
}

/// A namespace in memory that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryStorageError {
    /// The block size or the number of blocks.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A queue without room for an operation.
    #[error("queue depth 0: a storage holds at least 1 operation; choose a larger depth")]
    Depth,
}

impl MemoryStorage {
    /// A namespace of as many blocks as fit into `medium`, which holds `depth` operations at a time.
    ///
    /// # Errors
    /// [`MemoryStorageError`].
    pub fn new(medium: DeviceMemory, block_bytes: u32, depth: usize) -> Result<Self, MemoryStorageError> {
        if depth == 0 {
            return Err(MemoryStorageError::Depth);
        }
        let blocks = (medium.len() as u64).checked_div(block_bytes.into()).unwrap_or(0);
        let geometry = Geometry::new(blocks, block_bytes)?;
        let queue = VecDeque::with_capacity(depth);
        let statistics = StorageStatistics::default();
        Ok(Self { geometry, medium, buffers: None, queue, depth, started: 0, read_only: false, statistics })
    }

    /// The same, never changed from now on.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    fn execute(&self, operation: Operation) -> Result<(), StorageError> {
        // Memory has nothing more durable behind it.
        let Some((lba, blocks)) = operation.blocks() else { return Ok(()) };
        if self.read_only && operation.changes() {
            return Err(StorageError::ReadOnly);
        }
        let (start, bytes) = self.geometry.extent(lba, blocks)?;
        let start = usize::try_from(start).map_err(|_| StorageError::LbaOutOfRange)?;
        let bytes = usize::try_from(bytes).map_err(|_| StorageError::LbaOutOfRange)?;
        let buffers = self.buffers.as_ref().ok_or(StorageError::BufferOutOfRange)?;
        let copied = match operation {
            Operation::Read { buffer, .. } => self.medium.copy_within_to(start, buffers, buffer, bytes),
            Operation::Write { buffer, .. } => buffers.copy_within_to(buffer, &self.medium, start, bytes),
            Operation::WriteZeroes { .. } => self.medium.fill(start, bytes, 0),
            // Its pages stay with the region.
            Operation::Deallocate { .. } | Operation::Flush => Ok(()),
            Operation::CompareAndWrite { .. } => return Err(StorageError::Unsupported),
        };
        // The extent lies in the medium, so it is the buffer that does not lie in its memory.
        copied.map_err(|_| StorageError::BufferOutOfRange)
    }
}

impl Changing for MemoryStorage {
    fn is_changing(&self, start: u64, end: u64) -> bool {
        self.queue.iter().any(|(_, operation)| operation.changes_any(start, end))
    }
}

impl Storage for MemoryStorage {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        let geometry = Geometry::new(blocks, self.geometry.block_bytes())?;
        let limit = self.medium.len() as u64 / u64::from(geometry.block_bytes());
        if blocks > limit {
            return Err(ResizeError::Medium { blocks, limit });
        }
        self.geometry = geometry;
        Ok(())
    }

    fn features(&self) -> Features {
        // There is nothing more durable behind it.
        Features {
            write_zeroes: true,
            deallocate: true,
            read_only: self.read_only,
            write_through: true,
            shared: false,
            compare_and_write: 0,
        }
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        if self.buffers.is_some() {
            return Err(AttachError::Twice);
        }
        self.buffers = Some(buffers);
        Ok(())
    }

    #[inline]
    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.queue.len() >= self.depth {
            return Err(QueueFull);
        }
        self.queue.push_back((cookie, operation));
        self.statistics.submitted += 1;
        Ok(())
    }

    fn cancel(&mut self, cookie: Cookie) -> bool {
        let mut queued = self.queue.iter().enumerate().skip(self.started);
        let found = queued.find_map(|(at, (queued, _))| (*queued == cookie).then_some(at));
        let cancelled = found.and_then(|at| self.queue.remove(at)).is_some();
        self.statistics.cancelled += u64::from(cancelled);
        cancelled
    }

    fn flush(&mut self) {
        self.statistics.flushes += u64::from(self.queue.len() > self.started);
        self.started = self.queue.len();
    }

    fn poll(&mut self, _now: Duration, out: &mut CompletionBatch) -> usize {
        let mut count = 0;
        while self.started > 0 && !out.is_full() {
            let Some((cookie, operation)) = self.queue.pop_front() else { break };
            self.started -= 1;
            let result = self.execute(operation);
            out.push(Completion { cookie, result });
            self.statistics.completed += 1;
            self.statistics.failed += u64::from(result.is_err());
            count += 1;
        }
        count
    }

    /// It does everything in polls: what is there was not flushed, or finds no room.
    fn arm(&mut self) -> bool {
        self.queue.is_empty()
    }

    fn statistics(&self) -> StorageStatistics {
        self.statistics
    }
}
