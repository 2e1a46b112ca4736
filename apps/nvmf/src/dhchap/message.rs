//! The messages of an authentication as bytes (Base 8.13.3 and 8.13.5). Whatever bytes come: they are one of these, or none.

use super::group::Group;
use super::hash::Hash;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// AUTH_TYPE of messages that all protocols have.
const COMMON: u8 = 0;
/// AUTH_TYPE of those of DH-HMAC-CHAP.
const DH_HMAC_CHAP: u8 = 1;
/// The authentication protocol identifier of DH-HMAC-CHAP.
const PROTOCOL: u8 = 1;

/// AUTH_ID of common messages.
const NEGOTIATE: u8 = 0x00;
const FAILURE1: u8 = 0xf0;
const FAILURE2: u8 = 0xf1;
/// AUTH_ID of those of DH-HMAC-CHAP.
const CHALLENGE: u8 = 0x01;
const REPLY: u8 = 0x02;
const SUCCESS1: u8 = 0x03;
const SUCCESS2: u8 = 0x04;

/// The one reason code that there is: authentication failure.
const AUTHENTICATION_FAILURE: u8 = 1;
/// Identifiers of hash functions, and of groups, that a descriptor has room for.
const LISTED: usize = 30;

/// What every message begins with.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Header {
    kind: u8,
    id: u8,
    reserved: [u8; 2],
    transaction: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct NegotiateHead {
    header: Header,
    concatenation: u8,
    protocols: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Descriptor {
    protocol: u8,
    reserved: u8,
    hash_count: u8,
    group_count: u8,
    hashes: [u8; LISTED],
    groups: [u8; LISTED],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct ChallengeHead {
    header: Header,
    hash_bytes: u8,
    reserved: u8,
    hash: u8,
    group: u8,
    public_bytes: U16,
    sequence: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct ReplyHead {
    header: Header,
    hash_bytes: u8,
    reserved: u8,
    challenges: u8,
    reserved_2: u8,
    public_bytes: U16,
    sequence: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Success1Head {
    header: Header,
    hash_bytes: u8,
    reserved: u8,
    responds: u8,
    reserved_2: [u8; 7],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Success2 {
    header: Header,
    reserved: [u8; 10],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Failure {
    header: Header,
    reason: u8,
    explanation: u8,
}

const _: () = assert!(size_of::<NegotiateHead>() == 8 && size_of::<Descriptor>() == 64);
const _: () = assert!(size_of::<ChallengeHead>() == 16 && size_of::<ReplyHead>() == 16);
const _: () = assert!(size_of::<Success1Head>() == 16 && size_of::<Success2>() == 16 && size_of::<Failure>() == 8);

/// A message. What it says of lengths holds; nothing else was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// AUTH_Negotiate: identifiers of hash functions and groups of DH-HMAC-CHAP, in the host's order, where it offers that.
    Negotiate { transaction: u16, concatenation: u8, offered: Option<(&'a [u8], &'a [u8])> },
    /// DH-HMAC-CHAP_Challenge.
    Challenge { transaction: u16, hash: Hash, group: Group, sequence: u32, challenge: &'a [u8], public: &'a [u8] },
    /// DH-HMAC-CHAP_Reply: both values are of that many bytes.
    Reply { transaction: u16, sequence: u32, response: &'a [u8], challenge: Option<&'a [u8]>, public: &'a [u8] },
    /// DH-HMAC-CHAP_Success1, with room for a response of so many bytes, whether there is one or not.
    Success1 { transaction: u16, room: u8, response: Option<&'a [u8]> },
    /// DH-HMAC-CHAP_Success2.
    Success2 { transaction: u16 },
    /// AUTH_Failure1, by the controller, with the reason code explanation.
    Failure1 { transaction: u16, explanation: u8 },
    /// AUTH_Failure2, by the host.
    Failure2 { transaction: u16, explanation: u8 },
}

/// Takes so many bytes off the front.
fn split<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(bytes)?;
    *rest = behind;
    Some(taken)
}

/// Takes a structure off the front.
fn take<T: FromBytes>(rest: &mut &[u8]) -> Option<T> {
    let (taken, behind) = T::read_from_prefix(rest).ok()?;
    *rest = behind;
    Some(taken)
}

/// The transaction that a message says to belong to, whatever else it says; 0 where it is too short for that.
pub(super) fn transaction(bytes: &[u8]) -> u16 {
    Header::read_from_prefix(bytes).map_or(0, |(header, _)| header.transaction.get())
}

impl<'a> Message<'a> {
    /// Reads a message, and how many bytes are behind it.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let (header, _) = Header::read_from_prefix(bytes).ok()?;
        let (transaction, mut rest) = (header.transaction.get(), bytes);
        let message = match (header.kind, header.id) {
            (COMMON, NEGOTIATE) => negotiate(&mut rest)?,
            (COMMON, FAILURE1 | FAILURE2) => {
                let Failure { header: Header { id, .. }, explanation, .. } = take(&mut rest)?;
                match id {
                    FAILURE1 => Self::Failure1 { transaction, explanation },
                    _ => Self::Failure2 { transaction, explanation },
                }
            }
            (DH_HMAC_CHAP, CHALLENGE) => challenge(&mut rest)?,
            (DH_HMAC_CHAP, REPLY) => {
                let head: ReplyHead = take(&mut rest)?;
                let response = split(&mut rest, head.hash_bytes.into())?;
                // It has its place also where there is none.
                let value = split(&mut rest, head.hash_bytes.into())?;
                let public = split(&mut rest, head.public_bytes.get().into())?;
                let challenge = (head.challenges & 1 != 0).then_some(value);
                Self::Reply { transaction, sequence: head.sequence.get(), response, challenge, public }
            }
            (DH_HMAC_CHAP, SUCCESS1) => {
                let head: Success1Head = take(&mut rest)?;
                let responds = head.responds & 1 != 0;
                let response = if responds { Some(split(&mut rest, head.hash_bytes.into())?) } else { None };
                // Some controllers leave room for it, others do not.
                if !responds {
                    rest = rest.get(usize::from(head.hash_bytes).min(rest.len())..)?;
                }
                Self::Success1 { transaction, room: head.hash_bytes, response }
            }
            (DH_HMAC_CHAP, SUCCESS2) => {
                let _: Success2 = take(&mut rest)?;
                Self::Success2 { transaction }
            }
            _ => return None,
        };
        Some((message, rest.len()))
    }

    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Negotiate { transaction, concatenation, offered } => {
                let mut head = NegotiateHead::new_zeroed();
                head.header = header(COMMON, NEGOTIATE, transaction);
                (head.concatenation, head.protocols) = (concatenation, u8::from(offered.is_some()));
                let descriptor = offered.map(|(hashes, groups)| descriptor(hashes, groups));
                [head.as_bytes(), descriptor.as_ref().map_or(&[], IntoBytes::as_bytes)].concat()
            }
            Self::Challenge { transaction, hash, group, sequence, challenge, public } => {
                let mut head = ChallengeHead::new_zeroed();
                head.header = header(DH_HMAC_CHAP, CHALLENGE, transaction);
                (head.hash_bytes, head.hash, head.group) = (short(challenge), hash.identifier(), group.identifier());
                (head.public_bytes, head.sequence) = (length(public), sequence.into());
                [head.as_bytes(), challenge, public].concat()
            }
            Self::Reply { transaction, sequence, response, challenge, public } => {
                let mut head = ReplyHead::new_zeroed();
                head.header = header(DH_HMAC_CHAP, REPLY, transaction);
                (head.hash_bytes, head.challenges) = (short(response), u8::from(challenge.is_some()));
                (head.public_bytes, head.sequence) = (length(public), sequence.into());
                let none = vec![0; response.len()];
                [head.as_bytes(), response, challenge.unwrap_or(&none), public].concat()
            }
            Self::Success1 { transaction, room, response } => {
                let mut head = Success1Head::new_zeroed();
                head.header = header(DH_HMAC_CHAP, SUCCESS1, transaction);
                (head.hash_bytes, head.responds) = (room, u8::from(response.is_some()));
                let none = vec![0; room.into()];
                [head.as_bytes(), response.unwrap_or(&none)].concat()
            }
            Self::Success2 { transaction } => {
                let mut message = Success2::new_zeroed();
                message.header = header(DH_HMAC_CHAP, SUCCESS2, transaction);
                message.as_bytes().to_vec()
            }
            Self::Failure1 { transaction, explanation } => failure(FAILURE1, transaction, explanation),
            Self::Failure2 { transaction, explanation } => failure(FAILURE2, transaction, explanation),
        }
    }
}

fn negotiate<'a>(rest: &mut &'a [u8]) -> Option<Message<'a>> {
    let head: NegotiateHead = take(rest)?;
    let mut offered = None;
    for _ in 0..head.protocols {
        let descriptor = Descriptor::ref_from_bytes(split(rest, size_of::<Descriptor>())?).ok()?;
        let hashes = descriptor.hashes.get(..descriptor.hash_count.into())?;
        let groups = descriptor.groups.get(..descriptor.group_count.into())?;
        if descriptor.protocol == PROTOCOL && offered.is_none() {
            offered = Some((hashes, groups));
        }
    }
    let (transaction, concatenation) = (head.header.transaction.get(), head.concatenation);
    Some(Message::Negotiate { transaction, concatenation, offered })
}

fn challenge<'a>(rest: &mut &'a [u8]) -> Option<Message<'a>> {
    let head: ChallengeHead = take(rest)?;
    let challenge = split(rest, head.hash_bytes.into())?;
    let public = split(rest, head.public_bytes.get().into())?;
    Some(Message::Challenge {
        transaction: head.header.transaction.get(),
        hash: Hash::of(head.hash)?,
        group: Group::of(head.group)?,
        sequence: head.sequence.get(),
        challenge,
        public,
    })
}

fn header(kind: u8, id: u8, transaction: u16) -> Header {
    Header { kind, id, reserved: [0; 2], transaction: transaction.into() }
}

fn failure(id: u8, transaction: u16, explanation: u8) -> Vec<u8> {
    let header = header(COMMON, id, transaction);
    Failure { header, reason: AUTHENTICATION_FAILURE, explanation }.as_bytes().to_vec()
}

/// Both lists have fewer entries than there is room for.
fn descriptor(hashes: &[u8], groups: &[u8]) -> Descriptor {
    let mut descriptor = Descriptor::new_zeroed();
    (descriptor.protocol, descriptor.hash_count, descriptor.group_count) = (PROTOCOL, short(hashes), short(groups));
    for (to, from) in descriptor.hashes.iter_mut().zip(hashes).chain(descriptor.groups.iter_mut().zip(groups)) {
        *to = *from;
    }
    descriptor
}

/// Values of a hash function have 64 bytes at most, and lists 30 entries.
fn short(bytes: &[u8]) -> u8 {
    bytes.len() as u8
}

/// Public values have 1024 bytes at most.
fn length(bytes: &[u8]) -> U16 {
    (bytes.len() as u16).into()
}
