//! A running target whose namespaces come, go, grow and shrink, on one core and on two, without a host that loses anything.

use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Access;
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{ChangeError, ChangeEvent, ChangeId, NewNamespace, Subsystem};
use frwr_nvmf::storage::{MemoryStorage, ResizeError, Storage as _};
use frwr_nvmf::wire::{
    BlockRange, Command, CompletionQueueEntry, GetLogPage, Identify, IdentifyNamespace, Nqn, SetFeatures, Status,
    SubmissionQueueEntry, cns, feature, log_page, opcode,
};
use frwr_support::nvmf_harness::gated::{Gate, Gated, Switch};
use frwr_support::nvmf_harness::raw::{Raw, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use std::rc::Rc;
use zerocopy::FromBytes;

const BLOCK: u32 = 512;
const BLOCKS: u64 = 64;
/// Namespace notices, ANA change notices.
const EVENTS: u32 = 0x900;
const SOON: Duration = Duration::from_millis(5);

type Cores = Raw<Gated>;

/// A medium that all cores have their way to.
struct Medium {
    memory: DeviceMemory,
    switch: Rc<Switch>,
}

impl Medium {
    fn new() -> Self {
        let switch = Gated::new(BLOCKS, BLOCK, 1).1;
        Self { memory: memory(BLOCKS as usize * BLOCK as usize), switch }
    }

    fn way(&self) -> Gated {
        Gated::over(self.memory.clone(), BLOCK, 64, &self.switch)
    }
}

/// A target of so many cores with namespace 1, and room for two more. Its host has an I/O queue on each core.
struct Changed {
    raw: Cores,
    admin: ConnectionId,
    queues: Vec<ConnectionId>,
    first: Medium,
    /// Answers to event requests.
    events: Vec<CompletionQueueEntry>,
    /// What cores said of changes, and nobody asked for.
    said: Vec<ChangeEvent<Gated>>,
}

impl Changed {
    fn new(cores: u16) -> Self {
        Self::over(cores, Medium::new(), |first, _| first.way())
    }

    /// The same, with ways to the medium that differ from core to core.
    fn over(cores: u16, first: Medium, way: impl Fn(&Medium, u16) -> Gated) -> Self {
        let options = target_options().cores(cores).io_queues(2).namespaces(3).controllers(3);
        let mut raw = Raw::spread(options, |core| vec![Subsystem::new(subsystem(), vec![way(&first, core)])]);
        let (admin, controller) = raw.controller();
        let queues = (1..=2).map(|queue| raw.another_queue(controller, queue)).collect();
        let set = SetFeatures { feature: feature::ASYNCHRONOUS_EVENTS, save: false, namespace: 0, value: EVENTS };
        assert!(raw.command(admin, Command::SetFeatures(set), None).status().is_success());
        Self { raw, admin, queues, first, events: Vec::new(), said: Vec::new() }
    }

    fn supply(&mut self, identifier: u32, medium: &Medium) {
        for member in &mut self.raw.members {
            member.supply_namespace(&subsystem(), identifier, medium.way()).unwrap();
        }
    }

    fn new_namespace(identifier: u32, medium: &Medium) -> NewNamespace<Gated> {
        NewNamespace { identifier, nguid: None, ana_group: 1, active: true, storage: medium.way() }
    }

    fn add(&mut self, identifier: u32, medium: &Medium) -> ChangeId {
        self.supply(identifier, medium);
        self.raw.target.add_namespace(&subsystem(), Self::new_namespace(identifier, medium)).unwrap()
    }

    /// Takes what cores say of changes.
    fn listen(&mut self) {
        for core in self.raw.members.iter_mut().chain([&mut self.raw.target]) {
            self.said.extend(core::iter::from_fn(|| core.next_change()));
        }
    }

    /// Steps until so much of this was said, which is not asked for again.
    fn until_said(&mut self, count: usize, is_it: impl Fn(&ChangeEvent<Gated>) -> bool) -> Vec<ChangeEvent<Gated>> {
        let mut found = Vec::new();
        for _ in 0..20_000 {
            self.listen();
            found.extend(self.said.extract_if(.., |event| is_it(event)));
            if found.len() >= count {
                assert_eq!(found.len(), count, "{found:?}");
                return found;
            }
            self.raw.step();
        }
        panic!("{found:?}; beside that {:?}", self.said);
    }

    /// Steps until a change is done.
    fn done(&mut self, id: ChangeId) {
        self.until_said(1, |event| matches!(event, ChangeEvent::Done { id: done } if *done == id));
    }

    /// Steps until all cores have handed back their storages.
    fn removed(&mut self, id: ChangeId) {
        let cores = self.raw.members.len() + 1;
        self.until_said(cores, |event| is_removed(event, id));
    }

    /// What holds the change up, as whichever core says it.
    fn held_up(&mut self, id: ChangeId) -> String {
        self.raw.now += SOON;
        let is_it = |event: &ChangeEvent<Gated>| matches!(event, ChangeEvent::HeldUp { id: held, .. } if *held == id);
        let said = self.until_said(1, is_it);
        let ChangeEvent::HeldUp { by, .. } = &said[0] else { panic!("{said:?}") };
        by.to_string()
    }

    /// Nobody says anything.
    fn quiet(&mut self) {
        self.raw.steps(2000);
        self.listen();
        assert!(self.said.is_empty(), "{:?}", self.said);
    }

    /// Answers to event requests, and to nothing else, are kept.
    fn keep_events(&mut self) {
        let is_event = |response: &mut CompletionQueueEntry| (900..910).contains(&response.command_id.get());
        self.events.extend(self.raw.responses.extract_if(.., is_event));
    }

    fn command(&mut self, queue: ConnectionId, command: Command, data: Option<(Access, u32)>) -> CompletionQueueEntry {
        self.keep_events();
        let answer = self.raw.command(queue, command, data);
        self.keep_events();
        answer
    }

    fn range(namespace: u32, lba: u64) -> BlockRange {
        BlockRange { namespace, lba, blocks: 1, data: keyed(BLOCK) }
    }

    /// Writes a block by every queue, and reads it back by every other one.
    fn serves(&mut self, namespace: u32, lba: u64) {
        for (at, writer) in self.queues.clone().into_iter().enumerate() {
            let byte = (namespace as u8) << 4 | at as u8;
            let written = self.write(writer, namespace, lba, byte);
            assert!(written.status().is_success(), "{}", written.status());
            for reader in self.queues.clone() {
                self.raw.data.fill(0, BLOCK as usize, 0).unwrap();
                let command = Command::Read(Self::range(namespace, lba));
                assert!(self.command(reader, command, Some((Access::RemoteWrite, BLOCK))).status().is_success());
                let mut read = [0];
                self.raw.data.read(BLOCK as usize - 1, &mut read).unwrap();
                assert_eq!(read, [byte]);
            }
        }
    }

    fn write(&mut self, queue: ConnectionId, namespace: u32, lba: u64, byte: u8) -> CompletionQueueEntry {
        self.raw.data.fill(0, BLOCK as usize, byte).unwrap();
        self.command(queue, Command::Write(Self::range(namespace, lba)), Some((Access::RemoteRead, BLOCK)))
    }

    /// What commands of a block end with, the same by all queues.
    fn status(&mut self, namespace: u32, lba: u64) -> Status {
        let queues = self.queues.clone();
        let mut all = queues.into_iter().map(|queue| self.write(queue, namespace, lba, 0).status());
        let first = all.next().unwrap();
        assert!(all.all(|status| status == first));
        first
    }

    /// Sends a command that is answered later.
    fn send(&mut self, queue: usize, namespace: u32, lba: u64, id: u16) {
        let entry = Command::Write(Self::range(namespace, lba)).encode(id).unwrap();
        self.raw.send(self.queues[queue], entry, Some((Access::RemoteRead, BLOCK)));
        self.raw.steps(50);
        self.keep_events();
        assert!(self.raw.responses.is_empty());
    }

    fn event_request(&mut self, id: u16) {
        self.raw.send(self.admin, SubmissionQueueEntry::new(opcode::ASYNCHRONOUS_EVENT_REQUEST, id), None);
    }

    /// The host is told of a change of namespaces, and reads which they are.
    fn told(&mut self, id: u16) -> Vec<u32> {
        for _ in 0..1000 {
            self.raw.step();
            self.keep_events();
        }
        let event = self.events.remove(0);
        assert_eq!((event.command_id.get(), event.result.get()), (id, 0x0004_0002));
        self.list(|data| {
            Command::GetLogPage(GetLogPage {
                namespace: 0xffff_ffff,
                page: log_page::CHANGED_NAMESPACES,
                specific: 0,
                retain_event: false,
                offset: 0,
                offset_is_index: false,
                length: 4096,
                data,
            })
        })
    }

    fn active(&mut self) -> Vec<u32> {
        self.list(|data| Command::Identify(Identify { structure: cns::ACTIVE_NAMESPACES, namespace: 0, data }))
    }

    fn list(&mut self, command: impl Fn(frwr_nvmf::wire::DataPointer) -> Command) -> Vec<u32> {
        self.page(command(keyed(4096)));
        let mut bytes = [0; 4096];
        self.raw.data.read(0, &mut bytes).unwrap();
        let all = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        all.take_while(|identifier| *identifier != 0).collect()
    }

    fn page(&mut self, command: Command) {
        let answer = self.command(self.admin, command, Some((Access::RemoteWrite, 4096)));
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    fn identify(&mut self, namespace: u32) -> IdentifyNamespace {
        self.page(Command::Identify(Identify { structure: cns::NAMESPACE, namespace, data: keyed(4096) }));
        let mut bytes = [0; 4096];
        self.raw.data.read(0, &mut bytes).unwrap();
        IdentifyNamespace::read_from_bytes(&bytes).unwrap()
    }

    fn finish(mut self) {
        self.raw.shut_down();
    }
}

fn is_removed(event: &ChangeEvent<Gated>, id: ChangeId) -> bool {
    matches!(event, ChangeEvent::Removed { id: removed, .. } if *removed == id)
}

/// It is listed when somebody makes it active, and not for a moment before.
#[test]
fn a_namespace_comes_that_is_not_active() {
    for cores in [1, 2] {
        let (mut changed, second) = (Changed::new(cores), Medium::new());
        changed.event_request(900);
        changed.supply(2, &second);
        let new = NewNamespace { active: false, ..Changed::new_namespace(2, &second) };
        let id = changed.raw.target.add_namespace(&subsystem(), new).unwrap();
        changed.done(id);
        changed.quiet();
        changed.keep_events();
        assert_eq!((changed.events.len(), changed.active()), (0, vec![1]), "{cores}: nobody is told");
        assert_eq!(changed.status(2, 0).without_flags(), Status::INVALID_FIELD);
        changed.raw.target.set_namespace_active(&subsystem(), 2, true).unwrap();
        assert_eq!((changed.told(900), changed.active()), (vec![2], vec![1, 2]), "{cores}");
        changed.serves(2, 0);
    }
}

#[test]
fn a_namespace_is_added_under_a_host_that_hears_of_it() {
    for cores in [1, 2] {
        let mut changed = Changed::new(cores);
        changed.event_request(900);
        assert_eq!(changed.status(3, 0).without_flags(), Status::INVALID_NAMESPACE);
        let medium = Medium::new();
        let id = changed.add(3, &medium);
        changed.done(id);
        assert_eq!(changed.told(900), [3]);
        assert_eq!(changed.active(), [1, 3]);
        let (first, third) = (changed.identify(1), changed.identify(3));
        assert_eq!((third.size.get(), third.nguid), (BLOCKS, subsystem().identifier(3)));
        assert_ne!(first.nguid, third.nguid);
        changed.serves(3, 7);
        changed.serves(1, 7);
        assert_eq!(changed.raw.disconnected, []);
        changed.quiet();
        changed.finish();
    }
}

#[test]
fn what_is_added_is_seen_when_all_cores_serve_it() {
    let mut changed = Changed::new(2);
    changed.event_request(900);
    changed.raw.carried = false;
    let (medium, other) = (Medium::new(), Medium::new());
    let id = changed.add(2, &medium);
    changed.raw.steps(50);
    assert_eq!(changed.active(), [1], "a core has not heard of it");
    changed.quiet();
    changed.supply(3, &other);
    let refused = changed.raw.target.add_namespace(&subsystem(), Changed::new_namespace(3, &other)).unwrap_err();
    assert_eq!(refused.error, ChangeError::Busy(id));
    changed.raw.carried = true;
    changed.done(id);
    assert_eq!(changed.told(900), [2]);
    changed.serves(2, 0);
    assert!(changed.raw.members[0].withdraw_namespace(&subsystem(), 3).is_some());
    assert!(changed.raw.members[0].withdraw_namespace(&subsystem(), 3).is_none());
    assert!(changed.raw.members[0].withdraw_namespace(&subsystem(), 2).is_none(), "it serves");
    changed.finish();
}

#[test]
fn what_a_core_was_not_given_is_seen_nowhere_and_comes_back() {
    let mut changed = Changed::new(2);
    changed.event_request(900);
    let medium = Medium::new();
    let id = changed.raw.target.add_namespace(&subsystem(), Changed::new_namespace(2, &medium)).unwrap();
    changed.until_said(1, |event| is_removed(event, id));
    changed.until_said(1, |event| matches!(event, ChangeEvent::Undone { id: undone } if *undone == id));
    assert_eq!(changed.active(), [1]);
    changed.keep_events();
    assert!(changed.events.is_empty(), "nobody was told");
    // And it can be done again.
    let id = changed.add(2, &medium);
    changed.done(id);
    changed.serves(2, 1);
    changed.finish();
}

/// The home core's storage is taken back while another core is told of it.
#[test]
fn what_the_home_core_has_no_longer_is_undone_as_that_of_any_core() {
    let mut changed = Changed::new(2);
    changed.event_request(900);
    changed.raw.carried = false;
    let medium = Medium::new();
    let id = changed.add(2, &medium);
    assert!(changed.raw.target.withdraw_namespace(&subsystem(), 2).is_some());
    changed.raw.carried = true;
    changed.until_said(1, |event| is_removed(event, id));
    changed.until_said(1, |event| matches!(event, ChangeEvent::Undone { id: undone } if *undone == id));
    assert_eq!(changed.active(), [1]);
    assert_eq!(changed.status(2, 0).without_flags(), Status::INVALID_NAMESPACE, "on all cores");
    assert!(changed.events.is_empty(), "nobody was told");
    let id = changed.add(2, &medium);
    changed.done(id);
    changed.serves(2, 1);
    changed.finish();
}

#[test]
fn a_change_that_cannot_be_is_refused_with_the_limit_and_the_remedy() {
    let mut changed = Changed::new(2);
    let medium = Medium::new();
    let refused = |changed: &mut Changed, identifier, nguid, storage| {
        let namespace = NewNamespace { identifier, nguid, ana_group: 1, active: true, storage };
        changed.raw.target.add_namespace(&subsystem(), namespace).unwrap_err().error
    };
    let large = || {
        let switch = Gated::new(1, BLOCK, 1).1;
        Gated::over(memory(64 << 10), 64 << 10, 1, &switch)
    };
    let nguid = subsystem().identifier(1);
    for (identifier, nguid, storage, error) in [
        (0, None, medium.way(), ChangeError::Identifier { identifier: 0, limit: 3 }),
        (4, None, medium.way(), ChangeError::Identifier { identifier: 4, limit: 3 }),
        (u32::MAX, None, medium.way(), ChangeError::Identifier { identifier: u32::MAX, limit: 3 }),
        (1, None, medium.way(), ChangeError::Taken { identifier: 1 }),
        (2, Some(nguid), medium.way(), ChangeError::Identity { identifier: 2, other: 1 }),
        (2, None, large(), ChangeError::BlockBytes { block_bytes: 64 << 10, buffer_bytes: 32 << 10 }),
    ] {
        let said = refused(&mut changed, identifier, nguid, storage);
        assert_eq!(said, error);
        assert!(said.to_string().contains("choose") || said.to_string().contains("give"), "{said}");
    }
    let none = Nqn::new("nqn.none").unwrap();
    let target = &mut changed.raw.target;
    assert_eq!(target.remove_namespace(&none, 1, SOON), Err(ChangeError::Subsystem));
    assert_eq!(target.remove_namespace(&subsystem(), 2, SOON), Err(ChangeError::Namespace { identifier: 2, count: 1 }));
    let resized = |target: &mut frwr_nvmf::controller::Target<_, _>, blocks| {
        target.resize_namespace(&subsystem(), 1, blocks, SOON)
    };
    let limit = ChangeError::Resize(ResizeError::Medium { blocks: BLOCKS + 1, limit: BLOCKS });
    assert_eq!(resized(target, BLOCKS + 1), Err(limit));
    assert!(matches!(resized(target, 0), Err(ChangeError::Resize(ResizeError::Geometry(_)))));
    let member = &mut changed.raw.members[0];
    assert_eq!(member.remove_namespace(&subsystem(), 1, SOON), Err(ChangeError::NotHome(1)));
    assert_eq!(member.drain(None, SOON), Err(ChangeError::NotHome(1)));
    // As many as may be: three.
    for identifier in [2, 3] {
        let id = changed.add(identifier, &Medium::new());
        changed.done(id);
    }
    let id = changed.raw.target.remove_namespace(&subsystem(), 2, SOON).unwrap();
    let refused = changed.raw.members[0].supply_namespace(&subsystem(), 2, medium.way()).unwrap_err();
    assert_eq!(refused.error, ChangeError::Taken { identifier: 2 }, "that core has not heard of it");
    changed.done(id);
    changed.removed(id);
    changed.finish();
}

#[test]
fn a_target_that_was_made_without_room_says_so() {
    let mut raw = Raw::with(target_options(), vec![Medium::new().way()]);
    let refused = raw.target.add_namespace(&subsystem(), Changed::new_namespace(2, &Medium::new())).unwrap_err();
    assert_eq!(refused.error, ChangeError::Identifier { identifier: 2, limit: 1 });
    assert_eq!(refused.storage.geometry().blocks(), BLOCKS, "it comes back");
    let other = Nqn::new("nqn.other").unwrap();
    let subsystems = vec![
        Subsystem::new(subsystem(), vec![Medium::new().way(), Medium::new().way()]),
        Subsystem::new(other, vec![Medium::new().way()]),
    ];
    let mut raw = Raw::with_subsystems(target_options().namespaces(3), subsystems);
    let refused = raw.target.add_namespace(&other, Changed::new_namespace(2, &Medium::new())).unwrap_err();
    assert_eq!(refused.error, ChangeError::Namespaces { limit: 3 });
    let serial = frwr_nvmf::wire::SerialNumber::of_subsystem(&other);
    let third = raw.target.add_subsystem(Nqn::new("nqn.third").unwrap(), Default::default(), serial);
    assert_eq!(third, Err(ChangeError::Subsystems { limit: 2 }));
}

#[test]
fn commands_in_flight_end_before_a_namespace_goes_and_new_ones_are_refused() {
    for cores in [1, 2] {
        for queue in 0..2 {
            let mut changed = Changed::new(cores);
            let medium = Medium::new();
            let id = changed.add(2, &medium);
            changed.done(id);
            changed.event_request(900);
            medium.switch.gate.set(Gate::Running);
            changed.send(queue, 2, 5, 700);
            let id = changed.raw.target.remove_namespace(&subsystem(), 2, SOON).unwrap();
            assert_eq!(changed.told(900), [2]);
            changed.done(id);
            assert_eq!(changed.active(), [1]);
            assert_eq!(changed.status(2, 5).without_flags(), Status::INVALID_NAMESPACE);
            changed.serves(1, 5);
            // On a core without a command of it its storage is free.
            let (cores, is_free) = (usize::from(cores), |event: &ChangeEvent<Gated>| is_removed(event, id));
            changed.until_said(cores - 1, is_free);
            let held = changed.held_up(id);
            let named =
                format!("host nqn.host, queue {}, command 0x02bc of namespace 2: waits for the storage", queue + 1);
            assert_eq!(held, named);
            changed.quiet();
            assert!(changed.raw.responses.is_empty());
            medium.switch.gate.set(Gate::Open);
            changed.raw.until("answered", |raw| !raw.responses.is_empty());
            assert!(changed.raw.responses[0].status().is_success() && changed.raw.responses[0].command_id.get() == 700);
            changed.until_said(1, is_free);
            // Its identifier is another one's, who is told apart by what he is called.
            let other = Medium::new();
            changed.supply(2, &other);
            let namespace = NewNamespace { nguid: Some([7; 16]), ..Changed::new_namespace(2, &other) };
            let id = changed.raw.target.add_namespace(&subsystem(), namespace).unwrap();
            changed.done(id);
            assert_eq!(changed.identify(2).nguid, [7; 16]);
            changed.serves(2, 5);
            changed.finish();
        }
    }
}

/// What a host that is gone left with a storage holds the namespace as well.
#[test]
fn a_storage_is_handed_back_when_it_has_nothing_of_hosts_that_are_gone() {
    let mut changed = Changed::new(1);
    let medium = Medium::new();
    let id = changed.add(2, &medium);
    changed.done(id);
    medium.switch.gate.set(Gate::Running);
    changed.send(0, 2, 5, 700);
    changed.raw.engine.disconnect(changed.admin);
    changed.raw.until("gone", |raw| raw.target.statistics().orphans == 1);
    let id = changed.raw.target.remove_namespace(&subsystem(), 2, SOON).unwrap();
    changed.done(id);
    let held = changed.held_up(id);
    assert_eq!(held, "host nqn.host, a queue that is gone, command 0x02bc of namespace 2: waits for the storage");
    medium.switch.gate.set(Gate::Open);
    changed.removed(id);
    changed.finish();
}

#[test]
fn a_namespace_grows_and_shrinks_and_nothing_in_flight_is_cut() {
    for cores in [1, 2] {
        let mut changed = Changed::new(cores);
        let resize = |changed: &mut Changed, blocks| {
            for member in &mut changed.raw.members {
                member.prepare_resize(&subsystem(), 1, blocks).unwrap();
            }
            let id = changed.raw.target.resize_namespace(&subsystem(), 1, blocks, SOON).unwrap();
            changed.done(id);
            id
        };
        let is_shrunk =
            |event: &ChangeEvent<Gated>, id| matches!(event, ChangeEvent::Shrunk { id: shrunk } if *shrunk == id);
        changed.event_request(900);
        changed.first.switch.gate.set(Gate::Running);
        changed.send(0, 1, 50, 700);
        let id = resize(&mut changed, 32);
        assert_eq!(changed.told(900), [1]);
        assert_eq!(changed.identify(1).size.get(), 32);
        assert_eq!(changed.status(1, 32).without_flags(), Status::LBA_OUT_OF_RANGE);
        // Where nothing reaches beyond the new end it is said at once.
        changed.until_said(usize::from(cores) - 1, |event| is_shrunk(event, id));
        let held = changed.held_up(id);
        assert!(held.contains("queue 1, command 0x02bc"), "{held}");
        changed.first.switch.gate.set(Gate::Open);
        changed.raw.until("answered", |raw| !raw.responses.is_empty());
        assert!(changed.raw.responses[0].status().is_success(), "it came before");
        changed.until_said(1, |event| is_shrunk(event, id));
        assert_eq!(changed.first.switch.blocks.get(), 32);
        changed.serves(1, 31);
        changed.event_request(901);
        resize(&mut changed, BLOCKS);
        assert_eq!(changed.told(901), [1]);
        assert_eq!((changed.identify(1).size.get(), changed.first.switch.blocks.get()), (BLOCKS, BLOCKS));
        changed.serves(1, BLOCKS - 1);
        changed.quiet();
        changed.finish();
    }
}

/// What was to be smaller is not, on the core that was not so far; what comes next is not cut by it.
#[test]
fn a_namespace_that_is_to_be_larger_again_is_cut_on_no_core() {
    let (first, second) = (Medium::new(), Medium::new());
    let ways = [Rc::clone(&first.switch), Rc::clone(&second.switch)];
    let way = |first: &Medium, core| Gated::over(first.memory.clone(), BLOCK, 64, &ways[usize::from(core)]);
    let mut changed = Changed::over(2, first, way);
    let within = Duration::from_secs(1);
    let is_shrunk = |event: &ChangeEvent<Gated>| matches!(event, ChangeEvent::Shrunk { .. });
    changed.first.switch.gate.set(Gate::Running);
    changed.send(1, 1, 50, 700);
    let small = changed.raw.target.resize_namespace(&subsystem(), 1, 32, within).unwrap();
    changed.done(small);
    changed.until_said(1, is_shrunk);
    changed.quiet();
    assert_eq!((ways[0].blocks.get(), ways[1].blocks.get()), (BLOCKS, 32), "one core still has a command there");
    // The other core hears of the larger size when that command has ended.
    changed.raw.members[0].prepare_resize(&subsystem(), 1, 48).unwrap();
    changed.raw.carried = false;
    let large = changed.raw.target.resize_namespace(&subsystem(), 1, 48, within).unwrap();
    changed.until_said(1, |event| matches!(event, ChangeEvent::Superseded { id } if *id == small));
    changed.first.switch.gate.set(Gate::Open);
    changed.raw.until("answered", |raw| !raw.responses.is_empty());
    changed.quiet();
    changed.raw.carried = true;
    changed.done(large);
    assert_eq!(changed.identify(1).size.get(), 48);
    changed.serves(1, 47);
    // One that is removed is not made smaller first.
    changed.first.switch.gate.set(Gate::Running);
    changed.send(1, 1, 40, 701);
    changed.until_said(1, is_shrunk);
    let small = changed.raw.target.resize_namespace(&subsystem(), 1, 32, within).unwrap();
    changed.done(small);
    changed.until_said(1, is_shrunk);
    let gone = changed.raw.target.remove_namespace(&subsystem(), 1, within).unwrap();
    changed.until_said(1, |event| matches!(event, ChangeEvent::Superseded { id } if *id == small));
    changed.first.switch.gate.set(Gate::Open);
    changed.done(gone);
    changed.removed(gone);
    changed.finish();
}

/// A host that never reads what changed hears of one change, and costs the target nothing more.
#[test]
fn a_host_that_never_reads_the_page_of_its_event_is_told_once() {
    let mut changed = Changed::new(2);
    for id in 900..904 {
        changed.event_request(id);
    }
    changed.raw.steps(50);
    let medium = Medium::new();
    for _ in 0..100 {
        let id = changed.add(2, &medium);
        changed.done(id);
        changed.serves(2, 0);
        let id = changed.raw.target.remove_namespace(&subsystem(), 2, SOON).unwrap();
        changed.done(id);
        changed.removed(id);
    }
    assert_eq!(changed.raw.target.statistics().events, 1);
    changed.serves(1, 0);
    changed.finish();
}

/// A command of the target's own end is as good as a host's.
#[test]
fn a_storage_of_one_size_is_not_resized() {
    struct Fixed(MemoryStorage);
    impl frwr_nvmf::storage::Storage for Fixed {
        fn geometry(&self) -> frwr_nvmf::storage::Geometry {
            self.0.geometry()
        }
        fn attach(&mut self, buffers: DeviceMemory) -> Result<(), frwr_nvmf::storage::AttachError> {
            self.0.attach(buffers)
        }
        fn submit(
            &mut self,
            cookie: frwr_nvmf::storage::Cookie,
            operation: frwr_nvmf::storage::Operation,
        ) -> Result<(), frwr_nvmf::storage::QueueFull> {
            self.0.submit(cookie, operation)
        }
        fn flush(&mut self) {
            self.0.flush();
        }
        fn poll(&mut self, now: Duration, out: &mut frwr_nvmf::storage::CompletionBatch) -> usize {
            self.0.poll(now, out)
        }
    }
    let storage = || MemoryStorage::new(memory(16 << 10), BLOCK, 8).unwrap();
    let mut raw = Raw::with(target_options().namespaces(2), vec![Fixed(storage())]);
    for blocks in [1, 32, 33] {
        let resized = raw.target.resize_namespace(&subsystem(), 1, blocks, SOON);
        assert_eq!(resized, Err(ChangeError::Resize(ResizeError::Fixed)));
    }
    // Beside one that can do more, what hosts were told of stays true.
    let mut raw =
        Raw::with(target_options().namespaces(2), vec![Box::new(storage()) as Box<dyn frwr_nvmf::storage::Storage>]);
    let lacking: Box<dyn frwr_nvmf::storage::Storage> = Box::new(Fixed(storage()));
    let namespace = NewNamespace { identifier: 2, nguid: None, ana_group: 1, active: true, storage: lacking };
    let refused = raw.target.add_namespace(&subsystem(), namespace).unwrap_err();
    assert_eq!(refused.error, ChangeError::Features("Write Zeroes"));
}
