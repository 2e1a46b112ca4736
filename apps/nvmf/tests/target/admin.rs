//! What hosts and their tools ask a target beside reading and writing: log pages, features, events, discovery.

use core::mem::size_of;
use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_nvmf::controller::{AllowedHosts, Subsystem};
use frwr_nvmf::storage::MemoryStorage;
use frwr_nvmf::wire::{
    self, Abort, AnaGroup, AnaLogHeader, AnaState, Command, CompletionQueueEntry, DataPointer, DatasetManagement,
    DatasetRange, DiscoveryEntry, DiscoveryHeader, EffectsLog, ErrorLogEntry, GetFeatures, GetLogPage, HealthLog,
    Identify, IdentifyController, IdentifyNvmController, InvalidParameter, KeyedDataBlock, Nqn, RequestPrivateData,
    Select, SetFeatures, Status, SubmissionQueueEntry, WriteZeroes, cns, feature, log_page, opcode,
};
use frwr_nvmf::wire::{BlockRange, ConnectData, DISCOVERY_SUBSYSTEM};
use frwr_support::nvmf_harness::raw::{Opened, Raw, UNSAID, connect, connect_data, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use std::net::SocketAddr;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

type Memory = Raw<MemoryStorage>;

fn code(response: &CompletionQueueEntry) -> u16 {
    response.status().code()
}

fn page(page: u8, offset: u64, length: u64) -> GetLogPage {
    // A host's buffer of 24 bit.
    let data = keyed(length as u32);
    let (specific, retain_event, offset_is_index) = (0, false, false);
    GetLogPage { page, specific, retain_event, length, offset, offset_is_index, namespace: 0xffff_ffff, data }
}

/// Asks for a page and returns its bytes; what was in the buffer before is not zeros.
fn log(raw: &mut Memory, admin: ConnectionId, get: GetLogPage) -> Result<Vec<u8>, u16> {
    raw.data.fill(0, 8192, 0xee).unwrap();
    let response = raw.command(admin, Command::GetLogPage(get), Some((Access::RemoteWrite, get.length as u32)));
    let mut bytes = vec![0; get.length as usize];
    raw.data.read(0, &mut bytes).unwrap();
    if response.status().is_success() { Ok(bytes) } else { Err(code(&response)) }
}

fn get(feature: u8, select: Select, value: u32) -> Command {
    Command::GetFeatures(GetFeatures { feature, select, namespace: 0, value, data: DataPointer::NONE })
}

fn set(feature: u8, value: u32) -> Command {
    Command::SetFeatures(SetFeatures { feature, save: false, namespace: 0, value })
}

fn blocks(lba: u64, blocks: u32) -> BlockRange {
    BlockRange { namespace: 1, lba, blocks, data: keyed(blocks * 512) }
}

#[test]
fn log_pages_have_their_sizes_and_offsets() {
    let mut raw = Raw::default();
    let (admin, _) = raw.io_queue();
    let health = HealthLog::read_from_bytes(&log(&mut raw, admin, page(log_page::HEALTH, 0, 512)).unwrap()).unwrap();
    assert_eq!((health.warnings, health.temperature.get(), health.available_spare), (0, 298, 100));
    let firmware = log(&mut raw, admin, page(log_page::FIRMWARE, 0, 512)).unwrap();
    assert_eq!(firmware[0], 1);
    assert_eq!(&firmware[8..16], format!("{:<8}", env!("CARGO_PKG_VERSION")).as_bytes());
    let whole = log(&mut raw, admin, page(log_page::EFFECTS, 0, 4096)).unwrap();
    let effects = EffectsLog::read_from_bytes(&whole).unwrap();
    assert_eq!(effects.admin[0x06].get(), EffectsLog::SUPPORTED);
    assert_eq!(effects.io[0x01].get(), EffectsLog::SUPPORTED | EffectsLog::CHANGES_DATA);
    assert_eq!((effects.admin[0x10].get(), effects.io[0x0d].get()), (0, 0));
    // Any part of it is that part.
    assert_eq!(log(&mut raw, admin, page(log_page::EFFECTS, 1024, 64)).unwrap(), whole[1024..1088]);
    // Behind its end are zeros, and no other host's data.
    assert_eq!(log(&mut raw, admin, page(log_page::HEALTH, 508, 16)).unwrap(), [0; 16]);
    let ana = log(&mut raw, admin, page(log_page::ANA, 0, 60)).unwrap();
    let (header, rest) = AnaLogHeader::read_from_prefix(&ana).unwrap();
    let (group, namespaces) = AnaGroup::read_from_prefix(rest).unwrap();
    assert_eq!((header.groups.get(), group.namespaces.get(), group.state), (1, 3, 1));
    assert_eq!(namespaces, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    let listed = log(&mut raw, admin, page(log_page::SUPPORTED, 0, 1024)).unwrap();
    let supported = (0..256).filter(|at| listed[at * 4] & 1 != 0).collect::<Vec<_>>();
    assert_eq!(supported, [0, 1, 2, 3, 4, 5, 12]);
}

#[test]
fn log_pages_that_do_not_exist_or_do_not_fit_are_refused() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    for (get, status) in [
        (page(log_page::DISCOVERY, 0, 1024), Status::INVALID_LOG_PAGE),
        (page(0xc0, 0, 512), Status::INVALID_LOG_PAGE),
        // Nobody keeps reservations.
        (page(log_page::RESERVATION_NOTIFICATION, 0, 64), Status::INVALID_LOG_PAGE),
        (page(log_page::HEALTH, 516, 4), Status::INVALID_FIELD),
        (page(log_page::HEALTH, u64::MAX - 3, 4), Status::INVALID_FIELD),
        (page(log_page::HEALTH, 2, 4), Status::INVALID_FIELD),
        (GetLogPage { offset_is_index: true, ..page(log_page::HEALTH, 0, 4) }, Status::INVALID_FIELD),
        (GetLogPage { namespace: 1, ..page(log_page::HEALTH, 0, 512) }, Status::INVALID_FIELD),
        (GetLogPage { data: keyed(8), ..page(log_page::HEALTH, 0, 4) }, Status::DATA_SGL_LENGTH_INVALID),
        (page(log_page::ERRORS, 0, 64 << 10), Status::INVALID_FIELD),
    ] {
        assert_eq!(log(&mut raw, admin, get), Err(status.code()), "{get:?}");
    }
}

#[test]
fn failed_commands_are_in_the_error_log() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    let bad = raw.command(io, Command::Read(blocks(1000, 1)), Some((Access::RemoteWrite, 512)));
    assert_eq!(code(&bad), Status::LBA_OUT_OF_RANGE.code());
    let missing = Command::Flush { namespace: 9 };
    let second = raw.command(io, missing, None);
    let bytes = log(&mut raw, admin, page(log_page::ERRORS, 0, 1024)).unwrap();
    let entries = bytes.chunks(64).map(|bytes| ErrorLogEntry::read_from_bytes(bytes).unwrap()).collect::<Vec<_>>();
    assert_eq!((entries[0].count.get(), entries[0].queue_id.get(), entries[0].namespace.get()), (2, 1, 9));
    assert_eq!((entries[0].status.get(), entries[0].command_id.get()), (second.status.get(), second.command_id.get()));
    assert_eq!((entries[1].count.get(), entries[1].status.get()), (1, bad.status.get()));
    assert!(entries[2..].iter().all(|entry| entry.count.get() == 0));
    // The oldest ones leave it.
    for _ in 0..20 {
        raw.command(io, missing, None);
    }
    let bytes = log(&mut raw, admin, page(log_page::ERRORS, 0, 1024)).unwrap();
    let counts = bytes.chunks(64).map(|bytes| ErrorLogEntry::read_from_bytes(bytes).unwrap().count.get());
    assert!(counts.eq((7..=22).rev()));
}

#[test]
fn features_keep_what_was_set_until_the_controller_is_reset() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    for (feature, default, value) in [
        (feature::ARBITRATION, 0, 0x0102_0307),
        (feature::TEMPERATURE_THRESHOLD, 0xffff, 300),
        (feature::ERROR_RECOVERY, 0, 50),
        (feature::VOLATILE_WRITE_CACHE, 1, 0),
        (feature::WRITE_ATOMICITY, 0, 1),
        (feature::ASYNCHRONOUS_EVENTS, 0, 0x900),
        (feature::KEEP_ALIVE_TIMER, 0, 5000),
    ] {
        let read = |raw: &mut Memory, select| raw.command(admin, get(feature, select, 0), None).result.get();
        assert_eq!(read(&mut raw, Select::Current), default, "{feature}");
        assert!(raw.command(admin, set(feature, value), None).status().is_success(), "{feature}");
        assert_eq!(read(&mut raw, Select::Current), u64::from(value), "{feature}");
        assert_eq!(read(&mut raw, Select::Default), default, "{feature}");
        assert_eq!(read(&mut raw, Select::Capabilities), 4, "{feature}");
    }
    assert_eq!(raw.command(admin, get(feature::NUMBER_OF_QUEUES, Select::Current, 0), None).result.get(), 0);
    for (command, status) in [
        (set(feature::POWER_MANAGEMENT, 1), Status::INVALID_FIELD),
        (set(feature::TEMPERATURE_THRESHOLD, 3 << 16), Status::INVALID_FIELD),
        (set(feature::HOST_IDENTIFIER, 0), Status::COMMAND_SEQUENCE_ERROR),
        (set(feature::INTERRUPT_COALESCING, 0), Status::INVALID_FIELD),
        (get(feature::INTERRUPT_COALESCING, Select::Current, 0), Status::INVALID_FIELD),
        (get(feature::HOST_IDENTIFIER, Select::Current, 0), Status::INVALID_FIELD),
        (get(feature::HOST_IDENTIFIER, Select::Current, 1), Status::DATA_SGL_LENGTH_INVALID),
        (get(0xd0, Select::Current, 0), Status::INVALID_FIELD),
    ] {
        assert_eq!(code(&raw.command(admin, command, None)), status.code(), "{command:?}");
    }
    let (feature, select) = (feature::HOST_IDENTIFIER, Select::Current);
    let command = Command::GetFeatures(GetFeatures { feature, select, namespace: 0, value: 1, data: keyed(16) });
    assert!(raw.command(admin, command, Some((Access::RemoteWrite, 16))).status().is_success());
    let mut host_id = [0; 16];
    raw.data.read(0, &mut host_id).unwrap();
    assert_eq!(host_id, [1; 16]);
}

fn event_request(raw: &mut Memory, admin: ConnectionId, id: u16) {
    raw.responses.clear();
    raw.send(admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, id), None);
}

#[test]
fn a_change_of_namespaces_is_told_once_until_its_page_is_read() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    raw.target.set_namespace_active(&subsystem(), 3, false).unwrap();
    assert!(raw.command(admin, set(feature::ASYNCHRONOUS_EVENTS, 0x900), None).status().is_success());
    event_request(&mut raw, admin, 900);
    raw.target.set_namespace_active(&subsystem(), 2, false).unwrap();
    raw.until("told", |raw| raw.responses.len() == 1);
    assert_eq!((raw.responses[0].command_id.get(), raw.responses[0].result.get()), (900, 0x0004_0002));
    assert_eq!(code(&raw.command(io, Command::Flush { namespace: 2 }, None)), Status::INVALID_FIELD.code());
    let identify = Identify { structure: cns::ACTIVE_NAMESPACES, namespace: 0, data: keyed(4096) };
    assert!(raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096))).status().is_success());
    let mut list = [0; 8];
    raw.data.read(0, &mut list).unwrap();
    assert_eq!(list, [1, 0, 0, 0, 0, 0, 0, 0]);
    // What it is called is not told of an inactive one (Base 5.17.2.3, 3.2.1.4).
    let named = |namespace| Command::Identify(Identify { structure: cns::DESCRIPTORS, namespace, data: keyed(4096) });
    for (namespace, status) in [(1, Status::SUCCESS), (2, Status::INVALID_FIELD), (4, Status::INVALID_NAMESPACE)] {
        let response = raw.command(admin, named(namespace), Some((Access::RemoteWrite, 4096)));
        assert_eq!(code(&response), status.code(), "namespace {namespace}");
    }
    // The next one waits for the page to be read.
    event_request(&mut raw, admin, 901);
    raw.target.set_namespace_active(&subsystem(), 2, true).unwrap();
    let retained = GetLogPage { retain_event: true, ..page(log_page::CHANGED_NAMESPACES, 0, 16) };
    assert_eq!(log(&mut raw, admin, retained).unwrap()[..12], [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(raw.target.statistics().events, 1);
    log(&mut raw, admin, page(log_page::CHANGED_NAMESPACES, 0, 16)).unwrap();
    assert_eq!(log(&mut raw, admin, page(log_page::CHANGED_NAMESPACES, 0, 16)).unwrap(), [0; 16]);
    raw.responses.clear();
    raw.target.set_namespace_active(&subsystem(), 3, true).unwrap();
    raw.until("told again", |raw| raw.responses.len() == 1);
    assert_eq!(raw.responses[0].command_id.get(), 901);
    assert!(raw.target.set_namespace_active(&subsystem(), 4, true).is_err());
    assert!(raw.target.set_namespace_active(&Nqn::new("nqn.none").unwrap(), 1, true).is_err());
}

#[test]
fn commands_of_an_inaccessible_group_fail_so_that_hosts_try_again() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    raw.command(admin, set(feature::ASYNCHRONOUS_EVENTS, 0x800), None);
    event_request(&mut raw, admin, 900);
    raw.target.set_ana_state(&subsystem(), None, AnaState::Inaccessible).unwrap();
    raw.until("told", |raw| raw.responses.len() == 1);
    assert_eq!(raw.responses[0].result.get(), 0x000c_0302);
    let refused = raw.command(io, Command::Read(blocks(0, 1)), Some((Access::RemoteWrite, 512)));
    assert_eq!((code(&refused), refused.status().is_final()), (Status::ANA_INACCESSIBLE.code(), false));
    let ana = log(&mut raw, admin, page(log_page::ANA, 16, 32)).unwrap();
    assert_eq!(AnaGroup::read_from_bytes(&ana).unwrap().state, AnaState::Inaccessible as u8);
    raw.target.set_ana_state(&subsystem(), None, AnaState::Optimized).unwrap();
    assert!(raw.command(io, Command::Flush { namespace: 1 }, None).status().is_success());
}

#[test]
fn an_aborted_event_request_is_answered() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    event_request(&mut raw, admin, 900);
    let entry = Command::Abort(Abort { queue_id: 0, command_id: 900 }).encode(901).unwrap();
    raw.send(admin, entry, None);
    raw.until("answered", |raw| raw.responses.len() == 2);
    raw.responses.sort_by_key(|response| response.command_id.get());
    assert_eq!(code(&raw.responses[0]), Status::COMMAND_ABORT_REQUESTED.code());
    assert_eq!((code(&raw.responses[1]), raw.responses[1].result.get()), (0, 0));
    let unknown = raw.command(admin, Command::Abort(Abort { queue_id: 1, command_id: 7 }), None);
    assert_eq!((code(&unknown), unknown.result.get()), (0, 1), "not aborted");
    assert_eq!(raw.target.statistics().commands_in_flight, 0);
}

/// Events that a host is told of an end: that its subsystem shuts down, and that the states of its ANA groups have changed.
const SHUTS_DOWN: u64 = 0x3;
const ANA_CHANGED: u64 = 0x000c_0302;

#[test]
fn an_end_is_told_to_hosts_that_wait_for_it_and_then_ends_all_connections() {
    let of_states = 1 << 11;
    for (configuration, told) in [(0x8000, &[SHUTS_DOWN][..]), (of_states, &[ANA_CHANGED]), (0x0100, &[])] {
        for (waits, with_queue) in [(true, true), (true, false), (false, true)] {
            let mut raw = Raw::default();
            let (admin, controller) = raw.controller();
            let io = with_queue.then(|| raw.another_queue(controller, 1));
            assert!(raw.command(admin, set(feature::ASYNCHRONOUS_EVENTS, configuration), None).status().is_success());
            raw.responses.clear();
            if waits {
                event_request(&mut raw, admin, 900);
            }
            raw.steps(50);
            let begun = raw.now;
            raw.target.end(begun);
            raw.steps(200);
            let results: Vec<_> = raw.responses.iter().map(|response| response.result.get()).collect();
            assert_eq!(results, if waits { told } else { &[] }, "{configuration:#x}");
            raw.responses.clear();
            if let Some(io) = io {
                // Whatever comes by then is not executed, and told so: a host sends it elsewhere.
                let refused = raw.command(io, Command::Read(blocks(0, 1)), Some((Access::RemoteWrite, 512)));
                assert_eq!(code(&refused), Status::ANA_INACCESSIBLE.code());
                assert!(!refused.status().is_final());
                raw.pass(Duration::from_secs(1));
            }
            raw.pass(Duration::from_millis(100));
            let all = 1 + usize::from(io.is_some());
            raw.until("drained", |raw| raw.target.is_drained() && raw.disconnected.len() == all);
            assert_eq!(raw.open(RequestPrivateData::new(0, 32).as_bytes()), Opened::Rejected(UNSAID));
        }
    }
}

/// A host may be on its way in front of the listener's end, and nothing takes it in behind that.
#[test]
fn who_comes_while_a_target_ends_is_not_kept() {
    for steps in 0..40 {
        let mut raw = Raw::default();
        raw.io_queue();
        raw.begin_open(RequestPrivateData::new(0, 32).as_bytes());
        raw.steps(steps / 2);
        // Of every other one Control hears late that nobody listens any more.
        raw.controlled = steps % 2 == 0;
        raw.target.end(raw.now);
        raw.target.end(raw.now);
        raw.steps(20);
        raw.controlled = true;
        raw.pass(Duration::from_millis(1100));
        raw.until("drained", |raw| raw.target.is_drained() && raw.engine.is_disconnected());
        raw.steps(100);
        assert!(raw.target.is_drained() && raw.engine.is_disconnected(), "{steps}");
    }
}

#[test]
fn a_change_of_the_discovery_log_is_told_to_whom_it_concerns() {
    let mut raw = two_subsystems();
    let admin = raw.open_queue(0, 32);
    let mut data = connect_data(0xffff);
    data.subsystem = Nqn::new(DISCOVERY_SUBSYSTEM).unwrap();
    assert!(raw.connect(admin, connect(0, 31), &data).status().is_success());
    raw.enable(admin);
    let identify = Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(4096) };
    assert!(raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096))).status().is_success());
    let mut bytes = [0; 4096];
    raw.data.read(0, &mut bytes).unwrap();
    let events = IdentifyController::read_from_bytes(&bytes).unwrap().events.get();
    assert_eq!(events, IdentifyController::DISCOVERY_EVENTS);
    assert!(raw.command(admin, set(feature::ASYNCHRONOUS_EVENTS, events), None).status().is_success());
    assert_eq!(code(&raw.command(admin, set(feature::ASYNCHRONOUS_EVENTS, 0x100), None)), Status::INVALID_FIELD.code());
    event_request(&mut raw, admin, 900);
    let header = |raw: &mut Memory| {
        let page = log(raw, admin, page(log_page::DISCOVERY, 0, 1024)).unwrap();
        let header = DiscoveryHeader::read_from_bytes(&page).unwrap();
        (header.generation.get(), header.records.get())
    };
    assert_eq!(header(&mut raw), (1, 2));
    // Nothing for this host.
    let name = |text: &str| Nqn::new(text).unwrap();
    let listed = |names: &[&str]| AllowedHosts::Listed(names.iter().map(|text| name(text)).collect());
    raw.responses.clear();
    raw.target.set_allowed_hosts(&name("nqn.second"), listed(&["nqn.other", "nqn.another"]), Duration::ZERO).unwrap();
    for _ in 0..50 {
        raw.step();
    }
    assert!(raw.responses.is_empty());
    raw.target.set_allowed_hosts(&name("nqn.second"), AllowedHosts::Any, Duration::ZERO).unwrap();
    raw.until("told", |raw| raw.responses.len() == 1);
    assert_eq!((raw.responses[0].command_id.get(), raw.responses[0].result.get()), (900, 0x0070_f002));
    // The next one waits for the page to be read.
    event_request(&mut raw, admin, 901);
    raw.target.set_allowed_hosts(&name("nqn.first"), listed(&[]), Duration::ZERO).unwrap();
    for _ in 0..50 {
        raw.step();
    }
    assert!(raw.responses.is_empty());
    assert_eq!(header(&mut raw), (4, 2));
    raw.responses.clear();
    raw.target.set_allowed_hosts(&name("nqn.third"), listed(&[]), Duration::ZERO).unwrap();
    raw.until("told", |raw| raw.responses.len() == 1);
    assert!(raw.target.set_allowed_hosts(&name("nqn.none"), AllowedHosts::Any, Duration::ZERO).is_err());
}

#[test]
fn compare_write_zeroes_and_deallocate() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    raw.data.fill(0, 1024, 0x55).unwrap();
    let mut write = Command::Write(blocks(4, 2)).encode(0).unwrap();
    // FUA.
    write.dwords_10_15[2] = (1 | 1 << 30).into();
    assert!(raw.exchange(io, write, Some((Access::RemoteRead, 1024))).status().is_success());
    let compare = Command::Compare(blocks(4, 2));
    assert!(raw.command(io, compare, Some((Access::RemoteRead, 1024))).status().is_success());
    raw.data.fill(1023, 1, 0).unwrap();
    let differs = raw.command(io, compare, Some((Access::RemoteRead, 1024)));
    assert_eq!(code(&differs), Status::COMPARE_FAILURE.code());
    let zeroes = |lba, blocks| Command::WriteZeroes(WriteZeroes { namespace: 1, lba, blocks, deallocate: true });
    assert!(raw.command(io, zeroes(5, 1), None).status().is_success());
    assert_eq!(code(&raw.command(io, zeroes(127, 2), None)), Status::LBA_OUT_OF_RANGE.code());
    assert!(raw.command(io, Command::Read(blocks(4, 2)), Some((Access::RemoteWrite, 1024))).status().is_success());
    let mut bytes = [0; 1024];
    raw.data.read(0, &mut bytes).unwrap();
    assert!(bytes[..512] == [0x55; 512] && bytes[512..] == [0; 512]);

    let ranges = [(0, 4), (9, 0), (127, 1)].map(|(lba, blocks): (u64, u32)| {
        let mut range = DatasetRange::new_zeroed();
        (range.lba, range.blocks) = (lba.into(), blocks.into());
        range
    });
    raw.data.write(0, ranges.as_bytes()).unwrap();
    let dataset = |ranges, length| {
        let data = keyed(length);
        Command::DatasetManagement(DatasetManagement { namespace: 1, ranges, deallocate: true, data })
    };
    assert!(raw.command(io, dataset(3, 48), Some((Access::RemoteRead, 48))).status().is_success());
    // As Linux does it: the bytes of 256 ranges, of which one counts.
    assert!(raw.command(io, dataset(1, 4096), Some((Access::RemoteRead, 4096))).status().is_success());
    for (ranges, length) in [(4, 48), (1, 4112)] {
        let wrong = raw.command(io, dataset(ranges, length), Some((Access::RemoteRead, length)));
        assert_eq!(code(&wrong), Status::DATA_SGL_LENGTH_INVALID.code(), "{ranges} ranges, {length} bytes");
    }
    raw.data.write(40, &128_u64.to_le_bytes()).unwrap();
    let outside = raw.command(io, dataset(3, 48), Some((Access::RemoteRead, 48)));
    assert_eq!(code(&outside), Status::LBA_OUT_OF_RANGE.code());
    let statistics = raw.target.statistics();
    assert_eq!((statistics.compares, statistics.write_zeroes, statistics.deallocations), (1, 1, 3));
    let identify = Identify { structure: cns::COMMAND_SET_CONTROLLER, namespace: 0, data: keyed(4096) };
    assert!(raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096))).status().is_success());
    let mut limits = [0; 4096];
    raw.data.read(0, &mut limits).unwrap();
    assert_eq!(IdentifyNvmController::read_from_bytes(&limits).unwrap().write_zeroes_limit, 8);
    raw.until("idle", |raw| raw.target.statistics().slots_used == 0);
    let all = target_options().buffer_memory_bytes(8) / target_options().buffer_bytes as usize;
    assert_eq!(raw.target.statistics().buffers_free, all as u64);
}

/// A command's entry followed by a list of descriptors, with a last segment descriptor as its data pointer.
fn scattered(command: Command, id: u16, list: &[KeyedDataBlock]) -> Vec<u8> {
    let mut entry = command.encode(id).unwrap();
    let mut pointer = [0; 16];
    pointer[8..12].copy_from_slice(&(list.len() as u32 * 16).to_le_bytes());
    pointer[15] = 0x31;
    entry.data = pointer;
    let mut bytes = entry.as_bytes().to_vec();
    for block in list {
        bytes.extend(DataPointer::Keyed(*block).encode().unwrap());
    }
    bytes
}

#[test]
fn lists_of_data_blocks_are_checked() {
    let options = target_options().in_capsule_bytes(256).data_blocks(4);
    let mut raw = Raw::with(options, vec![MemoryStorage::new(memory(64 << 10), 512, 64).unwrap()]);
    let (admin, io) = raw.io_queue();
    let identify = Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(4096) };
    raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096)));
    let mut bytes = [0; 4096];
    raw.data.read(0, &mut bytes).unwrap();
    assert_eq!(IdentifyController::read_from_bytes(&bytes).unwrap().max_data_blocks, 4);
    let block = |length| KeyedDataBlock { address: 0, length, key: 1, invalidate: false };
    let read = Command::Read(blocks(0, 2));
    for (list, status) in [
        (vec![block(512); 1], Status::DATA_SGL_LENGTH_INVALID),
        (vec![block(512), block(0)], Status::DATA_SGL_LENGTH_INVALID),
        (vec![block(0xff_ffff); 4], Status::DATA_SGL_LENGTH_INVALID),
        (vec![block(256); 5], Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        (vec![], Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
    ] {
        raw.responses.clear();
        raw.send_bytes(io, &scattered(read, 700, &list), 700, None);
        raw.until("answered", |raw| raw.responses.len() == 1);
        assert_eq!(code(&raw.responses[0]), status.code(), "{list:?}");
    }
    // A list that would end behind the capsule, and one of an admin command.
    let mut beyond = scattered(read, 701, &[block(1024)]);
    beyond.truncate(70);
    raw.send_bytes(io, &beyond, 701, None);
    raw.send_bytes(admin, &scattered(Command::Identify(identify), 702, &[block(4096)]), 702, None);
    raw.until("answered", |raw| raw.responses.len() == 3);
    raw.responses.sort_by_key(|response| response.command_id.get());
    assert_eq!(code(&raw.responses[1]), Status::DATA_SGL_LENGTH_INVALID.code());
    assert_eq!(code(&raw.responses[2]), Status::SGL_DESCRIPTOR_TYPE_INVALID.code());
    assert_eq!(raw.target.statistics().slots_used, 0);
}

#[test]
fn data_moves_between_blocks_and_lists_of_data_blocks() {
    let options = target_options().in_capsule_bytes(256).data_blocks(4);
    let mut raw = Raw::with(options, storage());
    let (_, io) = raw.io_queue();
    let list = [100, 1, 923].map(|length| KeyedDataBlock { address: 0, length, key: 0, invalidate: true });
    let pattern = (0..1024_u32).map(|at| (at * 7 % 251) as u8).collect::<Vec<_>>();
    raw.data.write(0, &pattern).unwrap();
    for (id, command, access) in [
        (800, Command::Write(blocks(7, 2)), Access::RemoteRead),
        (801, Command::Compare(blocks(7, 2)), Access::RemoteRead),
        (802, Command::Read(blocks(7, 2)), Access::RemoteWrite),
    ] {
        raw.responses.clear();
        raw.invite = true;
        raw.send_bytes(io, &scattered(command, id, &list), id, Some((access, 1024)));
        raw.until("answered", |raw| raw.responses.len() == 1);
        assert!(raw.responses[0].status().is_success(), "{}", raw.responses[0].status());
        let mut bytes = vec![0; 1024];
        raw.data.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, pattern);
        raw.data.fill(0, 1024, if id == 801 { 0xee } else { 0 }).unwrap();
        if id == 800 {
            raw.data.write(0, &pattern).unwrap();
        }
    }
    assert_eq!((raw.target.statistics().remote_invalidations, raw.target.statistics().compares), (3, 1));
}

#[test]
fn connect_data_may_follow_the_command() {
    let options = target_options().in_capsule_bytes(1024);
    let mut raw = Raw::with(options, storage());
    let (_, controller) = raw.controller();
    let io = raw.open_queue(1, 32);
    let data = DataPointer::InCapsule { offset: 0, length: 1024 };
    let entry = Command::Connect(wire::Connect { data, ..connect(1, 31) }).encode(600).unwrap();
    let mut bytes = entry.as_bytes().to_vec();
    bytes.extend(connect_data(controller).to_bytes());
    raw.responses.clear();
    raw.send_bytes(io, &bytes, 600, None);
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert!(raw.responses[0].status().is_success(), "{}", raw.responses[0].status());
}

fn storage() -> Vec<MemoryStorage> {
    vec![MemoryStorage::new(memory(64 << 10), 512, 64).unwrap()]
}

fn named(name: &str, hosts: AllowedHosts) -> Subsystem<MemoryStorage> {
    Subsystem { hosts, ..Subsystem::new(Nqn::new(name).unwrap(), storage()) }
}

/// Two subsystems, the second of which is for a host that is not ours.
fn two_subsystems() -> Memory {
    let other = AllowedHosts::Listed(vec![Nqn::new("nqn.other").unwrap()]);
    let ours = AllowedHosts::Listed(vec![Nqn::new("nqn.host").unwrap()]);
    let subsystems = vec![named("nqn.first", ours), named("nqn.second", other), named("nqn.third", AllowedHosts::Any)];
    Raw::with_subsystems(target_options(), subsystems)
}

#[test]
fn hosts_that_are_not_listed_do_not_connect() {
    let mut raw = two_subsystems();
    let admin = raw.open_queue(0, 32);
    let mut data = connect_data(0xffff);
    data.subsystem = Nqn::new("nqn.second").unwrap();
    assert_eq!(code(&raw.connect(admin, connect(0, 31), &data)), Status::CONNECT_INVALID_HOST.code());
    data.subsystem = Nqn::new("nqn.first").unwrap();
    let controller = raw.connect(admin, connect(0, 31), &data);
    assert!(controller.status().is_success());
    // Its I/O queues are not those of another subsystem.
    let io = raw.open_queue(1, 32);
    data.controller_id = controller.result.get() as u16;
    data.subsystem = Nqn::new("nqn.third").unwrap();
    assert_eq!(raw.connect(io, connect(1, 31), &data).result.get(), InvalidParameter::CONTROLLER_ID.to_result());
}

/// As spdk_nvme_perf is, where it is not told a name.
#[test]
fn a_host_without_a_name_may_use_what_is_for_all() {
    let mut raw = two_subsystems();
    let admin = raw.open_queue(0, 32);
    let mut data = ConnectData { host: None, ..connect_data(0xffff) };
    data.subsystem = Nqn::new("nqn.first").unwrap();
    assert_eq!(code(&raw.connect(admin, connect(0, 31), &data)), Status::CONNECT_INVALID_HOST.code());
    data.subsystem = Nqn::new("nqn.third").unwrap();
    let controller = raw.connect(admin, connect(0, 31), &data);
    assert!(controller.status().is_success());
    raw.enable(admin);
    let io = raw.open_queue(1, 32);
    data.controller_id = controller.result.get() as u16;
    // Another host's queue is none of its controller's.
    let stranger = ConnectData { host: Nqn::new("nqn.host").ok(), ..data };
    assert_eq!(code(&raw.connect(io, connect(1, 31), &stranger)), Status::CONNECT_INVALID_HOST.code());
    assert!(raw.connect(io, connect(1, 31), &data).status().is_success());
    assert!(raw.command(io, Command::Flush { namespace: 1 }, None).status().is_success());
}

fn discovery(raw: &mut Memory, keep_alive_timeout: u32) -> ConnectionId {
    let admin = raw.open_queue(0, 32);
    let data = ConnectData { subsystem: Nqn::new(DISCOVERY_SUBSYSTEM).unwrap(), ..connect_data(0xffff) };
    let connect = wire::Connect { keep_alive_timeout, ..connect(0, 31) };
    assert!(raw.connect(admin, connect, &data).status().is_success());
    raw.enable(admin);
    admin
}

/// A host that asks for no keep alive of the discovery service, and is gone without a word, keeps its place for two minutes.
#[test]
fn a_silent_host_of_the_discovery_service_keeps_its_place_for_a_while() {
    let second = Duration::from_secs(1);
    let subsystems = vec![named("nqn.first", AllowedHosts::Any), Subsystem::new(subsystem(), storage())];
    let mut raw = Raw::with_subsystems(target_options().discovery_controllers(3), subsystems);
    let [silent, busy, alive] = [0, 0, 300_000].map(|keep_alive| discovery(&mut raw, keep_alive));
    let (io, _) = raw.controller();
    // What it set later is no keep alive either.
    assert!(raw.command(silent, set(feature::KEEP_ALIVE_TIMER, 0), None).status().is_success());
    let ended = |raw: &Memory| (raw.disconnected.clone(), raw.target.statistics().keep_alive_expirations);
    raw.pass(119 * second);
    raw.steps(20);
    assert_eq!(ended(&raw), (vec![], 0));
    log(&mut raw, busy, page(log_page::DISCOVERY, 0, 1024)).unwrap();
    raw.pass(2 * second);
    raw.until("ended", |raw| raw.disconnected == [silent]);
    raw.pass(117 * second);
    raw.steps(20);
    assert_eq!(ended(&raw), (vec![silent], 1));
    raw.pass(2 * second);
    raw.until("ended", |raw| raw.disconnected == [silent, busy]);
    raw.steps(20);
    assert_eq!(ended(&raw).1, 2);
    // Who asks for a time has that, and a controller of a subsystem none.
    for (admin, value) in [(alive, 300_000), (io, 0)] {
        let kept = raw.command(admin, get(feature::KEEP_ALIVE_TIMER, Select::Current, 0), None);
        assert_eq!(kept.result.get(), value);
    }
}

/// All of a machine's addresses are no address to connect to: a host is told the one that it connected to.
#[test]
fn a_target_that_listens_everywhere_tells_each_host_where_it_is() {
    for (listens, asked, family) in [
        ("0.0.0.0:4420", ["192.168.7.1", "10.0.0.1"], 1),
        ("[::]:4420", ["fd00::7", "::ffff:10.0.0.1"], 2),
        ("127.0.0.1:4420", ["127.0.0.1", "127.0.0.1"], 1),
    ] {
        let options = target_options().addresses(vec![listens.parse().unwrap()]).controllers(2);
        let mut raw = Raw::with_subsystems(options, vec![named("nqn.first", AllowedHosts::Any)]);
        for address in asked {
            raw.address = SocketAddr::new(address.parse().unwrap(), 4420);
            let admin = discovery(&mut raw, 0);
            let entry = log(&mut raw, admin, page(log_page::DISCOVERY, 1024, 1024)).unwrap();
            let entry = DiscoveryEntry::read_from_bytes(&entry).unwrap();
            let (told, family) = address.strip_prefix("::ffff:").map_or((address, family), |mapped| (mapped, 1));
            assert_eq!(core::str::from_utf8(&entry.address).unwrap().trim_end(), told);
            assert_eq!((entry.address_family, &entry.service[..5]), (family, &b"4420 "[..]));
        }
    }
}

#[test]
fn the_discovery_service_lists_what_a_host_may_use() {
    let mut raw = two_subsystems();
    let admin = raw.open_queue(0, 32);
    let mut data = connect_data(0xffff);
    data.subsystem = Nqn::new(DISCOVERY_SUBSYSTEM).unwrap();
    assert!(raw.connect(admin, connect(0, 31), &data).status().is_success());
    raw.enable(admin);
    let identify = Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(4096) };
    assert!(raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096))).status().is_success());
    let mut bytes = [0; 4096];
    raw.data.read(0, &mut bytes).unwrap();
    let controller = IdentifyController::read_from_bytes(&bytes).unwrap();
    assert_eq!((controller.controller_type, controller.namespaces.get()), (2, 0));
    assert_eq!(controller.subsystem, data.subsystem.to_field());
    let header = log(&mut raw, admin, page(log_page::DISCOVERY, 0, 1024)).unwrap();
    assert_eq!(DiscoveryHeader::read_from_bytes(&header).unwrap().records.get(), 2);
    let entries = log(&mut raw, admin, page(log_page::DISCOVERY, 1024, 2048)).unwrap();
    let (first, third) = entries.split_at(size_of::<DiscoveryEntry>());
    let first = DiscoveryEntry::read_from_bytes(first).unwrap();
    assert_eq!(first.subsystem, Nqn::new("nqn.first").unwrap().to_field());
    assert_eq!(DiscoveryEntry::read_from_bytes(third).unwrap().subsystem, Nqn::new("nqn.third").unwrap().to_field());
    assert_eq!((first.transport, first.address_family, first.subsystem_type), (1, 1, 2));
    assert_eq!((&first.address[..10], &first.service[..5]), (&b"127.0.0.1 "[..], &b"4420 "[..]));
    assert_eq!((first.rdma, first.controller_id.get()), ([1, 1, 1], 0xffff));
    // It has no namespaces, no medium and no I/O queues.
    assert_eq!(log(&mut raw, admin, page(log_page::HEALTH, 0, 512)), Err(Status::INVALID_LOG_PAGE.code()));
    assert_eq!(code(&raw.command(admin, set(feature::NUMBER_OF_QUEUES, 0), None)), Status::INVALID_FIELD.code());
    let identify = Command::Identify(Identify { structure: cns::NAMESPACE, namespace: 1, data: keyed(4096) });
    let refused = raw.command(admin, identify, Some((Access::RemoteWrite, 4096)));
    assert_eq!(code(&refused), Status::INVALID_FIELD.code());
    let io = raw.open_queue(1, 32);
    data.controller_id = controller.controller_id.get();
    assert_eq!(raw.connect(io, connect(1, 31), &data).result.get(), InvalidParameter::QUEUE_ID.to_result());
}
