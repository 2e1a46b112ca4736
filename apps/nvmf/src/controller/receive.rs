//! Command capsules: from received bytes to a command's slot.

use super::Target;
use super::breach::RefusedCommand;
use super::commands::{Data, Slot, listed};
use super::incident::Fault;
use super::opcodes::{self, Accepted, Arrival, Checks};
use super::options::MAX_DATA_BLOCKS;
use super::session::Queue;
use super::work::{Phase, Reply, Work, refused};
use crate::storage::Storage;
use crate::wire::{
    self, BlockRange, COMMAND_CAPSULE_BYTES, Command, DataPointer, KeyedDataBlock, QueueKind, SGL_DESCRIPTOR_BYTES,
    Status, SubmissionQueueEntry, opcode,
};
use frwr_engine::provider::{Port, RemoteRange};
use frwr_engine::{ConnectionId, MAX_TRANSFER_OPERATIONS, Received, RemoteSegment};
use frwr_mempool::mutant;
use zerocopy::{FromZeros, IntoBytes};

/// A list of keyed data blocks in a capsule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scattered {
    /// Where the list starts in the capsule.
    offset: u32,
    count: u32,
    /// The first key that the host invites to invalidate: a response can do it for one.
    invalidate: Option<u32>,
}

/// A command that can be executed, but for what only its partner or its data say.
pub(super) struct Weighed {
    /// With one data block in place of a list.
    pub(super) entry: SubmissionQueueEntry,
    pub(super) work: Work,
    pub(super) pointer: DataPointer,
    pub(super) scattered: Option<Scattered>,
}

impl<P: Port, S: Storage> Target<P, S> {
    /// A message arrived.
    #[inline]
    pub(super) fn received(&mut self, connection: ConnectionId, received: Received) {
        let mut entry = SubmissionQueueEntry::new_zeroed();
        if self.engine.message(&received, 0, entry.as_mut_bytes()) < COMMAND_CAPSULE_BYTES {
            let bytes = received.length();
            // Nothing is copied where the connection has ended meanwhile: then it is no queue's.
            return self.breaks_protocol(connection, received, Fault::ShortCapsule { bytes });
        }
        let (controllers, command_id) = (&mut self.controllers, entry.command_id.get());
        let forgets = || {
            let is_event_request = entry.opcode == opcode::ASYNCHRONOUS_EVENT_REQUEST;
            !is_event_request && controllers.forgets_event_request(connection, command_id)
        };
        let (is_admin, association) = match self.sessions.admit(connection, command_id, forgets) {
            Ok(Some(of)) => of,
            Ok(None) => return self.received_locked(connection, &entry, received),
            Err(fault) => return self.breaks_protocol(connection, received, fault),
        };
        let arrival = Arrival { connection, entry: &entry, is_admin, association };
        if entry.flags != SubmissionQueueEntry::FLAGS_SGL || !self.firsts.is_empty() {
            return self.received_beside_fused(&arrival, received);
        }
        self.received_alone(&arrival, received);
    }

    /// A command that is executed for itself.
    #[inline(never)]
    pub(super) fn received_alone(&mut self, arrival: &Arrival<'_>, received: Received) {
        if wire::last_segment(arrival.entry.data).is_some() {
            return self.received_with_list(arrival, received);
        }
        let accepted = self.check(arrival);
        self.start_at_once(arrival, accepted, None, received);
    }

    /// The same of one whose data blocks are listed in its capsule.
    #[inline(never)]
    fn received_with_list(&mut self, arrival: &Arrival<'_>, received: Received) {
        match self.gather_list(arrival, &received) {
            Ok((entry, scattered)) => {
                let arrival = Arrival { entry: &entry, ..*arrival };
                let accepted = self.check(&arrival);
                self.start(&arrival, accepted, scattered, received);
            }
            Err(status) => self.start(arrival, Err(refused(status)), None, received),
        }
    }

    /// All that can be said of a command without its data, and where that lies; nothing is begun.
    #[cold]
    pub(super) fn weigh(&mut self, arrival: &Arrival<'_>, received: &Received) -> Result<Weighed, Reply> {
        let (entry, scattered) = self.gather_list(arrival, received).map_err(refused)?;
        let (work, pointer) = self.check(&Arrival { entry: &entry, ..*arrival })?;
        self.locate(&work, pointer, scattered, received)?;
        Ok(Weighed { entry, work, pointer, scattered })
    }

    #[inline(always)]
    fn check(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let mut checks = Checks {
            engine: &self.engine,
            options: &self.options,
            sessions: &mut self.sessions,
            controllers: &mut self.controllers,
            spread: &mut self.spread,
            subsystems: &self.subsystems,
            media: &self.media,
            now: self.clock.watched(),
        };
        opcodes::check(&mut checks, arrival)
    }

    /// A command of a queue that takes none: it drains or ends, or its host has to prove itself first.
    #[cold]
    fn received_locked(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry, received: Received) {
        let command_id = entry.command_id.get();
        let (is_admin, association) = match self.sessions.admit_locked(connection, command_id) {
            Ok(Some(of)) => of,
            Ok(None) => return self.received_draining(connection, entry, received),
            Err(fault) => return self.breaks_protocol(connection, received, fault),
        };
        let arrival = Arrival { connection, entry, is_admin, association };
        if opcodes::is_authentication(entry) {
            let accepted = self.check(&arrival);
            return self.start(&arrival, accepted, None, received);
        }
        if self.commands.is_full() {
            let entries = self.sessions.get(connection).map_or(0, Queue::entries);
            return self.breaks_protocol(connection, received, Fault::Overrun { entries });
        }
        self.engine.release(received);
        self.commands.answer_without(connection, command_id, refused(Status::AUTHENTICATION_REQUIRED));
        self.go_on();
    }

    /// A command of a queue that drains. Its host has to hear that nobody executes it, since a change that may still be executed goes
    /// nowhere else. Those of a queue that ends are not looked at.
    #[cold]
    fn received_draining(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry, received: Received) {
        if mutant!(target_drain_unanswered) {
            return self.engine.release(received);
        }
        let (is_admin, association) = match self.sessions.admit_draining(connection, entry.command_id.get()) {
            Ok(Some(of)) => of,
            Ok(None) => return self.engine.release(received),
            Err(fault) => return self.breaks_protocol(connection, received, fault),
        };
        let arrival = Arrival { connection, entry, is_admin, association };
        if entry.opcode == opcode::FABRICS {
            // Of the queue, and of no namespace.
            let accepted = self.check(&arrival);
            return self.start(&arrival, accepted, None, received);
        }
        // In front of the second command of its pair.
        self.expire_firsts();
        let addressed = self.controllers.addressed(arrival.place(), self.clock.watched());
        let reply = addressed.err().unwrap_or(Reply::of(Status::ANA_INACCESSIBLE));
        // For the keys that it names.
        let (entry, scattered) = self.gather_list(&arrival, &received).unwrap_or((*entry, None));
        self.start(&Arrival { entry: &entry, ..arrival }, Err(reply), scattered, received);
    }

    #[cold]
    fn breaks_protocol(&mut self, connection: ConnectionId, received: Received, fault: Fault) {
        self.engine.release(received);
        self.sessions.protocol_error(connection, fault, &mut self.engine);
    }

    /// Reads the list of a command, where its data pointer is a last segment. The command is then one with a single data
    /// block of as many bytes in its place, so that all checks are the same.
    #[cold]
    fn gather_list(
        &self,
        arrival: &Arrival<'_>,
        received: &Received,
    ) -> Result<(SubmissionQueueEntry, Option<Scattered>), Status> {
        let Some((offset, bytes)) = wire::last_segment(arrival.entry.data) else { return Ok((*arrival.entry, None)) };
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
        Ok((arrival.entry.with_data(DataPointer::Keyed(whole))?, Some(list)))
    }

    /// Gives the command a slot and takes its first step.
    #[inline(never)]
    pub(super) fn start(
        &mut self,
        arrival: &Arrival<'_>,
        accepted: Accepted,
        scattered: Option<Scattered>,
        received: Received,
    ) {
        self.start_at_once(arrival, accepted, scattered, received);
    }

    /// The same where the command came with nothing unusual, which is known to the compiler then.
    #[inline(always)]
    fn start_at_once(
        &mut self,
        arrival: &Arrival<'_>,
        accepted: Accepted,
        scattered: Option<Scattered>,
        received: Received,
    ) {
        if self.keeps_event_request(arrival) {
            return self.engine.release(received);
        }
        let Some(index) = self.seat(arrival, accepted, scattered, received) else { return };
        if self.pool.is_awaited() && self.waits_in_order(index) {
            self.commands.wait_for_buffer(index, &mut self.pool);
        } else {
            self.first_steps(index);
        }
    }

    /// A command that wants a buffer next is not to overtake those that wait for theirs.
    #[cold]
    fn waits_in_order(&self, index: u32) -> bool {
        let waits = |slot: &Slot| matches!(slot.phase(), Phase::TakeBuffer) && self.pool.has_to_wait(&slot.work());
        self.commands.get(index).is_some_and(waits)
    }

    /// Gives the command a slot. There is one for it, unless it breaks the protocol.
    #[inline(always)]
    pub(super) fn seat(
        &mut self,
        arrival: &Arrival<'_>,
        accepted: Accepted,
        scattered: Option<Scattered>,
        received: Received,
    ) -> Option<u32> {
        let Arrival { connection, entry, .. } = *arrival;
        // There are slots for all entries of all queues, so none is missing unless a host overran its queue.
        if self.commands.is_full() {
            let entries = self.sessions.get(connection).map_or(0, Queue::entries);
            self.breaks_protocol(connection, received, Fault::Overrun { entries });
            return None;
        }
        let located = accepted
            .and_then(|(work, pointer)| Ok((work, pointer, self.locate(&work, pointer, scattered, &received)?)));
        let (work, pointer, data) = match located {
            Ok(located) => located,
            Err(reply) => return self.seat_answered(arrival, reply, scattered, received),
        };
        let (pointer, phase) = match data {
            Data::None => (DataPointer::decode(entry.data).ok(), work.first_phase()),
            _ => (Some(pointer), Phase::TakeBuffer),
        };
        let (invalidate, names_keys) = self.named_keys(pointer, scattered);
        let commit_first = entry.forces_unit_access() && self.reads_cached(&work);
        let durable = work.is_written() && self.is_durable(arrival);
        let slot = Slot::new(connection, entry.command_id.get(), work, data, self.clock.nanoseconds()).at(phase);
        let slot = slot.naming(invalidate, names_keys, entry.namespace.get()).hardened(durable, commit_first);
        let index = self.commands.insert(slot)?;
        match data {
            Data::Scattered { .. } | Data::InCapsule { .. } => self.commands.keep(index, received),
            Data::None | Data::Remote(_) => self.engine.release(received),
        }
        Some(index)
    }

    /// The same of one whose answer is known at once. Some of these are no refusals.
    #[cold]
    fn seat_answered(
        &mut self,
        arrival: &Arrival<'_>,
        reply: Reply,
        scattered: Option<Scattered>,
        received: Received,
    ) -> Option<u32> {
        let Arrival { connection, entry, .. } = *arrival;
        if !reply.status.is_success() {
            self.note_refused(arrival, received.length(), reply.status);
        }
        self.engine.release(received);
        let (invalidate, names_keys) = self.named_keys(DataPointer::decode(entry.data).ok(), scattered);
        let slot = Slot::new(connection, entry.command_id.get(), Work::Nothing, Data::None, self.clock.nanoseconds());
        let slot = slot.at(Phase::Reply(reply)).naming(invalidate, names_keys, entry.namespace.get());
        self.commands.insert(slot)
    }

    /// Notes a command that was refused, where no correct host has it refused for this.
    #[cold]
    fn note_refused(&mut self, arrival: &Arrival<'_>, length: u32, status: Status) {
        let Arrival { connection, entry, is_admin, .. } = *arrival;
        let place = arrival.place();
        let refused = RefusedCommand { entry, length, status, is_admin, is_of_queue: place.is_some() };
        let subsystem = place.and_then(|place| self.controllers.get(place)?.subsystem());
        let subsystem = subsystem.and_then(|index| self.subsystems.get(index));
        let bytes_of = |range: &BlockRange| {
            let (_, medium) = opcodes::usable(&self.media, subsystem, range.namespace).ok()?;
            Some(u64::from(range.blocks) * u64::from(medium.geometry().block_bytes()))
        };
        if let Some(breach) = refused.breach(&self.options, bytes_of) {
            self.sessions.note(connection, Fault::Refused { opcode: entry.opcode, status, breach });
        }
    }

    /// The key that the response invalidates, because the host asked for it (RDMA 3.2), and whether the command names any: a host
    /// kills the others itself, whatever becomes of the command.
    #[inline]
    fn named_keys(&self, pointer: Option<DataPointer>, scattered: Option<Scattered>) -> (Option<u32>, bool) {
        let (invited, named) = match (scattered, pointer) {
            (Some(list), _) => (list.invalidate, true),
            (None, Some(DataPointer::Keyed(block))) if block.length > 0 => {
                (block.invalidate.then_some(block.key), true)
            }
            _ => (None, false),
        };
        (invited.filter(|_| self.options.remote_invalidation), named)
    }

    /// The host wants a write on the medium before it is answered: FUA, or no write cache.
    fn is_durable(&self, arrival: &Arrival<'_>) -> bool {
        let controller = arrival.place().and_then(|place| self.controllers.get(place));
        arrival.entry.forces_unit_access() || controller.is_some_and(|found| !found.features().has_write_cache())
    }

    /// It reads blocks of which a volatile cache may hold what is not on the medium. With FUA that is committed first (NVM 3.2.4),
    /// whichever host has written it.
    fn reads_cached(&self, work: &Work) -> bool {
        work.reads().is_some_and(|namespace| self.media.is_cached(namespace))
    }

    /// Where a command's data lies, checked against what the peer sent.
    #[inline]
    fn locate(
        &self,
        work: &Work,
        pointer: DataPointer,
        scattered: Option<Scattered>,
        received: &Received,
    ) -> Result<Data, Reply> {
        match pointer {
            _ if work.is_without_data() => Ok(Data::None),
            DataPointer::Keyed(KeyedDataBlock { address, length, key, .. }) => Ok(match scattered {
                Some(Scattered { offset, count, .. }) => Data::Scattered { offset, count, length },
                None => Data::Remote(RemoteSegment { remote: RemoteRange { address, key }, length }),
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
                Ok(Data::InCapsule { offset, length })
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
        let (Some(place), entry) = (arrival.place(), arrival.entry) else { return false };
        if wire::decode(entry, QueueKind::Admin) != Ok(Command::AsynchronousEventRequest) {
            return false;
        }
        let kept = self.controllers.keep_event_request(place, entry.command_id.get(), &mut self.commands);
        self.go_on();
        kept
    }
}

const _: () = assert!(MAX_DATA_BLOCKS as usize <= MAX_TRANSFER_OPERATIONS);
