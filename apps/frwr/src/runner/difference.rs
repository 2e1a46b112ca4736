//! What differs between a target that serves and a file: as changes in a safe order, or why they cannot be made while it does.

mod devices;
mod step;
#[cfg(test)]
mod tests;

use super::ana_name::AnaStates;
use super::namespaces::{ListedNamespace, MediumConfig, NamespaceConfig, SubsystemConfig};
use crate::options::Listen;
use core::fmt::Display;
pub(super) use devices::{Listening, devices};
use frwr_nvmf::{
    controller::{AllowedHosts, MAX_ANA_GROUPS, MAX_LISTENERS, MAX_SUBSYSTEMS},
    storage::MediumKind,
    wire::{AnaState, Nqn, SerialNumber},
};
use std::net::SocketAddr;
pub(super) use step::Step;

/// A target as it is.
#[derive(Clone, Debug)]
pub(super) struct Present {
    pub(super) listeners: Vec<Listen>,
    pub(super) subsystems: Vec<PresentSubsystem>,
    pub(super) room: Room,
}

/// A subsystem that hosts see.
#[derive(Clone, Debug)]
pub(super) struct PresentSubsystem {
    pub(super) nqn: Nqn,
    pub(super) serial: SerialNumber,
    pub(super) hosts: AllowedHosts,
    pub(super) ana: AnaStates,
    pub(super) namespaces: Vec<PresentNamespace>,
}

/// A namespace of it.
#[derive(Clone, Debug)]
pub(super) struct PresentNamespace {
    pub(super) identifier: u32,
    pub(super) nguid: [u8; 16],
    pub(super) active: bool,
    pub(super) blocks: u64,
    /// What its medium has by now.
    pub(super) medium_blocks: u64,
    pub(super) config: NamespaceConfig,
}

/// What there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Namespaces.
    pub(super) namespaces: usize,
    /// Of these, places that are taken, those of namespaces that were removed and are not gone included.
    pub(super) taken: usize,
    /// The highest identifier.
    pub(super) highest: u32,
    /// Hosts that a subsystem allows by name.
    pub(super) hosts: usize,
}

/// Whether two namespaces cannot be served at a time.
pub(super) type Clash<'a> = &'a dyn Fn(&NamespaceConfig, &NamespaceConfig) -> bool;

/// What is to be done so that a target is as a file says, in this order. What is the same is not touched.
///
/// # Errors
/// All that cannot be changed while it serves, each by its key and with the remedy.
pub(super) fn difference(
    present: &Present,
    listen: &[Listen],
    wanted: &[SubsystemConfig],
    clash: Clash<'_>,
) -> Result<Vec<Step>, Vec<String>> {
    let mut found = Found::default();
    found.listeners(&present.listeners, listen);
    for subsystem in wanted {
        match present.subsystems.iter().find(|present| present.nqn == subsystem.nqn) {
            None => found.comes(subsystem),
            Some(before) => found.changes(before, subsystem),
        }
        found.check_hosts(subsystem, present.room.hosts);
    }
    for subsystem in &present.subsystems {
        if wanted.iter().all(|wanted| wanted.nqn != subsystem.nqn) {
            let count = subsystem.namespaces.len();
            found.removals.push(Removal {
                step: Step::RemoveSubsystem { nqn: subsystem.nqn, namespaces: count, first: false },
                nqn: subsystem.nqn,
                namespaces: subsystem.namespaces.clone(),
            });
        }
    }
    found.check_room(present);
    if found.refused.is_empty() { Ok(found.in_order(present, clash)) } else { Err(found.refused) }
}

/// All changes, in the order in which they are made.
pub(super) fn in_order(all: [Vec<Step>; 3]) -> Vec<Step> {
    let mut all = all.concat();
    all.sort_by_key(Step::rank);
    all
}

/// What goes.
struct Removal {
    step: Step,
    nqn: Nqn,
    namespaces: Vec<PresentNamespace>,
}

impl Removal {
    /// That could not come while this is there.
    fn is_in_the_way_of(&self, of: &Nqn, namespace: &ListedNamespace, clash: Clash<'_>) -> bool {
        let nguid = namespace.nguid(of);
        self.namespaces.iter().any(|there| {
            let alike = self.nqn == *of && (there.identifier == namespace.identifier || there.nguid == nguid);
            alike || clash(&there.config, &namespace.config)
        })
    }
}

/// What was found so far.
#[derive(Default)]
struct Found {
    steps: Vec<Step>,
    removals: Vec<Removal>,
    refused: Vec<String>,
}

impl Found {
    fn listeners(&mut self, present: &[Listen], wanted: &[Listen]) {
        let come: Vec<_> = wanted.iter().filter(|one| !present.contains(one)).collect();
        let go = present.iter().filter(|one| !wanted.contains(one));
        // Each device has as many.
        let has_room = |device: &Option<String>| {
            let all = present.iter().chain(come.iter().copied());
            all.filter(|one| one.device == *device).count() <= MAX_LISTENERS
        };
        let is_first =
            |one: &Listen| !has_room(&one.device) || come.iter().any(|other| overlap(one.address, other.address));
        self.steps.extend(go.map(|one| Step::RemoveListener { listen: one.clone(), first: is_first(one) }));
        self.steps.extend(come.iter().map(|one| Step::AddListener { listen: (*one).clone() }));
    }

    fn comes(&mut self, subsystem: &SubsystemConfig) {
        let SubsystemConfig { nqn, allowed_hosts, serial, ana, namespaces } = subsystem;
        self.steps.push(Step::AddSubsystem { nqn: *nqn, serial: *serial, hosts: allowed_hosts.clone() });
        self.ana(*nqn, &AnaStates::default(), ana, &[]);
        namespaces.iter().for_each(|namespace| self.namespace_comes(nqn, namespace));
    }

    fn changes(&mut self, before: &PresentSubsystem, subsystem: &SubsystemConfig) {
        let nqn = subsystem.nqn;
        let serial = subsystem.serial.unwrap_or_else(|| SerialNumber::of_subsystem(&nqn));
        if serial != before.serial {
            self.refuse(nqn.as_str(), "serial", serial.as_str(), before.serial.as_str(), "leave it as it is");
        }
        if !same_hosts(&before.hosts, &subsystem.allowed_hosts) {
            let (from, to) = (before.hosts.clone(), subsystem.allowed_hosts.clone());
            self.steps.push(Step::Hosts { nqn, from, to });
        }
        self.ana(nqn, &before.ana, &subsystem.ana, &before.namespaces);
        for namespace in &subsystem.namespaces {
            match before.namespaces.iter().find(|present| present.identifier == namespace.identifier) {
                None => self.namespace_comes(&nqn, namespace),
                Some(before) => self.namespace_changes(nqn, before, namespace),
            }
        }
        for gone in &before.namespaces {
            if subsystem.namespaces.iter().all(|namespace| namespace.identifier != gone.identifier) {
                self.namespace_goes(nqn, gone);
            }
        }
    }

    /// Each group that has another state; or all groups at once, and then the exceptions, where those are fewer changes and hosts see no
    /// namespace pass a state that they should not.
    fn ana(&mut self, nqn: Nqn, present: &AnaStates, wanted: &AnaStates, namespaces: &[PresentNamespace]) {
        let all = 1..=MAX_ANA_GROUPS;
        let single = all.clone().filter(|group| present.of(*group) != wanted.of(*group)).count();
        let exceptions = all.clone().filter(|group| wanted.of(*group) != wanted.all).count();
        let at_once = present.all != wanted.all
            && 1 + exceptions < single
            && namespaces.iter().map(|namespace| namespace.config.ana_group).all(|group| {
                let (from, to) = (present.of(group), wanted.of(group));
                to == wanted.all || from != to && may_pass(from, wanted.all, to)
            });
        if at_once {
            self.steps.push(Step::Ana { nqn, group: None, from: present.all, to: wanted.all });
        }
        for group in all {
            let (from, to) = (if at_once { wanted.all } else { present.of(group) }, wanted.of(group));
            if from != to {
                self.steps.push(Step::Ana { nqn, group: Some(group), from, to });
            }
        }
    }

    fn namespace_comes(&mut self, nqn: &Nqn, namespace: &ListedNamespace) {
        self.steps.push(Step::AddNamespace { nqn: *nqn, namespace: namespace.clone() });
    }

    fn namespace_goes(&mut self, nqn: Nqn, gone: &PresentNamespace) {
        let (identifier, medium) = (gone.identifier, gone.config.clone());
        let step = Step::RemoveNamespace { nqn, identifier, medium, first: false };
        self.removals.push(Removal { step, nqn, namespaces: vec![gone.clone()] });
    }

    fn namespace_changes(&mut self, nqn: Nqn, before: &PresentNamespace, namespace: &ListedNamespace) {
        let (identifier, active) = (before.identifier, namespace.active);
        let whose = format!("{nqn}, namespace {identifier}", nqn = nqn.as_str());
        let is_another = namespace.nguid(&nqn) != before.nguid;
        match other_key(&before.config, &namespace.config) {
            Some(_) if is_another => {
                self.namespace_goes(nqn, before);
                self.namespace_comes(&nqn, namespace);
                return;
            }
            Some(key) => {
                let (wanted, is) = (namespace.config.json(), before.config.json());
                let is = if is[key].is_null() { "something else".to_owned() } else { is[key].to_string() };
                let remedy = "give what comes in its place an nguid of its own, or another nsid";
                self.refuse(&whose, key, &wanted[key], is, remedy);
                return;
            }
            None if is_another => {
                let hex = |nguid: &[u8; 16]| super::load_file::hex(nguid);
                let (wanted, is) = (hex(&namespace.nguid(&nqn)), hex(&before.nguid));
                self.refuse(&whose, "nguid", wanted, is, "leave it as it is");
                return;
            }
            None => {}
        }
        self.size(nqn, before, namespace, &whose);
        if active != before.active {
            self.steps.push(Step::Active { nqn, identifier, active });
        }
    }

    fn size(&mut self, nqn: Nqn, before: &PresentNamespace, namespace: &ListedNamespace, whose: &str) {
        let block_bytes = u64::from(before.config.block_bytes.max(1));
        let (key, wanted) = match (namespace.bytes, &namespace.config.medium) {
            (None, MediumConfig::Memory { bytes }) => ("memory", *bytes),
            (None, _) => ("bytes", before.medium_blocks * block_bytes),
            (Some(bytes), _) => ("bytes", bytes),
        };
        let (blocks, has) = (wanted / block_bytes, before.medium_blocks * block_bytes);
        if blocks > before.medium_blocks {
            let remedy = match namespace.config.medium {
                MediumConfig::Stored { .. } => "make it longer first",
                _ => "memory stays as long as it was made: start serve anew with the file",
            };
            self.refused.push(format!("{whose}: {key} is {wanted}, and there are {has}; {remedy}, or choose fewer"));
        } else if blocks != before.blocks {
            let (from, to) = (before.blocks * block_bytes, blocks * block_bytes);
            self.steps.push(Step::Resize { nqn, identifier: before.identifier, from, to });
        }
    }

    fn refuse(&mut self, whose: &str, key: &str, wanted: impl Display, is: impl Display, remedy: &str) {
        self.refused.push(format!("{whose}: {}", fixed(key, wanted, is, remedy)));
    }

    fn check_hosts(&mut self, subsystem: &SubsystemConfig, most: usize) {
        if let AllowedHosts::Listed(hosts) = &subsystem.allowed_hosts
            && hosts.len() > most
        {
            let (nqn, count) = (subsystem.nqn.as_str(), hosts.len());
            self.refused
                .push(format!("{nqn}: allowed_hosts are {count}, and may be {most}; name fewer, or leave them out"));
        }
    }

    fn added(&self) -> impl Iterator<Item = (&Nqn, &ListedNamespace)> {
        self.steps.iter().filter_map(|step| match step {
            Step::AddNamespace { nqn, namespace } => Some((nqn, namespace)),
            _ => None,
        })
    }

    fn check_room(&mut self, Present { room, .. }: &Present) {
        let remedy = "start serve anew with more spare_namespaces";
        let beyond =
            self.added().map(|(nqn, one)| (nqn, one.identifier)).find(|(_, identifier)| *identifier > room.highest);
        let removed: usize = self.removals.iter().map(|removal| removal.namespaces.len()).sum();
        let count = (room.taken + self.added().count()).saturating_sub(removed);
        if let Some((nqn, identifier)) = beyond {
            let (nqn, most) = (nqn.as_str(), room.highest);
            self.refused
                .push(format!("{nqn}: nsid is {identifier}, and may be {most} at most; {remedy}, or choose another"));
        }
        if count > room.namespaces {
            let most = room.namespaces;
            self.refused.push(format!("namespace: there would be {count}, and may be {most}; {remedy}, or name fewer"));
        }
    }

    /// What comes first, then what goes; but what is in the way goes before.
    fn in_order(self, present: &Present, clash: Clash<'_>) -> Vec<Step> {
        let subsystems = self.steps.iter().filter(|step| matches!(step, Step::AddSubsystem { .. })).count();
        let has_room = present.room.taken + self.added().count() <= present.room.namespaces
            && present.subsystems.len() + subsystems <= MAX_SUBSYSTEMS;
        let is_first = |removal: &Removal| {
            !has_room || self.added().any(|(nqn, namespace)| removal.is_in_the_way_of(nqn, namespace, clash))
        };
        let firsts: Vec<_> = self.removals.iter().map(is_first).collect();
        let removals = self
            .removals
            .into_iter()
            .zip(firsts)
            .map(|(removal, is_first)| if is_first { removal.step.before_what_comes() } else { removal.step });
        let mut steps: Vec<_> = self.steps.into_iter().chain(removals).collect();
        steps.sort_by_key(Step::rank);
        steps
    }
}

/// What cannot be another one while a target serves.
pub(super) fn fixed(key: &str, wanted: impl Display, is: impl Display, remedy: &str) -> String {
    format!("{key} is {wanted}, and {is} in what runs: {remedy}, or start serve anew with the file")
}

fn same_hosts(one: &AllowedHosts, other: &AllowedHosts) -> bool {
    match (one, other) {
        (AllowedHosts::Any, AllowedHosts::Any) => true,
        (AllowedHosts::Listed(one), AllowedHosts::Listed(other)) => {
            one.iter().all(|host| other.contains(host)) && other.iter().all(|host| one.contains(host))
        }
        _ => false,
    }
}

/// On the way from one state to another a third one neither opens what is to be closed throughout, nor closes what is to be open, nor is
/// taken for the end.
fn may_pass(from: AnaState, through: AnaState, to: AnaState) -> bool {
    let is_open = |state| matches!(state, AnaState::Optimized | AnaState::NonOptimized);
    through != AnaState::PersistentLoss && [from, to].into_iter().any(|end| is_open(end) == is_open(through))
}

/// The first key by which what a namespace lives in is another one, by whatever folder paths are named from. How much of it there is
/// follows by itself.
fn other_key(is: &NamespaceConfig, wanted: &NamespaceConfig) -> Option<&'static str> {
    let of_medium = match (&is.medium.whole(), &wanted.medium.whole()) {
        (MediumConfig::Memory { .. }, MediumConfig::Memory { .. }) => None,
        (MediumConfig::Loaded { path: is }, MediumConfig::Loaded { path }) if is == path => None,
        (
            MediumConfig::Stored { path: is, kind: is_kind, backing: is_backing, direct: is_direct },
            MediumConfig::Stored { path, kind, backing, direct },
        ) if is == path && (is_kind == kind || *is_kind == MediumKind::Any) => {
            let backing = (is_backing != backing).then_some("backing");
            backing.or_else(|| (is_direct != direct).then_some("direct"))
        }
        // The URI says all of it but what has keys of its own.
        (MediumConfig::Nbd { options: is }, MediumConfig::Nbd { options }) if is.uri() == options.uri() => None,
        (MediumConfig::Rbd { options: is }, MediumConfig::Rbd { options }) if is.name() == options.name() => None,
        (_, MediumConfig::Nbd { .. }) => Some("nbd"),
        (_, MediumConfig::Rbd { .. }) => Some("rbd"),
        (_, MediumConfig::Memory { .. }) => Some("memory"),
        (_, MediumConfig::Loaded { .. }) => Some("load"),
        (_, MediumConfig::Stored { kind: MediumKind::Device, .. }) => Some("device"),
        (_, MediumConfig::Stored { .. }) => Some("file"),
    };
    let block_size = (is.block_bytes != wanted.block_bytes).then_some("block_size");
    let ana_group = (is.ana_group != wanted.ana_group).then_some("ana_group");
    of_medium.or(block_size).or(ana_group).or_else(|| (is.read_only != wanted.read_only).then_some("read_only"))
}

/// They are one address, of two devices; or one of them is at all addresses, the other's included, as far as the kernel gives a port twice: of IPv6 that may be IPv4 as well.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one == other || one.port() == other.port() && (one.ip().is_unspecified() || other.ip().is_unspecified())
}
