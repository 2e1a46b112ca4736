//! What the target answers to hosts that do anything, also what no host should.

use core::cell::Cell;
use core::time::Duration;
use frwr_engine::provider::Access;
use frwr_engine::{ConnectionId, ReceiveQueues};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{Fault, Incident};
use frwr_nvmf::storage::{
    CompletionBatch, Cookie, Geometry, MemoryStorage, Operation, QueueFull, Storage, StorageError,
};
use frwr_nvmf::wire::{
    self, BlockRange, Command, CompletionQueueEntry, ControllerStatus, DataPointer, GetLogPage, Identify,
    IdentifyController, IdentifyNamespace, InvalidParameter, Nqn, Property, PropertyGet, PropertySet, PropertySize,
    RejectStatus, RequestPrivateData, SetFeatures, ShutdownStatus, Status, SubmissionQueueEntry, cns, feature,
    log_page, opcode,
};
use frwr_support::nvmf_harness;
use frwr_support::nvmf_harness::raw::{Opened, Raw, connect, connect_data, keyed};
use frwr_support::nvmf_harness::{memory, target_options};
use std::rc::Rc;
use zerocopy::{FromBytes, IntoBytes};

fn code(response: &CompletionQueueEntry) -> u16 {
    response.status().code()
}

fn get(property: Property, size: PropertySize) -> Command {
    Command::PropertyGet(PropertyGet { property, size })
}

fn set_configuration(value: u32) -> Command {
    let (property, size) = (Property::Configuration, PropertySize::Four);
    Command::PropertySet(PropertySet { property, size, value: value.into() })
}

fn identify(structure: u8, namespace: u32) -> (Command, Option<(Access, u32)>) {
    let command = Command::Identify(Identify { structure, namespace, data: keyed(4096) });
    (command, Some((Access::RemoteWrite, 4096)))
}

fn blocks(namespace: u32, lba: u64, blocks: u32, length: u32) -> BlockRange {
    BlockRange { namespace, lba, blocks, data: keyed(length) }
}

#[test]
fn connect_requests_are_rejected_by_the_status_of_the_standard() {
    let mut raw = Raw::default();
    assert_eq!(raw.open(&[0; 8]), Opened::Rejected(RejectStatus::InvalidPrivateDataLength as u16));
    let mut other = *RequestPrivateData::new(0, 32).as_bytes().first_chunk::<32>().unwrap();
    other[0] = 1;
    assert_eq!(raw.open(&other), Opened::Rejected(RejectStatus::InvalidRecordFormat as u16));
    let queue = RequestPrivateData::new(2, 32);
    assert_eq!(raw.open(queue.as_bytes()), Opened::Rejected(RejectStatus::InvalidQueueId as u16));
    let deep = RequestPrivateData::new(1, 41);
    assert_eq!(raw.open(deep.as_bytes()), Opened::Rejected(RejectStatus::InvalidHostSendQueue as u16));
    assert_eq!(raw.target.statistics().rejected, 4);
    let said = [
        "a peer: connect request rejected: no NVMe over Fabrics private data: another program than an NVMe host connects here",
        "a peer: connect request rejected: no NVMe over Fabrics private data: another program than an NVMe host connects here",
        "a peer, queue 2: connect request rejected, invalid queue ID: QID 2, must be from 0 to 1",
        "a peer, queue 1: connect request rejected, invalid HSQSIZE: HSQSIZE 40, must be from 1 to 39",
    ];
    assert_eq!(raw.told(), said);
}

#[test]
fn only_connect_makes_a_connection_a_queue() {
    let mut raw = Raw::default();
    let admin = raw.open_queue(0, 32);
    let early = raw.command(admin, get(Property::Capabilities, PropertySize::Eight), None);
    assert_eq!(code(&early), Status::COMMAND_SEQUENCE_ERROR.code());
    let bad_format = wire::Connect { record_format: 1, ..connect(0, 31) };
    let response = raw.connect(admin, bad_format, &connect_data(0xffff));
    assert_eq!(code(&response), Status::CONNECT_INCOMPATIBLE_FORMAT.code());
    let mut unknown = connect_data(0xffff);
    unknown.subsystem = Nqn::new("nqn.unknown").unwrap();
    for (connect, data, parameter) in [
        (connect(1, 31), connect_data(0xffff), InvalidParameter::QUEUE_ID),
        (connect(0, 0), connect_data(0xffff), InvalidParameter::QUEUE_SIZE),
        (connect(0, 32), connect_data(0xffff), InvalidParameter::QUEUE_SIZE),
        (connect(0, 31), unknown, InvalidParameter::SUBSYSTEM),
        (connect(0, 31), connect_data(1), InvalidParameter::CONTROLLER_ID),
    ] {
        let response = raw.connect(admin, connect, &data);
        assert_eq!(code(&response), Status::CONNECT_INVALID_PARAMETERS.code());
        assert_eq!(response.result.get(), parameter.to_result());
    }
    assert!(raw.connect(admin, connect(0, 31), &connect_data(0xffff)).status().is_success());
    let again = raw.connect(admin, connect(0, 31), &connect_data(0xffff));
    assert_eq!(code(&again), Status::COMMAND_SEQUENCE_ERROR.code());
}

#[test]
fn io_queues_belong_to_a_ready_controller_of_the_same_host() {
    let mut raw = Raw::default();
    let admin = raw.open_queue(0, 32);
    let controller = raw.connect(admin, connect(0, 31), &connect_data(0xffff)).result.get() as u16;
    let io = raw.open_queue(1, 32);
    let early = raw.connect(io, connect(1, 31), &connect_data(controller));
    assert_eq!(code(&early), Status::COMMAND_SEQUENCE_ERROR.code());
    raw.command(admin, set_configuration(0x0046_0001), None);
    let unknown = raw.connect(io, connect(1, 31), &connect_data(controller + 1));
    assert_eq!(unknown.result.get(), InvalidParameter::CONTROLLER_ID.to_result());
    let mut stranger = connect_data(controller);
    stranger.host = Nqn::new("nqn.stranger").ok();
    assert_eq!(code(&raw.connect(io, connect(1, 31), &stranger)), Status::CONNECT_INVALID_HOST.code());
    assert!(raw.connect(io, connect(1, 31), &connect_data(controller)).status().is_success());
    let twin = raw.open_queue(1, 32);
    let second = raw.connect(twin, connect(1, 31), &connect_data(controller));
    assert_eq!(code(&second), Status::COMMAND_SEQUENCE_ERROR.code());
}

#[test]
fn properties_follow_enable_and_shutdown() {
    let mut raw = Raw::default();
    let admin = raw.open_queue(0, 32);
    raw.connect(admin, connect(0, 31), &connect_data(0xffff));
    let capabilities = raw.command(admin, get(Property::Capabilities, PropertySize::Eight), None).result.get();
    assert_eq!(wire::ControllerCapabilities(capabilities).max_queue_entries(), 40);
    assert_eq!(raw.command(admin, get(Property::Version, PropertySize::Four), None).result.get(), 0x0001_0400);
    let keep_alive = raw.command(admin, Command::KeepAlive, None);
    assert_eq!(code(&keep_alive), Status::COMMAND_SEQUENCE_ERROR.code(), "before CC.EN");
    let status = |raw: &mut Raw<MemoryStorage>| {
        ControllerStatus(raw.command(admin, get(Property::Status, PropertySize::Four), None).result.get() as u32)
    };
    assert!(!status(&mut raw).is_ready());
    raw.command(admin, set_configuration(0x0046_0061), None);
    assert!(status(&mut raw).is_fatal(), "a command set that is not offered");
    raw.command(admin, set_configuration(0), None);
    raw.command(admin, set_configuration(0x0046_0001), None);
    assert!(status(&mut raw).is_ready() && !status(&mut raw).is_fatal());
    assert!(raw.command(admin, Command::KeepAlive, None).status().is_success());
    raw.command(admin, set_configuration(0x0046_4001), None);
    assert_eq!(status(&mut raw).shutdown(), ShutdownStatus::Complete);
    let read_only = PropertySet { property: Property::Version, size: PropertySize::Four, value: 0 };
    assert_eq!(code(&raw.command(admin, Command::PropertySet(read_only), None)), Status::INVALID_FIELD.code());
}

#[test]
fn a_reset_ends_the_io_queues() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    raw.command(admin, set_configuration(0x0046_0000), None);
    raw.until("disconnected", |raw| raw.disconnected == [io]);
    raw.command(admin, set_configuration(0x0046_0001), None);
    assert_eq!(raw.target.statistics().queues, 1);
}

#[test]
fn a_reset_ends_the_event_request_and_frees_its_entry() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    // More often than the admin queue has entries.
    for round in 0..40 {
        raw.send(admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, 500 + round), None);
        raw.command(admin, set_configuration(0x0046_0000), None);
        assert!(raw.command(admin, set_configuration(0x0046_0001), None).status().is_success());
        assert_eq!(raw.target.statistics().commands_in_flight, 0);
    }
}

#[test]
fn identify_says_what_the_host_needs() {
    let mut raw = Raw::default();
    let (admin, id) = raw.controller();
    let read = |raw: &Raw<MemoryStorage>| {
        let mut bytes = vec![0; 4096];
        raw.data.read(0, &mut bytes).unwrap();
        bytes
    };
    let (command, data) = identify(cns::CONTROLLER, 0);
    assert!(raw.command(admin, command, data).status().is_success());
    let controller = IdentifyController::read_from_bytes(&read(&raw)).unwrap();
    assert_eq!(controller.controller_id.get(), id);
    assert!(controller.supports_keyed_blocks());
    assert_eq!(controller.max_transfer_bytes(4096), Some(32 << 10));
    assert_eq!(controller.subsystem, nvmf_harness::subsystem().to_field());
    assert_eq!((controller.submission_entry_size, controller.completion_entry_size), (0x66, 0x44));
    assert_eq!((controller.io_command_capsule.get(), controller.io_response_capsule.get()), (4, 1));
    assert_eq!((controller.multi_path, controller.controller_attributes.get()), (1 << 1 | 1 << 3, 1 << 6));
    assert!(controller.keep_alive.get() > 0 && controller.max_data_blocks == 1 && controller.namespaces.get() == 3);

    let (command, data) = identify(cns::ACTIVE_NAMESPACES, 1);
    assert!(raw.command(admin, command, data).status().is_success());
    assert_eq!(read(&raw)[..12], [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);

    let (command, data) = identify(cns::NAMESPACE, 2);
    assert!(raw.command(admin, command, data).status().is_success());
    let namespace = IdentifyNamespace::read_from_bytes(&read(&raw)).unwrap();
    assert_eq!(namespace.geometry(), Ok((128, 512)));
    assert_eq!(namespace.sharing, 1, "both controllers serve it");
    let (command, data) = identify(cns::DESCRIPTORS, 2);
    assert!(raw.command(admin, command, data).status().is_success());
    assert_eq!(read(&raw)[4..20], namespace.nguid);
    assert_ne!(namespace.nguid, [0; 16]);

    let plain = raw.target.statistics().plain_responses;
    for (structure, namespace, status) in [
        (cns::NAMESPACE, 0, Status::INVALID_NAMESPACE),
        (cns::NAMESPACE, 4, Status::INVALID_NAMESPACE),
        (cns::DESCRIPTORS, 0xffff_ffff, Status::INVALID_NAMESPACE),
        (cns::ACTIVE_NAMESPACES, 0xffff_fffe, Status::INVALID_NAMESPACE),
        (0x04, 1, Status::INVALID_FIELD),
        (0x07, 1, Status::INVALID_FIELD),
        (0x10, 1, Status::INVALID_FIELD),
        (0xff, 1, Status::INVALID_FIELD),
    ] {
        let (command, data) = identify(structure, namespace);
        assert_eq!(code(&raw.command(admin, command, data)), status.code(), "{structure} {namespace}");
    }
    let left = raw.target.statistics().plain_responses - plain;
    assert_eq!(left, 8, "the key of a refused command is left to its host like any other");
    let short = Command::Identify(Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(512) });
    let response = raw.command(admin, short, Some((Access::RemoteWrite, 512)));
    assert_eq!(code(&response), Status::DATA_SGL_LENGTH_INVALID.code());
}

#[test]
fn features_opcodes_and_flags_that_are_not_offered_are_refused() {
    let mut raw = Raw::default();
    let (admin, controller) = raw.controller();
    let feature = |feature, save, value| Command::SetFeatures(SetFeatures { feature, save, namespace: 0, value });
    let queues = raw.command(admin, feature(feature::NUMBER_OF_QUEUES, false, 0x0007_0007), None);
    assert_eq!((queues.status(), queues.result.get()), (Status::SUCCESS, 0));
    let none = raw.command(admin, feature(feature::NUMBER_OF_QUEUES, false, 0xffff_0000), None);
    assert_eq!(code(&none), Status::INVALID_FIELD.code());
    let io = raw.another_queue(controller, 1);
    let late = raw.command(admin, feature(feature::NUMBER_OF_QUEUES, false, 0), None);
    assert_eq!(code(&late), Status::COMMAND_SEQUENCE_ERROR.code(), "there are queues");
    let saved = raw.command(admin, feature(feature::NUMBER_OF_QUEUES, true, 0), None);
    assert_eq!(code(&saved), Status::FEATURE_NOT_SAVEABLE.code());
    let events = |value| feature(feature::ASYNCHRONOUS_EVENTS, false, value);
    assert!(raw.command(admin, events(0x91f), None).status().is_success());
    assert_eq!(code(&raw.command(admin, events(0x200), None)), Status::INVALID_FIELD.code(), "OAES does not offer it");
    for of_reservations in [feature::RESERVATION_NOTIFICATION_MASK, feature::RESERVATION_PERSISTENCE] {
        let refused = raw.command(admin, feature(of_reservations, false, 0), None);
        assert_eq!(code(&refused), Status::INVALID_FIELD.code(), "nobody keeps any");
    }
    let coalescing = feature(feature::INTERRUPT_COALESCING, false, 0);
    assert_eq!(code(&raw.command(admin, coalescing, None)), Status::INVALID_FIELD.code());
    for (connection, known) in [
        (admin, &[0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, opcode::KEEP_ALIVE, opcode::FABRICS][..]),
        (io, &[0x00, 0x01, 0x02, 0x05, 0x08, 0x09, opcode::FABRICS][..]),
    ] {
        for code_point in (0..=u8::MAX).filter(|code_point| !known.contains(code_point)) {
            let response = raw.exchange(connection, SubmissionQueueEntry::new(code_point, 0), None);
            assert_eq!(code(&response), Status::INVALID_COMMAND_OPCODE.code(), "{code_point:#x}");
        }
    }
    let mut fused = SubmissionQueueEntry::new(opcode::FLUSH, 0);
    fused.flags = 0x41;
    assert_eq!(code(&raw.exchange(io, fused, None)), Status::INVALID_FIELD.code());
    // The same byte of a fabrics command is reserved.
    let mut property = get(Property::Status, PropertySize::Four).encode(0).unwrap();
    property.flags = 0;
    assert!(raw.exchange(admin, property, None).status().is_success());
}

#[test]
fn four_event_requests_wait_and_the_next_is_refused() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    for id in 500..504 {
        raw.send(admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, id), None);
    }
    assert!(raw.command(admin, Command::KeepAlive, None).status().is_success());
    let second = raw.command(admin, Command::AsynchronousEventRequest, None);
    assert_eq!(code(&second), Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED.code());
    assert_eq!(raw.target.statistics().commands_in_flight, 4);
}

/// As SPDK's host does before it shuts its controller down.
#[test]
fn a_host_may_forget_its_event_requests_and_take_their_identifiers_for_other_commands() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    for id in 500..504 {
        raw.send(admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, id), None);
    }
    // Normal shutdown, and what it leads to.
    for (id, command) in [(500, set_configuration(0x0046_4001)), (501, get(Property::Status, PropertySize::Four))] {
        raw.responses.clear();
        raw.send(admin, command.encode(id).unwrap(), None);
        raw.until("answered", |raw| raw.responses.len() == 1);
        assert!(raw.responses[0].status().is_success() && raw.responses[0].command_id.get() == id);
    }
    assert_eq!(raw.responses[0].result.get() & 0b1100, 0b1000, "shutdown complete");
    assert_eq!(raw.target.statistics().commands_in_flight, 2, "those that were not forgotten");
    // More often than the admin queue has entries: what is forgotten has none.
    for _ in 0..40 {
        raw.send(admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, 500), None);
        raw.send(admin, Command::KeepAlive.encode(500).unwrap(), None);
        raw.until("answered", |raw| raw.target.statistics().commands_in_flight == 2);
    }
    assert!(raw.disconnected.is_empty());
    // Another event request is a mistake.
    for _ in 0..2 {
        raw.send(admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, 500), None);
    }
    raw.until("disconnected", |raw| raw.disconnected == [admin]);
}

#[test]
fn reads_and_writes_with_bad_fields_move_nothing() {
    let mut raw = Raw::default();
    let (_, io) = raw.io_queue();
    let buffer_blocks = (32 << 10) / 512;
    for (range, length, status) in [
        (blocks(0, 0, 1, 512), 512, Status::INVALID_NAMESPACE),
        (blocks(4, 0, 1, 512), 512, Status::INVALID_NAMESPACE),
        (blocks(1, 128, 1, 512), 512, Status::LBA_OUT_OF_RANGE),
        (blocks(1, 127, 2, 1024), 1024, Status::LBA_OUT_OF_RANGE),
        (blocks(1, u64::MAX, 65536, 512), 512, Status::LBA_OUT_OF_RANGE),
        (blocks(1, 0, 1, 511), 511, Status::DATA_SGL_LENGTH_INVALID),
        (blocks(1, 0, 1, 1024), 1024, Status::DATA_SGL_LENGTH_INVALID),
        (blocks(1, 0, 2, 0), 512, Status::DATA_SGL_LENGTH_INVALID),
        (blocks(1, 0, buffer_blocks + 1, 512), 512, Status::INVALID_FIELD),
    ] {
        for (command, access) in
            [(Command::Read(range), Access::RemoteWrite), (Command::Write(range), Access::RemoteRead)]
        {
            let response = raw.command(io, command, Some((access, length)));
            assert_eq!(code(&response), status.code(), "{command:?}");
            assert!(response.status().is_final());
        }
    }
    let in_capsule = BlockRange { data: DataPointer::InCapsule { offset: 0, length: 512 }, ..blocks(1, 0, 1, 512) };
    let read = raw.command(io, Command::Read(in_capsule), None);
    assert_eq!(code(&read), Status::SGL_DESCRIPTOR_TYPE_INVALID.code());
    let write = raw.command(io, Command::Write(in_capsule), None);
    assert_eq!(code(&write), Status::DATA_SGL_LENGTH_INVALID.code(), "no data behind the command");
    let statistics = raw.target.statistics();
    assert_eq!((statistics.reads, statistics.writes, statistics.bytes_read), (0, 0, 0));
    assert_eq!(code(&raw.command(io, Command::Flush { namespace: 0xffff_ffff }, None)), 0x00b);
    assert!(raw.command(io, Command::Flush { namespace: 3 }, None).status().is_success());
}

#[test]
fn the_submission_queue_head_counts_commands_modulo_the_queue() {
    let mut raw = Raw::default();
    let (_, io) = raw.io_queue();
    // Connect was the first of 33 entries.
    for command in 2_u16..100 {
        let response = raw.command(io, Command::Flush { namespace: 1 }, None);
        assert_eq!(response.submission_queue_head.get(), command % 33);
    }
}

#[test]
fn messages_that_are_no_capsule_end_the_connection() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    raw.send_bytes(io, &[0x02; 63], 1, None);
    raw.until("disconnected", |raw| raw.disconnected == [io]);
    assert_eq!(raw.target.statistics().protocol_errors, 1);
    assert!(raw.command(admin, Command::KeepAlive, None).status().is_success(), "the controller goes on");
}

#[test]
fn a_key_that_does_not_exist_ends_the_connection_and_nothing_else() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    let mut entry = Command::Write(blocks(1, 0, 1, 512)).encode(9).unwrap();
    entry = entry.with_data(keyed(512)).unwrap();
    raw.send(io, entry, None);
    raw.until("disconnected", |raw| raw.disconnected == [io]);
    let statistics = raw.target.statistics();
    assert_eq!((statistics.writes, statistics.queues, statistics.commands_in_flight), (0, 1, 0));
    assert!(raw.command(admin, Command::KeepAlive, None).status().is_success());
    raw.target.shut_down();
    raw.until("drained", |raw| raw.target.is_drained());
    let all = target_options().buffer_memory_bytes(8) / target_options().buffer_bytes as usize;
    assert_eq!(raw.target.statistics().buffers_free, all as u64);
}

/// Refuses every other submission, keeps operations for some iterations, and fails some.
struct Awkward {
    inner: MemoryStorage,
    refused: bool,
    waits: u32,
}

impl Storage for Awkward {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), frwr_nvmf::storage::AttachError> {
        self.inner.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        self.refused = !self.refused;
        if self.refused { Err(QueueFull) } else { self.inner.submit(cookie, operation) }
    }

    fn flush(&mut self) {
        self.waits += 1;
        if self.waits.is_multiple_of(5) {
            self.inner.flush();
        }
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        let count = self.inner.poll(now, out);
        for completion in out.iter_mut() {
            if completion.result.is_ok() && self.waits.is_multiple_of(2) {
                completion.result = Err(StorageError::Medium);
            }
        }
        count
    }
}

#[test]
fn slow_full_and_failing_storage_answers_every_command_once() {
    let inner = MemoryStorage::new(memory(64 << 10), 512, 4).unwrap();
    let mut raw = Raw::with(target_options(), vec![Awkward { inner, refused: false, waits: 0 }]);
    let (_, io) = raw.io_queue();
    raw.responses.clear();
    for round in 0..5_u16 {
        for at in 0..32_u16 {
            let entry = Command::Read(blocks(1, u64::from(at), 1, 512)).encode(1000 + round * 32 + at).unwrap();
            raw.send(io, entry, Some((Access::RemoteWrite, 512)));
        }
        raw.until("answered", |raw| raw.responses.len() == usize::from(round + 1) * 32);
    }
    let mut ids: Vec<u16> = raw.responses.iter().map(|response| response.command_id.get()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1000..1160).collect::<Vec<u16>>());
    let known = [Status::SUCCESS, Status::UNRECOVERED_READ_ERROR];
    assert!(raw.responses.iter().all(|response| known.contains(&response.status())));
    let statistics = raw.target.statistics();
    assert!(statistics.stalls > 0 && statistics.reads + statistics.failed_commands == 160, "{statistics:?}");
}

/// Completes nothing before it is let go.
struct Held {
    inner: MemoryStorage,
    go: Rc<Cell<bool>>,
}

impl Storage for Held {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), frwr_nvmf::storage::AttachError> {
        self.inner.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        self.inner.submit(cookie, operation)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        if self.go.get() { self.inner.poll(now, out) } else { 0 }
    }
}

/// A write of an I/O queue that the storage has, and completes when it is let go.
struct HeldWrite {
    raw: Raw<Held>,
    go: Rc<Cell<bool>>,
    admin: ConnectionId,
    io: ConnectionId,
}

fn held_write() -> HeldWrite {
    let go = Rc::new(Cell::new(false));
    let inner = MemoryStorage::new(memory(64 << 10), 512, 4).unwrap();
    let mut raw = Raw::with(target_options(), vec![Held { inner, go: Rc::clone(&go) }]);
    let (admin, io) = raw.io_queue();
    let entry = Command::Write(blocks(1, 0, 1, 512)).encode(9).unwrap();
    raw.send(io, entry, Some((Access::RemoteRead, 512)));
    for _ in 0..100 {
        raw.step();
    }
    HeldWrite { raw, go, admin, io }
}

#[test]
fn no_new_session_overtakes_the_writes_of_an_ended_one() {
    let HeldWrite { mut raw, go, admin, io } = held_write();
    raw.engine.disconnect(io);
    raw.engine.disconnect(admin);
    raw.until("orphaned", |raw| raw.target.statistics().orphans == 1 && raw.disconnected.len() == 2);
    let again = raw.open_queue(0, 32);
    raw.begin_session(again);
    raw.steps(200);
    assert!(raw.responses.is_empty(), "it waits");
    go.set(true);
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert!(raw.responses[0].status().is_success());
    assert_eq!(raw.target.statistics().orphans, 0);
}

/// A connection has ended when its queue pair is destroyed; its host connects again as soon as it likes.
#[test]
fn no_new_session_overtakes_the_writes_of_one_that_still_ends() {
    for lost in [1, 2] {
        let HeldWrite { mut raw, go, admin, io } = held_write();
        let next = raw.open_queue(0, 32);
        // The I/O queue alone, or all of the session.
        raw.begin_end(&[io, admin][..lost]);
        raw.begin_session(next);
        raw.steps(200);
        assert!(raw.responses.is_empty(), "it waits");
        go.set(true);
        raw.until("answered", |raw| raw.responses.len() == 1);
        assert!(raw.responses[0].status().is_success());
        raw.controlled = true;
        raw.until("gone", |raw| raw.disconnected.len() == lost);
        raw.until("gone", |raw| raw.target.statistics().queues == 3 - lost as u64);
        raw.enable(next);
        assert_eq!(raw.target.statistics().orphans, 0);
    }
}

#[test]
fn a_reset_is_complete_when_storage_has_no_write_from_before_it() {
    let HeldWrite { mut raw, go, admin, io } = held_write();
    raw.command(admin, set_configuration(0x0046_0000), None);
    let is_ready = |raw: &mut Raw<Held>| {
        let status = raw.command(admin, get(Property::Status, PropertySize::Four), None);
        ControllerStatus(status.result.get() as u32).is_ready()
    };
    assert!(is_ready(&mut raw), "the write of the ended queue is with the storage");
    raw.until("disconnected", |raw| raw.disconnected == [io]);
    assert!(is_ready(&mut raw), "also when its connection is gone");
    go.set(true);
    raw.until("done", |raw| raw.target.statistics().orphans == 0);
    assert!(!is_ready(&mut raw));
    raw.command(admin, set_configuration(0x0046_0001), None);
    assert!(is_ready(&mut raw));
}

#[test]
fn a_host_that_overruns_its_queue_loses_it() {
    let go = Rc::new(Cell::new(false));
    let inner = MemoryStorage::new(memory(64 << 10), 512, 64).unwrap();
    let mut raw = Raw::with(target_options(), vec![Held { inner, go: Rc::clone(&go) }]);
    let (_, io) = raw.io_queue();
    let flush = |id| Command::Flush { namespace: 1 }.encode(id).unwrap();
    // As many as the queue has entries.
    for id in 0..33 {
        raw.send(io, flush(1000 + id), None);
    }
    for _ in 0..100 {
        raw.step();
    }
    assert_eq!((raw.target.statistics().protocol_errors, raw.target.statistics().commands_in_flight), (0, 33));
    raw.send(io, flush(2000), None);
    raw.until("disconnected", |raw| raw.disconnected == [io]);
    assert_eq!(raw.target.statistics().protocol_errors, 1);
    go.set(true);
    raw.target.shut_down();
    raw.until("drained", |raw| raw.target.is_drained());
}

#[test]
fn an_incident_is_one_line_whatever_its_host_calls_itself() {
    let host = Some(Nqn::new("nqn.host\r\n2026 all is well\u{1b}[2J\u{85}").unwrap());
    let line = Incident { host, queue_id: Some(1), ..Incident::new(None, Fault::Transfer) }.to_string();
    assert!(!line.contains(char::is_control), "{line:?}");
    assert!(line.contains("nqn.host\\r\\n2026"), "{line}");
}

#[test]
fn what_is_said_of_a_refused_command_is_about_that_command() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    // Its opcode is that of a Read in an I/O queue, and its data is in no capsule.
    let (page, data) = (log_page::SUPPORTED, keyed(100));
    let (specific, retain_event, offset_is_index) = (0, false, false);
    let get = GetLogPage { page, specific, retain_event, length: 512, offset: 0, offset_is_index, namespace: 1, data };
    let response = raw.command(admin, Command::GetLogPage(get), Some((Access::RemoteWrite, 100)));
    assert_eq!(code(&response), Status::DATA_SGL_LENGTH_INVALID.code());
    let said = "a peer, host nqn.host, queue 0: command with opcode 0x02 refused, Data SGL Length Invalid (0x00f): bytes of data 100, \
                which the command does not take";
    assert_eq!(raw.told(), [said]);
}

/// Connections of a target that share their receives are granted what their queue can have outstanding, and hosts as many queues as find
/// some. Who would exceed them all waits for a connection that never became a queue to end, or is told which receives are missing.
#[test]
fn shared_receives_are_granted_by_the_size_of_the_queue() {
    let receive_queues = ReceiveQueues::Shared { entries: 112 };
    let options = target_options().receive_queues(receive_queues).io_queues(3);
    let namespaces = vec![MemoryStorage::new(memory(64 << 10), 512, 64).unwrap()];
    let mut raw = Raw::with(options, namespaces);
    let free = |raw: &Raw<MemoryStorage>| raw.target.engine().statistics().shared_receives_free;
    let (admin, controller) = raw.controller();
    let queues = Command::SetFeatures(SetFeatures {
        feature: feature::NUMBER_OF_QUEUES,
        save: false,
        namespace: 0,
        value: 0x0007_0007,
    });
    let granted = raw.command(admin, queues, None).result.get();
    assert_eq!((granted, free(&raw)), (0x0001_0001, 80), "two of 40 entries fit");
    let io = raw.another_queue(controller, 1);
    let small = raw.open_queue(2, 40);
    assert_eq!(free(&raw), 112 - 32 - 33 - 40);
    let (identify, data) = identify(cns::NAMESPACE, 1);
    // The one that is no queue yet makes room.
    let second = raw.open_queue(2, 40);
    assert_eq!((raw.disconnected.clone(), free(&raw)), (vec![small], 7));
    assert!(raw.connect(second, connect(2, 39), &connect_data(controller)).status().is_success());
    let refused = RequestPrivateData::new(3, 8);
    raw.told();
    assert_eq!(raw.open(refused.as_bytes()), Opened::Rejected(RejectStatus::NoResources as u16));
    let said = "a peer, queue 3: connect request rejected, no resources: its queue needs 8 receives, and of the shared ones 7 are not \
                granted to others; raise --shared-receives, or have hosts use smaller or fewer queues";
    assert_eq!(raw.told(), [said]);
    raw.engine.disconnect(second);
    raw.until("gone", |raw| raw.disconnected.len() == 2 && free(raw) == 47);
    for _ in 0..100 {
        assert!(raw.command(admin, identify, data).status().is_success());
        let read = Command::Read(blocks(1, 0, 1, 512));
        assert!(raw.command(io, read, Some((Access::RemoteWrite, 512))).status().is_success());
    }
    let buffers = raw.target.engine().receive_buffers();
    assert_eq!((buffers.posted, buffers.held, buffers.idle), (112, 0, 0));
}

/// Of every size up to the limit, on blocks of both sizes; with more of them at a time than there are buffers. What is a block beyond it is
/// refused, and told with the limit.
#[test]
fn a_command_moves_what_the_target_says_and_no_more() {
    for (limit, block) in [(64_u32 << 10, 512_u32), (128 << 10, 512), (1 << 20, 4096)] {
        let options = target_options().buffer_bytes(limit).controllers(1);
        let medium = MemoryStorage::new(memory(4 << 20), block, 64).unwrap();
        let mut raw = Raw::with(options, vec![medium]);
        let (admin, io) = raw.io_queue();
        let (command, data) = identify(cns::CONTROLLER, 0);
        assert!(raw.command(admin, command, data).status().is_success());
        let mut bytes = vec![0; 4096];
        raw.data.read(0, &mut bytes).unwrap();
        let told = IdentifyController::read_from_bytes(&bytes).unwrap().max_transfer_bytes(4096);
        assert_eq!(told, Some(u64::from(limit)));
        let mut random = 7_u32;
        for length in [block, 3 * block, limit / 2, limit - block, limit] {
            let pattern: Vec<u8> = (0..length)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 24) as u8
                })
                .collect();
            raw.data.write(0, &pattern).unwrap();
            let range = blocks(1, 5, length / block, length);
            let written = raw.command(io, Command::Write(range), Some((Access::RemoteRead, length)));
            assert!(written.status().is_success(), "{limit} {length}: {}", written.status());
            assert!(raw.command(io, Command::Compare(range), Some((Access::RemoteRead, length))).status().is_success());
            raw.data.fill(0, length as usize, 0).unwrap();
            let read = raw.command(io, Command::Read(range), Some((Access::RemoteWrite, length)));
            assert!(read.status().is_success(), "{limit} {length}: {}", read.status());
            let mut found = vec![0; length as usize];
            raw.data.read(0, &mut found).unwrap();
            assert!(found == pattern, "{limit} {length}");
        }
        raw.told();
        let beyond = blocks(1, 5, limit / block + 1, limit + block);
        let refused = raw.command(io, Command::Read(beyond), Some((Access::RemoteWrite, block)));
        assert_eq!(refused.status(), Status::INVALID_FIELD.do_not_retry());
        let said = format!("bytes of data {}, must be from 0 to {limit}", limit + block);
        let lines = raw.told();
        assert!(lines.len() == 1 && lines[0].ends_with(&said), "{lines:?}");
        // A queue of the largest, which buffers are not there for.
        raw.responses.clear();
        for id in 0..33 {
            let entry = Command::Compare(blocks(1, 5, limit / block, limit)).encode(1000 + id).unwrap();
            raw.send(io, entry, Some((Access::RemoteRead, limit)));
        }
        raw.until("all", |raw| raw.responses.len() == 33);
        assert!(raw.responses.iter().all(|response| response.status().is_success()));
        let statistics = raw.target.statistics();
        assert_eq!((statistics.buffers_free, raw.disconnected.len()), (statistics.buffers, 0));
    }
}
