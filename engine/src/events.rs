//! Events that wait for the caller, oldest first.
//!
//! What has a slot or a buffer is told by its number: a request's end and grant, a transfer's success, a message. Slot and buffer keep all
//! that the event says until it is taken. So what waits is one number; only what has neither is kept as it is.

use crate::{event::Event, provider::Token};
use frwr_mempool::{
    Region,
    region::CarveError,
    slab::{Ring, Table},
};

/// Bits of what waits that say what kind of event it is: behind those of any slot's or buffer's number. A request's end is 0, so that its
/// slot is all there is to it.
const KIND_SHIFT: u32 = Token::MAX_INDEX.trailing_ones();
const TRANSFERRED: u32 = 1 << KIND_SHIFT;
const REGISTERED: u32 = 2 << KIND_SHIFT;
const RECEIVED: u32 = 3 << KIND_SHIFT;
/// Stands for the oldest of those that are kept as they are.
const WHOLE: u32 = 4 << KIND_SHIFT;
const _: () = assert!(WHOLE >> KIND_SHIFT == 4, "kind and number are 32 bit");

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The slot of a request that has ended.
    Ended(u32),
    /// The slot of a transfer that succeeded.
    Transferred(u32),
    /// The slot of a request whose registration was confirmed.
    Registered(u32),
    /// The buffer of a message that is no reply.
    Received(u32),
    /// [`Events::pop_whole`] has it.
    Whole,
}

/// How many events may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCounts {
    /// Of any kind.
    pub(crate) all: usize,
    /// With more of them waiting the engine takes nothing that could add any.
    pub(crate) most: usize,
    /// Of those that are kept as they are.
    pub(crate) whole: usize,
    /// As `most`, of those.
    pub(crate) most_whole: usize,
}

/// The queue. It never grows beyond what it was made for: the engine takes nothing that could fill it while it is half full.
pub(crate) struct Events {
    order: Ring<u32>,
    /// Position of the oldest.
    oldest: u64,
    /// Position behind the newest.
    end: u64,
    counts: EventCounts,
    whole: Table<Option<Event>>,
    /// Position of the oldest of them.
    oldest_whole: usize,
    /// Position behind the newest.
    end_whole: usize,
}

impl Events {
    /// Room for so many.
    pub(crate) fn new_in(region: &mut Region, counts: EventCounts) -> Result<Self, CarveError> {
        let order = Ring::new_in(region, counts.all, WHOLE)?;
        let whole = Table::new_in(region, counts.whole, |_| None)?;
        Ok(Self { order, oldest: 0, end: 0, counts, whole, oldest_whole: 0, end_whole: 0 })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(counts: EventCounts) -> Option<usize> {
        Ring::<u32>::bytes_needed(counts.all)?.checked_add(Table::<Option<Event>>::bytes_needed(counts.whole)?)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == self.end
    }

    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        self.end - self.oldest > self.counts.most as u64 || self.end_whole - self.oldest_whole > self.counts.most_whole
    }

    /// All that ever were here.
    pub(crate) fn pushed(&self) -> u64 {
        self.end
    }

    #[inline(always)]
    fn push(&mut self, waits: u32) {
        debug_assert!(
            self.end - self.oldest < self.order.capacity() as u64,
            "events are taken before they fill their queue"
        );
        self.order.set(self.end, waits);
        self.end += 1;
    }

    /// A request ended; its slot stays until this is taken.
    #[inline(always)]
    pub(crate) fn push_ended(&mut self, slot: u32) {
        self.push(slot);
    }

    /// A transfer succeeded; its slot stays until this is taken.
    #[inline(always)]
    pub(crate) fn push_transferred(&mut self, slot: u32) {
        self.push(slot | TRANSFERRED);
    }

    /// The registration of a request was confirmed, which stays until its end is told behind this.
    pub(crate) fn push_registered(&mut self, slot: u32) {
        self.push(slot | REGISTERED);
    }

    /// A message that is no reply stands in a buffer, which is the caller's once this is taken.
    #[inline(always)]
    pub(crate) fn push_received(&mut self, buffer: u32) {
        self.push(buffer | RECEIVED);
    }

    pub(crate) fn push_back(&mut self, event: Event) {
        debug_assert!(
            self.end_whole - self.oldest_whole < self.whole.len(),
            "events are taken before they fill their queue"
        );
        let at = self.end_whole % self.whole.len().max(1);
        if let Some(place) = self.whole.get_mut(at) {
            *place = Some(event);
        }
        self.end_whole += 1;
        self.push(WHOLE);
    }

    /// What comes next; `None` where nothing is left.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Told> {
        if self.is_empty() {
            return None;
        }
        let waits = self.order.at(self.oldest);
        self.oldest += 1;
        // The usual ones, with nothing asked of the others.
        if waits < TRANSFERRED {
            return Some(Told::Ended(waits));
        }
        let number = waits & Token::MAX_INDEX;
        if waits < REGISTERED {
            return Some(Told::Transferred(number));
        }
        Some(match waits & !Token::MAX_INDEX {
            RECEIVED => Told::Received(number),
            REGISTERED => Told::Registered(number),
            _ => Told::Whole,
        })
    }

    /// What comes next where that is kept as it is: behind [`Events::pop`] that said so.
    #[cold]
    pub(crate) fn pop_whole(&mut self) -> Option<Event> {
        let at = self.oldest_whole % self.whole.len().max(1);
        let event = self.whole.get_mut(at)?.take();
        self.oldest_whole += 1;
        event
    }
}
