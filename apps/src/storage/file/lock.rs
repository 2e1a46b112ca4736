//! The file that all storages of a medium share, locked for as long as one of them lives.

use super::{
    super::StorageError,
    sys::{Lock, lock},
};
use std::{
    fs::File,
    io,
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

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
pub(super) struct LockedFile {
    file: File,
    /// What the page cache held of it could not be written.
    lost: AtomicBool,
}

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
        let error = match locked {
            Ok(()) => None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Taken),
            Err(error) => Some(error),
        };
        Ok((Self { file, lost: AtomicBool::new(false) }, error))
    }

    /// What a flush of a file in the page cache comes to. That something could not be written the kernel tells once for each
    /// open file, to whoever asks first, and counts it as written from then on (fsync(2)); it may be anybody's. So no later
    /// flush can succeed, on any core.
    pub(super) fn flushed(&self, result: Result<(), StorageError>) -> Result<(), StorageError> {
        if result.is_err() {
            self.lost.store(true, Relaxed);
        }
        result.and_then(|()| if self.lost.load(Relaxed) { Err(StorageError::Medium) } else { Ok(()) })
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // The kernel may keep the file open for a while after its last ring has ended; the lock shall not wait for that.
        let _ = lock(&self.file, Lock::None);
    }
}
