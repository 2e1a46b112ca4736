//! Asks the cores of a target what they have done and what they have, and puts their answers together.

use super::{
    former::Former,
    orders::{Order, Orders},
    snapshot::TargetSnapshot,
};
use core::{ops::Add, time::Duration};
use frwr_engine::control::ControlStatistics;
use frwr_reactor::Statistics as ReactorStatistics;

/// How long cores are waited for that shall hand over their figures: one that goes on takes no time at all, however busy its processor.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Between two rounds: fifty a second cost a core nothing that a measurement shows, however many clients ask and however often.
const ROUND_PERIOD: Duration = Duration::from_millis(20);

/// What all cores had at one time.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    /// When they were asked, since they began.
    pub(super) at: Duration,
    /// Of each core, in their order; one that stands still has not answered.
    pub(super) cores: Vec<Found>,
    /// Of each place that a device may have; `None` where none is.
    pub(super) devices: Vec<Option<DeviceFound>>,
    /// What the main thread did for devices that have left.
    former: ControlStatistics,
}

/// Of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceFound {
    pub(super) control: ControlStatistics,
    /// Changes are told it: it neither comes nor goes.
    pub(super) serves: bool,
}

/// Of one core.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Of each place that a device may have.
    pub(super) snapshots: Vec<Option<TargetSnapshot>>,
    /// What it did for devices that have left, or leave.
    pub(super) former: Vec<TargetSnapshot>,
    /// It has not said what it has on some device.
    silent: bool,
    pub(super) reactor: ReactorStatistics,
}

impl Found {
    /// It has handed over what it has on every device.
    pub(super) fn has_answered(&self) -> bool {
        !self.silent
    }

    /// It has handed over what it has on the device of a place.
    pub(super) fn has(&self, place: usize) -> bool {
        self.snapshots.get(place).is_some_and(Option::is_some)
    }

    /// What it said of those devices of which it said something.
    pub(super) fn said(&self) -> impl Iterator<Item = &TargetSnapshot> {
        self.snapshots.iter().flatten()
    }
}

impl Findings {
    /// What cores have said, of each device; behind that what they did for former ones.
    pub(super) fn all(&self) -> impl Iterator<Item = &TargetSnapshot> {
        self.cores.iter().flat_map(Found::said).chain(self.cores.iter().flat_map(|found| &found.former))
    }

    /// Reactors that have not answered.
    pub(super) fn silent(&self) -> Vec<u16> {
        self.cores.iter().filter(|found| !found.has_answered()).map(|found| found.reactor.core.0).collect()
    }

    /// What cores have said, each with the device that it is of.
    pub(super) fn by_device(&self) -> impl Iterator<Item = (usize, &TargetSnapshot, &ReactorStatistics)> {
        self.cores.iter().flat_map(|found| {
            let snapshots = found.snapshots.iter().enumerate();
            snapshots.filter_map(|(device, one)| Some((device, one.as_ref()?, &found.reactor)))
        })
    }

    /// Places of the devices that are served.
    pub(super) fn devices(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        let serves = |(place, device): (usize, &Option<DeviceFound>)| device.filter(|one| one.serves).map(|_| place);
        self.devices.iter().enumerate().filter_map(serves)
    }

    /// The device of a place, also one that comes or goes.
    pub(super) fn device(&self, place: usize) -> Option<DeviceFound> {
        self.devices.get(place).copied().flatten()
    }

    /// Several are served.
    pub(super) fn has_several(&self) -> bool {
        self.devices().count() > 1
    }

    /// What the main thread does for all devices, and did for former ones.
    pub(super) fn control(&self) -> ControlStatistics {
        self.devices.iter().flatten().map(|device| device.control).fold(self.former, Add::add)
    }

    /// What cores have said of one device, the home core first.
    pub(super) fn of_device(&self, device: usize) -> impl Iterator<Item = &TargetSnapshot> {
        self.cores.iter().filter_map(move |found| found.snapshots.get(device)?.as_ref())
    }

    /// What the home core said of one device.
    pub(super) fn home_of(&self, device: usize) -> Option<&TargetSnapshot> {
        self.cores.first()?.snapshots.get(device)?.as_ref()
    }

    /// The same of the first device: what all devices have alike.
    pub(super) fn home(&self) -> Option<&TargetSnapshot> {
        self.homes().next()
    }

    /// What it said of each device.
    pub(super) fn homes(&self) -> impl Iterator<Item = &TargetSnapshot> {
        self.cores.first().into_iter().flat_map(Found::said)
    }
}

/// What a unit has to do with a round.
#[derive(Clone, Debug)]
enum Heard {
    /// There is none.
    NotAsked,
    /// It has not answered.
    Nothing,
    Said(Box<TargetSnapshot>),
}

impl Heard {
    fn said(self) -> Option<TargetSnapshot> {
        match self {
            Self::Said(snapshot) => Some(*snapshot),
            Self::NotAsked | Self::Nothing => None,
        }
    }
}

/// Rounds of questions, one at a time; whoever wants to know something waits for one that begins after that.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The round that was begun last.
    round: u64,
    began: Option<Duration>,
    /// Of the round under way, by unit.
    answers: Vec<Heard>,
    /// Somebody wants another one.
    is_wanted: bool,
    under_way: bool,
    /// What is told beside the answers.
    pub(super) former: Former,
}

impl Survey {
    /// The round that whoever asks now has to wait for.
    pub(super) fn want(&mut self) -> u64 {
        self.is_wanted = true;
        self.round + 1
    }

    /// Somebody waits for a round.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way || self.is_wanted
    }

    /// Begins a round where that is wanted and due.
    pub(super) fn begin(&mut self, now: Duration, orders: &mut Orders) {
        let is_due = self.began.is_none_or(|began| now >= began.saturating_add(ROUND_PERIOD));
        if self.under_way || !self.is_wanted || !is_due {
            return;
        }
        (self.is_wanted, self.under_way, self.began) = (false, true, Some(now));
        self.round += 1;
        self.answers =
            orders.numbers().map(|unit| if orders.has(unit) { Heard::Nothing } else { Heard::NotAsked }).collect();
        for unit in orders.numbers().filter(|unit| orders.has(*unit)).collect::<Vec<_>>() {
            // One that takes no orders is silent.
            orders.give(unit, Order::Report { round: self.round });
        }
    }

    /// Units go: nobody waits for their answers.
    pub(super) fn forget(&mut self, units: impl Iterator<Item = usize>) {
        for unit in units {
            if let Some(answer) = self.answers.get_mut(unit) {
                *answer = Heard::NotAsked;
            }
        }
    }

    /// A core has answered, of one device. What came too late is no answer to the round under way.
    pub(super) fn answered(&mut self, unit: usize, round: u64, snapshot: Box<TargetSnapshot>) {
        if self.under_way
            && round == self.round
            && let Some(answer) = self.answers.get_mut(unit)
        {
            *answer = Heard::Said(snapshot);
        }
    }

    /// Ends the round under way when all have answered, or time is up: its number, and what was found.
    pub(super) fn end(
        &mut self,
        now: Duration,
        reactors: impl FnOnce() -> Vec<ReactorStatistics>,
        devices: impl FnOnce() -> Vec<Option<DeviceFound>>,
    ) -> Option<(u64, Findings)> {
        let began = self.began.filter(|_| self.under_way)?;
        if now < began.saturating_add(ANSWER_TIME) && self.answers.iter().any(|one| matches!(one, Heard::Nothing)) {
            return None;
        }
        self.under_way = false;
        let (reactors, mut answers) = (reactors(), core::mem::take(&mut self.answers));
        let cores = reactors.len();
        let of_core = |(core, reactor)| {
            let of_it = answers.iter_mut().skip(core).step_by(cores);
            let of_it: Vec<_> = of_it.map(|heard| core::mem::replace(heard, Heard::NotAsked)).collect();
            let silent = of_it.iter().any(|heard| matches!(heard, Heard::Nothing));
            Found { snapshots: of_it.into_iter().map(Heard::said).collect(), former: Vec::new(), silent, reactor }
        };
        let cores = reactors.into_iter().enumerate().map(of_core).collect();
        let mut findings = Findings { at: began, cores, devices: devices(), former: self.former.control };
        let subsystems = findings.home().map(|home| home.inventory.subsystems.clone()).unwrap_or_default();
        for (core, found) in findings.cores.iter_mut().enumerate() {
            found.former = self.former.beside(core, &subsystems);
        }
        Some((self.round, findings))
    }
}
