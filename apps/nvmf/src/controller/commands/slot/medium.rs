//! What a command asks of the storage, and what becomes of it when that has answered.

use super::super::super::media::{Buffer, CommandKind, Media, Pool};
use super::super::super::session::Sessions;
use super::super::super::work::{Phase, Reply, Work};
use super::{Answers, Slot, Step};
use crate::storage::{Operation, QueueFull, Storage, StorageError};
use crate::wire::{DATASET_RANGE_BYTES, DatasetRange, Status};
use frwr_engine::{Engine, provider::Port};
use frwr_mempool::mutant;
use zerocopy::FromBytes;

impl Slot {
    /// A range of a Dataset Management command, which has arrived in the command's buffer.
    fn range(&self, pool: &Pool, at: u32) -> Option<DatasetRange> {
        let mut bytes = [0; DATASET_RANGE_BYTES];
        pool.buffers().read(self.buffer.as_ref()?, at as usize * DATASET_RANGE_BYTES, &mut bytes).ok()?;
        DatasetRange::read_from_bytes(&bytes).ok()
    }

    /// What it asks of the storage of which namespace; `None` for what no storage does.
    #[inline(always)]
    fn operation(&self, pool: &Pool) -> Option<(usize, Operation)> {
        let offset_of = |held: &Option<Buffer>| held.as_ref().map_or(0, |buffer| pool.buffers().offset(buffer));
        let buffer = offset_of(&self.buffer);
        Some(match self.work {
            Work::Read { namespace, .. } | Work::Compare { namespace, .. } if self.commit_first => {
                (namespace, Operation::Flush)
            }
            Work::Read { namespace, lba, blocks } => (namespace, Operation::Read { lba, blocks, buffer }),
            Work::Compare { namespace, lba, blocks } => {
                (namespace, Operation::Read { lba, blocks, buffer: offset_of(&self.second) })
            }
            Work::Write { namespace, lba, blocks } => (namespace, Operation::Write { lba, blocks, buffer }),
            Work::WriteZeroes { namespace, lba, blocks, deallocate } => {
                (namespace, Operation::WriteZeroes { lba, blocks, deallocate })
            }
            Work::Flush { namespace } | Work::Harden { namespace, .. } => (namespace, Operation::Flush),
            Work::Deallocate { namespace, next, .. } => {
                let range = self.range(pool, next)?;
                (namespace, Operation::Deallocate { lba: range.lba.get(), blocks: range.blocks.get() })
            }
            Work::FusedWrite { .. } | Work::FusedHarden { .. } => return self.fused_operation(buffer),
            Work::Nothing
            | Work::FusedCompare { .. }
            | Work::FusedEnd { .. }
            | Work::Connect(_)
            | Work::AuthenticationSend { .. }
            | Work::AuthenticationReceive { .. }
            | Work::Identify { .. }
            | Work::LogPage(_)
            | Work::HostIdentifier
            | Work::Reserve { .. }
            | Work::ReservationSettles { .. }
            | Work::ReservationReport { .. }
            | Work::Abort { .. }
            | Work::PropertyGet { .. }
            | Work::Configure { .. }
            | Work::Persistence { .. }
            | Work::SettingsEverywhere { .. } => return None,
        })
    }

    #[inline(always)]
    pub(super) fn submit<S: Storage>(
        &mut self,
        cookie: u64,
        sessions: &mut Sessions,
        pool: &Pool,
        media: &mut Media<S>,
    ) -> Step {
        // What waited longer than its connection or its controller lived is not executed any more: the host may have moved on.
        // Mutant: commands of a queue that is gone are executed.
        if !sessions.is_queue(self.connection) && !mutant!(target_executes_for_gone) {
            return Step::Drop;
        }
        let Some((namespace, operation)) = self.operation(pool) else { return Step::Drop };
        match media.submit(namespace, cookie, operation) {
            Some(Ok(())) => {
                self.phase = Phase::Storing;
                Step::Pending
            }
            Some(Err(QueueFull)) => Step::Stall,
            None => Step::Drop,
        }
    }

    /// Only lists of ranges are executed here: all of them lie in the namespace, or none is; then comes the first of them that is not
    /// empty.
    #[inline(never)]
    pub(super) fn execute<S: Storage>(&mut self, pool: &Pool, media: &Media<S>) -> Step {
        let Work::Deallocate { namespace, ranges, .. } = self.work else { return Step::Execute };
        self.phase = match self.check_ranges(namespace, ranges, pool, media) {
            Ok(()) => self.next_range(pool),
            Err(status) => Phase::Reply(Reply::of(status)),
        };
        Step::Go
    }

    fn check_ranges<S: Storage>(
        &self,
        namespace: usize,
        ranges: u32,
        pool: &Pool,
        media: &Media<S>,
    ) -> Result<(), Status> {
        let geometry = media.get(namespace).ok_or(Status::INTERNAL_ERROR)?.geometry();
        for at in 0..ranges {
            let range = self.range(pool, at).ok_or(Status::INTERNAL_ERROR)?;
            let extent = geometry.extent(range.lba.get(), range.blocks.get());
            extent.map_err(|_| Status::LBA_OUT_OF_RANGE.do_not_retry())?;
        }
        Ok(())
    }

    /// The phase behind a range: the next one that is not empty, or the answer.
    fn next_range(&mut self, pool: &Pool) -> Phase {
        let Work::Deallocate { namespace, ranges, next } = self.work else {
            return Phase::Reply(Reply::of(Status::INTERNAL_ERROR));
        };
        let filled = (next..ranges).find(|at| self.range(pool, *at).is_some_and(|range| range.blocks.get() > 0));
        let Some(next) = filled else { return Phase::Reply(Reply::result(0)) };
        self.work = Work::Deallocate { namespace, ranges, next };
        Phase::Submit
    }

    /// The storage is done with it, in a poll that began then: it is answered, or goes on in another phase.
    #[inline(always)]
    pub(in super::super) fn stored<P: Port, S: Storage>(
        &mut self,
        (cookie, result, now): (u64, Result<(), StorageError>, u64),
        engine: &mut Engine<P>,
        sessions: &mut Sessions,
        pool: &mut Pool,
        media: &mut Media<S>,
        answers: &mut Answers,
    ) -> Step {
        let reply = match self.work {
            Work::Read { namespace, blocks, .. } if result.is_ok() && !self.commit_first => {
                media.moved(namespace, CommandKind::Read, blocks, (self.found, now));
                media.corrupt(pool.buffers(), self.buffer.as_ref());
                Reply::data()
            }
            Work::Write { namespace, blocks, .. } if result.is_ok() && !self.hardens() => {
                media.moved(namespace, CommandKind::Write, blocks, (self.found, now));
                Reply::result(0)
            }
            _ => {
                self.phase = self.otherwise_stored(result, now, pool, media);
                return Step::Go;
            }
        };
        self.reply(cookie, reply, engine, pool, sessions, answers)
    }

    /// What comes next of what failed, is not done yet, or is neither Read nor Write.
    #[inline(never)]
    fn otherwise_stored<S: Storage>(
        &mut self,
        result: Result<(), StorageError>,
        now: u64,
        pool: &Pool,
        media: &mut Media<S>,
    ) -> Phase {
        let committed = core::mem::take(&mut self.commit_first);
        match result {
            Ok(()) if committed => Phase::Submit,
            Ok(()) => self.executed(now, pool, media),
            Err(error) => {
                media.failed(error);
                let status = storage_status(error, &self.work);
                // As with a Flush: a second one says nothing of what this one could not keep.
                let status = if committed { status.do_not_retry() } else { status };
                if self.work.is_fused() { self.fused_failed(error, status) } else { Phase::Reply(Reply::of(status)) }
            }
        }
    }

    /// An operation succeeded: what comes next.
    fn executed<S: Storage>(&mut self, now: u64, pool: &Pool, media: &mut Media<S>) -> Phase {
        let bytes = media.succeeded(&self.work);
        let mut kind = CommandKind::Other;
        let phase = match self.work {
            Work::Compare { .. } => Phase::Reply(self.compared(bytes, pool, media)),
            Work::Deallocate { namespace, ranges, next } => {
                self.work = Work::Deallocate { namespace, ranges, next: next + 1 };
                self.next_range(pool)
            }
            Work::Write { namespace, .. } => self.harden(namespace, CommandKind::Write),
            Work::WriteZeroes { namespace, .. } if self.hardens() => self.harden(namespace, kind),
            Work::FusedWrite { .. } | Work::FusedHarden { .. } => self.fused_executed(),
            Work::Harden { kind: of, .. } => {
                kind = of;
                Phase::Reply(Reply::result(0))
            }
            _ => Phase::Reply(Reply::result(0)),
        };
        if let Phase::Reply(reply) = phase
            && reply.status.is_success()
            && let Some(namespace) = self.work.namespace()
        {
            media.answered(namespace, kind, (self.found, now));
        }
        phase
    }

    /// What it has written has to be on the medium before it is answered.
    #[inline]
    pub(super) fn hardens(&self) -> bool {
        self.durable && !mutant!(target_durable_unflushed)
    }

    fn harden(&mut self, namespace: usize, kind: CommandKind) -> Phase {
        self.work = Work::Harden { namespace, kind };
        Phase::Submit
    }

    /// Compare (NVM 3.2.1): the host's data is in the first buffer, the blocks in the second.
    fn compared<S: Storage>(&self, bytes: u64, pool: &Pool, media: &mut Media<S>) -> Reply {
        let (Some(wanted), Some(found)) = (&self.buffer, &self.second) else {
            return Reply::of(Status::INTERNAL_ERROR);
        };
        // At most a buffer's bytes.
        match pool.buffers().are_equal(wanted, found, bytes as usize) {
            Err(_) => Reply::of(Status::INTERNAL_ERROR),
            Ok(false) => Reply::of(Status::COMPARE_FAILURE.do_not_retry()),
            Ok(true) => {
                media.compared();
                Reply::result(0)
            }
        }
    }
}

fn storage_status(error: StorageError, work: &Work) -> Status {
    match (error, work) {
        (StorageError::LbaOutOfRange, _) => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        (StorageError::BufferOutOfRange | StorageError::BufferUnaligned, _) => Status::INTERNAL_ERROR,
        (StorageError::ReadOnly, _) => Status::NAMESPACE_IS_WRITE_PROTECTED.do_not_retry(),
        (StorageError::NoSpace, _) => Status::CAPACITY_EXCEEDED.do_not_retry(),
        (StorageError::Miscompare, _) => Status::COMPARE_FAILURE.do_not_retry(),
        (StorageError::Unsupported, _) => Status::INVALID_COMMAND_OPCODE.do_not_retry(),
        (StorageError::Broken, _) => Status::INTERNAL_ERROR.do_not_retry(),
        (StorageError::Unreachable, _) => Status::INTERNAL_ERROR,
        // Hosts go to another path, where there is one, and come again by this one when they are told that it is open.
        (StorageError::NotOwner, _) => Status::ANA_INACCESSIBLE,
        // For good.
        (StorageError::Shrunk, work) if work.reads().is_some() => Status::UNRECOVERED_READ_ERROR.do_not_retry(),
        (StorageError::Shrunk, _) => Status::WRITE_FAULT.do_not_retry(),
        (StorageError::Medium, work) if work.reads().is_some() => Status::UNRECOVERED_READ_ERROR,
        // A second Flush says nothing of what the first one could not keep: who tries again hears that all is well. A write that
        // is tried again brings its data once more.
        (StorageError::Medium, Work::Flush { .. }) => Status::WRITE_FAULT.do_not_retry(),
        (StorageError::Medium, _) => Status::WRITE_FAULT,
    }
}
