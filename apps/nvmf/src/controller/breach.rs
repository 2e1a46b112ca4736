//! Why a command was refused, where no correct host has it refused for this.

use super::incident::Breach;
use super::options::TargetOptions;
use crate::wire::{
    self, BlockRange, Command, DataPointer, KeyedDataBlock, QueueKind, SGL_DESCRIPTOR_BYTES, Status,
    SubmissionQueueEntry,
};

/// A command that was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedCommand<'a> {
    pub(super) entry: &'a SubmissionQueueEntry,
    /// Bytes of its capsule.
    pub(super) length: u32,
    pub(super) status: Status,
    /// It came by an admin queue.
    pub(super) is_admin: bool,
    /// It came behind a Connect.
    pub(super) is_of_queue: bool,
}

impl RefusedCommand<'_> {
    /// What was wrong. `bytes_of`: what these blocks have, where they can be used.
    pub(super) fn breach(
        &self,
        options: &TargetOptions,
        bytes_of: impl FnOnce(&BlockRange) -> Option<u64>,
    ) -> Option<Breach> {
        let Self { entry, length, status, .. } = *self;
        let kind = if self.is_admin { QueueKind::Admin } else { QueueKind::Io };
        let descriptor = Descriptor::of(entry);
        let behind = u64::from(length).saturating_sub(wire::COMMAND_CAPSULE_BYTES as u64);
        let is = |other: Status| status.code() == other.code();
        let command = wire::decode(entry, kind);
        if !self.is_of_queue {
            // Connect says itself why it is refused.
            let says_itself = matches!(command, Ok(Command::Connect(_)));
            let before = Breach::Unknown { what: "before Connect, opcode", value: entry.opcode.into() };
            return (!says_itself).then_some(before);
        }
        let most = |what, value, most| Some(Breach::Range { what, value, least: 0, most });
        if is(Status::SGL_DESCRIPTOR_TYPE_INVALID) {
            return Some(Breach::Unknown { what: "SGL descriptor", value: descriptor.identifier.into() });
        }
        if is(Status::SGL_OFFSET_INVALID) {
            return most("offset in the capsule", descriptor.offset, behind);
        }
        let descriptors = u64::from(descriptor.length) / SGL_DESCRIPTOR_BYTES as u64;
        if is(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS) || is(Status::INVALID_SGL_SEGMENT_DESCRIPTOR) {
            return most("SGL descriptors", descriptors, options.data_blocks.into());
        }
        let range = match command {
            Ok(Command::Read(range) | Command::Write(range) | Command::Compare(range)) => Some(range),
            _ => None,
        };
        let bytes = range.as_ref().and_then(bytes_of);
        if is(Status::DATA_SGL_LENGTH_INVALID) {
            return Some(descriptor.wrong_length(bytes, behind));
        }
        let limit = u64::from(options.buffer_bytes);
        bytes
            .filter(|bytes| is(Status::INVALID_FIELD) && *bytes > limit)
            .and_then(|bytes| most("bytes of data", bytes, limit))
    }
}

/// What a command's data pointer says, whatever it is.
struct Descriptor {
    identifier: u8,
    /// It points into the capsule, at data or at a list of data blocks.
    in_capsule: bool,
    offset: u64,
    length: u32,
}

impl Descriptor {
    fn of(entry: &SubmissionQueueEntry) -> Self {
        let identifier = entry.data[15];
        if let Some((offset, length)) = wire::last_segment(entry.data) {
            return Self { identifier, in_capsule: true, offset, length };
        }
        match DataPointer::decode(entry.data) {
            Ok(DataPointer::Keyed(KeyedDataBlock { length, .. })) => {
                Self { identifier, in_capsule: false, offset: 0, length }
            }
            Ok(DataPointer::InCapsule { offset, length }) => Self { identifier, in_capsule: true, offset, length },
            Err(_) => Self { identifier, in_capsule: false, offset: 0, length: 0 },
        }
    }

    /// It is not as long as the blocks are, or than what is behind the command.
    fn wrong_length(&self, bytes: Option<u64>, behind: u64) -> Breach {
        let (value, what) = (u64::from(self.length), "bytes of data");
        match bytes {
            Some(bytes) if bytes != value => Breach::Range { what, value, least: bytes, most: bytes },
            _ if self.in_capsule && value > behind => Breach::Range { what, value, least: 0, most: behind },
            _ => Breach::Amount { what, value },
        }
    }
}
