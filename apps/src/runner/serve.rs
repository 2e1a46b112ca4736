//! `frwr-reactor serve`: the target's half of the job, on whatever device.

use super::{
    error::RunError,
    load_file::{hex, load as load_file},
    main_loop::MainLoop,
    outcome::Outcome,
    plan,
    progress::{Doing, Progress},
    serve_command::ServeConfig,
    serve_report::ServeReport,
    start::{Beginning, Sides, for_target, launch, open},
};
use frwr_engine::{control::Control, provider::Device};
use frwr_reactor::Topology;
use std::sync::atomic::AtomicBool;

/// Serves a file's bytes over `device` until `stop` is set or the runtime is over. `say` is told the namespace's digest,
/// then that the target listens, then what is moved in a second where something is.
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
    let file = load_file(&config.namespace)?;
    let (bytes, sha256) = (file.bytes.len() as u64, hex(&file.digest));
    let plan = plan::served(config, &file, device.capabilities())?;
    let (namespace, blocks) = (config.namespace.display().to_string(), plan.blocks);
    // The namespace holds them from now on.
    drop(file);
    let mut control = Control::new(device);
    let (port, link) = open(&mut control, &plan.options.engine(), &plan.capabilities)?;
    let (progress, topology) = (Progress::default(), Topology::of_machine());
    progress.publish(0, Doing::OpeningListener);
    let placement = config.placement.clone().unwrap_or_else(|| for_target(&topology));
    let sides = Sides::<_, D::Port> { target: Some(Beginning { port, link, plan }), host: None };
    let threads = launch(topology, placement, sides, &progress)?;
    say(&format!("{namespace}: {bytes} bytes, SHA-256 {sha256} (load: --bytes {bytes} --expect-sha256 {sha256})"));
    let (listen, block_bytes) = (config.listen, config.block_bytes);
    let main = MainLoop {
        controls: vec![&mut control],
        threads: &threads,
        progress: &progress,
        trace: None,
        block_bytes,
        listening: Some(format!(
            "listening on {listen}, namespace {namespace}, {blocks} blocks of {block_bytes} bytes"
        )),
        stop_at: config.runtime,
    };
    main.drive(stop, say)?;
    let Outcome { target, cores, undrained, .. } = Outcome::collect(threads.join())?;
    if progress.doing() == Doing::CannotListen {
        return Err(RunError::Listen { address: listen });
    }
    let target = target.ok_or(RunError::Lost)?;
    Ok(ServeReport {
        device: config.device.device.clone(),
        listen,
        namespace,
        namespace_bytes: bytes,
        sha256,
        blocks,
        block_bytes,
        target: target.statistics(),
        engine: target.engine(),
        control: control.statistics(),
        cores,
        undrained,
    })
}
