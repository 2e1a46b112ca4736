//! The report of a target that goes on: each core hands its figures over when somebody asks, and the main thread puts them together.

use super::{
    progress::IoCounters,
    report::{CoreReport, MemoryReport},
    serve_report::{ServeReport, ServedTarget},
};
use crate::report::Report as _;
use core::{ops::Add, time::Duration};
use frwr_engine::{Statistics as EngineStatistics, control::ControlStatistics};
use frwr_mempool::lane;
use frwr_nvmf::{controller::TargetStatistics, storage::StorageStatistics};
use frwr_reactor::Statistics as ReactorStatistics;
use serde_json::json;

/// How long cores are waited for that shall hand over their figures: one that goes on takes no time at all, however busy its processor.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Answers on their way: one that came too late, and the next.
const LANE: usize = 2;

/// What the target of one core has done so far. Whoever makes it allocates: once for each time that somebody asks.
#[derive(Clone, Debug)]
pub(super) struct TargetSnapshot {
    pub(super) role: &'static str,
    pub(super) memory: MemoryReport,
    pub(super) io: IoCounters,
    pub(super) target: TargetStatistics,
    pub(super) storages: Vec<StorageStatistics>,
    pub(super) engine: EngineStatistics,
}

/// From a target's core to the main thread.
pub(super) fn lane() -> (lane::Sender<Box<TargetSnapshot>>, lane::Receiver<Box<TargetSnapshot>>) {
    lane::bounded(LANE)
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
        let storages = snapshots.iter().map(|core| core.storages.clone()).reduce(sum).unwrap_or_default();
        let of_core = |(TargetSnapshot { role, memory, io, .. }, reactor)| CoreReport {
            role,
            memory,
            requests: io.commands,
            bytes: io.bytes,
            idle: false,
            reactor,
        };
        ServeReport {
            served: self,
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

/// Asks the cores and waits for what they answer.
pub(super) struct Present {
    served: ServedTarget,
    json: bool,
    cores: Vec<(lane::Receiver<Box<TargetSnapshot>>, Option<TargetSnapshot>)>,
    due: Option<Duration>,
}

impl Present {
    pub(super) fn new(served: ServedTarget, json: bool, lanes: Vec<lane::Receiver<Box<TargetSnapshot>>>) -> Self {
        Self { served, json, cores: lanes.into_iter().map(|lane| (lane, None)).collect(), due: None }
    }

    /// The cores were asked at this time.
    pub(super) fn begin(&mut self, now: Duration) {
        for (lane, answer) in &mut self.cores {
            // What came too late is no answer to this.
            while lane.pop().is_some() {}
            *answer = None;
        }
        self.due = Some(now.saturating_add(ANSWER_TIME));
    }

    /// The report, once all cores have answered, or time is up.
    pub(super) fn tell(
        &mut self,
        now: Duration,
        reactors: impl FnOnce() -> Vec<ReactorStatistics>,
        control: impl FnOnce() -> ControlStatistics,
    ) -> Option<String> {
        let due = self.due?;
        for (lane, answer) in &mut self.cores {
            if let Some(snapshot) = lane.pop() {
                *answer = Some(*snapshot);
            }
        }
        if now < due && self.cores.iter().any(|(_, answer)| answer.is_none()) {
            return None;
        }
        self.due = None;
        let (answered, silent): (Vec<_>, Vec<_>) =
            self.cores.iter_mut().map(|(_, answer)| answer.take()).zip(reactors()).partition(|(it, _)| it.is_some());
        let silent: Vec<_> = silent.into_iter().map(|(_, reactor)| reactor.core.0).collect();
        let (snapshots, reactors) = answered.into_iter().filter_map(|(it, reactor)| Some((it?, reactor))).unzip();
        let report = self.served.clone().report(snapshots, reactors, control());
        Some(if self.json { json(&report, &silent) } else { text(&report, &silent) })
    }
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
