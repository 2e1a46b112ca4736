//! What a promise is tried with: a medium, and the ways to it.

use super::{
    Medium,
    clock::Clock,
    medium::LEAST_BLOCKS,
    outcome::{Outcome, broken, ensure, not_shown},
    way::Way,
};
use crate::storage::Storage;
use fastrand::Rng;
use std::rc::Rc;

/// One promise over one medium.
pub(super) struct Trial<'m> {
    pub(super) medium: Box<dyn Medium + 'm>,
    pub(super) random: Rng,
    clock: Rc<Clock>,
    patience: u64,
    last_stamp: u64,
}

impl<'m> Trial<'m> {
    pub(super) fn new(medium: Box<dyn Medium + 'm>, clock: Rc<Clock>, patience: u64, seed: u64) -> Self {
        Self { medium, random: Rng::with_seed(seed), clock, patience, last_stamp: super::content::ZEROS }
    }

    fn way(&self, storage: Box<dyn Storage>) -> Outcome<Way> {
        let blocks = storage.geometry().blocks();
        ensure!(blocks >= LEAST_BLOCKS, "{blocks} blocks: a medium of the suite has {LEAST_BLOCKS} or more");
        Way::new(storage, Rc::clone(&self.clock), self.patience)
    }

    /// The first way to the medium.
    pub(super) fn open(&mut self) -> Outcome<Way> {
        let storage = self.medium.open().ok_or_else(|| broken("a new medium cannot be opened"))?;
        self.way(storage)
    }

    /// Another core's, beside those that there are.
    pub(super) fn open_beside(&mut self) -> Outcome<Way> {
        match self.medium.open_beside() {
            Some(storage) => self.way(storage),
            None => not_shown("its medium has one way"),
        }
    }

    /// The same once no way is left.
    pub(super) fn open_again(&mut self) -> Outcome<Way> {
        match self.medium.open() {
            Some(storage) => self.way(storage),
            None => not_shown("its medium is opened once"),
        }
    }

    /// One that hosts may not write by.
    pub(super) fn open_read_only(&mut self) -> Outcome<Way> {
        match self.medium.open_read_only() {
            Some(storage) => self.way(storage),
            None => not_shown("its medium is not served read-only"),
        }
    }

    /// The power goes, once all ways are gone.
    pub(super) fn lose_power(&mut self) -> Outcome {
        if self.medium.lose_power() { Ok(()) } else { not_shown("its medium cannot lose its power") }
    }

    /// One that nothing was written with.
    pub(super) fn new_stamp(&mut self) -> u64 {
        self.last_stamp += 1;
        self.last_stamp
    }
}
