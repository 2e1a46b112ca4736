//! Values that are all there from the start, in a block that nobody else can reach: a table, and a ring of positions that count on.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::region::{BLOCK_GRANULE, CarveError, Mapping, Region};

/// Room for `len` values, the first of which starts a cache line. A block of no byte would have no line of its own.
fn carve<T>(region: &mut Region, len: usize) -> Result<(NonNull<T>, Arc<Mapping>), CarveError> {
    let bytes = size_of::<T>().checked_mul(len).ok_or_else(|| too_many::<T>(len))?;
    let (base, mapping) = region.carve(bytes.max(1), align_of::<T>().max(BLOCK_GRANULE))?.into_parts();
    Ok((base.cast(), mapping))
}

fn too_many<T>(len: usize) -> CarveError {
    CarveError::Overflow { count: u32::try_from(len).unwrap_or(u32::MAX), size: size_of::<T>() }
}

/// Bytes that [`carve`] takes of a region at most; `None` if they exceed the address space.
fn bytes_needed<T>(len: usize) -> Option<usize> {
    // In front of the first one the region may stand at any granule, and the last one's is whole.
    let before = align_of::<T>().max(BLOCK_GRANULE) - BLOCK_GRANULE;
    size_of::<T>().checked_mul(len)?.max(1).checked_next_multiple_of(BLOCK_GRANULE)?.checked_add(before)
}

/// A table of values that are all there from the start and stay, in a block that nobody else can reach. It is used as a slice.
pub struct Table<T> {
    /// `len` values, all initialised.
    values: NonNull<T>,
    len: usize,
    /// Keeps their bytes, which were a block of this table's own.
    _mapping: Arc<Mapping>,
    _values: PhantomData<T>,
}

// SAFETY: the table owns its values and their bytes, both may move to another thread.
unsafe impl<T: Send> Send for Table<T> {}

impl<T> Table<T> {
    /// Carves a table of `len` values, each made by `make` from its index, out of a region. The first one starts a cache line.
    ///
    /// # Errors
    /// [`CarveError`] when the region has too few bytes left; it is unchanged then.
    pub fn new_in(region: &mut Region, len: usize, mut make: impl FnMut(usize) -> T) -> Result<Self, CarveError> {
        let (values, mapping) = carve::<T>(region, len)?;
        for index in 0..len {
            // SAFETY: the block has room for `len` values, and is aligned for them.
            unsafe { values.add(index).write(make(index)) };
        }
        Ok(Self { values, len, _mapping: mapping, _values: PhantomData })
    }

    /// Carves a table of these values out of a region: for those that take the region to be made.
    ///
    /// # Errors
    /// As [`Table::new_in`]; the values are dropped then.
    pub fn of(region: &mut Region, made: Vec<T>) -> Result<Self, CarveError> {
        let (values, mapping) = carve::<T>(region, made.len())?;
        let len = made.len();
        for (index, value) in made.into_iter().enumerate() {
            // SAFETY: as in `new_in`.
            unsafe { values.add(index).write(value) };
        }
        Ok(Self { values, len, _mapping: mapping, _values: PhantomData })
    }

    /// Bytes of a region that a table of `len` values takes at most; `None` if they exceed the address space. Exact, where
    /// region and values start cache lines and no value is aligned to more than one.
    #[must_use]
    pub fn bytes_needed(len: usize) -> Option<usize> {
        bytes_needed::<T>(len)
    }
}

impl<T> core::ops::Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: all values are initialised; the slice borrows the table, which owns them.
        unsafe { core::slice::from_raw_parts(self.values.as_ptr(), self.len) }
    }
}

impl<T> core::ops::DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the table is borrowed for one at a time.
        unsafe { core::slice::from_raw_parts_mut(self.values.as_ptr(), self.len) }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: all values are initialised, and nobody reaches them again.
        unsafe { core::ptr::drop_in_place(&raw mut **self) };
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Table").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A power of two of values, one for each position modulo their number: what queues that count on for ever are kept in. They lie in a
/// block that nobody else can reach.
///
/// A position needs no check, since its low bits always name one of the values.
pub struct Ring<T> {
    /// A power of two of values, all initialised.
    places: NonNull<T>,
    /// One less than their number.
    mask: u64,
    /// Keeps their bytes, which were a block of this ring's own.
    _mapping: Arc<Mapping>,
    _values: PhantomData<T>,
}

// SAFETY: the ring owns its values and their bytes, both may move to another thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Carves room for at least `entries` values out of a region, all of them `vacant`. The first one starts a cache line.
    ///
    /// # Errors
    /// [`CarveError`] when the region has too few bytes left; it is unchanged then.
    pub fn new_in(region: &mut Region, entries: usize, vacant: T) -> Result<Self, CarveError> {
        let places = Self::places_for(entries).ok_or_else(|| too_many::<T>(entries))?;
        let (first, mapping) = carve::<T>(region, places)?;
        for at in 0..places {
            // SAFETY: the block has room for so many values, and is aligned for them.
            unsafe { first.add(at).write(vacant) };
        }
        Ok(Self { places: first, mask: places as u64 - 1, _mapping: mapping, _values: PhantomData })
    }

    /// Bytes of a region that a ring of at least `entries` values takes at most; `None` if they exceed the address space. Exact as
    /// [`Table::bytes_needed`].
    #[must_use]
    pub fn bytes_needed(entries: usize) -> Option<usize> {
        bytes_needed::<T>(Self::places_for(entries)?)
    }

    fn places_for(entries: usize) -> Option<usize> {
        entries.max(1).checked_next_power_of_two()
    }

    /// The number of values: a power of two.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// The place of a position.
    #[inline(always)]
    fn place(&self, position: u64) -> NonNull<T> {
        // SAFETY: a number masked by one less than the number of places is below that number, which is not zero.
        unsafe { self.places.add((position & self.mask) as usize) }
    }

    /// The value at a position.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, position: u64) -> T {
        // SAFETY: the place is inside, and all are initialised.
        unsafe { self.place(position).read() }
    }

    /// Puts another value at a position.
    #[inline(always)]
    pub fn set(&mut self, position: u64, value: T) {
        // SAFETY: the place is inside, and the ring is borrowed by nobody else.
        unsafe { self.place(position).write(value) };
    }

    /// Puts values at a position and at those behind it, in order.
    #[inline(always)]
    pub fn set_run(&mut self, position: u64, values: impl Iterator<Item = T>) {
        // Read once: a value could be where they stand, as far as the compiler knows.
        let (places, mask) = (self.places, self.mask);
        let mut position = position;
        for value in values {
            // SAFETY: as in `set`: an index that is masked is one of a value, which nobody else reaches.
            unsafe { places.add((position & mask) as usize).write(value) };
            position = position.wrapping_add(1);
        }
    }

    /// Puts the same value everywhere.
    pub fn fill(&mut self, value: T) {
        for at in 0..=self.mask {
            self.set(at, value);
        }
    }

    /// The values as they stand in memory: that at a position is the one whose index is the position modulo the capacity.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: all values are initialised; the slice borrows the ring, which owns them.
        unsafe { core::slice::from_raw_parts(self.places.as_ptr(), self.capacity()) }
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ring").field("last", &self.mask).finish_non_exhaustive()
    }
}
