//! Devices that come while the cores of a target run, and go: all of one is made beside them, they are handed their parts by pollers,
//! and give them back the same way.

use super::{
    cores::Core,
    depth::Depth,
    descriptors::{no_descriptor, own_descriptors},
    incident_log,
    medium::Ways,
    namespace_plan::{PlannedNamespace, SubsystemPlan},
    orders::{self, Ends},
    places::Device,
    plan,
    pollers::OtherDevice,
    prepared::Patience,
    progress::Progress,
    serve_command::ServeConfig,
    serve_report::ServedDevice,
    snapshot::TargetSnapshot,
    start::{open, poller_name, unit},
    target_side::TargetSide,
};
use crate::{Error, options::DeviceArguments};
use core::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    task::Waker,
};
use frwr_engine::{
    control::Control,
    provider::{self, Port},
};
use frwr_mempool::lane;
use frwr_nvmf::{
    authentication::Authenticator,
    controller::{AllowedHosts, ElsewhereListener, HOME_CORE, Reservations, TargetPoller, place_queues},
    wire::{AnaState, Nqn, SerialNumber},
};
use frwr_reactor::{Now, Poller, PollerAdder, PollerError, PollerHandle, Schedule, Sleep};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// What pollers are called that hand a device's part to its core, and take it back.
const COMES: &str = "device comes";
const LEAVES: &str = "device leaves";

/// By what the main thread gives one core a part of a device, and takes it.
pub(super) struct Door<T: Port, H: Port> {
    pub(super) core: usize,
    pub(super) adder: PollerAdder<Core<T, H>>,
    /// What wakes the core, where it may sleep.
    pub(super) waker: Option<Waker>,
    pub(super) node: Option<u32>,
    /// Those of its targets, by the places of their devices.
    pub(super) pollers: Mutex<Vec<Option<PollerHandle>>>,
}

impl<T: Port + Send + 'static, H: Port + 'static> Door<T, H> {
    /// Hands a part over; what does so is to be removed when the core has it.
    fn let_in(&self, place: usize, side: TargetSide<T>) -> Result<PollerHandle, PollerError> {
        let comes = self.adder.add(COMES, Schedule::Busy, Comes { place, side: Some(side) })?;
        let name = poller_name(place);
        let poller = match place.checked_sub(1) {
            None => self.adder.add(name, Schedule::Busy, TargetPoller),
            Some(other) => self.adder.add(name, Schedule::Busy, OtherDevice(other)),
        }?;
        if let Some(of_place) = self.pollers.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place) {
            *of_place = Some(poller);
        }
        Ok(comes)
    }

    /// Nothing is polled in this place any more.
    fn close(&self, place: usize) {
        let mut pollers = self.pollers.lock().unwrap_or_else(PoisonError::into_inner);
        pollers.get_mut(place).and_then(Option::take).iter().for_each(PollerHandle::remove);
    }
}

/// A device that is to serve what a target serves by now.
pub(super) struct Wanted {
    pub(super) place: usize,
    /// As somebody named it.
    pub(super) name: String,
    pub(super) addresses: Vec<SocketAddr>,
    /// Where hosts find the others.
    pub(super) elsewhere: Vec<ElsewhereListener>,
    pub(super) subsystems: Vec<WantedSubsystem>,
    /// Hosts that stay away; `None` is all.
    pub(super) kept_away: Vec<Option<Nqn>>,
    pub(super) authenticator: Arc<dyn Authenticator>,
    pub(super) wait: Patience,
}

/// A subsystem as it is on the other devices.
pub(super) struct WantedSubsystem {
    pub(super) name: Nqn,
    pub(super) hosts: AllowedHosts,
    pub(super) serial: SerialNumber,
    pub(super) ana_states: Vec<(u32, AnaState)>,
    pub(super) namespaces: Vec<WantedNamespace>,
}

/// A namespace of it.
pub(super) struct WantedNamespace {
    pub(super) identifier: u32,
    pub(super) nguid: [u8; 16],
    pub(super) ana_group: u32,
    pub(super) active: bool,
    pub(super) blocks: u64,
    pub(super) ways: Ways,
}

impl WantedSubsystem {
    /// For one more core.
    fn plan(&mut self, depth: usize) -> Result<SubsystemPlan, Error> {
        let namespace = |one: &mut WantedNamespace| {
            Ok(PlannedNamespace {
                identifier: one.identifier,
                nguid: Some(one.nguid),
                ana_group: one.ana_group,
                active: one.active,
                blocks: one.blocks,
                medium: one.ways.next(depth)?,
            })
        };
        let namespaces = self.namespaces.iter_mut().map(namespace).collect::<Result<_, Error>>()?;
        let Self { name, hosts, serial, ana_states, .. } = &*self;
        Ok(SubsystemPlan {
            name: *name,
            hosts: hosts.clone(),
            serial: *serial,
            ana_states: ana_states.clone(),
            namespaces,
        })
    }
}

/// A device with all that its cores need, none of which has it yet. What is dropped ends in this order.
pub(super) struct Arrived {
    parts: Box<dyn Parts>,
    pub(super) device: Device,
    /// What the main thread tells each core.
    pub(super) ends: Vec<Ends>,
    pub(super) served: ServedDevice,
    /// What a person may not expect.
    pub(super) notes: Vec<String>,
}

impl Arrived {
    /// Hands each core its part. What is left is the main thread's, beside the pollers that are to be removed when all have theirs.
    ///
    /// # Errors
    /// A core has ended.
    pub(super) fn hand_over(self) -> Result<(HandedOver, Vec<PollerHandle>), Error> {
        let Self { parts, device, ends, served, notes } = self;
        let comes = parts.hand_over().map_err(|error| Error::setup(format!("no poller: {error}")))?;
        Ok((HandedOver { device, ends, served, notes }, comes))
    }
}

/// The main thread's share of a device whose cores have theirs, or will.
pub(super) struct HandedOver {
    pub(super) device: Device,
    pub(super) ends: Vec<Ends>,
    pub(super) served: ServedDevice,
    pub(super) notes: Vec<String>,
}

/// What cores get of a device, whatever it is.
trait Parts: Send {
    fn hand_over(self: Box<Self>) -> Result<Vec<PollerHandle>, PollerError>;
}

struct Sides<T: Port, H: Port> {
    place: usize,
    sides: Vec<TargetSide<T>>,
    doors: Arc<[Door<T, H>]>,
}

impl<T: Port + Send + 'static, H: Port + 'static> Parts for Sides<T, H> {
    fn hand_over(self: Box<Self>) -> Result<Vec<PollerHandle>, PollerError> {
        let Self { place, sides, doors } = *self;
        doors.iter().zip(sides).map(|(door, side)| door.let_in(place, side)).collect()
    }
}

/// How far a device has left its cores.
pub(super) enum Left {
    /// These have something of it still.
    Not(Vec<String>),
    /// None has anything. This each of them did, as far as it has not ended.
    All(Vec<Option<TargetSnapshot>>),
}

/// A device that leaves its cores. Behind [`Left::All`] it has all that they had, and is to be dropped in front of the device.
pub(super) trait Leaving: Send {
    /// How far it is by now.
    fn turn(&mut self) -> Left;
}

/// Makes devices for a target's cores, and takes them out.
pub(super) trait Fleet: Send + Sync {
    /// Opens a device and makes all that it needs. Blocks as long as that takes: nothing for the main thread.
    ///
    /// # Errors
    /// It cannot be had; nothing is left of it then.
    fn open(&self, wanted: Wanted) -> Result<Arrived, Error>;

    /// Has each core end what it has of the device of a place, and give it back when all have ended.
    fn take_out(&self, place: usize) -> Box<dyn Leaving>;
}

/// How a device of that name is opened.
pub type Opener<D> = Box<dyn Fn(&str) -> Result<D, Error> + Send + Sync>;

/// The fleet of a target that runs.
pub(super) struct OnCores<D: provider::Device, H: Port> {
    pub(super) opener: Opener<D>,
    pub(super) doors: Arc<[Door<D::Port, H>]>,
    pub(super) config: ServeConfig,
    pub(super) reservations: Option<Reservations>,
    pub(super) progress: Progress,
}

impl<D, H> Fleet for OnCores<D, H>
where
    D: provider::Device<Port: Send + 'static> + 'static,
    H: Port + 'static,
{
    fn open(&self, wanted: Wanted) -> Result<Arrived, Error> {
        let Wanted { place, name, addresses, elsewhere, mut subsystems, kept_away, authenticator, wait } = wanted;
        let arguments = &self.config.arguments;
        let opened = (self.opener)(&name)?;
        let capabilities = *opened.capabilities();
        let mut notes = Vec::new();
        if arguments.invalidation.remote_invalidate && !capabilities.send_with_invalidate {
            notes.push(plan::PLAIN_REPLIES.to_owned());
        }
        // Behind it, so that what is dropped is dropped before.
        let mut control = Control::new(opened);
        control.place_connections(place_queues(HOME_CORE.into()));
        let options = self.config.options_at(place, addresses, self.doors.len())?;
        let depth = Depth::of_transfers(arguments.target.queue_depth, &options.engine(), &capabilities);
        notes.extend(depth.line("--queue-depth", "answers of an I/O queue"));
        let storage_depth = plan::storage_depth(&arguments.target);
        let (mut sides, mut ends, mut incidents) = (Vec::new(), Vec::new(), Vec::new());
        // Cores are opened in the order of their numbers, which are few.
        for (core, door) in (0..).zip(self.doors.iter()) {
            wait.lasts()?;
            let of_core = subsystems.iter_mut().map(|one| one.plan(storage_depth)).collect::<Result<_, _>>()?;
            let mut plan = plan::of_core(&self.config, options.on_core(core), of_core, &capabilities, &elsewhere);
            let ((end, desk), (sender, of_peers)) = (orders::desk(), incident_log::lane());
            (plan.desk, plan.incidents) = (Some(desk), Some(sender));
            plan.authenticator = Some(Arc::clone(&authenticator));
            plan.reservations = self.reservations.clone();
            let (port, link) = open(&mut control, &plan.options.engine(), &capabilities)?;
            let progress = self.progress.part(unit(place, core.into(), self.doors.len()));
            let mut side = TargetSide::new(port, link, plan, door.node, progress, door.waker.as_ref())?;
            if core == HOME_CORE {
                kept_away.iter().try_for_each(|host| side.keep_away(*host))?;
            }
            if door.waker.is_some() {
                let descriptors = own_descriptors(side.descriptors())?;
                descriptors.into_iter().try_for_each(|one| door.adder.wake_by(one)).map_err(no_descriptor)?;
            }
            ends.push(end);
            incidents.push(of_peers);
            sides.push(side);
        }
        let served = ServedDevice::new(place, &named(&arguments.device, &name), depth.effective);
        let parts = Box::new(Sides { place, sides, doors: Arc::clone(&self.doors) });
        Ok(Arrived { parts, device: Device { control: Box::new(control), incidents }, ends, served, notes })
    }

    fn take_out(&self, place: usize) -> Box<dyn Leaving> {
        let going = |door: &Door<D::Port, H>| {
            let (state, (to, taken)) = (Arc::<OnCore>::default(), lane::bounded(1));
            let leaves =
                Leaves { place, state: Arc::clone(&state), to, progress: self.progress.clone(), is_out: false };
            // One that has ended drops it, and its end of the lane.
            let poller = door.adder.add(LEAVES, Schedule::Busy, leaves).ok();
            Going { state, taken, side: None, poller }
        };
        Box::new(OfCores { place, going: self.doors.iter().map(going).collect(), doors: Arc::clone(&self.doors) })
    }
}

/// The arguments of one of a target's devices.
pub(super) fn named(arguments: &DeviceArguments, name: &str) -> DeviceArguments {
    DeviceArguments { device: vec![name.to_owned()], ..arguments.clone() }
}

/// Puts a part into its core, once.
struct Comes<T: Port> {
    place: usize,
    side: Option<TargetSide<T>>,
}

impl<T: Port, H: Port> Poller<Core<T, H>> for Comes<T> {
    fn poll(&mut self, core: &mut Core<T, H>, _: &Now) -> u32 {
        let Some(place) = core.place(self.place).filter(|_| self.side.is_some()) else { return 0 };
        *place = self.side.take();
        1
    }

    fn flushes(&self) -> bool {
        false
    }

    fn sleep_until(&self, _: &Core<T, H>) -> Sleep {
        Sleep::Forever
    }
}

/// What a core that gives something back, and the main thread, tell each other.
#[derive(Debug, Default)]
struct OnCore {
    /// The core: nothing of a host is left.
    drained: AtomicBool,
    /// The main thread: that is so everywhere.
    take: AtomicBool,
    /// The core: what is left. One word for each.
    connections: AtomicU64,
    commands: AtomicU64,
}

/// Ends a part, and takes it out of its core when the others have ended theirs: they tell each other the last things.
struct Leaves<T: Port> {
    place: usize,
    state: Arc<OnCore>,
    to: lane::Sender<TargetSide<T>>,
    progress: Progress,
    is_out: bool,
}

impl<T: Port, H: Port> Poller<Core<T, H>> for Leaves<T> {
    fn poll(&mut self, core: &mut Core<T, H>, now: &Now) -> u32 {
        let Some(place) = core.place(self.place).filter(|_| !self.is_out) else { return 0 };
        if self.state.take.load(Acquire) {
            // It has room for the one.
            self.is_out = place.take().is_none_or(|side| self.to.push(side).is_ok());
            self.progress.tell();
            return 1;
        }
        let Some(side) = place else { return 0 };
        side.end(now.time());
        let (connections, commands) = side.left();
        self.state.connections.store(connections, Relaxed);
        self.state.commands.store(commands, Relaxed);
        if side.is_drained() && !self.state.drained.load(Relaxed) {
            self.state.drained.store(true, Release);
            self.progress.tell();
        }
        0
    }

    fn flushes(&self) -> bool {
        false
    }

    fn sleep_until(&self, _: &Core<T, H>) -> Sleep {
        // What it waits for wakes nobody, and is soon there.
        if self.is_out { Sleep::Forever } else { Sleep::Busy }
    }
}

/// One core that gives its part back.
struct Going<T: Port> {
    state: Arc<OnCore>,
    taken: lane::Receiver<TargetSide<T>>,
    side: Option<TargetSide<T>>,
    poller: Option<PollerHandle>,
}

impl<T: Port> Going<T> {
    /// It has nothing of it: it gave it back, or has ended.
    fn is_out(&self) -> bool {
        self.side.is_some() || self.taken.is_closed()
    }

    /// What it has still; `None` where it has ended its part.
    fn left(&self, reactor: usize) -> Option<String> {
        let state = &self.state;
        let (connections, commands) = (state.connections.load(Relaxed), state.commands.load(Relaxed));
        let what = match (connections, commands) {
            (0, 0) => "connections end, or what was written is flushed".to_owned(),
            _ => format!("{connections} connections and {commands} commands are left"),
        };
        (!self.is_out() && !state.drained.load(Acquire)).then(|| format!("reactor {reactor}: {what}"))
    }
}

struct OfCores<T: Port, H: Port> {
    place: usize,
    going: Vec<Going<T>>,
    doors: Arc<[Door<T, H>]>,
}

impl<T: Port + Send + 'static, H: Port + 'static> Leaving for OfCores<T, H> {
    fn turn(&mut self) -> Left {
        let left: Vec<_> = self.going.iter().enumerate().filter_map(|(at, going)| going.left(at)).collect();
        if !left.is_empty() {
            return Left::Not(left);
        }
        for (going, door) in self.going.iter_mut().zip(self.doors.iter()) {
            going.state.take.store(true, Release);
            if going.side.is_none()
                && let Some(side) = going.taken.pop()
            {
                going.side = Some(side);
                going.poller.iter().for_each(PollerHandle::remove);
                door.close(self.place);
            }
        }
        if !self.going.iter().all(Going::is_out) {
            return Left::Not(Vec::new());
        }
        Left::All(self.going.iter().map(|going| going.side.as_ref().map(TargetSide::snapshot)).collect())
    }
}
