//! Command capsules: from received bytes to a command's slot.

use super::Target;
use super::command::{Data, Phase, Reply, Slot, Work};
use super::incident::Fault;
use super::session::find_queue;
use super::table::{Accepted, Arrival};
use crate::storage::Storage;
use crate::wire::{
    self, COMMAND_CAPSULE_BYTES, Command, DataPointer, KeyedDataBlock, QueueKind, SGL_DESCRIPTOR_BYTES, Status,
    SubmissionQueueEntry, opcode,
};
use frwr_engine::provider::{Port, RemoteRange};
use frwr_engine::{ConnectionId, Engine, MAX_TRANSFER_OPERATIONS, Received, RemoteSegment};
use zerocopy::{FromZeros, IntoBytes};

pub(super) fn refused(status: Status) -> Reply {
    Reply::of(status.do_not_retry())
}

/// A list of keyed data blocks in a capsule.
#[derive(Clone, Copy, Debug)]
struct Scattered {
    /// Where the list starts in the capsule.
    offset: u32,
    count: u32,
    /// The first key that the host invites to invalidate: a response can do it for one.
    invalidate: Option<u32>,
}

/// A data block of a list in a capsule; `None` where it is something else, or the connection has ended.
pub(super) fn listed<P: Port>(engine: &Engine<P>, received: &Received, list: u32, at: u32) -> Option<KeyedDataBlock> {
    let mut bytes = [0; SGL_DESCRIPTOR_BYTES];
    let offset = list + at * SGL_DESCRIPTOR_BYTES as u32;
    let copied = engine.message(received, offset, &mut bytes);
    match DataPointer::decode(bytes) {
        Ok(DataPointer::Keyed(block)) if copied == bytes.len() => Some(block),
        _ => None,
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// A message arrived.
    pub(super) fn received(&mut self, connection: ConnectionId, received: Received) {
        let mut entry = SubmissionQueueEntry::new_zeroed();
        if self.engine.message(&received, 0, entry.as_mut_bytes()) < COMMAND_CAPSULE_BYTES {
            let bytes = received.length();
            self.engine.release(received);
            // Nothing is copied where the connection has ended meanwhile: then it is no queue's.
            return self.protocol_error(connection, Fault::ShortCapsule { bytes });
        }
        let Some(queue) = find_queue(&mut self.queues, connection).filter(|queue| !queue.doomed) else {
            return self.engine.release(received);
        };
        let (is_admin, association) = (queue.asked.queue_id == wire::ADMIN_QUEUE, queue.association);
        self.statistics.commands += 1;
        if let Err(fault) = self.admit_command(connection, &entry) {
            self.engine.release(received);
            return self.protocol_error(connection, fault);
        }
        let mut arrival = Arrival { connection, entry: &entry, is_admin, association };
        let (whole, scattered);
        match self.gather_list(&arrival, &received) {
            Ok(None) => scattered = None,
            Ok(Some((entry, list))) => {
                (whole, scattered) = (entry, Some(list));
                arrival.entry = &whole;
            }
            Err(status) => return self.start(&arrival, Err(refused(status)), None, received),
        }
        let accepted = self.check(&arrival);
        self.start(&arrival, accepted, scattered, received);
    }

    /// Reads the list of a command whose data pointer is a last segment. The command is then one with a single data
    /// block of as many bytes in its place, so that all checks are the same.
    #[inline]
    fn gather_list(
        &self,
        arrival: &Arrival<'_>,
        received: &Received,
    ) -> Result<Option<(SubmissionQueueEntry, Scattered)>, Status> {
        match wire::last_segment(arrival.entry.data) {
            None => Ok(None),
            Some((offset, bytes)) => self.gather_blocks(arrival, received, offset, bytes).map(Some),
        }
    }

    #[cold]
    fn gather_blocks(
        &self,
        arrival: &Arrival<'_>,
        received: &Received,
        offset: u64,
        bytes: u32,
    ) -> Result<(SubmissionQueueEntry, Scattered), Status> {
        if arrival.is_admin || self.options.data_blocks == 1 {
            return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID);
        }
        let behind = (received.length() as usize).saturating_sub(COMMAND_CAPSULE_BYTES);
        let range = wire::in_capsule_data(offset, bytes, behind.min(self.options.in_capsule_bytes as usize))?;
        let count = range.len() / SGL_DESCRIPTOR_BYTES;
        if !range.len().is_multiple_of(SGL_DESCRIPTOR_BYTES) || count == 0 {
            return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
        }
        if count > usize::from(self.options.data_blocks) {
            return Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
        }
        // It ends in the message, whose size is 32 bit; and there are at most MAX_TRANSFER_OPERATIONS.
        let mut list =
            Scattered { offset: (COMMAND_CAPSULE_BYTES + range.start) as u32, count: count as u32, invalidate: None };
        let mut total = 0_u32;
        for at in 0..list.count {
            let block = listed(&self.engine, received, list.offset, at).ok_or(Status::SGL_DESCRIPTOR_TYPE_INVALID)?;
            if block.length == 0 {
                return Err(Status::DATA_SGL_LENGTH_INVALID);
            }
            total = total.checked_add(block.length).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
            list.invalidate = list.invalidate.or(block.invalidate.then_some(block.key));
        }
        let whole = KeyedDataBlock { address: 0, length: total, key: 0, invalidate: false };
        Ok((arrival.entry.with_data(DataPointer::Keyed(whole))?, list))
    }

    /// Gives the command a slot and takes its first step.
    fn start(&mut self, arrival: &Arrival<'_>, accepted: Accepted, scattered: Option<Scattered>, received: Received) {
        let Arrival { connection, entry, .. } = *arrival;
        if self.keeps_event_request(arrival) {
            return self.engine.release(received);
        }
        // There are slots for all entries of all queues, so none is missing unless a host overran its queue.
        if self.slots.is_full() {
            self.engine.release(received);
            return self.overran(connection);
        }
        let located =
            accepted.and_then(|(work, pointer)| Ok((work, self.locate(&work, pointer, scattered, &received)?)));
        let (work, data, phase) = match located {
            Err(reply) => {
                // Some answers are known at once, and are no refusals.
                if !reply.status.is_success() {
                    self.note_refused(connection, entry, received.length(), reply.status);
                }
                self.engine.release(received);
                (Work::Nothing, Data::None, Phase::Reply(reply))
            }
            Ok((work, _)) if work.is_without_data() => {
                self.engine.release(received);
                (work, Data::None, work.first_phase())
            }
            Ok((work, Located::Remote(remote))) => {
                self.engine.release(received);
                (work, Data::Remote(remote), Phase::TakeBuffer)
            }
            Ok((work, located)) => (work, located.keeping(received), Phase::TakeBuffer),
        };
        let (invalidate, names_keys) = self.named_keys(entry, scattered);
        let commit_first = entry.forces_unit_access() && self.reads_cached(&work);
        let durable = work.is_written() && self.is_durable(arrival);
        let in_order = matches!(phase, Phase::TakeBuffer) && self.has_to_wait(&work);
        let Some((index, place)) = self.slots.reserve() else { return self.overran(connection) };
        *place = Some(Slot {
            invalidate,
            names_keys,
            namespace: entry.namespace.get(),
            durable,
            commit_first,
            phase,
            ..Slot::new(connection, entry.command_id.get(), work, data)
        });
        if in_order {
            self.wait_for_buffer(index);
        } else {
            self.advance(index);
        }
    }

    #[cold]
    fn overran(&mut self, connection: ConnectionId) {
        let entries = self.queue_mut(connection).map_or(0, |queue| queue.entries());
        self.protocol_error(connection, Fault::Overrun { entries });
    }

    /// The key that the response invalidates, because the host asked for it (RDMA 3.2), and whether the command names any: a host
    /// kills the others itself, whatever becomes of the command.
    fn named_keys(&self, entry: &SubmissionQueueEntry, scattered: Option<Scattered>) -> (Option<u32>, bool) {
        let (invited, named) = match scattered {
            Some(list) => (list.invalidate, true),
            None => match DataPointer::decode(entry.data) {
                Ok(DataPointer::Keyed(block)) if block.length > 0 => (block.invalidate.then_some(block.key), true),
                _ => (None, false),
            },
        };
        (invited.filter(|_| self.options.remote_invalidation), named)
    }

    /// The host wants a write on the medium before it is answered: FUA, or no write cache.
    fn is_durable(&self, arrival: &Arrival<'_>) -> bool {
        let controller = arrival.association.and_then(|of| self.controllers.get(of.controller)?.as_ref());
        arrival.entry.forces_unit_access() || controller.is_some_and(|controller| !controller.features.write_cache)
    }

    /// It reads blocks of which a volatile cache may hold what is not on the medium. With FUA that is committed first (NVM 3.2.4),
    /// whichever host has written it.
    fn reads_cached(&self, work: &Work) -> bool {
        let (Work::Read { namespace, .. } | Work::Compare { namespace, .. }) = *work else { return false };
        self.namespaces.get(namespace).is_some_and(|namespace| namespace.storage.features().is_cached())
    }

    /// Where a command's data lies, checked against what the peer sent.
    fn locate(
        &self,
        work: &Work,
        pointer: DataPointer,
        scattered: Option<Scattered>,
        received: &Received,
    ) -> Result<Located, Reply> {
        match pointer {
            DataPointer::Keyed(KeyedDataBlock { address, length, key, .. }) => Ok(match scattered {
                Some(Scattered { offset, count, .. }) => Located::Scattered { offset, count, length },
                None => Located::Remote(RemoteSegment { remote: RemoteRange { address, key }, length }),
            }),
            DataPointer::InCapsule { offset, length } => {
                // Data towards the host has no place in a capsule.
                if !work.takes_in_capsule_data() {
                    return Err(refused(Status::SGL_DESCRIPTOR_TYPE_INVALID));
                }
                let behind = (received.length() as usize).saturating_sub(COMMAND_CAPSULE_BYTES);
                let available = behind.min(self.options.in_capsule_bytes as usize);
                let range = wire::in_capsule_data(offset, length, available).map_err(Reply::of)?;
                // The range ends below the engine's message size, which is 32 bit.
                let offset = (COMMAND_CAPSULE_BYTES + range.start) as u32;
                Ok(Located::InCapsule { offset, length })
            }
        }
    }

    /// Keeps an Asynchronous Event Request until there is an event. False where it is none, or too many wait.
    #[inline]
    fn keeps_event_request(&mut self, arrival: &Arrival<'_>) -> bool {
        let is_one = arrival.is_admin && arrival.entry.opcode == opcode::ASYNCHRONOUS_EVENT_REQUEST;
        is_one && self.keep_event_request(arrival)
    }

    fn keep_event_request(&mut self, arrival: &Arrival<'_>) -> bool {
        let (Some(association), entry) = (arrival.association, arrival.entry) else { return false };
        if wire::decode(entry, QueueKind::Admin) != Ok(Command::AsynchronousEventRequest) {
            return false;
        }
        let Some(Some(controller)) = self.controllers.get_mut(association.controller) else { return false };
        if !controller.is_ready() || !controller.events.keep(entry.command_id.get()) {
            return false;
        }
        self.tell(association.controller);
        true
    }
}

const _: () = assert!(super::MAX_DATA_BLOCKS as usize <= MAX_TRANSFER_OPERATIONS);

/// Where data lies, before the receive's ownership is settled.
#[derive(Clone, Copy)]
enum Located {
    Remote(RemoteSegment),
    Scattered { offset: u32, count: u32, length: u32 },
    InCapsule { offset: u32, length: u32 },
}

impl Located {
    /// With the capsule that it lies in.
    fn keeping(self, received: Received) -> Data {
        match self {
            Self::Remote(remote) => Data::Remote(remote),
            Self::Scattered { offset, count, length } => Data::Scattered { received, offset, count, length },
            Self::InCapsule { offset, length } => Data::InCapsule { received, offset, length },
        }
    }
}
