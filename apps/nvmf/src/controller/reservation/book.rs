//! The reservations of a process: what all of its cores and devices share, behind one lock that nobody waits for on a core.

use super::entry::{Entry, Key};
use super::error::ReservationFileError;
use super::medium::{Folder, ReservationMedium};
use super::news::{MAX_NEWS, News, Told, told};
use super::published::Published;
use super::state::{HostId, Hosts, Request, State};
use super::store::{ReservationWriter, Store};
use crate::wire::{RegisteredControllerExtended, ReservationStatus, Status};
use arrayvec::ArrayVec;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Preemptions whose hosts' commands have not ended on all cores: more wait for these.
const MAX_ORDERS: usize = 64;

/// Commands of these hosts to a namespace are to end on each core.
#[derive(Clone, Debug)]
pub(in super::super) struct Order {
    number: u64,
    pub(in super::super) entry: usize,
    pub(in super::super) hosts: Hosts,
}

/// An order that is not over.
#[derive(Debug)]
struct Open {
    order: Order,
    /// Seats of the cores that have not done it.
    seats: Vec<usize>,
}

/// What is behind the lock.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) entries: Vec<Entry>,
    /// Those of targets that are there.
    seats: Vec<usize>,
    /// The next one.
    next_seat: usize,
    /// Those that some core has not done, in the order of their numbers.
    orders: Vec<Open>,
    /// The last one.
    last: u64,
    /// What hosts are to be told, in the order of their numbers; the oldest go where there are too many.
    news: VecDeque<News>,
    /// The last of all of them.
    last_news: u64,
}

impl Book {
    /// Each core has a look at these. The oldest are lost to who is so far behind.
    fn publish(&mut self, entry: usize, told: impl IntoIterator<Item = Told>) {
        for told in told {
            self.last_news += 1;
            if self.news.len() >= MAX_NEWS {
                self.news.pop_front();
            }
            self.news.push_back(News { number: self.last_news, entry, told });
        }
    }

    /// A core has nothing to do any more for orders of which `which` says so. Those that all cores have done are over.
    fn leave(&mut self, seat: usize, which: impl Fn(&Order) -> bool) {
        self.orders
            .iter_mut()
            .filter(|open| which(&open.order))
            .for_each(|open| open.seats.retain(|left| *left != seat));
        self.orders.retain(|open| !open.seats.is_empty());
    }
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    /// How many orders and news there were: what each poll of each core looks at.
    happened: AtomicU64,
    book: Mutex<Book>,
    store: Option<Store>,
}

impl Registry {
    /// For who may wait: no core that polls.
    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` where somebody else looks into it, for moments.
    fn try_lock(&self) -> Option<MutexGuard<'_, Book>> {
        match self.book.try_lock() {
            Ok(book) => Some(book),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The reservations of all namespaces of a process (Base 8.19): every core of every target that serves them has to share one
/// ([`super::super::Target::reserve_by`]), so that a host which is shut out is so on all of them at once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Reservations(Arc<Registry>);

impl Reservations {
    /// None yet, and none survives the process: hosts that ask for that are refused, and RESCAP says so.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that the file has, which is made where there is none. Hosts may ask for theirs to survive a loss of power (Persist Through
    /// Power Loss): they are in the file, and that on its medium, before such a host is answered. A thread of its own writes it. The
    /// file is this process's as long as any clone of this lives.
    ///
    /// # Errors
    /// [`ReservationFileError`]: it cannot be read or written, another process has it, or it holds something else than what was written
    /// there. Nothing is guessed: hosts would write where they are shut out.
    pub fn open(path: &Path) -> Result<Self, ReservationFileError> {
        let (reservations, writer) = Self::open_on(Folder::new(path)?)?;
        Store::start(&reservations.0, writer)?;
        Ok(reservations)
    }

    /// The same on any medium, without a thread: whoever calls steps the writer, on a thread that may wait for the medium, as long as there
    /// is something to write.
    ///
    /// # Errors
    /// As [`Reservations::open`].
    pub fn open_on<M: ReservationMedium>(mut medium: M) -> Result<(Self, ReservationWriter<M>), ReservationFileError> {
        let (store, entries) = Store::open(&mut medium)?;
        let book = Mutex::new(Book { entries, ..Book::default() });
        let registry = Arc::new(Registry { happened: AtomicU64::new(0), book, store: Some(store) });
        let writer = ReservationWriter::new(&registry, medium);
        Ok((Self(registry), writer))
    }

    /// Why the file could not be written when that was last tried; `None` where it could. Hosts that rely on it were told so.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.0.store.as_ref()?.fault()
    }
}

impl Registry {
    pub(super) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }
}

/// A namespace of the book, as a core of a target knows it.
#[derive(Clone, Debug)]
pub(in super::super) struct Reservation {
    entry: Option<usize>,
    pub(in super::super) published: Arc<Published>,
}

impl Reservation {
    /// Of a namespace that has none, ever.
    pub(in super::super) fn none() -> Self {
        Self { entry: None, published: Arc::default() }
    }

    /// There may be some.
    pub(in super::super) fn exists(&self) -> bool {
        self.entry.is_some()
    }

    /// An order or news of this entry are about it.
    pub(in super::super) fn is(&self, entry: usize) -> bool {
        self.entry == Some(entry)
    }
}

/// What a command has to wait for before it is answered, by numbers from 1: every command's work has room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Settling {
    /// This order is over.
    order: Option<NonZeroU64>,
    /// So much of the file is written.
    written: Option<NonZeroU64>,
}

/// A report: its head and its entries.
pub(in super::super) type Report =
    (ReservationStatus, ArrayVec<RegisteredControllerExtended, { super::state::MAX_REGISTRANTS }>);

/// One core of one target in the book.
#[derive(Debug)]
pub(in super::super) struct Seat {
    registry: Arc<Registry>,
    number: usize,
    /// The last order that this core has begun.
    begun: u64,
    /// The last of the news that it has had.
    heard: u64,
    /// Those that it has not done, and the cookies of the commands that each of them waits for here.
    open: Vec<(u64, Vec<u64>)>,
}

impl Seat {
    pub(in super::super) fn new(reservations: &Reservations) -> Self {
        let registry = Arc::clone(&reservations.0);
        let mut book = registry.lock();
        let (number, begun, heard) = (book.next_seat, book.last, book.last_news);
        book.next_seat += 1;
        book.seats.push(number);
        drop(book);
        Self { registry, number, begun, heard, open: Vec::new() }
    }

    /// Reservations may survive a loss of power.
    pub(in super::super) fn can_persist(&self) -> bool {
        self.registry.store.is_some()
    }

    /// A namespace's. Waits for the lock, since namespaces come while a target starts, or is changed.
    pub(in super::super) fn open(&self, key: Key) -> Reservation {
        let mut book = self.registry.lock();
        let found = book.entries.iter().position(|entry| entry.key == key);
        // One that nobody serves, and of which nothing is known, leaves its place to others.
        let vacant = |entry: &Entry| entry.state == State::default() && Arc::strong_count(&entry.published) == 1;
        let entry = found.unwrap_or_else(|| {
            let new = Entry::new(key, State::default());
            match book.entries.iter().position(vacant) {
                Some(at) => {
                    book.entries[at] = new;
                    at
                }
                None => {
                    book.entries.push(new);
                    book.entries.len() - 1
                }
            }
        });
        Reservation { entry: Some(entry), published: Arc::clone(&book.entries[entry].published) }
    }

    /// Some order was not done here, or some news not heard: what each poll asks.
    #[inline]
    pub(in super::super) fn is_due(&self) -> bool {
        // Neither ever exceeds its share of the sum.
        self.registry.happened.load(Ordering::Acquire) != self.begun + self.heard || !self.open.is_empty()
    }

    /// What hosts are to be told next, and how many news before it were lost to this core.
    pub(in super::super) fn next_news(&mut self) -> Option<(News, u64)> {
        let book = self.registry.try_lock()?;
        let next = book.news.iter().find(|news| news.number > self.heard)?.clone();
        let lost = next.number - self.heard - 1;
        self.heard = next.number;
        Some((next, lost))
    }

    /// The next one that was not begun here.
    pub(in super::super) fn next_order(&self) -> Option<Order> {
        let book = self.registry.try_lock()?;
        book.orders.iter().map(|open| &open.order).find(|order| order.number > self.begun).cloned()
    }

    /// It is begun here, and done when the commands of these cookies have ended: what hosts send later is none of its business, and
    /// might never end, as reads that the reservation lets everybody have.
    pub(in super::super) fn begin(&mut self, order: &Order, left: Vec<u64>) {
        self.begun = order.number;
        self.open.push((order.number, left));
    }

    /// What has ended of that. It is said to the others at once, or later where somebody looks into the book.
    pub(in super::super) fn go_on(&mut self, mut has_ended: impl FnMut(u64) -> bool) {
        let Self { registry, number: seat, open, .. } = self;
        for (_, left) in open.iter_mut() {
            left.retain(|cookie| !has_ended(*cookie));
        }
        if !open.iter().any(|(_, left)| left.is_empty()) {
            return;
        }
        let Some(mut book) = registry.try_lock() else { return };
        open.retain(|(number, left)| {
            if left.is_empty() {
                book.leave(*seat, |order| order.number == *number);
            }
            !left.is_empty()
        });
    }

    /// Does what a host asks for, in force on all cores from then on. `None`: to be asked again. What it answers waits for what is said.
    pub(in super::super) fn apply(
        &self,
        reservation: &Reservation,
        host: &HostId,
        request: Request,
        keys: (u64, u64),
        aborts: bool,
    ) -> Option<Result<Settling, Status>> {
        let mut book = self.registry.try_lock()?;
        if aborts && book.orders.len() >= MAX_ORDERS {
            return None;
        }
        let can_persist = self.can_persist();
        let at = reservation.entry?;
        let entry = book.entries.get_mut(at)?;
        let (persisted, held) = (entry.state.persists, entry.state.held);
        let effect = match entry.state.apply(host, request, keys, can_persist) {
            Ok(effect) => effect,
            Err(status) => return Some(Err(status)),
        };
        let mut settling = Settling { order: None, written: None };
        if effect.changed {
            entry.published.publish(&entry.state);
        }
        let keeps = persisted || entry.state.persists;
        let told = told(host, request, held, &effect.unregistered, &entry.state);
        book.publish(at, told);
        if aborts && !effect.unregistered.is_empty() {
            book.last += 1;
            let order = Order { number: book.last, entry: at, hosts: effect.unregistered };
            settling.order = NonZeroU64::new(order.number);
            let seats = book.seats.clone();
            book.orders.push(Open { order, seats });
        }
        // Behind what is in force now: who finds the number finds that, too.
        self.registry.happened.store(book.last + book.last_news, Ordering::Release);
        // Who asks again for what could not be written, or is not yet, is told no more than the first time. Before the lock is given back:
        // the next one has to find that something is to be written.
        if let Some(store) = self.registry.store().filter(|store| keeps && (effect.changed || store.is_behind())) {
            settling.written = NonZeroU64::new(store.request());
        }
        Some(Ok(settling))
    }

    /// From now on the reservations of these namespaces survive a loss of power, or do not. `None` and what it answers:
    /// as [`Seat::apply`].
    pub(in super::super) fn persist<'a>(
        &self,
        reservations: impl Iterator<Item = &'a Reservation>,
        persists: bool,
    ) -> Option<Result<Settling, Status>> {
        if persists && !self.can_persist() {
            return Some(Err(Status::INVALID_FIELD.do_not_retry()));
        }
        let mut book = self.registry.try_lock()?;
        let mut changed = false;
        for reservation in reservations {
            let Some(entry) = reservation.entry.and_then(|at| book.entries.get_mut(at)) else { continue };
            changed |= entry.state.persists != persists;
            entry.state.persists = persists;
        }
        let store = self.registry.store().filter(|store| changed || store.is_behind());
        Some(Ok(Settling { order: None, written: store.and_then(|store| NonZeroU64::new(store.request())) }))
    }

    /// Whether they do. `None`: to be asked again.
    pub(in super::super) fn persists(&self, reservation: &Reservation) -> Option<bool> {
        let book = self.registry.try_lock()?;
        Some(book.entries.get(reservation.entry?)?.state.persists)
    }

    /// What a command waits for has come, or cannot come any more; `None` where it has not.
    pub(in super::super) fn has_settled(&self, settling: Settling) -> Option<Result<(), Status>> {
        if let Some(order) = settling.order {
            let book = self.registry.try_lock()?;
            if book.orders.iter().any(|open| open.order.number == order.get()) {
                return None;
            }
        }
        match (settling.written, &self.registry.store) {
            (Some(version), Some(store)) => store.is_written(version.get()),
            _ => Some(Ok(())),
        }
    }

    /// What there is of a namespace. `None`: to be asked again.
    pub(in super::super) fn report(&self, reservation: &Reservation) -> Option<Report> {
        let book = self.registry.try_lock()?;
        let (head, entries) = book.entries.get(reservation.entry?)?.state.report();
        Some((head, entries.collect()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut book = self.registry.lock();
        book.seats.retain(|seat| *seat != self.number);
        book.leave(self.number, |_| true);
    }
}
