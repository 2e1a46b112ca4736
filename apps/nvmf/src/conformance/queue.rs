//! **Once**, **Room** and **Figures** of [`Storage`](crate::storage::Storage): how operations go in
//! and come out.

use super::{
    bounds::is_offered,
    outcome::{Outcome, broken, ensure, not_shown},
    trial::Trial,
    way::Way,
};
use crate::storage::{
    Completion, CompletionBatch, Cookie, MAX_COMPLETIONS_PER_POLL, Operation, StorageError, StorageStatistics,
};
use core::time::Duration;

/// Operations that are submitted at once, at most.
const MANY: u64 = 200;
/// A storage that takes more than this has room for everything.
const NO_LIMIT: u64 = 1 << 16;
/// Polls that find nothing.
const IDLE: usize = 1000;

/// One of many, of all kinds, with those that fail.
fn nth(way: &Way, at: u64) -> (Operation, Result<(), StorageError>) {
    let (lba, buffer) = (at % 32, (at as usize % super::way::BUFFER_BLOCKS) * way.block_bytes());
    let operation = match at % 6 {
        0 => Operation::Write { lba, blocks: 1, buffer },
        1 => Operation::Flush,
        2 => Operation::WriteZeroes { lba, blocks: 1, deallocate: at % 12 == 2 },
        3 => return (Operation::Read { lba: way.blocks(), blocks: 1, buffer }, Err(StorageError::LbaOutOfRange)),
        4 => Operation::Deallocate { lba, blocks: 1 },
        _ => Operation::Read { lba, blocks: 1, buffer },
    };
    if is_offered(way, operation) { (operation, Ok(())) } else { (Operation::Flush, Ok(())) }
}

/// As many as there is room for at a time, under whatever cookies, which may be used again once
/// they have come back; those that fail like those that succeed.
pub(super) fn every_operation_ends_once(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    for round in 0..20 {
        let mut wanted = std::collections::BTreeMap::new();
        for at in 0..MANY {
            let (operation, result) = nth(&way, at + round);
            // Of all sizes, none of them twice at a time.
            let cookie = Cookie(if at % 2 == 0 { at } else { u64::MAX - at });
            if !way.submit_as(cookie, operation) {
                break;
            }
            wanted.insert(cookie.0, (operation, result));
        }
        ensure!(!wanted.is_empty(), "a storage that has nothing to do has no room");
        for Completion { cookie, result } in way.finish()? {
            let (operation, expected) = wanted.remove(&cookie.0).ok_or_else(|| broken("an unknown cookie"))?;
            ensure!(result == expected, "{operation:?}: {result:?}");
        }
        ensure!(wanted.is_empty(), "{wanted:?} did not end");
    }
    idle(&mut way)
}

/// Nothing comes any more.
fn idle(way: &mut Way) -> Outcome {
    for _ in 0..IDLE {
        let ended = way.poll()?;
        ensure!(ended.is_empty(), "{ended:?} where nothing was left to end");
        way.flush();
    }
    Ok(())
}

/// It takes nothing of what it refuses, and has room again once something came back: failed
/// operations hold their place as others do.
pub(super) fn a_full_queue_refuses_and_has_room_again(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let [old, new] = [(); 2].map(|()| trial.new_stamp());
    way.write(0, 1, old)?;
    way.put_blocks(0, 0, 1, new);
    let refused = Operation::Write { lba: 0, blocks: 1, buffer: 0 };
    let mut room = 1;
    for _ in 0..3 {
        let mut taken = 0;
        let outside = Operation::Read { lba: way.blocks(), blocks: 1, buffer: 0 };
        while way.submit(if taken % 2 == 0 { Operation::Flush } else { outside }).is_some() {
            taken += 1;
            if taken > NO_LIMIT {
                way.finish()?;
                return not_shown("it takes as many as one likes");
            }
        }
        ensure!(taken >= room, "a storage that has nothing to do has room for {taken} operations, and had for {room}");
        room = taken;
        for _ in 0..3 {
            ensure!(way.submit(refused).is_none(), "it has room behind {taken} operations, and had none before");
        }
        let ended = way.finish()?;
        ensure!(ended.len() as u64 == taken, "{taken} operations were taken, and {} ended", ended.len());
    }
    way.expect(0, &[old])?;
    idle(&mut way)
}

/// A batch that has something keeps it, is filled to its end and no further, and what had no room
/// comes with the next.
pub(super) fn a_full_batch_keeps_the_rest(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let taken = (0..MANY).take_while(|_| way.submit(Operation::Flush).is_some()).count();
    let foreign = Completion { cookie: Cookie(u64::MAX), result: Err(StorageError::Medium) };
    // All but two places are somebody else's, then all.
    for room in [2, 0] {
        let others = MAX_COMPLETIONS_PER_POLL - room;
        let mut batch: CompletionBatch = core::iter::repeat_n(foreign, others).collect();
        let mut appended = 0;
        for _ in 0..IDLE {
            way.flush();
            let said = way.storage().poll(Duration::ZERO, &mut batch);
            appended += said;
            ensure!(batch.len() == others + appended, "poll says {said}, and the batch has {}", batch.len());
            ensure!(batch.iter().take(others).all(|one| *one == foreign), "what was in the batch has changed");
        }
        batch.into_iter().skip(others).try_for_each(|completion| way.ended(completion))?;
    }
    let left = way.in_flight();
    let rest = way.finish()?;
    ensure!(rest.len() == left, "{taken} operations, of which {left} were left and {} ended", rest.len());
    Ok(())
}

/// A storage that was only made and attached, and one behind all its work, flushed or not.
pub(super) fn what_has_nothing_to_do_says_nothing(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    idle(&mut way)?;
    let stamp = trial.new_stamp();
    way.write(0, 4, stamp)?;
    idle(&mut way)?;
    way.expect(0, &[stamp; 4])
}

/// Size and features, whatever it does.
pub(super) fn what_a_storage_is_does_not_change(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let before = (way.geometry(), way.features());
    for at in 0..MANY {
        way.submit(nth(&way, at).0);
        ensure!((way.geometry(), way.features()) == before, "it was {before:?}");
        if at % 16 == 15 {
            way.finish()?;
        }
    }
    way.finish()?;
    ensure!((way.geometry(), way.features()) == before, "it was {before:?}");
    Ok(())
}

/// Or say nothing at all.
pub(super) fn statistics_count_what_happened(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    let (mut submitted, mut failed) = (0, 0);
    for at in 0..MANY {
        let (operation, result) = nth(&way, at);
        if way.submit(operation).is_none() {
            way.finish()?;
            ensure!(way.submit(operation).is_some(), "a storage that has nothing to do has no room");
        }
        submitted += 1;
        failed += u64::from(result.is_err());
    }
    way.finish()?;
    let taken_back = way.submit(Operation::Flush).is_some_and(|cookie| way.cancel(cookie));
    way.finish()?;
    let StorageStatistics { submitted: taken, completed, failed: counted, cancelled, fault, .. } =
        way.storage().statistics();
    if taken == 0 {
        return not_shown("it does not count");
    }
    let found = (taken, completed, counted, cancelled);
    let wanted = (submitted + 1, submitted + u64::from(!taken_back), failed, u64::from(taken_back));
    ensure!(found == wanted, "submitted, completed, failed, cancelled: {found:?}, and were {wanted:?}");
    ensure!(fault.is_none(), "{fault:?} of a medium that is in order");
    Ok(())
}
