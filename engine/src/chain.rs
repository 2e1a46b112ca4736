//! One queue pair's send queue as the engine sees it: what may still be posted, what is posted, and the chain that the
//! next flush posts.

use crate::fixed_list::FixedList;
use crate::provider::{ElementRange, Operation, RegistrationFields, Token, TokenKind, WorkRequest};

/// Entries kept free of requests: one for the marker that ends a drain (the "+1" of S7), one for the write pad (S92).
pub(crate) const RESERVED_ENTRIES: u32 = 2;

/// The owner of work requests that belong to no request slot.
pub(crate) const NO_OWNER: u32 = Token::MAX_INDEX;

/// Marks the owner of a registration without a message.
const STANDALONE: u32 = 1 << 31;
/// Marks the owner of a registration whose message, behind it, vouches for it.
const VOUCHED_FOR: u32 = 1 << 30;
const _: () = assert!(NO_OWNER & (STANDALONE | VOUCHED_FOR) == 0, "slots leave room for the marks");

/// A posted work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) token: Token,
    /// The request slot that a registration or invalidation belongs to; the MR may have a new owner by now (D2).
    owner: u32,
    /// Send queue entries that it takes.
    pub(crate) cost: u32,
}

impl Posted {
    pub(crate) const fn new(token: Token, owner: u32, cost: u32) -> Self {
        Self { token, owner, cost }
    }

    /// The same, for a registration that nothing but its own completion vouches for.
    pub(crate) const fn standalone(self) -> Self {
        Self { owner: self.owner | STANDALONE, ..self }
    }

    /// The same, for a registration in front of its request's message.
    #[inline(always)]
    pub(crate) const fn vouched_for(self) -> Self {
        Self { owner: self.owner | VOUCHED_FOR, ..self }
    }

    #[inline(always)]
    pub(crate) const fn is_vouched_for(self) -> bool {
        self.owner & VOUCHED_FOR != 0
    }

    pub(crate) const fn is_standalone(self) -> bool {
        self.owner & STANDALONE != 0
    }

    pub(crate) const fn owner(self) -> u32 {
        self.owner & !(STANDALONE | VOUCHED_FOR)
    }
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
    /// Position of the first entry of the chain that was posted last.
    chain: u32,
    /// Entries behind `head` of the chain that the next flush posts.
    staged: u32,
    /// Entries that nothing is reserved for.
    free: u32,
    depth: u32,
}

impl SendQueue {
    /// A queue that can track `entries` entries; [`SendQueue::open`] sets how many a queue pair really has.
    pub(crate) fn new(entries: u32) -> Self {
        let vacant = Posted::new(Token(0), NO_OWNER, 0);
        Self {
            ring: vec![vacant; entries.max(1).next_power_of_two() as usize].into(),
            head: 0,
            tail: 0,
            chain: 0,
            staged: 0,
            free: 0,
            depth: 0,
        }
    }

    /// Starts over for a queue pair with `entries` entries.
    pub(crate) fn open(&mut self, entries: u32) {
        self.head = 0;
        self.tail = 0;
        self.chain = 0;
        self.staged = 0;
        self.depth = entries.min(self.ring.len() as u32);
        self.free = self.depth.saturating_sub(RESERVED_ENTRIES);
    }

    /// Whether so many entries are free.
    #[inline]
    pub(crate) fn can_reserve(&self, entries: u32) -> bool {
        entries <= self.free
    }

    /// Takes entries out of the free ones, or says that there are too few.
    #[inline]
    pub(crate) fn reserve(&mut self, entries: u32) -> bool {
        match self.free.checked_sub(entries) {
            Some(rest) => {
                self.free = rest;
                true
            }
            None => false,
        }
    }

    /// Takes entries that are free, as was seen.
    #[inline(always)]
    pub(crate) fn take(&mut self, entries: u32) {
        self.free -= entries;
    }

    /// Gives reserved entries back that will not be posted.
    #[inline]
    pub(crate) fn release(&mut self, entries: u32) {
        self.free += entries;
        debug_assert!(self.free <= self.depth, "more send queue entries released than the queue has");
    }

    /// Work requests posted and not yet passed by a completion.
    pub(crate) fn posted(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Notes a work request of the chain that the next post takes in its place, which counts once the device took it. Returns
    /// its position.
    #[inline(always)]
    pub(crate) fn stage(&mut self, posted: Posted) -> u32 {
        let position = self.next_position();
        debug_assert!(
            position.wrapping_sub(self.tail) < self.ring.len() as u32,
            "the reservation bounds what is posted"
        );
        let at = self.slot(position);
        // The mask keeps it inside; said so for the compiler.
        if let Some(place) = self.ring.get_mut(at) {
            *place = posted;
        }
        self.staged += 1;
        position
    }

    /// [`SendQueue::stage`] of two, one behind the other. Returns the position of the second.
    #[inline(always)]
    pub(crate) fn stage_pair(&mut self, first: Posted, second: Posted) -> u32 {
        let position = self.next_position();
        debug_assert!(
            position.wrapping_add(1).wrapping_sub(self.tail) < self.ring.len() as u32,
            "the reservation bounds what is posted"
        );
        for (position, posted) in [(position, first), (position.wrapping_add(1), second)] {
            let at = self.slot(position);
            if let Some(place) = self.ring.get_mut(at) {
                *place = posted;
            }
        }
        self.staged += 2;
        position.wrapping_add(1)
    }

    /// The position of the next work request that is staged.
    #[inline(always)]
    pub(crate) fn next_position(&self) -> u32 {
        self.head.wrapping_add(self.staged)
    }

    /// Whether something that was staged and not posted may stand at this position: false is certain.
    #[inline(always)]
    pub(crate) fn may_be_staged(&self, position: u32) -> bool {
        position.wrapping_sub(self.head) < self.staged
    }

    /// What is staged and not posted at this position.
    pub(crate) fn staged_behind(&self, position: u32) -> Option<Posted> {
        if !self.may_be_staged(position) {
            return None;
        }
        self.ring.get(self.slot(position)).copied()
    }

    /// Nothing is staged any more. Returns how many work requests were; [`SendQueue::next_at`] still finds them.
    pub(crate) fn unstage(&mut self) -> u32 {
        core::mem::take(&mut self.staged)
    }

    /// What stands so many behind all that is posted.
    pub(crate) fn next_at(&self, at: u32) -> Option<Posted> {
        self.ring.get(self.slot(self.head.wrapping_add(at))).copied()
    }

    /// A work request of the chain that was posted last.
    pub(crate) fn staged_at(&self, at: usize) -> Posted {
        self.ring[self.slot(self.chain.wrapping_add(at as u32))]
    }

    /// The chain was posted, and the device took the first `accepted` of it.
    #[inline]
    pub(crate) fn accept(&mut self, accepted: usize) {
        self.chain = self.head;
        self.head = self.chain.wrapping_add(accepted as u32);
        self.staged = 0;
    }

    /// Notes an accepted work request that was posted alone.
    pub(crate) fn push(&mut self, posted: Posted) {
        debug_assert!(self.staged == 0, "nothing is posted between a chain and its flush");
        self.stage(posted);
        self.accept(1);
    }

    /// Like [`SendQueue::ahead_of`], for a work request that was posted at this position.
    #[inline]
    pub(crate) fn ahead_at(&self, position: u32, token: Token) -> Option<u32> {
        let ahead = position.wrapping_sub(self.tail);
        let posted = self.ring.get(self.slot(position))?;
        (posted.token == token && ahead < self.posted()).then_some(ahead)
    }

    /// Whether this is the oldest one, and no other has its token.
    #[inline]
    pub(crate) fn is_oldest(&self, token: Token) -> bool {
        let token_at = |ahead: u32| self.ring.get(self.slot(self.tail.wrapping_add(ahead))).map(|posted| posted.token);
        match self.posted() {
            0 => false,
            1 => token_at(0) == Some(token),
            _ => token_at(0) == Some(token) && token_at(1) != Some(token),
        }
    }

    /// How many posted work requests stand before the one with this token, the last one if several have it: the RDMA
    /// operations of one transfer do, and only their last one asks for a completion. `None` for a token that is not posted.
    pub(crate) fn ahead_of(&self, token: Token) -> Option<u32> {
        let posted = self.posted() as usize;
        // The ring as two runs, up to its end and from its start on: a device that repeats completions makes us look often.
        let (start, oldest) = self.ring.split_at(self.slot(self.tail));
        let oldest = oldest.get(..posted).unwrap_or(oldest);
        let start = start.get(..posted - oldest.len()).unwrap_or(start);
        let find = |run: &[Posted]| run.iter().position(|posted| posted.token == token);
        let first = find(oldest).or_else(|| find(start).map(|at| oldest.len() + at))?;
        let behind = oldest.iter().chain(start).skip(first + 1);
        let more = behind.take_while(|posted| posted.token == token).count();
        // At most what is posted.
        Some((first + more) as u32)
    }

    /// Whether a work request of this kind for this object is posted and not yet passed by a completion.
    pub(crate) fn is_posted(&self, kind: TokenKind, index: u32) -> bool {
        let mut posted = (0..self.posted()).map(|ahead| self.ring[self.slot(self.tail.wrapping_add(ahead))].token);
        posted.any(|token| token.kind() == kind && token.index() == index)
    }

    /// The oldest posted work requests, in one run or the first of two.
    #[inline]
    pub(crate) fn oldest_run(&self, most: u32) -> &[Posted] {
        let first = self.slot(self.tail);
        let run = self.ring.get(first..).unwrap_or(&[]);
        let most = most.min(self.posted()) as usize;
        run.get(..most).unwrap_or(run)
    }

    /// Takes the oldest `count` out, which take `cost` entries together.
    #[inline]
    pub(crate) fn retire_run(&mut self, count: u32, cost: u32) {
        self.tail = self.tail.wrapping_add(count);
        self.release(cost);
    }

    /// Takes the oldest posted work request out; its entries are free again.
    #[inline]
    pub(crate) fn retire(&mut self) -> Option<Posted> {
        if self.posted() == 0 {
            return None;
        }
        let posted = *self.ring.get(self.slot(self.tail))?;
        self.tail = self.tail.wrapping_add(1);
        self.release(posted.cost);
        Some(posted)
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        position as usize & (self.ring.len() - 1)
    }
}

/// The work requests that the next flush posts to one queue pair, in order.
pub(crate) type ChainBuffer = FixedList<WorkRequest>;

/// Room for so many work requests.
pub(crate) fn chain_buffer(entries: u32) -> ChainBuffer {
    let operation = Operation::Send { local: ElementRange { first: 0, count: 0 }, invalidate: None };
    FixedList::new(entries as usize, WorkRequest { token: Token(0), signalled: false, fence: false, operation })
}

/// Registrations of a chain, for the statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registered {
    pub(crate) registrations: u64,
    /// By right.
    pub(crate) bytes: [u64; 3],
    /// Some descriptor's keys begin another round.
    pub(crate) first_keys: bool,
}

impl Registered {
    #[inline(always)]
    pub(crate) fn add(&mut self, fields: &RegistrationFields, key_mask: u32) {
        self.registrations += 1;
        if let Some(bytes) = self.bytes.get_mut(fields.access as usize) {
            *bytes += u64::from(fields.length);
        }
        if fields.key & key_mask == 0 {
            self.first_keys = true;
        }
    }

    /// What stands in a part of a chain; its keys' rounds are looked for in any case.
    pub(crate) fn of(requests: &[WorkRequest]) -> Self {
        let mut registered = Self { first_keys: true, ..Self::default() };
        for request in requests {
            if let Operation::Register(fields) = &request.operation {
                registered.add(fields, 0);
            }
        }
        registered
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
            let post = |queue: &mut SendQueue, token| queue.push(Posted::new(token, 0, 0));
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
