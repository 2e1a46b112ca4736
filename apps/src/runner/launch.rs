//! A run from its command line to its report: fabric and devices, a control for each, one or two reactors.

use super::{
    command_line::{Config, Inject},
    cores::Core,
    error::{RunError, SetupError},
    host_side::{HostPlan, HostPoller, HostSide},
    load_file::{LoadedFile, load},
    main_loop::{MainLoop, Threads},
    outcome::Outcome,
    plan,
    progress::Progress,
    report::RunReport,
    target_side::{TargetPlan, TargetPoller, TargetSide},
    trace::{RING_RECORDS, Trace},
};
use core::{convert::Infallible, num::NonZeroU64};
use frwr_engine::{
    CoreLink, Engine, EngineOptions,
    control::Control,
    provider::{
        Capabilities, Device, Port, PortId,
        record::{Recorded, Taps},
        soft::{SoftDevice, SoftFabric, SoftOptions, SoftPort},
    },
};
use frwr_reactor::{CoreIndex, Placement, PollerError, Reactor, Reactors, Schedule, Seat, Topology};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

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
    let job = Move { config, file: &file, stop, say };
    match &config.trace {
        None => job.run(target, host, None),
        Some(path) => {
            let (host, taps) = Recorded::new(host, RING_RECORDS);
            job.run(target, host, Some(Tracing { path, taps }))
        }
    }
}

/// A trace before the port that it records is open.
struct Tracing<'a> {
    path: &'a Path,
    taps: Taps,
}

impl Tracing<'_> {
    fn begin(&self, port: PortId) -> Result<Option<Trace>, RunError> {
        Trace::new(self.path, &self.taps, port)
    }
}

/// One side's port and what its core needs to begin with it.
struct Beginning<P, Plan> {
    port: P,
    link: CoreLink,
    plan: Plan,
}

/// Both sides, on their way to the cores.
struct Beginnings<P> {
    target: Beginning<SoftPort, TargetPlan>,
    host: Beginning<P, HostPlan>,
}

/// What is to be done, and who is to be told.
struct Move<'a> {
    config: &'a Config,
    file: &'a LoadedFile,
    stop: &'a AtomicBool,
    say: &'a mut dyn FnMut(&str),
}

impl Move<'_> {
    fn run<H: Device>(self, target: SoftDevice, host: H, tracing: Option<Tracing<'_>>) -> Result<RunReport, RunError>
    where
        H::Port: Send + 'static,
    {
        let Self { config, file, stop, say } = self;
        let target_plan = plan::target(config, file, target.capabilities())?;
        let host_plan = plan::host(config, file, host.capabilities())?;
        let (mut target_control, mut host_control) = (Control::new(target), Control::new(host));
        let (port, link) = open(&mut target_control, &target_plan.options.engine(), &target_plan.capabilities)?;
        let target = Beginning { port, link, plan: target_plan };
        let (port, link) = open(&mut host_control, &host_plan.options.engine(), &host_plan.capabilities)?;
        let host = Beginning { port, link, plan: host_plan };
        let mut trace = match tracing {
            Some(tracing) => tracing.begin(host.port.id())?,
            None => None,
        };
        let progress = Progress::default();
        let threads = launch::<H>(config, Beginnings { target, host }, &progress)?;
        let main = MainLoop {
            target_control: &mut target_control,
            host_control: &mut host_control,
            threads: &threads,
            progress: &progress,
            trace: trace.as_mut(),
            block_bytes: config.block_bytes,
        };
        main.drive(stop, say)?;
        let outcome = Outcome::collect(threads.join())?;
        if let Some(trace) = trace {
            trace.finish()?;
        }
        Ok(outcome.report(config, file, host_control.statistics()))
    }
}

/// Opens one side's port, with completion queues as large as its engine needs them.
fn open<D: Device>(
    control: &mut Control<D>,
    options: &EngineOptions,
    capabilities: &Capabilities,
) -> Result<(D::Port, CoreLink), RunError> {
    let (send, receive) = Engine::<D::Port>::completion_entries(options, capabilities)
        .map_err(|error| RunError::from_setup(CoreIndex(0), error.into()))?;
    Ok(control.open_core(send, receive)?)
}

/// Starts the reactors: the first builds the target, the last the host.
fn launch<H: Device>(config: &Config, sides: Beginnings<H::Port>, progress: &Progress) -> Result<Threads<H>, RunError>
where
    H::Port: Send + 'static,
{
    let topology = Topology::of_machine();
    let placement = config.placement.clone().unwrap_or_else(|| default_placement(&topology));
    let last = match &placement {
        Placement::Cores(cores) => cores.len() - 1,
        Placement::Spread { reactors } | Placement::Unpinned { reactors } => reactors - 1,
    };
    let (target, host) = (Waiting::new(sides.target), Waiting::new(sides.host));
    let progress = progress.clone();
    let reactors = Reactors::<Infallible>::new(placement).topology(topology).allow_siblings(false);
    let threads = reactors.launch(move |core: CoreIndex| {
        let builder = Builder {
            target: (core.index() == 0).then(|| target.clone()),
            host: (core.index() == last).then(|| host.clone()),
            progress: progress.clone(),
        };
        move |seat: Seat<Infallible>, _| builder.build(seat)
    })?;
    Ok(threads)
}

/// Two physical cores if there are, else one; not pinned where not even that may be chosen.
fn default_placement(topology: &Topology) -> Placement {
    [2, 1]
        .map(|reactors| Placement::Spread { reactors })
        .into_iter()
        .find(|placement| placement.resolve(topology, false).is_ok())
        .unwrap_or(Placement::Unpinned { reactors: 2 })
}

/// What waits for its core to fetch it: each side is made on the core that will own it.
struct Waiting<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Waiting<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Waiting<T> {
    fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Some(value))))
    }

    fn fetch(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Builds one core, on that core.
struct Builder<P> {
    target: Option<Waiting<Beginning<SoftPort, TargetPlan>>>,
    host: Option<Waiting<Beginning<P, HostPlan>>>,
    progress: Progress,
}

impl<P: Port> Builder<P> {
    fn build(self, seat: Seat<Infallible>) -> Result<Reactor<Core<SoftPort, P>>, SetupError> {
        let node = seat.node();
        let target = match self.target.and_then(|waiting| waiting.fetch()) {
            Some(Beginning { port, link, plan }) => {
                Some(TargetSide::new(port, link, &plan, node, self.progress.clone())?)
            }
            None => None,
        };
        let host = match self.host.and_then(|waiting| waiting.fetch()) {
            Some(Beginning { port, link, plan }) => Some(HostSide::new(port, link, plan, node, self.progress)?),
            None => None,
        };
        let (has_target, has_host) = (target.is_some(), host.is_some());
        let mut reactor = seat.reactor(Core { target, host });
        let failed = |error: PollerError| SetupError::Poller(error.to_string());
        if has_target {
            reactor.add("target", Schedule::Busy, TargetPoller).map_err(failed)?;
        }
        if has_host {
            reactor.add("host", Schedule::Busy, HostPoller).map_err(failed)?;
        }
        Ok(reactor)
    }
}
