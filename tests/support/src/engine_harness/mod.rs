//! A target and a host, each an engine on its own port, stepped by hand on one thread: over one software fabric, or over
//! any two devices that reach each other.

mod asleep;
pub mod scripted;
mod setup;
mod watch;
pub mod ways;

pub use asleep::while_control_sleeps;
pub use setup::Setup;
pub use watch::{Post, Watch, Watched, WatchedDevice, Wr};

use crate::pace::Pace;
use core::time::Duration;
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, ConnectionOptions, DisconnectCause, Engine, EngineOptions, Event,
    MemoryAccess, Message, OpenError, Protocol, Received, RemoteSegment, RequestHandle, RequestStatus, ResponseRequest,
    SendRequest, Submission, WatchedClock,
    control::Control,
    gather::{MemoryId, Segment},
    mr::Grant,
    provider::{
        Access, ConnectionParameters, Device, Errno, IncomingId, Port, PostRefusal, RemoteRange, TokenKind,
        soft::SoftDevice,
    },
};
use frwr_mempool::{DeviceMemory, PagePolicy, Region, region::RegionOptions};
use std::net::SocketAddr;

/// Why posts were refused that connections ended by, with the numbers that the device said.
pub fn post_refusals(causes: &[DisconnectCause]) -> Vec<(PostRefusal, Errno)> {
    let refusal = |cause: &DisconnectCause| match cause {
        DisconnectCause::PostRefused(error) => (error.reason, error.errno),
        other => panic!("{other}"),
    };
    causes.iter().map(refusal).collect()
}

/// Where the target listens.
pub const ADDRESS: &str = "127.0.0.1:4420";

/// Data memory of each side.
pub const DATA_BYTES: usize = 1 << 20;

/// A message: the cookie, number of grants, then the grants; a reply repeats the cookie.
#[derive(Default)]
pub struct Tiny {
    /// Requests by cookie.
    pub names: std::collections::HashMap<u64, RequestHandle>,
    /// Refuse to announce, as for a message without room.
    pub refuse: bool,
    /// Panic, whatever is asked.
    pub panics: bool,
    /// What was announced.
    pub announced: Vec<Announced>,
}

/// What a protocol was told of a request: its handle and cookie, and of each chunk the right and the grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub request: RequestHandle,
    pub cookie: u64,
    pub chunks: Vec<(Access, Vec<Grant>)>,
}

/// Stands for the number of grants in a message that nobody answers.
pub const ONE_WAY: u32 = u32::MAX - 1;

pub const HEADER: usize = 12;
pub const GRANT: usize = 16;

impl Protocol for Tiny {
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        assert!(!self.panics, "asked to announce");
        if self.refuse {
            return Err(AnnounceError);
        }
        let chunks = announced.chunks().map(|chunk| (chunk.access, chunk.grants.to_vec())).collect();
        self.announced.push(Announced { request: announced.request(), cookie: announced.cookie(), chunks });
        let grants = announced.grants();
        message[8..12].copy_from_slice(&(grants.len() as u32).to_le_bytes());
        for (at, grant) in grants.iter().enumerate() {
            let place = message.get_mut(HEADER + at * GRANT..HEADER + (at + 1) * GRANT).ok_or(AnnounceError)?;
            place[..8].copy_from_slice(&grant.address.to_le_bytes());
            place[8..12].copy_from_slice(&grant.length.to_le_bytes());
            place[12..].copy_from_slice(&grant.key.to_le_bytes());
        }
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, prefix: &[u8], _: u32) -> Message {
        assert!(!self.panics, "asked to classify");
        let word = |at: usize| prefix.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        match (word(0), word(4), word(8)) {
            (Some(low), Some(high), Some(u32::MAX)) => {
                let cookie = u64::from(low) | u64::from(high) << 32;
                let nobody = RequestHandle::NONE;
                Message::Reply(self.names.get(&cookie).copied().unwrap_or(nobody))
            }
            (Some(_), Some(_), Some(ONE_WAY)) => Message::OneWay,
            (Some(_), Some(_), Some(_)) => Message::Command,
            _ => Message::Malformed,
        }
    }
}

/// One engine with its Control and memory.
pub struct Side<D: Device> {
    pub control: Control<D>,
    pub engine: Engine<D::Port>,
    pub data: DeviceMemory,
    pub memory: MemoryId,
    pub connection: Option<ConnectionId>,
    pub protocol: Tiny,
    /// Ends of requests: cookie and name of the status.
    pub ended: Vec<(u64, &'static str)>,
    pub events: Vec<String>,
    pub commands: Vec<Received>,
    pub grants: Vec<(RequestHandle, Grant)>,
    pub responded: u32,
    pub fetched: u32,
    pub disconnected: u32,
    /// MR objects that the device did not destroy, as told by the disconnects.
    pub orphaned_mrs: u32,
    /// Causes of the disconnects.
    pub causes: Vec<DisconnectCause>,
    /// Connect attempts that failed.
    pub open_failed: u32,
    /// What the last of them was told.
    pub rejected_with: Vec<u8>,
    /// Requests that were submitted and did not end, with the bytes they open; kept by `submit` and `event`.
    pub outstanding: std::collections::HashMap<u64, u64>,
    /// Every connection that was ever ready.
    pub connections: Vec<ConnectionId>,
    /// Every connection that was told to be gone.
    pub gone: Vec<ConnectionId>,
    /// Bytes that the write pad opens.
    pub pad_bytes: u64,
    /// Told to the port at the start of each step, with the number of the step.
    pub begin: fn(&mut D::Port, u64),
    pub stepped: u64,
    /// Control looks in every so many-th step ([`while_control_sleeps`]).
    pub steps_per_look: u64,
    /// Receives of the peer that our connections may use unasked.
    pub peer_receives: u32,
    /// Receives that the peer is granted; the engine's choice without.
    pub granted_receives: Option<u32>,
    /// Retries and depths of our connections.
    pub parameters: ConnectionParameters,
    /// Commands of every connection, for a side that serves several; `commands` then stays empty.
    pub every_command: Option<Vec<(ConnectionId, Received)>>,
    _region: Region,
}

/// Memory of whatever pages there are: transparent hugepages may be off, or too large for so few bytes.
pub fn region(bytes: usize) -> Region {
    Region::map(&RegionOptions::new(bytes).pages(PagePolicy::Ladder { allow_plain: true })).unwrap()
}

impl<D: Device> Side<D> {
    pub fn new(device: D, options: EngineOptions) -> Self {
        let mut control = Control::new(device);
        let pad_bytes = if options.write_pad { 4 } else { 0 };
        let capabilities = *control.device().capabilities();
        let bytes = Engine::<D::Port>::region_bytes(&options, &capabilities).unwrap();
        let mut region = region(bytes + DATA_BYTES + 4096);
        let (send, receive) = Engine::<D::Port>::completion_entries(&options, &capabilities).unwrap();
        let (port, link) = control.open_core(send, receive).unwrap();
        let mut engine = Engine::new(port, link, &mut region, options, &capabilities).unwrap();
        let data = region.carve(DATA_BYTES, 4096).unwrap().into_device_memory();
        let memory = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).unwrap();
        Self {
            control,
            engine,
            data,
            memory,
            connection: None,
            protocol: Tiny::default(),
            ended: Vec::new(),
            events: Vec::new(),
            commands: Vec::new(),
            grants: Vec::new(),
            responded: 0,
            fetched: 0,
            disconnected: 0,
            orphaned_mrs: 0,
            causes: Vec::new(),
            open_failed: 0,
            rejected_with: Vec::new(),
            outstanding: std::collections::HashMap::new(),
            connections: Vec::new(),
            gone: Vec::new(),
            pad_bytes,
            begin: |_, _| {},
            stepped: 0,
            steps_per_look: asleep::steps_per_look(),
            peer_receives: 0,
            granted_receives: None,
            parameters: ConnectionParameters::default(),
            every_command: None,
            _region: region,
        }
    }

    pub fn step(&mut self, now: Duration) {
        self.stepped += 1;
        (self.begin)(self.engine.port_mut(), self.stepped);
        let looks = self.stepped.is_multiple_of(self.steps_per_look);
        if looks {
            self.control.poll();
        }
        self.engine.poll(now, &mut self.protocol);
        while let Some(event) = self.engine.next_event() {
            self.event(event);
        }
        self.engine.flush();
        if looks {
            self.control.poll();
        }
    }

    pub fn event(&mut self, event: Event) {
        self.events.push(format!("{event:?}"));
        match event {
            Event::Incoming { incoming, .. } => {
                let options = self.connection_options();
                match self.engine.accept(incoming, b"accepted", &options) {
                    Ok(connection) => {
                        self.drop_commands();
                        self.connection = Some(connection);
                    }
                    Err(_) => self.engine.reject(incoming, b"busy").unwrap(),
                }
            }
            Event::Connected { connection, .. } => {
                self.connection = Some(connection);
                self.connections.push(connection);
            }
            Event::OpenFailed { connection, private_data, .. } => {
                self.open_failed += 1;
                self.rejected_with = private_data.to_vec();
                self.ends(connection);
            }
            Event::Disconnected { connection, cause, orphaned_mrs } => {
                self.orphaned_mrs += orphaned_mrs;
                self.disconnected += 1;
                self.ends(connection);
                if orphaned_mrs == 0 {
                    self.check_fence("a connection");
                }
                self.causes.push(cause);
                if self.connection == Some(connection) {
                    self.drop_commands();
                }
            }
            Event::Received { connection, received } if self.every_command.is_some() => {
                self.every_command.as_mut().unwrap().push((connection, received));
            }
            Event::Received { connection, received } if self.connection == Some(connection) => {
                self.commands.push(received);
            }
            Event::Received { received, .. } => self.engine.release(received),
            Event::Completed { cookie, status, .. } => {
                let name = match status {
                    RequestStatus::Replied(received) => {
                        self.engine.release(received);
                        "replied"
                    }
                    RequestStatus::Sent => "sent",
                    RequestStatus::Cancelled => "cancelled",
                    RequestStatus::Lost => "lost",
                    RequestStatus::PostRefused => "refused",
                    RequestStatus::Unannounced => "unannounced",
                    RequestStatus::TooFewRegistrations => "too few registrations",
                    RequestStatus::MemoryRemoved => "memory removed",
                };
                assert!(!self.ended.iter().any(|(ended, _)| *ended == cookie), "request {cookie} ended twice");
                self.ended.push((cookie, name));
                self.outstanding.remove(&cookie);
                self.check_fence(&format!("request {cookie}"));
            }
            Event::Registered { request, grant, .. } => self.grants.push((request, grant)),
            Event::Responded { .. } => self.responded += 1,
            Event::Fetched { .. } => self.fetched += 1,
            _ => {}
        }
    }

    /// Nobody answers commands of a connection that is not the latest.
    fn drop_commands(&mut self) {
        for received in self.commands.drain(..) {
            self.engine.release(received);
        }
    }

    /// Fills the engine's lane to Control; Control refuses to reject what never was.
    pub fn fill_lane(&mut self) {
        for _ in 0..100_000 {
            match self.engine.reject(IncomingId(u32::MAX), b"") {
                Ok(()) => {}
                Err(OpenError::WouldBlock) => return,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("the lane has no bound");
    }

    /// A connection is told to be gone once (S97, D27).
    fn ends(&mut self, connection: ConnectionId) {
        assert!(!self.gone.contains(&connection), "{connection:?} ended twice");
        self.gone.push(connection);
    }

    /// Promise Fence: when an end comes out, the device's own table opens no more than the requests that did not end.
    fn check_fence(&self, ended: &str) {
        let allowed = self.outstanding.values().sum::<u64>() + self.pad_bytes;
        // A real device cannot be asked.
        let Some(open) = self.engine.port().remote_bytes_open() else { return };
        assert!(open <= allowed, "{ended} ended while {open} bytes are open, {allowed} at most may be");
    }

    pub fn connection_options(&self) -> ConnectionOptions {
        ConnectionOptions::default()
            .peer_receives(self.peer_receives)
            .granted_receives(self.granted_receives)
            .parameters(self.parameters)
    }

    pub fn segment(&self, offset: u64, length: u32) -> Segment {
        Segment { memory: self.memory, offset, length }
    }

    pub fn is_ready(&self) -> bool {
        self.connection.is_some_and(|connection| self.engine.is_ready(connection))
    }

    /// Submits a request that opens `segments`; the message has room for sixteen grants.
    pub fn submit(
        &mut self,
        cookie: u64,
        access: Access,
        segments: &[Segment],
        invite: bool,
    ) -> Result<RequestHandle, frwr_engine::SubmitError> {
        self.submit_with_inline(cookie, access, segments, &[], invite)
    }

    /// The same with memory that is sent behind the message.
    pub fn submit_with_inline(
        &mut self,
        cookie: u64,
        access: Access,
        segments: &[Segment],
        inline: &[Segment],
        invite: bool,
    ) -> Result<RequestHandle, frwr_engine::SubmitError> {
        let chunk = [Chunk { access, segments }];
        self.submit_mixed(cookie, if segments.is_empty() { &[] } else { &chunk }, inline, invite)
    }

    /// Submits a request that opens `chunks`.
    pub fn submit_chunks(
        &mut self,
        cookie: u64,
        chunks: &[Chunk<'_>],
        invite: bool,
    ) -> Result<RequestHandle, frwr_engine::SubmitError> {
        self.submit_mixed(cookie, chunks, &[], invite)
    }

    /// Submits a request that opens `chunks` and sends `inline` behind its message.
    pub fn submit_mixed(
        &mut self,
        cookie: u64,
        chunks: &[Chunk<'_>],
        inline: &[Segment],
        invite: bool,
    ) -> Result<RequestHandle, frwr_engine::SubmitError> {
        let mut message = [0u8; HEADER + 16 * GRANT];
        message[..8].copy_from_slice(&cookie.to_le_bytes());
        let submission = Submission {
            message: &message,
            inline,
            chunks,
            invite_invalidation: invite,
            iova_cookie: 0x0A0B_0C0D,
            cookie,
        };
        let connection = self.connection.ok_or(frwr_engine::SubmitError::NotConnected)?;
        let handle = self.engine.submit(connection, &submission, &mut self.protocol)?;
        self.protocol.names.insert(cookie, handle);
        let bytes = chunks.iter().flat_map(|chunk| chunk.segments).map(|segment| u64::from(segment.length)).sum();
        self.outstanding.insert(cookie, bytes);
        Ok(handle)
    }

    /// Sends a message that nobody answers.
    pub fn send(&mut self, cookie: u64, inline: &[Segment]) -> Result<RequestHandle, frwr_engine::SubmitError> {
        let mut message = [0u8; HEADER];
        message[..8].copy_from_slice(&cookie.to_le_bytes());
        message[8..].copy_from_slice(&ONE_WAY.to_le_bytes());
        let connection = self.connection.ok_or(frwr_engine::SubmitError::NotConnected)?;
        let handle = self.engine.send(connection, &SendRequest { message: &message, inline, cookie })?;
        self.protocol.names.insert(cookie, handle);
        self.outstanding.insert(cookie, 0);
        Ok(handle)
    }

    /// Reads a command: the name to reply to, and the grants.
    pub fn read_command(&self, received: &Received) -> ([u8; 8], Vec<Grant>) {
        let mut bytes = [0u8; HEADER + 16 * GRANT];
        self.engine.message(received, 0, &mut bytes);
        let count = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let grants = (0..if count == ONE_WAY as usize { 0 } else { count.min(16) })
            .map(|at| {
                let place = &bytes[HEADER + at * GRANT..];
                Grant {
                    address: u64::from_le_bytes(place[..8].try_into().unwrap()),
                    length: u32::from_le_bytes(place[8..12].try_into().unwrap()),
                    key: u32::from_le_bytes(place[12..16].try_into().unwrap()),
                }
            })
            .collect();
        (bytes[..8].try_into().unwrap(), grants)
    }

    /// Answers the oldest command with RDMA WRITEs into all its grants and a reply, naming `name`.
    pub fn answer(&mut self, name: [u8; 8], write: &[Grant], invalidate: Option<u32>) {
        self.try_answer(name, write, invalidate).unwrap();
    }

    /// The same, on a connection that may have ended.
    pub fn try_answer(
        &mut self,
        name: [u8; 8],
        write: &[Grant],
        invalidate: Option<u32>,
    ) -> Result<(), frwr_engine::TransferError> {
        // Both devices are of a kind, and a host that keys are not made for it invites nobody.
        let invalidate = invalidate.filter(|_| self.engine.capabilities().remote_invalidation);
        let remote: Vec<_> = write
            .iter()
            .map(|grant| RemoteSegment {
                remote: RemoteRange { address: grant.address, key: grant.key },
                length: grant.length,
            })
            .collect();
        let mut offset = 0;
        let local: Vec<_> = write
            .iter()
            .map(|grant| {
                let segment = self.segment(offset, grant.length);
                offset += u64::from(grant.length);
                segment
            })
            .collect();
        let mut message = [0xFFu8; 12];
        message[..8].copy_from_slice(&name);
        let response = ResponseRequest { local: &local, remote: &remote, message: &message, invalidate, cookie: 7 };
        self.engine.respond(self.connection.unwrap(), &response)
    }

    /// The next command with its grants, its receive buffer given back.
    pub fn take_command(&mut self) -> Option<([u8; 8], Vec<Grant>)> {
        if self.commands.is_empty() {
            return None;
        }
        let received = self.commands.remove(0);
        let command = self.read_command(&received);
        self.engine.release(received);
        Some(command)
    }
}

/// Host and target, the target listening. [`Setup`] makes it.
pub struct Pair<D: Device = SoftDevice> {
    pub host: Side<D>,
    pub target: Side<D>,
    pub now: Duration,
    pub address: SocketAddr,
    pub pace: Pace,
}

impl Pair<SoftDevice> {
    pub fn new(profile: &str) -> Self {
        Setup::new(profile).pair()
    }

    pub fn with(profile: &str, host: EngineOptions) -> Self {
        Setup::new(profile).host(|options| *options = host.connections(2)).pair()
    }
}

impl<D: Device> Pair<D> {
    pub fn connect(&mut self) {
        let options = self.host.connection_options();
        self.host.connection = Some(self.host.engine.connect(self.address, b"hello", &options).unwrap());
        self.until("connected", |pair| pair.host.is_ready() && pair.target.is_ready());
    }

    pub fn steps(&mut self, count: u32) {
        for _ in 0..count {
            self.now += Duration::from_micros(1);
            self.host.step(self.now);
            self.target.step(self.now);
        }
    }

    /// Lets so much time pass in which both sides poll: time in which nobody does is nobody's.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += WatchedClock::STANDSTILL / 2;
            self.steps(1);
        }
    }

    /// Steps until something holds; panics with what happened if it never does.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut patience = self.pace.patience();
        while patience.is_left() {
            if done(self) {
                return;
            }
            self.steps(1);
        }
        let last = |events: &[String]| events[events.len().saturating_sub(12)..].join("\n    ");
        panic!(
            "never {what}; host\n    {}\n  {:?} gone {}\n  target\n    {}\n  {:?} gone {}",
            last(&self.host.events),
            self.host.engine.statistics(),
            self.host.engine.is_disconnected(),
            last(&self.target.events),
            self.target.engine.statistics(),
            self.target.engine.is_disconnected()
        );
    }

    /// The target, while it is connected, answers every command by filling its grants.
    pub fn serve(&mut self, invalidate: bool) {
        while self.target.is_ready()
            && let Some((name, grants)) = self.target.take_command()
        {
            let key = grants.first().filter(|_| invalidate).map(|grant| grant.key);
            self.target.answer(name, &grants, key);
        }
    }
}

pub fn address() -> SocketAddr {
    ADDRESS.parse().unwrap()
}

/// All profiles of the software NIC.
pub const PROFILES: [&str; 5] = ["reg_mr", "window", "umr", "umr:fixed-key", "rxe"];

/// All kinds of tokens that an engine gives.
pub const TOKEN_KINDS: [TokenKind; 7] = [
    TokenKind::Receive,
    TokenKind::Register,
    TokenKind::Invalidate,
    TokenKind::Message,
    TokenKind::Transfer,
    TokenKind::Reply,
    TokenKind::Drain,
];
