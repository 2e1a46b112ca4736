//! The storages of this crate behind one type: a target's namespaces have one.

use super::{
    AttachError, Comparing, CompletionBatch, Cookie, Features, Geometry, MemoryStorage, NbdStorage, Operation,
    QueueFull, RbdStorage, ResizeError, RingStorage, Storage, StorageStatistics, ThreadStorage,
};
use core::{task::Waker, time::Duration};
use frwr_mempool::DeviceMemory;
use std::os::fd::BorrowedFd;

/// Any of them. An operation costs one branch, and no indirect call.
#[derive(Debug)]
pub enum AnyStorage {
    /// In memory.
    Memory(Box<Comparing<MemoryStorage>>),
    /// A file or block device, by io_uring.
    Ring(Box<Comparing<RingStorage>>),
    /// A file or block device, by a worker thread.
    Thread(Box<Comparing<ThreadStorage>>),
    /// An export of an NBD server.
    Nbd(Box<NbdStorage>),
    /// An image of a Ceph cluster.
    Rbd(Box<RbdStorage>),
}

macro_rules! each {
    ($storage:expr, $inner:ident => $call:expr) => {
        match $storage {
            AnyStorage::Memory($inner) => $call,
            AnyStorage::Ring($inner) => $call,
            AnyStorage::Thread($inner) => $call,
            AnyStorage::Nbd($inner) => $call,
            AnyStorage::Rbd($inner) => $call,
        }
    };
}

impl AnyStorage {
    /// What it is, for people: `memory`, `io_uring`, `worker thread`, `NBD` or `RBD`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Ring(_) => "io_uring",
            Self::Thread(_) => "worker thread",
            Self::Nbd(_) => "NBD",
            Self::Rbd(_) => "RBD",
        }
    }
}

impl Storage for AnyStorage {
    fn geometry(&self) -> Geometry {
        each!(self, inner => inner.geometry())
    }

    fn resize(&mut self, blocks: u64) -> Result<(), ResizeError> {
        each!(self, inner => inner.resize(blocks))
    }

    fn features(&self) -> Features {
        each!(self, inner => inner.features())
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        each!(self, inner => inner.attach(buffers))
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        each!(self, inner => inner.submit(cookie, operation))
    }

    fn cancel(&mut self, cookie: Cookie) -> bool {
        each!(self, inner => inner.cancel(cookie))
    }

    fn flush(&mut self) {
        each!(self, inner => inner.flush());
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        each!(self, inner => inner.poll(now, out))
    }

    fn wakes(&mut self, waker: &Waker) {
        each!(self, inner => inner.wakes(waker));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        each!(self, inner => inner.descriptor())
    }

    fn arm(&mut self) -> bool {
        each!(self, inner => inner.arm())
    }

    fn rests(&self) -> bool {
        each!(self, inner => inner.rests())
    }

    fn statistics(&self) -> StorageStatistics {
        each!(self, inner => inner.statistics())
    }
}
