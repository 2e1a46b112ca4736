//! One queue pair's send queue as the engine sees it: what may still be posted, what is posted, and the chain that the
//! next flush posts.

use crate::fixed_list::FixedList;
use crate::provider::{Access, Operation, SendQueueCost, Token, TokenKind, WorkRequest};
use frwr_mempool::mutant;
use frwr_mempool::{Region, region::CarveError, slab::Ring};

#[cfg(test)]
mod small_domain;

/// Entries kept free of requests: for the marker that ends a drain (the "+1" of S7), and for the write pad's registration (S92).
pub(crate) const fn reserved_entries(cost: SendQueueCost) -> u32 {
    let marker = if cost.message == 0 { 1 } else { cost.message };
    let pad = if cost.register == 0 { 1 } else { cost.register };
    marker + pad
}

/// The owner of work requests that belong to no request slot.
pub(crate) const NO_OWNER: u32 = Token::MAX_INDEX;

/// The position of what was never posted, or will not be: in front of all others.
pub(crate) const NOT_POSTED: u64 = 0;

/// Marks the token of a registration that no message behind it vouches for.
const ALONE: u64 = 1 << 63;
const _: () = assert!((TokenKind::Drain as u64) << 60 & ALONE == 0, "kinds leave room for the mark");

/// Marks the token of a barrier among those of markers: no connection's index has this bit.
const BARRIER: u32 = 1 << 16;

/// The token of a work request whose completion tells that all in front of it is done, and nothing else, on a connection that works.
/// `number`: of no other barrier of this connection that may still be in flight, or whose completion may come again.
pub(crate) const fn barrier_token(connection: u16, number: u32) -> Token {
    Token::new(TokenKind::Drain, connection as u32 | BARRIER, number)
}

/// The index of the connection whose marker or barrier this is.
pub(crate) const fn marked_connection(token: Token) -> u16 {
    // The bit of barriers is the next one.
    token.index() as u16
}

const fn is_barrier(token: Token) -> bool {
    token.is(TokenKind::Drain) && token.index() & BARRIER != 0
}

/// Positions that a search looks at in one step of its loop.
const BLOCK: usize = 8;

/// Positions per word of those that are awaited.
pub(crate) const WORD: u64 = u64::BITS as u64;

/// A posted work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) token: Token,
    /// The request slot that a registration or invalidation belongs to; the MR may have a new owner by now (D2).
    /// [`NO_OWNER`] where the message behind it tells.
    pub(crate) owner: u32,
    /// Somebody waits for it: it is looked at when a completion has passed it.
    awaited: bool,
    /// A registration that is [`ALONE`].
    alone: bool,
}

impl Posted {
    /// Of a request, a transfer, or the queue pair itself, which hears of it.
    pub(crate) const fn new(token: Token, owner: u32) -> Self {
        Self { token, owner, awaited: true, alone: token.is(TokenKind::Register) }
    }

    /// A registration that nothing but its own completion vouches for.
    pub(crate) fn is_standalone(self) -> bool {
        self.alone && self.owner != NO_OWNER
    }

    /// A marker or a write pad, whose entry is not one that requests could reserve ([`reserved_entries`]).
    fn is_set_aside(self) -> bool {
        let is_pad = self.alone && self.owner == NO_OWNER;
        is_pad || self.token.is(TokenKind::Drain) && !is_barrier(self.token)
    }
}

/// Credits, and the ring of what is posted. Entries are reserved when a request is admitted, so that its message and
/// its fence can always be posted (I31), and come back when a completion has passed them.
///
/// What is retired is not looked at, unless somebody waits for it (`awaited`): a message's slot remembers its position, and from
/// that it is seen whether the device is done with it. Positions count on for ever, over all queue pairs of a connection.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// Tokens by position, with [`ALONE`].
    ring: Ring<u64>,
    /// Owners of registrations without a message and of invalidations.
    owners: Ring<u32>,
    /// A bit for each position that somebody waits for. All others are clear.
    awaited: Ring<u64>,
    /// Position of the next entry to post.
    head: u64,
    /// Position of the oldest entry posted; `head - tail` are posted.
    tail: u64,
    /// What stands in front of this position the device is done with. Not so what was given up (`abandon`).
    done: u64,
    /// Position behind the last entry of the chain that the next flush posts, which begins at `head`.
    end: u64,
    /// Entries that nothing is reserved for.
    free: u32,
    depth: u32,
    cost: SendQueueCost,
    /// What is posted and takes other entries than a message: markers and write pads take none, and where costs depend on the kind of a
    /// work request there is always one more.
    unequal: u32,
    /// No registration that is [`ALONE`] stands behind this position.
    last_alone: u64,
}

impl SendQueue {
    /// A queue that can track `entries` entries; [`SendQueue::open`] sets how many a queue pair really has.
    pub(crate) fn new_in(region: &mut Region, entries: u32, cost: SendQueueCost) -> Result<Self, CarveError> {
        let ring = Ring::new_in(region, entries as usize, 0)?;
        Ok(Self {
            owners: Ring::new_in(region, ring.capacity(), NO_OWNER)?,
            awaited: Ring::new_in(region, words(ring.capacity()), 0)?,
            ring,
            head: NOT_POSTED + 1,
            tail: NOT_POSTED + 1,
            done: NOT_POSTED + 1,
            end: NOT_POSTED + 1,
            free: 0,
            depth: 0,
            cost,
            unequal: unequal(cost),
            last_alone: NOT_POSTED,
        })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(entries: u32) -> Option<usize> {
        let places = (entries as usize).max(1).checked_next_power_of_two()?;
        Ring::<u64>::bytes_needed(places)?
            .checked_add(Ring::<u32>::bytes_needed(places)?)?
            .checked_add(Ring::<u64>::bytes_needed(words(places))?)
    }

    /// Starts over for a queue pair with `entries` entries.
    pub(crate) fn open(&mut self, entries: u32) {
        self.tail = self.head;
        self.done = self.head;
        self.end = self.head;
        self.unequal = unequal(self.cost);
        self.awaited.fill(0);
        self.depth = entries.min(self.ring.capacity() as u32);
        self.free = self.depth.saturating_sub(reserved_entries(self.cost));
        if mutant!(S4_marker) {
            // The marker's entry is given to requests.
            self.free = self.depth;
        }
    }

    /// Entries of the queue pair, and those of them that can be reserved.
    pub(crate) fn entries(&self) -> (u32, u32) {
        (self.depth, self.depth.saturating_sub(reserved_entries(self.cost)))
    }

    /// Whether so many entries are free.
    #[inline]
    pub(crate) fn can_reserve(&self, entries: u32) -> bool {
        entries <= self.free
    }

    /// Takes entries out of the free ones, or says that there are too few.
    #[inline]
    pub(crate) fn reserve(&mut self, entries: u32) -> bool {
        // Half of them are not counted.
        let entries = if mutant!(S4_reserve) { entries / 2 } else { entries };
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
        // At most the entries of the ring.
        (self.head - self.tail) as u32
    }

    /// The same, and those that the next flush posts.
    pub(crate) fn in_flight(&self) -> u64 {
        self.end - self.tail
    }

    /// Send queue entries that a work request takes. Markers and write pads have theirs set aside ([`reserved_entries`]).
    pub(crate) fn cost_of(&self, posted: &Posted) -> u32 {
        match posted.token.kind() {
            _ if posted.is_set_aside() => 0,
            TokenKind::Register => self.cost.register,
            TokenKind::Invalidate => self.cost.invalidate,
            // A barrier, of what is no marker.
            TokenKind::Message | TokenKind::Transfer | TokenKind::Reply | TokenKind::Drain => self.cost.message,
            TokenKind::Foreign | TokenKind::Receive => 0,
        }
    }

    /// Notes a work request of the chain that the next post takes in its place, which counts once the device took it. Returns
    /// its position.
    pub(crate) fn stage(&mut self, posted: Posted) -> u64 {
        let position = self.next_position();
        self.check_room(position);
        self.ring.set(position, posted.token.0 | if posted.alone { ALONE } else { 0 });
        self.owners.set(position, posted.owner);
        if posted.alone {
            self.last_alone = position;
        }
        if posted.awaited {
            self.await_at(position);
        }
        self.end = position + 1;
        position
    }

    /// Stages the work requests of a request: its message behind its registrations, for which it vouches. `awaited`: the request's
    /// end waits for the message (S51).
    #[inline(always)]
    pub(crate) fn stage_request(&mut self, work: &[WorkRequest], awaited: bool) {
        let first = self.next_position();
        let end = first + work.len() as u64;
        self.check_room(end - 1);
        self.ring.set_run(first, work.iter().map(|work| work.token.0));
        if mutant!(F7_request) {
            // The place of the message is that of its registration.
            self.ring.set(end - 1, self.ring.at(first));
        }
        if awaited {
            self.await_at(end - 1);
        }
        self.end = end;
    }

    /// Puts an invalidation into its place behind all that is staged; [`SendQueue::stage_invalidations`] stages those that have
    /// their places.
    #[inline(always)]
    pub(crate) fn put_invalidation(&mut self, position: u64, token: Token, owner: u32) {
        self.check_room(position);
        self.ring.set(position, token.0);
        self.owners.set(position, owner);
    }

    /// [`SendQueue::stage`] of so many invalidations, which have their places.
    pub(crate) fn stage_invalidations(&mut self, count: u64) {
        let mut from = self.next_position();
        self.end = from + count;
        while from < self.end {
            let word = from / WORD;
            let end = self.end.min((word + 1) * WORD);
            let bits = (u64::MAX >> (WORD - (end - from))) << (from % WORD);
            self.awaited.set(word, self.awaited.at(word) | bits);
            from = end;
        }
    }

    /// [`SendQueue::stage`] of the RDMA operations of a transfer, all by the same token. `awaited`: the transfer's end waits for the last
    /// one, which vouches for those in front of it.
    #[inline(always)]
    pub(crate) fn stage_operations(&mut self, token: Token, count: u64, awaited: bool) {
        let Some(others) = count.checked_sub(1) else { return };
        let first = self.next_position();
        let last = first + others;
        self.check_room(last);
        self.ring.set_run(first, core::iter::repeat_n(token.0, count as usize));
        if awaited {
            self.await_at(last);
        }
        self.end = last + 1;
    }

    /// One of them.
    #[inline(always)]
    pub(crate) fn stage_operation(&mut self, token: Token, awaited: bool) {
        let position = self.next_position();
        self.check_room(position);
        self.ring.set(position, token.0);
        if awaited {
            self.await_at(position);
        }
        self.end = position + 1;
    }

    #[inline(always)]
    fn check_room(&self, position: u64) {
        debug_assert!(position - self.tail < self.ring.capacity() as u64, "the reservation bounds what is posted");
    }

    /// The position of the next work request that is staged.
    #[inline(always)]
    pub(crate) fn next_position(&self) -> u64 {
        self.end
    }

    /// Somebody waits for what is posted or staged at this position.
    #[inline(always)]
    pub(crate) fn await_at(&mut self, position: u64) {
        let word = position / WORD;
        self.awaited.set(word, self.awaited.at(word) | 1 << (position % WORD));
    }

    /// Nobody waits for it any more. Whether somebody did.
    fn forget_at(&mut self, position: u64) -> bool {
        let word = position / WORD;
        let bits = self.awaited.at(word);
        self.awaited.set(word, bits & !(1 << (position % WORD)));
        bits & 1 << (position % WORD) != 0
    }

    /// Whether the device may still work on what was staged at this position: no completion has passed it.
    #[inline(always)]
    pub(crate) fn is_pending(&self, position: u64) -> bool {
        // K10: what is posted counts as read.
        position >= self.done && !(mutant!(K10_posted) && position < self.head)
    }

    /// The position of the last one, posted or staged and not passed by a completion, where that is a barrier.
    pub(crate) fn last_barrier(&self) -> Option<u64> {
        let last = self.end.checked_sub(1).filter(|_| self.in_flight() > 0)?;
        self.is_barrier_at(last).then_some(last)
    }

    /// Whether a barrier still stands at this position: it moves up where what stands in front of it is taken out of the chain, and is gone
    /// where the device refused it.
    pub(crate) fn is_barrier_at(&self, position: u64) -> bool {
        position < self.end && is_barrier(self.token_at(position))
    }

    /// Whether what was staged at this position is posted, or was.
    #[inline(always)]
    pub(crate) fn was_posted(&self, position: u64) -> bool {
        position < self.head
    }

    /// What is staged and not posted at this position.
    pub(crate) fn staged_behind(&self, position: u64) -> Option<Posted> {
        (position >= self.head && position < self.end).then(|| self.entry(position))
    }

    /// What is staged so many behind all that is posted.
    pub(crate) fn next_at(&self, at: u64) -> Option<Posted> {
        self.staged_behind(self.head + at)
    }

    /// Nothing is staged any more. Returns how many work requests were; [`SendQueue::take_next`] still finds them.
    pub(crate) fn unstage(&mut self) -> u64 {
        core::mem::replace(&mut self.end, self.head) - self.head
    }

    /// Takes what stands so many behind all that is posted; nobody waits for it there any more.
    pub(crate) fn take_next(&mut self, at: u64) -> (u64, Posted) {
        let position = self.head + at;
        let awaited = self.forget_at(position);
        (position, Posted { awaited, ..self.entry(position) })
    }

    /// A work request of the chain that was posted last, which the device refused: so many behind those that it took.
    pub(crate) fn refused_at(&self, at: usize) -> Posted {
        self.entry(self.head + at as u64)
    }

    /// The chain was posted, and the device took the first `accepted` of it.
    #[inline]
    pub(crate) fn accept(&mut self, accepted: usize) {
        self.head += accepted as u64;
        let refused = core::mem::replace(&mut self.end, self.head).saturating_sub(self.head);
        if refused > 0 {
            self.forget_refused(refused);
        }
    }

    /// The same of all of it, which has so many work requests.
    #[inline(always)]
    pub(crate) fn accept_all(&mut self, all: usize) {
        debug_assert!(self.end - self.head == all as u64, "what is staged is the chain");
        self.head = self.end;
    }

    #[cold]
    fn forget_refused(&mut self, refused: u64) {
        for at in 0..refused {
            self.forget_at(self.head + at);
        }
    }

    /// Notes an accepted work request that was posted alone.
    pub(crate) fn push(&mut self, posted: Posted) {
        debug_assert!(self.end == self.head, "nothing is posted between a chain and its flush");
        self.unequal += u32::from(posted.is_set_aside());
        self.stage(posted);
        self.accept(1);
    }

    /// Whether this token was posted at this position, which is not in front of `first`: of what no completion has passed.
    #[inline(always)]
    pub(crate) fn is_posted_from(&self, first: u64, position: u64, token: Token) -> bool {
        debug_assert!(first >= self.tail, "what a completion has passed is not posted");
        position >= first && position < self.head && (mutant!(S7_position) || self.ring.at(position) == token.0)
    }

    /// The position of the oldest one.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.tail
    }

    /// Whether this is the oldest one, and no other has its token.
    #[inline]
    pub(crate) fn is_oldest(&self, token: Token) -> bool {
        let posted = self.posted();
        posted > 0 && self.has(self.tail, token) && (posted == 1 || !self.has(self.tail + 1, token))
    }

    #[inline]
    fn has(&self, position: u64, token: Token) -> bool {
        self.ring.at(position) & !ALONE == token.0
    }

    /// The position of the posted work request with this token, the last one if several have it: the RDMA
    /// operations of one transfer do, and only their last one asks for a completion. `None` for a token that is not posted.
    pub(crate) fn position_of(&self, token: Token) -> Option<u64> {
        let mut first = self.find(token.0);
        if first.is_none() && token.is(TokenKind::Register) && self.last_alone >= self.tail {
            first = self.find(token.0 | ALONE);
        }
        let mut position = first?;
        while position + 1 < self.head && self.has(position + 1, token) {
            position += 1;
        }
        Some(position)
    }

    /// The oldest position with this in its place.
    fn find(&self, place: u64) -> Option<u64> {
        let posted = self.posted() as usize;
        // The ring as two runs, up to its end and from its start on: a device that repeats completions makes us look often.
        let places = self.ring.as_slice();
        let (start, oldest) = places.split_at((self.tail % places.len() as u64) as usize);
        let oldest = oldest.get(..posted).unwrap_or(oldest);
        let start = start.get(..posted - oldest.len()).unwrap_or(start);
        let at = find(oldest, place).or_else(|| find(start, place).map(|at| oldest.len() + at))?;
        Some(self.tail + at as u64)
    }

    /// Whether a work request of this kind for this object is posted and not yet passed by a completion.
    pub(crate) fn is_posted(&self, kind: TokenKind, index: u32) -> bool {
        let mut posted = (self.tail..self.head).map(|position| self.entry(position).token);
        posted.any(|token| token.kind() == kind && token.index() == index)
    }

    /// Retires everything up to this posted position, and returns the first position that it retired. Whoever waits for one of them
    /// is found by [`SendQueue::take_awaited`]; what nobody waits for costs nothing.
    #[inline(always)]
    pub(crate) fn retire_through(&mut self, through: u64) -> u64 {
        let (first, end) = (self.tail, through + 1);
        let cost = if self.unequal == 0 {
            // At most the entries of the queue.
            (end - first) as u32 * self.cost.message
        } else {
            self.cost_up_to(end)
        };
        self.release(cost);
        self.tail = end;
        self.done = end;
        first
    }

    #[cold]
    fn cost_up_to(&mut self, end: u64) -> u32 {
        let mut cost = 0;
        for position in self.tail..end {
            let posted = self.entry(position);
            cost += self.cost_of_retired(&posted);
        }
        cost
    }

    fn cost_of_retired(&mut self, posted: &Posted) -> u32 {
        self.unequal -= u32::from(posted.is_set_aside());
        self.cost_of(posted)
    }

    /// Which positions of the word that begins with `first`, and not behind `through`, somebody waits for, as bits. Nobody does any more.
    /// In front of the oldest one of a queue that works nobody waits.
    #[inline(always)]
    pub(crate) fn take_awaited(&mut self, first: u64, through: u64) -> u64 {
        let others = (through - first).min(WORD - 1);
        let all = self.awaited.at(first / WORD);
        let awaited = all & u64::MAX >> (WORD - 1 - others);
        if awaited != 0 {
            self.awaited.set(first / WORD, all ^ awaited);
        }
        awaited
    }

    /// What stands or stood at this position that somebody waits for, which nothing vouches for.
    #[inline(always)]
    pub(crate) fn token_at(&self, position: u64) -> Token {
        Token(self.ring.at(position))
    }

    /// The request slot of an invalidation that stands or stood at this position.
    #[inline(always)]
    pub(crate) fn owner_at(&self, position: u64) -> u32 {
        self.owners.at(position)
    }

    /// Takes the oldest posted work request out; its entries are free again.
    pub(crate) fn retire(&mut self) -> Option<Posted> {
        let posted = self.abandon()?;
        self.done = self.tail;
        Some(posted)
    }

    /// The same where nothing tells that the device is done with it.
    pub(crate) fn abandon(&mut self) -> Option<Posted> {
        if self.posted() == 0 {
            return None;
        }
        self.forget_at(self.tail);
        let posted = self.entry(self.tail);
        let cost = self.cost_of_retired(&posted);
        self.tail += 1;
        if mutant!(K10_abandoned) {
            // What was given up counts as done.
            self.done = self.tail;
        }
        self.release(cost);
        Some(posted)
    }

    /// What stands or stood at this position.
    pub(crate) fn entry(&self, position: u64) -> Posted {
        let place = self.ring.at(position);
        let token = Token(place & !ALONE);
        let alone = place & ALONE != 0;
        let owner = match token.kind() {
            TokenKind::Register if !alone => NO_OWNER,
            TokenKind::Drain => NO_OWNER,
            TokenKind::Register | TokenKind::Invalidate => self.owners.at(position),
            _ => token.index(),
        };
        Posted { token, owner, awaited: false, alone }
    }
}

/// Words with a bit for each of so many positions in a row, of which no two that lie in different words share one.
fn words(places: usize) -> usize {
    places.div_ceil(WORD as usize) + 1
}

/// One where work requests take other entries than a message by their kind.
fn unequal(cost: SendQueueCost) -> u32 {
    u32::from(cost.register != cost.message || cost.invalidate != cost.message)
}

/// The first index of this value, in blocks that the compiler unrolls.
#[inline(always)]
fn find(run: &[u64], place: u64) -> Option<usize> {
    let (blocks, rest) = run.as_chunks::<BLOCK>();
    for (at, block) in blocks.iter().enumerate() {
        for (more, found) in block.iter().enumerate() {
            if *found == place {
                return Some(at * BLOCK + more);
            }
        }
    }
    rest.iter().position(|found| *found == place).map(|at| blocks.len() * BLOCK + at)
}

/// The work requests that the next flush posts to one queue pair, in order.
pub(crate) type ChainBuffer = FixedList<WorkRequest>;

const _: () = {
    let order = [Access::RemoteRead as usize, Access::RemoteWrite as usize, Access::RemoteReadWrite as usize];
    assert!(order[0] == 0 && order[1] == 1 && order[2] == 2, "bytes by right: read, write, both");
};

/// Room for so many work requests.
pub(crate) fn chain_buffer(region: &mut Region, entries: u32) -> Result<ChainBuffer, CarveError> {
    FixedList::new_in(region, entries as usize, WorkRequest::VACANT)
}

/// Registrations of a chain, for the statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registered {
    pub(crate) registrations: u64,
    /// Of more than one element.
    pub(crate) lists: u64,
    /// By right.
    pub(crate) bytes: [u64; 3],
    /// Some descriptor's keys begin another round. Who adds it says so.
    pub(crate) first_keys: bool,
}

impl Registered {
    #[inline(always)]
    pub(crate) fn add(&mut self, access: Access, length: u32, elements: u32) {
        self.registrations += 1;
        self.lists += u64::from(elements > 1);
        if let Some(bytes) = self.bytes.get_mut(access as usize) {
            *bytes += u64::from(length);
        }
    }

    /// What stands in a part of a chain; its keys' rounds are looked for in any case.
    pub(crate) fn of(requests: &[WorkRequest]) -> Self {
        let mut registered = Self { first_keys: true, ..Self::default() };
        for request in requests {
            if let Operation::Register(fields) = &request.operation {
                registered.add(fields.access, fields.length, fields.elements.count);
            }
        }
        registered
    }
}

/// A work request of this name, whatever it does.
#[cfg(test)]
fn work(token: Token) -> WorkRequest {
    WorkRequest { token, ..WorkRequest::VACANT }
}

#[cfg(test)]
mod tests {
    use super::{Posted, SendQueue, work};
    use crate::provider::{SendQueueCost, Token, TokenKind};
    use frwr_mempool::{PagePolicy, Region, RegionOptions};

    fn region() -> Region {
        Region::map(&RegionOptions::new(1 << 16).pages(PagePolicy::Ladder { allow_plain: true })).unwrap()
    }

    const FREE: SendQueueCost = SendQueueCost { register: 0, invalidate: 0, message: 0 };

    /// The RDMA operations of one transfer share a token, and only their last one completes: it retires all of them, also
    /// where the ring wraps between them.
    #[test]
    fn operations_of_one_transfer_retire_with_the_last() {
        let token = |kind, index| Token::new(kind, index, 0);
        for retired in 0..8 {
            let mut queue = SendQueue::new_in(&mut region(), 8, FREE).unwrap();
            queue.open(8);
            let post = |queue: &mut SendQueue, token| queue.push(Posted::new(token, 0));
            for _ in 0..retired {
                post(&mut queue, token(TokenKind::Message, 9));
                assert!(queue.retire().is_some());
            }
            let transfer = token(TokenKind::Transfer, 1);
            for token in [token(TokenKind::Message, 1), transfer, transfer, transfer, token(TokenKind::Reply, 1)] {
                post(&mut queue, token);
            }
            let oldest = queue.oldest();
            let ahead = [TokenKind::Message, TokenKind::Transfer, TokenKind::Reply]
                .map(|kind| queue.position_of(token(kind, 1)).map(|position| position - oldest));
            assert_eq!(ahead, [Some(0), Some(3), Some(4)], "{retired} retired before");
            assert_eq!(queue.position_of(token(TokenKind::Transfer, 2)), None);
        }
    }

    /// Whatever is passed over, those that somebody waits for come out one by one, in order, and every credit comes back, with
    /// costs that are equal and costs that are not, wherever the ring wraps.
    #[test]
    fn who_waits_is_told_in_order_and_credits_are_exact() {
        for cost in [
            SendQueueCost { register: 1, invalidate: 1, message: 1 },
            SendQueueCost { register: 3, invalidate: 2, message: 1 },
        ] {
            let mut queue = SendQueue::new_in(&mut region(), 256, cost).unwrap();
            queue.open(256);
            let before = queue.free;
            let token = |kind, index| Token::new(kind, index, 1);
            for round in 0..300_u32 {
                let first = queue.next_position();
                assert!(queue.reserve(2 * (cost.register + cost.message) + cost.invalidate));
                let pair = |register, message| {
                    [work(token(TokenKind::Register, register)), work(token(TokenKind::Message, message))]
                };
                queue.stage_request(&pair(5, 6), false);
                queue.stage(Posted::new(token(TokenKind::Invalidate, 7), 8));
                queue.stage_request(&pair(9, 10), false);
                queue.accept(5);
                assert!(queue.is_posted_from(first, first + 1, token(TokenKind::Message, 6)));
                assert!(!queue.is_posted_from(first, first + 1, token(TokenKind::Message, 10)));
                let message_waits = round % 3 == 0;
                if message_waits {
                    queue.await_at(first + 4);
                }
                assert!(queue.is_pending(first) && queue.is_pending(first + 4));
                let told = |queue: &mut SendQueue, first: u64, through: u64| {
                    let mut told = Vec::new();
                    assert_eq!(queue.retire_through(through), first);
                    for word in (first / 64..=through / 64).map(|word| word * 64) {
                        let bits = queue.take_awaited(word, through);
                        told.extend((0..64).filter(|bit| bits & 1 << bit != 0).map(|bit| word + bit));
                    }
                    told
                };
                // In two parts: what waits behind the first is not told with it.
                assert_eq!(told(&mut queue, first, first + 1), Vec::<u64>::new());
                assert!(!queue.is_pending(first + 1) && queue.is_pending(first + 2));
                let expected = if message_waits { vec![first + 2, first + 4] } else { vec![first + 2] };
                assert_eq!(told(&mut queue, first + 2, first + 4), expected);
                let invalidation = queue.entry(first + 2);
                assert_eq!((invalidation.token, invalidation.owner), (token(TokenKind::Invalidate, 7), 8));
                assert_eq!((queue.posted(), queue.free, queue.is_pending(first + 4)), (0, before, false));
                assert!(!queue.is_posted_from(queue.oldest(), first + 4, token(TokenKind::Message, 10)));
            }
        }
    }
}
