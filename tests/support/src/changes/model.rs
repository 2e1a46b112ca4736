//! What should hold of a target that is changed.

use super::{Ana, Change, Ctl, Medium, ana_group};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// Changes behind which whoever was kept away may come again.
const LONGEST_AWAY: u32 = 3;
/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;

/// A namespace.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "what the control socket says of it, by its names there")]
pub struct Namespace {
    pub medium: Medium,
    pub bytes: u64,
    /// Of a medium in memory, which cannot become longer.
    pub most: u64,
    pub active: bool,
    pub read_only: bool,
}

/// A subsystem.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "what the control socket says of it, by its names there")]
pub struct Subsystem {
    pub hosts: Option<Vec<String>>,
    pub ana: Ana,
    /// Of the groups that have another one.
    pub ana_groups: BTreeMap<u32, Ana>,
    pub namespaces: BTreeMap<u32, Namespace>,
}

/// A device that the world has to give beside the one that stays.
#[derive(Clone, Debug)]
pub struct Second {
    /// What the one that stays is called, and this one.
    pub names: [String; 2],
    /// Where it listens.
    pub address: SocketAddr,
    /// It has come, and not gone.
    pub serves: bool,
}

/// What a target should be by now.
#[derive(Clone, Debug)]
pub struct Model {
    /// By their names.
    pub subsystems: BTreeMap<String, Subsystem>,
    /// The one that stays; its namespace 1 stays too, and so do the first [`Self::kept_bytes`] of it.
    pub first: String,
    /// See there.
    pub kept_bytes: u64,
    /// Of the host that uses it all the time, and then of others.
    pub hosts: Vec<String>,
    /// That host comes again also when it was told that it may not, and waits where there is no path for good.
    pub returns: bool,
    /// Namespaces that there may be.
    pub limit: usize,
    /// Where it listens; the first address stays.
    pub listeners: Vec<SocketAddr>,
    /// A device that comes and goes, where there is one.
    pub second: Option<Second>,
    drained: Vec<Option<String>>,
    away: u32,
    memories: u32,
}

impl Model {
    /// A target at one address, of one subsystem with one namespace, in file 0.
    #[must_use]
    pub fn new(
        listener: SocketAddr,
        first: &str,
        bytes: u64,
        kept_bytes: u64,
        hosts: &[&str],
        returns: bool,
        limit: usize,
    ) -> Self {
        let namespace = Namespace { medium: Medium::File(0), bytes, most: u64::MAX, active: true, read_only: false };
        let namespaces = BTreeMap::from([(1, namespace)]);
        let subsystem = Subsystem { namespaces, ..Subsystem::new(None) };
        Self {
            subsystems: BTreeMap::from([(first.to_owned(), subsystem)]),
            first: first.to_owned(),
            kept_bytes,
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            returns,
            limit,
            listeners: vec![listener],
            second: None,
            drained: Vec::new(),
            away: 0,
            memories: 0,
        }
    }

    /// One of its namespaces.
    #[must_use]
    pub fn namespace(&self, subsystem: &str, namespace: u32) -> Option<&Namespace> {
        self.subsystems.get(subsystem)?.namespaces.get(&namespace)
    }

    /// All of them, in order.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, u32, &Namespace)> {
        let of = |(name, subsystem)| {
            let (name, Subsystem { namespaces, .. }): (&String, &Subsystem) = (name, subsystem);
            namespaces.iter().map(move |(&identifier, namespace)| (name.as_str(), identifier, namespace))
        };
        self.subsystems.iter().flat_map(of)
    }

    /// Some namespace lives there.
    #[must_use]
    pub fn is_used(&self, medium: Medium) -> bool {
        self.namespaces().any(|(_, _, namespace)| namespace.medium == medium)
    }

    /// The device beside the first one, where it serves.
    #[must_use]
    pub fn second(&self) -> Option<&Second> {
        self.second.as_ref().filter(|second| second.serves)
    }

    /// A number that no medium in memory has had.
    pub(super) fn new_memory(&self) -> u32 {
        self.memories
    }

    /// This host is kept away, or all are.
    #[must_use]
    pub fn is_drained(&self, host: &str) -> bool {
        self.drained.iter().any(|drained| drained.as_deref().is_none_or(|drained| drained == host))
    }

    /// The subsystem is there, and this host on its list.
    #[must_use]
    pub fn allows(&self, host: &str, subsystem: &str) -> bool {
        let found = self.subsystems.get(subsystem);
        let allows = |hosts: &Vec<String>| hosts.iter().any(|allowed| allowed == host);
        found.is_some_and(|found| found.hosts.as_ref().is_none_or(allows))
    }

    /// A host may have a controller of the subsystem.
    #[must_use]
    pub fn admits(&self, host: &str, subsystem: &str) -> bool {
        self.allows(host, subsystem) && !self.is_drained(host)
    }

    /// Its commands to the namespace are carried out.
    #[must_use]
    pub fn reaches(&self, host: &str, subsystem: &str, namespace: u32) -> bool {
        self.admits(host, subsystem)
            && self.subsystems.get(subsystem).is_some_and(|found| found.ana_of(namespace).is_path())
            && self.namespace(subsystem, namespace).is_some_and(|found| found.active)
    }

    /// What brings the first host back to what it uses, where something keeps it from that.
    #[must_use]
    pub fn restoring(&self) -> Option<Change> {
        if let Some(host) = self.drained.first() {
            return Some(Change::Resume { host: host.clone() });
        }
        let (host, subsystem) = (&self.hosts[0], self.first.clone());
        let found = &self.subsystems[&subsystem];
        let hosts = &found.hosts;
        if hosts.as_ref().is_some_and(|hosts| !hosts.contains(host)) {
            return Some(Change::SetAllowedHosts { subsystem, hosts: None });
        }
        let optimized = Change::SetAnaState { subsystem, group: None, state: Ana::Optimized };
        (!found.ana_of(1).is_path()).then_some(optimized)
    }

    /// The same, where that was so for long.
    pub(super) fn overdue(&self) -> Option<Change> {
        self.restoring().filter(|_| self.away >= LONGEST_AWAY)
    }

    /// What the target is to answer: whether it was changed, or that it cannot be.
    #[must_use]
    pub fn expects(&self, change: &Change) -> Option<bool> {
        match change {
            Change::AddNamespace { subsystem, namespace, medium, .. } => {
                let found = self.subsystems.get(subsystem)?;
                let is_free = !found.namespaces.contains_key(namespace) && !self.is_used(*medium);
                let fits = self.namespaces().count() < self.limit && *namespace as usize <= self.limit;
                (is_free && fits).then_some(true)
            }
            Change::RemoveNamespace { subsystem, namespace } => self.namespace(subsystem, *namespace).map(|_| true),
            Change::ResizeNamespace { subsystem, namespace, bytes } => {
                let found = self.namespace(subsystem, *namespace)?;
                (*bytes <= found.most).then_some(*bytes != found.bytes)
            }
            Change::SetNamespaceActive { subsystem, namespace, active } => {
                self.namespace(subsystem, *namespace).map(|found| found.active != *active)
            }
            Change::AddSubsystem { subsystem, .. } => (!self.subsystems.contains_key(subsystem)).then_some(true),
            Change::RemoveSubsystem { subsystem } => self.subsystems.get(subsystem).map(|_| true),
            Change::SetAllowedHosts { subsystem, hosts } => {
                self.subsystems.get(subsystem).map(|found| found.hosts != *hosts)
            }
            Change::SetAnaState { subsystem, group, state } => {
                self.subsystems.get(subsystem).map(|found| match group {
                    Some(group) => found.ana_of_group(*group) != *state,
                    None => found.ana != *state || !found.ana_groups.is_empty(),
                })
            }
            Change::Drain { host } => Some(!self.drained.contains(host)),
            Change::Resume { host } => Some(self.drained.contains(host)),
            Change::SetLogLevel { .. } => Some(true),
            Change::AddListener { address, .. } => Some(!self.listeners.contains(address)),
            Change::RemoveListener { address } => self.listeners.contains(address).then_some(true),
            Change::AddDevice { .. } => (self.second().is_none()).then_some(true),
            Change::RemoveDevice { .. } => self.second().map(|_| true),
        }
    }

    /// What it will be like when that was made.
    #[must_use]
    pub fn after(&self, change: &Change) -> Self {
        let mut after = self.clone();
        if self.expects(change) == Some(true) {
            after.make(change);
        }
        after
    }

    /// A change was made.
    pub(super) fn make(&mut self, change: &Change) {
        match change.clone() {
            Change::AddNamespace { subsystem, namespace, medium, bytes, read_only } => {
                let most = if let Medium::Memory(_) = medium { bytes } else { u64::MAX };
                self.memories += 1;
                let found = Namespace { medium, bytes, most, active: true, read_only };
                self.subsystem(&subsystem, |of| {
                    of.namespaces.insert(namespace, found);
                });
            }
            Change::RemoveNamespace { subsystem, namespace } => {
                self.subsystem(&subsystem, |of| {
                    of.namespaces.remove(&namespace);
                });
            }
            Change::ResizeNamespace { subsystem, namespace, bytes } => {
                self.subsystem(&subsystem, |of| of.of(namespace, |found| found.bytes = bytes));
            }
            Change::SetNamespaceActive { subsystem, namespace, active } => {
                self.subsystem(&subsystem, |of| of.of(namespace, |found| found.active = active));
            }
            Change::AddSubsystem { subsystem, hosts } => {
                self.subsystems.insert(subsystem, Subsystem::new(hosts));
            }
            Change::RemoveSubsystem { subsystem } => drop(self.subsystems.remove(&subsystem)),
            Change::SetAllowedHosts { subsystem, hosts } => self.subsystem(&subsystem, |of| of.hosts = hosts),
            Change::SetAnaState { subsystem, group, state } => {
                self.subsystem(&subsystem, |of| of.set_ana(group, state))
            }
            Change::Drain { host } => self.drained.push(host),
            Change::Resume { host } => self.drained.retain(|drained| *drained != host),
            Change::SetLogLevel { .. } => {}
            Change::AddListener { address, .. } => self.listeners.push(address),
            Change::RemoveListener { address } => self.listeners.retain(|listener| *listener != address),
            Change::AddDevice { .. } => self.second.iter_mut().for_each(|second| second.serves = true),
            Change::RemoveDevice { .. } => self.second.iter_mut().for_each(|second| second.serves = false),
        }
        self.away = if self.restoring().is_some() { self.away + 1 } else { 0 };
    }

    fn subsystem(&mut self, name: &str, change: impl FnOnce(&mut Subsystem)) {
        if let Some(found) = self.subsystems.get_mut(name) {
            change(found);
        }
    }

    /// The target says the same of itself.
    ///
    /// # Errors
    /// It says nothing.
    pub fn is_told(&self, ctl: &mut Ctl) -> Result<bool, String> {
        Ok(told(ctl)? == self.json() && self.unwanted(ctl)?.is_empty())
    }

    /// What it is as a file is what it is.
    ///
    /// # Errors
    /// What would differ, or there is no such file.
    pub(super) fn is_as_saved(ctl: &mut Ctl) -> Result<(), String> {
        let text = ctl.ask("save")?;
        let shown = ctl.ask_with("apply", &json!({ "config": text, "dry_run": true }))?;
        if shown["changes"] == json!([]) { Ok(()) } else { Err(format!("as saved {shown} differ: {text}")) }
    }

    /// What it says otherwise, for people.
    #[must_use]
    pub fn difference(&self, ctl: &mut Ctl) -> String {
        format!("it says {:?} and has {:?}; the model says {:?}", told(ctl), self.unwanted(ctl), self.json())
    }

    /// Controllers of hosts that may have none.
    fn unwanted(&self, ctl: &mut Ctl) -> Result<Vec<Value>, String> {
        let mut all = ctl.list("controllers")?;
        all.retain(|one| {
            let (host, subsystem) = (one["host"].as_str(), one["subsystem"].as_str());
            host.zip(subsystem).is_some_and(|(host, subsystem)| !self.admits(host, subsystem))
        });
        Ok(all)
    }

    fn json(&self) -> Vec<Value> {
        let subsystem = |(name, found): (&String, &Subsystem)| {
            let common = found.ana_groups.is_empty().then(|| found.ana.name());
            // Those without namespaces as well, where they have a state of their own.
            let of_namespaces = found.namespaces.keys().map(|namespace| ana_group(*namespace));
            let groups: BTreeSet<_> = of_namespaces.chain(found.ana_groups.keys().copied()).collect();
            let group = |group: &u32| json!([group, found.ana_of_group(*group).name()]);
            json!([name, found.hosts, common, groups.iter().map(group).collect::<Vec<_>>()])
        };
        let namespace = |(subsystem, namespace, found): (&str, u32, &Namespace)| {
            json!([subsystem, namespace, found.bytes, found.active, found.read_only])
        };
        let all = self.subsystems.iter().map(subsystem).chain(self.namespaces().map(namespace));
        let all = all.chain(self.drained.iter().map(|host| json!(host)));
        let listeners = self.listeners.iter().chain(self.second().map(|second| &second.address));
        all.chain(listeners.map(|address| json!(address.to_string()))).collect()
    }
}

impl Subsystem {
    /// Without namespaces.
    fn new(hosts: Option<Vec<String>>) -> Self {
        Self { hosts, ana: Ana::Optimized, ana_groups: BTreeMap::new(), namespaces: BTreeMap::new() }
    }

    /// How well a namespace can be reached.
    #[must_use]
    pub fn ana_of(&self, namespace: u32) -> Ana {
        self.ana_of_group(ana_group(namespace))
    }

    fn ana_of_group(&self, group: u32) -> Ana {
        self.ana_groups.get(&group).copied().unwrap_or(self.ana)
    }

    fn set_ana(&mut self, group: Option<u32>, state: Ana) {
        match group {
            Some(group) => drop(self.ana_groups.insert(group, state)),
            None => (self.ana, self.ana_groups) = (state, BTreeMap::new()),
        }
        self.ana_groups.retain(|_, other| *other != self.ana);
    }

    fn of(&mut self, namespace: u32, change: impl FnOnce(&mut Namespace)) {
        if let Some(found) = self.namespaces.get_mut(&namespace) {
            change(found);
        }
    }
}

/// What the target says, as [`Model::json`] has it.
fn told(ctl: &mut Ctl) -> Result<Vec<Value>, String> {
    let mut subsystems = ctl.list("subsystems")?;
    subsystems.sort_by_key(|one| one["nqn"].to_string());
    let mut namespaces = ctl.list("namespaces")?;
    namespaces.sort_by_key(|one| (one["subsystem"].to_string(), one["namespace"].as_u64()));
    let of_subsystem = |one: &Value| {
        let groups = one["ana_groups"].as_array().into_iter().flatten();
        let groups: Vec<_> = groups.map(|group| json!([group["group"], group["state"]])).collect();
        json!([one["nqn"], one["allowed_hosts"], one["ana_state"], groups])
    };
    let of_namespace = |one: &Value| {
        let bytes = one["blocks"].as_u64().unwrap_or(0) * one["block_bytes"].as_u64().unwrap_or(0);
        json!([one["subsystem"], one["namespace"], bytes, one["active"], one["read_only"]])
    };
    let drained = ctl.ask("hosts")?["drained"].as_array().cloned().unwrap_or_default();
    let all = subsystems.iter().map(of_subsystem).chain(namespaces.iter().map(of_namespace));
    let listeners = ctl.list("listeners")?;
    let all = all.chain(drained.iter().map(|one| one["host"].clone()));
    Ok(all.chain(listeners.iter().map(|one| one["address"].clone())).collect())
}
