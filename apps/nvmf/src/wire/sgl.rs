//! SGL descriptors (Base 4.1.2, figures 113 to 126; RDMA 3.2): the data pointer of a command.

use super::Status;
use core::mem::size_of;
use core::ops::Range;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_mut};

/// A keyed data block's length has 24 bits.
pub const KEYED_DATA_BLOCK_LIMIT: u32 = (1 << 24) - 1;

/// Type 0h (data block) with subtype 1h (offset): data that follows the command in its capsule.
const DATA_BLOCK_OFFSET: u8 = 0x01;
/// Type 4h (keyed data block) with subtype 0h (address).
const KEYED_ADDRESS: u8 = 0x40;
/// Type 4h with subtype Fh: the same, and the controller may invalidate the key with its response.
const KEYED_INVALIDATE: u8 = 0x4f;

/// Type 3h (last segment) with subtype 1h (offset): descriptors that follow the command in its capsule.
const LAST_SEGMENT_OFFSET: u8 = 0x31;

/// Bytes of one descriptor.
pub const SGL_DESCRIPTOR_BYTES: usize = 16;

/// Keyed SGL Data Block descriptor.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireKeyed {
    address: U64,
    length: [u8; 3],
    key: U32,
    identifier: u8,
}

/// SGL Data Block descriptor with an offset in place of the address.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct WireInCapsule {
    offset: U64,
    length: U32,
    reserved: [u8; 3],
    identifier: u8,
}

layout!(WireKeyed, 16; identifier: 15);
layout!(WireInCapsule, 16; identifier: 15);

/// A keyed data block in its place, whose registration is filled in when it is known.
pub(crate) struct PreparedBlock<'a>(&'a mut WireKeyed);

impl<'a> PreparedBlock<'a> {
    /// `None` for a descriptor of another kind.
    #[inline(always)]
    pub(crate) fn of(descriptor: &'a mut [u8; SGL_DESCRIPTOR_BYTES]) -> Option<Self> {
        let is_keyed = matches!(descriptor[15], KEYED_ADDRESS | KEYED_INVALIDATE);
        is_keyed.then(|| Self(transmute_mut!(descriptor)))
    }

    /// Bytes that it was prepared for.
    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        let [low, middle, high] = self.0.length;
        u32::from_le_bytes([low, middle, high, 0])
    }

    /// It is this registration's, with as many bytes as before.
    #[inline(always)]
    pub(crate) fn fill(self, address: u64, key: u32) {
        (self.0.address, self.0.key) = (address.into(), key.into());
    }
}

/// Memory of the host that the controller reaches by RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedDataBlock {
    /// Address in the host's registration.
    pub address: u64,
    /// Bytes, at most [`KEYED_DATA_BLOCK_LIMIT`].
    pub length: u32,
    /// Remote key.
    pub key: u32,
    /// The controller may end the command with SEND_WITH_INV of the key.
    pub invalidate: bool,
}

/// Where a command's data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
    /// In the host's memory; a length of 0 stands for no data at all.
    Keyed(KeyedDataBlock),
    /// In the capsule, behind the command.
    InCapsule {
        /// Bytes between the end of the command and the data, given the controller's ICDOFF of 0.
        offset: u64,
        /// Bytes.
        length: u32,
    },
}

impl DataPointer {
    /// For commands that transfer nothing: RDMA hosts send a keyed block of length 0.
    pub const NONE: Self = Self::Keyed(KeyedDataBlock { address: 0, length: 0, key: 0, invalidate: false });

    /// Decodes a data pointer.
    ///
    /// # Errors
    /// [`Status::SGL_DESCRIPTOR_TYPE_INVALID`] for all that the RDMA transport does not define.
    pub fn decode(bytes: [u8; 16]) -> Result<Self, Status> {
        // The address, 24 bits of length, the key and the identifier: taken from one number, which needs no copy of the bytes.
        let whole = u128::from_le_bytes(bytes);
        match (whole >> 120) as u8 {
            identifier @ (KEYED_ADDRESS | KEYED_INVALIDATE) => Ok(Self::Keyed(KeyedDataBlock {
                address: whole as u64,
                length: (whole >> 64) as u32 & KEYED_DATA_BLOCK_LIMIT,
                key: (whole >> 88) as u32,
                invalidate: identifier == KEYED_INVALIDATE,
            })),
            DATA_BLOCK_OFFSET => {
                let wire: WireInCapsule = transmute!(bytes);
                Ok(Self::InCapsule { offset: wire.offset.get(), length: wire.length.get() })
            }
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry()),
        }
    }

    /// Encodes a data pointer.
    ///
    /// # Errors
    /// [`Status::DATA_SGL_LENGTH_INVALID`] for a keyed block longer than [`KEYED_DATA_BLOCK_LIMIT`].
    #[inline(always)]
    pub fn encode(self) -> Result<[u8; 16], Status> {
        match self {
            Self::Keyed(block) => {
                let [low, middle, high, 0] = block.length.to_le_bytes() else {
                    return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
                };
                let identifier = if block.invalidate { KEYED_INVALIDATE } else { KEYED_ADDRESS };
                let length = [low, middle, high];
                Ok(transmute!(WireKeyed { address: block.address.into(), length, key: block.key.into(), identifier }))
            }
            Self::InCapsule { offset, length } => Ok(transmute!(WireInCapsule {
                offset: offset.into(),
                length: length.into(),
                reserved: [0; 3],
                identifier: DATA_BLOCK_OFFSET,
            })),
        }
    }
}

/// Where a list of descriptors lies in the capsule, if the data pointer is a last segment descriptor with an offset
/// (RDMA 3.2): offset behind the command, and bytes. A command may have one where the controller takes more than one
/// data block (MSDBD).
#[must_use]
pub fn last_segment(bytes: [u8; 16]) -> Option<(u64, u32)> {
    if bytes[15] != LAST_SEGMENT_OFFSET {
        return None;
    }
    let wire: WireInCapsule = transmute!(bytes);
    Some((wire.offset.get(), wire.length.get()))
}

/// The data pointer of a command whose `count` data blocks follow it in its capsule (RDMA 3.2): a last segment descriptor
/// with an offset of 0.
#[must_use]
pub fn listed_blocks(count: u8) -> [u8; 16] {
    transmute!(WireInCapsule {
        offset: 0.into(),
        length: (u32::from(count) * SGL_DESCRIPTOR_BYTES as u32).into(),
        reserved: [0; 3],
        identifier: LAST_SEGMENT_OFFSET,
    })
}

/// The range of in-capsule data among the `available` bytes that followed the command.
///
/// # Errors
/// [`Status::SGL_OFFSET_INVALID`] where the data would start behind what was received, and
/// [`Status::DATA_SGL_LENGTH_INVALID`] where it would end behind it.
pub fn in_capsule_data(offset: u64, length: u32, available: usize) -> Result<Range<usize>, Status> {
    let start = usize::try_from(offset).ok().filter(|start| *start <= available);
    let start = start.ok_or(Status::SGL_OFFSET_INVALID.do_not_retry())?;
    let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
    match end {
        Some(end) if end <= available => Ok(start..end),
        _ => Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry()),
    }
}
