//! From plans to running reactors: ports, and sides that are made on the cores that will own them.

use super::{
    cores::Core,
    error::{RunError, SetupError},
    host_side::{HostPlan, HostPoller, HostSide},
    main_loop::Threads,
    progress::Progress,
    target_side::{TargetPlan, TargetPoller, TargetSide},
};
use core::convert::Infallible;
use frwr_engine::{
    CoreLink, Engine, EngineOptions,
    control::Control,
    provider::{Capabilities, Device, Port},
};
use frwr_reactor::{CoreIndex, Placement, PollerError, Reactor, Reactors, Schedule, Seat, Topology};
use std::sync::{Arc, Mutex, PoisonError};

/// One side's port and what its core needs to begin with it.
pub(super) struct Beginning<P, Plan> {
    pub(super) port: P,
    pub(super) link: CoreLink,
    pub(super) plan: Plan,
}

/// What runs in this process.
pub(super) struct Sides<T, H> {
    pub(super) target: Option<Beginning<T, TargetPlan>>,
    pub(super) host: Option<Beginning<H, HostPlan>>,
}

/// Opens one side's port, with completion queues as large as its engine needs them.
pub(super) fn open<D: Device>(
    control: &mut Control<D>,
    options: &EngineOptions,
    capabilities: &Capabilities,
) -> Result<(D::Port, CoreLink), RunError> {
    let (send, receive) = Engine::<D::Port>::completion_entries(options, capabilities)
        .map_err(|error| RunError::from_setup(CoreIndex(0), error.into()))?;
    Ok(control.open_core(send, receive)?)
}

/// Starts the reactors: the first builds the target, the last the host.
pub(super) fn launch<T, H>(
    topology: Topology,
    placement: Placement,
    sides: Sides<T, H>,
    progress: &Progress,
) -> Result<Threads<T, H>, RunError>
where
    T: Port + Send + 'static,
    H: Port + Send + 'static,
{
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
pub(super) fn for_both(topology: &Topology) -> Placement {
    [2, 1]
        .map(|reactors| Placement::Spread { reactors })
        .into_iter()
        .find(|placement| placement.resolve(topology, false).is_ok())
        .unwrap_or(Placement::Unpinned { reactors: 2 })
}

/// Where a target alone goes: where the loop puts it.
pub(super) fn for_target(topology: &Topology) -> Placement {
    let one = Placement::Spread { reactors: 1 };
    if one.resolve(topology, false).is_ok() { one } else { Placement::Unpinned { reactors: 1 } }
}

/// Where a host alone goes: where the loop puts it, so that a target and a host on one machine do not share a core.
pub(super) fn for_host(topology: &Topology) -> Placement {
    let both = Placement::Spread { reactors: 2 }.resolve(topology, false);
    match both.ok().and_then(|seats| seats.cores().get(1).copied().flatten()) {
        Some(core) => Placement::Cores(vec![core]),
        None => for_target(topology),
    }
}

/// What waits for its core to fetch it: each side is made on the core that will own it.
struct Waiting<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Waiting<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Waiting<T> {
    fn new(value: Option<T>) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    fn fetch(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Builds one core, on that core.
struct Builder<T, H> {
    target: Option<Waiting<Beginning<T, TargetPlan>>>,
    host: Option<Waiting<Beginning<H, HostPlan>>>,
    progress: Progress,
}

impl<T: Port, H: Port> Builder<T, H> {
    fn build(self, seat: Seat<Infallible>) -> Result<Reactor<Core<T, H>>, SetupError> {
        let node = seat.node();
        let target = match self.target.and_then(|waiting| waiting.fetch()) {
            Some(Beginning { port, link, plan }) => {
                Some(TargetSide::new(port, link, plan, node, self.progress.clone())?)
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
