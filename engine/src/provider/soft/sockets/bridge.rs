//! What a queue pair's peer is in this process where the peer is in another one: the far end of its wire, which moves
//! packets to and from two sockets.

use super::border::{Answers, Requests};
use super::channel::{Channel, NoPacket};
use crate::provider::QueuePairId;
use crate::provider::soft::wire::{Request, Response, WireEnd};
use std::os::fd::{BorrowedFd, OwnedFd};

/// One of the two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Requests,
    Responses,
}

/// The far end of one queue pair's wire. Dropping it is the end of the connection, on both sides.
pub(in super::super) struct Bridge {
    queue_pair: QueuePairId,
    /// `None` once the peer's process is gone.
    wire: Option<WireEnd>,
    requests: Channel,
    responses: Channel,
    from_peer: Requests,
    answers: Answers,
}

impl Bridge {
    /// Between the far end of a queue pair's wire and the sockets of requests and responses.
    pub(super) fn new(queue_pair: QueuePairId, wire: WireEnd, [requests, responses]: [OwnedFd; 2]) -> Self {
        Self {
            queue_pair,
            wire: Some(wire),
            requests: Channel::new(requests),
            responses: Channel::new(responses),
            from_peer: Requests::default(),
            answers: Answers::default(),
        }
    }

    pub(super) const fn queue_pair(&self) -> QueuePairId {
        self.queue_pair
    }

    pub(super) fn socket(&self, side: Side) -> BorrowedFd<'_> {
        match side {
            Side::Requests => self.requests.socket(),
            Side::Responses => self.responses.socket(),
        }
    }

    /// Reads what has come; false where nothing will come of this side any more.
    pub(super) fn read(&mut self, side: Side) -> bool {
        let channel = match side {
            Side::Requests => &mut self.requests,
            Side::Responses => &mut self.responses,
        };
        channel.read();
        !channel.has_ended()
    }

    /// Moves what was read to the queue pair, as far as its lanes have room.
    ///
    /// # Errors
    /// The peer said what no queue pair says.
    pub(super) fn deliver(&mut self) -> Result<(), NoPacket> {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        while let Some(decoded) = self.requests.front::<Request>()? {
            let behind = self.from_peer.behind(&decoded.header).ok_or(NoPacket)?;
            if !wire.request_out.push_with(|packet| super::packet::Kind::fill(packet, &decoded)) {
                break;
            }
            self.from_peer = behind;
            let bytes = decoded.bytes;
            self.requests.take(bytes);
        }
        while let Some(decoded) = self.responses.front::<Response>()? {
            if !self.answers.permit(&decoded.header) {
                return Err(NoPacket);
            }
            if !wire.response_out.push_with(|packet| super::packet::Kind::fill(packet, &decoded)) {
                break;
            }
            self.answers.note_heard(&decoded.header);
            let bytes = decoded.bytes;
            self.responses.take(bytes);
        }
        self.notice_end();
        Ok(())
    }

    /// A peer that is gone is gone for the queue pair once that has what came before. What finds no place then is lost: a queue
    /// pair that waits for a receive would never take it.
    fn notice_end(&mut self) {
        if !self.responses.is_over() {
            return;
        }
        if self.requests.has_input() {
            self.requests.give_up_input();
        }
        if self.requests.is_over() {
            self.wire = None;
        }
    }

    /// Moves what the queue pair says to the sockets, a message of each kind at most.
    pub(super) fn send(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        let (requests, responses, answers) = (&mut self.requests, &mut self.responses, &mut self.answers);
        let mut has_more = true;
        while has_more && requests.has_room() {
            let pushed = wire.request_in.pop_with(|packet| requests.push::<Request>(packet));
            has_more = pushed.is_some();
            if let Some(header) = pushed.flatten() {
                answers.note_sent(&header);
            }
        }
        requests.write();
        has_more = true;
        while has_more && responses.has_room() {
            has_more = wire.response_in.pop_with(|packet| responses.push::<Response>(packet)).is_some();
        }
        responses.write();
    }

    /// Nothing is to be done before the peer or the queue pair says something.
    pub(super) fn rests(&self) -> bool {
        let said = |wire: &WireEnd| wire.request_in.is_empty() && wire.response_in.is_empty();
        self.wire.as_ref().is_some_and(said) && !self.lingers() && self.requests.rests() && self.responses.rests()
    }

    /// The queue pair has failed or is gone: only what it said before is still to be told.
    pub(super) fn lingers(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.request_in.is_closed() && wire.response_in.is_closed())
    }

    /// Nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        // Closed first: what was said before is then in the lanes.
        let lingers = self.lingers();
        let Some(wire) = &self.wire else { return true };
        let said = |empty: bool, channel: &Channel| channel.is_deaf() || (empty && channel.is_flushed());
        lingers
            && said(wire.request_in.is_empty(), &self.requests)
            && said(wire.response_in.is_empty(), &self.responses)
    }
}
