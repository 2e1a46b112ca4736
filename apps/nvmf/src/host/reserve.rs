//! What a host does about reservations (Base 7.2 to 7.4), as the commands that say it.

use crate::wire::{
    AcquireAction, Command, DataPointer, PersistChange, RELEASE_KEY_BYTES, RESERVATION_KEYS_BYTES, RegisterAction,
    ReleaseAction, ReservationAcquire, ReservationRegister, ReservationRelease, ReservationType,
};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Of this host's registration.
    Register {
        /// What.
        action: RegisterAction,
        /// Whatever key it has; a replacement also where it has none.
        ignore_key: bool,
        /// Whether reservation and registrations of all hosts survive a loss of power.
        persist: PersistChange,
    },
    /// Of a reservation for this host, which has to be registered.
    Acquire {
        /// What.
        action: AcquireAction,
        /// Which.
        kind: ReservationType,
    },
    /// This host's reservation ends.
    Release {
        /// Which.
        kind: ReservationType,
    },
    /// All registrations and the reservation end.
    Clear,
}

impl Reserve {
    /// Bytes of keys.
    pub(super) fn data_bytes(self) -> u32 {
        if matches!(self, Self::Release { .. } | Self::Clear) { RELEASE_KEY_BYTES } else { RESERVATION_KEYS_BYTES }
    }

    pub(super) fn command(self, namespace: u32, data: DataPointer) -> Command {
        match self {
            Self::Register { action, ignore_key, persist } => {
                Command::ReservationRegister(ReservationRegister { namespace, action, ignore_key, persist, data })
            }
            Self::Acquire { action, kind } => {
                Command::ReservationAcquire(ReservationAcquire { namespace, action, kind, data })
            }
            Self::Release { kind } => {
                let (action, kind) = (ReleaseAction::Release, kind as u8);
                Command::ReservationRelease(ReservationRelease { namespace, action, kind, data })
            }
            Self::Clear => {
                let action = ReleaseAction::Clear;
                Command::ReservationRelease(ReservationRelease { namespace, action, kind: 0, data })
            }
        }
    }
}
