//! Flushes that no command asks for: what was answered is brought to the media before a controller, or the target, says that
//! its shutdown is complete.

use super::Target;
use super::controllers::FailedCommand;
use crate::storage::{Cookie, Operation, Storage, StorageError};
use crate::wire::{ADMIN_QUEUE, Status};
use core::ops::Range;
use frwr_engine::provider::Port;

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

impl Commits {
    /// No poll has anything to do for them.
    pub(super) fn is_idle(&self) -> bool {
        self.open == 0 && !self.shutting_down
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Has all that was answered so far brought to the media of these namespaces; the number to wait for. `None` where none of
    /// them has a volatile cache that is written to.
    fn commit(&mut self, namespaces: Range<usize>) -> Option<u64> {
        let number = self.commits.last + 1;
        let mut cached = false;
        for namespace in self.namespaces.get_mut(namespaces).unwrap_or_default() {
            if namespace.storage.features().is_cached() {
                cached = true;
                self.commits.open += usize::from(!namespace.commit.is_open());
                namespace.commit.asked = number;
            }
        }
        self.commits.last = number;
        cached.then_some(number)
    }

    /// A host announced the normal shutdown of its controller (CC.SHN 01b).
    pub(super) fn shut_down_controller(&mut self, controller: usize) {
        let namespaces = self.subsystem_of(controller).map(|subsystem| subsystem.namespaces.clone());
        let number = namespaces.and_then(|namespaces| self.commit(namespaces));
        if let Some(Some(found)) = self.controllers.get_mut(controller) {
            found.await_commit(number);
        }
    }

    /// The target ends.
    pub(super) fn commit_at_end(&mut self) {
        self.commits.shutting_down = true;
    }

    /// Begins flushes that are wanted, each behind the one of its namespace that runs.
    #[cold]
    pub(super) fn advance_commits(&mut self) {
        if self.commits.shutting_down {
            let busy = !self.engine.is_disconnected() || self.slots.used() > 0;
            if !busy && !self.commits.asked_at_end {
                self.commit(0..self.namespaces.len());
            }
            self.commits.asked_at_end = !busy;
        }
        if self.commits.open == 0 {
            // It shuts down, and that takes its time.
            return;
        }
        for (at, namespace) in self.namespaces.iter_mut().enumerate() {
            let Commit { asked, begun, done } = namespace.commit;
            // There are fewer namespaces than 32 bits can count.
            let cookie = Cookie((at as u64) << 32 | COMMIT);
            // One that has no room now is asked again by the next poll.
            if begun == done && done < asked && namespace.storage.submit(cookie, Operation::Flush).is_ok() {
                namespace.commit.begun = asked;
            }
        }
    }

    /// The storage has completed something that no slot waits for.
    #[cold]
    pub(super) fn committed(&mut self, cookie: Cookie, result: Result<(), StorageError>) {
        let at = (cookie.0 >> 32) as usize;
        let Some(namespace) = self.namespaces.get_mut(at).filter(|_| cookie.0 & COMMIT == COMMIT) else { return };
        let commit = &mut namespace.commit;
        let served = commit.done + 1..commit.begun + 1;
        commit.done = commit.begun;
        self.commits.open -= usize::from(!commit.is_open());
        if let Err(error) = result {
            self.statistics.failed_commits += 1;
            self.statistics.media_errors += u64::from(error.is_of_medium());
            self.statistics.broken_operations += u64::from(error == StorageError::Broken);
        }
        for controller in 0..self.controllers.len() {
            let subsystem = self.subsystem_of(controller).map(|subsystem| subsystem.namespaces.clone());
            let Some(namespaces) = subsystem.filter(|namespaces| namespaces.contains(&at)) else { continue };
            let Some(Some(found)) = self.controllers.get_mut(controller) else { continue };
            let Some(number) = found.awaited_commit() else { continue };
            if result.is_err() && served.contains(&number) {
                found.shutdown_failed();
                found.note(&FailedCommand {
                    queue_id: ADMIN_QUEUE,
                    command_id: u16::MAX,
                    status: Status::WRITE_FAULT.to_wire(),
                    lba: 0,
                    // As hosts name it: from 1.
                    namespace: (at - namespaces.start) as u32 + 1,
                });
                continue;
            }
            let mut waits = self.namespaces.get(namespaces).unwrap_or_default().iter();
            if waits.all(|namespace| !namespace.storage.features().is_cached() || namespace.commit.done >= number) {
                found.shutdown_is_complete();
            }
        }
    }

    /// Nothing is left to be committed before the target may end.
    pub(super) fn is_committed(&self) -> bool {
        !self.commits.shutting_down || (self.commits.asked_at_end && self.commits.open == 0)
    }
}
