//! A target over media that cannot do everything.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::TargetStatistics;
use frwr_nvmf::storage::{
    AnyStorage, AttachError, Backing, Comparing, Completion, CompletionBatch, Cookie, Features, FileMedium, Geometry,
    MemoryStorage, Operation, QueueFull, Storage, StorageError, StorageStatistics,
};
use frwr_nvmf::wire::{
    Abort, BlockRange, Command, CompletionQueueEntry, DatasetManagement, Identify, IdentifyController,
    IdentifyNamespace, Status, WriteZeroes, cns,
};
use frwr_support::nvmf_harness::gated::{Gate, Gated};
use frwr_support::nvmf_harness::raw::{Raw, keyed};
use frwr_support::nvmf_harness::{memory, target_options};
use frwr_support::storage_harness::{BLOCK, Temporary};
use std::{cell::Cell, rc::Rc, sync::Arc};
use zerocopy::FromBytes;

fn code(response: &CompletionQueueEntry) -> u16 {
    response.status().code()
}

fn structure<S: Storage>(raw: &mut Raw<S>, admin: ConnectionId, structure: u8, namespace: u32) -> [u8; 4096] {
    let identify = Command::Identify(Identify { structure, namespace, data: keyed(4096) });
    assert!(raw.command(admin, identify, Some((Access::RemoteWrite, 4096))).status().is_success());
    let mut bytes = [0; 4096];
    raw.data.read(0, &mut bytes).unwrap();
    bytes
}

fn optional_commands<S: Storage>(raw: &mut Raw<S>, admin: ConnectionId) -> u16 {
    let bytes = structure(raw, admin, cns::CONTROLLER, 0);
    IdentifyController::read_from_bytes(&bytes).unwrap().optional_commands.get()
}

/// Commands that change the first block, with their data.
fn changes(namespace: u32) -> [(Command, Option<(Access, u32)>); 3] {
    let bytes = BLOCK as u32;
    let range = BlockRange { namespace, lba: 0, blocks: 1, data: keyed(bytes) };
    let zeroes = WriteZeroes { namespace, lba: 0, blocks: 1, deallocate: false };
    let ranges = DatasetManagement { namespace, ranges: 1, deallocate: true, data: keyed(16) };
    [
        (Command::Write(range), Some((Access::RemoteRead, bytes))),
        (Command::WriteZeroes(zeroes), None),
        (Command::DatasetManagement(ranges), Some((Access::RemoteRead, 16))),
    ]
}

#[test]
fn a_read_only_file_is_told_as_write_protected_and_not_changed() {
    let bytes: Vec<u8> = (0..4 * BLOCK).map(|at| (at % 253) as u8).collect();
    for backing in [Backing::Ring, Backing::Thread] {
        let file = Temporary::sparse(&format!("protected-{backing:?}"), 0);
        std::fs::write(&file.0, &bytes).unwrap();
        let medium = FileMedium::open(&file.options().read_only(true)).unwrap();
        let (protected, _) = medium.storage(backing, 8).unwrap();
        let other = MemoryStorage::new(memory(4 * BLOCK), BLOCK as u32, 8).unwrap();
        let other = AnyStorage::Memory(Box::new(Comparing::new(other, &Arc::default()).unwrap()));
        let mut raw = Raw::with(target_options(), vec![protected, other]);
        let (admin, io) = raw.io_queue();
        for (identifier, attributes) in [(1, IdentifyNamespace::WRITE_PROTECTED), (2, 0)] {
            let bytes = structure(&mut raw, admin, cns::NAMESPACE, identifier);
            let identify = IdentifyNamespace::read_from_bytes(&bytes).unwrap();
            assert_eq!(identify.attributes, attributes);
            assert_eq!(identify.deallocate_features, IdentifyNamespace::ZEROES_DEALLOCATE);
        }
        raw.data.fill(0, BLOCK, 0).unwrap();
        for (command, data) in changes(1) {
            let response = raw.command(io, command, data);
            assert_eq!(code(&response), Status::NAMESPACE_IS_WRITE_PROTECTED.code(), "{command:?}");
            assert!(response.status().is_final());
        }
        for (command, data) in changes(2) {
            assert_eq!(code(&raw.command(io, command, data)), 0, "{command:?}");
        }
        assert_eq!(code(&raw.command(io, Command::Flush { namespace: 1 }, None)), 0);
        let range = BlockRange { namespace: 1, lba: 0, blocks: 4, data: keyed(4 * BLOCK as u32) };
        let read = raw.command(io, Command::Read(range), Some((Access::RemoteWrite, 4 * BLOCK as u32)));
        assert_eq!(code(&read), 0);
        let mut found = vec![0; 4 * BLOCK];
        raw.data.read(0, &mut found).unwrap();
        assert!(found == bytes, "{backing:?}");
        assert!(std::fs::read(&file.0).unwrap() == bytes, "{backing:?}");
    }
}

#[test]
fn a_file_that_became_shorter_fails_every_command_for_good() {
    for backing in [Backing::Ring, Backing::Thread] {
        let file = Temporary::sparse(&format!("shorter-{backing:?}"), 8 * BLOCK as u64);
        let (storage, _) = FileMedium::open(&file.options()).unwrap().storage(backing, 8).unwrap();
        let mut raw = Raw::with(target_options(), vec![storage]);
        let (_, io) = raw.io_queue();
        std::fs::File::options().write(true).open(&file.0).unwrap().set_len(4 * BLOCK as u64).unwrap();
        let bytes = BLOCK as u32;
        let block = |lba| BlockRange { namespace: 1, lba, blocks: 1, data: keyed(bytes) };
        let mut failed = |command, data, wanted: Status| {
            let status = raw.command(io, command, data).status();
            assert!(status.code() == wanted.code() && status.is_final(), "{backing:?} {command:?}: {status}");
        };
        let (write, read) = (Some((Access::RemoteRead, bytes)), Some((Access::RemoteWrite, bytes)));
        failed(Command::Write(block(7)), write, Status::WRITE_FAULT);
        failed(Command::Read(block(5)), read, Status::UNRECOVERED_READ_ERROR);
        failed(Command::Read(block(0)), read, Status::UNRECOVERED_READ_ERROR);
        failed(Command::Flush { namespace: 1 }, None, Status::WRITE_FAULT);
        let zeroes = WriteZeroes { namespace: 1, lba: 0, blocks: 1, deallocate: false };
        failed(Command::WriteZeroes(zeroes), None, Status::WRITE_FAULT);
        raw.target.shut_down();
        raw.until("drained", |raw| raw.target.is_drained());
        let statistics = raw.target.statistics();
        assert_eq!((statistics.failed_commits, statistics.media_errors), (1, 6));
    }
}

/// Memory that cannot do everything.
struct Lacking(MemoryStorage, Features);

impl Storage for Lacking {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn features(&self) -> Features {
        self.1
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.0.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        let asked = match operation {
            Operation::WriteZeroes { .. } => self.1.write_zeroes,
            Operation::Deallocate { .. } => self.1.deallocate,
            _ => true,
        };
        assert!(asked, "{operation:?}");
        self.0.submit(cookie, operation)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        self.0.poll(now, out)
    }

    fn statistics(&self) -> StorageStatistics {
        self.0.statistics()
    }
}

#[test]
fn commands_are_offered_that_every_namespace_has() {
    let every = Features::default().write_zeroes(true).deallocate(true).write_through(true);
    let (zeroes, ranges) = (IdentifyController::WRITE_ZEROES, IdentifyController::DATASET_MANAGEMENT);
    for (features, offered) in [
        (every, IdentifyController::COMPARE | zeroes | ranges),
        (every.write_zeroes(false), IdentifyController::COMPARE | ranges),
        (every.deallocate(false), IdentifyController::COMPARE | zeroes),
        (Features::default(), IdentifyController::COMPARE),
    ] {
        let storage = |features| Lacking(MemoryStorage::new(memory(8 * BLOCK), BLOCK as u32, 8).unwrap(), features);
        let mut raw = Raw::with(target_options(), vec![storage(every), storage(features)]);
        let (admin, io) = raw.io_queue();
        assert_eq!(optional_commands(&mut raw, admin), offered);
        raw.data.fill(0, BLOCK, 0).unwrap();
        for namespace in [1, 2] {
            let [write, zero, deallocate] = changes(namespace).map(|(command, data)| raw.command(io, command, data));
            let expected = |bit| if offered & bit != 0 { 0 } else { Status::INVALID_COMMAND_OPCODE.code() };
            assert_eq!((code(&write), code(&zero), code(&deallocate)), (0, expected(zeroes), expected(ranges)));
        }
    }
}

/// Aborts the command of identifier 900 on the I/O queue; whether the target says that it did.
fn abort(raw: &mut Raw<Gated>, admin: ConnectionId) -> bool {
    let entry = Command::Abort(Abort { queue_id: 1, command_id: 900 }).encode(901).unwrap();
    raw.send(admin, entry, None);
    raw.until("abort answered", |raw| raw.responses.iter().any(|response| response.command_id.get() == 901));
    let at = raw.responses.iter().position(|response| response.command_id.get() == 901).unwrap();
    let response = raw.responses.remove(at);
    assert_eq!(code(&response), 0);
    response.result.get() == 0
}

#[test]
fn a_host_that_aborts_a_lot_at_a_time_is_served_in_part() {
    let (storage, switch) = Gated::new(8, BLOCK as u32, 8);
    let mut raw = Raw::with(target_options(), vec![storage]);
    let (admin, io) = raw.io_queue();
    switch.gate.set(Gate::Full);
    let [(write, data), ..] = changes(1);
    (900..908).for_each(|id| raw.send(io, write.encode(id).unwrap(), data));
    raw.until("waiting", |raw| raw.target.statistics().commands_in_flight == 8);
    raw.steps(50);
    raw.responses.clear();
    for id in 900..908 {
        let entry = Command::Abort(Abort { queue_id: 1, command_id: id }).encode(id + 100).unwrap();
        raw.send(admin, entry, None);
    }
    switch.gate.set(Gate::Open);
    raw.until("answered", |raw| raw.responses.len() == 16);
    assert_eq!(raw.target.statistics().aborted_commands, 4, "one iteration looks for so many");
    let aborted = raw.responses.iter().filter(|response| code(response) == Status::COMMAND_ABORT_REQUESTED.code());
    assert_eq!(aborted.count(), 4);
}

/// A command that was executed in part is executed, whatever its medium was not given yet: nobody is told that it never was.
#[test]
fn what_was_executed_in_part_is_not_aborted() {
    let (storage, switch) = Gated::new(8, BLOCK as u32, 8);
    let mut raw = Raw::with(target_options(), vec![storage]);
    let (admin, io) = raw.io_queue();
    // Two ranges of a block.
    let range = |lba: u8| [0, 0, 0, 0, 1, 0, 0, 0, lba, 0, 0, 0, 0, 0, 0, 0];
    raw.data.write(0, &[range(0), range(4)].concat()).unwrap();
    let ranges = DatasetManagement { namespace: 1, ranges: 2, deallocate: true, data: keyed(32) };
    switch.gate.set(Gate::Running);
    raw.responses.clear();
    raw.send(io, Command::DatasetManagement(ranges).encode(900).unwrap(), Some((Access::RemoteRead, 32)));
    raw.steps(50);
    switch.gate.set(Gate::Draining);
    raw.until("half done", |raw| raw.target.statistics().deallocations == 1);
    raw.steps(50);
    assert!(!abort(&mut raw, admin));
    switch.gate.set(Gate::Open);
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert_eq!((code(&raw.responses[0]), raw.target.statistics().deallocations), (0, 2));
}

#[test]
fn what_no_medium_was_given_is_aborted_and_never_executed() {
    for (gate, aborted) in [(Gate::Full, true), (Gate::Unstarted, true), (Gate::Running, false)] {
        let (storage, switch) = Gated::new(8, BLOCK as u32, 8);
        let mut raw = Raw::with(target_options(), vec![storage]);
        let (admin, io) = raw.io_queue();
        for (command, data) in changes(1) {
            switch.gate.set(gate);
            // A range of one block, where ranges are wanted.
            raw.data.write(0, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
            let (before, statistics) = (raw.target.statistics(), |raw: &Raw<Gated>| raw.target.statistics());
            raw.responses.clear();
            raw.send(io, command.encode(900).unwrap(), data);
            for _ in 0..50 {
                raw.step();
            }
            assert!(raw.responses.is_empty());
            assert_eq!(abort(&mut raw, admin), aborted, "{gate:?} {command:?}");
            switch.gate.set(Gate::Open);
            raw.until("answered", |raw| raw.responses.len() == 1);
            let status = if aborted { Status::COMMAND_ABORT_REQUESTED.code() } else { 0 };
            assert_eq!(code(&raw.responses[0]), status, "{gate:?} {command:?}");
            let done = |statistics: TargetStatistics| {
                statistics.writes + statistics.write_zeroes + statistics.deallocations + statistics.aborted_commands
            };
            assert_eq!(done(statistics(&raw)), done(before) + 1);
            assert_eq!(statistics(&raw).aborted_commands, before.aborted_commands + u64::from(aborted));
        }
        let storage = raw.target.namespaces().next().unwrap().statistics();
        assert_eq!(storage.completed + storage.cancelled, storage.submitted);
        assert_eq!(storage.completed, if aborted { 0 } else { 3 }, "{gate:?}");
        assert!(!abort(&mut raw, admin), "it has ended");
        raw.target.shut_down();
        raw.until("drained", |raw| raw.target.is_drained());
        let all = target_options().buffer_memory_bytes(8) / target_options().buffer_bytes as usize;
        assert_eq!(raw.target.statistics().buffers_free, all as u64);
    }
}

#[test]
fn a_command_whose_data_is_on_its_way_is_aborted_when_that_has_arrived() {
    let mut delays = 0;
    for steps in 0..20 {
        let mut raw = Raw::with(target_options(), vec![Gated::new(8, BLOCK as u32, 8).0]);
        let (admin, io) = raw.io_queue();
        raw.responses.clear();
        let [(command, data), ..] = changes(1);
        raw.send(io, command.encode(900).unwrap(), data);
        for _ in 0..steps {
            raw.step();
        }
        let aborted = abort(&mut raw, admin);
        raw.until("answered", |raw| raw.responses.len() == 1);
        let statistics = raw.target.statistics();
        assert_eq!(code(&raw.responses[0]) == Status::COMMAND_ABORT_REQUESTED.code(), aborted, "{steps}");
        assert_eq!((statistics.writes, statistics.aborted_commands), (u64::from(!aborted), u64::from(aborted)));
        delays += u64::from(aborted);
    }
    assert!(delays > 0, "no abort came in time");
}

/// Memory whose next flushes fail.
struct Losing(MemoryStorage, Rc<Cell<u32>>);

impl Storage for Losing {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.0.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        // No write of these tests has this cookie, which a completion is recognized by.
        let lost = operation == Operation::Flush && self.1.get() > 0;
        self.1.set(self.1.get() - u32::from(lost));
        self.0.submit(if lost { Cookie(cookie.0 | LOST) } else { cookie }, operation)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        let count = self.0.poll(now, out);
        for completion in out.iter_mut().filter(|completion| completion.cookie.0 & LOST != 0) {
            *completion = Completion { cookie: Cookie(completion.cookie.0 & !LOST), result: Err(StorageError::Medium) };
        }
        count
    }
}

const LOST: u64 = 1 << 63;

/// The kernel tells of what it could not write once, and forgets it: the same Flush again succeeds, and the data is gone.
#[test]
fn a_flush_that_failed_is_not_to_be_tried_again() {
    let failures = Rc::new(Cell::new(0));
    let memory = MemoryStorage::new(memory(8 * BLOCK), BLOCK as u32, 8).unwrap();
    let mut raw = Raw::with(target_options(), vec![Losing(memory, Rc::clone(&failures))]);
    let (_, io) = raw.io_queue();
    failures.set(1);
    let response = raw.command(io, Command::Flush { namespace: 1 }, None);
    assert!(code(&response) == Status::WRITE_FAULT.code() && response.status().is_final());
    // A write that has to be on the medium brings its data again.
    failures.set(1);
    let [(write, data), ..] = changes(1);
    let mut entry = write.encode(0).unwrap();
    entry.dwords_10_15[2] = (entry.dwords_10_15[2].get() | 1 << 30).into();
    let response = raw.exchange(io, entry, data);
    assert!(code(&response) == Status::WRITE_FAULT.code() && !response.status().is_final());
    assert!(raw.exchange(io, entry, data).status().is_success());
    assert_eq!((failures.get(), raw.target.statistics().media_errors), (0, 2));
}
