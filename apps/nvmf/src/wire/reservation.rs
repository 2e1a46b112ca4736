//! Reservations (Base 7.2 to 7.5 and 8.19): what the four commands say, and the structures that they carry.

use super::command::opcode;
use super::{DataPointer, Status, SubmissionQueueEntry};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Who may use a namespace beside the holder of a reservation (RTYPE, Base 8.19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 2,
    /// Only registrants write.
    WriteExclusiveRegistrants = 3,
    /// Only registrants read and write.
    ExclusiveAccessRegistrants = 4,
    /// The same as [`ReservationType::WriteExclusiveRegistrants`], and every registrant is a holder.
    WriteExclusiveAll = 5,
    /// The same as [`ReservationType::ExclusiveAccessRegistrants`], and every registrant is a holder.
    ExclusiveAccessAll = 6,
}

impl ReservationType {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// From RTYPE; `None` where that is reserved.
    #[must_use]
    pub const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::WriteExclusive,
            2 => Self::ExclusiveAccess,
            3 => Self::WriteExclusiveRegistrants,
            4 => Self::ExclusiveAccessRegistrants,
            5 => Self::WriteExclusiveAll,
            6 => Self::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// Every registrant is a holder.
    #[must_use]
    pub const fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Registrants may do what the holder may.
    #[must_use]
    pub const fn is_of_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Others may read.
    #[must_use]
    pub const fn lets_read(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll)
    }
}

/// RREGA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// The host becomes a registrant with the new key.
    Register,
    /// It is none any more.
    Unregister,
    /// It has the new key.
    Replace,
}

/// CPTPL: what becomes of the namespace's Persist Through Power Loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistChange {
    /// It stays as it is.
    None,
    /// A loss of power ends reservation and registrations.
    Clear,
    /// They survive one.
    Set,
}

/// RACQA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireAction {
    /// The host becomes the holder, if there is none.
    Acquire,
    /// Registrants with a key are unregistered, and their reservation is the host's.
    Preempt,
    /// The same, and their commands end before this one does.
    PreemptAndAbort,
}

/// RRELA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseAction {
    /// The holder gives its reservation up.
    Release,
    /// All registrations go, and the reservation.
    Clear,
}

/// Reservation Register (Base 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRegister {
    /// NSID.
    pub namespace: u32,
    /// RREGA.
    pub action: RegisterAction,
    /// IEKEY: the current key is not looked at, and a host that has none gets the new one by a replacement, too.
    pub ignore_key: bool,
    /// CPTPL.
    pub persist: PersistChange,
    /// [`ReservationKeys`]: the current key, and the new one.
    pub data: DataPointer,
}

/// Reservation Acquire (Base 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationAcquire {
    /// NSID.
    pub namespace: u32,
    /// RACQA.
    pub action: AcquireAction,
    /// RTYPE.
    pub kind: ReservationType,
    /// [`ReservationKeys`]: the host's own key, and the one to be preempted.
    pub data: DataPointer,
}

/// Reservation Release (Base 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRelease {
    /// NSID.
    pub namespace: u32,
    /// RRELA.
    pub action: ReleaseAction,
    /// RTYPE; of no meaning where everything is cleared.
    pub kind: u8,
    /// The host's own key, 8 bytes; what hosts send behind it means nothing.
    pub data: DataPointer,
}

/// Reservation Report (Base 7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationReport {
    /// NSID.
    pub namespace: u32,
    /// NUMD in bytes, 4 to 2^34.
    pub length: u64,
    /// EDS: the structure with host identifiers of 128 bits, the only ones there are over fabrics.
    pub extended: bool,
    /// Where the structure goes.
    pub data: DataPointer,
}

/// Data of Reservation Register and Reservation Acquire; Reservation Release has the first half.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ReservationKeys {
    /// CRKEY: the key that the host is registered with.
    pub current: U64,
    /// NRKEY of Register: the new one. PRKEY of Acquire: the one that is preempted.
    pub other: U64,
}

/// Bytes of [`ReservationKeys`].
pub const RESERVATION_KEYS_BYTES: u32 = 16;
/// Bytes of the data of Reservation Release.
pub const RELEASE_KEY_BYTES: u32 = 8;
const _: () = assert!(size_of::<ReservationKeys>() == RESERVATION_KEYS_BYTES as usize);

/// Head of what Reservation Report returns. Registrants follow: [`RegisteredController`], each 24 bytes, behind 24 bytes, or
/// [`RegisteredControllerExtended`], each 64 bytes, behind 64 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ReservationStatus {
    /// GEN: counts changes of registrations.
    pub generation: U32,
    /// RTYPE; 0 for no reservation.
    pub kind: u8,
    /// REGCTL: entries that follow.
    pub registered: U16,
    reserved: [u8; 2],
    /// PTPLS: they survive a loss of power.
    pub persists: u8,
    reserved_end: [u8; 14],
}

/// Entry of a report with host identifiers of 64 bits.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegisteredController {
    /// CNTLID.
    pub controller_id: U16,
    /// RCSTS; bit 0: its host holds the reservation.
    pub status: u8,
    reserved: [u8; 5],
    /// HOSTID.
    pub host_id: [u8; 8],
    /// RKEY.
    pub key: U64,
}

/// Entry of a report with host identifiers of 128 bits.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegisteredControllerExtended {
    /// CNTLID; [`RegisteredControllerExtended::DYNAMIC`] where a host's controllers are made when it connects.
    pub controller_id: U16,
    /// RCSTS; bit 0: its host holds the reservation.
    pub status: u8,
    reserved: [u8; 5],
    /// RKEY.
    pub key: U64,
    /// HOSTID.
    pub host_id: [u8; 16],
    reserved_end: [u8; 32],
}

impl RegisteredControllerExtended {
    /// CNTLID of no controller in particular.
    pub const DYNAMIC: u16 = 0xffff;
    /// RCSTS bit 0.
    pub const HOLDER: u8 = 1;
    /// Bytes in front of the first entry, and of each.
    pub const BYTES: usize = 64;
}

const _: () = assert!(size_of::<RegisteredController>() == 24);
layout!(ReservationStatus, 24; registered: 5, persists: 9);
layout!(RegisteredControllerExtended, RegisteredControllerExtended::BYTES; key: 8, host_id: 16);

/// What a host is told of that another one did (Base 8.19.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReservationNotificationKind {
    /// It is registered no more, since a key was preempted.
    RegistrationPreempted = 1,
    /// It is registered, and the reservation was given up, or is of another type.
    ReservationReleased = 2,
    /// It is registered no more, since everything was cleared.
    ReservationPreempted = 3,
}

impl ReservationNotificationKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RegistrationPreempted, Self::ReservationReleased, Self::ReservationPreempted];

    /// From the type of a page; `None` for an empty page, and where it is reserved.
    #[must_use]
    pub fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == value)
    }

    /// Its bit in the Reservation Notification Mask.
    #[must_use]
    pub const fn mask(self) -> u32 {
        1 << self as u8
    }
}

/// Reservation Notification (Base 5.16.1.24): the oldest notification that was not read, which is gone with that; zeros
/// where there is none.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ReservationNotification {
    /// Log Page Count: of all notifications of the controller, from 1. What is missing in front of it, or behind the
    /// last one, was lost.
    pub count: U64,
    /// [`ReservationNotificationKind`]; 0 for an empty page.
    pub kind: u8,
    /// Notifications that are there beside this one.
    pub available: u8,
    reserved: [u8; 2],
    /// NSID.
    pub namespace: U32,
    reserved_end: [u8; 48],
}

layout!(ReservationNotification, 64; namespace: 12);

fn invalid_field() -> Status {
    Status::INVALID_FIELD.do_not_retry()
}

/// Command dword 10: action, IEKEY, RTYPE and CPTPL.
fn selection(entry: &SubmissionQueueEntry) -> (u32, bool, u8, u32) {
    let dword = entry.dwords_10_15[0].get();
    (dword & 0b111, dword & 0b1000 != 0, dword.to_le_bytes()[1], dword >> 30)
}

impl ReservationRegister {
    /// From the entry of such a command; its opcode and its flags are not looked at.
    ///
    /// # Errors
    /// The status to complete the command with, as [`super::decode`] says.
    pub fn decode(entry: &SubmissionQueueEntry) -> Result<Self, Status> {
        let (action, ignore_key, _, persist) = selection(entry);
        let action = match action {
            0 => RegisterAction::Register,
            1 => RegisterAction::Unregister,
            2 => RegisterAction::Replace,
            _ => return Err(invalid_field()),
        };
        let persist = match persist {
            0 => PersistChange::None,
            2 => PersistChange::Clear,
            3 => PersistChange::Set,
            _ => return Err(invalid_field()),
        };
        let data = DataPointer::decode(entry.data)?;
        Ok(Self { namespace: entry.namespace.get(), action, ignore_key, persist, data })
    }

    pub(super) fn encode(&self, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
        let action = match self.action {
            RegisterAction::Register => 0,
            RegisterAction::Unregister => 1,
            RegisterAction::Replace => 2,
        };
        let persist: u32 = match self.persist {
            PersistChange::None => 0,
            PersistChange::Clear => 2,
            PersistChange::Set => 3,
        };
        let mut entry = SubmissionQueueEntry::new(opcode::RESERVATION_REGISTER, command_id);
        entry.namespace = self.namespace.into();
        entry.dwords_10_15[0] = (action | u32::from(self.ignore_key) << 3 | persist << 30).into();
        entry.with_data(self.data)
    }
}

impl ReservationAcquire {
    /// From the entry of such a command; its opcode and its flags are not looked at.
    ///
    /// # Errors
    /// The status to complete the command with, as [`super::decode`] says; Invalid Field also where the key is to be ignored
    /// (IEKEY), which only a registration may ask for.
    pub fn decode(entry: &SubmissionQueueEntry) -> Result<Self, Status> {
        let (action, ignores_key, kind, _) = selection(entry);
        let action = match action {
            0 => AcquireAction::Acquire,
            1 => AcquireAction::Preempt,
            2 => AcquireAction::PreemptAndAbort,
            _ => return Err(invalid_field()),
        };
        let kind = ReservationType::from_wire(kind).filter(|_| !ignores_key).ok_or(invalid_field())?;
        Ok(Self { namespace: entry.namespace.get(), action, kind, data: DataPointer::decode(entry.data)? })
    }

    pub(super) fn encode(&self, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
        let action: u32 = match self.action {
            AcquireAction::Acquire => 0,
            AcquireAction::Preempt => 1,
            AcquireAction::PreemptAndAbort => 2,
        };
        let mut entry = SubmissionQueueEntry::new(opcode::RESERVATION_ACQUIRE, command_id);
        entry.namespace = self.namespace.into();
        entry.dwords_10_15[0] = (action | (self.kind as u32) << 8).into();
        entry.with_data(self.data)
    }
}

impl ReservationRelease {
    /// From the entry of such a command; its opcode and its flags are not looked at.
    ///
    /// # Errors
    /// As [`ReservationAcquire::decode`].
    pub fn decode(entry: &SubmissionQueueEntry) -> Result<Self, Status> {
        let (action, ignores_key, kind, _) = selection(entry);
        let action = match action {
            _ if ignores_key => return Err(invalid_field()),
            0 => ReleaseAction::Release,
            1 => ReleaseAction::Clear,
            _ => return Err(invalid_field()),
        };
        Ok(Self { namespace: entry.namespace.get(), action, kind, data: DataPointer::decode(entry.data)? })
    }

    pub(super) fn encode(&self, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
        let action: u32 = match self.action {
            ReleaseAction::Release => 0,
            ReleaseAction::Clear => 1,
        };
        let mut entry = SubmissionQueueEntry::new(opcode::RESERVATION_RELEASE, command_id);
        entry.namespace = self.namespace.into();
        entry.dwords_10_15[0] = (action | u32::from(self.kind) << 8).into();
        entry.with_data(self.data)
    }
}

impl ReservationReport {
    /// From the entry of such a command; its opcode and its flags are not looked at.
    ///
    /// # Errors
    /// The status to complete the command with, as [`super::decode`] says.
    pub fn decode(entry: &SubmissionQueueEntry) -> Result<Self, Status> {
        let [dwords, structure, ..] = entry.dwords_10_15;
        Ok(Self {
            namespace: entry.namespace.get(),
            length: (u64::from(dwords.get()) + 1) * 4,
            extended: structure.get() & 1 != 0,
            data: DataPointer::decode(entry.data)?,
        })
    }

    /// [`Status::INVALID_FIELD`] where the length is no multiple of 4, 0, or above 2^34.
    pub(super) fn encode(&self, command_id: u16) -> Result<SubmissionQueueEntry, Status> {
        let dwords = (self.length / 4).checked_sub(1).and_then(|dwords| u32::try_from(dwords).ok());
        let dwords = dwords.filter(|_| self.length.is_multiple_of(4)).ok_or(invalid_field())?;
        let mut entry = SubmissionQueueEntry::new(opcode::RESERVATION_REPORT, command_id);
        entry.namespace = self.namespace.into();
        entry.dwords_10_15[0] = dwords.into();
        entry.dwords_10_15[1] = u32::from(self.extended).into();
        entry.with_data(self.data)
    }
}
