//! Subsystems: a name, the hosts that may use it, and its namespaces.

use super::refusal::Offered;
use crate::wire::{AnaState, DISCOVERY_SUBSYSTEM, Nqn, SerialNumber};
use core::ops::Range;

/// Namespaces of one subsystem: identifiers 1 to this. One Identify list, and one list of changed ones, holds 1024.
pub const MAX_NAMESPACES: usize = 1024;

/// Subsystems of one target: their entries, and the header, are a discovery log of 64 KiB, which hosts read as a whole.
pub const MAX_SUBSYSTEMS: usize = 63;

/// Why a namespace cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// There is no such subsystem.
    #[error("the target has no subsystem of this name")]
    Subsystem,
    /// There is no such namespace.
    #[error("the subsystem has {count} namespaces, not namespace {identifier}")]
    Namespace {
        /// As asked for.
        identifier: u32,
        /// Namespaces that there are.
        count: u32,
    },
}

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
    name: Nqn,
    hosts: AllowedHosts,
    serial: SerialNumber,
    /// Where its namespaces stand among all of the target.
    namespaces: Range<usize>,
    /// Of the one ANA group that all of its namespaces are in.
    ana: AnaState,
    ana_changes: u64,
    /// Members that were not told of `ana`, a bit each.
    untold: u64,
}

impl Served {
    pub(super) fn name(&self) -> &Nqn {
        &self.name
    }

    pub(super) fn serial(&self) -> SerialNumber {
        self.serial
    }

    /// Who may use it.
    pub(super) fn hosts(&self) -> &AllowedHosts {
        &self.hosts
    }

    /// The host may connect to it, and sees it in the discovery log.
    pub(super) fn allows(&self, host: Option<Nqn>) -> bool {
        self.hosts.allows(host)
    }

    /// Where its namespaces stand among all of the target.
    pub(super) fn namespaces(&self) -> Range<usize> {
        self.namespaces.clone()
    }

    /// The state of its ANA group, and how often that changed.
    pub(super) fn ana(&self) -> (AnaState, u64) {
        (self.ana, self.ana_changes)
    }

    /// The index of a namespace among all of the target.
    #[inline]
    pub(super) fn index(&self, identifier: u32) -> Option<usize> {
        let offset = usize::try_from(identifier.checked_sub(1)?).ok()?;
        (offset < self.namespaces.len()).then(|| self.namespaces.start + offset)
    }

    /// How many namespaces it has, which is at most [`MAX_NAMESPACES`].
    pub(super) fn count(&self) -> u32 {
        self.namespaces.len() as u32
    }
}

/// What hosts are told of a namespace.
#[derive(Clone, Copy, Debug)]
struct Listed {
    /// An inactive one is listed nowhere and takes no commands.
    active: bool,
    /// Members that were not told of `active`, a bit each.
    untold: u64,
}

/// A state that a member was not told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Untold {
    /// Of a subsystem, by its index.
    Ana { subsystem: usize, state: AnaState },
    /// Of a namespace, by its index among all of the target.
    Active { namespace: usize, active: bool },
}

/// All subsystems of a target.
#[derive(Debug)]
pub(super) struct Subsystems {
    served: Vec<Served>,
    /// The namespaces of all, one behind the other.
    namespaces: Vec<Listed>,
    /// GENCTR of the discovery log.
    generation: u64,
}

impl Subsystems {
    pub(super) fn new() -> Self {
        Self { served: Vec::new(), namespaces: Vec::new(), generation: 1 }
    }

    /// One more. False where another one, or the discovery service, has its name.
    pub(super) fn add(&mut self, name: Nqn, hosts: AllowedHosts, serial: SerialNumber, namespaces: usize) -> bool {
        if name.as_str() == DISCOVERY_SUBSYSTEM || self.find(&name).is_some() {
            return false;
        }
        let first = self.namespaces.len();
        self.namespaces.resize(first + namespaces, Listed { active: true, untold: 0 });
        let (namespaces, ana) = (first..first + namespaces, AnaState::default());
        self.served.push(Served { name, hosts, serial, namespaces, ana, ana_changes: 0, untold: 0 });
        true
    }

    pub(super) fn count(&self) -> usize {
        self.served.len()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Served> {
        self.served.get(index)
    }

    /// The index of the one of that name.
    pub(super) fn find(&self, name: &Nqn) -> Option<usize> {
        self.served.iter().position(|served| served.name == *name)
    }

    /// Those that a host sees in the discovery log.
    pub(super) fn visible(&self, host: Option<Nqn>) -> impl Iterator<Item = &Served> {
        self.served.iter().filter(move |served| served.allows(host))
    }

    /// GENCTR of the discovery log.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// A namespace, by its index among all, is listed and takes commands.
    #[inline]
    pub(super) fn is_active(&self, namespace: usize) -> bool {
        self.namespaces.get(namespace).is_some_and(|listed| listed.active)
    }

    /// What there is for who names one that there is not. Names are compared byte by byte (Base 4.5): one that differs in case is most
    /// likely what was meant.
    pub(super) fn offered(&self, name: &Nqn) -> Option<Offered> {
        let alike = self.served.iter().find(|served| served.name.as_str().eq_ignore_ascii_case(name.as_str()));
        let name = alike.or(self.served.first())?.name;
        // At most MAX_SUBSYSTEMS.
        Some(Offered { name, others: self.served.len() as u16 - 1 })
    }

    /// The subsystem of that name, and the index of its namespace among all of the target.
    pub(super) fn namespace(&self, name: &Nqn, identifier: u32) -> Result<(usize, usize), NamespaceError> {
        let at = self.find(name).ok_or(NamespaceError::Subsystem)?;
        let served = &self.served[at];
        let index = served.index(identifier);
        Ok((at, index.ok_or(NamespaceError::Namespace { identifier, count: served.count() })?))
    }

    /// Lists a namespace, or does so no longer; false where it was so already. `untold`: the members that are to be told.
    pub(super) fn set_active(&mut self, namespace: usize, active: bool, untold: u64) -> bool {
        let Some(listed) = self.namespaces.get_mut(namespace).filter(|listed| listed.active != active) else {
            return false;
        };
        *listed = Listed { active, untold };
        true
    }

    /// A subsystem's namespaces can be reached otherwise; false where it was so already.
    pub(super) fn set_ana(&mut self, subsystem: usize, state: AnaState, untold: u64) -> bool {
        let Some(served) = self.served.get_mut(subsystem).filter(|served| served.ana != state) else { return false };
        (served.ana, served.untold) = (state, untold);
        served.ana_changes += 1;
        true
    }

    /// Other hosts may use a subsystem; those before, unless they are the same.
    pub(super) fn set_hosts(&mut self, subsystem: usize, hosts: &AllowedHosts) -> Option<AllowedHosts> {
        let served = self.served.get_mut(subsystem).filter(|served| served.hosts != *hosts)?;
        self.generation += 1;
        Some(core::mem::replace(&mut served.hosts, hosts.clone()))
    }

    /// A state that a member, by its bit, was not told, and is now.
    pub(super) fn next_untold(&mut self, member: u64) -> Option<Untold> {
        for (subsystem, served) in self.served.iter_mut().enumerate() {
            if served.untold & member != 0 {
                served.untold &= !member;
                return Some(Untold::Ana { subsystem, state: served.ana });
            }
        }
        let found = self.namespaces.iter_mut().enumerate().find(|(_, listed)| listed.untold & member != 0);
        let (namespace, listed) = found?;
        listed.untold &= !member;
        Some(Untold::Active { namespace, active: listed.active })
    }

    /// What the home core told.
    pub(super) fn follow(&mut self, told: Untold) {
        match told {
            Untold::Ana { subsystem, state } => {
                if let Some(served) = self.served.get_mut(subsystem) {
                    served.ana = state;
                }
            }
            Untold::Active { namespace, active } => {
                if let Some(listed) = self.namespaces.get_mut(namespace) {
                    listed.active = active;
                }
            }
        }
    }
}
