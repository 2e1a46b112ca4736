//! The file that all storages of a medium share, locked for as long as one of them lives.

use super::{
    health::Health,
    layout::{Kind, Layout},
};
use rustix::fs::{AtFlags, FlockOperation, StatxFlags, flock, statx};
use std::{
    fs::File,
    io::{self, Seek as _, SeekFrom},
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
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
    health: Health,
    /// Bytes that the medium had when that was measured last: what namespaces may have.
    measured: AtomicU64,
}

/// The file is locked by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken;

impl LockedFile {
    /// Locks an open file of so many bytes. Where its file system has no locks, the error comes beside it.
    pub(super) fn new(file: File, bytes: u64, sharing: Sharing) -> Result<(Self, Option<io::Error>), Taken> {
        let locked = match sharing {
            Sharing::Exclusive => flock(&file, FlockOperation::NonBlockingLockExclusive),
            Sharing::Readers => flock(&file, FlockOperation::NonBlockingLockShared),
            Sharing::Unlocked => Ok(()),
        };
        let error = match locked {
            Ok(()) => None,
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Taken),
            Err(error) => Some(error.into()),
        };
        Ok((Self { file, health: Health::default(), measured: AtomicU64::new(bytes) }, error))
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

    /// Bytes that the medium had when that was measured last.
    pub(super) fn measured(&self) -> u64 {
        self.measured.load(Relaxed)
    }

    /// The same as far as this machine knows now. One system call, as [`Self::is_too_short`].
    pub(super) fn known(&self, kind: Kind) -> u64 {
        length(&self.file, kind).unwrap_or_else(|| self.measured())
    }

    /// Measures it again. A system call.
    pub(super) fn measure(&self) -> io::Result<u64> {
        // Whoever may be asked for longer answers here.
        let bytes = (&self.file).seek(SeekFrom::End(0))?;
        self.measured.store(bytes, Relaxed);
        Ok(bytes)
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
        let _ = flock(&self.file, FlockOperation::NonBlockingUnlock);
    }
}

/// Bytes of a medium now; `None` where nobody knows. A file's server is not asked (AT_STATX_DONT_SYNC), so this never waits for a
/// network.
fn length(mut file: &File, kind: Kind) -> Option<u64> {
    // Devices have no length, but an end; where they are is used by nobody else.
    if kind == Kind::Device {
        return file.seek(SeekFrom::End(0)).ok();
    }
    match statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::SIZE) {
        Ok(found) => Some(found.stx_size),
        // Where statx(2) is refused.
        Err(_) => file.metadata().ok().map(|metadata| metadata.len()),
    }
}
