//! What the cores gave back, and the report that it makes.

use super::{
    cores::Core,
    host_side::HostSide,
    load_file::hex,
    load_report::{LoadReport, LoadedNamespace},
    remedy::no_session,
    report::{CoreReport, RunReport, Subject},
    target_side::TargetSide,
};
use crate::{
    Error,
    job::{Job, Tally},
};
use core::time::Duration;
use frwr_engine::{control::ControlStatistics, provider::Port};
use frwr_nvmf::host::HostStatistics;
use frwr_reactor::{Finished, RunningError};

/// The ended cores: what they carried, in their order, and figures of all.
pub(super) struct Outcome<T: Port, H: Port> {
    /// Of each core one for each device.
    pub(super) targets: Vec<Vec<TargetSide<T>>>,
    pub(super) hosts: Vec<HostSide<H>>,
    pub(super) cores: Vec<CoreReport>,
    pub(super) undrained: Vec<String>,
}

impl<T: Port, H: Port> Outcome<T, H> {
    pub(super) fn collect(ended: Vec<Result<Finished<Core<T, H>>, RunningError>>) -> Result<Self, Error> {
        let mut outcome = Self { targets: Vec::new(), hosts: Vec::new(), cores: Vec::new(), undrained: Vec::new() };
        for finished in ended {
            let Finished { core, context, report } = finished?;
            outcome.undrained.extend(report.undrained.iter().map(|name| format!("reactor {core}: {name}")));
            if let Some(memory) = context.memory() {
                let (role, memory, io) = (context.role(), memory.clone(), context.counted());
                let idle = !context.hosts.is_empty() && context.hosts.iter().all(HostSide::had_no_queue);
                let (requests, bytes) = (io.commands, io.bytes);
                outcome.cores.push(CoreReport { role, memory, requests, bytes, idle, reactor: report.statistics });
            }
            outcome.hosts.extend(context.hosts);
            outcome.targets.push(context.target.into_iter().chain(context.others.into_iter().flatten()).collect());
        }
        Ok(outcome)
    }

    /// Records of traces that found no room.
    pub(super) fn records_lost(&self) -> u64 {
        let engines =
            self.targets.iter().flatten().map(TargetSide::engine).chain(self.hosts.iter().map(HostSide::engine));
        engines.map(|engine| engine.trace_records_dropped).sum()
    }

    /// A host gave its target up.
    pub(super) fn gave_up(&self) -> bool {
        self.hosts.iter().any(HostSide::gave_up)
    }

    /// The host's report, and the host.
    pub(super) fn report(
        self,
        subject: Subject,
        load: Option<LoadReport>,
        control: ControlStatistics,
    ) -> Result<(RunReport, HostSide<H>), Error> {
        let mut hosts = self.hosts.into_iter();
        let host = hosts.next().ok_or_else(Error::lost)?;
        let others: Vec<HostSide<H>> = hosts.collect();
        let all = || core::iter::once(&host).chain(&others);
        if let Some(reason) = all().find_map(HostSide::refusal) {
            return Err(Error::failed("namespace", reason));
        }
        if let Some((attempts, failure)) = all().find_map(HostSide::never_connected) {
            return Err(no_session(subject.address, attempts, &failure, "raise --reconnects"));
        }
        let leads = || all().filter(|host| host.leads());
        let digest = host.job().and_then(|job| job.digest());
        let tally = tally(all().filter_map(HostSide::tally))?;
        let report = RunReport {
            subject,
            file_bytes: leads().filter_map(HostSide::job).map(Job::content_in_all).sum(),
            sha256: digest.as_ref().map(hex),
            verified: leads().all(|host| host.job().is_some_and(Job::verified)),
            interrupted: all().any(HostSide::interrupted),
            caught: all().find_map(HostSide::caught),
            session: others.iter().fold(host.session(), together),
            queues: all().map(HostSide::queues).sum(),
            elapsed: elapsed(all().filter_map(HostSide::span)),
            engine: others.iter().fold(host.engine(), |sum, other| sum + other.engine()),
            control,
            remote_bytes_open: all().filter_map(HostSide::remote_bytes_open).reduce(|sum, bytes| sum + bytes),
            latency: tally.total().latency,
            tally,
            load: load.map(|load| LoadReport {
                behind: all().filter_map(|host| host.job()?.behind()).max(),
                namespaces: namespaces(all()),
                paths: all().flat_map(HostSide::paths).collect(),
                unchecked_bytes: all().filter_map(|host| Some(host.job()?.unchecked_bytes())).sum(),
                ..load
            }),
            cores: self.cores,
            injected: None,
            last_failure: leads().find_map(HostSide::last_failure).map(|failure| failure.to_string()),
            undrained: self.undrained,
            warnings: Vec::new(),
        };
        Ok((report, host))
    }
}

/// With another core's: one that follows nobody has sessions of its own, of which the first is none again.
fn together<P: Port>(sum: HostStatistics, other: &HostSide<P>) -> HostStatistics {
    if other.follows() {
        return sum.with_follower(&other.session());
    }
    let mut all = sum + other.session();
    all.sessions -= 1.min(other.session().sessions);
    all
}

/// What was moved in each namespace, in their order.
fn namespaces<'a, P: Port + 'a>(hosts: impl Iterator<Item = &'a HostSide<P>>) -> Vec<LoadedNamespace> {
    let mut all: Vec<LoadedNamespace> = Vec::new();
    for host in hosts {
        let (nsid, tally) = (host.namespace(), host.tally());
        let (requests, bytes) = (tally.map_or(0, Tally::requests), tally.map_or(0, Tally::bytes));
        match all.iter_mut().find(|namespace| namespace.nsid == nsid) {
            Some(namespace) => {
                namespace.requests += requests;
                namespace.bytes += bytes;
            }
            None => all.push(LoadedNamespace { nsid, requests, bytes }),
        }
    }
    all
}

/// From the first request of any core to the last end on any.
fn elapsed(spans: impl Iterator<Item = (Duration, Duration)>) -> Duration {
    let all = spans.reduce(|all, span| (all.0.min(span.0), all.1.max(span.1)));
    all.map_or(Duration::ZERO, |(first, last)| last.saturating_sub(first))
}

/// Of all cores.
fn tally<'a>(cores: impl Iterator<Item = &'a Tally>) -> Result<Tally, Error> {
    let mut all = Tally::new().map_err(|error| Error::setup(format!("no latency histogram: {error:?}")))?;
    cores.for_each(|tally| all.add(tally));
    Ok(all)
}
