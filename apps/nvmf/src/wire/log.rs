//! Log pages (Base 5.16.1): what Get Log Page returns.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log page identifiers (Base figure 202).
pub mod log_page {
    /// Supported Log Pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error Information.
    pub const ERRORS: u8 = 0x01;
    /// SMART / Health Information.
    pub const HEALTH: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
    /// Asymmetric Namespace Access.
    pub const ANA: u8 = 0x0c;
    /// Discovery; of discovery controllers only.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation Notification: [`crate::wire::ReservationNotification`].
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;
}

/// Error Information log entry (Base figure 205).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ErrorLogEntry {
    /// Errors since the controller was made, this one included; 0 marks an entry that is not in use.
    pub count: U64,
    /// SQID.
    pub queue_id: U16,
    /// CID.
    pub command_id: U16,
    /// Status field of the completion.
    pub status: U16,
    /// Byte and bit of the command that is wrong; FFFFh for none in particular.
    pub parameter: U16,
    /// LBA.
    pub lba: U64,
    /// NSID.
    pub namespace: U32,
    /// Vendor specific information that follows: none.
    pub vendor_log: u8,
    /// TRTYPE of [`super::DiscoveryEntry`].
    pub transport: u8,
    reserved: [u8; 2],
    /// Depends on the command.
    pub command_specific: U64,
    /// Depends on the transport.
    pub transport_specific: U16,
    reserved_end: [u8; 22],
}

layout!(ErrorLogEntry, 64; lba: 16, transport_specific: 40);

impl ErrorLogEntry {
    /// No parameter of the command is to blame.
    pub const NO_PARAMETER: u16 = 0xffff;
}

/// SMART / Health Information (Base figure 207).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct HealthLog {
    /// Critical warnings; a bit for each.
    pub warnings: u8,
    /// Kelvin.
    pub temperature: U16,
    /// Percent.
    pub available_spare: u8,
    /// Percent.
    pub spare_threshold: u8,
    /// Percent of the estimated life.
    pub used: u8,
    /// Endurance groups' warnings.
    pub group_warnings: u8,
    reserved: [u8; 25],
    /// Thousands of 512 bytes read, rounded up: 128 bits.
    pub data_read: [U64; 2],
    /// Thousands of 512 bytes written, rounded up.
    pub data_written: [U64; 2],
    /// Read and Compare commands.
    pub read_commands: [U64; 2],
    /// Write commands.
    pub write_commands: [U64; 2],
    /// Minutes.
    pub busy_minutes: [U64; 2],
    /// Count.
    pub power_cycles: [U64; 2],
    /// Hours.
    pub power_on_hours: [U64; 2],
    /// Count.
    pub unsafe_shutdowns: [U64; 2],
    /// Unrecovered errors of the medium.
    pub media_errors: [U64; 2],
    /// Entries of the Error Information log over the controller's life.
    pub error_entries: [U64; 2],
    reserved_end: [u8; 320],
}

layout!(HealthLog, 512; data_read: 32, error_entries: 176);

/// Firmware Slot Information (Base figure 209).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct FirmwareLog {
    /// AFI: the active slot in bits 2:0.
    pub active: u8,
    reserved: [u8; 7],
    /// FRS1 to FRS7: the revision in each slot.
    pub revisions: [[u8; 8]; 7],
    reserved_end: [u8; 448],
}

const _: () = assert!(size_of::<FirmwareLog>() == 512);

/// Commands Supported and Effects (Base figure 211).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct EffectsLog {
    /// By opcode.
    pub admin: [U32; 256],
    /// By opcode.
    pub io: [U32; 256],
    reserved: [u8; 2048],
}

const _: () = assert!(size_of::<EffectsLog>() == 4096);

impl EffectsLog {
    /// CSUPP: the command is supported.
    pub const SUPPORTED: u32 = 1;
    /// LBCC: the command may change data.
    pub const CHANGES_DATA: u32 = 1 << 1;
}

/// Asymmetric Namespace Access log with one group (Base figures 225 and 226); the identifiers follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct AnaLogHeader {
    /// Changes of any state since the controller was made.
    pub change_count: U64,
    /// Group descriptors that follow.
    pub groups: U16,
    reserved: [u8; 6],
}

/// ANA group descriptor; [`AnaGroup::namespaces`] identifiers of 4 bytes follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct AnaGroup {
    /// ANAGRPID.
    pub group: U32,
    /// Identifiers that follow.
    pub namespaces: U32,
    /// Changes of this group.
    pub change_count: U64,
    /// [`AnaState`] in bits 3:0.
    pub state: u8,
    reserved: [u8; 15],
}

const _: () = assert!(size_of::<AnaLogHeader>() == 16 && size_of::<AnaGroup>() == 32);

/// Asymmetric namespace access states (Base 8.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AnaState {
    /// 1.
    #[default]
    Optimized = 1,
    /// 2.
    NonOptimized = 2,
    /// 3.
    Inaccessible = 3,
    /// 4.
    PersistentLoss = 4,
    /// 15.
    Change = 15,
}

impl AnaState {
    /// From a group descriptor; `None` where it is not defined.
    #[must_use]
    pub const fn from_wire(state: u8) -> Option<Self> {
        Some(match state & 0xf {
            1 => Self::Optimized,
            2 => Self::NonOptimized,
            3 => Self::Inaccessible,
            4 => Self::PersistentLoss,
            15 => Self::Change,
            _ => return None,
        })
    }
}
