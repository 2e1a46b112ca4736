//! One run of a seed, and its journal.

use crate::{Cut, Random, TraceHash};
use core::cell::{Cell, RefCell};
use core::fmt::Write as _;
use std::collections::{BTreeMap, VecDeque};

/// Events kept of a run that is told.
const EVENTS: usize = 60;

/// What a run came to. Two runs of the same seed and cut come to the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of all that the simulation gave to its journal.
    pub trace: u64,
    /// Requests that were submitted.
    pub requests: u64,
    /// Faults that struck, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// What else was counted, by name.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Outcome {
    /// Adds another one's numbers.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        for (sum, of) in [(&mut self.faults, &other.faults), (&mut self.counts, &other.counts)] {
            for (name, count) in of {
                *sum.entry(name).or_default() += count;
            }
        }
    }

    /// Faults that struck.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// One run of a seed: what takes place of it, and its journal. One thread.
#[derive(Debug)]
pub struct Run {
    seed: u64,
    cut: Cut,
    told: bool,
    drawn: Cell<u64>,
    trace: Cell<TraceHash>,
    outcome: RefCell<Outcome>,
    events: RefCell<VecDeque<String>>,
}

impl Run {
    /// What of a seed `cut` leaves. One that is told keeps its last events as text, which takes time.
    #[must_use]
    pub fn new(seed: u64, cut: Cut, told: bool) -> Self {
        Self {
            seed,
            cut,
            told,
            drawn: Cell::new(0),
            trace: Cell::new(TraceHash::new()),
            outcome: RefCell::default(),
            events: RefCell::default(),
        }
    }

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The source of all chance.
    #[must_use]
    pub const fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// A fault was drawn. False where it is left out of this run.
    #[must_use]
    pub fn strikes(&self, name: &'static str) -> bool {
        let number = self.drawn.replace(self.drawn.get() + 1);
        let strikes = self.cut.faults.as_ref().is_none_or(|faults| faults.contains(&number));
        if strikes {
            *self.outcome.borrow_mut().faults.entry(name).or_default() += 1;
            self.note(number);
            self.event(|| format!("fault {number}: {name}"));
        }
        strikes
    }

    /// Whether one more request may be submitted.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        let submitted = self.outcome.borrow().requests;
        self.cut.requests.is_none_or(|most| submitted < most)
    }

    /// A request was submitted.
    pub fn submitted(&self) {
        self.outcome.borrow_mut().requests += 1;
    }

    /// Something happened that the totals name.
    pub fn count(&self, name: &'static str, count: u64) {
        *self.outcome.borrow_mut().counts.entry(name).or_default() += count;
    }

    /// Something happened, as a number of the trace.
    pub fn note(&self, value: u64) {
        let mut trace = self.trace.get();
        trace.add(value);
        self.trace.set(trace);
    }

    /// The same of what has no number: by its text, which takes time.
    pub fn note_text(&self, what: impl core::fmt::Debug) {
        let mut trace = self.trace.get();
        let _ = write!(trace, "{what:?}");
        self.trace.set(trace);
    }

    /// Something happened that a reader of a failure wants to know; its text is made only for runs that are told.
    pub fn event(&self, text: impl FnOnce() -> String) {
        if self.told {
            let mut events = self.events.borrow_mut();
            if events.len() == EVENTS {
                events.pop_front();
            }
            events.push_back(text());
        }
    }

    /// Faults drawn so far, struck or left out.
    pub(crate) fn drawn(&self) -> u64 {
        self.drawn.get()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.borrow().iter().cloned().collect()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        Outcome { trace: self.trace.get().value(), ..self.outcome.borrow().clone() }
    }
}
