//! What the file of reservations lies on, in steps of which each may be the last one before the power goes.

use super::error::ReservationFileError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Where the file of reservations is: a folder of a file system ([`Reservations::open`](super::Reservations::open)), or what somebody has
/// in its place ([`Reservations::open_on`](super::Reservations::open_on)). A text is written beside the file and brought to the medium,
/// then it replaces the file, and that is brought to the medium, too: whatever is lost in between, the file is the former one as a whole,
/// or this one.
pub trait ReservationMedium {
    /// Its name, for messages.
    fn path(&self) -> &Path;

    /// What the file holds; `None` where there is none. Of more than `most` bytes it is enough to hand out one more.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&mut self, most: u64) -> io::Result<Option<Vec<u8>>>;

    /// These bytes are beside the file, in place of whatever was.
    ///
    /// # Errors
    /// Why they cannot be written.
    fn write_beside(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// They survive a loss of power.
    ///
    /// # Errors
    /// Why they do not.
    fn flush_beside(&mut self) -> io::Result<()>;

    /// What is beside the file is the file, in one step.
    ///
    /// # Errors
    /// Why it is not.
    fn replace(&mut self) -> io::Result<()>;

    /// That survives a loss of power.
    ///
    /// # Errors
    /// Why it does not.
    fn flush_folder(&mut self) -> io::Result<()>;
}

/// A folder of a file system.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// What is being written.
    beside: Option<File>,
    /// Held as long as this lives: the lock of the file, which itself is replaced at each change.
    _lock: File,
}

impl Folder {
    /// # Errors
    /// Another process has the file, or nobody can.
    pub(super) fn new(path: &Path) -> Result<Self, ReservationFileError> {
        let wrong = |source| ReservationFileError::Io { path: path.to_owned(), source };
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(beside(path, ".lock"));
        let lock = lock.map_err(wrong)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), beside: None, _lock: lock }),
            Err(Errno::WOULDBLOCK) => Err(ReservationFileError::InUse(path.to_owned())),
            Err(error) => Err(wrong(error.into())),
        }
    }
}

impl ReservationMedium for Folder {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&mut self, most: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write_beside(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(beside(&self.path, ".new"))?;
        file.write_all(bytes)?;
        self.beside = Some(file);
        Ok(())
    }

    fn flush_beside(&mut self) -> io::Result<()> {
        self.beside.take().map_or(Ok(()), |file| file.sync_all())
    }

    fn replace(&mut self) -> io::Result<()> {
        std::fs::rename(beside(&self.path, ".new"), &self.path)
    }

    fn flush_folder(&mut self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

/// Another name beside the file, since a file that is replaced keeps no lock.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
