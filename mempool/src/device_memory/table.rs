//! Entries of one size side by side in device memory: messages in their buffers.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::{DeviceMemory, LINE, LINE_WORDS, WORD, load};
use crate::region::Mapping;

/// Entries side by side in a [`DeviceMemory`], each of the same size and a line or more. That they lie in the memory and start words
/// was seen when the table was made, so that an access asks only whether there is such an entry.
///
/// The memory stays mapped for as long as the table lives; any thread may use it.
#[derive(Clone)]
pub struct DeviceTable {
    /// A word starts here and behind each `stride` bytes; there is a line at least at each of `len` of these places.
    base: NonNull<u8>,
    stride: usize,
    len: u32,
    _mapping: Arc<Mapping>,
}

// SAFETY: all access is by atomic words; the mapping may be dropped by any thread.
unsafe impl Send for DeviceTable {}
// SAFETY: as above.
unsafe impl Sync for DeviceTable {}

impl DeviceMemory {
    /// The entries of `stride` bytes each from `offset` on: at most `len`, and fewer where the memory ends. None where they would not
    /// start words, or be shorter than a [`LINE`].
    #[must_use]
    pub fn table(&self, offset: usize, stride: usize, len: u32) -> DeviceTable {
        let start = self.address().wrapping_add(offset as u64);
        let fits = start.is_multiple_of(WORD as u64) && stride.is_multiple_of(WORD) && stride >= LINE;
        let rest = self.slice(offset, self.len.saturating_sub(offset)).ok().filter(|_| fits);
        // At most `len`.
        let len = rest.as_ref().map_or(0, |rest| (rest.len / stride).min(len as usize)) as u32;
        let Self { mapping, base, .. } = rest.as_ref().unwrap_or(self);
        DeviceTable { base: *base, stride, len, _mapping: Arc::clone(mapping) }
    }
}

impl DeviceTable {
    /// Entries of the table.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the table has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of an entry that the table has, as work requests carry it.
    #[inline(always)]
    #[must_use]
    pub fn address(&self, index: u32) -> u64 {
        debug_assert!(index < self.len, "entry {index} of {}", self.len);
        // No product of two 32-bit numbers overflows; of an entry that there is the sum is in the memory.
        (self.base.as_ptr().addr() as u64).wrapping_add((self.stride as u64).wrapping_mul(index.into()))
    }

    /// The [`LINE`] bytes that an entry begins with. `None` where there is no such entry.
    #[inline(always)]
    #[must_use]
    pub fn read_line(&self, index: u32) -> Option<[u8; LINE]> {
        self.read_front::<LINE_WORDS>(index)?.as_flattened().try_into().ok()
    }

    /// [`DeviceTable::read_line`] of fewer words: what a message begins with, for who needs no more of it.
    #[inline(always)]
    #[must_use]
    pub fn read_front<const WORDS: usize>(&self, index: u32) -> Option<[[u8; WORD]; WORDS]> {
        let words = self.front::<WORDS>(index)?;
        let mut bytes = [[0; WORD]; WORDS];
        for (bytes, word) in bytes.iter_mut().zip(words) {
            *bytes = load(word);
        }
        Some(bytes)
    }

    /// Copies a line to the beginning of an entry. False where there is no such entry; nothing was copied then.
    #[inline(always)]
    #[must_use]
    pub fn write_line(&self, index: u32, from: &[u8; LINE]) -> bool {
        let Some(words) = self.front::<LINE_WORDS>(index) else { return false };
        let (from, _) = from.as_chunks::<WORD>();
        for (word, from) in words.iter().zip(from) {
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        true
    }

    #[inline(always)]
    fn front<const WORDS: usize>(&self, index: u32) -> Option<&[AtomicU64; WORDS]> {
        const { assert!(WORDS <= LINE_WORDS, "an entry has a line") };
        if index >= self.len {
            return None;
        }
        // SAFETY: the entry starts a word and has a line, all of which the memory's maker vouches for; `AtomicU64` has the layout of a
        // word.
        Some(unsafe { self.base.add(self.stride * index as usize).cast().as_ref() })
    }
}

impl fmt::Debug for DeviceTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, stride, len, .. } = self;
        formatter
            .debug_struct("DeviceTable")
            .field("address", base)
            .field("stride", stride)
            .field("len", len)
            .finish_non_exhaustive()
    }
}
