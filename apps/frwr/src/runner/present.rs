//! The report of a target that goes on, and of one that has ended: of what its cores have handed over.

use super::{
    report::CoreReport,
    serve_report::{ServeReport, ServedTarget},
    snapshot::TargetSnapshot,
    survey::Findings,
};
use crate::report::Report as _;
use core::ops::Add;
use frwr_engine::control::ControlStatistics;
use frwr_nvmf::{controller::ListenerState, storage::StorageStatistics};
use frwr_reactor::Statistics as ReactorStatistics;
use serde_json::json;

impl ServedTarget {
    /// The report of these cores, so far: each with what it has on each device, in their order.
    pub(super) fn report(
        self,
        cores: Vec<(Vec<TargetSnapshot>, ReactorStatistics)>,
        control: ControlStatistics,
    ) -> ServeReport {
        let all = || cores.iter().flat_map(|(snapshots, _)| snapshots);
        let target = |snapshots: &Vec<TargetSnapshot>| {
            snapshots.iter().map(|one| one.target).reduce(Add::add).unwrap_or_default()
        };
        let targets: Vec<_> = cores.iter().map(|(snapshots, _)| target(snapshots)).collect();
        let engine = all().map(|one| one.engine).reduce(Add::add).unwrap_or_default();
        let storages = all().map(|one| one.storages(&self.identities)).reduce(sum).unwrap_or_default();
        // It may listen elsewhere than at the start.
        let listeners = cores.first().map(|(snapshots, _)| {
            let of_home = |home: &TargetSnapshot| {
                let at = |one: &ListenerState| self.listen_at(home.place, one.address);
                home.inventory.listeners.iter().map(at).collect::<Vec<_>>()
            };
            snapshots.iter().flat_map(of_home).collect::<Vec<_>>()
        });
        let of_core = |(snapshots, reactor): (Vec<TargetSnapshot>, ReactorStatistics)| {
            let io = snapshots.iter().map(|one| one.io).reduce(Add::add).unwrap_or_default();
            let TargetSnapshot { role, memory, .. } = snapshots.into_iter().next()?;
            Some(CoreReport { role, memory, requests: io.commands, bytes: io.bytes, idle: false, reactor })
        };
        ServeReport {
            served: Self { listen: listeners.unwrap_or_else(|| self.listen.clone()), ..self },
            storages,
            target: targets.iter().copied().reduce(Add::add).unwrap_or_default(),
            targets,
            engine,
            control,
            cores: cores.into_iter().filter_map(of_core).collect(),
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
    // Who has said something has said it of the first device first.
    let answered = findings.cores.iter().filter(|core| core.said().next().is_some());
    let cores =
        answered.map(|core| (core.said().chain(&core.former).cloned().collect(), core.reactor.clone())).collect();
    let report = served.clone().report(cores, findings.control());
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
