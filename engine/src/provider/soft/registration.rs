//! An object that can be registered by work request, and who may use it.

use crate::provider::{Access, DomainId, QueuePairId, RegistrationId};

/// Keys of registrations have this bit, local keys have not.
pub(super) const REMOTE_KEY_BIT: u32 = 1 << 31;
/// Low bits of a key that may rotate.
pub(super) const KEY_BYTE: u32 = 0xff;

/// A contiguous piece of base memory behind a live key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// First byte, counted from the start of the registration.
    pub(super) start: u64,
    /// Index of the base registration.
    pub(super) base: u32,
    /// First byte in its memory.
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// What a live key opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    /// The queue pair it was registered on.
    pub(super) queue_pair: QueuePairId,
    pub(super) access: Access,
    pub(super) iova: u64,
    pub(super) length: u64,
}

/// An object that can be registered.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) object: RegistrationId,
    pub(super) domain: DomainId,
    pub(super) depth: u32,
    pub(super) key: u32,
    /// The current key was valid once.
    pub(super) key_was_used: bool,
    pub(super) live: Option<Live>,
    pub(super) pieces: Vec<Piece>,
}

impl Registration {
    /// An object with room for `depth` pieces.
    pub(super) fn new(object: RegistrationId, domain: DomainId, depth: u32, key: u32) -> Self {
        let pieces = Vec::with_capacity(depth as usize);
        Self { object, domain, depth, key, key_was_used: false, live: None, pieces }
    }
}

/// Who asks: the queue pair through which a work request or packet came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) queue_pair: QueuePairId,
    pub(super) domain: DomainId,
}
