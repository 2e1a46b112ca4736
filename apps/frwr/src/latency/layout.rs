//! Where the memory of requests lies: the same arithmetic on both sides.

use super::parameters::Parameters;
use frwr_engine::{
    RemoteSegment,
    gather::{MemoryId, Segment},
    provider::RemoteRange,
};

/// Requests begin at pages, as the buffers of storage do, and gaps between pieces are a page.
pub(super) const PAGE: usize = 4096;

/// Ranges below a page begin at multiples of this: no two share a cache line.
const LINE: u32 = 64;

/// The memory of one connection: a slot per request in flight, each with its pieces. What is divided is computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a request.
    pub(super) size: u32,
    /// Pieces of a slot.
    pub(super) segments: u8,
    /// Ranges of a slot in the server's memory.
    pub(super) ranges: u8,
    /// Slots.
    pub(super) slots: u32,
    piece_bytes: u32,
    /// From the beginning of one piece to that of the next: pieces do not touch.
    piece_stride: usize,
    /// Bytes of one range.
    pub(super) range_bytes: u32,
    /// From the beginning of one range to that of the next: ranges do not touch, and none below a page lies in two.
    pub(super) range_stride: usize,
    /// Of one slot on either side, its gaps included.
    slot_bytes: usize,
    connection_bytes: usize,
}

impl Parameters {
    /// Bytes of the buffers of all connections. Of numbers that were checked it fits by far.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        let of_a_connection = if self.operation.is_message_alone() {
            // Messages are the engine's: on either side two for each request, receives, and a few in hand.
            (3 * u64::from(self.depth) + 8).saturating_mul(self.size.into())
        } else {
            Layout::new(self).connection_bytes() as u64
        };
        u64::from(self.connections).saturating_mul(of_a_connection)
    }
}

impl Layout {
    /// Of numbers that need not have been checked.
    pub(super) fn new(parameters: &Parameters) -> Self {
        let Parameters { operation, size, segments, ranges, depth, .. } = *parameters;
        Self::of(size, segments.max(1), ranges.max(1), operation.slots(depth).max(1))
    }

    /// Of numbers that are not 0.
    fn of(size: u32, segments: u8, ranges: u8, slots: u32) -> Self {
        let (piece_bytes, range_bytes) = (size / u32::from(segments), size / u32::from(ranges));
        let gap = if segments > 1 { PAGE } else { 0 };
        let piece_stride = (piece_bytes as usize).next_multiple_of(PAGE) + gap;
        let whole = if (range_bytes as usize) < PAGE {
            range_bytes.next_power_of_two().max(LINE) as usize
        } else {
            (range_bytes as usize).next_multiple_of(PAGE)
        };
        let range_stride = whole + whole.min(PAGE);
        let pieces = piece_stride * usize::from(segments);
        let slot_bytes = pieces.max(span(ranges, range_stride, range_bytes).next_multiple_of(PAGE));
        let connection_bytes = slot_bytes.saturating_mul(slots as usize);
        Self {
            size,
            segments,
            ranges,
            slots,
            piece_bytes,
            piece_stride,
            range_bytes,
            range_stride,
            slot_bytes,
            connection_bytes,
        }
    }

    /// Bytes from the first one of a slot's first range to the last one of its last range, and what lies between.
    pub(super) fn ranges_span(&self) -> u32 {
        // Of numbers that were checked it fits by far.
        u32::try_from(span(self.ranges, self.range_stride, self.range_bytes)).unwrap_or(u32::MAX)
    }

    /// Bytes of one slot on either side, its gaps included.
    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Bytes of the slots of one connection; cut at 64 bit where the numbers were not checked.
    pub(super) fn connection_bytes(&self) -> usize {
        self.connection_bytes
    }

    /// Offset of a slot of a connection, each counted from 0.
    pub(super) fn slot_offset(&self, connection: usize, slot: u32) -> usize {
        connection * self.connection_bytes + slot as usize * self.slot_bytes
    }

    /// The pieces of a slot at `offset`.
    pub(super) fn pieces(&self, memory: MemoryId, offset: usize) -> impl Iterator<Item = Segment> + use<> {
        let (stride, length) = (self.piece_stride, self.piece_bytes);
        (0..usize::from(self.segments)).map(move |piece| Segment {
            memory,
            offset: (offset + piece * stride) as u64,
            length,
        })
    }

    /// The server's ranges for each slot of a connection, one slot behind the other, where `remote` is what it opened for all of them.
    pub(super) fn ranges_of_slots(&self, remote: RemoteRange) -> impl Iterator<Item = RemoteSegment> {
        let Self { ranges, slots, range_bytes: length, range_stride, .. } = *self;
        let of_slot = move |slot| {
            let first = remote.address.wrapping_add(self.slot_offset(0, slot) as u64);
            (0..u64::from(ranges)).map(move |range| {
                let address = first.wrapping_add(range * range_stride as u64);
                RemoteSegment { remote: RemoteRange { address, ..remote }, length }
            })
        };
        (0..slots).flat_map(of_slot)
    }

    /// All of a slot as one piece, gaps included: what a long-lived key covers.
    pub(super) fn span(&self, memory: MemoryId, offset: usize) -> Segment {
        Segment { memory, offset: offset as u64, length: u32::try_from(self.slot_bytes()).unwrap_or(u32::MAX) }
    }

    /// All of a connection as one piece.
    pub(super) fn connection_span(&self, memory: MemoryId, connection: usize) -> Segment {
        let length = u32::try_from(self.connection_bytes()).unwrap_or(u32::MAX);
        Segment { memory, offset: self.slot_offset(connection, 0) as u64, length }
    }

    /// Offset of the last word of a slot at `offset`.
    pub(super) fn last_word(&self, offset: usize) -> usize {
        let last = offset + (usize::from(self.segments) - 1) * self.piece_stride;
        last + self.piece_bytes as usize - size_of::<u64>()
    }
}

/// Bytes from the first to the last one of `count` ranges.
fn span(count: u8, stride: usize, bytes: u32) -> usize {
    (usize::from(count) - 1) * stride + bytes as usize
}

#[cfg(test)]
mod tests {
    use super::{Layout, PAGE};
    use frwr_engine::gather::MemoryId;

    #[test]
    fn pieces_never_touch_and_stay_in_their_slot() {
        for (size, segments, slots) in [(8, 1, 1), (4096, 1, 3), (4096, 4, 2), (65536, 16, 2), (24576, 3, 5)] {
            let layout = Layout::of(size, segments, 1, slots);
            let mut end = None;
            for connection in 0..2 {
                for slot in 0..slots {
                    let offset = layout.slot_offset(connection, slot);
                    let pieces: Vec<_> = layout.pieces(MemoryId(1), offset).collect();
                    assert_eq!(pieces.iter().map(|piece| piece.length).sum::<u32>(), size);
                    for piece in &pieces {
                        assert!(piece.offset.is_multiple_of(PAGE as u64));
                        assert!(end.is_none_or(|end| piece.offset >= end), "{layout:?}");
                        if segments > 1 {
                            assert!(end.is_none_or(|end| piece.offset > end), "{layout:?}");
                        }
                        end = Some(piece.offset + u64::from(piece.length));
                    }
                    assert_eq!(layout.last_word(offset) as u64 + 8, end.unwrap());
                    let span = layout.span(MemoryId(1), offset);
                    assert!(span.offset == pieces[0].offset && span.offset + u64::from(span.length) >= end.unwrap());
                }
            }
            assert!(end.unwrap() <= 2 * layout.connection_bytes() as u64);
        }
    }

    #[test]
    fn ranges_never_touch_and_stay_in_their_slot() {
        for (size, segments, ranges) in
            [(128, 1, 16), (65536, 16, 2), (65536, 2, 16), (8, 1, 1), (9000, 1, 3), (4096, 1, 1)]
        {
            let layout = Layout::of(size, segments, ranges, 2);
            let (stride, bytes) = (layout.range_stride, layout.range_bytes as usize);
            assert!(stride > bytes && bytes * usize::from(ranges) == size as usize, "{layout:?}");
            for range in 0..usize::from(ranges) {
                let (first, last) = (range * stride, range * stride + bytes - 1);
                assert!(last < layout.slot_bytes() && last < layout.ranges_span() as usize, "{layout:?}");
                assert!(bytes >= PAGE || first / PAGE == last / PAGE, "{layout:?}");
            }
        }
    }
}
