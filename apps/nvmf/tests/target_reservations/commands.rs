//! What commands of each kind are answered, and who is told what there is.

use super::hosts::{CORES, Hosts, host_id, options};
use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{Reservations, Subsystem};
use frwr_nvmf::storage::{
    AttachError, CompletionBatch, Cookie, Features, Geometry, MemoryStorage, Operation, QueueFull, Storage,
};
use frwr_nvmf::wire::{
    AcquireAction, BlockRange, Command, DatasetManagement, Identify, IdentifyController, IdentifyNamespace,
    PersistChange, RegisterAction, ReleaseAction, ReservationReport, ReservationType, Status, WriteZeroes, cns, opcode,
};
use frwr_support::nvmf_harness::raw::{Raw, keyed};
use frwr_support::nvmf_harness::{memory, subsystem};
use zerocopy::FromBytes;

/// Storage that another gateway may serve, too.
struct Shared(MemoryStorage);

impl Storage for Shared {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn features(&self) -> Features {
        self.0.features().shared(true)
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.0.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        self.0.submit(cookie, operation)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        self.0.poll(now, out)
    }
}

fn identify<S: Storage>(raw: &mut Raw<S>, admin: ConnectionId, structure: u8, namespace: u32) -> Vec<u8> {
    let identify = Identify { structure, namespace, data: keyed(4096) };
    let response = raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096)));
    assert!(response.status().is_success(), "{}", response.status());
    let mut bytes = vec![0; 4096];
    raw.data.read(0, &mut bytes).unwrap();
    bytes
}

/// ONCS, and RESCAP of the first namespace.
fn offered<S: Storage>(raw: &mut Raw<S>, admin: ConnectionId) -> (bool, u8) {
    let controller = identify(raw, admin, cns::CONTROLLER, 0);
    let controller = IdentifyController::read_from_bytes(&controller).unwrap();
    let namespace = identify(raw, admin, cns::NAMESPACE, 1);
    let namespace = IdentifyNamespace::read_from_bytes(&namespace).unwrap();
    (controller.optional_commands.get() & IdentifyController::RESERVATIONS != 0, namespace.reservations)
}

#[test]
fn each_type_lets_each_host_do_what_the_table_says_on_every_core() {
    let mut all = Hosts::new(&Reservations::new(), &[1, 2, 3]);
    let (holder, registrant) = (all.io(0, 0), all.io(1, 1));
    assert_eq!(all.register(holder, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert_eq!(all.register(registrant, RegisterAction::Register, (0, 20)), Status::SUCCESS);
    for kind in ReservationType::ALL {
        assert_eq!(all.acquire(holder, AcquireAction::Acquire, kind, (10, 0)), Status::SUCCESS);
        // The holder, a registrant, and a host that is none.
        let reads = [true, kind.lets_read() || kind.is_of_registrants(), kind.lets_read()];
        let writes = [true, kind.is_of_registrants(), false];
        for core in 0..CORES {
            for (session, (reads, writes)) in reads.into_iter().zip(writes).enumerate() {
                let io = all.io(session, core);
                let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(512) };
                let zeroes = WriteZeroes { namespace: 1, lba: 1, blocks: 1, deallocate: false };
                let dataset = DatasetManagement { namespace: 1, ranges: 1, deallocate: true, data: keyed(16) };
                let (from, to) = (Access::RemoteRead, Access::RemoteWrite);
                let commands = [
                    (Command::Read(range), Some((to, 512)), reads),
                    (Command::Compare(range), Some((from, 512)), reads),
                    (Command::Write(range), Some((from, 512)), writes),
                    (Command::WriteZeroes(zeroes), None, writes),
                    (Command::DatasetManagement(dataset), Some((from, 16)), writes),
                    (Command::Flush { namespace: 1 }, None, writes),
                ];
                for (command, data, permitted) in commands {
                    // Zeros: equal blocks, and a range of nothing.
                    all.raw.data.fill(0, 512, 0).unwrap();
                    let status = all.raw.command(io, command, data).status();
                    let expected = if permitted { Status::SUCCESS } else { Status::RESERVATION_CONFLICT };
                    assert_eq!(status.without_flags(), expected, "{kind:?} {session} {command:?}");
                    assert_eq!(status.is_final(), !permitted, "a host that tries again is told the same");
                }
            }
        }
        assert_eq!(all.release(holder, ReleaseAction::Release, kind, 10), Status::SUCCESS);
        let outside = all.io(2, 0);
        assert_eq!(all.write(outside, 0), Status::SUCCESS, "nothing is held");
    }
    all.raw.shut_down();
}

#[test]
fn a_host_is_one_host_by_whatever_controller_it_comes() {
    let mut all = Hosts::new(&Reservations::new(), &[1, 1, 2]);
    let (first, second, other) = (all.io(0, 0), all.io(1, 1), all.io(2, 0));
    assert_eq!(all.register(first, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    let kind = ReservationType::ExclusiveAccess;
    assert_eq!(all.acquire(second, AcquireAction::Acquire, kind, (10, 0)), Status::SUCCESS);
    assert_eq!((all.write(first, 1), all.write(second, 2)), (Status::SUCCESS, Status::SUCCESS));
    assert_eq!((all.read(other), all.write(other, 3)), (Status::RESERVATION_CONFLICT, Status::RESERVATION_CONFLICT));
    let (head, registrants) = all.report(other);
    assert_eq!((head.generation.get(), head.kind, head.persists), (1, kind as u8, 0));
    assert_eq!(registrants, [(host_id(1), 10, true)]);
    assert_eq!(all.release(first, ReleaseAction::Clear, kind, 10), Status::SUCCESS);
    assert_eq!((all.report(first).1.len(), all.read(other)), (0, Status::SUCCESS));
    all.raw.shut_down();
}

/// As Linux releases: with the keys of a register, of which the second one is zeros.
#[test]
fn a_release_may_bring_two_keys() {
    let mut all = Hosts::new(&Reservations::new(), &[1, 2]);
    let (io, other) = (all.io(0, 0), all.io(1, 1));
    let kind = ReservationType::ExclusiveAccess;
    assert_eq!(all.register(io, RegisterAction::Register, (0, 10)), Status::SUCCESS);
    assert_eq!(all.acquire(io, AcquireAction::Acquire, kind, (10, 0)), Status::SUCCESS);
    assert_eq!(all.write(other, 1), Status::RESERVATION_CONFLICT);
    for (action, expected) in [(ReleaseAction::Release, 1), (ReleaseAction::Clear, 0)] {
        assert_eq!(all.release_with(io, action, kind, 10, 16), Status::SUCCESS);
        let (head, registrants) = all.report(io);
        assert_eq!((head.kind, registrants.len()), (0, expected));
    }
    assert_eq!(all.write(other, 1), Status::SUCCESS);
    all.raw.shut_down();
}

#[test]
fn a_host_without_an_identifier_cannot_be_told_from_others() {
    let mut all = Hosts::new(&Reservations::new(), &[0]);
    let io = all.io(0, 0);
    assert_eq!(all.register(io, RegisterAction::Register, (0, 1)), Status::INVALID_FIELD);
    assert!(all.report(io).1.is_empty());
}

#[test]
fn what_is_said_wrong_is_refused_and_changes_nothing() {
    let mut all = Hosts::new(&Reservations::new(), &[1]);
    let io = all.io(0, 0);
    assert_eq!(all.register(io, RegisterAction::Register, (0, 1)), Status::SUCCESS);
    let before = all.report(io);
    let entry = |opcode, selection: u32, length| {
        let read = Command::Read(BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(length) });
        let mut entry = read.encode(0).unwrap();
        entry.opcode = opcode;
        entry.dwords_10_15 = [selection.into(), 0.into(), 0.into(), 0.into(), 0.into(), 0.into()];
        entry
    };
    let (invalid, length) = (Status::INVALID_FIELD, Status::DATA_SGL_LENGTH_INVALID);
    let (register, acquire, release) =
        (opcode::RESERVATION_REGISTER, opcode::RESERVATION_ACQUIRE, opcode::RESERVATION_RELEASE);
    for (opcode, selection, bytes, expected) in [
        (register, 3, 16, invalid),
        (register, 1 << 30, 16, invalid),
        (register, 3 << 30, 16, invalid),
        (register, 0, 8, length),
        (register, 0, 32, length),
        (acquire, 3 | 1 << 8, 16, invalid),
        (acquire, 0, 16, invalid),
        (acquire, 7 << 8, 16, invalid),
        (acquire, 1 << 3 | 1 << 8, 16, invalid),
        (acquire, 1 << 8, 8, length),
        (release, 2 | 1 << 8, 8, invalid),
        (release, 1 << 3 | 1 << 8, 8, invalid),
        (release, 1 << 8, 32, length),
        (release, 1 << 8, 4, length),
    ] {
        let status = all.raw.exchange(io, entry(opcode, selection, bytes), Some((Access::RemoteRead, bytes))).status();
        assert_eq!(status.without_flags(), expected, "{opcode:#x} {selection:#x} {bytes}");
    }
    let report = |length, extended, said| {
        let report = ReservationReport { namespace: 1, length, extended, data: keyed(said) };
        Command::ReservationReport(report)
    };
    for (command, bytes, expected) in [
        (report(4096, false, 4096), 4096, Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT),
        (report(4096, true, 64), 64, length),
        (report(1 << 20, true, 1 << 20), 64 << 10, invalid),
    ] {
        let status = all.raw.command(io, command, Some((Access::RemoteWrite, bytes))).status();
        assert_eq!(status.without_flags(), expected, "{command:?}");
    }
    // As much as there is room for.
    let response = all.raw.command(io, report(4, true, 4), Some((Access::RemoteWrite, 4)));
    assert!(response.status().is_success());
    assert_eq!(all.report(io), before);
    all.raw.shut_down();
}

#[test]
fn hosts_are_told_what_there_is() {
    let mut all = Hosts::new(&Reservations::new(), &[1]);
    let admin = all.sessions[0].admin;
    assert_eq!(offered(&mut all.raw, admin), (true, 0xfe), "every type, and none survives");
    let io = all.io(0, 0);
    let persists = all.register_as(io, RegisterAction::Register, PersistChange::Set, (0, 1));
    assert_eq!(persists, Status::INVALID_FIELD);
    // What others may serve has none; nobody keeps any.
    let medium = memory(64 << 10);
    let mut all =
        Hosts::over(&Reservations::new(), &[1], |_| Shared(MemoryStorage::new(medium.clone(), 512, 64).unwrap()));
    let (admin, io) = (all.sessions[0].admin, all.io(0, 0));
    assert_eq!(offered(&mut all.raw, admin), (true, 0));
    assert_eq!(all.register(io, RegisterAction::Register, (0, 1)), Status::INVALID_COMMAND_OPCODE);
    let mut raw = Raw::spread(options(), |_| {
        vec![Subsystem::new(subsystem(), vec![MemoryStorage::new(medium.clone(), 512, 64).unwrap()])]
    });
    let (admin, _) = raw.controller();
    assert_eq!(offered(&mut raw, admin), (false, 0));
}
