//! Events that wait for the caller, oldest first.
//!
//! The usual ones, a request's end and a transfer's success, are told by their slot, which keeps all that its event says until it is
//! taken. So what waits is one number; only what has no slot is kept as it is.

use crate::{event::Event, provider::Token};
use frwr_mempool::{
    Region,
    region::CarveError,
    slab::{Ring, Table},
};

/// Stands for the oldest of those that are kept as they are. No slot has this number (`Token::MAX_INDEX`).
const WHOLE: u32 = u32::MAX;

/// Marks the slot of a transfer that succeeded, among those of requests.
const TRANSFERRED: u32 = 1 << 30;
const _: () = assert!(Token::MAX_INDEX < TRANSFERRED, "no slot has that bit");

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The slot of a request that has ended.
    Ended(u32),
    /// The slot of a transfer that succeeded.
    Transferred(u32),
    /// [`Events::pop_whole`] has it.
    Whole,
}

/// The queue. It never grows beyond what it was made for: the engine takes nothing that could fill it while it is half full.
pub(crate) struct Events {
    order: Ring<u32>,
    /// Position of the oldest.
    oldest: u64,
    /// Position behind the newest.
    end: u64,
    /// Half of what it was made for.
    half: u64,
    /// A power of two of places, as many as the order has.
    whole: Table<Option<Event>>,
    /// Position of the oldest of them.
    oldest_whole: usize,
    /// Position behind the newest.
    end_whole: usize,
}

impl Events {
    /// Room for this many, rounded up to a power of two.
    pub(crate) fn new_in(region: &mut Region, entries: usize) -> Result<Self, CarveError> {
        let order = Ring::new_in(region, entries, WHOLE)?;
        let whole = Table::new_in(region, order.capacity(), |_| None)?;
        Ok(Self { order, oldest: 0, end: 0, half: entries as u64 / 2, whole, oldest_whole: 0, end_whole: 0 })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(entries: usize) -> Option<usize> {
        let whole = Table::<Option<Event>>::bytes_needed(entries.max(1).checked_next_power_of_two()?)?;
        Ring::<u32>::bytes_needed(entries)?.checked_add(whole)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == self.end
    }

    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        self.end - self.oldest > self.half
    }

    /// All that ever were here.
    pub(crate) fn pushed(&self) -> u64 {
        self.end
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

    /// A transfer succeeded; its slot stays until this is taken.
    #[inline(always)]
    pub(crate) fn push_transferred(&mut self, slot: u32) {
        self.push_ended(slot | TRANSFERRED);
    }

    pub(crate) fn push_back(&mut self, event: Event) {
        if let Some(place) = place(&mut self.whole, self.end_whole) {
            *place = Some(event);
        }
        self.end_whole += 1;
        self.push_ended(WHOLE);
    }

    /// What comes next; `None` where nothing is left.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Told> {
        if self.is_empty() {
            return None;
        }
        let slot = self.order.at(self.oldest);
        self.oldest += 1;
        Some(match slot {
            ..TRANSFERRED => Told::Ended(slot),
            WHOLE => Told::Whole,
            _ => Told::Transferred(slot & Token::MAX_INDEX),
        })
    }

    /// What comes next where that is no request's end: behind [`Events::pop`] that said so.
    #[cold]
    pub(crate) fn pop_whole(&mut self) -> Option<Event> {
        let event = place(&mut self.whole, self.oldest_whole)?.take();
        self.oldest_whole += 1;
        event
    }
}

/// The place of a position among a power of two of them.
fn place(places: &mut [Option<Event>], position: usize) -> Option<&mut Option<Event>> {
    let mask = places.len().wrapping_sub(1);
    places.get_mut(position & mask)
}
