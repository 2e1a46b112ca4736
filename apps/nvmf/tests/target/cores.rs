//! A target over several cores, stepped by hand: whose queues are where, and what cores tell each other.

use core::{cell::Cell, time::Duration};
use frwr_engine::ConnectionId;
use frwr_engine::provider::{Access, CommandError, fault::CommandKind};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{AllowedHosts, Subsystem, TargetOptions};
use frwr_nvmf::storage::{
    AttachError, CompletionBatch, Cookie, Geometry, MemoryStorage, Operation, QueueFull, Storage,
};
use frwr_nvmf::wire::{
    self, Abort, AnaState, BlockRange, Command, CompletionQueueEntry, ErrorLogEntry, GetLogPage, HealthLog,
    InvalidParameter, Nqn, Property, PropertySet, PropertySize, RejectStatus, RequestPrivateData, SetFeatures, Status,
    feature, log_page,
};
use frwr_support::nvmf_harness::raw::{Opened, Raw, connect, connect_data, keyed};
use frwr_support::nvmf_harness::{memory, subsystem, target_options};
use std::rc::Rc;
use zerocopy::{FromBytes, IntoBytes};

/// What a test sees and decides of all cores' storages.
#[derive(Clone)]
struct Shared {
    medium: DeviceMemory,
    /// Completions come out.
    go: Rc<Cell<bool>>,
    flushes: Rc<Cell<u32>>,
}

impl Shared {
    fn new() -> Self {
        Self { medium: memory(64 << 10), go: Rc::new(Cell::new(true)), flushes: Rc::default() }
    }
}

/// One core's storage over memory that all cores have.
struct Held {
    inner: MemoryStorage,
    shared: Shared,
}

impl Storage for Held {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn attach(&mut self, buffers: DeviceMemory) -> Result<(), AttachError> {
        self.inner.attach(buffers)
    }

    fn submit(&mut self, cookie: Cookie, operation: Operation) -> Result<(), QueueFull> {
        self.shared.flushes.set(self.shared.flushes.get() + u32::from(operation == Operation::Flush));
        self.inner.submit(cookie, operation)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn poll(&mut self, now: Duration, out: &mut CompletionBatch) -> usize {
        if self.shared.go.get() { self.inner.poll(now, out) } else { 0 }
    }
}

type Cores = Raw<Held>;

fn options(cores: u16, io_queues: u16) -> TargetOptions {
    target_options().cores(cores).io_queues(io_queues)
}

fn spread(options: TargetOptions) -> (Cores, Shared) {
    let shared = Shared::new();
    let raw = Raw::spread(options, |_| {
        let inner = MemoryStorage::new(shared.medium.clone(), 512, 64).unwrap();
        let namespaces = vec![Held { inner, shared: shared.clone() }];
        vec![Subsystem::new(subsystem(), namespaces)]
    });
    (raw, shared)
}

fn code(response: &CompletionQueueEntry) -> u16 {
    response.status().code()
}

fn blocks(lba: u64) -> BlockRange {
    BlockRange { namespace: 1, lba, blocks: 1, data: keyed(512) }
}

fn write(raw: &mut Cores, io: ConnectionId, lba: u64, byte: u8) -> CompletionQueueEntry {
    raw.data.fill(0, 512, byte).unwrap();
    raw.command(io, Command::Write(blocks(lba)), Some((Access::RemoteRead, 512)))
}

fn read(raw: &mut Cores, io: ConnectionId, lba: u64) -> u8 {
    let response = raw.command(io, Command::Read(blocks(lba)), Some((Access::RemoteWrite, 512)));
    assert!(response.status().is_success(), "{}", response.status());
    let mut bytes = [0];
    raw.data.read(511, &mut bytes).unwrap();
    bytes[0]
}

/// Queues of each core.
fn queues(raw: &Cores) -> Vec<u64> {
    raw.cores().map(|target| target.statistics().queues).collect()
}

fn set_configuration(raw: &mut Cores, admin: ConnectionId, value: u32) {
    let (property, size) = (Property::Configuration, PropertySize::Four);
    raw.command(admin, Command::PropertySet(PropertySet { property, size, value: value.into() }), None);
}

#[test]
fn the_io_queues_of_one_controller_are_spread_and_serve_the_same_blocks() {
    for (cores, expected) in [(1, vec![5]), (2, vec![3, 2]), (3, vec![2, 2, 1])] {
        let (mut raw, _) = spread(options(cores, 4));
        let (_, controller) = raw.controller();
        let io: Vec<_> = (1..=4).map(|queue_id| raw.another_queue(controller, queue_id)).collect();
        assert_eq!(queues(&raw), expected, "the admin queue is at home");
        for (at, writer) in io.iter().enumerate() {
            assert!(write(&mut raw, *writer, at as u64, at as u8 + 1).status().is_success());
            for reader in &io {
                assert_eq!(read(&mut raw, *reader, at as u64), at as u8 + 1);
            }
        }
        assert!(raw.cores().all(|target| target.statistics().reads > 0 && target.statistics().writes > 0));
        raw.shut_down();
    }
}

#[test]
fn hosts_with_one_io_queue_each_share_the_cores() {
    let (mut raw, _) = spread(options(2, 1).controllers(4));
    for _ in 0..4 {
        raw.io_queue();
    }
    assert_eq!(queues(&raw), [4 + 2, 2]);
    raw.shut_down();
}

#[test]
fn a_connect_on_a_member_is_judged_by_the_home_core() {
    let (mut raw, _) = spread(options(2, 4));
    let admin = raw.open_queue(0, 32);
    let controller = raw.connect(admin, connect(0, 31), &connect_data(0xffff)).result.get() as u16;
    let io = raw.open_queue(1, 32);
    let early = raw.connect(io, connect(1, 31), &connect_data(controller));
    assert_eq!(code(&early), Status::COMMAND_SEQUENCE_ERROR.code(), "before CC.EN");
    raw.enable(admin);
    let unknown = raw.connect(io, connect(1, 31), &connect_data(controller + 1));
    assert_eq!(unknown.result.get(), InvalidParameter::CONTROLLER_ID.to_result());
    let mut stranger = connect_data(controller);
    stranger.host = Nqn::new("nqn.stranger").ok();
    assert_eq!(code(&raw.connect(io, connect(1, 31), &stranger)), Status::CONNECT_INVALID_HOST.code());
    let mut twin = connect_data(controller);
    twin.host_id = [2; 16];
    assert_eq!(code(&raw.connect(io, connect(1, 31), &twin)), Status::CONNECT_INVALID_HOST.code());
    let mut discovery = connect_data(controller);
    discovery.subsystem = Nqn::new(wire::DISCOVERY_SUBSYSTEM).unwrap();
    let response = raw.connect(io, connect(1, 31), &discovery);
    assert_eq!(response.result.get(), InvalidParameter::QUEUE_ID.to_result());
    assert!(raw.connect(io, connect(1, 31), &connect_data(controller)).status().is_success());
    assert_eq!(queues(&raw), [1, 1], "all of that was on the member");
    let again = raw.connect(io, connect(1, 31), &connect_data(controller));
    assert_eq!(code(&again), Status::COMMAND_SEQUENCE_ERROR.code());
    // The identifier is taken, whichever core is asked.
    let core = |raw: &Cores| raw.cores().map(|target| target.statistics().accepted).collect::<Vec<_>>();
    let mut before = core(&raw);
    let mut asked = [false; 2];
    for _ in 0..3 {
        let twin = raw.open_queue(1, 32);
        let taken = raw.connect(twin, connect(1, 31), &connect_data(controller));
        assert_eq!(code(&taken), Status::COMMAND_SEQUENCE_ERROR.code());
        let now = core(&raw);
        asked[usize::from(now[1] > before[1])] = true;
        before = now;
    }
    assert_eq!(asked, [true; 2]);
    raw.shut_down();
}

/// Each core ends the queues that it has, behind a second in which it answers what comes.
#[test]
fn queues_of_other_cores_outlive_the_news_of_an_end() {
    let (mut raw, _) = spread(options(2, 4));
    let (_, controller) = raw.controller();
    let io = raw.another_queue(controller, 1);
    raw.until("placed", |raw| queues(raw) == [1, 1]);
    let begun = raw.now;
    raw.members[0].end(begun);
    raw.pass(Duration::from_millis(900));
    assert!(raw.now < begun + Duration::from_secs(1) && queues(&raw) == [1, 1]);
    raw.pass(Duration::from_millis(200));
    raw.until("ended", |raw| raw.disconnected.contains(&io));
    raw.shut_down();
}

#[test]
fn members_take_no_admin_queue() {
    let (mut raw, _) = spread(options(2, 4));
    raw.target.stop_listening();
    raw.steps(10);
    let admin = raw.open(RequestPrivateData::new(0, 32).as_bytes());
    assert_eq!(admin, Opened::Rejected(RejectStatus::NoResources as u16));
    raw.shut_down();
}

#[test]
fn a_queue_identifier_is_free_once_its_queue_is_gone() {
    let (mut raw, _) = spread(options(2, 4));
    let (_, controller) = raw.controller();
    let io = raw.another_queue(controller, 1);
    raw.engine.disconnect(io);
    raw.until("gone", |raw| queues(raw) == [1, 0]);
    let io = raw.another_queue(controller, 1);
    assert!(write(&mut raw, io, 0, 1).status().is_success());
    raw.shut_down();
}

#[test]
fn the_end_of_a_controller_ends_its_queues_on_all_cores() {
    let ends: [fn(&mut Cores, ConnectionId); 3] = [
        |raw, admin| raw.engine.disconnect(admin),
        |raw, admin| {
            set_configuration(raw, admin, 0x0046_0000);
            raw.steps(50);
            assert_eq!(raw.disconnected.len(), 3, "the admin queue stays");
            raw.engine.disconnect(admin);
        },
        |raw, admin| {
            raw.command(admin, Command::SetFeatures(keep_alive(1000)), None);
            raw.pass(Duration::from_secs(2));
        },
    ];
    for end in ends {
        let (mut raw, _) = spread(options(3, 3));
        let (admin, controller) = raw.controller();
        for queue_id in 1..=3 {
            raw.another_queue(controller, queue_id);
        }
        assert_eq!(queues(&raw), [2, 1, 1]);
        end(&mut raw, admin);
        raw.until("ended", |raw| raw.disconnected.len() == 4);
        raw.until("gone", |raw| queues(raw) == [0, 0, 0]);
        // And everything can begin again.
        let (_, io) = raw.io_queue();
        assert!(write(&mut raw, io, 0, 1).status().is_success());
        raw.shut_down();
    }
}

fn keep_alive(value: u32) -> SetFeatures {
    SetFeatures { feature: feature::KEEP_ALIVE_TIMER, save: false, namespace: 0, value }
}

#[test]
fn commands_on_a_member_keep_the_controller_alive() {
    let (mut raw, _) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    raw.command(admin, Command::SetFeatures(keep_alive(1000)), None);
    for _ in 0..10 {
        raw.pass(Duration::from_millis(500));
        read(&mut raw, io, 0);
        raw.steps(10);
    }
    assert_eq!((raw.target.statistics().keep_alive_expirations, raw.disconnected.len()), (0, 0));
    raw.pass(Duration::from_secs(3));
    raw.until("expired", |raw| raw.disconnected.len() == 2);
    raw.shut_down();
}

/// A host takes it that a controller whose Keep Alive Timeout is over executes nothing any more, and may go on elsewhere.
#[test]
fn a_controller_that_expired_takes_no_command_while_its_admin_queue_still_ends() {
    for cores in [1, 2] {
        let (mut raw, _) = spread(options(cores, 2));
        let (admin, io) = raw.io_queue();
        raw.command(admin, Command::SetFeatures(keep_alive(1000)), None);
        let writes = |raw: &Cores| raw.cores().map(|target| target.statistics().writes).sum::<u64>();
        assert!(write(&mut raw, io, 0, 1).status().is_success());
        // What is left of a connection's end waits for Control.
        raw.controlled = false;
        raw.pass(Duration::from_secs(3));
        raw.until("expired", |raw| raw.target.statistics().keep_alive_expirations == 1);
        raw.steps(10);
        raw.send(io, Command::Write(blocks(0)).encode(9).unwrap(), Some((Access::RemoteRead, 512)));
        raw.steps(200);
        assert_eq!(writes(&raw), 1);
        raw.controlled = true;
        raw.until("ended", |raw| raw.disconnected.len() == 2);
        raw.shut_down();
    }
}

#[test]
fn a_reset_controller_gets_new_queues_while_the_old_ones_end() {
    let (mut raw, _) = spread(options(2, 2));
    let (admin, controller) = raw.controller();
    let old = raw.another_queue(controller, 1);
    set_configuration(&mut raw, admin, 0x0046_0000);
    set_configuration(&mut raw, admin, 0x0046_0001);
    let new: Vec<_> = (1..=2).map(|queue_id| raw.another_queue(controller, queue_id)).collect();
    raw.until("disconnected", |raw| raw.disconnected == [old]);
    raw.steps(50);
    for io in new {
        assert!(write(&mut raw, io, 0, 1).status().is_success());
    }
    assert_eq!(queues(&raw).iter().sum::<u64>(), 3);
    raw.shut_down();
}

/// Sends the Connect of another admin queue.
fn begin_session(raw: &mut Cores) -> ConnectionId {
    let admin = raw.open_queue(0, 32);
    raw.begin_session(admin);
    admin
}

#[test]
fn a_session_waits_for_the_last_one_as_long_as_its_host_does() {
    let (mut raw, shared) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    shared.go.set(false);
    raw.send(io, Command::Write(blocks(0)).encode(9).unwrap(), Some((Access::RemoteRead, 512)));
    raw.steps(100);
    raw.engine.disconnect(admin);
    raw.until("orphaned", |raw| raw.members[0].statistics().orphans == 1 && raw.disconnected.len() == 2);
    let next = begin_session(&mut raw);
    raw.steps(10);
    for _ in 0..3 {
        raw.pass(Duration::from_secs(6));
        raw.steps(100);
        let said = raw.target.next_incident().map(|incident| incident.to_string());
        assert!(said.is_some_and(|said| said.contains("held back for another 5s")));
    }
    assert_eq!((raw.target.statistics().connect_timeouts, raw.target.next_incident()), (0, None));
    assert_eq!((raw.responses.len(), raw.disconnected.len()), (0, 2), "it waits");
    raw.engine.disconnect(next);
    raw.until("given up", |raw| raw.disconnected.last() == Some(&next) && raw.target.is_drained());
    shared.go.set(true);
    raw.until("done", |raw| raw.members[0].statistics().orphans == 0);
    raw.io_queue();
    raw.shut_down();
}

#[test]
fn no_new_session_overtakes_a_write_that_a_member_still_has() {
    let (mut raw, shared) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    assert_eq!(queues(&raw), [1, 1]);
    shared.go.set(false);
    raw.send(io, Command::Write(blocks(0)).encode(9).unwrap(), Some((Access::RemoteRead, 512)));
    raw.steps(100);
    raw.engine.disconnect(admin);
    raw.until("orphaned", |raw| raw.members[0].statistics().orphans == 1 && raw.disconnected.len() == 2);
    begin_session(&mut raw);
    raw.steps(200);
    assert!(raw.responses.is_empty(), "it waits");
    shared.go.set(true);
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert!(raw.responses[0].status().is_success());
    assert_eq!(raw.members[0].statistics().orphans, 0);
    raw.shut_down();
}

/// A connection has ended when its queue pair is destroyed; its host connects again as soon as it likes.
#[test]
fn no_new_session_overtakes_a_write_of_a_connection_that_still_ends_on_a_member() {
    let (mut raw, shared) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    shared.go.set(false);
    raw.send(io, Command::Write(blocks(0)).encode(9).unwrap(), Some((Access::RemoteRead, 512)));
    raw.steps(100);
    let next = raw.open_queue(0, 32);
    raw.begin_end(&[io, admin]);
    raw.begin_session(next);
    raw.steps(200);
    assert!(raw.responses.is_empty(), "it waits");
    raw.controlled = true;
    raw.until("orphaned", |raw| raw.members[0].statistics().orphans == 1 && raw.disconnected.len() == 2);
    assert!(raw.responses.is_empty(), "it waits");
    shared.go.set(true);
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert!(raw.responses[0].status().is_success());
    raw.shut_down();
}

#[test]
fn no_new_session_begins_before_members_have_heard_of_the_end() {
    let (mut raw, _) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    raw.carried = false;
    raw.engine.disconnect(admin);
    raw.until("gone at home", |raw| raw.target.statistics().queues == 0);
    // What the member does not know yet it serves: nobody else has been told otherwise.
    assert!(write(&mut raw, io, 0, 1).status().is_success());
    begin_session(&mut raw);
    raw.steps(200);
    assert!(raw.responses.is_empty(), "it waits");
    raw.carried = true;
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert!(raw.responses[0].status().is_success());
    assert_eq!(raw.disconnected, [admin, io]);
    raw.shut_down();
}

#[test]
fn a_queue_pair_that_a_device_keeps_on_a_member_keeps_no_other_host_away() {
    let (mut raw, shared) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    assert_eq!(queues(&raw), [1, 1]);
    shared.go.set(false);
    raw.send(io, Command::Write(blocks(0)).encode(9).unwrap(), Some((Access::RemoteRead, 512)));
    raw.steps(100);
    raw.faults.fail_command(CommandKind::FailQueuePair, CommandError::BUSY, 1);
    raw.faults.fail_command(CommandKind::DestroyQueuePair, CommandError::BUSY, u32::MAX);
    raw.engine.disconnect(io);
    raw.until("gone", |raw| raw.disconnected == [io]);
    raw.steps(50);
    raw.engine.disconnect(admin);
    raw.until("gone", |raw| raw.disconnected == [io, admin] && queues(raw)[0] == 0);
    begin_session(&mut raw);
    raw.steps(200);
    assert!(raw.responses.is_empty(), "the write is with the storage");
    shared.go.set(true);
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert!(raw.responses[0].status().is_success());
    assert_eq!(raw.members[0].engine().connections().count(), 1, "the device keeps it");
    let (_, io) = raw.io_queue();
    assert!(write(&mut raw, io, 0, 1).status().is_success());
    raw.faults.clear();
    raw.shut_down();
}

#[test]
fn without_a_write_cache_members_flush_behind_writes_before_the_host_relies_on_it() {
    let (mut raw, shared) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    write(&mut raw, io, 0, 1);
    assert_eq!(shared.flushes.get(), 0);
    raw.carried = false;
    let off = SetFeatures { feature: feature::VOLATILE_WRITE_CACHE, save: false, namespace: 0, value: 0 };
    raw.responses.clear();
    raw.send(admin, Command::SetFeatures(off).encode(700).unwrap(), None);
    raw.steps(200);
    assert!(raw.responses.is_empty(), "the member does not know yet");
    raw.carried = true;
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert!(raw.responses[0].status().is_success());
    write(&mut raw, io, 0, 2);
    assert_eq!((shared.flushes.get(), raw.members[0].statistics().writes), (1, 2));
    let on = SetFeatures { value: 1, ..off };
    assert!(raw.command(admin, Command::SetFeatures(on), None).status().is_success());
    write(&mut raw, io, 0, 3);
    assert_eq!(shared.flushes.get(), 1);
    raw.shut_down();
}

#[test]
fn a_host_relies_on_its_write_cache_only_when_all_queues_do_whichever_comes_meanwhile() {
    let (mut raw, shared) = spread(options(2, 3));
    let (admin, controller) = raw.controller();
    let io = raw.another_queue(controller, 1);
    raw.another_queue(controller, 2);
    assert_eq!(queues(&raw), [2, 1]);
    raw.carried = false;
    raw.responses.clear();
    let on = SetFeatures { feature: feature::VOLATILE_WRITE_CACHE, save: false, namespace: 0, value: 1 };
    let off = SetFeatures { value: 0, ..on };
    raw.send(admin, Command::SetFeatures(on).encode(700).unwrap(), None);
    raw.until("set already", |raw| raw.responses.len() == 1);
    raw.send(admin, Command::SetFeatures(off).encode(701).unwrap(), None);
    raw.steps(100);
    let (_, kept) = raw.target.next_message().expect("the member is told");
    raw.send(admin, Command::SetFeatures(on).encode(702).unwrap(), None);
    raw.send(admin, Command::SetFeatures(off).encode(703).unwrap(), None);
    raw.send(admin, Command::SetFeatures(off).encode(704).unwrap(), None);
    raw.steps(100);
    // The member asks for another queue of it before it has the first news.
    let third = raw.open_queue(3, 33);
    raw.data.write(0, &connect_data(controller).to_bytes()).unwrap();
    raw.send(third, Command::Connect(connect(3, 32)).encode(1).unwrap(), Some((Access::RemoteRead, 1024)));
    raw.steps(100);
    while let Some((_, question)) = raw.members[0].next_message() {
        raw.target.deliver(1, question);
    }
    raw.steps(100);
    assert_eq!(raw.responses.len(), 1, "the member still goes by what it knew: {:?}", raw.responses);
    raw.members[0].deliver(0, kept);
    raw.carried = true;
    raw.until("answered", |raw| raw.responses.len() == 6);
    assert!(raw.responses.iter().all(|response| response.status().is_success()));
    for (count, queue) in [(1, io), (2, third)] {
        write(&mut raw, queue, 0, 1);
        assert_eq!((shared.flushes.get(), raw.members[0].statistics().writes), (count, count.into()));
    }
    raw.shut_down();
}

#[test]
fn a_host_that_is_barred_while_its_connect_is_judged_is_told() {
    let (mut raw, _) = spread(options(2, 2));
    let (admin, controller) = raw.controller();
    raw.carried = false;
    let io = raw.open_queue(1, 33);
    raw.data.write(0, &connect_data(controller).to_bytes()).unwrap();
    raw.responses.clear();
    raw.send(io, Command::Connect(connect(1, 32)).encode(900).unwrap(), Some((Access::RemoteRead, 1024)));
    raw.steps(100);
    raw.target.set_allowed_hosts(&subsystem(), AllowedHosts::Listed(Vec::new()), Duration::ZERO).unwrap();
    raw.carried = true;
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert_eq!(code(&raw.responses[0]), Status::CONNECT_INVALID_HOST.code());
    raw.until("its controller has ended", |raw| raw.disconnected.contains(&admin));
    raw.target.set_allowed_hosts(&subsystem(), AllowedHosts::Any, Duration::ZERO).unwrap();
    let (_, controller) = raw.controller();
    let response = raw.connect(io, connect(1, 32), &connect_data(controller));
    assert!(response.status().is_success(), "{}", response.status());
    raw.shut_down();
}

#[test]
fn a_queue_that_comes_later_begins_without_write_cache() {
    let (mut raw, shared) = spread(options(2, 2));
    let (admin, controller) = raw.controller();
    let off = SetFeatures { feature: feature::VOLATILE_WRITE_CACHE, save: false, namespace: 0, value: 0 };
    assert!(raw.command(admin, Command::SetFeatures(off), None).status().is_success());
    for queue_id in 1..=2 {
        let io = raw.another_queue(controller, queue_id);
        write(&mut raw, io, 0, 1);
    }
    assert_eq!((shared.flushes.get(), raw.members[0].statistics().writes), (2, 1));
    raw.shut_down();
}

#[test]
fn a_host_that_leaves_while_members_are_told_leaves_nothing() {
    let (mut raw, _) = spread(options(2, 2));
    let (admin, _) = raw.io_queue();
    raw.carried = false;
    let off = SetFeatures { feature: feature::VOLATILE_WRITE_CACHE, save: false, namespace: 0, value: 0 };
    raw.send(admin, Command::SetFeatures(off).encode(700).unwrap(), None);
    raw.send(admin, Command::Abort(Abort { queue_id: 1, command_id: 9 }).encode(701).unwrap(), None);
    raw.steps(100);
    raw.engine.disconnect(admin);
    raw.until("gone", |raw| raw.target.statistics().queues == 0 && raw.target.statistics().slots_used == 0);
    raw.carried = true;
    raw.until("ended", |raw| raw.disconnected.len() == 2);
    raw.steps(10);
    raw.io_queue();
    raw.shut_down();
}

#[test]
fn commands_of_another_cores_queue_are_aborted_where_they_wait() {
    // So few queues that a queue's commands take all buffers of the member.
    let (mut raw, shared) = spread(options(2, 2).controllers(1));
    let (admin, io) = raw.io_queue();
    assert_eq!(queues(&raw), [1, 1]);
    let missing = raw.command(admin, Command::Abort(Abort { queue_id: 1, command_id: 999 }), None);
    assert_eq!((code(&missing), missing.result.get()), (0, 1), "not aborted");
    shared.go.set(false);
    raw.responses.clear();
    for id in 0..33 {
        raw.send(io, Command::Read(blocks(0)).encode(1000 + id).unwrap(), Some((Access::RemoteWrite, 512)));
    }
    raw.until("waiting", |raw| raw.members[0].statistics().buffer_waits > 0);
    raw.steps(100);
    raw.send(admin, Command::Abort(Abort { queue_id: 1, command_id: 1032 }).encode(2000).unwrap(), None);
    raw.until("answered", |raw| raw.responses.len() == 1);
    assert_eq!((raw.responses[0].command_id.get(), raw.responses[0].result.get()), (2000, 0));
    shared.go.set(true);
    raw.until("all", |raw| raw.responses.len() == 34);
    let aborted = raw.responses.iter().find(|response| response.command_id.get() == 1032).unwrap();
    assert_eq!(code(aborted), Status::COMMAND_ABORT_REQUESTED.code());
    assert_eq!(raw.members[0].statistics().aborted_commands, 1);
    raw.shut_down();
}

#[test]
fn more_aborts_at_a_time_than_the_limit_are_refused() {
    let (mut raw, _) = spread(options(2, 2));
    let (admin, _) = raw.io_queue();
    raw.carried = false;
    raw.responses.clear();
    for id in 0..6 {
        raw.send(admin, Command::Abort(Abort { queue_id: 1, command_id: 9 }).encode(700 + id).unwrap(), None);
    }
    raw.until("refused", |raw| raw.responses.len() == 2);
    assert!(raw.responses.iter().all(|refused| code(refused) == Status::ABORT_COMMAND_LIMIT_EXCEEDED.code()));
    raw.carried = true;
    raw.until("answered", |raw| raw.responses.len() == 6);
    assert!(raw.responses[2..].iter().all(|answer| (code(answer), answer.result.get()) == (0, 1)));
    raw.shut_down();
}

fn log(raw: &mut Cores, admin: ConnectionId, page: u8, length: u64) -> Vec<u8> {
    let (specific, retain_event, offset_is_index) = (0, false, false);
    let data = keyed(length as u32);
    let get = GetLogPage { page, specific, retain_event, length, offset: 0, offset_is_index, namespace: !0, data };
    let response = raw.command(admin, Command::GetLogPage(get), Some((Access::RemoteWrite, length as u32)));
    assert!(response.status().is_success(), "{}", response.status());
    let mut bytes = vec![0; length as usize];
    raw.data.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn log_pages_are_about_all_cores() {
    let (mut raw, _) = spread(options(3, 3));
    let (admin, controller) = raw.controller();
    let io: Vec<_> = (1..=3).map(|queue_id| raw.another_queue(controller, queue_id)).collect();
    for (at, io) in io.iter().enumerate() {
        for _ in 0..=at {
            write(&mut raw, *io, 0, 1);
            read(&mut raw, *io, 0);
        }
        let failed = raw.command(*io, Command::Flush { namespace: 9 }, None);
        assert!(!failed.status().is_success());
    }
    // Members tell what they have counted from time to time.
    raw.now += Duration::from_millis(20);
    raw.steps(10);
    let health = HealthLog::read_from_bytes(&log(&mut raw, admin, log_page::HEALTH, 512)).unwrap();
    assert_eq!((health.read_commands[0].get(), health.write_commands[0].get()), (6, 6));
    assert_eq!(health.error_entries[0].get(), 3);
    let errors = log(&mut raw, admin, log_page::ERRORS, 256);
    let errors = errors.chunks(64).map(|entry| ErrorLogEntry::read_from_bytes(entry).unwrap());
    let found: Vec<_> = errors.map(|entry| (entry.count.get(), entry.queue_id.get(), entry.namespace.get())).collect();
    assert_eq!(found, [(3, 3, 9), (2, 2, 9), (1, 1, 9), (0, 0, 0)]);
    raw.shut_down();
}

#[test]
fn more_failures_than_the_log_has_entries_are_counted_all() {
    let (mut raw, _) = spread(options(2, 2));
    let (admin, io) = raw.io_queue();
    raw.carried = false;
    for _ in 0..20 {
        raw.command(io, Command::Flush { namespace: 9 }, None);
    }
    raw.carried = true;
    raw.steps(10);
    let errors = log(&mut raw, admin, log_page::ERRORS, 1024);
    let counts = errors.chunks(64).map(|entry| ErrorLogEntry::read_from_bytes(entry).unwrap().count.get());
    assert!(counts.eq((5..=20).rev()));
    raw.shut_down();
}

#[test]
fn states_of_subsystems_and_namespaces_reach_members() {
    let (mut raw, _) = spread(options(2, 2));
    let (_, io) = raw.io_queue();
    for (state, status) in
        [(AnaState::Inaccessible, Status::ANA_INACCESSIBLE), (AnaState::NonOptimized, Status::SUCCESS)]
    {
        raw.target.set_ana_state(&subsystem(), None, state).unwrap();
        raw.steps(2);
        assert_eq!(code(&write(&mut raw, io, 0, 1)), status.code());
    }
    for (active, status) in [(false, Status::INVALID_FIELD), (true, Status::SUCCESS)] {
        raw.target.set_namespace_active(&subsystem(), 1, active).unwrap();
        raw.steps(2);
        assert_eq!(code(&write(&mut raw, io, 0, 1)), status.code());
    }
    raw.shut_down();
}

#[test]
fn a_connection_that_ends_while_it_is_judged_gives_its_place_to_the_next() {
    let (mut raw, _) = spread(options(2, 2));
    let (_, controller) = raw.controller();
    for round in 1..=5 {
        raw.carried = false;
        let io = raw.open_queue(1, 33);
        raw.data.write(0, &connect_data(controller).to_bytes()).unwrap();
        let entry = Command::Connect(connect(1, 32)).encode(round).unwrap();
        raw.send(io, entry, Some((Access::RemoteRead, 1024)));
        raw.steps(100);
        raw.engine.disconnect(io);
        raw.until("gone", |raw| raw.disconnected.last() == Some(&io) && raw.members[0].is_drained());
        // Its successor has to wait for the answer that was for it.
        let next = raw.open_queue(1, 33);
        let entry = Command::Connect(connect(1, 32)).encode(100 + round).unwrap();
        raw.responses.clear();
        raw.send(next, entry, Some((Access::RemoteRead, 1024)));
        raw.steps(100);
        assert!(raw.responses.is_empty());
        raw.carried = true;
        raw.until("answered", |raw| raw.responses.len() == 1);
        assert!(raw.responses[0].status().is_success(), "{}", raw.responses[0].status());
        raw.engine.disconnect(next);
        raw.until("ended", |raw| raw.disconnected.last() == Some(&next));
        raw.steps(10);
    }
    raw.shut_down();
}

#[test]
fn hosts_that_come_and_go_at_any_moment_leave_nothing_behind() {
    let (mut raw, _) = spread(options(3, 3).connect_timeout(Duration::from_micros(300)));
    let mut random = 12345_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for round in 0..60_u16 {
        let Opened::Yes(admin) = raw.open(RequestPrivateData::new(0, 32).as_bytes()) else {
            raw.steps(20);
            continue;
        };
        let response = raw.connect(admin, connect(0, 31), &connect_data(0xffff));
        if !response.status().is_success() {
            raw.engine.disconnect(admin);
            raw.steps(50);
            continue;
        }
        raw.enable(admin);
        raw.carried = draw(4) > 0;
        let controller = response.result.get() as u16;
        let mut io = Vec::new();
        for queue_id in 1..=3 {
            let Opened::Yes(queue) = raw.open(RequestPrivateData::new(queue_id, 33).as_bytes()) else { continue };
            raw.data.write(0, &connect_data(controller).to_bytes()).unwrap();
            let entry = Command::Connect(connect(queue_id, 32)).encode(1000 + round * 4 + queue_id).unwrap();
            raw.send(queue, entry, Some((Access::RemoteRead, 1024)));
            raw.steps(draw(30) as usize);
            io.push(queue);
        }
        io.push(admin);
        for _ in 0..=draw(4) {
            if !io.is_empty() {
                let at = draw(io.len() as u64) as usize;
                raw.engine.disconnect(io.swap_remove(at));
                raw.steps(draw(10) as usize);
            }
        }
        raw.carried = true;
        io.iter().for_each(|connection| raw.engine.disconnect(*connection));
        raw.steps(draw(60) as usize);
    }
    raw.until("quiet", |raw| raw.cores().all(|target| target.is_drained()));
    raw.steps(20);
    let (_, io) = raw.io_queue();
    assert!(write(&mut raw, io, 0, 1).status().is_success());
    raw.shut_down();
}
