//! What is wrong with a medium for good, and how that is noticed: one record, which all cores that serve the medium share.

use super::super::{
    MediumFault, StorageError,
    flushes::{Answered, Flushes, Flushing},
};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

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
    flushes: Flushes,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            lost: AtomicBool::new(false),
            cut: AtomicU64::new(WHOLE),
            changing: AtomicUsize::new(0),
            flushes: Flushes::default(),
        }
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

    /// A core is about to give a flush to the kernel.
    pub(super) fn begin_flush(&self) -> Flushing {
        self.flushes.begin()
    }

    /// The kernel has answered it, and if it failed, [`Health::flushed`] has been told.
    pub(super) fn end_flush(&self, flushing: Flushing) -> Answered {
        self.flushes.end(flushing)
    }

    /// All flushes that began in front of this one's answer are answered, too: [`Health::flushed`] knows of those that failed.
    pub(super) fn is_believed(&self, answered: Answered) -> bool {
        self.flushes.are_answered(answered)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_believed_once_all_that_ran_beside_it_are_answered() {
        let health = Health::default();
        // Alone it is at once, however often.
        for _ in 0..5 {
            let alone = health.begin_flush();
            let answered = health.end_flush(alone);
            assert!(health.is_believed(answered));
        }
        let [first, second] = [health.begin_flush(), health.begin_flush()];
        let of_second = health.end_flush(second);
        assert!(!health.is_believed(of_second));
        // One that begins behind its answer is not waited for, whoever goes on beginning new ones.
        let mut later = health.begin_flush();
        for _ in 0..5 {
            let next = health.begin_flush();
            health.end_flush(later);
            assert!(!health.is_believed(of_second), "the first one is not answered");
            later = next;
        }
        assert_eq!(health.flushed(Err(StorageError::NoSpace)), Err(StorageError::NoSpace));
        let of_first = health.end_flush(first);
        assert!(health.is_believed(of_second));
        // This one was answered behind the beginning of the last.
        assert!(!health.is_believed(of_first));
        health.end_flush(later);
        assert!(health.is_believed(of_first));
        assert_eq!(health.flushed(Ok(())), Err(StorageError::Medium));
    }
}
