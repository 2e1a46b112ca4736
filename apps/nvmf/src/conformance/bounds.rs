//! **Blocks** of [`Storage`](crate::storage::Storage): which there are.

use super::{
    outcome::{Outcome, ensure},
    trial::Trial,
    way::Way,
};
use crate::storage::{Operation, StorageError};

/// Every kind of operation on the same blocks, with what may be there in place of it where it is
/// not offered.
pub(super) fn every_kind(lba: u64, blocks: u32) -> [Operation; 6] {
    [
        Operation::Read { lba, blocks, buffer: 0 },
        Operation::Write { lba, blocks, buffer: 0 },
        Operation::WriteZeroes { lba, blocks, deallocate: false },
        Operation::WriteZeroes { lba, blocks, deallocate: true },
        Operation::Deallocate { lba, blocks },
        Operation::CompareAndWrite { lba, blocks, buffer: 0 },
    ]
}

/// The storage offers it.
pub(super) fn is_offered(way: &Way, operation: Operation) -> bool {
    match operation {
        Operation::WriteZeroes { .. } => way.features().write_zeroes,
        Operation::Deallocate { .. } => way.features().deallocate,
        Operation::CompareAndWrite { .. } => way.features().compare_and_write > 0,
        _ => true,
    }
}

/// Each alone, both in one operation where they lie beside each other, and the longest run at
/// either end.
pub(super) fn the_first_and_the_last_block_are_reached(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (last, longest) = (way.blocks() - 1, super::way::BUFFER_BLOCKS as u32);
    let [first, second, third] = [(); 3].map(|()| trial.new_stamp());
    way.write(0, 1, first)?;
    way.write(last, 1, second)?;
    way.expect(0, &[first])?;
    way.expect(last, &[second])?;
    way.write(0, longest, third)?;
    way.expect(0, &[third; super::way::BUFFER_BLOCKS])?;
    let start = way.blocks() - u64::from(longest);
    way.write(start, longest, first)?;
    way.expect(start, &[first; super::way::BUFFER_BLOCKS])
}

/// Runs that begin outside, end outside, or of which no number of bytes or blocks can be had in 64
/// bits: refused, by that name also where the buffer would be no good either, and neither blocks
/// nor buffers change.
pub(super) fn blocks_outside_of_the_namespace_are_refused(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (blocks, stamp) = (way.blocks(), trial.new_stamp());
    way.write(0, 8, stamp)?;
    way.write(blocks - 8, 8, stamp)?;
    // As many blocks as have 2^64 bytes: a product without its highest bits is 0.
    let wraps = 1_u64 << (u64::BITS - way.geometry().block_bytes().trailing_zeros());
    let outside = [
        (blocks - 1, 2),
        (blocks - 8, 9),
        (blocks, 1),
        (blocks + 1, 1),
        (blocks + 1, 0),
        (wraps, 1),
        (wraps - 1, 2),
        (wraps + blocks - 1, 1),
        (1 << 63, 1),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (u64::MAX - 1, 65536),
        (blocks - 1, u32::MAX),
    ];
    for (lba, count) in outside {
        for operation in every_kind(lba, count) {
            way.fill_buffers(0x5a);
            let result = way.run(operation)?;
            let unsupported = !is_offered(&way, operation) && result == Err(StorageError::Unsupported);
            let refused = unsupported || result == Err(StorageError::LbaOutOfRange);
            ensure!(refused, "{operation:?} of {blocks} blocks: {result:?}");
            ensure!(
                way.all_buffers().iter().all(|byte| *byte == 0x5a),
                "{operation:?} was refused, and moved something"
            );
        }
    }
    way.expect(0, &[stamp; 8])?;
    way.expect(blocks - 8, &[stamp; 8])
}

/// Which is nothing wrong, wherever it begins in the namespace or at its end.
pub(super) fn a_run_of_no_blocks_moves_nothing(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (blocks, stamp) = (way.blocks(), trial.new_stamp());
    way.write(0, 2, stamp)?;
    way.write(blocks - 2, 2, stamp)?;
    for lba in [0, 1, blocks - 1, blocks] {
        for operation in every_kind(lba, 0) {
            way.fill_buffers(0x5a);
            let result = way.run(operation)?;
            let unsupported = !is_offered(&way, operation) && result == Err(StorageError::Unsupported);
            ensure!(unsupported || result.is_ok(), "{operation:?}: {result:?}");
            ensure!(way.all_buffers().iter().all(|byte| *byte == 0x5a), "{operation:?} moved something");
        }
    }
    way.expect(0, &[stamp; 2])?;
    way.expect(blocks - 2, &[stamp; 2])
}
