//! Which bytes of a read have come: chunks come in any order, none twice, and all of them before the end.

use super::wire::NbdBreach;
use arrayvec::ArrayVec;

/// Pieces that are apart from each other at the same time. Servers send in order, which is one.
const MAX_PIECES: usize = 8;

/// Pieces of a part, in bytes from its beginning, in order, apart from each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    pieces: ArrayVec<(u32, u32), MAX_PIECES>,
}

impl Coverage {
    /// Bytes from `start` to before `end` have come; false where some of them had before.
    pub(super) fn add(&mut self, start: u32, end: u32) -> Result<bool, NbdBreach> {
        let at = self.pieces.partition_point(|&(_, before)| before < start);
        let Some(&(other_start, other_end)) = self.pieces.get(at) else {
            return self.insert(at, start, end);
        };
        if start < other_end && other_start < end {
            return Ok(false);
        }
        if other_end == start {
            let next = self.pieces.get(at + 1).copied();
            match next {
                Some((next_start, _)) if next_start < end => return Ok(false),
                Some((next_start, next_end)) if next_start == end => {
                    self.pieces[at] = (other_start, next_end);
                    self.pieces.remove(at + 1);
                }
                _ => self.pieces[at].1 = end,
            }
            return Ok(true);
        }
        if end == other_start {
            self.pieces[at].0 = start;
            return Ok(true);
        }
        self.insert(at, start, end)
    }

    fn insert(&mut self, at: usize, start: u32, end: u32) -> Result<bool, NbdBreach> {
        self.pieces.try_insert(at, (start, end)).map_err(|_| NbdBreach::Pieces(MAX_PIECES))?;
        Ok(true)
    }

    /// Bytes that have come.
    pub(super) fn bytes(&self) -> u32 {
        self.pieces.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_byte_is_taken_once(pieces in prop::collection::vec((0_u32..40, 1_u32..12), 1..40)) {
            let (mut coverage, mut model) = (Coverage::default(), [false; 64]);
            for (start, length) in pieces {
                let range = start as usize..(start + length) as usize;
                let is_new = model[range.clone()].iter().all(|byte| !byte);
                match coverage.add(start, start + length) {
                    Ok(taken) => {
                        prop_assert_eq!(taken, is_new);
                        if taken {
                            model[range].fill(true);
                        }
                    }
                    Err(error) => {
                        prop_assert_eq!(error, NbdBreach::Pieces(MAX_PIECES));
                        prop_assert!(is_new);
                    }
                }
                let count = model.iter().filter(|byte| **byte).count();
                prop_assert_eq!(coverage.bytes() as usize, count);
            }
        }
    }
}
