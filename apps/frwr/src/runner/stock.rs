//! What `serve` serves by now, and what more it may: for namespaces that come while it does.

use super::{
    media_watch::{Identity, MediaWatch},
    namespaces::{NamespaceConfig, NamespacePlan, NamespaceReport, SubsystemConfig, Users, prepare, served_twice},
    serve_command::ServeConfig,
    target_side::in_memory,
    trace::{OF_KEYS, check_path},
};
use crate::Error;
use core::iter;
use frwr_nvmf::{
    controller::{MAX_NAMESPACES, TargetOptions},
    storage::AnyStorage,
};
use std::path::PathBuf;

/// All namespaces that there are, or that were removed and are not gone.
#[derive(Debug)]
pub(super) struct Stock {
    users: Users,
    /// Operations that a storage in memory holds, as those of the start.
    depth: usize,
    /// Namespaces that there may be.
    limit: usize,
    served: Vec<(Identity, NamespaceConfig)>,
    /// What is written meanwhile, and can be no namespace.
    trace: Option<PathBuf>,
}

impl Stock {
    /// What a target is started with.
    pub(super) fn new(config: &ServeConfig, users: Users, options: &TargetOptions) -> Self {
        let of =
            |subsystem: &SubsystemConfig| subsystem.identities().zip(subsystem.namespaces.clone()).collect::<Vec<_>>();
        Self {
            users: Users { at_start: false, ..users },
            depth: options.queue_entries.into(),
            limit: options.namespaces as usize,
            served: config.subsystems.iter().flat_map(of).collect(),
            trace: config.arguments.output.trace_keys.clone(),
        }
    }

    /// Opens one more for each core, in their order, and keeps its place until [`Self::forget`]. Blocks as long as that takes.
    ///
    /// # Errors
    /// It cannot be had beside the others, or not be opened; nothing is left of it then.
    pub(super) fn open(
        &mut self,
        identity: Identity,
        config: &NamespaceConfig,
        media: &mut MediaWatch,
        say: &mut dyn FnMut(&str),
    ) -> Result<(Vec<AnyStorage>, NamespaceReport), Error> {
        self.check(identity, config)?;
        let opened = prepare(identity, config, &self.users, media, say).and_then(|(plans, report)| {
            let storages = plans.into_iter().map(|plan| self.storage(plan)).collect::<Result<_, _>>()?;
            Ok((storages, report))
        });
        match &opened {
            Ok(_) => self.served.push((identity, config.clone())),
            Err(_) => media.forget(identity),
        }
        opened
    }

    /// That one is gone, or never came.
    pub(super) fn forget(&mut self, identity: Identity) {
        self.served.retain(|(served, _)| *served != identity);
    }

    fn check(&self, identity: Identity, config: &NamespaceConfig) -> Result<(), Error> {
        let (_, identifier) = identity;
        let refused = |text: String| Err(Error::failed("namespace", text));
        let (count, limit) = (self.served.len(), self.limit);
        let highest = limit.min(MAX_NAMESPACES);
        if !(1..=highest).contains(&(identifier as usize)) {
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
        let all = self.served.iter().map(|(_, served)| served).chain(iter::once(config));
        if let Some((_, reason)) = served_twice(all) {
            return refused(reason);
        }
        check_path(OF_KEYS, self.trace.as_deref(), &[("what a namespace lives in", config.path())])
    }

    fn storage(&self, plan: NamespacePlan) -> Result<AnyStorage, Error> {
        match plan {
            NamespacePlan::Open { storage, .. } => Ok(storage),
            NamespacePlan::Shared { medium, geometry, read_only } => in_memory(medium, geometry, read_only, self.depth),
            // Of the start alone.
            NamespacePlan::Memory { .. } => Err(Error::lost()),
        }
    }
}
