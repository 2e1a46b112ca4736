//! Events that wait for the caller, oldest first.
//!
//! The usual one, a request's end, is told by the request's slot, which keeps all that its event says until it is taken. So
//! what waits is one number; only what has no slot is kept as it is.

use crate::event::Event;
use frwr_mempool::slab::Ring;
use std::collections::VecDeque;

/// Stands for the oldest of those that are kept as they are. No slot has this number (`Token::MAX_INDEX`).
pub(crate) const WHOLE: u32 = u32::MAX;

/// The queue. It never grows beyond what it was made for: the engine takes nothing that could fill it while it is half full.
pub(crate) struct Events {
    order: Ring<u32>,
    /// Position of the oldest.
    oldest: u64,
    /// Position behind the newest.
    end: u64,
    /// Half of what it was made for.
    half: u64,
    whole: VecDeque<Event>,
}

impl Events {
    /// Room for this many, rounded up to a power of two.
    pub(crate) fn new(entries: usize) -> Self {
        let order = Ring::new(entries, WHOLE);
        Self { order, oldest: 0, end: 0, half: entries as u64 / 2, whole: VecDeque::with_capacity(entries) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == self.end
    }

    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        self.end - self.oldest > self.half
    }

    /// A request ended; its slot stays until this is taken.
    #[inline(always)]
    pub(crate) fn push_ended(&mut self, slot: u32) {
        debug_assert!(
            self.end - self.oldest < self.order.capacity() as u64,
            "events are taken before they fill their queue"
        );
        self.order.set(self.end, slot);
        self.end += 1;
    }

    pub(crate) fn push_back(&mut self, event: Event) {
        self.whole.push_back(event);
        self.push_ended(WHOLE);
    }

    /// The slot of the request whose end comes next, or [`WHOLE`]; `None` where nothing is left.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let slot = self.order.at(self.oldest);
        self.oldest += 1;
        Some(slot)
    }

    /// What comes next where that is no request's end: behind [`Events::pop`] that said so.
    #[cold]
    pub(crate) fn pop_whole(&mut self) -> Option<Event> {
        self.whole.pop_front()
    }
}
