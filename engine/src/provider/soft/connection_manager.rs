//! Connection management with the event flow of rdma_cm(7).

use super::device::{Effect, QueuePairRecord, SoftDevice};
use super::fabric::{Message, Remote, Unasked};
use super::link::{Incoming, Link};
use super::port::PortCommand;
use super::queue_pair::Negotiated;
use super::wire::{WireEnd, wire};
use crate::provider::{
    Answer, CommandError, ConnectionEvent, ConnectionParameters, DeviceEvent, Errno, IncomingId, ListenerId,
    PrivateData, QueuePairId, RejectReason, Ticket,
};
use std::net::SocketAddr;

/// Connect requests that may wait for accept or reject: the default of net.rdma_ucm.max_backlog. Peers whose request finds
/// no place hear only that nobody could be reached, as over a real network.
const LISTEN_BACKLOG: usize = 1024;

impl SoftDevice {
    pub(super) fn listen(&mut self, ticket: Ticket, address: SocketAddr) -> Result<(), CommandError> {
        let listener = ListenerId(self.names.count());
        if !self.fabric.listen(address, self.number, listener) {
            return Err(CommandError::Address(Errno::EADDRINUSE));
        }
        if let Some(gateway) = &mut self.gateway
            && let Err(errno) = gateway.listen(address, listener)
        {
            self.fabric.stop_listening(self.number, listener);
            return Err(CommandError::Address(errno));
        }
        self.listeners.insert(listener);
        self.answer(ticket, Ok(Answer::Listener(listener)));
        Ok(())
    }

    pub(super) fn stop_listening(&mut self, ticket: Ticket, listener: ListenerId) -> Result<(), CommandError> {
        if !self.listeners.remove(&listener) {
            return Err(CommandError::Unknown);
        }
        self.fabric.stop_listening(self.number, listener);
        if let Some(gateway) = &mut self.gateway {
            gateway.stop_listening(listener);
        }
        let waiting: Vec<IncomingId> =
            self.incoming.iter().filter(|(_, incoming)| incoming.listener == listener).map(|(id, _)| *id).collect();
        for id in waiting {
            if let Some(incoming) = self.incoming.remove(&id) {
                self.refuse(incoming.from, RejectReason::NoListener, PrivateData::new());
            }
        }
        self.answer(ticket, Ok(Answer::Done));
        Ok(())
    }

    /// A queue pair that may be connected.
    fn unconnected(&mut self, queue_pair: QueuePairId) -> Result<&mut QueuePairRecord, CommandError> {
        let record = self.queue_pair_record(queue_pair)?;
        if matches!(record.link, Link::Unconnected) { Ok(record) } else { Err(CommandError::INVALID) }
    }

    pub(super) fn connect(
        &mut self,
        ticket: Ticket,
        queue_pair: QueuePairId,
        address: SocketAddr,
        private_data: PrivateData,
        parameters: ConnectionParameters,
    ) -> Result<(), CommandError> {
        let record = self.unconnected(queue_pair)?;
        record.link = Link::Connecting;
        self.answer(ticket, Ok(Answer::Done));
        let from = Remote { device: self.number, queue_pair };
        let peer = self.options.address;
        let mut asked = self.fabric.ask(address, from, peer, private_data.clone(), parameters);
        if let (Err(Unasked::NoListener), Some(gateway)) = (&asked, &mut self.gateway) {
            asked = gateway.ask(&self.fabric, address, (queue_pair, peer, private_data, parameters));
        }
        match asked {
            Ok(()) => {}
            Err(Unasked::NoListener) => {
                self.is_rejected(queue_pair, RejectReason::NoListener, PrivateData::new());
            }
            Err(Unasked::Overloaded) => self.has_ended(queue_pair, true),
        }
        Ok(())
    }

    pub(super) fn accept(
        &mut self,
        ticket: Ticket,
        incoming: IncomingId,
        queue_pair: QueuePairId,
        private_data: PrivateData,
        parameters: ConnectionParameters,
    ) -> Result<(), CommandError> {
        let record = self.unconnected(queue_pair)?;
        let port = record.port;
        let Incoming { from, parameters: theirs, .. } = self.incoming.remove(&incoming).ok_or(CommandError::Unknown)?;
        let said = self.options.wire_packets;
        let packets = self.gateway.as_ref().map_or(said, |gateway| gateway.wire_packets(from.device, said));
        let (ours, peers) = wire(packets, self.fabric.may_sleep());
        let limit = self.options.capabilities.attributes.max_rdma_reads;
        let here = negotiate(&parameters, &theirs, limit);
        let there = negotiate(&theirs, &parameters, limit);
        self.queue_pair_record(queue_pair)?.link =
            Link::Wiring { peer: from, private_data, peer_end: Some((Box::new(peers), there)) };
        let command = PortCommand::Connect(queue_pair, Box::new(ours), here);
        self.answer(ticket, Ok(Answer::Done));
        self.tell(port, None, Effect::Accepted(queue_pair), command);
        Ok(())
    }

    pub(super) fn reject(
        &mut self,
        ticket: Ticket,
        incoming: IncomingId,
        private_data: PrivateData,
    ) -> Result<(), CommandError> {
        let incoming = self.incoming.remove(&incoming).ok_or(CommandError::Unknown)?;
        self.refuse(incoming.from, RejectReason::Consumer, private_data);
        self.answer(ticket, Ok(Answer::Done));
        Ok(())
    }

    pub(super) fn disconnect(&mut self, ticket: Ticket, queue_pair: QueuePairId) -> Result<(), CommandError> {
        let record = self.queue_pair_record(queue_pair)?;
        if let Link::Connected { peer } | Link::Wiring { peer, .. } = core::mem::replace(&mut record.link, Link::Ended)
        {
            // A peer that is gone needs no message.
            let _ = self.fabric.send(peer.device, Message::Disconnected { queue_pair: peer.queue_pair });
        }
        self.answer(ticket, Ok(Answer::Done));
        Ok(())
    }

    /// The port has its end of the wire, or could not take it.
    pub(super) fn wire_is_in_place(&mut self, id: QueuePairId, failed: bool, is_passive: bool) {
        let Some(record) = self.queue_pairs.get_mut(&id) else { return };
        let Link::Wiring { peer, private_data, peer_end } = core::mem::replace(&mut record.link, Link::Ended) else {
            return;
        };
        if failed {
            self.tell_connection(ConnectionEvent::Unreachable { queue_pair: id, errno: Errno::ECONNREFUSED });
            let message = match peer_end {
                Some(_) => Message::Unreachable { queue_pair: peer.queue_pair },
                None => Message::Disconnected { queue_pair: peer.queue_pair },
            };
            let _ = self.fabric.send(peer.device, message);
            return;
        }
        record.link = Link::Connected { peer };
        let here = Remote { device: self.number, queue_pair: id };
        let message = match peer_end {
            Some((wire, negotiated)) => {
                let queue_pair = peer.queue_pair;
                Message::Accepted { queue_pair, peer: here, wire, negotiated, private_data }
            }
            None => {
                self.tell_connection(ConnectionEvent::Established { queue_pair: id, private_data });
                Message::Ready { queue_pair: peer.queue_pair }
            }
        };
        if self.fabric.send(peer.device, message).is_err() {
            self.has_ended(id, is_passive);
        }
    }

    /// Reads one message of another device's connection manager. False where there is none.
    pub(super) fn take_message(&mut self) -> bool {
        let Some(message) = self.fabric.receive(self.number) else { return false };
        match message {
            Message::Request { listener, address, from, peer, private_data, parameters } => {
                // A port of its own for each queue pair, as connection managers choose them.
                let peer = peer.map(|peer| SocketAddr::new(peer, from.queue_pair.0 as u16));
                self.is_asked(Incoming { listener, from, peer, parameters }, address, private_data);
            }
            Message::Accepted { queue_pair, peer, wire, negotiated, private_data } => {
                self.is_accepted(queue_pair, peer, wire, negotiated, private_data);
            }
            Message::Ready { queue_pair } => {
                let private_data = PrivateData::new();
                if self.queue_pairs.get(&queue_pair).is_some_and(|r| matches!(r.link, Link::Connected { .. })) {
                    self.tell_connection(ConnectionEvent::Established { queue_pair, private_data });
                }
            }
            Message::Rejected { queue_pair, reason, private_data } => {
                self.is_rejected(queue_pair, reason, private_data);
            }
            Message::Unreachable { queue_pair } => self.has_ended(queue_pair, true),
            Message::Disconnected { queue_pair } => self.has_ended(queue_pair, false),
        }
        true
    }

    fn is_asked(&mut self, incoming: Incoming, address: SocketAddr, private_data: PrivateData) {
        if !self.listeners.contains(&incoming.listener) {
            return self.refuse(incoming.from, RejectReason::NoListener, PrivateData::new());
        }
        if self.incoming.len() >= LISTEN_BACKLOG {
            // A peer that is gone needs no answer.
            let to = incoming.from;
            let _ = self.fabric.send(to.device, Message::Unreachable { queue_pair: to.queue_pair });
            return;
        }
        let id = IncomingId(self.names.count());
        let (listener, peer, parameters) = (incoming.listener, incoming.peer, incoming.parameters);
        self.incoming.insert(id, incoming);
        let local = Some(address);
        let request = ConnectionEvent::Request { listener, incoming: id, peer, local, private_data, parameters };
        self.tell_connection(request);
    }

    fn is_accepted(
        &mut self,
        id: QueuePairId,
        peer: Remote,
        wire: Box<WireEnd>,
        negotiated: Negotiated,
        private_data: PrivateData,
    ) {
        match self.queue_pairs.get_mut(&id) {
            Some(record) if matches!(record.link, Link::Connecting) => {
                record.link = Link::Wiring { peer, private_data, peer_end: None };
                let port = record.port;
                // The peer knows what it grants, not what this device can do.
                let limit = self.options.capabilities.attributes.max_rdma_reads;
                let negotiated = Negotiated { max_reads: negotiated.max_reads.min(limit), ..negotiated };
                self.tell(port, None, Effect::Connected(id), PortCommand::Connect(id, wire, negotiated));
            }
            // Given up in the meantime: dropping our end tells the peer's NIC, this tells its connection manager.
            _ => {
                let _ = self.fabric.send(peer.device, Message::Disconnected { queue_pair: peer.queue_pair });
            }
        }
    }

    fn is_rejected(&mut self, id: QueuePairId, reason: RejectReason, private_data: PrivateData) {
        if let Some(record) = self.queue_pairs.get_mut(&id).filter(|r| matches!(r.link, Link::Connecting)) {
            record.link = Link::Unconnected;
            self.tell_connection(ConnectionEvent::Rejected { queue_pair: id, reason, private_data });
        }
    }

    /// The peer ended the connection, or was never there.
    fn has_ended(&mut self, id: QueuePairId, unreachable: bool) {
        let Some(record) = self.queue_pairs.get_mut(&id) else { return };
        let was = core::mem::replace(&mut record.link, Link::Ended);
        match was {
            Link::Connecting | Link::Wiring { .. } | Link::Connected { .. } if unreachable => {
                self.tell_connection(ConnectionEvent::Unreachable { queue_pair: id, errno: Errno::ECONNREFUSED });
            }
            Link::Connecting | Link::Wiring { .. } | Link::Connected { .. } => {
                self.tell_connection(ConnectionEvent::Disconnected { queue_pair: id });
            }
            Link::Unconnected | Link::Ended => record.link = was,
        }
    }

    fn refuse(&mut self, to: Remote, reason: RejectReason, private_data: PrivateData) {
        // A peer that is gone needs no answer.
        let _ = self.fabric.send(to.device, Message::Rejected { queue_pair: to.queue_pair, reason, private_data });
    }

    fn tell_connection(&mut self, event: ConnectionEvent) {
        self.events.push_back(DeviceEvent::Connection(event));
    }

    /// The device goes: everybody who waits for it is told.
    pub(super) fn leave(&mut self) {
        let unread = self.fabric.remove(self.number);
        let waiting = core::mem::take(&mut self.incoming);
        let asked = unread.iter().filter_map(|message| match message {
            Message::Request { from, .. } => Some(*from),
            _ => None,
        });
        let unreachable: Vec<Remote> = waiting.values().map(|incoming| incoming.from).chain(asked).collect();
        for from in unreachable {
            let _ = self.fabric.send(from.device, Message::Unreachable { queue_pair: from.queue_pair });
        }
        for record in self.queue_pairs.values() {
            if let Link::Connected { peer } | Link::Wiring { peer, .. } = record.link {
                let _ = self.fabric.send(peer.device, Message::Disconnected { queue_pair: peer.queue_pair });
            }
        }
        if let Some(gateway) = self.gateway.take() {
            gateway.leave(self);
        }
    }
}

/// What one side may do towards the other.
fn negotiate(own: &ConnectionParameters, peer: &ConnectionParameters, limit: u32) -> Negotiated {
    Negotiated {
        max_reads: u32::from(own.initiator_depth.min(peer.responder_resources)).min(limit),
        retry_count: own.retry_count,
        rnr_retry_count: own.rnr_retry_count,
    }
}
