//! What connection managers of two processes say to each other, as bytes: one message of their socket each.

use super::bytes::Reader;
use crate::provider::soft::queue_pair::Negotiated;
use crate::provider::{ConnectionParameters, MAX_PRIVATE_DATA, PrivateData, QueuePairId, RejectReason};
use arrayvec::ArrayVec;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// In front of every request. The last byte is the version of all that both processes say to each other, packets too.
const GREETING: [u8; 8] = *b"frwrnic\x01";
/// Bytes of the longest one: a request has 66 without its private data.
pub(super) const MAX_MESSAGE_BYTES: usize = 128;

const _: () = assert!(MAX_PRIVATE_DATA + 70 <= MAX_MESSAGE_BYTES);

/// Retry counts have three bits (InfiniBand).
const MAX_RETRIES: u8 = 7;

const REQUEST: u8 = 1;
const ACCEPT: u8 = 2;
const READY: u8 = 3;
const REJECT: u8 = 4;
const UNREACHABLE: u8 = 5;
const DISCONNECT: u8 = 6;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Somebody wants to connect; the first of whoever connects, once.
    Request {
        /// The listener's address, as they called it.
        address: SocketAddr,
        queue_pair: QueuePairId,
        /// Where they are.
        peer: Option<IpAddr>,
        parameters: ConnectionParameters,
        private_data: PrivateData,
    },
    /// The request was accepted; with it come the sockets of requests and responses.
    Accept { queue_pair: QueuePairId, negotiated: Negotiated, private_data: PrivateData },
    /// The active side is ready to use the connection.
    Ready,
    /// The request was refused.
    Reject { reason: RejectReason, private_data: PrivateData },
    /// Nobody is there to answer the request.
    Unreachable,
    /// The connection ends.
    Disconnect,
}

/// The bytes of a message.
pub(super) type Bytes = ArrayVec<u8, MAX_MESSAGE_BYTES>;

impl Message {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Bytes::new();
        match self {
            Self::Request { address, queue_pair, peer, parameters, private_data } => {
                out.push(REQUEST);
                out.extend(GREETING);
                put_address(&mut out, *address);
                out.extend(queue_pair.0.to_le_bytes());
                put_peer(&mut out, *peer);
                let ConnectionParameters { responder_resources, initiator_depth, retry_count, rnr_retry_count } =
                    *parameters;
                out.extend([responder_resources, initiator_depth, retry_count, rnr_retry_count]);
                put_private_data(&mut out, private_data);
            }
            Self::Accept { queue_pair, negotiated, private_data } => {
                out.push(ACCEPT);
                out.extend(queue_pair.0.to_le_bytes());
                out.extend(negotiated.max_reads.to_le_bytes());
                out.extend([negotiated.retry_count, negotiated.rnr_retry_count]);
                put_private_data(&mut out, private_data);
            }
            Self::Ready => out.push(READY),
            Self::Reject { reason, private_data } => {
                out.extend([REJECT, number_of(*reason)]);
                put_private_data(&mut out, private_data);
            }
            Self::Unreachable => out.push(UNREACHABLE),
            Self::Disconnect => out.push(DISCONNECT),
        }
        out
    }

    /// `None` where it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let message = match reader.u8()? {
            REQUEST => {
                if reader.array()? != GREETING {
                    return None;
                }
                Self::Request {
                    address: address(&mut reader)?,
                    queue_pair: QueuePairId(reader.u32()?),
                    peer: peer(&mut reader)?,
                    parameters: parameters(&mut reader)?,
                    private_data: private_data(&mut reader)?,
                }
            }
            ACCEPT => Self::Accept {
                queue_pair: QueuePairId(reader.u32()?),
                negotiated: negotiated(&mut reader)?,
                private_data: private_data(&mut reader)?,
            },
            READY => Self::Ready,
            REJECT => Self::Reject { reason: reason(reader.u8()?)?, private_data: private_data(&mut reader)? },
            UNREACHABLE => Self::Unreachable,
            DISCONNECT => Self::Disconnect,
            _ => return None,
        };
        reader.is_at_end().then_some(message)
    }
}

fn put_ip(out: &mut Bytes, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
}

fn put_address(out: &mut Bytes, address: SocketAddr) {
    put_ip(out, address.ip());
    out.extend(address.port().to_le_bytes());
    if let SocketAddr::V6(address) = address {
        out.extend(address.scope_id().to_le_bytes());
    }
}

fn put_peer(out: &mut Bytes, peer: Option<IpAddr>) {
    match peer {
        Some(ip) => put_ip(out, ip),
        None => out.push(0),
    }
}

fn put_private_data(out: &mut Bytes, data: &PrivateData) {
    // At most MAX_PRIVATE_DATA, which fits.
    out.push(data.len() as u8);
    out.extend(data.iter().copied());
}

fn ip(reader: &mut Reader<'_>, family: u8) -> Option<IpAddr> {
    match family {
        4 => reader.array::<4>().map(|octets| Ipv4Addr::from(octets).into()),
        6 => reader.array::<16>().map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

fn address(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let family = reader.u8()?;
    let (ip, port) = (ip(reader, family)?, reader.u16()?);
    Some(match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, reader.u32()?).into(),
    })
}

fn peer(reader: &mut Reader<'_>) -> Option<Option<IpAddr>> {
    match reader.u8()? {
        0 => Some(None),
        family => ip(reader, family).map(Some),
    }
}

fn parameters(reader: &mut Reader<'_>) -> Option<ConnectionParameters> {
    let [responder_resources, initiator_depth, retry_count, rnr_retry_count] = reader.array()?;
    let good = retry_count <= MAX_RETRIES && rnr_retry_count <= MAX_RETRIES;
    good.then_some(ConnectionParameters { responder_resources, initiator_depth, retry_count, rnr_retry_count })
}

fn negotiated(reader: &mut Reader<'_>) -> Option<Negotiated> {
    let max_reads = reader.u32()?;
    let [retry_count, rnr_retry_count] = reader.array()?;
    let good = max_reads <= u8::MAX.into() && retry_count <= MAX_RETRIES && rnr_retry_count <= MAX_RETRIES;
    good.then_some(Negotiated { max_reads, retry_count, rnr_retry_count })
}

fn private_data(reader: &mut Reader<'_>) -> Option<PrivateData> {
    let length = reader.u8()?;
    PrivateData::try_from(reader.slice(length.into())?).ok()
}

const fn number_of(reason: RejectReason) -> u8 {
    match reason {
        RejectReason::NoListener => 1,
        RejectReason::Consumer => 2,
        RejectReason::Stale => 3,
    }
}

const fn reason(number: u8) -> Option<RejectReason> {
    match number {
        1 => Some(RejectReason::NoListener),
        2 => Some(RejectReason::Consumer),
        3 => Some(RejectReason::Stale),
        _ => None,
    }
}
