//! **Zeros** of [`Storage`](crate::storage::Storage): blocks that are zeroed, or not needed any
//! more.

use super::{
    bounds::is_offered,
    content::ZEROS,
    outcome::{Outcome, ensure, not_shown},
    trial::Trial,
    way::Way,
};
use crate::storage::{Operation, StorageError};

/// Blocks that are looked at.
const BLOCKS: u32 = 48;
/// Runs of them: one block, none on a boundary of anything, on one, all.
const RUNS: [(u64, u32); 8] = [(0, 1), (3, 20), (7, 1), (8, 8), (1, 47), (47, 1), (16, 32), (0, BLOCKS)];

/// All blocks that there are at once: the first and the last ones are no different.
fn over_all(way: &mut Way, operation: Operation, stamp: u64) -> Outcome {
    let last = way.blocks() - 4;
    way.write(0, 4, stamp)?;
    way.write(last, 4, stamp)?;
    way.succeed(operation)?;
    for lba in [0, last] {
        for lba in lba..lba + 4 {
            way.stamp_of(lba, &[ZEROS, stamp])?;
        }
    }
    Ok(())
}

/// With and without leave to give their space back, and no block beside them.
pub(super) fn zeroed_blocks_read_as_zeros(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    if !way.features().write_zeroes {
        return not_shown("it does not offer Write Zeroes");
    }
    for (lba, blocks) in RUNS {
        for deallocate in [false, true] {
            let [stamp, again] = [(); 2].map(|()| trial.new_stamp());
            way.write(0, BLOCKS, stamp)?;
            way.succeed(Operation::WriteZeroes { lba, blocks, deallocate })?;
            let mut wanted = [stamp; BLOCKS as usize];
            wanted[lba as usize..][..blocks as usize].fill(ZEROS);
            way.expect(0, &wanted)?;
            // They are blocks as before.
            way.write(lba, 1, again)?;
            wanted[lba as usize] = again;
            way.expect(0, &wanted)?;
        }
    }
    let (stamp, all) = (trial.new_stamp(), u32::try_from(way.blocks()).unwrap_or(u32::MAX));
    for deallocate in [false, true] {
        over_all(&mut way, Operation::WriteZeroes { lba: 0, blocks: all, deallocate }, stamp)?;
        way.expect(0, &[ZEROS; 4])?;
    }
    Ok(())
}

/// Each reads as zeros or as before, and the same from then on; no block beside them changes.
pub(super) fn deallocated_blocks_are_theirs_alone(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    if !way.features().deallocate {
        return not_shown("it does not offer Deallocate");
    }
    for (lba, blocks) in RUNS {
        let [stamp, again] = [(); 2].map(|()| trial.new_stamp());
        way.write(0, BLOCKS, stamp)?;
        way.succeed(Operation::Deallocate { lba, blocks })?;
        let mut wanted = [stamp; BLOCKS as usize];
        for at in lba..lba + u64::from(blocks) {
            wanted[at as usize] = way.stamp_of(at, &[ZEROS, stamp])?;
        }
        way.expect(0, &wanted)?;
        way.write(lba, 1, again)?;
        wanted[lba as usize] = again;
        way.expect(0, &wanted)?;
    }
    let (stamp, all) = (trial.new_stamp(), u32::try_from(way.blocks()).unwrap_or(u32::MAX));
    over_all(&mut way, Operation::Deallocate { lba: 0, blocks: all }, stamp)
}

/// Whoever asks all the same is told so, and nothing changes.
pub(super) fn what_is_not_offered_is_refused(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let features = way.features();
    if features.write_zeroes && features.deallocate && features.compare_and_write > 0 {
        return not_shown("it offers everything");
    }
    let stamp = trial.new_stamp();
    way.write(0, 8, stamp)?;
    let zeroes = [false, true].map(|deallocate| Operation::WriteZeroes { lba: 2, blocks: 4, deallocate });
    let hint = Operation::Deallocate { lba: 2, blocks: 4 };
    way.put_blocks(0, 2, 4, stamp);
    let compare = Operation::CompareAndWrite { lba: 2, blocks: 4, buffer: 0 };
    for operation in zeroes.into_iter().chain([hint, compare]) {
        if is_offered(&way, operation) {
            continue;
        }
        let result = way.run(operation)?;
        ensure!(result == Err(StorageError::Unsupported), "{operation:?}: {result:?}");
        way.expect(0, &[stamp; 8])?;
    }
    Ok(())
}
