//! The receives of one core whose connections share a queue: which connection a queue pair is of, and how many receives each may take.
//!
//! A connection is granted a number of receives when it is opened, and the sum of all grants never exceeds the queue:
//! a peer that keeps to its grant finds a receive, whatever the others do. The sum is kept as what is left of it.

use crate::{
    provider::{QueuePairId, ReceiveRequest, ScatterElement, SharedReceiveQueueId},
    timestamp::Timestamp,
};
use core::time::Duration;
use frwr_mempool::mutant;

/// How long the device is left alone after it refused receives: short for a peer, which finds none meanwhile, and thousands of polls
/// of a core that would otherwise do nothing but try.
const PAUSE: Duration = Duration::from_millis(1);

/// What a core knows of its shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    /// Once Control has made it.
    queue: Option<SharedReceiveQueueId>,
    /// The local key of its buffers.
    lkey: u32,
    /// Receives that the next flush posts, unless the device has refused some just now.
    next: Vec<ReceiveRequest>,
    /// Not before this time is the device asked again after it refused receives.
    rests_until: Timestamp,
    /// The device refused receives, and has not taken all since: some that are granted may not be there.
    is_short: bool,
    /// Receives in the queue that nobody was granted.
    free: u32,
    /// Receives that a queue pair may have taken with it: nobody is granted them any more.
    withdrawn: u32,
    /// The queue pairs that took them, and how many each: what comes from another one was none of them. Each has one at
    /// least, so that there are never more than receives.
    lost: Vec<(QueuePairId, u32)>,
    connections: ConnectionIndex,
}

impl SharedReceives {
    /// For a queue of so many, which is not made yet.
    pub(crate) fn new(entries: u32, connections: u32) -> Self {
        Self {
            queue: None,
            lkey: 0,
            next: Vec::with_capacity(entries as usize),
            rests_until: Timestamp::EPOCH,
            is_short: false,
            free: entries,
            withdrawn: 0,
            lost: Vec::with_capacity(entries as usize),
            connections: ConnectionIndex::new(connections),
        }
    }

    /// Control has made it; `lkey` is that of the buffers' memory.
    pub(crate) fn made(&mut self, queue: SharedReceiveQueueId, lkey: u32) {
        (self.queue, self.lkey) = (Some(queue), lkey);
    }

    /// Where buffers are posted.
    pub(crate) fn queue(&self) -> Option<SharedReceiveQueueId> {
        self.queue
    }

    /// The next flush posts this receive, with the local key that its buffer has here.
    #[inline(always)]
    pub(crate) fn post_next(&mut self, receive: ReceiveRequest) {
        let element = ScatterElement { lkey: self.lkey, ..receive.element };
        self.next.push(ReceiveRequest { element, ..receive });
    }

    /// What the next flush posts, oldest first.
    pub(crate) fn next(&self) -> &[ReceiveRequest] {
        &self.next
    }

    /// The first so many of them are in the queue. So many of those had been taken by connections that have ended: they can be
    /// granted again.
    pub(crate) fn posted(&mut self, count: usize, of_ended: u32) {
        self.next.drain(..count);
        self.free += if mutant!(S10_shared_held) { 0 } else { of_ended };
    }

    /// Whether there is something to post, now or later.
    pub(crate) fn has_to_post(&self) -> bool {
        self.queue.is_some() && !self.next.is_empty()
    }

    /// Whether there is something to post now.
    #[inline]
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.has_to_post() && now >= self.rests_until
    }

    /// When there is something to post that the device refused before.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        self.has_to_post().then(|| self.rests_until.since_epoch())
    }

    /// Some of what is granted may not be posted: no peer may be told of a grant now.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// The device took all that there was to post.
    pub(crate) fn all_posted(&mut self) {
        self.is_short = false;
    }

    /// The device took none of what is left: that is posted later, as `make` makes each anew of what it was.
    pub(crate) fn refused(&mut self, now: Timestamp, mut make: impl FnMut(&mut ReceiveRequest)) {
        self.next.iter_mut().for_each(&mut make);
        self.is_short = true;
        self.rests_until = now.since_epoch().saturating_add(PAUSE).into();
    }

    /// Receives that a further connection can be granted.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Receives that were lost with their queue pairs.
    pub(crate) fn withdrawn(&self) -> u32 {
        self.withdrawn
    }

    /// Grants receives to a connection. Callers have asked for [`SharedReceives::free`].
    pub(crate) fn grant(&mut self, receives: u32) {
        debug_assert!(receives <= self.free, "more receives granted than the queue has");
        self.free = self.free.saturating_sub(receives);
    }

    /// The connection whose queue pair this is.
    #[inline]
    pub(crate) fn connection_of(&self, queue_pair: QueuePairId) -> Option<u16> {
        self.connections.find(queue_pair)
    }

    pub(crate) fn opened(&mut self, queue_pair: QueuePairId, connection: u16) {
        // The device uses the number again: nothing comes from the former queue pair any more.
        if !mutant!(S5_shared_lost) {
            self.lost.retain(|(lost, _)| *lost != queue_pair);
        }
        self.connections.insert(queue_pair, connection);
    }

    /// A connection is gone, of whose grant `lost` may never come back, and `held` are not posted again yet: these are free when they
    /// are.
    pub(crate) fn closed(&mut self, queue_pair: QueuePairId, connection: u16, granted: u32, held: u32, lost: u32) {
        self.connections.remove(queue_pair, connection);
        self.withdrawn += lost;
        if lost > 0 {
            self.lost.push((queue_pair, lost));
        }
        self.free += if mutant!(S10_shared_granted) { 0 } else { granted.saturating_sub(held + lost) };
    }

    /// A buffer came back from a queue pair that is gone. One that was given up with it can be granted again; all others were
    /// when their connection closed.
    pub(crate) fn found(&mut self, queue_pair: QueuePairId) {
        let Some(at) = self.lost.iter().position(|(lost, _)| *lost == queue_pair) else { return };
        self.withdrawn -= 1;
        self.free += 1;
        self.lost[at].1 -= 1;
        if self.lost[at].1 == 0 {
            self.lost.swap_remove(at);
        }
    }
}

/// Connections by the numbers of their queue pairs: a table with open addressing, a quarter full at most.
#[derive(Debug)]
struct ConnectionIndex {
    places: Box<[Option<(QueuePairId, u16)>]>,
    /// Bits of a hash that are not its place.
    shift: u32,
}

/// Places per connection: with linear probing a look-up then takes one place, rarely two.
const PLACES_PER_CONNECTION: u32 = 4;

impl ConnectionIndex {
    fn new(connections: u32) -> Self {
        let places = (connections.max(1) * PLACES_PER_CONNECTION).next_power_of_two();
        Self { places: vec![None; places as usize].into(), shift: u32::BITS - places.trailing_zeros() }
    }

    /// Where the search for a number begins: devices count them up, so the high bits of a product by the golden ratio
    /// (Knuth's multiplicative hash) spread them evenly.
    fn home(&self, queue_pair: QueuePairId) -> usize {
        (queue_pair.0.wrapping_mul(0x9e37_79b9) >> self.shift) as usize
    }

    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    /// The place of a number, or the vacant one where it would be. There are more places than connections.
    fn place_of(&self, queue_pair: QueuePairId) -> usize {
        let mut place = self.home(queue_pair);
        // S8: numbers are taken for shorter than they are.
        while self.places[place]
            .is_some_and(|(known, _)| known != queue_pair && !(mutant!(S8) && known.0 as u8 == queue_pair.0 as u8))
        {
            place = self.next(place);
        }
        place
    }

    #[inline]
    fn find(&self, queue_pair: QueuePairId) -> Option<u16> {
        self.places[self.place_of(queue_pair)].map(|(_, connection)| connection)
    }

    fn insert(&mut self, queue_pair: QueuePairId, connection: u16) {
        let place = self.place_of(queue_pair);
        self.places[place] = Some((queue_pair, connection));
    }

    /// Removes a connection's entry, if it is still its own, and closes the gap behind it.
    fn remove(&mut self, queue_pair: QueuePairId, connection: u16) {
        let mut gap = self.place_of(queue_pair);
        if self.places[gap] != Some((queue_pair, connection)) {
            return;
        }
        self.places[gap] = None;
        let mut place = self.next(gap);
        while let Some(entry) = self.places[place] {
            let (from_home, from_gap) = (self.distance(self.home(entry.0), place), self.distance(gap, place));
            if from_home >= from_gap {
                self.places[gap] = self.places[place].take();
                gap = place;
            }
            place = self.next(place);
        }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionIndex, SharedReceives};
    use crate::provider::QueuePairId;
    use std::collections::HashMap;

    /// Against a plain map, with numbers that share few places, and differ in high bits alone (S8).
    #[test]
    fn the_index_is_a_map() {
        let mut index = ConnectionIndex::new(8);
        let collide = |number: &u32| index.home(QueuePairId(*number)) < 3;
        let numbers: Vec<u32> = (0..).map(|at| at << 8).filter(collide).take(24).collect();
        let mut model: HashMap<u32, u16> = HashMap::new();
        let mut random = 7u32;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = numbers[(random >> 16) as usize % numbers.len()];
            match model.get(&number) {
                Some(&connection) => {
                    index.remove(QueuePairId(number), connection.wrapping_add(1));
                    assert_eq!(index.find(QueuePairId(number)), Some(connection), "somebody else's is not removed");
                    index.remove(QueuePairId(number), connection);
                    model.remove(&number);
                }
                None if model.len() < 8 => {
                    let connection = step as u16;
                    index.insert(QueuePairId(number), connection);
                    model.insert(number, connection);
                }
                None => {}
            }
            for &number in &numbers {
                assert_eq!(index.find(QueuePairId(number)), model.get(&number).copied(), "step {step}");
            }
        }
    }

    /// What is granted, held, lost and free is the queue, at any time.
    #[test]
    fn a_grant_is_free_again_when_its_buffers_are_back() {
        let mut shared = SharedReceives::new(16, 2);
        shared.grant(6);
        shared.grant(10);
        assert_eq!(shared.free(), 0);
        shared.closed(QueuePairId(1), 1, 10, 2, 0);
        assert_eq!(shared.free(), 8, "two are held");
        shared.posted(0, 1);
        assert_eq!(shared.free(), 9);
        shared.closed(QueuePairId(2), 0, 6, 0, 4);
        shared.posted(0, 1);
        assert_eq!((shared.free(), shared.withdrawn()), (12, 4));
        shared.found(QueuePairId(1));
        assert_eq!((shared.free(), shared.withdrawn()), (12, 4), "that one had lost none");
        for _ in 0..6 {
            shared.found(QueuePairId(2));
        }
        assert_eq!((shared.free(), shared.withdrawn()), (16, 0), "no more than was lost");
        shared.grant(3);
        shared.closed(QueuePairId(3), 0, 3, 0, 3);
        shared.opened(QueuePairId(3), 1);
        shared.found(QueuePairId(3));
        assert_eq!((shared.free(), shared.withdrawn()), (13, 3), "the number is another queue pair's now");
    }
}
