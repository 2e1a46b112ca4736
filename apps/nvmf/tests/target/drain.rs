//! Hosts that are sent away from a running target, and subsystems that come and go under them: on one core and on two.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{AllowedHosts, ChangeError, ChangeEvent, ChangeId, NewNamespace, Subsystem};
use frwr_nvmf::wire::{
    BlockRange, Command, ConnectData, DISCOVERY_SUBSYSTEM, DYNAMIC_CONTROLLER, DiscoveryHeader, GetLogPage,
    InvalidParameter, Nqn, SerialNumber, SetFeatures, Status, SubmissionQueueEntry, feature, log_page, opcode,
};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Raw, connect, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use std::rc::Rc;
use zerocopy::FromBytes;

const BLOCK: u32 = 512;
const SOON: Duration = Duration::from_millis(5);
/// Hosts have heard by then that a controller drains.
const HEARD: Duration = Duration::from_secs(1);

fn name(text: &str) -> Nqn {
    Nqn::new(text).unwrap()
}

/// A host by its name and number, of any subsystem.
fn of_host(host: &str, number: u8, subsystem: Nqn, controller_id: u16) -> ConnectData {
    ConnectData { host_id: [number; 16], controller_id, subsystem, host: Nqn::new(host).ok() }
}

/// Two hosts with an I/O queue on each core.
struct Hosts {
    raw: Raw<Gated>,
    memory: DeviceMemory,
    switch: Rc<Switch>,
    /// Admin queue, controller and I/O queues of each.
    hosts: Vec<(ConnectionId, u16, Vec<ConnectionId>)>,
    said: Vec<ChangeEvent<Gated>>,
}

const NAMES: [&str; 2] = ["nqn.one", "nqn.two"];

impl Hosts {
    fn new(cores: u16) -> Self {
        let (memory, switch) = (memory(32 << 10), Gated::new(64, BLOCK, 1).1);
        let options = target_options().cores(cores).io_queues(2).controllers(4).namespaces(4).subsystems(3);
        let storage = || Gated::over(memory.clone(), BLOCK, 64, &switch);
        let raw = Raw::spread(options, |_| vec![Subsystem::new(subsystem(), vec![storage()])]);
        let mut hosts =
            Self { raw, memory: memory.clone(), switch: Rc::clone(&switch), hosts: Vec::new(), said: Vec::new() };
        for at in 0..2 {
            hosts.come(at);
        }
        hosts
    }

    fn data(at: usize, controller_id: u16) -> ConnectData {
        of_host(NAMES[at], at as u8 + 1, subsystem(), controller_id)
    }

    /// A host connects, and forgets what it had.
    fn come(&mut self, at: usize) {
        let (admin, controller) = self.raw.controller_of(&Self::data(at, DYNAMIC_CONTROLLER));
        let queues = (1..=2).map(|queue| self.raw.another_queue_of(&Self::data(at, controller), queue)).collect();
        let host = (admin, controller, queues);
        match self.hosts.get_mut(at) {
            Some(known) => *known = host,
            None => self.hosts.push(host),
        }
    }

    /// How a host's Connect of an admin queue ends.
    fn asks(&mut self, data: &ConnectData) -> (Status, u64) {
        let admin = self.raw.open_queue(0, 32);
        let answer = self.raw.connect(admin, connect(0, 31), data);
        self.raw.engine.disconnect(admin);
        self.raw.until("ended", |raw| raw.disconnected.contains(&admin));
        (answer.status(), answer.result.get())
    }

    fn write(&mut self, at: usize, queue: usize) -> Status {
        let io = self.hosts[at].2[queue];
        let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(BLOCK) };
        self.raw.command(io, Command::Write(range), Some((Access::RemoteRead, BLOCK))).status()
    }

    fn send(&mut self, at: usize, queue: usize, id: u16) {
        let range = BlockRange { namespace: 1, lba: 0, blocks: 1, data: keyed(BLOCK) };
        let entry = Command::Write(range).encode(id).unwrap();
        self.raw.send(self.hosts[at].2[queue], entry, Some((Access::RemoteRead, BLOCK)));
        self.raw.steps(50);
    }

    /// How a command that was sent is answered.
    fn answered(&mut self, id: u16) -> Status {
        self.raw.until("answered", |raw| raw.responses.iter().any(|answer| answer.command_id.get() == id));
        let at = self.raw.responses.iter().position(|answer| answer.command_id.get() == id).unwrap();
        self.raw.responses.remove(at).status()
    }

    fn serves(&mut self, at: usize) {
        for queue in 0..2 {
            let status = self.write(at, queue);
            assert!(status.is_success(), "{status}");
        }
    }

    fn has_left(&self, at: usize) -> bool {
        let (admin, _, queues) = &self.hosts[at];
        self.raw.disconnected.contains(admin) && queues.iter().all(|queue| self.raw.disconnected.contains(queue))
    }

    fn until_said(&mut self, what: &str, is_it: impl Fn(&ChangeEvent<Gated>) -> bool) -> ChangeEvent<Gated> {
        self.raw.until_said(&mut self.said, what, is_it)
    }

    fn done(&mut self, id: ChangeId) {
        self.until_said("done", |event| matches!(event, ChangeEvent::Done { id: done } if *done == id));
    }

    /// A drain is done, whose hosts have the time that they need to hear of it.
    fn drained(&mut self, id: ChangeId) {
        self.raw.pass(HEARD);
        self.done(id);
    }

    fn held_up(&mut self, id: ChangeId) -> String {
        self.raw.now += SOON;
        let is_it = |event: &ChangeEvent<Gated>| matches!(event, ChangeEvent::HeldUp { id: held, .. } if *held == id);
        let ChangeEvent::HeldUp { by, .. } = self.until_said("held up", is_it) else { panic!() };
        by.to_string()
    }

    fn finish(mut self) {
        assert!(self.said.is_empty(), "{:?}", self.said);
        self.raw.shut_down();
    }
}

fn writes(hosts: &Hosts) -> u64 {
    hosts.raw.cores().map(|target| target.statistics().writes).sum()
}

#[test]
fn a_drained_host_ends_with_its_commands_and_stays_away_until_it_may_come_again() {
    for cores in [1, 2] {
        for all in [false, true] {
            let mut hosts = Hosts::new(cores);
            let whom = (!all).then(|| name(NAMES[0]));
            hosts.switch.gate.set(Gate::Running);
            hosts.send(0, 1, 700);
            let id = hosts.raw.target.drain(whom, SOON).unwrap();
            hosts.raw.steps(2000);
            // What is sent now is not executed, and its host hears so: it sends it again, elsewhere or later.
            let before = writes(&hosts);
            hosts.send(0, 1, 701);
            assert_eq!(hosts.answered(701), Status::ANA_INACCESSIBLE);
            assert!(hosts.held_up(id).starts_with("host nqn.one, queue 2, command 0x02bc of namespace 1"));
            let busy = (Status::CONNECT_CONTROLLER_BUSY, 0);
            assert_eq!(hosts.asks(&Hosts::data(0, DYNAMIC_CONTROLLER)), busy);
            assert!(!hosts.has_left(0) && hosts.raw.responses.is_empty());
            // However long that takes.
            hosts.raw.pass(2 * HEARD);
            hosts.send(0, 1, 702);
            assert_eq!(hosts.answered(702), Status::ANA_INACCESSIBLE);
            assert!(!hosts.has_left(0) && hosts.raw.responses.is_empty());
            hosts.switch.gate.set(Gate::Open);
            hosts.raw.until("left", |raw| raw.responses.len() == 1 && raw.disconnected.len() >= 4);
            assert!(hosts.raw.responses[0].status().is_success() && hosts.raw.responses[0].command_id.get() == 700);
            hosts.done(id);
            assert!(hosts.has_left(0) && writes(&hosts) == before + 1);
            assert_eq!(hosts.has_left(1), all);
            if !all {
                hosts.serves(1);
            }
            assert_eq!(hosts.asks(&Hosts::data(0, DYNAMIC_CONTROLLER)), busy);
            assert!(!hosts.raw.target.resume(Some(name("nqn.other"))) && hosts.raw.target.resume(whom));
            assert!(!hosts.raw.target.resume(whom), "it was already");
            hosts.come(0);
            hosts.serves(0);
            hosts.finish();
        }
    }
}

/// Cores that hear of it late end the queues that they have then.
#[test]
fn a_host_that_is_drained_ends_on_a_core_that_hears_of_it_late() {
    let mut hosts = Hosts::new(2);
    hosts.raw.carried = false;
    let id = hosts.raw.target.drain(Some(name(NAMES[0])), SOON).unwrap();
    hosts.raw.steps(3000);
    assert!(!hosts.has_left(0));
    hosts.raw.carried = true;
    hosts.raw.steps(100);
    hosts.drained(id);
    assert!(hosts.has_left(0));
    hosts.serves(1);
    hosts.finish();
}

/// Whoever keeps a queue busy does not stay by that.
#[test]
fn a_host_that_never_stops_asking_is_drained() {
    let mut hosts = Hosts::new(1);
    let (admin, io) = (hosts.hosts[0].0, hosts.hosts[0].2[0]);
    let before = writes(&hosts);
    let id = hosts.raw.target.drain(Some(name(NAMES[0])), SOON).unwrap();
    for id in 1000..2000 {
        if hosts.raw.disconnected.contains(&admin) {
            break;
        }
        if hosts.raw.engine.is_ready(io) {
            hosts.send(0, 0, id);
        }
        if hosts.raw.engine.is_ready(admin) {
            let entry = SubmissionQueueEntry::new(opcode::KEEP_ALIVE, id);
            hosts.raw.send(admin, entry, None);
        }
        hosts.raw.steps(30);
        hosts.raw.pass(HEARD / 100);
    }
    assert_eq!(writes(&hosts), before, "none is executed");
    hosts.done(id);
    assert!(hosts.has_left(0));
    hosts.finish();
}

#[test]
fn a_host_that_is_allowed_no_longer_leaves_in_order_and_hears_why() {
    for cores in [1, 2] {
        let mut hosts = Hosts::new(cores);
        hosts.switch.gate.set(Gate::Running);
        hosts.send(0, 0, 700);
        let allowed = AllowedHosts::Listed(vec![name(NAMES[1])]);
        let id = hosts.raw.target.set_allowed_hosts(&subsystem(), allowed.clone(), SOON).unwrap();
        let invalid = (Status::CONNECT_INVALID_HOST.do_not_retry(), 0);
        assert_eq!(hosts.asks(&Hosts::data(0, DYNAMIC_CONTROLLER)), invalid);
        assert!(hosts.held_up(id).starts_with("host nqn.one, queue 1"));
        hosts.switch.gate.set(Gate::Open);
        assert!(hosts.answered(700).is_success());
        hosts.drained(id);
        assert!(hosts.has_left(0) && !hosts.has_left(1));
        hosts.serves(1);
        let id = hosts.raw.target.set_allowed_hosts(&subsystem(), AllowedHosts::Any, SOON).unwrap();
        hosts.done(id);
        hosts.come(0);
        hosts.serves(0);
        let many = AllowedHosts::Listed(vec![name(NAMES[1]); 1025]);
        let refused = hosts.raw.target.set_allowed_hosts(&subsystem(), many, SOON);
        assert_eq!(refused, Err(ChangeError::AllowedHosts { count: 1025, limit: 1024 }));
        hosts.finish();
    }
}

/// The host of a discovery controller that stays to hear of changes.
struct Discovery(ConnectionId);

impl Discovery {
    fn new(hosts: &mut Hosts) -> Self {
        let data = of_host("nqn.asks", 9, name(DISCOVERY_SUBSYSTEM), DYNAMIC_CONTROLLER);
        let (admin, _) = hosts.raw.controller_of(&data);
        let set = SetFeatures { feature: feature::ASYNCHRONOUS_EVENTS, save: false, namespace: 0, value: 1 << 31 };
        assert!(hosts.raw.command(admin, Command::SetFeatures(set), None).status().is_success());
        Self(admin)
    }

    fn wait(&self, hosts: &mut Hosts, id: u16) {
        hosts.raw.responses.clear();
        hosts.raw.send(self.0, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, id), None);
        hosts.raw.steps(50);
    }

    /// It is told: generation and number of records then.
    fn told(&self, hosts: &mut Hosts) -> (u64, u64) {
        hosts.raw.until("told", |raw| !raw.responses.is_empty());
        assert_eq!(hosts.raw.responses[0].result.get(), 0x0070_f002);
        let page = GetLogPage {
            namespace: 0,
            page: log_page::DISCOVERY,
            specific: 0,
            retain_event: false,
            offset: 0,
            offset_is_index: false,
            length: 1024,
            data: keyed(1024),
        };
        let answer = hosts.raw.command(self.0, Command::GetLogPage(page), Some((Access::RemoteWrite, 1024)));
        assert!(answer.status().is_success());
        let mut bytes = [0; 1024];
        hosts.raw.data.read(0, &mut bytes).unwrap();
        let header = DiscoveryHeader::read_from_bytes(&bytes).unwrap();
        (header.generation.get(), header.records.get())
    }
}

#[test]
fn a_subsystem_comes_with_its_namespaces_and_goes_with_its_hosts() {
    for cores in [1, 2] {
        let mut hosts = Hosts::new(cores);
        let discovery = Discovery::new(&mut hosts);
        discovery.wait(&mut hosts, 900);
        let other = name("nqn.other");
        let serial = SerialNumber::of_subsystem(&other);
        let nobody = AllowedHosts::Listed(Vec::new());
        let id = hosts.raw.target.add_subsystem(other, nobody, serial).unwrap();
        hosts.done(id);
        let again = hosts.raw.target.add_subsystem(other, AllowedHosts::Any, serial);
        assert_eq!(again, Err(ChangeError::SubsystemName));
        let switch = Gated::new(64, BLOCK, 1).1;
        let storage = |hosts: &Hosts| Gated::over(hosts.memory.clone(), BLOCK, 64, &switch);
        for identifier in [1, 3] {
            let (home, ways): (_, Vec<_>) = (storage(&hosts), (1..cores).map(|_| storage(&hosts)).collect());
            for (member, storage) in hosts.raw.members.iter_mut().zip(ways) {
                member.supply_namespace(&other, identifier, storage).unwrap();
            }
            let namespace = NewNamespace { identifier, nguid: None, ana_group: 1, active: true, storage: home };
            let id = hosts.raw.target.add_namespace(&other, namespace).unwrap();
            hosts.done(id);
        }
        assert!(hosts.raw.responses.is_empty(), "nobody may see it");
        let id = hosts.raw.target.set_allowed_hosts(&other, AllowedHosts::Any, SOON).unwrap();
        hosts.done(id);
        let (generation, records) = discovery.told(&mut hosts);
        assert_eq!((generation, records), (3, 2));

        // A host uses it.
        let data = |controller| of_host("nqn.third", 3, other, controller);
        let (admin, controller) = hosts.raw.controller_of(&data(DYNAMIC_CONTROLLER));
        let queues: Vec<_> = (1..=2).map(|queue| hosts.raw.another_queue_of(&data(controller), queue)).collect();
        let range = BlockRange { namespace: 3, lba: 9, blocks: 1, data: keyed(BLOCK) };
        for io in &queues {
            let written = hosts.raw.command(*io, Command::Write(range), Some((Access::RemoteRead, BLOCK)));
            assert!(written.status().is_success(), "{}", written.status());
        }

        // It goes: what the host has in flight is answered first.
        let events = SetFeatures { feature: feature::ASYNCHRONOUS_EVENTS, save: false, namespace: 0, value: 0x8000 };
        assert!(hosts.raw.command(admin, Command::SetFeatures(events), None).status().is_success());
        discovery.wait(&mut hosts, 901);
        hosts.raw.send(admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, 950), None);
        switch.gate.set(Gate::Running);
        let entry = Command::Write(range).encode(700).unwrap();
        hosts.raw.send(queues[1], entry, Some((Access::RemoteRead, BLOCK)));
        hosts.raw.steps(100);
        let id = hosts.raw.target.remove_subsystem(&other, SOON).unwrap();
        hosts.raw.until("told", |raw| raw.responses.iter().any(|answer| answer.command_id.get() == 950));
        hosts.raw.responses.retain(|answer| answer.command_id.get() != 950);
        assert_eq!(discovery.told(&mut hosts), (4, 1));
        let (status, result) = hosts.asks(&data(DYNAMIC_CONTROLLER));
        assert_eq!(status.code(), Status::CONNECT_INVALID_PARAMETERS.code());
        assert_eq!(result, InvalidParameter::SUBSYSTEM.to_result());
        assert!(hosts.held_up(id).starts_with("host nqn.third, queue 2, command 0x02bc of namespace 3"));
        let taken = hosts.raw.target.add_subsystem(other, AllowedHosts::Any, serial);
        assert_eq!(taken, Err(ChangeError::SubsystemName), "it is not gone");
        switch.gate.set(Gate::Open);
        hosts.raw.pass(HEARD);
        for _ in 0..2 * cores {
            hosts.until_said("handed back", |event| {
                matches!(event, ChangeEvent::Removed { id: removed, subsystem, .. } if *removed == id && *subsystem == other)
            });
        }
        hosts.done(id);
        for io in queues.iter().chain([&admin]) {
            assert!(hosts.raw.disconnected.contains(io));
        }
        // Its place and its name are free.
        let id = hosts.raw.target.add_subsystem(other, AllowedHosts::Any, serial).unwrap();
        hosts.done(id);
        hosts.raw.controller_of(&data(DYNAMIC_CONTROLLER));
        hosts.serves(0);
        hosts.finish();
    }
}

/// What has no room is refused, and a target that ends takes no changes.
#[test]
fn changes_are_bounded_and_end_with_the_target() {
    let mut hosts = Hosts::new(1);
    for at in 0..frwr_nvmf::controller::MAX_DRAINS {
        let id = hosts.raw.target.drain(Some(name(&format!("nqn.host{at}"))), SOON).unwrap();
        hosts.done(id);
    }
    assert_eq!(hosts.raw.target.drain(None, SOON), Err(ChangeError::Drains));
    let id = hosts.raw.target.drain(Some(name("nqn.host0")), SOON).unwrap();
    hosts.done(id);
    assert!(hosts.raw.target.resume(Some(name("nqn.host0"))));
    hosts.raw.target.end(hosts.raw.now);
    assert_eq!(hosts.raw.target.drain(None, SOON), Err(ChangeError::Ending));
    let refused = hosts.raw.target.add_subsystem(name("nqn.x"), AllowedHosts::Any, SerialNumber::new("x").unwrap());
    assert_eq!(refused, Err(ChangeError::Ending));
    hosts.finish();
}

/// What a host left with a storage when it went away itself is waited for as well.
#[test]
fn a_drain_waits_for_what_a_storage_has_of_a_host_that_is_gone() {
    let mut hosts = Hosts::new(1);
    hosts.switch.gate.set(Gate::Running);
    hosts.send(0, 0, 700);
    let id = hosts.raw.target.drain(Some(name(NAMES[0])), SOON).unwrap();
    let (admin, _, queues) = hosts.hosts[0].clone();
    queues.iter().chain([&admin]).for_each(|connection| hosts.raw.engine.disconnect(*connection));
    hosts.raw.until("gone", |raw| raw.target.statistics().orphans == 1);
    let held = hosts.held_up(id);
    assert_eq!(held, "host nqn.one, a queue that is gone, command 0x02bc of namespace 1: waits for the storage");
    hosts.raw.steps(2000);
    hosts.switch.gate.set(Gate::Open);
    hosts.done(id);
    hosts.serves(1);
    hosts.finish();
}
