//! What all ways to a medium have together: which ranges of blocks are locked, and who has yet to agree.

use arrayvec::ArrayVec;
use core::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    task::Waker,
};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Ranges of one medium that are locked at a time: as many operations run beside each other, and the next one waits. A
/// way that looks copies and walks all of them.
pub const MAX_RANGE_LOCKS: usize = 32;
/// Ways to one medium at most: of 64 cores, each for 8 devices.
pub const MAX_RANGE_LOCK_WAYS: usize = 512;

const WORDS: usize = MAX_RANGE_LOCK_WAYS / u64::BITS as usize;

/// Blocks from the first one to the last, which is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range {
    /// It lies in a namespace, or is refused there.
    pub(super) const fn new((lba, blocks): (u64, u32)) -> Self {
        Self { start: lba, end: lba.saturating_add(blocks as u64) }
    }

    pub(super) const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// What a way knows of the ranges that are locked.
pub(super) type Locked = ArrayVec<Range, MAX_RANGE_LOCKS>;

/// There are more ways to a medium than can agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a medium has {MAX_RANGE_LOCK_WAYS} ways at most; serve it by fewer cores or devices")]
pub struct TooManyWays;

/// A set of ways.
#[derive(Clone, Copy, Debug, Default)]
struct Ways([u64; WORDS]);

impl Ways {
    const fn place(way: usize) -> (usize, u64) {
        (way / u64::BITS as usize, 1 << (way % u64::BITS as usize))
    }

    fn has(&self, way: usize) -> bool {
        let (word, bit) = Self::place(way);
        self.0[word] & bit != 0
    }

    fn add(&mut self, way: usize) {
        let (word, bit) = Self::place(way);
        self.0[word] |= bit;
    }

    fn remove(&mut self, way: usize) {
        let (word, bit) = Self::place(way);
        self.0[word] &= !bit;
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// A range that is locked, or will be when all have agreed.
#[derive(Debug)]
struct Lock {
    name: u64,
    /// Whose it is.
    way: usize,
    range: Range,
    /// They have not agreed.
    awaited: Ways,
}

#[derive(Debug, Default)]
struct Table {
    /// All that there are.
    ways: Ways,
    /// How they are woken, where they sleep.
    wakers: Vec<Option<Waker>>,
    locks: ArrayVec<Lock, MAX_RANGE_LOCKS>,
    last_name: u64,
}

impl Table {
    fn wake(&self, way: usize) {
        if let Some(Some(waker)) = self.wakers.get(way) {
            waker.wake_by_ref();
        }
    }

    fn wake_all(&self) {
        self.wakers.iter().flatten().for_each(Waker::wake_by_ref);
    }

    /// A way holds up this lock no more.
    fn agrees(&mut self, at: usize, way: usize) {
        let Some(lock) = self.locks.get_mut(at) else { return };
        lock.awaited.remove(way);
        if lock.awaited.is_empty() {
            let owner = lock.way;
            self.wake(owner);
        }
    }
}

/// The locks of one medium: one value for all storages that change it, on whatever core, and for nobody else.
#[derive(Debug, Default)]
pub struct RangeLocks {
    /// Counts what was locked and unlocked. It changes with the table alone, under the mutex.
    version: AtomicU64,
    /// Ways that are polled never wait for it: who finds it taken comes back.
    table: Mutex<Table>,
}

impl RangeLocks {
    /// Nothing is locked.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for whoever has it, a few hundred instructions: not for a poll.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_table(&self) -> Option<MutexGuard<'_, Table>> {
        match self.table.try_lock() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn changed(&self) {
        self.version.fetch_add(1, Release);
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// A way more.
    ///
    /// # Errors
    /// [`TooManyWays`].
    pub(super) fn enter(&self) -> Result<usize, TooManyWays> {
        let mut table = self.table();
        let place = (0..MAX_RANGE_LOCK_WAYS).find(|way| !table.ways.has(*way)).ok_or(TooManyWays)?;
        table.ways.add(place);
        if table.wakers.len() <= place {
            table.wakers.resize(place + 1, None);
        }
        Ok(place)
    }

    /// It is gone, and nothing of it changes anything any more.
    pub(super) fn leave(&self, way: usize) {
        let mut table = self.table();
        table.ways.remove(way);
        if let Some(waker) = table.wakers.get_mut(way) {
            *waker = None;
        }
        for at in 0..table.locks.len() {
            table.agrees(at, way);
        }
        table.locks.retain(|lock| lock.way != way);
        self.changed();
        table.wake_all();
    }

    /// How it is woken.
    pub(super) fn wakes(&self, way: usize, waker: &Waker) {
        if let Some(place) = self.table().wakers.get_mut(way) {
            *place = Some(waker.clone());
        }
    }

    /// Has a range locked when all have agreed, the way itself as well: its name. `None` where that is to be tried again.
    pub(super) fn lock(&self, way: usize, range: Range) -> Option<u64> {
        let mut table = self.try_table()?;
        if table.locks.is_full() || table.locks.iter().any(|lock| lock.range.overlaps(range)) {
            return None;
        }
        table.last_name += 1;
        let (name, awaited) = (table.last_name, table.ways);
        table.locks.push(Lock { name, way, range, awaited });
        self.changed();
        table.wake_all();
        Some(name)
    }

    /// All have agreed.
    pub(super) fn is_locked(&self, name: u64) -> bool {
        let table = self.try_table();
        table.is_some_and(|table| table.locks.iter().any(|lock| lock.name == name && lock.awaited.is_empty()))
    }

    /// False where that is to be tried again.
    pub(super) fn unlock(&self, name: u64) -> bool {
        let Some(mut table) = self.try_table() else { return false };
        table.locks.retain(|lock| lock.name != name);
        self.changed();
        table.wake_all();
        true
    }

    /// What is locked, as of which version, and whether the way has agreed to all of it: it does where nothing of what it
    /// has changes a range. `None` where that is to be tried again.
    pub(super) fn look(
        &self,
        way: usize,
        is_changing: impl Fn(Range) -> bool,
        locked: &mut Locked,
    ) -> Option<(u64, bool)> {
        let mut table = self.try_table()?;
        locked.clear();
        let mut agrees = true;
        for at in 0..table.locks.len() {
            let Lock { range, ref awaited, .. } = table.locks[at];
            locked.push(range);
            if awaited.has(way) {
                if is_changing(range) {
                    agrees = false;
                } else {
                    table.agrees(at, way);
                }
            }
        }
        Some((self.version(), agrees))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn a_range_is_locked_when_all_ways_have_agreed_and_no_other_that_overlaps_it() {
        let locks = RangeLocks::new();
        let ways = [(); 3].map(|()| locks.enter().unwrap());
        let before = locks.version();
        let name = locks.lock(ways[0], range(4, 8)).unwrap();
        assert_ne!(locks.version(), before);
        assert_eq!(locks.lock(ways[1], range(7, 9)), None);
        let other = locks.lock(ways[1], range(8, 9)).unwrap();
        let mut locked = Locked::new();
        assert!(locks.look(ways[0], |_| false, &mut locked).unwrap().1);
        assert_eq!(locked.as_slice(), [range(4, 8), range(8, 9)]);
        let is_changing = |of: Range| of == range(4, 8);
        assert!(!locks.look(ways[1], is_changing, &mut locked).unwrap().1);
        assert!(!locks.is_locked(name) && !locks.is_locked(other));
        // One that goes holds nobody up.
        locks.leave(ways[2]);
        assert!(!locks.is_locked(name) && locks.is_locked(other));
        assert!(locks.look(ways[1], |_| false, &mut locked).unwrap().1);
        assert!(locks.is_locked(name));
        assert!(locks.unlock(name));
        assert!(locks.lock(ways[1], range(0, 8)).is_some());
    }

    #[test]
    fn there_are_as_many_locks_and_ways_as_are_said() {
        let locks = RangeLocks::new();
        let ways: Vec<usize> = (0..MAX_RANGE_LOCK_WAYS).map(|_| locks.enter().unwrap()).collect();
        assert_eq!(locks.enter(), Err(TooManyWays));
        let names: Vec<u64> =
            (0..MAX_RANGE_LOCKS as u64).map(|at| locks.lock(ways[0], range(at, at + 1)).unwrap()).collect();
        assert_eq!(locks.lock(ways[1], range(100, 101)), None);
        assert!(locks.unlock(names[5]));
        assert!(locks.lock(ways[1], range(100, 101)).is_some());
        // All of one that goes are unlocked with it.
        locks.leave(ways[0]);
        let mut locked = Locked::new();
        locks.look(ways[1], |_| false, &mut locked).unwrap();
        assert_eq!(locked.as_slice(), [range(100, 101)]);
        assert_eq!(locks.enter(), Ok(ways[0]));
    }
}
