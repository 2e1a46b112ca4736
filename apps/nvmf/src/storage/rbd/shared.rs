//! What all cores have together of one image: the open image, and what is wrong with it for good.

use super::super::{Geometry, ResizeError, StorageError, medium_fault::MediumFault};
use super::{
    cluster::Connection,
    lock::Lock,
    sys::{Errno, Image},
};
use core::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, mpsc};

/// What is wrong, as a number; the worse the larger.
mod fault {
    pub(super) const NONE: u8 = 0;
    pub(super) const SHRUNK: u8 = 1;
    pub(super) const REMOVED: u8 = 2;
}

/// Of one image, for all its ways. An image that has the lock of RBD's feature `exclusive-lock` writes; had each core an image of its
/// own, the lock would go from one to the other with each write.
#[derive(Debug)]
pub(super) struct Shared {
    // In the order in which they are dropped.
    image: Image,
    connection: Arc<Connection>,
    fault: AtomicU8,
    /// Bytes that it was found with when it was too short.
    found: AtomicU64,
    /// Bytes that it has, when somebody looked last.
    bytes: AtomicU64,
    /// Where it is served by who has its lock.
    lock: Option<Lock>,
    /// Dropped when all of it is closed.
    #[expect(dead_code, reason = "who waits for that has the other end")]
    closed: mpsc::Sender<()>,
}

impl Shared {
    pub(super) fn new(
        image: Image,
        connection: Arc<Connection>,
        bytes: u64,
        lock: Option<Lock>,
        closed: mpsc::Sender<()>,
    ) -> Self {
        Self {
            image,
            connection,
            fault: AtomicU8::new(fault::NONE),
            found: AtomicU64::new(0),
            bytes: AtomicU64::new(bytes),
            lock,
            closed,
        }
    }

    pub(super) const fn image(&self) -> &Image {
        &self.image
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What is wrong for good; `wanted` are the bytes of the namespace.
    pub(super) fn fault(&self, wanted: u64) -> Option<MediumFault> {
        match self.fault.load(Relaxed) {
            fault::NONE => None,
            fault::SHRUNK => Some(MediumFault::Shrunk { found: self.found.load(Relaxed), wanted }),
            _ => Some(MediumFault::Removed),
        }
    }

    /// Where it is served by who has its lock.
    pub(super) const fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    /// Why nothing is done any more, or for now.
    pub(super) fn refuses(&self) -> Option<StorageError> {
        if self.lock.as_ref().is_some_and(|lock| !lock.serves()) {
            return Some(StorageError::NotOwner);
        }
        match self.fault.load(Relaxed) {
            fault::NONE => None,
            fault::SHRUNK => Some(StorageError::Shrunk),
            _ => Some(StorageError::Medium),
        }
    }

    /// It ends at this byte, and a namespace behind it.
    pub(super) fn is_cut(&self, found: u64) {
        self.found.store(found, Relaxed);
        self.fault.fetch_max(fault::SHRUNK, Release);
    }

    /// It is not there any more.
    pub(super) fn is_removed(&self) {
        self.fault.fetch_max(fault::REMOVED, Release);
    }

    /// Bytes that it has, when somebody looked last.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// A namespace of it with so many blocks.
    pub(super) fn resized(&self, geometry: Geometry, blocks: u64) -> Result<Geometry, ResizeError> {
        let resized = Geometry::new(blocks, geometry.block_bytes())?;
        let limit = self.bytes() / u64::from(geometry.block_bytes());
        if blocks > limit { Err(ResizeError::Medium { blocks, limit }) } else { Ok(resized) }
    }

    /// Where it is shorter than a namespace of so many bytes, it stays out of order.
    pub(super) fn check_size(&self, wanted: u64) {
        let bytes = self.bytes();
        if bytes < wanted {
            self.is_cut(bytes);
        }
    }

    /// Looks whose it is, how large it is, and whether it is there. May block: for no core.
    pub(super) fn look(&self) {
        if let Some(lock) = &self.lock {
            lock.attend(&self.image);
        }
        match self.image.check_existence().and_then(|()| self.image.size()) {
            Ok(bytes) => self.bytes.store(bytes, Relaxed),
            Err(Errno(libc::ENOENT)) => self.is_removed(),
            // It says so at its operations.
            Err(_) => {}
        }
    }
}
