//! The half of a connected queue pair that executes what the peer asks, packet by packet, so that a key that dies bites
//! at the next packet.

use super::bases::Cursor;
use super::nic::Nic;
use super::receive_queue::ReceiveQueue;
use super::registration::Asker;
use super::vendor_code as code;
use super::wire::{Request, RequestPacket, Response, WireEnd};
use crate::provider::{AsyncEvent, Failure, FailureStatus, ReceiveRequest, Success};

/// Progress steps between two receiver-not-ready answers to one message: longer than an iteration that posts receives.
const RNR_STEPS: u32 = 64;

/// A message that is partly received.
#[derive(Clone, Copy, Debug)]
struct Receiving {
    receive: ReceiveRequest,
    cursor: Cursor,
    bytes: u32,
}

/// An RDMA READ that is partly answered.
#[derive(Clone, Copy, Debug)]
struct Reading {
    sequence: u32,
    key: u32,
    address: u64,
    left: u32,
    first: bool,
}

/// The last answer before the error state.
#[derive(Clone, Copy, Debug)]
struct Closing {
    sequence: u32,
    response: Response,
}

/// What the peer's messages are at.
pub(super) struct Responder {
    receiving: Option<Receiving>,
    reading: Option<Reading>,
    /// The message at the front met no receive: progress steps until its sender is told again.
    not_ready: Option<u32>,
    unacknowledged: Option<u32>,
    closing: Option<Closing>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The queue pair lives on.
    Alive,
    /// The queue pair goes to the error state.
    Failed,
}

impl Responder {
    pub(super) fn new() -> Self {
        Self { receiving: None, reading: None, not_ready: None, unacknowledged: None, closing: None }
    }

    /// The receive that a message had begun to fill; it is flushed first.
    pub(super) fn take_receiving(&mut self) -> Option<ReceiveRequest> {
        self.receiving.take().map(|receiving| receiving.receive)
    }

    /// It has nothing to do before the peer sends something.
    pub(super) fn rests(&self) -> bool {
        let Self { receiving: _, reading, not_ready, unacknowledged, closing } = self;
        reading.is_none() && not_ready.is_none() && unacknowledged.is_none() && closing.is_none()
    }

    /// Executes requests of the peer, within a budget of packets.
    pub(super) fn step(
        &mut self,
        receives: &mut ReceiveQueue,
        wire: &mut WireEnd,
        nic: &mut Nic,
        asker: Asker,
        budget: &mut u32,
    ) -> Step {
        loop {
            if let Some(closing) = self.closing {
                return self.close(closing, wire);
            }
            if self.reading.is_some() && !self.answer_read(wire, nic, asker, budget) {
                break;
            }
            if self.closing.is_some() {
                continue;
            }
            let hidden = nic.interferences.any(&nic.monitor, |one| one.hides_receives(asker.queue_pair));
            let without_receive = hidden || receives.is_empty(&nic.shared_receives);
            if (without_receive || self.not_ready.is_some()) && self.is_not_ready(without_receive, wire, nic) {
                break;
            }
            if *budget == 0 || wire.request_in.pop_with(|packet| self.execute(packet, receives, nic, asker)).is_none() {
                break;
            }
            *budget -= 1;
        }
        self.acknowledge(wire);
        Step::Alive
    }

    /// Sends a response. Each says that all messages before it were executed, so no acknowledgement is owed any more.
    fn respond(&mut self, wire: &mut WireEnd, response: Response, sequence: u32) -> bool {
        let sent = wire.respond(response, sequence);
        if sent {
            self.unacknowledged = None;
        }
        sent
    }

    /// Sends what is owed for executed messages; later, where there is no room.
    fn acknowledge(&mut self, wire: &mut WireEnd) {
        if let Some(sequence) = self.unacknowledged {
            self.respond(wire, Response::Acknowledge, sequence);
        }
    }

    fn close(&mut self, closing: Closing, wire: &mut WireEnd) -> Step {
        let sent = self.respond(wire, closing.response, closing.sequence);
        // Nobody is left to answer where the peer is gone.
        if sent || wire.peer_is_gone() { Step::Failed } else { Step::Alive }
    }

    /// Whether the next packet begins a message that meets no receive. It stays in the lane, as if it were sent again and
    /// again; its sender is told now and then. A sender that is gone sends nothing again: what met no receive is lost, and
    /// all behind it.
    fn is_not_ready(&mut self, without_receive: bool, wire: &mut WireEnd, nic: &Nic) -> bool {
        // Before the look into the lane: once it is closed, nothing comes behind what is in it.
        let gone = wire.request_in.is_closed();
        let begins = wire.request_in.peek_with(|packet| {
            (packet.first && matches!(packet.header, Request::Send { .. })).then_some(packet.sequence)
        });
        let Some(Some(sequence)) = begins else { return false };
        if gone {
            while wire.request_in.pop_with(|_| ()).is_some() {}
        } else if without_receive {
            self.tell_not_ready(sequence, wire, nic);
        }
        gone || without_receive
    }

    fn tell_not_ready(&mut self, sequence: u32, wire: &mut WireEnd, nic: &Nic) {
        if let Some(steps) = self.not_ready.as_mut().filter(|steps| **steps > 0) {
            *steps -= 1;
            return;
        }
        if self.respond(wire, Response::NotReady, sequence) {
            if self.not_ready.is_none() {
                nic.monitor.count_message_without_receive();
            }
            self.not_ready = Some(RNR_STEPS);
        }
    }

    fn execute(&mut self, packet: &RequestPacket, receives: &mut ReceiveQueue, nic: &mut Nic, asker: Asker) {
        match packet.header {
            Request::Send { invalidate } => self.execute_send(packet, invalidate, receives, nic, asker),
            Request::Write { key, address, total } => self.execute_write(packet, (key, address, total), nic, asker),
            Request::Read { key, address, length } => {
                if nic.keys.reach(key, address, u64::from(length), false, asker, &nic.bases).is_err() {
                    self.refuse_access(packet.sequence, code::READ_REFUSED, nic, asker);
                } else {
                    self.reading = Some(Reading { sequence: packet.sequence, key, address, left: length, first: true });
                }
            }
            Request::Abandoned => {}
        }
    }

    fn execute_write(
        &mut self,
        packet: &RequestPacket,
        (key, address, total): (u32, u64, u32),
        nic: &mut Nic,
        asker: Asker,
    ) {
        let data = packet.data();
        // The first packet names the whole range; the others are checked again, because keys die in mid-transfer.
        let length = if packet.first { u64::from(total) } else { data.len() as u64 };
        let written = nic.keys.reach(key, address, length, true, asker, &nic.bases).and_then(|reach| {
            reach.copy(data.len(), |memory, offset, range| memory.write(offset, &data[range]).is_ok())
        });
        if written.is_err() {
            self.refuse_access(packet.sequence, code::WRITE_REFUSED, nic, asker);
        } else if packet.last {
            self.unacknowledged = Some(packet.sequence);
        }
    }

    fn refuse_access(&mut self, sequence: u32, cause: u32, nic: &mut Nic, asker: Asker) {
        if nic.rules.queue_pair_events {
            nic.raise(AsyncEvent::QueuePairAccessError(asker.queue_pair));
        }
        self.closing =
            Some(Closing { sequence, response: Response::Refuse(Failure::new(FailureStatus::RemoteAccess, cause)) });
    }

    fn execute_send(
        &mut self,
        packet: &RequestPacket,
        invalidate: Option<u32>,
        receives: &mut ReceiveQueue,
        nic: &mut Nic,
        asker: Asker,
    ) {
        if packet.first {
            let Some(receive) = receives.take(&mut nic.shared_receives) else { return };
            self.not_ready = None;
            self.receiving = Some(Receiving { receive, cursor: Cursor::default(), bytes: 0 });
        }
        let Some(mut receiving) = self.receiving else { return };
        let data = packet.data();
        receiving.bytes = receiving.bytes.saturating_add(data.len() as u32);
        let element = [receiving.receive.element];
        let domain = receives.domain(&nic.shared_receives, asker.domain);
        let status = if receiving.bytes > receiving.receive.element.length {
            Some((FailureStatus::LocalLength, FailureStatus::RemoteInvalidRequest, code::RECEIVE_LENGTH))
        } else if nic.bases.scatter(&element, &mut receiving.cursor, domain, data).is_err() {
            Some((FailureStatus::LocalProtection, FailureStatus::RemoteOperation, code::RECEIVE_ELEMENT))
        } else {
            None
        };
        self.receiving = Some(receiving);
        if let Some((here, there, cause)) = status {
            let [here, there] = [here, there].map(|status| Failure::new(status, cause));
            self.receiving = None;
            nic.complete_receive(asker.queue_pair, receiving.receive.token, Err(here));
            self.closing = Some(Closing { sequence: packet.sequence, response: Response::Refuse(there) });
        } else if packet.last {
            self.receiving = None;
            self.finish_send(packet.sequence, &receiving, invalidate, nic, asker);
        }
    }

    fn finish_send(
        &mut self,
        sequence: u32,
        receiving: &Receiving,
        invalidate: Option<u32>,
        nic: &mut Nic,
        asker: Asker,
    ) {
        let token = receiving.receive.token;
        let works = nic.options.capabilities.remote_invalidation;
        if invalidate.is_none_or(|key| works && nic.invalidate(key, asker)) {
            let success = Success { bytes: receiving.bytes, invalidated: invalidate };
            nic.complete_receive(asker.queue_pair, token, Ok(success));
            self.unacknowledged = Some(sequence);
        } else {
            // The message arrived: its sender succeeds, and only this side dies.
            nic.complete_receive(
                asker.queue_pair,
                token,
                Err(Failure::new(FailureStatus::RemoteInvalidRequest, code::REMOTE_INVALIDATION)),
            );
            self.closing = Some(Closing { sequence, response: Response::Acknowledge });
        }
    }

    /// Sends packets of the RDMA READ at hand. True when it has ended, well or not.
    fn answer_read(&mut self, wire: &mut WireEnd, nic: &mut Nic, asker: Asker, budget: &mut u32) -> bool {
        while let Some(reading) = self.reading {
            if *budget == 0 {
                return false;
            }
            let length = reading.left.min(nic.options.mtu);
            let Reading { key, address, .. } = reading;
            let Ok(reach) = nic.keys.reach(key, address, u64::from(length), false, asker, &nic.bases) else {
                self.reading = None;
                self.refuse_access(reading.sequence, code::READ_REFUSED, nic, asker);
                return true;
            };
            let last = length == reading.left;
            let sent = wire.response_out.push_with(|packet| {
                packet.header = Response::Data;
                packet.sequence = reading.sequence;
                packet.first = reading.first;
                packet.last = last;
                packet.length = length;
                let room = &mut packet.payload[..length as usize];
                let read =
                    reach.copy(length as usize, |memory, offset, range| memory.read(offset, &mut room[range]).is_ok());
                if read.is_err() {
                    // Nothing ran since the check, so it cannot be; the peer would get whatever is in the room.
                    packet.header = Response::Refuse(Failure::new(FailureStatus::RemoteAccess, code::READ_REFUSED));
                    packet.length = 0;
                }
            });
            if !sent {
                return false;
            }
            (wire.sent, self.unacknowledged) = (true, None);
            *budget -= 1;
            let rest = Reading {
                address: reading.address.wrapping_add(u64::from(length)),
                left: reading.left - length,
                first: false,
                ..reading
            };
            self.reading = (!last).then_some(rest);
        }
        true
    }
}
