//! What librdmacm and the kernels at both ends do for queue pairs that programs move themselves: identifiers, and events.

use crate::{raw::Signal, verbs::take_back, world::World};
use core::ffi::c_int;
use frwr_engine::provider::verbs::abi::connection_manager::{self as abi, event};
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
};

/// Reasons of a reject (IB specification, table 107).
const NO_LISTENER: c_int = 8;
const CONSUMER: c_int = 28;

/// What one side says of itself in a request or an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) number: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
}

/// How far an identifier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Idle,
    Bound,
    Listening,
    Resolved,
    Routed,
    /// The request is out.
    Requested,
    /// A request that was not answered.
    Incoming,
    /// Answered, and the other side has not said that it is ready.
    Accepted,
    /// The answer is in, and we have not said that we are ready.
    Answered,
    Established,
    /// We ended it, and the other side has not answered.
    Disconnecting,
    Ended,
}

/// An identifier.
#[derive(Debug)]
pub(crate) struct Identifier {
    pub(crate) channel: usize,
    pub(crate) stage: Stage,
    pub(crate) device: Option<String>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) peer: Option<usize>,
    pub(crate) listener: Option<usize>,
    pub(crate) ours: Terms,
    pub(crate) theirs: Terms,
}

impl Identifier {
    pub(crate) fn new(channel: usize) -> Self {
        Self {
            channel,
            stage: Stage::Idle,
            device: None,
            local: None,
            remote: None,
            peer: None,
            listener: None,
            ours: Terms::default(),
            theirs: Terms::default(),
        }
    }
}

/// An event that waits.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) id: usize,
    pub(crate) listener: usize,
    pub(crate) kind: c_int,
    pub(crate) status: c_int,
    pub(crate) private_data: Vec<u8>,
    pub(crate) terms: Terms,
}

/// Where events are read.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) signal: Signal,
    pub(crate) events: VecDeque<Pending>,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionManager {
    pub(crate) channels: HashMap<usize, Channel>,
    pub(crate) ids: HashMap<usize, Identifier>,
}

/// Data that a message carries, filled up with zeroes to what its kind has room for, as InfiniBand's are.
fn filled(data: &[u8], room: usize) -> Vec<u8> {
    let mut filled = data.to_vec();
    filled.resize(room.max(data.len()), 0);
    filled
}

/// Room for private data in a request of RDMA_PS_TCP, an answer and a reject.
pub(crate) const REQUEST_DATA: usize = 56;
const ANSWER_DATA: usize = 196;
const REJECT_DATA: usize = 148;

impl ConnectionManager {
    fn tell(&mut self, event: Pending) {
        let channel = self.ids.get(&event.id).map(|id| id.channel);
        if let Some(channel) = channel.and_then(|channel| self.channels.get_mut(&channel)) {
            channel.events.push_back(event);
            channel.signal.raise();
        }
    }

    /// Tells an identifier something without more to it.
    pub(crate) fn say(&mut self, id: usize, kind: c_int, status: c_int) {
        let event = Pending { id, listener: 0, kind, status, private_data: Vec::new(), terms: Terms::default() };
        self.tell(event);
    }

    fn reject(&mut self, id: usize, reason: c_int, data: &[u8]) {
        if let Some(found) = self.ids.get_mut(&id) {
            found.stage = Stage::Ended;
        }
        let private_data = filled(data, REJECT_DATA);
        let terms = Terms::default();
        self.tell(Pending { id, listener: 0, kind: event::REJECTED, status: reason, private_data, terms });
    }

    fn listener_at(&self, address: SocketAddr) -> Option<usize> {
        let listens = |id: &Identifier| id.stage == Stage::Listening && id.local == Some(address);
        self.ids.iter().find(|(_, id)| listens(id)).map(|(at, _)| *at)
    }

    /// Brings a request to whoever listens; `incoming` is the new identifier of the other side.
    pub(crate) fn request(&mut self, id: usize, incoming: usize, ours: Terms, data: &[u8]) -> Result<bool, i32> {
        let found = self.ids.get_mut(&id).filter(|id| id.stage == Stage::Routed).ok_or(libc::EINVAL)?;
        (found.ours, found.stage) = (ours, Stage::Requested);
        let (remote, local) = (found.remote.ok_or(libc::EINVAL)?, found.local);
        let Some(listener) = self.listener_at(remote) else {
            self.reject(id, NO_LISTENER, &[]);
            return Ok(false);
        };
        let (channel, device) = (self.ids[&listener].channel, self.ids[&listener].device.clone());
        let mut answerer = Identifier::new(channel);
        (answerer.stage, answerer.theirs) = (Stage::Incoming, ours);
        (answerer.peer, answerer.listener) = (Some(id), Some(listener));
        (answerer.device, answerer.local, answerer.remote) = (device, Some(remote), local);
        self.ids.insert(incoming, answerer);
        if let Some(found) = self.ids.get_mut(&id) {
            found.peer = Some(incoming);
        }
        let private_data = filled(data, REQUEST_DATA);
        let kind = event::CONNECT_REQUEST;
        self.tell(Pending { id: incoming, listener, kind, status: 0, private_data, terms: ours });
        Ok(true)
    }

    /// The other side of an identifier, where both are at these stages.
    fn peer_at(&mut self, id: usize, here: Stage, there: Stage) -> Result<usize, i32> {
        let found = self.ids.get(&id).filter(|id| id.stage == here).ok_or(libc::EINVAL)?;
        let peer = found.peer.ok_or(libc::EINVAL)?;
        let is_there = self.ids.get(&peer).is_some_and(|peer| peer.stage == there);
        if is_there { Ok(peer) } else { Err(libc::EINVAL) }
    }

    fn set(&mut self, id: usize, stage: Stage) {
        if let Some(found) = self.ids.get_mut(&id) {
            found.stage = stage;
        }
    }

    pub(crate) fn accept(&mut self, id: usize, ours: Terms, data: &[u8]) -> Result<(), i32> {
        let peer = self.peer_at(id, Stage::Incoming, Stage::Requested)?;
        for (at, stage, is_ours) in [(id, Stage::Accepted, true), (peer, Stage::Answered, false)] {
            if let Some(found) = self.ids.get_mut(&at) {
                found.stage = stage;
                *if is_ours { &mut found.ours } else { &mut found.theirs } = ours;
            }
        }
        let private_data = filled(data, ANSWER_DATA);
        let kind = event::CONNECT_RESPONSE;
        self.tell(Pending { id: peer, listener: 0, kind, status: 0, private_data, terms: ours });
        Ok(())
    }

    pub(crate) fn refuse(&mut self, id: usize, data: &[u8]) -> Result<(), i32> {
        let peer = self.peer_at(id, Stage::Incoming, Stage::Requested)?;
        self.set(id, Stage::Ended);
        self.reject(peer, CONSUMER, data);
        Ok(())
    }

    pub(crate) fn establish(&mut self, id: usize) -> Result<(), i32> {
        let peer = self.peer_at(id, Stage::Answered, Stage::Accepted)?;
        self.set(id, Stage::Established);
        self.set(peer, Stage::Established);
        self.say(peer, event::ESTABLISHED, 0);
        Ok(())
    }

    /// The side that begins hears of the end when the other side answers.
    pub(crate) fn disconnect(&mut self, id: usize) -> Result<(), i32> {
        let found = self.ids.get(&id).ok_or(libc::EINVAL)?;
        let (stage, peer) = (found.stage, found.peer);
        let there = peer.and_then(|peer| self.ids.get(&peer)).map(|peer| peer.stage);
        match (stage, peer, there) {
            (Stage::Established | Stage::Accepted | Stage::Answered, Some(peer), Some(_)) => {
                self.set(id, Stage::Disconnecting);
                self.set(peer, Stage::Ended);
                self.say(peer, event::DISCONNECTED, 0);
                Ok(())
            }
            (Stage::Ended, Some(peer), Some(Stage::Disconnecting)) => {
                self.set(peer, Stage::Ended);
                self.say(peer, event::DISCONNECTED, 0);
                Ok(())
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// An identifier goes: whoever waits for it or is connected to it is told.
    pub(crate) fn destroy(&mut self, id: usize) -> Option<Vec<usize>> {
        let gone = self.ids.remove(&id)?;
        self.drop_events(id);
        // Requests that nobody has read yet go with their listener.
        let mut with_it: Vec<usize> = Vec::new();
        if gone.stage == Stage::Listening {
            let unread = self.unread_requests(gone.channel, id);
            for incoming in unread {
                self.drop_events(incoming);
                if let Some(peer) = self.ids.remove(&incoming).and_then(|incoming| incoming.peer) {
                    self.reject(peer, NO_LISTENER, &[]);
                }
                with_it.push(incoming);
            }
        }
        if let Some(peer) = gone.peer.filter(|peer| self.ids.contains_key(peer)) {
            match gone.stage {
                Stage::Incoming | Stage::Requested | Stage::Answered => self.reject(peer, CONSUMER, &[]),
                Stage::Accepted | Stage::Established | Stage::Disconnecting
                    if self.ids[&peer].stage != Stage::Ended || gone.stage == Stage::Disconnecting =>
                {
                    self.set(peer, Stage::Ended);
                    self.say(peer, event::DISCONNECTED, 0);
                }
                _ => {}
            }
        }
        Some(with_it)
    }

    fn unread_requests(&self, channel: usize, listener: usize) -> Vec<usize> {
        let events = self.channels.get(&channel).map(|channel| &channel.events);
        let of_it = |event: &&Pending| event.kind == event::CONNECT_REQUEST && event.listener == listener;
        events.into_iter().flatten().filter(of_it).map(|event| event.id).collect()
    }

    fn drop_events(&mut self, id: usize) {
        for channel in self.channels.values_mut() {
            let before = channel.events.len();
            channel.events.retain(|event| event.id != id);
            (channel.events.len()..before).for_each(|_| channel.signal.lower());
        }
    }
}

impl World {
    /// Binds an identifier to the device that has the address.
    pub(crate) fn bind_to(&mut self, id: usize, address: SocketAddr) -> Result<(), i32> {
        let device = self.devices.iter().find(|(_, record)| address.ip() == record.address);
        let (name, record) = device.ok_or(libc::EADDRNOTAVAIL)?;
        let found = self.manager.ids.get_mut(&id).ok_or(libc::EINVAL)?;
        (found.device, found.local) = (Some(name.clone()), Some(address));
        let raw = core::ptr::with_exposed_provenance_mut::<abi::Identifier>(id);
        // SAFETY: an identifier that is in the table is alive; its maker only reads it.
        unsafe { (*raw).verbs = core::ptr::with_exposed_provenance_mut(record.manager_context) };
        Ok(())
    }

    /// Destroys an identifier and what goes with it.
    pub(crate) fn destroy_id(&mut self, id: usize) -> Result<(), i32> {
        let with_it = self.manager.destroy(id).ok_or(libc::EINVAL)?;
        for gone in with_it.into_iter().chain([id]) {
            // SAFETY: made as this structure, and forgotten above.
            unsafe { take_back(core::ptr::with_exposed_provenance_mut::<abi::Identifier>(gone)) };
        }
        Ok(())
    }
}
