//! Lists of free indices over one array: an owner side without atomics, and a return side for other cores.
//!
//! A fresh [`Freelist`] has all its indices *handed out*. [`Freelist::push`] puts an index on a [`List`], [`Freelist::pop`]
//! hands it out again. Any number of lists share the array, since an index is on one list at most: a connection takes a
//! list at its start and gives it up at its end, by [`Freelist::append`] to another one or by popping it empty.
//!
//! An index that is pushed while it is on a list is a double free; it is refused, whichever list it is on. The check is
//! exact for as long as the index has not been handed out again; after that, the generation in a
//! [`Handle`](crate::slab::Handle) is what tells the old holder from the new one.
//!
//! Indices that are taken and given back together are moved as a [`Batch`], whose type is the check: it costs a copy. An owner
//! whose indices say themselves whether they are free has no need of it, and keeps them in a [`FreeRing`].

mod batch;
mod free_ring;
mod list;
mod returns;

use core::sync::atomic;

pub use batch::{BATCH_CAPACITY, Batch};
pub use free_ring::FreeRing;
pub use list::{List, Order};
pub use returns::Returner;

use crate::primitive::Arc;
use list::{END, HANDED_OUT, refusal};
use returns::{Entry, Shared};

/// Indices of the largest freelist; a larger wish is cut to it. 2^30 indices take 13 GiB: more is a mistake.
pub const MAX_CAPACITY: u32 = 1 << 30;
const _: () = assert!(MAX_CAPACITY < END);

/// Indices taken from the return side at once, into a buffer on the stack: an even number, since two share an entry.
const DRAINED_AT_ONCE: usize = BATCH_CAPACITY;
const _: () = assert!(DRAINED_AT_ONCE.is_multiple_of(2));

/// Why an index was not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The index is free already.
    #[error("index {index} is freed twice; it stays free once")]
    DoubleFree {
        /// The index.
        index: u32,
    },
    /// The freelist has no such index.
    #[error("index {index} is not of this freelist; give it back to the one it came from")]
    Foreign {
        /// The index.
        index: u32,
    },
    /// The list was made by another freelist.
    #[error("the list is of another freelist; use the one that made it")]
    ForeignList,
    /// The batch was made by another freelist.
    #[error("the batch is of another freelist; give it back to the one that made it")]
    ForeignBatch,
    /// The batch has no room for one more index.
    #[error("the batch holds {BATCH_CAPACITY} indices already; give it back, or push the index to a list")]
    BatchFull,
    /// More indices are on their way back than there are: some were returned twice.
    #[error("more than {limit} returns wait to be drained; some index was returned twice, or the owner does not drain")]
    ReturnsFull {
        /// Returns that can wait.
        limit: usize,
    },
}

/// Returns that the owner refused at its drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedReturns {
    /// How many, since the start.
    pub count: u64,
    /// Why the last one was refused.
    pub last: Option<FreeError>,
}

/// The array under all lists of one core. One thread at a time.
#[derive(Debug)]
pub struct Freelist {
    /// One link per index: [`HANDED_OUT`], or the next index of its list, or [`END`].
    links: Box<[u32]>,
    /// Tells this freelist's lists from those of others.
    name: u32,
    shared: Arc<Shared>,
    /// Next position of the return side's ring to drain.
    drained: usize,
    refused: RefusedReturns,
}

impl Freelist {
    /// A freelist of the indices below `capacity`, at most [`MAX_CAPACITY`], all of them handed out. Allocates here and
    /// nowhere later.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        static NAMES: atomic::AtomicU32 = atomic::AtomicU32::new(0);
        let capacity = capacity.min(MAX_CAPACITY);
        let name = NAMES.fetch_add(1, atomic::Ordering::Relaxed);
        Self {
            links: vec![HANDED_OUT; capacity as usize].into_boxed_slice(),
            name,
            shared: Arc::new(Shared::new(capacity, name)),
            drained: 0,
            refused: RefusedReturns::default(),
        }
    }

    /// Number of indices, free or handed out.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        // At most `MAX_CAPACITY`.
        self.links.len() as u32
    }

    /// A new, empty list. It costs nothing but itself.
    #[must_use]
    pub fn list(&self, order: Order) -> List {
        List::new(order, self.name)
    }

    /// A new, empty batch. It costs nothing but itself.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch::new(self.name)
    }

    /// Whether an index is handed out. False for one in a batch, and for one that the freelist does not have.
    #[must_use]
    pub fn is_handed_out(&self, index: u32) -> bool {
        self.links.get(index as usize) == Some(&HANDED_OUT)
    }

    /// How many indices are on a list; 0 for one of another freelist. Walks along all of them: lists do not count, so that
    /// taking and giving back need not either.
    #[must_use]
    pub fn count(&self, list: &List) -> u32 {
        if list.freelist() == self.name { list.count(&self.links) } else { 0 }
    }

    /// Whether at least so many indices are on a list: walks along as many. False for a list of another freelist.
    #[inline]
    #[must_use]
    pub fn holds(&self, list: &List, wanted: u32) -> bool {
        list.freelist() == self.name && list.holds(&self.links, wanted)
    }

    /// Puts a handed-out index on a list.
    ///
    /// # Errors
    /// [`FreeError`] when the index is on a list already, or the index or the list is not of this freelist. Nothing changes.
    #[inline]
    pub fn push(&mut self, list: &mut List, index: u32) -> Result<(), FreeError> {
        self.check_list(list)?;
        list.push(&mut self.links, index)
    }

    /// Puts handed-out indices on a list, in order: the last one comes out first, or last.
    ///
    /// # Errors
    /// As [`Freelist::push`], at the first index that is refused; those before it are on the list.
    #[inline]
    pub fn push_bulk(&mut self, list: &mut List, indices: &[u32]) -> Result<(), FreeError> {
        self.check_list(list)?;
        list.push_all(&mut self.links, indices).map_err(|pushed| refusal(&self.links, indices[pushed]))
    }

    /// Moves up to `wanted` indices of a list into a batch, as many as that has room for. Returns how many; 0 also where
    /// either is of another freelist.
    ///
    /// Indices that came to the list by [`Freelist::push_batch`] go first, whatever was pushed alone since: batches and
    /// single indices are two stacks. A list that is first in, first out keeps its order.
    #[inline]
    pub fn pop_batch(&mut self, list: &mut List, into: &mut Batch, wanted: usize) -> usize {
        if list.freelist() != self.name || into.freelist() != self.name {
            return 0;
        }
        list.pop_batch(&self.links, into, wanted)
    }

    /// Moves all indices of a batch onto a list, and returns how many. The batch is empty afterwards.
    ///
    /// # Errors
    /// [`FreeError::ForeignList`] or [`FreeError::ForeignBatch`] if either is of another freelist. Nothing changes.
    #[inline]
    pub fn push_batch(&mut self, list: &mut List, from: &mut Batch) -> Result<usize, FreeError> {
        self.check_list(list)?;
        self.check_batch(from)?;
        let count = from.len();
        list.push_batch(&mut self.links, from);
        Ok(count)
    }

    /// Hands out an index of a batch: from now on it is one like any other. `None` if the batch is empty, or of another
    /// freelist.
    #[inline]
    pub fn pop_from_batch(&mut self, batch: &mut Batch) -> Option<u32> {
        self.check_batch(batch).ok()?;
        let index = batch.take()?;
        *self.links.get_mut(index as usize)? = HANDED_OUT;
        Some(index)
    }

    /// Puts a handed-out index into a batch.
    ///
    /// # Errors
    /// As [`Freelist::push`], and [`FreeError::BatchFull`]. Nothing changes.
    #[inline]
    pub fn push_to_batch(&mut self, batch: &mut Batch, index: u32) -> Result<(), FreeError> {
        self.check_batch(batch)?;
        if batch.room() == 0 {
            return Err(FreeError::BatchFull);
        }
        match self.links.get_mut(index as usize) {
            Some(link) if *link == HANDED_OUT => *link = END,
            _ => return Err(refusal(&self.links, index)),
        }
        batch.extend(&[index]);
        Ok(())
    }

    /// Hands out the next index of a list. `None` if it is empty, or of another freelist.
    #[inline]
    pub fn pop(&mut self, list: &mut List) -> Option<u32> {
        self.check_list(list).ok()?;
        list.pop(&mut self.links)
    }

    /// Hands out the next indices of a list, until it is empty or `into` is full. Returns how many.
    #[inline]
    pub fn pop_bulk(&mut self, list: &mut List, into: &mut [u32]) -> usize {
        if self.check_list(list).is_err() {
            return 0;
        }
        list.pop_all(&mut self.links, into)
    }

    /// Moves all indices of `from` behind those of `to`, whatever their orders: walks along those that are last in, first out,
    /// which do not know their last index. `from` is empty afterwards and may be used again or dropped.
    ///
    /// # Errors
    /// [`FreeError::ForeignList`] if either list is of another freelist. Nothing changes.
    pub fn append(&mut self, to: &mut List, from: &mut List) -> Result<(), FreeError> {
        self.check_list(to)?;
        self.check_list(from)?;
        to.append(&mut self.links, from);
        Ok(())
    }

    /// A handle by which another core gives indices back.
    #[must_use]
    pub fn returner(&self) -> Returner {
        Returner::new(&self.shared)
    }

    /// Puts what other cores gave back since the last call on a list. Returns how many indices were put there.
    ///
    /// Looks at no more entries than the freelist has indices (rounded up to a power of two). Returns that were not handed
    /// out are refused and counted in [`Freelist::refused_returns`]. A returner that is interrupted within its call delays
    /// those after it until it goes on; nothing waits for it.
    #[inline]
    pub fn drain_returns(&mut self, list: &mut List) -> usize {
        if self.check_list(list).is_err() {
            return 0;
        }
        let (mut put, began) = (0, self.drained);
        // Ends after one round at most: no entry is written again before it is published.
        while let Some(entry) = self.shared.entry(self.drained) {
            self.drained = self.drained.wrapping_add(1);
            put += match entry {
                Entry::One { index, of_a_batch: false } => {
                    self.shared.unmark(&[index]);
                    self.put_returned(list, &[index])
                }
                Entry::One { index, of_a_batch: true } => {
                    list.link_kept(&mut self.links, &[index]);
                    1
                }
                Entry::Several { count, of_a_batch: false } => self.drain_several(list, count),
                Entry::Several { count, of_a_batch: true } => self.drain_batch(list, count),
            };
        }
        if self.drained != began {
            self.shared.publish(self.drained);
        }
        put
    }

    /// Puts indices on a list that were given back together. Returns how many.
    #[inline]
    fn drain_several(&mut self, list: &mut List, mut count: usize) -> usize {
        let mut indices = [0; DRAINED_AT_ONCE];
        let mut put = 0;
        while count > 0 {
            let part = &mut indices[..count.min(DRAINED_AT_ONCE)];
            self.drained = self.shared.read(self.drained, part);
            self.shared.unmark(part);
            count -= part.len();
            put += self.put_returned(list, part);
        }
        put
    }

    /// Puts the indices of a batch on a list. Returns how many.
    #[inline]
    fn drain_batch(&mut self, list: &mut List, count: usize) -> usize {
        let mut indices = [0; BATCH_CAPACITY];
        let part = &mut indices[..count.min(BATCH_CAPACITY)];
        self.drained = self.shared.read(self.drained, part);
        let mut batch = self.batch();
        batch.extend(part);
        let put = part.len();
        list.push_batch(&mut self.links, &mut batch);
        put
    }

    /// Puts returned indices on a list, and counts those that were not handed out. Returns how many were.
    #[inline]
    fn put_returned(&mut self, list: &mut List, mut indices: &[u32]) -> usize {
        let mut put = indices.len();
        while let Err(pushed) = list.push_all(&mut self.links, indices) {
            let last = Some(refusal(&self.links, indices[pushed]));
            self.refused = RefusedReturns { count: self.refused.count + 1, last };
            indices = &indices[pushed + 1..];
            put -= 1;
        }
        put
    }

    /// Returns that drains refused: indices that two threads returned at the same time, or that were on a list.
    #[must_use]
    pub fn refused_returns(&self) -> RefusedReturns {
        self.refused
    }

    #[inline]
    fn check_batch(&self, batch: &Batch) -> Result<(), FreeError> {
        if batch.freelist() == self.name { Ok(()) } else { Err(FreeError::ForeignBatch) }
    }

    #[inline]
    fn check_list(&self, list: &List) -> Result<(), FreeError> {
        if list.freelist() == self.name { Ok(()) } else { Err(FreeError::ForeignList) }
    }
}
