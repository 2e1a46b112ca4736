//! From plans to running reactors: ports, and sides that are made on the cores that will own them.

use super::{
    cores::{Core, Threads},
    descriptors::{own_descriptors, wake_by},
    fleet::Door,
    host_plan::HostPlan,
    host_side::HostSide,
    host_team::Team,
    messages::Message,
    pollers::{HostPoller, OtherDevice},
    progress::Progress,
    start_watch::launch_watched,
    target_side::{TargetPlan, TargetSide},
    trace::TARGET,
};
use crate::{
    Error,
    options::{CoreArguments, IdleArgument, reactors},
    signals::Asked,
};
use core::task::Waker;
use frwr_engine::{
    CoreLink, Engine, EngineOptions, TraceRecord,
    control::Control,
    provider::{Capabilities, Device, Port},
};
use frwr_mempool::lane;
use frwr_nvmf::controller::{MAX_TARGETS, TargetPoller};
use frwr_reactor::{CoreIndex, CpuId, Outbox, Placement, PollerError, Reactor, Reactors, Schedule, Seat, Topology};
use std::sync::{Mutex, mpsc};

/// Places of devices: as many as there are shares.
pub(super) const PLACES: usize = MAX_TARGETS as usize;

/// One side's port and what its core needs to begin with it.
pub(super) struct Beginning<P, Plan> {
    pub(super) port: P,
    pub(super) link: CoreLink,
    /// Of a host with several paths, those behind the first.
    pub(super) further: Vec<(P, CoreLink)>,
    pub(super) plan: Plan,
    /// Where what becomes of keys is told, where that is asked for.
    pub(super) keys: Option<lane::Sender<TraceRecord>>,
}

/// What runs in this process, each on a core of its own: targets on the first cores, hosts on the last.
pub(super) struct Sides<T: Port, H: Port> {
    /// Of each core one for each device.
    pub(super) targets: Vec<Vec<Beginning<T, TargetPlan>>>,
    /// Of each core one for each of its jobs.
    pub(super) hosts: Vec<Vec<Beginning<H, HostPlan>>>,
    /// Where each core says by what devices come to it later, and go, if they do.
    pub(super) doors: Option<mpsc::Sender<Door<T, H>>>,
}

/// Opens one side's port, with completion queues as large as its engine needs them.
pub(crate) fn open<D: Device>(
    control: &mut Control<D>,
    options: &EngineOptions,
    capabilities: &Capabilities,
) -> Result<(D::Port, CoreLink), Error> {
    let (send, receive) =
        Engine::<D::Port>::completion_entries(options, capabilities).map_err(|error| Error::of_core(0, error))?;
    let opened = control.open_core(send, receive);
    opened.map_err(|error| Error::no_room("port", format!("the device opened no port: {error}")))
}

/// Starts the reactors: the first build the targets, the last the hosts; where there are too few for all, some build both.
/// Each side reports as the part of `progress` that has its number. An error may leave cores behind: see [`super::main_loop::leave`].
pub(super) fn launch<T, H>(
    topology: Topology,
    placement: Placement,
    cores: &CoreArguments,
    sides: Sides<T, H>,
    progress: &Progress,
    asked: &dyn Asked,
    say: &mut dyn FnMut(&str),
) -> Result<Threads<T, H>, Error>
where
    T: Port + Send + 'static,
    H: Port + Send + 'static,
{
    let count = reactors(&placement);
    debug_assert!(sides.targets.len().max(sides.hosts.len()) <= count, "each side has a core");
    let first_host = count.saturating_sub(sides.hosts.len());
    // Reactors and hosts are counted in 16 bit.
    let (first_core, members) = (first_host as u16, sides.hosts.len() as u16);
    let mut targets = numbered(sides.targets, progress);
    let (progress, mut part) = (progress.clone(), 0);
    let mut hosts = (0..members).zip(sides.hosts).map(move |(member, sides)| {
        let of_core = (0..).zip(sides).map(|(job, side)| {
            part += 1;
            (side, progress.part(part - 1), Team::new(first_core, job, member, members))
        });
        of_core.collect::<Vec<_>>()
    });
    let (idle, options) = (cores.idle, cores.reactor_options());
    let reactors = Reactors::<Message>::new(placement).topology(topology).options(options).allow_siblings(false);
    let prepare = move |core: CoreIndex| {
        let targets = targets.next();
        let hosts = if core.index() < first_host { None } else { hosts.next() };
        let doors = sides.doors.clone();
        move |seat: Seat<Message>, outbox: Outbox<Message>| {
            let (targets, hosts) = (targets.unwrap_or_default(), hosts.unwrap_or_default());
            let (reactor, door) = build(core, seat, outbox, idle, targets, hosts)?;
            // Nobody waits for it where none come and go.
            drop(doors.map(|doors| doors.send(door)));
            Ok(reactor)
        }
    };
    launch_watched(reactors, prepare, asked, say)
}

/// Beginnings of each core with their parts of the progress, in the order of devices.
fn numbered<P, Plan>(
    sides: Vec<Vec<Beginning<P, Plan>>>,
    progress: &Progress,
) -> impl Iterator<Item = Vec<(Beginning<P, Plan>, Progress)>> {
    let (progress, cores) = (progress.clone(), sides.len());
    sides.into_iter().enumerate().map(move |(core, sides)| {
        let of_device = |(device, side)| (side, progress.part(unit(device, core, cores)));
        sides.into_iter().enumerate().map(of_device).collect()
    })
}

/// The number of a core's target on the device of a place: those of the first place come first.
pub(super) const fn unit(place: usize, core: usize, cores: usize) -> usize {
    place * cores + core
}

/// What targets are called as pollers and in traces, by the place of their device: that of the first one has no number.
pub(super) fn poller_name(place: usize) -> &'static str {
    const NAMES: [&str; PLACES] =
        [TARGET, "target 2", "target 3", "target 4", "target 5", "target 6", "target 7", "target 8"];
    NAMES.get(place).copied().unwrap_or(NAMES[0])
}

/// Two physical cores if there are, else one; not pinned where not even that may be chosen.
pub(crate) fn for_both(topology: &Topology) -> Placement {
    [2, 1]
        .map(|reactors| Placement::Spread { reactors })
        .into_iter()
        .find(|placement| placement.resolve(topology, false).is_ok())
        .unwrap_or(Placement::Unpinned { reactors: 2 })
}

/// The NUMA node of the first core.
pub(super) fn first_node(placement: &Placement, topology: &Topology) -> Option<u32> {
    let first = placement.resolve(topology, false).ok().and_then(|seats| seats.cores().first().copied().flatten());
    first.and_then(|core| topology.node_of(core))
}

/// Where a target alone goes: where the loop puts it.
pub(crate) fn for_target(topology: &Topology) -> Placement {
    let one = Placement::Spread { reactors: 1 };
    if one.resolve(topology, false).is_ok() { one } else { Placement::Unpinned { reactors: 1 } }
}

/// Where a host alone goes: where the loop puts it, so that a target and a host on one machine do not share a core.
pub(crate) fn for_host(topology: &Topology) -> Placement {
    let both = Placement::Spread { reactors: 2 }.resolve(topology, false);
    let both: Vec<CpuId> = both.map_or_else(|_| Vec::new(), |seats| seats.cores().iter().copied().flatten().collect());
    match both[..] {
        // The other program is there already, on whichever core.
        [first, second] if topology.occupied().contains(second) && !topology.occupied().contains(first) => {
            Placement::Cores(vec![first])
        }
        [_, second] => Placement::Cores(vec![second]),
        _ => for_target(topology),
    }
}

/// What wakes a core that may sleep; its seat where it may not.
pub(crate) fn waker<M>(seat: Seat<M>, idle: IdleArgument) -> (Seat<M>, Option<Waker>) {
    if idle.sleeps_on(seat.cpu()) {
        let waker = seat.waker();
        (seat, Some(waker))
    } else {
        (seat.awake(), None)
    }
}

/// A core's reactor, and by what devices come to it later.
type Built<T, H> = (Reactor<Core<T, H>>, Door<T, H>);

/// Builds one core, on that core. Where it may sleep, what arrives wakes it.
fn build<T: Port, H: Port>(
    core: CoreIndex,
    seat: Seat<Message>,
    outbox: Outbox<Message>,
    idle: IdleArgument,
    targets: Vec<(Beginning<T, TargetPlan>, Progress)>,
    hosts: Vec<(Beginning<H, HostPlan>, Progress, Team)>,
) -> Result<Built<T, H>, Error> {
    let (seat, waker) = waker(seat, idle);
    let node = seat.node();
    let targets = targets.into_iter().map(|(Beginning { port, link, plan, keys, .. }, progress)| {
        let mut side = TargetSide::new(port, link, plan, node, progress, waker.as_ref())?;
        if let Some(records) = keys {
            side.trace_keys(records);
        }
        Ok::<_, Error>(side)
    });
    let hosts = hosts.into_iter().map(|(Beginning { port, link, further, plan, keys }, progress, team)| {
        let ports = core::iter::once((port, link)).chain(further).collect();
        let mut side = HostSide::new(ports, plan, node, progress, team, waker.as_ref())?;
        if let Some(records) = keys {
            side.trace_keys(records);
        }
        Ok::<_, Error>(side)
    });
    let (targets, hosts) = (targets.collect::<Result<Vec<_>, _>>()?, hosts.collect::<Result<Vec<_>, _>>()?);
    let (devices, has_host) = (targets.len(), !hosts.is_empty());
    let mut targets = targets.into_iter();
    let target = targets.next();
    let mut others: Vec<_> = targets.map(Some).collect();
    // What comes later allocates nothing here.
    others.resize_with(PLACES - 1, || None);
    let mut reactor = seat.reactor(Core { target, others, hosts, outbox });
    if waker.is_some() {
        wake_by_ports(&mut reactor)?;
    }
    let failed = |error: PollerError| Error::setup(format!("no poller: {error}"));
    let mut pollers = vec![None; PLACES];
    for (place, poller) in pollers.iter_mut().enumerate().take(devices) {
        *poller = Some(match place.checked_sub(1) {
            None => reactor.add(poller_name(place), Schedule::Busy, TargetPoller),
            Some(other) => reactor.add(poller_name(place), Schedule::Busy, OtherDevice(other)),
        });
    }
    let pollers = pollers.into_iter().map(Option::transpose).collect::<Result<_, _>>().map_err(failed)?;
    if has_host {
        reactor.add("host", Schedule::Busy, HostPoller).map_err(failed)?;
    }
    let door = Door { core: core.index(), adder: reactor.adder(), waker, node, pollers: Mutex::new(pollers) };
    Ok((reactor, door))
}

/// A reactor that sleeps is woken by what its ports and storages have descriptors for.
fn wake_by_ports<T: Port, H: Port>(reactor: &mut Reactor<Core<T, H>>) -> Result<(), Error> {
    let Core { target, others, hosts, .. } = reactor.context();
    let of_target = target.iter().chain(others.iter().flatten()).flat_map(TargetSide::descriptors);
    let descriptors = hosts.iter().flat_map(HostSide::ports).filter_map(Port::descriptor).chain(of_target);
    let own = own_descriptors(descriptors)?;
    wake_by(reactor, own)
}

#[cfg(test)]
mod tests {
    use super::{for_both, for_host, for_target};
    use frwr_reactor::{CpuSet, Placement, Topology};

    fn set(list: &str) -> CpuSet {
        CpuSet::parse_kernel_list(list).unwrap()
    }

    /// Four cores without hardware threads, of which some carry reactors of others.
    fn machine(allowed: &str, occupied: &str) -> Topology {
        Topology::read(std::path::Path::new("/nonexistent"), set(allowed)).with_occupied(&set(occupied))
    }

    fn cores(placement: &Placement, topology: &Topology) -> Vec<usize> {
        let seats = placement.resolve(topology, false).unwrap();
        seats.cores().iter().flatten().map(|core| core.get()).collect()
    }

    #[test]
    fn who_names_no_cores_gets_those_that_nobody_uses() {
        for (occupied, both, target, host) in [
            ("", [0, 1], 0, 1),
            ("0", [1, 2], 1, 2),
            ("0-1", [2, 3], 2, 3),
            ("1", [0, 2], 0, 2),
            ("0-2", [3, 0], 3, 3),
            ("0-3", [0, 1], 0, 1),
        ] {
            let machine = machine("0-3", occupied);
            assert_eq!(cores(&for_both(&machine), &machine), both, "{occupied}");
            assert_eq!(cores(&for_target(&machine), &machine), [target], "{occupied}");
            assert_eq!(cores(&for_host(&machine), &machine), [host], "{occupied}");
        }
        // Two cores, of which the other half of the job has one.
        for (occupied, target, host) in [("0", 1, 1), ("1", 0, 0)] {
            let machine = machine("0-1", occupied);
            assert_eq!(cores(&for_target(&machine), &machine), [target], "{occupied}");
            assert_eq!(cores(&for_host(&machine), &machine), [host], "{occupied}");
        }
    }
}
