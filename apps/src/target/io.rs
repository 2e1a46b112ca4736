//! The steps of a command: buffer, data in, storage, response.

use super::Target;
use super::command::{Data, Phase, Reply, Work};
use super::controller::FailedCommand;
use crate::nvmf::{CompletionQueueEntry, DATASET_RANGE_BYTES, DatasetRange, KeyedDataBlock, Status};
use crate::storage::{Cookie, Operation, Storage, StorageError};
use arrayvec::ArrayVec;
use frwr_engine::provider::{Port, RemoteRange};
use frwr_engine::{FetchRequest, MAX_TRANSFER_OPERATIONS, Received, RemoteSegment, ResponseRequest, TransferError};
use zerocopy::{FromBytes, IntoBytes};

/// The data blocks of one command.
type RemoteList = ArrayVec<RemoteSegment, MAX_TRANSFER_OPERATIONS>;

/// Bytes copied at a time from a capsule to its buffer.
const COPY_BYTES: usize = 1024;

/// What one step led to.
enum Step {
    /// On to the next one.
    Go(Phase),
    /// An event or completion takes it from here.
    Pending(Phase),
    /// No buffer is free.
    WaitForBuffer,
    /// A transfer slot or a place in the storage is missing.
    Stall,
    /// The connection is gone, or ends.
    Drop,
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Takes a command as far as it goes now.
    pub(super) fn advance(&mut self, index: u32) {
        loop {
            match self.step(index) {
                Step::Go(phase) => self.set_phase(index, phase),
                Step::Pending(phase) => return self.set_phase(index, phase),
                Step::WaitForBuffer => {
                    self.statistics.buffer_waits += 1;
                    return self.waiting.push_back(index);
                }
                Step::Stall => {
                    self.statistics.stalls += 1;
                    return self.stalled.push_back(index);
                }
                Step::Drop => return self.drop_command(index),
            }
        }
    }

    fn set_phase(&mut self, index: u32, phase: Phase) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.phase = phase;
        }
    }

    fn step(&mut self, index: u32) -> Step {
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        match slot.phase {
            // All or none, so that nobody holds one and waits for another.
            Phase::TakeBuffer if self.buffers.available() < slot.work.buffers() => Step::WaitForBuffer,
            Phase::TakeBuffer => {
                slot.buffer = self.buffers.take();
                if slot.work.buffers() > 1 {
                    slot.second = self.buffers.take();
                }
                Step::Go(slot.work.first_phase())
            }
            Phase::Fetch => self.step_fetch(index),
            Phase::Execute => self.step_execute(index),
            Phase::Submit => self.step_submit(index),
            Phase::Reply(reply) => self.step_reply(index, reply),
            waiting @ (Phase::Fetching | Phase::Storing | Phase::Replying) => Step::Pending(waiting),
        }
    }

    fn step_fetch(&mut self, index: u32) -> Step {
        let cookie = self.slots.cookie(index);
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let arrived = slot.work.arrived();
        let Some(buffer) = &slot.buffer else { return Step::Drop };
        match core::mem::replace(&mut slot.data, Data::None) {
            Data::None => Step::Go(arrived),
            Data::Remote(remote) => {
                slot.data = Data::Remote(remote);
                let local = [self.buffers.segment(buffer, remote.length)];
                let fetch = FetchRequest { local: &local, remote: &[remote], cookie };
                let result = self.engine.fetch(slot.connection, &fetch);
                self.transferred(index, result, Phase::Fetching)
            }
            Data::Scattered { received, offset, count, length } => {
                let local = [self.buffers.segment(buffer, length)];
                let remote = self.remote_list(&received, offset, count);
                let connection = self.slots.get_mut(index).map(|slot| slot.connection);
                let result = match connection {
                    Some(connection) => {
                        self.engine.fetch(connection, &FetchRequest { local: &local, remote: &remote, cookie })
                    }
                    None => Err(TransferError::NotConnected),
                };
                self.keep_list(index, Data::Scattered { received, offset, count, length });
                self.transferred(index, result, Phase::Fetching)
            }
            Data::InCapsule { received, offset, length } => {
                let (mut done, mut chunk) = (0, [0; COPY_BYTES]);
                while done < length {
                    let bytes = &mut chunk[..COPY_BYTES.min((length - done) as usize)];
                    let copied = self.engine.message(&received, offset + done, bytes);
                    if copied != bytes.len() || self.buffers.write(buffer, done as usize, bytes).is_err() {
                        // The connection has ended meanwhile.
                        self.engine.release(received);
                        return Step::Drop;
                    }
                    done += bytes.len() as u32;
                }
                self.engine.release(received);
                Step::Go(arrived)
            }
        }
    }

    /// The list of a command's data blocks. It was checked when the command arrived, and its memory is not given back to
    /// the device before the command is done with it.
    fn remote_list(&self, received: &Received, offset: u32, count: u32) -> RemoteList {
        let listed = (0..count).filter_map(|at| self.listed(received, offset, at));
        listed
            .take(MAX_TRANSFER_OPERATIONS)
            .map(|KeyedDataBlock { address, length, key, .. }| RemoteSegment {
                remote: RemoteRange { address, key },
                length,
            })
            .collect()
    }

    /// Where a command's data goes.
    fn destination(&mut self, index: u32) -> RemoteList {
        let mut list = RemoteList::new();
        let Some(slot) = self.slots.get_mut(index) else { return list };
        match core::mem::replace(&mut slot.data, Data::None) {
            Data::Remote(range) => {
                list.push(range);
                slot.data = Data::Remote(range);
            }
            Data::Scattered { received, offset, count, length } => {
                list = self.remote_list(&received, offset, count);
                self.keep_list(index, Data::Scattered { received, offset, count, length });
            }
            other => slot.data = other,
        }
        list
    }

    fn keep_list(&mut self, index: u32, data: Data) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.data = data;
        } else if let Data::Scattered { received, .. } = data {
            self.engine.release(received);
        }
    }

    fn step_execute(&mut self, index: u32) -> Step {
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let work = slot.work;
        let reply = match work {
            Work::Connect(connect) => self.execute_connect(index, &connect),
            Work::Identify(identify) => self.execute_identify(index, identify),
            Work::LogPage(get) => self.execute_log_page(index, get),
            Work::HostIdentifier => self.execute_host_identifier(index),
            Work::Deallocate { namespace, ranges, .. } => match self.check_ranges(index, namespace, ranges) {
                Ok(()) => return self.next_range(index),
                Err(status) => Reply::of(status),
            },
            Work::Nothing
            | Work::Read { .. }
            | Work::Write { .. }
            | Work::Compare { .. }
            | Work::WriteZeroes { .. }
            | Work::Flush { .. }
            | Work::Harden { .. } => Reply::of(Status::INTERNAL_ERROR),
        };
        Step::Go(Phase::Reply(reply))
    }

    /// A range of a Dataset Management command, which has arrived in the command's buffer.
    fn range(&mut self, index: u32, at: u32) -> Option<DatasetRange> {
        let buffer = self.slots.get_mut(index)?.buffer.as_ref()?;
        let mut bytes = [0; DATASET_RANGE_BYTES];
        self.buffers.read(buffer, at as usize * DATASET_RANGE_BYTES, &mut bytes).ok()?;
        DatasetRange::read_from_bytes(&bytes).ok()
    }

    /// All ranges lie in the namespace, or none is executed.
    fn check_ranges(&mut self, index: u32, namespace: usize, ranges: u32) -> Result<(), Status> {
        let geometry = self.namespaces.get(namespace).map(|namespace| namespace.storage.geometry());
        let geometry = geometry.ok_or(Status::INTERNAL_ERROR)?;
        for at in 0..ranges {
            let range = self.range(index, at).ok_or(Status::INTERNAL_ERROR)?;
            let extent = geometry.extent(range.lba.get(), range.blocks.get());
            extent.map_err(|_| Status::LBA_OUT_OF_RANGE.do_not_retry())?;
        }
        Ok(())
    }

    /// On to the next range that is not empty, or to the answer.
    fn next_range(&mut self, index: u32) -> Step {
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let Work::Deallocate { namespace, ranges, next } = slot.work else { return Step::Drop };
        let filled = (next..ranges).find(|at| self.range(index, *at).is_some_and(|range| range.blocks.get() > 0));
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        match filled {
            Some(next) => {
                slot.work = Work::Deallocate { namespace, ranges, next };
                Step::Go(Phase::Submit)
            }
            None => Step::Go(Phase::Reply(Reply::result(0))),
        }
    }

    fn step_submit(&mut self, index: u32) -> Step {
        let cookie = Cookie(self.slots.cookie(index));
        let connection = self.slots.get_mut(index).map(|slot| slot.connection);
        // What waited longer than its connection lived is not executed any more: the host may have moved on.
        if connection.and_then(|connection| self.queue_mut(connection)).is_none() {
            return Step::Drop;
        }
        let Some((namespace, operation)) = self.operation(index) else { return Step::Drop };
        let Some(namespace) = self.namespaces.get_mut(namespace) else { return Step::Drop };
        match namespace.storage.submit(cookie, operation) {
            Ok(()) => Step::Pending(Phase::Storing),
            Err(crate::storage::QueueFull) => Step::Stall,
        }
    }

    /// What a command asks of which namespace.
    fn operation(&mut self, index: u32) -> Option<(usize, Operation)> {
        let slot = self.slots.get_mut(index)?;
        let held = if matches!(slot.work, Work::Compare { .. }) { &slot.second } else { &slot.buffer };
        let buffer = held.as_ref().map_or(0, |buffer| self.buffers.offset(buffer));
        Some(match slot.work {
            Work::Read { namespace, lba, blocks } | Work::Compare { namespace, lba, blocks } => {
                (namespace, Operation::Read { lba, blocks, buffer })
            }
            Work::Write { namespace, lba, blocks } => (namespace, Operation::Write { lba, blocks, buffer }),
            Work::WriteZeroes { namespace, lba, blocks, deallocate } => {
                (namespace, Operation::WriteZeroes { lba, blocks, deallocate })
            }
            Work::Flush { namespace } | Work::Harden { namespace } => (namespace, Operation::Flush),
            Work::Deallocate { namespace, next, .. } => {
                let range = self.range(index, next)?;
                (namespace, Operation::Deallocate { lba: range.lba.get(), blocks: range.blocks.get() })
            }
            Work::Nothing | Work::Connect(_) | Work::Identify(_) | Work::LogPage(_) | Work::HostIdentifier => {
                return None;
            }
        })
    }

    /// Sends the response: the data in front of it, SEND_WITH_INV where the host invited it (RDMA 3.2).
    fn step_reply(&mut self, index: u32, reply: Reply) -> Step {
        let cookie = self.slots.cookie(index);
        let remote = if reply.with_data { self.destination(index) } else { RemoteList::new() };
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let (connection, command_id, invalidate) = (slot.connection, slot.command_id, slot.invalidate);
        if !reply.with_data {
            for buffer in [slot.buffer.take(), slot.second.take()].into_iter().flatten() {
                self.buffers.put(buffer);
            }
        }
        let place = self.queues.get_mut(usize::from(connection.index)).and_then(Option::as_mut);
        let Some(queue) = place.filter(|queue| queue.connection == connection) else { return Step::Drop };
        let response = CompletionQueueEntry::new(command_id, queue.head, reply.status, reply.result);
        let buffer = slot.buffer.as_ref().filter(|_| reply.with_data);
        let local = buffer.map(|buffer| self.buffers.segment(buffer, slot.data.length()));
        let (local, remote) = (local.as_slice(), remote.as_slice());
        let message = response.as_bytes();
        let request = ResponseRequest { local, remote, message, invalidate, cookie };
        let result = self.engine.respond(connection, &request);
        if result.is_ok() {
            self.answered(index, &reply);
        }
        self.transferred(index, result, Phase::Replying)
    }

    /// A response is on its way.
    fn answered(&mut self, index: u32, reply: &Reply) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let (connection, has_key) = (slot.connection, matches!(slot.data, Data::Remote(_) | Data::Scattered { .. }));
        self.statistics.remote_invalidations += u64::from(slot.invalidate.is_some());
        self.statistics.plain_responses += u64::from(slot.invalidate.is_none() && has_key);
        let (command_id, lba, namespace) = (slot.command_id, slot.work.lba(), slot.namespace);
        if let Data::Scattered { .. } = slot.data
            && let Data::Scattered { received, .. } = core::mem::replace(&mut slot.data, Data::None)
        {
            // The engine has its own copy of the list.
            self.engine.release(received);
        }
        let Some(queue) = self.queue_mut(connection) else { return };
        queue.outstanding = queue.outstanding.saturating_sub(1);
        let (queue_id, association) = (queue.asked.queue_id, queue.association);
        if reply.status.is_success() {
            return;
        }
        self.statistics.failed_commands += 1;
        let controller = association.and_then(|association| self.controllers.get_mut(association.controller)?.as_mut());
        if let Some(controller) = controller {
            let status = reply.status.to_wire();
            controller.note(&FailedCommand { queue_id, command_id, status, lba, namespace });
        }
    }

    fn transferred(&mut self, index: u32, result: Result<(), TransferError>, pending: Phase) -> Step {
        match result {
            Ok(()) => Step::Pending(pending),
            Err(TransferError::NoSlot) => Step::Stall,
            Err(TransferError::NotConnected) => Step::Drop,
            // Lengths and bounds were checked before: the queue cannot go on.
            Err(_) => {
                if let Some(connection) = self.slots.get_mut(index).map(|slot| slot.connection) {
                    self.protocol_error(connection);
                }
                Step::Drop
            }
        }
    }

    /// RDMA READs ended.
    pub(super) fn fetched(&mut self, cookie: u64, done: bool) {
        let Some(index) = self.slots.index_of(cookie) else { return };
        if !done {
            return self.drop_command(index);
        }
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.phase = slot.work.arrived();
        self.advance(index);
    }

    /// The device is done with a response: the command's slot and buffer are free.
    pub(super) fn responded(&mut self, cookie: u64) {
        if let Some(index) = self.slots.index_of(cookie) {
            self.drop_command(index);
        }
    }

    /// Frees a command's slot, and whatever it holds.
    fn drop_command(&mut self, index: u32) {
        let Some(slot) = self.slots.remove(index) else { return };
        for buffer in [slot.buffer, slot.second].into_iter().flatten() {
            self.buffers.put(buffer);
        }
        if let Data::InCapsule { received, .. } | Data::Scattered { received, .. } = slot.data {
            self.engine.release(received);
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
        let Some(index) = self.slots.index_of(cookie.0) else { return };
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection;
        if self.queue_mut(connection).is_none() {
            self.orphans = self.orphans.saturating_sub(1);
            return self.drop_command(index);
        }
        let Some(slot) = self.slots.get_mut(index) else { return };
        let work = slot.work;
        let phase = match result {
            Ok(()) => self.executed(index, work),
            Err(error) => {
                self.statistics.media_errors += u64::from(error == StorageError::Medium);
                Phase::Reply(Reply::of(storage_status(error, &work)))
            }
        };
        self.set_phase(index, phase);
        self.advance(index);
    }

    /// An operation succeeded: what comes next.
    fn executed(&mut self, index: u32, work: Work) -> Phase {
        let bytes = self.transfer_bytes(&work);
        match work {
            Work::Read { .. } => {
                self.statistics.reads += 1;
                self.statistics.bytes_read += bytes;
                self.corrupt(index);
                return Phase::Reply(Reply::data());
            }
            Work::Write { .. } => {
                self.statistics.writes += 1;
                self.statistics.bytes_written += bytes;
            }
            Work::Compare { .. } => return Phase::Reply(self.compare(index, bytes)),
            Work::WriteZeroes { .. } => self.statistics.write_zeroes += 1,
            Work::Deallocate { namespace, ranges, next } => {
                self.statistics.deallocations += 1;
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.work = Work::Deallocate { namespace, ranges, next: next + 1 };
                }
                return match self.next_range(index) {
                    Step::Go(phase) => phase,
                    _ => Phase::Reply(Reply::of(Status::INTERNAL_ERROR)),
                };
            }
            Work::Flush { .. } => self.statistics.flushes += 1,
            _ => {}
        }
        let Some(slot) = self.slots.get_mut(index) else { return Phase::Reply(Reply::result(0)) };
        match work {
            Work::Write { namespace, .. } | Work::WriteZeroes { namespace, .. } if slot.durable => {
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
    fn compare(&mut self, index: u32, bytes: u64) -> Reply {
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

    /// Commands that waited: first those that hold a buffer already, then those that want one, each in order.
    pub(super) fn serve_waiting(&mut self) {
        for _ in 0..self.stalled.len() {
            let Some(index) = self.stalled.pop_front() else { break };
            self.advance(index);
        }
        while let Some(index) = self.waiting.front().copied() {
            // In order: a command that needs two is not overtaken for ever by those that need one.
            let wanted = match self.slots.get_mut(index) {
                Some(slot) if matches!(slot.phase, Phase::TakeBuffer) => slot.work.buffers(),
                _ => 0,
            };
            if self.buffers.available() < wanted {
                break;
            }
            self.waiting.pop_front();
            self.advance(index);
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
        (StorageError::Medium, Work::Read { .. } | Work::Compare { .. }) => Status::UNRECOVERED_READ_ERROR,
        (StorageError::Medium, _) => Status::WRITE_FAULT,
    }
}
