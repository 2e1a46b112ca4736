//! The states of an MR and what each holds.

use crate::provider::Access;
use core::num::NonZeroU32;

/// A slot of the connection table and which of its connections is meant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialOrd, Ord)]
#[repr(align(4))]
pub struct ConnectionKey {
    /// Index of the slot.
    pub index: u16,
    /// Counts the connections that the slot has held.
    pub epoch: u16,
}

impl ConnectionKey {
    pub(super) const fn bits(self) -> u32 {
        self.index as u32 | (self.epoch as u32) << 16
    }
}

// As one number: it is compared with every request.
impl PartialEq for ConnectionKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl core::hash::Hash for ConnectionKey {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

/// What the peer is told (S39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The remote key.
    pub key: u32,
    /// The address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// What an MR registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The base address for the peer.
    pub iova: u64,
    /// Bytes covered.
    pub length: u32,
    /// The remote right.
    pub access: Access,
    /// Low byte of the key that the device has; the bits above never change.
    pub old_tag: u8,
}

/// Why nobody knows what the device thinks of an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its registration failed or was flushed (FLUSHED_FR).
    FlushedRegister,
    /// Its invalidation failed or was flushed (FLUSHED_LI).
    FlushedInvalidate,
    /// Its invalidation was refused by the post (UNPOSTED_INV).
    UnpostedInvalidate,
    /// The connection ended while the key was valid or on its way there.
    ValidAtDisconnect,
    /// The connection ended; the device knew nothing of the MR's latest mapping.
    UnusedAtDisconnect,
}

/// When an MR may be taken again (D2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnPolicy {
    /// When its invalidation completed.
    #[default]
    OnInvalidateCompleted,
    /// When its invalidation was posted. The send queue's order keeps the next registration behind it, so the MR stays on
    /// its queue pair (I23); its memory and its request's caller wait for the completion all the same.
    OnInvalidatePosted,
}

/// Where an MR is in its life. `pending` is the generation of an earlier invalidation of this MR that is
/// still in flight, which only [`ReturnPolicy::OnInvalidatePosted`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A descriptor without a device object.
    Absent,
    /// Free; no key is valid.
    Idle {
        /// The current key was valid once and is dead, so that a second invalidation is known as such (I5).
        spent: bool,
    },
    /// Free to be taken on the same queue pair; the invalidation is in flight.
    IdlePending {
        /// Generation of that invalidation.
        pending: NonZeroU32,
    },
    /// Mapped, not registered: the post refused it, so that the device knows nothing of it. Its key
    /// is burnt, and it is held until it is given back.
    Mapped {
        /// The request slot.
        owner: u32,
        /// See [`State`].
        pending: Option<NonZeroU32>,
        /// What was to be registered.
        registration: Registration,
    },
    /// The registration is in the send queue.
    Registering {
        /// The request slot.
        owner: u32,
        /// See [`State`].
        pending: Option<NonZeroU32>,
        /// What is registered.
        registration: Registration,
    },
    /// The registration is known to have taken effect.
    Valid {
        /// The request slot.
        owner: u32,
        /// What is registered.
        registration: Registration,
    },
    /// The invalidation is in the send queue.
    Invalidating {
        /// The request slot.
        owner: u32,
        /// What was registered.
        registration: Registration,
    },
    /// The device's view is unknown: only destroying or repairing helps, never an invalidation.
    Stale(Cause),
    /// Being deregistered and allocated again.
    Recovering,
}
