//! The ring under both kinds of lanes: positions, and who may touch which slot.

use core::fmt;

use crossbeam_utils::CachePadded;

use crate::primitive::{Arc, AtomicBool, AtomicUsize, Ordering, UnsafeCell};

/// Slots of the largest lane. Large enough for any burst between two cores; small enough that a mistaken capacity does
/// not take the machine's memory.
pub const MAX_CAPACITY: usize = 1 << 20;
const _: () = assert!(MAX_CAPACITY.is_power_of_two());

/// What a slot holds, and what is left of it when both ends are gone.
pub(super) trait Slot {
    /// # Safety
    /// The slot was filled and not emptied, and is never used again.
    unsafe fn discard(&mut self);
}

/// What both ends share.
///
/// Positions count slots since the beginning and wrap around; a position's slot is its low bits. The slots from `head` up
/// to `tail` are full and belong to the consumer, all others are empty and belong to the producer: `tail` is at most one
/// capacity ahead of `head`.
struct Ring<S: Slot> {
    slots: Box<[UnsafeCell<S>]>,
    /// Next position to empty. Written by the consumer only.
    head: CachePadded<AtomicUsize>,
    /// Next position to fill. Written by the producer only.
    tail: CachePadded<AtomicUsize>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

// SAFETY: each slot is touched by one end at a time, handed over by release and acquire of `head` and `tail`.
unsafe impl<S: Slot + Send> Send for Ring<S> {}
// SAFETY: as above; nothing hands out a `&S` to two threads.
unsafe impl<S: Slot + Send> Sync for Ring<S> {}

impl<S: Slot> Ring<S> {
    fn slot(&self, position: usize) -> &UnsafeCell<S> {
        // The length is a power of two, so the masked position is inside.
        &self.slots[position & (self.slots.len() - 1)]
    }
}

impl<S: Slot> Drop for Ring<S> {
    fn drop(&mut self) {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut position = self.head.load(Ordering::Relaxed);
        while position != tail {
            // SAFETY: both ends are gone, so the slots between `head` and `tail` are full and ours.
            self.slot(position).with_mut(|slot| unsafe { (*slot).discard() });
            position = position.wrapping_add(1);
        }
    }
}

/// The producer's end.
pub(super) struct Producer<S: Slot> {
    ring: Arc<Ring<S>>,
    /// What `ring.tail` will be once published.
    tail: usize,
    /// `ring.head` as last seen: the consumer's line is read only when this one says that the ring is full.
    head_seen: usize,
}

/// The consumer's end.
pub(super) struct Consumer<S: Slot> {
    ring: Arc<Ring<S>>,
    /// What `ring.head` will be once published.
    head: usize,
    /// `ring.tail` as last seen.
    tail_seen: usize,
}

/// A ring of `capacity` slots, rounded up to a power of two from 1 to [`MAX_CAPACITY`].
pub(super) fn ring<S: Slot>(capacity: usize, empty: impl Fn() -> S) -> (Producer<S>, Consumer<S>) {
    let capacity = capacity.clamp(1, MAX_CAPACITY).next_power_of_two();
    let ring = Arc::new(Ring {
        slots: (0..capacity).map(|_| UnsafeCell::new(empty())).collect(),
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: CachePadded::new(AtomicUsize::new(0)),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    (Producer { ring: Arc::clone(&ring), tail: 0, head_seen: 0 }, Consumer { ring, head: 0, tail_seen: 0 })
}

impl<S: Slot> Producer<S> {
    pub(super) fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Slots that are full, or were a moment ago.
    pub(super) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.ring.head.load(Ordering::Relaxed))
    }

    /// Whether the consumer is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.consumer_gone.load(Ordering::Acquire)
    }

    /// Empty slots. Looks at the consumer's line only if fewer than `wanted` are known of.
    #[inline]
    pub(super) fn room(&mut self, wanted: usize) -> usize {
        let known = self.capacity() - self.tail.wrapping_sub(self.head_seen);
        if known >= wanted {
            return known;
        }
        // Acquire: what the consumer did to the slots that it emptied comes before what we do to them.
        self.head_seen = self.ring.head.load(Ordering::Acquire);
        self.capacity() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Accesses the slot at the tail and steps over it, without publishing.
    ///
    /// # Safety
    /// [`Producer::room`] was not zero, and `access` fills the slot or unwinds.
    #[inline]
    pub(super) unsafe fn fill(&mut self, access: impl FnOnce(*mut S)) {
        self.ring.slot(self.tail).with_mut(access);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Hands all filled slots to the consumer.
    #[inline]
    pub(super) fn publish(&self) {
        // Release: the slots are filled before the consumer sees them.
        self.ring.tail.store(self.tail, Ordering::Release);
    }
}

impl<S: Slot> Drop for Producer<S> {
    fn drop(&mut self) {
        // Release: whoever sees us gone also sees all that was published.
        self.ring.producer_gone.store(true, Ordering::Release);
    }
}

impl<S: Slot> Consumer<S> {
    pub(super) fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Slots that are full, and maybe more by now.
    pub(super) fn len(&self) -> usize {
        self.ring.tail.load(Ordering::Relaxed).wrapping_sub(self.head)
    }

    /// Whether the producer is gone. Everything it published can be seen then.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.producer_gone.load(Ordering::Acquire)
    }

    /// Full slots. Looks at the producer's line only if fewer than `wanted` are known of.
    #[inline]
    pub(super) fn filled(&mut self, wanted: usize) -> usize {
        let known = self.tail_seen.wrapping_sub(self.head);
        if known >= wanted {
            return known;
        }
        // Acquire: what the producer put in comes before what we take out.
        self.tail_seen = self.ring.tail.load(Ordering::Acquire);
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Accesses the slot at the head and stays there.
    ///
    /// # Safety
    /// [`Consumer::filled`] was not zero, and `access` leaves the slot full.
    #[inline]
    pub(super) unsafe fn peek<R>(&self, access: impl FnOnce(*mut S) -> R) -> R {
        self.ring.slot(self.head).with_mut(access)
    }

    /// Steps over the slot at the head, without publishing.
    ///
    /// # Safety
    /// [`Consumer::filled`] was not zero, and the slot has been emptied or needs not be.
    #[inline]
    pub(super) unsafe fn step(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    /// Hands all emptied slots to the producer.
    #[inline]
    pub(super) fn publish(&self) {
        // Release: we are done with the slots before the producer fills them again.
        self.ring.head.store(self.head, Ordering::Release);
    }
}

impl<S: Slot> Drop for Consumer<S> {
    fn drop(&mut self) {
        self.ring.consumer_gone.store(true, Ordering::Release);
    }
}

impl<S: Slot> fmt::Debug for Producer<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Producer").field("capacity", &self.capacity()).field("tail", &self.tail).finish()
    }
}

impl<S: Slot> fmt::Debug for Consumer<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Consumer").field("capacity", &self.capacity()).field("head", &self.head).finish()
    }
}
