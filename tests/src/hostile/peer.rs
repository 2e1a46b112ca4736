//! Connections, messages and keys without any rule of an upper layer: what an engine would keep its caller from doing.

use core::time::Duration;
use frwr_engine::provider::BaseId;
use frwr_engine::provider::{
    Access, Answer, Chain, Command, CommandError, CompletionBatch, CompletionQueue, ConnectionEvent,
    ConnectionParameters, Device, DeviceEvent, DomainId, ElementRange, FailureStatus, Operation, Port, PrivateData,
    QueuePairId, QueueSizes, ReceiveRequest, RegistrationFields, RemoteRange, ScatterElement, Ticket, Token, TokenKind,
    WorkRequest,
};
use frwr_mempool::{DeviceMemory, PagePolicy, PageSize, Region, RegionOptions};
use frwr_nvmf::wire::{COMMAND_CAPSULE_BYTES, CompletionQueueEntry, RESPONSE_CAPSULE_BYTES, parse_response};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// Completions that may wait: of all connections of a flood.
const COMPLETIONS: u32 = 8192;
/// Work requests of one connection.
const SENDS: u32 = 128;
/// Receives of one connection: responses that may wait.
const RECEIVES: u32 = 64;
/// Bytes of the longest message.
const MESSAGE_BYTES: usize = 128 << 10;
/// Messages of one post.
const MESSAGES: usize = 16;
/// Bytes of what is offered to the target.
const DATA_BYTES: usize = 1 << 20;
/// Where responses go; where messages begin; where the data begins. Responses are told apart when they arrive, and no two
/// connections are used side by side for long.
const MESSAGES_AT: usize = RECEIVES as usize * RESPONSE_CAPSULE_BYTES;
const DATA_AT: usize = 4096 + MESSAGES * MESSAGE_BYTES;
const MEMORY_BYTES: usize = DATA_AT + DATA_BYTES;
const _: () = assert!(MESSAGES_AT <= 4096);

/// Everything but the peer.
pub trait World {
    /// Lets it go on a little. Returns the time.
    fn pass(&mut self) -> Duration;

    /// How long the peer waits for anything.
    fn patience(&self) -> Duration;
}

/// How a connection attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialed {
    /// There is a connection.
    Up(QueuePairId),
    /// The target said no, with these bytes.
    Rejected(Vec<u8>),
    /// Nobody answered.
    Unreachable,
}

/// A protection domain with the peer's memory.
#[derive(Clone, Copy, Debug)]
struct Domain {
    domain: DomainId,
    base: BaseId,
    lkey: u32,
}

impl Default for Domain {
    fn default() -> Self {
        Self { domain: DomainId(0), base: BaseId(0), lkey: 0 }
    }
}

/// A peer.
pub struct Peer<D: Device, W> {
    device: D,
    port: D::Port,
    /// Everything else.
    pub world: W,
    address: SocketAddr,
    domain: Domain,
    /// A second one, whose keys lead nowhere on connections of the first.
    other: Domain,
    memory: DeviceMemory,
    ticket: u64,
    answers: HashMap<Ticket, Result<Answer, CommandError>>,
    dialed: HashMap<QueuePairId, Dialed>,
    /// Connections that do not work any more: ended by the target, or failed.
    ended: HashMap<QueuePairId, Option<FailureStatus>>,
    /// Those that the target has ended.
    left: HashSet<QueuePairId>,
    open: HashSet<QueuePairId>,
    /// Responses that nobody has looked at.
    responses: HashMap<QueuePairId, Vec<CompletionQueueEntry>>,
    registered: HashSet<Token>,
    /// Messages that have arrived.
    delivered: HashMap<QueuePairId, usize>,
    tokens: u32,
}

impl<D: Device, W: World> Peer<D, W> {
    /// A peer of the target at an address.
    ///
    /// # Errors
    /// What the device does not give.
    pub fn new(mut device: D, address: SocketAddr, world: W) -> Result<Self, String> {
        let port = device.open_port(COMPLETIONS, COMPLETIONS).map_err(|error| error.to_string())?;
        let options = RegionOptions::new(MEMORY_BYTES).pages(PagePolicy::Exactly(PageSize::Plain));
        let mut region = Region::map(&options).map_err(|error| error.to_string())?;
        let block = region.carve(MEMORY_BYTES, 4096).map_err(|error| error.to_string())?;
        let mut peer = Self {
            device,
            port,
            world,
            address,
            domain: Domain::default(),
            other: Domain::default(),
            memory: block.into_device_memory(),
            ticket: 0,
            answers: HashMap::new(),
            dialed: HashMap::new(),
            ended: HashMap::new(),
            left: HashSet::new(),
            open: HashSet::new(),
            responses: HashMap::new(),
            registered: HashSet::new(),
            delivered: HashMap::new(),
            tokens: 0,
        };
        (peer.domain, peer.other) = (peer.make_domain()?, peer.make_domain()?);
        Ok(peer)
    }

    fn make_domain(&mut self) -> Result<Domain, String> {
        let Answer::Domain(domain) = self.ask(Command::AllocateDomain)? else { return Err("no domain".to_owned()) };
        let memory = self.memory.clone();
        match self.ask(Command::RegisterMemory { domain, memory, local_write: true })? {
            Answer::Base { base, lkey } => Ok(Domain { domain, base, lkey }),
            _ => Err("no base registration".to_owned()),
        }
    }

    /// Uses the other protection domain from now on: for connections, keys and messages.
    pub fn change_domain(&mut self) {
        core::mem::swap(&mut self.domain, &mut self.other);
    }

    /// Lets the world and the device go on.
    pub fn pump(&mut self) -> Duration {
        let now = self.world.pass();
        while let Some(event) = self.device.poll() {
            match event {
                DeviceEvent::Answered { ticket, result } => drop(self.answers.insert(ticket, result)),
                DeviceEvent::Connection(event) => self.connection_event(event),
                DeviceEvent::Async(_) => {}
            }
        }
        for queue in [CompletionQueue::Send, CompletionQueue::Receive] {
            let mut batch = CompletionBatch::new();
            self.port.poll(queue, &mut batch);
            for completion in batch {
                match completion.result {
                    Ok(success) if queue == CompletionQueue::Receive => {
                        self.response(completion.queue_pair, completion.token.index(), success.bytes);
                    }
                    Ok(_) if completion.token.kind() == TokenKind::Register => {
                        self.registered.insert(completion.token);
                    }
                    Ok(_) => *self.delivered.entry(completion.queue_pair).or_default() += 1,
                    Err(failure) => self.failed(completion.queue_pair, failure.status),
                }
            }
        }
        now
    }

    fn connection_event(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Established { queue_pair, .. } => {
                self.open.insert(queue_pair);
                self.dialed.insert(queue_pair, Dialed::Up(queue_pair));
            }
            ConnectionEvent::Rejected { queue_pair, private_data, .. } => {
                self.dialed.insert(queue_pair, Dialed::Rejected(private_data.to_vec()));
            }
            ConnectionEvent::Unreachable { queue_pair, .. } => {
                drop(self.dialed.insert(queue_pair, Dialed::Unreachable))
            }
            ConnectionEvent::Disconnected { queue_pair } => {
                self.ended.entry(queue_pair).or_insert(None);
                self.left.insert(queue_pair);
            }
            ConnectionEvent::Request { .. } => {}
        }
    }

    fn failed(&mut self, queue_pair: QueuePairId, status: FailureStatus) {
        let known = self.ended.entry(queue_pair).or_insert(Some(status));
        // A flush is a consequence.
        if known.is_none_or(|known| known == FailureStatus::Flushed) {
            *known = Some(status);
        }
    }

    fn response(&mut self, queue_pair: QueuePairId, index: u32, bytes: u32) {
        let mut capsule = [0; RESPONSE_CAPSULE_BYTES];
        let read = self.memory.read(index as usize * RESPONSE_CAPSULE_BYTES, &mut capsule);
        if read.is_ok()
            && bytes as usize == RESPONSE_CAPSULE_BYTES
            && let Ok(response) = parse_response(&capsule)
        {
            self.responses.entry(queue_pair).or_default().push(response);
        }
    }

    /// Waits for something.
    ///
    /// # Errors
    /// Patience was over first.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), String> {
        let began = self.pump();
        while !done(self) {
            if self.pump().saturating_sub(began) > self.world.patience() {
                return Err(format!("never {what}"));
            }
        }
        Ok(())
    }

    fn submit(&mut self, command: Command) -> Result<Ticket, String> {
        self.ticket += 1;
        let (ticket, mut command) = (Ticket(self.ticket), Some(command));
        self.until("taken", |peer| {
            command = command.take().and_then(|command| peer.device.submit(ticket, command).err());
            command.is_none()
        })?;
        Ok(ticket)
    }

    /// Gives the device a command and waits for its answer.
    fn ask(&mut self, command: Command) -> Result<Answer, String> {
        let ticket = self.submit(command)?;
        self.until("answered by the device", |peer| peer.answers.contains_key(&ticket))?;
        let answer = self.answers.remove(&ticket).unwrap_or(Err(CommandError::Unknown));
        answer.map_err(|error| error.to_string())
    }

    /// Begins to connect, with any private data.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn begin_dial(&mut self, private_data: &[u8]) -> Result<QueuePairId, String> {
        let (port, domain) = (self.port.id(), self.domain.domain);
        let sizes = QueueSizes { send: SENDS, receive: RECEIVES, max_send_sge: 1 };
        let Answer::QueuePair { queue_pair, .. } =
            self.ask(Command::CreateQueuePair { port, domain, sizes, shared_receives: None })?
        else {
            return Err("no queue pair".to_owned());
        };
        for index in 0..RECEIVES {
            let element = self.element(index as usize * RESPONSE_CAPSULE_BYTES, RESPONSE_CAPSULE_BYTES);
            let receive = ReceiveRequest { token: Token::new(TokenKind::Receive, index, 0), element };
            self.port.post_receives(queue_pair, &[receive]).map_err(|error| error.to_string())?;
        }
        let (address, parameters) = (self.address, ConnectionParameters::default());
        let private_data: PrivateData = private_data.iter().copied().take(PrivateData::new().capacity()).collect();
        self.ask(Command::Connect { queue_pair, address, private_data, parameters })?;
        Ok(queue_pair)
    }

    /// How an attempt has ended; `None` where it goes on.
    pub fn dialed(&mut self, queue_pair: QueuePairId) -> Option<Dialed> {
        self.dialed.get(&queue_pair).cloned()
    }

    /// Connects, with any private data.
    ///
    /// # Errors
    /// Nothing came of it.
    pub fn dial(&mut self, private_data: &[u8]) -> Result<Dialed, String> {
        let queue_pair = self.begin_dial(private_data)?;
        self.until("connected or rejected", |peer| peer.dialed.contains_key(&queue_pair))?;
        let dialed = self.dialed.get(&queue_pair).cloned().unwrap_or(Dialed::Unreachable);
        if !matches!(dialed, Dialed::Up(_)) {
            self.hang_up(queue_pair)?;
        }
        Ok(dialed)
    }

    fn element(&self, offset: usize, length: usize) -> ScatterElement {
        // Both are bounded by the memory.
        ScatterElement { address: self.memory.address() + offset as u64, length: length as u32, lkey: self.domain.lkey }
    }

    fn token(&mut self, kind: TokenKind) -> Token {
        self.tokens += 1;
        Token::new(kind, 0, self.tokens)
    }

    fn post(
        &mut self,
        queue_pair: QueuePairId,
        operations: &[Operation],
        table: &[ScatterElement],
    ) -> Result<(), String> {
        let requests: Vec<WorkRequest> = operations
            .iter()
            .map(|&operation| {
                let token = self.token(TokenKind::Message);
                WorkRequest { token, signalled: true, fence: false, operation }
            })
            .collect();
        let chain = Chain { requests: &requests, elements: table };
        self.port.post(queue_pair, chain).map_err(|error| error.to_string())
    }

    /// Sends messages, at most `MESSAGES`, in one post.
    ///
    /// # Errors
    /// The device refuses them.
    pub fn send(&mut self, queue_pair: QueuePairId, messages: &[&[u8]]) -> Result<(), String> {
        self.send_invalidating(queue_pair, messages, None)
    }

    /// Sends messages that invalidate a key of the target.
    ///
    /// # Errors
    /// As [`Peer::send`].
    pub fn send_invalidating(
        &mut self,
        queue_pair: QueuePairId,
        messages: &[&[u8]],
        invalidate: Option<u32>,
    ) -> Result<(), String> {
        let (mut table, mut operations) = (Vec::new(), Vec::new());
        for (place, message) in messages.iter().enumerate() {
            let at = 4096 + place * MESSAGE_BYTES;
            self.memory.write(at, message).map_err(|error| error.to_string())?;
            // There are few.
            operations.push(Operation::Send { local: ElementRange { first: place as u32, count: 1 }, invalidate });
            table.push(self.element(at, message.len()));
        }
        self.post(queue_pair, &operations, &table)
    }

    /// Writes to the target's memory.
    ///
    /// # Errors
    /// As [`Peer::send`].
    pub fn write_remote(&mut self, queue_pair: QueuePairId, remote: RemoteRange) -> Result<(), String> {
        let table = [self.element(DATA_AT, COMMAND_CAPSULE_BYTES)];
        self.post(queue_pair, &[Operation::Write { local: ElementRange { first: 0, count: 1 }, remote }], &table)
    }

    /// Waits for the next response.
    ///
    /// # Errors
    /// The connection ended instead.
    pub fn response_on(&mut self, queue_pair: QueuePairId) -> Result<CompletionQueueEntry, String> {
        let waiting = |peer: &Self| peer.responses.get(&queue_pair).is_some_and(|responses| !responses.is_empty());
        self.until("answered", |peer| waiting(peer) || peer.ended.contains_key(&queue_pair))?;
        let first = self.responses.get_mut(&queue_pair).filter(|responses| !responses.is_empty());
        match first {
            Some(responses) => Ok(responses.remove(0)),
            None => Err(format!("the connection ended: {:?}", self.ended.get(&queue_pair))),
        }
    }

    /// Waits until as many messages of a connection have arrived.
    ///
    /// # Errors
    /// They did not.
    pub fn until_delivered(&mut self, queue_pair: QueuePairId, messages: usize) -> Result<(), String> {
        self.until("delivered", |peer| peer.delivered.get(&queue_pair).is_some_and(|count| *count >= messages))
    }

    /// Waits until the target has ended the connection. That it failed on this side is not enough: who hangs up at once may be
    /// heard before the target has seen the failure, and has then just ended its connection.
    ///
    /// # Errors
    /// It did not.
    pub fn until_ended(&mut self, queue_pair: QueuePairId) -> Result<(), String> {
        self.until("ended by the target", |peer| peer.left.contains(&queue_pair))?;
        self.hang_up(queue_pair)
    }

    /// Makes the first bytes of the data remotely accessible on a connection.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn register(&mut self, queue_pair: QueuePairId, access: Access, length: usize) -> Result<RemoteRange, String> {
        let (port, domain, capabilities) = (self.port.id(), self.domain.domain, *self.device.capabilities());
        let depth = capabilities.attributes.max_fast_reg_page_list_len;
        let Answer::Registration { object, key: old_key } =
            self.ask(Command::AllocateRegistration { port, domain, queue_pair, depth })?
        else {
            return Err("no registration".to_owned());
        };
        let rotates = capabilities.rotating_key_bits > 0;
        let key = if rotates { (old_key & !0xff) | (old_key.wrapping_add(1) & 0xff) } else { old_key };
        let element = self.element(DATA_AT, length);
        let fields = RegistrationFields {
            object,
            base: self.domain.base,
            old_key,
            key,
            access,
            iova: element.address,
            length: element.length,
            elements: ElementRange { first: 0, count: 1 },
        };
        let token = self.token(TokenKind::Register);
        let request = WorkRequest { token, signalled: true, fence: false, operation: Operation::Register(fields) };
        let chain = Chain { requests: &[request], elements: &[element] };
        self.port.post(queue_pair, chain).map_err(|error| error.to_string())?;
        self.until("registered", |peer| peer.registered.contains(&token) || peer.ended.contains_key(&queue_pair))?;
        if !self.registered.contains(&token) {
            return Err(format!("the device did not make the key: {:?}", self.ended.get(&queue_pair)));
        }
        Ok(RemoteRange { address: element.address, key })
    }

    /// Ends a connection or an attempt, in order or not, and forgets it.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn hang_up(&mut self, queue_pair: QueuePairId) -> Result<(), String> {
        if self.open.remove(&queue_pair) {
            // Refused where the target was first.
            let _ = self.ask(Command::Disconnect { queue_pair });
        }
        self.vanish(queue_pair)
    }

    /// Lets go of a connection without a word of our own.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn vanish(&mut self, queue_pair: QueuePairId) -> Result<(), String> {
        self.open.remove(&queue_pair);
        let _ = self.ask(Command::FailQueuePair { queue_pair });
        // What is flushed comes back before the queue pair and its number go.
        for _ in 0..FLUSHES {
            self.pump();
        }
        self.ask(Command::DestroyQueuePair { queue_pair })?;
        self.responses.remove(&queue_pair);
        Ok(())
    }

    /// Forgets how connections ended whose numbers may come again.
    pub fn forget(&mut self) {
        self.dialed.clear();
        self.ended.clear();
        self.left.clear();
        self.responses.clear();
        self.delivered.clear();
    }
}

/// Polls in which flushed work comes back.
const FLUSHES: usize = 16;
