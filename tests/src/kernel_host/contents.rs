//! What the blocks of a medium hold, as far as anybody knows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of one medium, whichever disk it is at the time. A block that was never written holds zeros, which is stamp 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents(Arc<Mutex<Medium>>);

#[derive(Debug, Default)]
struct Medium {
    /// Stamps that a block may hold: several behind a write that failed.
    blocks: BTreeMap<u64, Vec<u64>>,
    last: u64,
    /// How often it was cut.
    cuts: u64,
}

impl Contents {
    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was cut until now: what began before that and is told behind it says less.
    pub(super) fn cuts(&self) -> u64 {
        self.medium().cuts
    }

    /// A stamp for a write to a block, which it may hold from now on.
    pub(super) fn begin_write(&self, block: u64) -> u64 {
        let mut medium = self.medium();
        medium.last += 1;
        let stamp = medium.last;
        medium.blocks.entry(block).or_insert_with(|| vec![0]).push(stamp);
        stamp
    }

    /// It was written by a command that began behind so many cuts.
    pub(super) fn written(&self, block: u64, stamp: u64, cuts: u64) {
        let mut medium = self.medium();
        if medium.cuts == cuts {
            medium.blocks.insert(block, vec![stamp]);
        }
    }

    /// A block was read by a command that began behind so many cuts; false where it cannot hold that.
    pub(super) fn read(&self, block: u64, stamp: u64, cuts: u64) -> bool {
        let mut medium = self.medium();
        let is_current = medium.cuts == cuts;
        let may_hold = medium.blocks.entry(block).or_insert_with(|| vec![0]);
        let is_right = may_hold.contains(&stamp);
        if is_current {
            *may_hold = vec![stamp];
        }
        is_right || !is_current
    }

    /// Blocks from `end` on were cut off, or may have been, and are zeros where they come again.
    pub(super) fn cut(&self, end: u64, perhaps: bool) {
        let mut medium = self.medium();
        medium.cuts += 1;
        for may_hold in medium.blocks.range_mut(end..).map(|(_, may_hold)| may_hold) {
            if !perhaps {
                may_hold.clear();
            }
            if !may_hold.contains(&0) {
                may_hold.push(0);
            }
        }
    }

    /// Blocks below `end` that something was written to.
    pub(super) fn known(&self, end: u64) -> Vec<u64> {
        self.medium().blocks.range(..end).map(|(&block, _)| block).collect()
    }
}
