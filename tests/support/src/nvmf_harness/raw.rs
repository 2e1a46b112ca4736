//! A host that sends whatever a test wants to a target.

use super::{engine, engine_of, memory, target_options};
use core::time::Duration;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::Access;
use frwr_engine::provider::fault::{FaultHandle, Faulty, FaultyPort};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, MemoryAccess,
    Message, Protocol, RequestHandle, RequestStatus, Submission, WatchedClock,
};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::controller::{ChangeEvent, Subsystem, Target, TargetListening, TargetOptions, place_queues};
use frwr_nvmf::storage::{MemoryStorage, Storage};
use frwr_nvmf::wire::{
    self, Command, CompletionQueueEntry, Connect, ConnectData, DataPointer, KeyedDataBlock, Nqn, QueueKind,
    RejectPrivateData, RequestPrivateData, SubmissionQueueEntry,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;
use zerocopy::IntoBytes;

/// Iterations in which whatever needs no other thread has come.
const STEPS: u32 = 20_000;
/// And how long what other threads do is waited for at least.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes keys where the standard wants them, and finds requests by connection and command identifier.
#[derive(Default)]
struct Names(HashMap<(u16, u16), RequestHandle>);

impl Protocol for Names {
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let [grant] = announced.grants() else { return Ok(()) };
        let pointer: [u8; 16] = message[24..40].try_into().unwrap();
        if wire::last_segment(pointer).is_some() {
            // Every block of the list is a part of the same key's bytes.
            let mut address = grant.address;
            for descriptor in message[64..].as_chunks_mut::<16>().0 {
                let Ok(DataPointer::Keyed(block)) = DataPointer::decode(*descriptor) else { continue };
                let granted = KeyedDataBlock { address, key: grant.key, ..block };
                *descriptor = DataPointer::Keyed(granted).encode().unwrap();
                address += u64::from(block.length);
            }
        }
        let Ok(DataPointer::Keyed(block)) = DataPointer::decode(pointer) else { return Ok(()) };
        let block = KeyedDataBlock { address: grant.address, key: grant.key, ..block };
        message[24..40].copy_from_slice(&DataPointer::Keyed(block).encode().unwrap());
        Ok(())
    }

    fn classify(&mut self, connection: ConnectionId, prefix: &[u8], _: u32) -> Message {
        let Ok(response) = wire::parse_response(prefix) else { return Message::Malformed };
        match self.0.get(&(connection.index, response.command_id.get())) {
            Some(request) => Message::Reply(*request),
            None => Message::Malformed,
        }
    }
}

/// How a connection attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    Yes(ConnectionId),
    /// By a status, or [`UNSAID`].
    Rejected(u16),
}

/// No status of the standard's: the target ended the attempt without one.
pub const UNSAID: u16 = 0;

/// One core of the target.
type Core<S> = Target<FaultyPort<SoftPort>, S>;

pub struct Raw<S: Storage> {
    /// The home core's.
    pub target: Core<S>,
    /// Those of the other cores, from core 1.
    pub members: Vec<Core<S>>,
    /// What the targets' device does wrong.
    pub faults: FaultHandle,
    /// Messages between cores are carried.
    pub carried: bool,
    /// The targets' Control is polled.
    pub controlled: bool,
    target_control: Control<Faulty<SoftDevice>>,
    control: Control<SoftDevice>,
    pub engine: Engine<SoftPort>,
    names: Names,
    pub data: DeviceMemory,
    data_id: MemoryId,
    /// Where in it that of commands begins.
    pub data_at: u64,
    pub now: Duration,
    next_id: u16,
    opened: Option<Opened>,
    pub responses: Vec<CompletionQueueEntry>,
    pub disconnected: Vec<ConnectionId>,
    /// Where connections go to.
    pub address: SocketAddr,
    /// Requests invite the target to invalidate their key.
    pub invite: bool,
    fabric: SoftFabric,
    /// Hosts that were there before this one; those that live have devices that answer, and nothing more.
    former: Vec<FormerHost>,
}

struct FormerHost {
    control: Control<SoftDevice>,
    engine: Engine<SoftPort>,
    names: Names,
    lives: bool,
}

fn host_engine() -> EngineOptions {
    EngineOptions::default().connections(64).queue_depth(64).message_bytes(2048)
}

impl Default for Raw<MemoryStorage> {
    fn default() -> Self {
        let namespaces = (0..3).map(|_| MemoryStorage::new(memory(64 << 10), 512, 64).unwrap()).collect();
        Self::with(target_options(), namespaces)
    }
}

impl<S: Storage> Raw<S> {
    pub fn with(options: TargetOptions, namespaces: Vec<S>) -> Self {
        let subsystem = Subsystem::new(options.subsystem, namespaces);
        Self::with_subsystems(options, vec![subsystem])
    }

    pub fn with_subsystems(options: TargetOptions, subsystems: Vec<Subsystem<S>>) -> Self {
        let mut subsystems = Some(subsystems);
        Self::spread(options, |_| subsystems.take().unwrap())
    }

    /// A target of as many cores as the options say; `subsystems` makes those of a core.
    pub fn spread(options: TargetOptions, subsystems: impl FnMut(u16) -> Vec<Subsystem<S>>) -> Self {
        Self::over(options, TargetOptions::engine, subsystems)
    }

    /// The same over engines that were made otherwise.
    pub fn over(
        options: TargetOptions,
        engine_options: impl Fn(&TargetOptions) -> EngineOptions,
        mut subsystems: impl FnMut(u16) -> Vec<Subsystem<S>>,
    ) -> Self {
        let fabric = SoftFabric::new();
        let soft = || SoftOptions::new("reg_mr".parse().unwrap());
        let (control, mut engine_of_host) = engine(fabric.device(soft()), host_engine());
        let (device, faults) = Faulty::new(fabric.device(soft()));
        let mut target_control = Control::new(device);
        target_control.place_connections(place_queues(0));
        let data = memory(1 << 20);
        let data_id = engine_of_host.add_memory(data.clone(), MemoryAccess::ReadWrite).unwrap();
        let mut targets = (0..options.cores).map(|core| {
            let options = options.on_core(core);
            let engine = engine_of(&mut target_control, engine_options(&options));
            let buffers = memory(options.buffer_memory_bytes(8));
            let mut target = Target::with_subsystems(engine, subsystems(core), buffers, options).unwrap();
            target.listen().unwrap();
            target
        });
        let (target, members) = (targets.next().unwrap(), targets.collect());
        let mut raw = Self {
            target,
            members,
            faults,
            carried: true,
            controlled: true,
            target_control,
            control,
            engine: engine_of_host,
            names: Names::default(),
            data,
            data_id,
            data_at: 0,
            now: Duration::ZERO,
            next_id: 0,
            opened: None,
            responses: Vec::new(),
            disconnected: Vec::new(),
            address: target_options().addresses[0],
            invite: false,
            fabric,
            former: Vec::new(),
        };
        raw.until("listening", |raw| {
            raw.cores().all(|target| target.statistics().listening == TargetListening::Listens)
        });
        raw
    }

    /// Another host takes the place of this one, at an address, or at one that the target does not know. The former one says nothing
    /// any more: its device still answers where it lives, and is gone without a word where it does not.
    pub fn another_host(&mut self, address: Option<&str>, former_lives: bool) {
        let address = address.map(|address| address.parse().unwrap());
        let soft = SoftOptions::new("reg_mr".parse().unwrap()).address(address);
        let (control, mut engine) = engine(self.fabric.device(soft), host_engine());
        self.data_id = engine.add_memory(self.data.clone(), MemoryAccess::ReadWrite).unwrap();
        let former = FormerHost {
            control: core::mem::replace(&mut self.control, control),
            engine: core::mem::replace(&mut self.engine, engine),
            names: core::mem::take(&mut self.names),
            lives: former_lives,
        };
        self.former.push(former);
        self.disconnected.clear();
    }

    /// Connections of former hosts that live and are still there.
    pub fn former_connections(&self) -> usize {
        let living = self.former.iter().filter(|former| former.lives);
        living.map(|former| former.engine.connections().count()).sum()
    }

    /// The targets of all cores, the home core's first.
    pub fn cores(&self) -> impl Iterator<Item = &Core<S>> {
        core::iter::once(&self.target).chain(&self.members)
    }

    fn core(&mut self, core: usize) -> &mut Core<S> {
        match core.checked_sub(1) {
            None => &mut self.target,
            Some(member) => &mut self.members[member],
        }
    }

    fn step_targets(&mut self) {
        let now = self.now;
        for from in 0..=self.members.len() {
            self.core(from).poll(now);
            while self.carried
                && let Some((to, message)) = self.core(from).next_message()
            {
                self.core(to.into()).deliver(from as u16, message);
            }
        }
        for core in 0..=self.members.len() {
            self.core(core).flush();
        }
    }

    pub fn step(&mut self) {
        self.step_without_target();
        self.step_targets();
        self.step_control();
    }

    /// A step whose poll is at this very time.
    pub fn step_at(&mut self, at: Duration) {
        self.now = at.checked_sub(Duration::from_micros(1)).filter(|before| *before >= self.now).unwrap();
        self.step();
    }

    /// The hosts and all Controls are polled, and no target is.
    pub fn step_without_target(&mut self) {
        self.now += Duration::from_micros(1);
        self.control.poll();
        self.engine.poll(self.now, &mut self.names);
        while let Some(event) = self.engine.next_event() {
            match event {
                Event::Connected { connection, .. } => self.opened = Some(Opened::Yes(connection)),
                Event::OpenFailed { private_data, .. } => {
                    self.opened = Some(Opened::Rejected(RejectPrivateData::parse(&private_data).unwrap_or(UNSAID)));
                }
                Event::Disconnected { connection, .. } => self.disconnected.push(connection),
                Event::Completed { status: RequestStatus::Replied(received), .. } => {
                    let mut bytes = [0; 16];
                    assert_eq!(self.engine.message(&received, 0, &mut bytes), 16);
                    self.engine.release(received);
                    self.responses.push(wire::parse_response(&bytes).unwrap());
                }
                _ => {}
            }
        }
        self.engine.flush();
        self.control.poll();
        for FormerHost { control, engine, names, .. } in self.former.iter_mut().filter(|former| former.lives) {
            control.poll();
            engine.poll(self.now, names);
            while engine.next_event().is_some() {}
            engine.flush();
        }
        self.step_control();
    }

    fn step_control(&mut self) {
        if self.controlled {
            self.target_control.poll();
        }
    }

    /// Ends connections, and steps until all targets know: what is left of their end waits for Control.
    pub fn begin_end(&mut self, connections: &[ConnectionId]) {
        connections.iter().for_each(|connection| self.engine.disconnect(*connection));
        let ending = |target: &Core<S>| {
            target.engine().connections().filter(|connection| !target.engine().is_ready(*connection)).count()
        };
        self.until("ending", |raw| raw.cores().map(ending).sum::<usize>() == connections.len());
        self.controlled = false;
    }

    /// Sends the Connect of an admin queue, and awaits nothing.
    pub fn begin_session(&mut self, admin: ConnectionId) {
        self.begin_session_of(admin, &connect_data(wire::DYNAMIC_CONTROLLER));
    }

    /// The same of any host and subsystem.
    pub fn begin_session_of(&mut self, admin: ConnectionId, data: &ConnectData) {
        self.responses.clear();
        self.data.write(0, &data.to_bytes()).unwrap();
        let entry = Command::Connect(connect(0, 31)).encode(600).unwrap();
        self.send(admin, entry, Some((Access::RemoteRead, 1024)));
    }

    pub fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// Lets so much time pass in which everybody polls: time in which nobody does is nobody's.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += WatchedClock::STANDSTILL / 2;
            self.step();
        }
    }

    /// Ends the targets of all cores, and proves that nothing of hosts is left on any.
    pub fn shut_down(&mut self) {
        self.target.shut_down();
        self.members.iter_mut().for_each(Target::shut_down);
        self.until("drained", |raw| raw.cores().all(|target| target.is_drained()));
        for target in self.cores() {
            let statistics = target.statistics();
            assert_eq!((statistics.queues, statistics.slots_used, statistics.orphans), (0, 0, 0));
            assert_eq!(statistics.buffers_free, statistics.buffers);
        }
    }

    /// Steps until a core says what is wanted of a change; what else they say is kept in `said`, which is looked at first.
    pub fn until_said(
        &mut self,
        said: &mut Vec<ChangeEvent<S>>,
        what: &str,
        is_it: impl Fn(&ChangeEvent<S>) -> bool,
    ) -> ChangeEvent<S> {
        let (mut steps, began) = (0, Instant::now());
        while steps < STEPS || began.elapsed() < PATIENCE {
            steps += 1;
            for core in self.members.iter_mut().chain([&mut self.target]) {
                said.extend(core::iter::from_fn(|| core.next_change()));
            }
            if let Some(at) = said.iter().position(&is_it) {
                return said.remove(at);
            }
            self.step();
        }
        panic!("never {what}: {said:?}");
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let (mut steps, began) = (0, Instant::now());
        // Threads that do a storage's work take what a busy machine leaves them, however often it is asked meanwhile.
        while steps < STEPS || began.elapsed() < PATIENCE {
            if done(self) {
                return;
            }
            self.step();
            steps += 1;
        }
        let (ours, theirs) = (self.engine.statistics(), self.target.engine().statistics());
        panic!("never {what}: {:?} {:?}; {ours:?}; {theirs:?}", self.responses, self.target.statistics());
    }

    pub fn open(&mut self, private_data: &[u8]) -> Opened {
        self.begin_open(private_data);
        self.until("opened", |raw| raw.opened.is_some());
        self.opened.unwrap()
    }

    /// How the last attempt ended, if it has.
    pub fn opened(&self) -> Option<Opened> {
        self.opened
    }

    /// Sends a connect request, and awaits nothing.
    pub fn begin_open(&mut self, private_data: &[u8]) {
        self.opened = None;
        // A controller sends nothing but replies, and some of those never.
        let options = ConnectionOptions::default().peer_receives(1000).granted_receives(Some(0));
        self.engine.connect(self.address, private_data, &options).unwrap();
    }

    /// The same, while the device keeps an answer back with which another connection ends: the target is told of both in one poll,
    /// of the request first.
    pub fn begin_open_at_the_end_of_another(&mut self, private_data: &[u8]) {
        self.begin_open(private_data);
        for _ in 0..50 {
            self.step_without_target();
        }
        self.faults.release_answers();
        for _ in 0..50 {
            self.step_without_target();
        }
        self.until("opened", |raw| raw.opened().is_some());
    }

    pub fn open_queue(&mut self, queue_id: u16, entries: u16) -> ConnectionId {
        match self.open(RequestPrivateData::new(queue_id, entries).as_bytes()) {
            Opened::Yes(connection) => connection,
            Opened::Rejected(status) => panic!("rejected: {status}"),
        }
    }

    /// Sends an entry, with the first `length` bytes of the data (behind `data_at`) opened to the target where there are any.
    pub fn send(&mut self, connection: ConnectionId, entry: SubmissionQueueEntry, data: Option<(Access, u32)>) {
        self.send_bytes(connection, entry.as_bytes(), entry.command_id.get(), data);
    }

    pub fn send_bytes(&mut self, connection: ConnectionId, bytes: &[u8], id: u16, data: Option<(Access, u32)>) {
        let offset = self.data_at;
        let segments = data.map(|(_, length)| [Segment { memory: self.data_id, offset, length }]);
        let chunk = data.zip(segments.as_ref()).map(|((access, _), segments)| Chunk { access, segments });
        let submission = Submission {
            message: bytes,
            inline: &[],
            chunks: chunk.as_slice(),
            invite_invalidation: self.invite,
            iova_cookie: 0,
            cookie: 0,
        };
        let handle = self.engine.submit(connection, &submission, &mut self.names).unwrap();
        self.names.0.insert((connection.index, id), handle);
    }

    /// Sends an entry under a new command identifier, and waits for its response. Responses that came before are forgotten.
    pub fn exchange(
        &mut self,
        connection: ConnectionId,
        mut entry: SubmissionQueueEntry,
        data: Option<(Access, u32)>,
    ) -> CompletionQueueEntry {
        self.next_id += 1;
        entry.command_id = self.next_id.into();
        self.responses.clear();
        self.send(connection, entry, data);
        // What else is answered meanwhile, as event requests are, is kept.
        let at = |raw: &Self| raw.responses.iter().position(|response| response.command_id.get() == raw.next_id);
        self.until("answered", |raw| at(raw).is_some());
        let found = at(self).unwrap();
        self.responses.remove(found)
    }

    pub fn command(
        &mut self,
        connection: ConnectionId,
        command: Command,
        data: Option<(Access, u32)>,
    ) -> CompletionQueueEntry {
        let entry = command.encode(0).unwrap();
        // What a host here can say, a target understands.
        assert!([QueueKind::Admin, QueueKind::Io].iter().any(|queue| wire::decode(&entry, *queue).is_ok()));
        self.exchange(connection, entry, data)
    }

    pub fn connect(&mut self, connection: ConnectionId, connect: Connect, data: &ConnectData) -> CompletionQueueEntry {
        self.data.write(0, &data.to_bytes()).unwrap();
        self.command(connection, Command::Connect(connect), Some((Access::RemoteRead, 1024)))
    }

    /// What the target has told since this was asked last.
    pub fn told(&mut self) -> Vec<String> {
        let home = core::iter::from_fn(|| self.target.next_incident()).collect::<Vec<_>>();
        let members = self.members.iter_mut().flat_map(|member| core::iter::from_fn(|| member.next_incident()));
        home.into_iter().chain(members).map(|incident| incident.to_string()).collect()
    }

    /// An enabled controller: its admin connection and its identifier.
    pub fn controller(&mut self) -> (ConnectionId, u16) {
        self.controller_of(&connect_data(wire::DYNAMIC_CONTROLLER))
    }

    /// The same of any host and subsystem.
    pub fn controller_of(&mut self, data: &ConnectData) -> (ConnectionId, u16) {
        let admin = self.open_queue(0, 32);
        let response = self.connect(admin, connect(0, 31), data);
        assert!(response.status().is_success(), "{}", response.status());
        self.enable(admin);
        (admin, response.result.get() as u16)
    }

    /// Sets CC.EN.
    pub fn enable(&mut self, admin: ConnectionId) {
        let set = wire::PropertySet {
            property: wire::Property::Configuration,
            size: wire::PropertySize::Four,
            value: wire::ControllerConfiguration::ENABLED.0.into(),
        };
        assert!(self.command(admin, Command::PropertySet(set), None).status().is_success());
    }

    /// An enabled controller with one I/O queue.
    pub fn io_queue(&mut self) -> (ConnectionId, ConnectionId) {
        let (admin, controller) = self.controller();
        (admin, self.another_queue(controller, 1))
    }

    /// An I/O queue of a controller.
    pub fn another_queue(&mut self, controller: u16, queue_id: u16) -> ConnectionId {
        self.another_queue_of(&connect_data(controller), queue_id)
    }

    /// The same of any host and subsystem.
    pub fn another_queue_of(&mut self, data: &ConnectData, queue_id: u16) -> ConnectionId {
        let io = self.open_queue(queue_id, 33);
        let response = self.connect(io, connect(queue_id, 32), data);
        assert!(response.status().is_success(), "{}", response.status());
        io
    }
}

pub fn keyed(length: u32) -> DataPointer {
    DataPointer::Keyed(KeyedDataBlock { address: 0, length, key: 0, invalidate: false })
}

pub fn connect(queue_id: u16, queue_size: u16) -> Connect {
    Connect { record_format: 0, queue_id, queue_size, attributes: 0, keep_alive_timeout: 0, data: keyed(1024) }
}

pub fn connect_data(controller_id: u16) -> ConnectData {
    ConnectData { host_id: [1; 16], controller_id, subsystem: super::subsystem(), host: Nqn::new("nqn.host").ok() }
}
