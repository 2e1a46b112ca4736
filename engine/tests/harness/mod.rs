//! Two devices, stepped by one thread: what the conformance suite needs of any provider. Only `soft` and `any` know the
//! software NIC, and only `any` and `verbs` a real one.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of the harness")]

pub mod any;
pub mod deviations;
#[cfg(feature = "verbs")]
pub mod fake;
pub use frwr_support::pace;
pub mod pair;
pub mod soft;
pub mod subject;
#[cfg(feature = "verbs")]
mod verbs;

use frwr_engine::provider::{
    Access, Answer, BaseId, Capabilities, Command, CommandError, Completion, CompletionBatch, CompletionQueue,
    ConnectionEvent, ConnectionParameters, Device, DeviceEvent, DomainId, Port, PostError, PrivateData, QueuePairId,
    QueueSizes, ReceiveRequest, RegistrationFields, RegistrationId, ScatterElement, SharedReceiveQueueId, Ticket,
    Token, TokenKind, WorkRequest,
};
use frwr_engine::provider::{Chain, ElementRange, FailureStatus, Operation, RemoteRange};
use frwr_mempool::{DeviceMemory, PagePolicy, Region, RegionOptions};

use pace::{Pace, Patience};

/// What the conformance suite runs on.
pub type TestPair = pair::Pair<any::AnyDevice>;

/// Bytes of the memory that each host registers.
pub const MEMORY: usize = 1 << 20;
/// Sizes of the queue pairs of tests that do not care.
pub const SIZES: QueueSizes = QueueSizes { send: 64, receive: 64, max_send_sge: 4 };

/// Plain memory, as a device sees it.
pub fn memory(bytes: usize) -> DeviceMemory {
    let options = RegionOptions::new(bytes).pages(PagePolicy::Ladder { allow_plain: true });
    let mut region = Region::map(&options).expect("plain pages are to be had");
    region.carve(bytes, 4096).expect("the region is large enough").into_device_memory()
}

/// One machine: a device, one port, a domain and a base registration.
pub struct Host<D: Device> {
    pub device: D,
    pub port: D::Port,
    pub domain: DomainId,
    pub memory: DeviceMemory,
    pub base: BaseId,
    pub lkey: u32,
    pub pace: Pace,
    /// Every base registration by its local key.
    bases: Vec<(u32, BaseId)>,
    /// What the device granted to each queue pair.
    granted: Vec<(QueuePairId, QueueSizes)>,
    pub events: Vec<DeviceEvent>,
    pub sent: Vec<Completion>,
    pub received: Vec<Completion>,
    ticket: u64,
}

/// A registration object and the key it has now.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub object: RegistrationId,
    pub key: u32,
}

impl Slot {
    /// The key after this one, as `ibv_inc_rkey` makes it; the same where keys do not rotate.
    pub fn next_key(&self, capabilities: &Capabilities) -> u32 {
        if capabilities.rotating_key_bits == 0 {
            return self.key;
        }
        (self.key & !0xff) | (self.key.wrapping_add(1) & 0xff)
    }
}

/// A grant as the peer gets it.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub key: u32,
    pub address: u64,
}

impl Grant {
    pub fn at(self, offset: u64) -> RemoteRange {
        RemoteRange { address: self.address.wrapping_add(offset), key: self.key }
    }
}

impl<D: Device> Host<D> {
    pub fn new(device: D) -> Self {
        Self::with_completion_queues(device, 1024, 1024)
    }

    pub fn with_completion_queues(mut device: D, send: u32, receive: u32) -> Self {
        let port = device.open_port(send, receive).expect("a first port");
        let mut host = Self {
            pace: Pace::of(device.capabilities()),
            device,
            port,
            domain: DomainId(0),
            memory: memory(MEMORY),
            base: BaseId(0),
            lkey: 0,
            bases: Vec::new(),
            granted: Vec::new(),
            events: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            ticket: 0,
        };
        host.domain = host.new_domain();
        (host.base, host.lkey) = host.register(host.domain, host.memory.clone(), true);
        host
    }

    pub fn capabilities(&self) -> Capabilities {
        *self.device.capabilities()
    }

    /// How long this host's device may take.
    pub fn patience(&self) -> Patience {
        self.pace.patience()
    }

    /// Moved on by a kernel, so that nothing happens step by step.
    pub fn is_real(&self) -> bool {
        self.pace == Pace::Clock
    }

    /// Reached through libibverbs, whoever stands for it.
    pub fn has_verbs(&self) -> bool {
        !self.device.capabilities().name.starts_with("soft:")
    }

    /// Bytes that a peer can reach now, where the device can be asked.
    pub fn assert_open(&self, bytes: u64) {
        if let Some(open) = self.port.remote_bytes_open() {
            assert_eq!(open, bytes, "bytes that a peer can reach");
        }
    }

    /// Everything that came so far and was not taken.
    pub fn heard(&self) -> usize {
        self.sent.len() + self.received.len() + self.events.len()
    }

    /// One step: everything polled once.
    pub fn step(&mut self) {
        let mut batch = CompletionBatch::new();
        self.port.poll(CompletionQueue::Receive, &mut batch);
        self.received.extend(batch.drain(..));
        self.port.poll(CompletionQueue::Send, &mut batch);
        self.sent.extend(batch.drain(..));
        while let Some(event) = self.device.poll() {
            self.events.push(event);
        }
    }

    /// Progress without taking any completion: a batch that is full already.
    pub fn step_without_taking(&mut self) {
        let mut batch = CompletionBatch::new();
        let filler = Completion { token: Token(0), queue_pair: QueuePairId(0), result: Ok(Default::default()) };
        while batch.try_push(filler).is_ok() {}
        self.port.poll(CompletionQueue::Receive, &mut batch);
        while let Some(event) = self.device.poll() {
            self.events.push(event);
        }
    }

    /// Runs a command to its answer; only this host is stepped.
    pub fn command(&mut self, command: Command) -> Result<Answer, CommandError> {
        self.ticket += 1;
        let mine = Ticket(self.ticket);
        self.device.submit(mine, command).expect("the device takes a command");
        let mut patience = self.patience();
        while patience.is_left() {
            let position =
                self.events.iter().position(|e| matches!(e, DeviceEvent::Answered { ticket, .. } if *ticket == mine));
            if let Some(DeviceEvent::Answered { result, .. }) = position.map(|place| self.events.remove(place)) {
                return result;
            }
            self.step();
        }
        panic!("a command was never answered");
    }

    pub fn new_domain(&mut self) -> DomainId {
        match self.command(Command::AllocateDomain) {
            Ok(Answer::Domain(domain)) => domain,
            other => panic!("no domain: {other:?}"),
        }
    }

    pub fn register(&mut self, domain: DomainId, memory: DeviceMemory, local_write: bool) -> (BaseId, u32) {
        match self.command(Command::RegisterMemory { domain, memory, local_write }) {
            Ok(Answer::Base { base, lkey }) => {
                self.bases.push((lkey, base));
                (base, lkey)
            }
            other => panic!("no base registration: {other:?}"),
        }
    }

    pub fn queue_pair(&mut self, sizes: QueueSizes) -> QueuePairId {
        self.queue_pair_in(self.domain, sizes)
    }

    pub fn queue_pair_in(&mut self, domain: DomainId, sizes: QueueSizes) -> QueuePairId {
        self.create_queue_pair(domain, sizes, None)
    }

    /// A queue pair that receives from a shared queue.
    pub fn queue_pair_sharing(&mut self, queue: SharedReceiveQueueId) -> QueuePairId {
        self.queue_pair_sharing_in(self.domain, queue)
    }

    pub fn queue_pair_sharing_in(&mut self, domain: DomainId, queue: SharedReceiveQueueId) -> QueuePairId {
        self.create_queue_pair(domain, SIZES, Some(queue))
    }

    fn create_queue_pair(
        &mut self,
        domain: DomainId,
        sizes: QueueSizes,
        shared_receives: Option<SharedReceiveQueueId>,
    ) -> QueuePairId {
        let port = self.port.id();
        match self.command(Command::CreateQueuePair { port, domain, sizes, shared_receives }) {
            Ok(Answer::QueuePair { queue_pair, sizes }) => {
                self.granted.push((queue_pair, sizes));
                queue_pair
            }
            other => panic!("no queue pair: {other:?}"),
        }
    }

    pub fn shared_receive_queue(&mut self, entries: u32) -> SharedReceiveQueueId {
        let (port, domain) = (self.port.id(), self.domain);
        match self.command(Command::CreateSharedReceiveQueue { port, domain, entries }) {
            Ok(Answer::SharedReceiveQueue { queue, entries: granted }) => {
                assert!(granted >= entries, "{granted} of {entries}");
                queue
            }
            other => panic!("no shared receive queue: {other:?}"),
        }
    }

    /// Sizes of a queue pair as the device granted them.
    pub fn granted(&self, queue_pair: QueuePairId) -> QueueSizes {
        let found = self.granted.iter().rev().find(|(id, _)| *id == queue_pair);
        found.map(|(_, sizes)| *sizes).expect("a queue pair of this host")
    }

    pub fn slot(&mut self, queue_pair: QueuePairId) -> Slot {
        self.slot_in(self.domain, queue_pair)
    }

    pub fn slot_in(&mut self, domain: DomainId, queue_pair: QueuePairId) -> Slot {
        let depth = self.capabilities().attributes.max_fast_reg_page_list_len;
        let port = self.port.id();
        match self.command(Command::AllocateRegistration { port, domain, queue_pair, depth }) {
            Ok(Answer::Registration { object, key }) => Slot { object, key },
            other => panic!("no registration object: {other:?}"),
        }
    }

    pub fn element(&self, offset: u64, length: u32) -> ScatterElement {
        ScatterElement { address: self.memory.address() + offset, length, lkey: self.lkey }
    }

    /// The base registration that an element names.
    pub fn base_of(&self, element: Option<&ScatterElement>) -> BaseId {
        let named = |(lkey, _): &&(u32, BaseId)| element.is_some_and(|element| element.lkey == *lkey);
        self.bases.iter().find(named).map_or(self.base, |(_, base)| *base)
    }

    pub fn write_memory(&self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes).expect("inside the memory");
    }

    pub fn read_memory(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(offset, &mut bytes).expect("inside the memory");
        bytes
    }

    /// Posts a chain that is built work request by work request.
    pub fn post(&mut self, queue_pair: QueuePairId, chain: &Builder) -> Result<(), PostError> {
        self.port.post(queue_pair, Chain { requests: &chain.requests, elements: &chain.elements })
    }

    /// Posts receives of 1 KiB each at the end of the memory; tokens count from `first`.
    pub fn post_receives(&mut self, queue_pair: QueuePairId, first: u32, count: u32) {
        for receive in receives(self, first, count) {
            self.port.post_receives(queue_pair, &[receive]).expect("room for a receive");
        }
    }

    /// The same to a shared queue, in one post.
    pub fn post_shared_receives(&mut self, queue: SharedReceiveQueueId, first: u32, count: u32) {
        let receives: Vec<_> = receives(self, first, count).collect();
        self.port.post_shared_receives(queue, &receives).expect("room for receives");
    }

    /// Whether an event of the connection manager waits to be taken.
    pub fn has_connection_event(&self) -> bool {
        self.events.iter().any(|event| matches!(event, DeviceEvent::Connection(_)))
    }

    /// Whether private data is this text. The connection manager of InfiniBand fills it up with zeros (rdma_get_cm_event(3)).
    pub fn is_text(&self, private_data: &[u8], text: &[u8]) -> bool {
        match private_data.split_at_checked(text.len()) {
            Some((front, rest)) => {
                front == text && (rest.is_empty() || self.has_verbs() && rest.iter().all(|b| *b == 0))
            }
            None => false,
        }
    }

    /// Takes connection events that came so far.
    pub fn connection_events(&mut self) -> Vec<ConnectionEvent> {
        let mut found = Vec::new();
        self.events.retain(|event| match event {
            DeviceEvent::Connection(event) => {
                found.push(event.clone());
                false
            }
            _ => true,
        });
        found
    }

    pub fn private_data(text: &str) -> PrivateData {
        text.bytes().take(PrivateData::new().capacity()).collect()
    }

    pub fn connect(&mut self, queue_pair: QueuePairId, address: std::net::SocketAddr, limits: ConnectionParameters) {
        let private_data = Self::private_data("request");
        let command = Command::Connect { queue_pair, address, private_data, parameters: limits };
        assert_eq!(self.command(command), Ok(Answer::Done));
    }
}

/// Receives of 1 KiB each at the end of a host's memory; tokens count from `first`.
pub fn receives<D: Device>(host: &Host<D>, first: u32, count: u32) -> impl Iterator<Item = ReceiveRequest> + use<D> {
    let start = host.element((MEMORY / 2) as u64, 1024);
    (first..first + count).map(move |index| {
        let address = start.address + u64::from(index % 256) * 1024;
        ReceiveRequest { token: Token::new(TokenKind::Receive, index, 0), element: ScatterElement { address, ..start } }
    })
}

/// A chain in the making.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    pub requests: Vec<WorkRequest>,
    pub elements: Vec<ScatterElement>,
}

impl Builder {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn range(&mut self, elements: &[ScatterElement]) -> ElementRange {
        let first = self.elements.len() as u32;
        self.elements.extend_from_slice(elements);
        ElementRange { first, count: elements.len() as u32 }
    }

    /// Appends an operation; its token is its place in the chain plus `1000 * generation`.
    pub fn push(mut self, operation: Operation) -> Self {
        let token = Token::new(TokenKind::Message, self.requests.len() as u32, 0);
        self.requests.push(WorkRequest { token, signalled: false, fence: false, operation });
        self
    }

    /// Asks for a completion of the last one.
    pub fn signalled(mut self) -> Self {
        if let Some(request) = self.requests.last_mut() {
            request.signalled = true;
        }
        self
    }

    pub fn fenced(mut self) -> Self {
        if let Some(request) = self.requests.last_mut() {
            request.fence = true;
        }
        self
    }

    pub fn send(mut self, elements: &[ScatterElement]) -> Self {
        let local = self.range(elements);
        self.push(Operation::Send { local, invalidate: None })
    }

    pub fn send_invalidating(mut self, elements: &[ScatterElement], key: u32) -> Self {
        let local = self.range(elements);
        self.push(Operation::Send { local, invalidate: Some(key) })
    }

    pub fn write(mut self, elements: &[ScatterElement], remote: RemoteRange) -> Self {
        let local = self.range(elements);
        self.push(Operation::Write { local, remote })
    }

    pub fn read(mut self, elements: &[ScatterElement], remote: RemoteRange) -> Self {
        let local = self.range(elements);
        self.push(Operation::Read { local, remote })
    }

    pub fn invalidate(self, slot: Slot) -> Self {
        self.push(Operation::Invalidate { object: slot.object, key: slot.key })
    }

    /// Registers, rotating the key, and says what the peer gets.
    pub fn register<D: Device>(
        mut self,
        host: &Host<D>,
        slot: &mut Slot,
        elements: &[ScatterElement],
        access: Access,
    ) -> (Self, Grant) {
        let range = self.range(elements);
        let fields = fields(host, slot, elements, access, range);
        slot.key = fields.key;
        let grant = Grant { key: fields.key, address: fields.iova };
        (self.push(Operation::Register(fields)), grant)
    }
}

/// The fields of a good registration with the next key.
pub fn fields<D: Device>(
    host: &Host<D>,
    slot: &Slot,
    elements: &[ScatterElement],
    access: Access,
    range: ElementRange,
) -> RegistrationFields {
    use frwr_engine::provider::BaseAddress;
    let capabilities = host.capabilities();
    let first = elements.first().map_or(0, |element| element.address);
    RegistrationFields {
        object: slot.object,
        base: host.base_of(elements.first()),
        old_key: slot.key,
        key: slot.next_key(&capabilities),
        access,
        iova: match capabilities.base_address {
            BaseAddress::Virtual => first,
            BaseAddress::Zero => 0,
            BaseAddress::Any => 0x0a0b_0c0d_0000_0000 | (first & 0xffff_ffff),
        },
        length: elements.iter().map(|element| element.length).sum(),
        elements: range,
    }
}

/// The results of completions, in order: `None` is success.
pub fn statuses(completions: &[Completion]) -> Vec<Option<FailureStatus>> {
    completions.iter().map(status).collect()
}

/// The same of one.
pub fn status(completion: &Completion) -> Option<FailureStatus> {
    completion.result.err().map(|failure| failure.status)
}

/// A pattern that shows misplaced bytes.
pub fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8).wrapping_add(seed))
        .collect()
}
