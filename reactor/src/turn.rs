//! Whose turn it is in a reactor: for whoever asks why a core stands still, and for panics.
//!
//! An iteration that finds nothing writes nothing of it down where one poller is busy: it is that one's turn, unless something else
//! is written. Each further busy poller costs it a store.

use core::fmt;

use crate::primitive::{AtomicUsize, Ordering};

/// Nobody's: the loop's own.
const LOOP: usize = usize::MAX;
/// The context takes messages.
const MESSAGES: usize = usize::MAX - 1;
/// The reactor sleeps.
const ASLEEP: usize = usize::MAX - 2;
/// What the reactor consists of is made; the last of the numbers that are no poller's.
const SETTING_UP: usize = usize::MAX - 3;

/// Whose turn it is, in a number that other threads may read. Written by the reactor alone, and
/// by its launcher while it waits for that.
#[derive(Debug)]
pub(crate) struct TurnCell(AtomicUsize);

impl Default for TurnCell {
    fn default() -> Self {
        Self(AtomicUsize::new(LOOP))
    }
}

impl TurnCell {
    /// The poller of this number's, among the slots.
    #[inline(always)]
    pub(crate) fn set_poller(&self, number: usize) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// That of the poller whose number this is, if there is one.
    #[inline(always)]
    pub(crate) fn set(&self, poller: Option<usize>) {
        self.set_poller(poller.unwrap_or(LOOP));
    }

    pub(crate) fn set_messages(&self) {
        self.set_poller(MESSAGES);
    }

    pub(crate) fn set_asleep(&self) {
        self.set_poller(ASLEEP);
    }

    pub(crate) fn set_setting_up(&self) {
        self.set_poller(SETTING_UP);
    }

    /// `name` knows those of pollers.
    pub(crate) fn get(&self, name: impl FnOnce(usize) -> Option<&'static str>) -> Turn {
        match self.0.load(Ordering::Relaxed) {
            LOOP => Turn::Loop,
            MESSAGES => Turn::Messages,
            ASLEEP => Turn::Asleep,
            SETTING_UP => Turn::SettingUp,
            number => name(number).map_or(Turn::Loop, Turn::Poller),
        }
    }

    /// The number of a poller, if it is that one's.
    pub(crate) fn poller(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&number| number < SETTING_UP)
    }
}

/// Whose turn it is in an iteration of a reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The poller's of this name. Of the busy ones the first's also between two iterations.
    Poller(&'static str),
    /// The context's, which takes messages.
    Messages,
    /// No poller's: before the first iteration, after the last one, or where no poller is busy.
    Loop,
    /// Nobody's: the reactor sleeps until it is woken, or waits until all are set up.
    Asleep,
    /// Its initialisation's: it does not run yet.
    SettingUp,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poller(name) => write!(f, "poller {name}"),
            Self::Messages => f.write_str("what takes messages"),
            Self::Loop => f.write_str("no poller"),
            Self::Asleep => f.write_str("sleep"),
            Self::SettingUp => f.write_str("its initialisation"),
        }
    }
}
