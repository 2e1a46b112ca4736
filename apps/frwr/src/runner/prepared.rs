//! Namespaces whose media are open, for each core that serves them.

use super::{
    load_file::{hex, load as load_file},
    media_watch::MediaWatch,
    medium::{Lives, Medium, file_depth},
    memory_medium::MemoryMedium,
    namespace_plan::{NamespacePlan, PlannedNamespace, SubsystemPlan},
    namespaces::{ListedNamespace, MediumConfig, NamespaceConfig, NamespaceReport, SubsystemConfig},
};
use crate::Error;
use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use frwr_mempool::PagePolicy;
use frwr_nvmf::{
    storage::{AnyStorage, Backing, FileMedium, FileOptions, Geometry, NbdMedium, RbdMedium},
    wire::SerialNumber,
};
use std::sync::Arc;

/// How long an image of Ceph may take to open while others are served: changes behind it wait meanwhile. Clusters that are well answer
/// within a second; one that is not may be tried again.
const ADDED_RBD_LIMIT: Duration = Duration::from_secs(10);

/// Who uses what is served.
#[derive(Clone, Debug)]
pub(super) struct Users {
    /// Cores, each once for each device: at least one.
    pub(super) cores: usize,
    /// Operations that hosts may have in one namespace of a core.
    pub(super) depth: usize,
    /// Kind of memory that cores share.
    pub(super) pages: PagePolicy,
    /// NUMA node of that.
    pub(super) node: Option<u32>,
    /// Nobody is served yet, so that a cluster has the time that it takes.
    pub(super) at_start: bool,
    /// Whether they still wait.
    pub(super) wait: Patience,
}

/// Whether somebody waits for a namespace to be opened, which may take a while on a thread of its own. Clones are the same one's.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience(Arc<AtomicBool>);

impl Patience {
    /// Nobody waits any more.
    pub(super) fn end(&self) {
        self.0.store(true, Relaxed);
    }

    /// That it is not worth while to go on, if it is not.
    pub(super) fn lasts(&self) -> Result<(), Error> {
        if self.0.load(Relaxed) { Err(Error::failed("namespace", "nobody waits for it")) } else { Ok(()) }
    }
}

/// A namespace that can be served.
#[derive(Debug)]
pub(super) struct Prepared {
    /// What each core gets.
    pub(super) of_cores: Vec<NamespacePlan>,
    pub(super) report: NamespaceReport,
    /// What it lives in.
    pub(super) medium: Lives,
}

/// Opens a namespace for each core, or reads what it holds at first. `say` is told how it is used where that is otherwise than
/// a person may expect. Blocks as long as that takes, or until nobody waits any more where several ways have to be made.
pub(super) fn prepare(
    namespace: &ListedNamespace,
    users: &Users,
    say: &mut dyn FnMut(&str),
) -> Result<Prepared, Error> {
    let config = &namespace.config;
    let NamespaceConfig { medium, block_bytes, read_only, .. } = config.clone();
    let mut is_read_only = read_only;
    let part = |all: Geometry| part_of(namespace, all);
    let (of_cores, kind, geometry, content, medium) = match medium {
        MediumConfig::Memory { bytes } => {
            let geometry = whole(bytes / u64::from(block_bytes.max(1)), block_bytes)?;
            let (plans, medium) = in_memory(users, geometry, None, read_only)?;
            (plans, "memory", geometry, None, medium)
        }
        MediumConfig::Loaded { path } => {
            let file = load_file(&path)?;
            let geometry = whole((file.bytes.len() as u64).div_ceil(block_bytes.max(1).into()), block_bytes)?;
            let content = Some((file.bytes.len() as u64, hex(&file.digest)));
            let (plans, medium) = in_memory(users, geometry, Some(&file.bytes), read_only)?;
            (plans, "memory", geometry, content, medium)
        }
        MediumConfig::Stored { path, kind, backing, direct } => {
            let mut medium = FileMedium::open(
                &FileOptions::new(path).kind(kind).block_bytes(block_bytes).read_only(read_only).direct(direct),
            )?;
            let geometry = medium.geometry();
            medium.resize(part(geometry)?).map_err(Error::setup)?;
            let (plans, name) = opened(&medium, backing, users, say)?;
            (plans, name, geometry, None, Lives::Watched(Medium::File(medium)))
        }
        MediumConfig::Nbd { options } => {
            let medium = NbdMedium::open(options.block_bytes(block_bytes).read_only(read_only))?;
            is_read_only = medium.is_read_only();
            if is_read_only && !read_only {
                say(&format!("{}: its server exports it for reading only", config.name()));
            }
            let plans = ways(users, |depth| Ok(medium.storage(depth)?))?;
            (plans, "NBD", medium.geometry(), None, Lives::Watched(Medium::Nbd(medium)))
        }
        MediumConfig::Rbd { options } => {
            let options = options.block_bytes(block_bytes).read_only(read_only);
            let opened = if users.at_start {
                RbdMedium::open(options)
            } else {
                RbdMedium::open_within(options, ADDED_RBD_LIMIT)
            };
            let mut medium = opened?;
            is_read_only = medium.is_read_only();
            let geometry = medium.geometry();
            medium.resize(part(geometry)?).map_err(Error::setup)?;
            let plans = ways(users, |depth| Ok(medium.storage(depth)?))?;
            (plans, "RBD", geometry, None, Lives::Watched(Medium::Rbd(medium)))
        }
    };
    let blocks = part(geometry)?;
    let (bytes, sha256) = match content {
        Some((bytes, sha256)) => (bytes, Some(sha256)),
        None => (blocks * u64::from(block_bytes), None),
    };
    let (name, medium_blocks) = (config.name(), geometry.blocks());
    let read_only = is_read_only;
    let report = NamespaceReport { name, kind, bytes, sha256, blocks, medium_blocks, block_bytes, read_only };
    Ok(Prepared { of_cores, report, medium })
}

/// Each core's way to a server.
fn ways(users: &Users, open: impl Fn(usize) -> Result<AnyStorage, Error>) -> Result<Vec<NamespacePlan>, Error> {
    let depth = file_depth(users.depth);
    let way = |_| {
        users.wait.lasts()?;
        Ok(NamespacePlan::Open { storage: open(depth)?, alignment: 1 })
    };
    (0..users.cores).map(way).collect()
}

/// Blocks that a namespace has of so many.
fn part_of(namespace: &ListedNamespace, all: Geometry) -> Result<u64, Error> {
    let Some(bytes) = namespace.bytes else { return Ok(all.blocks()) };
    let (blocks, block_bytes) = (bytes / u64::from(all.block_bytes()), u64::from(all.block_bytes()));
    if (1..=all.blocks()).contains(&blocks) {
        return Ok(blocks);
    }
    let (name, has) = (namespace.config.name(), all.blocks() * block_bytes);
    let text = format!(
        "bytes is {bytes}: {name} has {has}, and a block {block_bytes}; choose others, or leave it out for all"
    );
    Err(Error::failed("namespace", text))
}

/// Memory that all cores use.
fn in_memory(
    users: &Users,
    geometry: Geometry,
    content: Option<&[u8]>,
    read_only: bool,
) -> Result<(Vec<NamespacePlan>, Lives), Error> {
    let medium = MemoryMedium::new(geometry, content, read_only, users.pages, users.node);
    let medium = medium.map_err(|error| Error::of_core(0, error))?;
    let plans = (0..users.cores).map(|_| NamespacePlan::Memory(medium.clone())).collect();
    Ok((plans, Lives::Memory(medium)))
}

/// Each core's way to a medium, and what the first one's is; what is to be said of it is said once.
fn opened(
    medium: &FileMedium,
    backing: Backing,
    users: &Users,
    say: &mut dyn FnMut(&str),
) -> Result<(Vec<NamespacePlan>, &'static str), Error> {
    let (mut plans, mut name) = (Vec::with_capacity(users.cores), "");
    for core in 0..users.cores {
        users.wait.lasts()?;
        let (storage, notes) = medium.storage(backing, file_depth(users.depth))?;
        if core == 0 {
            notes.iter().for_each(|note| say(&note.to_string()));
            name = storage.name();
        }
        plans.push(NamespacePlan::Open { storage, alignment: medium.alignment() });
    }
    Ok((plans, name))
}

fn whole(blocks: u64, block_bytes: u32) -> Result<Geometry, Error> {
    Geometry::new(blocks, block_bytes).map_err(|error| Error::failed("namespace", error.to_string()))
}

impl SubsystemConfig {
    /// Opens its namespaces, as [`prepare`], for each core; those in files and on block devices are watched.
    pub(super) fn prepare(
        &self,
        users: &Users,
        media: &mut MediaWatch,
        say: &mut dyn FnMut(&str),
        reports: &mut Vec<NamespaceReport>,
    ) -> Result<Vec<SubsystemPlan>, Error> {
        let serial = self.serial.unwrap_or_else(|| SerialNumber::of_subsystem(&self.nqn));
        let plan = || SubsystemPlan {
            name: self.nqn,
            hosts: self.allowed_hosts.clone(),
            serial,
            ana_states: self.ana_at_start(),
            namespaces: Vec::with_capacity(self.namespaces.len()),
        };
        let mut plans: Vec<_> = (0..users.cores).map(|_| plan()).collect();
        for (identity, namespace) in self.identities().zip(&self.namespaces) {
            let Prepared { of_cores, report, medium } = prepare(namespace, users, say)?;
            media.add(identity, namespace.config.name(), medium);
            let ListedNamespace { identifier, nguid, active, .. } = *namespace;
            let (ana_group, blocks) = (namespace.config.ana_group, report.blocks);
            let part = |medium| PlannedNamespace { identifier, nguid, ana_group, active, blocks, medium };
            plans.iter_mut().zip(of_cores).for_each(|(plan, medium)| plan.namespaces.push(part(medium)));
            reports.push(report);
        }
        Ok(plans)
    }
}
