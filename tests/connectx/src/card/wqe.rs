//! Work requests in the card's own format (mlx5dv.h): bytes in, what is to be done out.

use zerocopy::{BigEndian, FromBytes, Immutable, KnownLayout, U16, U32, U64};

/// Bytes of a basic block of a send queue, and of the unit in which a work request says its length.
pub(super) const BLOCK: usize = 64;
const UNIT: usize = 16;

/// Segments of 16 bytes of the longest work request: six bits.
const MAX_UNITS: u32 = 63;

/// Ends a list of elements that is shorter than its room.
pub(super) const NO_KEY: u32 = 0x100;

mod opcode {
    pub(super) const NOTHING: u8 = 0x00;
    pub(super) const SEND_INVALIDATE: u8 = 0x01;
    pub(super) const WRITE: u8 = 0x08;
    pub(super) const SEND: u8 = 0x0a;
    pub(super) const READ: u8 = 0x10;
    pub(super) const REGISTER: u8 = 0x25;
}

/// The first 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    /// Position of its first block in the send queue.
    pub(super) position: u16,
    pub(super) opcode: u8,
    pub(super) queue_pair: u32,
    /// Bytes of it all.
    pub(super) bytes: usize,
    /// A completion is asked for.
    pub(super) signalled: bool,
    /// A key, where the operation has one.
    pub(super) immediate: u32,
}

impl Control {
    /// Of the first block.
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Self, &'static str> {
        let word = |at: usize| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let (first, second) = (word(0), word(4));
        let units = second & 0xff;
        if !(1..=MAX_UNITS).contains(&units) {
            return Err("a work request has no length, or more than a card fetches");
        }
        if first >> 24 != 0 {
            return Err("an operation has a modifier");
        }
        Ok(Self {
            position: (first >> 8) as u16,
            opcode: first as u8,
            queue_pair: second >> 8,
            bytes: units as usize * UNIT,
            // CE: two bits, of which 2 is "always".
            signalled: block[11] & 0b1100 == 0b1000,
            immediate: word(12),
        })
    }

    /// Basic blocks that it takes.
    pub(super) fn blocks(&self) -> u16 {
        // At most MAX_UNITS units.
        self.bytes.div_ceil(BLOCK) as u16
    }
}

/// One element of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Element {
    bytes: U32<BigEndian>,
    key: U32<BigEndian>,
    address: U64<BigEndian>,
}

impl Element {
    pub(super) fn bytes(&self) -> u32 {
        self.bytes.get()
    }

    pub(super) fn key(&self) -> u32 {
        self.key.get()
    }

    pub(super) fn address(&self) -> u64 {
        self.address.get()
    }
}

/// Where data comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Local {
    Inline(Vec<u8>),
    Elements(Vec<Element>),
}

/// What a registration changes of a key; `None` keeps what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) free: Option<bool>,
    pub(super) low_byte: Option<u8>,
    pub(super) queue_pair: Option<u32>,
    pub(super) access: Option<Rights>,
    pub(super) start: Option<u64>,
    pub(super) length: Option<u64>,
    /// The new list, with its padding.
    pub(super) list: Option<Vec<Element>>,
    /// Only a key that is free may be changed.
    pub(super) check_free: bool,
    /// Only a key of this queue pair may be changed.
    pub(super) check_queue_pair: bool,
}

/// Rights of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) remote_read: bool,
    pub(super) remote_write: bool,
    pub(super) local_write: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Nothing,
    Send { local: Local, invalidate: Option<u32> },
    Write { local: Local, key: u32, address: u64 },
    Read { local: Vec<Element>, key: u32, address: u64 },
    Register { key: u32, change: Change },
}

/// Reads all of a work request.
pub(super) fn parse(control: &Control, bytes: &[u8]) -> Result<Work, &'static str> {
    let body = bytes.get(UNIT..control.bytes).ok_or("a work request is longer than its queue")?;
    match control.opcode {
        opcode::NOTHING => Ok(Work::Nothing),
        opcode::SEND => Ok(Work::Send { local: local(body)?, invalidate: None }),
        opcode::SEND_INVALIDATE => Ok(Work::Send { local: local(body)?, invalidate: Some(control.immediate) }),
        opcode::WRITE => {
            let (address, key, rest) = remote(body)?;
            Ok(Work::Write { local: local(rest)?, key, address })
        }
        opcode::READ => {
            let (address, key, rest) = remote(body)?;
            match local(rest)? {
                Local::Elements(local) => Ok(Work::Read { local, key, address }),
                Local::Inline(_) => Err("an RDMA READ has inline data"),
            }
        }
        opcode::REGISTER => Ok(Work::Register { key: control.immediate, change: change(body)? }),
        _ => Err("an operation is none of those that are emulated"),
    }
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Remote {
    address: U64<BigEndian>,
    key: U32<BigEndian>,
    reserved: [u8; 4],
}

fn remote(body: &[u8]) -> Result<(u64, u32, &[u8]), &'static str> {
    let (remote, rest) = Remote::read_from_prefix(body).map_err(|_| "an RDMA operation has no remote address")?;
    if remote.reserved != [0; 4] {
        return Err("the reserved bytes behind a remote key are not zero");
    }
    Ok((remote.address.get(), remote.key.get(), rest))
}

/// Marks a segment of inline data.
const INLINE: u32 = 1 << 31;

fn local(mut body: &[u8]) -> Result<Local, &'static str> {
    if let Some(first) = body.first_chunk::<4>().map(|word| u32::from_be_bytes(*word))
        && first & INLINE != 0
    {
        let mut data = Vec::new();
        while let Some((word, rest)) = body.split_first_chunk::<4>() {
            let word = u32::from_be_bytes(*word);
            let count = (word & !INLINE) as usize;
            if word & INLINE == 0 {
                return Err("inline data and elements stand in one work request");
            }
            data.extend_from_slice(rest.get(..count).ok_or("inline data is longer than its work request")?);
            body = body.get((4 + count).next_multiple_of(UNIT)..).unwrap_or(&[]);
        }
        return Ok(Local::Inline(data));
    }
    Ok(Local::Elements(elements(body)?))
}

/// A list of elements that fills its place.
fn elements(body: &[u8]) -> Result<Vec<Element>, &'static str> {
    let (elements, rest) = body.as_chunks::<UNIT>();
    if !rest.is_empty() {
        return Err("a list of elements ends within one");
    }
    elements.iter().map(|bytes| Element::read_from_bytes(bytes).map_err(|_| "an element is cut off")).collect()
}

/// Behind the control segment of a registration.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RegistrationControl {
    flags: u8,
    reserved: [u8; 3],
    octowords: U16<BigEndian>,
    offset: U16<BigEndian>,
    mask: U64<BigEndian>,
    also_reserved: [u8; 32],
}

/// What the key shall be.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct KeyContext {
    free: u8,
    _first: u8,
    access: u8,
    _sf: u8,
    queue_pair_and_low_byte: U32<BigEndian>,
    _reserved: U32<BigEndian>,
    flags_and_domain: U32<BigEndian>,
    start: U64<BigEndian>,
    length: U64<BigEndian>,
    signature_octowords: U32<BigEndian>,
    _also_reserved: [u8; 16],
    octowords: U32<BigEndian>,
    _log_page: [u8; 8],
}

mod flag {
    pub(super) const INLINE: u8 = 1 << 7;
    pub(super) const CHECK_FREE: u8 = 1 << 5;
    pub(super) const WITH_OFFSET: u8 = 1 << 4;
    pub(super) const CHECK_QUEUE_PAIR: u8 = 1 << 3;
}

mod mask {
    pub(super) const LENGTH: u64 = 1 << 0;
    pub(super) const START: u64 = 1 << 6;
    pub(super) const LOW_BYTE: u64 = 1 << 13;
    pub(super) const QUEUE_PAIR: u64 = 1 << 14;
    pub(super) const LOCAL_WRITE: u64 = 1 << 18;
    pub(super) const REMOTE_READ: u64 = 1 << 19;
    pub(super) const REMOTE_WRITE: u64 = 1 << 20;
    pub(super) const ATOMIC: u64 = 1 << 21;
    pub(super) const FREE: u64 = 1 << 29;
    pub(super) const ACCESS: u64 = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE;
    pub(super) const KNOWN: u64 = LENGTH | START | LOW_BYTE | QUEUE_PAIR | ACCESS | ATOMIC | FREE;
}

fn change(body: &[u8]) -> Result<Change, &'static str> {
    let cut_off = "a registration is cut off";
    let (control, rest) = RegistrationControl::read_from_prefix(body).map_err(|_| cut_off)?;
    let (context, list) = KeyContext::read_from_prefix(rest).map_err(|_| cut_off)?;
    let mask = control.mask.get();
    // Those of the key's context libmlx5 leaves as they are where a key dies: the mask says that nobody looks.
    if control.reserved != [0; 3] || control.also_reserved != [0; 32] {
        return Err("reserved bytes of a registration are not zero");
    }
    if mask & !mask::KNOWN != 0 {
        return Err("a registration changes what is not emulated");
    }
    if control.flags & !(flag::INLINE | flag::CHECK_FREE | flag::WITH_OFFSET | flag::CHECK_QUEUE_PAIR) != 0 {
        return Err("a registration has flags that are not emulated");
    }
    if control.offset.get() != 0 {
        return Err("a registration changes a part of a list, or has a signature");
    }
    let octowords = usize::from(control.octowords.get());
    if octowords > 0 && (control.flags & flag::INLINE == 0 || list.len() != octowords * UNIT) {
        return Err("a registration's list is not where its length says");
    }
    if octowords == 0 && !list.is_empty() {
        return Err("a registration has a list of no length");
    }
    if mask & mask::ACCESS != 0 && mask & mask::ACCESS != mask::ACCESS {
        return Err("a registration changes some rights and leaves others");
    }
    let has = |bit: u64| mask & bit != 0;
    let key = context.queue_pair_and_low_byte.get();
    let rights = Rights {
        remote_read: context.access & 1 << 4 != 0,
        remote_write: context.access & 1 << 5 != 0,
        local_write: context.access & 1 << 3 != 0,
    };
    Ok(Change {
        free: has(mask::FREE).then_some(context.free & 1 << 6 != 0),
        low_byte: has(mask::LOW_BYTE).then_some(key as u8),
        queue_pair: has(mask::QUEUE_PAIR).then_some(key >> 8),
        access: has(mask::LOCAL_WRITE).then_some(rights),
        start: has(mask::START).then_some(context.start.get()),
        length: has(mask::LENGTH).then_some(context.length.get()),
        list: if octowords > 0 { Some(elements(list)?) } else { None },
        check_free: control.flags & flag::CHECK_FREE != 0,
        check_queue_pair: control.flags & flag::CHECK_QUEUE_PAIR != 0,
    })
}

#[cfg(test)]
mod tests;
