//! The load: which request is next, and when it is meant to begin. Pure choices; the job makes requests of them.

use super::{
    Operation,
    options::{AddressOrder, Change, LoadOptions, Mix, Rate},
    random::Random,
};
use crate::schedule::Schedule;
use core::{ops::Range, time::Duration};

/// Tries to find a place that no request works on before the job waits for completions.
const PICK_TRIES: u32 = 8;

/// When a load begins, is measured, and ends, on the clock of all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first request may begin.
    pub(super) begins: Duration,
    /// Requests count that are meant to begin from now on.
    pub(super) counts: Duration,
    /// No request begins any more.
    pub(super) ends: Duration,
}

/// A part of the load, for one core.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) units: Range<u64>,
    pub(super) number: u64,
    pub(super) of: u64,
}

/// What the next request is, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) operation: Operation,
    pub(super) first: u64,
    pub(super) units: u64,
}

/// What is known of the next request. What was drawn stays until it has been submitted: a mix is what it was asked to be, also where
/// some requests find room sooner than others.
#[derive(Clone, Copy, Debug)]
enum Next {
    Undrawn,
    /// Not yet where.
    Drawn(Operation, u64),
    Chosen(Choice),
}

/// The load of one core.
#[derive(Debug)]
pub(super) struct LoadState {
    options: LoadOptions,
    part: Part,
    times: Option<Times>,
    schedule: Option<Schedule>,
    /// Behind the last read, write and trim of a sequential load.
    cursors: [u64; 3],
    /// Bytes that may still begin.
    left: Option<u64>,
    next: Next,
}

impl LoadState {
    /// Of all units, before it has begun.
    pub(super) fn new(options: LoadOptions, units: Range<u64>) -> Self {
        let (cursors, left) = ([units.start; 3], options.bytes);
        let part = Part { units, number: 0, of: 1 };
        Self { options, part, times: None, schedule: None, cursors, left, next: Next::Undrawn }
    }

    /// It begins, with all units.
    pub(super) fn begin(&mut self, now: Duration) {
        let counts = now.saturating_add(self.options.ramp);
        let times = Times { begins: now, counts, ends: counts.saturating_add(self.options.runtime) };
        self.begin_part(self.part.clone(), times);
    }

    /// It begins, or has just begun, with a part of them.
    pub(super) fn begin_part(&mut self, part: Part, times: Times) {
        self.cursors = [part.units.start; 3];
        let (number, of) = (part.number * self.options.loads + self.options.number, part.of * self.options.loads);
        // No byte is lost among the parts.
        let up_to = |all: u64, number: u64| (u128::from(all) * u128::from(number) / u128::from(of)) as u64;
        self.left = self.options.bytes.map(|all| up_to(all, number + 1) - up_to(all, number));
        self.schedule = self.options.rate.map(|rate| {
            let (Rate::Requests(rate) | Rate::Bytes(rate)) = rate;
            Schedule::new(times.begins, rate.get(), number, of)
        });
        (self.part, self.times, self.next) = (part, Some(times), Next::Undrawn);
    }

    /// `None` before it has begun.
    pub(super) fn times(&self) -> Option<Times> {
        self.times
    }

    /// Nothing more begins.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.left == Some(0) || self.times.is_some_and(|times| now >= times.ends)
    }

    /// When time alone brings something next: a request at a rate, the end of the ramp, or of the load. What is due already waits for
    /// something else.
    pub(super) fn due_at(&self, now: Duration) -> Option<Duration> {
        let Times { counts, ends, .. } = self.times?;
        let next = self.schedule.as_ref().map(Schedule::next);
        next.into_iter().chain([counts, ends]).filter(|at| *at > now).min()
    }

    /// How long what is next has waited for a place already, at a rate.
    pub(super) fn behind(&self, now: Duration) -> Option<Duration> {
        self.schedule.as_ref().map(|schedule| now.saturating_sub(schedule.next()))
    }

    /// What is next, where something is due and has a place that is free; the same until [`Self::submitted`].
    pub(super) fn choose(
        &mut self,
        now: Duration,
        random: &mut Random,
        is_free: impl Fn(Range<u64>) -> bool,
    ) -> Option<Choice> {
        if self.left == Some(0) || self.schedule.as_ref().is_some_and(|schedule| schedule.next() > now) {
            return None;
        }
        let (operation, units) = match self.next {
            Next::Chosen(choice) => return Some(choice),
            Next::Drawn(operation, units) => (operation, units),
            Next::Undrawn => self.draw(random),
        };
        self.next = Next::Drawn(operation, units);
        let first = match self.options.order {
            AddressOrder::Sequential => Some(self.following(operation, units)).filter(|at| is_free(*at..at + units)),
            AddressOrder::Random => {
                let Range { start, end } = self.part.units;
                let places = (end - start).saturating_sub(units) + 1;
                (0..PICK_TRIES).map(|_| start + random.below(places)).find(|at| is_free(*at..at + units))
            }
        }?;
        let choice = Choice { operation, first, units };
        self.next = Next::Chosen(choice);
        Some(choice)
    }

    fn draw(&self, random: &mut Random) -> (Operation, u64) {
        let Mix { reads, change } = self.options.mix;
        let reads = reads == 100 || (reads > 0 && random.below(100) < reads.into());
        let operation = match change {
            _ if reads => Operation::Read,
            Change::Write => Operation::Write,
            Change::Trim => Operation::Trim,
        };
        let sizes = &self.options.sizes;
        let units = u64::from(sizes.draw(operation, random) / sizes.unit());
        // A part that is shorter is one request.
        (operation, units.clamp(1, self.part.units.end - self.part.units.start))
    }

    /// Where the next one of that kind is, in order.
    fn following(&self, operation: Operation, units: u64) -> u64 {
        let at = self.cursors[cursor(operation)];
        if at + units > self.part.units.end { self.part.units.start } else { at }
    }

    /// What was chosen last is on its way, and has so many bytes: when it was meant to begin.
    pub(super) fn submitted(&mut self, choice: Choice, bytes: u64, now: Duration) -> Duration {
        self.next = Next::Undrawn;
        self.cursors[cursor(choice.operation)] = choice.first + choice.units;
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        let periods = if matches!(self.options.rate, Some(Rate::Bytes(_))) { bytes } else { 1 };
        self.schedule.as_mut().and_then(|schedule| schedule.take_several(now, periods)).unwrap_or(now)
    }
}

fn cursor(operation: Operation) -> usize {
    match operation {
        Operation::Read | Operation::Flush => 0,
        Operation::Write => 1,
        Operation::Trim => 2,
    }
}
