//! **Durability** of [`Storage`](crate::storage::Storage): what is left when the power goes.

use super::{
    content::ZEROS,
    outcome::{Outcome, ensure, not_shown},
    trial::Trial,
    way::{Way, finish_all},
};
use crate::storage::Operation;
use std::collections::BTreeMap;

/// Blocks that are flushed, and as many behind them that are not.
const BLOCKS: u32 = 16;
/// Polls of one way alone: what a disk takes to answer several flushes, and some.
const ALONE: usize = 50_000;

/// What completed before the Flush was submitted is there; of what came later each block is as it
/// was or as it was written. A write with Force Unit Access is one with a Flush behind it.
pub(super) fn what_was_flushed_survives_a_loss_of_power(trial: &mut Trial<'_>) -> Outcome {
    for _ in 0..3 {
        let [flushed, later] = [(); 2].map(|()| trial.new_stamp());
        let mut way = trial.open_again()?;
        way.write(0, BLOCKS, flushed)?;
        way.write(BLOCKS.into(), BLOCKS, flushed)?;
        let mut wanted = [flushed; BLOCKS as usize];
        if way.features().write_zeroes {
            way.succeed(Operation::WriteZeroes { lba: 3, blocks: 3, deallocate: false })?;
            way.succeed(Operation::WriteZeroes { lba: 6, blocks: 3, deallocate: true })?;
            wanted[3..9].fill(ZEROS);
        }
        if way.features().deallocate {
            way.succeed(Operation::Deallocate { lba: 11, blocks: 3 })?;
            for lba in 11..14 {
                // Which of the two is known from now on.
                wanted[lba as usize] = way.stamp_of(lba, &[ZEROS, flushed])?;
            }
        }
        way.succeed(Operation::Flush)?;
        way.write(BLOCKS.into(), BLOCKS, later)?;
        drop(way);
        trial.lose_power()?;
        let mut way = trial.open_again()?;
        way.expect(0, &wanted)?;
        for lba in BLOCKS..2 * BLOCKS {
            way.stamp_of(lba.into(), &[flushed, later])?;
        }
    }
    Ok(())
}

/// It is asked of one of them.
pub(super) fn a_flush_covers_what_every_way_wrote(trial: &mut Trial<'_>) -> Outcome {
    let mut one = trial.open()?;
    let mut other = trial.open_beside()?;
    let stamps = [(); 2].map(|()| trial.new_stamp());
    one.write(0, BLOCKS, stamps[0])?;
    other.write(BLOCKS.into(), BLOCKS, stamps[1])?;
    other.succeed(Operation::Flush)?;
    drop((one, other));
    trial.lose_power()?;
    let mut way = trial.open_again()?;
    way.expect(0, &[stamps[0]; BLOCKS as usize])?;
    way.expect(BLOCKS.into(), &[stamps[1]; BLOCKS as usize])
}

/// What completed is there.
pub(super) fn what_is_written_through_needs_no_flush(trial: &mut Trial<'_>) -> Outcome {
    let mut way = trial.open()?;
    if !way.features().write_through {
        return not_shown("it has a cache, and says so");
    }
    let stamp = trial.new_stamp();
    way.write(0, BLOCKS, stamp)?;
    drop(way);
    trial.lose_power()?;
    trial.open_again()?.expect(0, &[stamp; BLOCKS as usize])
}

/// What was written, of which some may not be durable.
#[derive(Default)]
struct Told {
    written: BTreeMap<u64, u64>,
    durable: BTreeMap<u64, u64>,
    failed: usize,
}

impl Told {
    fn write(&mut self, way: &mut Way, lba: u64, stamp: u64) -> Outcome {
        way.put_blocks(0, lba, 1, stamp);
        if way.run(Operation::Write { lba, blocks: 1, buffer: 0 })?.is_ok() {
            self.written.insert(lba, stamp);
        }
        Ok(())
    }

    /// All ways at the same time: whichever says that it succeeded. The last one is polled alone for a while: it shall
    /// not be told of success because nobody has asked yet what the others came to.
    fn flush(&mut self, ways: &mut [Way]) -> Outcome {
        for way in &mut *ways {
            ensure!(way.submit(Operation::Flush).is_some(), "a storage that has nothing to do has no room");
            way.flush();
        }
        let alone = ways.last_mut().map_or(Ok(Vec::new()), |way| way.poll_for(ALONE))?;
        let mut all = finish_all(ways)?;
        all.iter_mut().next_back().into_iter().for_each(|last| last.extend(alone.iter().copied()));
        for ended in all {
            let succeeded = ended.iter().all(|completion| completion.result.is_ok());
            if succeeded {
                self.durable.clone_from(&self.written);
            }
            self.failed += usize::from(!succeeded);
        }
        Ok(())
    }
}

/// A medium that fails below, and works again: a Flush may succeed behind one that failed, or beside it, only where it
/// has kept what that one could not. That is so on every way.
pub(super) fn no_flush_succeeds_over_what_is_lost(trial: &mut Trial<'_>) -> Outcome {
    let mut ways = vec![trial.open()?];
    ways.extend(trial.open_beside().ok());
    let mut told = Told::default();
    for lba in 0..8 {
        told.write(&mut ways[0], lba, trial.new_stamp())?;
    }
    told.flush(&mut ways)?;
    ensure!(told.failed == 0 && told.durable.len() == 8, "a medium in order failed");
    if !trial.medium.fail_below() {
        return not_shown("its medium cannot be made to fail below");
    }
    for round in 1..5 {
        for lba in 8 * round..8 * round + 8 {
            told.write(&mut ways[0], lba, trial.new_stamp())?;
        }
        // Whoever is asked first is not always the same one.
        ways.reverse();
        told.flush(&mut ways)?;
        if round == 2 {
            trial.medium.mend_below();
        }
    }
    let failed = told.failed;
    for _ in 0..3 {
        told.flush(&mut ways)?;
    }
    ways.extend(trial.open_beside().ok());
    told.flush(&mut ways)?;
    drop(ways);
    trial.lose_power()?;
    let mut way = trial.open_again()?;
    for (lba, stamp) in told.durable {
        let found = way.stamp_of(lba, &[stamp]);
        ensure!(
            found.is_ok(),
            "block {lba} was written and flushed with success, and is gone; {failed} flushes failed"
        );
    }
    if failed == 0 { not_shown("nothing failed") } else { Ok(()) }
}
