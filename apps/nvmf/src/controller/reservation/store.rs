//! The file of reservations that survive a loss of power: read once, strictly, and written as a whole by who has time for that.

use super::book::Registry;
use super::entry::Entry;
use super::error::ReservationFileError;
use super::medium::ReservationMedium;
use super::text;
use crate::wire::Status;
use core::sync::atomic::{AtomicU64, Ordering};
use frwr_mempool::mutant;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};

/// What a file may have: far more than all namespaces of a process with all their registrants.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What was asked to be written, and how far that is.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
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
    pub(super) fn open(medium: &mut impl ReservationMedium) -> Result<(Self, Vec<Entry>), ReservationFileError> {
        let path = medium.path().to_owned();
        let wrong = |source| ReservationFileError::Io { path: path.clone(), source };
        let entries = match medium.read(MAX_FILE_BYTES).map_err(wrong)? {
            Some(bytes) => read(&path, &bytes)?,
            None => Vec::new(),
        };
        // That it cannot be written is to be known now.
        Step::ALL.into_iter().try_for_each(|step| step.go(medium, || text::compose(&entries))).map_err(wrong)?;
        let store = Self {
            path,
            requested: AtomicU64::new(0),
            written: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            fault: Mutex::new(None),
            writer: OnceLock::new(),
            thread: Mutex::new(None),
        };
        Ok((store, entries))
    }

    /// Has a thread write until nobody else has the book.
    pub(super) fn start<M: ReservationMedium + Send + 'static>(
        registry: &Arc<Registry>,
        mut writer: ReservationWriter<M>,
    ) -> Result<(), ReservationFileError> {
        let Some(store) = registry.store() else { return Ok(()) };
        let body = move || {
            while let Some(registry) = writer.registry.upgrade() {
                while writer.step() {}
                drop(registry);
                thread::park();
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
        if self.written.load(Ordering::Acquire) >= number || mutant!(reservations_told_early) {
            return Some(Ok(()));
        }
        (self.tried.load(Ordering::Acquire) >= number).then_some(Err(Status::INTERNAL_ERROR))
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It was written, or why not.
    fn ended(&self, number: u64, result: io::Result<()>) {
        if result.is_ok() {
            self.written.store(number, Ordering::Release);
        }
        let fault = result.err().map(|error| format!("{}: {error}", self.path.display()));
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
        self.tried.store(number, Ordering::Release);
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

/// A step of writing the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write,
    Flush,
    Replace,
    FlushFolder,
}

impl Step {
    const ALL: [Self; 4] = [Self::Write, Self::Flush, Self::Replace, Self::FlushFolder];

    fn go(self, medium: &mut impl ReservationMedium, text: impl FnOnce() -> String) -> io::Result<()> {
        match self {
            Self::Write => medium.write_beside(text().as_bytes()),
            Self::Flush if mutant!(reservations_unflushed) => Ok(()),
            Self::Flush => medium.flush_beside(),
            Self::Replace => medium.replace(),
            Self::FlushFolder => medium.flush_folder(),
        }
    }

    fn next(self) -> Option<Self> {
        Self::ALL.into_iter().skip_while(|step| *step != self).nth(1)
    }
}

/// Writes the file of [`Reservations`](super::Reservations), for as long as anybody has those.
#[derive(Debug)]
pub struct ReservationWriter<M> {
    registry: Weak<Registry>,
    medium: M,
    /// The number of what is being written, and what is to be done next.
    under_way: Option<(u64, Step)>,
}

impl<M: ReservationMedium> ReservationWriter<M> {
    pub(super) fn new(registry: &Arc<Registry>, medium: M) -> Self {
        Self { registry: Arc::downgrade(registry), medium, under_way: None }
    }

    /// One step of what is to be written, which may take as long as the medium takes. False where nothing is.
    pub fn step(&mut self) -> bool {
        let Some(registry) = self.registry.upgrade() else { return false };
        let Some(store) = registry.store() else { return false };
        let (number, step) = match self.under_way.take() {
            Some(under_way) => under_way,
            None => (store.requested.load(Ordering::Acquire), Step::Write),
        };
        if number == store.tried.load(Ordering::Relaxed) {
            return false;
        }
        match (step.go(&mut self.medium, || text::compose(&registry.lock().entries)), step.next()) {
            (Ok(()), Some(next)) => self.under_way = Some((number, next)),
            (result, _) => store.ended(number, result),
        }
        true
    }
}

fn read(path: &Path, bytes: &[u8]) -> Result<Vec<Entry>, ReservationFileError> {
    let damaged = |(line, reason)| ReservationFileError::Damaged { path: path.to_owned(), line, reason };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(damaged((1, "it is far too large")));
    }
    let text = str::from_utf8(bytes).map_err(|_| damaged((1, "it is no text")))?;
    text::parse(text).map_err(damaged)
}
