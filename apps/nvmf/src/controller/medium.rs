//! What commands ask of the storage, and what becomes of them when it has answered.

use super::Target;
use super::command::{Phase, Reply, Work};
use super::io::{COPY_BYTES, Step};
use super::session::find_queue;
use crate::storage::{Cookie, Storage, StorageError};
use crate::wire::{DatasetRange, Status};
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

impl<P: Port, S: Storage> Target<P, S> {
    fn range(&mut self, index: u32, at: u32) -> Option<DatasetRange> {
        self.slots.get_mut(index)?.range(&self.buffers, at)
    }

    /// All ranges lie in the namespace, or none is executed.
    pub(super) fn check_ranges(&mut self, index: u32, namespace: usize, ranges: u32) -> Result<(), Status> {
        let geometry = self.namespaces.get(namespace).map(|namespace| namespace.storage.geometry());
        let geometry = geometry.ok_or(Status::INTERNAL_ERROR)?;
        for at in 0..ranges {
            let range = self.range(index, at).ok_or(Status::INTERNAL_ERROR)?;
            let extent = geometry.extent(range.lba.get(), range.blocks.get());
            extent.map_err(|_| Status::LBA_OUT_OF_RANGE.do_not_retry())?;
        }
        Ok(())
    }

    /// The phase behind this range: the next one that is not empty, or the answer.
    pub(super) fn next_range(&mut self, index: u32) -> Option<Phase> {
        let Work::Deallocate { namespace, ranges, next } = self.slots.get_mut(index)?.work else { return None };
        let filled = (next..ranges).find(|at| self.range(index, *at).is_some_and(|range| range.blocks.get() > 0));
        let Some(next) = filled else { return Some(Phase::Reply(Reply::result(0))) };
        self.slots.get_mut(index)?.work = Work::Deallocate { namespace, ranges, next };
        Some(Phase::Submit)
    }

    #[inline(never)]
    pub(super) fn step_submit(&mut self, index: u32) -> Step {
        let Some((cookie, slot)) = self.slots.with_cookie(index) else { return Step::Drop };
        // What waited longer than its connection or its controller lived is not executed any more: the host may have moved on.
        let queue = find_queue(&mut self.queues, slot.connection);
        // Mutant: commands of a queue that is gone are executed.
        if queue.is_none_or(|queue| queue.association.is_none()) && !mutant!(target_executes_for_gone) {
            return Step::Drop;
        }
        let Some((namespace, operation)) = slot.operation(&self.buffers) else { return Step::Drop };
        let Some(namespace) = self.namespaces.get_mut(namespace) else { return Step::Drop };
        match namespace.storage.submit(Cookie(cookie), operation) {
            Ok(()) => {
                slot.phase = Phase::Storing;
                Step::Pending
            }
            Err(crate::storage::QueueFull) => Step::Stall,
        }
    }

    /// Takes completions of all namespaces.
    pub(super) fn poll_storage(&mut self) -> u32 {
        let mut work = 0;
        for namespace in 0..self.namespaces.len() {
            self.completions.clear();
            self.namespaces[namespace].storage.poll(self.now, &mut self.completions);
            // By index, because an answer needs all of the target; answers leave the completions alone.
            for at in 0..self.completions.len() {
                let completion = self.completions[at];
                self.stored(completion.cookie, completion.result);
                work += 1;
            }
        }
        work
    }

    fn stored(&mut self, cookie: Cookie, result: Result<(), StorageError>) {
        let Some((index, slot)) = self.slots.named(cookie.0) else { return self.committed(cookie, result) };
        if find_queue(&mut self.queues, slot.connection).is_none() && !mutant!(target_answers_gone) {
            self.orphan_is_done(index);
            return self.drop_command(index);
        }
        let (work, commit) = (slot.work, core::mem::take(&mut slot.commit_first));
        let phase = match result {
            Ok(()) if commit => Phase::Submit,
            Ok(()) => self.executed(index, work),
            Err(error) => {
                self.statistics.media_errors += u64::from(error.is_of_medium());
                self.statistics.broken_operations += u64::from(error == StorageError::Broken);
                let status = storage_status(error, &work);
                // As with a Flush: a second one says nothing of what this one could not keep.
                Phase::Reply(Reply::of(if commit { status.do_not_retry() } else { status }))
            }
        };
        self.set_phase(index, phase);
        self.advance(index);
    }

    /// An operation succeeded: what comes next.
    fn executed(&mut self, index: u32, work: Work) -> Phase {
        let bytes = self.transfer_bytes(&work);
        self.statistics.succeeded(&work, bytes);
        match work {
            Work::Read { .. } => {
                self.corrupt(index);
                return Phase::Reply(Reply::data());
            }
            Work::Compare { .. } => return Phase::Reply(self.compared(index, bytes)),
            Work::Deallocate { namespace, ranges, next } => {
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.work = Work::Deallocate { namespace, ranges, next: next + 1 };
                }
                return self.next_range(index).unwrap_or(Phase::Reply(Reply::of(Status::INTERNAL_ERROR)));
            }
            _ => {}
        }
        let Some(slot) = self.slots.get_mut(index) else { return Phase::Reply(Reply::result(0)) };
        match work {
            Work::Write { namespace, .. } | Work::WriteZeroes { namespace, .. }
                if slot.durable && !mutant!(target_durable_unflushed) =>
            {
                slot.work = Work::Harden { namespace };
                Phase::Submit
            }
            _ => Phase::Reply(Reply::result(0)),
        }
    }

    /// Bytes that a command moves; where its data came in the capsule, that is gone by now.
    fn transfer_bytes(&self, work: &Work) -> u64 {
        let (Work::Read { namespace, blocks, .. }
        | Work::Write { namespace, blocks, .. }
        | Work::Compare { namespace, blocks, .. }) = *work
        else {
            return 0;
        };
        let geometry = self.namespaces.get(namespace).map(|namespace| namespace.storage.geometry());
        u64::from(blocks) * u64::from(geometry.map_or(0, |geometry| geometry.block_bytes()))
    }

    /// Compare (NVM 3.2.1): the host's data is in the first buffer, the blocks in the second.
    fn compared(&mut self, index: u32, bytes: u64) -> Reply {
        let Some(slot) = self.slots.get_mut(index) else { return Reply::of(Status::INTERNAL_ERROR) };
        let (Some(wanted), Some(found)) = (&slot.buffer, &slot.second) else {
            return Reply::of(Status::INTERNAL_ERROR);
        };
        // At most a buffer's bytes.
        let (mut at, bytes) = (0, bytes as usize);
        let (mut left, mut right) = ([0; COPY_BYTES], [0; COPY_BYTES]);
        while at < bytes {
            let length = COPY_BYTES.min(bytes - at);
            let (left, right) = (&mut left[..length], &mut right[..length]);
            if self.buffers.read(wanted, at, left).is_err() || self.buffers.read(found, at, right).is_err() {
                return Reply::of(Status::INTERNAL_ERROR);
            }
            if left != right {
                return Reply::of(Status::COMPARE_FAILURE.do_not_retry());
            }
            at += length;
        }
        self.statistics.compares += 1;
        Reply::result(0)
    }

    /// `--inject corrupt-data`: spoils a byte of every n-th read.
    fn corrupt(&mut self, index: u32) {
        let Some(every) = self.options.corrupt_reads else { return };
        self.reads_until_corruption = self.reads_until_corruption.saturating_sub(1);
        if self.reads_until_corruption > 0 {
            return;
        }
        self.reads_until_corruption = every.get();
        let Some(Some(buffer)) = self.slots.get_mut(index).map(|slot| &slot.buffer) else { return };
        let mut byte = [0];
        if self.buffers.read(buffer, 0, &mut byte).is_ok() && self.buffers.write(buffer, 0, &[!byte[0]]).is_ok() {
            self.statistics.corrupted_reads += 1;
        }
    }
}

fn storage_status(error: StorageError, work: &Work) -> Status {
    match (error, work) {
        (StorageError::LbaOutOfRange, _) => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        (StorageError::BufferOutOfRange | StorageError::BufferUnaligned, _) => Status::INTERNAL_ERROR,
        (StorageError::ReadOnly, _) => Status::NAMESPACE_IS_WRITE_PROTECTED.do_not_retry(),
        (StorageError::NoSpace, _) => Status::CAPACITY_EXCEEDED.do_not_retry(),
        (StorageError::Unsupported, _) => Status::INVALID_COMMAND_OPCODE.do_not_retry(),
        (StorageError::Broken, _) => Status::INTERNAL_ERROR.do_not_retry(),
        // For good.
        (StorageError::Shrunk, Work::Read { .. } | Work::Compare { .. }) => {
            Status::UNRECOVERED_READ_ERROR.do_not_retry()
        }
        (StorageError::Shrunk, _) => Status::WRITE_FAULT.do_not_retry(),
        (StorageError::Medium, Work::Read { .. } | Work::Compare { .. }) => Status::UNRECOVERED_READ_ERROR,
        // A second Flush says nothing of what the first one could not keep: who tries again hears that all is well. A write that
        // is tried again brings its data once more.
        (StorageError::Medium, Work::Flush { .. }) => Status::WRITE_FAULT.do_not_retry(),
        (StorageError::Medium, _) => Status::WRITE_FAULT,
    }
}
