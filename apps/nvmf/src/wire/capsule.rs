//! Capsules (Base 3.3.2; RDMA 3.2): a submission queue entry with optional data behind it, and a completion queue entry.

use super::{DataPointer, Status};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a command capsule without data.
pub const COMMAND_CAPSULE_BYTES: usize = 64;
/// Bytes of a response capsule; the RDMA transport never appends data to it.
pub const RESPONSE_CAPSULE_BYTES: usize = 16;

/// Submission queue entry, common format (Base figures 87 and 88). Fabrics commands give bytes 4 to 23 and 40 to 63
/// other meanings (Base 6): `namespace` then starts with the fabrics command type.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SubmissionQueueEntry {
    /// Opcode.
    pub opcode: u8,
    /// FUSE in bits 1:0 and PSDT in bits 7:6.
    pub flags: u8,
    /// Chosen by the host, unique among the commands outstanding on its queue.
    pub command_id: U16,
    /// Namespace identifier.
    pub namespace: U32,
    /// Command dwords 2 and 3.
    pub dwords_2_3: [U32; 2],
    /// Metadata pointer; not used here.
    pub metadata: U64,
    /// Data pointer, an SGL descriptor.
    pub data: [u8; 16],
    /// Command dwords 10 to 15.
    pub dwords_10_15: [U32; 6],
}

layout!(
    SubmissionQueueEntry, COMMAND_CAPSULE_BYTES; command_id: 2, namespace: 4,
    data: SubmissionQueueEntry::DATA_OFFSET, dwords_10_15: 40
);

/// Which command of a fused operation one is (FUSE, Base figure 87).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// None: it is executed for itself.
    None,
    /// The first one; the second has to follow next in the same queue.
    First,
    /// The second one.
    Second,
    /// 11b.
    Reserved,
}

impl SubmissionQueueEntry {
    /// PSDT 01b: the data pointer is an SGL, the only choice over fabrics (Base 4.1.2, figure 88).
    pub const FLAGS_SGL: u8 = 0x40;
    /// Bits of FUSE (Base figure 87).
    const FUSE: u8 = 0b11;
    /// Where the data pointer stands in the entry.
    pub const DATA_OFFSET: usize = 24;

    /// An entry without data; the other fields are for the caller to fill.
    #[must_use]
    #[inline(always)]
    pub fn new(opcode: u8, command_id: u16) -> Self {
        let mut entry = Self::new_zeroed();
        entry.opcode = opcode;
        entry.flags = Self::FLAGS_SGL;
        entry.command_id = command_id.into();
        if let Ok(none) = DataPointer::NONE.encode() {
            entry.data = none;
        }
        entry
    }

    /// FUSE: which command of a fused operation it is (Base 3.4.2). A fabrics command has other bits there.
    #[must_use]
    pub const fn fuse(&self) -> Fuse {
        match self.flags & Self::FUSE {
            0b00 => Fuse::None,
            0b01 => Fuse::First,
            0b10 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// The entry as that command of a fused operation, or as none.
    #[must_use]
    #[inline(always)]
    pub const fn with_fuse(mut self, fuse: Fuse) -> Self {
        let bits = match fuse {
            Fuse::None => 0b00,
            Fuse::First => 0b01,
            Fuse::Second => 0b10,
            Fuse::Reserved => 0b11,
        };
        self.flags = self.flags & !Self::FUSE | bits;
        self
    }

    /// FUA of Write, Compare, Read and Write Zeroes, in command dword 12.
    const FORCE_UNIT_ACCESS: u32 = 1 << 30;

    /// FUA of Write, Compare, Read and Write Zeroes: the data is on the medium before the command ends (NVM figure 68).
    #[must_use]
    pub fn forces_unit_access(&self) -> bool {
        self.dwords_10_15[2].get() & Self::FORCE_UNIT_ACCESS != 0
    }

    /// The entry with FUA, or as it is. Only for a command that has it.
    #[must_use]
    #[inline(always)]
    pub fn with_force_unit_access(mut self, force: bool) -> Self {
        let dword = self.dwords_10_15[2].get();
        self.dwords_10_15[2] = (dword | if force { Self::FORCE_UNIT_ACCESS } else { 0 }).into();
        self
    }

    /// FCTYPE: which of the fabrics commands it is, where its opcode says that it is one (Base figure 385).
    #[must_use]
    pub fn fabrics_type(&self) -> u8 {
        let [command_type, ..] = self.namespace.to_bytes();
        command_type
    }

    /// CSI of Identify: the I/O command set that is asked for, 0 for NVM (Base figure 272).
    #[must_use]
    pub fn command_set(&self) -> u8 {
        let [.., command_set] = self.dwords_10_15[1].to_bytes();
        command_set
    }

    /// The entry with another data pointer.
    ///
    /// # Errors
    /// As [`DataPointer::encode`].
    pub fn with_data(mut self, data: DataPointer) -> Result<Self, Status> {
        self.data = data.encode()?;
        Ok(self)
    }
}

/// Completion queue entry of a fabrics queue (Base figure 90; SQID is reserved over fabrics).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CompletionQueueEntry {
    /// Command specific: dwords 0 and 1.
    pub result: U64,
    /// Submission queue head pointer: entries that the controller has consumed, modulo the queue's size.
    pub submission_queue_head: U16,
    /// Submission queue identifier; reserved over fabrics.
    pub submission_queue_id: U16,
    /// Of the command that ends.
    pub command_id: U16,
    /// [`Status`] in bits 15:1.
    pub status: U16,
}

layout!(CompletionQueueEntry, RESPONSE_CAPSULE_BYTES; submission_queue_head: 8, command_id: 12, status: 14);

impl CompletionQueueEntry {
    /// The response to one command.
    #[must_use]
    pub fn new(command_id: u16, submission_queue_head: u16, status: Status, result: u64) -> Self {
        Self {
            result: result.into(),
            submission_queue_head: submission_queue_head.into(),
            submission_queue_id: 0.into(),
            command_id: command_id.into(),
            status: status.to_wire().into(),
        }
    }

    /// The status with its type.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_wire(self.status.get())
    }
}

/// Why bytes are no capsule. The queue is then out of step, and the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapsuleError {
    /// Shorter than the submission queue entry.
    #[error("a command capsule has at least {COMMAND_CAPSULE_BYTES} bytes, this one has {0}")]
    ShortCommand(usize),
    /// Not the size of a completion queue entry.
    #[error("a response capsule has {RESPONSE_CAPSULE_BYTES} bytes, this one has {0}")]
    ResponseSize(usize),
}

/// Splits a received command capsule into its entry and the in-capsule data.
///
/// # Errors
/// [`CapsuleError::ShortCommand`].
pub fn parse_command(bytes: &[u8]) -> Result<(SubmissionQueueEntry, &[u8]), CapsuleError> {
    SubmissionQueueEntry::read_from_prefix(bytes).map_err(|_| CapsuleError::ShortCommand(bytes.len()))
}

/// Reads a received response capsule.
///
/// # Errors
/// [`CapsuleError::ResponseSize`].
pub fn parse_response(bytes: &[u8]) -> Result<CompletionQueueEntry, CapsuleError> {
    CompletionQueueEntry::read_from_bytes(bytes).map_err(|_| CapsuleError::ResponseSize(bytes.len()))
}
