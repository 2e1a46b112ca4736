//! Fixed slots of one type, in a block that nobody else can reach.
//!
//! A value is named by a [`Handle`]: the index of its slot and the slot's generation, which changes with every insert. A
//! handle of a former value finds nothing. One core owns a slab; it uses no atomics.
//!
//! [`Table`] and [`Ring`] are the same without handles: all their values are there from the start.

use crate::mutant;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::full::Full;
use crate::region::{BLOCK_GRANULE, Block, CarveError, Region};

#[cfg(all(test, not(any(loom, miri))))]
mod small_domain_test;
mod table;

pub use table::{Ring, Table};

/// Marks a slot that holds a value, in the place of the next free slot's index.
const OCCUPIED: u32 = u32::MAX;
/// Ends the list of free slots.
const END: u32 = u32::MAX - 1;
/// Slots of the largest slab: what is left of the indices.
pub const MAX_CAPACITY: u32 = END - 1;

/// Between two generations of a slot: odd ones, so that none is 0 and nobody has to look.
const GENERATION_STEP: u32 = 2;
/// The generation of a slot that never held a value; the first one is 1. Nothing is found by it, as the slot is not occupied.
const BEFORE_FIRST: u32 = 1_u32.wrapping_sub(GENERATION_STEP);
const _: () = assert!(BEFORE_FIRST % 2 == 1 && GENERATION_STEP.is_multiple_of(2), "generations are odd");

/// Names one value of one slab, now or formerly.
///
/// A slot's generation starts at 1 and is odd; after 2^31 inserts it comes round. 0 is never used, so that
/// `Handle::from_parts(_, 0)` names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    index: u32,
    generation: u32,
}

impl Handle {
    /// The handle with these parts, for instance from a work request's identifier. It may name nothing.
    #[must_use]
    pub const fn from_parts(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// The slot, below the slab's capacity.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The slot's generation.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// What is kept about a slot, away from its value: values of 64 bytes then have a cache line each.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Meta {
    /// Generation of the slot's value, or of its last one; [`BEFORE_FIRST`] before the first.
    generation: u32,
    /// [`OCCUPIED`], or the next free slot, or [`END`].
    next: u32,
}

/// Fixed slots of one type. Slots are taken last in, first out: the one freed last is the one likeliest in the cache.
pub struct Slab<T> {
    /// `capacity` slots; those whose meta says so are initialised.
    values: NonNull<MaybeUninit<T>>,
    /// `capacity` metas, all initialised.
    metas: NonNull<Meta>,
    /// Of 32 bits, as indices are; a `usize`, so that an index that was found to be below is one of memory at once.
    capacity: usize,
    len: u32,
    /// First free slot, or [`END`].
    free: u32,
    /// Owns the bytes of both arrays.
    _block: Block,
    _values: PhantomData<T>,
}

// SAFETY: the slab owns its values and its block, both may move to another thread; it is not `Sync`, though nothing in
// it would forbid that, because one core owns it.
unsafe impl<T: Send> Send for Slab<T> {}

impl<T> Slab<T> {
    /// Carves a slab of `capacity` slots, at most [`MAX_CAPACITY`], out of a region. The first value starts a cache line.
    ///
    /// # Errors
    /// [`CarveError`] when the region has too few bytes left; it is unchanged then.
    pub fn new_in(region: &mut Region, capacity: u32) -> Result<Self, CarveError> {
        let too_many = CarveError::Overflow { count: capacity, size: size_of::<T>() };
        if capacity > MAX_CAPACITY {
            return Err(too_many);
        }
        let count = capacity as usize;
        let metas_at = size_of::<T>()
            .checked_mul(count)
            .and_then(|bytes| bytes.checked_next_multiple_of(BLOCK_GRANULE))
            .ok_or(too_many)?;
        let bytes =
            count.checked_mul(size_of::<Meta>()).and_then(|bytes| bytes.checked_add(metas_at)).ok_or(too_many)?;
        let block = region.carve(bytes, align_of::<T>().max(BLOCK_GRANULE))?;
        let base = block.pointer();
        // SAFETY: the block has `metas_at` bytes and then the metas.
        let metas: NonNull<Meta> = unsafe { base.add(metas_at) }.cast();
        for index in 0..capacity {
            let next = if index + 1 < capacity { index + 1 } else { END };
            // SAFETY: the index is below the capacity, and `metas_at` and the block's address are multiples of 64.
            unsafe { metas.add(index as usize).write(Meta { generation: BEFORE_FIRST, next }) };
        }
        let free = if capacity == 0 { END } else { 0 };
        Ok(Self { values: base.cast(), metas, capacity: count, len: 0, free, _block: block, _values: PhantomData })
    }

    /// Bytes of a region that a slab of `capacity` slots needs, alignment included; `None` if they exceed the address space.
    #[must_use]
    pub fn bytes_needed(capacity: u32) -> Option<usize> {
        let per_slot = size_of::<T>().checked_add(size_of::<Meta>())?;
        per_slot.checked_mul(capacity as usize)?.checked_add(align_of::<T>().max(BLOCK_GRANULE) + 2 * BLOCK_GRANULE)
    }

    /// Slots of the slab.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity as u32
    }

    /// Values in the slab.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the slab holds no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a value into the slot that was freed last.
    ///
    /// # Errors
    /// [`Full`] hands the value back.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Handle, Full<T>> {
        let Some(handle) = self.occupy_free() else { return Err(Full(value)) };
        // SAFETY: the slot was free and below the capacity; a free slot holds nothing that would leak.
        unsafe { self.values.add(handle.index as usize).write(MaybeUninit::new(value)) };
        Ok(handle)
    }

    /// Puts what `make` returns into the slot that was freed last: a large value is made in its place instead of being
    /// moved there. `None` when all slots are taken; nothing is made then.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> Option<Handle> {
        self.insert_new(make).map(|(handle, _)| handle)
    }

    /// As [`Slab::insert_with`], with the value for who goes on filling it.
    #[inline(always)]
    pub fn insert_new(&mut self, make: impl FnOnce() -> T) -> Option<(Handle, &mut T)> {
        Some(self.vacant()?.insert(make))
    }

    /// The slot that was freed last, for who needs its index before there is a value to put there. `None` when all slots are taken.
    #[inline(always)]
    pub fn vacant(&mut self) -> Option<Vacant<'_, T>> {
        let index = self.free;
        ((index as usize) < self.capacity).then_some(Vacant { slab: self, index })
    }

    /// Marks the slot that was freed last as occupied. The caller fills it.
    #[inline]
    fn occupy_free(&mut self) -> Option<Handle> {
        let index = self.free;
        let meta = self.meta_mut(index)?;
        let generation = meta.generation.wrapping_add(GENERATION_STEP);
        self.free = core::mem::replace(meta, Meta { generation, next: OCCUPIED }).next;
        self.len += 1;
        Some(Handle { index, generation })
    }

    /// The value that a handle names, if it is still there.
    #[inline]
    #[must_use]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        self.is_current(handle).then(|| {
            // SAFETY: the slot is occupied.
            unsafe { self.value(handle.index) }
        })
    }

    /// The value that a handle names, if it is still there.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.is_current(handle).then(|| {
            // SAFETY: the slot is occupied.
            unsafe { self.value_mut(handle.index) }
        })
    }

    /// Takes the value that a handle names out, if it is still there.
    #[inline]
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        if !self.is_current(handle) {
            return None;
        }
        let next = self.free;
        self.meta_mut(handle.index)?.next = next;
        self.free = handle.index;
        self.len -= 1;
        // SAFETY: the slot was occupied and is free now, so that the value is moved out once.
        Some(unsafe { self.values.add(handle.index as usize).read().assume_init() })
    }

    /// Drops the value in a slot where it is, if there is one. Returns whether there was.
    #[inline]
    pub fn discard_at(&mut self, index: u32) -> bool {
        let next = self.free;
        let Some(meta) = self.meta_mut(index).filter(|meta| meta.next == OCCUPIED) else { return false };
        meta.next = next;
        // S10: a slot that is freed never comes back.
        if !mutant!(S10_slot) {
            self.free = index;
        }
        self.len -= 1;
        // SAFETY: the slot was occupied and is free now, so that the value is dropped once.
        unsafe { self.values.add(index as usize).as_mut().assume_init_drop() };
        true
    }

    /// The handle of the value in a slot, if there is one.
    #[inline]
    #[must_use]
    pub fn handle_at(&self, index: u32) -> Option<Handle> {
        let Meta { generation, next } = self.meta(index)?;
        (next == OCCUPIED).then_some(Handle { index, generation })
    }

    /// The value in a slot and its handle, if there is one.
    #[inline]
    #[must_use]
    pub fn at(&self, index: u32) -> Option<(Handle, &T)> {
        let handle = self.handle_at(index)?;
        // SAFETY: the slot is occupied.
        Some((handle, unsafe { self.value(index) }))
    }

    /// The value in a slot and its handle, if there is one.
    #[inline]
    #[must_use]
    pub fn at_mut(&mut self, index: u32) -> Option<(Handle, &mut T)> {
        let handle = self.handle_at(index)?;
        // SAFETY: the slot is occupied.
        Some((handle, unsafe { self.value_mut(index) }))
    }

    /// All values with their handles, by index. Looks at every slot up to that of the last one.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        (0..self.capacity()).filter_map(|index| self.at(index)).take(self.len() as usize)
    }

    #[inline]
    fn is_current(&self, handle: Handle) -> bool {
        // S7: a former value's handle names what took its slot.
        self.meta(handle.index) == Some(Meta { generation: handle.generation, next: OCCUPIED })
            || (mutant!(S7_handle) && self.meta(handle.index).is_some_and(|meta| meta.next == OCCUPIED))
    }

    #[inline]
    fn meta(&self, index: u32) -> Option<Meta> {
        // SAFETY: the index is below the capacity, and metas are initialised from the start.
        ((index as usize) < self.capacity).then(|| unsafe { self.metas.add(index as usize).read() })
    }

    #[inline]
    fn meta_mut(&mut self, index: u32) -> Option<&mut Meta> {
        // SAFETY: as in `meta`; the reference borrows the slab.
        ((index as usize) < self.capacity).then(|| unsafe { self.metas.add(index as usize).as_mut() })
    }

    /// # Safety
    /// The slot is occupied.
    #[inline]
    unsafe fn value(&self, index: u32) -> &T {
        // SAFETY: an occupied slot is below the capacity and initialised; the reference borrows the slab.
        unsafe { self.values.add(index as usize).as_ref().assume_init_ref() }
    }

    /// # Safety
    /// The slot is occupied.
    #[inline]
    unsafe fn value_mut(&mut self, index: u32) -> &mut T {
        // SAFETY: as in `value`, and the slab is borrowed for one at a time.
        unsafe { self.values.add(index as usize).as_mut().assume_init_mut() }
    }
}

/// A free slot of a slab, which stays free unless a value is put there.
pub struct Vacant<'a, T> {
    slab: &'a mut Slab<T>,
    /// The slab's first free slot, below its capacity.
    index: u32,
}

impl<'a, T> Vacant<'a, T> {
    /// The slot.
    #[inline(always)]
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Puts what `make` returns into the slot.
    #[inline(always)]
    pub fn insert(self, make: impl FnOnce() -> T) -> (Handle, &'a mut T) {
        let Self { slab, index } = self;
        let step = if mutant!(S7_generation_at_once) { 0 } else { GENERATION_STEP };
        // SAFETY: the slot is free and below the capacity; a free slot holds nothing that would leak. It counts as free until the
        // value is there, should `make` panic.
        unsafe { slab.values.add(index as usize).write(MaybeUninit::new(make())) };
        // SAFETY: the index is below the capacity, and metas are initialised from the start.
        let meta = unsafe { slab.metas.add(index as usize).as_mut() };
        let generation = meta.generation.wrapping_add(step);
        slab.free = core::mem::replace(meta, Meta { generation, next: OCCUPIED }).next;
        slab.len += 1;
        // SAFETY: the slot is occupied.
        (Handle { index, generation }, unsafe { slab.value_mut(index) })
    }
}

impl<T> fmt::Debug for Vacant<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Vacant").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        if !core::mem::needs_drop::<T>() {
            return;
        }
        for index in 0..self.capacity() {
            if let Some(handle) = self.handle_at(index) {
                drop(self.remove(handle));
            }
        }
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, len, .. } = self;
        formatter.debug_struct("Slab").field("capacity", capacity).field("len", len).finish_non_exhaustive()
    }
}
