//! A client's connections: how they are opened, and how they end.

use super::{
    client::{ClientSide, Phase},
    failure,
    message::{HEADER_BYTES, Header, Kind, MAX_COMMAND_BYTES, NOWHERE, RANGE_BYTES, name_grants, ranges},
    parameters::{KeyKind, PeerDoes, Refusal},
    plan,
};
use crate::Error;
use core::time::Duration;
use frwr_engine::{
    Chunk, ConnectionId, DisconnectCause, OpenError, OpenFailure, Received, RemoteSegment, RequestHandle,
    ResponseRequest, SubmitError, TransferError, TransferStatus,
    gather::Segment,
    mr::Grant,
    provider::{Access, Port, RemoteMemory},
};

/// How long all connections may take to open: some seconds of the connection manager, and a server that makes room.
pub(super) const OPENING_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a server that nobody hears of may still come: another core may just be hearing that it makes room.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may be busy before that is taken for an answer: it may not have heard yet that the client before has gone.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
/// Before another attempt where the server said that it makes room.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Cookies of a connection's own key and last message, beside those of slots.
const LINK_COOKIE: u64 = 1 << 63;
/// The cookie of a ping.
const PING_COOKIE: u64 = LINK_COOKIE | 1 << 61;

/// The cookie of the message that names memory.
const OPENED_COOKIE: u64 = LINK_COOKIE | 1 << 60;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is to be opened, not before then.
    Closed { not_before: Duration },
    /// The connection manager is at work.
    Connecting,
    /// The server's first message is awaited.
    Connected,
    /// The key for the whole run is made.
    Keying,
    /// Requests may begin.
    Open,
    /// It ends.
    Leaving,
    /// It has ended.
    Left,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: Option<ConnectionId>,
    state: State,
    /// What the server opened to us: the ranges of each slot, one slot behind the other.
    pub(super) remote: Box<[RemoteSegment]>,
    /// What is open to the server for the whole run.
    pub(super) grant: Option<Grant>,
    key: Option<RequestHandle>,
    /// The same, where a system call made it.
    memory: Option<RemoteMemory>,
    /// The own device refuses to destroy its queue pair: it ends when that complies, however long that takes.
    kept: bool,
}

impl Link {
    pub(super) fn new(not_before: Duration) -> Self {
        Self {
            id: None,
            state: State::Closed { not_before },
            remote: Box::default(),
            grant: None,
            key: None,
            memory: None,
            kept: false,
        }
    }
}

impl<P: Port> ClientSide<P> {
    /// The right that keys of this run give.
    pub(super) fn access(&self) -> Access {
        match self.plan.parameters.peer_does {
            PeerDoes::Write => Access::RemoteWrite,
            PeerDoes::Read => Access::RemoteRead,
        }
    }

    pub(super) fn open_links(&mut self, now: Duration, deadline: Duration) -> Result<(), Error> {
        let options = plan::connection(&self.plan.parameters, self.plan.negotiated);
        for at in 0..self.links.len() {
            let due = matches!(self.links[at].state, State::Closed { not_before } if now >= not_before);
            if !due {
                continue;
            }
            match self.engine.connect(self.plan.address, &self.plan.private_data, &options) {
                Ok(id) => {
                    // Bounded by MAX_CONNECTIONS.
                    self.slots.connected(id, at as u16);
                    (self.links[at].id, self.links[at].state) = (Some(id), State::Connecting);
                }
                Err(OpenError::WouldBlock | OpenError::NoConnection) => break,
                Err(error) => return Err(Error::failed("unreachable", format!("no connection: {error}"))),
            }
        }
        if self.links.iter().all(|link| link.state == State::Open) {
            self.opened();
        } else if self.judges && now >= deadline {
            let open = self.links.iter().filter(|link| link.state == State::Open).count();
            let (asked, seconds) = (self.links.len(), OPENING_TIMEOUT.as_secs());
            if let Some(most) = self.crowded {
                return Err(failure::crowded(open, asked, seconds, most));
            }
            return Err(failure::timeout(seconds, self.opening_step()));
        }
        Ok(())
    }

    fn opening_step(&self) -> &'static str {
        let any = |wanted: fn(&State) -> bool| self.links.iter().any(|link| wanted(&link.state));
        if any(|state| matches!(state, State::Closed { .. } | State::Connecting)) {
            "connecting"
        } else if any(|state| *state == State::Connected) {
            "the server's word that it is ready"
        } else {
            "the key for the run"
        }
    }

    fn link_at(&mut self, connection: ConnectionId) -> Option<(u16, &mut Link)> {
        let at = self.slots.link_of(connection)?;
        self.links.get_mut(usize::from(at)).filter(|link| link.id == Some(connection)).map(|link| (at, link))
    }

    pub(super) fn connected(&mut self, connection: ConnectionId) -> Result<(), Error> {
        if let Some((_, link)) = self.link_at(connection) {
            link.state = State::Connected;
        }
        Ok(())
    }

    pub(super) fn open_failed(
        &mut self,
        connection: ConnectionId,
        reason: OpenFailure,
        private_data: &[u8],
    ) -> Result<(), Error> {
        let now = self.time;
        let patient =
            self.plan.patient || self.board.is_making_room() || now < self.opening_since.saturating_add(PATIENCE);
        if self.link_at(connection).is_none() {
            return Ok(());
        }
        let again = match reason {
            OpenFailure::Rejected => match Refusal::decode(private_data) {
                Ok(Refusal::Again) => {
                    self.board.tell_making_room();
                    true
                }
                Ok(Refusal::Crowded(most)) => {
                    self.crowded = Some(most);
                    true
                }
                Ok(Refusal::Busy) if now < self.opening_since.saturating_add(BUSY_PATIENCE) => true,
                Ok(refusal) => return Err(failure::refused(refusal)),
                // A listener that goes rejects what it has not looked at without a word.
                Err(_) if patient && private_data.iter().all(|byte| *byte == 0) => true,
                Err(error) => return Err(failure::foreign(error)),
            },
            OpenFailure::Stale => true,
            // One that makes room does not listen for a moment.
            OpenFailure::Unreachable(_) => patient,
            _ => false,
        };
        if !again {
            return Err(failure::unreachable(reason));
        }
        if let Some((_, link)) = self.link_at(connection) {
            (link.id, link.kept) = (None, false);
            link.state = State::Closed { not_before: now + RETRY_PAUSE };
        }
        Ok(())
    }

    /// The server's first message.
    pub(super) fn greeted(&mut self, connection: ConnectionId, received: Received) -> Result<(), Error> {
        let mut message = [0; MAX_COMMAND_BYTES];
        let length = self.engine.message(&received, 0, &mut message).min(received.length() as usize);
        self.engine.release(received);
        let message = &message[..length.min(MAX_COMMAND_BYTES)];
        let is_pong = Header::decode(message).is_some_and(|header| header.kind == Kind::Pong);
        if is_pong && self.pings.answered() {
            // Its receive is posted now, so that the counters have it.
            self.engine.flush();
            return Ok(());
        }
        let takes_remote = self.plan.parameters.operation.is_transfer();
        // Bounded by MAX_BUFFER_BYTES.
        let (bytes, has_key) = (self.layout.connection_bytes() as u32, self.plan.parameters.has_key_for_run());
        let layout = self.layout;
        let (now, pings) = (self.time, self.plan.core == 0);
        let Some((at, link)) = self.link_at(connection) else { return Ok(()) };
        let header =
            Header::decode(message).filter(|_| link.state == State::Connected && message.len() >= HEADER_BYTES);
        match header {
            Some(Header { kind: Kind::TooLarge, .. }) => return Err(failure::server_key(bytes)),
            Some(Header { kind: Kind::NotRegistered, .. }) => return Err(failure::server_memory()),
            Some(header) if header.kind == Kind::Ready => {
                if takes_remote {
                    let mut opened = [NOWHERE];
                    if ranges(message, header.count, bytes, &mut opened) != Some(1) {
                        self.engine.disconnect(connection);
                        return Ok(());
                    }
                    link.remote = layout.ranges_of_slots(opened[0].remote).collect();
                }
                link.state = if has_key { State::Keying } else { State::Open };
                if pings && at == 0 {
                    self.pings.begin(header.sequence, now);
                }
            }
            // It breaks the protocol; the connection's end says so.
            _ => {
                self.engine.disconnect(connection);
                return Ok(());
            }
        }
        if has_key { self.make_key(at, connection) } else { Ok(()) }
    }

    /// Opens all memory of a connection for the whole run.
    fn make_key(&mut self, at: u16, connection: ConnectionId) -> Result<(), Error> {
        let span = self.layout.connection_span(self.memory, usize::from(at));
        if self.plan.parameters.key == KeyKind::Memory {
            return self.make_key_by_call(at, connection, span);
        }
        let chunk = Chunk { access: self.access(), segments: &[span] };
        let made = self.engine.register_now(connection, &chunk, LINK_COOKIE | u64::from(at), &mut self.slots);
        match made {
            Ok(handle) => {
                self.links[usize::from(at)].key = Some(handle);
                Ok(())
            }
            Err(SubmitError::TooManyRegistrations) => Err(failure::key(span.length, 1, "--depth or --size")),
            Err(error) => Err(error.into()),
        }
    }

    /// The same by ibv_reg_mr, which opens it at once.
    fn make_key_by_call(&mut self, at: u16, connection: ConnectionId, span: Segment) -> Result<(), Error> {
        let queue_pair = self.engine.queue_pair(connection).ok_or(SubmitError::NotConnected)?;
        // It lies in the memory.
        let bytes = self.data.slice(span.offset as usize, span.length as usize);
        let bytes = bytes.map_err(|_| failure::ended("outside of its memory"))?;
        let access = self.access();
        let memory = self.engine.port_mut().register_memory(queue_pair, &bytes, access).map_err(failure::memory)?;
        self.links[usize::from(at)].memory = Some(memory);
        self.key_made(at.into(), Grant { address: bytes.address(), key: memory.key, length: span.length });
        Ok(())
    }

    /// The key for the whole run is valid.
    pub(super) fn key_made(&mut self, cookie: u64, grant: Grant) {
        let at = (cookie & !LINK_COOKIE) as usize;
        // The cookie is ours.
        let Some(link) = self.links.get_mut(at) else { return };
        (link.grant, link.state) = (Some(grant), State::Open);
        if self.plan.parameters.operation.rallies() {
            self.name_memory(at, grant);
        }
    }

    /// Tells the server what is open to it. The first WRITE comes behind this message, and is seen when that was read.
    fn name_memory(&mut self, at: usize, grant: Grant) {
        let Some(connection) = self.links.get(at).and_then(|link| link.id) else { return };
        let mut message = [0; MAX_COMMAND_BYTES];
        Header::new(Kind::Opened, 0, 0).encode(&mut message);
        let length = HEADER_BYTES + RANGE_BYTES;
        let named = name_grants(&mut message[..length], &[grant]).is_some();
        let opened = ResponseRequest {
            local: &[],
            remote: &[],
            message: &message[..length],
            invalidate: None,
            cookie: OPENED_COOKIE,
        };
        if !named || self.engine.respond(connection, &opened).is_err() {
            self.engine.disconnect(connection);
        }
    }

    /// Whether a cookie is a connection's own.
    pub(super) fn is_of_link(cookie: u64) -> bool {
        cookie & LINK_COOKIE != 0
    }

    /// Kills keys and takes leave.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        for at in 0..self.links.len() {
            self.links[at].state = State::Leaving;
            if let Some(memory) = self.links[at].memory.take() {
                self.engine.port_mut().deregister_memory(memory).map_err(failure::memory)?;
            }
            match self.links[at].key.take() {
                Some(key) => self.engine.cancel(key).map_err(|_| failure::ended("a key that was dead already"))?,
                None => self.say_goodbye(at),
            }
        }
        Ok(())
    }

    /// The key for the whole run is dead.
    pub(super) fn key_died(&mut self, cookie: u64) {
        self.say_goodbye((cookie & !LINK_COOKIE) as usize);
    }

    fn say_goodbye(&mut self, at: usize) {
        let Some(connection) = self.links.get(at).and_then(|link| link.id) else { return };
        let mut message = [0; HEADER_BYTES];
        Header::new(Kind::Bye, 0, 0).encode(&mut message);
        let cookie = LINK_COOKIE | at as u64;
        let bye = ResponseRequest { local: &[], remote: &[], message: &message, invalidate: None, cookie };
        if self.engine.respond(connection, &bye).is_err() {
            self.engine.disconnect(connection);
        }
    }

    /// The last message has arrived, or never will.
    pub(super) fn told(&mut self, cookie: u64, status: TransferStatus) {
        if cookie == OPENED_COOKIE {
            return;
        }
        if cookie == PING_COOKIE {
            // One that is lost is lost with its connection, whose end says so.
            if status == TransferStatus::Done {
                self.pings.answered();
            }
            return;
        }
        let link = self.links.get((cookie & !LINK_COOKIE) as usize);
        if let Some(connection) = link.and_then(|link| link.id) {
            self.engine.disconnect(connection);
        }
    }

    /// Tells the server that this client is alive, if it has heard of nothing else. With a doorbell of its own, so that it can
    /// be taken out of the counters.
    pub(super) fn ping(&mut self, now: Duration) -> Result<(), Error> {
        if !self.pings.is_wanted(now) {
            return Ok(());
        }
        let Some(connection) = self.links.first().and_then(|link| link.id) else { return Ok(()) };
        let mut message = [0; HEADER_BYTES];
        Header::new(Kind::Ping, 0, 0).encode(&mut message);
        let ping =
            ResponseRequest { local: &[], remote: &[], message: &message, invalidate: None, cookie: PING_COOKIE };
        self.engine.flush();
        match self.engine.respond(connection, &ping) {
            Ok(()) => {
                self.engine.flush();
                self.pings.sent(now);
                if self.outstanding == 0 {
                    self.heard = now;
                }
            }
            // Requests have all slots: one ends before long. A connection that ends says so by itself.
            Err(TransferError::NoSlot | TransferError::NotConnected) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// What is measured has ended before, or fails by itself; the main thread says what is waited for.
    pub(super) fn kept(&mut self, connection: ConnectionId) {
        if let Some((_, link)) = self.link_at(connection) {
            link.kept = true;
        }
    }

    /// Whether a connection takes its leave that waits for more than the own device.
    pub(super) fn awaits_an_end(&self) -> bool {
        self.links.iter().any(|link| link.state == State::Leaving && !link.kept)
    }

    pub(super) fn disconnected(&mut self, connection: ConnectionId, cause: DisconnectCause) -> Result<(), Error> {
        let (requests, phase) = (self.ended, self.phase);
        let Some((_, link)) = self.link_at(connection) else { return Ok(()) };
        (link.id, link.state) = (None, State::Left);
        match phase {
            Phase::Leaving => {
                if self.links.iter().all(|link| link.state == State::Left) {
                    self.left_all();
                }
                Ok(())
            }
            Phase::Done => Ok(()),
            _ => Err(failure::gone(requests, cause)),
        }
    }
}
