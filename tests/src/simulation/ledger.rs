//! What was asked of the host, what every block must hold, and what memory is meant to be open.

use super::random::Random;
use frwr_apps::host::{HostCompletion, IoError};
use frwr_mempool::DeviceMemory;
use std::collections::BTreeMap;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Blocks to memory.
    Read,
    /// Memory to blocks.
    Write,
    /// Neither.
    Flush,
}

/// A request that was submitted and has not ended.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// What it does.
    pub(super) kind: Kind,
    /// First block.
    pub(super) lba: u64,
    /// Number of blocks; 0 for a flush.
    pub(super) blocks: u64,
    /// Which part of the data memory it uses.
    pub(super) slot: usize,
    /// What a write writes.
    pub(super) version: u32,
}

/// A block of the namespace, as it must be.
#[derive(Clone, Debug)]
struct Block {
    /// What a read may find: one version, or several after writes that failed.
    versions: Vec<u32>,
    readers: u32,
    written: bool,
}

/// The model that every completion is compared with.
pub(super) struct Ledger {
    memory: DeviceMemory,
    block_bytes: usize,
    slot_bytes: usize,
    blocks: Vec<Block>,
    pending: BTreeMap<u64, Pending>,
    free: Vec<usize>,
    /// Digest of what each idle slot held when its request ended; nobody may have written to it since.
    resting: Vec<u64>,
    next_cookie: u64,
    next_version: u32,
    /// Requests that ended.
    pub(super) ended: u64,
    /// Those of them that failed.
    pub(super) failed: u64,
}

impl Ledger {
    /// A model of `blocks` blocks that hold zeros, for requests of up to `slot_bytes` in `memory`.
    #[must_use]
    pub(super) fn new(memory: DeviceMemory, block_bytes: usize, slot_bytes: usize, blocks: u64) -> Self {
        let slots = memory.len() / slot_bytes;
        let block = Block { versions: vec![0], readers: 0, written: false };
        let mut ledger = Self {
            memory,
            block_bytes,
            slot_bytes,
            blocks: vec![block; blocks as usize],
            pending: BTreeMap::new(),
            free: (0..slots).collect(),
            resting: vec![0; slots],
            next_cookie: 1,
            next_version: 1,
            ended: 0,
            failed: 0,
        };
        for slot in 0..slots {
            ledger.resting[slot] = super::digest(&ledger.slot(slot));
        }
        ledger
    }

    /// Bytes that requests in flight may have open to the peer.
    #[must_use]
    pub(super) fn open_bytes(&self) -> u64 {
        self.pending.values().map(|pending| pending.blocks * self.block_bytes as u64).sum()
    }

    /// Nothing is in flight.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// What is in flight, for messages.
    #[must_use]
    pub(super) fn describe(&self) -> String {
        format!("{:?}", self.pending)
    }

    /// The next request, prepared but not submitted: data to write is in place.
    ///
    /// # Errors
    /// What was wrong with the slot's memory.
    pub(super) fn prepare(&mut self, random: &mut Random, read_share: u64) -> Result<Option<(u64, Pending)>, String> {
        let Some(&slot) = self.free.last() else { return Ok(None) };
        let most = (self.slot_bytes / self.block_bytes) as u64;
        let total = self.blocks.len() as u64;
        let blocks = (1 + random.below(most)).min(total);
        let lba = random.below(total - blocks + 1);
        let kind = match random.below(100) {
            0 if random.one_in(4) => Kind::Flush,
            share if share < read_share => Kind::Read,
            _ => Kind::Write,
        };
        let range = &self.blocks[lba as usize..(lba + blocks) as usize];
        let conflicts = range.iter().any(|block| block.written || (kind == Kind::Write && block.readers > 0));
        if conflicts && kind != Kind::Flush {
            return Ok(None);
        }
        self.prepared(Pending { kind, lba, blocks, slot, version: self.next_version }).map(Some)
    }

    /// The same for one read of one block.
    ///
    /// # Errors
    /// As [`Ledger::prepare`].
    pub(super) fn prepare_read(&mut self, lba: u64) -> Result<Option<(u64, Pending)>, String> {
        let Some(&slot) = self.free.last() else { return Ok(None) };
        self.prepared(Pending { kind: Kind::Read, lba, blocks: 1, slot, version: 0 }).map(Some)
    }

    fn prepared(&mut self, mut pending: Pending) -> Result<(u64, Pending), String> {
        self.check_rest(pending.slot)?;
        let mut bytes = vec![0xEE; self.slot_bytes];
        match pending.kind {
            Kind::Flush => (pending.lba, pending.blocks) = (0, 0),
            Kind::Read => {}
            Kind::Write => {
                for index in 0..pending.blocks as usize {
                    let part = &mut bytes[index * self.block_bytes..(index + 1) * self.block_bytes];
                    fill(part, pending.lba + index as u64, pending.version);
                }
            }
        }
        let _ = self.memory.write(pending.slot * self.slot_bytes, &bytes);
        self.resting[pending.slot] = super::digest(&bytes);
        Ok((self.next_cookie, pending))
    }

    /// The request of [`Ledger::prepare`] was taken.
    pub(super) fn submitted(&mut self, cookie: u64, pending: Pending) {
        self.next_cookie += 1;
        self.next_version += 1;
        self.free.pop();
        for block in &mut self.blocks[pending.lba as usize..(pending.lba + pending.blocks) as usize] {
            block.readers += u32::from(pending.kind == Kind::Read);
            block.written |= pending.kind == Kind::Write;
        }
        self.pending.insert(cookie, pending);
    }

    /// A request ended.
    ///
    /// # Errors
    /// It had ended before or never begun, failed for no reason, or read what nobody wrote.
    pub(super) fn completed(&mut self, completion: HostCompletion, disk_may_fail: bool) -> Result<(), String> {
        let HostCompletion { cookie, result } = completion;
        let pending = self.pending.remove(&cookie).ok_or(format!("request {cookie} ended, but was not in flight"))?;
        self.ended += 1;
        self.failed += u64::from(result.is_err());
        match result {
            Ok(()) => {}
            Err(IoError::Status(_)) if disk_may_fail => {}
            // The host asked for that, and the target had not given the command to its disk yet.
            Err(IoError::TimedOut) => {}
            // Chance ended more sessions with it than it may take.
            Err(IoError::Unanswered { .. }) => {}
            Err(error) => return Err(format!("request {cookie} {pending:?} failed: {error}")),
        }
        if pending.kind != Kind::Read {
            self.check_rest(pending.slot)?;
        }
        let bytes = self.slot(pending.slot);
        self.resting[pending.slot] = super::digest(&bytes);
        self.free.insert(0, pending.slot);
        for index in 0..pending.blocks {
            let block = &mut self.blocks[(pending.lba + index) as usize];
            match pending.kind {
                Kind::Read => block.readers -= 1,
                Kind::Write if result.is_ok() => (block.versions, block.written) = (vec![pending.version], false),
                Kind::Write => {
                    block.versions.push(pending.version);
                    block.written = false;
                }
                Kind::Flush => {}
            }
        }
        if pending.kind == Kind::Read && result.is_ok() {
            return self.check_read(&pending, &bytes);
        }
        Ok(())
    }

    fn check_read(&self, pending: &Pending, bytes: &[u8]) -> Result<(), String> {
        let mut expected = vec![0; self.block_bytes];
        for index in 0..pending.blocks {
            let lba = pending.lba + index;
            let found = &bytes[index as usize * self.block_bytes..][..self.block_bytes];
            let versions = &self.blocks[lba as usize].versions;
            let known = versions.iter().any(|&version| {
                fill(&mut expected, lba, version);
                expected == found
            });
            if !known {
                let begins = &found[..16];
                return Err(format!("block {lba} is none of the versions {versions:?}; it begins with {begins:x?}"));
            }
        }
        let rest = &bytes[pending.blocks as usize * self.block_bytes..];
        if rest.iter().any(|&byte| byte != 0xEE) {
            return Err(format!("{pending:?} wrote behind its own bytes"));
        }
        Ok(())
    }

    /// The memory of a request that ended is as it was when it ended: its key was dead.
    fn check_rest(&self, slot: usize) -> Result<(), String> {
        if super::digest(&self.slot(slot)) == self.resting[slot] {
            return Ok(());
        }
        Err(format!("memory of slot {slot} changed although no request uses it"))
    }

    /// The same for all slots without a request.
    ///
    /// # Errors
    /// Which slot changed.
    pub(super) fn check_all_rest(&self) -> Result<(), String> {
        self.free.iter().try_for_each(|&slot| self.check_rest(slot))
    }

    fn slot(&self, slot: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.slot_bytes];
        let _ = self.memory.read(slot * self.slot_bytes, &mut bytes);
        bytes
    }
}

/// The bytes of a version of a block; version 0 is zeros.
fn fill(bytes: &mut [u8], lba: u64, version: u32) {
    let mut random = Random::new(lba << 32 | u64::from(version));
    for chunk in bytes.chunks_mut(8) {
        let word = if version == 0 { 0 } else { random.bits() };
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}
