//! A namespace in memory that does what a test says, when it says it.

use super::memory;
use core::time::Duration;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::storage::{
    AttachError, Changing, CompletionBatch, Cookie, Features, Geometry, MemoryStorage, Operation, QueueFull,
    ResizeError, Storage, StorageStatistics,
};
use std::{cell::Cell, rc::Rc};

/// How far operations get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// It takes operations and does not start them.
    Unstarted,
    /// It starts operations and completes none.
    Running,
    /// It completes what it started, and starts nothing.
    Draining,
    /// It takes none.
    Full,
}

/// What the test holds.
pub struct Switch {
    pub gate: Cell<Gate>,
    /// Size of the storage, at most that of its memory; a namespace's changes by [`Storage::resize`].
    pub blocks: Cell<u64>,
    /// Operations that were taken and not begun.
    pub held: Cell<usize>,
}

pub struct Gated {
    inner: MemoryStorage,
    switch: Rc<Switch>,
}

impl Gated {
    pub fn new(blocks: u64, block_bytes: u32, depth: usize) -> (Self, Rc<Switch>) {
        let switch = Rc::new(Switch { gate: Cell::new(Gate::Open), blocks: Cell::new(blocks), held: Cell::new(0) });
        Self::with_switch(blocks, block_bytes, depth, &switch)
    }

    /// Another one that does the same, such as another core's way to a disk.
    pub fn with_switch(blocks: u64, block_bytes: u32, depth: usize, switch: &Rc<Switch>) -> (Self, Rc<Switch>) {
        let medium = memory(blocks as usize * block_bytes as usize);
        (Self::over(medium, block_bytes, depth, switch), Rc::clone(switch))
    }

    /// The same over memory that others have, too.
    pub fn over(medium: DeviceMemory, block_bytes: u32, depth: usize, switch: &Rc<Switch>) -> Self {
        let inner = MemoryStorage::new(medium, block_bytes, depth).unwrap();
        Self { inner, switch: Rc::clone(switch) }
    }
}

impl Changing for Gated {
    fn is_changing(&self, start: u64, end: u64) -> bool {
        self.inner.is_changing(start, end)
    }
}

impl Storage for Gated {
    fn geometry(&self) -> Geometry {
        Geometry::new(self.switch.blocks.get(), self.inner.geometry().block_bytes()).unwrap()
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        let limit = self.inner.geometry().blocks();
        if blocks > limit {
            return Err(ResizeError::Medium { blocks, limit });
        }
        self.switch.blocks.set(blocks);
        Ok(())
    }

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.inner.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.switch.gate.get() == Gate::Full {
            return Err(QueueFull);
        }
        self.inner.submit(cookie, operation)?;
        self.switch.held.set(self.switch.held.get() + 1);
        Ok(())
    }

    fn cancel(&mut self, cookie: Cookie) -> bool {
        self.inner.cancel(cookie)
    }

    fn flush(&mut self) {
        if !matches!(self.switch.gate.get(), Gate::Unstarted | Gate::Draining) {
            self.inner.flush();
            self.switch.held.set(0);
        }
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        if matches!(self.switch.gate.get(), Gate::Open | Gate::Draining) { self.inner.poll(now, out) } else { 0 }
    }

    fn statistics(&self) -> StorageStatistics {
        self.inner.statistics()
    }
}
