//! Commands of the NVM command set: their table, and what is checked in front of each (NVM 3).

use super::super::media::Medium;
use super::super::options::MIN_BUFFER_BYTES;
use super::super::reservation::Access;
use super::super::subsystem::Served;
use super::super::work::{Reply, Work, refused};
use super::checks::{Accepted, Arrival, Checks, Entry};
use super::fabrics::fabrics;
use super::identify::MAX_WRITE_ZEROES_BYTES;
use super::reservations::{acquire, register, release, report};
use crate::storage::{Features, Storage};
use crate::wire::{
    BROADCAST_NAMESPACE, BlockRange, DATASET_RANGE_BYTES, DataPointer, DatasetManagement, IdentifyController,
    KeyedDataBlock, MAX_DATASET_RANGES, Status, WriteZeroes, opcode,
};
use frwr_engine::provider::Port;

/// The longest list of ranges. Any buffer holds it.
const MAX_DATASET_BYTES: u32 = MAX_DATASET_RANGES * DATASET_RANGE_BYTES as u32;
const _: () = assert!(MAX_DATASET_BYTES <= MIN_BUFFER_BYTES);

fn length_of(data: DataPointer) -> u32 {
    match data {
        DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. } => length,
    }
}

/// Commands of I/O queues.
pub(super) const IO_ENTRIES: usize = 11;

pub(super) const fn entries<P: Port, S: Storage>() -> [Entry<P, S>; IO_ENTRIES] {
    [
        Entry::new(opcode::FLUSH, flush_namespace),
        Entry::new(opcode::WRITE, write).changes_data(),
        Entry::new(opcode::READ, read),
        Entry::new(opcode::COMPARE, compare).optional(IdentifyController::COMPARE, |_| true),
        Entry::new(opcode::WRITE_ZEROES, write_zeroes)
            .changes_data()
            .optional(IdentifyController::WRITE_ZEROES, zeroes_are_written),
        Entry::new(opcode::DATASET_MANAGEMENT, dataset_management)
            .changes_data()
            .optional(IdentifyController::DATASET_MANAGEMENT, blocks_are_deallocated),
        Entry::new(opcode::RESERVATION_REGISTER, register).of_reservations(),
        Entry::new(opcode::RESERVATION_REPORT, report).of_reservations(),
        Entry::new(opcode::RESERVATION_ACQUIRE, acquire).of_reservations(),
        Entry::new(opcode::RESERVATION_RELEASE, release).of_reservations(),
        // Connect, which is of no I/O command set.
        Entry::new(opcode::FABRICS, fabrics).unlisted(),
    ]
}

fn zeroes_are_written(features: &Features) -> bool {
    features.write_zeroes
}

fn blocks_are_deallocated(features: &Features) -> bool {
    features.deallocate
}

impl<'a, P: Port, S: Storage> Checks<'a, P, S> {
    /// The namespace of a command that changes blocks: refused before any data moves where they cannot be changed.
    #[inline]
    fn writable(
        &self,
        arrival: &Arrival<'_>,
        subsystem: Option<&Served>,
        identifier: u32,
    ) -> Result<(usize, &'a Medium<S>), Reply> {
        let (place, medium) = self.reach(arrival, subsystem, identifier, Access::Write)?;
        if medium.features().read_only {
            return Err(refused(Status::NAMESPACE_IS_WRITE_PROTECTED));
        }
        Ok((place, medium))
    }

    /// The same, where all namespaces of the subsystem are able to do this.
    fn writable_by(
        &self,
        arrival: &Arrival<'_>,
        subsystem: Option<&Served>,
        identifier: u32,
        needs: fn(&Features) -> bool,
    ) -> Result<(usize, &'a Medium<S>), Reply> {
        let found = self.writable(arrival, subsystem, identifier)?;
        if !subsystem.is_some_and(|subsystem| self.media.are_able(subsystem.namespaces().places(), needs)) {
            return Err(refused(Status::INVALID_COMMAND_OPCODE));
        }
        Ok(found)
    }

    /// Blocks lie in the namespace, and their data is as long as they are.
    #[inline]
    fn check_blocks(&self, range: &BlockRange, medium: &Medium<S>) -> Result<(), Reply> {
        let extent = medium.geometry().extent(range.lba, range.blocks);
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
}

/// Read (NVM 3.2.4).
fn read<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (subsystem, range) = checks.ready_in(arrival, BlockRange::decode(arrival.entry))?;
    let (namespace, medium) = checks.reach(arrival, subsystem, range.namespace, Access::Read)?;
    checks.check_blocks(&range, medium)?;
    Ok((Work::Read { namespace, lba: range.lba, blocks: range.blocks }, range.data))
}

/// Write (NVM 3.2.6).
fn write<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (subsystem, range) = checks.ready_in(arrival, BlockRange::decode(arrival.entry))?;
    let (namespace, medium) = checks.writable(arrival, subsystem, range.namespace)?;
    checks.check_blocks(&range, medium)?;
    Ok((Work::Write { namespace, lba: range.lba, blocks: range.blocks }, range.data))
}

/// Compare (NVM 3.2.1).
fn compare<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (subsystem, range) = checks.ready_in(arrival, BlockRange::decode(arrival.entry))?;
    let (namespace, medium) = checks.reach(arrival, subsystem, range.namespace, Access::Read)?;
    checks.check_blocks(&range, medium)?;
    Ok((Work::Compare { namespace, lba: range.lba, blocks: range.blocks }, range.data))
}

/// Write Zeroes (NVM 3.2.8).
fn write_zeroes<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (subsystem, zeroes) = checks.ready_in(arrival, WriteZeroes::decode(arrival.entry))?;
    let WriteZeroes { lba, blocks, deallocate, .. } = zeroes;
    let (namespace, medium) = checks.writable_by(arrival, subsystem, zeroes.namespace, zeroes_are_written)?;
    let extent = medium.geometry().extent(lba, blocks);
    let (_, bytes) = extent.map_err(|_| refused(Status::LBA_OUT_OF_RANGE))?;
    if bytes > MAX_WRITE_ZEROES_BYTES {
        // Above WZSL (NVM figure 102).
        return Err(refused(Status::INVALID_FIELD));
    }
    Ok((Work::WriteZeroes { namespace, lba, blocks, deallocate }, DataPointer::NONE))
}

/// Dataset Management (NVM 3.2.3).
fn dataset_management<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (subsystem, dataset) = checks.ready_in(arrival, DatasetManagement::decode(arrival.entry))?;
    let (namespace, _) = checks.writable_by(arrival, subsystem, dataset.namespace, blocks_are_deallocated)?;
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
fn flush_namespace<P: Port, S: Storage>(checks: &mut Checks<'_, P, S>, arrival: &Arrival<'_>) -> Accepted {
    let (subsystem, named) = checks.ready_in(arrival, Ok(arrival.entry.namespace.get()))?;
    // Flushing one of several namespaces stands for all of them only where there is one for ever (VWC bits 2:1 say that the
    // broadcast identifier is supported exactly then).
    let only = subsystem.is_some_and(|subsystem| subsystem.namespaces().highest() == 1);
    let named = if named == BROADCAST_NAMESPACE && only { 1 } else { named };
    let (namespace, _) = checks.reach(arrival, subsystem, named, Access::Write)?;
    Ok((Work::Flush { namespace }, DataPointer::NONE))
}
