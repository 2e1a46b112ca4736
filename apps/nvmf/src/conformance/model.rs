//! What blocks may hold when operations were in flight at the same time.

use super::{
    content,
    outcome::{Outcome, ensure},
    trial::Trial,
    way::Way,
};
use crate::storage::{Cookie, Operation};

/// Blocks that are fought over.
const BLOCKS: u64 = 24;
/// Operations of a round, each of which has buffers of its own.
const MOST: u64 = 8;
/// Blocks of one.
const LONGEST: u32 = 8;

/// What each block may hold between two rounds.
pub(super) struct Model {
    blocks: Vec<Vec<u64>>,
}

/// An operation of a round.
struct Begun {
    cookie: Cookie,
    operation: Operation,
    /// What it writes; of a read nothing.
    stamp: u64,
}

impl Begun {
    fn touches(&self, lba: u64) -> bool {
        self.operation.blocks().is_some_and(|(first, blocks)| (first..first + u64::from(blocks)).contains(&lba))
    }
}

impl Model {
    /// Writes all of them once.
    pub(super) fn new(way: &mut Way, trial: &mut Trial<'_>) -> Outcome<Self> {
        let stamp = trial.new_stamp();
        way.write(0, BLOCKS as u32, stamp)?;
        Ok(Self { blocks: vec![vec![stamp]; BLOCKS as usize] })
    }

    fn draw(way: &Way, trial: &mut Trial<'_>, slot: u64) -> (Operation, u64) {
        let (features, random) = (way.features(), &mut trial.random);
        let lba = random.u64(0..BLOCKS);
        let blocks = random.u32(1..=LONGEST).min((BLOCKS - lba) as u32);
        let buffer = slot as usize * LONGEST as usize * way.block_bytes();
        match random.u8(0..10) {
            0 if features.write_zeroes => {
                (Operation::WriteZeroes { lba, blocks, deallocate: random.bool() }, content::ZEROS)
            }
            1 if features.deallocate => (Operation::Deallocate { lba, blocks }, content::ZEROS),
            2 => (Operation::Flush, content::ZEROS),
            3..6 => (Operation::Read { lba, blocks, buffer }, content::ZEROS),
            _ => {
                let stamp = trial.new_stamp();
                way.put_blocks(buffer, lba, blocks, stamp);
                (Operation::Write { lba, blocks, buffer }, stamp)
            }
        }
    }

    /// Some operations at the same time, to their end.
    pub(super) fn round(&mut self, way: &mut Way, trial: &mut Trial<'_>) -> Outcome {
        let mut begun = Vec::new();
        for slot in 0..trial.random.u64(1..=MOST) {
            let (operation, stamp) = Self::draw(way, trial, slot);
            // A storage of less room has fewer.
            let Some(cookie) = way.submit(operation) else { break };
            begun.push(Begun { cookie, operation, stamp });
            if trial.random.u8(0..4) == 0 {
                way.flush();
            }
            if trial.random.u8(0..8) == 0 {
                let at = trial.random.usize(0..begun.len());
                if way.cancel(begun[at].cookie) {
                    begun.swap_remove(at);
                }
            }
        }
        for completion in way.finish()? {
            ensure!(completion.result.is_ok(), "{completion:?} of operations that have no reason to fail");
        }
        self.look_at_reads(way, &begun)?;
        self.end(&begun);
        Ok(())
    }

    /// Each byte that was read is what was there before, or what was on its way.
    fn look_at_reads(&self, way: &Way, begun: &[Begun]) -> Outcome {
        for read in begun {
            let Operation::Read { lba, blocks, buffer } = read.operation else { continue };
            let bytes = way.bytes(buffer, blocks as usize * way.block_bytes());
            for (lba, block) in (lba..).zip(bytes.chunks(way.block_bytes())) {
                let mut candidates = self.blocks[lba as usize].clone();
                candidates.extend(
                    begun.iter().filter(|one| one.operation.changes() && one.touches(lba)).map(|one| one.stamp),
                );
                let is_right = content::is_mixed_of(block, lba, &candidates);
                ensure!(
                    is_right,
                    "{:?} found something in block {lba} that none of {candidates:?} wrote",
                    read.operation
                );
            }
        }
        Ok(())
    }

    /// All have ended: a block that was changed holds what one of them wrote; hints leave what else
    /// there is.
    fn end(&mut self, begun: &[Begun]) {
        for (lba, held) in (0..).zip(&mut self.blocks) {
            let is_hint = |one: &Begun| matches!(one.operation, Operation::Deallocate { .. });
            let changes = begun.iter().filter(|one| one.operation.changes() && one.touches(lba));
            let (hints, changes): (Vec<_>, Vec<_>) = changes.partition(|one| is_hint(one));
            if !changes.is_empty() {
                *held = changes.iter().map(|one| one.stamp).collect();
            }
            if !hints.is_empty() {
                held.push(content::ZEROS);
            }
        }
    }

    /// Each block holds one of those things as a whole, and goes on doing so.
    pub(super) fn check(&mut self, way: &mut Way) -> Outcome {
        for (lba, held) in (0..).zip(&mut self.blocks) {
            *held = vec![way.stamp_of(lba, held)?];
        }
        Ok(())
    }
}
