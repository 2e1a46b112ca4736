//! A target that listens at several addresses, of which some come and go while it serves: on one core and on two.

use core::ops::RangeInclusive;
use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::control::Control;
use frwr_engine::provider::soft::{SoftFabric, SoftOptions};
use frwr_engine::provider::{Access, CommandError, Errno, fault::CommandKind};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{
    ChangeError, ChangeEvent, ChangeId, ElsewhereListener, ListenerState, MAX_CONTROLLER_ID, MAX_LISTENERS,
    MAX_TARGETS, OptionError, Subsystem, Target, TargetError, TargetListening, TargetOptions,
};
use frwr_nvmf::wire::{
    BlockRange, Command, ConnectData, DISCOVERY_SUBSYSTEM, DYNAMIC_CONTROLLER, DiscoveryEntry, DiscoveryHeader,
    GetLogPage, Identify, Nqn, RequestPrivateData, SetFeatures, cns, feature, log_page, opcode,
};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Opened, Raw, UNSAID, connect, connect_data, keyed};
use frwr_support::nvmf_harness::{engine_of, memory, subsystem, target_options};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;
use zerocopy::{FromBytes, IntoBytes};

const BLOCK: u32 = 512;
const SECOND: &str = "nqn.second";
/// Hosts have heard by then that a controller drains.
const HEARD: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(5);
/// Discovery Log Page Change Notification.
const DISCOVERY_EVENTS: u32 = 1 << 31;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn here() -> SocketAddr {
    address("127.0.0.1:4420")
}

fn there() -> SocketAddr {
    address("127.0.0.2:4421")
}

/// A target, and what its cores say of changes.
struct Listening {
    raw: Raw<Gated>,
    switch: Rc<Switch>,
    said: Vec<ChangeEvent<Gated>>,
}

impl Listening {
    /// Two subsystems on so many cores.
    fn new(cores: u16, addresses: &[SocketAddr]) -> Self {
        Self::one_of(cores, addresses, (0, 1))
    }

    /// The same of one of several targets of these subsystems: which, and how many there are.
    fn one_of(cores: u16, addresses: &[SocketAddr], (target, targets): (u16, u16)) -> Self {
        Self::with(target_options().cores(cores).target(target).targets(targets), addresses)
    }

    fn with(options: TargetOptions, addresses: &[SocketAddr]) -> Self {
        let switch = Gated::new(64, BLOCK, 1).1;
        let media: Vec<DeviceMemory> = (0..2).map(|_| memory(64 * BLOCK as usize)).collect();
        let options = options.io_queues(2).controllers(4).discovery_controllers(4);
        let raw = Raw::spread(options.addresses(addresses.to_vec()), |_| {
            let names = [subsystem(), Nqn::new(SECOND).unwrap()].into_iter().zip(&media);
            let storage = |medium: &DeviceMemory| Gated::over(medium.clone(), BLOCK, 64, &switch);
            names.map(|(name, medium)| Subsystem::new(name, vec![storage(medium)])).collect()
        });
        Self { raw, switch, said: Vec::new() }
    }

    /// A discovery controller that is told of changes, connected by an address.
    fn discovery(&mut self, by: SocketAddr) -> ConnectionId {
        self.raw.address = by;
        let admin = self.raw.open_queue(0, 32);
        let subsystem = Nqn::new(DISCOVERY_SUBSYSTEM).unwrap();
        let data = ConnectData { subsystem, ..connect_data(DYNAMIC_CONTROLLER) };
        assert!(self.raw.connect(admin, connect(0, 31), &data).status().is_success());
        self.raw.enable(admin);
        let set =
            SetFeatures { feature: feature::ASYNCHRONOUS_EVENTS, save: false, namespace: 0, value: DISCOVERY_EVENTS };
        assert!(self.raw.command(admin, Command::SetFeatures(set), None).status().is_success());
        admin
    }

    fn page(&mut self, admin: ConnectionId, offset: u64, bytes: u32) -> Vec<u8> {
        let (specific, retain_event, offset_is_index) = (0, false, false);
        let (page, data, length) = (log_page::DISCOVERY, keyed(bytes), bytes.into());
        let get = GetLogPage { page, specific, retain_event, length, offset, offset_is_index, namespace: 0, data };
        let answer = self.raw.command(admin, Command::GetLogPage(get), Some((Access::RemoteWrite, bytes)));
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut read = vec![0; bytes as usize];
        self.raw.data.read(0, &mut read).unwrap();
        read
    }

    /// A structure of Identify.
    fn identified(&mut self, admin: ConnectionId, structure: u8, namespace: u32) -> Vec<u8> {
        let identify = Identify { structure, namespace, data: keyed(4096) };
        let answer = self.raw.command(admin, Command::Identify(identify), Some((Access::RemoteWrite, 4096)));
        assert!(answer.status().is_success(), "{}", answer.status());
        let mut read = vec![0; 4096];
        self.raw.data.read(0, &mut read).unwrap();
        read
    }

    /// What the discovery log lists: subsystem, PORTID, address and port.
    fn listed(&mut self, admin: ConnectionId) -> Vec<(String, u16, String)> {
        let header = DiscoveryHeader::read_from_bytes(&self.page(admin, 0, 1024)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().trim_end_matches(['\0', ' ']).to_owned();
        let entries = (1..=header.records.get()).map(|at| {
            let entry = DiscoveryEntry::read_from_bytes(&self.page(admin, at * 1024, 1024)).unwrap();
            let at = format!("{}:{}", text(&entry.address), text(&entry.service));
            (text(&entry.subsystem), entry.port.get(), at)
        });
        entries.collect()
    }

    fn event_request(&mut self, admin: ConnectionId, id: u16) {
        let entry = Command::AsynchronousEventRequest.encode(id).unwrap();
        assert_eq!(entry.opcode, opcode::ASYNCHRONOUS_EVENT_REQUEST);
        self.raw.send(admin, entry, None);
        self.raw.steps(50);
    }

    /// Awaits the event that the discovery log says something else.
    fn told_of_change(&mut self, id: u16) {
        let is_it = |raw: &mut Raw<Gated>| raw.responses.iter().any(|response| response.command_id.get() == id);
        self.raw.until("told", is_it);
        let told = self.raw.responses.iter().find(|response| response.command_id.get() == id).unwrap();
        assert_eq!(told.result.get(), 0x0070_f002);
    }

    fn until_said(&mut self, what: &str, is_it: impl Fn(&ChangeEvent<Gated>) -> bool) -> ChangeEvent<Gated> {
        self.raw.until_said(&mut self.said, what, is_it)
    }

    fn done(&mut self, id: ChangeId) {
        self.until_said("done", |event| matches!(event, ChangeEvent::Done { id: done } if *done == id));
    }

    /// A host with two I/O queues, all connected by an address: its admin queue and these.
    fn host(&mut self, by: SocketAddr, number: u8) -> (ConnectionId, Vec<ConnectionId>) {
        self.raw.address = by;
        let of = |controller| ConnectData { host_id: [number; 16], ..connect_data(controller) };
        let (admin, controller) = self.raw.controller_of(&of(DYNAMIC_CONTROLLER));
        (admin, (1..=2).map(|queue| self.raw.another_queue_of(&of(controller), queue)).collect())
    }

    fn serves(&mut self, queues: &[ConnectionId]) {
        for io in queues {
            let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(BLOCK) };
            let answer = self.raw.command(*io, Command::Write(range), Some((Access::RemoteRead, BLOCK)));
            assert!(answer.status().is_success(), "{}", answer.status());
        }
    }

    /// How a connect request at an address is answered.
    fn asks(&mut self, by: SocketAddr) -> Opened {
        self.raw.address = by;
        self.raw.open(RequestPrivateData::new(0, 32).as_bytes())
    }

    /// Addresses that a core listens at, with the connections that it accepted by each.
    fn accepted(&self) -> Vec<Vec<(SocketAddr, u64)>> {
        let of = |listener: ListenerState| {
            assert_eq!(listener.listening, TargetListening::Listens);
            (listener.address, listener.accepted)
        };
        self.raw.cores().map(|core| core.listeners().map(of).collect()).collect()
    }
}

fn entries(of: &[(u16, SocketAddr)]) -> Vec<(String, u16, String)> {
    let names = [subsystem().as_str().to_owned(), SECOND.to_owned()];
    let of_name = |name: &String| of.iter().map(|(port, at)| (name.clone(), *port, at.to_string())).collect::<Vec<_>>();
    names.iter().flat_map(of_name).collect()
}

#[test]
fn every_address_is_served_and_listed_for_each_subsystem() {
    for cores in [1, 2] {
        let mut target = Listening::new(cores, &[here(), there()]);
        let admin = target.discovery(there());
        assert_eq!(target.listed(admin), entries(&[(1, here()), (2, there())]));
        for (by, number) in [(here(), 1), (there(), 2)] {
            let (_, queues) = target.host(by, number);
            target.serves(&queues);
        }
        let accepted = target.accepted();
        let sum = |at: usize| accepted.iter().map(|core| core[at].1).sum::<u64>();
        assert_eq!((sum(0), sum(1)), (3, 4), "{accepted:?}");
        let inventories: Vec<_> = target.raw.cores().map(|core| core.inventory()).collect();
        for (by, count) in [(here(), 3), (there(), 4)] {
            let queues = inventories.iter().flat_map(|core| &core.queues);
            assert_eq!(queues.filter(|queue| queue.listener == Some(by)).count(), count);
        }
    }
}

#[test]
fn a_listener_that_comes_is_told_and_served_by_all_cores() {
    for cores in [1, 2] {
        let mut target = Listening::new(cores, &[here()]);
        let admin = target.discovery(here());
        target.event_request(admin, 900);
        let id = target.raw.target.add_listener(there()).unwrap();
        target.done(id);
        target.told_of_change(900);
        assert_eq!(target.listed(admin), entries(&[(1, here()), (2, there())]));
        let (_, queues) = target.host(there(), 1);
        target.serves(&queues);
        let served = target.accepted().iter().filter(|core| core[1].1 > 0).count();
        assert_eq!(served, usize::from(cores));
    }
}

/// As over two devices of a machine, of which hosts are told by either.
#[test]
fn targets_of_the_same_subsystems_are_ports_of_them_with_controllers_of_their_own() {
    for cores in [1, 2] {
        let others = address("127.0.1.1:4420");
        let mut target = Listening::one_of(cores, &[here()], (MAX_TARGETS - 1, MAX_TARGETS));
        let port = (MAX_TARGETS - 1) * MAX_LISTENERS as u16 + 1;
        let admin = target.discovery(here());
        assert_eq!(target.listed(admin), entries(&[(port, here())]));
        target.event_request(admin, 900);
        let elsewhere = [ElsewhereListener { port: 1, address: others }];
        target.raw.target.list_elsewhere(&elsewhere).unwrap();
        target.told_of_change(900);
        assert_eq!(target.listed(admin), entries(&[(port, here()), (1, others)]));
        target.event_request(admin, 901);
        target.raw.target.list_elsewhere(&elsewhere).unwrap();
        target.raw.steps(100);
        assert!(target.raw.responses.iter().all(|one| one.command_id.get() != 901), "it is no news");
        target.raw.target.list_elsewhere(&[]).unwrap();
        target.told_of_change(901);
        assert_eq!(target.listed(admin), entries(&[(port, here())]));
        let (_, queues) = target.host(here(), 1);
        target.serves(&queues);
        let ids = target.raw.target.inventory().controllers.iter().map(|one| one.id).collect::<Vec<_>>();
        assert!(ids.iter().all(|id| *id > (MAX_TARGETS - 1) * 4096 && *id < 0xfff0), "{ids:?}");
        if let Some(member) = target.raw.members.first_mut() {
            assert_eq!(member.list_elsewhere(&elsewhere), Err(ChangeError::NotHome(1)));
        }
    }
}

/// Two processes, each with a range of its own: what a host compares is the same, and what it may not have twice is not.
#[test]
fn gateways_of_a_subsystem_are_one_to_hosts_and_share_no_identifier() {
    // More than there are identifiers, so that these come again.
    const HOSTS: u8 = 20;
    let (mut subsystems, mut ids) = (Vec::new(), Vec::new());
    for (own, other, range) in [((1, here()), (17, there()), 1..=16), ((17, there()), (1, here()), 17..=32)] {
        let options = target_options().cores(2).controller_ids(range.clone()).first_port_id(own.0);
        let mut gateway = Listening::with(options, &[own.1]);
        gateway.raw.target.list_elsewhere(&[ElsewhereListener { port: other.0, address: other.1 }]).unwrap();
        let discovery = gateway.discovery(own.1);
        assert_eq!(gateway.listed(discovery), entries(&[own, other]));
        for number in 1..=HOSTS {
            let (admin, queues) = gateway.host(own.1, number);
            gateway.serves(&queues);
            let controllers = gateway.raw.target.inventory().controllers;
            let id = controllers.iter().find(|one| one.subsystem.is_some()).unwrap().id;
            assert!(range.contains(&id), "{id}");
            ids.push(id);
            if number == 1 {
                let mut controller = gateway.identified(admin, cns::CONTROLLER, 0);
                // CNTLID.
                controller[78..80].fill(0);
                subsystems.push((controller, gateway.identified(admin, cns::DESCRIPTORS, 1)));
            }
            queues.iter().chain([&admin]).for_each(|queue| gateway.raw.engine.disconnect(*queue));
            gateway
                .raw
                .until("gone", |raw| raw.target.inventory().controllers.iter().all(|one| one.subsystem.is_none()));
        }
    }
    assert!(subsystems[0] == subsystems[1], "serial number, NGUID and all else");
    let (first, second) = ids.split_at(HOSTS.into());
    assert!(first.iter().all(|id| !second.contains(id)) && first.iter().collect::<HashSet<_>>().len() > 10, "{ids:?}");
}

#[test]
fn identifiers_that_a_target_cannot_have_are_refused() {
    let made = |options: TargetOptions| {
        let options = options.controllers(4).discovery_controllers(4);
        let mut control = Control::new(SoftFabric::new().device(SoftOptions::new("reg_mr".parse().unwrap())));
        let engine = engine_of(&mut control, options.engine());
        let (buffers, storage) = (memory(options.buffer_memory_bytes(8)), Gated::new(64, BLOCK, 64).0);
        Target::new(engine, vec![storage], buffers, options).map(drop)
    };
    let of = |controller_ids| target_options().controller_ids(controller_ids);
    let (last, ports) = (MAX_CONTROLLER_ID, u16::MAX - 16);
    for (options, wrong) in [
        (of(0..=99), "controller_ids.start is 0: must be from 1 to 65519"),
        (of(1..=last + 1), "controller_ids.end is 65520: must be from 1 to 65519"),
        (of(RangeInclusive::new(9, 8)), "controller_ids.end is 8: must be from 9"),
        (of(1..=15), "controller_ids has 15 for each target: must be 16 at least"),
        (of(1..=47).targets(3), "controller_ids has 15 for each target"),
        (target_options().first_port_id(0), "first_port_id is 0: must be from 1 to 65520"),
        (target_options().first_port_id(ports + 2), "first_port_id is 65521: must be from 1 to 65520"),
        (target_options().first_port_id(ports).targets(2), "first_port_id is 65519: must be from 1 to 65504"),
    ] {
        let refused = made(options).unwrap_err().to_string();
        assert!(refused.contains(wrong), "{refused}");
    }
    for options in [of(last - 15..=last), of(1..=48).targets(3).target(2), target_options().first_port_id(ports + 1)] {
        made(options).unwrap();
    }
}

#[test]
fn an_address_that_the_device_does_not_give_leaves_nothing_behind() {
    let refused = CommandError::Address(Errno::EADDRINUSE);
    for (cores, times) in [(1, u32::MAX), (2, u32::MAX), (2, 1)] {
        let mut target = Listening::new(cores, &[here()]);
        let admin = target.discovery(here());
        target.raw.faults.fail_command(CommandKind::Listen, refused, times);
        let id = target.raw.target.add_listener(there()).unwrap();
        let refuses = |event: &ChangeEvent<Gated>| match event {
            ChangeEvent::CannotListen { id: refused_id, reason } => (*refused_id, *reason) == (id, refused),
            _ => false,
        };
        target.until_said("refused", refuses);
        assert_eq!(target.asks(there()), Opened::Rejected(UNSAID));
        assert!(target.accepted().iter().all(|core| core.len() == 1), "{:?}", target.accepted());
        assert_eq!(target.listed(admin), entries(&[(1, here())]));
        target.raw.faults.clear();
        let id = target.raw.target.add_listener(there()).unwrap();
        target.done(id);
        let (_, queues) = target.host(there(), 1);
        target.serves(&queues);
    }
}

#[test]
fn a_listener_that_goes_takes_nobody_and_leaves_who_came_by_it() {
    for cores in [1, 2] {
        let mut target = Listening::new(cores, &[here(), there()]);
        let admin = target.discovery(here());
        target.event_request(admin, 900);
        let (_, queues) = target.host(there(), 1);
        let id = target.raw.target.remove_listener(there(), None).unwrap();
        target.done(id);
        target.told_of_change(900);
        assert_eq!(target.listed(admin), entries(&[(1, here())]));
        assert_eq!(target.asks(there()), Opened::Rejected(UNSAID));
        target.serves(&queues);
        let (_, others) = target.host(here(), 2);
        target.serves(&others);
        // It may come again, and has its number again.
        let id = target.raw.target.add_listener(there()).unwrap();
        target.done(id);
        assert_eq!(target.listed(admin), entries(&[(1, here()), (2, there())]));
        let (_, more) = target.host(there(), 3);
        target.serves(&more);
    }
}

#[test]
fn who_came_by_a_listener_that_is_drained_leaves_when_his_commands_are_answered() {
    for cores in [1, 2] {
        let mut target = Listening::new(cores, &[here(), there()]);
        let stays = target.host(here(), 1);
        let (admin, queues) = target.host(there(), 2);
        target.switch.gate.set(Gate::Running);
        let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(BLOCK) };
        let entry = Command::Write(range).encode(77).unwrap();
        target.raw.send(queues[1], entry, Some((Access::RemoteRead, BLOCK)));
        target.raw.steps(50);
        let id = target.raw.target.remove_listener(there(), Some(SOON)).unwrap();
        let held = target.until_said("held up", |event| matches!(event, ChangeEvent::HeldUp { .. }));
        let ChangeEvent::HeldUp { id: late, by } = held else { panic!("{held:?}") };
        assert_eq!((late, by.queue_id, by.command_id), (id, Some(2), Some(77)));
        target.switch.gate.set(Gate::Open);
        target.raw.pass(HEARD);
        target.done(id);
        target.raw.until("gone", |raw| raw.disconnected.len() == 3);
        assert!(queues.iter().chain([&admin]).all(|gone| target.raw.disconnected.contains(gone)));
        let answered = target.raw.responses.iter().find(|response| response.command_id.get() == 77).unwrap();
        assert!(answered.status().is_success());
        target.serves(&stays.1);
    }
}

#[test]
fn the_last_listener_may_go_and_another_one_come() {
    let mut target = Listening::new(2, &[here()]);
    let (_, queues) = target.host(here(), 1);
    let id = target.raw.target.remove_listener(here(), None).unwrap();
    target.done(id);
    assert_eq!(target.raw.target.statistics().listening, TargetListening::Stopped);
    target.serves(&queues);
    let id = target.raw.target.add_listener(there()).unwrap();
    target.done(id);
    assert_eq!(target.raw.target.statistics().listening, TargetListening::Listens);
    let (_, queues) = target.host(there(), 2);
    target.serves(&queues);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut target = Listening::new(2, &[here()]);
    let home = &mut target.raw.target;
    assert_eq!(home.add_listener(here()), Err(ChangeError::ListenerTaken { address: here() }));
    assert_eq!(home.remove_listener(there(), None), Err(ChangeError::Listener { address: there() }));
    let first = home.add_listener(there()).unwrap();
    assert_eq!(home.add_listener(address("127.0.0.3:4420")), Err(ChangeError::Busy(first)));
    assert_eq!(target.raw.members[0].add_listener(there()), Err(ChangeError::NotHome(1)));
    assert_eq!(target.raw.members[0].remove_listener(here(), None), Err(ChangeError::NotHome(1)));
    target.done(first);
    for port in 2..MAX_LISTENERS as u16 {
        let id = target.raw.target.add_listener(SocketAddr::new(here().ip(), 5000 + port)).unwrap();
        target.done(id);
    }
    assert_eq!(target.raw.target.add_listener(address("127.0.0.3:4420")), Err(ChangeError::Listeners));
    assert_eq!(target.accepted().iter().map(Vec::len).collect::<Vec<_>>(), [MAX_LISTENERS; 2]);
    target.raw.target.end(target.raw.now);
    assert_eq!(target.raw.target.remove_listener(there(), None), Err(ChangeError::Ending));
}

#[test]
fn a_target_listens_at_each_address_once() {
    let made = |addresses: Vec<SocketAddr>| {
        let options = target_options().addresses(addresses);
        let mut control = Control::new(SoftFabric::new().device(SoftOptions::new("reg_mr".parse().unwrap())));
        let engine = engine_of(&mut control, options.engine());
        let buffers = memory(options.buffer_memory_bytes(8));
        let storage = Gated::new(64, BLOCK, 64).0;
        Target::new(engine, vec![storage], buffers, options).map(drop)
    };
    assert_eq!(made(vec![here(), here()]), Err(TargetError::Option(OptionError::AddressTwice(here()))));
    assert!(matches!(made(Vec::new()), Err(TargetError::Option(OptionError::Range { name: "addresses", .. }))));
    assert_eq!(made(vec![here(), there()]), Ok(()));
    for (target, targets, wrong) in [(0, 0, "targets"), (0, MAX_TARGETS + 1, "targets"), (2, 2, "target")] {
        let options = target_options().target(target).targets(targets);
        let mut control = Control::new(SoftFabric::new().device(SoftOptions::new("reg_mr".parse().unwrap())));
        let engine = engine_of(&mut control, options.engine());
        let (buffers, storage) = (memory(options.buffer_memory_bytes(8)), Gated::new(64, BLOCK, 64).0);
        let refused = Target::new(engine, vec![storage], buffers, options).map(drop).unwrap_err();
        assert!(matches!(refused, TargetError::Option(OptionError::Range { name, .. }) if name == wrong), "{refused}");
    }
}
