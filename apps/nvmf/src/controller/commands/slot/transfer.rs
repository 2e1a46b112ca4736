//! The steps of a command that the engine takes: its data in, and its response.

use super::super::super::media::Pool;
use super::super::super::session::Sessions;
use super::super::super::work::{Phase, Reply};
use super::{Data, Slot, Step};
use crate::wire::{CompletionQueueEntry, DataPointer, KeyedDataBlock, SGL_DESCRIPTOR_BYTES, Status};
use arrayvec::ArrayVec;
use frwr_engine::provider::{Port, RemoteRange};
use frwr_engine::{
    Engine, FetchRequest, MAX_TRANSFER_OPERATIONS, Received, RemoteSegment, ResponseRequest, TransferError,
};
use frwr_mempool::mutant;
use zerocopy::IntoBytes;

/// The data blocks of one command.
type RemoteList = ArrayVec<RemoteSegment, MAX_TRANSFER_OPERATIONS>;

/// A data block of a list in a capsule; `None` where it is something else, or the connection has ended.
pub(in super::super::super) fn listed<P: Port>(
    engine: &Engine<P>,
    received: &Received,
    list: u32,
    at: u32,
) -> Option<KeyedDataBlock> {
    let mut bytes = [0; SGL_DESCRIPTOR_BYTES];
    let offset = list + at * SGL_DESCRIPTOR_BYTES as u32;
    let copied = engine.message(received, offset, &mut bytes);
    match DataPointer::decode(bytes) {
        Ok(DataPointer::Keyed(block)) if copied == bytes.len() => Some(block),
        _ => None,
    }
}

/// The list of a command's data blocks. It was checked when the command arrived, and its memory is not given back to
/// the device before the command is done with it.
#[inline(never)]
fn remote_list<P: Port>(engine: &Engine<P>, received: Option<&Received>, offset: u32, count: u32) -> RemoteList {
    let listed = (0..count).filter_map(|at| listed(engine, received?, offset, at));
    listed
        .take(MAX_TRANSFER_OPERATIONS)
        .map(|KeyedDataBlock { address, length, key, .. }| RemoteSegment {
            remote: RemoteRange { address, key },
            length,
        })
        .collect()
}

/// What became of the keys that hosts named.
#[derive(Debug, Default)]
pub(in super::super) struct Answers {
    /// Responses that killed one.
    invalidations: u64,
    /// Those that did not.
    plain: u64,
}

impl Answers {
    /// Both, in this order.
    pub(in super::super) fn counts(&self) -> (u64, u64) {
        (self.invalidations, self.plain)
    }
}

/// The engine did not take a transfer.
#[cold]
#[inline(never)]
fn not_transferred(error: TransferError) -> Step {
    match error {
        TransferError::NoSlot => Step::Stall,
        TransferError::NotConnected => Step::Drop,
        // Lengths and bounds were checked before: the queue cannot go on.
        _ => Step::Refused,
    }
}

impl Slot {
    #[inline(never)]
    pub(super) fn fetch<P: Port>(&mut self, cookie: u64, engine: &mut Engine<P>, pool: &Pool) -> Step {
        let Some(buffer) = &self.buffer else { return Step::Drop };
        let local = [pool.buffers().segment_from(buffer, self.data_offset(), self.data.length())];
        let result = match &self.data {
            Data::None => {
                self.phase = self.work.arrived();
                return Step::Go;
            }
            Data::Remote(remote) => {
                engine.fetch(self.connection, &FetchRequest { local: &local, remote: &[*remote], cookie })
            }
            Data::Scattered { offset, count, .. } => {
                let remote = remote_list(engine, self.received.as_ref(), *offset, *count);
                engine.fetch(self.connection, &FetchRequest { local: &local, remote: &remote, cookie })
            }
            Data::InCapsule { .. } => return self.copy(engine, pool),
        };
        if let Err(error) = result {
            return not_transferred(error);
        }
        self.phase = Phase::Fetching;
        Step::Pending
    }

    /// The data lies in the capsule, whose receive goes back then.
    #[inline(never)]
    fn copy<P: Port>(&mut self, engine: &mut Engine<P>, pool: &Pool) -> Step {
        let Some(buffer) = &self.buffer else { return Step::Drop };
        let to = self.data_offset();
        let Data::InCapsule { offset, length } = self.data else { return Step::Drop };
        let Some(received) = self.received.take() else { return Step::Drop };
        let range = offset..offset + length;
        let copied = pool.buffers().take_from_capsule(engine, &received, range, buffer, to as usize);
        engine.release(received);
        if copied != length as usize {
            // The connection has ended meanwhile.
            return Step::Drop;
        }
        self.phase = self.work.arrived();
        Step::Go
    }

    /// RDMA READs ended: the data is there, unless they failed.
    pub(in super::super) fn fetched(&mut self) {
        let aborted = Phase::Reply(Reply::of(Status::COMMAND_ABORT_REQUESTED));
        self.phase = if self.aborted { aborted } else { self.work.arrived() };
    }

    /// Sends the response: the data in front of it, SEND_WITH_INV where the host invited it (RDMA 3.2).
    #[inline(never)]
    pub(super) fn reply<P: Port>(
        &mut self,
        cookie: u64,
        reply: Reply,
        engine: &mut Engine<P>,
        pool: &mut Pool,
        sessions: &mut Sessions,
        answers: &mut Answers,
    ) -> Step {
        if !reply.with_data {
            self.put_buffers(pool);
        }
        let Some(queue) = sessions.find(self.connection) else { return Step::Drop };
        let response = CompletionQueueEntry::new(self.command_id, queue.head(), reply.status, reply.result);
        let list;
        // Where the data goes.
        let (remote, length) = match &self.data {
            _ if !reply.with_data => (&[][..], 0),
            Data::Remote(remote) => (core::slice::from_ref(remote), remote.length),
            Data::Scattered { offset, count, length } => {
                list = remote_list(engine, self.received.as_ref(), *offset, *count);
                (&list[..], *length)
            }
            Data::None | Data::InCapsule { .. } => (&[][..], 0),
        };
        let buffer = self.buffer.as_ref().filter(|_| reply.with_data);
        let local = buffer.map(|buffer| pool.buffers().segment(buffer, length));
        let (local, message, invalidate) = (local.as_slice(), response.as_bytes(), self.invalidate);
        let request = ResponseRequest { local, remote, message, invalidate, cookie };
        if let Err(error) = engine.respond(self.connection, &request) {
            self.phase = Phase::Reply(reply);
            return not_transferred(error);
        }
        self.phase = Phase::Replying;
        queue.answered(self.command_id);
        answers.invalidations += u64::from(self.invalidate.is_some());
        answers.plain += u64::from(self.invalidate.is_none() && self.names_keys);
        if let Data::Scattered { .. } = self.data
            && let Some(received) = self.received.take()
        {
            // The engine has its own copy of the list.
            engine.release(received);
        }
        // K9: the data's buffer goes back with the post, while the device may read it again.
        if mutant!(K9_target_response) { Step::Drop } else { self.answered(reply.status) }
    }

    #[inline]
    fn answered(&self, status: Status) -> Step {
        if status.is_success() { Step::Pending } else { Step::Failed(status) }
    }
}
