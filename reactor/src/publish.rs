//! A copy of the statistics that other threads read without disturbing the reactor: relaxed stores under a sequence
//! number. Only a change of the list of pollers takes a lock.

use core::array;
use core::time::Duration;
use std::sync::{PoisonError, TryLockError};

use crate::clock::nanoseconds;
use crate::core_set::CpuId;
use crate::inbox::CoreIndex;
use crate::long::{LongCells, LongIterations};
use crate::poller::MAX_POLLERS;
use crate::primitive::{AtomicU64, Mutex, MutexGuard, Ordering, yield_now};
use crate::sequence::{READ_TRIES, Sequence, Words, load, store};
use crate::stall::StallCell;
use crate::statistics::{Longest, LoopCounters, PollerStatistics, Statistics};

const LOOP_WORDS: usize = 12;
/// Which of them counts iterations.
const ITERATIONS: usize = 1;
const BUSY_ITERATIONS: usize = 2;
const POLLER_WORDS: usize = 9;

/// Written by one reactor, read by any thread.
pub(crate) struct Published {
    core: CoreIndex,
    cpu: Option<CpuId>,
    sequence: Sequence,
    whole: Words<LOOP_WORDS>,
    pollers: Box<[Words<POLLER_WORDS>]>,
    /// Written where they change.
    long: LongCells,
    stall: StallCell,
    /// Names of the pollers, in the order of `pollers`.
    names: Mutex<Vec<&'static str>>,
}

impl Published {
    pub(crate) fn new(core: CoreIndex, cpu: Option<CpuId>) -> Self {
        let zeros = || array::from_fn(|_| AtomicU64::new(0));
        Self {
            core,
            cpu,
            sequence: Sequence::default(),
            whole: array::from_fn(|_| AtomicU64::new(0)),
            pollers: (0..MAX_POLLERS).map(|_| zeros()).collect(),
            long: LongCells::default(),
            stall: StallCell::default(),
            names: Mutex::new(Vec::with_capacity(MAX_POLLERS)),
        }
    }

    /// Copies the counters out. Called by the owner only; takes no lock and does not allocate.
    pub(crate) fn write(&self, whole: &LoopCounters, pollers: impl Iterator<Item = PollerStatistics>) {
        self.sequence.write(|| {
            store(&self.whole, loop_words(whole));
            for (words, poller) in self.pollers.iter().zip(pollers) {
                store(words, poller_words(&poller));
            }
        });
    }

    /// The same, after the list of pollers changed.
    pub(crate) fn write_list(&self, whole: &LoopCounters, pollers: impl Iterator<Item = PollerStatistics> + Clone) {
        let mut names = self.names();
        names.clear();
        names.extend(pollers.clone().map(|poller| poller.name).take(MAX_POLLERS));
        self.write(whole, pollers);
    }

    /// A copy that belongs together. Any thread; allocates. Without pollers where their list is being changed for that long: the
    /// thread that changes it may have been stopped.
    pub(crate) fn read(&self) -> Statistics {
        let look = |_| {
            let names = self.try_names();
            if names.is_none() {
                yield_now();
            }
            names
        };
        let names = (0..READ_TRIES).find_map(look);
        let names = names.as_ref().map_or(&[][..], |names| names);
        self.sequence.read(|| self.copy(names))
    }

    /// Long iterations, and how many of them were stalls.
    pub(crate) fn long_iterations(&self) -> (LongIterations, u64) {
        (self.long.read(), self.stall.number())
    }

    /// Long iterations.
    pub(crate) fn long(&self) -> &LongCells {
        &self.long
    }

    /// The last one beyond the threshold.
    pub(crate) fn stall(&self) -> &StallCell {
        &self.stall
    }

    /// Iterations as of the last copy. Any thread.
    pub(crate) fn iterations(&self) -> u64 {
        self.whole.get(ITERATIONS).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Those that found something, as of the last copy. Any thread.
    pub(crate) fn busy_iterations(&self) -> u64 {
        self.whole.get(BUSY_ITERATIONS).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The name of a poller, if it can be had at once. Any thread.
    pub(crate) fn name(&self, poller: usize) -> Option<&'static str> {
        self.try_names()?.get(poller).copied()
    }

    fn copy(&self, names: &[&'static str]) -> Statistics {
        let pollers = names.iter().zip(&self.pollers).map(|(name, words)| poller_from(name, load(words))).collect();
        loop_from(load(&self.whole)).with(self.core, self.cpu, pollers, self.long_iterations())
    }

    fn try_names(&self) -> Option<MutexGuard<'_, Vec<&'static str>>> {
        match self.names.try_lock() {
            Ok(names) => Some(names),
            Err(TryLockError::Poisoned(names)) => Some(names.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn names(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters of a loop as words, and back, in the order that they are named in.
macro_rules! loop_words {
    ($($counter:ident),*) => {
        fn loop_words(counters: &LoopCounters) -> [u64; LOOP_WORDS] {
            [$(counters.$counter),*]
        }

        fn loop_from([$($counter),*]: [u64; LOOP_WORDS]) -> LoopCounters {
            LoopCounters { $($counter),* }
        }
    };
}

loop_words! {
    at, iterations, busy_iterations, busy, idle, asleep, sleeps, work, messages, would_blocks, longest, longest_at
}

fn poller_words(poller: &PollerStatistics) -> [u64; POLLER_WORDS] {
    [
        poller.polls,
        poller.empty_polls,
        poller.work,
        nanoseconds(poller.longest_iteration.duration),
        nanoseconds(poller.longest_iteration.at),
        nanoseconds(poller.time),
        nanoseconds(poller.longest_poll.duration),
        nanoseconds(poller.longest_poll.at),
        poller.long_iterations,
    ]
}

fn poller_from(name: &'static str, words: [u64; POLLER_WORDS]) -> PollerStatistics {
    let [polls, empty_polls, work, iteration, iteration_at, time, poll, poll_at, long_iterations] = words;
    PollerStatistics {
        name,
        polls,
        empty_polls,
        work,
        longest_iteration: longest_from(iteration, iteration_at),
        long_iterations,
        time: Duration::from_nanos(time),
        longest_poll: longest_from(poll, poll_at),
    }
}

fn longest_from(duration: u64, at: u64) -> Longest {
    Longest { duration: Duration::from_nanos(duration), at: Duration::from_nanos(at) }
}
