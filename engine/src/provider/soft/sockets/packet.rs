//! Packets as bytes: a header of a fixed length, and the payload behind it. One message of a socket carries whole packets.

use super::bytes::Reader;
use crate::provider::soft::profile::MAX_MTU;
use crate::provider::soft::wire::{Request, RequestPacket, Response, ResponsePacket};
use crate::provider::{Failure, FailureStatus};

/// Bytes of a request's header: kind, flags, length of the payload, sequence, key, total, address.
const REQUEST_HEADER: usize = 1 + 1 + 2 + 4 + 4 + 4 + 8;
/// Bytes of a response's header: kind, flags, length of the payload, sequence, status, vendor code.
const RESPONSE_HEADER: usize = 1 + 1 + 2 + 4 + 4 + 4;
/// Bytes of the largest packet.
pub(super) const MAX_PACKET: usize = REQUEST_HEADER + MAX_MTU as usize;

const _: () = assert!(RESPONSE_HEADER <= REQUEST_HEADER && MAX_MTU <= u16::MAX as u32);

const FIRST: u8 = 1;
const LAST: u8 = 2;

const SEND: u8 = 1;
const SEND_WITH_INVALIDATE: u8 = 2;
const WRITE: u8 = 3;
const READ: u8 = 4;
const ABANDONED: u8 = 5;

const ACKNOWLEDGE: u8 = 1;
const NOT_READY: u8 = 2;
const REFUSE: u8 = 3;
const DATA: u8 = 4;

/// What a packet says, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header<H> {
    pub(super) what: H,
    pub(super) sequence: u32,
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) length: u32,
}

/// A packet that was read, and what it takes.
pub(super) struct Decoded<'a, H> {
    pub(super) header: Header<H>,
    pub(super) payload: &'a [u8],
    /// Bytes of the packet.
    pub(super) bytes: usize,
}

/// A direction's kind of packet.
pub(super) trait Kind: Copy {
    /// The packet, as lanes carry it.
    type Packet;

    /// The header of a packet.
    fn header(packet: &Self::Packet) -> Header<Self>;

    /// The payload of a packet.
    fn payload(packet: &Self::Packet) -> &[u8];

    /// Makes a packet what was read.
    fn fill(packet: &mut Self::Packet, decoded: &Decoded<'_, Self>);

    /// Writes the header; says how long it is.
    fn encode(header: &Header<Self>, room: &mut [u8; REQUEST_HEADER]) -> usize;

    /// Reads a header; `None` where it is none.
    fn decode(reader: &mut Reader<'_>) -> Option<Header<Self>>;
}

/// Writes a packet; says how long it is. `None` where there is no room.
pub(super) fn encode<K: Kind>(packet: &K::Packet, room: &mut [u8]) -> Option<(Header<K>, usize)> {
    let (header, payload) = (K::header(packet), K::payload(packet));
    let mut bytes = [0; REQUEST_HEADER];
    let header_bytes = K::encode(&header, &mut bytes);
    let length = header_bytes + payload.len();
    let (head, tail) = room.get_mut(..length)?.split_at_mut(header_bytes);
    head.copy_from_slice(&bytes[..header_bytes]);
    tail.copy_from_slice(payload);
    Some((header, length))
}

/// Reads the packet in front; `None` where there is no whole one that makes sense.
pub(super) fn decode<K: Kind>(bytes: &[u8]) -> Option<Decoded<'_, K>> {
    let mut reader = Reader(bytes);
    let header = K::decode(&mut reader)?;
    if header.length > MAX_MTU {
        return None;
    }
    let payload = reader.slice(header.length as usize)?;
    Some(Decoded { header, payload, bytes: bytes.len() - reader.0.len() })
}

fn flags(first: bool, last: bool) -> u8 {
    (u8::from(first) * FIRST) | (u8::from(last) * LAST)
}

/// The four numbers that both headers begin with.
fn begin(room: &mut [u8; REQUEST_HEADER], kind: u8, flags: u8, length: u32, sequence: u32) {
    [room[0], room[1]] = [kind, flags];
    // At most an MTU, which fits.
    room[2..4].copy_from_slice(&(length as u16).to_le_bytes());
    room[4..8].copy_from_slice(&sequence.to_le_bytes());
}

/// Those four numbers, with the flags apart.
struct Beginning {
    kind: u8,
    first: bool,
    last: bool,
    length: u32,
    sequence: u32,
}

impl Beginning {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (kind, flags) = (reader.u8()?, reader.u8()?);
        let (length, sequence) = (u32::from(reader.u16()?), reader.u32()?);
        let known = flags & !(FIRST | LAST) == 0;
        known.then_some(Self { kind, first: flags & FIRST != 0, last: flags & LAST != 0, length, sequence })
    }

    fn with<H>(self, what: H) -> Header<H> {
        let Self { first, last, length, sequence, .. } = self;
        Header { what, sequence, first, last, length }
    }
}

impl Kind for Request {
    type Packet = RequestPacket;

    fn header(packet: &RequestPacket) -> Header<Self> {
        let RequestPacket { header, sequence, first, last, .. } = *packet;
        Header { what: header, sequence, first, last, length: packet.data().len() as u32 }
    }

    fn payload(packet: &RequestPacket) -> &[u8] {
        packet.data()
    }

    fn fill(packet: &mut RequestPacket, decoded: &Decoded<'_, Self>) {
        let Header { what, sequence, first, last, length } = decoded.header;
        (packet.header, packet.sequence, packet.first, packet.last) = (what, sequence, first, last);
        packet.length = length;
        packet.payload[..decoded.payload.len()].copy_from_slice(decoded.payload);
    }

    fn encode(header: &Header<Self>, room: &mut [u8; REQUEST_HEADER]) -> usize {
        let (kind, key, total, address) = match header.what {
            Self::Send { invalidate: None } => (SEND, 0, 0, 0),
            Self::Send { invalidate: Some(key) } => (SEND_WITH_INVALIDATE, key, 0, 0),
            Self::Write { key, address, total } => (WRITE, key, total, address),
            Self::Read { key, address, length } => (READ, key, length, address),
            Self::Abandoned => (ABANDONED, 0, 0, 0),
        };
        begin(room, kind, flags(header.first, header.last), header.length, header.sequence);
        room[8..12].copy_from_slice(&key.to_le_bytes());
        room[12..16].copy_from_slice(&total.to_le_bytes());
        room[16..].copy_from_slice(&address.to_le_bytes());
        REQUEST_HEADER
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Header<Self>> {
        let beginning = Beginning::read(reader)?;
        let (key, total, address) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let what = match (beginning.kind, key, total, address) {
            (SEND, 0, 0, 0) => Self::Send { invalidate: None },
            (SEND_WITH_INVALIDATE, key, 0, 0) => Self::Send { invalidate: Some(key) },
            (WRITE, key, total, address) => Self::Write { key, address, total },
            (READ, key, length, address) => Self::Read { key, address, length },
            (ABANDONED, 0, 0, 0) => Self::Abandoned,
            _ => return None,
        };
        Some(beginning.with(what))
    }
}

impl Kind for Response {
    type Packet = ResponsePacket;

    fn header(packet: &ResponsePacket) -> Header<Self> {
        let ResponsePacket { header, sequence, first, last, .. } = *packet;
        match header {
            Self::Data => Header { what: header, sequence, first, last, length: packet.data().len() as u32 },
            // One packet each, whatever was meant when it was begun.
            _ => Header { what: header, sequence, first: true, last: true, length: 0 },
        }
    }

    fn payload(packet: &ResponsePacket) -> &[u8] {
        if packet.header == Self::Data { packet.data() } else { &[] }
    }

    fn fill(packet: &mut ResponsePacket, decoded: &Decoded<'_, Self>) {
        let Header { what, sequence, first, last, length } = decoded.header;
        (packet.header, packet.sequence, packet.first, packet.last) = (what, sequence, first, last);
        packet.length = length;
        packet.payload[..decoded.payload.len()].copy_from_slice(decoded.payload);
    }

    fn encode(header: &Header<Self>, room: &mut [u8; REQUEST_HEADER]) -> usize {
        let (kind, status, code) = match header.what {
            Self::Acknowledge => (ACKNOWLEDGE, 0, 0),
            Self::NotReady => (NOT_READY, 0, 0),
            Self::Refuse(failure) => (REFUSE, u32::from(failure.status.number()), failure.vendor_code),
            Self::Data => (DATA, 0, 0),
        };
        begin(room, kind, flags(header.first, header.last), header.length, header.sequence);
        room[8..12].copy_from_slice(&status.to_le_bytes());
        room[12..16].copy_from_slice(&code.to_le_bytes());
        RESPONSE_HEADER
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Header<Self>> {
        let beginning = Beginning::read(reader)?;
        let (status, code) = (reader.u32()?, reader.u32()?);
        let what = match (beginning.kind, status, code) {
            (ACKNOWLEDGE, 0, 0) => Self::Acknowledge,
            (NOT_READY, 0, 0) => Self::NotReady,
            // A success, or a flush, is nobody's refusal.
            (REFUSE, 1.., code) => Self::Refuse(Failure::new(FailureStatus::of_number(status), code)),
            (DATA, 0, 0) => Self::Data,
            _ => return None,
        };
        Some(beginning.with(what))
    }
}
