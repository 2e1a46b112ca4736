//! The wire between two queue pairs: four record lanes, requests and responses apart, so that two full lanes cannot
//! deadlock. Packets carry their payload by value; nobody reads the memory of another core.

use super::profile::MAX_MTU;
use crate::provider::Failure;
use core::task::Waker;
use frwr_mempool::Bell;
use frwr_mempool::lane::{self, RecordReceiver, RecordSender};
use std::sync::Arc;

/// Payload bytes that a packet record has room for.
const PAYLOAD: usize = MAX_MTU as usize;

/// What a request packet asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Part of a SEND; `invalidate` counts on the last packet.
    Send { invalidate: Option<u32> },
    /// Part of an RDMA WRITE that goes to `address`; `total` bytes of the message are left, with this packet.
    Write { key: u32, address: u64, total: u32 },
    /// An RDMA READ, whole.
    Read { key: u32, address: u64, length: u32 },
    /// The sender could not go on; it answers no more, and neither does the receiver.
    Abandoned,
}

/// What a response packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// The message and all before it were executed.
    Acknowledge,
    /// No receive is posted for the message; all before it were executed.
    NotReady,
    /// The message failed; all before it were executed.
    Refuse(Failure),
    /// Data of an RDMA READ; all before it were executed.
    Data,
}

/// A packet: a small header and a payload of which only `length` bytes mean something.
pub(super) struct Packet<H> {
    pub(super) header: H,
    /// Number of the message on this connection.
    pub(super) sequence: u32,
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) length: u32,
    pub(super) payload: [u8; PAYLOAD],
}

impl<H> Packet<H> {
    const fn empty(header: H) -> Self {
        Self { header, sequence: 0, first: false, last: false, length: 0, payload: [0; PAYLOAD] }
    }

    /// The bytes that mean something.
    pub(super) fn data(&self) -> &[u8] {
        self.payload.get(..self.length as usize).unwrap_or(&self.payload)
    }
}

/// A packet of the request lanes.
pub(super) type RequestPacket = Packet<Request>;
/// A packet of the response lanes.
pub(super) type ResponsePacket = Packet<Response>;

impl Default for RequestPacket {
    fn default() -> Self {
        Self::empty(Request::Send { invalidate: None })
    }
}

impl Default for ResponsePacket {
    fn default() -> Self {
        Self::empty(Response::Acknowledge)
    }
}

/// One end of a wire. Dropping it is what the peer's NIC sees of a dead queue pair: nothing answers any more.
pub(super) struct WireEnd {
    pub(super) request_out: RecordSender<RequestPacket>,
    pub(super) request_in: RecordReceiver<RequestPacket>,
    pub(super) response_out: RecordSender<ResponsePacket>,
    pub(super) response_in: RecordReceiver<ResponsePacket>,
    /// Something was sent that the other side was not woken for yet.
    pub(super) sent: bool,
    /// Rung by the other side, where ports of this network may sleep.
    own: Option<Arc<Bell>>,
    /// The last to go: who hears of the end finds the lanes closed.
    peer: PeerBell,
}

/// Wakes the other side, also when this one goes.
struct PeerBell(Option<Arc<Bell>>);

impl Drop for PeerBell {
    fn drop(&mut self) {
        if let Some(bell) = &self.0 {
            bell.ring();
        }
    }
}

impl WireEnd {
    /// Wakes the other side for what was sent.
    #[inline]
    pub(super) fn wake_peer(&mut self) {
        if core::mem::take(&mut self.sent)
            && let Some(bell) = &self.peer.0
        {
            bell.ring();
        }
    }

    /// Says how the core of this side is woken.
    pub(super) fn wakes(&self, waker: &Waker) {
        if let Some(bell) = &self.own {
            bell.wakes(waker);
        }
    }

    /// What the other side sends from now on wakes; false where nothing does.
    pub(super) fn arm(&self) -> bool {
        self.own.as_ref().is_some_and(|bell| {
            bell.arm();
            bell.has_waker()
        })
    }

    /// Sends a response without data. False where the lane is full.
    pub(super) fn respond(&mut self, response: Response, sequence: u32) -> bool {
        let sent = self.response_out.push_with(|packet| {
            packet.header = response;
            packet.sequence = sequence;
            packet.first = true;
            packet.last = true;
            packet.length = 0;
        });
        self.sent |= sent;
        sent
    }

    /// Whether nothing will answer any more. What was answered before can still be read.
    pub(super) fn peer_is_gone(&self) -> bool {
        self.response_in.is_closed()
    }
}

/// Makes a wire whose lanes hold `packets` each. `sleeps`: ports of this network may, and are woken for what is sent to them.
pub(super) fn wire(packets: u32, sleeps: bool) -> (WireEnd, WireEnd) {
    let [bell, bell_there] = [(); 2].map(|()| sleeps.then(Arc::<Bell>::default));
    let packets = packets as usize;
    let (request_there, request_from_here) = lane::records(packets);
    let (request_back, request_from_there) = lane::records(packets);
    let (response_there, response_from_here) = lane::records(packets);
    let (response_back, response_from_there) = lane::records(packets);
    let here = WireEnd {
        request_out: request_there,
        request_in: request_from_there,
        response_out: response_there,
        response_in: response_from_there,
        sent: false,
        own: bell.clone(),
        peer: PeerBell(bell_there.clone()),
    };
    let there = WireEnd {
        request_out: request_back,
        request_in: request_from_here,
        response_out: response_back,
        response_in: response_from_here,
        sent: false,
        own: bell_there,
        peer: PeerBell(bell),
    };
    (here, there)
}
