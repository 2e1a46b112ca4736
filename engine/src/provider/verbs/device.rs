//! The cold half: a device, its ports, and what lives on it.

use super::{
    admit::Guard,
    completion_queues::CompletionQueues,
    connection_manager::ConnectionManager,
    hardware,
    keys::{self, Facts, Ways},
    lists::NoLists,
    options::{OptionError, PostInterface, Registration, VerbsOptions},
    port::{Parts, VerbsPort},
    publish::{LANE_ENTRIES, PortCommand, PortHandle, Removed, Report, Table},
    quirks::KnownDevice,
    self_test::{Findings, SelfTestError, self_test},
    sys::{
        connection::EventChannel,
        context::{Context, RawEvent},
        library::{Library, LibraryError},
        objects::{CompletionQueue, MemoryRegion, ProtectionDomain},
        queue_pair::{Posting, QueuePair, SendInterface},
        registered::{KeyObjects, Registered},
        shared_receive_queue::SharedReceiveQueue,
        thread_domain::{QueuePairDomain, ThreadDomain},
        wait::is_any_readable,
    },
    system, thread_domains,
};
use crate::provider::{
    AsyncEvent, BaseId, Capabilities, Command, CommandError, Device, DeviceEvent, DomainId, Errno, PortId, PostModel,
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

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// libibverbs or librdmacm cannot be used.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// An option that no device takes.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// There is no such device.
    #[error("there is no RDMA device {device}; devices here: {known}")]
    NoDevice {
        /// The name asked for.
        device: String,
        /// Those that there are.
        known: String,
    },
    /// The system refused.
    #[error("device {device}: {step} failed: {source}; {remedy}")]
    System {
        /// The device.
        device: String,
        /// What was tried.
        step: &'static str,
        /// What a person can do.
        remedy: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The device opens no keys: it has no memory windows of type 2, nor lists.
    #[error(
        "device {device} (driver {driver}) opens no keys by work requests: it has no type 2 memory windows{known}; it can only respond"
    )]
    NoWindows {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
        /// What is known of its driver's windows: nothing, or with what separates it.
        known: String,
    },
    /// The device cannot register lists.
    #[error("device {device} (driver {driver}) cannot register lists: {source}; windows may do instead")]
    NoLists {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
        /// Why.
        source: NoLists,
    },
    /// The device has no such port or GID.
    #[error("device {device}: there is no {what} {value}; there is {known}")]
    NoSuch {
        /// The device.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// Its number.
        value: u8,
        /// What there is.
        known: String,
    },
    /// The device's connections are not those of InfiniBand and RoCE.
    #[error("device {device} (driver {driver}) speaks iWARP; this provider connects InfiniBand and RoCE devices only")]
    Iwarp {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
    },
    /// The self-test found that the device cannot do what the engine relies on.
    #[error("device {device}: self-test: {source}")]
    SelfTest {
        /// The device.
        device: String,
        /// What failed.
        source: SelfTestError,
        /// What was found until then.
        findings: Findings,
    },
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
    /// Opens a device and, unless told otherwise, tries what it can really do.
    ///
    /// # Errors
    /// [`OpenError`] names what is missing and the remedy.
    pub fn open(options: &VerbsOptions) -> Result<Self, OpenError> {
        options.check()?;
        Self::open_with(Library::get()?, options)
    }

    /// The same by given functions.
    ///
    /// # Errors
    /// As [`VerbsDevice::open`].
    pub fn open_with(library: &'static Library, options: &VerbsOptions) -> Result<Self, OpenError> {
        options.check()?;
        let name = &options.device;
        let context = Context::open(library, name).map_err(|source| not_opened(library, name, source))?;
        let context = Arc::new(context);
        let attributes = context.attributes();
        let attributes = attributes.map_err(|source| refused(name, "querying its attributes", "see dmesg", source))?;
        let facts = Facts::of(&context, name, attributes);
        if context.is_iwarp() {
            return Err(OpenError::Iwarp { device: name.clone(), driver: facts.driver });
        }
        let Ways { keys, no_lists } = keys::ways(&context, options, &facts);
        let (mut first, mut passed_over) = (None, Vec::new());
        for keys in keys {
            let mut findings = Findings::default();
            findings.of_device(&facts, &passed_over);
            findings.of_keys(keys, &facts, no_lists.as_ref());
            match Self::open_as(&context, options, &facts, keys, findings) {
                Ok(device) => return Ok(device),
                Err(error @ OpenError::SelfTest { .. }) => {
                    passed_over.push((keys, error.to_string()));
                    first = first.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(first.unwrap_or_else(|| no_keys(name, facts.driver, no_lists, options.registration)))
    }

    /// One way to open keys.
    fn open_as(
        context: &Arc<Context>,
        options: &VerbsOptions,
        facts: &Facts,
        keys: KeyObjects,
        mut findings: Findings,
    ) -> Result<Self, OpenError> {
        let name = &options.device;
        let gids = (context.system().gids)(name, options.port);
        check_numbers(options, facts.attributes.phys_port_cnt, &gids)?;
        let remedy = "load its module (modprobe rdma_ucm) and check the permissions of /dev/infiniband/rdma_cm";
        let channel = EventChannel::new(context.library());
        let channel = channel.map_err(|source| refused(name, "opening the connection manager", remedy, source))?;
        let wants_builder = match options.post {
            _ if keys.lists().is_some() => true,
            PostInterface::Automatic => facts.known.prefers_builder,
            PostInterface::List => false,
            PostInterface::Builder => true,
        };
        let mut device = Self {
            events: VecDeque::new(),
            connections: ConnectionManager::new(channel),
            windows: Table::default(),
            queue_pairs: BTreeMap::new(),
            shared_receive_queues: Table::default(),
            bases: Table::default(),
            domains: Table::default(),
            ports: Vec::new(),
            places: Vec::new(),
            retiring: Vec::new(),
            max_initiator_depth: u32::try_from(facts.attributes.max_qp_init_rd_atom).unwrap_or(0),
            capabilities: keys::capabilities(name, facts, keys),
            findings: Findings::default(),
            context: Arc::clone(context),
            options: options.clone(),
            gids,
            known: facts.known,
            builds: wants_builder,
            keys,
            bell: Arc::default(),
        };
        if wants_builder
            && keys.lists().is_none()
            && let Err(source) = device.probe_builder()
        {
            if options.post == PostInterface::Builder {
                let remedy = "use lists (the default); newer rdma-core may help";
                return Err(refused(name, "making a queue pair for ibv_wr_*", remedy, source));
            }
            device.builds = false;
        }
        device.capabilities.post_model = if device.builds { PostModel::AllOrNothing } else { PostModel::Prefix };
        thread_domains::report(device.thread_domain(), &mut findings);
        if options.self_test {
            let tested = self_test(&device, &mut findings).and_then(|()| findings.apply(&mut device.capabilities));
            if let Err(source) = tested {
                findings.broke_off(&source);
                return Err(OpenError::SelfTest { device: name.clone(), source, findings });
            }
        }
        device.findings = findings;
        Ok(device)
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

    /// Makes a queue pair for `ibv_wr_*` and throws it away: the library says only then whether it can.
    fn probe_builder(&self) -> io::Result<()> {
        let domain = Arc::new(ProtectionDomain::new(&self.context)?);
        let queue = Arc::new(CompletionQueue::new(&self.context, 2)?);
        let sizes = crate::provider::QueueSizes { send: 1, receive: 1, max_send_sge: 1 };
        let builder = SendInterface { posting: Posting::Builder, inline_bytes: 0 };
        let domain = QueuePairDomain::new(&domain, None)?;
        let probe = QueuePair::new(domain, &queue, &queue, sizes, None, builder)?;
        if probe.has_builder() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
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

fn refused(device: &str, step: &'static str, remedy: &'static str, source: io::Error) -> OpenError {
    OpenError::System { device: device.to_owned(), step, remedy, source }
}

/// Why a device opens no keys that was asked for some.
fn no_keys(device: &str, driver: String, no_lists: Option<NoLists>, wanted: Registration) -> OpenError {
    let device = device.to_owned();
    match no_lists {
        Some(source) if wanted == Registration::Lists => OpenError::NoLists { device, driver, source },
        _ => {
            let known = hardware::windows_of(&driver).map_or_else(String::new, |known| format!(" ({known})"));
            OpenError::NoWindows { device, driver, known }
        }
    }
}

/// What opening refused by itself, or for want of the device.
fn not_opened(library: &'static Library, name: &str, source: io::Error) -> OpenError {
    if source.kind() == io::ErrorKind::NotFound {
        let known = Context::names(library).unwrap_or_default();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return OpenError::NoDevice { device: name.to_owned(), known };
    }
    OpenError::System {
        device: name.to_owned(),
        step: "opening it",
        remedy: "load ib_uverbs (modprobe ib_uverbs) and check the permissions of /dev/infiniband/uverbs*",
        source,
    }
}

/// What the device has to be asked for: its ports, and the GIDs of one.
fn check_numbers(options: &VerbsOptions, ports: u8, gids: &[system::Gid]) -> Result<(), OpenError> {
    let no_such = |what, value, known| OpenError::NoSuch { device: options.device.clone(), what, value, known };
    if options.port > ports {
        return Err(no_such("port", options.port, format!("port 1 to {ports}")));
    }
    match options.gid_index {
        Some(index) if system::choose_gid(gids, Some(index)).is_none() => {
            let known: Vec<_> = gids.iter().map(|gid| gid.index.to_string()).collect();
            let known =
                if known.is_empty() { "none: give its network device an address".into() } else { known.join(", ") };
            Err(no_such("GID index", index, known))
        }
        _ => Ok(()),
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

/// An errno as an answer.
pub(super) fn command_error(error: &io::Error) -> CommandError {
    let errno = errno(error);
    match errno.0 {
        libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::EAGAIN => CommandError::Exhausted(errno),
        libc::EBUSY => CommandError::Busy(errno),
        libc::EADDRINUSE | libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EHOSTUNREACH => CommandError::Address(errno),
        libc::EIO | libc::ENODEV => CommandError::DeviceGone(errno),
        _ => CommandError::Invalid(errno),
    }
}

/// The number of an error; of those that a library makes without one, the one of a bad argument.
pub(super) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EINVAL, Errno)
}

#[cfg(test)]
mod tests {
    use super::{OpenError, VerbsOptions, check_numbers, command_error};
    use crate::provider::{CommandError, Errno, verbs::system::Gid};
    use std::io;

    #[test]
    fn a_port_and_a_gid_that_the_device_lacks_are_named() {
        let gids = [1, 3].map(|index| Gid { index, bytes: [1; 16], is_roce_v2: true });
        let options = |port, gid_index| VerbsOptions::new("mlx5_0").port(port).gid_index(gid_index);
        for good in [options(1, None), options(2, Some(3))] {
            assert!(check_numbers(&good, 2, &gids).is_ok());
        }
        let said =
            |options, gids: &[Gid]| check_numbers(&options, 2, gids).map_err(|error: OpenError| error.to_string());
        assert_eq!(
            said(options(3, None), &gids).unwrap_err(),
            "device mlx5_0: there is no port 3; there is port 1 to 2"
        );
        assert_eq!(
            said(options(1, Some(2)), &gids).unwrap_err(),
            "device mlx5_0: there is no GID index 2; there is 1, 3"
        );
        assert!(
            said(options(1, Some(2)), &[]).unwrap_err().ends_with("there is none: give its network device an address")
        );
    }

    #[test]
    fn an_errno_is_an_answer() {
        for (code, expected) in [
            (libc::ENOMEM, CommandError::EXHAUSTED),
            (libc::EAGAIN, CommandError::EXHAUSTED),
            (libc::EBUSY, CommandError::BUSY),
            (libc::EADDRINUSE, CommandError::ADDRESS),
            (libc::EADDRNOTAVAIL, CommandError::ADDRESS),
            (libc::ENODEV, CommandError::DEVICE_GONE),
            (libc::EIO, CommandError::DEVICE_GONE),
            (libc::EINVAL, CommandError::INVALID),
        ] {
            let found = command_error(&io::Error::from_raw_os_error(code));
            assert_eq!(core::mem::discriminant(&found), core::mem::discriminant(&expected), "{code}");
            assert_eq!(found.errno(), Errno(code), "the number goes on as it came");
        }
    }
}
