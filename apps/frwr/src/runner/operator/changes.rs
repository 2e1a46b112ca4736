//! Changes of a target that serves: one after the other, each taken wholly or not at all.

use super::{
    super::{
        change::Change,
        media_watch::Identity,
        orders::{Order, Orders, Ticket},
    },
    planned::{Asker, Behind, MAX_WITHIN, Planned, STEP_TIME, Step, stands_still},
};
use crate::control::{Failure, NOT_DONE};
use core::time::Duration;
use frwr_engine::provider::CommandError;
use frwr_nvmf::{
    controller::{ChangeEvent, ChangeId},
    storage::AnyStorage,
};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Between two looks at what becomes of a change that somebody waits for.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// The same where nobody does any more.
const LATE_LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Behind that time each core has told what holds the change up.
const GRACE: Duration = Duration::from_secs(1);

/// One change under way.
#[derive(Debug)]
struct UnderWay {
    asker: Asker,
    number: u64,
    /// Cores that are still to be told, in order.
    left: VecDeque<Step>,
    /// What cores do that have done it, where it is undone.
    done: Vec<(usize, Change)>,
    /// The core that has been told.
    told: Option<Told>,
    /// What that core said.
    answer: Option<Result<Option<ChangeId>, String>>,
    /// What the target does behind the last step, until when that is waited for, and what holds it up.
    goes_on: Option<(ChangeId, Duration)>,
    held_up_by: Vec<String>,
    became: Became,
    behind: Option<Behind>,
}

/// What the target has said of a change by now.
#[derive(Clone, Copy, Debug)]
struct Became {
    /// All cores have taken it, or none.
    taken: Option<bool>,
    /// Why the device cannot listen where it should.
    refused: Option<CommandError>,
    /// What cores still have left of it.
    parts: usize,
}

impl Became {
    /// Nothing more is to be said of it.
    fn is_over(self) -> bool {
        self.taken == Some(false) || self.taken == Some(true) && self.parts == 0
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
            Said::Taken(taken) => self.taken = Some(taken),
            Said::CannotListen(reason) => (self.taken, self.refused) = (Some(false), Some(reason)),
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
    core: usize,
    until: Duration,
    ticket: Ticket,
    undo: Option<Change>,
}

/// A change that was answered before it was complete.
#[derive(Debug)]
struct Unfinished {
    id: ChangeId,
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
    /// What is to be done behind changes, and whether they were made.
    ended: VecDeque<(Behind, bool)>,
    next_look: Duration,
}

/// What a change is answered that is complete.
pub(super) fn done(changed: bool) -> Value {
    json!({ "changed": changed, "complete": true })
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
            goes_on: None,
            held_up_by: Vec::new(),
            became: Became { taken: None, refused: None, parts: planned.parts },
            behind: planned.behind,
        });
    }

    /// No change is under way that somebody waits for.
    pub(super) fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    /// A core has answered.
    pub(super) fn answered(&mut self, core: usize, number: u64, result: Result<Option<ChangeId>, String>) {
        if let Some(first) = self.line.front_mut().filter(|first| first.number == number)
            && first.told.as_ref().is_some_and(|told| told.core == core)
        {
            first.answer = Some(result);
        }
    }

    /// The target says what became of a change. Storages of namespaces that are gone end with this.
    pub(super) fn became(&mut self, event: ChangeEvent<AnyStorage>) {
        match event {
            ChangeEvent::Done { id } => self.said(id, Said::Taken(true)),
            ChangeEvent::Undone { id } => self.said(id, Said::Taken(false)),
            ChangeEvent::CannotListen { id, reason } => self.said(id, Said::CannotListen(reason)),
            ChangeEvent::HeldUp { id, by } => {
                self.first(id).into_iter().for_each(|change| change.held_up_by.push(by.to_string()));
            }
            ChangeEvent::Removed { id, subsystem, identifier, .. } => {
                self.gone.push((subsystem, identifier));
                self.said(id, Said::Part);
            }
            ChangeEvent::Shrunk { id } | ChangeEvent::Superseded { id } => self.said(id, Said::Part),
        }
    }

    /// The change that somebody waits for, if it has that number.
    fn first(&mut self, id: ChangeId) -> Option<&mut UnderWay> {
        self.line.front_mut().filter(|first| first.goes_on.is_some_and(|(waits_for, _)| waits_for == id))
    }

    fn said(&mut self, id: ChangeId, said: Said) {
        if let Some(first) = self.first(id) {
            first.became.hear(said);
        }
        for unfinished in self.unfinished.iter_mut().filter(|unfinished| unfinished.id == id) {
            unfinished.became.hear(said);
        }
        self.unfinished.retain(|unfinished| !unfinished.became.is_over());
    }

    /// A namespace has another size, or is gone: cores never say of an earlier, smaller one that it is reached.
    fn forget_shrinking(&mut self, namespace: Identity) {
        self.unfinished.retain(|unfinished| unfinished.shrinks != Some(namespace));
    }

    /// What is to be done behind a change, and whether it was made.
    pub(super) fn next_ended(&mut self) -> Option<(Behind, bool)> {
        self.ended.pop_front()
    }

    /// A namespace that is gone on so many cores, which are all.
    pub(super) fn next_gone(&mut self, cores: usize) -> Option<Identity> {
        let count = |one: &&Identity| self.gone.iter().filter(|other| other == one).count() >= cores;
        let gone = self.gone.iter().find(count).copied()?;
        self.gone.retain(|other| *other != gone);
        self.forget_shrinking(gone);
        Some(gone)
    }

    /// Brings the first change on. Those that are over, with what is answered.
    pub(super) fn turn(&mut self, now: Duration, orders: &mut Orders) -> Option<(Asker, Result<Value, Failure>)> {
        self.look(now, orders);
        let first = self.line.front_mut()?;
        let result = first.advance(now, orders)?;
        let UnderWay { asker, goes_on, became, behind, .. } = self.line.pop_front()?;
        let shrinks = behind.as_ref().and_then(Behind::resized);
        if let Some(namespace) = shrinks.filter(|_| result.is_ok()) {
            self.forget_shrinking(namespace);
        }
        if let Some((id, _)) = goes_on.filter(|_| !became.is_over()) {
            self.unfinished.push(Unfinished { id, became, shrinks });
        }
        self.ended.extend(behind.map(|behind| (behind, result.is_ok())));
        Some((asker, result))
    }

    /// Asks what became of changes, where something goes on.
    fn look(&mut self, now: Duration, orders: &mut Orders) {
        let waits = self.line.front().is_some_and(|first| first.goes_on.is_some());
        if now < self.next_look || !waits && self.unfinished.is_empty() {
            return;
        }
        self.next_look = now.saturating_add(if waits { LOOK_PERIOD } else { LATE_LOOK_PERIOD });
        for core in 0..orders.cores() {
            // Once is enough for a core that stands still for a while, and leaves it room for orders that matter.
            if orders.has_none_left(core) {
                orders.give(core, Order::Outcome);
            }
        }
    }
}

impl UnderWay {
    /// What came of it, once that is known.
    fn advance(&mut self, now: Duration, orders: &mut Orders) -> Option<Result<Value, Failure>> {
        if let Some((_, until)) = self.goes_on {
            return self.outcome(now >= until);
        }
        if let Some(told) = self.told.take() {
            match self.answer.take() {
                Some(Ok(id)) => {
                    self.done.extend(told.undo.map(|undo| (told.core, undo)));
                    if let Some(id) = id.filter(|_| self.left.is_empty()) {
                        self.goes_on = Some((id, now.saturating_add(MAX_WITHIN + GRACE)));
                        return None;
                    }
                }
                Some(Err(reason)) => {
                    self.take_back(orders);
                    return Some(Err(Failure::new(NOT_DONE, format!("{reason}; nothing was changed"))));
                }
                // Where the core was faster its answer is on its way.
                None if now >= told.until && told.ticket.withdraw() => {
                    self.take_back(orders);
                    return Some(Err(stands_still(told.core)));
                }
                None => {
                    self.told = Some(told);
                    return None;
                }
            }
        }
        let Some(Step { core, change, undo }) = self.left.pop_front() else { return Some(Ok(done(true))) };
        let (number, change, ticket) = (self.number, Box::new(change), Ticket::default());
        if !orders.give(core, Order::Change { number, change, ticket: ticket.clone() }) {
            self.take_back(orders);
            return Some(Err(stands_still(core)));
        }
        self.told = Some(Told { core, until: now.saturating_add(STEP_TIME), ticket, undo });
        None
    }

    /// What the target says of it, or nothing until time is up.
    fn outcome(&mut self, is_late: bool) -> Option<Result<Value, Failure>> {
        match self.became.taken {
            Some(true) if self.became.is_over() => Some(Ok(done(true))),
            Some(false) => Some(Err(self.became.failure())),
            // Told once that it is held up, it goes on by itself.
            _ if is_late || !self.held_up_by.is_empty() => {
                Some(Ok(json!({ "changed": true, "complete": false, "held_up_by": self.held_up_by })))
            }
            _ => None,
        }
    }

    /// Cores that have done it undo it.
    fn take_back(&mut self, orders: &mut Orders) {
        for (core, undo) in core::mem::take(&mut self.done) {
            // Its answer is for no change that there is. A core that stands still since does it when it goes on.
            orders.give(core, Order::Change { number: 0, change: Box::new(undo), ticket: Ticket::default() });
        }
    }
}

#[cfg(test)]
mod tests;
