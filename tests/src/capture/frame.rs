//! From a capture file to the transport headers of RoCE v2 (IB specification, annex 17 and chapter 9).

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;
use std::io::Read;

/// UDP port of RoCE v2.
const ROCE_PORT: u16 = 4791;
/// Bytes of the base transport header.
const BASE_BYTES: usize = 12;
/// Bytes of the invariant checksum at the end.
const CHECKSUM_BYTES: usize = 4;
/// Bytes of an RDMA extended transport header.
const RDMA_BYTES: usize = 16;
/// Bytes of an invalidate extended transport header.
const INVALIDATE_BYTES: usize = 4;

/// What a packet of a reliable connection is, as far as keys go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// The first or only packet of a SEND.
    Send {
        /// The message ends with this packet.
        is_whole: bool,
        /// The peer's key that it invalidates; in the first packet only where it is the only one.
        invalidate: Option<u32>,
    },
    /// The last packet of a longer SEND_WITH_INV.
    SendEnd {
        /// The peer's key that it invalidates.
        invalidate: u32,
    },
    /// The first or only packet of an RDMA WRITE, or an RDMA READ request.
    Rdma {
        /// Data goes to the key's owner.
        is_write: bool,
        /// First byte.
        address: u64,
        /// The key.
        key: u32,
        /// Bytes.
        length: u32,
    },
    /// Anything else: later packets, responses, acknowledges, datagrams.
    Other,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Place in the capture, from 1 as Wireshark counts.
    pub number: usize,
    /// IPv4 addresses, source and destination.
    pub addresses: ([u8; 4], [u8; 4]),
    /// Queue pair at the destination.
    pub queue_pair: u32,
    /// Packet sequence number.
    pub sequence: u32,
    /// The headers.
    pub headers: Headers,
    /// What follows the headers.
    pub payload: Vec<u8>,
}

/// Reads the RoCE v2 packets of a capture in pcap format; other traffic is passed over.
///
/// # Errors
/// A capture that cannot be read, by name of what is wrong with it.
pub fn frames(capture: impl Read) -> Result<Vec<Frame>, String> {
    let mut reader = PcapReader::new(capture).map_err(|error| format!("no capture: {error}"))?;
    let mut frames = Vec::new();
    let mut number = 0;
    // Raw: packets may be cut off, since their heads say everything.
    while let Some(packet) = reader.next_raw_packet() {
        number += 1;
        let packet = packet.map_err(|error| format!("packet {number}: {error}"))?;
        frames.extend(frame(number, &packet.data));
    }
    Ok(frames)
}

fn frame(number: usize, bytes: &[u8]) -> Option<Frame> {
    let sliced = LaxSlicedPacket::from_ethernet(bytes).ok()?;
    let Some(LaxNetSlice::Ipv4(network)) = sliced.net else { return None };
    let Some(TransportSlice::Udp(transport)) = sliced.transport else { return None };
    if transport.destination_port() != ROCE_PORT {
        return None;
    }
    let header = network.header();
    let addresses = (header.source(), header.destination());
    base(number, addresses, transport.payload())
}

/// A base transport header and what follows; `None` where it is cut short.
fn base(number: usize, addresses: ([u8; 4], [u8; 4]), bytes: &[u8]) -> Option<Frame> {
    let (base, rest) = bytes.split_at_checked(BASE_BYTES)?;
    let padding = usize::from((base[1] >> 4) & 3);
    let rest = rest.get(..rest.len().checked_sub(CHECKSUM_BYTES + padding)?)?;
    let word = |at: usize| Some(u32::from_be_bytes(base.get(at..at + 4)?.try_into().ok()?));
    let (queue_pair, sequence) = (word(4)? & 0xff_ffff, word(8)? & 0xff_ffff);
    let (headers, payload) = extended(base[0], rest)?;
    Some(Frame { number, addresses, queue_pair, sequence, headers, payload: payload.to_vec() })
}

fn extended(opcode: u8, rest: &[u8]) -> Option<(Headers, &[u8])> {
    Some(match opcode {
        0x00 => (Headers::Send { is_whole: false, invalidate: None }, rest),
        0x04 => (Headers::Send { is_whole: true, invalidate: None }, rest),
        0x16 => (Headers::SendEnd { invalidate: key(rest)? }, rest.get(INVALIDATE_BYTES..)?),
        0x17 => {
            let headers = Headers::Send { is_whole: true, invalidate: Some(key(rest)?) };
            (headers, rest.get(INVALIDATE_BYTES..)?)
        }
        0x06 | 0x0a => (rdma(true, rest)?, rest.get(RDMA_BYTES..)?),
        0x0c => (rdma(false, rest)?, rest.get(RDMA_BYTES..)?),
        _ => (Headers::Other, rest),
    })
}

fn key(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..INVALIDATE_BYTES)?.try_into().ok()?))
}

fn rdma(is_write: bool, bytes: &[u8]) -> Option<Headers> {
    let address = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    let key = key(bytes.get(8..)?)?;
    let length = u32::from_be_bytes(bytes.get(12..16)?.try_into().ok()?);
    Some(Headers::Rdma { is_write, address, key, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: ([u8; 4], [u8; 4]) = ([10, 9, 1, 1], [10, 9, 1, 2]);

    fn packet(opcode: u8, padding: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![opcode, padding << 4, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 0, 7];
        bytes.extend_from_slice(rest);
        bytes.extend(vec![0; usize::from(padding)]);
        bytes.extend([0; CHECKSUM_BYTES]);
        bytes
    }

    #[test]
    fn headers_by_operation() {
        let rdma = [&0x1122_u64.to_be_bytes()[..], &0xaabb_cc01_u32.to_be_bytes(), &4096_u32.to_be_bytes()].concat();
        let invalidate = [&7_u32.to_be_bytes()[..], b"reply"].concat();
        let table: [(u8, &[u8], Headers, &[u8]); 6] = [
            (0x04, b"message", Headers::Send { is_whole: true, invalidate: None }, b"message"),
            (0x17, &invalidate, Headers::Send { is_whole: true, invalidate: Some(7) }, b"reply"),
            (0x16, &invalidate, Headers::SendEnd { invalidate: 7 }, b"reply"),
            (0x0c, &rdma, Headers::Rdma { is_write: false, address: 0x1122, key: 0xaabb_cc01, length: 4096 }, b""),
            (
                0x06,
                &[&rdma[..], b"data"].concat(),
                Headers::Rdma { is_write: true, address: 0x1122, key: 0xaabb_cc01, length: 4096 },
                b"data",
            ),
            (0x11, b"0123", Headers::Other, b"0123"),
        ];
        for (opcode, rest, headers, payload) in table {
            let padding = ((4 - rest.len() % 4) % 4) as u8;
            let frame = base(1, ENDS, &packet(opcode, padding, rest)).unwrap();
            assert_eq!((frame.queue_pair, frame.sequence), (0x11, 7));
            assert_eq!((frame.headers, &frame.payload[..]), (headers, payload));
        }
    }

    #[test]
    fn what_is_cut_short_is_no_frame() {
        let whole = packet(0x0c, 0, &[0; RDMA_BYTES]);
        for length in 0..whole.len() {
            assert_eq!(base(1, ENDS, &whole[..length]), None, "{length} bytes");
        }
        assert!(frames(&b"no capture"[..]).is_err());
    }
}
