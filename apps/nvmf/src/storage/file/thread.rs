//! A medium by a worker thread, for where io_uring is refused.

use super::super::{
    AttachError, Changing, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, ResizeError,
    Storage, StorageError, StorageStatistics, flushes::Flushing,
};
use super::{
    layout::Layout,
    lock::LockedFile,
    next_order::next_order,
    sys,
    task::{Progress, Task, Ways},
};
use core::{task::Waker, time::Duration};
use frwr_mempool::{
    Bell, DeviceMemory,
    lane::{self, Receiver, Sender},
};
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

/// One core's way to a medium: operations go over a lane to a thread that carries them out one after the other and sleeps
/// while there are none.
///
/// The thread starts with the storage, and runs where the thread may run that makes it: not one that is pinned to the core
/// that will poll, or the two share it. Dropping the storage waits for what was flushed.
pub struct ThreadStorage {
    file: Arc<LockedFile>,
    layout: Layout,
    /// Its blocks, which the worker finds here.
    blocks: Arc<AtomicU64>,
    depth: usize,
    worker: Worker,
    /// The memory of the buffers, which the worker finds here.
    buffers: Arc<OnceLock<DeviceMemory>>,
    /// Submitted, and not flushed.
    queue: VecDeque<(Cookie, Operation)>,
    /// Flushed, and not completed, in order: the worker carries them out one after the other.
    running: VecDeque<Operation>,
    /// Submitted, and not completed.
    held: usize,
    restarts: Arc<AtomicU64>,
    /// Rung by the worker behind what it has done.
    bell: Arc<Bell>,
    statistics: StorageStatistics,
}

/// The near ends.
struct Worker {
    /// `None` once it is told to end.
    orders: Option<Sender<(Cookie, Operation)>>,
    results: Receiver<Completion>,
    thread: Option<JoinHandle<()>>,
}

impl core::fmt::Debug for ThreadStorage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ThreadStorage").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl ThreadStorage {
    /// `depth`, from 1 to [`super::MAX_STORAGE_DEPTH`], operations at a time.
    ///
    /// # Errors
    /// Why there is no thread.
    pub(super) fn new(file: Arc<LockedFile>, layout: Layout, depth: usize) -> io::Result<Self> {
        let (buffers, restarts, bell) = (Arc::default(), Arc::default(), Arc::<Bell>::default());
        let blocks = Arc::new(AtomicU64::new(layout.geometry.blocks()));
        let (orders, orders_out) = lane::bounded(depth);
        let (results_in, results) = lane::bounded(depth);
        let far = FarEnd {
            file: Arc::clone(&file),
            layout,
            blocks: Arc::clone(&blocks),
            ways: Ways::default(),
            buffers: Arc::clone(&buffers),
            orders: orders_out,
            results: results_in,
            restarts: Arc::clone(&restarts),
            bell: Arc::clone(&bell),
        };
        let thread = thread::Builder::new().name("frwr-storage".to_owned()).spawn(move || far.run())?;
        Ok(Self {
            file,
            layout,
            blocks,
            depth,
            worker: Worker { orders: Some(orders), results, thread: Some(thread) },
            buffers,
            queue: VecDeque::with_capacity(depth),
            running: VecDeque::with_capacity(depth),
            held: 0,
            restarts,
            bell,
            statistics: StorageStatistics::default(),
        })
    }
}

impl Changing for ThreadStorage {
    fn is_changing(&self, start: u64, end: u64) -> bool {
        let queued = self.queue.iter().map(|(_, operation)| operation);
        queued.chain(&self.running).any(|operation| operation.changes_any(start, end))
    }
}

impl Storage for ThreadStorage {
    fn geometry(&self) -> Geometry {
        self.layout.geometry
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        self.layout = self.layout.resized(blocks, self.file.measured())?;
        // The lane brings it to the worker with the next order.
        self.blocks.store(blocks, Relaxed);
        Ok(())
    }

    fn features(&self) -> Features {
        self.layout.features()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.layout.check_buffers(&buffers)?;
        self.buffers.set(buffers).map_err(|_| AttachError::Twice)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.held >= self.depth {
            return Err(QueueFull);
        }
        self.held += 1;
        self.statistics.submitted += 1;
        self.queue.push_back((cookie, operation));
        Ok(())
    }

    fn cancel(&mut self, cookie: Cookie) -> bool {
        let found = self.queue.iter().position(|(queued, _)| *queued == cookie);
        let cancelled = found.and_then(|at| self.queue.remove(at)).is_some();
        self.held -= usize::from(cancelled);
        self.statistics.cancelled += u64::from(cancelled);
        cancelled
    }

    fn flush(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let Worker { orders: Some(orders), thread: Some(thread), .. } = &mut self.worker else { return };
        self.statistics.flushes += 1;
        self.running.extend(self.queue.iter().map(|(_, operation)| *operation));
        // The lane holds as many as there may be.
        orders.push_batch(&mut self.queue.drain(..));
        // A system call only where it sleeps.
        self.statistics.system_calls += 1;
        thread.thread().unpark();
    }

    fn poll(&mut self, _now: Duration, out: &mut CompletionBatch) -> usize {
        let (statistics, held, running) = (&mut self.statistics, &mut self.held, &mut self.running);
        self.worker.results.pop_batch(out.remaining_capacity(), |completion| {
            *held -= 1;
            running.pop_front();
            statistics.completed += 1;
            statistics.failed += u64::from(completion.result.is_err());
            out.push(completion);
        })
    }

    fn wakes(&mut self, waker: &Waker) {
        self.bell.wakes(waker);
    }

    fn arm(&mut self) -> bool {
        self.bell.arm();
        self.bell.has_waker() && self.queue.is_empty()
    }

    fn statistics(&self) -> StorageStatistics {
        let fault = self.file.health().fault(self.layout.bytes());
        StorageStatistics { restarts: self.restarts.load(Relaxed), fault, ..self.statistics }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A worker that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
struct FarEnd {
    file: Arc<LockedFile>,
    layout: Layout,
    blocks: Arc<AtomicU64>,
    ways: Ways,
    buffers: Arc<OnceLock<DeviceMemory>>,
    orders: Receiver<(Cookie, Operation)>,
    results: Sender<Completion>,
    restarts: Arc<AtomicU64>,
    bell: Arc<Bell>,
}

impl FarEnd {
    fn run(mut self) {
        while let Some((cookie, operation)) = next_order(&mut self.orders, thread::park) {
            let result = self.execute(cookie, operation);
            // The lane holds as many as there may be.
            let _ = self.results.push(Completion { cookie, result });
            self.bell.ring();
        }
    }

    /// The namespace may have another size.
    fn follow(&mut self) {
        let (blocks, before) = (self.blocks.load(Relaxed), self.layout.geometry);
        if blocks != before.blocks()
            && let Ok(geometry) = Geometry::new(blocks, before.block_bytes())
        {
            self.layout.geometry = geometry;
        }
    }

    fn execute(&mut self, cookie: Cookie, operation: Operation) -> Result<(), StorageError> {
        self.follow();
        let Self { file, layout, .. } = self;
        layout.check(operation, self.buffers.get())?;
        if file.health().is_cut() {
            return Err(StorageError::Shrunk);
        }
        let changes = operation.changes() && layout.can_grow();
        if changes {
            file.health().begin_changes();
        }
        let flushes = operation == Operation::Flush && layout.forgets_failed_flushes();
        let flushing = flushes.then(|| file.health().begin_flush());
        let result = self.carry_out(Task::new(cookie, operation));
        let result = flushing.map_or(result, |flushing| self.flushed(flushing, result));
        // A write behind a cut makes a file longer, and what is between them reads as zeros then.
        let Self { file, layout, .. } = self;
        let is_changing = layout.can_grow() && file.health().is_changing();
        let too_short = if is_changing { file.is_too_short(layout) } else { file.health().is_cut() };
        if changes {
            file.health().end_changes();
        }
        if too_short { Err(StorageError::Shrunk) } else { result }
    }

    /// The kernel has answered a flush. What it says is believed when all that ran beside it are answered, or nobody wants to know
    /// any more.
    fn flushed(&self, flushing: Flushing, result: Result<(), StorageError>) -> Result<(), StorageError> {
        let health = self.file.health();
        let answered = health.end_flush(flushing);
        while result.is_ok() && !health.is_believed(answered) && !self.orders.is_closed() {
            thread::yield_now();
        }
        result.and_then(|()| health.flushed(Ok(())))
    }

    fn carry_out(&mut self, mut task: Task) -> Result<(), StorageError> {
        while let Some(step) = task.next(&self.layout, self.ways) {
            if step.hides_a_cut(&self.layout) && self.file.is_too_short(&self.layout) {
                return Err(StorageError::Shrunk);
            }
            let result = sys::perform(&self.file, self.buffers.get(), step);
            match task.ended(result, &self.layout, &mut self.ways, &self.file) {
                Progress::Over(result) => return result,
                Progress::Again => self.restarts.fetch_add(1, Relaxed),
            };
        }
        Ok(())
    }
}
