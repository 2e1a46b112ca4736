//! What the standards demand of a controller, and no other test happens to look at.

use core::time::Duration;
use frwr_engine::provider::Access;
use frwr_nvmf::storage::{MemoryStorage, Operation};
use frwr_nvmf::wire::{
    self, BlockRange, Command, CompletionQueueEntry, GetFeatures, Identify, Select, Status, SubmissionQueueEntry,
    WriteZeroes, cns, feature, opcode,
};
use frwr_support::nvmf_harness;
use frwr_support::nvmf_harness::cached::Cached;
use frwr_support::nvmf_harness::raw::{Raw, connect, connect_data, keyed};
use frwr_support::nvmf_harness::target_options;

const BLOCK: u32 = 512;

fn code(response: &CompletionQueueEntry) -> u16 {
    response.status().code()
}

fn range(lba: u64) -> BlockRange {
    BlockRange { namespace: 1, lba, blocks: 1, data: keyed(BLOCK) }
}

/// Disconnect and authentication are optional: a controller that has neither says so, and goes on.
#[test]
fn fabrics_commands_that_are_optional_are_invalid_opcodes() {
    let mut raw = Raw::default();
    let (admin, io) = raw.io_queue();
    let known = |queue, kind| match kind {
        wire::fabrics::CONNECT => true,
        wire::fabrics::PROPERTY_GET | wire::fabrics::PROPERTY_SET => queue == admin,
        _ => false,
    };
    for queue in [admin, io] {
        for kind in (0..=u8::MAX).filter(|kind| !known(queue, *kind)) {
            let mut entry = SubmissionQueueEntry::new(opcode::FABRICS, 0);
            entry.namespace = u32::from(kind).into();
            assert_eq!(code(&raw.exchange(queue, entry, None)), Status::INVALID_COMMAND_OPCODE.code(), "{kind:#x}");
        }
    }
    assert!(raw.command(io, Command::Flush { namespace: 1 }, None).status().is_success());
}

/// Flow control is not given up because a host asks for it: the head pointer is one, as in every answer that follows.
#[test]
fn a_host_that_gives_flow_control_up_is_told_the_head_all_the_same() {
    const WITHOUT_FLOW_CONTROL: u8 = 1 << 2;
    let mut raw = Raw::default();
    let (_, controller) = raw.controller();
    let io = raw.open_queue(1, 33);
    let connect = wire::Connect { attributes: WITHOUT_FLOW_CONTROL, ..connect(1, 32) };
    let answer = raw.connect(io, connect, &connect_data(controller));
    assert!(answer.status().is_success());
    assert_eq!(answer.submission_queue_head.get(), 1, "the Connect was the first entry");
    let next = raw.command(io, Command::Flush { namespace: 1 }, None);
    assert_eq!((next.submission_queue_head.get(), next.submission_queue_id.get()), (2, 0));
}

/// No fused operation is offered, so neither half of one is executed.
#[test]
fn both_halves_of_a_fused_compare_and_write_are_refused() {
    const FIRST: u8 = 0x41;
    const SECOND: u8 = 0x42;
    const FUSES: usize = 522;
    let (storage, cache) = Cached::new(8, BLOCK);
    let mut raw = Raw::with(target_options(), vec![storage]);
    let (admin, io) = raw.io_queue();
    for (command, flags) in [(Command::Compare(range(0)), FIRST), (Command::Write(range(0)), SECOND)] {
        let mut entry = command.encode(0).unwrap();
        entry.flags = flags;
        let refused = raw.exchange(io, entry, Some((Access::RemoteRead, BLOCK))).status();
        assert_eq!(refused, Status::INVALID_FIELD.do_not_retry(), "{command:?}");
    }
    assert!(cache.log.borrow().is_empty());
    let identify = Identify { structure: cns::CONTROLLER, namespace: 0, data: keyed(4096) };
    assert!(raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096))).status().is_success());
    let mut told = [0xff; 2];
    raw.data.read(FUSES, &mut told).unwrap();
    assert_eq!(told, [0; 2]);
}

/// What is written with FUA is on the medium when it is answered, and what is written without is not there by that.
#[test]
fn what_is_written_with_fua_is_on_the_medium_when_it_is_answered() {
    let zeroes = WriteZeroes { namespace: 1, lba: 1, blocks: 1, deallocate: false };
    for (command, data) in
        [(Command::Write(range(1)), Some((Access::RemoteRead, BLOCK))), (Command::WriteZeroes(zeroes), None)]
    {
        for unit_access in [false, true] {
            let (storage, cache) = Cached::new(8, BLOCK);
            let mut raw = Raw::with(target_options(), vec![storage]);
            let (_, io) = raw.io_queue();
            let mut entry = command.encode(0).unwrap();
            entry.dwords_10_15[2] = (entry.dwords_10_15[2].get() | u32::from(unit_access) << 30).into();
            assert!(raw.exchange(io, entry, data).status().is_success());
            assert_eq!(cache.dirty.get(), !unit_access, "{command:?}");
            let log = cache.log.borrow();
            assert_eq!(log.last() == Some(&Operation::Flush), unit_access, "{log:?}");
        }
    }
}

/// KATO is milliseconds, rounded up to what KAS says; any command counts as a sign of life, on either kind of queue.
#[test]
fn a_keep_alive_timeout_is_rounded_up_and_traffic_of_any_queue_is_a_sign_of_life() {
    const HALF: Duration = Duration::from_millis(1500);
    let mut raw = Raw::default();
    let admin = raw.open_queue(0, 32);
    let connect = wire::Connect { keep_alive_timeout: 2500, ..connect(0, 31) };
    let controller = raw.connect(admin, connect, &connect_data(0xffff)).result.get() as u16;
    raw.enable(admin);
    let io = raw.another_queue(controller, 1);
    let (feature, select, data) = (feature::KEEP_ALIVE_TIMER, Select::Current, wire::DataPointer::NONE);
    let get = Command::GetFeatures(GetFeatures { feature, select, namespace: 0, value: 0, data });
    assert_eq!(raw.command(admin, get, None).result.get(), 3000);
    for round in 0..8 {
        raw.pass(HALF);
        let (queue, command) =
            if round % 2 == 0 { (io, Command::Flush { namespace: 1 }) } else { (admin, Command::KeepAlive) };
        assert!(raw.command(queue, command, None).status().is_success(), "{round}");
    }
    raw.pass(HALF + HALF);
    assert!(raw.disconnected.is_empty(), "not before it is over");
    raw.pass(HALF);
    raw.until("ended", |raw| raw.disconnected.len() == 2);
    assert_eq!(raw.target.statistics().keep_alive_expirations, 1);
}

/// A queue is as deep as Connect says, whatever more the connect request asked for.
#[test]
fn a_queue_is_as_deep_as_its_connect_says() {
    let mut raw = Raw::default();
    let (_, controller) = raw.controller();
    let io = raw.open_queue(1, 33);
    assert!(raw.connect(io, connect(1, 3), &connect_data(controller)).status().is_success());
    for command in 2_u16..20 {
        let response = raw.command(io, Command::Flush { namespace: 1 }, None);
        assert_eq!(response.submission_queue_head.get(), command % 4);
    }
}

/// A host that posted fewer receives than it may have commands outstanding could not take their answers.
#[test]
fn fewer_receives_than_commands_are_rejected() {
    use frwr_nvmf::wire::RejectStatus;
    use nvmf_harness::raw::Opened;
    let mut raw = Raw::default();
    // RECFMT, QID, HRQSIZE, HSQSIZE.
    let few: Vec<u8> = [0_u16, 1, 15, 31].iter().flat_map(|field| field.to_le_bytes()).chain([0; 24]).collect();
    assert_eq!(raw.open(&few), Opened::Rejected(RejectStatus::InvalidHostReceiveQueue as u16));
    let single: Vec<u8> = [0_u16, 1, 1, 0].iter().flat_map(|field| field.to_le_bytes()).chain([0; 24]).collect();
    assert_eq!(raw.open(&single), Opened::Rejected(RejectStatus::InvalidHostSendQueue as u16));
}

/// Controller identifiers are told by Connect and by Identify alike, and no two controllers share one.
#[test]
fn every_controller_has_an_identifier_of_its_own() {
    let options = target_options().controllers(4);
    let namespaces = vec![MemoryStorage::new(nvmf_harness::memory(64 << 10), BLOCK, 64).unwrap()];
    let mut raw = Raw::with(options, namespaces);
    let ids: Vec<u16> = (0..4).map(|_| raw.controller().1).collect();
    assert!(ids.iter().all(|id| (1..0xfff0).contains(id)), "{ids:?}");
    assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)), "{ids:?}");
}

/// WZSL bounds what moves no data, and the broadcast identifier names the one namespace that there is.
#[test]
fn write_zeroes_ends_at_its_limit_and_a_flush_of_all_namespaces_is_one_of_the_only_one() {
    const LIMIT_BLOCKS: u32 = (1 << 20) / BLOCK;
    let (storage, cache) = Cached::new(2 * u64::from(LIMIT_BLOCKS), BLOCK);
    let mut raw = Raw::with(target_options(), vec![storage]);
    let (_, io) = raw.io_queue();
    let zeroes = |blocks| Command::WriteZeroes(WriteZeroes { namespace: 1, lba: 0, blocks, deallocate: false });
    assert!(raw.command(io, zeroes(LIMIT_BLOCKS), None).status().is_success());
    let refused = raw.command(io, zeroes(LIMIT_BLOCKS + 1), None).status();
    assert_eq!((refused, cache.log.borrow().len()), (Status::INVALID_FIELD.do_not_retry(), 1));
    assert!(raw.command(io, Command::Flush { namespace: wire::BROADCAST_NAMESPACE }, None).status().is_success());
    assert_eq!((cache.flushes(), cache.dirty.get()), (1, false));
}

/// What is specific to a command set is told of the NVM command set alone.
#[test]
fn identify_knows_one_command_set() {
    let mut raw = Raw::default();
    let (admin, _) = raw.controller();
    for structure in [cns::COMMAND_SET_NAMESPACE, cns::COMMAND_SET_CONTROLLER] {
        for (set, status) in [(0_u32, Status::SUCCESS), (2, Status::INVALID_COMMAND_SET)] {
            let identify = Identify { structure, namespace: 1, data: keyed(4096) };
            let mut entry = Command::Identify(identify).encode(0).unwrap();
            entry.dwords_10_15[1] = (set << 24).into();
            let answer = raw.exchange(admin, entry, Some((Access::RemoteWrite, 4096)));
            assert_eq!(code(&answer), status.code(), "{structure:#x} {set}");
        }
    }
}
