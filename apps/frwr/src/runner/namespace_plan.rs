//! What is ready to be served, on its way to the core that will own it.

use super::memory_medium::MemoryMedium;
use crate::Error;
use frwr_nvmf::{
    controller::AllowedHosts,
    storage::{AnyStorage, Storage as _},
    wire::{AnaState, Nqn, SerialNumber},
};

/// A subsystem that is ready to be served by one core.
#[derive(Debug)]
pub(super) struct SubsystemPlan {
    pub(super) name: Nqn,
    pub(super) hosts: AllowedHosts,
    pub(super) serial: SerialNumber,
    /// Of its ANA groups, at the start.
    pub(super) ana_states: Vec<(u32, AnaState)>,
    pub(super) namespaces: Vec<PlannedNamespace>,
}

/// A namespace of it.
#[derive(Debug)]
pub(super) struct PlannedNamespace {
    pub(super) identifier: u32,
    pub(super) nguid: Option<[u8; 16]>,
    pub(super) ana_group: u32,
    pub(super) active: bool,
    /// What it has of its medium.
    pub(super) blocks: u64,
    pub(super) medium: NamespacePlan,
}

/// A namespace that is ready to be served, on its way to the core that will own it.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one per namespace and core, made at start and taken apart at once")]
pub(super) enum NamespacePlan {
    /// Memory that all cores use.
    Memory(MemoryMedium),
    /// An open file or block device, or what else has a way of its own for each core.
    Open {
        storage: AnyStorage,
        /// What addresses of buffers have to be multiples of.
        alignment: u32,
    },
}

impl NamespacePlan {
    /// The core's way to it, which holds so many operations at a time where it is memory, and has so many blocks of what it lives in.
    ///
    /// # Errors
    /// There is no memory for that, or it cannot have so many.
    pub(super) fn storage(self, depth: usize, blocks: u64) -> Result<AnyStorage, Error> {
        let mut storage = match self {
            Self::Memory(memory) => memory.storage(depth)?,
            Self::Open { storage, .. } => storage,
        };
        // Some storages have one size for ever.
        if storage.geometry().blocks() != blocks {
            storage.resize(blocks).map_err(Error::setup)?;
        }
        Ok(storage)
    }
}
