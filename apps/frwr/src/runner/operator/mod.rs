//! Answers whoever asks a target that serves, and changes it: calls of the control socket, and SIGUSR1, whose report is the same. All
//! of it is the main thread's; cores hand over what they have when they are asked, and do what they are told.

mod answer;
mod answers;
mod application;
mod aside;
mod changes;
mod deadlines;
mod device_changes;
mod facts;
mod families;
mod files;
mod host_changes;
mod hosts;
mod key_trace;
mod key_trace_calls;
mod listeners;
mod locks;
mod methods;
mod metrics;
mod moves;
mod namespace_changes;
mod namespace_figures;
mod parameters;
mod planned;
mod recent;
mod reload;
mod subsystem_changes;
mod sums;

pub(crate) use deadlines::{LONGEST_QUESTION, longest_answer};
pub(super) use facts::Facts;
pub(super) use key_trace::KeyTrace;
pub use methods::{MethodDescription, methods};
pub use parameters::Parameter;

use super::{
    change::Returned,
    fleet::Fleet,
    former::Former,
    key_files::KeyFiles,
    media_watch::MediaWatch,
    medium::Measuring,
    namespaces::Identity,
    orders::{Answer, Orders},
    places::Places,
    prepared::Patience,
    present::present,
    progress::IoCounters,
    serve_report::ServedTarget,
    stock::{Opened, Reserved, Stock},
    survey::{Findings, Survey},
    trace::Trace,
};
use crate::Error;
use crate::control::{Call, Failure, NOT_DONE, Server, Visitor, Web};
use application::{Application, Applied};
use aside::Aside;
use changes::{Changes, Ended, Stays};
use core::time::Duration;
use device_changes::Departs;
use files::Looked;
use frwr_nvmf::{controller::Incident, dhchap::HostKeys, wire::Nqn};
use frwr_reactor::Statistics as ReactorStatistics;
use locks::LockedGroups;
use methods::{Does, KeysOf, Look};
use metrics::Only;
use moves::{Around, Moved, Moves};
use planned::{Asker, Behind, Known};
use reload::Reload;
use rustix::event::PollFd;
use serde_json::{Map, Value};
use std::{collections::VecDeque, sync::Arc};

/// Calls that are begun in a turn: each client has one under way at most.
const CALLS_PER_TURN: usize = crate::control::MAX_CLIENTS;

/// What the operator can ask the rest of the main thread for.
pub(super) struct Surroundings<'a> {
    /// Time since the cores began, by their clock.
    pub(super) now: Duration,
    pub(super) reactors: &'a dyn Fn() -> Vec<ReactorStatistics>,
    /// The devices that are served.
    pub(super) places: &'a mut Places,
    /// What namespaces live in.
    pub(super) media: &'a mut MediaWatch,
}

/// A call that waits for what the cores say.
struct Waiting {
    asker: Asker,
    round: u64,
    call: Call,
    does: Does,
    /// What was looked at for it before.
    looked: Option<Box<Looked>>,
}

/// What has no method, or whose parameters were taken.
fn nobodys() -> Call {
    Call { id: None, method: String::new(), parameters: Map::new() }
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
    /// A namespace that is opened for a change.
    opening: Aside<Opened, (Asker, Arc<Reserved>)>,
    /// A medium that is measured for a change.
    measuring: Aside<(), (Asker, Call, Does)>,
    /// What a file names, and what the target has.
    looking: Aside<Result<Looked, Failure>, (Asker, Does)>,
    /// The keys of a host, which are read.
    reading: Aside<HostKeys, (Asker, Nqn, KeyFiles)>,
    /// What nobody uses any more: whoever waits for that is answered when it is closed.
    closing: Aside<(), ()>,
    /// A device that comes or goes.
    moves: Moves,
    locked: LockedGroups,
    /// Calls that change something and are not planned: each is, by what the cores say behind the end of the one before.
    unplanned: VecDeque<(Asker, Call, Does)>,
    /// A file that is applied.
    application: Option<Application>,
    reload: Reload,
    /// What is to be said.
    news: Vec<String>,
    /// Somebody asked by a signal: the round that answers.
    report: Option<u64>,
    /// How that is told.
    json: bool,
}

impl Operator {
    /// Of a target whose cores get these orders, and devices by this; reports that a signal asks for are JSON, or text.
    pub(super) fn new(
        facts: Facts,
        stock: Stock,
        orders: Orders,
        doors: Doors,
        fleet: Arc<dyn Fleet>,
        json: bool,
    ) -> Self {
        Self {
            moves: Moves::new(fleet, facts.served.devices.len()),
            facts,
            stock,
            orders,
            doors,
            survey: Survey::default(),
            waiting: Vec::new(),
            visitors: Vec::new(),
            changes: Changes::default(),
            opening: Aside::default(),
            measuring: Aside::default(),
            looking: Aside::default(),
            reading: Aside::default(),
            closing: Aside::default(),
            locked: LockedGroups::default(),
            unplanned: VecDeque::new(),
            application: None,
            reload: Reload::default(),
            news: Vec::new(),
            report: None,
            json,
        }
    }

    /// Nobody is answered any more. What is served by now, what was done for devices that have left, and the trace of keys that is under
    /// way.
    pub(super) fn end(self) -> (ServedTarget, Former, Option<Trace>) {
        self.changes.end();
        self.moves.end();
        self.closing.finish();
        (self.facts.served, self.survey.former, self.facts.key_trace.end())
    }

    /// What the run cannot go on with, once.
    pub(super) fn trouble(&mut self) -> Option<Error> {
        self.facts.key_trace.trouble()
    }

    /// What was moved by devices that have left.
    pub(super) fn former_io(&self) -> IoCounters {
        self.survey.former.io()
    }

    /// Cores tell what must not wait for long.
    pub(super) fn is_traced(&self) -> bool {
        self.facts.key_trace.is_on()
    }

    /// Somebody asked for the report by a signal.
    pub(super) fn ask_report(&mut self) {
        self.report = Some(self.survey.want());
    }

    /// Somebody asked by a signal that the file be read again.
    pub(super) fn ask_reload(&mut self) {
        self.reload.ask();
    }

    /// Something happened to a peer.
    pub(super) fn note(&mut self, now: Duration, incident: &Incident) {
        self.facts.recent.note(now, incident);
    }

    /// How often it has its turn at least, if something is under way: of much of that nobody tells that it is over, and
    /// all of it has deadlines.
    pub(super) fn period(&self) -> Option<Duration> {
        let goes_on = self.application.is_some() || !self.waiting.is_empty() || !self.unplanned.is_empty();
        let goes_on = goes_on || self.report.is_some() || !self.visitors.is_empty() || self.reload.is_wanted();
        let goes_on = goes_on
            || self.is_beside()
            || self.moves.is_under_way()
            || !self.changes.is_idle()
            || self.survey.is_under_way();
        goes_on.then_some(changes::LOOK_PERIOD)
    }

    /// Who may say something.
    pub(super) fn interests(&self) -> Vec<PollFd<'_>> {
        let Doors { server, web } = &self.doors;
        let (server, web) = (server.iter().flat_map(Server::interests), web.iter().flat_map(Web::interests));
        server.chain(web).collect()
    }

    /// Does all that there is to do, within limits. Returns the work done; reports that were asked for by a signal are said.
    pub(super) fn turn(&mut self, surroundings: &mut Surroundings<'_>, say: &mut dyn FnMut(&str)) -> u32 {
        self.facts.now = surroundings.now;
        let Self { opening, measuring, looking, reading, closing, .. } = self;
        let under_way = opening.under_way().or_else(|| measuring.under_way()).or_else(|| looking.under_way());
        self.facts.awaited = under_way.or_else(|| reading.under_way()).or_else(|| closing.under_way());
        let Doors { server, web } = &mut self.doors;
        let mut work = server.as_mut().map_or(0, Server::turn) + web.as_mut().map_or(0, Web::turn);
        work += self.facts.key_trace.drain(say);
        work += self.take_calls();
        work += self.read_again();
        self.take_answers();
        work += self.take_closed();
        while !self.closing.is_busy()
            && let Some(namespace) = self.changes.next_gone(self.orders.count())
        {
            self.forget(namespace, surroundings.media);
        }
        self.survey.begin(surroundings.now, &mut self.orders);
        let places = &*surroundings.places;
        if let Some((round, findings)) = self.survey.end(surroundings.now, surroundings.reactors, || places.found()) {
            self.told(round, &findings, surroundings, say);
            work += 1;
        }
        work += self.take_opened(surroundings.media, say);
        work += self.take_measured();
        work += self.take_looked();
        work += self.take_moved(surroundings.places, say);
        work += self.take_read();
        self.locked.follow(surroundings.media, &self.stock, &mut self.orders);
        while !self.closing.is_busy()
            && let Some(ended) = self.changes.turn(surroundings.now, &mut self.orders)
        {
            self.change_ended(ended, surroundings);
            work += 1;
        }
        self.plan_next(surroundings.media);
        self.news.drain(..).for_each(|line| say(&line));
        work
    }

    /// Asks the cores what the next change is planned by, when nothing changes that any more.
    fn plan_next(&mut self, media: &MediaWatch) {
        let is_planned = self.waiting.iter().any(|call| call.does.is_change());
        if !is_planned
            && !self.is_beside()
            && self.changes.is_idle()
            && let Some((asker, call, does)) = self.unplanned.pop_front()
        {
            if let Does::Apply(look) = does {
                return self.look(asker, call, does, look);
            }
            if let Does::Keys(of) = does {
                return self.read_keys(asker, call, of);
            }
            let namespace = matches!(does, Does::Measured(_)).then(|| namespace_changes::named(&call.parameters));
            match namespace.flatten().and_then(|namespace| media.measure(namespace)) {
                Some((name, measuring)) => self.measure(asker, call, does, name, measuring),
                None => self.plan(asker, call, does),
            }
        }
    }

    fn plan(&mut self, asker: Asker, call: Call, does: Does) {
        let round = self.survey.want();
        self.waiting.push(Waiting { asker, round, call, does, looked: None });
    }

    /// Something is done beside the main thread, and changes wait for it.
    fn is_beside(&self) -> bool {
        let Self { opening, measuring, looking, reading, closing, moves, .. } = self;
        let asked = measuring.is_busy() || looking.is_busy() || reading.is_busy();
        asked || opening.is_busy() || closing.is_busy() || moves.is_busy()
    }

    /// Waits for a look at a medium.
    fn measure(&mut self, asker: Asker, call: Call, does: Does, name: String, measuring: Measuring) {
        let (now, look) = (self.facts.now, move || measuring.finish());
        let begun = self.measuring.begin((asker, call, does), name, Patience::default(), now, look);
        if let Err(failure) = begun {
            self.answer(asker, Err(failure));
        }
    }

    fn take_measured(&mut self) -> u32 {
        let Some(((asker, call, does), result)) = self.measuring.turn(self.facts.now) else { return 0 };
        match result {
            Ok(()) => self.plan(asker, call, does),
            Err(failure) => self.answer(asker, Err(failure)),
        }
        1
    }

    /// Looks at what a file names.
    fn look(&mut self, asker: Asker, call: Call, does: Does, look: Look) {
        let begun = look(&self.facts, &self.stock, call.parameters).and_then(|looking| {
            let (name, now) = (looking.name(), self.facts.now);
            self.looking.begin((asker, does), name, Patience::default(), now, move || Ok(looking.look()))
        });
        if let Err(failure) = begun {
            self.answer(asker, Err(failure));
        }
    }

    fn take_looked(&mut self) -> u32 {
        let Some(((asker, does), result)) = self.looking.turn(self.facts.now) else { return 0 };
        match result.and_then(|looked| looked) {
            Ok(looked) => {
                let (round, looked) = (self.survey.want(), Some(Box::new(looked)));
                self.waiting.push(Waiting { asker, round, call: nobodys(), does, looked });
            }
            Err(failure) => self.answer(asker, Err(failure)),
        }
        1
    }

    /// Brings a device on that comes or goes.
    fn take_moved(&mut self, places: &mut Places, say: &mut dyn FnMut(&str)) -> u32 {
        let Self { moves, orders, survey, facts, .. } = self;
        let moved = moves.turn(&mut around(orders, survey, facts, places), say);
        self.moved(moved)
    }

    /// What came of it.
    fn moved(&mut self, moved: Option<Moved>) -> u32 {
        let Some(Moved { asker, result, listens }) = moved else { return 0 };
        self.locked.tell_again();
        match result {
            Ok(answer) if listens => self.tell_devices(asker, answer),
            result => self.answer(asker, result),
        }
        1
    }

    /// Reads the keys of a host.
    fn read_keys(&mut self, asker: Asker, call: Call, of: KeysOf) {
        let begun = of(call.parameters).and_then(|(host, files)| {
            let (name, now, read) = (format!("the keys of host {}", host.as_str()), self.facts.now, files.clone());
            self.reading.begin((asker, host, files), name, Patience::default(), now, move || read.read())
        });
        if let Err(failure) = begun {
            self.answer(asker, Err(failure));
        }
    }

    fn take_read(&mut self) -> u32 {
        let Some(((asker, host, files), result)) = self.reading.turn(self.facts.now) else { return 0 };
        let result = result.map(|keys| changes::done(self.facts.host_keys.set(&host, files, keys)));
        self.answer(asker, result);
        1
    }

    fn take_closed(&mut self) -> u32 {
        u32::from(self.closing.turn(self.facts.now).is_some())
    }

    fn take_calls(&mut self) -> u32 {
        let mut calls = 0;
        while calls < CALLS_PER_TURN
            && let Some((caller, call)) = self.doors.server.as_mut().and_then(Server::next_call)
        {
            calls += 1;
            self.begin(Asker::Client(caller), call);
        }
        while let Some(visitor) = self.doors.web.as_mut().and_then(Web::next_visitor) {
            calls += 1;
            self.visitors.push((visitor, self.survey.want()));
        }
        // As many as there can be clients.
        calls as u32
    }

    /// Has the file read again, where that is asked for and nothing of it is under way.
    fn read_again(&mut self) -> u32 {
        if !self.reload.is_wanted()
            || self.application.is_some()
            || self.waiting.iter().any(|one| one.asker == Asker::Signal)
            || self.unplanned.iter().any(|(asker, ..)| *asker == Asker::Signal)
            || self.looking.is_of(|(asker, _)| *asker == Asker::Signal)
        {
            return 0;
        }
        match self.reload.begin(self.facts.config.arguments.config.is_some()) {
            Ok(()) => self.unplanned.push_back((Asker::Signal, nobodys(), Does::Apply(files::look_again))),
            Err(line) => self.news.extend(line),
        }
        1
    }

    fn begin(&mut self, asker: Asker, call: Call) {
        match methods::find(&call.method).map(|method| method.does) {
            Err(failure) => self.answer(asker, Err(failure)),
            Ok(Does::Tell(tell)) => {
                let result = tell(&mut self.facts, call.parameters);
                self.answer(asker, result);
            }
            Ok(does) if does.is_change() => self.unplanned.push_back((asker, call, does)),
            Ok(does) => {
                let round = self.survey.want();
                self.waiting.push(Waiting { asker, round, call, does, looked: None });
            }
        }
    }

    fn take_answers(&mut self) {
        while let Some((unit, answer)) = self.orders.next_answer() {
            match answer {
                Answer::Report { round, snapshot } => self.survey.answered(unit, round, snapshot),
                Answer::Changed { number, result, returned } => {
                    match returned {
                        // Closed, and freed, here.
                        Some(Returned::Storage(storage)) => drop(storage),
                        Some(Returned::KeyTrace { records, lost }) => {
                            drop(records);
                            self.facts.key_trace.ended_on(unit, lost);
                        }
                        None => {}
                    }
                    let stays = self.changes.answered((unit, self.orders.device_of(unit)), number, result);
                    self.tell_stays(stays);
                }
                Answer::Withdrawn(change) => drop(change),
                Answer::Became(event) => {
                    let stays = self.changes.became(self.orders.device_of(unit), *event);
                    self.tell_stays(stays);
                }
            }
        }
    }

    /// Nobody waits for what undoes a change: that a device does not take it is a line.
    fn tell_stays(&mut self, stays: Option<Stays>) {
        let Some(Stays { device, reason }) = stays else { return };
        let label = self.facts.served.label(device);
        self.news.push(format!(
            "device {label}: a change that was not made everywhere is not undone there: {reason}; make that change again, or the opposite"
        ));
    }

    /// What the cores said in a round, to all who waited for it.
    fn told(
        &mut self,
        round: u64,
        findings: &Findings,
        surroundings: &mut Surroundings<'_>,
        say: &mut dyn FnMut(&str),
    ) {
        let Surroundings { places, media, .. } = surroundings;
        let Self { moves, orders, survey, facts, .. } = self;
        let moved = moves.told(round, findings, &mut around(orders, survey, facts, places));
        self.moved(moved);
        if self.report.take_if(|wanted| *wanted <= round).is_some() {
            say(&present(&self.facts.served, findings, self.json));
        }
        self.show(round, findings, media);
        let (ready, later): (Vec<_>, _) =
            core::mem::take(&mut self.waiting).into_iter().partition(|call| call.round <= round);
        self.waiting = later;
        for waiting in ready {
            self.carry_out(waiting, findings, media);
        }
    }

    /// A call whose round is over.
    fn carry_out(&mut self, waiting: Waiting, findings: &Findings, media: &mut MediaWatch) {
        let Waiting { asker, call, does, looked, .. } = waiting;
        let Self { facts, stock, .. } = self;
        let result = match does {
            Does::Tell(tell) => tell(facts, call.parameters),
            Does::Ask(ask) => ask(facts, findings, call.parameters),
            Does::Look(look) => look(&mut Known { facts, findings, media, stock }, call.parameters),
            // It waits for no round.
            Does::Keys(_) => return,
            Does::Apply(_) => {
                // It was looked at in front of this round.
                let Some(looked) = looked else { return };
                match files::apply(&mut Known { facts, findings, media, stock }, *looked) {
                    Ok(Applied::Shown(shown)) => Ok(shown),
                    Ok(Applied::Begins(steps)) => return self.apply(Application::new(asker, steps)),
                    Err(failure) => Err(failure),
                }
            }
            Does::Change(plan) | Does::Measured(plan) => {
                match plan(&mut Known { facts, findings, media, stock }, call.parameters) {
                    Ok(None) => Ok(changes::done(false)),
                    Ok(Some(planned)) => return self.changes.queue(asker, *planned),
                    Err(failure) => Err(failure),
                }
            }
            Does::Arrive(plan) => {
                let free = self.changes.settled().and_then(|()| self.moves.free(&facts.served));
                let place = self.moves.free_place(findings, facts.config.places().into());
                let known = &mut Known { facts, findings, media, stock };
                match free.and_then(|()| plan(known, call.parameters, place)) {
                    Ok((wanted, label)) => {
                        let moved = self.moves.arrive(asker, wanted, label, self.facts.now);
                        self.moved(moved);
                        return;
                    }
                    Err(failure) => Err(failure),
                }
            }
            Does::Depart(plan) => match plan(&mut Known { facts, findings, media, stock }, call.parameters) {
                Ok(Departs::Already) => {
                    let moved = self.moves.wait_again(asker, facts.now);
                    self.moved(moved);
                    return;
                }
                Ok(Departs::Drained(planned)) => {
                    match self.changes.settled().and_then(|()| self.moves.free(&facts.served)) {
                        Ok(()) => return self.changes.queue(asker, *planned),
                        Err(failure) => Err(failure),
                    }
                }
                Err(failure) => Err(failure),
            },
            Does::Open(plan) => match plan(&mut Known { facts, findings, media, stock }, call.parameters) {
                Ok(reserved) => return self.open(asker, reserved, media),
                Err(failure) => Err(failure),
            },
        };
        self.answer(asker, result);
    }

    /// Has a namespace opened.
    fn open(&mut self, asker: Asker, reserved: Reserved, media: &mut MediaWatch) {
        let (identity, now) = (reserved.identity(), self.facts.now);
        let (name, patience) = (reserved.namespace.config.name(), reserved.patience());
        let reserved = Arc::new(reserved);
        let call = {
            let reserved = Arc::clone(&reserved);
            move || reserved.open()
        };
        if let Err(failure) = self.opening.begin((asker, reserved), name, patience, now, call) {
            self.not_opened(asker, identity, failure, media);
        }
    }

    /// What was opened is watched, and given to the cores.
    fn take_opened(&mut self, media: &mut MediaWatch, say: &mut dyn FnMut(&str)) -> u32 {
        let Some(((asker, reserved), result)) = self.opening.turn(self.facts.now) else { return 0 };
        match result {
            Ok(Opened { storages, report, medium, notes }) => {
                notes.iter().for_each(|note| say(note));
                let name = reserved.namespace.config.name();
                media.add(reserved.identity(), name, medium);
                let planned = namespace_changes::with_opened(&reserved, storages, report, self.orders.cores());
                self.changes.queue(asker, planned);
            }
            Err(failure) => self.not_opened(asker, reserved.identity(), failure, media),
        }
        1
    }

    fn not_opened(&mut self, asker: Asker, namespace: Identity, failure: Failure, media: &mut MediaWatch) {
        self.forget(namespace, media);
        self.answer(asker, Err(failure));
    }

    /// Begins with the changes of a file.
    fn apply(&mut self, application: Application) {
        if self.application.is_some() {
            let text = "another file is being applied; nothing was changed; try again when that has ended";
            return self.answer(application.asker, Err(Failure::new(NOT_DONE, text)));
        }
        if application.asker == Asker::Signal {
            self.news.push(application.begins());
        }
        self.application = Some(application);
        self.go_on();
    }

    /// Makes the next change of the file, or tells that all are made.
    fn go_on(&mut self) {
        match self.application.as_ref().map(Application::next_call) {
            Some(Some(call)) => self.begin(Asker::Application, call),
            Some(None) => {
                if let Some(application) = self.application.take() {
                    self.answer(application.asker, Ok(application.answer()));
                }
            }
            None => {}
        }
    }

    /// What came of the change of a file that was under way.
    fn made(&mut self, result: Result<Value, Failure>) {
        let Some(mut application) = self.application.take() else { return };
        match application.heard(result) {
            Ok(lines) => {
                if application.asker == Asker::Signal {
                    self.news.extend(lines);
                }
                self.application = Some(application);
                self.go_on();
            }
            Err(failure) => self.answer(application.asker, Err(failure)),
        }
    }

    /// What the main thread does behind a change; who asked for it is answered, or that waits for what is done. Where that fails the change
    /// was made, and its caller is told all the same.
    fn change_ended(&mut self, Ended { asker, mut result, behind }: Ended, surroundings: &mut Surroundings<'_>) {
        let (now, media) = (self.facts.now, &mut *surroundings.media);
        self.locked.tell_again();
        match (behind, &result) {
            (Some(Behind::Resized { namespace, blocks, .. }), Ok(_)) => media.resized(namespace, blocks),
            (Some(Behind::Resized { namespace, before, .. }), Err(_)) => media.resized(namespace, before),
            (Some(Behind::Added(namespace, report)), Ok(_)) => self.facts.served.add(namespace, report),
            (Some(Behind::Added(namespace, _)), Err(_)) => self.forget(namespace, media),
            (Some(Behind::Listeners), Ok(answer)) => return self.tell_devices(asker, answer.clone()),
            (Some(Behind::KeyTraceBegun(trace)), Ok(_)) => self.facts.key_trace.begin(*trace, now),
            (Some(Behind::KeyTraceBegun(trace)), Err(_)) => trace.give_up(),
            (Some(Behind::KeyTraceEnded(_)), Ok(_)) => {
                if let Err(failure) = self.facts.key_trace.finish() {
                    result = Err(failure);
                }
            }
            (Some(Behind::KeyTraceEnded(cores)), Err(_)) => self.facts.key_trace.resume(cores),
            (Some(Behind::Departs(place)), Ok(_)) => {
                self.changes.forget_device(place);
                return self.moves.end_device(asker, place, &mut self.survey);
            }
            // The others list it again.
            (Some(Behind::Departs(_)), Err(_)) => self.device_is_gone(),
            (Some(Behind::Listeners) | None, _) => {}
        }
        self.answer(asker, result);
    }

    /// Each device's target is told where the others listen by now, before somebody has this answer.
    fn tell_devices(&mut self, asker: Asker, answer: Value) {
        let (round, does) = (self.survey.want(), Does::Change(listeners::tell_devices));
        self.waiting.push(Waiting { asker, round, call: listeners::telling(answer), does, looked: None });
    }

    /// A device is gone, or is there as before: the others list where hosts find it by now.
    pub(super) fn device_is_gone(&mut self) {
        let (call, does) = (listeners::telling(Value::Null), Does::Change(listeners::tell_devices));
        self.unplanned.push_back((Asker::Nobody, call, does));
    }

    /// A namespace is gone, or never came.
    fn forget(&mut self, namespace: Identity, media: &mut MediaWatch) {
        if let Some((name, medium)) = media.forget(namespace) {
            let close = move || {
                drop(medium);
                Ok(())
            };
            // Where there is no thread for it, it is closed here.
            let _ = self.closing.begin((), name, Patience::default(), self.facts.now, close);
        }
        self.stock.forget(namespace);
        self.facts.forget(namespace);
        self.survey.former.forget(namespace);
    }

    /// Metrics, to who waited for that round.
    fn show(&mut self, round: u64, findings: &Findings, media: &MediaWatch) {
        let (ready, later): (Vec<_>, _) = self.visitors.iter().partition(|(_, wanted)| *wanted <= round);
        self.visitors = later;
        if let Some(web) = self.doors.web.as_mut().filter(|_| !ready.is_empty()) {
            let text = metrics::text(&self.facts, findings, &media.lock_figures(), &Only::default());
            ready.into_iter().for_each(|(visitor, _)| web.answer(visitor, &text));
        }
    }

    fn answer(&mut self, asker: Asker, result: Result<Value, Failure>) {
        match asker {
            Asker::Client(caller) => {
                self.doors.server.iter_mut().for_each(|server| server.answer(caller, result.clone()))
            }
            Asker::Nobody => {}
            Asker::Undo => {
                if let Err(failure) = result {
                    self.news.push(format!(
                        "a change that was not made everywhere is not undone where it was: {}; make it again, or the opposite",
                        failure.message
                    ));
                }
            }
            Asker::Application => self.made(result),
            Asker::Signal => self.news.push(reload::told(result)),
        }
    }
}

/// What moves of devices change beside themselves.
fn around<'a>(
    orders: &'a mut Orders,
    survey: &'a mut Survey,
    facts: &'a mut Facts,
    places: &'a mut Places,
) -> Around<'a> {
    let Facts { now, progress, served, .. } = facts;
    Around { now: *now, orders, survey, places, progress, served }
}
