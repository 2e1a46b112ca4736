//! One core's way to an image.

use super::super::{
    AttachError, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, ResizeError, Storage,
    StorageError, StorageStatistics,
};
use super::{
    sys::Way,
    task::{Progress, Task, without_lock},
};
use core::{task::Waker, time::Duration};
use frwr_mempool::DeviceMemory;
use std::collections::VecDeque;

/// What librbd compares and writes at a time, in one sector and no more: larger ones it refuses, as they might lie in several
/// objects, or be too long for its journal.
const COMPARE_AND_WRITE_BYTES: u32 = 512;

/// An image of a Ceph cluster: [`Storage::flush`] hands operations to librbd, each by one call, and [`Storage::poll`] takes their
/// ends. librbd's cache is off: what has completed is on all of its placement group's OSDs.
///
/// While OSDs are away operations wait, and are carried out once by those that come: librados sees to that.
///
/// Dropping it waits for what librbd has, for ten seconds at most. Where that was not enough, its memory stays mapped for ever, and
/// librbd may still move bytes there: end the process then.
#[derive(Debug)]
pub struct RbdStorage {
    way: Way,
    geometry: Geometry,
    read_only: bool,
    tasks: Vec<Option<Task>>,
    free: Vec<u32>,
    /// Operations that librbd does not have, in order.
    queue: VecDeque<u32>,
    ended: VecDeque<Completion>,
    /// Of one poll; empty between two.
    taken: Vec<(u32, i64)>,
    statistics: StorageStatistics,
}

impl RbdStorage {
    /// `depth` is from 1 to [`super::super::MAX_STORAGE_DEPTH`].
    pub(super) fn new(way: Way, geometry: Geometry, read_only: bool, depth: usize) -> Self {
        Self {
            way,
            geometry,
            read_only,
            tasks: vec![None; depth],
            // Bounded by that.
            free: (0..depth as u32).rev().collect(),
            queue: VecDeque::with_capacity(depth),
            ended: VecDeque::with_capacity(depth),
            taken: Vec::with_capacity(depth),
            statistics: StorageStatistics::default(),
        }
    }

    /// Where an operation lies, in bytes of the image; that it can be done at all.
    fn check(&self, operation: Operation) -> Result<(u64, u64), StorageError> {
        let buffers = self.way.buffers().ok_or(StorageError::BufferOutOfRange)?;
        let Some((lba, blocks)) = operation.blocks() else { return Ok((0, 0)) };
        if operation.changes() && self.read_only {
            return Err(StorageError::ReadOnly);
        }
        let (start, bytes) = self.geometry.extent(lba, blocks)?;
        let in_buffer = match operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => Some((buffer, bytes)),
            Operation::CompareAndWrite { .. } if blocks > self.features().compare_and_write => {
                return Err(StorageError::Unsupported);
            }
            // librbd puts a number there.
            Operation::CompareAndWrite { buffer, .. }
                if !buffers.address().wrapping_add(buffer as u64).is_multiple_of(8) =>
            {
                return Err(StorageError::BufferUnaligned);
            }
            Operation::CompareAndWrite { buffer, .. } => Some((buffer, 3 * bytes)),
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } | Operation::Flush => None,
        };
        if let Some((buffer, bytes)) = in_buffer {
            let room = buffers.len().checked_sub(buffer);
            room.filter(|room| *room as u64 >= bytes).ok_or(StorageError::BufferOutOfRange)?;
        }
        Ok((start, bytes))
    }

    /// It has nothing to do that librbd would have to know.
    const fn is_nothing(&self, operation: Operation, bytes: u64) -> bool {
        match operation {
            Operation::Flush => self.read_only,
            _ => bytes == 0,
        }
    }

    /// Gives the next step of an operation to librbd.
    fn start(&mut self, slot: u32) {
        let Some(task) = &self.tasks[slot as usize] else { return };
        if let Some(error) = self.way.shared().refuses() {
            return self.end(slot, Err(error));
        }
        if let Err(errno) = self.way.start(slot, task.step()) {
            self.went(slot, -i64::from(errno.0));
        }
    }

    /// A step has ended.
    fn went(&mut self, slot: u32, result: i64) {
        if result < 0
            && let Some(error) = self.unlocked(slot, result)
        {
            return self.end(slot, Err(error));
        }
        let Some(task) = self.tasks.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        match task.ended(result) {
            Progress::Again => {
                self.statistics.restarts += 1;
                self.start(slot);
            }
            Progress::Over(result) => self.end(slot, result),
            Progress::Cut(found) => {
                self.way.shared().is_cut(found);
                self.end(slot, Err(StorageError::Shrunk));
            }
            Progress::Removed => {
                self.way.shared().is_removed();
                self.end(slot, Err(StorageError::Medium));
            }
        }
    }

    /// It failed since the lock of the image is not this process's.
    #[cold]
    fn unlocked(&self, slot: u32, result: i64) -> Option<StorageError> {
        let lock = self.way.shared().lock()?;
        let task = self.tasks.get(slot as usize)?.as_ref()?;
        let errno = i32::try_from(result.unsigned_abs()).ok()?;
        let error = without_lock(task.operation, errno)?;
        if errno == libc::ESHUTDOWN {
            lock.is_lost();
        }
        Some(error)
    }

    fn end(&mut self, slot: u32, result: Result<(), StorageError>) {
        if let Some(task) = self.tasks.get_mut(slot as usize).and_then(Option::take) {
            self.free.push(slot);
            self.ended.push_back(Completion { cookie: task.cookie, result });
        }
    }
}

impl Storage for RbdStorage {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        self.geometry = self.way.shared().resized(self.geometry, blocks)?;
        Ok(())
    }

    fn features(&self) -> Features {
        let read_only = self.read_only;
        let is_sector = self.geometry.block_bytes() == COMPARE_AND_WRITE_BYTES;
        let compare_and_write = u32::from(is_sector && !read_only);
        let (write_zeroes, deallocate, write_through, shared) = (true, true, true, true);
        Features { write_zeroes, deallocate, read_only, write_through, shared, compare_and_write }
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        if self.way.attach(buffers) { Ok(()) } else { Err(AttachError::Twice) }
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.tasks.len() - self.free.len() + self.ended.len() >= self.tasks.len() {
            return Err(QueueFull);
        }
        let Some(slot) = self.free.pop() else { return Err(QueueFull) };
        let checked = self.check(operation);
        let (start, bytes) = checked.unwrap_or_default();
        self.tasks[slot as usize] = Some(Task::new(cookie, operation, start, bytes));
        self.statistics.submitted += 1;
        match checked {
            Err(error) => self.end(slot, Err(error)),
            Ok((_, bytes)) if self.is_nothing(operation, bytes) => self.end(slot, Ok(())),
            Ok(_) => self.queue.push_back(slot),
        }
        Ok(())
    }

    /// What librbd has is not taken back.
    fn cancel(&mut self, cookie: Cookie) -> bool {
        let is_it = |slot: &u32| self.tasks[*slot as usize].is_some_and(|task| task.cookie == cookie);
        let Some(at) = self.queue.iter().position(is_it) else { return false };
        let Some(slot) = self.queue.remove(at) else { return false };
        self.tasks[slot as usize] = None;
        self.free.push(slot);
        self.statistics.cancelled += 1;
        true
    }

    fn flush(&mut self) {
        self.statistics.flushes += u64::from(!self.queue.is_empty());
        while let Some(slot) = self.queue.pop_front() {
            self.start(slot);
        }
    }

    fn poll(&mut self, _now: Duration, out: &mut CompletionBatch) -> usize {
        let before = out.len();
        if self.way.running() > 0 {
            self.way.shared().check_size(self.geometry.bytes());
            let mut taken = core::mem::take(&mut self.taken);
            self.way.take(|slot, result| taken.push((slot, result)));
            for (slot, result) in taken.drain(..) {
                self.went(slot, result);
            }
            self.taken = taken;
        }
        self.statistics.hand_on(&mut self.ended, out);
        out.len() - before
    }

    fn wakes(&mut self, waker: &Waker) {
        self.way.mailbox().bell().wakes(waker);
    }

    /// librbd's thread rings the bell behind each end.
    fn arm(&mut self) -> bool {
        let bell = self.way.mailbox().bell();
        bell.arm();
        let wakes = bell.has_waker() || self.way.running() == 0;
        wakes && self.queue.is_empty()
    }

    fn rests(&self) -> bool {
        self.queue.is_empty() && self.ended.is_empty()
    }

    fn statistics(&self) -> StorageStatistics {
        StorageStatistics { fault: self.way.shared().fault(self.geometry.bytes()), ..self.statistics }
    }
}
