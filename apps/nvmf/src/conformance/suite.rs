//! All promises over one storage.

use super::{
    Medium, PROMISES,
    clock::Clock,
    report::{Report, Verdict},
    trial::Trial,
};
use core::time::Duration;
use std::rc::Rc;

/// Polls without any completion until a storage is taken to hang: far more than a disk under load
/// needs.
const PATIENCE: u64 = 2_000_000_000;
/// What is drawn where nobody says from what.
const SEED: u64 = 1;

/// The promises over one storage: how its media are made, and what runs.
pub struct Suite<'s, F> {
    name: &'s str,
    new_medium: F,
    clock: Rc<Clock>,
    patience: u64,
    seed: u64,
    only: Option<&'s str>,
}

impl<'s, F, M> Suite<'s, F>
where
    F: FnMut() -> M,
    M: Medium + 's,
{
    /// Over media that `new_medium` makes, one for each promise. `name` is what reports call the
    /// storage.
    pub fn new(name: &'s str, new_medium: F) -> Self {
        Self { name, new_medium, clock: Rc::default(), patience: PATIENCE, seed: SEED, only: None }
    }

    /// What [`Storage::poll`](crate::storage::Storage::poll) is told as the time, for a storage
    /// that has deadlines; it may not go back. A microsecond more with each poll where nobody says
    /// otherwise.
    #[must_use]
    pub fn clock(mut self, clock: impl FnMut() -> Duration + 'static) -> Self {
        self.clock = Rc::new(Clock::of(clock));
        self
    }

    /// Polls without any completion, each behind a flush, until an operation is said never to end.
    #[must_use]
    pub fn patience(self, polls: u64) -> Self {
        Self { patience: polls, ..self }
    }

    /// What is drawn at random comes from this number.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Tries the promise of this name alone.
    #[must_use]
    pub fn only(self, promise: &'s str) -> Self {
        Self { only: Some(promise), ..self }
    }

    /// Tries all of them.
    ///
    /// # Panics
    /// Where this machine has no memory for a few buffers, and where the storage or the medium
    /// panics.
    pub fn run(mut self) -> Report {
        let wanted = PROMISES.iter().filter(|promise| self.only.is_none_or(|only| only == promise.name));
        let verdicts = wanted.map(|promise| {
            let medium = Box::new((self.new_medium)());
            let mut trial = Trial::new(medium, Rc::clone(&self.clock), self.patience, self.seed);
            let verdict = (promise.shown)(&mut trial).err().unwrap_or(Verdict::Kept);
            (promise.name, verdict)
        });
        Report::new(self.name, verdicts.collect())
    }
}
