//! Where the bytes of a slot's block lie in the job's memory.

use core::ops::Range;

/// Bytes between two pieces of a block: a page, so that no device takes them for one range.
const GAP: usize = 4096;

/// A block in as many pieces of nearly equal length, with gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    block_bytes: usize,
    pieces: usize,
}

impl Layout {
    /// Blocks of `block_bytes` in `pieces` pieces; none for a block in one.
    #[must_use]
    pub fn new(block_bytes: u32, pieces: u32) -> Self {
        Self { block_bytes: block_bytes as usize, pieces: pieces.max(1) as usize }
    }

    /// Bytes of one slot.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.block_bytes + (self.pieces - 1) * GAP
    }

    /// The pieces of the first `bytes` bytes of a slot's block: where each lies in the memory, and what of the block it is.
    pub fn pieces(&self, slot: u32, bytes: usize) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let Self { block_bytes, pieces, .. } = *self;
        let first = slot as usize * self.slot_bytes();
        let cut = move |piece: usize| (block_bytes * piece / pieces).min(bytes);
        let ranges = (0..pieces).map(move |piece| (first + cut(piece) + piece * GAP, cut(piece)..cut(piece + 1)));
        ranges.filter(|(_, range)| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn pieces_make_up_the_block_and_no_two_touch() {
        for (pieces, bytes) in [(1, 4096), (3, 4096), (3, 1024), (8, 4096), (8, 512)] {
            let layout = Layout::new(4096, pieces);
            let (mut at, mut end) = (0, 0);
            for slot in 0..3 {
                at = 0;
                for (offset, range) in layout.pieces(slot, bytes) {
                    assert_eq!(range.start, at);
                    assert!(range.start == 0 || offset > end);
                    (at, end) = (range.end, offset + range.len());
                }
                assert_eq!(at, bytes);
                assert!(end <= (slot as usize + 1) * layout.slot_bytes());
            }
            assert_eq!(at, bytes);
        }
    }
}
