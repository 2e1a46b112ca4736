//! What all cores know together of one export: what is wrong with it for good, and what of it is durable.

use super::super::{
    StorageError,
    flushes::{Answered, Flushes, Flushing},
    medium_fault::MediumFault,
};
use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::Arc;

/// What is wrong, as a number; the worse the larger.
mod fault {
    pub(super) const NONE: u8 = 0;
    pub(super) const UNFLUSHED: u8 = 1;
    pub(super) const INTERRUPTED: u8 = 2;
    pub(super) const UNANSWERED: u8 = 3;
    pub(super) const BREACH: u8 = 4;
    pub(super) const CHANGED: u8 = 5;
    pub(super) const SHRUNK: u8 = 6;
}

/// Of one export, for all its connections.
///
/// A connection that ends says nothing of the server's cache: it may have died with what it had acknowledged and not flushed. A
/// new connection may reach its successor, where a flush would succeed over what is lost. So every connection that is opened is an
/// *age* of its own, and where one begins with something acknowledged and not flushed no flush succeeds any more. What other
/// connections hear of requests from ages before is taken to be from a server that is gone.
#[derive(Debug)]
pub(super) struct Shared {
    fault: AtomicU8,
    /// Bytes that it was found with when it was too short.
    found: AtomicU64,
    /// Counts flushes that began.
    clock: AtomicU64,
    /// [`Shared::clock`] when the last change was acknowledged; 0 where none was.
    acknowledged: AtomicU64,
    /// The last flush that succeeded, by what the clock was when it began.
    flushed: AtomicU64,
    /// Connections opened.
    age: AtomicU32,
    flushes: Flushes,
    /// Storages that there are.
    users: AtomicUsize,
    /// Cores whose connections are all gone.
    away: AtomicUsize,
    /// A time at which that was so has ended, or begun, since somebody asked last.
    ended: AtomicU64,
}

/// A storage's part of what all share.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) shared: Arc<Shared>,
    /// Storages that there were before it.
    pub(super) others: usize,
}

impl Entered {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { others: shared.enter(), shared: Arc::clone(shared) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

/// A flush that a server has, or is about to get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    stamp: u64,
    flushing: Flushing,
    /// Something was acknowledged and not flushed before.
    pub(super) covers_something: bool,
}

/// A flush that a server says it has done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    stamp: u64,
    answered: Answered,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            fault: AtomicU8::new(fault::NONE),
            found: AtomicU64::new(0),
            clock: AtomicU64::new(1),
            acknowledged: AtomicU64::new(0),
            flushed: AtomicU64::new(1),
            age: AtomicU32::new(0),
            flushes: Flushes::default(),
            users: AtomicUsize::new(0),
            away: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// What is wrong for good; `wanted` are the bytes of the namespace.
    pub(super) fn fault(&self, wanted: u64) -> Option<MediumFault> {
        Some(match self.fault.load(Relaxed) {
            fault::NONE => return None,
            fault::UNFLUSHED => MediumFault::Unflushed,
            fault::INTERRUPTED => MediumFault::Interrupted,
            fault::UNANSWERED => MediumFault::Unanswered,
            fault::BREACH => MediumFault::Breach,
            fault::CHANGED => MediumFault::Changed,
            _ => MediumFault::Shrunk { found: self.found.load(Relaxed), wanted },
        })
    }

    /// Why nothing is done any more; `None` where only flushes fail, or nothing is wrong.
    pub(super) fn refuses(&self) -> Option<StorageError> {
        match self.fault.load(Relaxed) {
            fault::NONE | fault::UNFLUSHED | fault::INTERRUPTED => None,
            fault::SHRUNK => Some(StorageError::Shrunk),
            _ => Some(StorageError::Broken),
        }
    }

    /// No flush succeeds any more.
    pub(super) fn fails_flushes(&self) -> bool {
        self.fault.load(SeqCst) != fault::NONE
    }

    /// A server said that it could not flush.
    pub(super) fn flush_failed(&self) {
        self.fault.fetch_max(fault::UNFLUSHED, SeqCst);
    }

    /// What was acknowledged may be lost, and a flush would not say so.
    pub(super) fn interrupted(&self) {
        self.fault.fetch_max(fault::INTERRUPTED, SeqCst);
    }

    /// Changes may still be executed, and nobody will say when.
    pub(super) fn left_unanswered(&self) {
        self.fault.fetch_max(fault::UNANSWERED, SeqCst);
    }

    /// The server does not keep to the protocol.
    pub(super) fn breached(&self) {
        self.fault.fetch_max(fault::BREACH, SeqCst);
    }

    /// The server came back with something else.
    pub(super) fn changed(&self) {
        self.fault.fetch_max(fault::CHANGED, SeqCst);
    }

    /// The server came back with less.
    pub(super) fn shrunk(&self, found: u64) {
        self.found.store(found, Relaxed);
        self.fault.fetch_max(fault::SHRUNK, SeqCst);
    }

    fn has_unflushed(&self) -> bool {
        self.acknowledged.load(SeqCst) >= self.flushed.load(SeqCst)
    }

    /// A connection is open, and nothing was sent over it.
    pub(super) fn opened(&self) {
        self.age.fetch_add(1, SeqCst);
        // Behind that: whoever hears of a change from now on sees the new age.
        if self.has_unflushed() {
            self.interrupted();
        }
    }

    /// What requests are marked with when they are sent.
    pub(super) fn age(&self) -> u32 {
        self.age.load(SeqCst)
    }

    /// Changes were acknowledged, of which the oldest was sent at that age. Before anybody is told.
    pub(super) fn acknowledge(&self, oldest: u32) {
        self.acknowledged.fetch_max(self.clock.load(SeqCst), SeqCst);
        // Behind that: whoever opens a connection from now on sees that there is something to lose.
        if self.age.load(SeqCst) != oldest {
            self.interrupted();
        }
    }

    /// A flush is about to be sent.
    pub(super) fn begin_flush(&self) -> Begun {
        let covers_something = self.has_unflushed();
        let stamp = self.clock.fetch_add(1, SeqCst) + 1;
        Begun { stamp, flushing: self.flushes.begin(), covers_something }
    }

    /// It was answered, or will not be. Where it failed [`Shared::flush_failed`] has been told.
    pub(super) fn end_flush(&self, begun: Begun) -> Done {
        Done { stamp: begun.stamp, answered: self.flushes.end(begun.flushing) }
    }

    /// All flushes that ran beside it are answered; what it comes to then. `None` before that.
    pub(super) fn outcome(&self, done: Done) -> Option<Result<(), StorageError>> {
        if !self.flushes.are_answered(done.answered) {
            return None;
        }
        if self.fails_flushes() {
            return Some(Err(StorageError::Medium));
        }
        self.flushed.fetch_max(done.stamp, SeqCst);
        Some(Ok(()))
    }

    /// One storage more; how many there were.
    pub(super) fn enter(&self) -> usize {
        self.users.fetch_add(1, SeqCst)
    }

    /// One storage less.
    pub(super) fn leave(&self) {
        self.users.fetch_sub(1, SeqCst);
    }

    /// A core has lost its last connection, or has one again.
    pub(super) fn is_away(&self, away: bool) {
        if away {
            self.away.fetch_add(1, Relaxed);
            self.ended.fetch_add(1, Relaxed);
        } else {
            self.away.fetch_sub(1, Relaxed);
        }
    }

    /// Whether some core has no connection, and how often one lost its last by now.
    pub(super) fn losses(&self) -> (bool, u64) {
        (self.away.load(Relaxed) > 0, self.ended.load(Relaxed))
    }
}
