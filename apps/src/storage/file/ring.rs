//! A medium by io_uring.

use super::super::{
    AttachError, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, Storage,
    StorageStatistics,
};
use super::{
    lock::LockedFile,
    sys::Ring,
    task::{Layout, Progress, Task, Ways},
};
use core::time::Duration;
use frwr_mempool::DeviceMemory;
use std::{collections::VecDeque, io, sync::Arc};

/// One core's way to a medium: operations become entries of a ring, [`Storage::flush`] starts all of them by one system
/// call, completions are found in memory. Where the buffers can be registered they are (see
/// [`RingStorage::has_registered_buffers`]).
///
/// Dropping it waits for what runs. It may be made on any thread, and used on any one.
pub struct RingStorage {
    ring: Ring,
    layout: Layout,
    ways: Ways,
    tasks: Vec<Option<Task>>,
    free: Vec<u32>,
    /// Ended without the kernel.
    ended: VecDeque<Completion>,
    /// Of these, those that were flushed.
    started: usize,
    statistics: StorageStatistics,
}

impl core::fmt::Debug for RingStorage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RingStorage").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl RingStorage {
    /// `depth`, from 1 to [`super::MAX_STORAGE_DEPTH`], operations at a time.
    pub(super) fn new(file: Arc<LockedFile>, layout: Layout, depth: usize) -> io::Result<Self> {
        // Bounded by the caller.
        let entries = depth as u32;
        Ok(Self {
            ring: Ring::new(entries, file)?,
            layout,
            ways: Ways::default(),
            tasks: vec![None; depth],
            free: (0..entries).rev().collect(),
            ended: VecDeque::with_capacity(depth),
            started: 0,
            statistics: StorageStatistics::default(),
        })
    }

    /// The kernel knows the buffers, so that no transfer has to look up and hold their pages. False before they are
    /// attached, and where RLIMIT_MEMLOCK has no room for them.
    #[must_use]
    pub fn has_registered_buffers(&self) -> bool {
        self.ring.is_registered()
    }

    /// Queues the next step of a task, or ends it.
    fn go_on(&mut self, index: u32) {
        let Some(Some(task)) = self.tasks.get_mut(index as usize) else { return };
        let result = match task.next(&self.layout, self.ways) {
            Some(step) if self.ring.push(index.into(), step) => return,
            // There are as many entries as tasks, and buffers were checked.
            Some(_) => Err(super::super::StorageError::Medium),
            None => Ok(()),
        };
        self.end(index, result);
    }

    fn end(&mut self, index: u32, result: Result<(), super::super::StorageError>) {
        let Some(task) = self.tasks.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        self.ended.push_back(Completion { cookie: task.cookie, result });
    }

    fn complete(&mut self, out: &mut CompletionBatch, completion: Completion) {
        self.statistics.completed += 1;
        self.statistics.failed += u64::from(completion.result.is_err());
        out.push(completion);
    }
}

impl Storage for RingStorage {
    fn geometry(&self) -> Geometry {
        self.layout.geometry
    }

    fn features(&self) -> Features {
        self.layout.features()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.layout.check_buffers(&buffers)?;
        if self.ring.attach(buffers) { Ok(()) } else { Err(AttachError::Twice) }
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        let held = self.tasks.len() - self.free.len() + self.ended.len();
        if held >= self.tasks.len() {
            return Err(QueueFull);
        }
        let Some(index) = self.free.pop() else { return Err(QueueFull) };
        self.statistics.submitted += 1;
        if let Some(place) = self.tasks.get_mut(index as usize) {
            *place = Some(Task::new(cookie, operation));
        }
        match self.layout.check(operation, self.ring.buffers()) {
            Ok(()) => self.go_on(index),
            Err(error) => self.end(index, Err(error)),
        }
        Ok(())
    }

    fn flush(&mut self) {
        let queued = self.ring.has_queued();
        self.statistics.flushes += u64::from(queued || self.ended.len() > self.started);
        self.started = self.ended.len();
        if queued {
            self.statistics.system_calls += 1;
            self.ring.enter();
        }
    }

    fn poll(&mut self, _now: Duration, out: &mut CompletionBatch) -> usize {
        let before = out.len();
        while self.started > 0 && !out.is_full() {
            let Some(completion) = self.ended.pop_front() else { break };
            self.started -= 1;
            self.complete(out, completion);
        }
        while !out.is_full() {
            let Some(ended) = self.ring.reap() else { break };
            // The tag is the index that `go_on` gave.
            let index = ended.tag as u32;
            let Some(Some(task)) = self.tasks.get_mut(index as usize) else { continue };
            match task.ended(ended.result, &self.layout, &mut self.ways) {
                Progress::Again => {
                    self.statistics.restarts += 1;
                    self.go_on(index);
                }
                Progress::Over(result) => {
                    let completion = Completion { cookie: task.cookie, result };
                    self.tasks[index as usize] = None;
                    self.free.push(index);
                    self.complete(out, completion);
                }
            }
        }
        out.len() - before
    }

    fn statistics(&self) -> StorageStatistics {
        self.statistics
    }
}
