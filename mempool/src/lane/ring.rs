//! The ring under both kinds of lanes: positions, and who may touch which slot.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

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

/// Bytes of a cache line.
const LINE: usize = 64;
/// Small slots that share a word: as many as words and slots of eight bytes each would share a line, so that it takes no more
/// memory. A run of messages is then copied four at a time.
const TOGETHER: usize = 4;

// Positions count on and never wrap: at a billion messages a second 64 bits last for 584 years. So whatever a word says, be it
// of today or a round ago, every slot before that position was published.
const _: () = assert!(usize::BITS >= u64::BITS, "positions of fewer bits would wrap");

/// Where the slots of a ring lie, and the words that hand them over: groups of one word and [`Self::SHARED`] slots behind it. A group
/// that fits a line is on one line, so that a single message costs the transfer of one line and not of two.
///
/// A word says where the slots end that were last published in one go from one of its group on. Written by the producer only.
struct Cells<S> {
    /// The first group. They live as long as the ring.
    first: NonNull<u8>,
    /// What of a position tells its group: a mask of low bits, but for those of the slot within.
    mask: usize,
    slots: PhantomData<*mut S>,
}

impl<S> Clone for Cells<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Cells<S> {}

/// A group: the address of its word, with the slots behind.
type Group = NonNull<u8>;

impl<S> Cells<S> {
    /// Slots of a group: by the size of what they hold, which is not that of loom's cells.
    const SHARED: usize = if size_of::<usize>() + TOGETHER * size_of::<S>() <= LINE { TOGETHER } else { 1 };
    const SLOT: usize = size_of::<UnsafeCell<S>>();
    const FIRST_SLOT: usize = size_of::<AtomicUsize>().next_multiple_of(align_of::<UnsafeCell<S>>());
    const USED: usize = Self::FIRST_SLOT + Self::SHARED * Self::SLOT;
    /// From a group to the next: what fits a line never lies on two.
    const STRIDE: usize =
        if Self::USED <= LINE { Self::USED.next_power_of_two() } else { Self::USED.next_multiple_of(Self::ALIGN) };
    const ALIGN: usize = if Self::USED <= LINE { Self::USED.next_power_of_two() } else { Self::LEAST_ALIGN };
    const LEAST_ALIGN: usize = if align_of::<UnsafeCell<S>>() > align_of::<AtomicUsize>() {
        align_of::<UnsafeCell<S>>()
    } else {
        align_of::<AtomicUsize>()
    };
    /// From a position to the next, as far as groups go.
    const STEP: usize = Self::STRIDE / Self::SHARED;
    /// From a slot to the next of its row.
    const NEXT: usize = if Self::SHARED == 1 { Self::STRIDE } else { Self::SLOT };
    const FITS: () =
        assert!(Self::STRIDE.is_multiple_of(Self::SHARED) && Self::STRIDE.is_multiple_of(Self::LEAST_ALIGN));

    /// The memory of so many slots.
    fn layout(slots: usize) -> Option<Layout> {
        Layout::from_size_align((slots / Self::SHARED).checked_mul(Self::STRIDE)?, Self::ALIGN).ok()
    }

    /// Slots for this capacity: whole groups.
    fn slots_for(capacity: usize) -> usize {
        capacity.max(Self::SHARED)
    }

    /// Groups for `capacity` slots, a power of two, all of them empty.
    fn new(capacity: usize, empty: impl Fn() -> S) -> Self {
        let () = Self::FITS;
        let slots = Self::slots_for(capacity);
        let Some(layout) = Self::layout(slots) else { panic!("a lane of {capacity} slots exceeds the address space") };
        // SAFETY: the size is not zero: there is at least one word.
        let memory = unsafe { alloc(layout) };
        let Some(first) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let cells = Self { first, mask: (slots - 1) & !(Self::SHARED - 1), slots: PhantomData };
        for position in 0..slots {
            let group = cells.group(position);
            // SAFETY: word and slot are inside of the memory, aligned, and nobody else's yet. A word is written before its slots.
            unsafe {
                if position.is_multiple_of(Self::SHARED) {
                    group.cast::<AtomicUsize>().write(AtomicUsize::new(0));
                }
                group.add(Self::offset(position)).cast::<UnsafeCell<S>>().write(UnsafeCell::new(empty()));
            }
        }
        cells
    }

    /// Drops words and slots and gives the memory back.
    ///
    /// # Safety
    /// Nobody uses the cells any more.
    unsafe fn free(self) {
        let slots = self.mask + Self::SHARED;
        for position in 0..slots {
            let group = self.group(position);
            // SAFETY: each was made by `new`, and is dropped once.
            unsafe {
                group.add(Self::offset(position)).cast::<UnsafeCell<S>>().drop_in_place();
                if position.is_multiple_of(Self::SHARED) {
                    group.cast::<AtomicUsize>().drop_in_place();
                }
            }
        }
        if let Some(layout) = Self::layout(slots) {
            // SAFETY: allocated by `new` with this layout.
            unsafe { dealloc(self.first.as_ptr(), layout) }
        }
    }

    /// The group of a position.
    #[inline(always)]
    fn group(self, position: usize) -> Group {
        // SAFETY: the masked position is inside.
        unsafe { self.first.add((position & self.mask) * Self::STEP) }
    }

    /// Where in its group the slot of a position is.
    #[inline(always)]
    fn offset(position: usize) -> usize {
        Self::FIRST_SLOT + (position & (Self::SHARED - 1)) * Self::SLOT
    }

    /// The word of a group.
    #[inline(always)]
    fn word(&self, group: Group) -> &AtomicUsize {
        // SAFETY: `group` is one of these cells', which live as long as whoever has `self`: the ends, which hold the ring.
        unsafe { group.cast().as_ref() }
    }

    /// The slot of a position, which is in this group.
    #[inline(always)]
    fn slot(&self, group: Group, position: usize) -> &UnsafeCell<S> {
        // SAFETY: as in `word`; the offset is inside of the group.
        unsafe { group.add(Self::offset(position)).cast().as_ref() }
    }

    /// The slots from a position on, `most` at most, that are in a row.
    #[inline(always)]
    fn row(self, position: usize, most: usize) -> Row<S> {
        let (at, slots) = if Self::SHARED == 1 {
            (position & self.mask, self.mask + 1)
        } else {
            (position & (Self::SHARED - 1), Self::SHARED)
        };
        let left = most.min(slots - at);
        // SAFETY: as far into the group as its slot is behind the first one.
        let next = unsafe { self.group(position).add(Self::offset(position) - Self::FIRST_SLOT) };
        Row { next, left, end: position + left, slots: PhantomData }
    }

    /// Calls `fill` for the slot of each of `values`, from a position on.
    #[inline(always)]
    fn fill<V: Copy>(self, position: usize, values: &[V], fill: impl Fn(*mut S, V)) {
        if let (true, (groups, [])) = (Self::begins_group(position), values.as_chunks::<TOGETHER>())
            && let Some(group) = self.side_by_side(position, groups.len())
        {
            self.fill_groups(group, groups, &fill);
        } else {
            self.fill_parts(position, values, fill);
        }
    }

    /// The same for whole groups that are side by side.
    #[inline(always)]
    fn fill_groups<V: Copy>(self, first: Group, groups: &[[V; TOGETHER]], fill: &impl Fn(*mut S, V)) {
        let mut group = first;
        for values in groups {
            // All are read before the first is written, so that they are copied as one.
            let values = *values;
            for (value, at) in values.into_iter().zip(0..) {
                self.slot(group, at).with_mut(|slot| fill(slot, value));
            }
            // SAFETY: inside, or one behind the last one.
            group = unsafe { group.add(Self::STRIDE) };
        }
    }

    /// The same for any run: single slots to the end of a group, groups to the end of the ring, and from its start.
    #[inline(never)]
    fn fill_parts<V: Copy>(self, position: usize, values: &[V], fill: impl Fn(*mut S, V)) {
        let each = |position: usize, values: &[V]| {
            for (value, position) in values.iter().zip(position..) {
                self.slot(self.group(position), position).with_mut(|slot| fill(slot, *value));
            }
        };
        if Self::SHARED != TOGETHER {
            return each(position, values);
        }
        let (before, values) = values.split_at(Self::left_of_group(position).min(values.len()));
        let (groups, after) = values.as_chunks::<TOGETHER>();
        let behind = position + before.len();
        let (near, far) = groups.split_at(self.groups_ahead(behind).min(groups.len()));
        each(position, before);
        self.fill_groups(self.group(behind), near, &fill);
        self.fill_groups(self.first, far, &fill);
        each(behind + groups.len() * TOGETHER, after);
    }

    /// Sets each of `values` to what `empty` takes from its slot, from a position on.
    #[inline(always)]
    fn empty<V: Copy>(self, position: usize, values: &mut [V], empty: impl Fn(*mut S) -> V) {
        let whole = Self::begins_group(position) && values.len().is_multiple_of(TOGETHER);
        if let (true, Some(group)) = (whole, self.side_by_side(position, values.len() / TOGETHER)) {
            self.empty_groups(group, values.as_chunks_mut().0, &empty);
        } else {
            self.empty_parts(position, values, empty);
        }
    }

    /// The same for whole groups that are side by side.
    #[inline(always)]
    fn empty_groups<V: Copy>(self, first: Group, groups: &mut [[V; TOGETHER]], empty: &impl Fn(*mut S) -> V) {
        let mut group = first;
        for values in groups {
            // As in `fill_groups`.
            *values = core::array::from_fn(|at| self.slot(group, at).with_mut(empty));
            // SAFETY: inside, or one behind the last one.
            group = unsafe { group.add(Self::STRIDE) };
        }
    }

    /// The same for any run, as `fill_parts`.
    #[inline(never)]
    fn empty_parts<V: Copy>(self, position: usize, values: &mut [V], empty: impl Fn(*mut S) -> V) {
        let each = |position: usize, values: &mut [V]| {
            for (value, position) in values.iter_mut().zip(position..) {
                *value = self.slot(self.group(position), position).with_mut(&empty);
            }
        };
        if Self::SHARED != TOGETHER {
            return each(position, values);
        }
        let (before, values) = values.split_at_mut(Self::left_of_group(position).min(values.len()));
        let (groups, after) = values.as_chunks_mut::<TOGETHER>();
        let behind = position + before.len();
        let end = behind + groups.len() * TOGETHER;
        let (near, far) = groups.split_at_mut(self.groups_ahead(behind).min(groups.len()));
        each(position, before);
        self.empty_groups(self.group(behind), near, &empty);
        self.empty_groups(self.first, far, &empty);
        each(end, after);
    }

    /// Whether groups are of [`TOGETHER`] slots, and a position is the first of one.
    #[inline(always)]
    fn begins_group(position: usize) -> bool {
        Self::SHARED == TOGETHER && position.is_multiple_of(TOGETHER)
    }

    /// Slots from a position to the next group; none if it is the first of one.
    #[inline]
    fn left_of_group(position: usize) -> usize {
        position.next_multiple_of(TOGETHER) - position
    }

    /// Groups from that of a position to the end of the ring.
    #[inline]
    fn groups_ahead(self, position: usize) -> usize {
        (self.mask + Self::SHARED - (position & self.mask)) / Self::SHARED
    }

    /// The first of `count` groups that lie side by side from that of a position on; `None` where the ring's end is between them.
    #[inline(always)]
    fn side_by_side(self, position: usize, count: usize) -> Option<Group> {
        let slots = self.mask + Self::SHARED;
        ((position & self.mask) + count * Self::SHARED <= slots).then(|| self.group(position))
    }
}

/// Slots at the same distance from each other, and what of them is left: of a group of several, or of groups of one up to
/// the ring's end.
pub(super) struct Row<S> {
    /// So far in front of the next one as a group is of its first.
    next: Group,
    left: usize,
    /// Position behind the last one.
    end: usize,
    slots: PhantomData<*mut S>,
}

impl<S> Row<S> {
    /// Slots that are left.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Position of the next one.
    #[inline(always)]
    pub(super) fn position(&self) -> usize {
        self.end - self.left
    }

    /// Accesses the next slot and steps over it.
    ///
    /// # Safety
    /// [`Row::left`] was not zero, the slot is the end's that the row was taken of, which is held, and `access` fills or
    /// empties it.
    #[inline(always)]
    pub(super) unsafe fn step<R>(&mut self, access: impl FnOnce(*mut S) -> R) -> R {
        // SAFETY: the slot is inside, and what comes behind the row's last one is inside or one behind the cells.
        let (slot, next) = unsafe {
            let slot: &UnsafeCell<S> = self.next.add(Cells::<S>::FIRST_SLOT).cast().as_ref();
            (slot, self.next.add(Cells::<S>::NEXT))
        };
        (self.next, self.left) = (next, self.left - 1);
        slot.with_mut(access)
    }
}

/// What both ends share.
///
/// Positions count slots since the beginning; a position's slot is its low bits. The slots from `head` up to the end of what was
/// published are full and belong to the consumer, all others are empty and belong to the producer, which is at most one
/// capacity ahead of `head`.
struct Ring<S: Slot> {
    cells: Cells<S>,
    capacity: usize,
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
        let (cells, tail) = (self.cells, self.tail.load(Ordering::Relaxed));
        for position in self.head.load(Ordering::Relaxed)..tail {
            // SAFETY: both ends are gone, so the slots from `head` up to `tail` are full and ours.
            cells.slot(cells.group(position), position).with_mut(|slot| unsafe { (*slot).discard() });
        }
        // SAFETY: both ends are gone.
        unsafe { cells.free() }
    }
}

/// The producer's end.
pub(super) struct Producer<S: Slot> {
    cells: Cells<S>,
    /// Next position to fill.
    tail: usize,
    /// One capacity behind `ring.head` as last seen: the consumer's line is read only when `tail` gets there.
    limit: usize,
    ring: Arc<Ring<S>>,
}

/// The consumer's end.
pub(super) struct Consumer<S: Slot> {
    /// The group of `tail_seen`: its word changes as soon as anything more is published.
    watched: Group,
    /// The position up to which slots are known to be full.
    tail_seen: usize,
    cells: Cells<S>,
    /// What `ring.head` will be once published.
    head: usize,
    ring: Arc<Ring<S>>,
}

// SAFETY: what the pointers lead to belongs to the ring, which the producer shares.
unsafe impl<S: Slot + Send> Send for Producer<S> {}
// SAFETY: what the pointers lead to belongs to the ring, which the consumer shares.
unsafe impl<S: Slot + Send> Send for Consumer<S> {}

/// A ring of `capacity` slots, rounded up to a power of two from 1 to [`MAX_CAPACITY`].
pub(super) fn ring<S: Slot>(capacity: usize, empty: impl Fn() -> S) -> (Producer<S>, Consumer<S>) {
    let capacity = capacity.clamp(1, MAX_CAPACITY).next_power_of_two();
    let cells = Cells::new(capacity, empty);
    let ring = Arc::new(Ring {
        cells,
        capacity,
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: AtomicUsize::new(0),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    let producer = Producer { cells, tail: 0, limit: capacity, ring: Arc::clone(&ring) };
    (producer, Consumer { watched: cells.group(0), tail_seen: 0, cells, head: 0, ring })
}

impl<S: Slot> Producer<S> {
    pub(super) fn capacity(&self) -> usize {
        self.ring.capacity
    }

    /// Slots that are full, or were a moment ago.
    pub(super) fn len(&self) -> usize {
        self.tail - self.ring.head.load(Ordering::Relaxed)
    }

    /// Whether the consumer is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.consumer_gone.load(Ordering::Acquire)
    }

    /// Empty slots. Looks at the consumer's line only if fewer than `wanted` are known of.
    #[inline]
    pub(super) fn room(&mut self, wanted: usize) -> usize {
        let known = self.limit - self.tail;
        if known >= wanted { known } else { self.room_by_a_look() }
    }

    /// The same by a look.
    fn room_by_a_look(&mut self) -> usize {
        // Acquire: what the consumer did to the slots that it emptied comes before what we do to them.
        self.limit = self.ring.head.load(Ordering::Acquire) + self.ring.capacity;
        self.limit - self.tail
    }

    /// Accesses the slot at the tail and steps over it, without publishing.
    ///
    /// # Safety
    /// [`Producer::room`] was not zero, and `access` fills the slot or unwinds.
    #[inline]
    pub(super) unsafe fn fill(&mut self, access: impl FnOnce(*mut S)) {
        self.cells.slot(self.cells.group(self.tail), self.tail).with_mut(access);
        self.tail += 1;
    }

    /// The same, and hands the slot to the consumer.
    ///
    /// # Safety
    /// As [`Producer::fill`], and nothing was filled that is not published.
    #[inline]
    pub(super) unsafe fn send(&mut self, access: impl FnOnce(*mut S)) {
        let (cells, tail) = (self.cells, self.tail);
        let group = cells.group(tail);
        cells.slot(group, tail).with_mut(access);
        self.tail = tail + 1;
        // Release: the slot is filled before the consumer sees it.
        cells.word(group).store(tail + 1, Ordering::Release);
    }

    /// Fills a slot from each of `values` and steps over them, without publishing.
    ///
    /// # Safety
    /// [`Producer::room`] was not less than their number, and `write` fills the slot that it is given, and does not unwind.
    #[inline]
    pub(super) unsafe fn fill_run<V: Copy>(&mut self, values: &[V], write: impl Fn(*mut S, V)) {
        self.cells.fill(self.tail, values, write);
        self.tail += values.len();
    }

    /// Next position to fill.
    #[inline]
    pub(super) fn tail(&self) -> usize {
        self.tail
    }

    /// Slots to be filled, up to whose next one all is filled that is not published; none where there is no room.
    #[inline(never)]
    pub(super) fn row_from(&mut self, position: usize) -> Row<S> {
        self.tail = position;
        let room = self.room(1);
        self.cells.row(position, room)
    }

    /// All up to this position is filled.
    #[inline]
    pub(super) fn filled_up_to(&mut self, position: usize) {
        self.tail = position;
    }

    /// Hands the slots that were filled to the consumer. The first one of them is at `first`, where `tail` was after the last
    /// publication.
    #[inline]
    pub(super) fn publish(&self, first: usize) {
        // Without a filled slot there is nothing to say.
        if first != self.tail {
            // Release: the slots are filled before the consumer sees them. What the word said before is behind this position's
            // group or not yet seen, and covered by what it says now.
            self.cells.word(self.cells.group(first)).store(self.tail, Ordering::Release);
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
        self.ring.capacity
    }

    /// Slots that are full, and maybe more by now. One look for each time that the producer published and that is not known
    /// of yet.
    pub(super) fn len(&self) -> usize {
        let mut seen = self.tail_seen;
        loop {
            // Acquire: as in `look`, though nothing is taken out here.
            let end = self.cells.word(self.cells.group(seen)).load(Ordering::Acquire);
            if end <= seen {
                return seen - self.head;
            }
            seen = end;
        }
    }

    /// Whether no slot is full, by one look at most.
    pub(super) fn is_empty(&self) -> bool {
        self.tail_seen == self.head && !self.has_news()
    }

    /// Whether something was published that this end does not know of: one load.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        // Relaxed: whoever takes something looks again.
        self.cells.word(self.watched).load(Ordering::Relaxed) > self.tail_seen
    }

    /// Whether the producer is gone. Everything it published can be seen then.
    pub(super) fn is_closed(&self) -> bool {
        self.ring.producer_gone.load(Ordering::Acquire)
    }

    /// Looks for what was published behind `tail_seen`, and says whether there is any.
    #[inline]
    fn look(&mut self) -> bool {
        // Acquire: what the producer put in comes before what we take out.
        let end = self.cells.word(self.watched).load(Ordering::Acquire);
        // What was left in the word a round ago or earlier is not behind this position.
        let found = end > self.tail_seen;
        if found {
            (self.tail_seen, self.watched) = (end, self.cells.group(end));
        }
        found
    }

    /// Full slots. Looks for more only if fewer than `wanted` are known of.
    #[inline]
    pub(super) fn filled(&mut self, wanted: usize) -> usize {
        let known = self.tail_seen - self.head;
        if known >= wanted || !self.look() {
            return known;
        }
        // What was sent together arrives together: one look is the usual.
        let known = self.tail_seen - self.head;
        if known >= wanted { known } else { self.filled_by_more(wanted) }
    }

    /// The same by more looks.
    #[inline(never)]
    fn filled_by_more(&mut self, wanted: usize) -> usize {
        // Ends after one round at most: no slot is published again before it was emptied.
        while self.tail_seen - self.head < wanted && self.look() {}
        self.tail_seen - self.head
    }

    /// Whether a slot is full: the same for one.
    #[inline]
    pub(super) fn has_one(&mut self) -> bool {
        self.tail_seen != self.head || self.look()
    }

    /// Empties the next slot, if one is full, and hands it to the producer.
    ///
    /// # Safety
    /// `access` empties the slot, and does not unwind.
    #[inline]
    pub(super) unsafe fn receive<R>(&mut self, access: impl FnOnce(*mut S) -> R) -> Option<R> {
        let (cells, head) = (self.cells, self.head);
        let group = if self.tail_seen == head {
            // The next slot is the one behind `tail_seen`, so that its group is known.
            let group = self.watched;
            if !self.look() {
                return None;
            }
            group
        } else {
            cells.group(head)
        };
        let value = cells.slot(group, head).with_mut(access);
        self.head = head + 1;
        self.publish();
        Some(value)
    }

    /// Slots to be emptied, `most` at most: from a position on up to which all are.
    #[inline(always)]
    pub(super) fn row(&self, position: usize, most: usize) -> Row<S> {
        self.cells.row(position, most)
    }

    /// Next position to empty.
    #[inline]
    pub(super) fn head(&self) -> usize {
        self.head
    }

    /// Hands all slots up to this position to the producer.
    #[inline]
    pub(super) fn emptied_up_to(&mut self, position: usize) {
        self.head = position;
        self.publish();
    }

    /// Accesses the slot at the head and stays there.
    ///
    /// # Safety
    /// [`Consumer::filled`] was not zero, and `access` leaves the slot full.
    #[inline]
    pub(super) unsafe fn peek<R>(&self, access: impl FnOnce(*mut S) -> R) -> R {
        self.cells.slot(self.cells.group(self.head), self.head).with_mut(access)
    }

    /// Empties a slot into each of `into` and steps over them, without publishing.
    ///
    /// # Safety
    /// [`Consumer::filled`] was not less than their number, and `read` empties the slot that it is given, and does not unwind.
    #[inline]
    pub(super) unsafe fn empty_run<V: Copy>(&mut self, into: &mut [V], read: impl Fn(*mut S) -> V) {
        self.cells.empty(self.head, into, read);
        self.head += into.len();
    }

    /// Steps over the slot at the head, without publishing.
    ///
    /// # Safety
    /// [`Consumer::filled`] was not zero, and the slot has been emptied or needs not be.
    #[inline]
    pub(super) unsafe fn step(&mut self) {
        self.head += 1;
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

impl<S> fmt::Debug for Row<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Row").field("position", &self.position()).field("left", &self.left).finish()
    }
}
