//! The storages of all namespaces: what they are given, what they have done, and what of it is on its medium.

mod buffers;
mod commit;
mod pool;
pub(super) mod tally;
mod waiting;
mod wakeup;

use super::change::{ChangeError, Refused};
use super::reservation::book::Reservation;
use super::statistics::TargetStatistics;
use super::work::Work;
use crate::storage::{Completion, CompletionBatch, Cookie, Features, Geometry, Operation, QueueFull};
use crate::storage::{ResizeError, Storage, StorageError, StorageStatistics};
use crate::wire::{IdentifyNamespace, Status};
pub(super) use buffers::{Buffer, Buffers};
pub(super) use commit::Committed;
use commit::{Commit, Commits};
use core::num::NonZeroU64;
use core::ops::AddAssign;
use core::time::Duration;
use frwr_mempool::DeviceMemory;
pub(super) use pool::Pool;
use tally::Tally;
pub use tally::{CommandKind, LATENCIES, Latencies};
use wakeup::Wakeup;

/// The storage of one namespace.
#[derive(Debug)]
pub(super) struct Medium<S> {
    storage: S,
    /// As hosts know it; a storage may have more blocks for a while.
    geometry: Geometry,
    /// Who may use it.
    reservation: Reservation,
    commit: Commit,
    /// It was told how to wake its core, which hears of it.
    wakes: bool,
    /// What hosts read, and what they wrote.
    bytes_read: u64,
    bytes_written: u64,
    tally: Tally,
}

impl<S: Storage> Medium<S> {
    /// Its size, as hosts know it.
    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Who may use it.
    #[inline]
    pub(super) fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Bytes of so many blocks.
    #[inline]
    fn bytes(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.geometry.block_bytes())
    }

    /// A command succeeded that a poll found which began then; so did this one, now. Whether it is the first one that was
    /// answered at once.
    #[inline]
    fn answered(&mut self, kind: CommandKind, (found, now): (u64, u64)) -> bool {
        if found == now {
            return self.tally.succeeded_at_once(kind);
        }
        self.tally.succeeded(kind, now.wrapping_sub(found));
        false
    }

    /// So many blocks of it were written: their bytes.
    #[inline]
    fn was_written(&mut self, blocks: u32) -> u64 {
        let bytes = self.bytes(blocks);
        self.bytes_written += bytes;
        bytes
    }

    /// What its storage has done.
    pub(super) fn statistics(&self) -> StorageStatistics {
        self.storage.statistics()
    }

    /// Bytes that hosts read from it, and that they wrote to it.
    pub(super) fn moved(&self) -> (u64, u64) {
        (self.bytes_read, self.bytes_written)
    }

    /// What became of its commands.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What it can do.
    #[inline]
    pub(super) fn features(&self) -> Features {
        self.storage.features()
    }
}

/// `--inject corrupt-data`: a byte of every n-th read is spoiled.
#[derive(Clone, Copy, Debug)]
struct Corruption {
    every: NonZeroU64,
    /// Reads until the next one.
    left: u64,
}

/// What log pages say of all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) reads: u64,
    pub(super) compares: u64,
    pub(super) writes: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) media_errors: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.compares += other.compares;
        self.writes += other.writes;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.media_errors += other.media_errors;
    }
}

/// The storages of one core, of all its subsystems. A place that one has left is the next one's.
pub(super) struct Media<S> {
    media: Vec<Option<Medium<S>>>,
    /// As many as there may be.
    most: usize,
    commits: Commits,
    /// The next poll has something to do beside storages: commits, or commands that the one before answered at once.
    due: bool,
    /// When the last poll began that answered some, in nanoseconds.
    answered_at: u64,
    /// The places of theirs, each once; a core may have a thousand namespaces.
    answered: Vec<usize>,
    corruption: Option<Corruption>,
    /// `None` where the core polls on.
    wakeup: Option<Wakeup>,
    /// Where there are reservations: whether some may survive a loss of power.
    reserves: Option<bool>,
    /// What namespaces without any have.
    unreserved: Reservation,
    /// What storages did and failed to do; the other fields are zero.
    counted: TargetStatistics,
    /// Room for the completions of one storage.
    completions: CompletionBatch,
}

impl<S: Storage> Media<S> {
    /// So many at most.
    pub(super) fn new(most: usize, corrupt_reads: Option<NonZeroU64>) -> Self {
        Self {
            media: Vec::with_capacity(most),
            most,
            commits: Commits::default(),
            due: false,
            answered_at: 0,
            answered: Vec::with_capacity(most),
            wakeup: None,
            reserves: None,
            unreserved: Reservation::none(),
            corruption: corrupt_reads.map(|every| Corruption { every, left: every.get() }),
            counted: TargetStatistics::default(),
            completions: CompletionBatch::new(),
        }
    }

    /// One more storage, whose operations have their data in these buffers: its place. It comes back where it cannot be used.
    pub(super) fn attach(&mut self, mut storage: S, buffers: &DeviceMemory) -> Result<usize, Refused<S>> {
        let vacant = self.media.iter().position(Option::is_none);
        let place = vacant.unwrap_or(self.media.len());
        if place >= self.most {
            return Err(Refused { error: ChangeError::Namespaces { limit: self.most }, storage });
        }
        if let Err(error) = storage.attach(buffers.clone()) {
            return Err(Refused { error: error.into(), storage });
        }
        let (geometry, commit) = (storage.geometry(), Commit::default());
        let wakes = self.wakeup.as_ref().is_some_and(|wakeup| wakeup.tell(&mut storage));
        let tally = Tally::default();
        let reservation = self.unreserved.clone();
        let medium =
            Some(Medium { storage, geometry, reservation, commit, wakes, bytes_read: 0, bytes_written: 0, tally });
        match self.media.get_mut(place) {
            Some(vacant) => *vacant = medium,
            None => self.media.push(medium),
        }
        Ok(place)
    }

    /// Takes a storage back that nobody has a command for. No poll looks at places behind the last one.
    pub(super) fn detach(&mut self, place: usize) -> Option<S> {
        let medium = self.media.get_mut(place)?.take();
        let behind = self.media.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.media.truncate(behind);
        medium.map(|medium| medium.storage)
    }

    /// Places that a poll looks at.
    pub(super) fn len(&self) -> usize {
        self.media.len()
    }

    /// As many as there may be.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// There is one in this place.
    pub(super) fn is_taken(&self, place: usize) -> bool {
        self.get(place).is_some()
    }

    /// Of all namespaces, in the order of their places.
    pub(super) fn storages(&self) -> impl Iterator<Item = &S> {
        self.media.iter().flatten().map(|medium| &medium.storage)
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<&Medium<S>> {
        self.media.get(place)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, place: usize) -> Option<&mut Medium<S>> {
        self.media.get_mut(place)?.as_mut()
    }

    /// What it holds may be lost with the power: nothing flushes by itself.
    pub(super) fn is_cached(&self, place: usize) -> bool {
        self.get(place).is_some_and(|medium| medium.features().is_cached())
    }

    /// Namespaces have reservations, of which some may survive a loss of power.
    pub(super) fn has_reservations(&mut self, persist: bool) {
        self.reserves = Some(persist);
    }

    /// There are reservations.
    pub(super) fn reserves(&self) -> bool {
        self.reserves.is_some()
    }

    /// RESCAP of a namespace (Base 5.17.2.2): every type, as this version of the standard has them.
    pub(super) fn reservation_capabilities(&self, medium: &Medium<S>) -> u8 {
        let persist = if self.reserves == Some(true) { IdentifyNamespace::RESERVATIONS_PERSIST } else { 0 };
        if medium.reservation.exists() { IdentifyNamespace::ALL_RESERVATIONS | persist } else { 0 }
    }

    /// A namespace has reservations, unless others may serve what it lies on.
    pub(super) fn reserve(&mut self, place: usize, reservation: impl FnOnce() -> Reservation) {
        if let Some(medium) = self.get_mut(place).filter(|medium| !medium.features().shared) {
            medium.reservation = reservation();
        }
    }

    /// Those of the namespace in this place, if it has some.
    pub(super) fn reservation(&self, place: usize) -> Option<&Reservation> {
        self.get(place).map(Medium::reservation).filter(|reservation| reservation.exists())
    }

    /// The place of the namespace whose reservations these are.
    pub(super) fn place_of(&self, is_it: impl Fn(&Reservation) -> bool) -> Option<usize> {
        self.media.iter().position(|medium| medium.as_ref().is_some_and(|medium| is_it(&medium.reservation)))
    }

    /// All of these namespaces are able to do this.
    pub(super) fn are_able(&self, mut places: impl Iterator<Item = usize>, needs: fn(&Features) -> bool) -> bool {
        places.all(|place| self.get(place).is_some_and(|medium| needs(&medium.features())))
    }

    /// A storage has so many blocks from now on, if there is one in this place.
    pub(super) fn resize_storage(&mut self, place: usize, blocks: u64) -> Result<(), ResizeError> {
        self.get_mut(place).map_or(Ok(()), |medium| medium.storage.resize(blocks))
    }

    /// The size that a storage has.
    pub(super) fn storage_geometry(&self, place: usize) -> Option<Geometry> {
        self.get(place).map(|medium| medium.storage.geometry())
    }

    /// Hosts know another size.
    pub(super) fn set_geometry(&mut self, place: usize, geometry: Geometry) {
        if let Some(medium) = self.get_mut(place) {
            medium.geometry = geometry;
        }
    }

    /// Gives a storage something to do; `None` where there is none.
    #[inline(always)]
    pub(super) fn submit(
        &mut self,
        namespace: usize,
        cookie: u64,
        operation: Operation,
    ) -> Option<Result<(), QueueFull>> {
        Some(self.get_mut(namespace)?.storage.submit(Cookie(cookie), operation))
    }

    /// Takes it back, where that can be done.
    pub(super) fn cancel(&mut self, namespace: usize, cookie: u64) -> bool {
        self.get_mut(namespace).is_some_and(|medium| medium.storage.cancel(Cookie(cookie)))
    }

    /// Starts all that was submitted.
    pub(super) fn start(&mut self) {
        for medium in self.media.iter_mut().flatten() {
            medium.storage.flush();
        }
    }

    /// Takes completions of one storage: how many, each to be asked for by [`Media::completion`] until the next call.
    #[inline]
    pub(super) fn poll(&mut self, namespace: usize, now: Duration) -> usize {
        self.completions.clear();
        if let Some(Some(medium)) = self.media.get_mut(namespace) {
            medium.storage.poll(now, &mut self.completions);
        }
        self.completions.len()
    }

    #[inline]
    pub(super) fn completion(&self, at: usize) -> Completion {
        self.completions[at]
    }

    /// A Read or Write succeeded, and is answered: [`Media::answered`].
    #[inline(always)]
    pub(super) fn moved(&mut self, namespace: usize, kind: CommandKind, blocks: u32, times: (u64, u64)) {
        let Some(Some(medium)) = self.media.get_mut(namespace) else { return };
        let bytes = medium.bytes(blocks);
        if kind == CommandKind::Read {
            medium.bytes_read += bytes;
            self.counted.reads += 1;
            self.counted.bytes_read += bytes;
        } else {
            medium.bytes_written += bytes;
            self.counted.writes += 1;
            self.counted.bytes_written += bytes;
        }
        if medium.answered(kind, times) {
            self.settle_later(namespace, times);
        }
    }

    /// A storage did what another command asked for, or one that is not answered yet; the bytes that it moved. Whether a
    /// Compare succeeded is known later.
    pub(super) fn succeeded(&mut self, work: &Work) -> u64 {
        match *work {
            Work::Write { namespace, blocks, .. } => {
                let bytes = self.get_mut(namespace).map_or(0, |medium| medium.was_written(blocks));
                self.counted.writes += 1;
                self.counted.bytes_written += bytes;
                return bytes;
            }
            Work::Compare { namespace, blocks, .. } => {
                return self.get(namespace).map_or(0, |medium| medium.bytes(blocks));
            }
            Work::FusedWrite { namespace, blocks, .. } => {
                let bytes = self.get_mut(namespace).map_or(0, |medium| medium.was_written(blocks.into()));
                self.counted.compares += 1;
                self.counted.writes += 1;
                self.counted.bytes_written += bytes;
                return bytes;
            }
            Work::WriteZeroes { .. } => self.counted.write_zeroes += 1,
            Work::Deallocate { .. } => self.counted.deallocations += 1,
            Work::Flush { .. } => self.counted.flushes += 1,
            _ => {}
        }
        0
    }

    /// A command succeeded that a poll found which began then; so did this one, now.
    pub(super) fn answered(&mut self, namespace: usize, kind: CommandKind, times: (u64, u64)) {
        if self.get_mut(namespace).is_some_and(|medium| medium.answered(kind, times)) {
            self.settle_later(namespace, times);
        }
    }

    /// The next poll knows how long that took what this one found and answered of a namespace.
    #[inline]
    fn settle_later(&mut self, namespace: usize, (_, now): (u64, u64)) {
        self.answered.push(namespace);
        (self.due, self.answered_at) = (true, now);
    }

    /// A command of a namespace is answered with this status.
    #[cold]
    pub(super) fn refused(&mut self, namespace: usize, status: Status) {
        if let Some(medium) = self.get_mut(namespace) {
            medium.tally.failed(status);
        }
    }

    /// The next poll has something to do for it.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Commands that the poll before answered at once took until this one, which began then.
    #[inline(never)]
    pub(super) fn settle(&mut self, now: u64) {
        let passed = now.wrapping_sub(self.answered_at);
        while let Some(place) = self.answered.pop() {
            if let Some(medium) = self.get_mut(place) {
                medium.tally.settle(passed);
            }
        }
        self.due = !self.has_nothing_to_commit();
    }

    /// A Compare found equal blocks.
    pub(super) fn compared(&mut self) {
        self.counted.compares += 1;
    }

    /// A storage failed.
    #[cold]
    pub(super) fn failed(&mut self, error: StorageError) {
        self.counted.media_errors += u64::from(error.is_of_medium());
        self.counted.broken_operations += u64::from(error == StorageError::Broken);
    }

    /// Spoils what was read, if that is this read's turn.
    #[inline]
    pub(super) fn corrupt(&mut self, buffers: &Buffers, buffer: Option<&Buffer>) {
        if self.corruption.is_some() {
            self.corrupt_some(buffers, buffer);
        }
    }

    #[cold]
    fn corrupt_some(&mut self, buffers: &Buffers, buffer: Option<&Buffer>) {
        let (Some(corruption), Some(buffer)) = (&mut self.corruption, buffer) else { return };
        corruption.left = corruption.left.saturating_sub(1);
        if corruption.left > 0 {
            return;
        }
        corruption.left = corruption.every.get();
        let mut byte = [0];
        if buffers.read(buffer, 0, &mut byte).is_ok() && buffers.write(buffer, 0, &[!byte[0]]).is_ok() {
            self.counted.corrupted_reads += 1;
        }
    }

    pub(super) fn statistics(&self) -> TargetStatistics {
        self.counted
    }

    /// Of this core.
    pub(super) fn counters(&self) -> Counters {
        let counted = &self.counted;
        Counters {
            reads: counted.reads,
            compares: counted.compares,
            writes: counted.writes,
            bytes_read: counted.bytes_read,
            bytes_written: counted.bytes_written,
            media_errors: counted.media_errors,
        }
    }
}
