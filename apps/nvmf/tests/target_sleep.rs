//! A target whose core sleeps while its storages work: only over those that wake it.

use core::{cell::Cell, task::Waker, time::Duration};
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::{
    storage::{
        AttachError, CompletionBatch, Cookie, Geometry, MemoryStorage, Operation, QueueFull, Storage, StorageStatistics,
    },
    wire::{BlockRange, Command},
};
use frwr_support::nvmf_harness::{
    memory,
    raw::{Raw, keyed},
    target_options,
};
use std::rc::Rc;

/// What the test says, and what a storage was told.
#[derive(Default)]
struct Told {
    /// It completes what it has.
    go: Cell<bool>,
    /// What it answers who wants to sleep.
    arms: Cell<bool>,
    /// A poll has found something that another one ends.
    leaves: Cell<bool>,
    waker: Cell<bool>,
}

struct Waking {
    inner: MemoryStorage,
    told: Rc<Told>,
}

impl Storage for Waking {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.inner.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        self.inner.submit(cookie, operation)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        if self.told.go.get() { self.inner.poll(now, out) } else { 0 }
    }

    fn wakes(&mut self, _: &Waker) {
        self.told.waker.set(true);
    }

    fn arm(&mut self) -> bool {
        self.told.arms.get()
    }

    fn rests(&self) -> bool {
        !self.told.leaves.get()
    }

    fn statistics(&self) -> StorageStatistics {
        self.inner.statistics()
    }
}

fn write() -> Command {
    Command::Write(BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) })
}

/// A target whose storage has a write that it does not complete. `wakes`: it was told how its core is woken.
fn with_a_write(wakes: bool) -> (Raw<Waking>, Rc<Told>) {
    let told = Rc::<Told>::default();
    let inner = MemoryStorage::new(memory(64 << 10), 512, 4).unwrap();
    let mut raw = Raw::with(target_options(), vec![Waking { inner, told: Rc::clone(&told) }]);
    if wakes {
        raw.target.wakes(Waker::noop()).unwrap();
    }
    assert_eq!(told.waker.get(), wakes);
    let (_, io) = raw.io_queue();
    raw.send(io, write().encode(9).unwrap(), Some((Access::RemoteRead, 512)));
    raw.until("the storage has it", |raw| {
        raw.target.namespaces().all(|namespace| namespace.statistics().submitted == 1)
    });
    raw.steps(100);
    (raw, told)
}

#[test]
fn a_target_sleeps_while_a_storage_works_that_wakes_it() {
    let (mut raw, told) = with_a_write(true);
    told.arms.set(true);
    assert!(raw.target.sleeps_until().is_some() && raw.target.arm());
    // The poll behind that may leave something that wakes nobody.
    told.leaves.set(true);
    assert!(raw.target.sleeps_until().is_none());
    told.leaves.set(false);
    // It says that it has to be polled, for now or always.
    told.arms.set(false);
    assert!(raw.target.sleeps_until().is_some() && !raw.target.arm());
    told.go.set(true);
    raw.until("answered", |raw| raw.responses.len() == 1);
    raw.steps(100);
    assert!(raw.target.arm(), "whatever the storage says: it has nothing");
    assert!(raw.target.descriptors().count() > 0);
}

#[test]
fn a_target_that_was_not_told_how_to_wake_polls_on_while_a_storage_works() {
    let (mut raw, told) = with_a_write(false);
    told.arms.set(true);
    assert!(raw.target.sleeps_until().is_none());
    told.go.set(true);
    raw.until("answered", |raw| raw.responses.len() == 1);
    raw.steps(100);
    assert!(raw.target.sleeps_until().is_some());
}
