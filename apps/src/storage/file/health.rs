//! What is wrong with a medium for good, and how that is noticed: one record, which all cores that serve the medium share.

use super::super::StorageError;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// What is wrong with a medium until it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumFault {
    /// Somebody has made it shorter than its namespace. Every operation fails: what was behind the cut is gone, and a file would
    /// read as zeros there as soon as something is written behind it.
    Shrunk {
        /// Bytes that it had when that was noticed.
        found: u64,
        /// Bytes of the namespace.
        wanted: u64,
    },
    /// A flush failed. Every further one fails: the kernel tells of what it could not write once.
    Unflushed,
}

/// [`Health::cut`] of a medium that was never found shorter.
const WHOLE: u64 = u64::MAX;

/// Of one open medium.
#[derive(Debug)]
pub(super) struct Health {
    /// What was flushed and is not there.
    lost: AtomicBool,
    /// Bytes that it had when it was found too short.
    cut: AtomicU64,
    /// Cores that have changes under way: what these do to its length was not looked at yet.
    changing: AtomicUsize,
}

impl Default for Health {
    fn default() -> Self {
        Self { lost: AtomicBool::new(false), cut: AtomicU64::new(WHOLE), changing: AtomicUsize::new(0) }
    }
}

impl Health {
    /// What is wrong, the worse first; `wanted` are the bytes of the namespace.
    pub(super) fn fault(&self, wanted: u64) -> Option<MediumFault> {
        match self.cut.load(Relaxed) {
            WHOLE => self.lost.load(Relaxed).then_some(MediumFault::Unflushed),
            found => Some(MediumFault::Shrunk { found, wanted }),
        }
    }

    /// It was found too short.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed) != WHOLE
    }

    /// It has so many bytes, and that are too few. What was found first stays.
    pub(super) fn note_cut(&self, found: u64) {
        let _ = self.cut.compare_exchange(WHOLE, found, Relaxed, Relaxed);
    }

    /// What a flush comes to, of a medium whose failed flushes say nothing of the next ones. That something could not be written the
    /// kernel tells once for each open file, to whoever asks first, and counts it as written from then on (fsync(2)); it may
    /// be anybody's. So no later flush can succeed, on any core.
    pub(super) fn flushed(&self, result: Result<(), StorageError>) -> Result<(), StorageError> {
        if result.is_err() {
            self.lost.store(true, Relaxed);
        }
        result.and_then(|()| if self.lost.load(Relaxed) { Err(StorageError::Medium) } else { Ok(()) })
    }

    /// A core is about to give changes to the kernel.
    pub(super) fn begin_changes(&self) {
        // Before the kernel has the first of them.
        self.changing.fetch_add(1, SeqCst);
    }

    /// The same core has none under way any more, and has looked at the length since the last one ended.
    pub(super) fn end_changes(&self) {
        // Whoever sees that nobody changes anything sees what was found by then, too.
        self.changing.fetch_sub(1, Release);
    }

    /// Some core has changes under way: one behind a cut may have made the file longer again, so that what is read there says
    /// nothing unless the length is looked at.
    pub(super) fn is_changing(&self) -> bool {
        self.changing.load(Acquire) > 0
    }
}
