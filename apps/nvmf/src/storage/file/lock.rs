//! The file that all storages of a medium share, locked for as long as one of them lives.

use super::{
    health::Health,
    sys::{Lock, length, lock},
    task::Layout,
};
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
pub(super) struct LockedFile {
    file: File,
    health: Health,
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
        Ok((Self { file, health: Health::default() }, error))
    }

    /// Whether it is, or ever was found, shorter than its namespace. One system call, which asks no server and waits for no disk.
    pub(super) fn is_too_short(&self, layout: &Layout) -> bool {
        if !self.health.is_cut()
            && let Some(found) = length(&self.file, layout.kind)
            && found < layout.bytes()
        {
            self.health.note_cut(found);
        }
        self.health.is_cut()
    }

    /// What is wrong with it for good.
    pub(super) fn health(&self) -> &Health {
        &self.health
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
