//! Command capsules: from received bytes to a command's slot.

use super::Target;
use super::command::{Data, Phase, Reply, Slot, Work};
use crate::nvmf::{
    self, BROADCAST_NAMESPACE, BlockRange, COMMAND_CAPSULE_BYTES, Command, DataPointer, KeyedDataBlock, QueueKind,
    Status, SubmissionQueueEntry,
};
use crate::storage::Storage;
use frwr_engine::provider::{Port, RemoteRange};
use frwr_engine::{ConnectionId, Received, RemoteSegment};

/// What a checked command asks for: its work with its data, or the answer that is known already.
type Accepted = Result<(Work, DataPointer), Reply>;

fn refused(status: Status) -> Reply {
    Reply::of(status.do_not_retry())
}

impl<P: Port, S: Storage> Target<P, S> {
    /// A message arrived.
    pub(super) fn received(&mut self, connection: ConnectionId, received: Received) {
        let mut bytes = [0; COMMAND_CAPSULE_BYTES];
        let copied = self.engine.message(&received, 0, &mut bytes);
        let Ok((entry, _)) = nvmf::parse_command(&bytes[..copied.min(COMMAND_CAPSULE_BYTES)]) else {
            self.engine.release(received);
            // Nothing is copied where the connection has ended meanwhile.
            if self.queue_mut(connection).is_some() {
                self.protocol_error(connection);
            }
            return;
        };
        self.statistics.commands += 1;
        let in_bounds = self.queue_mut(connection).map(super::Queue::count_command);
        if in_bounds != Some(true) {
            self.engine.release(received);
            if in_bounds.is_some() {
                self.protocol_error(connection);
            }
            return;
        }
        let accepted = self.check(connection, &entry);
        self.start(connection, &entry, accepted, received);
    }

    /// Everything about a command that can be said without its data.
    fn check(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry) -> Accepted {
        let now = self.now;
        let Some(queue) = self.queue_mut(connection) else { return Err(refused(Status::INTERNAL_ERROR)) };
        let kind = if queue.asked.queue_id == nvmf::ADMIN_QUEUE { QueueKind::Admin } else { QueueKind::Io };
        let association = queue.association;
        let command = nvmf::decode(entry, kind).map_err(Reply::of)?;
        let Some(association) = association else {
            // Only Connect makes a connection a queue (Base 6.3).
            let Command::Connect(connect) = command else { return Err(refused(Status::COMMAND_SEQUENCE_ERROR)) };
            return self.check_connect(connection, connect);
        };
        let Some(Some(controller)) = self.controllers.get_mut(association.controller) else {
            return Err(refused(Status::COMMAND_SEQUENCE_ERROR));
        };
        controller.touch(now);
        match command {
            Command::Connect(_) => Err(refused(Status::COMMAND_SEQUENCE_ERROR)),
            Command::PropertyGet(get) => Err(self.property_get(association.controller, get)),
            Command::PropertySet(set) => Err(self.property_set(association.controller, set)),
            // Before CC.EN is 1, nothing else is executed (Base 3.5.1).
            _ if !controller.is_ready() => Err(refused(Status::COMMAND_SEQUENCE_ERROR)),
            Command::Identify(identify) => self.check_identify(identify),
            Command::SetFeatures(set) => Err(self.set_features(association.controller, set)),
            Command::KeepAlive => Err(Reply::result(0)),
            // Answered without a slot by `start`.
            Command::AsynchronousEventRequest => Err(refused(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED)),
            Command::Read(range) => self.check_blocks(range, true),
            Command::Write(range) => self.check_blocks(range, false),
            Command::Flush { namespace } => self.check_flush(namespace),
            _ => Err(refused(Status::INVALID_COMMAND_OPCODE)),
        }
    }

    fn check_blocks(&self, range: BlockRange, read: bool) -> Accepted {
        let index = self.namespace_index(range.namespace).ok_or(refused(Status::INVALID_NAMESPACE))?;
        let Some(namespace) = self.namespaces.get(index) else { return Err(refused(Status::INVALID_NAMESPACE)) };
        let extent = namespace.geometry().extent(range.lba, range.blocks);
        let (_, bytes) = extent.map_err(|_| refused(Status::LBA_OUT_OF_RANGE))?;
        if bytes > u64::from(self.options.buffer_bytes) {
            // Above MDTS (Base figure 275).
            return Err(refused(Status::INVALID_FIELD));
        }
        let length = match range.data {
            DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. } => length,
        };
        if u64::from(length) != bytes {
            return Err(refused(Status::DATA_SGL_LENGTH_INVALID));
        }
        let (namespace, lba, blocks) = (index, range.lba, range.blocks);
        let work = if read { Work::Read { namespace, lba, blocks } } else { Work::Write { namespace, lba, blocks } };
        Ok((work, range.data))
    }

    fn check_flush(&self, namespace: u32) -> Accepted {
        // Writes complete in memory's order, so flushing one of several namespaces stands for all of them only where
        // there is one (VWC bits 2:1 say that the broadcast identifier is supported exactly then).
        let namespace = if namespace == BROADCAST_NAMESPACE && self.namespaces.len() == 1 { 1 } else { namespace };
        let index = self.namespace_index(namespace).ok_or(refused(Status::INVALID_NAMESPACE))?;
        Ok((Work::Flush { namespace: index }, DataPointer::NONE))
    }

    /// The index of a namespace by its identifier.
    pub(super) fn namespace_index(&self, identifier: u32) -> Option<usize> {
        let index = usize::try_from(identifier.checked_sub(1)?).ok()?;
        (index < self.namespaces.len()).then_some(index)
    }

    /// Gives the command a slot and takes its first step.
    fn start(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionQueueEntry,
        accepted: Accepted,
        received: Received,
    ) {
        let asked = |block: &KeyedDataBlock| self.options.remote_invalidation && block.invalidate && block.length > 0;
        let invalidate = match DataPointer::decode(entry.data) {
            Ok(DataPointer::Keyed(block)) if asked(&block) => Some(block.key),
            _ => None,
        };
        if self.keeps_event_request(connection, entry) {
            self.engine.release(received);
            return;
        }
        // There are slots for all entries of all queues, so none is missing unless a host overran its queue.
        if self.slots.is_full() {
            self.engine.release(received);
            return self.protocol_error(connection);
        }
        let checked = accepted.and_then(|(work, pointer)| {
            let data = self.locate(&work, pointer, &received)?;
            Ok((work, data))
        });
        let mut kept = Some(received);
        let (work, data, phase) = match checked {
            Err(reply) => (Work::Nothing, Data::None, Phase::Reply(reply)),
            Ok((work @ Work::Flush { .. }, _)) => (work, Data::None, work.first_phase()),
            Ok((work, Located::Remote(remote))) => (work, Data::Remote(remote), Phase::TakeBuffer),
            Ok((work, Located::InCapsule { offset, length })) => match kept.take() {
                Some(received) => (work, Data::InCapsule { received, offset, length }, Phase::TakeBuffer),
                None => (Work::Nothing, Data::None, Phase::Reply(refused(Status::INTERNAL_ERROR))),
            },
        };
        if let Some(received) = kept {
            self.engine.release(received);
        }
        let slot = Slot { connection, command_id: entry.command_id.get(), invalidate, work, data, buffer: None, phase };
        let in_order = matches!(slot.phase, Phase::TakeBuffer) && !self.waiting.is_empty();
        let Some(index) = self.slots.insert(slot) else { return self.protocol_error(connection) };
        if in_order {
            self.statistics.buffer_waits += 1;
            self.waiting.push_back(index);
        } else {
            self.advance(index);
        }
    }

    /// Where a command's data lies, checked against what the peer sent.
    fn locate(&self, work: &Work, pointer: DataPointer, received: &Received) -> Result<Located, Reply> {
        match pointer {
            DataPointer::Keyed(KeyedDataBlock { address, length, key, .. }) => {
                Ok(Located::Remote(RemoteSegment { remote: RemoteRange { address, key }, length }))
            }
            DataPointer::InCapsule { offset, length } => {
                // Data towards the host has no place in a capsule.
                if !matches!(work, Work::Write { .. }) {
                    return Err(refused(Status::SGL_DESCRIPTOR_TYPE_INVALID));
                }
                let behind = (received.length() as usize).saturating_sub(COMMAND_CAPSULE_BYTES);
                let available = behind.min(self.options.in_capsule_bytes as usize);
                let range = nvmf::in_capsule_data(offset, length, available).map_err(Reply::of)?;
                // The range ends below the engine's message size, which is 32 bit.
                let offset = (COMMAND_CAPSULE_BYTES + range.start) as u32;
                Ok(Located::InCapsule { offset, length })
            }
        }
    }

    /// Keeps a controller's one Asynchronous Event Request: there are no events to report, so it is never answered.
    fn keeps_event_request(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry) -> bool {
        let Some(queue) = self.queue_mut(connection) else { return false };
        let Some(association) = queue.association else { return false };
        let admin = queue.asked.queue_id == nvmf::ADMIN_QUEUE;
        if !admin || nvmf::decode(entry, QueueKind::Admin) != Ok(Command::AsynchronousEventRequest) {
            return false;
        }
        let Some(Some(controller)) = self.controllers.get_mut(association.controller) else { return false };
        controller.is_ready() && !core::mem::replace(&mut controller.awaits_event, true)
    }
}

/// Where data lies, before the receive's ownership is settled.
enum Located {
    Remote(RemoteSegment),
    InCapsule { offset: u32, length: u32 },
}
