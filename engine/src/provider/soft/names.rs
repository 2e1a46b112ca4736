//! Names of objects and first key bytes of one device.

use super::queue_pair_table::{SLOT_BITS, slot_of};
use super::registration::{KEY_BYTE, REMOTE_KEY_BIT};
use crate::provider::{QueuePairId, RegistrationId};
use std::collections::VecDeque;

/// Freed indices that are kept back: a stale key meets an index that nobody has, not somebody else's object. rxe
/// allocates cyclically for the same reason.
const KEPT_BACK: usize = 256;
/// Key indices end here: 23 bits are left beside the rotating byte and the bit that tells the two kinds apart.
const INDEX_END: u32 = 1 << 23;

/// Indices that are handed out in order and come back late.
#[derive(Debug)]
struct Indices {
    next: u32,
    end: u32,
    freed: VecDeque<u32>,
}

impl Indices {
    const fn new(first: u32, end: u32) -> Self {
        Self { next: first, end, freed: VecDeque::new() }
    }

    fn take(&mut self) -> Option<u32> {
        if self.freed.len() > KEPT_BACK || self.next == self.end {
            return self.freed.pop_front();
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// What a device hands out.
#[derive(Debug)]
pub(super) struct Names {
    random: u64,
    bases: Indices,
    registrations: Indices,
    queue_pairs: Indices,
    generation: u16,
    counter: u32,
}

impl Names {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: seed,
            bases: Indices::new(1, INDEX_END),
            registrations: Indices::new(1, INDEX_END),
            queue_pairs: Indices::new(1, 1 << SLOT_BITS),
            generation: 0,
            counter: 0,
        }
    }

    /// The next byte of a splitmix64 sequence.
    fn byte(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as u32 & KEY_BYTE
    }

    /// A number for a domain, a listener or a connect request.
    pub(super) fn count(&mut self) -> u32 {
        self.counter = self.counter.wrapping_add(1);
        self.counter
    }

    /// A local key, with a random low byte.
    pub(super) fn base(&mut self) -> Option<u32> {
        let index = self.bases.take()?;
        Some((index << 8) | self.byte())
    }

    pub(super) fn free_base(&mut self, index: u32) {
        self.bases.freed.push_back(index);
    }

    /// An object and its first key; its low byte is random where it may rotate.
    pub(super) fn registration(&mut self, rotates: bool) -> Option<(RegistrationId, u32)> {
        let index = self.registrations.take()?;
        let byte = if rotates { self.byte() } else { 0 };
        Some((RegistrationId(index), REMOTE_KEY_BIT | (index << 8) | byte))
    }

    pub(super) fn free_registration(&mut self, object: RegistrationId) {
        self.registrations.freed.push_back(object.0);
    }

    /// A number whose low bits are its place in a table, and whose high bits differ from the last user of the place.
    pub(super) fn queue_pair(&mut self) -> Option<QueuePairId> {
        let slot = self.queue_pairs.take()?;
        self.generation = self.generation.wrapping_add(1);
        Some(QueuePairId((u32::from(self.generation) << SLOT_BITS) | slot))
    }

    pub(super) fn free_queue_pair(&mut self, id: QueuePairId) {
        self.queue_pairs.freed.push_back(slot_of(id));
    }
}
