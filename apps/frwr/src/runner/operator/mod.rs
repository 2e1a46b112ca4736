//! Answers whoever asks a target that serves, and changes it: calls of the control socket, and SIGUSR1, whose report is the same. All
//! of it is the main thread's; cores hand over what they have when they are asked, and do what they are told.

mod answers;
mod changes;
mod facts;
mod families;
mod host_changes;
mod listeners;
mod methods;
mod metrics;
mod namespace_changes;
mod namespace_figures;
mod parameters;
mod planned;
mod recent;
mod subsystem_changes;

pub(super) use facts::Facts;
pub use methods::{MethodDescription, methods};
pub use parameters::Parameter;

use super::{
    media_watch::{Identity, MediaWatch},
    orders::{Answer, Orders},
    present::present,
    serve_report::ServedTarget,
    stock::Stock,
    survey::{Findings, Survey},
};
use crate::control::{Call, Caller, Failure, Server, Visitor, Web, wait};
use changes::Changes;
use core::time::Duration;
use frwr_engine::control::ControlStatistics;
use frwr_nvmf::controller::Incident;
use frwr_reactor::Statistics as ReactorStatistics;
use methods::Does;
use planned::{Behind, Known};
use serde_json::Value;
use std::collections::VecDeque;

/// Calls that are begun in a turn: each client has one under way at most.
const CALLS_PER_TURN: usize = crate::control::MAX_CLIENTS;

/// What the operator can ask the rest of the main thread for.
pub(super) struct Surroundings<'a> {
    /// Time since the main thread began.
    pub(super) now: Duration,
    pub(super) reactors: &'a dyn Fn() -> Vec<ReactorStatistics>,
    pub(super) control: &'a dyn Fn() -> ControlStatistics,
    /// What namespaces live in.
    pub(super) media: &'a mut MediaWatch,
}

/// A call that waits for what the cores say.
struct Waiting {
    caller: Caller,
    round: u64,
    call: Call,
    does: Does,
}

/// Where a target is asked.
#[derive(Debug, Default)]
pub(in super::super) struct Doors {
    /// The control socket.
    pub(in super::super) server: Option<Server>,
    /// The port of its metrics.
    pub(in super::super) web: Option<Web>,
}

/// Serves who asks.
pub(super) struct Operator {
    facts: Facts,
    stock: Stock,
    orders: Orders,
    doors: Doors,
    survey: Survey,
    waiting: Vec<Waiting>,
    /// Who waits for metrics, with the round that answers.
    visitors: Vec<(Visitor, u64)>,
    changes: Changes,
    /// Calls that change something and are not planned: each is, by what the cores say behind the end of the one before.
    unplanned: VecDeque<(Caller, Call, Does)>,
    /// Somebody asked by a signal: the round that answers.
    report: Option<u64>,
    /// How that is told.
    json: bool,
}

impl Operator {
    /// Of a target whose cores get these orders; reports that a signal asks for are JSON, or text.
    pub(super) fn new(facts: Facts, stock: Stock, orders: Orders, doors: Doors, json: bool) -> Self {
        Self {
            facts,
            stock,
            orders,
            doors,
            survey: Survey::default(),
            waiting: Vec::new(),
            visitors: Vec::new(),
            changes: Changes::default(),
            unplanned: VecDeque::new(),
            report: None,
            json,
        }
    }

    /// Nobody is answered any more. What is served by now.
    pub(super) fn end(self) -> ServedTarget {
        self.facts.served
    }

    /// Somebody asked for the report by a signal.
    pub(super) fn ask_report(&mut self) {
        self.report = Some(self.survey.want());
    }

    /// Something happened to a peer.
    pub(super) fn note(&mut self, now: Duration, incident: &Incident) {
        self.facts.recent.note(now, incident);
    }

    /// Somebody may say something at any time, and is to be heard soon.
    pub(super) fn is_attended(&self) -> bool {
        let Doors { server, web } = &self.doors;
        server.as_ref().is_some_and(Server::has_clients) || web.as_ref().is_some_and(Web::has_guests)
    }

    /// Waits for so long at most until somebody says something.
    pub(super) fn wait(&self, at_most: Duration) {
        let Doors { server, web } = &self.doors;
        let (server, web) = (server.iter().flat_map(Server::interests), web.iter().flat_map(Web::interests));
        wait(server.chain(web).collect(), at_most);
    }

    /// Does all that there is to do, within limits. Returns the work done; reports that were asked for by a signal are said.
    pub(super) fn turn(&mut self, surroundings: &mut Surroundings<'_>, say: &mut dyn FnMut(&str)) -> u32 {
        self.facts.now = surroundings.now;
        let Doors { server, web } = &mut self.doors;
        let mut work = server.as_mut().map_or(0, Server::turn) + web.as_mut().map_or(0, Web::turn);
        work += self.take_calls();
        self.take_answers();
        while let Some(namespace) = self.changes.next_gone(self.orders.cores()) {
            self.forget(namespace, surroundings.media);
        }
        while let Some((behind, is_so)) = self.changes.next_ended() {
            self.ended(behind, is_so, surroundings.media);
        }
        self.survey.begin(surroundings.now, &mut self.orders);
        if let Some((round, findings)) = self.survey.end(surroundings.now, surroundings.reactors, surroundings.control)
        {
            self.told(round, &findings, surroundings.media, say);
            work += 1;
        }
        while let Some((caller, result)) = self.changes.turn(surroundings.now, &mut self.orders) {
            self.answer(caller, result);
            work += 1;
        }
        self.plan_next();
        work
    }

    /// Asks the cores what the next change is planned by, when nothing changes that any more.
    fn plan_next(&mut self) {
        let is_planned = self.waiting.iter().any(|call| matches!(call.does, Does::Change(_)));
        if !is_planned
            && self.changes.is_idle()
            && let Some((caller, call, does)) = self.unplanned.pop_front()
        {
            let round = self.survey.want();
            self.waiting.push(Waiting { caller, round, call, does });
        }
    }

    fn take_calls(&mut self) -> u32 {
        let mut calls = 0;
        while calls < CALLS_PER_TURN
            && let Some((caller, call)) = self.doors.server.as_mut().and_then(Server::next_call)
        {
            calls += 1;
            self.begin(caller, call);
        }
        while let Some(visitor) = self.doors.web.as_mut().and_then(Web::next_visitor) {
            calls += 1;
            self.visitors.push((visitor, self.survey.want()));
        }
        // As many as there can be clients.
        calls as u32
    }

    fn begin(&mut self, caller: Caller, call: Call) {
        match methods::find(&call.method).map(|method| method.does) {
            Err(failure) => self.answer(caller, Err(failure)),
            Ok(Does::Tell(tell)) => {
                let result = tell(&mut self.facts, call.parameters);
                self.answer(caller, result);
            }
            Ok(does @ Does::Change(_)) => self.unplanned.push_back((caller, call, does)),
            Ok(does @ Does::Ask(_)) => {
                let round = self.survey.want();
                self.waiting.push(Waiting { caller, round, call, does });
            }
        }
    }

    fn take_answers(&mut self) {
        while let Some((core, answer)) = self.orders.next_answer() {
            match answer {
                Answer::Report { round, snapshot } => self.survey.answered(core, round, *snapshot),
                // A storage that came back is closed here.
                Answer::Changed { number, result, storage } => {
                    drop(storage);
                    self.changes.answered(core, number, result);
                }
                Answer::Withdrawn(change) => drop(change),
                Answer::Became(event) => self.changes.became(*event),
            }
        }
    }

    /// What the cores said in a round, to all who waited for it.
    fn told(&mut self, round: u64, findings: &Findings, media: &mut MediaWatch, say: &mut dyn FnMut(&str)) {
        if self.report.take_if(|wanted| *wanted <= round).is_some() {
            say(&present(&self.facts.served, findings, self.json));
        }
        self.show(round, findings);
        let (ready, later): (Vec<_>, _) =
            core::mem::take(&mut self.waiting).into_iter().partition(|call| call.round <= round);
        self.waiting = later;
        for Waiting { caller, call, does, .. } in ready {
            match does {
                Does::Tell(tell) => {
                    let result = tell(&mut self.facts, call.parameters);
                    self.answer(caller, result);
                }
                Does::Ask(ask) => {
                    let result = ask(&self.facts, findings, call.parameters);
                    self.answer(caller, result);
                }
                Does::Change(plan) => {
                    let mut known = Known { facts: &self.facts, findings, media, stock: &mut self.stock, say };
                    match plan(&mut known, call.parameters) {
                        Ok(None) => self.answer(caller, Ok(changes::done(false))),
                        Ok(Some(planned)) => self.changes.queue(caller, *planned),
                        Err(failure) => self.answer(caller, Err(failure)),
                    }
                }
            }
        }
    }

    /// What the main thread does behind a change.
    fn ended(&mut self, behind: Behind, is_so: bool, media: &mut MediaWatch) {
        match behind {
            Behind::Resized(namespace, blocks) if is_so => media.resized(namespace, blocks),
            Behind::Added(namespace, report) if is_so => self.facts.served.add(namespace, report),
            Behind::Added(namespace, _) => self.forget(namespace, media),
            Behind::Resized(..) => {}
        }
    }

    /// A namespace is gone, or never came.
    fn forget(&mut self, namespace: Identity, media: &mut MediaWatch) {
        media.forget(namespace);
        self.stock.forget(namespace);
        self.facts.forget(namespace);
    }

    /// Metrics, to who waited for that round.
    fn show(&mut self, round: u64, findings: &Findings) {
        let (ready, later): (Vec<_>, _) = self.visitors.iter().partition(|(_, wanted)| *wanted <= round);
        self.visitors = later;
        if let Some(web) = self.doors.web.as_mut().filter(|_| !ready.is_empty()) {
            let text = metrics::text(&self.facts, findings);
            ready.into_iter().for_each(|(visitor, _)| web.answer(visitor, &text));
        }
    }

    fn answer(&mut self, caller: Caller, result: Result<Value, Failure>) {
        if let Some(server) = &mut self.doors.server {
            server.answer(caller, result);
        }
    }
}
