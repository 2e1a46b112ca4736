//! The file that all storages of a medium share, locked for as long as one of them lives.

use super::sys::{Lock, lock};
use std::{fs::File, io, ops::Deref};

/// Who else may have the file open and locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Nobody (flock(2), LOCK_EX).
    Exclusive,
    /// Others who only read (LOCK_SH).
    Readers,
    /// It is not locked: the kernel guards block devices by O_EXCL, and udev takes their locks for a moment whenever a writer
    /// has closed them, so that a restart would fail now and then.
    Unlocked,
}

/// An open file, with its lock.
#[derive(Debug)]
pub(super) struct LockedFile(File);

/// The file is locked by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken;

impl LockedFile {
    /// Locks an open file. Where its file system has no locks, the error comes beside it.
    pub(super) fn new(file: File, sharing: Sharing) -> Result<(Self, Option<io::Error>), Taken> {
        let locked = match sharing {
            Sharing::Exclusive => lock(&file, Lock::Exclusive),
            Sharing::Readers => lock(&file, Lock::Shared),
            Sharing::Unlocked => Ok(()),
        };
        match locked {
            Ok(()) => Ok((Self(file), None)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Taken),
            Err(error) => Ok((Self(file), Some(error))),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // The kernel may keep the file open for a while after its last ring has ended; the lock shall not wait for that.
        let _ = lock(&self.0, Lock::None);
    }
}
