//! Hosts that come again while their former sessions seem to live: of some the word that they are over was lost.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_nvmf::controller::Subsystem;
use frwr_nvmf::wire::{BlockRange, Command, Connect, ConnectData, DYNAMIC_CONTROLLER, Nqn, Status};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Raw, connect, connect_data, keyed};
use frwr_support::nvmf_harness::{memory, target_options};
use std::rc::Rc;

const BLOCK: u32 = 512;
const BLOCKS: u64 = 8;
const DEPTH: usize = 64;
const OLD: u8 = 0x0d;
const NEW: u8 = 0x4e;
const SECOND: Duration = Duration::from_secs(1);
/// What a device has to say that it is there, and enough more for whoever waits on to be told of.
const LONG: Duration = Duration::from_secs(80);

/// A target of so many cores, each with a way of its own to one disk that a switch holds up: those of core 0 first.
fn target(cores: u16) -> (Raw<Gated>, Vec<Rc<Switch>>) {
    let options = target_options().cores(cores).controllers(3).io_queues(1);
    let disk = memory(BLOCKS as usize * BLOCK as usize);
    let mut switches = Vec::new();
    let raw = Raw::spread(options.clone(), |_| {
        let (_, switch) = Gated::new(BLOCKS, BLOCK, DEPTH);
        let storage = Gated::over(disk.clone(), BLOCK, DEPTH, &switch);
        switches.push(switch);
        vec![Subsystem::new(options.subsystem, vec![storage])]
    });
    (raw, switches)
}

fn first_block() -> BlockRange {
    BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(BLOCK) }
}

fn write(raw: &mut Raw<Gated>, io: ConnectionId, byte: u8) {
    raw.data.write(0, &[byte; BLOCK as usize]).unwrap();
    let command = Command::Write(first_block());
    assert!(raw.command(io, command, Some((Access::RemoteRead, BLOCK))).status().is_success());
}

fn read(raw: &mut Raw<Gated>, io: ConnectionId) -> u8 {
    let command = Command::Read(first_block());
    assert!(raw.command(io, command, Some((Access::RemoteWrite, BLOCK))).status().is_success());
    let mut bytes = [0; BLOCK as usize];
    raw.data.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

/// Has a write of a host hang in its disk. The core whose disk has it.
fn leave_a_write(raw: &mut Raw<Gated>, switches: &[Rc<Switch>]) -> usize {
    let (_, io) = raw.io_queue();
    switches.iter().for_each(|switch| switch.gate.set(Gate::Unstarted));
    raw.data.write(0, &[OLD; BLOCK as usize]).unwrap();
    let entry = Command::Write(first_block()).encode(100).unwrap();
    raw.send(io, entry, Some((Access::RemoteRead, BLOCK)));
    raw.until("with the disk", |_| switches.iter().any(|switch| switch.held.get() > 0));
    let hung = switches.iter().position(|switch| switch.held.get() > 0).unwrap();
    for (_, switch) in switches.iter().enumerate().filter(|(core, _)| *core != hung) {
        switch.gate.set(Gate::Open);
    }
    hung
}

/// A machine is cut off with a write in flight, ends its session by itself, and comes again when the network does. The one word that would
/// have told the target was lost.
fn the_word_that_a_session_is_over_is_lost(cores: u16) {
    let (mut raw, switches) = target(cores);
    let hung = leave_a_write(&mut raw, &switches);
    raw.another_host(None, false);
    let admin = raw.open_queue(0, 32);
    raw.begin_session(admin);
    raw.pass(LONG);
    // Whoever is let in beside it writes now, by a way that does not hang, and the disk goes on behind that.
    let waits = raw.responses.is_empty();
    if waits {
        let told = raw.told();
        assert!(told.iter().any(|line| line.contains("the host's device has not said yet that it lives")), "{told:#?}");
        let said = "the host's device has not said in 60s that this session lives";
        assert_eq!(told.iter().filter(|line| line.contains(said)).count(), 1, "{told:#?}");
        assert!(told.iter().any(|line| line.contains("commands of the host's former session have not ended")));
        assert_eq!((raw.target.statistics().probes, raw.target.statistics().silent_hosts), (1, 1));
        switches[hung].gate.set(Gate::Open);
        raw.until("answered", |raw| !raw.responses.is_empty());
    }
    let response = raw.responses.remove(0);
    assert!(response.status().is_success(), "{}", response.status());
    raw.enable(admin);
    let io = raw.another_queue(response.result.get() as u16, 1);
    write(&mut raw, io, NEW);
    switches[hung].gate.set(Gate::Open);
    raw.steps(200);
    assert_eq!(read(&mut raw, io), NEW, "an old block came back behind a new one");
    assert!(waits);
    raw.shut_down();
}

#[test]
fn no_write_of_a_session_whose_end_was_never_told_comes_behind_those_of_the_next() {
    [2, 3].into_iter().for_each(the_word_that_a_session_is_over_is_lost);
}

/// A host may have several sessions, as by several paths: its device says of each that it lives.
#[test]
fn a_session_that_lives_stays_beside_its_hosts_next_one() {
    for cores in [1, 2] {
        for is_other_device in [false, true] {
            let (mut raw, switches) = target(cores);
            let first = raw.controller().0;
            if is_other_device {
                raw.another_host(None, true);
            }
            let (second, controller) = raw.controller();
            assert_eq!(raw.target.statistics().probes, 1);
            // One that it leaves by the word that tells it is not asked about.
            raw.engine.disconnect(second);
            raw.until("gone", |raw| raw.disconnected.contains(&second));
            raw.steps(50);
            let (_, next) = raw.controller();
            assert_eq!(raw.target.statistics().probes, 2);
            assert_ne!(controller, next);
            let io = raw.another_queue(next, 1);
            write(&mut raw, io, NEW);
            match is_other_device {
                true => assert_eq!(raw.former_connections(), 1),
                false => assert!(raw.command(first, Command::KeepAlive, None).status().is_success()),
            }
            assert!(raw.told().is_empty());
            drop(switches);
            raw.shut_down();
        }
    }
}

/// Its next session waits for that, and not for the disk.
#[test]
fn a_session_that_left_nothing_ends_and_the_next_one_begins() {
    let (mut raw, _switches) = target(1);
    raw.io_queue();
    raw.another_host(None, false);
    let admin = raw.open_queue(0, 32);
    raw.begin_session(admin);
    raw.pass(50 * SECOND);
    assert!(raw.responses.is_empty());
    assert_eq!(raw.target.inventory().waiting.former_session, 1);
    raw.pass(12 * SECOND);
    raw.until("answered", |raw| !raw.responses.is_empty());
    assert!(raw.responses[0].status().is_success());
    raw.shut_down();
}

/// Hosts that have nothing to do with it are served meanwhile, and ask nobody.
#[test]
fn nobody_else_waits_for_a_device_that_does_not_answer() {
    let (mut raw, _switches) = target(1);
    raw.io_queue();
    raw.another_host(None, false);
    let admin = raw.open_queue(0, 32);
    raw.begin_session(admin);
    raw.steps(100);
    let host = Nqn::new("nqn.other-host").ok();
    let other = |controller| ConnectData { host, host_id: [2; 16], ..connect_data(controller) };
    raw.responses.clear();
    let (_, controller) = raw.controller_of(&other(DYNAMIC_CONTROLLER));
    let io = raw.another_queue_of(&other(controller), 1);
    write(&mut raw, io, NEW);
    assert_eq!((read(&mut raw, io), raw.target.statistics().probes), (NEW, 1));
    raw.pass(LONG);
    raw.shut_down();
}

/// The Keep Alive Timeout is its software's to keep: that its device answers is no sign of that.
#[test]
fn the_answer_of_a_device_keeps_no_session_alive() {
    let (mut raw, _switches) = target(1);
    let admin = raw.open_queue(0, 32);
    let keeps = Connect { keep_alive_timeout: 1000, ..connect(0, 31) };
    let data = connect_data(DYNAMIC_CONTROLLER);
    assert_eq!(raw.connect(admin, keeps, &data).status(), Status::SUCCESS);
    raw.enable(admin);
    raw.pass(SECOND * 9 / 10);
    raw.controller();
    assert_eq!((raw.target.statistics().probes, raw.target.statistics().keep_alive_expirations), (1, 0));
    raw.pass(SECOND / 5);
    raw.until("ended", |raw| raw.disconnected.contains(&admin));
    assert_eq!(raw.target.statistics().keep_alive_expirations, 1);
    raw.shut_down();
}
