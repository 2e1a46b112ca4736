//! Events that wait for the caller, oldest first.
//!
//! The usual one, a request's end, is told by the request's slot, which keeps all that its event says until it is taken. So
//! what waits is one number; only what has no slot is kept as it is.

use crate::event::Event;
use std::collections::VecDeque;

/// Stands for the oldest of those that are kept as they are. No slot has this number (`Token::MAX_INDEX`).
const WHOLE: u32 = u32::MAX;

/// The queue. It never grows beyond what it was made for: the engine takes nothing that could fill it while it is half full.
pub(crate) struct Events {
    order: Box<[u32]>,
    /// Position of the oldest; positions wrap freely, their slot is the low bits.
    oldest: u32,
    len: u32,
    /// Half of what it was made for.
    half: u32,
    whole: VecDeque<Event>,
}

impl Events {
    /// Room for this many, rounded up to a power of two.
    pub(crate) fn new(entries: usize) -> Self {
        let order = vec![WHOLE; entries.max(1).next_power_of_two()].into();
        // Slots, transfers, receives and connections of one core: far below 32 bit.
        Self { order, oldest: 0, len: 0, half: (entries / 2) as u32, whole: VecDeque::with_capacity(entries) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        self.len > self.half
    }

    /// A request ended; its slot stays until this is taken.
    #[inline]
    pub(crate) fn push_ended(&mut self, slot: u32) {
        debug_assert!((self.len as usize) < self.order.len(), "events are taken before they fill their queue");
        let at = self.slot(self.oldest.wrapping_add(self.len));
        if let Some(place) = self.order.get_mut(at) {
            *place = slot;
        }
        self.len += 1;
    }

    pub(crate) fn push_back(&mut self, event: Event) {
        self.whole.push_back(event);
        self.push_ended(WHOLE);
    }

    /// The slot of the request whose end comes next; `None` where nothing is left, or something else comes next.
    #[inline]
    pub(crate) fn pop_ended(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let slot = *self.order.get(self.slot(self.oldest))?;
        if slot == WHOLE {
            return None;
        }
        self.drop_front();
        Some(slot)
    }

    /// What comes next and is no request's end.
    #[cold]
    pub(crate) fn pop_whole(&mut self) -> Option<Event> {
        if self.len == 0 {
            return None;
        }
        self.drop_front();
        self.whole.pop_front()
    }

    #[inline]
    fn drop_front(&mut self) {
        self.oldest = self.oldest.wrapping_add(1);
        self.len -= 1;
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        position as usize & (self.order.len() - 1)
    }
}
