//! What devices did that have left a target: what is told of all devices counts on.

use super::{namespaces::Identity, progress::IoCounters, snapshot::TargetSnapshot};
use core::ops::Add;
use frwr_engine::control::ControlStatistics;
use frwr_mempool::statistics::Figure as _;
use frwr_nvmf::{
    controller::{SubsystemState, TargetListening, WaitingNow},
    wire::Nqn,
};

/// What a target's cores did for its former devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Former {
    /// Of all that have left together, by core.
    left: Vec<Option<TargetSnapshot>>,
    /// Of one that leaves, as it was told last: its cores say the rest when they have nothing of it any more.
    leaving: Vec<Option<TargetSnapshot>>,
    /// Namespaces that went while it leaves, of which its cores may still say something.
    gone: Vec<Identity>,
    pub(super) control: ControlStatistics,
}

impl Former {
    /// A device leaves, of which each core said this last.
    pub(super) fn leaves(&mut self, said: Vec<Option<TargetSnapshot>>) {
        self.leaving = said.into_iter().map(|core| core.map(TargetSnapshot::left)).collect();
    }

    /// It has left, and did this by then. Of a core that has ended is known what it said last.
    pub(super) fn has_left(&mut self, did: Vec<Option<TargetSnapshot>>, control: ControlStatistics) {
        self.control = self.control + control.left();
        self.left.resize(did.len(), None);
        let said = core::mem::take(&mut self.leaving).into_iter().chain(core::iter::repeat(None));
        let gone = core::mem::take(&mut self.gone);
        for ((sum, did), said) in self.left.iter_mut().zip(did).zip(said) {
            let mut did = did.map(TargetSnapshot::left).or(said);
            if let Some(did) = &mut did {
                did.retain(|subsystem, identifier| !gone.contains(&(subsystem, identifier)));
            }
            *sum = match (sum.take(), did) {
                (Some(sum), Some(did)) => Some(sum.with(did)),
                (sum, did) => sum.or(did),
            };
        }
    }

    /// A namespace is gone: one of that name that comes later has done nothing.
    pub(super) fn forget(&mut self, namespace: Identity) {
        for core in self.left.iter_mut().chain(&mut self.leaving).flatten() {
            core.retain(|subsystem, identifier| (subsystem, identifier) != namespace);
        }
        if !self.leaving.is_empty() && !self.gone.contains(&namespace) {
            self.gone.push(namespace);
        }
    }

    /// What they moved.
    pub(super) fn io(&self) -> IoCounters {
        self.left.iter().flatten().map(|core| core.io).reduce(Add::add).unwrap_or_default()
    }

    /// What a core did for those that have left.
    pub(super) fn of_core(&self, core: usize) -> Option<TargetSnapshot> {
        self.left.get(core).cloned().flatten()
    }

    /// The same, and for one that leaves, beside a target that has these subsystems.
    pub(super) fn beside(&self, core: usize, subsystems: &[SubsystemState]) -> Vec<TargetSnapshot> {
        let leaving = self.leaving.get(core).cloned().flatten();
        self.of_core(core).into_iter().chain(leaving).map(|one| one.placed(subsystems)).collect()
    }
}

impl TargetSnapshot {
    /// What counts on of it.
    fn left(mut self) -> Self {
        (self.target, self.engine) = (self.target.left(), self.engine.left());
        // As far as the others do.
        self.target.listening = TargetListening::Listens;
        let inventory = &mut self.inventory;
        inventory.namespaces.iter_mut().for_each(|one| one.storage = one.storage.left());
        (inventory.ending, inventory.waiting) = (false, WaitingNow::default());
        inventory.listeners.clear();
        inventory.controllers.clear();
        inventory.queues.clear();
        inventory.drained.clear();
        self
    }

    /// Only what is of namespaces that this says yes to.
    fn retain(&mut self, stays: impl Fn(Nqn, u32) -> bool) {
        let inventory = &mut self.inventory;
        let subsystems = &inventory.subsystems;
        let stays =
            |at: usize, identifier| subsystems.get(at).is_some_and(|subsystem| stays(subsystem.name, identifier));
        inventory.namespaces.retain(|one| stays(one.subsystem, one.identifier));
        inventory.latencies.retain(|one| stays(one.subsystem, one.identifier));
        inventory.errors.retain(|one| stays(one.subsystem, one.identifier));
    }

    /// With these subsystems, of which the others are gone.
    fn placed(mut self, subsystems: &[SubsystemState]) -> Self {
        let place = |name| subsystems.iter().position(|one| one.name == name);
        self.retain(|name, _| place(name).is_some());
        let inventory = &mut self.inventory;
        let places: Vec<_> = inventory.subsystems.iter().map(|one| place(one.name).unwrap_or_default()).collect();
        let all = inventory.namespaces.iter_mut().map(|one| &mut one.subsystem);
        let all = all.chain(inventory.latencies.iter_mut().map(|one| &mut one.subsystem));
        for subsystem in all.chain(inventory.errors.iter_mut().map(|one| &mut one.subsystem)) {
            *subsystem = places.get(*subsystem).copied().unwrap_or_default();
        }
        inventory.namespaces.sort_by_key(|one| (one.subsystem, one.identifier));
        inventory.subsystems = subsystems.to_vec();
        self
    }

    /// Both together, with the subsystems of the later one.
    fn with(self, later: Self) -> Self {
        let mut sum = self.placed(&later.inventory.subsystems);
        sum.io = sum.io + later.io;
        (sum.target, sum.engine) = (sum.target + later.target, sum.engine + later.engine);
        let (all, more) = (&mut sum.inventory, later.inventory);
        merge(
            &mut all.namespaces,
            more.namespaces,
            |one| (one.subsystem, one.identifier),
            |one, more| {
                one.storage = one.storage + more.storage;
                one.bytes_read += more.bytes_read;
                one.bytes_written += more.bytes_written;
            },
        );
        merge(
            &mut all.latencies,
            more.latencies,
            |one| (one.subsystem, one.identifier, one.kind),
            |one, more| one.latencies += more.latencies,
        );
        merge(
            &mut all.errors,
            more.errors,
            |one| (one.subsystem, one.identifier, one.status.code()),
            |one, more| one.count += more.count,
        );
        sum
    }
}

/// Adds each to the one that has the same name.
fn merge<T, N: PartialEq>(all: &mut Vec<T>, more: Vec<T>, name: impl Fn(&T) -> N, add: impl Fn(&mut T, T)) {
    for one in more {
        match all.iter_mut().find(|other| name(other) == name(&one)) {
            Some(other) => add(other, one),
            None => all.push(one),
        }
    }
}
