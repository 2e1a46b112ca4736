//! **Size** of [`Storage`](crate::storage::Storage): another number of blocks.

use super::{
    outcome::{Outcome, ensure, not_shown},
    trial::Trial,
    way::Way,
};
use crate::storage::{Operation, ResizeError, StorageError};

/// It can have another size at all: it takes the one that it has.
fn check_resizable(way: &mut Way) -> Outcome {
    let blocks = way.blocks();
    match way.storage().resize(blocks) {
        Ok(()) => Ok(()),
        Err(ResizeError::Fixed) => not_shown("it has one size"),
        Err(error) => {
            ensure!(false, "the size that it has: {error:?}");
            Ok(())
        }
    }
}

/// Nothing is behind them, and what is there may be taken away; what is in flight in front of them goes on. A
/// size that cannot be changes nothing.
pub(super) fn fewer_blocks_end_where_they_end(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    check_resizable(&mut way)?;
    let (blocks, half) = (way.blocks(), way.blocks() / 2);
    let [stamp, new] = [(); 2].map(|()| trial.new_stamp());
    way.write(half - 8, 16, stamp)?;
    way.put_blocks(0, 0, 8, new);
    let begun = way.submit(Operation::Write { lba: 0, blocks: 8, buffer: 0 });
    ensure!(begun.is_some(), "a storage that has nothing to do has no room");
    way.flush();
    let resized = way.storage().resize(half);
    ensure!(resized.is_ok() && way.geometry().blocks() == half, "{half} of {blocks} blocks: {resized:?}");
    let ended = way.finish()?;
    ensure!(ended.iter().all(|completion| completion.result.is_ok()), "{ended:?}");
    for (lba, count) in [(half, 1), (half - 1, 2), (blocks - 1, 1)] {
        for operation in
            [Operation::Read { lba, blocks: count, buffer: 0 }, Operation::Write { lba, blocks: count, buffer: 0 }]
        {
            let result = way.run(operation)?;
            ensure!(result == Err(StorageError::LbaOutOfRange), "{operation:?} of {half} blocks: {result:?}");
        }
    }
    way.expect(half - 8, &[stamp; 8])?;
    // What is behind the end is somebody else's now: the medium may be cut, and is in order as before.
    trial.medium.cut(half);
    way.write(half - 8, 8, new)?;
    way.write(half - 8, 8, stamp)?;
    way.succeed(Operation::Flush)?;
    way.expect(half - 8, &[stamp; 8])?;
    ensure!(way.storage().statistics().fault.is_none(), "something is wrong with a medium that was cut where it ends");
    let none = way.storage().resize(0);
    ensure!(matches!(none, Err(ResizeError::Geometry(_))), "no block at all: {none:?}");
    ensure!(way.geometry().blocks() == half, "a size that was refused is there");
    way.expect(0, &[new; 8])
}

/// With what they held, where nobody has cut the medium meanwhile.
pub(super) fn blocks_are_there_again_when_it_has_them_again(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    check_resizable(&mut way)?;
    let (blocks, stamp) = (way.blocks(), trial.new_stamp());
    way.write(blocks - 16, 16, stamp)?;
    for fewer in [1, 8, blocks - 1, blocks / 2] {
        let resized = way.storage().resize(fewer);
        ensure!(resized.is_ok() && way.geometry().blocks() == fewer, "{fewer} of {blocks} blocks: {resized:?}");
        way.succeed(Operation::Flush)?;
        let back = way.storage().resize(blocks);
        ensure!(back.is_ok() && way.geometry().blocks() == blocks, "{blocks} blocks again: {back:?}");
        way.expect(blocks - 16, &[stamp; 16])?;
    }
    Ok(())
}

/// And not before: then they are blocks as all others, on each way that was told. What was there is
/// there.
pub(super) fn more_blocks_are_had_when_the_medium_has_them(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    check_resizable(&mut way)?;
    let (blocks, more) = (way.blocks(), way.blocks() * 2);
    let [stamp, new] = [(); 2].map(|()| trial.new_stamp());
    way.write(blocks - 8, 8, stamp)?;
    let mut other = trial.open_beside().ok();
    let refused = way.storage().resize(more);
    ensure!(
        refused == Err(ResizeError::Medium { blocks: more, limit: blocks }) && way.geometry().blocks() == blocks,
        "{more} blocks of a medium of {blocks}: {refused:?}"
    );
    if !trial.medium.extend(more) {
        return not_shown("its medium cannot be made larger");
    }
    let early = way.run(Operation::Read { lba: blocks, blocks: 1, buffer: 0 })?;
    ensure!(early == Err(StorageError::LbaOutOfRange), "blocks that nobody told it of: {early:?}");
    let resized = way.storage().resize(more);
    ensure!(resized.is_ok() && way.geometry().blocks() == more, "{more} blocks: {resized:?}");
    way.expect(blocks - 8, &[stamp; 8])?;
    way.write(blocks - 4, 8, new)?;
    way.write(more - 1, 1, new)?;
    way.expect(blocks - 8, &[stamp, stamp, stamp, stamp, new, new, new, new, new, new, new, new])?;
    way.expect(more - 1, &[new])?;
    if let Some(other) = &mut other {
        let untold = other.run(Operation::Read { lba: blocks, blocks: 1, buffer: 0 })?;
        ensure!(untold == Err(StorageError::LbaOutOfRange), "blocks that another way was told of: {untold:?}");
        let told = other.storage().resize(more);
        ensure!(told.is_ok(), "{more} blocks, as on the first way: {told:?}");
        other.expect(more - 1, &[new])?;
    }
    let beyond = way.run(Operation::Read { lba: more, blocks: 1, buffer: 0 })?;
    ensure!(beyond == Err(StorageError::LbaOutOfRange), "behind the new end: {beyond:?}");
    Ok(())
}
