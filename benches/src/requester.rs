//! A ready requester on the null device, for the programs that count instructions.

use core::time::Duration;
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, ConnectionOptions, Engine, EngineOptions, Event, MemoryAccess,
    Message, Protocol, RequestHandle, RequestStatus, Statistics, SubmitError,
    control::Control,
    gather::Segment,
    mr::Grant,
    provider::{
        Access, BaseId, Device, ElementRange, Operation, Port, RegistrationFields, RegistrationId, Token, TokenKind,
        WorkRequest,
    },
};
use frwr_mempool::{
    Region,
    region::{PagePolicy, RegionOptions},
};
use std::error::Error;

/// Bytes of a message: an NVMe command.
pub const MESSAGE_BYTES: usize = 64;

/// Bytes of a segment.
pub const PAGE: u32 = 4096;

/// Bytes of the caller's memory.
const MEMORY_BYTES: usize = 8 << 20;

/// Requests that may wait for their reply; a power of two.
const OUTSTANDING: usize = 256;

/// Replies come in order: the oldest request is meant.
pub struct InOrder {
    handles: Box<[RequestHandle; OUTSTANDING]>,
    sent: usize,
    replied: usize,
}

impl Default for InOrder {
    fn default() -> Self {
        Self { handles: Box::new([RequestHandle::from_parts(0, 0); OUTSTANDING]), sent: 0, replied: 0 }
    }
}

impl InOrder {
    /// The next reply but those of earlier requests is this one's.
    #[inline(always)]
    pub fn sent(&mut self, handle: RequestHandle) {
        self.handles[self.sent % OUTSTANDING] = handle;
        self.sent += 1;
    }
}

impl Protocol for InOrder {
    /// As of a protocol whose messages carry a name, such as NVMe's: it is read, though nothing depends on it here.
    const CLASSIFIED_BYTES: usize = 16;

    #[inline(always)]
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        let grant = announced.grants().first().ok_or(AnnounceError)?;
        write_grant(message.first_chunk_mut().ok_or(AnnounceError)?, grant);
        Ok(())
    }

    #[inline(always)]
    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        if self.replied == self.sent {
            return Message::Malformed;
        }
        let handle = self.handles[self.replied % OUTSTANDING];
        self.replied += 1;
        Message::Reply(handle)
    }
}

/// Names memory in a message, where an NVMe command does.
#[inline(always)]
pub fn write_grant(message: &mut [u8; MESSAGE_BYTES], grant: &Grant) {
    message[24..32].copy_from_slice(&grant.address.to_le_bytes());
    message[32..36].copy_from_slice(&grant.key.to_le_bytes());
}

/// What an engine would post for one request, for loops without an engine: a registration, and its message, which asks for a
/// completion or does not.
#[must_use]
pub fn prepared(at: u32, signalled: bool) -> [WorkRequest; 2] {
    let fields = RegistrationFields {
        object: RegistrationId(at),
        base: BaseId(1),
        old_key: 1,
        key: at + 1,
        access: Access::RemoteWrite,
        iova: 0,
        length: PAGE,
        elements: ElementRange { first: at, count: 1 },
    };
    let send = Operation::Send { local: ElementRange { first: at, count: 1 }, invalidate: None };
    let request =
        |kind, signalled, operation| WorkRequest { token: Token::new(kind, at, 1), signalled, fence: false, operation };
    [request(TokenKind::Register, false, Operation::Register(fields)), request(TokenKind::Message, signalled, send)]
}

/// What an engine posted between two readings of its counters, and what its device completed, as programs print it.
#[must_use]
pub fn posted(before: &Statistics, after: &Statistics) -> String {
    format!(
        "{} doorbells, {} work requests, {} send completions",
        after.doorbells - before.doorbells,
        after.work_requests - before.work_requests,
        after.send_completions - before.send_completions
    )
}

/// One engine with one connection, and memory of the caller.
pub struct Requester<D: Device, U = InOrder> {
    /// The engine.
    pub engine: Engine<D::Port>,
    /// Its connection, ready.
    pub connection: ConnectionId,
    /// The upper layer.
    pub protocol: U,
    memory: frwr_engine::gather::MemoryId,
    control: Control<D>,
    // Mapped as long as the engine lives.
    _region: Region,
}

/// One connection, 32 requests at a time.
#[must_use]
pub fn usual_options() -> EngineOptions {
    EngineOptions::default().connections(1).queue_depth(32)
}

impl<D: Device> Requester<D> {
    /// Opens it over a device.
    ///
    /// # Errors
    /// What the engine or the system refuses.
    pub fn open(device: D, options: &EngineOptions) -> Result<Self, Box<dyn Error>> {
        Self::with_protocol(device, options)
    }
}

impl<D: Device, U: Protocol + Default> Requester<D, U> {
    /// The same with another upper layer.
    ///
    /// # Errors
    /// What the engine or the system refuses.
    pub fn with_protocol(device: D, options: &EngineOptions) -> Result<Self, Box<dyn Error>> {
        let mut control = Control::new(device);
        let capabilities = *control.device().capabilities();
        let bytes = Engine::<D::Port>::region_bytes(options, &capabilities)? + 2 * MEMORY_BYTES;
        let mut region = Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Ladder { allow_plain: true }))?;
        let (send, receive) = Engine::<D::Port>::completion_entries(options, &capabilities)?;
        let (port, link) = control.open_core(send, receive)?;
        let mut engine = Engine::new(port, link, &mut region, options.clone(), &capabilities)?;
        let memory = engine
            .add_memory(region.carve(MEMORY_BYTES, PAGE as usize)?.into_device_memory(), MemoryAccess::ReadWrite)?;
        let connection = connect(&mut engine, options)?;
        let protocol = U::default();
        let mut requester = Self { engine, connection, protocol, memory, control, _region: region };
        requester.settle(connection);
        Ok(requester)
    }

    /// Opens a further connection.
    ///
    /// # Errors
    /// What the engine refuses.
    pub fn connect(&mut self, options: &EngineOptions) -> Result<ConnectionId, Box<dyn Error>> {
        let connection = connect(&mut self.engine, options)?;
        self.settle(connection);
        Ok(connection)
    }

    fn settle(&mut self, connection: ConnectionId) {
        while !self.engine.is_ready(connection) {
            self.step();
            while self.engine.next_event().is_some() {}
        }
    }

    /// One iteration with Control's.
    pub fn step(&mut self) {
        self.control.poll();
        self.engine.poll(Duration::ZERO, &mut self.protocol);
        self.engine.flush();
    }

    /// `count` pages of the memory from its start on, `stride` pages apart.
    #[must_use]
    pub fn pages(&self, count: u64, stride: u64) -> Vec<Segment> {
        (0..count)
            .map(|at| Segment { memory: self.memory, offset: at * stride * u64::from(PAGE), length: PAGE })
            .collect()
    }

    /// Registers memory once, for any number of requests.
    ///
    /// # Errors
    /// What the engine refuses.
    pub fn register(&mut self, segments: &[Segment]) -> Result<Grant, Box<dyn Error>> {
        let chunk = Chunk { access: Access::RemoteWrite, segments };
        self.engine.register_now(self.connection, &chunk, 0, &mut self.protocol)?;
        loop {
            self.step();
            while let Some(event) = self.engine.next_event() {
                if let Event::Registered { grant, .. } = event {
                    return Ok(grant);
                }
            }
        }
    }
}

/// How much a program does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests in all.
    pub requests: u64,
    /// Under way at most.
    pub batch: u64,
}

/// Submits what fits, flushes, and takes what ended, until all requests have. `submit` is told which it is, from 0; what `polled` does
/// comes behind the events of each poll. Returns how many ended.
///
/// # Errors
/// What the engine refuses.
#[inline(always)]
pub fn run<P: Port, U: Protocol>(
    engine: &mut Engine<P>,
    protocol: &mut U,
    load: Load,
    mut submit: impl FnMut(&mut Engine<P>, &mut U, u64) -> Result<(), SubmitError>,
    mut polled: impl FnMut(),
) -> Result<u64, SubmitError> {
    let Load { requests, batch } = load;
    let (mut done, mut submitted) = (0, 0);
    while done < requests {
        engine.poll(Duration::from_nanos(done), protocol);
        // Anything else than a reply ends the run: `done` would never get there.
        while let Some(Event::Completed { status: RequestStatus::Replied(received), .. }) = engine.next_event() {
            engine.release(received);
            done += 1;
        }
        polled();
        while submitted < requests && submitted - done < batch {
            submit(engine, protocol, submitted)?;
            submitted += 1;
        }
        engine.flush();
    }
    Ok(done)
}

fn connect<P: Port>(engine: &mut Engine<P>, options: &EngineOptions) -> Result<ConnectionId, Box<dyn Error>> {
    let connect = ConnectionOptions::default().peer_receives(options.queue_depth);
    Ok(engine.connect("127.0.0.1:1".parse()?, b"", &connect)?)
}
