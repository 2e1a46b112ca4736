//! One queue pair's send queue as the engine sees it: what may still be posted, what is posted, and the chain that the
//! next flush posts.

use crate::provider::{Token, TokenKind, WorkRequest};

/// Entries kept free of requests: one for the marker that ends a drain (the "+1" of S7), one for the write pad (S92).
pub(crate) const RESERVED_ENTRIES: u32 = 2;

/// A posted work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) token: Token,
    /// The request slot that a registration or invalidation belongs to; the MR may have a new owner by now (D2).
    pub(crate) owner: u32,
    /// Send queue entries that it takes.
    pub(crate) cost: u32,
}

/// Credits, and the ring of what is posted. Entries are reserved when a request is admitted, so that its message and
/// its fence can always be posted (I31), and come back when a completion has passed them.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Box<[Posted]>,
    /// Position of the next entry to post; wraps freely.
    head: u32,
    /// Position of the oldest entry posted; `head - tail` are posted.
    tail: u32,
    /// Entries that nothing is reserved for.
    free: u32,
    depth: u32,
}

impl SendQueue {
    /// A queue that can track `entries` entries; [`SendQueue::open`] sets how many a queue pair really has.
    pub(crate) fn new(entries: u32) -> Self {
        let vacant = Posted { token: Token(0), owner: 0, cost: 0 };
        Self {
            ring: vec![vacant; entries.max(1).next_power_of_two() as usize].into(),
            head: 0,
            tail: 0,
            free: 0,
            depth: 0,
        }
    }

    /// Starts over for a queue pair with `entries` entries.
    pub(crate) fn open(&mut self, entries: u32) {
        self.head = 0;
        self.tail = 0;
        self.depth = entries.min(self.ring.len() as u32);
        self.free = self.depth.saturating_sub(RESERVED_ENTRIES);
    }

    /// Takes entries out of the free ones, or says that there are too few.
    pub(crate) fn reserve(&mut self, entries: u32) -> bool {
        match self.free.checked_sub(entries) {
            Some(rest) => {
                self.free = rest;
                true
            }
            None => false,
        }
    }

    /// Gives reserved entries back that will not be posted.
    pub(crate) fn release(&mut self, entries: u32) {
        self.free += entries;
        debug_assert!(self.free <= self.depth, "more send queue entries released than the queue has");
    }

    /// Work requests posted and not yet passed by a completion.
    pub(crate) fn posted(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Notes an accepted work request.
    #[inline]
    pub(crate) fn push(&mut self, posted: Posted) {
        debug_assert!((self.posted() as usize) < self.ring.len(), "the reservation bounds what is posted");
        let at = self.slot(self.head);
        // The mask keeps it inside; said so for the compiler.
        if let Some(place) = self.ring.get_mut(at) {
            *place = posted;
        }
        self.head = self.head.wrapping_add(1);
    }

    /// How many posted work requests stand before the one with this token, the last one if several have it: the RDMA
    /// operations of one transfer do, and only their last one asks for a completion. `None` for a token that is not posted.
    pub(crate) fn ahead_of(&self, token: Token) -> Option<u32> {
        let (tail, posted) = (self.slot(self.tail), self.posted() as usize);
        // The ring as two runs, up to its end and from its start on.
        let (start, oldest) = self.ring.split_at(tail);
        let mut posted = oldest.iter().chain(start).take(posted);
        let first = posted.position(|posted| posted.token == token)?;
        let more = posted.take_while(|posted| posted.token == token).count();
        // At most what is posted.
        Some((first + more) as u32)
    }

    /// Whether a work request of this kind for this object is posted and not yet passed by a completion.
    pub(crate) fn is_posted(&self, kind: TokenKind, index: u32) -> bool {
        let mut posted = (0..self.posted()).map(|ahead| self.ring[self.slot(self.tail.wrapping_add(ahead))].token);
        posted.any(|token| token.kind() == kind && token.index() == index)
    }

    /// Takes the oldest posted work request out; its entries are free again.
    pub(crate) fn retire(&mut self) -> Option<Posted> {
        if self.posted() == 0 {
            return None;
        }
        let posted = self.ring[self.slot(self.tail)];
        self.tail = self.tail.wrapping_add(1);
        self.release(posted.cost);
        Some(posted)
    }

    fn slot(&self, position: u32) -> usize {
        position as usize & (self.ring.len() - 1)
    }
}

/// The work requests that one flush posts to one queue pair, in order. One per core, used again for every queue pair.
#[derive(Debug)]
pub(crate) struct ChainBuffer {
    pub(crate) requests: Vec<WorkRequest>,
    /// What the send queue remembers of each.
    pub(crate) posted: Vec<Posted>,
}

impl ChainBuffer {
    /// Room for a whole send queue: credits bound what one flush can post, so a chain is never split.
    pub(crate) fn new(entries: u32) -> Self {
        Self { requests: Vec::with_capacity(entries as usize), posted: Vec::with_capacity(entries as usize) }
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.posted.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, request: WorkRequest, owner: u32, cost: u32) {
        debug_assert!(self.requests.len() < self.requests.capacity(), "credits bound the chain");
        self.posted.push(Posted { token: request.token, owner, cost });
        self.requests.push(request);
    }

    pub(crate) fn posted(&self, index: usize) -> Posted {
        self.posted[index]
    }
}

#[cfg(test)]
mod tests {
    use super::{Posted, SendQueue};
    use crate::provider::{Token, TokenKind};

    /// The RDMA operations of one transfer share a token, and only their last one completes: it retires all of them, also
    /// where the ring wraps between them.
    #[test]
    fn operations_of_one_transfer_retire_with_the_last() {
        let token = |kind, index| Token::new(kind, index, 0);
        for retired in 0..8 {
            let mut queue = SendQueue::new(8);
            queue.open(8);
            let post = |queue: &mut SendQueue, token| queue.push(Posted { token, owner: 0, cost: 0 });
            for _ in 0..retired {
                post(&mut queue, token(TokenKind::Message, 9));
                assert!(queue.retire().is_some());
            }
            let transfer = token(TokenKind::Transfer, 1);
            for token in [token(TokenKind::Message, 1), transfer, transfer, transfer, token(TokenKind::Reply, 1)] {
                post(&mut queue, token);
            }
            let ahead =
                [TokenKind::Message, TokenKind::Transfer, TokenKind::Reply].map(|kind| queue.ahead_of(token(kind, 1)));
            assert_eq!(ahead, [Some(0), Some(3), Some(4)], "{retired} retired before");
            assert_eq!(queue.ahead_of(token(TokenKind::Transfer, 2)), None);
        }
    }
}
