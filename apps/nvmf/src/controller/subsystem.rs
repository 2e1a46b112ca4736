//! Subsystems: a name, the hosts that may use it, and its namespaces.

use super::commit::Commit;
use crate::storage::Storage;
use crate::wire::{AnaState, Nqn, SerialNumber};
use core::ops::Range;

/// Which hosts may connect to a subsystem, and see it in the discovery log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedHosts {
    /// All.
    #[default]
    Any,
    /// Those of these names.
    Listed(Vec<Nqn>),
}

impl AllowedHosts {
    /// A host without a name is on no list.
    pub(super) fn allows(&self, host: Option<Nqn>) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(names) => host.is_some_and(|host| names.contains(&host)),
        }
    }
}

/// A subsystem that a target is made with.
#[derive(Debug)]
pub struct Subsystem<S> {
    /// Its name.
    pub name: Nqn,
    /// Who may use it.
    pub hosts: AllowedHosts,
    /// SN of its controllers; [`SerialNumber::of_subsystem`] unless somebody wants another.
    pub serial: SerialNumber,
    /// Its namespaces; their identifiers are 1, 2 and so on.
    pub namespaces: Vec<S>,
}

impl<S> Subsystem<S> {
    /// One that all hosts may use, with a serial number that follows from its name.
    #[must_use]
    pub fn new(name: Nqn, namespaces: Vec<S>) -> Self {
        Self { name, hosts: AllowedHosts::Any, serial: SerialNumber::of_subsystem(&name), namespaces }
    }
}

/// A subsystem as the target keeps it.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) name: Nqn,
    pub(super) hosts: AllowedHosts,
    pub(super) serial: SerialNumber,
    /// Where its namespaces stand among all of the target.
    pub(super) namespaces: Range<usize>,
    /// Of the one ANA group that all of its namespaces are in.
    pub(super) ana: AnaState,
    pub(super) ana_changes: u64,
    /// Members that were not told of `ana`, a bit each.
    pub(super) untold: u64,
}

impl Served {
    /// The index of a namespace among all of the target.
    pub(super) fn index(&self, identifier: u32) -> Option<usize> {
        let offset = usize::try_from(identifier.checked_sub(1)?).ok()?;
        (offset < self.namespaces.len()).then(|| self.namespaces.start + offset)
    }

    /// How many namespaces it has, which is at most [`super::MAX_NAMESPACES`].
    pub(super) fn count(&self) -> u32 {
        self.namespaces.len() as u32
    }
}

/// A namespace as the target keeps it.
#[derive(Debug)]
pub(super) struct Namespace<S> {
    pub(super) storage: S,
    /// An inactive one is listed nowhere and takes no commands.
    pub(super) active: bool,
    /// Members that were not told of `active`, a bit each.
    pub(super) untold: u64,
    pub(super) commit: Commit,
}

impl<S: Storage> Namespace<S> {
    pub(super) fn new(storage: S) -> Self {
        Self { storage, active: true, untold: 0, commit: Commit::default() }
    }
}
