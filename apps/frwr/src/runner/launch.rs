//! The whole job in one process, from its command line to its report: fabric and devices, a control for each, one or two
//! reactors.

use super::{
    command_line::{Config, Inject},
    depth::Depth,
    load_file::{LoadedFile, load},
    main_loop::{MainLoop, ended, leave},
    media_watch::MediaWatch,
    names::loop_address,
    outcome::Outcome,
    path_log::PathLog,
    places::Places,
    plan,
    progress::Progress,
    report::{Compared, Injected, RunReport, Subject},
    stalls::StallWatch,
    start::{Beginning, Sides, first_node, for_both, launch, open},
    trace::{self, OF_KEYS, OF_PORT, RING_RECORDS, Trace, check_path},
};
use crate::watch::{Lookout, with_neighbours};
use crate::{Error, options::reactors, signals::Asked};
use core::num::NonZeroU64;
use frwr_engine::{
    control::Control,
    provider::{
        Device, Port,
        record::{Recorded, Taps},
        soft::{SoftDevice, SoftFabric, SoftMonitor, SoftOptions},
    },
};
use frwr_reactor::Topology;
use std::path::Path;

/// One invalidation in this many is skipped by `--inject skip-invalidate`: more than a session needs to come up, where the
/// device would refuse to make the same key again before the job has begun.
const SKIP_EVERY: u64 = 40;

/// Runs the main job. `say` gets the lines of progress; `asked` may end the run early.
///
/// # Errors
/// [`Error`]; a run that found something wrong returns its report.
pub fn run(config: &Config, asked: &dyn Asked, say: &mut dyn FnMut(&str)) -> Result<RunReport, Error> {
    let moved = ("the file to move", Some(config.file.as_path()));
    check_path(OF_PORT, config.job.trace.as_deref(), &[moved])?;
    check_path(OF_KEYS, config.job.output.trace_keys.as_deref(), &[moved, (OF_PORT, config.job.trace.as_deref())])?;
    let file = load(&config.file)?;
    let fabric = SoftFabric::new();
    let mut options = SoftOptions::new(config.profile);
    options.seed = config.job.seed;
    let target = fabric.device(options);
    if config.inject == Some(Inject::SkipInvalidate) {
        options.skip_invalidations = NonZeroU64::new(SKIP_EVERY);
    }
    let host = fabric.device(options);
    let job = Move { config, file: &file, monitor: host.monitor(), asked, say };
    match &config.job.trace {
        None => job.run(target, host, None),
        Some(path) => {
            let (host, taps) = Recorded::new(host, RING_RECORDS);
            job.run(target, host, Some((path, taps)))
        }
    }
}

/// What is to be done, and who is to be told.
struct Move<'a> {
    config: &'a Config,
    file: &'a LoadedFile,
    /// Of the host's device.
    monitor: SoftMonitor,
    asked: &'a dyn Asked,
    say: &'a mut dyn FnMut(&str),
}

impl Move<'_> {
    /// `tracing`: where records go, and the taps of the host's device.
    fn run<H: Device<Port: Send + 'static>>(
        self,
        target: SoftDevice,
        host: H,
        tracing: Option<(&Path, Taps)>,
    ) -> Result<RunReport, Error> {
        let Self { config, file, monitor, asked, say } = self;
        let topology = with_neighbours(Topology::of_machine());
        let placement = config.placement.clone().unwrap_or_else(|| for_both(&topology));
        let target_plan = plan::target(config, file, first_node(&placement, &topology), target.capabilities())?;
        let host_plan = plan::host(config, file, host.capabilities())?;
        let depth = Depth::of_requests(config.job.queue_depth, &host_plan.options.engine(), &host_plan.capabilities);
        if let Some(line) = depth.line("--queue-depth", "requests") {
            say(&line);
        }
        let (mut target_control, mut host_control) = (Control::new(target), Control::new(host));
        let (port, link) = open(&mut target_control, &target_plan.options.engine(), &target_plan.capabilities)?;
        let mut keys = config.job.output.trace_keys.as_deref().map(Trace::of_keys).transpose()?;
        let follow = |keys: &mut Option<Trace>, side, reactor| keys.as_mut().map(|keys| keys.follow(side, reactor));
        let target =
            Beginning { port, link, further: Vec::new(), plan: target_plan, keys: follow(&mut keys, "target", 0) };
        let (port, link) = open(&mut host_control, &host_plan.options.engine(), &host_plan.capabilities)?;
        // The last of them carries the host.
        let keys_of_host = follow(&mut keys, "host", reactors(&placement).saturating_sub(1));
        let host = Beginning { port, link, further: Vec::new(), plan: host_plan, keys: keys_of_host };
        let of_port = match tracing {
            Some((path, taps)) => Trace::of_port(path, &taps, host.port.id())?,
            None => None,
        };
        let progress = Progress::new(1);
        let sides = Sides { targets: vec![vec![target]], hosts: vec![vec![host]], doors: None };
        let mut lookout = Lookout::begin(&topology);
        let threads = match launch(topology, placement, &config.job.core, sides, &progress, asked, say) {
            Ok(threads) => threads,
            Err(error) => return Err(leave(error, (target_control, host_control))),
        };
        lookout.placed(threads.cpus(), say);
        let mut traces: Vec<_> = of_port.into_iter().chain(keys).collect();
        traces.iter_mut().for_each(|trace| trace.started(&threads.cpus().collect::<Vec<_>>()));
        let main = MainLoop {
            controls: vec![&mut target_control, &mut host_control],
            threads: &threads,
            progress: &progress,
            places: &mut Places::default(),
            load: None,
            paths: PathLog::default(),
            following: None,
            operator: None,
            media: &mut MediaWatch::default(),
            lookout: &mut lookout,
            stalls: StallWatch::new(config.job.core.stall_threshold()),
            traces: &mut traces,
            listening: None,
            stop_at: None,
            service: None,
        };
        let driven = main.drive(asked, say);
        let outcome = match ended(threads, driven) {
            Ok(ended) => Outcome::collect(ended)?,
            Err(error) => return Err(leave(error, (target_control, host_control))),
        };
        traces.iter_mut().try_for_each(|trace| trace.ended(outcome.records_lost()))?;
        trace::finish(traces, say)?;
        let corrupted = outcome.targets.iter().flatten().map(|target| target.statistics().corrupted_reads).sum();
        let (mut report, _) = outcome.report(subject(config, depth.effective), None, host_control.statistics())?;
        report.warnings = lookout.end(say);
        report.injected = config.inject.map(|fault| Injected {
            fault,
            struck: match fault {
                Inject::CorruptData => corrupted,
                Inject::SkipInvalidate => monitor.skipped_invalidations(),
                Inject::KillPeer => report.reconnects(),
            },
        });
        Ok(report)
    }
}

fn subject(config: &Config, effective_queue_depth: u32) -> Subject {
    Subject {
        device: format!("soft:{}", config.profile),
        file: config.file.display().to_string(),
        compared: Compared::File,
        block_bytes: config.job.block.block_size,
        queue_depth: config.job.queue_depth,
        effective_queue_depth,
        read_share: config.job.read_share(),
        address: loop_address(),
    }
}
