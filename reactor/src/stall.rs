//! Iterations beyond a threshold, as the reactor saw the last one of them when it was over.

use core::time::Duration;

use crate::cpu::ThreadUsage;
use crate::long::Cause;
use crate::primitive::Ordering;
use crate::sequence::{Sequence, Words, load, store};

const WORDS: usize = 8;

/// An iteration that took longer than [`crate::Options::stall_threshold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Which one it is of its reactor's, from 1.
    pub number: u64,
    /// When it began, on the reactor's clock.
    pub began: Duration,
    /// How long it was.
    pub duration: Duration,
    /// Why.
    pub cause: Cause,
    /// The poller that found work in it, where it was one alone.
    pub poller: Option<&'static str>,
    /// What the kernel counted of its thread since it was asked last, which is after a long iteration: page faults,
    pub page_faults: u64,
    /// how often the processor was given to another thread,
    pub involuntary_switches: u64,
    /// and how often the thread waited in the kernel.
    pub voluntary_switches: u64,
}

/// The last one, as the reactor tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallRecord {
    /// In nanoseconds.
    pub(crate) began: u64,
    pub(crate) duration: u64,
    pub(crate) cause: Cause,
    /// Its number among the slots.
    pub(crate) poller: Option<usize>,
    pub(crate) usage: ThreadUsage,
}

/// Written by the reactor alone, read by any thread.
#[derive(Default)]
pub(crate) struct StallCell {
    sequence: Sequence,
    words: Words<WORDS>,
}

impl StallCell {
    /// There was another one.
    pub(crate) fn write(&self, stall: StallRecord) {
        let StallRecord { began, duration, cause, poller, usage } = stall;
        let [number, ..] = load(&self.words);
        let ThreadUsage { page_faults, involuntary, voluntary } = usage;
        // A poller's number is far below 2^64: it is told one higher, and 0 is none.
        let poller = poller.map_or(0, |poller| poller as u64 + 1);
        let words =
            [number.saturating_add(1), began, duration, cause.word(), poller, page_faults, involuntary, voluntary];
        self.sequence.write(|| store(&self.words, words));
    }

    /// How many there were.
    pub(crate) fn number(&self) -> u64 {
        let [number, ..] = &self.words;
        number.load(Ordering::Relaxed)
    }

    /// The last one, if there was any; `name` knows those of pollers.
    pub(crate) fn read(&self, name: impl FnOnce(usize) -> Option<&'static str>) -> Option<Stall> {
        let [number, began, duration, cause, poller, page_faults, involuntary_switches, voluntary_switches] =
            self.sequence.read(|| load(&self.words));
        let poller = poller.checked_sub(1).and_then(|poller| name(usize::try_from(poller).ok()?));
        let cause = Cause::of_word(cause).filter(|_| number > 0)?;
        let [began, duration] = [began, duration].map(Duration::from_nanos);
        Some(Stall { number, began, duration, cause, poller, page_faults, involuntary_switches, voluntary_switches })
    }
}
