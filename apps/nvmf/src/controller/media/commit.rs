//! Flushes that no command asks for: what was answered is brought to the media before a controller, or the target, says that
//! its shutdown is complete.

use super::Media;
use crate::storage::{Cookie, Operation, Storage, StorageError};
use core::ops::Range;

/// The lower half of a commit's cookie, where commands have the index of their slot; there are fewer slots. The upper half
/// is the namespace.
const COMMIT: u64 = u32::MAX as u64;

/// Of one namespace: numbers that count on, the latest that is wanted, that a flush was begun for, and that is done. One
/// flush serves all who wanted one before it began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Commit {
    asked: u64,
    begun: u64,
    done: u64,
}

impl Commit {
    fn is_open(&self) -> bool {
        self.done < self.asked
    }
}

/// Of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// The latest number that was given.
    last: u64,
    /// Namespaces that are not done.
    open: usize,
    /// The target shuts down: what is in its caches is committed when nothing else is left to do.
    shutting_down: bool,
    /// That was asked for, and nothing happened since.
    asked_at_end: bool,
}

/// A flush that no command asked for is done.
#[derive(Clone, Debug)]
pub(in super::super) struct Committed {
    pub(in super::super) namespace: usize,
    /// The commits that waited for it.
    pub(in super::super) served: Range<u64>,
    pub(in super::super) failed: bool,
}

impl<S: Storage> Media<S> {
    /// No poll has anything to do for commits.
    #[inline]
    pub(in super::super) fn has_nothing_to_commit(&self) -> bool {
        self.commits.open == 0 && !self.commits.shutting_down
    }

    /// Has all that was answered so far brought to the media of these namespaces; the number to wait for. `None` where none of
    /// them has a volatile cache that is written to.
    pub(in super::super) fn commit(&mut self, places: impl Iterator<Item = usize>) -> Option<u64> {
        let number = self.commits.last + 1;
        let mut cached = false;
        for place in places {
            let Some(Some(medium)) = self.media.get_mut(place) else { continue };
            if medium.storage.features().is_cached() {
                cached = true;
                self.commits.open += usize::from(!medium.commit.is_open());
                medium.commit.asked = number;
            }
        }
        self.commits.last = number;
        self.due |= cached;
        cached.then_some(number)
    }

    /// The target ends.
    pub(in super::super) fn commit_at_end(&mut self) {
        (self.commits.shutting_down, self.due) = (true, true);
    }

    /// Begins flushes that are wanted, each behind the one of its namespace that runs. `busy`: there are connections or commands.
    #[cold]
    pub(in super::super) fn advance_commits(&mut self, busy: bool) {
        if self.commits.shutting_down {
            if !busy && !self.commits.asked_at_end {
                self.commit(0..self.media.len());
            }
            self.commits.asked_at_end = !busy;
        }
        if self.commits.open == 0 {
            // It shuts down, and that takes its time.
            return;
        }
        for (at, medium) in self.media.iter_mut().enumerate() {
            let Some(medium) = medium else { continue };
            let Commit { asked, begun, done } = medium.commit;
            // There are fewer namespaces than 32 bits can count.
            let cookie = Cookie((at as u64) << 32 | COMMIT);
            // One that has no room now is asked again by the next poll.
            if begun == done && done < asked && medium.storage.submit(cookie, Operation::Flush).is_ok() {
                medium.commit.begun = asked;
            }
        }
    }

    /// A storage has completed something that no command waits for.
    #[cold]
    pub(in super::super) fn committed(
        &mut self,
        cookie: Cookie,
        result: Result<(), StorageError>,
    ) -> Option<Committed> {
        let namespace = (cookie.0 >> 32) as usize;
        let medium = self.media.get_mut(namespace)?.as_mut().filter(|_| cookie.0 & COMMIT == COMMIT)?;
        let commit = &mut medium.commit;
        let served = commit.done + 1..commit.begun + 1;
        commit.done = commit.begun;
        self.commits.open -= usize::from(!commit.is_open());
        if let Err(error) = result {
            self.counted.failed_commits += 1;
            self.failed(error);
        }
        Some(Committed { namespace, served, failed: result.is_err() })
    }

    /// All that was answered before the commit of this number is on the media of these namespaces.
    pub(in super::super) fn has_committed(&self, places: impl Iterator<Item = usize>, number: u64) -> bool {
        let mut commits = places.filter_map(|place| Some(self.get(place)?.commit));
        // Those that came later, or have no cache, were not asked.
        commits.all(|commit| commit.asked < number || commit.done >= number)
    }

    /// No flush of this namespace is under way or wanted that no command asked for.
    pub(in super::super) fn is_committing(&self, place: usize) -> bool {
        self.get(place).is_some_and(|medium| medium.commit.is_open())
    }

    /// Nothing is left to be committed before the target may end.
    pub(in super::super) fn is_committed(&self) -> bool {
        !self.commits.shutting_down || (self.commits.asked_at_end && self.commits.open == 0)
    }
}
