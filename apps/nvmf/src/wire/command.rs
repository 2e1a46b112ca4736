//! What a submission queue entry asks for: admin commands (Base 5), fabrics commands (Base 6) and I/O commands (NVM 3).

use super::{
    DataPointer, IdentifyController, Property, ReservationAcquire, ReservationRegister, ReservationRelease,
    ReservationReport, Status, SubmissionQueueEntry,
};
use zerocopy::little_endian::U32;

/// Opcodes (Base figures 138 and 383, NVM figure 10). The same number means different commands on the two kinds of queues.
pub mod opcode {
    /// Admin.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Admin.
    pub const IDENTIFY: u8 = 0x06;
    /// Admin.
    pub const ABORT: u8 = 0x08;
    /// Admin.
    pub const SET_FEATURES: u8 = 0x09;
    /// Admin.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Admin.
    pub const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0c;
    /// Admin.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Both kinds of queues; the fabrics command type says which command.
    pub const FABRICS: u8 = 0x7f;
    /// I/O.
    pub const FLUSH: u8 = 0x00;
    /// I/O.
    pub const WRITE: u8 = 0x01;
    /// I/O.
    pub const READ: u8 = 0x02;
    /// I/O.
    pub const COMPARE: u8 = 0x05;
    /// I/O.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// I/O.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// I/O.
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    /// I/O.
    pub const RESERVATION_REPORT: u8 = 0x0e;
    /// I/O.
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    /// I/O.
    pub const RESERVATION_RELEASE: u8 = 0x15;
}

/// ONCS: the optional commands, by what their opcodes stand for.
impl IdentifyController {
    /// ONCS bit 0.
    pub const COMPARE: u16 = 1;
    /// ONCS bit 2.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS bit 3.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS bit 5.
    pub const RESERVATIONS: u16 = 1 << 5;
}

/// Fabrics command types (Base figure 386).
pub mod fabrics {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
}

/// CNS values of Identify (Base figure 273).
pub mod cns {
    /// Identify Namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const DESCRIPTORS: u8 = 0x03;
    /// I/O command set specific Identify Namespace.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// I/O command set specific Identify Controller.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
}

/// Feature identifiers (Base figure 317).
pub mod feature {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Interrupt Coalescing; not over fabrics.
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNCHRONOUS_EVENTS: u8 = 0x0b;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
    /// Reservation Notification Mask: of [`crate::wire::ReservationNotificationKind`], the bits of those that the host
    /// does not want.
    pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
    /// Reservation Persistence; bit 0, PTPL: reservations and registrations survive a loss of power.
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// Which table of opcodes applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Queue 0.
    Admin,
    /// All others.
    Io,
}

/// Connect (Base 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// RECFMT.
    pub record_format: u16,
    /// QID.
    pub queue_id: u16,
    /// SQSIZE, 0-based.
    pub queue_size: u16,
    /// CATTR; bit 2: the host disables SQ flow control.
    pub attributes: u8,
    /// KATO in milliseconds; 0 for no keep alive.
    pub keep_alive_timeout: u32,
    /// Where [`super::ConnectData`] lies.
    pub data: DataPointer,
}

/// ATTRIB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySize {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

/// Property Get (Base 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyGet {
    /// Which.
    pub property: Property,
    /// Its size.
    pub size: PropertySize,
}

/// Property Set (Base 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertySet {
    /// Which.
    pub property: Property,
    /// Its size.
    pub size: PropertySize,
    /// The value; the upper half is not to be read where the size is 4.
    pub value: u64,
}

/// Authentication Send or Authentication Receive (Base 6.1 and 6.2), of the one security protocol that there is for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationMessage {
    /// TL or AL: bytes of the message, or of the room for one.
    pub length: u32,
    /// Where it lies or goes.
    pub data: DataPointer,
}

impl AuthenticationMessage {
    /// SECP: the security protocol of NVMe over Fabrics authentication, with SPSP0 and SPSP1 of 01h.
    pub(super) const PROTOCOL: u32 = 0xe9 << 24 | 0x01 << 16 | 0x01 << 8;
    /// Bits of command dword 10 that say it.
    pub(super) const PROTOCOL_BITS: u32 = 0xffff_ff00;
}

/// Identify (Base 5.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// CNS.
    pub structure: u8,
    /// NSID.
    pub namespace: u32,
    /// Where the structure goes.
    pub data: DataPointer,
}

/// Set Features (Base 5.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeatures {
    /// FID.
    pub feature: u8,
    /// SV: to be kept across resets.
    pub save: bool,
    /// NSID; of no meaning where the feature is not one of namespaces.
    pub namespace: u32,
    /// Command dword 11.
    pub value: u32,
}

/// Get Features (Base 5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeatures {
    /// FID.
    pub feature: u8,
    /// SEL, which value is wanted.
    pub select: Select,
    /// NSID, as for [`SetFeatures`].
    pub namespace: u32,
    /// Command dword 11.
    pub value: u32,
    /// Where the value goes if it is a data structure.
    pub data: DataPointer,
}

/// SEL of Get Features (Base figure 196).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The value in force.
    Current,
    /// The value after a reset.
    Default,
    /// The saved value.
    Saved,
    /// What can be done with the feature.
    Capabilities,
}

/// Get Log Page (Base 5.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// LID.
    pub page: u8,
    /// LSP.
    pub specific: u8,
    /// RAE: the event that the page explains is not cleared.
    pub retain_event: bool,
    /// NUMD in bytes, 4 to 2^34.
    pub length: u64,
    /// LPO in bytes.
    pub offset: u64,
    /// OT: `offset` is an index and no number of bytes.
    pub offset_is_index: bool,
    /// NSID.
    pub namespace: u32,
    /// Where the page goes.
    pub data: DataPointer,
}

/// Abort (Base 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// SQID.
    pub queue_id: u16,
    /// CID.
    pub command_id: u16,
}

/// Write Zeroes (NVM 3.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteZeroes {
    /// NSID.
    pub namespace: u32,
    /// SLBA.
    pub lba: u64,
    /// NLB as a count, 1 to 65536.
    pub blocks: u32,
    /// DEAC: the blocks should be deallocated.
    pub deallocate: bool,
}

/// Dataset Management (NVM 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetManagement {
    /// NSID.
    pub namespace: u32,
    /// NR as a count, 1 to 256.
    pub ranges: u32,
    /// AD: the ranges may be deallocated. The other attributes are hints.
    pub deallocate: bool,
    /// The ranges, [`super::DATASET_RANGE_BYTES`] each.
    pub data: DataPointer,
}

/// Blocks of a namespace and where their data lies (NVM 3.2.4 and 3.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// NSID.
    pub namespace: u32,
    /// SLBA.
    pub lba: u64,
    /// NLB as a count, 1 to 65536.
    pub blocks: u32,
    /// The data.
    pub data: DataPointer,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Either kind of queue.
    Connect(Connect),
    /// Either kind of queue.
    AuthenticationSend(AuthenticationMessage),
    /// Either kind of queue.
    AuthenticationReceive(AuthenticationMessage),
    /// Admin queue.
    PropertyGet(PropertyGet),
    /// Admin queue.
    PropertySet(PropertySet),
    /// Admin queue.
    Identify(Identify),
    /// Admin queue.
    SetFeatures(SetFeatures),
    /// Admin queue.
    GetFeatures(GetFeatures),
    /// Admin queue.
    GetLogPage(GetLogPage),
    /// Admin queue.
    Abort(Abort),
    /// Admin queue.
    KeepAlive,
    /// Admin queue.
    AsynchronousEventRequest,
    /// I/O queue.
    Read(BlockRange),
    /// I/O queue.
    Write(BlockRange),
    /// I/O queue.
    Compare(BlockRange),
    /// I/O queue.
    WriteZeroes(WriteZeroes),
    /// I/O queue.
    DatasetManagement(DatasetManagement),
    /// I/O queue.
    Flush {
        /// NSID; may be [`super::BROADCAST_NAMESPACE`].
        namespace: u32,
    },
    /// I/O queue.
    ReservationRegister(ReservationRegister),
    /// I/O queue.
    ReservationAcquire(ReservationAcquire),
    /// I/O queue.
    ReservationRelease(ReservationRelease),
    /// I/O queue.
    ReservationReport(ReservationReport),
}

/// Decodes a command.
///
/// # Errors
/// The status to complete the command with: Invalid Command Opcode for what is not listed in [`Command`], Invalid Field
/// for fused commands, PRPs, and reserved values, and what [`DataPointer::decode`] says.
pub fn decode(entry: &SubmissionQueueEntry, queue: QueueKind) -> Result<Command, Status> {
    let command = match (entry.opcode, queue) {
        (opcode::FABRICS, _) => return fabrics_command(entry, queue),
        (opcode::IDENTIFY, QueueKind::Admin) => Identify::decode(entry).map(Command::Identify),
        (opcode::SET_FEATURES, QueueKind::Admin) => SetFeatures::decode(entry).map(Command::SetFeatures),
        (opcode::GET_FEATURES, QueueKind::Admin) => GetFeatures::decode(entry).map(Command::GetFeatures),
        (opcode::GET_LOG_PAGE, QueueKind::Admin) => GetLogPage::decode(entry).map(Command::GetLogPage),
        (opcode::ABORT, QueueKind::Admin) => Abort::decode(entry).map(Command::Abort),
        (opcode::KEEP_ALIVE, QueueKind::Admin) => Ok(Command::KeepAlive),
        (opcode::ASYNCHRONOUS_EVENT_REQUEST, QueueKind::Admin) => Ok(Command::AsynchronousEventRequest),
        (opcode::FLUSH, QueueKind::Io) => Ok(Command::Flush { namespace: entry.namespace.get() }),
        (opcode::READ, QueueKind::Io) => BlockRange::decode(entry).map(Command::Read),
        (opcode::WRITE, QueueKind::Io) => BlockRange::decode(entry).map(Command::Write),
        (opcode::COMPARE, QueueKind::Io) => BlockRange::decode(entry).map(Command::Compare),
        (opcode::WRITE_ZEROES, QueueKind::Io) => WriteZeroes::decode(entry).map(Command::WriteZeroes),
        (opcode::DATASET_MANAGEMENT, QueueKind::Io) => DatasetManagement::decode(entry).map(Command::DatasetManagement),
        (opcode::RESERVATION_REGISTER, QueueKind::Io) => {
            ReservationRegister::decode(entry).map(Command::ReservationRegister)
        }
        (opcode::RESERVATION_ACQUIRE, QueueKind::Io) => {
            ReservationAcquire::decode(entry).map(Command::ReservationAcquire)
        }
        (opcode::RESERVATION_RELEASE, QueueKind::Io) => {
            ReservationRelease::decode(entry).map(Command::ReservationRelease)
        }
        (opcode::RESERVATION_REPORT, QueueKind::Io) => ReservationReport::decode(entry).map(Command::ReservationReport),
        _ => Err(Status::INVALID_COMMAND_OPCODE.do_not_retry()),
    }?;
    check_flags(entry)?;
    Ok(command)
}

fn invalid_field() -> Status {
    Status::INVALID_FIELD.do_not_retry()
}

/// Whether the command is no fused one, and points to its data by an SGL. Byte 1 of a fabrics command is reserved (Base
/// figure 385): what a host writes there has no meaning.
///
/// # Errors
/// The status to complete the command with.
#[inline]
pub fn check_flags(entry: &SubmissionQueueEntry) -> Result<(), Status> {
    let hold = entry.opcode == opcode::FABRICS || entry.flags == SubmissionQueueEntry::FLAGS_SGL;
    if hold { Ok(()) } else { Err(invalid_field()) }
}

fn fabrics_command(entry: &SubmissionQueueEntry, queue: QueueKind) -> Result<Command, Status> {
    match (entry.fabrics_type(), queue) {
        (fabrics::CONNECT, _) => Connect::decode(entry).map(Command::Connect),
        (fabrics::AUTHENTICATION_SEND, _) => AuthenticationMessage::decode(entry).map(Command::AuthenticationSend),
        (fabrics::AUTHENTICATION_RECEIVE, _) => {
            AuthenticationMessage::decode(entry).map(Command::AuthenticationReceive)
        }
        (fabrics::PROPERTY_GET, QueueKind::Admin) => PropertyGet::decode(entry).map(Command::PropertyGet),
        (fabrics::PROPERTY_SET, QueueKind::Admin) => PropertySet::decode(entry).map(Command::PropertySet),
        _ => Err(Status::INVALID_COMMAND_OPCODE.do_not_retry()),
    }
}

fn property(entry: &SubmissionQueueEntry) -> Result<(Property, PropertySize), Status> {
    let [attributes, offset, ..] = entry.dwords_10_15;
    let size = match attributes.get() & 7 {
        0 => PropertySize::Four,
        1 => PropertySize::Eight,
        _ => return Err(invalid_field()),
    };
    let property = Property::from_offset(offset.get()).ok_or(invalid_field())?;
    let right_size = match property {
        Property::Capabilities => PropertySize::Eight,
        Property::Version | Property::Configuration | Property::Status => PropertySize::Four,
    };
    if size == right_size { Ok((property, size)) } else { Err(invalid_field()) }
}

/// A value of two dwords.
fn whole(low: U32, high: U32) -> u64 {
    u64::from(low.get()) | u64::from(high.get()) << 32
}

/// What is asked for, from an entry whose opcode says that it is that.
macro_rules! decodes {
    ($($value:ident($entry:ident) $body:block)+) => { $(
        impl $value {
            /// From the entry of such a command; its opcode and its flags are not looked at.
            ///
            /// # Errors
            /// The status to complete the command with, as [`decode`] says.
            #[inline]
            pub fn decode($entry: &SubmissionQueueEntry) -> Result<Self, Status> $body
        }
    )+ };
}

decodes! {
    Connect(entry) {
        let [format_and_id, size_and_attributes, keep_alive, ..] = entry.dwords_10_15;
        let [format_low, format_high, id_low, id_high] = format_and_id.to_bytes();
        let [size_low, size_high, attributes, _] = size_and_attributes.to_bytes();
        Ok(Self {
            record_format: u16::from_le_bytes([format_low, format_high]),
            queue_id: u16::from_le_bytes([id_low, id_high]),
            queue_size: u16::from_le_bytes([size_low, size_high]),
            attributes,
            keep_alive_timeout: keep_alive.get(),
            data: DataPointer::decode(entry.data)?,
        })
    }
    AuthenticationMessage(entry) {
        let [protocol, length, ..] = entry.dwords_10_15;
        if protocol.get() & Self::PROTOCOL_BITS != Self::PROTOCOL {
            return Err(invalid_field());
        }
        Ok(Self { length: length.get(), data: DataPointer::decode(entry.data)? })
    }
    PropertyGet(entry) {
        let (property, size) = property(entry)?;
        Ok(Self { property, size })
    }
    PropertySet(entry) {
        let (property, size) = property(entry)?;
        let [_, _, low, high, ..] = entry.dwords_10_15;
        Ok(Self { property, size, value: whole(low, high) })
    }
    Identify(entry) {
        let [structure, ..] = entry.dwords_10_15[0].to_bytes();
        let data = DataPointer::decode(entry.data)?;
        Ok(Self { structure, namespace: entry.namespace.get(), data })
    }
    SetFeatures(entry) {
        let [selection, value, ..] = entry.dwords_10_15;
        let [feature, _, _, flags] = selection.to_bytes();
        let namespace = entry.namespace.get();
        Ok(Self { feature, save: flags & 0x80 != 0, namespace, value: value.get() })
    }
    GetFeatures(entry) {
        let [selection, value, ..] = entry.dwords_10_15;
        let [feature, select, ..] = selection.to_bytes();
        let select = match select & 7 {
            0 => Select::Current,
            1 => Select::Default,
            2 => Select::Saved,
            3 => Select::Capabilities,
            _ => return Err(invalid_field()),
        };
        let (namespace, data) = (entry.namespace.get(), DataPointer::decode(entry.data)?);
        Ok(Self { feature, select, namespace, value: value.get(), data })
    }
    GetLogPage(entry) {
        let [selection, upper, offset_low, offset_high, index, _] = entry.dwords_10_15;
        let [page, specific, low, high] = selection.to_bytes();
        let [upper_low, upper_high, ..] = upper.to_bytes();
        let dwords = u64::from(u32::from_le_bytes([low, high, upper_low, upper_high])) + 1;
        Ok(Self {
            page,
            specific: specific & 0x7f,
            retain_event: specific & 0x80 != 0,
            length: dwords * 4,
            offset: whole(offset_low, offset_high),
            offset_is_index: index.get() & 1 << 23 != 0,
            namespace: entry.namespace.get(),
            data: DataPointer::decode(entry.data)?,
        })
    }
    Abort(entry) {
        let [queue_low, queue_high, id_low, id_high] = entry.dwords_10_15[0].to_bytes();
        let queue_id = u16::from_le_bytes([queue_low, queue_high]);
        Ok(Self { queue_id, command_id: u16::from_le_bytes([id_low, id_high]) })
    }
    BlockRange(entry) {
        let [low, high, blocks, ..] = entry.dwords_10_15;
        Ok(Self {
            namespace: entry.namespace.get(),
            lba: whole(low, high),
            blocks: (blocks.get() & 0xffff) + 1,
            data: DataPointer::decode(entry.data)?,
        })
    }
    WriteZeroes(entry) {
        let [low, high, blocks, ..] = entry.dwords_10_15;
        Ok(Self {
            namespace: entry.namespace.get(),
            lba: whole(low, high),
            blocks: (blocks.get() & 0xffff) + 1,
            deallocate: blocks.get() & 1 << 25 != 0,
        })
    }
    DatasetManagement(entry) {
        let [ranges, attributes, ..] = entry.dwords_10_15;
        Ok(Self {
            namespace: entry.namespace.get(),
            ranges: (ranges.get() & 0xff) + 1,
            deallocate: attributes.get() & 1 << 2 != 0,
            data: DataPointer::decode(entry.data)?,
        })
    }
}
