//! `frwr-reactor serve`: the target's half of the job, on whatever device.

use super::{
    error::RunError,
    incident_log,
    main_loop::MainLoop,
    namespaces::NamespaceReport,
    outcome::Outcome,
    plan,
    progress::{Doing, Progress},
    serve_command::ServeConfig,
    serve_report::ServeReport,
    start::{Beginning, Sides, for_target, launch, open},
};
use crate::storage::MIN_BLOCK_BYTES;
use frwr_engine::{control::Control, provider::Device};
use frwr_reactor::Topology;
use std::sync::atomic::AtomicBool;

/// Serves namespaces over `device` until `stop` is set or the runtime is over. `say` is told what they live in, and the
/// digests of files that were read into memory, then that the target listens, then what is moved in a second where something is.
///
/// # Errors
/// [`RunError`].
pub fn serve<D: Device>(
    device: D,
    config: &ServeConfig,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<ServeReport, RunError>
where
    D::Port: Send + 'static,
{
    let depth = plan::storage_depth(config);
    let mut reports = Vec::new();
    let subsystems = config.subsystems.iter().map(|subsystem| subsystem.prepare(depth, say, &mut reports));
    let subsystems = subsystems.collect::<Result<_, _>>()?;
    let mut plan = plan::served(config, subsystems, device.capabilities())?;
    let (sender, incidents) = incident_log::lane();
    plan.incidents = Some(sender);
    let mut control = Control::new(device);
    let (port, link) = open(&mut control, &plan.options.engine(), &plan.capabilities)?;
    let (progress, topology) = (Progress::new(1), Topology::of_machine());
    progress.publish(0, Doing::OpeningListener);
    let placement = config.placement.clone().unwrap_or_else(|| for_target(&topology));
    let sides = Sides::<_, D::Port> { targets: vec![Beginning { port, link, plan }], hosts: Vec::new() };
    let threads = launch(topology, placement, sides, &progress)?;
    reports.iter().for_each(|report| say(&report.line()));
    let (listen, all) = (config.listen, reports.iter().map(NamespaceReport::size).collect::<Vec<_>>().join("; "));
    // Of lines of progress: what most namespaces have.
    let block_bytes = reports.first().map_or(MIN_BLOCK_BYTES, |report| report.block_bytes);
    let main = MainLoop {
        controls: vec![&mut control],
        threads: &threads,
        progress: &progress,
        incidents: Some(incidents),
        trace: None,
        block_bytes,
        listening: Some(format!("listening on {listen}, {all}")),
        stop_at: config.runtime,
    };
    main.drive(stop, say)?;
    let Outcome { targets, cores, undrained, .. } = Outcome::collect(threads.join())?;
    if progress.doing() == Doing::CannotListen {
        return Err(RunError::Listen { address: listen });
    }
    let target = targets.into_iter().next().ok_or(RunError::Lost)?;
    Ok(ServeReport {
        device: config.device.device.clone(),
        listen,
        namespaces: reports,
        storages: target.storages(),
        target: target.statistics(),
        engine: target.engine(),
        control: control.statistics(),
        cores,
        undrained,
    })
}
