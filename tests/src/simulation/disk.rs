//! A disk with delays, an order of its own, failures, and a cache that is lost with the power.

use core::time::Duration;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::storage::{
    AttachError, Changing, Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull, Storage,
    StorageError,
};
use frwr_support::Random;
use std::{cell::RefCell, rc::Rc};

/// What all cores' ways to one disk share, and how it behaves.
pub(super) struct Medium {
    pub(super) geometry: Geometry,
    /// What reads find.
    current: DeviceMemory,
    /// What is left without power.
    durable: DeviceMemory,
    /// When the oldest change of a block that is not durable completed; by the order of completions. `None` where there is none.
    dirty: Vec<Option<u64>>,
    /// Changes that completed, and flushes that were submitted.
    order: u64,
    random: Random,
    pub(super) features: Features,
    /// Longest delay of an operation.
    pub(super) longest: Duration,
    /// Delay of operations that begin now, beside that.
    pub(super) extra: Duration,
    /// One operation in this many fails; 0 for none.
    pub(super) fails_one_in: u64,
    /// One that fails may have moved a part.
    pub(super) is_short: bool,
    /// What was wrong with what the target asked for.
    pub(super) violation: Option<String>,
    /// Operations that were submitted and have not completed.
    pub(super) pending: usize,
    /// Changes that failed.
    pub(super) failures: u64,
    /// Writes of hosts that are shut out: none of them may be executed any more.
    pub(super) shut_out: Vec<super::desk::Pending>,
}

/// A medium, in the hands of all that have a way to it.
pub(super) type SharedMedium = Rc<RefCell<Medium>>;

impl Medium {
    /// Zeros in two memories of the same size.
    pub(super) fn new(
        [current, durable]: [DeviceMemory; 2],
        geometry: Geometry,
        features: Features,
        random: Random,
    ) -> SharedMedium {
        Rc::new(RefCell::new(Self {
            geometry,
            current,
            durable,
            dirty: vec![None; geometry.blocks() as usize],
            order: 1,
            random,
            features,
            longest: Duration::ZERO,
            extra: Duration::ZERO,
            fails_one_in: 0,
            is_short: false,
            violation: None,
            pending: 0,
            failures: 0,
            shut_out: Vec::new(),
        }))
    }

    /// It behaves from now on.
    pub(super) fn calm(&mut self) {
        (self.longest, self.extra, self.fails_one_in, self.is_short) = (Duration::ZERO, Duration::ZERO, 0, false);
    }

    /// The power goes: of each block that was not brought to the medium the old or the new bytes are left.
    pub(super) fn lose_power(&mut self) {
        for block in 0..self.dirty.len() {
            if self.dirty[block].take().is_some() {
                let keeps = self.random.one_in(2);
                let (from, to) = if keeps { (&self.current, &self.durable) } else { (&self.durable, &self.current) };
                let _ = self.copy(from, to, block);
            }
        }
    }

    /// Blocks that a power cut could still change.
    pub(super) fn dirty_blocks(&self) -> usize {
        self.dirty.iter().flatten().count()
    }

    fn copy(&self, from: &DeviceMemory, to: &DeviceMemory, block: usize) -> Result<(), StorageError> {
        let bytes = self.geometry.block_bytes() as usize;
        from.copy_within_to(block * bytes, to, block * bytes, bytes).map_err(|_| StorageError::Medium)
    }

    fn changed(&mut self, block: usize) {
        if self.features.write_through {
            let _ = self.copy(&self.current, &self.durable, block);
        } else {
            self.order += 1;
            self.dirty[block].get_or_insert(self.order);
        }
    }

    /// Everything that completed before this flush was submitted; of the rest whatever the disk likes.
    fn commit(&mut self, submitted: u64) {
        for block in 0..self.dirty.len() {
            let Some(since) = self.dirty[block] else { continue };
            if since <= submitted || self.random.one_in(2) {
                let _ = self.copy(&self.current, &self.durable, block);
                self.dirty[block] = None;
            }
        }
    }

    /// Moves the first `blocks` blocks of an operation.
    fn execute(&mut self, pending: &Pending, most: u32, buffers: &DeviceMemory) -> Result<(), StorageError> {
        let Some((lba, blocks)) = pending.operation.blocks() else {
            self.commit(pending.order);
            return Ok(());
        };
        self.geometry.extent(lba, blocks)?;
        let length = self.geometry.block_bytes() as usize;
        for index in 0..blocks.min(most) as usize {
            let block = lba as usize + index;
            let at = block * length;
            let moved = match pending.operation {
                Operation::Read { buffer, .. } => {
                    self.current.copy_within_to(at, buffers, buffer + index * length, length)
                }
                Operation::Write { buffer, .. } => {
                    buffers.copy_within_to(buffer + index * length, &self.current, at, length)
                }
                Operation::WriteZeroes { .. } => self.current.fill(at, length, 0),
                Operation::Deallocate { .. } if self.random.one_in(2) => continue,
                Operation::Deallocate { .. } => self.current.fill(at, length, 0),
                Operation::Flush => Ok(()),
                Operation::CompareAndWrite { .. } => return Err(StorageError::Unsupported),
            };
            moved.map_err(|_| StorageError::BufferOutOfRange)?;
            if pending.operation.changes() {
                self.changed(block);
            }
        }
        Ok(())
    }
}

/// One core's way to a disk.
pub(super) struct Disk {
    medium: SharedMedium,
    buffers: Option<DeviceMemory>,
    depth: usize,
    pending: Vec<Pending>,
    now: Duration,
    random: Random,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    cookie: Cookie,
    operation: Operation,
    /// `None` until it is started.
    due: Option<Duration>,
    /// When it was submitted, by the order of completions.
    order: u64,
    /// Of what is to be written.
    digest: u64,
}

impl Disk {
    /// A way to `medium` that holds `depth` operations.
    pub(super) fn new(medium: SharedMedium, depth: usize, random: Random) -> Self {
        let (buffers, pending, scratch) = (None, Vec::new(), Vec::new());
        Self { medium, buffers, depth, pending, now: Duration::ZERO, random, scratch }
    }

    /// Of the bytes that a write has in its buffer now.
    fn digest(&mut self, operation: Operation) -> u64 {
        let (Operation::Write { blocks, buffer, .. }, Some(buffers)) = (operation, &self.buffers) else { return 0 };
        let length = blocks as usize * self.medium.borrow().geometry.block_bytes() as usize;
        self.scratch.resize(length, 0);
        if buffers.read(buffer, &mut self.scratch).is_err() {
            self.violated(format!("{operation:?} outside of the buffers"));
        }
        super::desk::digest(&self.scratch)
    }

    /// The request of a host that is shut out of which an operation is a write, by its first block.
    fn shut_out(&mut self, operation: Operation) -> Option<super::desk::Pending> {
        let (Operation::Write { lba, buffer, .. }, Some(buffers)) = (operation, &self.buffers) else { return None };
        let medium = self.medium.borrow();
        if medium.shut_out.is_empty() {
            return None;
        }
        let length = medium.geometry.block_bytes() as usize;
        let mut found = vec![0; length];
        buffers.read(buffer, &mut found).ok()?;
        let writes = |of: &&super::desk::Pending| {
            self.scratch.resize(length, 0);
            super::desk::fill(&mut self.scratch, lba, of.version);
            of.range().contains(&(lba as usize)) && self.scratch == found
        };
        // Zeros are of anybody.
        medium.shut_out.iter().filter(|of| of.version != 0).find(writes).copied()
    }

    fn violated(&self, what: String) {
        self.medium.borrow_mut().violation.get_or_insert(what);
    }

    fn complete(&mut self, pending: &Pending) -> Result<(), StorageError> {
        if self.digest(pending.operation) != pending.digest {
            self.violated(format!("the buffer of {:?} changed before the disk was done with it", pending.operation));
        }
        if let Some(of) = self.shut_out(pending.operation) {
            self.violated(format!("{:?} is of a host that is shut out: {of:?}", pending.operation));
        }
        let buffers = self.buffers.as_ref().ok_or(StorageError::BufferOutOfRange)?;
        let mut medium = self.medium.borrow_mut();
        if medium.fails_one_in > 0 && self.random.one_in(medium.fails_one_in) {
            medium.failures += u64::from(pending.operation.changes());
            if medium.is_short {
                let blocks = pending.operation.blocks().map_or(0, |(_, blocks)| blocks);
                if blocks > 1 {
                    medium.execute(pending, self.random.below(u64::from(blocks)) as u32, buffers)?;
                }
            }
            return Err(StorageError::Medium);
        }
        medium.execute(pending, u32::MAX, buffers)
    }

    fn count(&self, taken: usize, given: usize) {
        let mut medium = self.medium.borrow_mut();
        medium.pending = medium.pending + taken - given;
    }
}

/// Its program is gone, which the disk need not have heard: what it was asked for happens, or does not.
impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(buffers) = &self.buffers {
            for pending in &self.pending {
                if pending.operation.changes() && self.random.one_in(2) {
                    let _ = self.medium.borrow_mut().execute(pending, u32::MAX, buffers);
                }
            }
        }
        self.count(0, self.pending.len());
    }
}

impl Changing for Disk {
    fn is_changing(&self, start: u64, end: u64) -> bool {
        self.pending.iter().any(|pending| pending.operation.changes_any(start, end))
    }
}

impl Storage for Disk {
    fn geometry(&self) -> Geometry {
        self.medium.borrow().geometry
    }

    fn features(&self) -> Features {
        self.medium.borrow().features
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.buffers = Some(buffers);
        Ok(())
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.pending.len() >= self.depth {
            return Err(QueueFull);
        }
        let digest = self.digest(operation);
        let order = self.medium.borrow().order;
        self.pending.push(Pending { cookie, operation, due: None, order, digest });
        self.count(1, 0);
        Ok(())
    }

    fn flush(&mut self) {
        let (longest, extra) = (self.medium.borrow().longest.as_nanos() as u64, self.medium.borrow().extra);
        for pending in &mut self.pending {
            if pending.due.is_none() {
                pending.due = Some(self.now + extra + Duration::from_nanos(self.random.below(longest + 1)));
            }
        }
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        self.now = now;
        let mut count = 0;
        while !out.is_full() {
            let is_due = |pending: &Pending| pending.due.is_some_and(|due| due <= now);
            let due = self.pending.iter().filter(|pending| is_due(pending)).count() as u64;
            let chosen = if due == 0 { None } else { Some(self.random.below(due) as usize) };
            let mut due = self.pending.iter().enumerate().filter(|(_, pending)| is_due(pending));
            let Some((at, _)) = chosen.and_then(|chosen| due.nth(chosen)) else { break };
            let pending = self.pending.swap_remove(at);
            let result = self.complete(&pending);
            out.push(Completion { cookie: pending.cookie, result });
            count += 1;
        }
        self.count(0, count);
        count
    }

    fn cancel(&mut self, cookie: Cookie) -> bool {
        let found = self.pending.iter().position(|pending| pending.cookie == cookie && pending.due.is_none());
        if let Some(at) = found {
            self.pending.swap_remove(at);
            self.count(0, 1);
        }
        found.is_some()
    }
}
