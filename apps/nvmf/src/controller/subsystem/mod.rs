//! Subsystems: a name, the hosts that may use it, and its namespaces.

pub(super) mod ana;
mod namespaces;

use super::change::{ChangeError, NewNamespace};
use super::options::{MAX_NAMESPACES, TargetOptions};
use super::refusal::Offered;
use crate::wire::{AnaState, DISCOVERY_SUBSYSTEM, Nqn, SerialNumber};
use ana::AnaGroups;
pub use ana::{DEFAULT_ANA_GROUP, MAX_ANA_GROUPS};
pub(super) use namespaces::Namespaces;

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
    /// Its namespaces, whatever their order; there may be none yet.
    pub namespaces: Vec<NewNamespace<S>>,
    /// How well ANA groups can be reached at the start; optimized where nothing is said.
    pub ana_states: Vec<(u32, AnaState)>,
}

impl<S> Subsystem<S> {
    /// One that all hosts may use, with a serial number that follows from its name; the identifiers of its namespaces are 1, 2 and so
    /// on, and all of them are in one ANA group.
    #[must_use]
    pub fn new(name: Nqn, storages: Vec<S>) -> Self {
        let of = |(identifier, storage)| NewNamespace {
            identifier,
            nguid: None,
            ana_group: DEFAULT_ANA_GROUP,
            active: true,
            storage,
        };
        let (namespaces, serial) = ((1..).zip(storages).map(of).collect(), SerialNumber::of_subsystem(&name));
        Self { name, hosts: AllowedHosts::Any, serial, namespaces, ana_states: Vec::new() }
    }
}

/// Whether hosts see a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is none in this place.
    Vacant,
    /// Other cores are told of it first.
    Coming,
    Listed,
    /// It was removed, and its controllers end.
    Leaving,
}

/// A subsystem as the target keeps it.
#[derive(Debug)]
pub(super) struct Served {
    standing: Standing,
    name: Nqn,
    hosts: AllowedHosts,
    serial: SerialNumber,
    namespaces: Namespaces,
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

    #[inline]
    pub(super) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// NGUID of a namespace to which nobody gave another one.
    pub(super) fn usual_nguid(&self, identifier: u32) -> [u8; 16] {
        self.name.identifier(identifier.into())
    }

    /// Hosts see it.
    pub(super) fn is_listed(&self) -> bool {
        self.standing == Standing::Listed
    }
}

/// A state that a member was not told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Untold {
    /// Of an ANA group of a subsystem, by its index, or of all of its groups.
    Ana { subsystem: usize, group: Option<u32>, state: AnaState },
    /// Of a namespace of it.
    Active { subsystem: usize, identifier: u32, active: bool },
}

/// All subsystems of a target.
#[derive(Debug)]
pub(super) struct Subsystems {
    /// Cores that have taken the same changes have the same subsystem in the same place.
    served: Vec<Served>,
    /// As many as there may be.
    most: usize,
    /// Namespaces that each may have, unless it has more from the start.
    identifiers: usize,
    /// Hosts that a list may have.
    most_hosts: usize,
    /// GENCTR of the discovery log.
    generation: u64,
}

impl Subsystems {
    /// Room for what the options say, and for so many subsystems that there are at the start.
    pub(super) fn new(options: &TargetOptions, subsystems: usize) -> Self {
        let most = usize::from(options.subsystems).max(subsystems);
        let identifiers = (options.namespaces as usize).min(MAX_NAMESPACES);
        let most_hosts = options.allowed_hosts as usize;
        Self { served: Vec::with_capacity(most), most, identifiers, most_hosts, generation: 1 }
    }

    /// One more, with room for so many identifiers at least, which hosts see, or are not to see yet: its index.
    pub(super) fn add(
        &mut self,
        name: Nqn,
        hosts: AllowedHosts,
        serial: SerialNumber,
        (identifiers, listed): (usize, bool),
    ) -> Result<usize, ChangeError> {
        let mut others = self.served.iter().filter(|served| served.standing != Standing::Vacant);
        if name.as_str() == DISCOVERY_SUBSYSTEM || others.any(|served| served.name == name) {
            return Err(ChangeError::SubsystemName);
        }
        self.check_hosts(&hosts)?;
        let vacant = self.served.iter().position(|served| served.standing == Standing::Vacant);
        let at = vacant.unwrap_or(self.served.len());
        if at >= self.most {
            return Err(ChangeError::Subsystems { limit: self.most });
        }
        let standing = if listed { Standing::Listed } else { Standing::Coming };
        let namespaces = Namespaces::new(self.identifiers.max(identifiers));
        let added = Served { standing, name, hosts, serial, namespaces };
        match self.served.get_mut(at) {
            Some(vacant) => *vacant = added,
            None => self.served.push(added),
        }
        Ok(at)
    }

    fn check_hosts(&self, hosts: &AllowedHosts) -> Result<(), ChangeError> {
        match hosts {
            AllowedHosts::Listed(names) if names.len() > self.most_hosts => {
                Err(ChangeError::AllowedHosts { count: names.len(), limit: self.most_hosts })
            }
            _ => Ok(()),
        }
    }

    /// The NGUID of a namespace that is to be there from the start, if it may be there beside those before it.
    pub(super) fn check_at_start<S>(
        &self,
        subsystem: usize,
        namespace: &NewNamespace<S>,
    ) -> Result<[u8; 16], ChangeError> {
        let served = self.served.get(subsystem).ok_or(ChangeError::Subsystem)?;
        let nguid = namespace.nguid.unwrap_or_else(|| served.usual_nguid(namespace.identifier));
        served.namespaces.check_new(namespace.identifier, &nguid)?;
        Self::check_group(namespace.ana_group)?;
        Ok(nguid)
    }

    /// That namespace is there, by the place of its storage.
    pub(super) fn list_at_start(&mut self, subsystem: usize, identifier: u32, nguid: [u8; 16], at: (usize, u32, bool)) {
        let (place, group, active) = at;
        if let Some(served) = self.served.get_mut(subsystem) {
            served.namespaces.supply(identifier, place, nguid);
            served.namespaces.list(identifier, group, active);
        }
    }

    /// Hosts see it from now on.
    pub(super) fn list(&mut self, subsystem: usize) {
        if let Some(served) = self.served.get_mut(subsystem) {
            served.standing = Standing::Listed;
            self.generation += 1;
        }
    }

    /// Hosts see it no longer.
    pub(super) fn begin_removal(&mut self, subsystem: usize) {
        if let Some(served) = self.served.get_mut(subsystem) {
            served.standing = Standing::Leaving;
            self.generation += 1;
        }
    }

    /// It is gone: its place and its name are free.
    pub(super) fn vacate(&mut self, subsystem: usize) {
        if let Some(served) = self.served.get_mut(subsystem) {
            served.standing = Standing::Vacant;
            served.namespaces.clear();
        }
    }

    /// All that there are, those included that hosts do not see yet, or no longer.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Served)> {
        self.served.iter().enumerate().filter(|(_, served)| served.standing != Standing::Vacant)
    }

    /// Subsystems that hosts see.
    pub(super) fn listed(&self) -> impl Iterator<Item = (usize, &Served)> {
        self.served.iter().enumerate().filter(|(_, served)| served.is_listed())
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Served> {
        self.served.get(index)
    }

    /// The namespaces of one.
    pub(super) fn namespaces_mut(&mut self, subsystem: usize) -> Option<&mut Namespaces> {
        self.served.get_mut(subsystem).map(|served| &mut served.namespaces)
    }

    /// The index of the one of that name that hosts see.
    pub(super) fn find(&self, name: &Nqn) -> Option<usize> {
        self.listed().find(|(_, served)| served.name == *name).map(|(at, _)| at)
    }

    /// The same, whether hosts see it or not.
    pub(super) fn find_any(&self, name: &Nqn) -> Option<usize> {
        self.served.iter().position(|served| served.standing != Standing::Vacant && served.name == *name)
    }

    /// Those that a host sees in the discovery log.
    pub(super) fn visible(&self, host: Option<Nqn>) -> impl Iterator<Item = &Served> {
        self.served.iter().filter(move |served| served.is_listed() && served.allows(host))
    }

    /// The discovery log says something else for another reason.
    pub(super) fn entries_changed(&mut self) {
        self.generation += 1;
    }

    /// GENCTR of the discovery log.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// What there is for who names one that there is not. Names are compared byte by byte (Base 4.5): one that differs in case is most
    /// likely what was meant.
    pub(super) fn offered(&self, name: &Nqn) -> Option<Offered> {
        let mut all = self.listed().map(|(_, served)| served);
        let alike = all.find(|served| served.name.as_str().eq_ignore_ascii_case(name.as_str()));
        let name = alike.or(self.listed().next().map(|(_, served)| served))?.name;
        // At most MAX_SUBSYSTEMS.
        Some(Offered { name, others: self.listed().count() as u16 - 1 })
    }

    /// Lists a namespace, or does so no longer; false where it was so already. `untold`: the members that are to be told.
    pub(super) fn set_active(&mut self, subsystem: usize, identifier: u32, active: bool, untold: u64) -> bool {
        self.namespaces_mut(subsystem).is_some_and(|all| all.set_active(identifier, active, untold))
    }

    /// There may be an ANA group of this identifier.
    pub(super) fn check_group(group: u32) -> Result<(), ChangeError> {
        if AnaGroups::may_have(group) { Ok(()) } else { Err(ChangeError::AnaGroup { group }) }
    }

    /// The namespaces of an ANA group, or of all, can be reached otherwise; false where it was so already.
    pub(super) fn set_ana(
        &mut self,
        subsystem: usize,
        group: Option<u32>,
        state: AnaState,
        untold: u64,
    ) -> Result<bool, ChangeError> {
        group.map_or(Ok(()), Self::check_group)?;
        Ok(self.namespaces_mut(subsystem).is_some_and(|all| all.set_ana(group, state, untold)))
    }

    /// The ANA group of a namespace has another one, which came or goes.
    pub(super) fn ana_group_changed(&mut self, subsystem: usize, identifier: u32) {
        if let Some(namespaces) = self.namespaces_mut(subsystem) {
            namespaces.group_changed(identifier);
        }
    }

    /// Other hosts may use a subsystem; those before, unless they are the same.
    pub(super) fn set_hosts(
        &mut self,
        subsystem: usize,
        hosts: AllowedHosts,
    ) -> Result<Option<AllowedHosts>, ChangeError> {
        self.check_hosts(&hosts)?;
        let Some(served) = self.served.get_mut(subsystem).filter(|served| served.hosts != hosts) else {
            return Ok(None);
        };
        self.generation += 1;
        Ok(Some(core::mem::replace(&mut served.hosts, hosts)))
    }

    /// A state that a member, by its bit, was not told, and is now.
    pub(super) fn next_untold(&mut self, member: u64) -> Option<Untold> {
        for (subsystem, served) in self.served.iter_mut().enumerate() {
            if let Some((group, state)) = served.namespaces.next_untold_group(member) {
                return Some(Untold::Ana { subsystem, group, state });
            }
            if let Some((identifier, active)) = served.namespaces.next_untold(member) {
                return Some(Untold::Active { subsystem, identifier, active });
            }
        }
        None
    }

    /// What the home core told.
    pub(super) fn follow(&mut self, told: Untold) {
        match told {
            Untold::Ana { subsystem, group, state } => {
                // It is one that the home core has checked.
                let _ = self.set_ana(subsystem, group, state, 0);
            }
            Untold::Active { subsystem, identifier, active } => {
                self.set_active(subsystem, identifier, active, 0);
            }
        }
    }
}
