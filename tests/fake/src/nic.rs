//! The software NIC under one open device: what firmware does.

use frwr_engine::provider::{
    Answer, AsyncEvent, Capabilities, Chain, Command, CommandError, Completion, CompletionBatch, CompletionQueue,
    ConnectionEvent, ConnectionParameters, Device, DeviceEvent, DomainId, IncomingId, MAX_COMPLETIONS_PER_POLL, Port,
    PostError, PrivateData, QueuePairId, QueueSizes, ReceiveRequest, RegistrationId, SharedReceiveQueueId, Ticket,
    soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort},
};
use frwr_mempool::DeviceMemory;
use std::{
    collections::{HashMap, VecDeque},
    net::{Ipv6Addr, SocketAddr},
};

/// Steps until a command that was not executed never will be.
const PATIENCE: usize = 100_000;

/// Completions between two steps: many times what the suites have in flight.
const COMPLETIONS: u32 = 1 << 14;

/// What a NIC did since it was asked last.
#[derive(Debug)]
pub(crate) enum News {
    Completion(CompletionQueue, Completion),
    Async(AsyncEvent),
    /// A queue pair of the fabric wants to be joined to the one of this number.
    Asked {
        incoming: IncomingId,
        number: u32,
    },
    /// A queue pair is joined to its peer.
    Joined(QueuePairId),
}

/// One software NIC with one port, moved on by whoever calls.
#[derive(Debug)]
pub(crate) struct Nic {
    device: SoftDevice,
    port: SoftPort,
    /// Objects that can be registered are made for a queue pair; here they are made before any is.
    anchor: QueuePairId,
    address: SocketAddr,
    next_ticket: u64,
    answers: HashMap<Ticket, Result<Answer, CommandError>>,
    news: VecDeque<News>,
}

impl Nic {
    /// A NIC that no other of the fabric shares its number with.
    pub(crate) fn new(fabric: &SoftFabric, options: SoftOptions, number: u32) -> Result<Self, CommandError> {
        let mut device = fabric.device(options);
        let port = device.open_port(COMPLETIONS, COMPLETIONS)?;
        let address = SocketAddr::new(Ipv6Addr::from(u128::from(number)).into(), 1);
        let (answers, news) = (HashMap::new(), VecDeque::new());
        let mut nic = Self { device, port, anchor: QueuePairId(0), address, next_ticket: 0, answers, news };
        let domain = nic.allocate_domain()?;
        nic.anchor = nic.create_queue_pair(domain, QueueSizes { send: 1, receive: 1, max_send_sge: 1 }, None)?;
        nic.command(Command::Listen { address })?;
        Ok(nic)
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    /// Bytes that peers reach.
    pub(crate) fn remote_bytes(&self) -> u64 {
        self.port.remote_bytes_open().unwrap_or(0)
    }

    /// What happened next.
    pub(crate) fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Moves on by one step.
    pub(crate) fn step(&mut self) {
        let mut batch = CompletionBatch::new();
        for queue in [CompletionQueue::Receive, CompletionQueue::Send] {
            // Its own queues never overrun; those that programs see may.
            loop {
                let taken = self.port.poll(queue, &mut batch);
                self.news.extend(batch.drain(..).map(|completion| News::Completion(queue, completion)));
                if taken < MAX_COMPLETIONS_PER_POLL {
                    break;
                }
            }
        }
        while let Some(event) = self.device.poll() {
            match event {
                DeviceEvent::Answered { ticket, result } => drop(self.answers.insert(ticket, result)),
                DeviceEvent::Async(event) => self.news.push_back(News::Async(event)),
                DeviceEvent::Connection(event) => self.connection_event(event),
            }
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Request { incoming, private_data, .. } => {
                let number = private_data.as_slice().try_into().map_or(0, u32::from_le_bytes);
                self.news.push_back(News::Asked { incoming, number });
            }
            ConnectionEvent::Established { queue_pair, .. } => self.news.push_back(News::Joined(queue_pair)),
            // Ends are told by the connection manager that this crate has of its own.
            ConnectionEvent::Rejected { .. }
            | ConnectionEvent::Unreachable { .. }
            | ConnectionEvent::Disconnected { .. } => {}
        }
    }

    fn submit(&mut self, command: Command) -> Result<Ticket, CommandError> {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let mut command = Some(command);
        for _ in 0..PATIENCE {
            match self.device.submit(ticket, command.take().ok_or(CommandError::INVALID)?) {
                Ok(()) => return Ok(ticket),
                Err(refused) => command = Some(refused),
            }
            self.step();
        }
        Err(CommandError::DEVICE_GONE)
    }

    /// Runs a command to its answer.
    pub(crate) fn command(&mut self, command: Command) -> Result<Answer, CommandError> {
        let ticket = self.submit(command)?;
        for _ in 0..PATIENCE {
            if let Some(answer) = self.answers.remove(&ticket) {
                return answer;
            }
            self.step();
        }
        Err(CommandError::DEVICE_GONE)
    }

    pub(crate) fn allocate_domain(&mut self) -> Result<DomainId, CommandError> {
        match self.command(Command::AllocateDomain)? {
            Answer::Domain(domain) => Ok(domain),
            _ => Err(CommandError::INVALID),
        }
    }

    pub(crate) fn register_memory(
        &mut self,
        domain: DomainId,
        memory: DeviceMemory,
        local_write: bool,
    ) -> Result<(frwr_engine::provider::BaseId, u32), CommandError> {
        match self.command(Command::RegisterMemory { domain, memory, local_write })? {
            Answer::Base { base, lkey } => Ok((base, lkey)),
            _ => Err(CommandError::INVALID),
        }
    }

    pub(crate) fn create_queue_pair(
        &mut self,
        domain: DomainId,
        sizes: QueueSizes,
        shared_receives: Option<SharedReceiveQueueId>,
    ) -> Result<QueuePairId, CommandError> {
        let port = self.port.id();
        match self.command(Command::CreateQueuePair { port, domain, sizes, shared_receives })? {
            Answer::QueuePair { queue_pair, .. } => Ok(queue_pair),
            _ => Err(CommandError::INVALID),
        }
    }

    pub(crate) fn create_shared_receive_queue(
        &mut self,
        domain: DomainId,
        entries: u32,
    ) -> Result<SharedReceiveQueueId, CommandError> {
        let port = self.port.id();
        match self.command(Command::CreateSharedReceiveQueue { port, domain, entries })? {
            Answer::SharedReceiveQueue { queue, .. } => Ok(queue),
            _ => Err(CommandError::INVALID),
        }
    }

    pub(crate) fn allocate_registration(
        &mut self,
        domain: DomainId,
        depth: u32,
    ) -> Result<(RegistrationId, u32), CommandError> {
        let (port, queue_pair) = (self.port.id(), self.anchor);
        match self.command(Command::AllocateRegistration { port, domain, queue_pair, depth })? {
            Answer::Registration { object, key } => Ok((object, key)),
            _ => Err(CommandError::INVALID),
        }
    }

    /// Where other NICs of the fabric ask for one of its queue pairs.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to join a queue pair to the one of a number behind an address.
    pub(crate) fn join(
        &mut self,
        queue_pair: QueuePairId,
        address: SocketAddr,
        number: u32,
        parameters: ConnectionParameters,
    ) -> Result<(), CommandError> {
        let private_data: PrivateData = number.to_le_bytes().into_iter().collect();
        self.command(Command::Connect { queue_pair, address, private_data, parameters }).map(drop)
    }

    /// Lets itself be joined.
    pub(crate) fn accept(&mut self, incoming: IncomingId, queue_pair: QueuePairId, parameters: ConnectionParameters) {
        let private_data = PrivateData::new();
        // Whoever asked hears of it, or that it failed, by the queue pair.
        let _ = self.submit(Command::Accept { incoming, queue_pair, private_data, parameters });
    }

    pub(crate) fn post(&mut self, queue_pair: QueuePairId, chain: Chain<'_>) -> Result<(), PostError> {
        self.port.post(queue_pair, chain)
    }

    pub(crate) fn post_receives(
        &mut self,
        queue_pair: QueuePairId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        self.port.post_receives(queue_pair, receives)
    }

    pub(crate) fn post_shared_receives(
        &mut self,
        queue: SharedReceiveQueueId,
        receives: &[ReceiveRequest],
    ) -> Result<(), PostError> {
        self.port.post_shared_receives(queue, receives)
    }
}
