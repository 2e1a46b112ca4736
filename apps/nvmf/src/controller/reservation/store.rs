//! The file of reservations that survive a loss of power: read once, strictly, and written as a whole by a thread of its own.

use super::book::{Entry, Registry};
use super::text;
use crate::wire::Status;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// What a file may have: far more than all namespaces of a process with all their registrants.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A file of reservations that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReservationFileError {
    /// It cannot be read or written.
    #[error("{}: {source}; let this process read and write it, and its folder", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{}: another process keeps its reservations there; name another file", .0.display())]
    InUse(PathBuf),
    /// It holds something else than what was written.
    #[error(
        "{}, line {line}: {reason}; restore the file, or remove it, and have all hosts register again",
        .path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong there.
        reason: &'static str,
    },
}

/// What the thread does, and how far it is.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// Held as long as this lives: the lock of the file, which itself is replaced at each change.
    _lock: File,
    /// How often it was asked to write; the last one that is on the medium; the last one that was tried.
    requested: AtomicU64,
    written: AtomicU64,
    tried: AtomicU64,
    fault: Mutex<Option<String>>,
    writer: OnceLock<Thread>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// The file, and what it holds.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Entry>), ReservationFileError> {
        let wrong = |source| ReservationFileError::Io { path: path.to_owned(), source };
        let lock = lock(path, wrong)?;
        let entries = match File::open(path) {
            Ok(file) => read(path, &file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(wrong(error)),
        };
        // That it cannot be written is to be known now.
        write(path, &text::compose(&entries)).map_err(wrong)?;
        let store = Self {
            path: path.to_owned(),
            _lock: lock,
            requested: AtomicU64::new(0),
            written: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            fault: Mutex::new(None),
            writer: OnceLock::new(),
            thread: Mutex::new(None),
        };
        Ok((store, entries))
    }

    /// Has the thread run until nobody else has the book.
    pub(super) fn start(registry: &Arc<Registry>) -> Result<(), ReservationFileError> {
        let Some(store) = registry.store() else { return Ok(()) };
        let weak = Arc::downgrade(registry);
        let body = move || {
            while let Some(registry) = weak.upgrade() {
                let waits = registry.store().is_none_or(|store| !store.write_if_asked(&registry));
                drop(registry);
                if waits {
                    thread::park();
                }
            }
        };
        let started = thread::Builder::new().name("reservations".to_owned()).spawn(body);
        let thread = started.map_err(|source| ReservationFileError::Io { path: store.path.clone(), source })?;
        let _ = store.writer.set(thread.thread().clone());
        *store.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// The book has changed: the number to ask [`Store::is_written`] with.
    pub(super) fn request(&self) -> u64 {
        let number = self.requested.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
        number
    }

    /// Something that was asked for is not on the medium.
    pub(super) fn is_behind(&self) -> bool {
        self.written.load(Ordering::Acquire) < self.requested.load(Ordering::Acquire)
    }

    /// What was asked for is on the medium, or could not be brought there.
    pub(super) fn is_written(&self, number: u64) -> Option<Result<(), Status>> {
        if self.written.load(Ordering::Acquire) >= number {
            return Some(Ok(()));
        }
        (self.tried.load(Ordering::Acquire) >= number).then_some(Err(Status::INTERNAL_ERROR))
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True where something was asked for.
    fn write_if_asked(&self, registry: &Registry) -> bool {
        let number = self.requested.load(Ordering::Acquire);
        if number == self.tried.load(Ordering::Relaxed) {
            return false;
        }
        let text = text::compose(&registry.lock().entries);
        let result = write(&self.path, &text);
        if result.is_ok() {
            self.written.store(number, Ordering::Release);
        }
        let fault = result.err().map(|error| format!("{}: {error}", self.path.display()));
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        self.tried.store(number, Ordering::Release);
        true
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The thread itself may be the last one that had the book.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// Another name beside the file, since a file that is replaced keeps no lock.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn lock(path: &Path, wrong: impl Fn(io::Error) -> ReservationFileError) -> Result<File, ReservationFileError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(beside(path, ".lock"));
    let file = file.map_err(&wrong)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(ReservationFileError::InUse(path.to_owned())),
        Err(error) => Err(wrong(error.into())),
    }
}

fn read(path: &Path, file: &File) -> Result<Vec<Entry>, ReservationFileError> {
    use std::io::Read as _;
    let damaged = |(line, reason)| ReservationFileError::Damaged { path: path.to_owned(), line, reason };
    let mut bytes = Vec::new();
    let taken = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    let taken = taken.map_err(|source| ReservationFileError::Io { path: path.to_owned(), source })?;
    if taken as u64 > MAX_FILE_BYTES {
        return Err(damaged((1, "it is far too large")));
    }
    let text = str::from_utf8(&bytes).map_err(|_| damaged((1, "it is no text")))?;
    text::parse(text).map_err(damaged)
}

/// Beside the file first: it is the former one as a whole, or this one. Both file and folder are on the medium then.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
