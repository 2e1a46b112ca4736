//! A medium by io_uring.

use super::super::{
    AttachError, Changing, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, ResizeError,
    Storage, StorageError, StorageStatistics, flushes::Answered,
};
use super::{
    layout::Layout,
    lock::LockedFile,
    sys::Ring,
    task::{Progress, Step, Task, Ways},
};
use core::time::Duration;
use frwr_mempool::DeviceMemory;
use std::{collections::VecDeque, io, os::fd::BorrowedFd, sync::Arc};

/// How long the kernel may refuse every call for the time being, until that is taken to be for good.
const LONGEST_REFUSAL: Duration = Duration::from_secs(10);

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
    /// Tasks that the kernel has not taken, in order; entries of the ring were made for the first `pushed`.
    queue: VecDeque<u32>,
    pushed: usize,
    /// Since when the kernel refuses every call for the time being.
    refused_since: Option<Duration>,
    now: Duration,
    /// Ended without the kernel.
    ended: VecDeque<Completion>,
    /// Of these, those that were flushed.
    started: usize,
    /// Flushes that the kernel has done, and that are not to be believed yet, in order.
    doubted: VecDeque<(u32, Answered)>,
    /// Why nothing is taken any more.
    refuses: Option<StorageError>,
    /// Steps with the kernel that change blocks.
    changing: usize,
    /// The medium's other cores know of them ([`Health::begin_changes`](super::health::Health::begin_changes)).
    told_of_changes: bool,
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
            queue: VecDeque::with_capacity(depth),
            pushed: 0,
            refused_since: None,
            now: Duration::ZERO,
            ended: VecDeque::with_capacity(depth),
            started: 0,
            doubted: VecDeque::with_capacity(depth),
            refuses: None,
            changing: 0,
            told_of_changes: false,
            statistics: StorageStatistics::default(),
        })
    }

    /// The kernel knows the buffers, so that no transfer has to look up and hold their pages. False before they are
    /// attached, and where RLIMIT_MEMLOCK has no room for them.
    #[must_use]
    pub fn has_registered_buffers(&self) -> bool {
        self.ring.is_registered()
    }

    /// Makes entries of the ring for all tasks that have none.
    fn push_queued(&mut self) {
        if self.queue.len() > self.pushed && self.ring.file().health().is_cut() {
            return self.refuse(StorageError::Shrunk);
        }
        while let Some(&index) = self.queue.get(self.pushed) {
            let Some(Some(task)) = self.tasks.get_mut(index as usize) else { return };
            let changes = task.changes();
            let result = match task.next(&self.layout, self.ways) {
                Some(step) if step.hides_a_cut(&self.layout) && self.ring.file().is_too_short(&self.layout) => {
                    return self.refuse(StorageError::Shrunk);
                }
                Some(step) if self.ring.push(index.into(), step) => {
                    self.pushed += 1;
                    self.changing += usize::from(changes);
                    if step == Step::Sync && self.layout.forgets_failed_flushes() {
                        task.flushing = Some(self.ring.file().health().begin_flush());
                    }
                    continue;
                }
                // There are as many entries as tasks, and buffers were checked.
                Some(_) => Err(StorageError::Medium),
                None => Ok(()),
            };
            self.queue.remove(self.pushed);
            self.end(index, result);
        }
    }

    /// Tells the medium's other cores that it changes, or does so no more. A ring that is dropped over changes lets them believe that it
    /// does: they run on, and nobody looks behind them.
    fn tell_of_changes(&mut self) {
        let changes = self.changing > 0;
        if changes != self.told_of_changes && self.layout.can_grow() {
            self.told_of_changes = changes;
            let health = self.ring.file().health();
            if changes { health.begin_changes() } else { health.end_changes() }
        }
    }

    /// After steps have ended: whether what they came to is to be believed. A write behind a cut makes a file longer, and what is
    /// between them reads as zeros then, as if all were well; so while some core writes nothing is believed without a look at the length.
    fn is_believed(&mut self) -> bool {
        let file = self.ring.file();
        let is_changing = self.layout.can_grow() && file.health().is_changing();
        let too_short = if is_changing { file.is_too_short(&self.layout) } else { file.health().is_cut() };
        self.tell_of_changes();
        !too_short
    }

    /// One system call.
    fn enter(&mut self) {
        self.statistics.system_calls += 1;
        match self.ring.enter() {
            Ok(taken) => {
                let taken = taken.min(self.pushed);
                self.queue.drain(..taken);
                self.pushed -= taken;
                self.refused_since = None;
            }
            Err(errno) => {
                let since = *self.refused_since.get_or_insert(self.now);
                // What is true for the time being only (io_uring_enter(2)).
                let passes = matches!(errno, libc::EAGAIN | libc::EBUSY | libc::EINTR);
                if !passes || self.now.saturating_sub(since) >= LONGEST_REFUSAL {
                    self.break_off(errno);
                }
            }
        }
    }

    /// A task needs one more step.
    fn again(&mut self, index: u32) {
        if let Some(error) = self.refuses {
            self.end(index, Err(error));
            // Nothing flushes it.
            self.started = self.ended.len();
        } else {
            self.queue.push_back(index);
        }
    }

    /// The kernel takes nothing any more.
    #[cold]
    fn break_off(&mut self, errno: i32) {
        self.statistics.broken = errno;
        // What has entries in the ring was not taken either.
        let tasks = &self.tasks;
        let is_change = |index: &&u32| tasks.get(**index as usize).and_then(Option::as_ref).is_some_and(Task::changes);
        self.changing -= self.queue.iter().take(self.pushed).filter(is_change).count();
        for index in self.queue.iter().take(self.pushed) {
            let task = self.tasks.get_mut(*index as usize).and_then(Option::as_mut);
            if let Some(flushing) = task.and_then(|task| task.flushing.take()) {
                self.ring.file().health().end_flush(flushing);
            }
        }
        self.pushed = 0;
        self.refuse(StorageError::Broken);
    }

    /// Nothing is given to the kernel from now on but what has an entry in the ring. What runs ends as ever.
    #[cold]
    fn refuse(&mut self, error: StorageError) {
        self.refuses.get_or_insert(error);
        while let Some(index) = self.queue.remove(self.pushed) {
            self.end(index, Err(error));
        }
    }

    fn end(&mut self, index: u32, result: Result<(), StorageError>) {
        let Some(task) = self.tasks.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        self.ended.push_back(Completion { cookie: task.cookie, result });
    }

    /// Completions from the kernel that are in `out` from `first` on: the medium is not whole, and so is none of them.
    #[cold]
    fn disbelieve(&mut self, out: &mut CompletionBatch, first: usize) {
        for completion in out.iter_mut().skip(first).filter(|completion| completion.result.is_ok()) {
            completion.result = Err(StorageError::Shrunk);
            self.statistics.failed += 1;
        }
        self.refuse(StorageError::Shrunk);
        // Nothing flushes what has ended by that.
        self.started = self.ended.len();
    }

    /// Flushes that every other one beside them has an answer for.
    #[cold]
    fn finish_flushes(&mut self, out: &mut CompletionBatch) {
        while let Some(&(index, answered)) = self.doubted.front()
            && !out.is_full()
            && self.ring.file().health().is_believed(answered)
        {
            self.doubted.pop_front();
            let health = self.ring.file().health();
            let result = if health.is_cut() { Err(StorageError::Shrunk) } else { health.flushed(Ok(())) };
            self.finish(out, index, result);
        }
    }

    fn finish(&mut self, out: &mut CompletionBatch, index: u32, result: Result<(), StorageError>) {
        let Some(task) = self.tasks.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        self.complete(out, Completion { cookie: task.cookie, result });
    }

    fn complete(&mut self, out: &mut CompletionBatch, completion: Completion) {
        self.statistics.completed += 1;
        self.statistics.failed += u64::from(completion.result.is_err());
        out.push(completion);
    }
}

impl Drop for RingStorage {
    /// Nobody waits for its flushes.
    fn drop(&mut self) {
        for flushing in self.tasks.iter_mut().flatten().filter_map(|task| task.flushing.take()) {
            self.ring.file().health().end_flush(flushing);
        }
    }
}

impl Changing for RingStorage {
    fn is_changing(&self, start: u64, end: u64) -> bool {
        self.tasks.iter().flatten().any(|task| task.changes_any(start, end))
    }
}

impl Storage for RingStorage {
    fn geometry(&self) -> Geometry {
        self.layout.geometry
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        self.layout = self.layout.resized(blocks, self.ring.file().measured())?;
        Ok(())
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
            Ok(()) => match self.refuses {
                None => self.queue.push_back(index),
                Some(error) => self.end(index, Err(error)),
            },
            Err(error) => self.end(index, Err(error)),
        }
        Ok(())
    }

    /// What runs is not cancelled (IORING_OP_ASYNC_CANCEL): a disk gives back nothing that it was given, and a transfer that
    /// ended half way would be neither executed nor aborted.
    fn cancel(&mut self, cookie: Cookie) -> bool {
        let waits = |index: &u32| {
            let task = self.tasks.get(*index as usize).and_then(Option::as_ref);
            task.is_some_and(|task| task.cookie == cookie && !task.has_begun())
        };
        let Some(at) = self.queue.iter().skip(self.pushed).position(waits) else { return false };
        let Some(index) = self.queue.remove(self.pushed + at) else { return false };
        if let Some(place) = self.tasks.get_mut(index as usize) {
            *place = None;
        }
        self.free.push(index);
        self.statistics.cancelled += 1;
        true
    }

    fn flush(&mut self) {
        self.push_queued();
        let queued = self.pushed > 0;
        if queued {
            self.tell_of_changes();
            self.enter();
        }
        self.statistics.flushes += u64::from(queued || self.ended.len() > self.started);
        self.started = self.ended.len();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        self.now = now;
        let before = out.len();
        while self.started > 0 && !out.is_full() {
            let Some(completion) = self.ended.pop_front() else { break };
            self.started -= 1;
            self.complete(out, completion);
        }
        let mut reaped = false;
        let first = out.len();
        while !out.is_full() {
            let Some(ended) = self.ring.reap() else { break };
            reaped = true;
            // The tag is the index that `go_on` gave.
            let index = ended.tag as u32;
            let Some(Some(task)) = self.tasks.get_mut(index as usize) else { continue };
            self.changing -= usize::from(task.changes());
            let progress = task.ended(ended.result, &self.layout, &mut self.ways, self.ring.file());
            // What it came to is known by now to those that run beside it.
            let answered = task.flushing.take().map(|flushing| self.ring.file().health().end_flush(flushing));
            match progress {
                Progress::Again => {
                    self.statistics.restarts += 1;
                    self.again(index);
                }
                Progress::Over(result) => {
                    if let (Some(answered), Ok(())) = (answered, result) {
                        self.doubted.push_back((index, answered));
                        continue;
                    }
                    self.finish(out, index, result);
                }
            }
        }
        if !self.doubted.is_empty() {
            self.finish_flushes(out);
        }
        if reaped && !self.is_believed() {
            self.disbelieve(out, first);
        }
        out.len() - before
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.descriptor())
    }

    fn arm(&mut self) -> bool {
        self.rests()
    }

    /// What the kernel refused to take, or what waits for other cores, nobody tells of.
    fn rests(&self) -> bool {
        self.queue.is_empty() && self.ended.is_empty() && self.doubted.is_empty()
    }

    fn statistics(&self) -> StorageStatistics {
        let fault = self.ring.file().health().fault(self.layout.bytes());
        StorageStatistics { fault, ..self.statistics }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, FileMedium, FileOptions};
    use super::*;
    use crate::storage::AnyStorage;
    use frwr_mempool::{PagePolicy, PageSize, Region, RegionOptions};

    const BLOCK: usize = 4096;

    /// A ring over a file of eight blocks that has no name any more.
    fn ring() -> Option<RingStorage> {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&path, [0; 8 * BLOCK]).unwrap();
        let medium = FileMedium::open(&FileOptions::new(&path)).unwrap();
        let opened = medium.storage(Backing::Auto, 4);
        path.close().unwrap();
        let AnyStorage::Ring(ring) = opened.unwrap().0 else { return None };
        let mut ring = ring.into_inner();
        let mut region =
            Region::map(&RegionOptions::new(8 * BLOCK).pages(PagePolicy::Exactly(PageSize::Plain))).unwrap();
        ring.attach(region.carve(8 * BLOCK, BLOCK).unwrap().into_device_memory()).unwrap();
        Some(ring)
    }

    fn write(ring: &mut RingStorage, cookie: u64) {
        let operation = Operation::Write { lba: cookie, blocks: 1, buffer: 0 };
        ring.submit(Cookie(cookie), operation).unwrap();
    }

    /// Polls and flushes until as many operations have ended.
    fn ended(ring: &mut RingStorage, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut out = CompletionBatch::new();
            ring.poll(ring.now, &mut out);
            all.extend(out);
            ring.flush();
            std::thread::yield_now();
        }
        all
    }

    #[test]
    fn a_kernel_that_refuses_for_good_ends_everything_that_it_has_not_taken() {
        let Some(mut ring) = ring() else { return };
        write(&mut ring, 0);
        ring.flush();
        write(&mut ring, 1);
        ring.ring.refuse(Some(libc::EBADF));
        ring.flush();
        write(&mut ring, 2);
        let mut all = ended(&mut ring, 3);
        all.sort_by_key(|completion| completion.cookie.0);
        assert_eq!(all[0].result, Ok(()), "it was taken");
        assert!(all[1..].iter().all(|completion| completion.result == Err(StorageError::Broken)), "{all:?}");
        // It does not come back: entries of ended operations are still in the ring.
        ring.ring.refuse(None);
        write(&mut ring, 3);
        assert_eq!(ended(&mut ring, 1)[0].result, Err(StorageError::Broken));
        let statistics = ring.statistics();
        assert_eq!((statistics.broken, statistics.submitted, statistics.completed), (libc::EBADF, 4, 4));
    }

    #[test]
    fn a_refusal_that_passes_is_waited_for_and_one_that_lasts_is_not() {
        let Some(mut ring) = ring() else { return };
        write(&mut ring, 0);
        for errno in [libc::EAGAIN, libc::EBUSY, libc::EINTR] {
            ring.ring.refuse(Some(errno));
            ring.flush();
        }
        ring.now += LONGEST_REFUSAL / 2;
        ring.ring.refuse(None);
        assert_eq!(ended(&mut ring, 1)[0].result, Ok(()));
        write(&mut ring, 1);
        ring.ring.refuse(Some(libc::EAGAIN));
        ring.flush();
        assert_eq!(ring.statistics().broken, 0);
        ring.now += LONGEST_REFUSAL;
        assert_eq!(ended(&mut ring, 1)[0].result, Err(StorageError::Broken));
    }
}
