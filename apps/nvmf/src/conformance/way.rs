//! One way to a medium, and what is always true of one: completions are of operations that it has,
//! each once, and from `poll` alone.

use super::{
    clock::Clock,
    content,
    outcome::{Outcome, broken, ensure},
};
use crate::storage::{Completion, CompletionBatch, Cookie, Features, Geometry, Operation, Storage, StorageError};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use std::{collections::BTreeMap, rc::Rc};

/// Blocks of the attached memory.
pub(super) const BUFFER_BLOCKS: usize = 64;
/// Where that begins: what every medium can transfer to.
const ALIGNMENT: usize = 4096;
/// Polls without a completion until others may run.
pub(super) const TURN: u64 = 64;

/// A storage with buffers of its own.
pub(super) struct Way {
    storage: Box<dyn Storage>,
    buffers: DeviceMemory,
    geometry: Geometry,
    clock: Rc<Clock>,
    patience: u64,
    in_flight: BTreeMap<u64, Operation>,
    last_cookie: u64,
}

/// Memory of so many bytes.
pub(super) fn memory(bytes: usize) -> DeviceMemory {
    let options = RegionOptions::new(bytes).pages(PagePolicy::Exactly(PageSize::Plain));
    let mut region = Region::map(&options).expect("a machine has memory for a few buffers");
    region.carve(bytes, ALIGNMENT).expect("a region has the bytes that it was made with").into_device_memory()
}

impl Way {
    pub(super) fn new(mut storage: Box<dyn Storage>, clock: Rc<Clock>, patience: u64) -> Outcome<Self> {
        let geometry = storage.geometry();
        let buffers = memory(BUFFER_BLOCKS * geometry.block_bytes() as usize);
        let attached = storage.attach(buffers.clone());
        ensure!(attached.is_ok(), "buffers at a multiple of {ALIGNMENT} are refused: {attached:?}");
        Ok(Self { storage, buffers, geometry, clock, patience, in_flight: BTreeMap::new(), last_cookie: 0 })
    }

    pub(super) fn storage(&mut self) -> &mut dyn Storage {
        &mut *self.storage
    }

    pub(super) fn features(&self) -> Features {
        self.storage.features()
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.storage.geometry()
    }

    /// Of the namespace as it was made.
    pub(super) fn blocks(&self) -> u64 {
        self.geometry.blocks()
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.geometry.block_bytes() as usize
    }

    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffers.len()
    }

    /// Polls without any completion until something is said never to come.
    pub(super) fn patience(&self) -> u64 {
        self.patience
    }

    /// Operations that have not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Sets all bytes of the buffers.
    pub(super) fn fill_buffers(&self, byte: u8) {
        self.put(0, &vec![byte; self.buffers.len()]);
    }

    pub(super) fn put(&self, buffer: usize, bytes: &[u8]) {
        self.buffers.write(buffer, bytes).expect("a promise names bytes of its buffers");
    }

    pub(super) fn bytes(&self, buffer: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.buffers.read(buffer, &mut bytes).expect("a promise names bytes of its buffers");
        bytes
    }

    /// All bytes of the buffers.
    pub(super) fn all_buffers(&self) -> Vec<u8> {
        self.bytes(0, self.buffers.len())
    }

    /// What whoever drops the storage still has of its buffers.
    pub(super) fn into_buffers(self) -> DeviceMemory {
        self.buffers
    }

    /// Puts the blocks into the buffers, as `stamp` writes them.
    pub(super) fn put_blocks(&self, buffer: usize, lba: u64, blocks: u32, stamp: u64) {
        for block in 0..u64::from(blocks) {
            let bytes = content::of(stamp, lba + block, self.block_bytes());
            self.put(buffer + block as usize * bytes.len(), &bytes);
        }
    }

    /// Submits under a cookie of its own; `None` where the queue is full.
    pub(super) fn submit(&mut self, operation: Operation) -> Option<Cookie> {
        self.last_cookie += 1;
        let cookie = Cookie(self.last_cookie);
        self.submit_as(cookie, operation).then_some(cookie)
    }

    /// Whether there was room.
    pub(super) fn submit_as(&mut self, cookie: Cookie, operation: Operation) -> bool {
        let taken = self.storage.submit(cookie, operation).is_ok();
        if taken {
            self.in_flight.insert(cookie.0, operation);
        }
        taken
    }

    pub(super) fn flush(&mut self) {
        self.storage.flush();
    }

    /// Whether the storage says that it will not happen.
    pub(super) fn cancel(&mut self, cookie: Cookie) -> bool {
        let taken_back = self.storage.cancel(cookie);
        if taken_back {
            self.in_flight.remove(&cookie.0);
        }
        taken_back
    }

    /// Polls once.
    pub(super) fn poll(&mut self) -> Outcome<Vec<Completion>> {
        let mut batch = CompletionBatch::new();
        let said = self.storage.poll(self.clock.now(), &mut batch);
        ensure!(said == batch.len(), "poll says {said} and appends {}", batch.len());
        batch.iter().try_for_each(|completion| self.ended(*completion))?;
        Ok(batch.into_iter().collect())
    }

    /// A completion came from a poll.
    pub(super) fn ended(&mut self, completion: Completion) -> Outcome {
        let known = self.in_flight.remove(&completion.cookie.0).is_some();
        ensure!(known, "{completion:?} is of no operation that it has: it ended before, was taken back, or never was");
        Ok(())
    }

    /// Polls and flushes, as poll loops do, until everything has ended.
    pub(super) fn finish(&mut self) -> Outcome<Vec<Completion>> {
        Ok(finish_all(core::slice::from_mut(self))?.pop().unwrap_or_default())
    }

    /// Polls so many times, or until everything has ended.
    pub(super) fn poll_for(&mut self, polls: usize) -> Outcome<Vec<Completion>> {
        let mut all = Vec::new();
        for at in 0..polls {
            if self.in_flight.is_empty() {
                break;
            }
            all.extend(self.poll()?);
            self.storage.flush();
            if at % TURN as usize == 0 {
                std::thread::yield_now();
            }
        }
        Ok(all)
    }

    /// Carries one operation out, alone.
    pub(super) fn run(&mut self, operation: Operation) -> Outcome<Result<(), StorageError>> {
        ensure!(self.submit(operation).is_some(), "a storage that has nothing to do has no room for {operation:?}");
        let ended = self.finish()?;
        Ok(ended.last().ok_or_else(|| broken("an operation did not end"))?.result)
    }

    /// The same of one that has no reason to fail.
    pub(super) fn succeed(&mut self, operation: Operation) -> Outcome {
        let result = self.run(operation)?;
        ensure!(result.is_ok(), "{operation:?} failed: {result:?}");
        Ok(())
    }

    /// Writes blocks as `stamp`, at most as many as there are buffers for, by way of the beginning
    /// of the buffers.
    pub(super) fn write(&mut self, lba: u64, blocks: u32, stamp: u64) -> Outcome {
        self.put_blocks(0, lba, blocks, stamp);
        self.succeed(Operation::Write { lba, blocks, buffer: 0 })
    }

    /// Reads blocks by way of the end of the buffers.
    pub(super) fn read(&mut self, lba: u64, blocks: u32) -> Outcome<Vec<u8>> {
        let length = blocks as usize * self.block_bytes();
        let buffer = self.buffer_bytes() - length;
        self.put(buffer, &vec![0x55; length]);
        self.succeed(Operation::Read { lba, blocks, buffer })?;
        Ok(self.bytes(buffer, length))
    }

    /// The stamp that a block is of, one of these.
    pub(super) fn stamp_of(&mut self, lba: u64, candidates: &[u64]) -> Outcome<u64> {
        let bytes = self.read(lba, 1)?;
        let found = content::stamp(&bytes, lba, candidates);
        found.ok_or_else(|| broken(&format!("block {lba} is of none of the stamps {candidates:?} (0: zeros)")))
    }

    /// Blocks from `lba` on are of these stamps, one for each.
    pub(super) fn expect(&mut self, lba: u64, stamps: &[u64]) -> Outcome {
        let bytes = self.read(lba, stamps.len() as u32)?;
        for ((lba, block), stamp) in (lba..).zip(bytes.chunks(self.block_bytes())).zip(stamps) {
            let is_right = content::stamp(block, lba, &[*stamp]).is_some();
            ensure!(is_right, "block {lba} is not what stamp {stamp} (0: zeros) wrote there");
        }
        Ok(())
    }
}

/// The same of several ways beside each other, each as its core does; what ended on each.
pub(super) fn finish_all(ways: &mut [Way]) -> Outcome<Vec<Vec<Completion>>> {
    let (mut all, mut silent) = (vec![Vec::new(); ways.len()], 0);
    ways.iter_mut().for_each(Way::flush);
    while ways.iter().any(|way| !way.in_flight.is_empty()) {
        silent += 1;
        for (way, all) in ways.iter_mut().zip(&mut all) {
            let ended = way.poll()?;
            silent = if ended.is_empty() { silent } else { 0 };
            all.extend(ended);
            ensure!(silent < way.patience, "{:?} never ended, in {silent} polls", way.in_flight);
            way.flush();
        }
        if silent % TURN == TURN - 1 {
            std::thread::yield_now();
        }
    }
    Ok(all)
}
