//! An operation as steps of a file: what to ask of the kernel next, and what its answer means. The same for both ways.

use super::super::{AttachError, Cookie, Features, Geometry, Operation, StorageError};
use super::{lock::LockedFile, sys::ZERO_BYTES};
use frwr_mempool::DeviceMemory;

/// Times that the kernel may have had no room for a step (EAGAIN, EINTR) until its operation fails.
const MAX_REFUSALS: u8 = 16;

/// One request to the kernel. Offsets and lengths are in bytes; buffers are offsets in the attached memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read {
        at: u64,
        buffer: usize,
        bytes: u32,
    },
    Write {
        at: u64,
        buffer: usize,
        bytes: u32,
    },
    /// As many zeros as there are to write from, and no more than `bytes`.
    WriteZeros {
        at: u64,
        bytes: u32,
    },
    /// Data, and what is needed to find it (fdatasync(2)).
    Sync,
    Fallocate {
        how: Fallocate,
        at: u64,
        bytes: u64,
    },
}

/// Ways of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fallocate {
    /// The range reads as zeros.
    ZeroRange,
    /// So it does, and its space is free.
    PunchHole,
}

/// What of a medium matters to operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) geometry: Geometry,
    /// Buffers, offsets and lengths are multiples of this, a power of two; 1 for any.
    pub(super) alignment: u32,
    pub(super) read_only: bool,
}

impl Layout {
    /// Whether transfers go through the page cache: O_DIRECT asks for some alignment.
    fn is_buffered(&self) -> bool {
        self.alignment == 1
    }

    /// Whether transfers to and from `buffers` can be aligned.
    pub(super) fn check_buffers(&self, buffers: &DeviceMemory) -> Result<(), AttachError> {
        let (address, wanted) = (buffers.address(), self.alignment);
        if address.is_multiple_of(wanted.into()) { Ok(()) } else { Err(AttachError::Unaligned { address, wanted }) }
    }

    /// What a medium of this kind can do.
    pub(super) fn features(&self) -> Features {
        // The page cache, and a disk's own.
        Features { write_zeroes: true, deallocate: true, read_only: self.read_only, write_through: false }
    }

    /// Whether the operation can be carried out at all.
    pub(super) fn check(&self, operation: Operation, buffers: Option<&DeviceMemory>) -> Result<(), StorageError> {
        let Some((lba, blocks)) = operation.blocks() else { return Ok(()) };
        if self.read_only && operation.changes() {
            return Err(StorageError::ReadOnly);
        }
        let (_, bytes) = self.geometry.extent(lba, blocks)?;
        if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } = operation {
            // Lengths of single steps have 32 bits.
            let bytes = u32::try_from(bytes).map_err(|_| StorageError::BufferOutOfRange)?;
            let buffers = buffers.ok_or(StorageError::BufferOutOfRange)?;
            buffers.slice(buffer, bytes as usize).map_err(|_| StorageError::BufferOutOfRange)?;
            if !buffer.is_multiple_of(self.alignment as usize) {
                return Err(StorageError::BufferUnaligned);
            }
        }
        Ok(())
    }
}

/// What the medium has not refused so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    zero_range: bool,
    punch_hole: bool,
}

impl Default for Ways {
    fn default() -> Self {
        Self { zero_range: true, punch_hole: true }
    }
}

impl Ways {
    fn to_zero(self, deallocate: bool) -> Option<Fallocate> {
        match self {
            Self { punch_hole: true, .. } if deallocate => Some(Fallocate::PunchHole),
            Self { zero_range: true, .. } => Some(Fallocate::ZeroRange),
            Self { punch_hole: true, .. } => Some(Fallocate::PunchHole),
            _ => None,
        }
    }

    fn refused(&mut self, how: Fallocate) {
        match how {
            Fallocate::ZeroRange => self.zero_range = false,
            Fallocate::PunchHole => self.punch_hole = false,
        }
    }
}

/// An operation on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) cookie: Cookie,
    operation: Operation,
    /// Bytes moved.
    done: u64,
    refusals: u8,
    begun: bool,
    asked: Option<Step>,
}

/// What follows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Another step.
    Again,
    /// Nothing.
    Over(Result<(), StorageError>),
}

impl Task {
    /// `operation` has passed [`Layout::check`].
    pub(super) fn new(cookie: Cookie, operation: Operation) -> Self {
        Self { cookie, operation, done: 0, refusals: 0, begun: false, asked: None }
    }

    /// Something was asked for.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// What to ask of the kernel; `None` where nothing is left to ask.
    pub(super) fn next(&mut self, layout: &Layout, ways: Ways) -> Option<Step> {
        let block_bytes = u64::from(layout.geometry.block_bytes());
        // Checked: the extent lies in the namespace.
        let (start, length) = self
            .operation
            .blocks()
            .map_or((0, 0), |(lba, blocks)| (lba * block_bytes, u64::from(blocks) * block_bytes));
        let (at, left) = (start + self.done, length - self.done.min(length));
        // Checked for transfers; zeros are written in smaller parts.
        let bytes = u32::try_from(left).unwrap_or(u32::MAX);
        let moved = self.done as usize;
        self.begun = true;
        self.asked = match self.operation {
            Operation::Read { buffer, .. } => Some(Step::Read { at, buffer: buffer + moved, bytes }),
            Operation::Write { buffer, .. } => Some(Step::Write { at, buffer: buffer + moved, bytes }),
            Operation::Flush => Some(Step::Sync),
            Operation::WriteZeroes { deallocate, .. } => Some(match ways.to_zero(deallocate) {
                Some(how) if self.done == 0 => Step::Fallocate { how, at, bytes: left },
                _ => Step::WriteZeros { at, bytes: bytes.min(ZERO_BYTES) },
            }),
            Operation::Deallocate { .. } => {
                ways.punch_hole.then_some(Step::Fallocate { how: Fallocate::PunchHole, at, bytes: left })
            }
        };
        // A transfer of no bytes has nothing to ask for.
        self.asked.filter(|_| left > 0 || self.operation == Operation::Flush)
    }

    /// The kernel's answer to the last step: bytes moved, or a negated errno.
    pub(super) fn ended(&mut self, result: i32, layout: &Layout, ways: &mut Ways, file: &LockedFile) -> Progress {
        let progress = self.progress(result, layout, ways);
        match progress {
            Progress::Over(result) if self.operation == Operation::Flush && layout.is_buffered() => {
                Progress::Over(file.flushed(result))
            }
            _ => progress,
        }
    }

    fn progress(&mut self, result: i32, layout: &Layout, ways: &mut Ways) -> Progress {
        let Some(step) = self.asked.take() else { return Progress::Over(Err(StorageError::Medium)) };
        if result < 0 {
            return self.failed(-result, step, ways);
        }
        let wanted = match step {
            Step::Sync | Step::Fallocate { .. } => return Progress::Over(Ok(())),
            Step::Read { bytes, .. } | Step::Write { bytes, .. } | Step::WriteZeros { bytes, .. } => bytes,
        };
        let moved = result.cast_unsigned().min(wanted);
        self.done += u64::from(moved);
        let blocks = self.operation.blocks().map_or(0, |(_, blocks)| blocks);
        if self.done >= u64::from(blocks) * u64::from(layout.geometry.block_bytes()) {
            Progress::Over(Ok(()))
        } else if moved == 0 || !moved.is_multiple_of(layout.alignment) {
            // The medium ends before the namespace does: somebody made the file smaller.
            Progress::Over(Err(StorageError::Medium))
        } else {
            Progress::Again
        }
    }

    fn failed(&mut self, errno: i32, step: Step, ways: &mut Ways) -> Progress {
        let error = match (errno, step) {
            (libc::EAGAIN | libc::EINTR, _) if self.refusals < MAX_REFUSALS => {
                self.refusals += 1;
                return Progress::Again;
            }
            (libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV, Step::Fallocate { how, .. }) => {
                ways.refused(how);
                return Progress::Again;
            }
            (libc::ENOSPC | libc::EDQUOT, _) => StorageError::NoSpace,
            (libc::EROFS, _) => StorageError::ReadOnly,
            _ => StorageError::Medium,
        };
        Progress::Over(Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock::Sharing;
    use super::*;

    /// What the kernel says of flushes in a row, and what each comes to.
    fn flushes(alignment: u32, answers: [i32; 3]) -> [Progress; 3] {
        let (file, _) = LockedFile::new(tempfile::tempfile().unwrap(), Sharing::Unlocked).unwrap();
        let layout = Layout { geometry: Geometry::new(8, 4096).unwrap(), alignment, read_only: false };
        answers.map(|answer| {
            let (mut task, mut ways) = (Task::new(Cookie(0), Operation::Flush), Ways::default());
            assert_eq!(task.next(&layout, ways), Some(Step::Sync));
            task.ended(answer, &layout, &mut ways, &file)
        })
    }

    #[test]
    fn no_flush_of_the_page_cache_succeeds_behind_one_that_failed() {
        let (good, bad) = (Progress::Over(Ok(())), Progress::Over(Err(StorageError::Medium)));
        assert_eq!(flushes(1, [0, -libc::EIO, 0]), [good, bad, bad]);
        let full = Progress::Over(Err(StorageError::NoSpace));
        assert_eq!(flushes(1, [-libc::ENOSPC, 0, 0]), [full, bad, bad]);
        assert_eq!(flushes(1, [-libc::EINTR, 0, 0]), [Progress::Again, good, good]);
        // A disk that is asked directly answers for itself.
        assert_eq!(flushes(512, [0, -libc::EIO, 0]), [good, bad, good]);
    }
}
