//! What is measured, in values: as the command line says it, and as it travels in the private data of connect requests.

use super::operation::Operation;
use clap::ValueEnum;
use frwr_engine::{MAX_TRANSFER_ELEMENTS, MAX_TRANSFER_OPERATIONS};

/// First bytes of all private data of this program.
const MAGIC: [u8; 4] = *b"fLAT";
/// Version of what both halves say to each other; it changes with any byte of private data or messages.
pub const PROTOCOL_VERSION: u16 = 4;
/// Bytes of a connect request: magic, version, six single bytes, then numbers.
const REQUEST_BYTES: usize = 40;
/// Bytes of a refusal: magic, version, reason, then value and limit.
const REFUSAL_BYTES: usize = 24;

const _: () = assert!(REQUEST_BYTES <= frwr_engine::provider::MAX_PRIVATE_DATA, "a connect request carries it");
const _: () = assert!(REFUSAL_BYTES <= frwr_engine::provider::MAX_PRIVATE_DATA, "a rejection carries it");

/// Largest message size in bytes: a device's largest message is 2 GiB, and more than this only measures bandwidth.
pub const MAX_SIZE: u32 = 64 << 20;
/// Requests in flight of one connection.
pub const MAX_DEPTH: u32 = 1024;
/// Pieces that the memory of one request is in: the keys that one message names (MAX_MRS_PER_REQUEST of the engine).
pub const MAX_SEGMENTS: u8 = 16;
/// Ranges of the server's memory that one WRITE or READ goes to or comes from: each is an RDMA operation of a transfer.
pub(super) const MAX_RANGES: u8 = MAX_TRANSFER_OPERATIONS as u8;
const _: () = assert!(MAX_TRANSFER_OPERATIONS <= u8::MAX as usize, "a byte of the connect request has it");
/// Keys made behind one doorbell.
pub const MAX_BATCH: u16 = 256;
/// Connections of one core.
pub const MAX_CONNECTIONS: u16 = 64;
/// Connections of one client over all its cores.
pub const MAX_ALL_CONNECTIONS: u16 = 1024;
/// Bytes of the buffers of all connections of one client: both sides have as many.
pub const MAX_BUFFER_BYTES: u64 = 1 << 30;
/// Bytes of one SEND that is measured: what the engine sends in a message.
pub const MAX_SEND_BYTES: u32 = 128 << 10;
/// Sizes are multiples of this: a word at either end of each piece is checked.
pub const SIZE_GRAIN: u32 = 8;

/// Whose key opens the memory, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyKind {
    /// A key per request, made by a work request in front of its message.
    Request,
    /// One key for the whole run.
    Static,
    /// ibv_reg_mr and ibv_dereg_mr per request; of `write` and `read` one ibv_reg_mr of the server's for the whole run, of `pingpong` one of
    /// either side's.
    Memory,
}

/// Who kills keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Invalidation {
    /// The peer's reply, by SEND_WITH_INV.
    Remote,
    /// LOCAL_INV behind the reply.
    Local,
}

/// What the server does with the memory of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeerDoes {
    /// RDMA WRITE, as a target answers a read.
    Write,
    /// RDMA READ, as a target executes a write.
    Read,
}

macro_rules! named {
    ($kind:ty: $($value:ident = $number:literal $name:literal,)*) => {
        impl $kind {
            /// As the command line and reports have it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }

            fn number(self) -> u8 {
                match self { $(Self::$value => $number,)* }
            }

            fn of(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$value),)* _ => None }
            }
        }
    };
}

named!(KeyKind: Request = 1 "request", Static = 2 "static", Memory = 3 "memory",);
named!(Invalidation: Remote = 1 "remote", Local = 2 "local",);
named!(PeerDoes: Write = 1 "write", Read = 2 "read",);

/// What both halves have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// What is done.
    pub operation: Operation,
    /// By what key.
    pub key: KeyKind,
    /// Who kills it.
    pub invalidation: Invalidation,
    /// What the server does with a request's memory.
    pub peer_does: PeerDoes,
    /// Bytes of one request.
    pub size: u32,
    /// Pieces that they are in.
    pub segments: u8,
    /// Ranges of the server's memory that they go to or come from (`write`, `read`); 1 else.
    pub ranges: u8,
    /// Requests in flight of one connection; of `register`, batches.
    pub depth: u32,
    /// Keys behind one doorbell (`register`).
    pub batch: u16,
    /// Connections of the client, over all its cores.
    pub connections: u16,
}

/// A number that is out of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Which.
    pub what: Quantity,
    /// What it is.
    pub value: u64,
    /// Least value.
    pub least: u64,
    /// Largest value.
    pub most: u64,
}

/// What has limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes of a request.
    Size,
    /// Pieces of a request.
    Segments,
    /// Ranges of the server's memory for one request.
    Ranges,
    /// Elements of one request's RDMA operations: pieces and ranges are cut where either has a boundary.
    Elements,
    /// Requests in flight.
    Depth,
    /// Keys behind a doorbell.
    Batch,
    /// Connections of all cores.
    Connections,
    /// Bytes of all buffers: connections times depth times size, pieces rounded up to pages.
    Buffers,
}

named!(Quantity: Size = 1 "--size", Segments = 2 "--segments", Depth = 3 "--depth", Batch = 4 "--batch",
    Connections = 5 "the number of connections", Buffers = 6 "bytes of all buffers (connections x depth x size)",
    Ranges = 7 "--ranges", Elements = 8 "the number of elements that --segments and --ranges cut a request into",);

/// Pieces, or multiples, of this many in common.
const fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Parameters {
    /// Checks every number against the limits of this build, and all together.
    ///
    /// # Errors
    /// The first that is out of its limits.
    pub fn check(&self) -> Result<(), Excess> {
        let within = |what, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) { Ok(()) } else { Err(Excess { what, value, least, most }) }
        };
        within(Quantity::Segments, self.segments.into(), 1, self.operation.max_segments().into())?;
        within(Quantity::Ranges, self.ranges.into(), 1, self.operation.max_ranges().into())?;
        if self.operation.is_transfer() {
            within(Quantity::Elements, self.elements().into(), 1, MAX_TRANSFER_ELEMENTS as u64)?;
        }
        // Of either side, and bounded by both.
        let (segments, ranges) = (u32::from(self.segments), u32::from(self.ranges));
        let grain = SIZE_GRAIN * segments * ranges / greatest_common_divisor(segments, ranges);
        let most = self.operation.max_size();
        within(Quantity::Size, self.size.into(), grain.into(), most.into())?;
        if !self.size.is_multiple_of(grain) {
            // What the least is a multiple of is the grain.
            return Err(Excess {
                what: Quantity::Size,
                value: self.size.into(),
                least: grain.into(),
                most: most.into(),
            });
        }
        within(Quantity::Depth, self.depth.into(), 1, MAX_DEPTH.into())?;
        within(Quantity::Batch, self.batch.into(), 1, MAX_BATCH.into())?;
        within(Quantity::Connections, self.connections.into(), 1, MAX_ALL_CONNECTIONS.into())?;
        within(Quantity::Buffers, self.buffer_bytes(), 1, MAX_BUFFER_BYTES)
    }

    /// Elements of one WRITE or READ, which has as many work requests at most: each piece and each range ends one, and some end
    /// together.
    #[must_use]
    pub fn elements(&self) -> u32 {
        let (segments, ranges) = (u32::from(self.segments.max(1)), u32::from(self.ranges.max(1)));
        segments + ranges - greatest_common_divisor(segments, ranges)
    }

    /// Whether what was made for `self` has room for `asked`.
    #[must_use]
    pub fn covers(&self, asked: &Self) -> bool {
        let same = self.operation == asked.operation && (self.segments, self.ranges) == (asked.segments, asked.ranges);
        same && self.size >= asked.size && self.depth >= asked.depth && self.connections >= asked.connections
    }
}

/// The private data of a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// What is asked for.
    pub parameters: Parameters,
    /// The same for all connections of one client, and of no other; never 0.
    pub client: u64,
}

/// Why private data of a peer is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Not of this program.
    Foreign,
    /// Of another version of it.
    Version(u16),
    /// A value that there is not, or too few bytes.
    Malformed,
}

impl ConnectData {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Parameters { operation, key, invalidation, peer_does, size, segments, ranges, depth, batch, connections } =
            self.parameters;
        let mut bytes = head();
        bytes.extend([operation.number(), key.number(), invalidation.number(), peer_does.number(), segments, ranges]);
        bytes.extend(size.to_le_bytes());
        bytes.extend(depth.to_le_bytes());
        bytes.extend(batch.to_le_bytes());
        bytes.extend(connections.to_le_bytes());
        bytes.extend(self.client.to_le_bytes());
        bytes.resize(REQUEST_BYTES, 0);
        bytes
    }

    /// From any bytes; numbers are not checked against limits.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = versioned(bytes)?;
        let rest = &mut rest;
        let malformed = DecodeError::Malformed;
        let mut choice = || byte(rest).ok_or(malformed);
        let operation = Operation::of(choice()?).ok_or(malformed)?;
        let key = KeyKind::of(choice()?).ok_or(malformed)?;
        let invalidation = Invalidation::of(choice()?).ok_or(malformed)?;
        let peer_does = PeerDoes::of(choice()?).ok_or(malformed)?;
        let (segments, ranges) = (choice()?, choice()?);
        let mut numbers = || {
            Some((
                u32::from_le_bytes(*take(rest)?),
                u32::from_le_bytes(*take(rest)?),
                u16::from_le_bytes(*take(rest)?),
                u16::from_le_bytes(*take(rest)?),
                u64::from_le_bytes(*take(rest)?),
            ))
        };
        let (size, depth, batch, connections, client) = numbers().ok_or(malformed)?;
        if client == 0 {
            return Err(malformed);
        }
        let parameters =
            Parameters { operation, key, invalidation, peer_does, size, segments, ranges, depth, batch, connections };
        Ok(Self { parameters, client })
    }
}

/// Why a server refuses a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The private data of the connect request cannot be read.
    Malformed,
    /// It speaks this version only.
    Version(u16),
    /// A number is beyond what the server takes.
    Excess(Excess),
    /// Another client is being served.
    Busy,
    /// The server makes room for what was asked, and will take it in a moment.
    Again,
    /// Its device cannot do what is asked: keys that peers invalidate.
    RemoteInvalidation,
    /// Its machine or device has too little of something for what is asked.
    NoRoom,
    /// Each of its cores has so many connect requests to answer, and cannot be asked one more now.
    Crowded(u16),
    /// Its device opens no keys by work requests.
    NoKeys,
}

impl Refusal {
    /// The bytes: for the private data of a rejection.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (reason, what, value, least, most) = match *self {
            Self::Malformed => (1, 0, 0, 0, 0),
            Self::Version(_) => (2, 0, 0, 0, 0),
            // Numbers of clients have 32 bit at most, but for the sum of buffers: shown as the largest then.
            Self::Excess(Excess { what, value, least, most }) => (3, what.number(), value, least, most),
            Self::Busy => (4, 0, 0, 0, 0),
            Self::Again => (5, 0, 0, 0, 0),
            Self::RemoteInvalidation => (6, 0, 0, 0, 0),
            Self::NoRoom => (7, 0, 0, 0, 0),
            Self::Crowded(most) => (8, 0, 0, 0, most.into()),
            Self::NoKeys => (9, 0, 0, 0, 0),
        };
        let mut bytes = head();
        bytes.extend([reason, what]);
        for number in [value, least, most] {
            bytes.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        }
        bytes.resize(REFUSAL_BYTES, 0);
        bytes
    }

    /// From any bytes. A refusal of another version is [`Refusal::Version`].
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = match versioned(bytes) {
            Err(DecodeError::Version(version)) => return Ok(Self::Version(version)),
            rest => rest?,
        };
        let rest = &mut rest;
        let mut fields = || {
            let (reason, what) = (byte(rest)?, byte(rest)?);
            let mut number = || Some(u64::from(u32::from_le_bytes(*take(rest)?)));
            Some((reason, what, number()?, number()?, number()?))
        };
        let (reason, what, value, least, most) = fields().ok_or(DecodeError::Malformed)?;
        match reason {
            1 => Ok(Self::Malformed),
            2 => Ok(Self::Version(PROTOCOL_VERSION)),
            3 => {
                let what = Quantity::of(what).ok_or(DecodeError::Malformed)?;
                Ok(Self::Excess(Excess { what, value, least, most }))
            }
            4 => Ok(Self::Busy),
            5 => Ok(Self::Again),
            6 => Ok(Self::RemoteInvalidation),
            9 => Ok(Self::NoKeys),
            7 => Ok(Self::NoRoom),
            // 16 bits wrote it.
            8 => Ok(Self::Crowded(most as u16)),
            _ => Err(DecodeError::Malformed),
        }
    }
}

/// Magic and version.
fn head() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(PROTOCOL_VERSION.to_le_bytes());
    bytes
}

/// What follows magic and version.
fn versioned(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let mut rest = bytes.strip_prefix(&MAGIC).ok_or(DecodeError::Foreign)?;
    match take(&mut rest).map(|version| u16::from_le_bytes(*version)) {
        Some(PROTOCOL_VERSION) => Ok(rest),
        Some(version) => Err(DecodeError::Version(version)),
        None => Err(DecodeError::Malformed),
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(first)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest).map(|[byte]| *byte)
}

#[cfg(test)]
mod tests {
    use super::{
        ConnectData, DecodeError, Excess, Invalidation, KeyKind, MAX_BUFFER_BYTES, MAX_SIZE, Operation, Parameters,
        PeerDoes, Quantity, Refusal,
    };
    use clap::ValueEnum as _;
    use proptest::prelude::*;

    pub(super) const PLAIN: Parameters = Parameters {
        operation: Operation::Request,
        key: KeyKind::Request,
        invalidation: Invalidation::Remote,
        peer_does: PeerDoes::Write,
        size: 4096,
        segments: 1,
        ranges: 1,
        depth: 1,
        batch: 1,
        connections: 1,
    };

    const WRITE: Parameters = Parameters { operation: Operation::Write, key: KeyKind::Static, ..PLAIN };

    #[test]
    fn a_request_has_an_element_for_each_cut() {
        for (segments, ranges, elements) in [(1, 1, 1), (1, 16, 16), (16, 1, 16), (4, 4, 4), (2, 4, 4), (3, 4, 6)] {
            assert_eq!(Parameters { segments, ranges, ..WRITE }.elements(), elements, "{segments} {ranges}");
        }
        assert_eq!(Parameters { segments: 3, ranges: 4, size: 96, ..WRITE }.check(), Ok(()));
    }

    #[test]
    fn what_is_asked_for_arrives() {
        for &operation in Operation::value_variants() {
            let parameters =
                Parameters { operation, depth: 77, segments: 3, ranges: 5, batch: 9, connections: 12, ..PLAIN };
            let data = ConnectData { parameters, client: u64::MAX };
            assert_eq!(ConnectData::decode(&data.encode()), Ok(data));
            // The connection manager may pad it.
            let padded = [data.encode(), vec![0; 16]].concat();
            assert_eq!(ConnectData::decode(&padded), Ok(data));
        }
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        let mut other = ConnectData { parameters: PLAIN, client: 1 }.encode();
        other[4] = 99;
        for (bytes, expected) in [
            (&b""[..], DecodeError::Foreign),
            (b"NVMe", DecodeError::Foreign),
            (b"fLAT", DecodeError::Malformed),
            (&other, DecodeError::Version(99)),
            (&ConnectData { parameters: PLAIN, client: 0 }.encode(), DecodeError::Malformed),
        ] {
            assert_eq!(ConnectData::decode(bytes), Err(expected), "{bytes:?}");
        }
        assert_eq!(Refusal::decode(&other), Ok(Refusal::Version(99)));
    }

    #[test]
    fn refusals_arrive() {
        let excess = Excess { what: Quantity::Depth, value: 5000, least: 1, most: 1024 };
        for refusal in [
            Refusal::Malformed,
            Refusal::Excess(excess),
            Refusal::Busy,
            Refusal::Again,
            Refusal::RemoteInvalidation,
            Refusal::NoRoom,
            Refusal::Crowded(128),
            Refusal::NoKeys,
        ] {
            assert_eq!(Refusal::decode(&refusal.encode()), Ok(refusal));
        }
    }

    #[test]
    fn every_number_has_its_limits() {
        assert_eq!(PLAIN.check(), Ok(()));
        for (wrong, what) in [
            (Parameters { size: 0, ..PLAIN }, Quantity::Size),
            (Parameters { size: 12, ..PLAIN }, Quantity::Size),
            (Parameters { size: 4096, segments: 3, ..PLAIN }, Quantity::Size),
            (Parameters { size: MAX_SIZE + 8, ..PLAIN }, Quantity::Size),
            (Parameters { size: (128 << 10) + 8, operation: Operation::Send, ..PLAIN }, Quantity::Size),
            (Parameters { segments: 0, ..PLAIN }, Quantity::Segments),
            (Parameters { segments: 17, ..PLAIN }, Quantity::Segments),
            (Parameters { ranges: 2, ..PLAIN }, Quantity::Ranges),
            (Parameters { ranges: 0, ..WRITE }, Quantity::Ranges),
            (Parameters { ranges: 17, ..WRITE }, Quantity::Ranges),
            (Parameters { ranges: 255, segments: 16, ..WRITE }, Quantity::Ranges),
            (Parameters { ranges: 9, segments: 11, ..WRITE }, Quantity::Elements),
            (Parameters { ranges: 4, segments: 3, ..WRITE }, Quantity::Size),
            (Parameters { depth: 0, ..PLAIN }, Quantity::Depth),
            (Parameters { depth: 1025, ..PLAIN }, Quantity::Depth),
            (Parameters { batch: 0, ..PLAIN }, Quantity::Batch),
            (Parameters { connections: 0, ..PLAIN }, Quantity::Connections),
            (Parameters { size: MAX_SIZE, depth: 1024, connections: 1024, ..PLAIN }, Quantity::Buffers),
        ] {
            let excess = wrong.check().unwrap_err();
            assert_eq!(excess.what, what, "{wrong:?}");
            let within = (excess.least..=excess.most).contains(&excess.value);
            assert!(!within || !excess.value.is_multiple_of(excess.least), "{excess:?}");
        }
        // Keys may cover the same bytes: a batch of large ones takes no more.
        let large = Parameters { operation: Operation::Register, size: MAX_SIZE, batch: 256, ..PLAIN };
        assert!(large.check().is_ok() && large.buffer_bytes() <= MAX_BUFFER_BYTES);
    }

    proptest! {
        #[test]
        fn decoders_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..64), ours in any::<bool>()) {
            let bytes = if ours { [&b"fLAT\x03\x00"[..], &bytes].concat() } else { bytes };
            if let Ok(data) = ConnectData::decode(&bytes) {
                prop_assert_eq!(ConnectData::decode(&data.encode()), Ok(data));
                // Checks and sums are total too.
                let _ = (data.parameters.check(), data.parameters.buffer_bytes());
            }
            if let Ok(refusal) = Refusal::decode(&bytes) && refusal != Refusal::Version(1) {
                let again = Refusal::decode(&refusal.encode());
                prop_assert!(again == Ok(refusal) || matches!(refusal, Refusal::Version(_)));
            }
        }
    }
}
