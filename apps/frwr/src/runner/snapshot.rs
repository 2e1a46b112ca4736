//! What the target of one core has done so far, as it hands it over.

use super::{progress::IoCounters, report::MemoryReport};
use frwr_engine::Statistics as EngineStatistics;
use frwr_nvmf::{
    controller::{Inventory, TargetStatistics},
    storage::StorageStatistics,
    wire::Nqn,
};

/// What the target of one core has done so far, and what it has. Whoever makes it allocates: once for each time that somebody asks.
#[derive(Clone, Debug)]
pub(super) struct TargetSnapshot {
    /// Of its device.
    pub(super) place: usize,
    pub(super) role: &'static str,
    pub(super) memory: MemoryReport,
    pub(super) io: IoCounters,
    pub(super) target: TargetStatistics,
    pub(super) inventory: Inventory,
    pub(super) engine: EngineStatistics,
}

impl TargetSnapshot {
    /// What each of these namespaces has done on this core; nothing where it is gone.
    pub(super) fn storages(&self, identities: &[(Nqn, u32)]) -> Vec<StorageStatistics> {
        let all = || self.inventory.namespaces.iter();
        let name = |at: usize| self.inventory.subsystems.get(at).map(|subsystem| subsystem.name);
        let of = |(subsystem, identifier): &(Nqn, u32)| {
            let found = all().find(|one| one.identifier == *identifier && name(one.subsystem) == Some(*subsystem));
            found.map(|one| one.storage).unwrap_or_default()
        };
        identities.iter().map(of).collect()
    }
}
