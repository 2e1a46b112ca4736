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
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

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
    descriptor: Option<Rc<OwnedFd>>,
}

impl Waking {
    fn new(told: &Rc<Told>, descriptor: Option<Rc<OwnedFd>>) -> Self {
        let inner = MemoryStorage::new(memory(64 << 10), 512, 4).unwrap();
        Self { inner, told: Rc::clone(told), descriptor }
    }
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

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_deref().map(AsFd::as_fd)
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

fn write(namespace: u32) -> Command {
    Command::Write(BlockRange { namespace, lba: 0, blocks: 1, data: keyed(512) })
}

/// A target whose storage has a write that it does not complete. `wakes`: it was told how its core is woken.
fn with_a_write(wakes: bool) -> (Raw<Waking>, Rc<Told>) {
    let told = Rc::<Told>::default();
    let mut raw = Raw::with(target_options(), vec![Waking::new(&told, None)]);
    if wakes {
        raw.target.wakes(Waker::noop()).unwrap();
    }
    assert_eq!(told.waker.get(), wakes);
    let (_, io) = raw.io_queue();
    raw.send(io, write(1).encode(9).unwrap(), Some((Access::RemoteRead, 512)));
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

#[test]
fn storages_with_one_descriptor_wake_their_core_by_it() {
    let told = Rc::<Told>::default();
    let event = Rc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let storages = (0..2).map(|_| Waking::new(&told, Some(Rc::clone(&event)))).collect();
    let mut raw = Raw::with(target_options(), storages);
    raw.target.wakes(Waker::noop()).unwrap();
    told.arms.set(true);
    let (_, io) = raw.io_queue();
    for (namespace, id) in [(1, 9), (2, 10)] {
        raw.send(io, write(namespace).encode(id).unwrap(), Some((Access::RemoteRead, 512)));
    }
    raw.until("both storages have one", |raw| {
        raw.target.namespaces().all(|namespace| namespace.statistics().submitted == 1)
    });
    raw.steps(100);
    assert!(raw.target.arm());
    let is_woken = |raw: &Raw<Waking>| {
        let mut descriptors: Vec<_> =
            raw.target.descriptors().map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
        poll(&mut descriptors, Some(&Timespec::default())).unwrap() > 0
    };
    assert!(!is_woken(&raw));
    rustix::io::write(&*event, &1_u64.to_ne_bytes()).unwrap();
    assert!(is_woken(&raw));
}
