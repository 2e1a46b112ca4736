//! What the cores of one run and its main thread tell each other. Steps are words that one side writes and the others read;
//! what is rare is behind a lock that no measured request takes.

use crate::Error;
use core::task::Waker;
use crossbeam_utils::CachePadded;
use frwr_mempool::Bell;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
};

/// How far a client's core is; 0 is before the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Step {
    /// All its connections are ready: it waits for the other cores.
    Ready = 1,
    /// Its requests are all ended, and counted.
    Measured = 2,
    /// Its connections are gone.
    Finished = 3,
}

#[derive(Debug)]
struct Shared {
    steps: Box<[CachePadded<AtomicU8>]>,
    /// Requests that each core has ended, for people who wait.
    ended: Box<[CachePadded<AtomicU64>]>,
    stop: AtomicBool,
    /// Of each client's core, rung by the main thread behind that.
    bells: Box<[CachePadded<Bell>]>,
    /// The server makes room: nobody listens for a moment.
    making_room: AtomicBool,
    /// The first that went wrong.
    failure: Mutex<Option<Error>>,
    failed: AtomicBool,
}

/// The board; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Board(Arc<Shared>);

impl Board {
    pub(super) fn new(cores: usize) -> Self {
        Self(Arc::new(Shared {
            steps: (0..cores).map(|_| CachePadded::default()).collect(),
            ended: (0..cores).map(|_| CachePadded::default()).collect(),
            stop: AtomicBool::new(false),
            bells: (0..cores).map(|_| CachePadded::default()).collect(),
            making_room: AtomicBool::new(false),
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
        }))
    }

    /// A core: how far it is.
    pub(super) fn reach(&self, core: usize, step: Step) {
        if let Some(place) = self.0.steps.get(core) {
            place.store(step as u8, Relaxed);
        }
    }

    /// What the cores do, in a word.
    pub(super) fn doing(&self) -> &'static str {
        if !self.has_clients() {
            "serving"
        } else if self.all_reached(Step::Measured) {
            "ending"
        } else if self.all_reached(Step::Ready) {
            "measuring"
        } else {
            "connecting"
        }
    }

    /// Whether there are any cores with a client.
    pub(super) fn has_clients(&self) -> bool {
        !self.0.steps.is_empty()
    }

    /// A core: how many requests it has ended. One store, on a line that nobody else writes.
    pub(super) fn count(&self, core: usize, ended: u64) {
        if let Some(place) = self.0.ended.get(core) {
            place.store(ended, Relaxed);
        }
    }

    /// Requests that all cores have ended.
    pub(super) fn ended(&self) -> u64 {
        self.0.ended.iter().map(|place| place.load(Relaxed)).sum()
    }

    /// Whether all cores are as far.
    pub(super) fn all_reached(&self, step: Step) -> bool {
        self.0.steps.iter().all(|place| place.load(Relaxed) >= step as u8)
    }

    /// A core: the server said that it makes room.
    pub(super) fn tell_making_room(&self) {
        self.0.making_room.store(true, Relaxed);
    }

    /// Whether it said so to any of them.
    pub(super) fn is_making_room(&self) -> bool {
        self.0.making_room.load(Relaxed)
    }

    /// A core: it cannot go on. The first one counts.
    pub(super) fn fail(&self, failure: Error) {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.0.failed.store(true, Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.0.failed.load(Relaxed)
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The main thread, as often as it likes: end early.
    pub(super) fn stop(&self) {
        if !self.0.stop.swap(true, Relaxed) {
            self.0.bells.iter().for_each(|bell| bell.ring());
        }
    }

    /// A core that may sleep: how it is woken.
    pub(super) fn wakes(&self, core: usize, waker: &Waker) {
        self.0.bells.get(core).into_iter().for_each(|bell| bell.wakes(waker));
    }

    /// A core: what the main thread asks for from now on wakes it, once. It looks once more before it sleeps.
    pub(super) fn arm(&self, core: usize) {
        self.0.bells.get(core).into_iter().for_each(|bell| bell.arm());
    }

    pub(super) fn wants_stop(&self) -> bool {
        self.0.stop.load(Relaxed)
    }
}
