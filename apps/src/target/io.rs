//! The steps of a command: buffer, data in, storage, response.

use super::Target;
use super::command::{Data, Phase, Reply, Work};
use crate::nvmf::{CompletionQueueEntry, Status};
use crate::storage::{Cookie, Operation, Storage, StorageError};
use frwr_engine::provider::Port;
use frwr_engine::{FetchRequest, ResponseRequest, TransferError};
use zerocopy::IntoBytes;

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
            Phase::TakeBuffer => {
                slot.buffer = self.buffers.take();
                if slot.buffer.is_some() { Step::Go(slot.work.first_phase()) } else { Step::WaitForBuffer }
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
        let arrived = if matches!(slot.work, Work::Write { .. }) { Phase::Submit } else { Phase::Execute };
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

    fn step_execute(&mut self, index: u32) -> Step {
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let work = slot.work;
        let reply = match work {
            Work::Connect(connect) => self.execute_connect(index, &connect),
            Work::Identify(identify) => self.execute_identify(index, identify),
            Work::Nothing | Work::Read { .. } | Work::Write { .. } | Work::Flush { .. } => {
                Reply::of(Status::INTERNAL_ERROR)
            }
        };
        Step::Go(Phase::Reply(reply))
    }

    fn step_submit(&mut self, index: u32) -> Step {
        let cookie = Cookie(self.slots.cookie(index));
        let connection = self.slots.get_mut(index).map(|slot| slot.connection);
        // What waited longer than its connection lived is not executed any more: the host may have moved on.
        if connection.and_then(|connection| self.queue_mut(connection)).is_none() {
            return Step::Drop;
        }
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let buffer = slot.buffer.as_ref().map_or(0, |buffer| self.buffers.offset(buffer));
        let (namespace, operation) = match slot.work {
            Work::Read { namespace, lba, blocks } => (namespace, Operation::Read { lba, blocks, buffer }),
            Work::Write { namespace, lba, blocks } => (namespace, Operation::Write { lba, blocks, buffer }),
            Work::Flush { namespace } => (namespace, Operation::Flush),
            Work::Nothing | Work::Connect(_) | Work::Identify(_) => return Step::Drop,
        };
        let Some(namespace) = self.namespaces.get_mut(namespace) else { return Step::Drop };
        match namespace.submit(cookie, operation) {
            Ok(()) => Step::Pending(Phase::Storing),
            Err(crate::storage::QueueFull) => Step::Stall,
        }
    }

    /// Sends the response: the data in front of it, SEND_WITH_INV where the host invited it (RDMA 3.2).
    fn step_reply(&mut self, index: u32, reply: Reply) -> Step {
        let cookie = self.slots.cookie(index);
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let (connection, command_id, invalidate) = (slot.connection, slot.command_id, slot.invalidate);
        if !reply.with_data
            && let Some(buffer) = slot.buffer.take()
        {
            self.buffers.put(buffer);
        }
        let place = self.queues.get_mut(usize::from(connection.index)).and_then(Option::as_mut);
        let Some(queue) = place.filter(|queue| queue.connection == connection) else { return Step::Drop };
        let response = CompletionQueueEntry::new(command_id, queue.head, reply.status, reply.result);
        let (mut local, mut remote) = (None, None);
        if reply.with_data
            && let (Some(buffer), Data::Remote(range)) = (&slot.buffer, &slot.data)
        {
            local = Some(self.buffers.segment(buffer, range.length));
            remote = Some(*range);
        }
        let (local, remote) = (local.as_slice(), remote.as_slice());
        let message = response.as_bytes();
        let request = ResponseRequest { local, remote, message, invalidate, cookie };
        let result = self.engine.respond(connection, &request);
        if result.is_ok() {
            queue.outstanding = queue.outstanding.saturating_sub(1);
            self.statistics.remote_invalidations += u64::from(invalidate.is_some());
            self.statistics.failed_commands += u64::from(!reply.status.is_success());
        }
        self.transferred(index, result, Phase::Replying)
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
        slot.phase = if matches!(slot.work, Work::Write { .. }) { Phase::Submit } else { Phase::Execute };
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
        if let Some(buffer) = slot.buffer {
            self.buffers.put(buffer);
        }
        if let Data::InCapsule { received, .. } = slot.data {
            self.engine.release(received);
        }
    }

    /// Takes completions of all namespaces.
    pub(super) fn poll_storage(&mut self) -> u32 {
        let mut work = 0;
        for namespace in 0..self.namespaces.len() {
            self.completions.clear();
            self.namespaces[namespace].poll(self.now, &mut self.completions);
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
        let (work, bytes) = (slot.work, u64::from(slot.data.length()));
        let reply = match (result, work) {
            (Ok(()), Work::Read { .. }) => {
                self.statistics.reads += 1;
                self.statistics.bytes_read += bytes;
                self.corrupt(index);
                Reply::data()
            }
            (Ok(()), Work::Write { .. }) => {
                self.statistics.writes += 1;
                self.statistics.bytes_written += bytes;
                Reply::result(0)
            }
            (Ok(()), _) => {
                self.statistics.flushes += 1;
                Reply::result(0)
            }
            (Err(error), work) => Reply::of(storage_status(error, &work)),
        };
        self.set_phase(index, Phase::Reply(reply));
        self.advance(index);
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
        while self.buffers.available() > 0 {
            let Some(index) = self.waiting.pop_front() else { break };
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
        (StorageError::Medium, Work::Read { .. }) => Status::UNRECOVERED_READ_ERROR,
        (StorageError::Medium, _) => Status::WRITE_FAULT,
    }
}
