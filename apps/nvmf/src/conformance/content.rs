//! What blocks are written with: bytes that tell what wrote them, which block they belong to, and
//! where in it they stand.

/// The stamp of a block of zeros.
pub(super) const ZEROS: u64 = 0;

/// Bytes of a word, of which every one of a block is another.
const WORD: usize = size_of::<u64>();
/// Odd numbers without a pattern (those of splitmix64), so that neighbours look nothing alike.
const SPREAD: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9];

/// The bytes of block `lba` as `stamp` has written it.
pub(super) fn of(stamp: u64, lba: u64, block_bytes: usize) -> Vec<u8> {
    if stamp == ZEROS {
        return vec![0; block_bytes];
    }
    let base = stamp.wrapping_mul(SPREAD[0]) ^ lba.wrapping_mul(SPREAD[1]);
    let words = 0..(block_bytes / WORD) as u64;
    words.flat_map(|word| (base ^ word.wrapping_mul(SPREAD[0]).rotate_left(17)).to_le_bytes()).collect()
}

/// Which of these stamps a block is of, as a whole.
pub(super) fn stamp(bytes: &[u8], lba: u64, candidates: &[u64]) -> Option<u64> {
    candidates.iter().copied().find(|stamp| of(*stamp, lba, bytes.len()) == bytes)
}

/// Every byte of a block is of one of these stamps.
pub(super) fn is_mixed_of(bytes: &[u8], lba: u64, candidates: &[u64]) -> bool {
    let all: Vec<_> = candidates.iter().map(|stamp| of(*stamp, lba, bytes.len())).collect();
    bytes.iter().enumerate().all(|(at, byte)| all.iter().any(|block| block[at] == *byte))
}
