//! Command capsules: from received bytes to a command's slot.

use super::Target;
use super::command::{Data, Phase, Reply, Slot, Work};
use super::controllers::Controller;
use super::identify::MAX_WRITE_ZEROES_BYTES;
use super::incident::Fault;
use crate::storage::Storage;
use crate::wire::{
    self, AnaState, BROADCAST_NAMESPACE, BlockRange, COMMAND_CAPSULE_BYTES, Command, DATASET_RANGE_BYTES, DataPointer,
    DatasetManagement, KeyedDataBlock, MAX_DATASET_RANGES, QueueKind, SGL_DESCRIPTOR_BYTES, Status,
    SubmissionQueueEntry, WriteZeroes,
};
use frwr_engine::provider::{Port, RemoteRange};
use frwr_engine::{ConnectionId, MAX_TRANSFER_OPERATIONS, Received, RemoteSegment};

/// What a checked command asks for: its work with its data, or the answer that is known already.
pub(super) type Accepted = Result<(Work, DataPointer), Reply>;

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

impl<P: Port, S: Storage> Target<P, S> {
    /// A message arrived.
    pub(super) fn received(&mut self, connection: ConnectionId, received: Received) {
        let mut capsule = [0; COMMAND_CAPSULE_BYTES];
        let (copied, bytes) = (self.engine.message(&received, 0, &mut capsule), received.length());
        let Ok((entry, _)) = wire::parse_command(&capsule[..copied.min(COMMAND_CAPSULE_BYTES)]) else {
            self.engine.release(received);
            // Nothing is copied where the connection has ended meanwhile: then it is no queue's.
            return self.protocol_error(connection, Fault::ShortCapsule { bytes });
        };
        if self.queue_mut(connection).is_none_or(|queue| queue.doomed) {
            return self.engine.release(received);
        }
        self.statistics.commands += 1;
        if let Err(fault) = self.admit_command(connection, &entry) {
            self.engine.release(received);
            return self.protocol_error(connection, fault);
        }
        let mut entry = entry;
        let scattered = match self.gather_list(connection, &mut entry, &received) {
            Ok(scattered) => scattered,
            Err(status) => return self.start(connection, &entry, Err(refused(status)), None, received),
        };
        let accepted = self.check(connection, &entry);
        self.start(connection, &entry, accepted, scattered, received);
    }

    /// Reads the list of a command whose data pointer is a last segment, and gives the entry a single data block of as
    /// many bytes in its place, so that all checks are the same.
    fn gather_list(
        &mut self,
        connection: ConnectionId,
        entry: &mut SubmissionQueueEntry,
        received: &Received,
    ) -> Result<Option<Scattered>, Status> {
        let Some((offset, bytes)) = wire::last_segment(entry.data) else { return Ok(None) };
        let io = self.queue_mut(connection).is_some_and(|queue| queue.asked.queue_id != wire::ADMIN_QUEUE);
        if !io || self.options.data_blocks == 1 {
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
            let block = self.listed(received, list.offset, at).ok_or(Status::SGL_DESCRIPTOR_TYPE_INVALID)?;
            if block.length == 0 {
                return Err(Status::DATA_SGL_LENGTH_INVALID);
            }
            total = total.checked_add(block.length).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
            list.invalidate = list.invalidate.or(block.invalidate.then_some(block.key));
        }
        let whole = KeyedDataBlock { address: 0, length: total, key: 0, invalidate: false };
        entry.data = DataPointer::Keyed(whole).encode()?;
        Ok(Some(list))
    }

    /// A data block of a list in a capsule; `None` where it is something else, or the connection has ended.
    pub(super) fn listed(&self, received: &Received, list: u32, at: u32) -> Option<KeyedDataBlock> {
        let mut bytes = [0; SGL_DESCRIPTOR_BYTES];
        let offset = list + at * SGL_DESCRIPTOR_BYTES as u32;
        let copied = self.engine.message(received, offset, &mut bytes);
        match DataPointer::decode(bytes) {
            Ok(DataPointer::Keyed(block)) if copied == bytes.len() => Some(block),
            _ => None,
        }
    }

    /// Everything about a command that can be said without its data.
    fn check(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry) -> Accepted {
        let now = self.watched;
        let Some(queue) = self.queue_mut(connection) else { return Err(refused(Status::INTERNAL_ERROR)) };
        let kind = if queue.asked.queue_id == wire::ADMIN_QUEUE { QueueKind::Admin } else { QueueKind::Io };
        let association = queue.association;
        let command = wire::decode(entry, kind).map_err(Reply::of)?;
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
            Command::Identify(identify) => self.check_identify(association.controller, identify, entry),
            Command::SetFeatures(set) => self.set_features(association.controller, set),
            Command::GetFeatures(get) => self.get_features(association.controller, get),
            Command::GetLogPage(get) => self.check_log_page(association.controller, get),
            Command::Abort(abort) => self.abort(association.controller, abort),
            Command::KeepAlive => Err(Reply::result(0)),
            // Those that wait are kept by `start`, and need no slot.
            Command::AsynchronousEventRequest => Err(refused(Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED)),
            io => self.check_io(association.controller, io),
        }
    }

    /// A command of an I/O queue.
    fn check_io(&self, controller: usize, command: Command) -> Accepted {
        match command {
            Command::Read(range) => self.check_blocks(controller, command, range),
            Command::Write(range) => self.check_blocks(controller, command, range),
            Command::Compare(range) => self.check_blocks(controller, command, range),
            Command::WriteZeroes(zeroes) => self.check_write_zeroes(controller, zeroes),
            Command::DatasetManagement(ranges) => self.check_dataset(controller, ranges),
            Command::Flush { namespace } => self.check_flush(controller, namespace),
            _ => Err(refused(Status::INVALID_COMMAND_OPCODE)),
        }
    }

    /// The namespace that a command of an I/O queue names, by its index and its storage.
    pub(super) fn usable(&self, controller: usize, identifier: u32) -> Result<(usize, &S), Reply> {
        let subsystem = self.subsystem_of(controller).ok_or(refused(Status::INVALID_NAMESPACE))?;
        let index = subsystem.index(identifier).ok_or(refused(Status::INVALID_NAMESPACE))?;
        let namespace = self.namespaces.get(index).ok_or(refused(Status::INVALID_NAMESPACE))?;
        // An inactive identifier (Base 3.2.1.4).
        if !namespace.active {
            return Err(refused(Status::INVALID_FIELD));
        }
        // Hosts try again elsewhere, or later (Base 8.1.3).
        match subsystem.ana {
            AnaState::Optimized | AnaState::NonOptimized => Ok((index, &namespace.storage)),
            AnaState::Inaccessible => Err(Reply::of(Status::ANA_INACCESSIBLE)),
            AnaState::PersistentLoss => Err(Reply::of(Status::ANA_PERSISTENT_LOSS)),
            AnaState::Change => Err(Reply::of(Status::ANA_TRANSITION)),
        }
    }

    /// The same for a command that changes blocks: refused before any data moves where they cannot be changed.
    fn writable(&self, controller: usize, identifier: u32) -> Result<(usize, &S), Reply> {
        let (index, storage) = self.usable(controller, identifier)?;
        if storage.features().read_only {
            return Err(refused(Status::NAMESPACE_IS_WRITE_PROTECTED));
        }
        Ok((index, storage))
    }

    fn check_blocks(&self, controller: usize, command: Command, range: BlockRange) -> Accepted {
        let (namespace, storage) = match command {
            Command::Write(_) => self.writable(controller, range.namespace)?,
            _ => self.usable(controller, range.namespace)?,
        };
        let extent = storage.geometry().extent(range.lba, range.blocks);
        let (_, bytes) = extent.map_err(|_| refused(Status::LBA_OUT_OF_RANGE))?;
        if bytes > u64::from(self.options.buffer_bytes) {
            // Above MDTS (Base figure 275).
            return Err(refused(Status::INVALID_FIELD));
        }
        if u64::from(length_of(range.data)) != bytes {
            return Err(refused(Status::DATA_SGL_LENGTH_INVALID));
        }
        let (lba, blocks) = (range.lba, range.blocks);
        let work = match command {
            Command::Read(_) => Work::Read { namespace, lba, blocks },
            Command::Write(_) => Work::Write { namespace, lba, blocks },
            _ => Work::Compare { namespace, lba, blocks },
        };
        Ok((work, range.data))
    }

    fn check_write_zeroes(&self, controller: usize, zeroes: WriteZeroes) -> Accepted {
        let WriteZeroes { lba, blocks, deallocate, .. } = zeroes;
        let (namespace, storage) = self.writable(controller, zeroes.namespace)?;
        if !self.offers(controller, |offered| offered.write_zeroes) {
            return Err(refused(Status::INVALID_COMMAND_OPCODE));
        }
        let extent = storage.geometry().extent(lba, blocks);
        let (_, bytes) = extent.map_err(|_| refused(Status::LBA_OUT_OF_RANGE))?;
        if bytes > MAX_WRITE_ZEROES_BYTES {
            // Above WZSL (NVM figure 102).
            return Err(refused(Status::INVALID_FIELD));
        }
        Ok((Work::WriteZeroes { namespace, lba, blocks, deallocate }, DataPointer::NONE))
    }

    fn check_dataset(&self, controller: usize, dataset: DatasetManagement) -> Accepted {
        let (namespace, _) = self.writable(controller, dataset.namespace)?;
        if !self.offers(controller, |offered| offered.deallocate) {
            return Err(refused(Status::INVALID_COMMAND_OPCODE));
        }
        // Linux always hands over as many bytes as the longest list has, and says in NR how many ranges there are.
        let least = dataset.ranges * DATASET_RANGE_BYTES as u32;
        if !(least..=MAX_DATASET_BYTES).contains(&length_of(dataset.data)) {
            return Err(refused(Status::DATA_SGL_LENGTH_INVALID));
        }
        if !dataset.deallocate {
            // Nothing but hints (NVM 3.2.3).
            return Err(Reply::result(0));
        }
        Ok((Work::Deallocate { namespace, ranges: dataset.ranges, next: 0 }, dataset.data))
    }

    fn offers(&self, controller: usize, which: fn(&super::identify::OptionalCommands) -> bool) -> bool {
        let found = self.controllers.get(controller).and_then(Option::as_ref);
        found.is_some_and(|found| which(&self.optional_commands(found)))
    }

    fn check_flush(&self, controller: usize, namespace: u32) -> Accepted {
        // Flushing one of several namespaces stands for all of them only where there is one (VWC bits 2:1 say that the
        // broadcast identifier is supported exactly then).
        let only = self.subsystem_of(controller).is_some_and(|subsystem| subsystem.count() == 1);
        let namespace = if namespace == BROADCAST_NAMESPACE && only { 1 } else { namespace };
        let (namespace, _) = self.usable(controller, namespace)?;
        Ok((Work::Flush { namespace }, DataPointer::NONE))
    }

    /// Gives the command a slot and takes its first step.
    fn start(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionQueueEntry,
        accepted: Accepted,
        scattered: Option<Scattered>,
        received: Received,
    ) {
        if self.keeps_event_request(connection, entry) {
            return self.engine.release(received);
        }
        // There are slots for all entries of all queues, so none is missing unless a host overran its queue.
        if self.slots.is_full() {
            self.engine.release(received);
            return self.overran(connection);
        }
        let checked = accepted.and_then(|(work, pointer)| {
            let data = self.locate(&work, pointer, scattered, &received)?;
            Ok((work, data))
        });
        // Some answers are known at once, and are no refusals.
        if let Err(reply) = &checked
            && !reply.status.is_success()
        {
            self.note_refused(connection, entry, received.length(), reply.status);
        }
        let mut kept = Some(received);
        let (work, data, phase) = match (checked, &mut kept) {
            (Err(reply), _) => (Work::Nothing, Data::None, Phase::Reply(reply)),
            (Ok((work, _)), _) if work.is_without_data() => (work, Data::None, work.first_phase()),
            (Ok((work, Located::Remote(remote))), _) => (work, Data::Remote(remote), Phase::TakeBuffer),
            (Ok((work, located)), kept) => match kept.take() {
                Some(received) => (work, located.keeping(received), Phase::TakeBuffer),
                None => (work, Data::None, Phase::Reply(refused(Status::INTERNAL_ERROR))),
            },
        };
        if let Some(received) = kept {
            self.engine.release(received);
        }
        let (invalidate, names_keys) = self.named_keys(entry, scattered);
        let commit_first = entry.forces_unit_access() && self.reads_cached(&work);
        let slot = Slot {
            invalidate,
            names_keys,
            namespace: entry.namespace.get(),
            durable: self.is_durable(connection, entry),
            commit_first,
            phase,
            ..Slot::new(connection, entry.command_id.get(), work, data)
        };
        let in_order = matches!(slot.phase, Phase::TakeBuffer) && self.has_to_wait(&slot.work);
        let Some(index) = self.slots.insert(slot) else { return self.overran(connection) };
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
    fn is_durable(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry) -> bool {
        let association = self.queue_mut(connection).and_then(|queue| queue.association);
        let cached = |controller: &Controller| controller.features.write_cache;
        let controller = association.and_then(|association| self.controllers.get(association.controller)?.as_ref());
        entry.forces_unit_access() || controller.is_some_and(|controller| !cached(controller))
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
    fn keeps_event_request(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry) -> bool {
        let Some(queue) = self.queue_mut(connection) else { return false };
        let Some(association) = queue.association else { return false };
        let admin = queue.asked.queue_id == wire::ADMIN_QUEUE;
        if !admin || wire::decode(entry, QueueKind::Admin) != Ok(Command::AsynchronousEventRequest) {
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

/// The longest list of ranges. Any buffer holds it.
const MAX_DATASET_BYTES: u32 = MAX_DATASET_RANGES * DATASET_RANGE_BYTES as u32;
const _: () = assert!(MAX_DATASET_BYTES <= super::MIN_BUFFER_BYTES);

const _: () = assert!(super::MAX_DATA_BLOCKS as usize <= MAX_TRANSFER_OPERATIONS);

fn length_of(data: DataPointer) -> u32 {
    match data {
        DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. } => length,
    }
}

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
