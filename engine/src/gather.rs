//! Segments to MR-sized pieces: gap rule, page count, contiguity.
//!
//! A piece is the longest run of segments from the front that one registration can cover (S28). Depth is counted in what
//! the device's list holds, pages or segments, not in elements handed over (F18), so the two counts of a piece differ
//! (S34): `consumed` moves the caller on, `entries` is what the list takes.

use crate::provider::{BaseId, Contiguity, ScatterElement};
use frwr_mempool::mutant;

/// A memory declared to the engine: in the lower half the place that it has there, in the upper one how many had that place before it,
/// so that the name of a memory that was removed is not the next one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct MemoryId(pub u32);

impl MemoryId {
    pub(crate) const fn of(place: u16, generation: u16) -> Self {
        Self(place as u32 | (generation as u32) << 16)
    }

    /// Its index in tables of memories.
    #[inline(always)]
    pub(crate) const fn place(self) -> u16 {
        self.0 as u16
    }
}

/// A part of a declared memory (D29). Laid out as the two numbers that lists of them are copied by, and with its length where an element
/// has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// First byte in the memory.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Which memory.
    pub memory: MemoryId,
}

impl Segment {
    /// Length and memory as one number, for comparing both at once.
    #[inline(always)]
    pub(crate) const fn kind(&self) -> u64 {
        self.length as u64 | (self.memory.0 as u64) << 32
    }

    /// The segment in terms of the device: `start` and `bytes` are the memory's, `base` and `lkey` its base registration's.
    ///
    /// # Errors
    /// [`GatherError::EmptySegment`]; [`GatherError::OutOfBounds`] when it does not lie inside the memory (I18).
    pub const fn resolve(&self, start: u64, bytes: u64, base: BaseId, lkey: u32) -> Result<Resolved, GatherError> {
        if self.length == 0 {
            return Err(GatherError::EmptySegment);
        }
        match self.offset.checked_add(self.length as u64) {
            Some(end) if end <= bytes && start.checked_add(end).is_some() => {}
            _ => return Err(GatherError::OutOfBounds),
        }
        Ok(Resolved { element: ScatterElement { address: start + self.offset, length: self.length, lkey }, base })
    }
}

/// A segment with its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Where it is.
    pub element: ScatterElement,
    /// The base registration that it lies in.
    pub base: BaseId,
}

/// What one registration can cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherRules {
    /// How its segments must lie.
    pub contiguity: Contiguity,
    /// Entries of its list: pages, or segments where pages are not counted. A single range has one entry by nature.
    pub depth: u32,
    /// Bytes; a length is 32 bit, so more than that changes nothing.
    pub max_bytes: u64,
}

/// What one registration takes from the front of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Segments taken, at least one.
    pub consumed: usize,
    /// Entries of the registration's list that they take.
    pub entries: u32,
    /// Bytes covered.
    pub bytes: u32,
}

/// Why segments cannot be gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// Nothing to register.
    #[error("a registration needs at least one segment")]
    NoSegments,
    /// A segment of length zero (I18).
    #[error("a segment has length zero; leave it out")]
    EmptySegment,
    /// A segment outside its memory, or one that wraps around (I18).
    #[error("a segment does not lie inside its memory")]
    OutOfBounds,
    /// A segment that a peer, or our own device, would write to, of a memory that is declared
    /// [`ReadOnly`](crate::MemoryAccess::ReadOnly).
    #[error(
        "a segment is to be written to and its memory is read-only; declare the memory with MemoryAccess::ReadWrite"
    )]
    ReadOnly,
    /// The lengths add up to more than 32 bit (I18).
    #[error("the segments add up to more than 4294967295 bytes; split the request")]
    TooManyBytes,
    /// One segment alone is more than a registration can cover (F18).
    #[error("a segment exceeds what one registration can cover; cut it")]
    SegmentTooLong,
    /// The list took fewer elements than were to be mapped (I19).
    #[error("the list took fewer elements than were gathered; gather by the device's own rules")]
    MapIncomplete,
    /// A page size that is no power of two, or a depth or byte limit of zero.
    #[error("page size must be a power of two, depth and byte limit above zero")]
    InvalidRules,
}

impl GatherError {
    /// Stable name for counters and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSegments => "no_segments",
            Self::EmptySegment => "empty_segment",
            Self::OutOfBounds => "out_of_bounds",
            Self::ReadOnly => "read_only",
            Self::TooManyBytes => "too_many_bytes",
            Self::SegmentTooLong => "segment_too_long",
            Self::MapIncomplete => "map_incomplete",
            Self::InvalidRules => "invalid_rules",
        }
    }
}

/// The longest piece from the front of `segments`.
///
/// With a page list the elements may lie in different base registrations, as long as the gap rule holds; a single range
/// lies in one.
///
/// # Errors
/// [`GatherError`] when there is no segment, or the first that would have to be taken is not acceptable.
#[inline]
pub fn next_piece(rules: GatherRules, segments: &[Resolved]) -> Result<Piece, GatherError> {
    Limits::of(rules)?.next_piece(segments)
}

/// How many pieces the whole of `segments` takes: the MRs of a request, known before any of them is taken.
///
/// # Errors
/// As [`next_piece`], and [`GatherError::TooManyBytes`] when the lengths add up to more than 32 bit.
pub fn count_pieces(rules: GatherRules, segments: &[Resolved]) -> Result<usize, GatherError> {
    Limits::of(rules)?.count_pieces(segments)
}

/// Cuts a segment where one registration ends: the part that fits, and the rest if there is any. A request with longer
/// segments than `depth` allows is cut before it is gathered.
///
/// # Errors
/// [`GatherError::EmptySegment`], [`GatherError::OutOfBounds`] or [`GatherError::InvalidRules`].
pub fn cut(rules: GatherRules, segment: Resolved) -> Result<(Resolved, Option<Resolved>), GatherError> {
    Limits::of(rules)?.cut(segment)
}

/// What the device's list makes of `elements`, by the builder's own rule: an element joins if it follows the one before
/// without a gap, or if both meet at a page boundary; capacity is `depth` pages (S35). Returns the entries taken. An
/// independent check of [`next_piece`], for tests and debug builds.
///
/// # Errors
/// [`GatherError::MapIncomplete`] when the list does not take all of them (I19).
pub fn check_list(rules: GatherRules, elements: &[ScatterElement]) -> Result<u32, GatherError> {
    let limits = Limits::of(rules)?;
    let (mut entries, mut bytes, mut previous_end) = (0u64, 0u64, None);
    for element in elements {
        check_element(element)?;
        let end = element.address + u64::from(element.length);
        let contiguous = previous_end == Some(element.address);
        let aligned = previous_end.is_some_and(|previous| (previous | element.address) & limits.page_mask == 0);
        let joins = match rules.contiguity {
            Contiguity::PageList { .. } => previous_end.is_none() || contiguous || aligned,
            Contiguity::Gaps { .. } => true,
            Contiguity::SingleRange => previous_end.is_none() || contiguous,
        };
        entries += match rules.contiguity {
            Contiguity::SingleRange => u64::from(previous_end.is_none()),
            // A contiguous element goes on in the page that the one before ended in.
            Contiguity::PageList { .. } if contiguous && element.address & limits.page_mask != 0 => {
                limits.entries(element) - 1
            }
            _ => limits.entries(element),
        };
        bytes += u64::from(element.length);
        if !joins || entries > limits.depth || bytes > limits.max_bytes {
            return Err(GatherError::MapIncomplete);
        }
        previous_end = Some(end);
    }
    // At most `depth`, which is 32 bit.
    if elements.is_empty() { Err(GatherError::NoSegments) } else { Ok(entries as u32) }
}

/// What a registration makes of segments of equal length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// One range.
    Range,
    /// An entry for each: whole pages, or anything where `page_size` is 0.
    Pieces { page_size: u32 },
}

/// Rules, checked once, in the form that the loops use.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    contiguity: Contiguity,
    /// Page size less one; 0 where pages are not counted.
    page_mask: u64,
    page_shift: u32,
    depth: u64,
    max_bytes: u64,
    /// See [`Limits::anywhere`].
    anywhere: u32,
}

impl Limits {
    /// # Errors
    /// [`GatherError::InvalidRules`].
    #[inline]
    pub(crate) fn of(rules: GatherRules) -> Result<Self, GatherError> {
        let page_size = match rules.contiguity {
            Contiguity::PageList { page_size } => page_size,
            Contiguity::Gaps { page_size } => page_size.max(1),
            Contiguity::SingleRange => 1,
        };
        if !page_size.is_power_of_two() || rules.depth == 0 || rules.max_bytes == 0 {
            return Err(GatherError::InvalidRules);
        }
        let mut limits = Self {
            contiguity: rules.contiguity,
            anywhere: 0,
            page_mask: u64::from(page_size) - 1,
            page_shift: page_size.trailing_zeros(),
            depth: match rules.contiguity {
                // One entry by nature, which is never full.
                Contiguity::SingleRange => u64::MAX,
                _ => u64::from(rules.depth),
            },
            max_bytes: rules.max_bytes.min(u64::from(u32::MAX)),
        };
        // At most max_bytes, which is 32 bit.
        limits.anywhere = limits.bytes_from(limits.page_mask) as u32;
        Ok(limits)
    }

    /// [`next_piece`] by these limits.
    #[inline]
    pub(crate) fn next_piece(&self, segments: &[Resolved]) -> Result<Piece, GatherError> {
        let first = segments.first().ok_or(GatherError::NoSegments)?;
        let mut piece = self.open(first)?;
        if segments.len() > 1 {
            self.extend(&mut piece, segments)?;
        }
        Ok(piece)
    }

    /// [`count_pieces`] by these limits.
    pub(crate) fn count_pieces(&self, segments: &[Resolved]) -> Result<usize, GatherError> {
        if segments.is_empty() {
            return Err(GatherError::NoSegments);
        }
        let (mut rest, mut pieces, mut bytes) = (segments, 0, 0u32);
        while !rest.is_empty() {
            let piece = self.next_piece(rest)?;
            bytes = bytes.checked_add(piece.bytes).ok_or(GatherError::TooManyBytes)?;
            rest = rest.get(piece.consumed..).unwrap_or(&[]);
            pieces += 1;
        }
        Ok(pieces)
    }

    /// The form of lists whose elements are equal.
    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        match self.contiguity {
            Contiguity::SingleRange => Shape::Range,
            Contiguity::PageList { page_size } | Contiguity::Gaps { page_size } => Shape::Pieces { page_size },
        }
    }

    /// As the length of one registration, if it covers that many bytes.
    #[inline]
    pub(crate) fn bytes_of(&self, bytes: u64) -> Option<u32> {
        // The limit is 32 bit.
        (bytes <= self.max_bytes).then_some(bytes as u32)
    }

    /// Whether a list has room for so many whole pages, or segments where pages are not counted.
    #[inline]
    pub(crate) fn holds(&self, entries: usize) -> bool {
        entries as u64 <= self.depth
    }

    /// Bytes that one registration covers wherever they begin.
    pub(crate) fn anywhere(&self) -> u32 {
        self.anywhere
    }

    /// Whether one registration covers the element, so that there is nothing to cut.
    #[inline]
    pub(crate) fn covers(&self, element: &ScatterElement) -> bool {
        element.length <= self.anywhere || u64::from(element.length) <= self.bytes_from(element.address)
    }

    /// [`cut`] by these limits.
    pub(crate) fn cut(&self, segment: Resolved) -> Result<(Resolved, Option<Resolved>), GatherError> {
        check_element(&segment.element)?;
        if self.covers(&segment.element) {
            return Ok((segment, None));
        }
        let room = self.bytes_from(segment.element.address);
        let length = u64::from(segment.element.length);
        // Whole pages, so that the rest joins the next registration from its first byte on.
        let end = (segment.element.address + room) & !self.page_mask;
        let taken = if end > segment.element.address { end - segment.element.address } else { room };
        let (mut front, mut rest) = (segment, segment);
        // Both are below `length`, which is 32 bit.
        front.element.length = taken as u32;
        rest.element.length = (length - taken) as u32;
        rest.element.address += taken;
        Ok((front, Some(rest)))
    }

    /// Entries that an element takes where it starts a page of its own.
    #[inline]
    fn entries(&self, element: &ScatterElement) -> u64 {
        if self.page_mask == 0 {
            return 1;
        }
        // F18, F19: elements are counted for pages, or an unaligned start is not.
        if mutant!(F18) {
            return 1;
        }
        let offset = if mutant!(F19) { 0 } else { element.address & self.page_mask };
        (offset + u64::from(element.length) + self.page_mask) >> self.page_shift
    }

    /// Bytes that a registration can cover if it starts at `address`.
    #[inline]
    fn bytes_from(&self, address: u64) -> u64 {
        if self.page_mask == 0 {
            return self.max_bytes;
        }
        let pages = (self.depth << self.page_shift) - (address & self.page_mask);
        pages.min(self.max_bytes)
    }

    #[inline]
    fn open(&self, first: &Resolved) -> Result<Piece, GatherError> {
        check_element(&first.element)?;
        let entries = self.entries(&first.element);
        if entries > self.depth || u64::from(first.element.length) > self.max_bytes {
            return Err(GatherError::SegmentTooLong);
        }
        Ok(Piece { consumed: 1, entries: entries as u32, bytes: first.element.length })
    }

    fn extend(&self, piece: &mut Piece, segments: &[Resolved]) -> Result<(), GatherError> {
        match self.contiguity {
            Contiguity::PageList { page_size } => self.extend_by_whole_pages(piece, segments, page_size),
            Contiguity::SingleRange => self.extend_by_equal_lengths(piece, segments),
            Contiguity::Gaps { .. } => {}
        }
        // What stands behind a full list is not looked at (S28).
        while u64::from(piece.entries) < self.depth {
            let (Some(previous), Some(next)) = (segments.get(piece.consumed - 1), segments.get(piece.consumed)) else {
                break;
            };
            if !self.joins(previous, next) {
                break;
            }
            check_element(&next.element)?;
            let entries = match self.contiguity {
                Contiguity::SingleRange => 1,
                _ => u64::from(piece.entries) + self.entries(&next.element),
            };
            let bytes = u64::from(piece.bytes) + u64::from(next.element.length);
            if entries > self.depth || bytes > self.max_bytes {
                break;
            }
            // Both were just compared with 32-bit limits.
            piece.entries = entries as u32;
            piece.bytes = bytes as u32;
            piece.consumed += 1;
        }
        Ok(())
    }

    /// The common run of a page list, whole pages at page boundaries, in a loop without sums: how far it may go is known
    /// before it starts.
    #[inline]
    fn extend_by_whole_pages(&self, piece: &mut Piece, segments: &[Resolved], page_size: u32) {
        let Some((first, rest)) = segments.split_first() else { return };
        if (first.element.address + u64::from(first.element.length)) & self.page_mask != 0 {
            return;
        }
        let by_depth = self.depth - u64::from(piece.entries);
        let by_bytes = (self.max_bytes - u64::from(piece.bytes)) >> self.page_shift;
        let run = run_length(rest, by_depth.min(by_bytes), |next| {
            next.element.address & self.page_mask == 0 && next.element.length == page_size
        });
        piece.consumed += run;
        // At most `by_depth` and `by_bytes`.
        piece.entries += run as u32;
        piece.bytes += (run as u32) << self.page_shift;
    }

    /// The common run of a single range, adjacent segments of one length, in the same way.
    #[inline]
    fn extend_by_equal_lengths(&self, piece: &mut Piece, segments: &[Resolved]) {
        let [first, rest @ ..] = segments else { return };
        let [next, ..] = rest else { return };
        let (base, length) = (first.base, next.element.length);
        let stride = u64::from(length);
        let mut expected = first.element.address + u64::from(first.element.length);
        let room = (self.max_bytes - u64::from(piece.bytes)).min(u64::MAX - expected);
        let whole = rest.len() as u64;
        // A division only where the run could reach the limit.
        let most = if stride.saturating_mul(whole) <= room { whole } else { room / stride };
        let run = run_length(rest, if length == 0 { 0 } else { most }, |next| {
            let joins = next.element.address == expected && next.element.length == length && next.base == base;
            // At most `room` beyond the first one's end, or the run ends here.
            expected = expected.wrapping_add(stride);
            joins
        });
        piece.consumed += run;
        // At most `most` strides, which `max_bytes` bounds.
        piece.bytes += run as u32 * length;
    }

    /// Whether `next` may follow `previous` in one registration.
    #[inline]
    fn joins(&self, previous: &Resolved, next: &Resolved) -> bool {
        let end = previous.element.address + u64::from(previous.element.length);
        match self.contiguity {
            Contiguity::PageList { .. } => (end | next.element.address) & self.page_mask == 0,
            Contiguity::Gaps { .. } => true,
            Contiguity::SingleRange => end == next.element.address && previous.base == next.base,
        }
    }
}

/// How many segments from the front pass `joins`, at most `most`.
#[inline]
fn run_length(segments: &[Resolved], most: u64, mut joins: impl FnMut(&Resolved) -> bool) -> usize {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(segments.len());
    let window = segments.get(..most).unwrap_or(segments);
    window.iter().position(|next| !joins(next)).unwrap_or(most)
}

/// Refuses what no device registers (I18).
#[inline]
fn check_element(element: &ScatterElement) -> Result<(), GatherError> {
    if element.length == 0 {
        return Err(GatherError::EmptySegment);
    }
    match element.address.checked_add(u64::from(element.length)) {
        Some(_) => Ok(()),
        None => Err(GatherError::OutOfBounds),
    }
}
