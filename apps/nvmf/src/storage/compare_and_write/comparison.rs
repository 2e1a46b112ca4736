//! One compare and write on its way.

use crate::storage::{Cookie, StorageError};
use frwr_mempool::{DeviceMemory, device_memory::OutOfBounds, mutant};

/// Bytes compared at a time.
const COMPARE_BYTES: usize = 1024;

/// How far it is. The number names its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To be locked.
    Waits,
    /// Others have to agree.
    Locks(u64),
    /// To be read.
    Reads(u64),
    Reading(u64),
    /// To be written: it is as expected.
    Writes(u64),
    Writing(u64),
    /// To be unlocked, and to end so.
    Ends(u64, Result<(), StorageError>),
}

/// An operation: its blocks, and its buffer of three parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    pub(super) cookie: Cookie,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) buffer: usize,
    /// Of each part.
    pub(super) bytes: usize,
    pub(super) step: Step,
}

impl Comparison {
    /// Where what is written lies.
    pub(super) const fn written(&self) -> usize {
        self.buffer + self.bytes
    }

    /// Where the blocks are read to.
    pub(super) const fn found(&self) -> usize {
        self.buffer + 2 * self.bytes
    }

    /// The storage below is done with a step of it.
    pub(super) fn ended(&mut self, result: Result<(), StorageError>, buffers: Option<&DeviceMemory>) {
        self.step = match (self.step, result) {
            (Step::Reading(lock), Ok(())) => match self.is_as_expected(buffers) {
                Ok(true) => Step::Writes(lock),
                Ok(false) if !mutant!(pair_writes_unequal) => Step::Ends(lock, Err(StorageError::Miscompare)),
                Ok(false) => Step::Writes(lock),
                Err(error) => Step::Ends(lock, Err(error)),
            },
            (Step::Reading(lock) | Step::Writing(lock), result) => Step::Ends(lock, result),
            (step, _) => step,
        };
    }

    fn is_as_expected(&self, buffers: Option<&DeviceMemory>) -> Result<bool, StorageError> {
        let buffers = buffers.ok_or(StorageError::BufferOutOfRange)?;
        are_equal(buffers, self.buffer, self.found(), self.bytes).map_err(|_| StorageError::BufferOutOfRange)
    }
}

/// So many bytes from both offsets on are equal.
///
/// # Errors
/// [`OutOfBounds`].
pub(crate) fn are_equal(memory: &DeviceMemory, one: usize, other: usize, bytes: usize) -> Result<bool, OutOfBounds> {
    let (mut left, mut right) = ([0; COMPARE_BYTES], [0; COMPARE_BYTES]);
    for at in (0..bytes).step_by(COMPARE_BYTES) {
        let length = COMPARE_BYTES.min(bytes - at);
        let (left, right) = (&mut left[..length], &mut right[..length]);
        memory.read(one + at, left)?;
        memory.read(other + at, right)?;
        if left != right {
            return Ok(false);
        }
    }
    Ok(true)
}
