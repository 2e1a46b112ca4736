//! The steps of a command: buffer, data in, storage, response.

use super::Target;
use super::command::{Data, Phase, Reply, Slot, Work};
use super::controllers::FailedCommand;
use super::incident::Fault;
use super::receive::listed;
use super::session::find_queue;
use crate::storage::Storage;
use crate::wire::{CompletionQueueEntry, KeyedDataBlock, Status};
use arrayvec::ArrayVec;
use frwr_engine::provider::{Port, RemoteRange};
use frwr_engine::{
    Engine, FetchRequest, MAX_TRANSFER_OPERATIONS, Received, RemoteSegment, ResponseRequest, TransferError,
};
use frwr_mempool::mutant;
use zerocopy::IntoBytes;

/// The data blocks of one command.
type RemoteList = ArrayVec<RemoteSegment, MAX_TRANSFER_OPERATIONS>;

/// Bytes copied at a time from a capsule to its buffer.
pub(super) const COPY_BYTES: usize = 1024;

/// The list of a command's data blocks. It was checked when the command arrived, and its memory is not given back to
/// the device before the command is done with it.
#[inline(never)]
fn remote_list<P: Port>(engine: &Engine<P>, received: &Received, offset: u32, count: u32) -> RemoteList {
    let listed = (0..count).filter_map(|at| listed(engine, received, offset, at));
    listed
        .take(MAX_TRANSFER_OPERATIONS)
        .map(|KeyedDataBlock { address, length, key, .. }| RemoteSegment {
            remote: RemoteRange { address, key },
            length,
        })
        .collect()
}

/// What one step led to.
pub(super) enum Step {
    /// On to the next one, which its phase names now.
    Go,
    /// An event or completion takes it from here, in the phase that it is in now.
    Pending,
    /// No buffer is free.
    WaitForBuffer,
    /// A transfer slot or a place in the storage is missing, or another core is not as far.
    Stall,
    /// The connection is gone, or ends.
    Drop,
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Takes a command as far as it goes now.
    pub(super) fn advance(&mut self, index: u32) {
        loop {
            match self.step(index) {
                Step::Go => {}
                Step::Pending => return,
                Step::WaitForBuffer => {
                    return self.wait_for_buffer(index);
                }
                Step::Stall => {
                    self.statistics.stalls += 1;
                    // K11: who found no room is not looked at again.
                    if mutant!(K11_target_stalled) {
                        return;
                    }
                    return self.stalled.push_back(index);
                }
                Step::Drop => return self.drop_command(index),
            }
        }
    }

    pub(super) fn set_phase(&mut self, index: u32, phase: Phase) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.phase = phase;
        }
    }

    /// The next step of a command is to be taken in this phase.
    pub(super) fn go(&mut self, index: u32, phase: Phase) -> Step {
        self.set_phase(index, phase);
        Step::Go
    }

    #[inline]
    fn step(&mut self, index: u32) -> Step {
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        if let Phase::TakeBuffer = slot.phase {
            let (part, wanted) = (self.buffers.part(slot.work.namespace()), slot.work.buffers());
            // All or none, so that nobody holds one and waits for another.
            if wanted > 1 && !self.buffers.has(part, wanted) {
                return Step::WaitForBuffer;
            }
            slot.buffer = self.buffers.take(part);
            if slot.buffer.is_none() {
                return Step::WaitForBuffer;
            }
            if wanted > 1 {
                slot.second = self.buffers.take(part);
            }
            slot.phase = slot.work.first_phase();
        }
        match slot.phase {
            Phase::Fetch => self.step_fetch(index),
            Phase::Execute => self.step_execute(index),
            Phase::Submit => self.step_submit(index),
            Phase::Reply(reply) => self.step_reply(index, reply),
            Phase::TakeBuffer | Phase::Fetching | Phase::Storing | Phase::Elsewhere | Phase::Replying => Step::Pending,
        }
    }

    #[inline(never)]
    fn step_fetch(&mut self, index: u32) -> Step {
        let Some((cookie, slot)) = self.slots.with_cookie(index) else { return Step::Drop };
        let (arrived, connection) = (slot.work.arrived(), slot.connection);
        let Some(buffer) = &slot.buffer else { return Step::Drop };
        let local = [self.buffers.segment(buffer, slot.data.length())];
        let result = match &slot.data {
            Data::None => {
                slot.phase = arrived;
                return Step::Go;
            }
            Data::Remote(remote) => {
                self.engine.fetch(connection, &FetchRequest { local: &local, remote: &[*remote], cookie })
            }
            Data::Scattered { received, offset, count, .. } => {
                let remote = remote_list(&self.engine, received, *offset, *count);
                self.engine.fetch(connection, &FetchRequest { local: &local, remote: &remote, cookie })
            }
            Data::InCapsule { .. } => return self.step_copy(index),
        };
        if let Err(error) = result {
            return self.not_transferred(index, error);
        }
        slot.phase = Phase::Fetching;
        Step::Pending
    }

    /// The data lies in the capsule, whose receive goes back then.
    #[inline(never)]
    fn step_copy(&mut self, index: u32) -> Step {
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let arrived = slot.work.arrived();
        let Some(buffer) = &slot.buffer else { return Step::Drop };
        let data = core::mem::replace(&mut slot.data, Data::None);
        let Data::InCapsule { received, offset, length } = data else { return Step::Drop };
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
        self.go(index, arrived)
    }

    #[inline(never)]
    fn step_execute(&mut self, index: u32) -> Step {
        let Some(slot) = self.slots.get_mut(index) else { return Step::Drop };
        let work = slot.work;
        let reply = match work {
            Work::Connect(connect) => return self.step_connect(index, connect),
            Work::Abort { controller, abort } => return self.step_abort(index, controller, abort),
            Work::SettingsEverywhere { controller, version } => return self.step_settings(index, controller, version),
            Work::Identify { structure, namespace } => self.execute_identify(index, structure, namespace),
            Work::LogPage(get) => self.execute_log_page(index, get),
            Work::HostIdentifier => self.execute_host_identifier(index),
            Work::Deallocate { namespace, ranges, .. } => match self.check_ranges(index, namespace, ranges) {
                Ok(()) => {
                    let Some(phase) = self.next_range(index) else { return Step::Drop };
                    return self.go(index, phase);
                }
                Err(status) => Reply::of(status),
            },
            // The rest is for media.
            _ => Reply::of(Status::INTERNAL_ERROR),
        };
        self.go(index, Phase::Reply(reply))
    }

    /// Sends the response: the data in front of it, SEND_WITH_INV where the host invited it (RDMA 3.2).
    #[inline(never)]
    fn step_reply(&mut self, index: u32, reply: Reply) -> Step {
        let Some((cookie, slot)) = self.slots.with_cookie(index) else { return Step::Drop };
        let connection = slot.connection;
        if !reply.with_data {
            for buffer in [slot.buffer.take(), slot.second.take()].into_iter().flatten() {
                self.buffers.put(buffer);
            }
        }
        let place = self.queues.get_mut(usize::from(connection.index)).and_then(Option::as_mut);
        let Some(queue) = place.filter(|queue| queue.connection == connection) else { return Step::Drop };
        let response = CompletionQueueEntry::new(slot.command_id, queue.head, reply.status, reply.result);
        let buffer = slot.buffer.as_ref().filter(|_| reply.with_data);
        let local = buffer.map(|buffer| self.buffers.segment(buffer, slot.data.length()));
        let list;
        // Where the data goes.
        let remote = match &slot.data {
            _ if !reply.with_data => &[],
            Data::Remote(remote) => core::slice::from_ref(remote),
            Data::Scattered { received, offset, count, .. } => {
                list = remote_list(&self.engine, received, *offset, *count);
                &list[..]
            }
            Data::None | Data::InCapsule { .. } => &[],
        };
        let (local, message, invalidate) = (local.as_slice(), response.as_bytes(), slot.invalidate);
        let request = ResponseRequest { local, remote, message, invalidate, cookie };
        if let Err(error) = self.engine.respond(connection, &request) {
            return self.not_transferred(index, error);
        }
        slot.phase = Phase::Replying;
        self.answered(index, &reply);
        // K9: the data's buffer goes back with the post, while the device may read it again.
        if mutant!(K9_target_response) { Step::Drop } else { Step::Pending }
    }

    /// A response is on its way.
    #[inline]
    fn answered(&mut self, index: u32, reply: &Reply) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        self.statistics.remote_invalidations += u64::from(slot.invalidate.is_some());
        self.statistics.plain_responses += u64::from(slot.invalidate.is_none() && slot.names_keys);
        if let Data::Scattered { .. } = slot.data
            && let Data::Scattered { received, .. } = core::mem::replace(&mut slot.data, Data::None)
        {
            // The engine has its own copy of the list.
            self.engine.release(received);
        }
        let Some(queue) = find_queue(&mut self.queues, slot.connection) else { return };
        if let Some(in_use) = self.in_use.get_mut(usize::from(slot.connection.index))
            && !mutant!(S10_target_identifier)
        {
            in_use.remove(slot.command_id);
        }
        queue.outstanding = queue.outstanding.saturating_sub(u16::from(!mutant!(S10_target_outstanding)));
        if !reply.status.is_success() {
            self.answered_failure(index, reply.status);
        }
    }

    /// A response says that a command failed.
    #[cold]
    #[inline(never)]
    fn answered_failure(&mut self, index: u32, status: Status) {
        self.statistics.failed_commands += 1;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let (command_id, lba, namespace) = (slot.command_id, slot.work.lba(), slot.namespace);
        let Some(queue) = find_queue(&mut self.queues, slot.connection) else { return };
        let (queue_id, association) = (queue.asked.queue_id, queue.association);
        let Some(controller) = association.map(|association| association.controller) else { return };
        let failed = FailedCommand { queue_id, command_id, status: status.to_wire(), lba, namespace };
        if self.note_elsewhere(controller, &failed) {
            return;
        }
        if let Some(Some(controller)) = self.controllers.get_mut(controller) {
            controller.note(&failed);
        }
    }

    /// The engine did not take a transfer.
    #[cold]
    #[inline(never)]
    fn not_transferred(&mut self, index: u32, error: TransferError) -> Step {
        match error {
            TransferError::NoSlot => Step::Stall,
            TransferError::NotConnected => Step::Drop,
            // Lengths and bounds were checked before: the queue cannot go on.
            _ => {
                if let Some(connection) = self.slots.get_mut(index).map(|slot| slot.connection) {
                    self.protocol_error(connection, Fault::Transfer);
                }
                Step::Drop
            }
        }
    }

    /// RDMA READs ended.
    pub(super) fn fetched(&mut self, cookie: u64, done: bool) {
        let Some(index) = self.slots.index_of(cookie) else { return };
        // K5: data that did not arrive is taken for what did.
        if !done && !mutant!(K5_target_fetched) {
            return self.drop_command(index);
        }
        let Some(slot) = self.slots.get_mut(index) else { return };
        let aborted = Phase::Reply(Reply::of(Status::COMMAND_ABORT_REQUESTED));
        slot.phase = if slot.aborted { aborted } else { slot.work.arrived() };
        self.advance(index);
    }

    /// The device is done with a response: the command's slot and buffer are free.
    pub(super) fn responded(&mut self, cookie: u64) {
        if let Some(index) = self.slots.index_of(cookie) {
            self.drop_command(index);
        }
    }

    /// Frees a command's slot, and whatever it holds.
    pub(super) fn drop_command(&mut self, index: u32) {
        let Some(slot) = self.slots.remove(index) else { return };
        for buffer in [slot.buffer, slot.second].into_iter().flatten() {
            // S10: buffers of commands that are dropped never come back.
            if mutant!(S10_target_buffer) {
                continue;
            }
            self.buffers.put(buffer);
        }
        if let Data::InCapsule { received, .. } | Data::Scattered { received, .. } = slot.data
            && !mutant!(S10_target_receive)
        {
            self.engine.release(received);
        }
    }

    /// Commands that waited: first those that hold a buffer already, then those that want one, each in order.
    pub(super) fn serve_waiting(&mut self) {
        for _ in 0..self.stalled.len() {
            let Some(index) = self.stalled.pop_front() else { break };
            self.advance(index);
        }
        if !self.waiting.is_empty() {
            self.serve_waiting_for_buffers();
        }
    }

    /// One command of each part in turn, until no part has room for its next one. In a part they go in order: one that needs two
    /// buffers is not overtaken for ever by those that need one.
    #[cold]
    fn serve_waiting_for_buffers(&mut self) {
        let mut without_room = 0;
        while without_room < self.waiting.turns()
            && let Some(part) = self.waiting.next_turn()
        {
            let Some(index) = self.waiting.first(part) else { continue };
            let wanted = self.slots.get_mut(index).map_or(0, |slot| slot.work.buffers());
            if self.buffers.has(part, wanted) {
                without_room = 0;
                self.waiting.remove(part, index);
                self.advance(index);
            } else {
                without_room += 1;
            }
            self.waiting.queue_turn(part);
        }
    }

    /// A command waits for its buffers behind all others of its part.
    #[cold]
    pub(super) fn wait_for_buffer(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        self.statistics.buffer_waits += 1;
        let part = self.buffers.part(slot.work.namespace());
        self.waiting.push(part, index);
    }

    /// A command that waits for its buffers does so no longer.
    pub(super) fn leave_waiting(&mut self, index: u32) {
        let waits = |slot: &&mut Slot| matches!(slot.phase, Phase::TakeBuffer);
        let Some(slot) = self.slots.get_mut(index).filter(waits) else { return };
        let part = self.buffers.part(slot.work.namespace());
        self.waiting.remove(part, index);
    }

    /// Who waits goes first where buffers are for all, and in its own part anyway.
    pub(super) fn has_to_wait(&self, work: &Work) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let part = self.buffers.part(work.namespace());
        self.waiting.first(part).is_some() || !self.buffers.has_kept(part, work.buffers())
    }
}
