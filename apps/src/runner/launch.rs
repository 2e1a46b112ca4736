//! From a checked command line to a report: fabric, devices, controls, reactors, and the main thread's loop.

use super::{
    command_line::{Config, Inject},
    cores::Core,
    error::{RunError, SetupError},
    host_side::{HostPlan, HostPoller, HostSide},
    load_file::{LoadedFile, load},
    progress::Progress,
    report::{CoreReport, RunReport},
    target_side::{TargetPlan, TargetPoller, TargetSide},
    trace::{RING_RECORDS, Trace},
};
use crate::{
    host::HostOptions,
    job::{JobOptions, Phase},
    nvmf::Nqn,
    target::TargetOptions,
};
use core::{convert::Infallible, num::NonZeroU64, time::Duration};
use frwr_engine::{
    CoreLink, Engine,
    control::Control,
    provider::{
        Device, Port,
        record::Recorded,
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort},
    },
};
use frwr_reactor::{
    Clock, CoreIndex, Finished, Placement, Reactor, Reactors, Running, RunningError, Schedule, Seat, Topology,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// How long the cores may drain at the end: the host's own steps take at most as long.
const GRACE: Duration = Duration::from_secs(10);
/// Pause of the main thread when Control has nothing to do. It shares the machine with the pinned cores.
const CONTROL_PAUSE: Duration = Duration::from_micros(200);
/// One read in this many at most is spoilt by `--inject corrupt-data`.
const CORRUPT_EVERY: u64 = 100;
/// One invalidation in this many is skipped by `--inject skip-invalidate`.
const SKIP_EVERY: u64 = 3;

/// Runs the main job. `say` gets the lines of progress; `stop` ends the run early.
///
/// # Errors
/// [`RunError`]; a run that found something wrong returns its report.
pub fn run(config: &Config, stop: &Arc<AtomicBool>, say: &mut dyn FnMut(&str)) -> Result<RunReport, RunError> {
    let file = load(&config.file)?;
    let fabric = SoftFabric::new();
    let mut options = SoftOptions::new(config.profile);
    options.seed = config.seed;
    let target = fabric.device(options);
    if config.inject == Some(Inject::SkipInvalidate) {
        options.skip_invalidations = NonZeroU64::new(SKIP_EVERY);
    }
    let host = fabric.device(options);
    match &config.trace {
        None => Setup { config, file, trace: None, port: None }.run(target, host, stop, say),
        Some(path) => {
            let (host, taps) = Recorded::new(host, RING_RECORDS);
            let trace = Some((path.clone(), taps));
            Setup { config, file, trace, port: None }.run(target, host, stop, say)
        }
    }
}

/// What is known before the reactors start.
struct Setup<'a> {
    config: &'a Config,
    file: LoadedFile,
    trace: Option<(std::path::PathBuf, frwr_engine::provider::record::Taps)>,
    port: Option<frwr_engine::provider::PortId>,
}

type CoreOf<H> = Core<SoftPort, <H as Device>::Port>;
type Ended<H> = Vec<Result<Finished<CoreOf<H>>, RunningError>>;

impl Setup<'_> {
    fn run<H: Device>(
        mut self,
        target: SoftDevice,
        host: H,
        stop: &Arc<AtomicBool>,
        say: &mut dyn FnMut(&str),
    ) -> Result<RunReport, RunError>
    where
        H::Port: Send + 'static,
    {
        let progress = Progress::default();
        let (target_plan, host_plan) = self.plans(&target, &host)?;
        let mut target_control = Control::new(target);
        let mut host_control = Control::new(host);
        let entries = |options: &frwr_engine::EngineOptions, capabilities| {
            Engine::<SoftPort>::completion_entries(options, capabilities)
                .map_err(|error| RunError::from_setup(CoreIndex(0), error.into()))
        };
        let (send, receive) = entries(&target_plan.options.engine(), &target_plan.capabilities)?;
        let target_port = target_control.open_core(send, receive)?;
        let (send, receive) = entries(&host_plan.options.engine(), &host_plan.capabilities)?;
        let host_port = host_control.open_core(send, receive)?;
        self.port = Some(host_port.0.id());
        let trace = self.open_trace()?;
        let ports =
            Ports { target: (target_port, target_plan), host: (host_port, host_plan), progress: progress.clone() };
        let running = self.launch::<H>(ports)?;
        let mut main = MainLoop { target_control, host_control, running, progress, trace };
        main.drive(self.config, stop, say)?;
        let MainLoop { host_control, running, trace, .. } = main;
        let ended = running.join();
        if let Some(trace) = trace {
            trace.finish()?;
        }
        self.report::<H>(ended, &host_control)
    }

    fn open_trace(&self) -> Result<Option<Trace>, RunError> {
        match (&self.trace, self.port) {
            (Some((path, taps)), Some(port)) => Trace::new(path, taps, port),
            _ => Ok(None),
        }
    }

    fn plans<H: Device>(&self, target: &SoftDevice, host: &H) -> Result<(TargetPlan, HostPlan), RunError> {
        let config = self.config;
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        let name = |text: &str| Nqn::new(text).map_err(|error| RunError::Name(error.to_string()));
        let subsystem = name("nqn.2026-11.invalid.frwr:file")?;
        // One request per slot, and the entry that a queue never uses.
        let depth = config.queue_depth as u16;
        let mut options = TargetOptions::new(address, subsystem);
        options.queue_entries = (depth + 1).max(crate::target::ADMIN_QUEUE_ENTRIES);
        options.buffer_bytes = options.buffer_bytes.max(config.block_bytes);
        let blocks = (self.file.bytes.len() as u64).div_ceil(config.block_bytes.into());
        // Small files too: reading back is as many reads as there are blocks.
        let corrupt_every = NonZeroU64::new(CORRUPT_EVERY.min(blocks));
        options.corrupt_reads = corrupt_every.filter(|_| config.inject == Some(Inject::CorruptData));
        let target_plan = TargetPlan {
            options,
            blocks,
            block_bytes: config.block_bytes,
            pages: config.pages,
            capabilities: *target.capabilities(),
        };
        let mut options = HostOptions::new(address, subsystem, name("nqn.2026-11.invalid.frwr:host")?);
        options.queue_depth = depth;
        options.remote_invalidation = config.remote_invalidate;
        let job = JobOptions {
            file: Arc::clone(&self.file.bytes),
            digest: self.file.digest,
            block_bytes: config.block_bytes,
            queue_depth: config.queue_depth,
            read_share: config.read_share,
            runtime: config.runtime,
            seed: config.seed,
        };
        let capabilities = *host.capabilities();
        let host_plan = HostPlan { options, job, pages: config.pages, capabilities, inject: config.inject };
        Ok((target_plan, host_plan))
    }

    fn launch<H: Device>(&self, ports: Ports<H>) -> Result<Running<Infallible, CoreOf<H>>, RunError>
    where
        H::Port: Send + 'static,
    {
        let topology = Topology::of_machine();
        let placement = self.config.placement.clone().unwrap_or_else(|| default_placement(&topology));
        let cores = match &placement {
            Placement::Cores(cores) => cores.len(),
            Placement::Spread { reactors } | Placement::Unpinned { reactors } => *reactors,
        };
        // Each side is made on its own core; what it needs waits here until its core fetches it.
        let (target, host) = (Arc::new(Mutex::new(Some(ports.target))), Arc::new(Mutex::new(Some(ports.host))));
        let progress = ports.progress;
        let reactors = Reactors::<Infallible>::new(placement).topology(topology).allow_siblings(false);
        let running = reactors.launch(move |core: CoreIndex| {
            let last = core.index() + 1 == cores;
            let target = (core.index() == 0).then(|| Arc::clone(&target));
            let host = last.then(|| Arc::clone(&host));
            let progress = progress.clone();
            move |seat: Seat<Infallible>, _| build::<H>(seat, target, host, progress)
        })?;
        Ok(running)
    }

    fn report<H: Device>(&self, ended: Ended<H>, control: &Control<H>) -> Result<RunReport, RunError> {
        let mut cores = Vec::new();
        let (mut undrained, mut host) = (Vec::new(), None);
        for finished in ended {
            let Finished { core, mut context, report } = finished?;
            undrained.extend(report.undrained.iter().map(|name| format!("reactor {core}: {name}")));
            let role = context.role();
            let host_side = context.host.take();
            let region = match (&host_side, &context.target) {
                (Some(side), _) => Some(side.region_kind()),
                (None, Some(side)) => Some(side.region_kind()),
                (None, None) => None,
            };
            let requests = match (&host_side, &context.target) {
                (Some(side), _) => side.job().requests(),
                (None, Some(side)) => side.commands(),
                (None, None) => 0,
            };
            let elapsed = host_side.as_ref().map(HostSide::elapsed);
            if let Some(region) = region {
                let reactor = report.statistics;
                let elapsed = elapsed.unwrap_or_default();
                cores.push(CoreReport { role, region, requests, elapsed, reactor });
            }
            host = host_side.or(host);
        }
        let host = host.ok_or(RunError::Lost)?;
        for core in &mut cores {
            // The target worked for as long as the host asked.
            core.elapsed = host.elapsed();
        }
        let (reconnects, resubmitted) = host.recovery();
        Ok(RunReport {
            device: format!("soft:{}", self.config.profile),
            file: self.config.file.display().to_string(),
            file_bytes: self.file.bytes.len() as u64,
            block_bytes: self.config.block_bytes,
            queue_depth: self.config.queue_depth,
            verified: host.job().verified(),
            interrupted: host.interrupted(),
            caught: host.caught(),
            reconnects,
            resubmitted,
            engine: host.engine(),
            control: control.statistics(),
            remote_bytes_open: host.remote_bytes_open(),
            latency: host.job().latency().clone(),
            cores,
            undrained,
        })
    }
}

/// Two physical cores if there are, else one; not pinned where not even that may be chosen.
fn default_placement(topology: &Topology) -> Placement {
    [2, 1]
        .map(|reactors| Placement::Spread { reactors })
        .into_iter()
        .find(|placement| placement.resolve(topology, false).is_ok())
        .unwrap_or(Placement::Unpinned { reactors: 2 })
}

/// What each side needs to begin.
struct Ports<H: Device> {
    target: ((SoftPort, CoreLink), TargetPlan),
    host: ((H::Port, CoreLink), HostPlan),
    progress: Progress,
}

type Waiting<T> = Option<Arc<Mutex<Option<T>>>>;

fn fetch<T>(waiting: Waiting<T>) -> Option<T> {
    waiting.and_then(|waiting| waiting.lock().unwrap_or_else(PoisonError::into_inner).take())
}

/// Builds one core, on that core.
#[allow(clippy::type_complexity, reason = "the types are those of Ports, and named there")]
fn build<H: Device>(
    seat: Seat<Infallible>,
    target: Waiting<((SoftPort, CoreLink), TargetPlan)>,
    host: Waiting<((H::Port, CoreLink), HostPlan)>,
    progress: Progress,
) -> Result<Reactor<CoreOf<H>>, SetupError>
where
    H::Port: Send + 'static,
{
    let node = seat.node();
    let target = match fetch(target) {
        Some(((port, link), plan)) => Some(TargetSide::new(port, link, &plan, node, progress.clone())?),
        None => None,
    };
    let host = match fetch(host) {
        Some(((port, link), plan)) => Some(HostSide::new(port, link, plan, node, progress)?),
        None => None,
    };
    let (has_target, has_host) = (target.is_some(), host.is_some());
    let mut reactor = seat.reactor(Core { target, host });
    let failed = |error: frwr_reactor::PollerError| SetupError::Poller(error.to_string());
    if has_target {
        reactor.add("target", Schedule::Busy, TargetPoller).map_err(failed)?;
    }
    if has_host {
        reactor.add("host", Schedule::Busy, HostPoller).map_err(failed)?;
    }
    Ok(reactor)
}

/// The main thread: Control, signals, a line per second.
struct MainLoop<H: Device> {
    target_control: Control<SoftDevice>,
    host_control: Control<H>,
    running: Running<Infallible, CoreOf<H>>,
    progress: Progress,
    trace: Option<Trace>,
}

impl<H: Device> MainLoop<H>
where
    H::Port: Send + 'static,
{
    fn drive(&mut self, config: &Config, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<(), RunError> {
        let clock = Clock::system();
        let began = clock.now();
        let (mut next_line, mut before) = (Duration::from_secs(1), 0);
        let mut asked = false;
        while !self.running.is_finished() {
            let mut work = self.target_control.poll() + self.host_control.poll();
            if let Some(trace) = &mut self.trace {
                work += trace.drain()? as u32;
            }
            if stop.load(Relaxed) {
                self.progress.stop();
            }
            if self.progress.is_finished() && !asked {
                asked = true;
                self.running.shutdown_handle().request(GRACE);
            }
            let elapsed = clock.now().saturating_sub(began);
            if elapsed >= next_line {
                let requests = self.progress.requests();
                say(&self.line(elapsed, requests - before, config.block_bytes));
                before = requests;
                next_line += Duration::from_secs(1);
            }
            if work == 0 {
                pause();
            }
        }
        Ok(())
    }

    fn line(&self, elapsed: Duration, requests: u64, block_bytes: u32) -> String {
        let busy: Vec<_> =
            self.running.statistics().iter().map(|core| format!("{:.0}%", 100.0 * core.busy_share())).collect();
        format!(
            "{:>4} s  {:<13} {:>9} IOPS {:>9.1} MiB/s  busy {}",
            elapsed.as_secs(),
            phase_name(self.progress.phase()),
            requests,
            requests as f64 * f64::from(block_bytes) / f64::from(1 << 20),
            busy.join(" ")
        )
    }
}

/// The main thread is no reactor: it makes room for them.
#[allow(clippy::disallowed_methods, reason = "the one thread of this program that may sleep")]
fn pause() {
    std::thread::sleep(CONTROL_PAUSE);
}

fn phase_name(phase: u8) -> &'static str {
    const NAMES: [(Phase, &str); 7] = [
        (Phase::Write, "writing"),
        (Phase::Flush, "flushing"),
        (Phase::Read, "reading back"),
        (Phase::Digest, "hashing"),
        (Phase::Load, "mixed load"),
        (Phase::Drain, "draining"),
        (Phase::Done, "done"),
    ];
    NAMES.iter().find(|(known, _)| *known as u8 == phase).map_or("", |(_, name)| name)
}
