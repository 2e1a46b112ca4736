//! A storage of one's own behind the target: blocks are scrambled where they lie, as encryption at rest would
//! (`cargo run -p frwr-nvmf --example own_storage`; docs/embedding.md leads through it).

mod common;

use common::{BLOCK, BLOCKS, Error, HostSide, TargetSide, both_to_the_end, pattern, region};
use core::{cell::OnceCell, time::Duration};
use frwr_nvmf::frwr_engine::provider::soft::SoftFabric;
use frwr_nvmf::frwr_mempool::DeviceMemory;
use frwr_nvmf::storage::{
    AttachError, Completion, CompletionBatch, Cookie, Geometry, Operation, QueueFull, Storage, StorageError,
};
use std::collections::VecDeque;

/// Operations at a time.
const DEPTH: usize = 64;

/// Keeps every byte as another one.
pub(crate) struct Scrambled {
    geometry: Geometry,
    medium: DeviceMemory,
    buffers: OnceCell<DeviceMemory>,
    queue: VecDeque<(Cookie, Operation)>,
    /// Of these, those that were flushed.
    started: usize,
}

impl Scrambled {
    pub(crate) fn new(medium: DeviceMemory) -> Result<Self, Error> {
        let geometry = Geometry::new((medium.len() / BLOCK) as u64, BLOCK as u32)?;
        Ok(Self { geometry, medium, buffers: OnceCell::new(), queue: VecDeque::with_capacity(DEPTH), started: 0 })
    }

    fn execute(&self, operation: Operation) -> Result<(), StorageError> {
        let Some((lba, blocks)) = operation.blocks() else { return Ok(()) };
        let (at, bytes) = self.geometry.extent(lba, blocks)?;
        let (Operation::Read { buffer, .. } | Operation::Write { buffer, .. }) = operation else {
            // It offers no features, so nobody asks.
            return Err(StorageError::Unsupported);
        };
        // Nothing moves of what does not fit.
        let part = |all: &DeviceMemory, at| all.slice(at, bytes as usize).map_err(|_| StorageError::BufferOutOfRange);
        let buffer = part(self.buffers.get().ok_or(StorageError::BufferOutOfRange)?, buffer)?;
        let medium = part(&self.medium, at as usize)?;
        let (from, to) = if operation.changes() { (buffer, medium) } else { (medium, buffer) };
        let mut block = [0; BLOCK];
        for step in (0..bytes as usize).step_by(BLOCK) {
            from.read(step, &mut block).map_err(|_| StorageError::Medium)?;
            block.iter_mut().for_each(|byte| *byte ^= 0xa5);
            to.write(step, &block).map_err(|_| StorageError::Medium)?;
        }
        Ok(())
    }
}

impl Storage for Scrambled {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.buffers.set(buffers).map_err(|_| AttachError::Twice)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        if self.queue.len() == DEPTH {
            return Err(QueueFull);
        }
        self.queue.push_back((cookie, operation));
        Ok(())
    }

    fn flush(&mut self) {
        self.started = self.queue.len();
    }

    fn poll(&mut self, _now: Duration, out: &mut CompletionBatch) -> usize {
        let before = out.len();
        while self.started > 0 && !out.is_full() {
            let Some((cookie, operation)) = self.queue.pop_front() else { break };
            self.started -= 1;
            out.push(Completion { cookie, result: self.execute(operation) });
        }
        out.len() - before
    }
}

pub(crate) fn main() -> Result<(), Error> {
    let fabric = SoftFabric::new();
    let (mut near, mut far) = (region()?, region()?);
    let medium = far.carve(BLOCKS * BLOCK, BLOCK)?.into_device_memory();
    let mut target = TargetSide::new(&fabric, &mut far, Scrambled::new(medium.clone())?)?;
    both_to_the_end(&mut target, &mut HostSide::new(&fabric, &mut near)?)?;
    let mut stored = [0; BLOCK];
    medium.read(0, &mut stored)?;
    let scrambled = stored.iter().zip(pattern(0)).all(|(stored, wanted)| *stored == wanted ^ 0xa5);
    println!("{BLOCKS} blocks went there and back");
    if scrambled { Ok(()) } else { Err("the storage was not asked".into()) }
}
