//! Commands of the NVM command set: their table, and what is checked in front of each (NVM 3).

use super::Target;
use super::command::{Reply, Work};
use super::identify::MAX_WRITE_ZEROES_BYTES;
use super::receive::refused;
use super::table::{Accepted, Arrival, Entry};
use crate::storage::Storage;
use crate::wire::{
    AnaState, BROADCAST_NAMESPACE, BlockRange, DATASET_RANGE_BYTES, DataPointer, DatasetManagement, IdentifyController,
    KeyedDataBlock, MAX_DATASET_RANGES, Status, WriteZeroes, opcode,
};
use frwr_engine::provider::Port;

/// The longest list of ranges. Any buffer holds it.
const MAX_DATASET_BYTES: u32 = MAX_DATASET_RANGES * DATASET_RANGE_BYTES as u32;
const _: () = assert!(MAX_DATASET_BYTES <= super::MIN_BUFFER_BYTES);

fn length_of(data: DataPointer) -> u32 {
    match data {
        DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. } => length,
    }
}

/// Commands of I/O queues.
pub(super) const IO_ENTRIES: usize = 7;

impl<P: Port, S: Storage> Target<P, S> {
    pub(super) const IO: [Entry<P, S>; IO_ENTRIES] = [
        Entry::new(opcode::FLUSH, Self::flush_namespace),
        Entry::new(opcode::WRITE, Self::write).changes_data(),
        Entry::new(opcode::READ, Self::read),
        Entry::new(opcode::COMPARE, Self::compare).optional(IdentifyController::COMPARE, |_| true),
        Entry::new(opcode::WRITE_ZEROES, Self::write_zeroes)
            .changes_data()
            .optional(IdentifyController::WRITE_ZEROES, |features| features.write_zeroes),
        Entry::new(opcode::DATASET_MANAGEMENT, Self::dataset_management)
            .changes_data()
            .optional(IdentifyController::DATASET_MANAGEMENT, |features| features.deallocate),
        // Connect, which is of no I/O command set.
        Entry::new(opcode::FABRICS, Self::fabrics).unlisted(),
    ];

    /// The namespace that a command of an I/O queue names, by its index and its storage.
    pub(super) fn usable(&self, controller: usize, identifier: u32) -> Result<(usize, &S), Reply> {
        let subsystem = self.subsystem_of(controller).ok_or(refused(Status::INVALID_NAMESPACE))?;
        let index = subsystem.index(identifier).ok_or(refused(Status::INVALID_NAMESPACE))?;
        let namespace = self.namespaces.get(index).ok_or(refused(Status::INVALID_NAMESPACE))?;
        // An inactive identifier (Base 3.2.1.4).
        if !namespace.active {
            return Err(refused(Status::INVALID_FIELD));
        }
        // Hosts try again elsewhere, or later (Base 8.1.3).
        match subsystem.ana {
            AnaState::Optimized | AnaState::NonOptimized => Ok((index, &namespace.storage)),
            AnaState::Inaccessible => Err(Reply::of(Status::ANA_INACCESSIBLE)),
            AnaState::PersistentLoss => Err(Reply::of(Status::ANA_PERSISTENT_LOSS)),
            AnaState::Change => Err(Reply::of(Status::ANA_TRANSITION)),
        }
    }

    /// The same for a command that changes blocks: refused before any data moves where they cannot be changed.
    fn writable(&self, controller: usize, identifier: u32) -> Result<(usize, &S), Reply> {
        let (index, storage) = self.usable(controller, identifier)?;
        if storage.features().read_only {
            return Err(refused(Status::NAMESPACE_IS_WRITE_PROTECTED));
        }
        Ok((index, storage))
    }

    /// Blocks lie in the namespace, and their data is as long as they are.
    #[inline]
    fn check_blocks(&self, range: &BlockRange, storage: &S) -> Result<(), Reply> {
        let extent = storage.geometry().extent(range.lba, range.blocks);
        let (_, bytes) = extent.map_err(|_| refused(Status::LBA_OUT_OF_RANGE))?;
        if bytes > u64::from(self.options.buffer_bytes) {
            // Above MDTS (Base figure 275).
            return Err(refused(Status::INVALID_FIELD));
        }
        if u64::from(length_of(range.data)) != bytes {
            return Err(refused(Status::DATA_SGL_LENGTH_INVALID));
        }
        Ok(())
    }

    /// Read (NVM 3.2.4).
    pub(super) fn read(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, range) = self.ready(arrival, BlockRange::decode(arrival.entry))?;
        let (namespace, storage) = self.usable(controller, range.namespace)?;
        self.check_blocks(&range, storage)?;
        Ok((Work::Read { namespace, lba: range.lba, blocks: range.blocks }, range.data))
    }

    /// Write (NVM 3.2.6).
    pub(super) fn write(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, range) = self.ready(arrival, BlockRange::decode(arrival.entry))?;
        let (namespace, storage) = self.writable(controller, range.namespace)?;
        self.check_blocks(&range, storage)?;
        Ok((Work::Write { namespace, lba: range.lba, blocks: range.blocks }, range.data))
    }

    /// Compare (NVM 3.2.1).
    pub(super) fn compare(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, range) = self.ready(arrival, BlockRange::decode(arrival.entry))?;
        let (namespace, storage) = self.usable(controller, range.namespace)?;
        self.check_blocks(&range, storage)?;
        Ok((Work::Compare { namespace, lba: range.lba, blocks: range.blocks }, range.data))
    }

    /// Write Zeroes (NVM 3.2.8).
    pub(super) fn write_zeroes(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, zeroes) = self.ready(arrival, WriteZeroes::decode(arrival.entry))?;
        let WriteZeroes { lba, blocks, deallocate, .. } = zeroes;
        let (namespace, storage) = self.writable(controller, zeroes.namespace)?;
        if !self.offers(controller, opcode::WRITE_ZEROES) {
            return Err(refused(Status::INVALID_COMMAND_OPCODE));
        }
        let extent = storage.geometry().extent(lba, blocks);
        let (_, bytes) = extent.map_err(|_| refused(Status::LBA_OUT_OF_RANGE))?;
        if bytes > MAX_WRITE_ZEROES_BYTES {
            // Above WZSL (NVM figure 102).
            return Err(refused(Status::INVALID_FIELD));
        }
        Ok((Work::WriteZeroes { namespace, lba, blocks, deallocate }, DataPointer::NONE))
    }

    /// Dataset Management (NVM 3.2.3).
    pub(super) fn dataset_management(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, dataset) = self.ready(arrival, DatasetManagement::decode(arrival.entry))?;
        let (namespace, _) = self.writable(controller, dataset.namespace)?;
        if !self.offers(controller, opcode::DATASET_MANAGEMENT) {
            return Err(refused(Status::INVALID_COMMAND_OPCODE));
        }
        // Linux always hands over as many bytes as the longest list has, and says in NR how many ranges there are.
        let least = dataset.ranges * DATASET_RANGE_BYTES as u32;
        if !(least..=MAX_DATASET_BYTES).contains(&length_of(dataset.data)) {
            return Err(refused(Status::DATA_SGL_LENGTH_INVALID));
        }
        if !dataset.deallocate {
            // Nothing but hints (NVM 3.2.3).
            return Err(Reply::result(0));
        }
        Ok((Work::Deallocate { namespace, ranges: dataset.ranges, next: 0 }, dataset.data))
    }

    /// Flush (NVM 3.2.2).
    pub(super) fn flush_namespace(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (controller, named) = self.ready(arrival, Ok(arrival.entry.namespace.get()))?;
        // Flushing one of several namespaces stands for all of them only where there is one (VWC bits 2:1 say that the
        // broadcast identifier is supported exactly then).
        let only = self.subsystem_of(controller).is_some_and(|subsystem| subsystem.count() == 1);
        let named = if named == BROADCAST_NAMESPACE && only { 1 } else { named };
        let (namespace, _) = self.usable(controller, named)?;
        Ok((Work::Flush { namespace }, DataPointer::NONE))
    }
}
