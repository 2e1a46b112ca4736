//! A list that never grows beyond what it was made for.
//!
//! Where `Vec::push` prepares for growth, this one has nothing to prepare: functions of the hot path stay without calls.

use frwr_mempool::{Region, region::CarveError, slab::Table};

/// Never called; it tells the compiler which way is the usual one.
#[cold]
fn lost() {}

/// Values in the order in which they were pushed, at most as many as it was made for.
#[derive(Debug)]
pub(crate) struct FixedList<T> {
    places: Table<T>,
    /// Of 32 bits, so that no sum with it runs over.
    len: u32,
}

impl<T: Copy> FixedList<T> {
    /// Room for `capacity` values; `vacant` stands in places that nobody sees.
    pub(crate) fn new_in(region: &mut Region, capacity: usize, vacant: T) -> Result<Self, CarveError> {
        Ok(Self { places: Table::new_in(region, capacity, |_| vacant)?, len: 0 })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(capacity: usize) -> Option<usize> {
        Table::<T>::bytes_needed(capacity)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Callers push no more than it was made for: what is too much is lost.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        debug_assert!(self.len() < self.places.len(), "a list is made for all that it may hold");
        if !self.push_within(value) {
            lost();
        }
    }

    /// The same of a list that may be made for none: false then.
    #[inline(always)]
    pub(crate) fn push_within(&mut self, value: T) -> bool {
        debug_assert!(
            self.places.is_empty() || self.len() < self.places.len(),
            "a list is made for all that it may hold"
        );
        let Some(place) = self.places.get_mut(self.len as usize) else { return false };
        *place = value;
        self.len += 1;
        true
    }

    /// [`FixedList::push`] of all of them, or of none where they are too many.
    #[inline(always)]
    pub(crate) fn extend(&mut self, values: impl ExactSizeIterator<Item = T>) {
        let end = self.len() + values.len();
        debug_assert!(end <= self.places.len(), "a list is made for all that it may hold");
        if let Some(places) = self.places.get_mut(self.len as usize..end) {
            places.iter_mut().zip(values).for_each(|(place, value)| *place = value);
            // At most the places.
            self.len = end as u32;
        }
    }

    /// Places for so many values more; `None` where it was not made for them.
    #[inline(always)]
    pub(crate) fn vacant(&mut self, count: usize) -> Option<Vacant<'_, T>> {
        let len = self.len as usize;
        debug_assert!(len + count <= self.places.len(), "a list is made for all that it may hold");
        Some(Vacant { places: self.places.get_mut(len..len + count)?, len: &mut self.len })
    }

    /// All places that have no value, in order, for who fills some of the first and then counts them by `filled`.
    #[inline(always)]
    pub(crate) fn vacant_places(&mut self) -> &mut [T] {
        self.places.get_mut(self.len as usize..).unwrap_or_default()
    }

    /// So many places more have values.
    #[inline(always)]
    pub(crate) fn filled(&mut self, count: usize) {
        // Of places that there are.
        self.len += count as u32;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        self.places.get(self.len as usize).copied()
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        self.places.get(..self.len as usize).unwrap_or(&[])
    }

    #[inline]
    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        self.places.get_mut((self.len as usize).wrapping_sub(1))
    }

    /// The last so many of its values; none where it has fewer.
    pub(crate) fn last_of(&mut self, count: usize) -> &mut [T] {
        let end = self.len as usize;
        self.places.get_mut(end.wrapping_sub(count)..end).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Puts another value where there is one.
    pub(crate) fn set(&mut self, at: usize, value: T) {
        if let Some(place) = self.places.get_mut(..self.len as usize).and_then(|places| places.get_mut(at)) {
            *place = value;
        }
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len().min(len) as u32;
    }
}

/// Places of a list behind all that it has.
pub(crate) struct Vacant<'a, T> {
    places: &'a mut [T],
    len: &'a mut u32,
}

impl<T> Vacant<'_, T> {
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    #[inline(always)]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        self.places
    }

    /// The list has a value in each of them.
    #[inline(always)]
    pub(crate) fn fill(self) {
        // Of places that there are.
        *self.len += self.places.len() as u32;
    }
}
