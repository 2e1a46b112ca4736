//! What one way knows of the locks of its medium.

use super::locks::{Locked, Range, RangeLocks, TooManyWays};
use core::task::Waker;
use frwr_mempool::mutant;
use std::sync::Arc;

/// One way's part of the locks. Dropped behind all that its storage does.
#[derive(Debug)]
pub(super) struct Way {
    locks: Arc<RangeLocks>,
    place: usize,
    /// As of this version.
    seen: Option<u64>,
    locked: Locked,
    /// It has agreed to all of them.
    agrees: bool,
}

impl Way {
    /// # Errors
    /// [`TooManyWays`].
    pub(super) fn new(locks: &Arc<RangeLocks>) -> Result<Self, TooManyWays> {
        let place = locks.enter()?;
        // Locks that there are already are seen before anything is changed.
        Ok(Self { locks: Arc::clone(locks), place, seen: None, locked: Locked::new(), agrees: true })
    }

    /// It knows all that is locked, and has agreed to it.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.agrees && self.seen == Some(self.locks.version())
    }

    /// It knows of nothing that is locked.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.locked.is_empty() && self.agrees && self.seen.is_some()
    }

    /// Looks what is locked, and agrees where nothing is under way that changes it.
    pub(super) fn look(&mut self, is_changing: impl Fn(Range) -> bool) {
        match self.locks.look(self.place, is_changing, &mut self.locked) {
            Some((version, agrees)) => (self.seen, self.agrees) = (Some(version), agrees),
            // Nothing is begun before it is known what is locked.
            None => self.seen = None,
        }
    }

    /// Nothing may be begun that changes this.
    pub(super) fn excludes(&self, range: Range) -> bool {
        if mutant!(pair_excludes_nobody) {
            return false;
        }
        self.seen.is_none() || self.locked.iter().any(|locked| locked.overlaps(range))
    }

    pub(super) fn wakes(&self, waker: &Waker) {
        self.locks.wakes(self.place, waker);
    }

    /// As [`RangeLocks::lock`].
    pub(super) fn lock(&self, range: Range) -> Option<u64> {
        self.locks.lock(self.place, range)
    }

    /// As [`RangeLocks::is_locked`].
    pub(super) fn has_locked(&self, name: u64) -> bool {
        self.locks.is_locked(name)
    }

    /// As [`RangeLocks::unlock`].
    pub(super) fn unlock(&self, name: u64) -> bool {
        self.locks.unlock(name)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.locks.leave(self.place);
    }
}
