//! Changes of a target that serves: one after the other, each taken wholly or not at all.

use super::{
    super::{
        change::Change,
        namespaces::Identity,
        orders::{Order, Orders, Ticket},
    },
    deadlines::{GRACE, MAX_WITHIN, STEP_TIME},
    planned::{Asker, Behind, Planned, Step, stands_still},
};
use crate::control::{Failure, NOT_DONE, PARTLY_DONE};
use core::time::Duration;
use frwr_engine::provider::CommandError;
use frwr_nvmf::{
    controller::{ChangeEvent, ChangeId},
    storage::AnyStorage,
};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Between two looks at what becomes of a change that somebody waits for.
pub(super) const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// The same where nobody does any more.
const LATE_LOOK_PERIOD: Duration = Duration::from_secs(1);
/// In place of a change's number: nobody waits for it, as for what takes back what a core has done of one.
const TAKES_BACK: u64 = 0;
/// The same of what only follows something else, and is told again where that changes: nobody has to hear that a target did not take it,
/// since it ends, or has no such subsystem any more.
const FOLLOWS: u64 = u64::MAX;
/// Changes that were taken back and are remembered until all cores have said what came of them: one at a time is, of each device.
const MAX_TAKEN_BACK: usize = 64;
/// Why an undo that a device took did not come to its end.
const NOT_GIVEN: &str = "a core had not been given what it needs";

/// One change under way.
#[derive(Debug)]
struct UnderWay {
    asker: Asker,
    number: u64,
    /// Cores that are still to be told, each for a device, in order.
    left: VecDeque<Step>,
    /// What cores do that have done it, where it is undone.
    done: Vec<(usize, Change)>,
    /// The core that has been told.
    told: Option<Told>,
    /// What that core said.
    answer: Option<Result<Option<ChangeId>, String>>,
    /// What the targets of devices do behind what they were told, and until when that is waited for.
    goes_on: Vec<Number>,
    until: Duration,
    /// Why it is not made, where devices have begun with it.
    failure: Option<Failure>,
    held_up_by: Vec<String>,
    became: Became,
    /// What a step has done cannot be undone, and how many have.
    for_good: bool,
    made: usize,
    answers: Option<Value>,
    behind: Option<Behind>,
    /// What undoes it is a change by itself, whose steps are made in the same order, each behind the one before.
    in_order: bool,
}

/// A change of the target of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    device: usize,
    id: ChangeId,
}

/// What the target has said of a change by now.
#[derive(Clone, Copy, Debug)]
struct Became {
    /// Devices whose cores have all taken it, and those of which none has.
    taken: usize,
    failed: usize,
    /// Why the device cannot listen where it should.
    refused: Option<CommandError>,
    /// What cores still have left of it.
    parts: usize,
}

impl Became {
    /// So many devices have said whether they have taken it.
    fn is_settled(self, devices: usize) -> bool {
        self.taken + self.failed >= devices
    }

    /// Nothing more is to be said of it by so many devices.
    fn is_over(self, devices: usize) -> bool {
        self.is_settled(devices) && (self.failed > 0 || self.parts == 0)
    }

    /// Why nothing came of it.
    fn failure(self) -> Failure {
        let reason = match self.refused {
            Some(reason) => format!(
                "the device cannot listen there ({reason}): the address is taken, or is none of its network interface; nothing was \
                 changed; `ip address` lists those that there are"
            ),
            None => "a core had not been given what the change needs; nothing was changed; try again".to_owned(),
        };
        Failure::new(NOT_DONE, reason)
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Taken(true) => self.taken += 1,
            Said::Taken(false) => self.failed += 1,
            Said::CannotListen(reason) => (self.failed, self.refused) = (self.failed + 1, Some(reason)),
            Said::Part => self.parts = self.parts.saturating_sub(1),
        }
    }
}

#[derive(Clone, Copy)]
enum Said {
    Taken(bool),
    CannotListen(CommandError),
    Part,
}

/// An order that is not answered.
#[derive(Debug)]
struct Told {
    /// Which core, for which device.
    unit: usize,
    until: Duration,
    ticket: Ticket,
    undo: Option<Change>,
}

/// A change that was answered before it was complete.
#[derive(Debug)]
struct Unfinished {
    numbers: Vec<Number>,
    became: Became,
    /// The namespace that it makes smaller.
    shrinks: Option<Identity>,
}

/// All changes that were asked for.
#[derive(Debug, Default)]
pub(super) struct Changes {
    line: VecDeque<UnderWay>,
    count: u64,
    /// Changes that were answered before they were complete: as many as the target has under way.
    unfinished: Vec<Unfinished>,
    /// Namespaces that cores have said are gone there, once for each core.
    gone: Vec<Identity>,
    /// Changes of devices by which namespaces go that never were there on all of them, the oldest first.
    taken_back: VecDeque<Number>,
    next_look: Duration,
}

/// What a device has done of a change that was not made, and did not undo.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stays {
    pub(super) device: usize,
    pub(super) reason: String,
}

/// A change that is over, as far as who asked waits for it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) asker: Asker,
    pub(super) result: Result<Value, Failure>,
    /// What is to be done behind it.
    pub(super) behind: Option<Behind>,
}

/// What a change is answered that is complete.
pub(super) fn done(changed: bool) -> Value {
    json!({ "changed": changed, "complete": true })
}

/// A change that follows something else, and that a core may be told of at any time: it neither begins anything nor fails.
pub(super) fn unasked(change: Change) -> Order {
    Order::Change { number: FOLLOWS, change: Box::new(change), ticket: Ticket::default() }
}

/// What takes back what a core has done of a change.
fn takes_back(change: Change) -> Order {
    Order::Change { number: TAKES_BACK, change: Box::new(change), ticket: Ticket::default() }
}

impl Changes {
    /// One more, behind the others.
    pub(super) fn queue(&mut self, asker: Asker, planned: Planned) {
        self.count += 1;
        self.line.push_back(UnderWay {
            asker,
            number: self.count,
            left: planned.steps,
            done: Vec::new(),
            told: None,
            answer: None,
            goes_on: Vec::new(),
            until: Duration::ZERO,
            failure: None,
            held_up_by: Vec::new(),
            became: Became { taken: 0, failed: 0, refused: None, parts: planned.parts },
            for_good: planned.for_good,
            made: planned.made,
            answers: planned.answers,
            behind: planned.behind,
            in_order: planned.in_order,
        });
    }

    /// Undoes what was done of a change whose steps need each other, before anything else is changed.
    fn reverse(&mut self, steps: VecDeque<Step>, before: Option<Behind>) {
        if !steps.is_empty() {
            self.queue(Asker::Undo, Planned { behind: before, ..Planned::steps(steps) });
            self.line.rotate_right(1);
        }
    }

    /// No change is under way that somebody waits for.
    pub(super) fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    /// Whatever was changed is so on all cores of all devices: nothing holds up what they have still to do for it.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn settled(&self) -> Result<(), Failure> {
        if self.unfinished.is_empty() && self.gone.is_empty() {
            return Ok(());
        }
        let text = "a change before is not complete, since hosts or a medium hold it up; nothing was changed; drain those, or try again \
                    when it is (`hosts`, `namespaces` tell)";
        Err(Failure::new(NOT_DONE, text))
    }

    /// A device leaves, which says no more of what it was told.
    pub(super) fn forget_device(&mut self, device: usize) {
        self.unfinished.retain(|unfinished| unfinished.numbers.iter().all(|number| number.device != device));
        self.taken_back.retain(|number| number.device != device);
    }

    /// Nothing more is changed. What a change has made that was not complete does not stay.
    pub(super) fn end(self) {
        for change in self.line {
            if let Some(Behind::KeyTraceBegun(trace)) = change.behind {
                trace.give_up();
            }
        }
    }

    /// A core has answered, for a device. What that begins has its number from now on: the device may tell of it before anything else is
    /// done here. What it did not undo.
    pub(super) fn answered(
        &mut self,
        (unit, device): (usize, usize),
        number: u64,
        result: Result<Option<ChangeId>, String>,
    ) -> Option<Stays> {
        if number == TAKES_BACK {
            self.take_back(result.iter().flatten().map(|id| Number { device, id: *id }));
            return result.err().map(|reason| Stays { device, reason });
        }
        if let Some(first) = self.line.front_mut().filter(|first| first.number == number)
            && first.told.as_ref().is_some_and(|told| told.unit == unit)
        {
            first.goes_on.extend(result.iter().flatten().map(|id| Number { device, id: *id }));
            first.answer = Some(result);
        }
        None
    }

    /// The target of a device says what became of a change. Storages of namespaces that are gone end with this. What it did not undo.
    pub(super) fn became(&mut self, device: usize, event: ChangeEvent<AnyStorage>) -> Option<Stays> {
        let of = |id| Number { device, id };
        if let ChangeEvent::Undone { id } | ChangeEvent::CannotListen { id, .. } = &event
            && self.taken_back.contains(&of(*id))
            && self.first(of(*id)).is_none()
        {
            let reason = match &event {
                ChangeEvent::CannotListen { reason, .. } => format!("it cannot listen there: {reason}"),
                _ => NOT_GIVEN.to_owned(),
            };
            return Some(Stays { device, reason });
        }
        match event {
            ChangeEvent::Done { id } => self.said(of(id), Said::Taken(true)),
            ChangeEvent::Undone { id } => self.said(of(id), Said::Taken(false)),
            ChangeEvent::CannotListen { id, reason } => self.said(of(id), Said::CannotListen(reason)),
            ChangeEvent::HeldUp { id, by } => {
                self.first(of(id)).into_iter().for_each(|change| change.held_up_by.push(by.to_string()));
            }
            ChangeEvent::Removed { id, subsystem, identifier, .. } => {
                if !self.never_was(of(id)) {
                    self.gone.push((subsystem, identifier));
                }
                self.said(of(id), Said::Part);
            }
            ChangeEvent::Shrunk { id } | ChangeEvent::Superseded { id } => self.said(of(id), Said::Part),
        }
        None
    }

    /// Namespaces that go by these never came.
    fn take_back(&mut self, numbers: impl IntoIterator<Item = Number>) {
        self.taken_back.extend(numbers);
        self.taken_back.drain(..self.taken_back.len().saturating_sub(MAX_TAKEN_BACK));
    }

    /// What goes by this change never was a namespace of all devices: one that adds, and was taken back.
    fn never_was(&mut self, number: Number) -> bool {
        let adds = |first: &mut UnderWay| matches!(first.behind, Some(Behind::Added(..)));
        self.taken_back.contains(&number) || self.first(number).is_some_and(adds)
    }

    /// The change that somebody waits for, if it has that number.
    fn first(&mut self, number: Number) -> Option<&mut UnderWay> {
        self.line.front_mut().filter(|first| first.goes_on.contains(&number))
    }

    fn said(&mut self, number: Number, said: Said) {
        if let Some(first) = self.first(number) {
            first.became.hear(said);
        }
        for unfinished in self.unfinished.iter_mut().filter(|unfinished| unfinished.numbers.contains(&number)) {
            unfinished.became.hear(said);
        }
        self.unfinished.retain(|unfinished| !unfinished.became.is_over(unfinished.numbers.len()));
    }

    /// A namespace has another size, or is gone: cores never say of an earlier, smaller one that it is reached.
    fn forget_shrinking(&mut self, namespace: Identity) {
        self.unfinished.retain(|unfinished| unfinished.shrinks != Some(namespace));
    }

    /// A namespace that is gone on so many cores, of each device, which are all.
    pub(super) fn next_gone(&mut self, units: usize) -> Option<Identity> {
        let count = |one: &&Identity| self.gone.iter().filter(|other| other == one).count() >= units;
        let gone = self.gone.iter().find(count).copied()?;
        self.gone.retain(|other| *other != gone);
        self.forget_shrinking(gone);
        Some(gone)
    }

    /// Brings the first change on: one that is over.
    pub(super) fn turn(&mut self, now: Duration, orders: &mut Orders) -> Option<Ended> {
        self.look(now, orders);
        let first = self.line.front_mut()?;
        let result = first.advance(now, orders)?;
        let UnderWay { asker, goes_on: numbers, became, behind, done, .. } = self.line.pop_front()?;
        let undoes = done.into_iter().map(|(unit, change)| Step { unit, change, undo: None });
        self.reverse(undoes.collect(), behind.as_ref().and_then(Behind::undone));
        if result.is_err() && matches!(behind, Some(Behind::Added(..))) {
            self.take_back(numbers.iter().copied());
        }
        let shrinks = behind.as_ref().and_then(Behind::resized);
        if let Some(namespace) = shrinks.filter(|_| result.is_ok()) {
            self.forget_shrinking(namespace);
        }
        // One that was not made ends with what undoes it.
        let goes_on = result.is_ok() || shrinks.is_none();
        if goes_on && !became.is_over(numbers.len()) && !numbers.is_empty() {
            self.unfinished.push(Unfinished { numbers, became, shrinks });
        }
        Some(Ended { asker, result, behind })
    }

    /// Asks what became of changes, where something goes on.
    fn look(&mut self, now: Duration, orders: &mut Orders) {
        let waits = self.line.front().is_some_and(|first| !first.goes_on.is_empty());
        if now < self.next_look || !waits && self.unfinished.is_empty() {
            return;
        }
        self.next_look = now.saturating_add(if waits { LOOK_PERIOD } else { LATE_LOOK_PERIOD });
        for unit in orders.numbers() {
            // Once is enough for a core that stands still for a while, and leaves it room for orders that matter.
            if orders.has_none_left(unit) {
                orders.give(unit, Order::Outcome);
            }
        }
    }
}

impl UnderWay {
    /// What came of it, once that is known.
    fn advance(&mut self, now: Duration, orders: &mut Orders) -> Option<Result<Value, Failure>> {
        if let Some(told) = self.told.take() {
            match self.answer.take() {
                Some(Ok(id)) => self.is_made(told, id.is_some(), now),
                Some(Err(reason)) => self.fails(Failure::new(NOT_DONE, format!("{reason}; nothing was changed"))),
                // Where the core was faster its answer is on its way.
                None if now >= told.until && told.ticket.withdraw() => {
                    self.fails(stands_still(orders.reactor_of(told.unit)));
                }
                None => {
                    self.told = Some(told);
                    return None;
                }
            }
        }
        if let Some(Step { unit, change, undo }) = self.left.pop_front() {
            let (number, change, ticket) = (self.number, Box::new(change), Ticket::default());
            if orders.give(unit, Order::Change { number, change, ticket: ticket.clone() }) {
                self.told = Some(Told { unit, until: now.saturating_add(STEP_TIME), ticket, undo });
                return None;
            }
            self.fails(stands_still(orders.reactor_of(unit)));
        }
        self.outcome(now >= self.until, orders)
    }

    /// A core has done its step, or begun something whose end the target of that device tells.
    fn is_made(&mut self, told: Told, goes_on: bool, now: Duration) {
        self.made += 1;
        self.done.extend(told.undo.map(|undo| (told.unit, undo)));
        if goes_on {
            self.until = now.saturating_add(MAX_WITHIN + GRACE);
        }
    }

    /// It will not be made. What devices have begun is waited for: until then they take no change, and so not what undoes it.
    fn fails(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.left.clear();
    }

    /// What came of it on all devices, or nothing until that is known or time is up.
    fn outcome(&mut self, is_late: bool, orders: &mut Orders) -> Option<Result<Value, Failure>> {
        let is_settled = self.became.is_settled(self.goes_on.len());
        if self.failure.is_none() && self.became.failed > 0 && (is_settled || is_late) {
            self.failure = Some(self.became.failure());
        }
        if let Some(failure) = self.failure.take_if(|_| is_settled || is_late) {
            return Some(Err(self.give_up(failure, orders)));
        }
        if self.failure.is_some() {
            return None;
        }
        let is_over = self.goes_on.is_empty() || self.became.is_over(self.goes_on.len());
        if !is_over && !is_late && self.held_up_by.is_empty() {
            return None;
        }
        self.done.clear();
        // Told once that it is held up, it goes on by itself.
        let held_up = || json!({ "changed": true, "complete": false, "held_up_by": self.held_up_by });
        Some(Ok(if is_over { self.answers.take().unwrap_or_else(|| done(true)) } else { held_up() }))
    }

    /// It is undone where it was done, or where that cannot be somebody is told how far it came.
    fn give_up(&mut self, failure: Failure, orders: &mut Orders) -> Failure {
        if !self.in_order {
            self.take_back(orders);
        }
        if !self.for_good || self.made == 0 {
            return failure;
        }
        let why = failure.message.strip_suffix("; nothing was changed").unwrap_or(&failure.message);
        let made = self.made;
        let text = format!("{why}; {made} of the devices had done it, which stays so; call it again for the others");
        Failure::new(PARTLY_DONE, text)
    }

    /// Cores that have done it undo it.
    fn take_back(&mut self, orders: &mut Orders) {
        for (unit, undo) in core::mem::take(&mut self.done).into_iter().rev() {
            // A core that stands still since does it when it goes on.
            orders.give(unit, takes_back(undo));
        }
    }
}

#[cfg(test)]
mod tests;
