//! The return side: a ring that other cores put indices into, and the owner drains.
//!
//! Not a linked stack: an index that two cores return at the same time, which is a defect of theirs, would then be in two
//! chains with one link, and lose or repeat the indices of others. In a ring it takes two entries, of which the owner
//! refuses one, and nobody else's index is touched.

use crossbeam_utils::CachePadded;

use super::{FreeError, list::count_while};
use crate::primitive::{Arc, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The index is not in the ring, as far as this mark tells.
const AWAY: u8 = 0;
/// The index is on its way back to the owner.
const RETURNED: u8 = 1;

/// What the owner and all returners share.
#[derive(Debug)]
pub(super) struct Shared {
    /// One per index: [`AWAY`] or [`RETURNED`]. Read and written without a locked instruction, so it detects every double
    /// return but one that races with the first; that one the owner refuses.
    marks: Box<[AtomicU8]>,
    /// The ring: an index in the low half of each entry, and in the high half the stamp of the round in which it was
    /// written. An entry with another stamp has not been written yet.
    entries: Box<[AtomicU64]>,
    /// Next position to reserve, written by returners.
    tail: CachePadded<AtomicUsize>,
    /// Next position to drain, written by the owner.
    head: CachePadded<AtomicUsize>,
}

/// The stamp of a round through the ring, in its place: the low half of the position at which the round began, plus one.
/// It differs from the round before, because a ring is shorter than 2^32, and the first one's from the 0 of fresh entries.
#[inline]
fn stamp(round: usize) -> u64 {
    u64::from((round as u32).wrapping_add(1)) << 32
}

/// Writes indices to entries, which are the caller's alone.
#[inline]
fn write_run(entries: &[AtomicU64], stamp: u64, indices: &[u32]) {
    for (entry, index) in entries.iter().zip(indices) {
        // Release: what the returner did with the index comes before what the owner does with it.
        entry.store(stamp | u64::from(*index), Ordering::Release);
    }
}

/// Marks an index as on its way back. False if it is already, or is not of this freelist.
#[inline]
fn mark(marks: &[AtomicU8], index: u32) -> bool {
    let Some(mark) = marks.get(index as usize) else { return false };
    // Relaxed: whoever has an index got it through something that orders this after the owner's last clearing.
    let away = mark.load(Ordering::Relaxed) == AWAY;
    if away {
        mark.store(RETURNED, Ordering::Relaxed);
    }
    away
}

impl Shared {
    pub(super) fn new(capacity: u32) -> Self {
        // Every index fits once; entries beyond are for those that race.
        let length = (capacity as usize).max(1).next_power_of_two();
        Self {
            marks: (0..capacity).map(|_| AtomicU8::new(AWAY)).collect(),
            entries: (0..length).map(|_| AtomicU64::new(0)).collect(),
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// The entries from a position to the end of its round, and the stamp of that round.
    #[inline]
    fn rest_of_round(&self, position: usize) -> (&[AtomicU64], u64) {
        // The length is a power of two, so the masked position is inside.
        let inside = position & (self.entries.len() - 1);
        (&self.entries[inside..], stamp(position.wrapping_sub(inside)))
    }

    fn give_back(&self, indices: &[u32]) -> Result<(), FreeError> {
        let marks = &*self.marks;
        let marked = count_while(indices, |index| mark(marks, *index));
        if marked < indices.len() {
            self.unmark(&indices[..marked]);
            return Err(self.refusal(indices[marked]));
        }
        let Some(first) = self.reserve(indices.len()) else {
            self.unmark(indices);
            return Err(FreeError::ReturnsFull { limit: self.entries.len() });
        };
        let (entries, stamp) = self.rest_of_round(first);
        let (fitting, others) = indices.split_at(indices.len().min(entries.len()));
        write_run(entries, stamp, fitting);
        if !others.is_empty() {
            let (entries, stamp) = self.rest_of_round(first.wrapping_add(fitting.len()));
            write_run(entries, stamp, others);
        }
        Ok(())
    }

    #[cold]
    fn refusal(&self, index: u32) -> FreeError {
        if (index as usize) < self.marks.len() { FreeError::DoubleFree { index } } else { FreeError::Foreign { index } }
    }

    fn unmark(&self, indices: &[u32]) {
        for mark in indices.iter().filter_map(|index| self.marks.get(*index as usize)) {
            mark.store(AWAY, Ordering::Relaxed);
        }
    }

    /// The first of `count` positions that are the caller's alone, by one compare-and-swap if nobody interferes.
    fn reserve(&self, count: usize) -> Option<usize> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            // Acquire: the owner has read the entries before `head`, which will now be written again.
            let used = tail.wrapping_sub(self.head.load(Ordering::Acquire));
            // A `tail` that is stale by much may seem to be behind `head`; the exchange then fails.
            let room = self.entries.len().saturating_sub(used);
            if count > room {
                let now = self.tail.load(Ordering::Relaxed);
                if now == tail {
                    return None;
                }
                tail = now;
                continue;
            }
            // Relaxed: positions only; the entries carry the rest.
            match self.tail.compare_exchange_weak(tail, tail.wrapping_add(count), Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(tail),
                Err(now) => tail = now,
            }
        }
    }

    /// Copies the indices that were written from a position on, up to the end of the round at most, and clears their
    /// marks. Returns how many; a full `into`, or the end of the round, may leave some. Owner only.
    #[inline]
    pub(super) fn take(&self, from: usize, into: &mut [u32]) -> usize {
        let (entries, stamp) = self.rest_of_round(from);
        let mut slots = into.iter_mut();
        count_while(&entries[..entries.len().min(slots.len())], |entry| {
            // Acquire: what the returner did with the index comes before what the owner does with it.
            let index = entry.load(Ordering::Acquire).wrapping_sub(stamp);
            // One look for two things: with the stamp of another round, this is no index either.
            let (Some(mark), Some(slot)) = (self.marks.get(index as usize), slots.next()) else { return false };
            mark.store(AWAY, Ordering::Relaxed);
            *slot = index as u32;
            true
        })
    }

    /// Gives the entries before `head` back to the returners. Owner only.
    pub(super) fn publish(&self, head: usize) {
        // Release: the entries have been read before they are written again.
        self.head.store(head, Ordering::Release);
    }
}

/// The handle by which other cores, and Control, give indices back to the owner of a [`Freelist`](super::Freelist).
/// Clones go to the same freelist. Any thread may use it; it never waits.
#[derive(Clone, Debug)]
pub struct Returner(Arc<Shared>);

impl Returner {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }

    /// Gives indices back, by one compare-and-swap per batch. The owner gets them at its next drain, in order.
    ///
    /// What the calling thread did before comes before what the owner does after it drained.
    ///
    /// # Errors
    /// Nothing is given back then. [`FreeError::Foreign`] for an index that the freelist does not have;
    /// [`FreeError::DoubleFree`] for one that has been returned and not yet drained, or is twice in the batch. An index that
    /// two threads return at the same time, or that is on a list of the owner's, is refused at the owner's drain instead.
    pub fn give_back(&self, indices: &[u32]) -> Result<(), FreeError> {
        self.0.give_back(indices)
    }
}
