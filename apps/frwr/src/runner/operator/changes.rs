//! Changes of a target that serves: one after the other, each taken wholly or not at all.

use super::{
    super::{
        change::Change,
        media_watch::{Identity, MediaWatch},
        namespaces::NamespaceReport,
        orders::{Order, Orders, Ticket},
        stock::Stock,
        survey::Findings,
    },
    Facts,
    parameters::{nqn, read},
};
use crate::control::{Caller, Failure, INVALID_PARAMS, NOT_DONE, TIMED_OUT};
use core::time::Duration;
use frwr_nvmf::{
    controller::{AllowedHosts, ChangeEvent, ChangeId, NamespaceState, SubsystemState},
    storage::AnyStorage,
    wire::{AnaState, Nqn, SerialNumber},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// How long a core has for its part of a change: it takes no time where the core goes on.
const STEP_TIME: Duration = Duration::from_secs(5);
/// Between two looks at what becomes of a change that somebody waits for.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// The same where nobody does any more.
const LATE_LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Until a change that is not complete is told by what holds it up, where nobody says otherwise.
const DEFAULT_WITHIN: u32 = 5;
/// The longest such time: clients wait for an answer a little longer.
const MAX_WITHIN: Duration = Duration::from_secs(20);
/// Behind that time each core has told what holds the change up.
const GRACE: Duration = Duration::from_secs(1);

/// What a method wants to have changed; `None` where it is so already.
pub(super) type Plan = Option<Box<Planned>>;

/// What a change is planned by.
pub(super) struct Known<'a> {
    /// What the main thread knows.
    pub(super) facts: &'a Facts,
    /// What the cores have just told.
    pub(super) findings: &'a Findings,
    /// What namespaces live in.
    pub(super) media: &'a mut MediaWatch,
    /// What else there may be.
    pub(super) stock: &'a mut Stock,
    /// Told what a person may not expect.
    pub(super) say: &'a mut dyn FnMut(&str),
}

/// A change: what each core is told, one after the other.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) steps: VecDeque<Step>,
    /// What cores say for themselves when they have nothing left of it: once for each of them and each namespace.
    pub(super) parts: usize,
    pub(super) behind: Option<Behind>,
}

/// What the main thread has to do behind a change.
#[derive(Debug)]
pub(super) enum Behind {
    /// The medium of a namespace has so many blocks.
    Resized(Identity, u64),
    /// There is this namespace.
    Added(Identity, NamespaceReport),
}

impl Behind {
    /// The namespace that has another size.
    fn resized(&self) -> Option<Identity> {
        match self {
            Self::Resized(namespace, _) => Some(*namespace),
            Self::Added(..) => None,
        }
    }
}

/// What one core is told, and what undoes it where a later one cannot.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) core: usize,
    pub(super) change: Change,
    pub(super) undo: Option<Change>,
}

impl Planned {
    /// What the home core does for all.
    fn at_home(change: Change) -> Plan {
        Self::at_home_and_in(0, change)
    }

    /// The same, where cores say for so many parts when they have nothing left of it.
    fn at_home_and_in(parts: usize, change: Change) -> Plan {
        let steps = VecDeque::from([Step { core: 0, change, undo: None }]);
        Some(Box::new(Self { steps, parts, behind: None }))
    }
}

/// One change under way.
#[derive(Debug)]
struct UnderWay {
    caller: Caller,
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
    /// What cores still have left of it.
    parts: usize,
}

impl Became {
    /// Nothing more is to be said of it.
    fn is_over(self) -> bool {
        self.taken == Some(false) || self.taken == Some(true) && self.parts == 0
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Taken(taken) => self.taken = Some(taken),
            Said::Part => self.parts = self.parts.saturating_sub(1),
        }
    }
}

#[derive(Clone, Copy)]
enum Said {
    Taken(bool),
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
    pub(super) fn queue(&mut self, caller: Caller, planned: Planned) {
        self.count += 1;
        self.line.push_back(UnderWay {
            caller,
            number: self.count,
            left: planned.steps,
            done: Vec::new(),
            told: None,
            answer: None,
            goes_on: None,
            held_up_by: Vec::new(),
            became: Became { taken: None, parts: planned.parts },
            behind: planned.behind,
        });
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

    /// Brings the first change on. Those that are over, with what their callers are told.
    pub(super) fn turn(&mut self, now: Duration, orders: &mut Orders) -> Option<(Caller, Result<Value, Failure>)> {
        self.look(now, orders);
        let first = self.line.front_mut()?;
        let result = first.advance(now, orders)?;
        let UnderWay { caller, goes_on, became, behind, .. } = self.line.pop_front()?;
        let shrinks = behind.as_ref().and_then(Behind::resized);
        if let Some(namespace) = shrinks.filter(|_| result.is_ok()) {
            self.forget_shrinking(namespace);
        }
        if let Some((id, _)) = goes_on.filter(|_| !became.is_over()) {
            self.unfinished.push(Unfinished { id, became, shrinks });
        }
        self.ended.extend(behind.map(|behind| (behind, result.is_ok())));
        Some((caller, result))
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
            Some(false) => {
                let text = "a core had not been given what the change needs; nothing was changed; try again";
                Some(Err(Failure::new(NOT_DONE, text)))
            }
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

fn stands_still(core: usize) -> Failure {
    let text = format!(
        "reactor {core} has not answered in {} s: it stands still; nothing was changed; `cores` says more, try again when it goes on",
        STEP_TIME.as_secs()
    );
    Failure::new(TIMED_OUT, text)
}

/// The subsystem as it is.
pub(super) fn subsystem<'a>(findings: &'a Findings, text: &str) -> Result<(Nqn, &'a SubsystemState), Failure> {
    let name = nqn("subsystem", text)?;
    let home = findings.home().ok_or_else(|| stands_still(0))?;
    let found = home.inventory.subsystems.iter().find(|subsystem| subsystem.name == name);
    let missing = || {
        let text = format!("params: there is no subsystem {text:?}; `subsystems` lists those that there are");
        Failure::new(INVALID_PARAMS, text)
    };
    found.map(|state| (name, state)).ok_or_else(missing)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceActive {
    subsystem: String,
    namespace: u32,
    active: bool,
}

pub(super) fn set_namespace_active(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let NamespaceActive { subsystem: of, namespace: identifier, active } = read(parameters)?;
    let (name, state) = subsystem(known.findings, &of)?;
    let before = listed(known.findings, state, identifier)?;
    if before.active == active {
        return Ok(None);
    }
    Ok(Planned::at_home(Change::NamespaceActive { subsystem: name, identifier, active }))
}

/// A namespace as it is.
pub(super) fn listed<'a>(
    findings: &'a Findings,
    of: &SubsystemState,
    identifier: u32,
) -> Result<&'a NamespaceState, Failure> {
    let home = findings.home().map(|home| &home.inventory);
    let name = |at: usize| home.and_then(|home| home.subsystems.get(at)).map(|subsystem| subsystem.name);
    let all = home.map(|home| home.namespaces.as_slice()).unwrap_or_default();
    let found = all.iter().find(|one| one.identifier == identifier && name(one.subsystem) == Some(of.name));
    found.ok_or_else(|| {
        let text =
            format!("params: namespace is {identifier}, which the subsystem has not; `namespaces` lists its own");
        Failure::new(INVALID_PARAMS, text)
    })
}

/// Until when a change shall be complete, or is told by what holds it up.
pub(super) fn within(seconds: Option<u32>) -> Result<Duration, Failure> {
    let (seconds, most) = (seconds.unwrap_or(DEFAULT_WITHIN), MAX_WITHIN.as_secs());
    if u64::from(seconds) <= most {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let text =
        format!("params: within_seconds is {seconds}: must be {most} at most; the change goes on behind it anyway");
    Err(Failure::new(INVALID_PARAMS, text))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfNamespace {
    subsystem: String,
    namespace: u32,
    within_seconds: Option<u32>,
}

pub(super) fn remove_namespace(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let OfNamespace { subsystem: of, namespace: identifier, within_seconds } = read(parameters)?;
    let (subsystem, state) = subsystem(known.findings, &of)?;
    listed(known.findings, state, identifier)?;
    let change = Change::RemoveNamespace { subsystem, identifier, within: within(within_seconds)? };
    Ok(Planned::at_home_and_in(known.findings.cores.len(), change))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSubsystem {
    subsystem: String,
    hosts: Option<Vec<String>>,
    serial: Option<String>,
}

pub(super) fn add_subsystem(_: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let NewSubsystem { subsystem, hosts, serial } = read(parameters)?;
    let name = nqn("subsystem", &subsystem)?;
    let serial = match serial {
        None => SerialNumber::of_subsystem(&name),
        Some(text) => SerialNumber::new(&text)
            .map_err(|reason| Failure::new(INVALID_PARAMS, format!("params: serial is {text:?}: {reason}")))?,
    };
    Ok(Planned::at_home(Change::AddSubsystem { name, hosts: allowed(hosts)?, serial }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldSubsystem {
    subsystem: String,
    within_seconds: Option<u32>,
}

pub(super) fn remove_subsystem(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let OldSubsystem { subsystem: of, within_seconds } = read(parameters)?;
    let (name, state) = subsystem(known.findings, &of)?;
    // Each core hands back each of its namespaces.
    let parts = state.namespaces as usize * known.findings.cores.len();
    Ok(Planned::at_home_and_in(parts, Change::RemoveSubsystem { name, within: within(within_seconds)? }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drained {
    host: Option<String>,
    within_seconds: Option<u32>,
}

pub(super) fn drain(_: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Drained { host, within_seconds } = read(parameters)?;
    let host = host.map(|text| nqn("host", &text)).transpose()?;
    Ok(Planned::at_home(Change::Drain { host, within: within(within_seconds)? }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resumed {
    host: Option<String>,
}

pub(super) fn resume(_: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Resumed { host } = read(parameters)?;
    let host = host.map(|text| nqn("host", &text)).transpose()?;
    Ok(Planned::at_home(Change::Resume { host }))
}

/// By the names of the socket.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnaName {
    Optimized,
    NonOptimized,
    Inaccessible,
    PersistentLoss,
    Change,
}

impl AnaName {
    fn state(self) -> AnaState {
        match self {
            Self::Optimized => AnaState::Optimized,
            Self::NonOptimized => AnaState::NonOptimized,
            Self::Inaccessible => AnaState::Inaccessible,
            Self::PersistentLoss => AnaState::PersistentLoss,
            Self::Change => AnaState::Change,
        }
    }
}

/// The same, the other way round.
pub(super) fn ana_name(state: AnaState) -> &'static str {
    match state {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non_optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "persistent_loss",
        AnaState::Change => "change",
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ana {
    subsystem: String,
    state: AnaName,
}

pub(super) fn set_ana_state(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Ana { subsystem: of, state } = read(parameters)?;
    let (name, before) = subsystem(known.findings, &of)?;
    if before.ana == state.state() {
        return Ok(None);
    }
    Ok(Planned::at_home(Change::Ana { subsystem: name, state: state.state() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    subsystem: String,
    #[serde(deserialize_with = "Option::deserialize")]
    hosts: Option<Vec<String>>,
    within_seconds: Option<u32>,
}

pub(super) fn set_allowed_hosts(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Allowed { subsystem: of, hosts, within_seconds } = read(parameters)?;
    let (subsystem, before) = subsystem(known.findings, &of)?;
    let hosts = allowed(hosts)?;
    if before.hosts == hosts {
        return Ok(None);
    }
    Ok(Planned::at_home(Change::AllowedHosts { subsystem, hosts, within: within(within_seconds)? }))
}

/// Names of hosts, or all of them. How many there may be the target knows.
fn allowed(hosts: Option<Vec<String>>) -> Result<AllowedHosts, Failure> {
    let Some(names) = hosts else { return Ok(AllowedHosts::Any) };
    Ok(AllowedHosts::Listed(names.iter().map(|name| nqn("hosts", name)).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        control::Server,
        runner::{
            orders::{Answer, Desk},
            progress::Progress,
        },
    };
    use serde_json::json;
    use std::{io::Write as _, os::unix::net::UnixStream};

    /// Somebody who called, of a socket of its own.
    fn caller() -> Caller {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::open(&folder.path().join("socket")).unwrap();
        let mut stream = UnixStream::connect(server.path()).unwrap();
        stream.write_all(json!({"jsonrpc": "2.0", "id": 1, "method": "x"}).to_string().as_bytes()).unwrap();
        loop {
            server.turn();
            if let Some((caller, _)) = server.next_call() {
                return caller;
            }
        }
    }

    fn change(hosts: AllowedHosts) -> Change {
        let subsystem = Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap();
        Change::AllowedHosts { subsystem, hosts, within: Duration::ZERO }
    }

    fn text(change: &Change) -> String {
        format!("{change:?}")
    }

    fn wanted() -> Change {
        change(AllowedHosts::Listed(Vec::new()))
    }

    struct Three {
        orders: Orders,
        desks: Vec<Desk>,
        changes: Changes,
    }

    impl Three {
        fn new() -> Self {
            let mut orders = Orders::new(&Progress::new(3));
            let desks = (0..3).map(|_| orders.add()).collect();
            let mut changes = Changes::default();
            let step = |core| Step { core, change: wanted(), undo: Some(change(AllowedHosts::Any)) };
            changes.queue(caller(), Planned { steps: [1, 2, 0].map(step).into(), parts: 0, behind: None });
            Self { orders, desks, changes }
        }

        /// Each core says for itself when it has nothing left of it.
        fn in_parts() -> Self {
            let mut three = Self::new();
            three.changes.line[0].became.parts = 3;
            three
        }

        fn turn(&mut self, millis: u64) -> Option<Result<Value, i64>> {
            while let Some((core, answer)) = self.orders.next_answer() {
                match answer {
                    Answer::Changed { number, result, .. } => self.changes.answered(core, number, result),
                    Answer::Became(event) => self.changes.became(*event),
                    Answer::Withdrawn(_) => {}
                    Answer::Report { .. } => panic!("nobody asked for a report"),
                }
            }
            let (_, result) = self.changes.turn(Duration::from_millis(millis), &mut self.orders)?;
            Some(result.map_err(|failure| failure.code))
        }

        /// A core looks for its orders: what it was told to do and did.
        fn obey(&mut self, core: usize, answer: Result<Option<ChangeId>, String>) -> Vec<String> {
            let (mut did, desk) = (Vec::new(), &mut self.desks[core]);
            while let Some(order) = desk.next() {
                match order {
                    Order::Change { number, change, ticket } if ticket.take() => {
                        did.push(text(&change));
                        desk.answer(Answer::Changed { number, result: answer.clone(), storage: None });
                    }
                    Order::Change { .. } | Order::Outcome => {}
                    Order::Report { .. } => panic!("nobody asked for a report"),
                }
            }
            did
        }
    }

    #[test]
    fn cores_are_told_one_after_the_other_and_the_home_core_last() {
        let mut three = Three::new();
        for core in [1, 2, 0] {
            assert_eq!(three.turn(0), None);
            for other in (0..3).filter(|other| *other != core) {
                assert!(three.obey(other, Ok(None)).is_empty());
            }
            assert_eq!(three.obey(core, Ok(None)), [text(&wanted())]);
        }
        assert_eq!(three.turn(0), Some(Ok(done(true))));
        assert_eq!(three.turn(0), None);
    }

    #[test]
    fn a_change_that_one_core_refuses_is_undone_on_the_others() {
        let mut three = Three::new();
        assert_eq!(three.turn(0), None);
        assert_eq!(three.obey(1, Ok(None)), [text(&wanted())]);
        assert_eq!(three.turn(0), None);
        assert_eq!(three.obey(2, Err("no".to_owned())), [text(&wanted())]);
        assert_eq!(three.turn(0), Some(Err(NOT_DONE)));
        assert_eq!(three.obey(1, Ok(None)), [text(&change(AllowedHosts::Any))]);
        assert_eq!((three.obey(2, Ok(None)), three.obey(0, Ok(None))), (Vec::new(), Vec::new()));
        assert_eq!(three.turn(0), None, "what was undone is no answer to anything");
    }

    #[test]
    fn a_core_that_stands_still_never_does_what_was_taken_back() {
        let mut three = Three::new();
        assert_eq!(three.turn(0), None);
        assert_eq!(three.obey(1, Ok(None)), [text(&wanted())]);
        assert_eq!(three.turn(1), None);
        assert_eq!(three.turn(5000), None);
        assert_eq!(three.turn(5001), Some(Err(TIMED_OUT)));
        assert!(three.obey(2, Ok(None)).is_empty(), "it goes on, and finds the order withdrawn");
        assert_eq!(three.obey(1, Ok(None)), [text(&change(AllowedHosts::Any))]);
    }

    #[test]
    fn a_core_that_paused_while_it_was_asked_again_and_again_takes_the_next_change() {
        let (mut three, id) = going_on(Three::new());
        (1..100).for_each(|look| assert_eq!(three.turn(10 * look), None));
        three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
        assert_eq!(three.turn(1000), Some(Ok(done(true))));
        let steps = [Step { core: 1, change: wanted(), undo: None }].into();
        three.changes.queue(caller(), Planned { steps, parts: 0, behind: None });
        assert_eq!(three.turn(1000), None);
        assert_eq!(three.obey(1, Ok(None)), [text(&wanted())]);
        assert_eq!(three.turn(1000), Some(Ok(done(true))));
    }

    #[test]
    fn a_core_that_was_faster_than_the_deadline_has_done_it() {
        let mut three = Three::new();
        assert_eq!(three.turn(0), None);
        // It takes the order in the moment in which the main thread would take it back.
        let taken = three.changes.line[0].told.as_ref().is_some_and(|told| told.ticket.take());
        assert!(taken);
        assert_eq!(three.turn(60_000), None, "its answer is waited for");
    }

    /// The last core has begun something, and says what becomes of it when it is asked.
    fn going_on(mut three: Three) -> (Three, ChangeId) {
        let id = ChangeId(7);
        for core in [1, 2] {
            assert_eq!(three.turn(0), None);
            three.obey(core, Ok(None));
        }
        assert_eq!(three.turn(0), None);
        three.obey(0, Ok(Some(id)));
        assert_eq!(three.turn(0), None);
        (three, id)
    }

    #[test]
    fn what_takes_its_time_is_answered_when_it_is_complete() {
        let (mut three, id) = going_on(Three::new());
        assert_eq!(three.turn(1000), None);
        three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id: ChangeId(6) })));
        assert_eq!(three.turn(1000), None, "another one");
        three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
        assert_eq!(three.turn(1000), Some(Ok(done(true))));
        assert!(three.changes.unfinished.is_empty());
    }

    #[test]
    fn what_each_core_gives_up_is_complete_when_all_have_and_asked_for_until_then() {
        let said = |three: &mut Three, core: usize, event| three.desks[core].answer(Answer::Became(Box::new(event)));
        let (mut three, id) = going_on(Three::in_parts());
        said(&mut three, 0, ChangeEvent::Done { id });
        [0, 1].into_iter().for_each(|core| said(&mut three, core, ChangeEvent::Shrunk { id }));
        assert_eq!(three.turn(1000), None, "one core has some of it");
        said(&mut three, 2, ChangeEvent::Shrunk { id });
        assert_eq!(three.turn(1000), Some(Ok(done(true))));
        let (mut three, id) = going_on(Three::in_parts());
        said(&mut three, 0, ChangeEvent::Done { id });
        assert_eq!(three.turn(21_000).unwrap().unwrap()["complete"], false);
        assert_eq!(three.changes.unfinished.len(), 1);
        (0..3).for_each(|core| said(&mut three, core, ChangeEvent::Shrunk { id }));
        assert_eq!(three.turn(22_000), None);
        assert!(three.changes.unfinished.is_empty());
    }

    #[test]
    fn a_smaller_size_that_another_one_or_the_end_of_the_namespace_overtook_is_waited_for_no_longer() {
        let namespace = (Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap(), 1);
        let held_up = || {
            let (mut three, id) = going_on(Three::in_parts());
            three.changes.line[0].behind = Some(Behind::Resized(namespace, 1));
            three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
            assert_eq!(three.turn(21_000).unwrap().unwrap()["complete"], false);
            assert_eq!(three.changes.unfinished.len(), 1);
            three
        };
        let (mut three, id) = (held_up(), ChangeId(8));
        let steps = [Step { core: 0, change: wanted(), undo: None }].into();
        let behind = Some(Behind::Resized(namespace, 2));
        three.changes.queue(caller(), Planned { steps, parts: 0, behind });
        assert_eq!(three.turn(22_000), None);
        three.obey(0, Ok(Some(id)));
        three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
        assert_eq!(three.turn(22_000), None);
        three.desks[0].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
        assert_eq!(three.turn(22_000), Some(Ok(done(true))));
        assert!(three.changes.unfinished.is_empty());
        let mut three = held_up();
        three.changes.gone = vec![namespace; 3];
        assert_eq!(three.changes.next_gone(3), Some(namespace));
        assert!(three.changes.unfinished.is_empty());
    }

    #[test]
    fn what_nobody_says_the_end_of_is_answered_as_not_complete_and_looked_after() {
        let (mut three, id) = going_on(Three::new());
        assert_eq!(three.turn(20_999), None);
        let told = three.turn(21_000).unwrap().unwrap();
        assert_eq!((&told["changed"], &told["complete"]), (&json!(true), &json!(false)));
        assert_eq!(three.changes.unfinished.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
        three.desks[1].answer(Answer::Became(Box::new(ChangeEvent::Done { id })));
        assert_eq!(three.turn(22_000), None);
        assert!(three.changes.unfinished.is_empty());
    }
}
