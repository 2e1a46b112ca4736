//! What commands ask for, and what they are answered.

use super::media::tally::CommandKind;
use super::refusal::Refusal;
use super::reservation::{book::Settling, state::Request};
use crate::wire::{self, Connect, Property, Status};

/// Aborts of one controller that are under way on another core at a time (ACL, Base figure 275).
pub(super) const MAX_ABORTS: u8 = 4;

/// What of a Connect is needed once its data is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seating {
    pub(super) queue_id: u16,
    /// 0-based, and below the entries that the connect request asked for.
    pub(super) queue_size: u16,
    pub(super) keep_alive_timeout: u32,
}

impl Seating {
    pub(super) fn of(connect: &Connect) -> Self {
        let &Connect { queue_id, queue_size, keep_alive_timeout, .. } = connect;
        Self { queue_id, queue_size, keep_alive_timeout }
    }
}

/// What a host wants of a log page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) page: u8,
    pub(super) specific: u8,
    pub(super) retain_event: bool,
    pub(super) offset: u32,
    pub(super) length: u32,
}

/// What a command does once its data is there, or to have its data. Its kind has a byte of its own, since each step asks for it.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Work {
    /// Everything was said when it arrived.
    Nothing,
    /// Data in: [`wire::ConnectData`].
    Connect(Seating),
    /// Data in: a message of this many bytes.
    AuthenticationSend { length: u32 },
    /// Data out: a message, and zeros behind it.
    AuthenticationReceive { length: u32 },
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
    /// Data in, to the first part of a buffer: the first of a fused pair, which the slot `partner` has the second of.
    FusedCompare { namespace: usize, lba: u64, blocks: u16, partner: u32 },
    /// Data in, to the second part of the first's buffer: the second of a pair.
    FusedWrite { namespace: usize, lba: u64, blocks: u16, partner: u32 },
    /// No data: the flush behind both.
    FusedHarden { namespace: usize, partner: u32 },
    /// No data: both are over, and what they are answered, in order.
    FusedEnd { namespace: usize, partner: u32, compared: Status, written: Status },
    /// No data: the flush behind a write that has to be on the medium before it is answered.
    Harden { namespace: usize, kind: CommandKind },
    /// Data out: a part of a page.
    LogPage(Part),
    /// Data out: 16 bytes.
    HostIdentifier,
    /// No data: a command of any core's queue.
    Abort { controller: usize, abort: wire::Abort },
    /// No data.
    PropertyGet { controller: usize, property: Property },
    /// No data: CC is set.
    Configure { controller: usize, configuration: u32 },
    /// No data: a feature was changed, and other cores have to go by it before the host is answered.
    SettingsEverywhere { controller: usize, version: u32 },
    /// Data in: keys.
    Reserve { namespace: usize, request: Request },
    /// No data any more: it was done, and all cores and the file have to have it before the host is answered. `None`:
    /// several namespaces'.
    ReservationSettles { namespace: Option<usize>, settling: Settling },
    /// No data: whether the reservations of a namespace survive a loss of power, by its identifier, or of all; `None`:
    /// it is asked.
    Persistence { namespace: u32, persists: Option<bool> },
    /// Data out: a report of this many bytes.
    ReservationReport { namespace: usize, length: u32 },
}

impl Work {
    /// The step behind taking a buffer, and the first one for commands without data.
    #[inline]
    pub(super) fn first_phase(&self) -> Phase {
        match self {
            Self::Connect(_)
            | Self::AuthenticationSend { .. }
            | Self::Write { .. }
            | Self::Compare { .. }
            | Self::Reserve { .. }
            | Self::FusedCompare { .. }
            | Self::FusedWrite { .. }
            | Self::Deallocate { .. } => Phase::Fetch,
            Self::AuthenticationReceive { .. }
            | Self::Identify { .. }
            | Self::LogPage(_)
            | Self::HostIdentifier
            | Self::ReservationSettles { .. }
            | Self::ReservationReport { .. }
            | Self::Abort { .. }
            | Self::PropertyGet { .. }
            | Self::Configure { .. }
            | Self::FusedEnd { .. }
            | Self::Persistence { .. }
            | Self::SettingsEverywhere { .. }
            | Self::Nothing => Phase::Execute,
            Self::Read { .. }
            | Self::Flush { .. }
            | Self::WriteZeroes { .. }
            | Self::Harden { .. }
            | Self::FusedHarden { .. } => Phase::Submit,
        }
    }

    /// The step behind the arrival of its data.
    pub(super) fn arrived(&self) -> Phase {
        match self {
            Self::Write { .. } | Self::Compare { .. } | Self::FusedWrite { .. } => Phase::Submit,
            _ => Phase::Execute,
        }
    }

    /// Its data may follow the command in the capsule.
    pub(super) fn takes_in_capsule_data(&self) -> bool {
        // Linux sends the data of an I/O queue's Connect so, where there is room.
        matches!(
            self,
            Self::Connect(_)
                | Self::AuthenticationSend { .. }
                | Self::Write { .. }
                | Self::Compare { .. }
                | Self::Reserve { .. }
                | Self::FusedCompare { .. }
                | Self::FusedWrite { .. }
                | Self::Deallocate { .. }
        )
    }

    /// Bytes that it has room for, of a message that it asks for.
    pub(super) fn message_room(&self) -> Option<u32> {
        if let Self::AuthenticationReceive { length } = self { Some(*length) } else { None }
    }

    /// A part of it was executed already, or may be by its partner: of a pair both are executed, or none.
    pub(super) fn is_half_done(&self) -> bool {
        self.is_fused() || matches!(self, Self::Harden { .. } | Self::Deallocate { next: 1.., .. })
    }

    /// It is one of a fused pair.
    pub(super) fn is_fused(&self) -> bool {
        matches!(
            self,
            Self::FusedCompare { .. } | Self::FusedWrite { .. } | Self::FusedHarden { .. } | Self::FusedEnd { .. }
        )
    }

    /// It leaves something to be written, which may have to be on the medium before it is answered.
    pub(super) fn is_written(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteZeroes { .. } | Self::FusedWrite { .. })
    }

    /// It needs no buffer.
    pub(super) fn is_without_data(&self) -> bool {
        matches!(
            self,
            Self::Flush { .. }
                | Self::WriteZeroes { .. }
                | Self::Abort { .. }
                | Self::PropertyGet { .. }
                | Self::Configure { .. }
                | Self::Persistence { .. }
                | Self::SettingsEverywhere { .. }
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
            | Self::FusedCompare { namespace, .. }
            | Self::FusedWrite { namespace, .. }
            | Self::FusedHarden { namespace, .. }
            | Self::FusedEnd { namespace, .. }
            | Self::WriteZeroes { namespace, .. }
            | Self::Deallocate { namespace, .. }
            | Self::Flush { namespace }
            | Self::Reserve { namespace, .. }
            | Self::ReservationReport { namespace, .. }
            | Self::Harden { namespace, .. } => Some(*namespace),
            Self::ReservationSettles { namespace, .. } => *namespace,
            Self::Nothing
            | Self::Connect(_)
            | Self::AuthenticationSend { .. }
            | Self::AuthenticationReceive { .. }
            | Self::Identify { .. }
            | Self::LogPage(_)
            | Self::HostIdentifier
            | Self::Abort { .. }
            | Self::PropertyGet { .. }
            | Self::Configure { .. }
            | Self::Persistence { .. }
            | Self::SettingsEverywhere { .. } => None,
        }
    }

    /// It is about the blocks of a namespace, and not about who may use them.
    pub(super) fn is_of_blocks(&self) -> bool {
        let is_reservation =
            matches!(self, Self::Reserve { .. } | Self::ReservationSettles { .. } | Self::ReservationReport { .. });
        self.namespace().is_some() && !is_reservation
    }

    /// The namespace that it reads blocks of.
    pub(super) fn reads(&self) -> Option<usize> {
        match self {
            Self::Read { namespace, .. } | Self::Compare { namespace, .. } | Self::FusedCompare { namespace, .. } => {
                Some(*namespace)
            }
            _ => None,
        }
    }

    /// One of a namespace may reach beyond so many blocks.
    pub(super) fn may_reach_beyond(&self, end: u64) -> bool {
        match self {
            Self::Read { lba, blocks, .. }
            | Self::Write { lba, blocks, .. }
            | Self::Compare { lba, blocks, .. }
            | Self::WriteZeroes { lba, blocks, .. } => lba.saturating_add((*blocks).into()) > end,
            Self::FusedCompare { lba, blocks, .. } | Self::FusedWrite { lba, blocks, .. } => {
                lba.saturating_add((*blocks).into()) > end
            }
            Self::Flush { .. }
            | Self::Harden { .. }
            | Self::FusedHarden { .. }
            | Self::FusedEnd { .. }
            | Self::Reserve { .. }
            | Self::ReservationSettles { .. }
            | Self::ReservationReport { .. } => false,
            // Of others, such as lists of ranges, nothing is known.
            _ => true,
        }
    }

    /// The first block, for the error log.
    pub(super) fn lba(&self) -> u64 {
        match self {
            Self::Read { lba, .. }
            | Self::Write { lba, .. }
            | Self::Compare { lba, .. }
            | Self::FusedCompare { lba, .. }
            | Self::FusedWrite { lba, .. }
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

/// The answer to a Connect that is refused.
pub(super) fn refused_connect(refusal: Refusal) -> Reply {
    let (status, result) = refusal.answer();
    Reply { result, ..Reply::of(status) }
}

/// The answer to a command that is refused for what it says.
pub(super) fn refused(status: Status) -> Reply {
    Reply::of(status.do_not_retry())
}

/// The next step of a command, or whom it waits for. As with [`Work`].
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
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
    /// Of a fused pair: waits for the other one.
    Paired,
    /// To be answered.
    Reply(Reply),
    /// Waits for the device to be done with the response.
    Replying,
}

impl Phase {
    /// What a command in this phase waits for, for people.
    pub(super) fn waits_for(&self) -> &'static str {
        match self {
            Self::TakeBuffer => "a data buffer",
            Self::Fetch | Self::Fetching => "its data from the host",
            Self::Execute | Self::Reply(_) | Self::Replying => "its answer",
            Self::Submit => "a place in the storage",
            Self::Storing => "the storage",
            Self::Elsewhere => "another core",
            Self::Paired => "the other command of its fused pair",
        }
    }
}

/// A command that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedCommand {
    pub(super) queue_id: u16,
    pub(super) command_id: u16,
    /// As in the completion.
    pub(super) status: u16,
    pub(super) lba: u64,
    pub(super) namespace: u32,
}
