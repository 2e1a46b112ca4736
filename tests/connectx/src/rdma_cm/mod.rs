//! The interface of rdma_ucm: identifiers, events, and connections between identifiers of this process.
//!
//! As the kernel's for RoCE with queue pairs that the program makes itself. Packets are not lost, so that each message arrives with
//! the command that sends it.

mod abi;
mod attributes;
mod connect;

use crate::{memory, waiting};
use abi::{
    Address, Create, CreateAnswer, Destroy, DestroyAnswer, EventAnswer, GetEvent, Header, Parameters, Path, Query,
    RouteAnswer, command,
};
use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::RawFd,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// An error as the kernel tells it.
type Errno = i32;

/// Ports that are given to who asks for none.
const EPHEMERAL: core::ops::Range<u16> = 32_768..61_000;

/// No number of a device is told, only its GUID.
const NO_INDEX: u32 = u32::MAX;

/// The card as connections see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Its only address.
    pub(crate) address: Ipv4Addr,
    /// As it stands in packets.
    pub(crate) node_guid: u64,
    /// Its only port.
    pub(crate) port: u8,
    /// The address as a GID.
    pub(crate) gid: [u8; 16],
    /// Index of that one in the port's table.
    pub(crate) gid_index: u8,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Error(Errno),
    /// It asks for an event, and none waits.
    WaitForEvent,
}

/// How far an identifier has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Listening,
    /// A request is on its way to the one who may answer.
    Requesting,
    /// A request that waits for an answer.
    Requested,
    /// The answer is on its way back.
    Answered,
    Connected,
    Ended,
}

/// An rdma_cm_id.
#[derive(Debug)]
struct Id {
    channel: RawFd,
    /// What the program calls it; 0 until a connect request is accepted.
    user: u64,
    local: Option<SocketAddrV4>,
    remote: Option<SocketAddrV4>,
    phase: Phase,
    /// The identifier at the other end.
    peer: Option<u32>,
    /// Of the one who was asked: the listener.
    listener: Option<u32>,
    /// What it told the other end.
    own: Parameters,
    /// What the other end told it.
    theirs: Parameters,
    /// Events of it that were read.
    events: u32,
}

/// An event that waits.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// Whose it is; of a connect request the listener.
    of: u32,
    answer: EventAnswer,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct ConnectionManager {
    settings: Settings,
    channels: BTreeMap<RawFd, VecDeque<Event>>,
    ids: BTreeMap<u32, Id>,
    last: u32,
    next_port: u16,
}

/// A command with what stands in front of it.
struct Asked<'a> {
    channel: RawFd,
    body: &'a [u8],
    room: u16,
}

impl Asked<'_> {
    fn get<T: FromBytes>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.body).map(|(command, _)| command).map_err(|_| libc::EINVAL)
    }

    /// Writes an answer where the command asks for it; ENOSPC where it says that it has less room.
    fn answer<T: IntoBytes + Immutable>(&self, address: u64, value: &T) -> Result<(), Errno> {
        if usize::from(self.room) < size_of::<T>() || address == 0 {
            return Err(libc::ENOSPC);
        }
        memory::put(address, value);
        Ok(())
    }
}

impl ConnectionManager {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, channels: BTreeMap::new(), ids: BTreeMap::new(), last: 0, next_port: EPHEMERAL.start }
    }

    /// A program opens an event channel: a descriptor that is readable while events wait.
    pub(crate) fn open(&mut self) -> Result<RawFd, Errno> {
        let made = waiting::descriptor()?;
        self.channels.insert(made, VecDeque::new());
        Ok(made)
    }

    /// A program closes it: its identifiers go.
    pub(crate) fn close(&mut self, channel: RawFd) {
        let of_it: Vec<u32> =
            self.ids.iter().filter(|(_, id)| id.channel == channel).map(|(number, _)| *number).collect();
        for number in of_it {
            let _ = self.destroy(number);
        }
        self.channels.remove(&channel);
        // SAFETY: no memory is named; it was made by `open`.
        unsafe { libc::syscall(libc::SYS_close, channel) };
    }

    /// One command by write(2).
    pub(crate) fn write(&mut self, channel: RawFd, bytes: &[u8]) -> Outcome {
        match self.run(channel, bytes) {
            Ok(outcome) => outcome,
            Err(errno) => Outcome::Error(errno),
        }
    }

    fn run(&mut self, channel: RawFd, bytes: &[u8]) -> Result<Outcome, Errno> {
        let (header, body) = Header::read_from_prefix(bytes).map_err(|_| libc::EINVAL)?;
        if usize::from(header.in_bytes) > body.len() || !self.channels.contains_key(&channel) {
            return Err(libc::EINVAL);
        }
        let asked = Asked { channel, body, room: header.out_bytes };
        match header.command {
            command::CREATE => self.create(&asked)?,
            command::DESTROY => {
                let wanted = asked.get::<Destroy>()?;
                let events = self.destroy(wanted.id)?;
                asked.answer(wanted.response, &DestroyAnswer { events })?;
            }
            command::BIND => self.bind(&asked)?,
            command::RESOLVE_ADDRESS => self.resolve_address(&asked)?,
            command::RESOLVE_ROUTE => self.resolve_route(&asked)?,
            command::QUERY_ROUTE => self.query_route(&asked)?,
            command::CONNECT => self.connect(&asked)?,
            command::LISTEN => self.listen(&asked)?,
            command::ACCEPT => self.accept(&asked)?,
            command::REJECT => self.reject(&asked)?,
            command::DISCONNECT => self.disconnect(&asked)?,
            command::INIT_ATTRIBUTES => self.init_attributes(&asked)?,
            command::GET_EVENT => return self.get_event(&asked),
            // Time-outs, and that a message came before the news of its connection.
            command::SET_OPTION | command::NOTIFY => {}
            _ => return Err(libc::ENOSYS),
        }
        Ok(Outcome::Done)
    }

    fn id(&mut self, number: u32) -> Result<&mut Id, Errno> {
        self.ids.get_mut(&number).ok_or(libc::ENOENT)
    }

    /// A new identifier.
    fn add(&mut self, channel: RawFd, user: u64) -> u32 {
        self.last += 1;
        let id = Id {
            channel,
            user,
            local: None,
            remote: None,
            phase: Phase::Idle,
            peer: None,
            listener: None,
            own: Parameters::empty(),
            theirs: Parameters::empty(),
            events: 0,
        };
        self.ids.insert(self.last, id);
        self.last
    }

    fn create(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Create>()?;
        let id = self.add(asked.channel, wanted.user);
        asked.answer(wanted.response, &CreateAnswer { id })
    }

    /// Destroys an identifier. Its events that were read.
    fn destroy(&mut self, number: u32) -> Result<u32, Errno> {
        self.end(number);
        let id = self.ids.remove(&number).ok_or(libc::ENOENT)?;
        // Whoever asked and was not answered is told no.
        let asked_it = |other: &Id| other.listener == Some(number) && other.user == 0;
        let unanswered: Vec<u32> =
            self.ids.iter().filter(|(_, other)| asked_it(other)).map(|(number, _)| *number).collect();
        if let Some(events) = self.channels.get_mut(&id.channel) {
            let before = events.len();
            events.retain(|event| event.of != number);
            for _ in events.len()..before {
                waiting::take(id.channel);
            }
        }
        for other in unanswered {
            let _ = self.destroy(other);
        }
        Ok(id.events)
    }

    /// Queues an event, unless the program has no name for whose it is yet.
    fn tell(&mut self, of: u32, event: u32, status: i32, parameters: Parameters) {
        let Some(id) = self.ids.get(&of).filter(|id| id.user != 0) else { return };
        let mut answer = EventAnswer::new_zeroed();
        (answer.user, answer.id, answer.event, answer.status, answer.parameters) =
            (id.user, of, event, status, parameters);
        self.queue(of, answer);
    }

    fn queue(&mut self, of: u32, answer: EventAnswer) {
        let Some(id) = self.ids.get(&of) else { return };
        if let Some(events) = self.channels.get_mut(&id.channel) {
            events.push_back(Event { of, answer });
            waiting::add(id.channel);
        }
    }

    fn get_event(&mut self, asked: &Asked<'_>) -> Result<Outcome, Errno> {
        let wanted = asked.get::<GetEvent>()?;
        let events = self.channels.get_mut(&asked.channel).ok_or(libc::EINVAL)?;
        let Some(event) = events.front() else { return Ok(Outcome::WaitForEvent) };
        asked.answer(wanted.response, &event.answer)?;
        let of = event.of;
        events.pop_front();
        waiting::take(asked.channel);
        self.id(of)?.events += 1;
        Ok(Outcome::Done)
    }

    fn query_route(&mut self, asked: &Asked<'_>) -> Result<(), Errno> {
        let wanted = asked.get::<Query>()?;
        let Settings { node_guid, port, gid, address, .. } = self.settings;
        let id = self.id(wanted.id)?;
        let mut answer = RouteAnswer::new_zeroed();
        answer.device_index = NO_INDEX;
        answer.source = id.local.map_or_else(Address::none, Address::of);
        answer.destination = id.remote.map_or_else(Address::none, Address::of);
        if id.local.is_some_and(|local| *local.ip() == address) {
            (answer.node_guid, answer.port) = (node_guid, port);
        }
        if id.remote.is_some() {
            let mut path = Path::new_zeroed();
            (path.source, path.destination) = (gid, gid);
            path.partition = [0xff; 2];
            (answer.paths[0], answer.path_count) = (path, 1);
        }
        asked.answer(wanted.response, &answer)
    }
}
