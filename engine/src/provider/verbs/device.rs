//! The cold half: a device, its ports, and what lives on it.

use super::{
    admit::Guard,
    completion_queues::CompletionQueues,
    connection_manager::ConnectionManager,
    errno::command_error,
    findings::{Findings, SelfTestError},
    options::VerbsOptions,
    port::{Parts, VerbsPort},
    publish::{LANE_ENTRIES, PortCommand, PortHandle, Removed, Report, Table},
    quirks::KnownDevice,
    sys::{
        completion_queue::CompletionQueue,
        connection::EventChannel,
        context::{Context, RawEvent},
        memory_region::MemoryRegion,
        protection_domain::ProtectionDomain,
        queue_pair::{Posting, QueuePair, SendInterface},
        registered::{KeyObjects, Registered},
        shared_receive_queue::SharedReceiveQueue,
        thread_domain::ThreadDomain,
        wait::is_any_readable,
    },
    system, thread_domains,
};
use crate::provider::{
    AsyncEvent, BaseId, Capabilities, Command, CommandError, Device, DeviceEvent, DomainId, PortId, PostModel,
    QueuePairId, RegistrationId, Ticket,
};
use frwr_mempool::{Bell, lane};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::{BorrowedFd, RawFd},
    sync::Arc,
};

/// Ports of one device: a port is a core.
const MAX_PORTS: usize = 1024;

/// Asynchronous events taken by one poll.
const EVENTS_PER_POLL: usize = 256;

/// What a device is made of.
pub(super) struct Opened {
    pub(super) context: Arc<Context>,
    pub(super) options: VerbsOptions,
    /// The port's GID table.
    pub(super) gids: Vec<system::Gid>,
    pub(super) channel: Arc<EventChannel>,
    pub(super) known: &'static KnownDevice,
    pub(super) keys: KeyObjects,
    pub(super) max_initiator_depth: u32,
    pub(super) capabilities: Capabilities,
}

/// A base registration, seen from the device.
pub(super) struct Base {
    pub(super) domain: DomainId,
    pub(super) region: Arc<MemoryRegion>,
    pub(super) leaving: bool,
}

/// A queue pair, seen from the device.
pub(super) struct QueuePairRecord {
    pub(super) port: PortId,
    pub(super) queue_pair: Arc<QueuePair>,
    pub(super) windows: Vec<RegistrationId>,
    pub(super) leaving: bool,
}

/// A shared receive queue, seen from the device.
pub(super) struct SharedReceiveQueueRecord {
    pub(super) port: PortId,
    pub(super) queue: Arc<SharedReceiveQueue>,
    pub(super) leaving: bool,
}

/// A window, or a key for lists, seen from the device.
pub(super) struct WindowRecord {
    pub(super) port: PortId,
    pub(super) queue_pair: QueuePairId,
    /// `None` where it was destroyed with its queue pair: its number is kept for a command of its own.
    pub(super) window: Option<Arc<Registered>>,
    pub(super) leaving: bool,
}

/// Where a port's queue pairs are made.
pub(super) struct Place {
    pub(super) send: Arc<CompletionQueue>,
    pub(super) receive: Arc<CompletionQueue>,
    /// `None` where their posts take locks.
    pub(super) thread: Option<Arc<ThreadDomain>>,
}

/// Something that is destroyed once no port has it any more.
pub(super) struct Retiring {
    pub(super) ticket: Ticket,
    pub(super) object: Removed,
    pub(super) awaited: Vec<PortId>,
}

/// The cold half of a device of libibverbs. One thread at a time.
///
/// Its commands are system calls: everything here may block for as long as the kernel takes.
pub struct VerbsDevice {
    pub(super) events: VecDeque<DeviceEvent>,
    pub(super) connections: ConnectionManager,
    // Windows in front of queue pairs: fields are dropped in this order.
    pub(super) windows: Table<WindowRecord>,
    pub(super) queue_pairs: BTreeMap<QueuePairId, QueuePairRecord>,
    pub(super) shared_receive_queues: Table<SharedReceiveQueueRecord>,
    pub(super) bases: Table<Base>,
    pub(super) domains: Table<Arc<ProtectionDomain>>,
    pub(super) ports: Vec<PortHandle>,
    /// By port.
    pub(super) places: Vec<Place>,
    pub(super) retiring: Vec<Retiring>,
    pub(super) context: Arc<Context>,
    pub(super) options: VerbsOptions,
    /// The port's GID table: reading it is hundreds of system calls, and it rarely changes.
    pub(super) gids: Vec<system::Gid>,
    pub(super) known: &'static KnownDevice,
    pub(super) builds: bool,
    /// What it opens memory by.
    pub(super) keys: KeyObjects,
    /// RDMA READs that a queue pair may have outstanding towards its peer.
    pub(super) max_initiator_depth: u32,
    capabilities: Capabilities,
    findings: Findings,
    /// Rung by ports behind reports.
    bell: Arc<Bell>,
}

impl core::fmt::Debug for VerbsDevice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("VerbsDevice").field("name", &self.capabilities.name).finish_non_exhaustive()
    }
}

impl VerbsDevice {
    /// A device on which nothing lives yet; its chains are lists.
    pub(super) fn new(opened: Opened) -> Self {
        Self {
            events: VecDeque::new(),
            connections: ConnectionManager::new(opened.channel),
            windows: Table::default(),
            queue_pairs: BTreeMap::new(),
            shared_receive_queues: Table::default(),
            bases: Table::default(),
            domains: Table::default(),
            ports: Vec::new(),
            places: Vec::new(),
            retiring: Vec::new(),
            max_initiator_depth: opened.max_initiator_depth,
            capabilities: opened.capabilities,
            findings: Findings::default(),
            context: opened.context,
            options: opened.options,
            gids: opened.gids,
            known: opened.known,
            builds: false,
            keys: opened.keys,
            bell: Arc::default(),
        }
    }

    /// Whether chains are built by `ibv_wr_*` is decided, before anything lives on it.
    pub(super) fn build(&mut self, builds: bool) {
        self.builds = builds;
        self.capabilities.post_model = if builds { PostModel::AllOrNothing } else { PostModel::Prefix };
    }

    /// What was seen holds.
    pub(super) fn believe(&mut self, findings: &Findings) -> Result<(), SelfTestError> {
        findings.apply(&mut self.capabilities)
    }

    /// What there is to tell of it.
    pub(super) fn keep(&mut self, findings: Findings) {
        self.findings = findings;
    }

    /// What the self-test found, behind what there is to know of lists.
    #[must_use]
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The driver's row of the table of devices.
    #[must_use]
    pub fn known(&self) -> &'static KnownDevice {
        self.known
    }

    /// Whether chains are built by `ibv_wr_*`.
    #[must_use]
    pub fn uses_builder(&self) -> bool {
        self.builds
    }

    /// Whether lists are registered, and not windows.
    #[must_use]
    pub fn registers_lists(&self) -> bool {
        self.keys.lists().is_some()
    }

    /// A thread domain for one port; nothing where none is wanted.
    pub(super) fn thread_domain(&self) -> Option<io::Result<Arc<ThreadDomain>>> {
        thread_domains::allocate(&self.context, &self.options, self.known)
    }

    /// How work requests get into its queue pairs.
    pub(super) fn send_interface(&self) -> SendInterface {
        let posting = match self.keys.lists() {
            Some(kind) => Posting::Lists { entries: kind.entries },
            None if self.builds => Posting::Builder,
            None => Posting::PostSend,
        };
        SendInterface { posting, inline_bytes: self.options.inline_bytes.unwrap_or(self.known.inline_bytes) }
    }

    fn guard(&self) -> Guard {
        match self.keys.lists() {
            Some(_) => Guard::LiveRegistration,
            None if self.capabilities.quirks.crashes_on_double_invalidate => Guard::SecondInvalidation,
            None => Guard::Nothing,
        }
    }

    pub(super) fn answer(&mut self, ticket: Ticket, result: Result<crate::provider::Answer, CommandError>) {
        self.events.push_back(DeviceEvent::Answered { ticket, result });
    }

    pub(super) fn port(&mut self, id: PortId) -> Option<&mut PortHandle> {
        self.ports.get_mut(usize::from(id.0)).filter(|port| !port.is_gone())
    }

    fn take_reports(&mut self) {
        for at in 0..self.ports.len() {
            while let Some(report) = self.ports[at].next_report() {
                let port = self.ports[at].id;
                match report {
                    Report::Removed(removed) => self.removed_from(port, removed),
                    Report::CompletionsLost => {
                        self.events.push_back(DeviceEvent::Async(AsyncEvent::CompletionQueueOverrun(port)));
                    }
                }
            }
        }
        self.refresh_ports();
        self.finish_retiring();
    }

    fn removed_from(&mut self, port: PortId, removed: Removed) {
        if let Some(retiring) = self.retiring.iter_mut().find(|retiring| retiring.object == removed) {
            retiring.awaited.retain(|awaited| *awaited != port);
        }
    }

    /// A port that was dropped has let go of everything.
    fn refresh_ports(&mut self) {
        self.ports.iter_mut().for_each(PortHandle::refresh);
        if self.retiring.is_empty() {
            return;
        }
        let ports = &self.ports;
        let is_gone = |port: &PortId| ports.get(usize::from(port.0)).is_none_or(PortHandle::is_gone);
        for retiring in &mut self.retiring {
            retiring.awaited.retain(|port| !is_gone(port));
        }
    }

    /// Destroys what no port has any more.
    pub(super) fn finish_retiring(&mut self) {
        while let Some(place) = self.retiring.iter().position(|retiring| retiring.awaited.is_empty()) {
            // In order: a window goes before its queue pair.
            let Retiring { ticket, object, .. } = self.retiring.remove(place);
            let result = match object {
                Removed::Base(base) => self.destroy_base(base),
                Removed::QueuePair(queue_pair) => self.destroy_queue_pair(queue_pair),
                Removed::SharedReceiveQueue(queue) => self.destroy_shared_receive_queue(queue),
                Removed::Window(object) => self.destroy_window(object),
            };
            self.answer(ticket, result);
        }
    }

    fn take_async_events(&mut self) {
        for _ in 0..EVENTS_PER_POLL {
            let Some(event) = self.context.next_event() else { break };
            let event = match event {
                RawEvent::QueuePairFatal(number) => AsyncEvent::QueuePairFatal(QueuePairId(number)),
                RawEvent::QueuePairAccessError(number) => AsyncEvent::QueuePairAccessError(QueuePairId(number)),
                RawEvent::LastReceiveReached(number) => AsyncEvent::LastReceiveReached(QueuePairId(number)),
                RawEvent::CompletionQueueError(queue) => {
                    let Some(port) = self.ports.iter().find(|port| port.queues.contains(&queue)) else { continue };
                    AsyncEvent::CompletionQueueOverrun(port.id)
                }
                RawEvent::SharedReceiveQueueError(queue) => {
                    let mut records = self.shared_receive_queues.iter();
                    let found = records.find(|(_, record)| record.queue.address() == queue);
                    let Some((_, record)) = found else { continue };
                    AsyncEvent::CompletionQueueOverrun(record.port)
                }
                RawEvent::DeviceFatal => AsyncEvent::DeviceFatal,
                RawEvent::AddressesChanged => {
                    self.gids = (self.context.system().gids)(&self.options.device, self.options.port);
                    continue;
                }
                RawEvent::Other => continue,
            };
            self.events.push_back(DeviceEvent::Async(event));
        }
    }

    /// Whether a command can be taken now: every port that it has to tell of something has room.
    fn has_room(&self, command: &Command) -> bool {
        let of_port = |id: &PortId| self.ports.get(usize::from(id.0)).is_none_or(PortHandle::has_room);
        match command {
            Command::RegisterMemory { .. } | Command::DeregisterMemory { .. } => {
                self.ports.iter().all(PortHandle::has_room)
            }
            Command::CreateQueuePair { port, .. }
            | Command::CreateSharedReceiveQueue { port, .. }
            | Command::AllocateRegistration { port, .. } => of_port(port),
            Command::DestroySharedReceiveQueue { queue } => {
                self.shared_receive_queues.get(queue.0).is_none_or(|record| of_port(&record.port))
            }
            Command::DestroyQueuePair { queue_pair } => {
                self.queue_pairs.get(queue_pair).is_none_or(|record| of_port(&record.port))
            }
            Command::FreeRegistration { object } => {
                self.windows.get(object.0).is_none_or(|record| of_port(&record.port))
            }
            _ => true,
        }
    }
}

impl Device for VerbsDevice {
    type Port = VerbsPort;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<VerbsPort, CommandError> {
        if self.ports.len() >= MAX_PORTS {
            return Err(CommandError::EXHAUSTED);
        }
        let id = PortId(self.ports.len() as u16);
        let has_channel = self.options.completion_channels;
        let queues = CompletionQueues::new(&self.context, id, [send_entries, receive_entries], has_channel);
        let queues = queues.map_err(|error| command_error(&error))?;
        let (commands, taken_commands) = lane::bounded(LANE_ENTRIES);
        let (sent_reports, reports) = lane::bounded(LANE_ENTRIES);
        let bell = Arc::<Bell>::default();
        let mut handle = PortHandle::new(id, commands, reports, queues.addresses(), Arc::clone(&bell));
        for (base, record) in self.bases.iter().filter(|(_, base)| !base.leaving) {
            if !handle.has_room() {
                return Err(CommandError::EXHAUSTED);
            }
            handle.tell(PortCommand::AddBase(BaseId(base), Arc::clone(&record.region)));
        }
        self.ports.push(handle);
        let thread = self.thread_domain().and_then(Result::ok);
        let [send, receive] = queues.both().map(Arc::clone);
        self.places.push(Place { send, receive, thread });
        Ok(VerbsPort::new(Parts {
            id,
            queues,
            bell,
            device_bell: Arc::clone(&self.bell),
            longest_chain: send_entries as usize,
            guard: self.guard(),
            flag_misplaced: self.capabilities.quirks.invalidate_flag_misplaced,
            miscounts_lists: self.known.builder_miscounts_lists,
            commands: taken_commands,
            reports: sent_reports,
        }))
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        self.refresh_ports();
        if !self.has_room(&command) {
            return Err(command);
        }
        if let Err(error) = self.execute(ticket, command) {
            self.answer(ticket, Err(error));
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        self.take_reports();
        if is_any_readable(self.raw_descriptors()) {
            self.take_connection_events();
            self.take_async_events();
        }
        self.events.pop_front()
    }

    fn rings(&mut self, bell: &Arc<Bell>) -> bool {
        self.bell = Arc::clone(bell);
        true
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.connections.descriptor(), self.context.async_descriptor()]
    }

    fn is_present(&self) -> bool {
        self.context.is_listed()
    }
}

impl VerbsDevice {
    fn raw_descriptors(&self) -> [RawFd; 2] {
        [self.connections.fd(), self.context.async_fd()]
    }
}
