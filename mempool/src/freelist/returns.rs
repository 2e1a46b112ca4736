//! The return side: a ring that other cores put indices into, and the owner drains.
//!
//! Not a linked stack: an index that two cores return at the same time, which is a defect of theirs, would then be in two
//! chains with one link, and lose or repeat the indices of others. In a ring it takes two entries, of which the owner
//! refuses one, and nobody else's index is touched.

use crate::mutant;
use crossbeam_utils::CachePadded;

use super::{Batch, FreeError, MAX_CAPACITY, list::count_while};
use crate::primitive::{Arc, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The index is not in the ring, as far as this mark tells.
const AWAY: u8 = 0;
/// The index is on its way back to the owner.
const RETURNED: u8 = 1;

/// Set in the high half of an entry that says what was given back, and never in one that holds indices only.
const STAMPED: u32 = 1 << 31;
/// In the low half of a stamped entry: not an index, but how many follow, two in each of the next entries.
const SEVERAL: u32 = 1 << 31;
/// In the low half of a stamped entry: it was a batch that was given back, and nothing needs a check.
const OF_A_BATCH: u32 = 1 << 30;
const _: () = assert!(MAX_CAPACITY <= OF_A_BATCH, "an index, and a number of them, leaves room for both bits");

/// Entries per step of the loops over them, which the compiler keeps rolled otherwise.
const UNROLLED: usize = 8;

/// What the owner and all returners share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The name of the freelist.
    freelist: u32,
    /// One per index: [`AWAY`] or [`RETURNED`]. Read and written without a locked instruction, so it detects every double
    /// return but one that races with the first; that one the owner refuses.
    marks: Box<[AtomicU8]>,
    /// The ring. What is given back together is one stamped entry, and behind it, if it is more than one index, entries of
    /// two indices each. The stamp, in the high half, tells the round in which it was written: with another stamp it has
    /// not been written yet.
    entries: Box<[AtomicU64]>,
    /// Next position to reserve, written by returners.
    tail: CachePadded<AtomicUsize>,
    /// Next position to drain, written by the owner.
    head: CachePadded<AtomicUsize>,
}

/// What a stamped entry says, and whether it was a batch that was given back.
pub(super) enum Entry {
    /// This index.
    One { index: u32, of_a_batch: bool },
    /// As many indices, in the entries that follow.
    Several { count: usize, of_a_batch: bool },
}

/// Entries that so many indices take: never more than indices, so that a ring as long as the freelist has room for all.
#[inline]
fn entries_for(indices: usize) -> usize {
    if indices == 1 { 1 } else { 1 + indices.div_ceil(2) }
}

/// Two indices in one entry.
#[inline]
fn packed(pair: &[u32; 2]) -> u64 {
    u64::from(pair[0]) | u64::from(pair[1]) << 32
}

/// Writes pairs to entries, which are the caller's alone. Relaxed: the stamped entry in front is written last.
#[inline]
fn write_pairs(entries: &[AtomicU64], pairs: &[[u32; 2]]) {
    let entries = &entries[..entries.len().min(pairs.len())];
    let ((unrolled, entries), (eights, pairs)) = (entries.as_chunks::<UNROLLED>(), pairs.as_chunks::<UNROLLED>());
    let write = |(entry, pair): (&AtomicU64, &[u32; 2])| entry.store(packed(pair), Ordering::Relaxed);
    unrolled.iter().zip(eights).for_each(|(entries, pairs)| entries.iter().zip(pairs).for_each(write));
    entries.iter().zip(pairs).for_each(write);
}

/// Reads pairs from entries whose stamped entry was read.
#[inline]
fn read_pairs(entries: &[AtomicU64], pairs: &mut [[u32; 2]]) {
    let entries = &entries[..entries.len().min(pairs.len())];
    let ((unrolled, entries), (eights, pairs)) = (entries.as_chunks::<UNROLLED>(), pairs.as_chunks_mut::<UNROLLED>());
    let read = |(entry, pair): (&AtomicU64, &mut [u32; 2])| {
        let entry = entry.load(Ordering::Relaxed);
        *pair = [entry as u32, (entry >> 32) as u32];
    };
    unrolled.iter().zip(eights).for_each(|(entries, pairs)| entries.iter().zip(pairs).for_each(read));
    entries.iter().zip(pairs).for_each(read);
}

/// Marks an index as on its way back. False if it is already, or is not of this freelist.
#[inline]
fn mark(marks: &[AtomicU8], index: u32) -> bool {
    let Some(mark) = marks.get(index as usize) else { return false };
    // Relaxed: whoever has an index got it through something that orders this after the owner's last clearing.
    // S1: what is given back twice is not noticed here.
    let away = mark.load(Ordering::Relaxed) == AWAY || mutant!(S1_returned);
    if away {
        mark.store(RETURNED, Ordering::Relaxed);
    }
    away
}

impl Shared {
    pub(super) fn new(capacity: u32, freelist: u32) -> Self {
        // Every index fits once; entries beyond are for those that race.
        let length = (capacity as usize).max(1).next_power_of_two();
        Self {
            freelist,
            marks: (0..capacity).map(|_| AtomicU8::new(AWAY)).collect(),
            entries: (0..length).map(|_| AtomicU64::new(0)).collect(),
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    #[inline]
    fn at(&self, position: usize) -> &AtomicU64 {
        // The length is a power of two, so the masked position is inside.
        &self.entries[position & (self.entries.len() - 1)]
    }

    /// The entries from a position on, one after the other: those to the end of the ring, and those from its start.
    #[inline]
    fn from(&self, position: usize) -> (&[AtomicU64], &[AtomicU64]) {
        let (wrapped, ahead) = self.entries.split_at(position & (self.entries.len() - 1));
        (ahead, wrapped)
    }

    /// The stamp of a position's round, in its place: its low bits, so that it differs from that of the rounds before, and
    /// [`STAMPED`], so that it differs from a pair of indices and from a fresh entry.
    #[inline]
    fn stamp(&self, position: usize) -> u64 {
        let round = position >> self.entries.len().trailing_zeros();
        u64::from(round as u32 | STAMPED) << 32
    }

    #[inline]
    fn give_back(&self, indices: &[u32]) -> Result<(), FreeError> {
        let marks = &*self.marks;
        let marked = count_while(indices, |index| mark(marks, *index));
        if marked < indices.len() {
            self.unmark(&indices[..marked]);
            return Err(self.refusal(indices[marked]));
        }
        let given = self.put(indices, 0);
        if given.is_err() {
            self.unmark(indices);
        }
        given
    }

    /// Puts indices into the ring, as one; `kind` is 0 or [`OF_A_BATCH`].
    #[inline]
    fn put(&self, indices: &[u32], kind: u32) -> Result<(), FreeError> {
        if indices.is_empty() {
            return Ok(());
        }
        let full = FreeError::ReturnsFull { limit: self.entries.len() };
        let first = self.reserve(entries_for(indices.len())).ok_or(full)?;
        let said = if let [index] = indices {
            *index
        } else {
            self.write(first.wrapping_add(1), indices);
            // At most `MAX_CAPACITY`, since each is marked, or at most a batch.
            SEVERAL | indices.len() as u32
        };
        // Release: what the returner did with the indices comes before what the owner does with them.
        self.at(first).store(self.stamp(first) | u64::from(kind | said), Ordering::Release);
        Ok(())
    }

    /// Copies indices to the entries from a position on, which are the caller's alone.
    #[inline]
    fn write(&self, position: usize, indices: &[u32]) {
        let (ahead, wrapped) = self.from(position);
        let (pairs, odd) = indices.as_chunks::<2>();
        if pairs.len() <= ahead.len() {
            write_pairs(ahead, pairs);
        } else {
            let (near, far) = pairs.split_at(ahead.len());
            write_pairs(ahead, near);
            write_pairs(wrapped, far);
        }
        if let [index] = odd {
            self.at(position.wrapping_add(pairs.len())).store(packed(&[*index, 0]), Ordering::Relaxed);
        }
    }

    #[cold]
    fn refusal(&self, index: u32) -> FreeError {
        if (index as usize) < self.marks.len() { FreeError::DoubleFree { index } } else { FreeError::Foreign { index } }
    }

    /// Says that indices are not on their way back any more.
    #[inline]
    pub(super) fn unmark(&self, indices: &[u32]) {
        let marks = &*self.marks;
        let clear = |index: &u32| {
            if let Some(mark) = marks.get(*index as usize) {
                mark.store(AWAY, Ordering::Relaxed);
            }
        };
        let (unrolled, rest) = indices.as_chunks::<UNROLLED>();
        unrolled.iter().for_each(|indices| indices.iter().for_each(clear));
        rest.iter().for_each(clear);
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

    /// What was given back at a position, if that was written. Owner only.
    #[inline]
    pub(super) fn entry(&self, position: usize) -> Option<Entry> {
        // Acquire: what the returner did with the indices comes before what the owner does with them.
        let said = self.at(position).load(Ordering::Acquire).wrapping_sub(self.stamp(position));
        // With the stamp of another round the difference has a high half.
        let said = u32::try_from(said).ok()?;
        let (number, of_a_batch) = (said & !(SEVERAL | OF_A_BATCH), said & OF_A_BATCH != 0);
        Some(if said & SEVERAL == 0 {
            Entry::One { index: number, of_a_batch }
        } else {
            Entry::Several { count: number as usize, of_a_batch }
        })
    }

    /// Copies indices from the entries behind a stamped one. Returns the position behind them. Owner only.
    #[inline]
    pub(super) fn read(&self, position: usize, into: &mut [u32]) -> usize {
        let (ahead, wrapped) = self.from(position);
        let (pairs, odd) = into.as_chunks_mut::<2>();
        let behind = position.wrapping_add(pairs.len());
        if pairs.len() <= ahead.len() {
            read_pairs(ahead, pairs);
        } else {
            let (near, far) = pairs.split_at_mut(ahead.len());
            read_pairs(ahead, near);
            read_pairs(wrapped, far);
        }
        let [index] = odd else { return behind };
        *index = self.at(behind).load(Ordering::Relaxed) as u32;
        behind.wrapping_add(1)
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

    /// Gives all indices of a batch back, as [`Returner::give_back`] does, but with no check or mark per index: that nobody
    /// else gives them back is what the batch's type says. The batch is empty afterwards.
    ///
    /// # Errors
    /// [`FreeError::ForeignBatch`] if another freelist made the batch, which keeps its indices then.
    #[inline]
    pub fn give_back_batch(&self, batch: &mut Batch) -> Result<(), FreeError> {
        if batch.freelist() != self.0.freelist {
            return Err(FreeError::ForeignBatch);
        }
        self.0.put(batch.indices(), OF_A_BATCH)?;
        batch.clear();
        Ok(())
    }
}
