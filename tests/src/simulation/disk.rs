//! A disk with delays, an order of its own and failures.

use super::random::Random;
use core::time::Duration;
use frwr_apps::storage::{
    AttachError, Completion, CompletionBatch, Cookie, Geometry, Operation, QueueFull, Storage, StorageError,
};
use frwr_mempool::DeviceMemory;
use std::{cell::RefCell, rc::Rc};

/// How a disk behaves; shared by whoever simulates and the disk inside of the target.
#[derive(Debug, Default)]
pub(super) struct Behaviour {
    /// Longest delay of an operation.
    pub(super) longest: Duration,
    /// One operation in this many fails; 0 for none.
    pub(super) fails_one_in: u64,
    /// What was wrong with what the target asked for.
    pub(super) violation: Option<String>,
    /// Operations that were submitted and have not completed.
    pub(super) pending: usize,
}

/// A disk in memory. Writes to one block take effect in the order of their submission, whatever the order of their
/// completions is, as on any disk with a queue that knows overlaps.
pub(super) struct Disk {
    geometry: Geometry,
    medium: DeviceMemory,
    buffers: Option<DeviceMemory>,
    depth: usize,
    pending: Vec<Pending>,
    now: Duration,
    random: Random,
    sequence: u64,
    /// Sequence of the write that each block was last written by.
    written: Vec<u64>,
    behaviour: Rc<RefCell<Behaviour>>,
    block: Vec<u8>,
}

#[derive(Debug)]
struct Pending {
    cookie: Cookie,
    operation: Operation,
    /// `None` until it is flushed.
    due: Option<Duration>,
    sequence: u64,
    /// Of what is to be written.
    digest: u64,
}

impl Disk {
    /// A disk over `medium` that holds `depth` operations.
    #[must_use]
    pub(super) fn new(
        medium: DeviceMemory,
        geometry: Geometry,
        depth: usize,
        random: Random,
    ) -> (Self, Rc<RefCell<Behaviour>>) {
        let behaviour = Rc::new(RefCell::new(Behaviour::default()));
        let disk = Self {
            geometry,
            medium,
            buffers: None,
            depth,
            pending: Vec::new(),
            now: Duration::ZERO,
            random,
            sequence: 0,
            written: vec![0; geometry.blocks() as usize],
            behaviour: Rc::clone(&behaviour),
            block: vec![0; geometry.block_bytes() as usize],
        };
        (disk, behaviour)
    }

    /// Of the bytes that a write has in its buffer now.
    fn digest(&self, operation: Operation) -> u64 {
        let (Operation::Write { blocks, buffer, .. }, Some(buffers)) = (operation, &self.buffers) else { return 0 };
        let mut bytes = vec![0; blocks as usize * self.geometry.block_bytes() as usize];
        if buffers.read(buffer, &mut bytes).is_err() {
            self.violated(format!("{operation:?} outside of the buffers"));
        }
        super::digest(&bytes)
    }

    fn violated(&self, what: String) {
        self.behaviour.borrow_mut().violation.get_or_insert(what);
    }

    fn execute(&mut self, pending: &Pending) -> Result<(), StorageError> {
        let (Operation::Read { lba, blocks, buffer } | Operation::Write { lba, blocks, buffer }) = pending.operation
        else {
            // It has no features.
            return if pending.operation.changes() { Err(StorageError::Unsupported) } else { Ok(()) };
        };
        if self.digest(pending.operation) != pending.digest {
            self.violated(format!("the buffer of {:?} changed before the disk was done with it", pending.operation));
        }
        self.geometry.extent(lba, blocks)?;
        let buffers = self.buffers.clone().ok_or(StorageError::BufferOutOfRange)?;
        let length = self.block.len();
        for index in 0..u64::from(blocks) {
            let (at, from) = ((lba + index) as usize, buffer + index as usize * length);
            if matches!(pending.operation, Operation::Read { .. }) {
                self.medium.copy_within_to(at * length, &buffers, from, length).map_err(|_| StorageError::Medium)?;
            } else if self.written[at] < pending.sequence {
                self.written[at] = pending.sequence;
                buffers.copy_within_to(from, &self.medium, at * length, length).map_err(|_| StorageError::Medium)?;
            }
        }
        Ok(())
    }
}

impl Storage for Disk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.buffers = Some(buffers);
        Ok(())
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.pending.len() >= self.depth {
            return Err(QueueFull);
        }
        self.sequence += 1;
        let digest = self.digest(operation);
        self.pending.push(Pending { cookie, operation, due: None, sequence: self.sequence, digest });
        self.behaviour.borrow_mut().pending = self.pending.len();
        Ok(())
    }

    fn flush(&mut self) {
        let longest = self.behaviour.borrow().longest.as_nanos() as u64;
        for pending in &mut self.pending {
            if pending.due.is_none() {
                pending.due = Some(self.now + Duration::from_nanos(self.random.below(longest + 1)));
            }
        }
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        self.now = now;
        let mut count = 0;
        while !out.is_full() {
            let due: Vec<usize> = (0..self.pending.len())
                .filter(|&index| self.pending[index].due.is_some_and(|due| due <= now))
                .collect();
            if due.is_empty() {
                break;
            }
            let pending = self.pending.swap_remove(self.random.of(&due));
            let fails = self.behaviour.borrow().fails_one_in;
            let result =
                if fails > 0 && self.random.one_in(fails) { Err(StorageError::Medium) } else { self.execute(&pending) };
            out.push(Completion { cookie: pending.cookie, result });
            count += 1;
        }
        self.behaviour.borrow_mut().pending = self.pending.len();
        count
    }
}
