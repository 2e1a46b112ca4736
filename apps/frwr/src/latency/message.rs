//! What the halves send each other once they are connected. Every byte comes from a peer: decoders are total, and what they
//! return is checked by whoever uses it.

use super::parameters::MAX_SEGMENTS;
use frwr_engine::{RemoteSegment, mr::Grant, provider::RemoteRange};

/// Bytes in front of each message: kind, count, slot, sequence.
pub(super) const HEADER_BYTES: usize = 8;
/// Bytes of one range: address, key, length.
pub(super) const RANGE_BYTES: usize = 16;
/// Bytes of the shortest command of `request`: that of an NVMe command capsule, so that figures compare.
const COMMAND_BYTES: usize = 64;
/// Bytes of a reply: header, then what the server found at both ends of the memory that it read.
pub(super) const REPLY_BYTES: usize = HEADER_BYTES + 16;
/// Bytes of the largest message but those of `send`.
pub(super) const MAX_COMMAND_BYTES: usize = HEADER_BYTES + MAX_SEGMENTS as usize * RANGE_BYTES;

/// A range before there is one.
pub(super) const NOWHERE: RemoteSegment = RemoteSegment { remote: RemoteRange { address: 0, key: 0 }, length: 0 };

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Server: the client may begin; names the memory that is open to it, if any. Its sequence has how many milliseconds nothing
    /// may come of the client before it is taken for dead; 0: for ever.
    Ready = 1,
    /// Server: one key does not cover what is asked for.
    TooLarge = 2,
    /// Server: its system does not register the memory by ibv_reg_mr.
    NotRegistered = 9,
    /// Client: a request, with its memory.
    Request = 3,
    /// Client: a message that is to come back.
    Echo = 4,
    /// Server: the end of either.
    Reply = 5,
    /// Client: it ends.
    Bye = 6,
    /// Client: it is alive.
    Ping = 7,
    /// Server: it has seen that.
    Pong = 8,
    /// Client: its memory is open for the run; names it.
    Opened = 10,
}

/// By their numbers, from 1 on.
const KINDS: [Kind; 10] = [
    Kind::Ready,
    Kind::TooLarge,
    Kind::Request,
    Kind::Echo,
    Kind::Reply,
    Kind::Bye,
    Kind::Ping,
    Kind::Pong,
    Kind::NotRegistered,
    Kind::Opened,
];

/// The front of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Ranges that follow.
    pub(super) count: u8,
    /// The client's slot.
    pub(super) slot: u16,
    /// The low bits of the request's number.
    pub(super) sequence: u32,
}

impl Header {
    pub(super) fn new(kind: Kind, slot: u16, sequence: u32) -> Self {
        Self { kind, count: 0, slot, sequence }
    }

    /// Writes it to the front of a message that has room for it.
    pub(super) fn encode(&self, message: &mut [u8]) {
        let ([slot0, slot1], [a, b, c, d]) = (self.slot.to_le_bytes(), self.sequence.to_le_bytes());
        if let Some(front) = message.first_chunk_mut() {
            *front = [self.kind as u8, self.count, slot0, slot1, a, b, c, d];
        }
    }

    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let &[number, count, slot0, slot1, a, b, c, d] = message.first_chunk::<HEADER_BYTES>()?;
        let kind = *KINDS.get(usize::from(number).checked_sub(1)?)?;
        let (slot, sequence) = (u16::from_le_bytes([slot0, slot1]), u32::from_le_bytes([a, b, c, d]));
        Some(Self { kind, count, slot, sequence })
    }
}

/// Bytes of a command that may name so many ranges.
pub(super) fn command_bytes(ranges: usize) -> usize {
    (HEADER_BYTES + ranges * RANGE_BYTES).max(COMMAND_BYTES)
}

/// Ranges that such a command has room for.
pub(super) fn command_ranges(ranges: usize) -> usize {
    (command_bytes(ranges) - HEADER_BYTES) / RANGE_BYTES
}

/// Writes what the peer may use behind a header, and their number into it. `None` where the message has no room.
pub(super) fn name_ranges(message: &mut [u8], ranges: impl ExactSizeIterator<Item = (u64, u32, u32)>) -> Option<()> {
    let count = ranges.len();
    let room = message.get_mut(HEADER_BYTES..HEADER_BYTES + count * RANGE_BYTES)?;
    for (place, (address, key, length)) in room.chunks_exact_mut(RANGE_BYTES).zip(ranges) {
        place[..8].copy_from_slice(&address.to_le_bytes());
        place[8..12].copy_from_slice(&key.to_le_bytes());
        place[12..].copy_from_slice(&length.to_le_bytes());
    }
    *message.get_mut(1)? = u8::try_from(count).ok()?;
    Some(())
}

/// The same of grants.
pub(super) fn name_grants(message: &mut [u8], grants: &[Grant]) -> Option<()> {
    name_ranges(message, grants.iter().map(|grant| (grant.address, grant.key, grant.length)))
}

/// Reads the ranges behind a header: as many as it says, none empty, `bytes` in all. Returns how many; `None` where the message says
/// anything else, or more of them than there are places for.
pub(super) fn ranges(message: &[u8], count: u8, bytes: u32, places: &mut [RemoteSegment]) -> Option<usize> {
    let count = usize::from(count);
    let (read, places) = (message.get(HEADER_BYTES..HEADER_BYTES + count * RANGE_BYTES)?, places.get_mut(..count)?);
    let mut left = bytes;
    for (read, place) in read.chunks_exact(RANGE_BYTES).zip(places) {
        let (address, rest) = read.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let length = u32::from_le_bytes(*rest.first_chunk()?);
        left = left.checked_sub(length).filter(|_| length > 0)?;
        let remote = RemoteRange { address: u64::from_le_bytes(*address), key: u32::from_le_bytes(*key) };
        *place = RemoteSegment { remote, length };
    }
    (left == 0 && count > 0).then_some(count)
}

/// A word of a message.
pub(super) fn word(message: &[u8], at: usize) -> Option<u64> {
    message.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, Header, KINDS, MAX_COMMAND_BYTES, NOWHERE, command_ranges, name_ranges, ranges, word};
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        for kind in KINDS {
            let header = Header { kind, count: 3, slot: 1023, sequence: 0xdead_beef };
            let mut message = [0; HEADER_BYTES];
            header.encode(&mut message);
            assert_eq!(Header::decode(&message), Some(header));
        }
        let mut message = [0; MAX_COMMAND_BYTES];
        name_ranges(&mut message, [(1 << 40, 7, 100), (2, 8, 28)].into_iter()).unwrap();
        assert_eq!(message[1], 2);
        let mut places = [NOWHERE; 16];
        assert_eq!(ranges(&message, 2, 128, &mut places), Some(2));
        let read = |at: usize| (places[at].remote.address, places[at].remote.key, places[at].length);
        assert_eq!([read(0), read(1)], [(1 << 40, 7, 100), (2, 8, 28)]);
        assert_eq!(ranges(&message, 2, 127, &mut places), None);
        assert_eq!(ranges(&message, 2, 129, &mut places), None);
        assert_eq!(ranges(&message, 3, 128, &mut places), None, "the third is empty");
        assert_eq!(ranges(&message, 0, 0, &mut places), None);
        assert_eq!(ranges(&message, 17, 128, &mut places), None);
        assert_eq!(ranges(&message, 2, 128, &mut places[..1]), None, "one place alone");
        assert_eq!([1, 3, 4, 16].map(command_ranges), [3, 3, 4, 16]);
        assert!(name_ranges(&mut message[..20], [(0, 0, 1)].into_iter()).is_none());
    }

    proptest! {
        #[test]
        fn decoders_are_total(message in proptest::collection::vec(any::<u8>(), 0..300), bytes in any::<u32>()) {
            let header = Header::decode(&message);
            let mut places = [NOWHERE; 16];
            let read = ranges(&message, header.map_or(1, |header| header.count), bytes, &mut places).unwrap_or_default();
            let sum: u64 = places[..read].iter().map(|range| u64::from(range.length)).sum();
            prop_assert!(read == 0 || sum == u64::from(bytes));
            let _ = word(&message, usize::try_from(bytes).unwrap());
        }
    }
}
