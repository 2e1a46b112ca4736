//! The queue pairs of a port, and how its progress is shared among them.

use super::nic::Nic;
use super::queue_pair::{QUEUE_PAIR_BUDGET, QueuePair};
use crate::provider::QueuePairId;

/// Packets and work requests that one call of `poll` moves, over all queue pairs.
const STEP_BUDGET: u32 = 1024;
/// Low bits of a queue pair number that name its place in the table; the others tell its users apart.
pub(super) const SLOT_BITS: u32 = 16;

const _: () = assert!(QUEUE_PAIR_BUDGET <= STEP_BUDGET, "one queue pair's share is part of the whole");

/// The queue pairs of one port.
#[derive(Default)]
pub(super) struct QueuePairTable {
    places: Vec<Option<Box<QueuePair>>>,
    /// Places that are taken.
    active: Vec<u32>,
    /// Where the next progress step begins, in `active`.
    turn: usize,
}

/// The place of a queue pair.
pub(super) const fn slot_of(queue_pair: QueuePairId) -> u32 {
    queue_pair.0 & ((1 << SLOT_BITS) - 1)
}

impl QueuePairTable {
    pub(super) fn len(&self) -> usize {
        self.active.len()
    }

    /// The queue pair of this number, and no later one in its place.
    pub(super) fn get(&mut self, id: QueuePairId) -> Option<&mut QueuePair> {
        self.places.get_mut(slot_of(id) as usize)?.as_deref_mut().filter(|queue_pair| queue_pair.id() == id)
    }

    pub(super) fn insert(&mut self, queue_pair: Box<QueuePair>) {
        let slot = slot_of(queue_pair.id());
        let place = slot as usize;
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(queue_pair);
        self.active.push(slot);
    }

    /// False where there is no such queue pair.
    pub(super) fn remove(&mut self, id: QueuePairId) -> bool {
        let exists = self.get(id).is_some();
        if exists {
            let slot = slot_of(id);
            self.places[slot as usize] = None;
            self.active.retain(|taken| *taken != slot);
        }
        exists
    }

    /// No queue pair has a way to its peer any more.
    pub(super) fn hang_up(&mut self) {
        self.places.iter_mut().flatten().for_each(|queue_pair| queue_pair.hang_up());
    }

    /// As [`QueuePair::arm`], of all of them, or up to one that is not.
    pub(super) fn arm(&self) -> bool {
        self.places.iter().flatten().all(|queue_pair| queue_pair.arm())
    }

    /// As [`QueuePair::rests`], of all of them.
    pub(super) fn rest(&self) -> bool {
        self.places.iter().flatten().all(|queue_pair| queue_pair.rests())
    }

    /// Each queue pair in turn does what it can, within the budgets.
    pub(super) fn make_progress(&mut self, nic: &mut Nic) {
        let mut budget = STEP_BUDGET;
        let count = self.active.len();
        for _ in 0..count {
            if budget == 0 {
                break;
            }
            self.turn = if self.turn + 1 >= count { 0 } else { self.turn + 1 };
            let Some(slot) = self.active.get(self.turn) else { break };
            if let Some(Some(queue_pair)) = self.places.get_mut(*slot as usize) {
                let mut share = budget.min(QUEUE_PAIR_BUDGET);
                let before = share;
                queue_pair.step(nic, &mut share);
                budget -= before - share;
            }
        }
    }
}
