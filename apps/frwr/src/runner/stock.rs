//! What `serve` serves by now, and what more it may: for namespaces that come while it does.

use super::{
    clash::served_twice_of,
    difference::Room,
    medium::Lives,
    namespace_plan::NamespacePlan,
    namespaces::{Identity, ListedNamespace, MediumConfig, NamespaceConfig, NamespaceReport, SubsystemConfig},
    prepared::{Patience, Prepared, Users, prepare},
    serve_command::ServeConfig,
    trace::{OF_KEYS, check_path},
};
use crate::Error;
use frwr_nvmf::{
    controller::{MAX_NAMESPACES, TargetOptions},
    storage::{AnyStorage, Below},
    wire::Nqn,
};
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// What a namespace lives in, and what that is to the system, which is found once, by whoever opens it: a path asks its file system, which
/// may answer nobody when the next namespace comes. Clones are of one namespace.
#[derive(Clone, Debug)]
struct Known {
    config: NamespaceConfig,
    below: Arc<OnceLock<Below>>,
}

impl Known {
    fn new(config: NamespaceConfig) -> Self {
        Self { config, below: Arc::default() }
    }

    /// Finds it, of a file or device that is open by now. Takes as long as its file system does.
    fn look(&self) {
        if let MediumConfig::Stored { path, .. } = &self.config.medium {
            self.below.get_or_init(|| Below::of(path));
        }
    }
}

/// All namespaces that there are, or that were removed and are not gone.
#[derive(Debug)]
pub(super) struct Stock {
    users: Users,
    /// Operations that a storage in memory holds, as those of the start.
    depth: usize,
    /// Namespaces that there may be.
    limit: usize,
    /// Hosts that a subsystem may allow by name.
    hosts: usize,
    served: Vec<(Identity, Known)>,
    /// What is written meanwhile, and can be no namespace.
    trace: Option<PathBuf>,
}

impl Stock {
    /// What a target is started with, of which all is open.
    pub(super) fn new(config: &ServeConfig, users: Users, options: &TargetOptions) -> Self {
        let known = |config: &NamespaceConfig| {
            let known = Known::new(config.clone());
            known.look();
            known
        };
        let of = |subsystem: &SubsystemConfig| {
            subsystem.identities().zip(subsystem.configs().map(known)).collect::<Vec<_>>()
        };
        Self {
            users: Users { at_start: false, ..users },
            depth: options.queue_entries.into(),
            limit: options.namespaces as usize,
            hosts: options.allowed_hosts as usize,
            served: config.subsystems.iter().flat_map(of).collect(),
            trace: config.arguments.output.trace_keys.clone(),
        }
    }

    /// Keeps the place of one more until [`Self::forget`], which somebody has to open for these units.
    ///
    /// # Errors
    /// It cannot be had beside the others.
    pub(super) fn reserve(
        &mut self,
        of: Nqn,
        namespace: ListedNamespace,
        units: Vec<usize>,
    ) -> Result<Reserved, Error> {
        let identity = (of, namespace.identifier);
        self.check(identity, &namespace.config)?;
        self.served.push((identity, Known::new(namespace.config.clone())));
        let users = Users { cores: units.len(), wait: Patience::default(), ..self.users.clone() };
        let beside = self.served.iter().map(|(_, known)| known.clone()).collect();
        Ok(Reserved { subsystem: of, namespace, units, beside, trace: self.trace.clone(), users, depth: self.depth })
    }

    /// What all of them live in, the last one last.
    pub(super) fn configs(&self) -> impl Iterator<Item = &NamespaceConfig> {
        self.served.iter().map(|(_, known)| &known.config)
    }

    /// What a namespace lives in.
    pub(super) fn config(&self, identity: Identity) -> Option<&NamespaceConfig> {
        self.served.iter().find(|(served, _)| *served == identity).map(|(_, known)| &known.config)
    }

    /// ANA groups of a subsystem that follow locks.
    pub(super) fn locked_groups(&self, subsystem: Nqn) -> impl Iterator<Item = u32> {
        let of = self.served.iter().filter(move |((nqn, _), known)| *nqn == subsystem && known.config.is_exclusive());
        of.map(|(_, known)| known.config.ana_group)
    }

    /// What there may be.
    pub(super) fn room(&self) -> Room {
        Room { namespaces: self.limit, taken: self.served.len(), highest: self.highest(), hosts: self.hosts }
    }

    /// The highest identifier that there may be.
    fn highest(&self) -> u32 {
        // At most MAX_NAMESPACES.
        self.limit.min(MAX_NAMESPACES) as u32
    }

    /// That one is gone, or never came.
    pub(super) fn forget(&mut self, identity: Identity) {
        self.served.retain(|(served, _)| *served != identity);
    }

    fn check(&self, identity: Identity, config: &NamespaceConfig) -> Result<(), Error> {
        let (_, identifier) = identity;
        let refused = |text: String| Err(Error::failed("namespace", text));
        let (count, limit) = (self.served.len(), self.limit);
        let highest = self.highest();
        if !(1..=highest).contains(&identifier) {
            return refused(format!(
                "namespace is {identifier}: must be from 1 to {highest}; choose another one, or start serve with more \
                 --spare-namespaces"
            ));
        }
        if self.served.iter().any(|(served, _)| *served == identity) {
            return refused(format!(
                "there is a namespace {identifier} in the subsystem, or one that was removed has commands left; choose another \
                 identifier, or remove it first"
            ));
        }
        if count >= limit {
            return refused(format!(
                "there are {count} namespaces, and may be {limit}; remove one, or start serve with more --spare-namespaces"
            ));
        }
        let mut beside = self.served.iter().filter(|((nqn, _), _)| *nqn == identity.0);
        if beside.any(|(_, other)| config.shares_locked_group(&other.config)) {
            return refused(config.locked_group_text());
        }
        Ok(())
    }
}

/// A namespace whose place is kept, and whose medium is still to be opened.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) subsystem: Nqn,
    pub(super) namespace: ListedNamespace,
    /// Each core of each device that is served.
    pub(super) units: Vec<usize>,
    /// What it and all others live in, itself last.
    beside: Vec<Known>,
    /// What is written meanwhile, and can be no namespace.
    trace: Option<PathBuf>,
    users: Users,
    depth: usize,
}

/// A namespace whose medium is open.
#[derive(Debug)]
pub(super) struct Opened {
    /// Of each unit, in their order.
    pub(super) storages: Vec<AnyStorage>,
    pub(super) report: NamespaceReport,
    /// What it lives in.
    pub(super) medium: Lives,
    /// What a person may not expect.
    pub(super) notes: Vec<String>,
}

impl Reserved {
    /// Which it is.
    pub(super) const fn identity(&self) -> Identity {
        (self.subsystem, self.namespace.identifier)
    }

    /// Whether somebody waits until it is open.
    pub(super) fn patience(&self) -> Patience {
        self.users.wait.clone()
    }

    /// Opens it for each core. Blocks as long as that takes: nothing for the main thread.
    ///
    /// # Errors
    /// It cannot be opened; nothing is left of it then.
    pub(super) fn open(&self) -> Result<Opened, Error> {
        self.check()?;
        let mut notes = Vec::new();
        let prepared = prepare(&self.namespace, &self.users, &mut |note| notes.push(note.to_owned()))?;
        let Prepared { of_cores, report, medium } = prepared;
        if let Some(own) = self.beside.last() {
            own.look();
        }
        let storage = |plan: NamespacePlan| plan.storage(self.depth, report.blocks);
        let storages = of_cores.into_iter().map(storage).collect::<Result<_, _>>()?;
        Ok(Opened { storages, report, medium, notes })
    }

    /// That its medium is nobody else's.
    fn check(&self) -> Result<(), Error> {
        // Those of another kind are another medium.
        let kind = core::mem::discriminant(&self.namespace.config.medium);
        let alike = self.beside.iter().filter(|known| core::mem::discriminant(&known.config.medium) == kind);
        let alike = alike.map(|known| (&known.config, known.below.get()));
        if let Some((_, reason)) = served_twice_of(alike) {
            return Err(Error::failed("namespace", reason));
        }
        let path = self.namespace.config.path();
        check_path(OF_KEYS, self.trace.as_deref(), &[("what a namespace lives in", path)])
    }
}
