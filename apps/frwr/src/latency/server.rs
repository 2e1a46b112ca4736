//! A server's core: it opens memory to clients, answers their commands, and believes nothing that they say.

use super::{
    breach::Breach,
    desk::{Desk, Ending},
    layout::{Layout, PAGE},
    message::{
        HEADER_BYTES, Header, Kind, MAX_COMMAND_BYTES, NOWHERE, RANGE_BYTES, REPLY_BYTES, command_bytes,
        command_ranges, name_grants, ranges,
    },
    parameters::{ConnectData, DecodeError, KeyKind, PROTOCOL_VERSION, Parameters, PeerDoes, Refusal},
    plan,
    rally::Rally,
    silence::Vigil,
    sleep::sleeps_until,
    slots::stamp,
};
use crate::{Error, runner::map};
use core::{task::Waker, time::Duration};
use frwr_engine::{
    AnnounceError, Announcement, Chunk, ConnectionId, CoreLink, DisconnectCause, Engine, Event, FetchRequest,
    MemoryAccess, Message, OpenError, Protocol, Received, RemoteSegment, ResponseRequest, Statistics, SubmitError,
    Timestamp, TraceRecord, TransferError, TransferStatus, WriteRequest,
    gather::{MemoryId, Segment},
    mr::Grant,
    provider::{Access, Capabilities, ConnectionParameters, IncomingId, Port, RemoteMemory},
};
use frwr_mempool::{DeviceMemory, lane, region::PagePolicy};
use frwr_reactor::Now;
use std::{collections::VecDeque, net::SocketAddr, os::fd::BorrowedFd};

/// Bytes beside what is computed: the alignment of what is carved.
const SLACK: usize = 64 << 10;

/// What a server's core needs to begin.
#[derive(Clone)]
pub(super) struct ServerPlan {
    /// What there is room for.
    pub(super) capacity: Parameters,
    /// Connections of this core.
    pub(super) connections: u16,
    pub(super) address: SocketAddr,
    pub(super) negotiated: ConnectionParameters,
    pub(super) pages: PagePolicy,
    pub(super) capabilities: Capabilities,
    /// The device is the software NIC: what clients write and read here moves when this core polls, and not by itself.
    pub(super) moves_data_in_polls: bool,
    /// How long nothing may come of a client; `None` where it lives in the same process.
    pub(super) silence: Option<Duration>,
}

/// A client's connection.
struct Guest {
    id: ConnectionId,
    parameters: Parameters,
    layout: Layout,
    /// Where its memory begins: each connection has as much as the capacity says.
    first: usize,
    served: u64,
    /// It has taken its leave.
    bye: bool,
    died: Option<Ending>,
    /// What opens its memory for the run, where that is registered by a system call.
    opened: Option<RemoteMemory>,
    /// What it has open to the server, of `pingpong`.
    rally: Option<Rally>,
    slots: Box<[GuestSlot]>,
    /// What the command in each slot opens to the server, one slot behind the other.
    ranges: Box<[RemoteSegment]>,
    of_slot: usize,
}

impl Guest {
    fn new(id: ConnectionId, parameters: Parameters, first: usize) -> Self {
        let (slots, of_slot) = (parameters.depth as usize, command_ranges(usize::from(parameters.segments)));
        let ranges = if parameters.operation.asks_for_rdma() { slots * of_slot } else { 0 };
        Self {
            id,
            parameters,
            layout: Layout::new(&parameters),
            first,
            served: 0,
            bye: false,
            died: None,
            opened: None,
            rally: None,
            slots: vec![GuestSlot::default(); slots].into(),
            ranges: vec![NOWHERE; ranges].into(),
            of_slot,
        }
    }

    /// Bytes of its messages that are looked at when they come: a command, or the header of what is sent back as it is.
    fn looked_at(&self) -> usize {
        if self.parameters.operation.rallies() {
            HEADER_BYTES + RANGE_BYTES
        } else if self.ranges.is_empty() {
            HEADER_BYTES
        } else {
            command_bytes(usize::from(self.parameters.segments))
        }
    }

    /// Where a slot's memory begins.
    fn offset(&self, slot: u16) -> usize {
        self.first + self.layout.slot_offset(0, slot.into())
    }
}

/// One of a client's slots.
#[derive(Clone, Copy, Default)]
struct GuestSlot {
    /// Its command was not answered yet: another one would be one more than the client's depth. This bounds what is owed,
    /// since a receive that was given back bounds nothing.
    is_taken: bool,
    /// The key that dies with its reply, until what it opens was fetched.
    key: Option<u32>,
}

/// What a server owes for a command.
struct Owed {
    connection: ConnectionId,
    slot: u16,
    sequence: u32,
    what: Answer,
}

enum Answer {
    /// RDMA to or from so many ranges, which are its slot's.
    Transfer(usize),
    /// The reply to what was fetched.
    Fetched,
    /// The same message back.
    Echo(Received),
    /// A word that it has come. It keeps its receive until then, so that nobody is owed more of them than there are receives.
    Pong(Received),
}

/// It takes every message for a command.
struct Commands;

impl Protocol for Commands {
    fn announce(&mut self, _: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
        // It sends no requests.
        Err(AnnounceError)
    }

    const CLASSIFIED_BYTES: usize = 0;

    fn classify(&mut self, _: ConnectionId, _: &[u8], _: u32) -> Message {
        Message::Command
    }
}

/// The server's half of a core.
pub(super) struct ServerSide<P: Port> {
    engine: Engine<P>,
    plan: ServerPlan,
    desk: Desk,
    memory: MemoryId,
    data: DeviceMemory,
    /// By the engine's index.
    guests: Vec<Option<Guest>>,
    /// Connect requests that Control had no room for.
    incoming: VecDeque<(IncomingId, Parameters)>,
    /// Commands that found no transfer slot. Bounded by the slots of the clients, and for signs of life by their receives.
    owed: VecDeque<Owed>,
    message: Box<[u8]>,
    vigil: Vigil,
    /// Until then an iteration in which the engine found nothing has nothing to do.
    rests_until: Timestamp,
    /// It shall stop, and Control has been told.
    ending: bool,
    told_to_stop: bool,
    served: u64,
}

impl<P: Port> ServerSide<P> {
    /// Makes everything on the calling core, and begins to listen. It may sleep where there is a waker.
    pub(super) fn new(
        port: P,
        link: CoreLink,
        plan: ServerPlan,
        node: Option<u32>,
        desk: Desk,
        waker: Option<&Waker>,
    ) -> Result<Self, Error> {
        let options = plan::server(&plan.capacity, plan.connections, &plan.capabilities);
        let data_bytes = plan::data_bytes(&plan.capacity, plan.connections);
        let bytes = Engine::<P>::region_bytes(&options, &plan.capabilities)? + data_bytes + SLACK;
        let mut region = map(bytes, plan.pages, node)?;
        let message = vec![0; options.message_bytes as usize].into();
        let mut engine = Engine::new(port, link, &mut region, options, &plan.capabilities)?;
        if let Some(waker) = waker {
            engine.wakes(waker);
        }
        let data = region.carve(data_bytes, PAGE)?.into_device_memory();
        let memory = engine.add_memory(data.clone(), MemoryAccess::ReadWrite).map_err(Error::setup)?;
        // Control's lane is empty: it takes the first messages.
        engine.listen(plan.address).map_err(Error::setup)?;
        Ok(Self {
            engine,
            desk,
            memory,
            data,
            guests: (0..plan.connections).map(|_| None).collect(),
            incoming: VecDeque::new(),
            owed: VecDeque::new(),
            message,
            vigil: Vigil::new(plan.silence),
            rests_until: Timestamp::EPOCH,
            ending: false,
            told_to_stop: false,
            served: 0,
            plan,
        })
    }

    /// Tells what becomes of keys.
    pub(super) fn trace_keys(&mut self, records: lane::Sender<TraceRecord>) {
        self.engine.trace_to(records);
    }

    /// The engine's figures.
    pub(super) fn engine(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Commands answered.
    pub(super) fn served(&self) -> u64 {
        self.served
    }

    pub(super) fn poll(&mut self, now: &Now) -> u32 {
        let time = Timestamp::from_nanoseconds(now.nanoseconds());
        let read = self.engine.poll(time, &mut Commands);
        let mut work = read;
        // Most iterations end here: a client on the same core waits for the next one.
        if work == 0 && time < self.rests_until {
            return 0;
        }
        let now = now.time();
        if self.ending && (work > 0 || !self.told_to_stop) {
            // A client may have come before the listener was gone.
            self.shut_down();
        }
        while let Some(event) = self.engine.next_event() {
            self.event(event);
            work += 1;
        }
        self.accept_waiting();
        if let Some(heard) = self.vigil.is_due(now) {
            self.look(heard, now, read);
        }
        for _ in 0..self.owed.len() {
            let Some(owed) = self.owed.pop_front() else { break };
            if let Some(owed) = self.pay(owed) {
                self.owed.push_front(owed);
                break;
            }
        }
        work += self.answer_rallies();
        let rests = !self.ending && self.incoming.is_empty() && self.owed.is_empty() && !self.has_rallies();
        self.rests_until = if rests { self.vigil.due_at().into() } else { Timestamp::EPOCH };
        work
    }

    pub(super) fn flush(&mut self) {
        self.engine.flush();
    }

    /// Its port's descriptor, if it has one.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.engine.port().descriptor()
    }

    /// Until when its core may sleep if nothing arrives; `None`: not now.
    pub(super) fn sleeps_until(&self) -> Option<Duration> {
        sleeps_until(&self.engine, self.rests_until)
    }

    /// Whatever arrives wakes its core from now on.
    pub(super) fn arm(&mut self) -> bool {
        self.engine.arm()
    }

    /// No more connections; those there are end.
    pub(super) fn shut_down(&mut self) {
        self.ending = true;
        self.rests_until = Timestamp::EPOCH;
        self.told_to_stop = self.told_to_stop || self.engine.stop_listening(self.plan.address).is_ok();
        let connections: Vec<_> = self.engine.connections().collect();
        connections.into_iter().for_each(|connection| self.engine.disconnect(connection));
    }

    pub(super) fn is_drained(&self) -> bool {
        self.told_to_stop && self.engine.is_disconnected()
    }

    /// Drops a client of which nothing came for too long on any core: its host may be gone, or its process stopped. `read`: the engine's work
    /// in this poll.
    fn look(&mut self, heard: bool, now: Duration, read: u32) {
        let (unread, polls) = (self.engine.may_have_unread(read), self.engine.polls_of_full_queues());
        let Some(silence) = self.vigil.is_silent(self.desk.heard(heard), now, unread, polls) else { return };
        for guest in self.guests.iter_mut().flatten() {
            guest.died.get_or_insert(Ending::Silent(silence));
            self.engine.disconnect(guest.id);
        }
    }

    fn guest(&mut self, connection: ConnectionId) -> Option<&mut Guest> {
        self.guests.get_mut(usize::from(connection.index))?.as_mut().filter(|guest| guest.id == connection)
    }

    fn event(&mut self, event: Event) {
        match event {
            // That it stops is told the same way.
            Event::Listening { .. } if self.told_to_stop => {}
            Event::Listening { state, .. } => self.desk.listens(state),
            Event::Incoming { incoming, peer, private_data, .. } => self.judge(incoming, peer, &private_data),
            Event::Connected { connection, .. } => self.connected(connection),
            Event::Received { connection, received } => self.received(connection, received),
            Event::Registered { cookie, grant, .. } => self.key_made(cookie, grant),
            Event::Fetched { cookie, status } => self.fetched(cookie, status),
            Event::OpenFailed { connection, .. } => self.gone(connection, None),
            Event::Disconnected { connection, cause, .. } => self.gone(connection, Some(cause)),
            // Its own requests and answers are looked for elsewhere, and it shares its completion queues with nobody.
            _ => {}
        }
    }

    fn judge(&mut self, incoming: IncomingId, peer: Option<SocketAddr>, private_data: &[u8]) {
        let refusal = match self.may_come(private_data, peer) {
            Ok(parameters) => return self.incoming.push_back((incoming, parameters)),
            Err(refusal) => refusal,
        };
        // One that is told to come again comes again, and so does one that finds us busy, for a while; it has a line of its own.
        if !matches!(refusal, Refusal::Again | Refusal::Busy) {
            self.desk.refused(peer, refusal);
        }
        self.reject(incoming, refusal);
    }

    fn reject(&mut self, incoming: IncomingId, refusal: Refusal) {
        // Where Control is busy the client waits for its own time-out.
        let _ = self.engine.reject(incoming, &refusal.encode());
    }

    fn may_come(&self, private_data: &[u8], peer: Option<SocketAddr>) -> Result<Parameters, Refusal> {
        let data = ConnectData::decode(private_data).map_err(|error| match error {
            DecodeError::Version(_) => Refusal::Version(PROTOCOL_VERSION),
            DecodeError::Foreign | DecodeError::Malformed => Refusal::Malformed,
        })?;
        let parameters = data.parameters;
        parameters.check().map_err(Refusal::Excess)?;
        if parameters.is_killed_by_reply() && !self.plan.capabilities.send_with_invalidate {
            return Err(Refusal::RemoteInvalidation);
        }
        if parameters.server_opens_keys() && !self.plan.capabilities.attributes.memory_management_extensions {
            return Err(Refusal::NoKeys);
        }
        self.desk.admit(&data, peer)?;
        Ok(parameters)
    }

    fn accept_waiting(&mut self) {
        while let Some(&(incoming, parameters)) = self.incoming.front() {
            let options = plan::connection(&parameters, self.plan.negotiated);
            match self.engine.accept(incoming, &[], &options) {
                Ok(id) => {
                    let guest = Guest::new(id, parameters, self.first_byte(usize::from(id.index)));
                    if let Some(place) = self.guests.get_mut(usize::from(id.index)) {
                        *place = Some(guest);
                    }
                }
                Err(OpenError::WouldBlock) => return,
                Err(_) => {
                    // Uneven placement, or a former connection that still ends.
                    self.reject(incoming, Refusal::Busy);
                    self.desk.left(0, Some(Ending::Protocol(Breach::Connections)));
                }
            }
            self.incoming.pop_front();
        }
    }

    /// A client's connection is up: memory is opened to it where it needs some, and it is told to begin.
    fn connected(&mut self, connection: ConnectionId) {
        let Some(guest) = self.guest(connection) else { return };
        let (operation, key) = (guest.parameters.operation, guest.parameters.key);
        let (layout, first) = (guest.layout, guest.first);
        self.desk.connected();
        self.vigil.hear();
        let Some(access) = operation.server_opens() else { return self.greet(connection, Kind::Ready, &[]) };
        for slot in 0..layout.slots {
            // Depths are bounded far below 2^16.
            mark(&self.data, first + layout.slot_offset(0, slot), layout.ranges_span(), stamp(slot as u16, 0));
        }
        let span = Segment { offset: first as u64, ..layout.connection_span(self.memory, 0) };
        if key == KeyKind::Memory {
            return self.open_by_call(connection, span, access);
        }
        let chunk = Chunk { access, segments: &[span] };
        match self.engine.register_now(connection, &chunk, u64::from(connection.index) << 48, &mut Commands) {
            Ok(_) => {}
            Err(SubmitError::TooManyRegistrations) => self.greet(connection, Kind::TooLarge, &[]),
            Err(_) => self.engine.disconnect(connection),
        }
    }

    /// Opens memory to a client for the run by ibv_reg_mr.
    fn open_by_call(&mut self, connection: ConnectionId, span: Segment, access: Access) {
        // It lies in the memory.
        let bytes = self.data.slice(span.offset as usize, span.length as usize);
        let (Some(queue_pair), Ok(bytes)) = (self.engine.queue_pair(connection), bytes) else {
            return self.engine.disconnect(connection);
        };
        match self.engine.port_mut().register_memory(queue_pair, &bytes, access) {
            Ok(opened) => {
                if let Some(guest) = self.guest(connection) {
                    guest.opened = Some(opened);
                }
                let grant = Grant { address: bytes.address(), key: opened.key, length: span.length };
                self.greet(connection, Kind::Ready, &[grant]);
            }
            Err(_) => self.greet(connection, Kind::NotRegistered, &[]),
        }
    }

    /// Where the memory of a connection begins: each has as much as the capacity says.
    fn first_byte(&self, index: usize) -> usize {
        Layout::new(&self.plan.capacity).slot_offset(index, 0)
    }

    fn key_made(&mut self, cookie: u64, grant: Grant) {
        let (index, ..) = of_cookie(cookie);
        if let Some(connection) = self.guests.get(index).and_then(Option::as_ref).map(|guest| guest.id) {
            self.greet(connection, Kind::Ready, &[grant]);
        }
    }

    fn greet(&mut self, connection: ConnectionId, kind: Kind, grants: &[Grant]) {
        let mut message = [0; MAX_COMMAND_BYTES];
        Header::new(kind, 0, self.vigil.milliseconds()).encode(&mut message);
        let length = HEADER_BYTES + grants.len() * 16;
        let named = name_grants(&mut message, grants).is_some();
        let reply =
            ResponseRequest { local: &[], remote: &[], message: &message[..length], invalidate: None, cookie: 0 };
        if !named || self.engine.respond(connection, &reply).is_err() {
            self.engine.disconnect(connection);
        }
    }

    fn received(&mut self, connection: ConnectionId, received: Received) {
        self.vigil.hear();
        // What comes behind a breach is not looked at, nor what comes behind its leave: the empty message that ends its send
        // queue, where its device could not stop that.
        let place = self.guests.get_mut(usize::from(connection.index)).and_then(Option::as_mut);
        let guest = place.filter(|guest| guest.id == connection && guest.died.is_none() && !guest.bye);
        let Some(guest) = guest else { return self.engine.release(received) };
        let room = guest.looked_at().min(self.message.len());
        let length = self.engine.message(&received, 0, &mut self.message[..room]);
        let message = &self.message[..length];
        let (header, what) = match Header::decode(message) {
            Some(Header { kind: Kind::Bye, .. }) => {
                guest.bye = true;
                return self.engine.release(received);
            }
            Some(header) if header.kind == Kind::Ping => (header, Answer::Pong(received)),
            Some(header) if header.kind == Kind::Opened => {
                let begun = Rally::begin(guest.rally.is_some(), &guest.parameters, header, message);
                self.engine.release(received);
                match begun {
                    Ok(rally) => guest.rally = Some(rally),
                    Err(wrong) => {
                        guest.died = Some(Ending::Protocol(wrong));
                        self.engine.disconnect(connection);
                    }
                }
                return;
            }
            header => {
                match header.ok_or(Breach::NoMessage).and_then(|header| command(guest, header, message, &received)) {
                    Ok((header, Some(ranges))) => {
                        self.engine.release(received);
                        (header, Answer::Transfer(ranges))
                    }
                    Ok((header, None)) => (header, Answer::Echo(received)),
                    Err(wrong) => {
                        guest.died = Some(Ending::Protocol(wrong));
                        self.engine.release(received);
                        return self.engine.disconnect(connection);
                    }
                }
            }
        };
        let Header { slot, sequence, .. } = header;
        self.owe(Owed { connection, slot, sequence, what });
    }

    fn owe(&mut self, owed: Owed) {
        if !self.owed.is_empty() {
            self.owed.push_back(owed);
        } else if let Some(owed) = self.pay(owed) {
            self.owed.push_front(owed);
        }
    }

    /// Begins what is owed. Returns it where there is no room.
    fn pay(&mut self, owed: Owed) -> Option<Owed> {
        let begun = match &owed.what {
            Answer::Transfer(ranges) => self.transfer(&owed, *ranges),
            Answer::Fetched => self.reply_to_fetched(&owed),
            Answer::Echo(received) => self.echo(&owed, received),
            Answer::Pong(_) => self.pong(owed.connection),
        };
        if begun == Err(TransferError::NoSlot) {
            return Some(owed);
        }
        if let Answer::Echo(received) | Answer::Pong(received) = owed.what {
            self.engine.release(received);
        }
        // One that is not connected says so by itself.
        if begun.is_err_and(|error| error != TransferError::NotConnected) {
            self.engine.disconnect(owed.connection);
        }
        None
    }

    fn transfer(&mut self, owed: &Owed, ranges: usize) -> Result<(), TransferError> {
        let Owed { connection, slot, sequence, .. } = *owed;
        let place = self.guests.get_mut(usize::from(connection.index)).and_then(Option::as_mut);
        let guest = place.filter(|guest| guest.id == connection).ok_or(TransferError::NotConnected)?;
        let (parameters, offset, first) = (&guest.parameters, guest.offset(slot), usize::from(slot) * guest.of_slot);
        // A command was taken with no more of them.
        let remote = guest.ranges.get(first..first + ranges).unwrap_or_default();
        let local = [Segment { memory: self.memory, offset: offset as u64, length: parameters.size }];
        let invalidate = key_to_kill(parameters, remote);
        if parameters.peer_does == PeerDoes::Read {
            mark(&self.data, offset, parameters.size, 0);
            self.engine.fetch(connection, &FetchRequest { local: &local, remote, cookie: cookie(owed) })?;
            if let Some(slot) = guest.slots.get_mut(usize::from(slot)) {
                slot.key = invalidate;
            }
            return Ok(());
        }
        mark(&self.data, offset, parameters.size, stamp(slot, sequence));
        let message = reply(slot, sequence, [0, 0]);
        let answer = ResponseRequest { local: &local, remote, message: &message, invalidate, cookie: 0 };
        self.engine.respond(connection, &answer)?;
        self.answered(connection, slot);
        Ok(())
    }

    fn fetched(&mut self, cookie: u64, status: TransferStatus) {
        let (index, slot, sequence) = of_cookie(cookie);
        let guest = self.guests.get(index).and_then(Option::as_ref);
        if let (TransferStatus::Done, Some(guest)) = (status, guest) {
            let connection = guest.id;
            self.owe(Owed { connection, slot, sequence, what: Answer::Fetched });
        }
    }

    fn reply_to_fetched(&mut self, owed: &Owed) -> Result<(), TransferError> {
        let Owed { connection, slot, sequence, .. } = *owed;
        let guest = self.guest(connection).ok_or(TransferError::NotConnected)?;
        let (offset, size) = (guest.offset(slot), guest.parameters.size);
        let invalidate = guest.slots.get(usize::from(slot)).and_then(|slot| slot.key);
        let message = reply(slot, sequence, ends(offset, size).map(|at| self.word(at)));
        let answer = ResponseRequest { local: &[], remote: &[], message: &message, invalidate, cookie: 0 };
        self.engine.respond(connection, &answer)?;
        self.answered(connection, slot);
        Ok(())
    }

    /// Sends a message back. Its length was checked.
    fn echo(&mut self, owed: &Owed, received: &Received) -> Result<(), TransferError> {
        let Owed { connection, slot, .. } = *owed;
        let size = self.guest(connection).ok_or(TransferError::NotConnected)?.parameters.size as usize;
        let Some(message) = self.message.get_mut(..size) else { return Err(TransferError::MessageLength) };
        self.engine.message(received, 0, message);
        if let Some(header) = Header::decode(message) {
            Header { kind: Kind::Reply, ..header }.encode(message);
        }
        let answer = ResponseRequest { local: &[], remote: &[], message, invalidate: None, cookie: 0 };
        self.engine.respond(connection, &answer)?;
        self.answered(connection, slot);
        Ok(())
    }

    fn pong(&mut self, connection: ConnectionId) -> Result<(), TransferError> {
        let mut message = [0; HEADER_BYTES];
        Header::new(Kind::Pong, 0, 0).encode(&mut message);
        let answer = ResponseRequest { local: &[], remote: &[], message: &message, invalidate: None, cookie: 0 };
        self.engine.respond(connection, &answer)
    }

    /// The answer is on its way, and with it the client may use the slot again.
    fn answered(&mut self, connection: ConnectionId, slot: u16) {
        self.served += 1;
        let Some(guest) = self.guest(connection) else { return };
        guest.served += 1;
        if let Some(slot) = guest.slots.get_mut(usize::from(slot)) {
            slot.is_taken = false;
        }
    }

    fn has_rallies(&self) -> bool {
        self.plan.capacity.operation.rallies() && self.guests.iter().flatten().any(|guest| guest.rally.is_some())
    }

    /// Answers what clients have written into their slots since the last poll. Returns how many.
    fn answer_rallies(&mut self) -> u32 {
        if !self.has_rallies() {
            return 0;
        }
        let mut answered = 0;
        for index in 0..self.guests.len() {
            answered += self.answer_rally(index);
        }
        self.served += u64::from(answered);
        answered
    }

    fn answer_rally(&mut self, index: usize) -> u32 {
        let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else { return 0 };
        let (connection, layout, first, size) = (guest.id, guest.layout, guest.first, guest.parameters.size);
        let Some(rally) = guest.rally.as_mut().filter(|_| guest.died.is_none() && !guest.bye) else { return 0 };
        let mut answered = 0;
        for slot in 0..layout.slots {
            let offset = first + layout.slot_offset(0, slot);
            let Some((remote, answer)) = rally.look(slot, ends(offset, size).map(|at| word_at(&self.data, at))) else {
                continue;
            };
            mark(&self.data, offset, size, answer);
            let local = [Segment { memory: self.memory, offset: offset as u64, length: size }];
            match self.engine.write(connection, &WriteRequest { local: &local, remote: &[remote], cookie: 0 }) {
                Ok(()) => {
                    rally.answered(slot);
                    answered += 1;
                }
                // The next poll tries again; the end of a connection says so by itself.
                Err(TransferError::NoSlot | TransferError::NotConnected) => break,
                Err(_) => {
                    self.engine.disconnect(connection);
                    break;
                }
            }
        }
        guest.served += u64::from(answered);
        answered
    }

    fn word(&self, at: usize) -> u64 {
        word_at(&self.data, at)
    }

    fn gone(&mut self, connection: ConnectionId, cause: Option<DisconnectCause>) {
        let Some(place) = self.guests.get_mut(usize::from(connection.index)) else { return };
        let Some(guest) = place.take_if(|guest| guest.id == connection) else { return };
        if let Some(opened) = guest.opened {
            // One that the device keeps goes with the process: nobody has a connection to it.
            let _ = self.engine.port_mut().deregister_memory(opened);
        }
        let cause = cause.map_or(Ending::Protocol(Breach::Unconnected), Ending::Engine);
        // One that this side ends, because it is to stop, has done nothing wrong.
        let ours = self.told_to_stop && cause == Ending::Engine(DisconnectCause::Local);
        let died = guest.died.or((!guest.bye && !ours).then_some(cause));
        self.desk.left(guest.served, died);
    }
}

/// What a command asks for: a transfer with so many ranges, which are in its slot's places then, or its own bytes back.
fn command(
    guest: &mut Guest,
    header: Header,
    message: &[u8],
    received: &Received,
) -> Result<(Header, Option<usize>), Breach> {
    let Parameters { operation, size, depth, .. } = guest.parameters;
    let Header { kind, slot, count, .. } = header;
    let place = guest.slots.get_mut(usize::from(slot)).ok_or(Breach::Slot { slot, depth })?;
    if place.is_taken {
        return Err(Breach::SlotTaken { slot, depth });
    }
    let asked = match kind {
        Kind::Request if operation.asks_for_rdma() => {
            let first = usize::from(slot) * guest.of_slot;
            let places = guest.ranges.get_mut(first..first + guest.of_slot).unwrap_or_default();
            Some(ranges(message, count, size, places).ok_or(Breach::Ranges { count, size })?)
        }
        Kind::Echo if operation.is_message_alone() && received.length() == size => None,
        Kind::Echo if operation.is_message_alone() => return Err(Breach::Length { bytes: received.length(), size }),
        _ => return Err(Breach::Unasked),
    };
    place.is_taken = true;
    Ok((header, asked))
}

/// The key that dies with the reply; the client kills the others.
fn key_to_kill(parameters: &Parameters, ranges: &[RemoteSegment]) -> Option<u32> {
    ranges.first().filter(|_| parameters.is_killed_by_reply()).map(|range| range.remote.key)
}

fn word_at(data: &DeviceMemory, at: usize) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    // Slots lie in the memory.
    let _ = data.read(at, &mut bytes);
    u64::from_le_bytes(bytes)
}

/// Writes both ends of what is moved for a slot.
fn mark(data: &DeviceMemory, offset: usize, size: u32, value: u64) {
    for at in ends(offset, size) {
        // Slots lie in the memory.
        let _ = data.write(at, &value.to_le_bytes());
    }
}

/// Offsets of both ends of what is moved.
fn ends(offset: usize, size: u32) -> [usize; 2] {
    [offset, offset + size as usize - size_of::<u64>()]
}

fn reply(slot: u16, sequence: u32, found: [u64; 2]) -> [u8; REPLY_BYTES] {
    let mut message = [0; REPLY_BYTES];
    Header::new(Kind::Reply, slot, sequence).encode(&mut message);
    for (place, word) in message[HEADER_BYTES..].chunks_exact_mut(size_of::<u64>()).zip(found) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    message
}

/// Connection, slot and sequence in 64 bits.
fn cookie(owed: &Owed) -> u64 {
    u64::from(owed.connection.index) << 48 | u64::from(owed.slot) << 32 | u64::from(owed.sequence)
}

fn of_cookie(cookie: u64) -> (usize, u16, u32) {
    ((cookie >> 48) as usize, (cookie >> 32) as u16, cookie as u32)
}
