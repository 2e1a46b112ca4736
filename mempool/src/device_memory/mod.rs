//! Memory that a device, or the software NIC of another core, may read and write at any time.
//!
//! Rust has no reference for such memory, so none is ever made: every access copies whole 8-byte words with relaxed
//! atomic loads and stores, and a word that is written in part is exchanged by compare-and-swap, so that bytes next to it
//! that somebody else writes at the same time are kept. All accesses have one size, because racing atomic accesses of
//! different sizes are undefined behaviour in Rust's memory model.
//!
//! A copy that races with another may see or leave a mixture of both. Which bytes are whose at a time is what the upper
//! protocol says, and completions order it; a peer that breaks the protocol can spoil bytes, but nothing else.

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::region::Mapping;

mod table;

pub use table::DeviceTable;

/// Bytes of the one access size.
pub const WORD: usize = size_of::<AtomicU64>();
/// Words per step of the copy loops: a cache line. The compiler keeps atomic accesses in a rolled loop otherwise.
const LINE_WORDS: usize = 8;
/// Bytes per step of the copy loops: a cache line, and the usual message.
pub const LINE: usize = WORD * LINE_WORDS;
/// Bytes of the buffer that copies between differently aligned or overlapping ranges go through: small enough to stay in
/// the first-level cache, large enough that its ends don't matter.
const BOUNCE: usize = 512;
const _: () = assert!(BOUNCE.is_multiple_of(LINE));

/// An access outside of a [`DeviceMemory`]. Nothing was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} are outside of a memory of {limit} bytes; use a range inside of it")]
pub struct OutOfBounds {
    /// First byte of the access.
    pub offset: usize,
    /// Bytes of the access.
    pub len: usize,
    /// Bytes of the memory.
    pub limit: usize,
}

/// A range of memory that a device may read and write at any time. Clones are the same memory; any thread may use them.
///
/// The memory stays mapped for as long as any clone lives.
#[derive(Clone)]
pub struct DeviceMemory {
    mapping: Arc<Mapping>,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: all access is by atomic words; the mapping may be dropped by any thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// # Safety
    /// The words (aligned groups of 8 bytes) that the range touches are mapped and initialised for as long as `mapping`
    /// lives, and this process accesses them only through `DeviceMemory`.
    pub(crate) unsafe fn new(mapping: Arc<Mapping>, base: NonNull<u8>, len: usize) -> Self {
        Self { mapping, base, len }
    }

    /// The address of the first byte, as work requests carry it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// Bytes of the memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory has no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes from `offset` as a memory of their own. They stay part of this one too.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the range is not inside this memory.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Self, OutOfBounds> {
        self.check(offset, len)?;
        // SAFETY: the offset is at most the length.
        let base = unsafe { self.base.add(offset) };
        Ok(Self { mapping: Arc::clone(&self.mapping), base, len })
    }

    /// Copies the bytes from `offset` on into `into`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the range is not inside this memory.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        match self.whole_words(offset, into.len())? {
            Some(words) => read_words(words, into),
            None => self.read_parts(offset, into)?,
        }
        Ok(())
    }

    /// Copies the bytes from `offset` on into `into`, with parts of words at either end.
    fn read_parts(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let span = self.span(offset, into.len())?;
        let (head, rest) = into.split_at_mut(span.head);
        let (middle, tail) = rest.split_at_mut(span.middle.len() * WORD);
        if let Some((word, skip)) = span.first {
            copy_small(head, &load(word)[skip..]);
        }
        read_words(span.middle, middle);
        if let Some(word) = span.last {
            copy_small(tail, &load(word));
        }
        Ok(())
    }

    /// Copies `from` to the bytes from `offset` on.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the range is not inside this memory.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), OutOfBounds> {
        match self.whole_words(offset, from.len())? {
            Some(words) => write_words(words, from),
            None => self.write_parts(offset, from)?,
        }
        Ok(())
    }

    /// Copies `from` to the bytes from `offset` on, with parts of words at either end.
    fn write_parts(&self, offset: usize, from: &[u8]) -> Result<(), OutOfBounds> {
        let span = self.span(offset, from.len())?;
        let (head, rest) = from.split_at(span.head);
        let (middle, tail) = rest.split_at(span.middle.len() * WORD);
        if let Some((word, skip)) = span.first {
            merge(word, |bytes| copy_small(&mut bytes[skip..], head));
        }
        write_words(span.middle, middle);
        if let Some(word) = span.last {
            merge(word, |bytes| copy_small(bytes, tail));
        }
        Ok(())
    }

    /// Copies `len` bytes from `offset` on to the bytes of `other` from `other_offset` on. The ranges may overlap: the
    /// result is as if all bytes were read before any was written.
    ///
    /// # Errors
    /// [`OutOfBounds`] if either range is not inside its memory; nothing was copied.
    pub fn copy_within_to(
        &self,
        offset: usize,
        other: &Self,
        other_offset: usize,
        len: usize,
    ) -> Result<(), OutOfBounds> {
        let from = self.span(offset, len)?;
        let to = other.span(other_offset, len)?;
        let distance = (self.address() + offset as u64).abs_diff(other.address() + other_offset as u64);
        let apart = distance >= len as u64;
        if !apart || from.head != to.head {
            return self.bounce::<BOUNCE>(offset, other, other_offset, len);
        }
        // Aligned alike: only the parts of words at both ends need a buffer.
        let (head, middle) = (from.head, from.middle.len() * WORD);
        self.bounce::<WORD>(offset, other, other_offset, head)?;
        copy_words(from.middle, to.middle);
        let done = head + middle;
        self.bounce::<WORD>(offset + done, other, other_offset + done, len - done)
    }

    /// Sets `len` bytes from `offset` on to `byte`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the range is not inside this memory.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<(), OutOfBounds> {
        let span = self.span(offset, len)?;
        if let Some((word, skip)) = span.first {
            merge(word, |bytes| bytes[skip..][..span.head].fill(byte));
        }
        let filled = u64::from_ne_bytes([byte; WORD]);
        for word in span.middle {
            word.store(filled, Ordering::Relaxed);
        }
        if let Some(word) = span.last {
            merge(word, |bytes| bytes[..span.tail].fill(byte));
        }
        Ok(())
    }

    /// Copies through a buffer of `SIZE` bytes, from the end that an overlap does not spoil.
    #[inline]
    fn bounce<const SIZE: usize>(
        &self,
        offset: usize,
        other: &Self,
        other_offset: usize,
        len: usize,
    ) -> Result<(), OutOfBounds> {
        let upwards = other.address() + other_offset as u64 > self.address() + offset as u64;
        let mut buffer = [0_u8; SIZE];
        let mut done = 0;
        while done < len {
            let step = SIZE.min(len - done);
            let at = if upwards { len - done - step } else { done };
            let bytes = &mut buffer[..step];
            self.read(offset + at, bytes)?;
            other.write(other_offset + at, bytes)?;
            done += step;
        }
        Ok(())
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result<(), OutOfBounds> {
        if offset > self.len || len > self.len - offset {
            return Err(OutOfBounds { offset, len, limit: self.len });
        }
        Ok(())
    }

    /// The words of a range that starts and ends with one, as messages in their buffers usually do.
    #[inline]
    fn whole_words(&self, offset: usize, len: usize) -> Result<Option<&[AtomicU64]>, OutOfBounds> {
        self.check(offset, len)?;
        // SAFETY: the offset is at most the length.
        let start = unsafe { self.base.as_ptr().add(offset) };
        if !(start.addr() | len).is_multiple_of(WORD) {
            return Ok(None);
        }
        // SAFETY: all bytes of these words are in the range, which `new`'s caller vouches for.
        Ok(Some(unsafe { words_at(start, len / WORD) }))
    }

    /// Splits a range into a word that it has the end of, whole words, and a word that it has the start of.
    #[inline]
    fn span(&self, offset: usize, len: usize) -> Result<Span<'_>, OutOfBounds> {
        self.check(offset, len)?;
        // SAFETY: the offset is at most the length.
        let start = unsafe { self.base.as_ptr().add(offset) };
        let skip = start.addr() % WORD;
        let head = if skip == 0 { 0 } else { (WORD - skip).min(len) };
        let words = (len - head) / WORD;
        let tail = len - head - words * WORD;
        // The words that the range touches, which `new`'s caller vouches for: `start` less `skip`, and `start` plus `head`,
        // are multiples of 8.
        let first = if head == 0 {
            None
        } else {
            // SAFETY: a byte of this word is in the range.
            Some((unsafe { word_at(start.wrapping_sub(skip)) }, skip))
        };
        // SAFETY: all bytes of these words are in the range.
        let middle = unsafe { words_at(start.wrapping_add(head), words) };
        let last = if tail == 0 {
            None
        } else {
            // SAFETY: a byte of this word is in the range.
            Some(unsafe { word_at(start.wrapping_add(len - tail)) })
        };
        Ok(Span { first, middle, last, head, tail })
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DeviceMemory").field("address", &self.base).field("len", &self.len).finish()
    }
}

/// A byte range as words.
struct Span<'a> {
    /// The word that the range has the end of, or a middle part of, and the offset of its first byte there.
    first: Option<(&'a AtomicU64, usize)>,
    middle: &'a [AtomicU64],
    /// The word that the range has the start of.
    last: Option<&'a AtomicU64>,
    /// Bytes of the range in `first`.
    head: usize,
    /// Bytes of the range in `last`.
    tail: usize,
}

/// # Safety
/// The word at `pointer` is aligned, and mapped and accessed by atomic words only for `'a`.
#[inline]
unsafe fn word_at<'a>(pointer: *mut u8) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(pointer.cast()) }
}

/// # Safety
/// As [`word_at`], for `count` words. With none, `pointer` need only not be null.
#[inline]
unsafe fn words_at<'a>(pointer: *mut u8, count: usize) -> &'a [AtomicU64] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; `AtomicU64` has the layout of a word.
    unsafe { core::slice::from_raw_parts(pointer.cast_const().cast(), count) }
}

#[inline]
fn load(word: &AtomicU64) -> [u8; WORD] {
    word.load(Ordering::Relaxed).to_ne_bytes()
}

/// Changes some bytes of a word and keeps what others write to the rest of it meanwhile.
fn merge(word: &AtomicU64, change: impl Fn(&mut [u8; WORD])) {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let mut bytes = seen.to_ne_bytes();
        change(&mut bytes);
        let changed = u64::from_ne_bytes(bytes);
        match word.compare_exchange_weak(seen, changed, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Copies as many bytes as both have, fewer than a word.
#[inline]
fn copy_small(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[inline]
fn read_words(words: &[AtomicU64], into: &mut [u8]) {
    let (lines, rest) = words.as_chunks::<LINE_WORDS>();
    let (into_lines, into_rest) = into.as_chunks_mut::<LINE>();
    for (line, into) in lines.iter().zip(into_lines) {
        let (into, _) = into.as_chunks_mut::<WORD>();
        for (word, into) in line.iter().zip(into) {
            *into = load(word);
        }
    }
    let (into_rest, _) = into_rest.as_chunks_mut::<WORD>();
    for (word, into) in rest.iter().zip(into_rest) {
        *into = load(word);
    }
}

#[inline]
fn write_words(words: &[AtomicU64], from: &[u8]) {
    let (lines, rest) = words.as_chunks::<LINE_WORDS>();
    let (from_lines, from_rest) = from.as_chunks::<LINE>();
    for (line, from) in lines.iter().zip(from_lines) {
        let (from, _) = from.as_chunks::<WORD>();
        for (word, from) in line.iter().zip(from) {
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
    }
    let (from_rest, _) = from_rest.as_chunks::<WORD>();
    for (word, from) in rest.iter().zip(from_rest) {
        word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
    }
}

#[inline]
fn copy_words(from: &[AtomicU64], to: &[AtomicU64]) {
    let (from_lines, from_rest) = from.as_chunks::<LINE_WORDS>();
    let (to_lines, to_rest) = to.as_chunks::<LINE_WORDS>();
    for (from, to) in from_lines.iter().zip(to_lines) {
        for (from, to) in from.iter().zip(to) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    for (from, to) in from_rest.iter().zip(to_rest) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
