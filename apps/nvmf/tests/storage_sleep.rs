//! Storages that wake a core that sleeps: whoever arms them, looks once more and waits then, waits for nothing that has ended.

use core::{task::Waker, time::Duration};
use frwr_nvmf::storage::{
    Comparing, CompletionBatch, Cookie, MemoryStorage, Operation, RangeLocks, Storage, StorageError,
};
use frwr_support::storage_harness::{BLOCK, Bench, Kind, memory};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    sync::Arc,
    task::Wake,
    thread::{self, Thread},
};

/// Unparks who made it.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn waker() -> Waker {
    Waker::from(Arc::new(Sleeper(thread::current())))
}

/// Sleeps until something has ended, as a reactor does: for ever, where nobody wakes it.
fn completions(storage: &mut impl Storage) -> usize {
    loop {
        let (armed, mut out) = (storage.arm(), CompletionBatch::new());
        if storage.poll(Duration::ZERO, &mut out) > 0 {
            return out.len();
        }
        assert!(armed, "it is asked to be polled");
        match storage.descriptor() {
            Some(descriptor) => drop(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None)),
            None => thread::park(),
        }
    }
}

#[test]
fn what_ends_wakes_who_sleeps() {
    for kind in [Kind::Ring, Kind::Thread] {
        let mut bench = Bench::new(kind, "wakes", 64, 64);
        bench.storage.wakes(&waker());
        for round in 0..200 {
            let operations = round % 8 + 1;
            for lba in 0..operations {
                let operation = Operation::Write { lba, blocks: 1, buffer: lba as usize * BLOCK };
                bench.storage.submit(Cookie(lba), operation).unwrap();
            }
            bench.storage.flush();
            let mut ended = 0;
            while ended < operations as usize {
                ended += completions(&mut bench.storage);
                // What the kernel did a part of.
                bench.storage.flush();
            }
        }
    }
}

#[test]
fn who_has_something_to_start_is_polled_on() {
    for kind in [Kind::Memory, Kind::Ring, Kind::Thread] {
        let mut bench = Bench::new(kind, "unstarted", 8, 8);
        bench.storage.wakes(&waker());
        assert!(bench.storage.arm(), "{kind:?} has nothing to do");
        bench.storage.submit(Cookie(0), Operation::Write { lba: 0, blocks: 1, buffer: 0 }).unwrap();
        assert!(!bench.storage.arm(), "{kind:?}");
        bench.completions(1);
        assert!(bench.storage.arm(), "{kind:?}");
    }
}

#[test]
fn a_worker_that_was_told_of_nobody_wakes_nobody() {
    let mut bench = Bench::new(Kind::Thread, "untold", 8, 8);
    assert!(!bench.storage.arm());
}

/// One way compares and writes; the other one sleeps, with nothing of its own, and is asked whether it agrees.
#[test]
fn a_lock_of_blocks_wakes_the_ways_that_have_to_agree() {
    let (medium, locks, there) = (memory(8 * BLOCK), Arc::new(RangeLocks::new()), memory(8 * BLOCK));
    let way = |medium| Comparing::new(MemoryStorage::new(medium, BLOCK as u32, 8).unwrap(), &locks).unwrap();
    let (mut awake, mut asleep) = (way(medium.clone()), way(medium.clone()));
    awake.attach(there).unwrap();
    asleep.attach(memory(BLOCK)).unwrap();
    asleep.wakes(&waker());
    assert!(asleep.arm() && asleep.rests());
    awake.submit(Cookie(1), Operation::CompareAndWrite { lba: 0, blocks: 1, buffer: 0 }).unwrap();
    let mut out = CompletionBatch::new();
    for _ in 0..20 {
        awake.flush();
        assert_eq!(awake.poll(Duration::ZERO, &mut out), 0, "the other one has not agreed");
    }
    // For ever, where nobody wakes it.
    thread::park();
    asleep.flush();
    while out.is_empty() {
        awake.flush();
        awake.poll(Duration::ZERO, &mut out);
    }
    assert_eq!((out[0].cookie, out[0].result), (Cookie(1), Ok(())));
    // One that is dropped holds nobody up.
    drop(asleep);
    medium.fill(0, BLOCK, 1).unwrap();
    awake.submit(Cookie(2), Operation::CompareAndWrite { lba: 0, blocks: 1, buffer: 0 }).unwrap();
    out.clear();
    while out.is_empty() {
        awake.flush();
        awake.poll(Duration::ZERO, &mut out);
    }
    assert_eq!(out[0].result, Err(StorageError::Miscompare));
}
