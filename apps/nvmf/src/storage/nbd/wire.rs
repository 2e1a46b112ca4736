//! NBD as bytes (the protocol document of the NBD project): what is sent, and what is received, checked as far as that can be without
//! knowing what it answers. Functions are total.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32, U64},
};

/// `NBDMAGIC`.
const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`.
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// What an oldstyle server says in its place.
const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Bytes of an export name, and of any text (section Conventions).
pub(super) const MAX_TEXT_BYTES: usize = 4096;
/// Bytes of an option's reply: a text, and what stands in front of it.
pub(super) const MAX_OPTION_REPLY_BYTES: u32 = MAX_TEXT_BYTES as u32 + 64;
/// Bytes of an error chunk: a text, and the fields around it.
const MAX_ERROR_CHUNK_BYTES: u32 = MAX_TEXT_BYTES as u32 + 64;

/// Bits of handshake and client flags.
mod handshake_flag {
    pub(super) const FIXED_NEWSTYLE: u16 = 1;
    pub(super) const NO_ZEROES: u16 = 1 << 1;
}

/// Options.
pub(super) mod option {
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
}

/// Bits of transmission flags.
pub(super) mod export_flag {
    pub(in super::super) const HAS_FLAGS: u16 = 1;
    pub(in super::super) const READ_ONLY: u16 = 1 << 1;
    pub(in super::super) const SEND_FLUSH: u16 = 1 << 2;
    pub(in super::super) const SEND_FUA: u16 = 1 << 3;
    pub(in super::super) const SEND_TRIM: u16 = 1 << 5;
    pub(in super::super) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(in super::super) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Information about an export.
mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const BLOCK_SIZE: u16 = 3;
}

/// Bits of a request's flags.
pub(super) mod command_flag {
    pub(in super::super) const FUA: u16 = 1;
    pub(in super::super) const NO_HOLE: u16 = 1 << 1;
}

/// Error values.
pub(super) mod error {
    pub(in super::super) const EPERM: u32 = 1;
    pub(in super::super) const EINVAL: u32 = 22;
    pub(in super::super) const ENOSPC: u32 = 28;
    pub(in super::super) const EOVERFLOW: u32 = 75;
    pub(in super::super) const ENOTSUP: u32 = 95;
    pub(in super::super) const ESHUTDOWN: u32 = 108;
}

/// What a server may not say, or may not say here. The connection has no meaning any more then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NbdBreach {
    /// The first 16 bytes are no greeting of an NBD server.
    #[error("what answers is no NBD server")]
    NotNbd,
    /// A handshake without options.
    #[error("the server has no fixed newstyle handshake; use a server of this decade (nbdkit, qemu-nbd)")]
    NotFixedNewstyle,
    /// What should begin a reply does not.
    #[error("a reply begins with {0:#x}, which is no reply's magic number")]
    Magic(u64),
    /// A reply to an option that was not sent.
    #[error("a reply to option {0}, which was not sent")]
    Option(u32),
    /// A reply, or a part of one, that is longer or shorter than it can be.
    #[error("a reply of type {kind} with {length} bytes")]
    Length {
        /// Its type.
        kind: u32,
        /// Its bytes.
        length: u32,
    },
    /// An option was granted without what has to be said of the export, or told without an end.
    #[error("the export was opened, and nothing valid was said of it")]
    NoExport,
    /// Sizes that contradict the protocol.
    #[error("block sizes {minimum}, {preferred} and {maximum} contradict each other")]
    BlockSizes {
        /// Minimum block size.
        minimum: u32,
        /// Preferred block size.
        preferred: u32,
        /// Maximum payload.
        maximum: u32,
    },
    /// A reply to no request that is in flight.
    #[error("a reply with cookie {0:#x}, which no request in flight has")]
    Cookie(u64),
    /// A structured reply without having agreed on them, or a simple one to a read after that.
    #[error("a reply of another kind than was agreed on")]
    Style,
    /// A chunk of a type that there is not, or not for this request.
    #[error("a chunk of type {0}, which does not answer that request")]
    Chunk(u16),
    /// Data that was not asked for, or twice.
    #[error("data at {offset}, {bytes} bytes, which were not asked for, or were sent before")]
    Data {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// Data in more pieces at the same time than anybody sends.
    #[error("data of one read in more pieces than {0}")]
    Pieces(usize),
    /// Success was claimed before all data was there.
    #[error("a read ended after {found} of {wanted} bytes")]
    Short {
        /// Bytes sent.
        found: u32,
        /// Bytes asked for.
        wanted: u32,
    },
    /// An error that is none.
    #[error("an error with the value 0")]
    NoError,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Greeting {
    magic: U64,
    options: U64,
    flags: U16,
}

/// Bytes of a greeting.
pub(super) const GREETING_BYTES: usize = size_of::<Greeting>();

/// The client flags that answer a greeting.
pub(super) fn greeting(bytes: &[u8; GREETING_BYTES]) -> Result<[u8; 4], NbdBreach> {
    let Ok(greeting) = Greeting::ref_from_bytes(bytes) else { return Err(NbdBreach::NotNbd) };
    if greeting.magic.get() != GREETING_MAGIC {
        return Err(NbdBreach::NotNbd);
    }
    let flags = greeting.flags.get();
    match greeting.options.get() {
        OPTION_MAGIC if flags & handshake_flag::FIXED_NEWSTYLE != 0 => {
            let known = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
            Ok(u32::from(known).to_be_bytes())
        }
        OPTION_MAGIC | OLDSTYLE_MAGIC => Err(NbdBreach::NotFixedNewstyle),
        _ => Err(NbdBreach::NotNbd),
    }
}

#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct OptionRequest {
    magic: U64,
    option: U32,
    length: U32,
}

/// An option without data.
pub(super) fn put_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    // Names are at most `MAX_TEXT_BYTES` long.
    let length = U32::new(data.len() as u32);
    out.extend_from_slice(OptionRequest { magic: U64::new(OPTION_MAGIC), option: option.into(), length }.as_bytes());
    out.extend_from_slice(data);
}

/// `NBD_OPT_GO`: opens an export, and asks what blocks it has.
pub(super) fn put_go(out: &mut Vec<u8>, export: &str) {
    let mut data = Vec::with_capacity(export.len() + 8);
    data.extend_from_slice(&(export.len() as u32).to_be_bytes());
    data.extend_from_slice(export.as_bytes());
    data.extend_from_slice(&1_u16.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    put_option(out, option::GO, &data);
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct OptionReplyHeader {
    magic: U64,
    option: U32,
    kind: U32,
    length: U32,
}

/// Bytes in front of an option's reply.
pub(super) const OPTION_REPLY_BYTES: usize = size_of::<OptionReplyHeader>();

/// Type and bytes of the reply to `option`.
pub(super) fn option_reply(bytes: &[u8; OPTION_REPLY_BYTES], option: u32) -> Result<(u32, u32), NbdBreach> {
    let Ok(header) = OptionReplyHeader::ref_from_bytes(bytes) else { return Err(NbdBreach::NotNbd) };
    if header.magic.get() != OPTION_REPLY_MAGIC {
        return Err(NbdBreach::Magic(header.magic.get()));
    }
    if header.option.get() != option {
        return Err(NbdBreach::Option(header.option.get()));
    }
    let (kind, length) = (header.kind.get(), header.length.get());
    if length > MAX_OPTION_REPLY_BYTES {
        return Err(NbdBreach::Length { kind, length });
    }
    Ok((kind, length))
}

/// What an option's reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionReply<'a> {
    Ack,
    /// Size in bytes and transmission flags.
    Export(u64, u16),
    Blocks(Blocks),
    /// Nothing that matters here.
    Other,
    Refused(OptionRefusal, &'a [u8]),
}

/// Why an option is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionRefusal {
    /// The server does not know it.
    Unsupported,
    /// TLS first.
    TlsRequired,
    /// No such export.
    UnknownExport,
    /// Another reason, by its number.
    Other(u32),
}

const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR: u32 = 1 << 31;

/// Decodes the data of an option's reply.
pub(super) fn option_data(kind: u32, data: &[u8]) -> Result<OptionReply<'_>, NbdBreach> {
    let wrong = NbdBreach::Length { kind, length: data.len() as u32 };
    if kind & REPLY_ERROR != 0 {
        let refusal = match kind ^ REPLY_ERROR {
            1 => OptionRefusal::Unsupported,
            5 => OptionRefusal::TlsRequired,
            6 => OptionRefusal::UnknownExport,
            number => OptionRefusal::Other(number),
        };
        return Ok(OptionReply::Refused(refusal, data));
    }
    match kind {
        REPLY_ACK if data.is_empty() => Ok(OptionReply::Ack),
        REPLY_ACK => Err(wrong),
        REPLY_INFO => information(data).ok_or(wrong)?,
        _ => Ok(OptionReply::Other),
    }
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ExportInfo {
    bytes: U64,
    flags: U16,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BlockSizeInfo {
    minimum: U32,
    preferred: U32,
    maximum: U32,
}

fn information(data: &[u8]) -> Option<Result<OptionReply<'_>, NbdBreach>> {
    let (kind, rest) = U16::read_from_prefix(data).ok()?;
    Some(match kind.get() {
        info::EXPORT => {
            let export = ExportInfo::ref_from_bytes(rest).ok()?;
            Ok(OptionReply::Export(export.bytes.get(), export.flags.get()))
        }
        info::BLOCK_SIZE => {
            let sizes = BlockSizeInfo::ref_from_bytes(rest).ok()?;
            Blocks::new(sizes.minimum.get(), sizes.preferred.get(), sizes.maximum.get()).map(OptionReply::Blocks)
        }
        _ => Ok(OptionReply::Other),
    })
}

/// What requests of an export are multiples of, in bytes, and how long they are at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) minimum: u32,
    pub(super) preferred: u32,
    pub(super) maximum: u32,
}

/// Where the server says nothing (section Size constraints): what every server takes.
pub(super) const DEFAULT_BLOCKS: Blocks = Blocks { minimum: 512, preferred: 4096, maximum: 32 << 20 };

/// Bytes of one request at most: what every server takes (there).
pub(super) const MAX_PART_BYTES: u32 = DEFAULT_BLOCKS.maximum;

impl Blocks {
    fn new(minimum: u32, preferred: u32, maximum: u32) -> Result<Self, NbdBreach> {
        let possible = minimum.is_power_of_two()
            && minimum <= 1 << 16
            && preferred.is_power_of_two()
            && preferred >= minimum
            && maximum >= preferred;
        if possible {
            return Ok(Self { minimum, preferred, maximum });
        }
        Err(NbdBreach::BlockSizes { minimum, preferred, maximum })
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

/// A request; the data of a write follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) flags: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

#[derive(IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RequestHeader {
    magic: U32,
    flags: U16,
    kind: U16,
    cookie: U64,
    offset: U64,
    length: U32,
}

/// Bytes of a request.
pub(super) const REQUEST_BYTES: usize = size_of::<RequestHeader>();

impl Request {
    pub(super) fn encode(self) -> [u8; REQUEST_BYTES] {
        zerocopy::transmute!(RequestHeader {
            magic: REQUEST_MAGIC.into(),
            flags: self.flags.into(),
            kind: (self.command as u16).into(),
            cookie: self.cookie.into(),
            offset: self.offset.into(),
            length: self.length.into(),
        })
    }
}

/// What a reply, or a chunk of one, begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// All of it, but for the data of a read. 0 is no error.
    Simple {
        cookie: u64,
        error: u32,
    },
    Chunk {
        cookie: u64,
        is_last: bool,
        chunk: Chunk,
    },
}

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    End,
    /// So many bytes of data follow.
    Data {
        offset: u64,
        bytes: u32,
    },
    Hole {
        offset: u64,
        bytes: u32,
    },
    /// So many bytes follow which say more.
    Error {
        error: u32,
        rest: u32,
    },
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SimpleReply {
    magic: U32,
    error: U32,
    cookie: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ChunkHeader {
    magic: U32,
    flags: U16,
    kind: U16,
    cookie: U64,
    length: U32,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Hole {
    offset: U64,
    bytes: U32,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ErrorChunk {
    error: U32,
    message: U16,
}

/// The longest beginning of a reply: what [`reply`] wants to see at once.
pub(super) const MAX_REPLY_BYTES: usize = size_of::<ChunkHeader>() + size_of::<Hole>();
const CHUNK_DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_DATA: u16 = 1;
const CHUNK_HOLE: u16 = 2;
const CHUNK_ERROR: u16 = 1 << 15;

/// Decodes the beginning of a reply, and says how many bytes that is; `None` where it is not all there. `structured` is what was
/// agreed on.
pub(super) fn reply(bytes: &[u8], structured: bool) -> Result<Option<(Reply, usize)>, NbdBreach> {
    let Ok((magic, _)) = U32::read_from_prefix(bytes) else { return Ok(None) };
    match magic.get() {
        SIMPLE_REPLY_MAGIC => Ok(SimpleReply::ref_from_prefix(bytes).ok().map(|(simple, _)| {
            let reply = Reply::Simple { cookie: simple.cookie.get(), error: simple.error.get() };
            (reply, size_of::<SimpleReply>())
        })),
        CHUNK_MAGIC if structured => chunk(bytes),
        CHUNK_MAGIC => Err(NbdBreach::Style),
        other => Err(NbdBreach::Magic(other.into())),
    }
}

fn chunk(bytes: &[u8]) -> Result<Option<(Reply, usize)>, NbdBreach> {
    let Ok((header, rest)) = ChunkHeader::ref_from_prefix(bytes) else { return Ok(None) };
    let (kind, length) = (header.kind.get(), header.length.get());
    let is_last = header.flags.get() & CHUNK_DONE != 0;
    let wrong = NbdBreach::Length { kind: kind.into(), length };
    let (chunk, more) = match kind {
        CHUNK_NONE if length != 0 => return Err(wrong),
        CHUNK_NONE if !is_last => return Err(NbdBreach::Chunk(kind)),
        CHUNK_NONE => (Chunk::End, 0),
        CHUNK_DATA => {
            let bytes = length.checked_sub(size_of::<U64>() as u32).filter(|bytes| *bytes > 0).ok_or(wrong)?;
            let Ok((offset, _)) = U64::read_from_prefix(rest) else { return Ok(None) };
            (Chunk::Data { offset: offset.get(), bytes }, size_of::<U64>())
        }
        CHUNK_HOLE if length as usize != size_of::<Hole>() => return Err(wrong),
        CHUNK_HOLE => {
            let Ok((hole, _)) = Hole::ref_from_prefix(rest) else { return Ok(None) };
            if hole.bytes.get() == 0 {
                return Err(NbdBreach::Data { offset: hole.offset.get(), bytes: 0 });
            }
            (Chunk::Hole { offset: hole.offset.get(), bytes: hole.bytes.get() }, size_of::<Hole>())
        }
        _ if kind & CHUNK_ERROR != 0 => {
            let said = length.checked_sub(size_of::<ErrorChunk>() as u32).ok_or(wrong)?;
            if length > MAX_ERROR_CHUNK_BYTES {
                return Err(wrong);
            }
            let Ok((error, _)) = ErrorChunk::ref_from_prefix(rest) else { return Ok(None) };
            match (error.error.get(), u32::from(error.message.get())) {
                (0, _) => return Err(NbdBreach::NoError),
                (_, message) if message > said => return Err(wrong),
                (error, _) => (Chunk::Error { error, rest: said }, size_of::<ErrorChunk>()),
            }
        }
        _ => return Err(NbdBreach::Chunk(kind)),
    };
    let reply = Reply::Chunk { cookie: header.cookie.get(), is_last, chunk };
    Ok(Some((reply, size_of::<ChunkHeader>() + more)))
}

#[cfg(test)]
mod tests;
