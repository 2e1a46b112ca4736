//! The report of a target that goes on, and of one that has ended: of what its cores have handed over.

use super::{
    progress::IoCounters,
    report::{CoreReport, MemoryReport},
    serve_report::{ServeReport, ServedTarget},
    survey::Findings,
};
use crate::report::Report as _;
use core::ops::Add;
use frwr_engine::{Statistics as EngineStatistics, control::ControlStatistics};
use frwr_nvmf::{
    controller::{Inventory, TargetStatistics},
    storage::StorageStatistics,
    wire::Nqn,
};
use frwr_reactor::Statistics as ReactorStatistics;
use serde_json::json;

/// What the target of one core has done so far, and what it has. Whoever makes it allocates: once for each time that somebody asks.
#[derive(Clone, Debug)]
pub(super) struct TargetSnapshot {
    pub(super) role: &'static str,
    pub(super) memory: MemoryReport,
    pub(super) io: IoCounters,
    pub(super) target: TargetStatistics,
    pub(super) inventory: Inventory,
    pub(super) engine: EngineStatistics,
}

impl TargetSnapshot {
    /// What each of these namespaces has done on this core; nothing where it is gone.
    fn storages(&self, identities: &[(Nqn, u32)]) -> Vec<StorageStatistics> {
        let all = || self.inventory.namespaces.iter();
        let name = |at: usize| self.inventory.subsystems.get(at).map(|subsystem| subsystem.name);
        let of = |(subsystem, identifier): &(Nqn, u32)| {
            let found = all().find(|one| one.identifier == *identifier && name(one.subsystem) == Some(*subsystem));
            found.map(|one| one.storage).unwrap_or_default()
        };
        identities.iter().map(of).collect()
    }
}

impl ServedTarget {
    /// The report of these cores, so far; snapshots are in their order.
    pub(super) fn report(
        self,
        snapshots: Vec<TargetSnapshot>,
        cores: Vec<ReactorStatistics>,
        control: ControlStatistics,
    ) -> ServeReport {
        let targets: Vec<_> = snapshots.iter().map(|core| core.target).collect();
        let engine = snapshots.iter().map(|core| core.engine).reduce(Add::add).unwrap_or_default();
        let storages = snapshots.iter().map(|core| core.storages(&self.identities)).reduce(sum).unwrap_or_default();
        let of_core = |(TargetSnapshot { role, memory, io, .. }, reactor)| CoreReport {
            role,
            memory,
            requests: io.commands,
            bytes: io.bytes,
            idle: false,
            reactor,
        };
        // It may listen elsewhere than at the start.
        let listeners = snapshots.first().map(|home| home.inventory.listeners.iter().map(|one| one.address).collect());
        ServeReport {
            served: Self { listen: listeners.unwrap_or_else(|| self.listen.clone()), ..self },
            storages,
            target: targets.iter().copied().reduce(Add::add).unwrap_or_default(),
            targets,
            engine,
            control,
            cores: snapshots.into_iter().zip(cores).map(of_core).collect(),
            undrained: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// What the namespaces have done on two cores.
fn sum(left: Vec<StorageStatistics>, right: Vec<StorageStatistics>) -> Vec<StorageStatistics> {
    left.into_iter().zip(right).map(|(left, right)| left + right).collect()
}

/// The report of a target that goes on.
pub(super) fn present(served: &ServedTarget, findings: &Findings, is_json: bool) -> String {
    let answered = findings.answered().map(|(snapshot, reactor)| (snapshot.clone(), reactor.clone()));
    let (snapshots, reactors) = answered.unzip();
    let report = served.clone().report(snapshots, reactors, findings.control);
    let silent = findings.silent();
    if is_json { json(&report, &silent) } else { text(&report, &silent) }
}

fn json(report: &ServeReport, silent: &[u16]) -> String {
    let mut object = report.json();
    (object["present"], object["silent_reactors"]) = (true.into(), json!(silent));
    object.to_string()
}

fn text(report: &ServeReport, silent: &[u16]) -> String {
    let mut text = report.table();
    for reactor in silent {
        text += &format!("\nreactor {reactor} has not answered: its figures are missing\n");
    }
    text.truncate(text.trim_end().len());
    text
}
