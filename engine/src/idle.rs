//! The MRs of one connection that may be taken: a ring of their descriptors, newest or oldest first.
//!
//! A descriptor is put here by the step of its MR that made it idle, and no MR makes that step twice. So nothing is looked up and
//! marked per descriptor, as the freelist does that the other ones are on; to it, those here are handed out.

use frwr_mempool::{freelist::Order, slab::Ring};

/// Descriptors of idle MRs, at most as many as it was made for.
#[derive(Debug)]
pub(crate) struct Idle {
    places: Ring<u32>,
    /// Position of the oldest.
    oldest: u64,
    /// Position behind the newest.
    end: u64,
    order: Order,
}

impl Idle {
    /// Room for all MRs of a connection.
    pub(crate) fn new(registrations: u32, order: Order) -> Self {
        Self { places: Ring::new(registrations as usize, 0), oldest: 0, end: 0, order }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        // At most the MRs of a connection.
        (self.end - self.oldest) as u32
    }

    /// Puts a descriptor behind the others.
    #[inline(always)]
    pub(crate) fn push(&mut self, descriptor: u32) {
        debug_assert!((self.len() as usize) < self.places.capacity(), "no more are idle than there are");
        debug_assert!(!self.contains(descriptor), "descriptor {descriptor} is idle already");
        self.places.set(self.end, descriptor);
        self.end += 1;
    }

    /// Takes the next one in its order.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<u32> {
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

    /// Puts back what [`Idle::pop`] took last, where it was: it is the next one again, so that fixed keys still come back as late as
    /// their pool permits (U10).
    #[inline(always)]
    pub(crate) fn put_back(&mut self, descriptor: u32) {
        debug_assert!(!self.contains(descriptor), "descriptor {descriptor} is idle already");
        match self.order {
            Order::LastInFirstOut => self.end += 1,
            Order::FirstInFirstOut => self.oldest -= 1,
        }
    }

    fn contains(&self, descriptor: u32) -> bool {
        (self.oldest..self.end).any(|at| self.places.at(at) == descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::Idle;
    use frwr_mempool::freelist::Order;

    #[test]
    fn s23_u10_the_newest_or_the_oldest_comes_first_however_often_the_ring_wraps() {
        for (order, expected) in [(Order::LastInFirstOut, [5, 4, 3]), (Order::FirstInFirstOut, [3, 4, 5])] {
            let mut idle = Idle::new(3, order);
            assert_eq!(idle.pop(), None);
            for _ in 0..9 {
                for descriptor in 3..6 {
                    idle.push(descriptor);
                }
                assert_eq!(idle.len(), 3);
                let first = idle.pop();
                idle.put_back(first.unwrap_or_default());
                assert_eq!((first, idle.len()), (Some(expected[0]), 3));
                assert_eq!([idle.pop(), idle.pop(), idle.pop()], expected.map(Some));
                assert_eq!((idle.pop(), idle.len()), (None, 0));
            }
        }
    }
}
