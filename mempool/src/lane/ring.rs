//! The ring under both kinds of lanes: positions, and who may touch which slot.

use core::fmt;
use core::ptr::NonNull;

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

/// Slots per step of the loops over runs of them, which the compiler keeps rolled otherwise.
const UNROLLED: usize = 16;

/// A slot, and the word that hands it to the consumer: both on one cache line, so that a single message costs the transfer of
/// one line and not of two.
struct Cell<S> {
    /// Of the first slot that is published together: the position behind the last one of them. Else, and before, it is what
    /// was left in it: a position that is not behind the slot's own. Written by the producer only.
    end: AtomicUsize,
    slot: UnsafeCell<S>,
}

/// What both ends share.
///
/// Positions count slots since the beginning and wrap around; a position's slot is its low bits. The slots from `head` up
/// to the end of what was published are full and belong to the consumer, all others are empty and belong to the producer,
/// which is at most one capacity ahead of `head`.
struct Ring<S: Slot> {
    cells: Box<[Cell<S>]>,
    /// Next position to empty. Written by the consumer only.
    head: CachePadded<AtomicUsize>,
    /// Behind the last position that was ever published. Written once, when the producer goes.
    tail: AtomicUsize,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

/// Goal A23: what one end writes while messages flow is on no line that the other writes or reads meanwhile, but the cells.
const _: () = {
    const LINE: usize = 64;
    let head = core::mem::offset_of!(Ring<NoSlot>, head);
    assert!(head.is_multiple_of(LINE) && size_of::<CachePadded<AtomicUsize>>().is_multiple_of(LINE));
};

/// Stands for any slot: the layout of a ring does not depend on it.
struct NoSlot;

impl Slot for NoSlot {
    unsafe fn discard(&mut self) {}
}

// SAFETY: each slot is touched by one end at a time, handed over by release and acquire of `end` and `head`.
unsafe impl<S: Slot + Send> Send for Ring<S> {}
// SAFETY: as above; nothing hands out a `&S` to two threads.
unsafe impl<S: Slot + Send> Sync for Ring<S> {}

impl<S: Slot> Drop for Ring<S> {
    fn drop(&mut self) {
        let (tail, mask) = (self.tail.load(Ordering::Relaxed), self.cells.len() - 1);
        let mut position = self.head.load(Ordering::Relaxed);
        while position != tail {
            // SAFETY: both ends are gone, so the slots from `head` up to `tail` are full and ours.
            self.cells[position & mask].slot.with_mut(|slot| unsafe { (*slot).discard() });
            position = position.wrapping_add(1);
        }
    }
}

/// The cells of a ring, without a look at the ring.
struct Cells<S> {
    /// The first of `mask` + 1 cells, which live as long as the ring.
    first: NonNull<Cell<S>>,
    /// The length is a power of two, so a masked position is inside.
    mask: usize,
}

impl<S: Slot> Cells<S> {
    /// Those of a ring, of which each end holds a share.
    fn of(ring: &Arc<Ring<S>>) -> Self {
        Self { first: NonNull::from(&*ring.cells).cast(), mask: ring.cells.len() - 1 }
    }

    #[inline]
    fn at(&self, position: usize) -> &Cell<S> {
        // SAFETY: the masked position is inside, and whoever has `self` also holds the ring.
        unsafe { self.first.add(position & self.mask).as_ref() }
    }

    /// The first of `count` cells that lie side by side from a position on; `None` where the ring's end is between them.
    #[inline]
    fn side_by_side(&self, position: usize, count: usize) -> Option<NonNull<Cell<S>>> {
        let at = position & self.mask;
        // SAFETY: as in `at`.
        (at + count <= self.mask + 1).then(|| unsafe { self.first.add(at) })
    }

    /// Calls `fill` for each of `values` and its cell, around the ring's end.
    #[cold]
    #[inline(never)]
    fn fill_around<V>(&self, position: usize, values: &[V], fill: impl Fn(&Cell<S>, &V)) {
        for (value, at) in values.iter().zip(0..) {
            fill(self.at(position.wrapping_add(at)), value);
        }
    }

    /// Calls `empty` for each of `values` and its cell, around the ring's end.
    #[cold]
    #[inline(never)]
    fn empty_around<V>(&self, position: usize, values: &mut [V], empty: impl Fn(&Cell<S>, &mut V)) {
        for (value, at) in values.iter_mut().zip(0..) {
            empty(self.at(position.wrapping_add(at)), value);
        }
    }

    /// Of a position that the consumer does not know of: where the slots that were published from there on end, from what its
    /// word says. `None` if they were not published yet.
    #[inline]
    fn published(&self, position: usize, word: usize) -> Option<usize> {
        // What was left in the word a round ago or earlier is no position behind this one, and so seems far ahead.
        (word.wrapping_sub(position).wrapping_sub(1) <= self.mask).then_some(word)
    }
}

/// The producer's end.
pub(super) struct Producer<S: Slot> {
    cells: Cells<S>,
    /// Next position to fill.
    tail: usize,
    /// `ring.head` as last seen: the consumer's line is read only when this one says that the ring is full.
    head_seen: usize,
    ring: Arc<Ring<S>>,
}

/// The consumer's end.
pub(super) struct Consumer<S: Slot> {
    /// A word that said `quiet` when the consumer had emptied all that was published, and that says something else as soon as
    /// anything more is: the word of the next slot then.
    watched: NonNull<AtomicUsize>,
    quiet: usize,
    cells: Cells<S>,
    /// What `ring.head` will be once published.
    head: usize,
    /// The position up to which slots are known to be full.
    tail_seen: usize,
    ring: Arc<Ring<S>>,
}

// SAFETY: what the pointers lead to belongs to the ring, which the producer shares.
unsafe impl<S: Slot + Send> Send for Producer<S> {}
// SAFETY: what the pointers lead to belongs to the ring, which the consumer shares.
unsafe impl<S: Slot + Send> Send for Consumer<S> {}

/// A ring of `capacity` slots, rounded up to a power of two from 1 to [`MAX_CAPACITY`].
pub(super) fn ring<S: Slot>(capacity: usize, empty: impl Fn() -> S) -> (Producer<S>, Consumer<S>) {
    let capacity = capacity.clamp(1, MAX_CAPACITY).next_power_of_two();
    let ring = Arc::new(Ring {
        cells: (0..capacity).map(|_| Cell { end: AtomicUsize::new(0), slot: UnsafeCell::new(empty()) }).collect(),
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: AtomicUsize::new(0),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    let producer = Producer { cells: Cells::of(&ring), tail: 0, head_seen: 0, ring: Arc::clone(&ring) };
    let watched = NonNull::from(&ring.cells[0].end);
    let consumer = Consumer { watched, quiet: 0, cells: Cells::of(&ring), head: 0, tail_seen: 0, ring };
    (producer, consumer)
}

impl<S: Slot> Producer<S> {
    pub(super) fn capacity(&self) -> usize {
        self.cells.mask + 1
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
        self.cells.at(self.tail).slot.with_mut(access);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Fills a slot from each of `values` and steps over them, without publishing.
    ///
    /// # Safety
    /// [`Producer::room`] was not less than their number, and `write` fills the slot that it is given, and does not unwind.
    #[inline]
    pub(super) unsafe fn fill_run<V>(&mut self, values: &[V], write: impl Fn(*mut S, &V)) {
        let fill = |cell: &Cell<S>, value: &V| cell.slot.with_mut(|slot| write(slot, value));
        if let Some(first) = self.cells.side_by_side(self.tail, values.len()) {
            let (chunks, rest) = values.as_chunks::<UNROLLED>();
            let mut next = first;
            for chunk in chunks {
                for (value, at) in chunk.iter().zip(0..) {
                    // SAFETY: as many cells as values are side by side.
                    fill(unsafe { next.add(at).as_ref() }, value);
                }
                // SAFETY: as above; at most one behind the last.
                next = unsafe { next.add(UNROLLED) };
            }
            for (value, at) in rest.iter().zip(0..) {
                // SAFETY: as above.
                fill(unsafe { next.add(at).as_ref() }, value);
            }
        } else {
            self.cells.fill_around(self.tail, values, fill);
        }
        self.tail = self.tail.wrapping_add(values.len());
    }

    /// Next position to fill.
    #[inline]
    pub(super) fn tail(&self) -> usize {
        self.tail
    }

    /// Hands the slots that were filled to the consumer. The first one of them is at `first`, where `tail` was after the last
    /// call.
    #[inline]
    pub(super) fn publish(&self, first: usize) {
        // Without a filled slot the word would be of a slot that may be the consumer's.
        if first != self.tail {
            // Release: the slots are filled before the consumer sees them.
            self.cells.at(first).end.store(self.tail, Ordering::Release);
        }
    }
}

impl<S: Slot> Drop for Producer<S> {
    fn drop(&mut self) {
        // Relaxed: only whoever drops the ring reads it, behind the count of its owners.
        self.ring.tail.store(self.tail, Ordering::Relaxed);
        // Release: whoever sees us gone also sees all that was published.
        self.ring.producer_gone.store(true, Ordering::Release);
    }
}

impl<S: Slot> Consumer<S> {
    pub(super) fn capacity(&self) -> usize {
        self.cells.mask + 1
    }

    /// What the word of a position says.
    #[inline]
    fn word(&self, position: usize) -> usize {
        // Acquire: what the producer put in comes before what we take out.
        self.cells.at(position).end.load(Ordering::Acquire)
    }

    /// Slots that are full, and maybe more by now. One look for each time that the producer published and that is not known
    /// of yet.
    pub(super) fn len(&self) -> usize {
        let mut seen = self.tail_seen;
        while let Some(end) = self.cells.published(seen, self.word(seen)) {
            seen = end;
        }
        seen.wrapping_sub(self.head)
    }

    /// Whether no slot is full, by one look at most.
    pub(super) fn is_empty(&self) -> bool {
        self.tail_seen == self.head && self.cells.published(self.tail_seen, self.word(self.tail_seen)).is_none()
    }

    /// Whether nothing was published since the consumer last found that no slot is full. False says nothing: there may be
    /// nothing all the same.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        // SAFETY: the word is one of the ring's, which the consumer holds.
        let word = unsafe { self.watched.as_ref() };
        // Relaxed: whoever finds something looks again.
        word.load(Ordering::Relaxed) == self.quiet
    }

    /// Whether the producer is gone. Everything it published can be seen then.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.producer_gone.load(Ordering::Acquire)
    }

    /// Full slots. Looks for more only if fewer than `wanted` are known of.
    #[inline]
    pub(super) fn filled(&mut self, wanted: usize) -> usize {
        let known = self.tail_seen.wrapping_sub(self.head);
        if known >= wanted {
            return known;
        }
        // What was sent together arrives together: one look is the usual.
        let word = self.word(self.tail_seen);
        let Some(end) = self.cells.published(self.tail_seen, word) else {
            self.watch(word);
            return known;
        };
        self.tail_seen = end;
        let known = end.wrapping_sub(self.head);
        if known >= wanted { known } else { self.filled_by_more(wanted) }
    }

    /// The same by more looks.
    #[inline(never)]
    fn filled_by_more(&mut self, wanted: usize) -> usize {
        // Ends after one round at most: no slot is published again before it was emptied.
        while self.tail_seen.wrapping_sub(self.head) < wanted {
            let word = self.word(self.tail_seen);
            let Some(end) = self.cells.published(self.tail_seen, word) else {
                self.watch(word);
                break;
            };
            self.tail_seen = end;
        }
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Whether a slot is full: the same for one.
    #[inline]
    pub(super) fn has_one(&mut self) -> bool {
        if self.tail_seen != self.head {
            return true;
        }
        let word = self.word(self.head);
        let end = self.cells.published(self.head, word);
        match end {
            Some(end) => self.tail_seen = end,
            None => self.watch(word),
        }
        end.is_some()
    }

    /// Remembers what the next slot's word says, if nothing else is left to empty.
    #[inline]
    fn watch(&mut self, word: usize) {
        if self.tail_seen == self.head {
            (self.watched, self.quiet) = (NonNull::from(&self.cells.at(self.tail_seen).end), word);
        }
    }

    /// Accesses the slot at the head and stays there.
    ///
    /// # Safety
    /// [`Consumer::filled`] was not zero, and `access` leaves the slot full.
    #[inline]
    pub(super) unsafe fn peek<R>(&self, access: impl FnOnce(*mut S) -> R) -> R {
        self.cells.at(self.head).slot.with_mut(access)
    }

    /// Empties a slot into each of `into` and steps over them, without publishing.
    ///
    /// # Safety
    /// [`Consumer::filled`] was not less than their number, and `read` empties the slot that it is given, and does not unwind.
    #[inline]
    pub(super) unsafe fn empty_run<V>(&mut self, into: &mut [V], read: impl Fn(*mut S, &mut V)) {
        let empty = |cell: &Cell<S>, value: &mut V| cell.slot.with_mut(|slot| read(slot, value));
        let count = into.len();
        if let Some(first) = self.cells.side_by_side(self.head, count) {
            let (chunks, rest) = into.as_chunks_mut::<UNROLLED>();
            let mut next = first;
            for chunk in chunks {
                for (value, at) in chunk.iter_mut().zip(0..) {
                    // SAFETY: as many cells as values are side by side.
                    empty(unsafe { next.add(at).as_ref() }, value);
                }
                // SAFETY: as above; at most one behind the last.
                next = unsafe { next.add(UNROLLED) };
            }
            for (value, at) in rest.iter_mut().zip(0..) {
                // SAFETY: as above.
                empty(unsafe { next.add(at).as_ref() }, value);
            }
        } else {
            self.cells.empty_around(self.head, into, empty);
        }
        self.head = self.head.wrapping_add(count);
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
