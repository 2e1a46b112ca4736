//! Commands that a hung storage still has of sessions that are over: what they keep, and who has to wait for them.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_engine::provider::fault::CommandKind;
use frwr_nvmf::controller::{Subsystem, TargetOptions};
use frwr_nvmf::wire::{
    BlockRange, Command, ConnectData, ControllerConfiguration, ControllerStatus, DISCOVERY_SUBSYSTEM,
    DYNAMIC_CONTROLLER, Nqn, Property, PropertyGet, PropertySet, PropertySize, RejectStatus, RequestPrivateData,
    Status,
};
use frwr_support::Random;
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Opened, Raw, connect, connect_data, keyed};
use frwr_support::nvmf_harness::target_options;
use std::rc::Rc;
use zerocopy::IntoBytes;

const BLOCK: u32 = 512;
/// Operations that a storage takes: more than the target has slots, as where many namespaces share a disk.
const DEPTH: usize = 4096;

/// Another host than that of [`connect_data`].
fn other_host(controller: u16) -> ConnectData {
    ConnectData { host: Nqn::new("nqn.other-host").ok(), host_id: [2; 16], ..connect_data(controller) }
}

fn read(raw: &mut Raw<Gated>, io: ConnectionId, namespace: u32) -> Status {
    let range = BlockRange { namespace, lba: 0, blocks: 1, data: keyed(BLOCK) };
    raw.command(io, Command::Read(range), Some((Access::RemoteWrite, BLOCK))).status()
}

fn name(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

/// A target of two namespaces: of one subsystem, or of two, where the second one has no disk in common with the first.
fn target(options: TargetOptions, apart: bool) -> (Raw<Gated>, Rc<Switch>) {
    let mut first = None;
    let raw = Raw::spread(options.clone(), |_| {
        let mut storages = Vec::new();
        for _ in 0..2 {
            let (storage, switch) = match &first {
                None => Gated::new(8, BLOCK, DEPTH),
                // What hangs hangs on all cores.
                Some(switch) if storages.is_empty() => Gated::with_switch(8, BLOCK, DEPTH, switch),
                Some(_) => Gated::new(8, BLOCK, DEPTH),
            };
            first.get_or_insert(switch);
            storages.push(storage);
        }
        if !apart {
            return vec![Subsystem::new(options.subsystem, storages)];
        }
        let names = [options.subsystem, name("nqn.second")];
        names.into_iter().zip(storages).map(|(name, storage)| Subsystem::new(name, vec![storage])).collect()
    });
    (raw, first.unwrap())
}

fn options(cores: u16, controllers: u16, io_queues: u16) -> TargetOptions {
    target_options().cores(cores).controllers(controllers).io_queues(io_queues)
}

/// Everything that hung ends, and nothing is left.
fn finish(mut raw: Raw<Gated>, switch: &Switch) {
    switch.gate.set(Gate::Open);
    raw.until("done", |raw| orphans(raw) == 0);
    raw.shut_down();
}

fn orphans(raw: &Raw<Gated>) -> u64 {
    raw.cores().map(|target| target.statistics().orphans).sum()
}

/// Leaves so many commands with the disk that hangs, on a queue that ends then.
fn leave(raw: &mut Raw<Gated>, io: ConnectionId, commands: u16) {
    let (before, gone) = (orphans(raw), raw.disconnected.len());
    for id in 0..commands {
        raw.send(io, Command::Flush { namespace: 1 }.encode(100 + id).unwrap(), None);
    }
    raw.steps(50);
    raw.engine.disconnect(io);
    raw.until("gone", |raw| raw.disconnected.len() > gone);
    raw.until("orphaned", |raw| orphans(raw) == before + u64::from(commands));
}

/// A host whose session is over, but for commands that hang.
fn leave_session(raw: &mut Raw<Gated>, switch: &Switch, commands: u16) {
    let (admin, io) = raw.io_queue();
    switch.gate.set(Gate::Running);
    leave(raw, io, commands);
    raw.engine.disconnect(admin);
    raw.until("gone", |raw| raw.disconnected.contains(&admin));
    raw.steps(50);
}

/// For each number of cores.
fn a_host_that_brings_its_queue_back(cores: u16) {
    // The queues of one host on each core, in the end.
    let (mut raw, switch) = target(options(cores, 2, cores), false);
    let (_, other) = raw.controller_of(&other_host(DYNAMIC_CONTROLLER));
    let innocent: Vec<_> = (1..=cores).map(|queue| raw.another_queue_of(&other_host(other), queue)).collect();
    let (_, controller) = raw.controller();
    switch.gate.set(Gate::Running);
    let mut refused = 0;
    for _ in 0..30 {
        let gone = raw.disconnected.len();
        match raw.open(RequestPrivateData::new(1, 33).as_bytes()) {
            Opened::Yes(io) => {
                let status = raw.connect(io, connect(1, 32), &connect_data(controller)).status();
                if status.is_success() {
                    leave(&mut raw, io, 30);
                } else {
                    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
                    refused += 1;
                    raw.engine.disconnect(io);
                    raw.until("gone", |raw| raw.disconnected.len() > gone);
                }
            }
            Opened::Rejected(status) => {
                assert_eq!(status, RejectStatus::NoResources as u16);
                refused += 1;
            }
        }
        for io in &innocent {
            assert_eq!(read(&mut raw, *io, 2), Status::SUCCESS, "{:?}", raw.target.statistics());
        }
    }
    assert!(refused > 0);
    assert!(orphans(&raw) <= 30 * u64::from(cores), "{}", orphans(&raw));
    assert!(raw.told().iter().any(|said| said.contains("commands left of ended connections 30, must be 0")));
    // It may come back when they are done.
    switch.gate.set(Gate::Open);
    raw.until("done", |raw| orphans(raw) == 0);
    let io = raw.another_queue(controller, 1);
    assert_eq!(read(&mut raw, io, 1), Status::SUCCESS);
    finish(raw, &switch);
}

#[test]
fn a_host_that_brings_its_queue_back_beside_a_hung_disk_leaves_the_others_their_slots() {
    [1, 2, 3].into_iter().for_each(a_host_that_brings_its_queue_back);
}

#[test]
fn there_are_slots_for_every_connection_whatever_others_leave() {
    let (mut raw, switch) = target(options(1, 2, 1), false);
    leave_session(&mut raw, &switch, 30);
    raw.told();
    // Fourteen connections of 40 entries, less 30; an address may have seven of them unproven.
    let asked = |entries| RequestPrivateData::new(1, entries);
    let open = |raw: &mut Raw<Gated>, entries| matches!(raw.open(asked(entries).as_bytes()), Opened::Yes(_));
    assert!((0..7).all(|_| open(&mut raw, 40)));
    raw.another_host(Some("10.0.0.2"), true);
    assert!((0..6).all(|_| open(&mut raw, 40)));
    assert_eq!(raw.open(asked(11).as_bytes()), Opened::Rejected(RejectStatus::NoResources as u16));
    let said = raw.told();
    assert!(
        said[0].contains("no resources: commands left of ended connections 30, must be 0; a disk does"),
        "{said:?}"
    );
    assert!(open(&mut raw, 10));
    finish(raw, &switch);
}

/// Connects a host that has nothing to do with what hangs, and has its queues serve the second namespace.
fn is_served(raw: &mut Raw<Gated>, data: impl Fn(u16) -> ConnectData, namespace: u32, queues: u16) {
    let (admin, controller) = raw.controller_of(&data(DYNAMIC_CONTROLLER));
    for queue in 1..=queues {
        let io = raw.another_queue_of(&data(controller), queue);
        assert_eq!(read(raw, io, namespace), Status::SUCCESS);
    }
    // Its reset is its own matter, too.
    let value = ControllerConfiguration::ENABLED.0 & !1;
    let set = PropertySet { property: Property::Configuration, size: PropertySize::Four, value: value.into() };
    raw.command(admin, Command::PropertySet(set), None);
    raw.steps(50);
    let get = PropertyGet { property: Property::Status, size: PropertySize::Four };
    let status = raw.command(admin, Command::PropertyGet(get), None).result.get();
    assert!(!ControllerStatus(status as u32).is_ready());
    raw.engine.disconnect(admin);
    raw.until("gone", |raw| raw.disconnected.contains(&admin));
    raw.steps(50);
}

#[test]
fn what_one_host_left_with_a_hung_disk_keeps_no_other_host_away() {
    for cores in [1, 2] {
        let (mut raw, switch) = target(options(cores, 3, 2), false);
        leave_session(&mut raw, &switch, 1);
        for _ in 0..3 {
            is_served(&mut raw, other_host, 2, 2);
        }
        let again = raw.open_queue(0, 32);
        raw.begin_session(again);
        raw.steps(200);
        assert!(raw.responses.is_empty(), "its own host waits");
        // And nobody waits for that.
        is_served(&mut raw, other_host, 2, 2);
        raw.responses.clear();
        switch.gate.set(Gate::Open);
        raw.until("answered", |raw| !raw.responses.is_empty());
        assert!(raw.responses[0].status().is_success());
        finish(raw, &switch);
    }
}

/// A core with what others left has no connections, so that it is the next one to get a queue.
#[test]
fn what_hosts_left_on_a_core_keeps_no_other_host_from_it() {
    let numbered = |id: u8| {
        let host = Nqn::new(&format!("nqn.host-{id}")).ok();
        move |controller| ConnectData { host, host_id: [id; 16], ..connect_data(controller) }
    };
    let (mut raw, switch) = target(options(3, 4, 1), false);
    switch.gate.set(Gate::Running);
    for id in 1..=3 {
        let data = numbered(id);
        let (admin, controller) = raw.controller_of(&data(DYNAMIC_CONTROLLER));
        let io = raw.another_queue_of(&data(controller), 1);
        leave(&mut raw, io, 32);
        raw.engine.disconnect(admin);
        raw.until("gone", |raw| raw.disconnected.contains(&admin));
        raw.steps(50);
    }
    assert!(raw.members.iter().any(|member| member.statistics().orphans == 96));
    is_served(&mut raw, numbered(4), 2, 1);
    finish(raw, &switch);
}

#[test]
fn a_host_waits_where_either_of_its_names_is_that_of_the_former_session() {
    let named = |host: &str, id: u8| ConnectData {
        host: Nqn::new(host).ok(),
        host_id: [id; 16],
        ..connect_data(DYNAMIC_CONTROLLER)
    };
    for data in [named("nqn.host", 7), named("nqn.renamed", 1)] {
        let (mut raw, switch) = target(options(1, 3, 1), false);
        leave_session(&mut raw, &switch, 1);
        let again = raw.open_queue(0, 32);
        raw.begin_session_of(again, &data);
        raw.steps(200);
        assert!(raw.responses.is_empty(), "it waits");
        finish(raw, &switch);
    }
}

#[test]
fn hosts_without_a_name_are_different_hosts() {
    let nameless = |id: u8| move |controller| ConnectData { host: None, host_id: [id; 16], ..connect_data(controller) };
    let (mut raw, switch) = target(options(1, 3, 1), false);
    switch.gate.set(Gate::Running);
    let (admin, controller) = raw.controller_of(&nameless(1)(DYNAMIC_CONTROLLER));
    let io = raw.another_queue_of(&nameless(1)(controller), 1);
    leave(&mut raw, io, 4);
    raw.engine.disconnect(admin);
    raw.until("gone", |raw| raw.disconnected.contains(&admin));
    is_served(&mut raw, nameless(2), 2, 1);
    let again = raw.open_queue(0, 32);
    raw.begin_session_of(again, &nameless(1)(DYNAMIC_CONTROLLER));
    raw.steps(200);
    assert!(raw.responses.is_empty(), "the same one waits");
    finish(raw, &switch);
}

/// Zeros are no identifier (Base 5.27.1.25): hosts that have names go by those. Of two that have neither nobody knows that they are two.
#[test]
fn hosts_without_an_identifier_go_by_their_names() {
    let unidentified = |host: Option<&'static str>| {
        move |controller| ConnectData { host: host.map(name), host_id: [0; 16], ..connect_data(controller) }
    };
    for (first, waits) in [(Some("nqn.first"), [false, false]), (None, [false, true])] {
        let (mut raw, switch) = target(options(1, 4, 1), false);
        switch.gate.set(Gate::Running);
        let (admin, controller) = raw.controller_of(&unidentified(first)(DYNAMIC_CONTROLLER));
        let io = raw.another_queue_of(&unidentified(first)(controller), 1);
        leave(&mut raw, io, 4);
        raw.engine.disconnect(admin);
        raw.until("gone", |raw| raw.disconnected.contains(&admin));
        for (other, waits) in [Some("nqn.second"), None].into_iter().zip(waits) {
            let again = raw.open_queue(0, 32);
            raw.begin_session_of(again, &unidentified(other)(DYNAMIC_CONTROLLER));
            raw.steps(200);
            assert_eq!(raw.responses.is_empty(), waits, "{other:?} behind {first:?}");
        }
        finish(raw, &switch);
    }
}

#[test]
fn what_a_host_left_in_one_subsystem_keeps_it_from_no_other() {
    for cores in [1, 2] {
        let (mut raw, switch) = target(options(cores, 3, 2), true);
        leave_session(&mut raw, &switch, 1);
        is_served(&mut raw, |id| ConnectData { subsystem: name("nqn.second"), ..connect_data(id) }, 1, 2);
        let discovery = ConnectData { subsystem: name(DISCOVERY_SUBSYSTEM), ..connect_data(DYNAMIC_CONTROLLER) };
        raw.controller_of(&discovery);
        finish(raw, &switch);
    }
}

#[test]
fn the_place_of_a_controller_is_its_own_until_its_commands_are_done() {
    let (mut raw, switch) = target(options(1, 1, 1), false);
    leave_session(&mut raw, &switch, 1);
    let admin = raw.open_queue(0, 32);
    let busy = raw.connect(admin, connect(0, 31), &other_host(DYNAMIC_CONTROLLER)).status();
    assert_eq!(busy, Status::CONNECT_CONTROLLER_BUSY);
    switch.gate.set(Gate::Open);
    raw.until("done", |raw| orphans(raw) == 0);
    assert!(raw.connect(admin, connect(0, 31), &other_host(DYNAMIC_CONTROLLER)).status().is_success());
    finish(raw, &switch);
}

/// However long its host's former commands hang; each such time begins when the one before it is over.
#[test]
fn a_connect_that_is_held_back_has_all_of_its_time_again_and_again() {
    let connect_timeout = Duration::from_millis(50);
    let (mut raw, switch) = target(options(1, 2, 1).connect_timeout(connect_timeout), false);
    leave_session(&mut raw, &switch, 1);
    let before = raw.target.statistics().accepted;
    raw.begin_open(RequestPrivateData::new(0, 32).as_bytes());
    raw.until("accepted", |raw| raw.target.statistics().accepted > before);
    let mut at = raw.now;
    raw.until("opened", |raw| raw.opened().is_some());
    let Some(Opened::Yes(admin)) = raw.opened() else { panic!("{:?}", raw.opened()) };
    raw.begin_session(admin);
    raw.steps(200);
    raw.told();
    for _ in 0..3 {
        at += connect_timeout;
        raw.step_at(at);
        let told = raw.told();
        assert!(told.len() == 1 && told[0].contains("Connect held back for another 50ms"), "{told:?}");
    }
    assert_eq!((raw.target.statistics().connect_timeouts, raw.responses.len()), (0, 0));
    switch.gate.set(Gate::Open);
    raw.until("answered", |raw| !raw.responses.is_empty());
    assert!(raw.responses[0].status().is_success());
    finish(raw, &switch);
}

/// Its former queues still end, and hold nothing: what hangs beside them is another host's.
#[test]
fn a_host_waits_for_no_commands_but_those_of_its_own_former_queues() {
    let (mut raw, switch) = target(options(1, 3, 1), false);
    let (admin, io) = raw.io_queue();
    let (_, other) = raw.controller_of(&other_host(DYNAMIC_CONTROLLER));
    let hangs = raw.another_queue_of(&other_host(other), 1);
    switch.gate.set(Gate::Running);
    raw.send(hangs, Command::Flush { namespace: 1 }.encode(100).unwrap(), None);
    let again = raw.open_queue(0, 32);
    raw.begin_end(&[io, admin]);
    raw.begin_session(again);
    raw.until("answered", |raw| !raw.responses.is_empty());
    assert!(raw.responses[0].status().is_success());
    raw.controlled = true;
    finish(raw, &switch);
}

/// A host that uses the first disk only, which hangs now and then, and comes and goes as it likes, beside one that only uses the second.
fn hosts_beside_a_disk_that_hangs(seed: u64, cores: u16) {
    let mut random = Random::new(seed);
    let (mut raw, switch) = target(options(cores, 3, 2), false);
    let (_, other) = raw.controller_of(&other_host(DYNAMIC_CONTROLLER));
    let innocent: Vec<_> = (1..=2).map(|queue| raw.another_queue_of(&other_host(other), queue)).collect();
    let mut waited = 0;
    for _ in 0..25 {
        switch.gate.set(if random.below(3) == 0 { Gate::Open } else { Gate::Running });
        let Opened::Yes(admin) = raw.open(RequestPrivateData::new(0, 32).as_bytes()) else { continue };
        raw.begin_session(admin);
        raw.steps(100 + random.below(100) as usize);
        if raw.responses.is_empty() {
            waited += 1;
            assert!(orphans(&raw) > 0, "nothing to wait for");
            if random.below(2) == 0 {
                switch.gate.set(Gate::Open);
                raw.until("answered", |raw| !raw.responses.is_empty());
            }
        }
        let mut open = vec![admin];
        if let Some(response) = raw.responses.pop() {
            assert_eq!((response.status(), orphans(&raw)), (Status::SUCCESS, 0), "all others are of this host");
            raw.enable(admin);
            let controller = response.result.get() as u16;
            for queue in 1..=random.below(3) as u16 {
                switch.gate.set(Gate::Running);
                let Opened::Yes(io) = raw.open(RequestPrivateData::new(queue, 33).as_bytes()) else { continue };
                open.push(io);
                if raw.connect(io, connect(queue, 32), &connect_data(controller)).status().is_success() {
                    for id in 0..random.below(30) as u16 {
                        raw.send(io, Command::Flush { namespace: 1 }.encode(100 + id).unwrap(), None);
                    }
                    raw.steps(random.below(40) as usize);
                }
                if random.below(2) == 0 {
                    raw.engine.disconnect(io);
                    raw.steps(random.below(40) as usize);
                }
            }
        }
        for connection in open {
            raw.engine.disconnect(connection);
            raw.steps(random.below(40) as usize);
        }
        raw.steps(50);
        for io in &innocent {
            assert_eq!(read(&mut raw, *io, 2), Status::SUCCESS);
        }
        assert!(orphans(&raw) <= 60);
    }
    assert!(waited > 0);
    finish(raw, &switch);
}

#[test]
fn no_session_begins_beside_commands_of_its_hosts_former_ones_and_no_other_host_suffers() {
    for seed in 0..6 {
        hosts_beside_a_disk_that_hangs(seed, 1 + (seed % 3) as u16);
    }
}

#[test]
fn what_a_host_left_counts_whoever_comes_at_the_moment_its_queue_ends() {
    let (mut raw, switch) = target(options(1, 3, 1), false);
    let place = raw.open_queue(0, 32);
    let (admin, controller) = raw.controller();
    raw.engine.disconnect(place);
    raw.until("gone", |raw| raw.disconnected.len() == 1 && raw.target.engine().connections().count() == 1);
    raw.steps(50);
    let io = raw.another_queue(controller, 1);
    switch.gate.set(Gate::Running);
    raw.send(io, Command::Flush { namespace: 1 }.encode(100).unwrap(), None);
    raw.steps(50);
    raw.faults.hold_answers(CommandKind::DestroyQueuePair);
    raw.engine.disconnect(io);
    raw.engine.disconnect(admin);
    raw.until("ended here", |raw| raw.disconnected.len() == 3);
    raw.steps(100);
    raw.begin_open_at_the_end_of_another(RequestPrivateData::new(0, 32).as_bytes());
    raw.steps(100);
    let again = raw.open_queue(0, 32);
    raw.begin_session(again);
    raw.steps(300);
    assert!(raw.responses.is_empty(), "it waits: {:?} {}", raw.responses, orphans(&raw));
    finish(raw, &switch);
}
