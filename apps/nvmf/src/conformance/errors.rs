//! **Errors** of [`Storage`](crate::storage::Storage): what fails is told by its kind.

use super::{
    bounds::{every_kind, is_offered},
    content,
    outcome::{Outcome, ensure, not_shown},
    trial::Trial,
};
use crate::storage::{Operation, StorageError};

/// Whatever would is refused by that name, and the rest goes on: a Flush has nothing to do.
pub(super) fn a_read_only_way_changes_nothing(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (stamp, offers) = (trial.new_stamp(), way.features());
    ensure!(!offers.read_only, "it says that it is read-only");
    way.write(0, 8, stamp)?;
    way.succeed(Operation::Flush)?;
    drop(way);
    let mut way = trial.open_read_only()?;
    ensure!(way.features().read_only && !way.features().is_cached(), "{:?} of a read-only way", way.features());
    for operation in every_kind(2, 4).into_iter().filter(|operation| operation.changes()) {
        way.fill_buffers(0x5a);
        let result = way.run(operation)?;
        let unsupported = !is_offered(&way, operation) && result == Err(StorageError::Unsupported);
        ensure!(unsupported || result == Err(StorageError::ReadOnly), "{operation:?}: {result:?}");
    }
    way.succeed(Operation::Flush)?;
    way.expect(0, &[stamp; 8])
}

/// Blocks that it has no room for, and no others: what there is of it stays as it was, is written
/// again, and is flushed.
pub(super) fn a_full_medium_is_told_as_full(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let [old, new] = [(); 2].map(|()| trial.new_stamp());
    way.write(0, 8, old)?;
    way.succeed(Operation::Flush)?;
    if !trial.medium.fill_up() {
        return not_shown("its medium cannot run full");
    }
    let mut full = 0;
    for lba in 8..way.blocks() {
        way.put_blocks(0, lba, 1, new);
        match way.run(Operation::Write { lba, blocks: 1, buffer: 0 })? {
            Ok(()) => way.expect(lba, &[new])?,
            Err(error) => {
                ensure!(error == StorageError::NoSpace, "a full medium is told as {error:?}");
                full += 1;
            }
        }
    }
    way.expect(0, &[old; 8])?;
    way.write(2, 4, new)?;
    way.succeed(Operation::Flush)?;
    way.expect(0, &[old, old, new, new, new, new, old, old])?;
    if full == 0 { not_shown("it had room for everything") } else { Ok(()) }
}

/// It is an error of the medium, for good: no write behind it brings zeros in its place, and none
/// that hides it.
pub(super) fn what_was_cut_off_is_never_read_again(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (blocks, half) = (way.blocks(), way.blocks() / 2);
    let stamp = trial.new_stamp();
    way.write(0, 8, stamp)?;
    way.write(half, 8, stamp)?;
    way.succeed(Operation::Flush)?;
    if !trial.medium.cut(half) {
        return not_shown("its medium cannot be cut");
    }
    let last = blocks - 1;
    let behind = [
        Operation::Read { lba: half, blocks: 1, buffer: 0 },
        Operation::Write { lba: last, blocks: 1, buffer: 0 },
        Operation::Read { lba: half, blocks: 1, buffer: 0 },
        Operation::Write { lba: half + 8, blocks: 8, buffer: 0 },
        Operation::Read { lba: half - 1, blocks: 2, buffer: 0 },
        Operation::Read { lba: half, blocks: 8, buffer: 0 },
    ];
    for operation in behind {
        let result = way.run(operation)?;
        ensure!(
            result.is_err_and(StorageError::is_of_medium),
            "{operation:?} behind the end of its medium: {result:?}"
        );
    }
    // What is there is there, or an error says that the medium is not what it was.
    if way.run(Operation::Read { lba: 0, blocks: 1, buffer: 0 })?.is_ok() {
        let bytes = way.bytes(0, way.block_bytes());
        ensure!(content::stamp(&bytes, 0, &[stamp]).is_some(), "a block in front of the end has changed");
    }
    Ok(())
}
