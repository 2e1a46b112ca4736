//! What a block holds after its n-th write: a pattern of block number, write number and place, so that a block of another
//! place, another time or another request is told from the right one (fault 38).

/// Bytes handled at a time; blocks are multiples of it.
const WORD: usize = 8;

/// A block that is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Offset of the first wrong word in the block.
    pub offset: usize,
    /// What should stand there.
    pub expected: u64,
    /// What stands there.
    pub found: u64,
}

/// The word at an offset of a block (splitmix64 over its coordinates).
fn word(seed: u64, lba: u64, version: u32, offset: usize) -> u64 {
    let place = lba.rotate_left(32) ^ (u64::from(version) << 17) ^ offset as u64;
    let mut mixed = seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Fills `block` with the pattern of a write.
pub(super) fn fill(block: &mut [u8], seed: u64, lba: u64, version: u32) {
    for (at, place) in block.chunks_exact_mut(WORD).enumerate() {
        place.copy_from_slice(&word(seed, lba, version, at * WORD).to_le_bytes());
    }
}

/// Checks a block against the pattern of a write.
///
/// # Errors
/// The first [`Mismatch`].
pub(super) fn check(block: &[u8], seed: u64, lba: u64, version: u32) -> Result<(), Mismatch> {
    for (at, place) in block.chunks_exact(WORD).enumerate() {
        let expected = word(seed, lba, version, at * WORD);
        let found = u64::from_le_bytes(place.try_into().unwrap_or([0; WORD]));
        if expected != found {
            return Err(Mismatch { offset: at * WORD, expected, found });
        }
    }
    Ok(())
}

/// Checks a block against bytes; what lies behind them must be zero.
///
/// # Errors
/// The first [`Mismatch`].
pub(super) fn check_bytes(block: &[u8], bytes: &[u8]) -> Result<(), Mismatch> {
    let same = bytes.len() <= block.len() && block[..bytes.len()] == *bytes;
    if same && block[bytes.len()..].iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    let padded = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let wrong = (0..block.len()).find(|&at| block[at] != padded(at)).unwrap_or(0);
    Err(Mismatch { offset: wrong, expected: padded(wrong).into(), found: block[wrong].into() })
}

#[cfg(test)]
mod tests {
    use super::{check, check_bytes, fill};

    #[test]
    fn a_block_is_told_from_its_neighbour_and_its_past() {
        let mut block = [0u8; 512];
        fill(&mut block, 1, 7, 3);
        assert_eq!(check(&block, 1, 7, 3), Ok(()));
        for (seed, lba, version) in [(2, 7, 3), (1, 8, 3), (1, 7, 2)] {
            assert_eq!(check(&block, seed, lba, version).map_err(|wrong| wrong.offset), Err(0));
        }
        block[300] ^= 1;
        assert_eq!(check(&block, 1, 7, 3).map_err(|wrong| wrong.offset), Err(296));
    }

    #[test]
    fn the_last_block_of_a_file_ends_in_zeros() {
        let mut block = [0u8; 16];
        block[..3].copy_from_slice(b"end");
        assert!(check_bytes(&block, b"end").is_ok());
        block[9] = 1;
        assert_eq!(check_bytes(&block, b"end").map_err(|wrong| wrong.offset), Err(9));
        assert_eq!(check_bytes(&block, b"And").map_err(|wrong| wrong.offset), Err(0));
    }
}
