//! Everything slow, for one process: creating, modifying and destroying queue pairs, MRs and base registrations, the
//! connection manager and asynchronous events.
//!
//! One poll-style object that talks to the engines by lanes. The program `frwr` runs it on an unpinned thread, an embedder calls
//! [`Control::poll`] from wherever system calls may happen, a simulation steps it. It allocates and may block in the
//! device's commands; reactors never do.

mod answers;
mod connecting;
mod domain;
mod kept;
mod listening;
mod memories;
mod placement;
mod shared_receives;

use crate::{
    engine::{EngineBuilder, OpenEngineError},
    event::OpenFailure,
    link::{ControlLink, CoreLink, OpenTarget, ToControl, ToCore, link},
    mr::ConnectionKey,
    options::EngineOptions,
    provider::{
        BaseId, Command, CommandError, Device, DomainId, Errno, ListenerId, Port, PortId, PrivateData, RegistrationId,
        Ticket,
    },
};
use connecting::{Link, Stage};
use core::task::Waker;
use domain::Domain;
use frwr_mempool::{Bell, freelist::Returner};
use kept::Retry;
use listening::Listener;
use memories::Memory;
use placement::Unanswered;
pub use placement::{ConnectRequest, ListeningCore, Placed, Placement};
use shared_receives::SharedReceiveQueue;
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::Arc,
};

/// Messages taken from one core, and events from the device, in one poll: bounds how long one poll takes.
const MAX_PER_POLL: usize = 256;

/// What an answer is awaited for.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Domain {
        domain: usize,
    },
    FreeDomain {
        domain: DomainId,
        /// The device kept it before; so below.
        again: bool,
    },
    Base {
        domain: usize,
        core: usize,
        memory: u16,
    },
    BaseGone {
        domain: usize,
        core: usize,
        memory: u16,
        base: BaseId,
        again: bool,
    },
    QueuePair {
        link: usize,
    },
    SharedReceiveQueue {
        core: usize,
    },
    Connect {
        core: usize,
        connection: ConnectionKey,
    },
    Fail {
        core: usize,
        connection: ConnectionKey,
    },
    Destroy {
        link: usize,
    },
    Allocate {
        core: usize,
        connection: ConnectionKey,
        descriptor: u32,
    },
    Free {
        core: usize,
        descriptor: u32,
    },
    Listen {
        address: SocketAddr,
    },
    StopListening {
        core: usize,
        address: SocketAddr,
        listener: ListenerId,
    },
    ListenerGone {
        listener: ListenerId,
        again: bool,
    },
    /// Nobody waits: a command whose failure changes nothing.
    Nothing,
}

/// One core as Control knows it.
struct Core {
    port: PortId,
    link: ControlLink,
    returner: Option<Returner>,
    /// What the core's lane had no room for.
    outbox: VecDeque<ToCore>,
    /// Descriptors whose objects were destroyed in this poll: given back in one batch.
    freed: Vec<u32>,
    /// By their places.
    memories: Vec<Option<Memory>>,
    shared_receives: SharedReceiveQueue,
    incoming: Unanswered,
    /// The engine was dropped: nobody takes messages any more.
    gone: bool,
}

frwr_mempool::statistics! {
    /// What Control has done and met; written by its thread only.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct ControlStatistics {
        /// Commands given to the device.
        pub commands: u64,
        /// Commands that failed.
        pub commands_failed: u64,
        /// What the device said to the last of them.
        pub command_error: Option<CommandError> => Latest,
        /// Times that the device refused to destroy an MR object. Its connection ends and the object is tried again, at last behind its
        /// queue pair; one that the device keeps then is counted by its engine (`Statistics::mrs_orphaned`).
        pub frees_refused: u64,
        /// Asynchronous events of the device.
        pub async_events: u64,
        /// Times that the device said that it is gone, or works no more. It stays so.
        pub device_failures: u64,
        /// Base registrations that the device refused: most often for the limit of locked memory (RLIMIT_MEMLOCK).
        pub memories_refused: u64,
        /// Connect requests handed to cores.
        pub incoming: u64,
        /// Connect requests rejected without asking a core, since it had [`crate::MAX_INCOMING`] to answer.
        pub incoming_overflow: u64,
        /// Protection domains that the device keeps now though no connection lives in them any more: something in them is still
        /// registered (`Port::register_memory`). They are freed when that has gone, as is what follows when the device complies.
        pub domains_kept: u64 => Gauge,
        /// Queue pairs that the device refused to destroy and still has. Connections whose queue pair may still work wait for them
        /// ([`crate::Event::QueuePairKept`]); all others have ended.
        pub queue_pairs_kept: u64 => Gauge,
        /// Base registrations that the device refused to end and still has.
        pub memories_kept: u64 => Gauge,
        /// Listeners that the device refused to end and still has. Their peers are turned away.
        pub listeners_kept: u64 => Gauge,
    }
}

/// Control of one device. One thread at a time calls it, which may be another one than any engine's. It must be polled as long
/// as one of its engines has connections; to end it, end those, then drop it when [`Control::is_idle`] says so.
pub struct Control<D: Device> {
    device: D,
    cores: Vec<Core>,
    links: Vec<Option<Link>>,
    domains: Vec<Option<Domain>>,
    /// The domain of all connections that have none of their own.
    shared: Option<usize>,
    listeners: Vec<Listener>,
    /// `None`: to the core with the fewest connections.
    placement: Option<Placement>,
    pending: HashMap<Ticket, Pending>,
    backlog: VecDeque<(Ticket, Command)>,
    next_ticket: u64,
    statistics: ControlStatistics,
    /// For peers that no core is asked about.
    crowded: PrivateData,
    /// What the device did not destroy.
    kept: Vec<Retry>,
    /// Rung by cores and the device behind what they have for it.
    bell: Arc<Bell>,
    /// The device tells of all that it has.
    device_tells: bool,
}

impl<D: Device> Control<D> {
    /// Control of `device`.
    #[must_use]
    pub fn new(mut device: D) -> Self {
        let bell = Arc::<Bell>::default();
        let device_tells = device.rings(&bell);
        Self {
            device,
            cores: Vec::new(),
            links: Vec::new(),
            domains: Vec::new(),
            shared: None,
            listeners: Vec::new(),
            placement: None,
            pending: HashMap::new(),
            backlog: VecDeque::new(),
            next_ticket: 1,
            statistics: ControlStatistics::default(),
            crowded: PrivateData::new(),
            kept: Vec::new(),
            bell,
            device_tells,
        }
    }

    /// Opens a port for an engine with these options: all that it is made of but its memory.
    ///
    /// # Errors
    /// [`OpenEngineError`]; nothing is left behind.
    pub fn open_engine(&mut self, options: EngineOptions) -> Result<EngineBuilder<D::Port>, OpenEngineError> {
        let capabilities = *self.device.capabilities();
        EngineBuilder::open(options, capabilities, |send, receive| self.open_core(send, receive))
    }

    /// Opens a port with completion queues of these sizes, for [`crate::Engine::new`], or whatever else is to be made of it.
    ///
    /// # Errors
    /// As [`Device::open_port`].
    pub fn open_core(&mut self, send_entries: u32, receive_entries: u32) -> Result<(D::Port, CoreLink), CommandError> {
        let port = self.device.open_port(send_entries, receive_entries)?;
        let (core_link, control_link) = link(&self.bell);
        self.cores.push(Core {
            port: port.id(),
            link: control_link,
            returner: None,
            outbox: VecDeque::new(),
            freed: Vec::new(),
            memories: Vec::new(),
            shared_receives: SharedReceiveQueue::default(),
            incoming: Unanswered::new(),
            gone: false,
        });
        Ok((port, core_link))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Counters, by value.
    #[must_use]
    pub fn statistics(&self) -> ControlStatistics {
        self.statistics
    }

    /// Nothing is awaited from the device and nothing waits for a core.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.backlog.is_empty() && self.cores.iter().all(|core| core.outbox.is_empty())
    }

    /// Says how the thread that polls it is woken where it waits ([`Control::arm`]); the first call counts.
    pub fn wakes(&self, waker: &Waker) {
        self.bell.wakes(waker);
    }

    /// That thread wants to wait: from now on what cores and the device have for it wakes it, once, or makes one of
    /// [`Control::descriptors`] readable. To be called before each wait, and Control to be polled once more behind it,
    /// which finds what came before. False where it has to be polled from time to time all the same: the device does
    /// not tell, or answers later, or a core's lane has no room.
    pub fn arm(&self) -> bool {
        self.bell.arm();
        self.device_tells && self.kept.is_empty() && self.is_idle()
    }

    /// What becomes readable where its device has something, as of now.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.device.descriptors()
    }

    /// Takes what the cores ask for, gives it to the device, and takes back what the device says. Returns the work done.
    pub fn poll(&mut self) -> u32 {
        let mut work = 0;
        for core in 0..self.cores.len() {
            work += self.poll_core(core);
        }
        if !self.kept.is_empty() {
            self.retry_kept();
        }
        self.give_commands();
        for _ in 0..MAX_PER_POLL {
            let Some(event) = self.device.poll() else { break };
            self.device_event(event);
            work += 1;
        }
        self.give_commands();
        for core in &mut self.cores {
            core.flush();
        }
        work
    }

    fn poll_core(&mut self, core: usize) -> u32 {
        let mut work = 0;
        if let Some(returner) = self.cores[core].link.returner.pop() {
            self.cores[core].returner = Some(returner);
        }
        while work < MAX_PER_POLL as u32 {
            let Some(message) = self.cores[core].link.from_core.pop() else { break };
            self.core_message(core, message);
            work += 1;
        }
        // Closed is asked before empty: what was sent before the end is taken first.
        let link = &self.cores[core].link;
        if !self.cores[core].gone && link.from_core.is_closed() && link.from_core.is_empty() {
            self.core_gone(core);
        }
        work
    }

    /// The engine was dropped. Its listeners go and its peers are told; its queue pairs are moved to the error state, and
    /// stay with the device as do their MRs and base registrations: memory that a device may still reach is never unmapped.
    fn core_gone(&mut self, core: usize) {
        self.cores[core].gone = true;
        self.cores[core].outbox.clear();
        self.listeners_gone(core);
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_ref().filter(|link| link.core == core) else { continue };
            let connection = link.connection;
            if link.stage == Stage::Domain {
                self.abort(at, OpenFailure::Unreachable(Errno::EIO), PrivateData::new());
            } else {
                self.fail(core, connection);
            }
        }
    }

    fn core_message(&mut self, core: usize, message: ToControl) {
        match message {
            ToControl::AddMemory { memory, declared } => self.add_memory(core, memory, declared),
            ToControl::WithdrawMemory { memory } => self.withdraw_memory(core, memory),
            ToControl::ReleaseMemory { memory } => self.release_memory(core, memory),
            ToControl::Listen { address } => self.listen(core, address),
            ToControl::StopListening { address } => self.stop_listening(core, address),
            ToControl::Reject { incoming, private_data } => {
                self.incoming_answered(core, incoming);
                self.command(Command::Reject { incoming, private_data }, Pending::Nothing);
            }
            ToControl::Open { connection, target, options, private_data } => {
                let weight = match target {
                    OpenTarget::Incoming(incoming) => self.incoming_answered(core, incoming),
                    OpenTarget::Address(_) => 0,
                };
                self.open(core, connection, target, options, private_data, weight);
            }
            ToControl::ReceivesPosted { connection } => self.receives_posted(core, connection),
            ToControl::Allocate { connection, depth, descriptors } => {
                self.allocate(core, connection, depth, &descriptors);
            }
            ToControl::Free { objects } => self.free(core, &objects),
            ToControl::Fail { connection } => self.fail(core, connection),
            ToControl::Close { connection, may_work } => self.close(core, connection, may_work),
        }
    }

    fn allocate(&mut self, core: usize, connection: ConnectionKey, depth: u32, descriptors: &[u32]) {
        let link = self.find(core, connection).and_then(|at| self.links[at].as_ref());
        let place = link.and_then(|link| Some((self.domains[link.domain].as_ref()?.id?, link.queue_pair?)));
        let port = self.cores[core].port;
        for &descriptor in descriptors {
            match place {
                Some((domain, queue_pair)) => self.command(
                    Command::AllocateRegistration { port, domain, queue_pair, depth },
                    Pending::Allocate { core, connection, descriptor },
                ),
                // Its connection ends: there is no queue pair that it could be made for.
                None => {
                    self.tell(core, ToCore::Allocated { connection, descriptor, object: Err(CommandError::Unknown) })
                }
            }
        }
    }

    fn free(&mut self, core: usize, objects: &[(u32, RegistrationId)]) {
        for &(descriptor, object) in objects {
            self.command(Command::FreeRegistration { object }, Pending::Free { core, descriptor });
        }
    }

    /// Queues a command for the device.
    fn command(&mut self, command: Command, pending: Pending) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.pending.insert(ticket, pending);
        self.backlog.push_back((ticket, command));
    }

    /// Gives the device what it takes now.
    fn give_commands(&mut self) {
        while let Some((ticket, command)) = self.backlog.pop_front() {
            if let Err(command) = self.device.submit(ticket, command) {
                self.backlog.push_front((ticket, command));
                return;
            }
            self.statistics.commands += 1;
        }
    }

    fn tell(&mut self, core: usize, message: ToCore) {
        if !self.cores[core].gone {
            self.cores[core].outbox.push_back(message);
        }
    }
}

impl Core {
    /// Hands over what the core's lanes have room for.
    fn flush(&mut self) {
        if let Some(returner) = &self.returner
            && !self.freed.is_empty()
        {
            // A descriptor is given back once, by the one answer to its one command.
            let given = returner.give_back(&self.freed);
            debug_assert!(given.is_ok(), "{given:?}");
            self.freed.clear();
        }
        let waited = self.outbox.len();
        while let Some(message) = self.outbox.pop_front() {
            if let Err(full) = self.link.to_core.push(message) {
                self.outbox.push_front(full.0);
                break;
            }
        }
        if self.outbox.len() < waited {
            self.link.bell.ring();
        }
    }
}
