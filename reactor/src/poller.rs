//! The contract between a reactor and what runs in it.

use core::time::Duration;
use std::sync::{Arc, PoisonError, TryLockError};

use crate::clock::Now;
use crate::group::Group;
use crate::primitive::{AtomicU8, AtomicUsize, Mutex, Ordering};
use crate::sleeper::Bed;

/// Pollers per reactor, removed ones not counted. Each costs one indirect call per iteration, so more than a handful is
/// a design fault; the limit sizes the published statistics.
pub const MAX_POLLERS: usize = 64;

/// Until when a poller has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Poll me again at once.
    Busy,
    /// Nothing before this time of the reactor's clock.
    Until(Duration),
    /// Nothing until a message arrives.
    Forever,
}

/// Something that a reactor runs. All calls come from the reactor's own thread; none may block.
pub trait Poller<C> {
    /// Does a bounded amount of work and returns how many units it was: 0 is an empty poll, and leaves nothing to hand over.
    /// `now` is the time of the iteration, converted only where it is asked for.
    fn poll(&mut self, context: &mut C, now: &Now) -> u32;

    /// Called at the end of each iteration in which the poller was active and anybody found anything, be it a message: hand
    /// over what the iteration has gathered. Also where something changed that rarely does (handles of pollers, a shutdown), every
    /// 10 ms where the reactor does not sleep, and once after another poller panicked. A timed poller is flushed in the iterations in
    /// which it was polled. An iteration that found nothing calls no flush: who gathers something in a poll and returns 0 waits.
    fn flush(&mut self, context: &mut C, now: &Now) {
        let _ = (context, now);
    }

    /// Whether [`Poller::flush`] does anything. Asked once, when the poller is added.
    fn flushes(&self) -> bool {
        true
    }

    /// Whether the reactor may sleep, as far as this poller knows. Asked of busy pollers only: a timed poller's period
    /// is its answer. A poller whose work arrives unannounced has to answer [`Sleep::Busy`] while any may; one whose work wakes (see
    /// [`Poller::arm`]) need not.
    fn sleep_until(&self, context: &C) -> Sleep;

    /// All have agreed to sleep: what brings this poller work from now on has to wake the reactor, by [`crate::Seat::waker`], or because a
    /// descriptor becomes readable ([`crate::Reactor::wake_by`], [`PollerAdder::wake_by`]). Everybody is polled once more behind this, so
    /// that what came before is found, and asked again until when to sleep. False: something cannot wake, or is there already; the
    /// reactor goes on. Asked of busy pollers only, and of who just sleeps until a message or a time there is nothing to do.
    fn arm(&mut self, context: &mut C) -> bool {
        let _ = context;
        true
    }

    /// Shutdown has begun: start nothing new. Called once, of paused pollers too.
    fn begin_shutdown(&mut self, context: &mut C, now: &Now) {
        let _ = (context, now);
    }

    /// After `begin_shutdown`: whether nothing is outstanding any more. A paused poller is not polled while draining,
    /// so it must be resumed by whoever paused it, or it is listed as not drained.
    fn drained(&self, context: &C) -> bool {
        let _ = context;
        true
    }
}

/// A poller made of one function; see [`poll_fn`].
#[derive(Clone, Debug)]
pub struct PollFn<F>(F);

/// Makes a poller of a function. It never lets the reactor sleep and is always drained.
pub fn poll_fn<C, F: FnMut(&mut C, &Now) -> u32>(poll: F) -> PollFn<F> {
    PollFn(poll)
}

impl<C, F: FnMut(&mut C, &Now) -> u32> Poller<C> for PollFn<F> {
    #[inline]
    fn poll(&mut self, context: &mut C, now: &Now) -> u32 {
        (self.0)(context, now)
    }

    fn flushes(&self) -> bool {
        false
    }

    fn sleep_until(&self, _context: &C) -> Sleep {
        Sleep::Busy
    }
}

/// When a poller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// In every iteration.
    Busy,
    /// Each time this period is over, the first time one period after it was added. Missed periods are skipped, not
    /// made up for. A zero period is the same as busy.
    Every(Duration),
}

/// A poller was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollerError {
    /// The reactor is full.
    #[error("the reactor has {MAX_POLLERS} pollers already; remove one, or let one poller serve several objects")]
    TooMany,
    /// The reactor has ended, or panicked.
    #[error("the reactor has ended; it takes no pollers")]
    Ended,
}

/// What the handle asks for. Removal is final.
const ACTIVE: u8 = 0;
const PAUSED: u8 = 1;
const REMOVED: u8 = 2;

/// What a poller's owner wants, seen by the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Active,
    Paused,
    Removed,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WishCell(Arc<AtomicU8>);

impl WishCell {
    pub(crate) fn get(&self) -> Wish {
        match self.0.load(Ordering::Relaxed) {
            ACTIVE => Wish::Active,
            PAUSED => Wish::Paused,
            _ => Wish::Removed,
        }
    }
}

/// Pauses, resumes and removes one poller, from any thread and from pollers, the poller itself included. A change takes
/// effect at the reactor's next iteration. Dropping the handle changes nothing.
#[derive(Clone, Debug)]
pub struct PollerHandle {
    pub(crate) wish: WishCell,
    pub(crate) group: Arc<Group>,
    pub(crate) core: usize,
}

impl PollerHandle {
    /// Neither polled nor flushed until resumed.
    pub fn pause(&self) {
        self.change(ACTIVE, PAUSED);
    }

    /// Polled again. A timed poller whose time passed meanwhile is due at once.
    pub fn resume(&self) {
        self.change(PAUSED, ACTIVE);
    }

    /// Drops the poller on its reactor's thread. Final.
    pub fn remove(&self) {
        self.wish.0.store(REMOVED, Ordering::Relaxed);
        self.group.ask_attention(self.core);
    }

    fn change(&self, from: u8, to: u8) {
        // Fails where nothing is to do: the state is there already, or the poller was removed.
        let _ = self.wish.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        self.group.ask_attention(self.core);
    }
}

/// A poller on its way into a reactor.
pub(crate) struct NewPoller<C> {
    pub(crate) name: &'static str,
    pub(crate) schedule: Schedule,
    pub(crate) poller: Box<dyn Poller<C> + Send>,
    pub(crate) wish: WishCell,
}

/// What a reactor shares with its [`PollerAdder`]s. Adders take the lock only when they add; the reactor never waits for it.
pub(crate) struct Additions<C> {
    /// `None` once the reactor has ended.
    waiting: Mutex<Option<Vec<NewPoller<C>>>>,
    population: AtomicUsize,
}

impl<C> Additions<C> {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::new(Some(Vec::new())), population: AtomicUsize::new(0) }
    }

    /// Takes one of the [`MAX_POLLERS`] places.
    pub(crate) fn reserve(&self) -> Result<(), PollerError> {
        let next = |count: usize| (count < MAX_POLLERS).then_some(count + 1);
        self.population
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .map_or(Err(PollerError::TooMany), |_| Ok(()))
    }

    /// Gives places back.
    pub(crate) fn release(&self, count: usize) {
        self.population.fetch_sub(count, Ordering::Relaxed);
    }

    fn push(&self, new: NewPoller<C>) -> Result<(), PollerError> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = waiting.as_mut().ok_or(PollerError::Ended)?;
        self.reserve()?;
        waiting.push(new);
        Ok(())
    }

    /// What waits. Nothing where somebody is adding at this moment: who adds asks for the reactor's attention afterwards.
    pub(crate) fn take(&self) -> Vec<NewPoller<C>> {
        match self.waiting.try_lock() {
            Ok(mut waiting) => waiting.as_mut().map(core::mem::take).unwrap_or_default(),
            Err(TryLockError::Poisoned(poisoned)) => {
                poisoned.into_inner().as_mut().map(core::mem::take).unwrap_or_default()
            }
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }

    /// Takes no more, and drops what waits: it might have an adder of its own, and keep itself for ever.
    fn close(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not under the lock: a poller that is dropped may add one.
        drop(waiting);
    }
}

/// The reactor's end of its additions, which closes them when it goes.
pub(crate) struct Intake<C>(pub(crate) Arc<Additions<C>>);

impl<C> core::ops::Deref for Intake<C> {
    type Target = Arc<Additions<C>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<C> Drop for Intake<C> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Adds pollers to a running reactor, from any thread and from pollers. They run from the next iteration on.
pub struct PollerAdder<C> {
    pub(crate) additions: Arc<Additions<C>>,
    pub(crate) group: Arc<Group>,
    pub(crate) core: usize,
    pub(crate) bed: Bed,
}

impl<C> Clone for PollerAdder<C> {
    fn clone(&self) -> Self {
        let (additions, group) = (Arc::clone(&self.additions), Arc::clone(&self.group));
        Self { additions, group, core: self.core, bed: self.bed.clone() }
    }
}

impl<C> core::fmt::Debug for PollerAdder<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PollerAdder").field("core", &self.core).finish_non_exhaustive()
    }
}

impl<C> PollerAdder<C> {
    /// Hands the poller over. Allocates and locks: not for hot paths. One that is refused is dropped here.
    pub fn add(
        &self,
        name: &'static str,
        schedule: Schedule,
        poller: impl Poller<C> + Send + 'static,
    ) -> Result<PollerHandle, PollerError> {
        let wish = WishCell::default();
        let handle = PollerHandle { wish: wish.clone(), group: Arc::clone(&self.group), core: self.core };
        let new = NewPoller { name, schedule, poller: Box::new(poller), wish };
        self.additions.push(new)?;
        self.group.ask_attention(self.core);
        Ok(handle)
    }

    /// As [`crate::Reactor::wake_by`], while the reactor runs, asleep or not: for what a poller brings that is added behind this call,
    /// which the reactor asks to arm it before it sleeps with it. The kernel is asked by the thread that calls; the reactor does nothing
    /// for it. Of a reactor that never sleeps, or has ended, it wakes nobody.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::Unsupported`] where the reactor had no descriptor before it ran; else as [`crate::Reactor::wake_by`].
    #[cfg(not(loom))]
    pub fn wake_by(&self, descriptor: impl std::os::fd::AsFd) -> std::io::Result<()> {
        self.bed.add_later(descriptor)
    }
}
