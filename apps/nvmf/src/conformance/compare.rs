//! **Compare and write** of [`Storage`](crate::storage::Storage): one step to everybody.

use super::{
    outcome::{Outcome, broken, ensure, not_shown},
    trial::Trial,
    way::{BUFFER_BLOCKS, Way, finish_all},
};
use crate::storage::{Completion, Cookie, Operation, StorageError};

/// Rounds of what runs at the same time.
const ROUNDS: u64 = 40;
/// Operations of a round that run beside each other.
const BESIDE: usize = 5;
/// Blocks that are looked at.
const BLOCKS: u32 = 24;

/// A way to what offers it, and how many blocks it takes, of those that there are buffers for.
fn open(trial: &mut Trial<'_>) -> Outcome<(Way, u32)> {
    let way = trial.open()?;
    match way.features().compare_and_write {
        0 => not_shown("it does not offer Compare and Write"),
        most => Ok((way, most.min(BUFFER_BLOCKS as u32 / 3))),
    }
}

/// It expects blocks of one stamp, and writes them with another, by way of the `place`th buffer of one block.
fn put(way: &Way, (lba, blocks): (u64, u32), [expected, written]: [u64; 2], place: usize) -> Operation {
    let bytes = way.block_bytes();
    let buffer = 3 * place * bytes;
    way.put_blocks(buffer, lba, blocks, expected);
    way.put_blocks(buffer + blocks as usize * bytes, lba, blocks, written);
    Operation::CompareAndWrite { lba, blocks, buffer }
}

/// As a whole or not at all, wherever a byte differs; and no block beside them.
pub(super) fn only_what_was_expected_is_overwritten(trial: &mut Trial<'_>) -> Outcome {
    let (mut way, most) = open(trial)?;
    let bytes = way.block_bytes();
    for (lba, blocks) in [(0, 1), (3, most.min(5)), (8, most.min(16)), (way.blocks() - 1, 1), (7, 1)] {
        let [old, new, other] = [(); 3].map(|()| trial.new_stamp());
        let first = if lba < BLOCKS.into() { 0 } else { way.blocks() - u64::from(BLOCKS) };
        way.write(first, BLOCKS, old)?;
        let mut wanted = [old; BLOCKS as usize];
        let at = (lba - first) as usize;
        // One byte differs: the first, one in the middle, the last.
        let length = blocks as usize * bytes;
        for differs in [0, length / 2, length - 1] {
            let operation = put(&way, (lba, blocks), [old, new], 0);
            let byte = way.bytes(differs, 1)[0];
            way.put(differs, &[!byte]);
            let result = way.run(operation)?;
            ensure!(result == Err(StorageError::Miscompare), "{operation:?}, where byte {differs} differs: {result:?}");
            way.expect(first, &wanted)?;
        }
        let operation = put(&way, (lba, blocks), [old, new], 0);
        let buffers = way.bytes(0, 2 * length);
        way.succeed(operation)?;
        ensure!(way.bytes(0, 2 * length) == buffers, "{operation:?} changed what was expected, or what it has written");
        wanted[at..at + blocks as usize].fill(new);
        way.expect(first, &wanted)?;
        let operation = put(&way, (lba, blocks), [old, other], 0);
        let result = way.run(operation)?;
        ensure!(result == Err(StorageError::Miscompare), "{operation:?}, which was carried out before: {result:?}");
        way.expect(first, &wanted)?;
    }
    let too_many = way.features().compare_and_write.saturating_add(1);
    if u64::from(too_many) <= way.blocks() {
        let operation = Operation::CompareAndWrite { lba: 0, blocks: too_many, buffer: 0 };
        let result = way.run(operation)?;
        ensure!(result == Err(StorageError::Unsupported), "{operation:?}, which is more than is offered: {result:?}");
    }
    Ok(())
}

/// Those that succeeded, and that every other one found something else.
fn winners(ended: &[Completion]) -> Outcome<Vec<Cookie>> {
    let mut found = Vec::new();
    for Completion { cookie, result } in ended {
        match result {
            Ok(()) => found.push(*cookie),
            Err(StorageError::Miscompare) => {}
            Err(error) => return Err(broken(&format!("of those that expect the same one fails otherwise: {error:?}"))),
        }
    }
    Ok(found)
}

/// Of several on one way, all at the same time.
pub(super) fn of_those_that_expect_the_same_one_writes(trial: &mut Trial<'_>) -> Outcome {
    let (mut way, _) = open(trial)?;
    let beginning = trial.new_stamp();
    let mut current = beginning;
    way.write(0, 4, beginning)?;
    for _ in 0..ROUNDS {
        let mut beside = Vec::new();
        for place in 0..BESIDE {
            let new = trial.new_stamp();
            let operation = put(&way, (1, 1), [current, new], place);
            // As many as there is room for.
            let Some(cookie) = way.submit(operation) else { break };
            beside.push((cookie, new));
        }
        let ended = way.finish()?;
        let won = winners(&ended)?;
        ensure!(won.len() == 1, "of {} that expected the same, {} have written", beside.len(), won.len());
        let stamps: Vec<u64> =
            beside.iter().filter(|(cookie, _)| won.contains(cookie)).map(|(_, stamp)| *stamp).collect();
        let found = way.stamp_of(1, &stamps)?;
        way.expect(0, &[beginning, found, beginning])?;
        current = found;
    }
    Ok(())
}

/// Whatever the order, the write is the last of both, or the other one has found it.
pub(super) fn a_write_beside_it_is_in_front_or_behind(trial: &mut Trial<'_>) -> Outcome {
    let (mut way, _) = open(trial)?;
    let mut current = trial.new_stamp();
    way.write(0, 2, current)?;
    for round in 0..ROUNDS {
        let [new, other] = [(); 2].map(|()| trial.new_stamp());
        let compare = put(&way, (1, 1), [current, new], 0);
        let buffer = 4 * way.block_bytes();
        way.put_blocks(buffer, 1, 1, other);
        let write = Operation::Write { lba: 1, blocks: 1, buffer };
        let both = if round % 2 == 0 { [write, compare] } else { [compare, write] };
        for operation in both {
            ensure!(way.submit(operation).is_some(), "there is no room for two operations");
        }
        // One may have begun before the other one comes.
        way.finish()?;
        way.expect(1, &[other])?;
        current = other;
    }
    Ok(())
}

/// Of several ways, each with several under way: whoever finds what he has read counts on from it.
pub(super) fn ways_that_count_lose_nothing(trial: &mut Trial<'_>) -> Outcome {
    let (first, _) = open(trial)?;
    let mut ways = [first, trial.open_beside()?, trial.open_beside()?];
    let mut current = trial.new_stamp();
    ways[0].write(0, 1, current)?;
    for round in 0..ROUNDS {
        let (mut stamps, mut writes) = (Vec::new(), None);
        for (at, way) in ways.iter_mut().enumerate() {
            let new = trial.new_stamp();
            // Now and then one of them writes without having looked.
            let operation = if round % 3 == 2 && at as u64 == round % 2 {
                way.put_blocks(0, 0, 1, new);
                writes = Some(new);
                Operation::Write { lba: 0, blocks: 1, buffer: 0 }
            } else {
                stamps.push(new);
                put(way, (0, 1), [current, new], 0)
            };
            ensure!(way.submit(operation).is_some(), "there is no room for one operation");
            way.flush();
        }
        let ended: Vec<Completion> = finish_all(&mut ways)?.into_iter().flatten().collect();
        let won = winners(&ended)?.len();
        match writes {
            Some(written) => ways[1].expect(0, &[written])?,
            None => ensure!(won == 1, "of those that expected the same, on several ways, {won} have written"),
        }
        let candidates = writes.map_or(stamps, |written| vec![written]);
        current = ways[2].stamp_of(0, &candidates)?;
    }
    Ok(())
}
