//! What bytes there must be: a function of the request, its chunk and the place in it, so that data of another request is seen.

use frwr_mempool::DeviceMemory;

/// Who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The host, before it opened the memory.
    Host,
    /// The target, with what it answers.
    Target,
}

/// Bytes of one chunk of one request, as `writer` writes them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) writer: Writer,
    pub(super) cookie: u64,
    pub(super) chunk: usize,
}

/// Words have eight bytes, and packets whole words.
const WORD: usize = 8;

impl Pattern {
    fn word(self, index: u64) -> u64 {
        let who = match self.writer {
            Writer::Host => 0x5851_F42D_4C95_7F2D,
            Writer::Target => 0x1405_7B7E_F767_814F,
        };
        let seed = (self.cookie << 20) ^ ((self.chunk as u64) << 16) ^ index;
        (seed ^ who).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ who
    }

    /// The bytes from `position` of the chunk on; `position` is a whole number of words.
    pub(super) fn fill(self, position: usize, into: &mut [u8]) {
        for (index, part) in into.chunks_mut(WORD).enumerate() {
            let word = self.word((position / WORD + index) as u64).to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    /// Puts them into memory at `offset`.
    pub(super) fn write(self, memory: &DeviceMemory, offset: usize, position: usize, length: usize) {
        let mut bytes = vec![0; length];
        self.fill(position, &mut bytes);
        memory.write(offset, &bytes).expect("the simulation knows its memory");
    }

    /// The first word of `bytes` that is not as it should be.
    pub(super) fn differs(self, position: usize, bytes: &[u8]) -> Option<usize> {
        bytes.chunks(WORD).enumerate().position(|(index, part)| !self.is_word(position / WORD + index, part))
    }

    fn is_word(self, index: usize, part: &[u8]) -> bool {
        self.word(index as u64).to_le_bytes()[..part.len()] == *part
    }

    /// The first word that is neither of two patterns'.
    pub(super) fn differs_from_both(self, other: Self, position: usize, bytes: &[u8]) -> Option<usize> {
        let known = |index: usize, part: &[u8]| self.is_word(index, part) || other.is_word(index, part);
        bytes.chunks(WORD).enumerate().position(|(index, part)| !known(position / WORD + index, part))
    }
}
