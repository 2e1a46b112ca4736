//! Indices that are taken and given back together.

use super::list::append_copies;

/// Indices that a batch holds at most: a usual burst of work.
pub const BATCH_CAPACITY: usize = 32;

/// Some indices of one freelist, which only their batch gives back.
///
/// To the freelist they are as indices on a list: pushing one of them alone is a double free, and refused. So nothing is checked
/// and marked per index when a batch goes back, whichever core gives it back; that it goes back once is what its type says: it
/// cannot be copied. Single indices leave it and come to it by [`Freelist::pop_from_batch`](super::Freelist::pop_from_batch)
/// and [`Freelist::push_to_batch`](super::Freelist::push_to_batch).
///
/// Dropping a batch that is not empty loses its indices for as long as the freelist lives.
#[derive(Debug)]
pub struct Batch {
    len: usize,
    indices: [u32; BATCH_CAPACITY],
    freelist: u32,
}

impl Batch {
    /// Indices in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no index in the batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The indices, in no particular order. Whoever uses one must not hold it longer than the batch.
    #[inline]
    #[must_use]
    pub fn indices(&self) -> &[u32] {
        // Never longer than the array; said so that nothing is checked again.
        &self.indices[..self.len.min(BATCH_CAPACITY)]
    }

    /// An empty batch of the freelist with this name.
    pub(super) fn new(freelist: u32) -> Self {
        Self { len: 0, indices: [0; BATCH_CAPACITY], freelist }
    }

    /// The name of the freelist that made the batch.
    #[inline]
    pub(super) fn freelist(&self) -> u32 {
        self.freelist
    }

    /// Indices that it has room for.
    #[inline]
    pub(super) fn room(&self) -> usize {
        BATCH_CAPACITY.saturating_sub(self.len)
    }

    /// Takes indices in, as many as there is room for. Returns how many.
    #[inline]
    pub(super) fn extend(&mut self, indices: &[u32]) -> usize {
        append_copies(&mut self.indices, &mut self.len, indices)
    }

    /// Takes as many indices in as an empty batch has room for.
    #[inline]
    pub(super) fn fill(&mut self, indices: &[u32; BATCH_CAPACITY]) {
        (self.indices, self.len) = (*indices, BATCH_CAPACITY);
    }

    /// The indices of a batch without room for more.
    #[inline]
    pub(super) fn full(&self) -> Option<&[u32; BATCH_CAPACITY]> {
        (self.len == BATCH_CAPACITY).then_some(&self.indices)
    }

    /// Takes an index out.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let index = *self.indices.get(self.len.wrapping_sub(1))?;
        self.len -= 1;
        Some(index)
    }

    /// Forgets all indices: somebody else has them.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}
