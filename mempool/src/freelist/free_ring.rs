//! A freelist for an owner whose indices have a state of their own that says whether they are free.

use super::list::Order;
use crate::region::{CarveError, Region};
use crate::slab::Ring;

/// Free indices of one core, newest or oldest first, in a ring.
///
/// Whoever puts an index here vouches that it is not here already: by a state machine, say, which makes the step to "free"
/// once. So nothing is looked up and marked per index, as a [`Freelist`](super::Freelist) does, which finds double frees by
/// itself; to that one, those here are handed out. One thread at a time.
///
/// A promise that is broken costs no memory safety: the index is handed out twice, or another one is lost. Builds with debug
/// assertions panic instead.
#[derive(Debug)]
pub struct FreeRing {
    places: Ring<u32>,
    /// Position of the oldest.
    oldest: u64,
    /// Position behind the newest.
    end: u64,
    order: Order,
}

impl FreeRing {
    /// Carves an empty one with room for `capacity` indices out of a region.
    ///
    /// # Errors
    /// [`CarveError`] when the region has too few bytes left; it is unchanged then.
    pub fn new_in(region: &mut Region, capacity: u32, order: Order) -> Result<Self, CarveError> {
        Ok(Self { places: Ring::new_in(region, capacity as usize, 0)?, oldest: 0, end: 0, order })
    }

    /// Bytes of a region that one for `capacity` indices takes at most; `None` if they exceed the address space.
    #[must_use]
    pub fn bytes_needed(capacity: u32) -> Option<usize> {
        Ring::<u32>::bytes_needed(capacity as usize)
    }

    /// Indices that are here.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        // At most the capacity.
        (self.end - self.oldest) as u32
    }

    /// Whether none is.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end == self.oldest
    }

    /// Puts an index behind the others.
    #[inline(always)]
    pub fn push(&mut self, index: u32) {
        debug_assert!((self.len() as usize) < self.places.capacity(), "no more are free than there are");
        debug_assert!(!self.contains(index), "index {index} is free already");
        self.places.set(self.end, index);
        self.end += 1;
    }

    /// Takes the next one in its order.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<u32> {
        let (oldest, end) = (self.oldest, self.end);
        if oldest == end {
            return None;
        }
        Some(match self.order {
            Order::LastInFirstOut => {
                self.end = end - 1;
                self.places.at(end - 1)
            }
            Order::FirstInFirstOut => {
                self.oldest = oldest + 1;
                self.places.at(oldest)
            }
        })
    }

    /// What [`FreeRing::pop`] would take.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<u32> {
        let next = match self.order {
            Order::LastInFirstOut => self.end.wrapping_sub(1),
            Order::FirstInFirstOut => self.oldest,
        };
        (!self.is_empty()).then(|| self.places.at(next))
    }

    /// Puts back the so many that [`FreeRing::pop`] took last, where they were: they are the next ones again, so that what is reused
    /// oldest first is still reused as late as possible (U10). Nothing may have been put here since. A call of its own, so that
    /// nobody keeps at hand what only it would need.
    #[cold]
    #[inline(never)]
    pub fn put_back(&mut self, count: usize) {
        debug_assert!(self.len() as usize + count <= self.places.capacity(), "no more are free than there are");
        match self.order {
            Order::LastInFirstOut => self.end += count as u64,
            Order::FirstInFirstOut => self.oldest -= count as u64,
        }
    }

    fn contains(&self, index: u32) -> bool {
        (self.oldest..self.end).any(|at| self.places.at(at) == index)
    }
}

#[cfg(test)]
mod tests {
    use super::{FreeRing, Order};
    use crate::region::{PagePolicy, Region, RegionOptions};

    #[test]
    fn s23_u10_the_newest_or_the_oldest_comes_first_however_often_the_ring_wraps() {
        for (order, expected) in [(Order::LastInFirstOut, [5, 4, 3]), (Order::FirstInFirstOut, [3, 4, 5])] {
            let pages = PagePolicy::Ladder { allow_plain: true };
            let mut region = Region::map(&RegionOptions::new(4096).pages(pages)).unwrap();
            let mut ring = FreeRing::new_in(&mut region, 3, order).unwrap();
            assert_eq!(ring.pop(), None);
            for _ in 0..9 {
                for index in 3..6 {
                    ring.push(index);
                }
                assert_eq!(ring.len(), 3);
                for count in 0..=3 {
                    let taken: Vec<u32> = (0..count).map_while(|_| ring.pop()).collect();
                    ring.put_back(count);
                    assert_eq!((taken.as_slice(), ring.len()), (&expected[..count], 3));
                    assert_eq!(ring.peek(), Some(expected[0]));
                }
                assert_eq!([ring.pop(), ring.pop(), ring.pop()], expected.map(Some));
                assert_eq!((ring.pop(), ring.peek(), ring.len()), (None, None, 0));
            }
        }
    }
}
