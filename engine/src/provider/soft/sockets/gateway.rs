//! The cold half: devices of other processes stand on the fabric as if they were of this one.

use super::bridge::Bridge;
use super::conversation::{Heard, SOCKETS, Talk};
use super::message::Message;
use super::rendezvous::{Listening, Rendezvous, Unreached};
use crate::provider::soft::device::{Effect, SoftDevice};
use crate::provider::soft::fabric::{DeviceNumber, Message as OnFabric, Remote, SoftFabric, Unasked};
use crate::provider::soft::port::PortCommand;
use crate::provider::soft::queue_pair::Negotiated;
use crate::provider::soft::wire::{WireEnd, wire};
use crate::provider::{ConnectionParameters, Errno, ListenerId, PrivateData, QueuePairId};
use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Processes that have connected and said nothing yet. More of them end the oldest; one that means it says at once what it wants.
const MAX_SILENT: usize = 64;
/// Connections taken in one look at one address.
const ACCEPTS_PER_LOOK: usize = 64;
/// Packets that a lane holds at most whose other end is a bridge: two messages of the largest packets, of which a bridge moves one
/// per poll. More would wait here and not in the sockets, at 4 KiB each.
const BRIDGED_PACKETS: u32 = 32;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How far a conversation is.
enum Phase {
    /// Somebody has connected to this listener and said nothing yet.
    Silent(ListenerId),
    /// They asked for a connection, and were not answered.
    Asked,
    /// We asked, for this queue pair.
    Asking(QueuePairId),
    /// This queue pair is connected, or will be.
    Open {
        queue_pair: QueuePairId,
        /// The active side has not said yet that it is ready.
        awaits_ready: bool,
    },
    /// There is nothing left to say.
    Ended,
}

/// A conversation with a connection manager of another process, about one connection.
struct Conversation {
    /// Stands on the fabric for the other process's device.
    number: DeviceNumber,
    talk: Talk,
    phase: Phase,
}

/// What a device has to do with those of other processes.
pub(in super::super) struct Gateway {
    rendezvous: Rendezvous,
    listening: BTreeMap<ListenerId, Listening>,
    /// Oldest first.
    conversations: Vec<Conversation>,
}

impl Gateway {
    pub(in super::super) const fn new(rendezvous: Rendezvous) -> Self {
        Self { rendezvous, listening: BTreeMap::new(), conversations: Vec::new() }
    }

    /// What becomes readable where another process has something to say.
    pub(in super::super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let listening = self.listening.values().map(AsFd::as_fd);
        listening.chain(self.conversations.iter().map(|conversation| conversation.talk.as_fd())).collect()
    }

    /// Packets that each lane of a connection with this device holds, of so many that the options say.
    pub(in super::super) fn wire_packets(&self, device: DeviceNumber, said: u32) -> u32 {
        let is_far = self.conversations.iter().any(|conversation| conversation.number == device);
        if is_far { said.min(BRIDGED_PACKETS) } else { said }
    }

    /// Takes an address among all processes of the user.
    pub(in super::super) fn listen(&mut self, address: SocketAddr, listener: ListenerId) -> Result<(), Errno> {
        let listening = self.rendezvous.listen(address)?;
        self.listening.insert(listener, listening);
        Ok(())
    }

    pub(in super::super) fn stop_listening(&mut self, listener: ListenerId) {
        self.listening.remove(&listener);
    }

    /// Brings a connect request to whoever listens at an address in another process.
    pub(in super::super) fn ask(
        &mut self,
        fabric: &SoftFabric,
        address: SocketAddr,
        request: (QueuePairId, Option<std::net::IpAddr>, PrivateData, ConnectionParameters),
    ) -> Result<(), Unasked> {
        let (queue_pair, peer, private_data, parameters) = request;
        let socket = self.rendezvous.connect(address).map_err(|unreached| match unreached {
            Unreached::NoListener => Unasked::NoListener,
            Unreached::Failed => Unasked::Overloaded,
        })?;
        let talk = Talk::new(socket);
        if !talk.say(&Message::Request { address, queue_pair, peer, parameters, private_data }, &[]) {
            return Err(Unasked::Overloaded);
        }
        self.begin(fabric, talk, Phase::Asking(queue_pair));
        Ok(())
    }

    fn begin(&mut self, fabric: &SoftFabric, talk: Talk, phase: Phase) {
        self.conversations.push(Conversation { number: fabric.join(), talk, phase });
    }

    /// Moves what connection managers say to and from other processes. Whether something was brought to the device.
    pub(in super::super) fn exchange(&mut self, device: &mut SoftDevice) -> bool {
        self.accept(&device.fabric);
        let talks = self.conversations.iter().map(|conversation| &conversation.talk);
        let mut waited: Vec<PollFd<'_>> = talks.map(|talk| PollFd::new(talk, PollFlags::IN)).collect();
        // What fails now is asked again in the next look; nobody is taken to be readable who was not asked.
        let readable = !waited.is_empty() && poll(&mut waited, Some(&AT_ONCE)).is_ok_and(|ready| ready > 0);
        let readable: Vec<bool> = waited.iter().map(|one| readable && !one.revents().is_empty()).collect();
        let mut brought = false;
        for (conversation, readable) in self.conversations.iter_mut().zip(readable) {
            conversation.say_what_waits(device);
            if readable {
                brought |= conversation.hear(device, &self.listening);
            }
        }
        let ended = self.conversations.extract_if(.., |conversation| matches!(conversation.phase, Phase::Ended));
        ended.for_each(|conversation| drop(device.fabric.remove(conversation.number)));
        brought
    }

    fn accept(&mut self, fabric: &SoftFabric) {
        let mut accepted = Vec::new();
        for (listener, listening) in &self.listening {
            let sockets = core::iter::from_fn(|| listening.accept()).take(ACCEPTS_PER_LOOK);
            accepted.extend(sockets.map(|socket| (*listener, socket)));
        }
        for (listener, socket) in accepted {
            self.begin(fabric, Talk::new(socket), Phase::Silent(listener));
        }
        let is_silent = |conversation: &&mut Conversation| matches!(conversation.phase, Phase::Silent(_));
        let silent = self.conversations.iter().filter(|one| matches!(one.phase, Phase::Silent(_))).count();
        let oldest = self.conversations.iter_mut().filter(is_silent).take(silent.saturating_sub(MAX_SILENT));
        oldest.for_each(|conversation| conversation.phase = Phase::Ended);
    }

    /// The device goes: what it said last is told, and every conversation ends.
    pub(in super::super) fn leave(mut self, device: &mut SoftDevice) {
        for conversation in &mut self.conversations {
            conversation.say_what_waits(device);
            drop(device.fabric.remove(conversation.number));
        }
    }
}

impl Conversation {
    /// Tells the other process what was sent to its device.
    fn say_what_waits(&mut self, device: &mut SoftDevice) {
        while let Some(message) = device.fabric.receive(self.number) {
            if !self.say(message, device) {
                self.is_lost(device);
            }
        }
    }

    fn say(&mut self, message: OnFabric, device: &mut SoftDevice) -> bool {
        let (message, ends) = match message {
            OnFabric::Accepted { peer, wire, negotiated, private_data, .. } => {
                return self.accept(device, peer.queue_pair, *wire, negotiated, private_data);
            }
            OnFabric::Ready { .. } => (Message::Ready, false),
            OnFabric::Rejected { reason, private_data, .. } => (Message::Reject { reason, private_data }, true),
            OnFabric::Unreachable { .. } => (Message::Unreachable, true),
            OnFabric::Disconnected { .. } => (Message::Disconnect, true),
            // Nobody asks a conversation.
            OnFabric::Request { .. } => return true,
        };
        if matches!(self.phase, Phase::Ended) {
            return true;
        }
        let heard = self.talk.say(&message, &[]);
        if ends {
            // Whoever did not hear it notices that the conversation ended.
            self.phase = Phase::Ended;
            return true;
        }
        heard
    }

    /// The request was accepted: the far end of the wire stays in this process, and its sockets go to the other.
    fn accept(
        &mut self,
        device: &mut SoftDevice,
        queue_pair: QueuePairId,
        wire: WireEnd,
        negotiated: Negotiated,
        private_data: PrivateData,
    ) -> bool {
        self.phase = Phase::Open { queue_pair, awaits_ready: true };
        let Some([(requests, their_requests), (responses, their_responses)]) = pairs() else { return false };
        let theirs = [their_requests.as_fd(), their_responses.as_fd()];
        if !self.talk.say(&Message::Accept { queue_pair, negotiated, private_data }, &theirs) {
            return false;
        }
        device.add_bridge(Bridge::new(queue_pair, wire, [requests, responses]));
        true
    }

    /// Reads one message. Whether the device has something to take.
    fn hear(&mut self, device: &mut SoftDevice, listening: &BTreeMap<ListenerId, Listening>) -> bool {
        match self.talk.hear() {
            Heard::Nothing => false,
            Heard::End => self.is_lost(device),
            Heard::Message(message, sockets) => self.take(message, sockets, device, listening) || self.is_lost(device),
        }
    }

    /// False where it cannot be said now.
    fn take(
        &mut self,
        message: Message,
        sockets: ArrayVec<OwnedFd, SOCKETS>,
        device: &mut SoftDevice,
        listening: &BTreeMap<ListenerId, Listening>,
    ) -> bool {
        let to_device = match (message, &self.phase) {
            (Message::Request { address, queue_pair, peer, parameters, private_data }, Phase::Silent(listener)) => {
                let listener = *listener;
                if listening.get(&listener).is_some_and(|listening| !listening.is_called(address)) {
                    return false;
                }
                let from = Remote { device: self.number, queue_pair };
                let request = OnFabric::Request { listener, address, from, peer, private_data, parameters };
                self.phase = Phase::Asked;
                if device.fabric.bring(device.number, request).is_err() {
                    self.talk.say(&Message::Unreachable, &[]);
                    self.phase = Phase::Ended;
                }
                return true;
            }
            (Message::Accept { queue_pair: theirs, negotiated, private_data }, Phase::Asking(queue_pair)) => {
                let (queue_pair, Ok(sockets)) = (*queue_pair, sockets.into_inner()) else { return false };
                let packets = device.options.wire_packets.min(BRIDGED_PACKETS);
                let (ours, far) = wire(packets, device.fabric.may_sleep());
                device.add_bridge(Bridge::new(queue_pair, far, sockets));
                self.phase = Phase::Open { queue_pair, awaits_ready: false };
                let peer = Remote { device: self.number, queue_pair: theirs };
                OnFabric::Accepted { queue_pair, peer, wire: Box::new(ours), negotiated, private_data }
            }
            (Message::Reject { reason, private_data }, Phase::Asking(queue_pair)) => {
                let queue_pair = *queue_pair;
                self.phase = Phase::Ended;
                OnFabric::Rejected { queue_pair, reason, private_data }
            }
            (Message::Unreachable, Phase::Asking(queue_pair)) => {
                let queue_pair = *queue_pair;
                self.phase = Phase::Ended;
                OnFabric::Unreachable { queue_pair }
            }
            (Message::Ready, Phase::Open { queue_pair, awaits_ready: true }) => {
                let queue_pair = *queue_pair;
                self.phase = Phase::Open { queue_pair, awaits_ready: false };
                OnFabric::Ready { queue_pair }
            }
            // A disconnect is no other end than that of the socket.
            _ => return false,
        };
        // To the device that calls: it is there.
        let _ = device.fabric.send(device.number, to_device);
        true
    }

    /// The other process is gone, or as good as that. Whether the device has something to take.
    fn is_lost(&mut self, device: &SoftDevice) -> bool {
        let message = match core::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Asking(queue_pair) => OnFabric::Unreachable { queue_pair },
            Phase::Open { queue_pair, .. } => OnFabric::Disconnected { queue_pair },
            Phase::Silent(_) | Phase::Asked | Phase::Ended => return false,
        };
        device.fabric.send(device.number, message).is_ok()
    }
}

/// The sockets of one connection, both ends of each; `None` where the process has no descriptor left.
fn pairs() -> Option<[(OwnedFd, OwnedFd); SOCKETS]> {
    let pair = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()
    };
    Some([pair()?, pair()?])
}

impl SoftDevice {
    /// Hands a bridge to the port of its queue pair; where there is none any more, that is the end of the connection.
    fn add_bridge(&mut self, bridge: Bridge) {
        let queue_pair = bridge.queue_pair();
        let Ok(record) = self.queue_pair_record(queue_pair) else { return };
        let port = record.port;
        self.tell(port, None, Effect::Bridged(queue_pair), PortCommand::AddBridge(Box::new(bridge)));
    }

    /// Looks what devices of other processes say. Whether something has come of them.
    pub(in super::super) fn hear_other_processes(&mut self) -> bool {
        let Some(mut gateway) = self.gateway.take() else { return false };
        let brought = gateway.exchange(self);
        self.gateway = Some(gateway);
        brought
    }
}
