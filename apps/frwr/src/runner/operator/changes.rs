//! Changes of a target that serves: one after the other, each taken wholly or not at all.

use super::{
    super::{
        change::Change,
        orders::{Order, Orders, Ticket},
        survey::Findings,
    },
    parameters::{nqn, read},
};
use crate::control::{Caller, Failure, INVALID_PARAMS, NOT_DONE, TIMED_OUT};
use core::time::Duration;
use frwr_nvmf::{
    controller::{AllowedHosts, SubsystemState},
    wire::{AnaState, Nqn},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// How long a core has for its part of a change: it takes no time where the core goes on.
const STEP_TIME: Duration = Duration::from_secs(5);
/// Names of a list of hosts: far more than can be connected, and what a core compares when one connects.
const MAX_ALLOWED_HOSTS: usize = 1024;

/// What a method wants to have changed; `None` where it is so already.
pub(super) type Plan = Option<Box<Planned>>;

/// A change, and how it is undone.
#[derive(Debug)]
pub(super) struct Planned {
    change: Change,
    /// What brings back what was there.
    undo: Change,
}

impl Planned {
    /// `of` makes the change to either.
    fn new<T>(of: impl Fn(T) -> Change, after: T, before: T) -> Plan {
        Some(Box::new(Self { change: of(after), undo: of(before) }))
    }
}

/// One change under way.
#[derive(Debug)]
struct UnderWay {
    caller: Caller,
    number: u64,
    change: Change,
    undo: Change,
    /// Cores that are still to be told, in order.
    left: VecDeque<usize>,
    done: Vec<usize>,
    /// The core that has been told, until when it has time, and what takes the order back.
    told: Option<(usize, Duration, Ticket)>,
    /// What that core said.
    answer: Option<Result<(), String>>,
}

/// All changes that were asked for.
#[derive(Debug, Default)]
pub(super) struct Changes {
    line: VecDeque<UnderWay>,
    count: u64,
}

/// What a change is answered.
pub(super) fn done(changed: bool) -> Value {
    json!({ "changed": changed })
}

impl Changes {
    /// One more, behind the others.
    pub(super) fn queue(&mut self, caller: Caller, planned: Planned, orders: &Orders) {
        let Planned { change, undo } = planned;
        self.count += 1;
        let left = change.told().cores(orders.cores()).into();
        let number = self.count;
        self.line.push_back(UnderWay {
            caller,
            number,
            change,
            undo,
            left,
            done: Vec::new(),
            told: None,
            answer: None,
        });
    }

    /// A core has answered.
    pub(super) fn answered(&mut self, core: usize, number: u64, result: Result<(), String>) {
        if let Some(first) = self.line.front_mut().filter(|first| first.number == number)
            && first.told.as_ref().is_some_and(|(told, ..)| *told == core)
        {
            first.answer = Some(result);
        }
    }

    /// Brings the first change on. Those that are over, with what their callers are told.
    pub(super) fn turn(&mut self, now: Duration, orders: &mut Orders) -> Option<(Caller, Result<Value, Failure>)> {
        let first = self.line.front_mut()?;
        let result = first.advance(now, orders)?;
        let UnderWay { caller, .. } = self.line.pop_front()?;
        Some((caller, result))
    }
}

impl UnderWay {
    /// What came of it, once that is known.
    fn advance(&mut self, now: Duration, orders: &mut Orders) -> Option<Result<Value, Failure>> {
        if let Some((core, until, ticket)) = &self.told {
            let core = *core;
            match self.answer.take() {
                Some(Ok(())) => {
                    self.done.push(core);
                    self.told = None;
                }
                Some(Err(reason)) => {
                    self.take_back(orders);
                    return Some(Err(Failure::new(NOT_DONE, format!("{reason}; nothing was changed"))));
                }
                // Where the core was faster its answer is on its way.
                None if now >= *until && ticket.withdraw() => {
                    self.take_back(orders);
                    return Some(Err(stands_still(core)));
                }
                None => return None,
            }
        }
        let Some(core) = self.left.pop_front() else { return Some(Ok(done(true))) };
        let (number, change, ticket) = (self.number, Box::new(self.change.clone()), Ticket::default());
        if !orders.give(core, Order::Change { number, change, ticket: ticket.clone() }) {
            self.take_back(orders);
            return Some(Err(stands_still(core)));
        }
        self.told = Some((core, now.saturating_add(STEP_TIME), ticket));
        None
    }

    /// Cores that have done it undo it.
    fn take_back(&mut self, orders: &mut Orders) {
        for core in core::mem::take(&mut self.done) {
            // Its answer is for no change that there is. A core that stands still since does it when it goes on.
            orders.give(
                core,
                Order::Change { number: 0, change: Box::new(self.undo.clone()), ticket: Ticket::default() },
            );
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
fn subsystem<'a>(findings: &'a Findings, text: &str) -> Result<(Nqn, &'a SubsystemState), Failure> {
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

pub(super) fn set_namespace_active(findings: &Findings, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let NamespaceActive { subsystem: of, namespace: identifier, active } = read(parameters)?;
    let (name, state) = subsystem(findings, &of)?;
    if identifier == 0 || identifier > state.namespaces {
        let text = format!("params: namespace is {identifier}: must be from 1 to {}; choose one", state.namespaces);
        return Err(Failure::new(INVALID_PARAMS, text));
    }
    let is_it = |namespace: &frwr_nvmf::controller::NamespaceState, subsystems: &[SubsystemState]| {
        namespace.identifier == identifier && subsystems.get(namespace.subsystem).is_some_and(|of| of.name == name)
    };
    let home = findings.home().map(|home| &home.inventory);
    let before = home.and_then(|all| all.namespaces.iter().find(|namespace| is_it(namespace, &all.subsystems)));
    if before.is_some_and(|before| before.active == active) {
        return Ok(None);
    }
    let change = |active| Change::NamespaceActive { subsystem: name, identifier, active };
    Ok(Planned::new(change, active, !active))
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

pub(super) fn set_ana_state(findings: &Findings, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Ana { subsystem: of, state } = read(parameters)?;
    let (name, before) = subsystem(findings, &of)?;
    if before.ana == state.state() {
        return Ok(None);
    }
    let change = |state| Change::Ana { subsystem: name, state };
    Ok(Planned::new(change, state.state(), before.ana))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    subsystem: String,
    #[serde(deserialize_with = "Option::deserialize")]
    hosts: Option<Vec<String>>,
}

pub(super) fn set_allowed_hosts(findings: &Findings, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Allowed { subsystem: of, hosts } = read(parameters)?;
    let (name, before) = subsystem(findings, &of)?;
    let hosts = match hosts {
        None => AllowedHosts::Any,
        Some(names) if names.len() > MAX_ALLOWED_HOSTS => {
            let text =
                format!("params: hosts has {} names: must be {MAX_ALLOWED_HOSTS} at most; name fewer", names.len());
            return Err(Failure::new(INVALID_PARAMS, text));
        }
        Some(names) => AllowedHosts::Listed(names.iter().map(|name| nqn("hosts", name)).collect::<Result<_, _>>()?),
    };
    if before.hosts == hosts {
        return Ok(None);
    }
    let change = |hosts| Change::AllowedHosts { subsystem: name, hosts };
    Ok(Planned::new(change, hosts, before.hosts.clone()))
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
        Change::AllowedHosts { subsystem: Nqn::new("nqn.2026-11.invalid.frwr:a").unwrap(), hosts }
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
            let planned = Planned { change: wanted(), undo: change(AllowedHosts::Any) };
            changes.queue(caller(), planned, &orders);
            Self { orders, desks, changes }
        }

        fn turn(&mut self, millis: u64) -> Option<Result<Value, i64>> {
            while let Some((core, answer)) = self.orders.next_answer() {
                if let Answer::Changed { number, result } = answer {
                    self.changes.answered(core, number, result);
                }
            }
            let (_, result) = self.changes.turn(Duration::from_millis(millis), &mut self.orders)?;
            Some(result.map_err(|failure| failure.code))
        }

        /// A core looks for its orders: what it was told to do and did.
        fn obey(&mut self, core: usize, answer: Result<(), String>) -> Vec<Change> {
            let (mut did, desk) = (Vec::new(), &mut self.desks[core]);
            while let Some(order) = desk.next() {
                let Order::Change { number, change, ticket } = order else { panic!("nobody asked for a report") };
                if ticket.take() {
                    did.push(*change);
                    desk.answer(Answer::Changed { number, result: answer.clone() });
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
                assert_eq!(three.obey(other, Ok(())), []);
            }
            assert_eq!(three.obey(core, Ok(())), [wanted()]);
        }
        assert_eq!(three.turn(0), Some(Ok(done(true))));
        assert_eq!(three.turn(0), None);
    }

    #[test]
    fn a_change_that_one_core_refuses_is_undone_on_the_others() {
        let mut three = Three::new();
        assert_eq!(three.turn(0), None);
        assert_eq!(three.obey(1, Ok(())), [wanted()]);
        assert_eq!(three.turn(0), None);
        assert_eq!(three.obey(2, Err("no".to_owned())), [wanted()]);
        assert_eq!(three.turn(0), Some(Err(NOT_DONE)));
        assert_eq!(three.obey(1, Ok(())), [change(AllowedHosts::Any)]);
        assert_eq!((three.obey(2, Ok(())), three.obey(0, Ok(()))), (vec![], vec![]));
        assert_eq!(three.turn(0), None, "what was undone is no answer to anything");
    }

    #[test]
    fn a_core_that_stands_still_never_does_what_was_taken_back() {
        let mut three = Three::new();
        assert_eq!(three.turn(0), None);
        assert_eq!(three.obey(1, Ok(())), [wanted()]);
        assert_eq!(three.turn(1), None);
        assert_eq!(three.turn(5000), None);
        assert_eq!(three.turn(5001), Some(Err(TIMED_OUT)));
        assert_eq!(three.obey(2, Ok(())), [], "it goes on, and finds the order withdrawn");
        assert_eq!(three.obey(1, Ok(())), [change(AllowedHosts::Any)]);
    }

    #[test]
    fn a_core_that_was_faster_than_the_deadline_has_done_it() {
        let mut three = Three::new();
        assert_eq!(three.turn(0), None);
        // It takes the order in the moment in which the main thread would take it back.
        let taken = three.changes.line[0].told.as_ref().is_some_and(|(.., ticket)| ticket.take());
        assert!(taken);
        assert_eq!(three.turn(60_000), None, "its answer is waited for");
    }
}
