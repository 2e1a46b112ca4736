//! What the reactors of one process share: the wish to shut down, who is drained, and how to wake a sleeper.

use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::task::Wake;

use crossbeam_utils::CachePadded;

use crate::clock::nanoseconds;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use crate::sleeper::Wakeup;
use crate::turn::TurnCell;

/// Something has changed that rarely does.
const CHANGES: u8 = 1;
/// Somebody wants to know whether the reactor goes on.
const PROBE: u8 = 2;

/// No shutdown was asked for.
const RUNNING: u64 = u64::MAX;

/// Each field has a cache line of its own: they have different writers.
#[derive(Debug, Default)]
pub(crate) struct Member {
    /// Why the reactor shall look: [`CHANGES`] of what rarely changes (pollers that were added, what their handles wish, the wish
    /// to shut down), or a [`PROBE`], which is answered by looking. Written by whoever wants it, cleared by the reactor before it looks.
    attention: CachePadded<AtomicU8>,
    /// Written by the reactor alone, before and after it sleeps.
    sleeping: CachePadded<AtomicBool>,
    /// Written by the reactor alone, while it shuts down.
    drained: CachePadded<AtomicBool>,
    /// Written by the owner of the reactor's outbox alone.
    would_blocks: CachePadded<AtomicU64>,
    /// Whose turn it is. Written by the reactor alone.
    turn: CachePadded<TurnCell>,
    /// Set once, when the reactor's thread starts to run it.
    wakeup: OnceLock<Wakeup>,
}

impl Member {
    /// Whether somebody wants the reactor to look. Its own look in each iteration.
    #[inline]
    pub(crate) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// Whose turn it is.
    #[inline(always)]
    pub(crate) fn turn(&self) -> &TurnCell {
        &self.turn
    }

    /// Asks for the reactor's attention, at its next iteration. Release: what was changed before is seen then. Not a store: that
    /// would hide what another one changed who asked just before.
    pub(crate) fn ask_attention(&self) {
        self.attention.fetch_or(CHANGES, Ordering::Release);
    }

    /// Clears the wish, to be called before the reactor looks: what is changed later asks again. Says whether something has changed;
    /// else there was a probe.
    pub(crate) fn take_attention(&self) -> bool {
        self.attention.swap(0, Ordering::Acquire) & CHANGES != 0
    }

    /// Asks for a sign of life: [`Self::is_probed`] until the next iteration.
    pub(crate) fn probe(&self) {
        self.attention.fetch_or(PROBE, Ordering::Relaxed);
    }

    /// A probe was not answered yet.
    pub(crate) fn is_probed(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & PROBE != 0
    }
}

/// Shared by the reactors of one wiring, their handles and outboxes.
#[derive(Debug)]
pub(crate) struct Group {
    /// Nanoseconds that draining may take; only ever lowered.
    grace: CachePadded<AtomicU64>,
    members: Box<[Arc<Member>]>,
    /// Fixed at start: where no reactor ever sleeps, senders need no fence.
    may_sleep: bool,
}

impl Group {
    pub(crate) fn new(reactors: usize, may_sleep: bool) -> Self {
        let members = (0..reactors).map(|_| Arc::default()).collect();
        Self { grace: CachePadded::new(AtomicU64::new(RUNNING)), members, may_sleep }
    }

    /// Asks all reactors to shut down; of several requests the shortest grace counts.
    pub(crate) fn request_shutdown(&self, grace: Duration) {
        self.grace.fetch_min(nanoseconds(grace).min(RUNNING - 1), Ordering::Relaxed);
        for core in 0..self.members.len() {
            self.ask_attention(core);
        }
    }

    /// What a reactor shares with the others. `None` if there is no such reactor.
    pub(crate) fn member(&self, core: usize) -> Option<&Arc<Member>> {
        self.members.get(core)
    }

    /// How many nanoseconds draining may take, once shutdown was asked for.
    #[inline]
    pub(crate) fn grace(&self) -> Option<u64> {
        let grace = self.grace.load(Ordering::Relaxed);
        (grace != RUNNING).then_some(grace)
    }

    /// Release: who sees a reactor drained also sees the messages it sent before.
    pub(crate) fn set_drained(&self, core: usize, drained: bool) {
        if let Some(member) = self.members.get(core) {
            member.drained.store(drained, Ordering::Release);
        }
    }

    pub(crate) fn all_drained(&self) -> bool {
        self.members.iter().all(|member| member.drained.load(Ordering::Acquire))
    }

    /// Asks for a reactor's attention, and wakes it for that.
    pub(crate) fn ask_attention(&self, core: usize) {
        if let Some(member) = self.members.get(core) {
            member.ask_attention();
            self.wake(core);
        }
    }

    /// Single writer: a load and a store are enough.
    #[inline]
    pub(crate) fn count_would_block(&self, core: usize) {
        if let Some(member) = self.members.get(core) {
            let count = member.would_blocks.load(Ordering::Relaxed);
            member.would_blocks.store(count.saturating_add(1), Ordering::Relaxed);
        }
    }

    pub(crate) fn would_blocks(&self, core: usize) -> u64 {
        self.members.get(core).map_or(0, |member| member.would_blocks.load(Ordering::Relaxed))
    }

    /// Says how the reactor is woken.
    pub(crate) fn enter(&self, core: usize, wakeup: Wakeup) {
        if let Some(member) = self.members.get(core) {
            let _ = member.wakeup.set(wakeup);
        }
    }

    /// The reactor is about to sleep. It has to look at everything that could wake it once more after this call.
    pub(crate) fn announce_sleep(&self, core: usize) {
        if let Some(member) = self.members.get(core) {
            member.sleeping.store(true, Ordering::Relaxed);
            // Pairs with the fence in `wake`: either the sender sees the announcement, or the sleeper's second look
            // sees what the sender wrote.
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn end_sleep(&self, core: usize) {
        if let Some(member) = self.members.get(core) {
            member.sleeping.store(false, Ordering::Relaxed);
        }
    }

    /// Wakes a sleeping reactor; to be called after the write that it shall see. An unpark that comes before the park
    /// makes the park return at once.
    #[inline]
    pub(crate) fn wake(&self, core: usize) {
        if !self.may_sleep {
            return;
        }
        fence(Ordering::SeqCst);
        let Some(member) = self.members.get(core) else { return };
        if member.sleeping.load(Ordering::Relaxed)
            && let Some(wakeup) = member.wakeup.get()
        {
            wakeup.wake();
        }
    }
}

/// A reactor, for who wakes it and knows nothing of reactors.
pub(crate) struct Sleeper {
    pub(crate) group: Arc<Group>,
    pub(crate) core: usize,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.group.wake(self.core);
    }
}
