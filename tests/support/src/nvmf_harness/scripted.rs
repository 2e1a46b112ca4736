//! A controller that does what a test says. By itself it is a correct one with one I/O queue, whose medium keeps nothing.

use super::{BLOCK, LoneHost, device, engine, memory, subsystem, target_options};
use core::time::Duration;
use frwr_engine::control::Control;
use frwr_engine::gather::{MemoryId, Segment};
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort};
use frwr_engine::provider::{Device, RemoteRange};
use frwr_engine::{
    AnnounceError, Announcement, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, Listening,
    MemoryAccess, Message, Protocol, RemoteSegment, ResponseRequest,
};
use frwr_mempool::DeviceMemory;
use frwr_nvmf::host::{HostCompletion, HostOptions};
use frwr_nvmf::wire::{
    self, AcceptPrivateData, Command, CompletionQueueEntry, ControllerCapabilities, ControllerConfiguration,
    ControllerStatus, DataPointer, IdentifyController, IdentifyNamespace, IdentifyNvmController, Property, QueueKind,
    RequestPrivateData, ShutdownStatus, Status, SubmissionQueueEntry, cns,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use zerocopy::{FromZeros, IntoBytes};

/// Identify structures and log pages that may be on their way at the same time.
const PAGES: usize = 64;
const PAGE: usize = wire::IDENTIFY_BYTES;
/// I/O queues of a session that a rule may grant.
const MAX_QUEUES: u16 = 8;
/// Receives of a queue.
const ENTRIES: u16 = 128;

/// What becomes of a command.
pub enum Answer {
    /// It stays without an answer.
    Silence,
    /// Status and result.
    Status(Status, u64),
    /// Success, with these bytes written to the host before.
    Data(Vec<u8>),
    /// These bytes in place of a response capsule.
    Capsule(Vec<u8>),
}

/// A command that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub connection: ConnectionId,
    pub queue_id: u16,
    pub entry: SubmissionQueueEntry,
    pub command: Command,
    /// Admin queues so far.
    pub session: u32,
}

/// What the test says to a command; `None` for what a correct controller does.
pub type Rule = Box<dyn FnMut(&Asked) -> Option<Answer>>;

/// What of a page a Get Log Page asks for.
pub fn part(page: &[u8], asked: &Asked) -> Option<Answer> {
    let Command::GetLogPage(get) = asked.command else { return None };
    let rest = &page[(get.offset as usize).min(page.len())..];
    Some(Answer::Data(rest[..rest.len().min(get.length as usize)].to_vec()))
}

struct Everything;

impl Protocol for Everything {
    fn announce(&mut self, _: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
        Err(AnnounceError)
    }

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        Message::Command
    }
}

pub struct Controller {
    control: Control<SoftDevice>,
    engine: Engine<SoftPort>,
    pages: DeviceMemory,
    pages_id: MemoryId,
    next_page: usize,
    /// Queue identifiers by connection.
    queues: HashMap<ConnectionId, u16>,
    pub capabilities: ControllerCapabilities,
    pub identify: IdentifyController,
    pub namespace: IdentifyNamespace,
    pub limits: IdentifyNvmController,
    /// Private data of each accept.
    pub accepts_with: Vec<u8>,
    /// Private data of each rejection, where connect requests are rejected.
    pub rejects_with: Option<Vec<u8>>,
    /// All commands, in order.
    pub asked: Vec<Asked>,
    pub rule: Rule,
    sessions: u32,
    listening: bool,
    shut_down: bool,
}

impl Controller {
    pub fn new(fabric: &SoftFabric, profile: &str) -> Self {
        Self::at(fabric, profile, target_options().addresses[0])
    }

    pub fn at(fabric: &SoftFabric, profile: &str, address: SocketAddr) -> Self {
        let mut options = target_options().engine();
        options.receive_depth = ENTRIES.into();
        options.transfer_depth = ENTRIES.into();
        options.message_bytes = 8192;
        // Of two sessions, as the first one's end may be heard of late.
        options.connections = 2 * (1 + MAX_QUEUES);
        let (control, mut engine) = engine(fabric.device(SoftOptions::new(profile.parse().unwrap())), options);
        let pages = memory(PAGES * PAGE);
        let pages_id = engine.add_memory(pages.clone(), MemoryAccess::ReadWrite).unwrap();
        engine.listen(address).unwrap();
        let mut identify = IdentifyController::new_zeroed();
        identify.controller_id = 1.into();
        let support =
            IdentifyController::SGL_SUPPORTED | IdentifyController::SGL_KEYED | IdentifyController::SGL_OFFSET;
        identify.sgl_support = support.into();
        (identify.io_command_capsule, identify.io_response_capsule) = (12.into(), 1.into());
        identify.max_data_blocks = 8;
        identify.subsystem = subsystem().to_field();
        let mut namespace = IdentifyNamespace::new_zeroed();
        namespace.size = 256.into();
        namespace.lba_formats[0].block_shift = BLOCK.trailing_zeros() as u8;
        let mut controller = Self {
            control,
            engine,
            pages,
            pages_id,
            next_page: 0,
            queues: HashMap::new(),
            capabilities: ControllerCapabilities::new(ENTRIES, 1),
            identify,
            namespace,
            limits: IdentifyNvmController::new_zeroed(),
            accepts_with: AcceptPrivateData::new(ENTRIES).as_bytes().to_vec(),
            rejects_with: None,
            asked: Vec::new(),
            rule: Box::new(|_| None),
            sessions: 0,
            listening: false,
            shut_down: false,
        };
        while !controller.listening {
            controller.step(Duration::ZERO);
        }
        controller
    }

    pub fn step(&mut self, now: Duration) {
        self.control.poll();
        self.engine.poll(now, &mut Everything);
        while let Some(event) = self.engine.next_event() {
            match event {
                Event::Incoming { incoming, .. } if self.rejects_with.is_some() => {
                    let private_data = self.rejects_with.as_deref().unwrap_or_default();
                    self.engine.reject(incoming, private_data).unwrap();
                }
                Event::Incoming { incoming, private_data, .. } => {
                    let asked = RequestPrivateData::parse(&private_data, u16::MAX, ENTRIES).unwrap();
                    let options = ConnectionOptions::default().peer_receives(asked.receives.into());
                    let connection = self.engine.accept(incoming, &self.accepts_with, &options).unwrap();
                    self.queues.insert(connection, asked.queue_id);
                    self.sessions += u32::from(asked.queue_id == wire::ADMIN_QUEUE);
                }
                Event::Received { connection, received } => {
                    let mut bytes = [0; wire::COMMAND_CAPSULE_BYTES];
                    let copied = self.engine.message(&received, 0, &mut bytes);
                    self.engine.release(received);
                    if copied == bytes.len() {
                        self.received(connection, wire::parse_command(&bytes).unwrap().0);
                    }
                }
                Event::Disconnected { connection, .. } | Event::OpenFailed { connection, .. } => {
                    self.queues.remove(&connection);
                }
                Event::Listening { state, .. } => self.listening = state == Listening::Began,
                _ => {}
            }
        }
        self.engine.flush();
        self.control.poll();
    }

    fn received(&mut self, connection: ConnectionId, entry: SubmissionQueueEntry) {
        let queue_id = self.queues[&connection];
        let kind = if queue_id == wire::ADMIN_QUEUE { QueueKind::Admin } else { QueueKind::Io };
        // The list of a command's data blocks is in nobody's way here: no data of I/O is moved.
        let mut plain = entry;
        if wire::last_segment(entry.data).is_some() {
            plain.data = DataPointer::NONE.encode().unwrap();
        }
        let command = wire::decode(&plain, kind).unwrap();
        let asked = Asked { connection, queue_id, entry, command, session: self.sessions };
        self.asked.push(asked);
        let answer = (self.rule)(&asked).unwrap_or_else(|| self.usual(&command));
        self.answer(&asked, answer);
    }

    /// What a correct controller says.
    fn usual(&mut self, command: &Command) -> Answer {
        let success = |result| Answer::Status(Status::SUCCESS, result);
        match command {
            Command::Connect(_) => success(self.identify.controller_id.get().into()),
            Command::PropertyGet(get) if get.property == Property::Capabilities => success(self.capabilities.0),
            Command::PropertyGet(_) if self.shut_down => {
                success(ControllerStatus::new(true, ShutdownStatus::Complete).0.into())
            }
            Command::PropertyGet(_) => success(ControllerStatus::new(true, ShutdownStatus::Normal).0.into()),
            Command::PropertySet(set) => {
                self.shut_down = set.value == u64::from(ControllerConfiguration::NORMAL_SHUTDOWN.0);
                success(0)
            }
            Command::Identify(identify) => Answer::Data(match identify.structure {
                cns::CONTROLLER => self.identify.as_bytes().to_vec(),
                cns::NAMESPACE => self.namespace.as_bytes().to_vec(),
                cns::COMMAND_SET_CONTROLLER => self.limits.as_bytes().to_vec(),
                _ => vec![1, 0, 0, 0],
            }),
            Command::GetLogPage(_) => Answer::Data(Vec::new()),
            Command::AsynchronousEventRequest => Answer::Silence,
            _ => success(0),
        }
    }

    /// Answers a command, now or later.
    pub fn answer(&mut self, asked: &Asked, answer: Answer) {
        let (status, result, data) = match &answer {
            Answer::Silence => return,
            Answer::Status(status, result) => (*status, *result, None),
            Answer::Data(data) => (Status::SUCCESS, 0, Some(data.clone())),
            Answer::Capsule(_) => (Status::SUCCESS, 0, None),
        };
        let response = CompletionQueueEntry::new(asked.entry.command_id.get(), 0, status, result);
        let (mut local, mut remote) = (None, None);
        if let (Some(mut data), Ok(DataPointer::Keyed(block))) = (data, DataPointer::decode(asked.entry.data)) {
            data.resize(block.length as usize, 0);
            self.next_page = (self.next_page + 1) % PAGES;
            let offset = self.next_page * PAGE;
            self.pages.write(offset, &data).unwrap();
            local = Some(Segment { memory: self.pages_id, offset: offset as u64, length: block.length });
            let range = RemoteRange { address: block.address, key: block.key };
            remote = Some(RemoteSegment { remote: range, length: block.length });
        }
        let message = if let Answer::Capsule(bytes) = &answer { bytes } else { response.as_bytes() };
        let (local, remote) = (local.as_slice(), remote.as_slice());
        let request = ResponseRequest { local, remote, message, invalidate: None, cookie: 0 };
        // A connection that has ended takes no answers.
        let _ = self.engine.respond(asked.connection, &request);
    }

    /// Ends all connections.
    pub fn hang_up(&mut self) {
        self.queues.keys().for_each(|connection| self.engine.disconnect(*connection));
    }

    /// Commands that a test looks for.
    pub fn count(&self, wanted: impl Fn(&Asked) -> bool) -> usize {
        self.asked.iter().filter(|asked| wanted(asked)).count()
    }

    /// The last command that a test looks for.
    pub fn last(&self, wanted: impl Fn(&Asked) -> bool) -> Option<Asked> {
        self.asked.iter().rev().find(|asked| wanted(asked)).copied()
    }
}

/// A host and such a controller, stepped by hand.
pub struct Scripted<D: Device = SoftDevice> {
    pub lone: LoneHost<D>,
    pub controller: Controller,
    pub completions: Vec<HostCompletion>,
    /// What passes between two steps.
    pub tick: Duration,
    data_id: MemoryId,
}

impl Scripted {
    /// `prepare` says what the controller is before anybody asks it.
    pub fn new(profile: &str, options: HostOptions, prepare: impl FnOnce(&mut Controller)) -> Self {
        let engine = options.engine();
        Self::over(profile, |device| device, engine, options, prepare)
    }

    /// With a session.
    pub fn ready(profile: &str, options: HostOptions, prepare: impl FnOnce(&mut Controller)) -> Self {
        let mut scripted = Self::new(profile, options, prepare);
        scripted.until("ready", |scripted| scripted.lone.host.is_ready());
        scripted
    }
}

impl<D: Device> Scripted<D> {
    /// Over a device that a test puts around the software NIC. `engine`: as for [`LoneHost::over`].
    pub fn over(
        profile: &str,
        around: impl FnOnce(SoftDevice) -> D,
        engine: EngineOptions,
        options: HostOptions,
        prepare: impl FnOnce(&mut Controller),
    ) -> Self {
        let fabric = SoftFabric::new();
        let mut controller = Controller::new(&fabric, profile);
        prepare(&mut controller);
        let mut lone = LoneHost::over(around(device(&fabric, profile)), engine, options);
        let data_id = lone.host.engine_mut().add_memory(memory(1 << 20), MemoryAccess::ReadWrite).unwrap();
        Self { lone, controller, completions: Vec::new(), tick: Duration::from_micros(1), data_id }
    }

    /// Steps until a request has ended, of which nobody has taken the completion.
    pub fn ended(&mut self) -> HostCompletion {
        self.until("ended", |scripted| !scripted.completions.is_empty());
        self.completions.remove(0)
    }

    pub fn step(&mut self) {
        self.lone.now += self.tick;
        self.lone.step();
        while let Some(completion) = self.lone.host.next_completion() {
            self.completions.push(completion);
        }
        self.controller.step(self.lone.now);
    }

    pub fn steps(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }

    /// Steps until something holds.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..50_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        let host = &self.lone.host;
        let (asked, last) = (self.controller.asked.len(), self.controller.asked.last());
        panic!("never {what}; {:?} {:?}; {asked} commands, {last:?}", host.statistics(), host.last_failure());
    }

    pub fn segment(&self, block: u64, blocks: u32) -> Segment {
        Segment { memory: self.data_id, offset: block * u64::from(BLOCK), length: blocks * BLOCK }
    }

    /// Shuts the host down.
    pub fn finish(&mut self) {
        self.lone.host.shut_down();
        self.until("stopped", |scripted| scripted.lone.host.is_stopped());
        assert_eq!(self.lone.host.statistics().outstanding, 0);
    }
}
