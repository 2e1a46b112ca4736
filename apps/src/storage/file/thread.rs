//! A medium by a worker thread, for where io_uring is refused.

use super::super::{
    AttachError, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, Storage,
    StorageStatistics,
};
use super::{
    lock::LockedFile,
    sys,
    task::{Layout, Progress, Task, Ways},
};
use core::time::Duration;
use frwr_mempool::{
    DeviceMemory,
    lane::{self, Receiver, Sender},
};
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

/// One core's way to a medium: operations go over a lane to a thread that carries them out one after the other and sleeps
/// while there are none.
///
/// The thread starts when the buffers are attached, and runs where the attaching thread may run; a core that polls has
/// better been pinned afterwards, or the two share it. Dropping the storage waits for what was flushed.
pub struct ThreadStorage {
    file: Arc<LockedFile>,
    layout: Layout,
    depth: usize,
    worker: Option<Worker>,
    /// Submitted, and not flushed.
    queue: VecDeque<(Cookie, Operation)>,
    /// Submitted, and not completed.
    held: usize,
    restarts: Arc<AtomicU64>,
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
    pub(super) fn new(file: Arc<LockedFile>, layout: Layout, depth: usize) -> Self {
        Self {
            file,
            layout,
            depth,
            worker: None,
            queue: VecDeque::with_capacity(depth),
            held: 0,
            restarts: Arc::default(),
            statistics: StorageStatistics::default(),
        }
    }

    fn start(&self, buffers: DeviceMemory) -> io::Result<Worker> {
        let (orders, orders_out) = lane::bounded(self.depth);
        let (results_in, results) = lane::bounded(self.depth);
        let far = FarEnd {
            file: Arc::clone(&self.file),
            layout: self.layout,
            ways: Ways::default(),
            buffers,
            orders: orders_out,
            results: results_in,
            restarts: Arc::clone(&self.restarts),
        };
        let thread = thread::Builder::new().name("frwr-storage".to_owned()).spawn(move || far.run())?;
        Ok(Worker { orders: Some(orders), results, thread: Some(thread) })
    }
}

impl Storage for ThreadStorage {
    fn geometry(&self) -> Geometry {
        self.layout.geometry
    }

    fn features(&self) -> Features {
        self.layout.features()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.layout.check_buffers(&buffers)?;
        if self.worker.is_some() {
            return Err(AttachError::Twice);
        }
        self.worker = Some(self.start(buffers).map_err(|_| AttachError::NoThread)?);
        Ok(())
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.held >= self.depth || self.worker.is_none() {
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
        let Some(Worker { orders: Some(orders), thread: Some(thread), .. }) = &mut self.worker else { return };
        self.statistics.flushes += 1;
        // The lane holds as many as there may be.
        orders.push_batch(&mut self.queue.drain(..));
        // A system call only where it sleeps.
        self.statistics.system_calls += 1;
        thread.thread().unpark();
    }

    fn poll(&mut self, _now: Duration, out: &mut CompletionBatch) -> usize {
        let Some(worker) = &mut self.worker else { return 0 };
        let (statistics, held) = (&mut self.statistics, &mut self.held);
        worker.results.pop_batch(out.remaining_capacity(), |completion| {
            *held -= 1;
            statistics.completed += 1;
            statistics.failed += u64::from(completion.result.is_err());
            out.push(completion);
        })
    }

    fn statistics(&self) -> StorageStatistics {
        StorageStatistics { restarts: self.restarts.load(Relaxed), ..self.statistics }
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
    ways: Ways,
    buffers: DeviceMemory,
    orders: Receiver<(Cookie, Operation)>,
    results: Sender<Completion>,
    restarts: Arc<AtomicU64>,
}

impl FarEnd {
    fn run(mut self) {
        loop {
            // Asked first: what is in a closed lane is all there will be.
            let closed = self.orders.is_closed();
            match self.orders.pop() {
                Some((cookie, operation)) => {
                    let result = self.execute(cookie, operation);
                    // The lane holds as many as there may be.
                    let _ = self.results.push(Completion { cookie, result });
                }
                None if closed => return,
                // Whoever filled the lane since has left a token, and this returns at once.
                None => thread::park(),
            }
        }
    }

    fn execute(&mut self, cookie: Cookie, operation: Operation) -> Result<(), super::super::StorageError> {
        self.layout.check(operation, Some(&self.buffers))?;
        let mut task = Task::new(cookie, operation);
        while let Some(step) = task.next(&self.layout, self.ways) {
            let result = sys::perform(&self.file, &self.buffers, step);
            match task.ended(result, &self.layout, &mut self.ways) {
                Progress::Over(result) => return result,
                Progress::Again => self.restarts.fetch_add(1, Relaxed),
            };
        }
        Ok(())
    }
}
