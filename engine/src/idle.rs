//! The MRs of one connection that may be taken: a ring of their descriptors, newest or oldest first.
//!
//! A descriptor is put here by the step of its MR that made it idle, and no MR makes that step twice. So nothing is looked up and
//! marked per descriptor, as the freelist does that the other ones are on; to it, those here are handed out.

use frwr_mempool::freelist::Order;

/// Descriptors of idle MRs, at most as many as it was made for.
#[derive(Debug)]
pub(crate) struct Idle {
    /// A power of two of places.
    places: Box<[u32]>,
    /// Position of the oldest; positions wrap freely.
    oldest: u32,
    len: u32,
    order: Order,
}

impl Idle {
    /// Room for all MRs of a connection.
    pub(crate) fn new(registrations: u32, order: Order) -> Self {
        Self { places: vec![0; registrations.max(1).next_power_of_two() as usize].into(), oldest: 0, len: 0, order }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Puts a descriptor behind the others.
    #[inline(always)]
    pub(crate) fn push(&mut self, descriptor: u32) {
        debug_assert!((self.len as usize) < self.places.len(), "no more are idle than there are");
        debug_assert!(!self.contains(descriptor), "descriptor {descriptor} is idle already");
        let at = self.slot(self.oldest.wrapping_add(self.len));
        // The mask keeps it inside; said so for the compiler.
        if let Some(place) = self.places.get_mut(at) {
            *place = descriptor;
        }
        self.len += 1;
    }

    /// Takes the next one in its order.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let rest = self.len.checked_sub(1)?;
        let mut at = self.oldest;
        match self.order {
            Order::LastInFirstOut => at = at.wrapping_add(rest),
            Order::FirstInFirstOut => self.oldest = at.wrapping_add(1),
        }
        self.len = rest;
        self.places.get(self.slot(at)).copied()
    }

    fn contains(&self, descriptor: u32) -> bool {
        (0..self.len).any(|at| self.places.get(self.slot(self.oldest.wrapping_add(at))) == Some(&descriptor))
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> usize {
        position as usize & (self.places.len() - 1)
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
                assert_eq!([idle.pop(), idle.pop(), idle.pop()], expected.map(Some));
                assert_eq!((idle.pop(), idle.len()), (None, 0));
            }
        }
    }
}
