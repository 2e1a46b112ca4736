//! Steps of a fused Compare and Write: two slots, one buffer, and one operation of the storage.
//!
//! The first takes the buffer, and its data goes to the first part of it. Then the buffer is the second's, whose data goes to
//! the second part, and who asks the storage. What the storage says is both their answers.

use super::super::super::work::{Phase, Work};
use super::Slot;
use crate::storage::{Operation, StorageError};
use crate::wire::Status;

impl Slot {
    /// Where its data begins in its buffer.
    #[inline]
    pub(super) fn data_offset(&self) -> u32 {
        if matches!(self.work, Work::FusedWrite { .. }) { self.data.length() } else { 0 }
    }

    /// What it asks of the storage.
    pub(super) fn fused_operation(&self, buffer: usize) -> Option<(usize, Operation)> {
        match self.work {
            Work::FusedWrite { namespace, .. } | Work::FusedHarden { namespace, .. }
                if self.commit_first || matches!(self.work, Work::FusedHarden { .. }) =>
            {
                Some((namespace, Operation::Flush))
            }
            Work::FusedWrite { namespace, lba, blocks, .. } => {
                Some((namespace, Operation::CompareAndWrite { lba, blocks: blocks.into(), buffer }))
            }
            _ => None,
        }
    }

    /// The first one's data is in: the second has its buffer from now on, and is to fetch its own. False where they are no
    /// pair that waits.
    pub(in super::super) fn hand_on(&mut self, own: u32, second: &mut Self) -> bool {
        let Work::FusedWrite { partner, .. } = &mut second.work else { return false };
        if self.connection != second.connection || !matches!(second.phase, Phase::Paired) {
            return false;
        }
        *partner = own;
        (second.buffer, second.commit_first) = (self.buffer.take(), core::mem::take(&mut self.commit_first));
        (self.phase, second.phase) = (Phase::Paired, Phase::Fetch);
        true
    }

    /// The storage has carried the pair out, or flushed behind it.
    pub(super) fn fused_executed(&mut self) -> Phase {
        match self.work {
            Work::FusedWrite { namespace, partner, .. } if self.hardens() => {
                self.work = Work::FusedHarden { namespace, partner };
                Phase::Submit
            }
            _ => self.fused_ends(Status::SUCCESS, Status::SUCCESS),
        }
    }

    /// The storage has refused it, or failed. `status`: what that comes to.
    pub(super) fn fused_failed(&mut self, error: StorageError, status: Status) -> Phase {
        match (error, self.work) {
            (StorageError::Miscompare, _) => {
                self.fused_ends(Status::COMPARE_FAILURE.do_not_retry(), Status::ABORTED_FAILED_FUSED.do_not_retry())
            }
            // It was compared, and is written; whether that is on the medium is not known. To another path nobody may take it for that: it
            // would find its own blocks there.
            (StorageError::NotOwner, Work::FusedHarden { .. }) => {
                self.fused_ends(Status::SUCCESS, Status::INTERNAL_ERROR)
            }
            (_, Work::FusedHarden { .. }) => self.fused_ends(Status::SUCCESS, status),
            _ => self.fused_ends(Status::ABORTED_FAILED_FUSED, status),
        }
    }

    /// What both are answered is known: that is said by somebody who has both.
    fn fused_ends(&mut self, compared: Status, written: Status) -> Phase {
        let (Work::FusedWrite { namespace, partner, .. } | Work::FusedHarden { namespace, partner }) = self.work else {
            return Phase::Execute;
        };
        self.work = Work::FusedEnd { namespace, partner, compared, written };
        Phase::Execute
    }

    /// When the poll began that found it, in nanoseconds.
    pub(in super::super::super) fn found(&self) -> u64 {
        self.found
    }
}
