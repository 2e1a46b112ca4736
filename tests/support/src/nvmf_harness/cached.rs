//! A namespace with a volatile write cache, and what has become of it.

use super::memory;
use core::time::Duration;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::storage::{
    AttachError, Completion, CompletionBatch, Cookie, Features, Geometry, MemoryStorage, Operation, QueueFull, Storage,
    StorageError,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What the test sees and holds; several cores may have one.
#[derive(Default)]
pub struct Cache {
    /// Blocks were written that no flush has brought to the medium since.
    pub dirty: Cell<bool>,
    /// Flushes take until this is false.
    pub held: Cell<bool>,
    /// Everything else takes until this is false.
    pub others_held: Cell<bool>,
    /// Flushes fail.
    pub failing: Cell<bool>,
    /// They do because nothing answers any more, not for what the medium cannot do.
    pub broken: Cell<bool>,
    /// What was asked for, in order.
    pub log: RefCell<Vec<Operation>>,
}

impl Cache {
    pub fn flushes(&self) -> usize {
        self.log.borrow().iter().filter(|operation| **operation == Operation::Flush).count()
    }
}

/// One core's way to it.
pub struct Cached {
    inner: MemoryStorage,
    cache: Rc<Cache>,
    flushes: Vec<Cookie>,
}

impl Cached {
    pub fn new(blocks: u64, block_bytes: u32) -> (Self, Rc<Cache>) {
        let cache = Rc::default();
        (Self::over(memory(blocks as usize * block_bytes as usize), block_bytes, &cache), cache)
    }

    pub fn over(medium: DeviceMemory, block_bytes: u32, cache: &Rc<Cache>) -> Self {
        let inner = MemoryStorage::new(medium, block_bytes, 64).unwrap();
        Self { inner, cache: Rc::clone(cache), flushes: Vec::new() }
    }

    /// The same, never changed by hosts.
    pub fn read_only(self) -> Self {
        Self { inner: self.inner.read_only(), ..self }
    }
}

impl Storage for Cached {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn features(&self) -> Features {
        self.inner.features().write_through(false)
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.inner.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if operation == Operation::Flush {
            self.flushes.push(cookie);
        } else {
            self.inner.submit(cookie, operation)?;
        }
        self.cache.dirty.set(self.cache.dirty.get() || operation.changes());
        self.cache.log.borrow_mut().push(operation);
        Ok(())
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        let mut count = if self.cache.others_held.get() { 0 } else { self.inner.poll(now, out) };
        while !self.cache.held.get()
            && !out.is_full()
            && let Some(cookie) = self.flushes.pop()
        {
            let failing = self.cache.failing.get();
            self.cache.dirty.set(self.cache.dirty.get() && failing);
            let error = if self.cache.broken.get() { StorageError::Broken } else { StorageError::Medium };
            out.push(Completion { cookie, result: if failing { Err(error) } else { Ok(()) } });
            count += 1;
        }
        count
    }
}
