//! Operations, and what librbd does of each.

use super::super::{Cookie, Operation, StorageError};
use super::sys::Step;

/// Bytes of one step at most: of 64 objects of the usual size.
const MAX_STEP_BYTES: u64 = 256 << 20;

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) cookie: Cookie,
    pub(super) operation: Operation,
    /// First byte of the image.
    start: u64,
    bytes: u64,
    done: u64,
}

/// What a step of it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Another one follows.
    Again,
    Over(Result<(), StorageError>),
    /// The image ends at this byte.
    Cut(u64),
    /// The image is not there any more.
    Removed,
}

impl Task {
    pub(super) const fn new(cookie: Cookie, operation: Operation, start: u64, bytes: u64) -> Self {
        Self { cookie, operation, start, bytes, done: 0 }
    }

    fn step_bytes(&self) -> u32 {
        (self.bytes - self.done).min(MAX_STEP_BYTES) as u32
    }

    /// What comes next of it.
    pub(super) fn step(&self) -> Step {
        let (at, bytes) = (self.start + self.done, self.step_bytes());
        // What is done lies in the buffer, whose offsets are `usize`.
        let done = self.done as usize;
        match self.operation {
            Operation::Read { buffer, .. } => Step::Read { at, bytes, buffer: buffer + done },
            Operation::Write { buffer, .. } => Step::Write { at, bytes, buffer: buffer + done },
            Operation::WriteZeroes { deallocate, .. } => Step::WriteZeroes { at, bytes, keeps_space: !deallocate },
            Operation::Deallocate { .. } => Step::Discard { at, bytes },
            Operation::Flush => Step::Flush,
            Operation::CompareAndWrite { buffer, .. } => Step::CompareAndWrite { at, bytes, buffer },
        }
    }

    /// That step has ended: with bytes read, nothing, or a negated errno.
    pub(super) fn ended(&mut self, result: i64) -> Progress {
        let (at, bytes) = (self.start + self.done, self.step_bytes());
        if result < 0 {
            return failed(self.operation, i32::try_from(result.unsigned_abs()).unwrap_or(libc::EIO), at);
        }
        if matches!(self.operation, Operation::Read { .. }) && result != i64::from(bytes) {
            return Progress::Cut(at + result.unsigned_abs().min(bytes.into()));
        }
        self.done += u64::from(bytes);
        if self.done == self.bytes { Progress::Over(Ok(())) } else { Progress::Again }
    }
}

/// What an errno of librbd comes to.
fn failed(operation: Operation, errno: i32, at: u64) -> Progress {
    Progress::Over(Err(match errno {
        // Operations lie in the namespace, so that it is the image that does not reach there.
        libc::EINVAL if operation != Operation::Flush => return Progress::Cut(at),
        libc::EILSEQ if matches!(operation, Operation::CompareAndWrite { .. }) => StorageError::Miscompare,
        libc::ENOENT => return Progress::Removed,
        libc::ENOSPC | libc::EDQUOT => StorageError::NoSpace,
        libc::EROFS | libc::EPERM | libc::EACCES if operation.changes() => StorageError::ReadOnly,
        // Only where the configuration has a time-out of operations.
        libc::ETIMEDOUT => StorageError::Unreachable,
        // The cluster has put this client on its list of those that it does not listen to.
        libc::ESHUTDOWN => StorageError::Broken,
        _ => StorageError::Medium,
    }))
}

/// What an errno comes to where it tells that the lock of the image, by which it is served, is not this process's; `None` where it
/// tells something else.
pub(super) fn without_lock(operation: Operation, errno: i32) -> Option<StorageError> {
    Some(match (errno, operation) {
        // Another client has had this one blocklisted. The OSD refuses so also what librados asks for once more since the answer was
        // lost: it may have been carried out. What is carried out by another path again would find its own blocks.
        (libc::ESHUTDOWN, Operation::CompareAndWrite { .. }) => StorageError::Unreachable,
        // Or it was given back meanwhile, or librbd has lost its watch: nothing was begun.
        (libc::ESHUTDOWN | libc::EROFS, _) => StorageError::NotOwner,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_one_is_done_in_steps() {
        let operation = Operation::WriteZeroes { lba: 1, blocks: 3, deallocate: false };
        let mut task = Task::new(Cookie(0), operation, 4096, 600 << 20);
        let mut steps = Vec::new();
        loop {
            let Step::WriteZeroes { at, bytes, keeps_space: true } = task.step() else { panic!("{:?}", task.step()) };
            steps.push((at, bytes));
            match task.ended(0) {
                Progress::Again => {}
                over => break assert_eq!(over, Progress::Over(Ok(()))),
            }
        }
        assert_eq!(steps, [(4096, 256 << 20), (4096 + (256 << 20), 256 << 20), (4096 + (512 << 20), 88 << 20)]);
    }

    #[test]
    fn errors_have_their_kinds() {
        let (read, write) =
            (Operation::Read { lba: 1, blocks: 2, buffer: 0 }, Operation::Write { lba: 1, blocks: 2, buffer: 0 });
        let ended = |operation, result: i64| Task::new(Cookie(0), operation, 4096, 8192).ended(result);
        assert_eq!(ended(read, 8192), Progress::Over(Ok(())));
        assert_eq!(ended(read, 4096), Progress::Cut(8192));
        assert_eq!(ended(read, -i64::from(libc::EINVAL)), Progress::Cut(4096));
        assert_eq!(ended(write, -i64::from(libc::ENOENT)), Progress::Removed);
        for (errno, error) in [
            (libc::EDQUOT, StorageError::NoSpace),
            (libc::ENOSPC, StorageError::NoSpace),
            (libc::EROFS, StorageError::ReadOnly),
            (libc::ESHUTDOWN, StorageError::Broken),
            (libc::ETIMEDOUT, StorageError::Unreachable),
            (libc::EIO, StorageError::Medium),
        ] {
            assert_eq!(ended(write, -i64::from(errno)), Progress::Over(Err(error)));
        }
        let compare = Operation::CompareAndWrite { lba: 8, blocks: 1, buffer: 0 };
        assert_eq!(ended(compare, -i64::from(libc::EILSEQ)), Progress::Over(Err(StorageError::Miscompare)));
        assert_eq!(ended(write, -i64::from(libc::EILSEQ)), Progress::Over(Err(StorageError::Medium)));
        assert_eq!(ended(read, -i64::from(libc::EPERM)), Progress::Over(Err(StorageError::Medium)));
        assert_eq!(ended(read, i64::MIN), Progress::Over(Err(StorageError::Medium)));
    }

    #[test]
    fn a_compare_and_write_that_a_fenced_client_may_have_carried_out_is_not_said_to_be_another_paths() {
        let compare = Operation::CompareAndWrite { lba: 8, blocks: 1, buffer: 0 };
        let write = Operation::Write { lba: 8, blocks: 1, buffer: 0 };
        assert_eq!(without_lock(compare, libc::ESHUTDOWN), Some(StorageError::Unreachable));
        // librbd has not begun with it.
        assert_eq!(without_lock(compare, libc::EROFS), Some(StorageError::NotOwner));
        assert_eq!(without_lock(compare, libc::EILSEQ), None);
        // Carried out twice it comes to the same.
        assert_eq!(without_lock(write, libc::ESHUTDOWN), Some(StorageError::NotOwner));
    }
}
