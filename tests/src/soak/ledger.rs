//! What every block of one host's part of the namespace must hold. It outlives the host.

use super::plan::Plan;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::host::{HostCompletion, IoError};
use frwr_support::Random;
use std::collections::BTreeMap;

/// Bytes of a block: a page, so that each block can be a segment on every device.
pub(super) const BLOCK: usize = 4096;
/// Blocks of each host.
pub(super) const BLOCKS: u64 = 64;
/// Blocks of the largest request.
const MOST_BLOCKS: u64 = 4;
/// Bytes of a request's memory: gaps of a block between its blocks.
const SLOT_BYTES: usize = 2 * MOST_BLOCKS as usize * BLOCK;
/// Requests at a time: more than the deepest queue takes, so that some wait.
const SLOTS: usize = 24;
/// Data memory of a host.
pub(super) const DATA_BYTES: usize = SLOTS * SLOT_BYTES;
/// One request in so many is a Flush.
const FLUSHES: u64 = 40;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
}

/// A request that was submitted and has not ended.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    block: u64,
    blocks: u64,
    slot: usize,
    version: u32,
    scattered: bool,
}

impl Pending {
    /// Where its blocks lie in the memory.
    fn offsets(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (block, slot, gap) = (self.block, self.slot * SLOT_BYTES, if self.scattered { 2 } else { 1 });
        (0..self.blocks).map(move |at| (block + at, slot + at as usize * gap * BLOCK))
    }

    /// The same for a host.
    pub(super) fn segments(&self, memory: MemoryId) -> Vec<Segment> {
        if self.scattered {
            let one = |(_, offset): (u64, usize)| Segment { memory, offset: offset as u64, length: BLOCK as u32 };
            return self.offsets().map(one).collect();
        }
        vec![Segment { memory, offset: (self.slot * SLOT_BYTES) as u64, length: self.blocks as u32 * BLOCK as u32 }]
    }
}

/// The model that every read is compared with.
pub(super) struct Ledger {
    seed: u64,
    first: u64,
    /// What a read of each block may find: one version, or several behind writes that nobody heard of.
    versions: Vec<Vec<u32>>,
    busy: Vec<bool>,
    pending: BTreeMap<u64, Pending>,
    free: Vec<usize>,
    next_version: u32,
    next_cookie: u64,
    /// Requests that ended, of this host.
    pub(super) ended: u64,
}

impl Ledger {
    /// A host's part of a namespace of zeros.
    pub(super) fn new(seed: u64, host: u64) -> Self {
        let versions = vec![vec![0]; BLOCKS as usize];
        let (busy, free) = (vec![false; BLOCKS as usize], Vec::new());
        let pending = BTreeMap::new();
        Self { seed, first: host * BLOCKS, versions, busy, pending, free, next_version: 1, next_cookie: 0, ended: 0 }
    }

    /// The next host begins. What was in flight with the former one happened, or did not.
    pub(super) fn begin(&mut self) {
        for pending in core::mem::take(&mut self.pending).into_values() {
            for (block, _) in pending.offsets().filter(|_| pending.kind == Kind::Write) {
                self.versions[block as usize].push(pending.version);
            }
        }
        self.busy.fill(false);
        self.free = (0..SLOTS).collect();
        self.ended = 0;
    }

    /// Nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// First block of a request in the namespace.
    pub(super) fn lba(&self, pending: &Pending) -> u64 {
        self.first + pending.block
    }

    /// Draws a request, if there is room for one, and fills its memory.
    pub(super) fn draw(&mut self, random: &mut Random, plan: &Plan, memory: &DeviceMemory) -> Option<Pending> {
        let slot = *self.free.last()?;
        let blocks = 1 + random.below(MOST_BLOCKS);
        let block = random.below(BLOCKS - blocks + 1);
        let kind = match random.below(FLUSHES) {
            0 => Kind::Flush,
            _ if random.below(100) < plan.read_share => Kind::Read,
            _ => Kind::Write,
        };
        let blocks = if kind == Kind::Flush { 0 } else { blocks };
        self.prepare(Pending { kind, block, blocks, slot, version: 0, scattered: random.below(3) == 0 }, memory)
    }

    /// A read of one block, if it can be read now.
    pub(super) fn read_of(&mut self, block: u64, memory: &DeviceMemory) -> Option<Pending> {
        let slot = *self.free.last()?;
        self.prepare(Pending { kind: Kind::Read, block, blocks: 1, slot, version: 0, scattered: false }, memory)
    }

    fn prepare(&mut self, mut pending: Pending, memory: &DeviceMemory) -> Option<Pending> {
        if pending.offsets().any(|(block, _)| self.busy[block as usize]) {
            return None;
        }
        pending.version = self.next_version;
        for (block, offset) in pending.offsets() {
            // What a read must not leave as it is.
            let before = if pending.kind == Kind::Write { pending.version } else { u32::MAX };
            memory.write(offset, &pattern(self.seed, self.first + block, before)).ok()?;
        }
        Some(pending)
    }

    /// Under which cookie the next request goes.
    pub(super) fn cookie(&self) -> u64 {
        self.next_cookie
    }

    /// The host took it.
    pub(super) fn submitted(&mut self, pending: Pending) {
        pending.offsets().for_each(|(block, _)| self.busy[block as usize] = true);
        self.next_version += 1;
        self.free.pop();
        self.pending.insert(self.next_cookie, pending);
        self.next_cookie += 1;
    }

    /// A request ended.
    ///
    /// # Errors
    /// It ended twice, failed, or read what nobody wrote.
    pub(super) fn completed(
        &mut self,
        completion: HostCompletion,
        memory: &DeviceMemory,
        is_stopping: bool,
    ) -> Result<(), String> {
        let HostCompletion { cookie, result, .. } = completion;
        let pending =
            self.pending.remove(&cookie).ok_or_else(|| format!("request {cookie} ended twice, or never was"))?;
        // A host that shuts down sets up no session for what it had in flight when another host's order ended its last one.
        let lost = is_stopping && matches!(result, Err(IoError::Abandoned));
        if !lost {
            result.map_err(|error| format!("{pending:?} failed: {error}"))?;
        }
        for (block, offset) in pending.offsets() {
            self.busy[block as usize] = false;
            match pending.kind {
                Kind::Write if lost => self.versions[block as usize].push(pending.version),
                Kind::Read if lost => {}
                Kind::Write => self.versions[block as usize] = vec![pending.version],
                Kind::Read => self.found(block, offset, memory)?,
                Kind::Flush => {}
            }
        }
        self.free.push(pending.slot);
        self.ended += 1;
        Ok(())
    }

    /// From now on the block holds what it was found to hold.
    fn found(&mut self, block: u64, offset: usize, memory: &DeviceMemory) -> Result<(), String> {
        let (mut bytes, lba) = (vec![0; BLOCK], self.first + block);
        memory.read(offset, &mut bytes).map_err(|error| error.to_string())?;
        let versions = &mut self.versions[block as usize];
        let seed = self.seed;
        match versions.iter().copied().find(|&version| pattern(seed, lba, version) == bytes) {
            Some(version) => *versions = vec![version],
            None => return Err(format!("block {lba} holds none of versions {versions:?}: {:02x?}", &bytes[..16])),
        }
        Ok(())
    }
}

/// A block behind the write of a version; before the first it is zero.
fn pattern(seed: u64, lba: u64, version: u32) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK];
    }
    let mut random = Random::new(seed ^ (lba << 32) ^ u64::from(version));
    (0..BLOCK / size_of::<u64>()).flat_map(|_| random.bits().to_le_bytes()).collect()
}
