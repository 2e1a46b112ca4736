//! Commands in flight: one slot each, from the capsule's arrival until the device is done with the response.

use super::buffers::{Buffer, Buffers};
use super::connect::Seating;
use super::log::Part;
use crate::storage::Operation;
use crate::wire::{self, DATASET_RANGE_BYTES, DatasetRange, Status};
use frwr_engine::{ConnectionId, Received, RemoteSegment};
use frwr_mempool::mutant;
use zerocopy::FromBytes;

/// What a command does once its data is there, or to have its data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Everything was said when it arrived.
    Nothing,
    /// Data in: [`wire::ConnectData`].
    Connect(Seating),
    /// Data out: a structure of 4096 bytes.
    Identify { structure: u8, namespace: u32 },
    /// Data out.
    Read { namespace: usize, lba: u64, blocks: u32 },
    /// Data in.
    Write { namespace: usize, lba: u64, blocks: u32 },
    /// Data in, and the blocks in a second buffer.
    Compare { namespace: usize, lba: u64, blocks: u32 },
    /// No data.
    WriteZeroes { namespace: usize, lba: u64, blocks: u32, deallocate: bool },
    /// Data in: [`wire::DatasetRange`]s, of which `next` is the next one to be deallocated.
    Deallocate { namespace: usize, ranges: u32, next: u32 },
    /// No data.
    Flush { namespace: usize },
    /// No data: the flush behind a write that has to be on the medium before it is answered.
    Harden { namespace: usize },
    /// Data out: a part of a page.
    LogPage(Part),
    /// Data out: 16 bytes.
    HostIdentifier,
    /// No data: a command of another core's queue.
    Abort { controller: usize, abort: wire::Abort },
    /// No data: a feature was changed, and other cores have to go by it before the host is answered.
    SettingsEverywhere { controller: usize, version: u32 },
}

impl Work {
    /// The step behind taking a buffer, and the first one for commands without data.
    pub(super) fn first_phase(&self) -> Phase {
        match self {
            Self::Connect(_) | Self::Write { .. } | Self::Compare { .. } | Self::Deallocate { .. } => Phase::Fetch,
            Self::Identify { .. }
            | Self::LogPage(_)
            | Self::HostIdentifier
            | Self::Abort { .. }
            | Self::SettingsEverywhere { .. } => Phase::Execute,
            Self::Read { .. } | Self::Flush { .. } | Self::WriteZeroes { .. } | Self::Harden { .. } => Phase::Submit,
            Self::Nothing => Phase::Reply(Reply::of(Status::INTERNAL_ERROR)),
        }
    }

    /// The step behind the arrival of its data.
    pub(super) fn arrived(&self) -> Phase {
        match self {
            Self::Write { .. } | Self::Compare { .. } => Phase::Submit,
            _ => Phase::Execute,
        }
    }

    /// Its data may follow the command in the capsule.
    pub(super) fn takes_in_capsule_data(&self) -> bool {
        // Linux sends the data of an I/O queue's Connect so, where there is room.
        matches!(self, Self::Connect(_) | Self::Write { .. } | Self::Compare { .. } | Self::Deallocate { .. })
    }

    /// A part of it was executed already.
    pub(super) fn is_half_done(&self) -> bool {
        matches!(self, Self::Harden { .. } | Self::Deallocate { next: 1.., .. })
    }

    /// It leaves something to be written, which may have to be on the medium before it is answered.
    pub(super) fn is_written(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteZeroes { .. })
    }

    /// It needs no buffer.
    pub(super) fn is_without_data(&self) -> bool {
        matches!(
            self,
            Self::Flush { .. } | Self::WriteZeroes { .. } | Self::Abort { .. } | Self::SettingsEverywhere { .. }
        )
    }

    /// Buffers that it takes, all of them at once.
    pub(super) fn buffers(&self) -> usize {
        if matches!(self, Self::Compare { .. }) { 2 } else { 1 }
    }

    /// The index of the namespace that it is about.
    pub(super) fn namespace(&self) -> Option<usize> {
        match self {
            Self::Read { namespace, .. }
            | Self::Write { namespace, .. }
            | Self::Compare { namespace, .. }
            | Self::WriteZeroes { namespace, .. }
            | Self::Deallocate { namespace, .. }
            | Self::Flush { namespace }
            | Self::Harden { namespace } => Some(*namespace),
            Self::Nothing
            | Self::Connect(_)
            | Self::Identify { .. }
            | Self::LogPage(_)
            | Self::HostIdentifier
            | Self::Abort { .. }
            | Self::SettingsEverywhere { .. } => None,
        }
    }

    /// The first block, for the error log.
    pub(super) fn lba(&self) -> u64 {
        match self {
            Self::Read { lba, .. }
            | Self::Write { lba, .. }
            | Self::Compare { lba, .. }
            | Self::WriteZeroes { lba, .. } => *lba,
            _ => 0,
        }
    }
}

/// What the response says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) status: Status,
    pub(super) result: u64,
    /// The buffer's data goes in front of it.
    pub(super) with_data: bool,
}

impl Reply {
    pub(super) fn of(status: Status) -> Self {
        Self { status, result: 0, with_data: false }
    }

    pub(super) fn result(result: u64) -> Self {
        Self { status: Status::SUCCESS, result, with_data: false }
    }

    pub(super) fn data() -> Self {
        Self { status: Status::SUCCESS, result: 0, with_data: true }
    }
}

/// The next step of a command, or whom it waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// To take a buffer.
    TakeBuffer,
    /// To fetch its data from the host, or from its capsule.
    Fetch,
    /// Waits for RDMA READs.
    Fetching,
    /// To be executed here: its data has arrived, or is made now.
    Execute,
    /// To be submitted to storage.
    Submit,
    /// Waits for storage.
    Storing,
    /// Waits for what another core says.
    Elsewhere,
    /// To be answered.
    Reply(Reply),
    /// Waits for the device to be done with the response.
    Replying,
}

/// Data of a command as its capsule describes it.
#[derive(Debug)]
pub(super) enum Data {
    /// None.
    None,
    /// In the host's memory.
    Remote(RemoteSegment),
    /// In several pieces of the host's memory, which the capsule lists: its receive is kept until the device has
    /// the list.
    Scattered {
        /// The capsule.
        received: Received,
        /// Where the list of keyed data blocks starts in it.
        offset: u32,
        /// Data blocks, at most [`frwr_engine::MAX_TRANSFER_OPERATIONS`].
        count: u32,
        /// Bytes of all of them.
        length: u32,
    },
    /// In the capsule, whose receive is kept until the data was copied.
    InCapsule {
        /// The capsule.
        received: Received,
        /// Where the data starts in it.
        offset: u32,
        /// Bytes.
        length: u32,
    },
}

impl Data {
    pub(super) fn length(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Remote(remote) => remote.length,
            Self::InCapsule { length, .. } | Self::Scattered { length, .. } => *length,
        }
    }
}

/// A command.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) connection: ConnectionId,
    pub(super) command_id: u16,
    /// The key that the response invalidates.
    pub(super) invalidate: Option<u32>,
    /// It names memory of the host's.
    pub(super) names_keys: bool,
    /// NSID as the command said it, for the error log.
    pub(super) namespace: u32,
    /// A write has to be on the medium before it is answered.
    pub(super) durable: bool,
    /// Blocks are read when what a volatile cache holds is on the medium: next, or now, that is flushed.
    pub(super) commit_first: bool,
    pub(super) work: Work,
    pub(super) data: Data,
    pub(super) buffer: Option<Buffer>,
    /// What [`Work::Compare`] compares its data with.
    pub(super) second: Option<Buffer>,
    pub(super) phase: Phase,
    /// It was aborted while its data was fetched: it is answered then, and not executed.
    pub(super) aborted: bool,
    /// The place of the controller whose queue brought it; `None` as long as that queue's connection is there.
    pub(super) left_to: Option<u16>,
}

impl Slot {
    /// A range of a Dataset Management command, which has arrived in the command's buffer.
    pub(super) fn range(&self, buffers: &Buffers, at: u32) -> Option<DatasetRange> {
        let mut bytes = [0; DATASET_RANGE_BYTES];
        buffers.read(self.buffer.as_ref()?, at as usize * DATASET_RANGE_BYTES, &mut bytes).ok()?;
        DatasetRange::read_from_bytes(&bytes).ok()
    }

    /// What it asks of the storage of which namespace; `None` for what no storage does.
    #[inline]
    pub(super) fn operation(&self, buffers: &Buffers) -> Option<(usize, Operation)> {
        let held = if matches!(self.work, Work::Compare { .. }) { &self.second } else { &self.buffer };
        let buffer = held.as_ref().map_or(0, |buffer| buffers.offset(buffer));
        Some(match self.work {
            Work::Read { namespace, .. } | Work::Compare { namespace, .. } if self.commit_first => {
                (namespace, Operation::Flush)
            }
            Work::Read { namespace, lba, blocks } | Work::Compare { namespace, lba, blocks } => {
                (namespace, Operation::Read { lba, blocks, buffer })
            }
            Work::Write { namespace, lba, blocks } => (namespace, Operation::Write { lba, blocks, buffer }),
            Work::WriteZeroes { namespace, lba, blocks, deallocate } => {
                (namespace, Operation::WriteZeroes { lba, blocks, deallocate })
            }
            Work::Flush { namespace } | Work::Harden { namespace } => (namespace, Operation::Flush),
            Work::Deallocate { namespace, next, .. } => {
                let range = self.range(buffers, next)?;
                (namespace, Operation::Deallocate { lba: range.lba.get(), blocks: range.blocks.get() })
            }
            Work::Nothing
            | Work::Connect(_)
            | Work::Identify { .. }
            | Work::LogPage(_)
            | Work::HostIdentifier
            | Work::Abort { .. }
            | Work::SettingsEverywhere { .. } => return None,
        })
    }

    /// A command that takes its first step next; it invalidates nothing.
    #[inline(always)]
    pub(super) fn new(connection: ConnectionId, command_id: u16, work: Work, data: Data) -> Self {
        let phase = Phase::TakeBuffer;
        let (buffer, second) = (None, None);
        Self {
            connection,
            command_id,
            invalidate: None,
            names_keys: false,
            namespace: 0,
            durable: false,
            commit_first: false,
            work,
            data,
            buffer,
            second,
            phase,
            aborted: false,
            left_to: None,
        }
    }
}

/// All slots of one core. Nothing grows after it was made.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<(u32, Option<Slot>)>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self { slots: (0..count).map(|_| (0, None)).collect(), free: (0..count).rev().collect() }
    }

    pub(super) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Indices are below this.
    pub(super) fn count(&self) -> u32 {
        // As many as it was made with.
        self.slots.len() as u32
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// The index of a free slot, and where its command goes at once; `None` where all are taken.
    #[inline(always)]
    pub(super) fn reserve(&mut self) -> Option<(u32, &mut Option<Slot>)> {
        let index = self.free.pop()?;
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        *generation = generation.wrapping_add(1);
        Some((index, slot))
    }

    /// The slot's index; `None` where all are taken: what the command holds would be lost then.
    pub(super) fn insert(&mut self, command: Slot) -> Option<u32> {
        let (index, slot) = self.reserve()?;
        *slot = Some(command);
        Some(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Slot> {
        self.slots.get_mut(index as usize)?.1.as_mut()
    }

    /// A command, and what engine and storage are given to name it.
    #[inline]
    pub(super) fn with_cookie(&mut self, index: u32) -> Option<(u64, &mut Slot)> {
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        Some((cookie(*generation, index), slot.as_mut()?))
    }

    /// The command that a cookie names, unless its slot was used again since.
    #[inline]
    pub(super) fn named(&mut self, cookie: u64) -> Option<(u32, &mut Slot)> {
        // The lower and the upper half.
        let (index, generation) = (cookie as u32, (cookie >> 32) as u32);
        let (now, slot) = self.slots.get_mut(index as usize)?;
        // S7: what is said of a former command is said of this one.
        let is_it = *now == generation || mutant!(S7_target_slot);
        Some((index, slot.as_mut().filter(|_| is_it)?))
    }

    /// The command of a connection that was not answered yet.
    pub(super) fn find(&self, connection: ConnectionId, command_id: u16) -> Option<u32> {
        let named = |(_, slot): &(u32, Option<Slot>)| {
            slot.as_ref().is_some_and(|slot| {
                let answered = matches!(slot.phase, Phase::Reply(_) | Phase::Replying);
                slot.connection == connection && slot.command_id == command_id && !answered
            })
        };
        // There are fewer slots than an index can name.
        self.slots.iter().position(named).map(|index| index as u32)
    }

    /// Some command's answer needed nothing but itself, and is on its way.
    pub(super) fn answers(&self) -> bool {
        self.slots.iter().filter_map(|(_, slot)| slot.as_ref()).any(|slot| matches!(slot.work, Work::Nothing))
    }

    /// A connection is gone: commands of it that the storage has belong to a controller's place from now on. How many.
    pub(super) fn orphan(&mut self, connection: ConnectionId, place: Option<usize>) -> u32 {
        // There are at most 4096 controllers.
        let left_to = place.map(|place| place as u16);
        let mut orphans = 0;
        for slot in self.slots.iter_mut().filter_map(|(_, slot)| slot.as_mut()) {
            if slot.connection == connection && matches!(slot.phase, Phase::Storing) {
                slot.left_to = left_to;
                orphans += 1;
            }
        }
        orphans
    }

    /// Whether the storage has a command of any of these connections.
    pub(super) fn has_storing(&self, wanted: impl Fn(ConnectionId) -> bool) -> bool {
        let storing = |slot: &Slot| matches!(slot.phase, Phase::Storing) && wanted(slot.connection);
        self.slots.iter().filter_map(|(_, slot)| slot.as_ref()).any(storing)
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, index: u32) -> Option<Slot> {
        let slot = self.slots.get_mut(index as usize)?.1.take()?;
        if !mutant!(S10_target_slot) {
            self.free.push(index);
        }
        Some(slot)
    }

    /// What engine and storage give back with a completion.
    pub(super) fn cookie(&self, index: u32) -> u64 {
        let generation = self.slots.get(index as usize).map_or(0, |(generation, _)| *generation);
        cookie(generation, index)
    }

    /// The index of the slot that a cookie names, unless it was used again since.
    pub(super) fn index_of(&mut self, cookie: u64) -> Option<u32> {
        self.named(cookie).map(|(index, _)| index)
    }
}

fn cookie(generation: u32, index: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use super::{Data, Slot, Slots, Work};
    use frwr_engine::ConnectionId;

    #[test]
    fn a_cookie_names_its_own_command_and_none_that_has_its_slot_later() {
        let command = || Slot::new(ConnectionId { index: 0, epoch: 1 }, 7, Work::Nothing, Data::None);
        let mut slots = Slots::new(1);
        let first = slots.insert(command()).unwrap();
        let former = slots.cookie(first);
        assert_eq!(slots.index_of(former), Some(first));
        assert!(slots.remove(first).is_some());
        assert_eq!(slots.index_of(former), None, "it has ended");
        let second = slots.insert(command()).unwrap();
        assert_eq!(second, first, "there is one slot");
        assert_eq!(slots.index_of(former), None, "of a former command");
        assert_eq!(slots.index_of(slots.cookie(second)), Some(second));
    }
}
