//! What the command line means for each side.

use super::{
    command_line::{Config, Inject},
    host_side::HostPlan,
    job_plan::{JobPlan, Source},
    load_command::LoadConfig,
    load_file::LoadedFile,
    namespaces::{NamespacePlan, SubsystemPlan},
    serve_command::ServeConfig,
    target_side::TargetPlan,
};
use crate::Error;
use core::{num::NonZeroU64, time::Duration};
use frwr_engine::{ReceiveQueues, provider::Capabilities};
use frwr_nvmf::{
    controller::{ADMIN_QUEUE_ENTRIES, AllowedHosts, TargetOptions, UNPROVEN_CONNECTIONS},
    host::HostOptions,
    storage::Geometry,
    wire::{DEFAULT_PORT, DISCOVERY_SUBSYSTEM, Nqn, SerialNumber},
};
use std::{net::SocketAddr, sync::Arc};

/// One read in this many at most is spoilt by `--inject corrupt-data`.
const CORRUPT_EVERY: u64 = 100;
/// Names under a domain that nobody can own (RFC 6761).
const SUBSYSTEM: &str = "nqn.2026-11.invalid.frwr:file";
const HOST: &str = "nqn.2026-11.invalid.frwr:host";
/// How long a step of bringing a session up may take between two processes, so that a target that is not there is soon
/// told as such.
pub(super) const STEP_TIMEOUT: Duration = Duration::from_secs(5);

fn name(text: &str) -> Result<Nqn, Error> {
    Nqn::new(text).map_err(|error| Error::failed("name", format!("no NVMe qualified name: {error}")))
}

/// The subsystem of a command line, which `load` connects to.
pub(super) fn default_subsystem() -> Result<Nqn, Error> {
    name(SUBSYSTEM)
}

/// The discovery service's name, and the host's.
pub(super) fn discovery_names(host: Option<&str>) -> Result<(Nqn, Nqn), Error> {
    Ok((name(DISCOVERY_SUBSYSTEM)?, name(host.unwrap_or(HOST))?))
}

/// Where both sides of the loop meet on the software NIC.
pub(super) fn loop_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))
}

/// Blocks of a namespace: the file, rounded up.
fn blocks(block_bytes: u32, file: &LoadedFile) -> u64 {
    (file.bytes.len() as u64).div_ceil(block_bytes.into())
}

/// Controllers of a target beside those of its hosts: one, for a host that comes back before its former connection is gone. Where several
/// do, they take turns.
const RETURNING: u16 = 1;
/// Hosts that ask the discovery service at a time at most.
const MAX_DISCOVERY: u16 = 32;

/// Controllers of a target.
fn controllers(hosts: u16) -> u16 {
    hosts.saturating_add(RETURNING)
}

/// Discovery controllers: one that each host may keep, and one more for who only asks.
fn discovery_controllers(hosts: u16) -> u16 {
    hosts.saturating_add(1).min(MAX_DISCOVERY)
}

/// Connections of a target on one core.
pub(super) fn connections(hosts: u16, io_queues: u16) -> u32 {
    let queues = u32::from(controllers(hosts)) * (u32::from(io_queues) + 1);
    queues + u32::from(discovery_controllers(hosts)) + u32::from(UNPROVEN_CONNECTIONS)
}

/// Entries of an I/O queue: one request per slot, and the entry that a queue never uses. Depths are bounded far below 2^16.
pub(super) fn entries(queue_depth: u32) -> u16 {
    (queue_depth as u16 + 1).max(ADMIN_QUEUE_ENTRIES)
}

pub(super) fn target(config: &Config, file: &LoadedFile, capabilities: &Capabilities) -> Result<TargetPlan, Error> {
    let blocks = blocks(config.block_bytes, file);
    let mut options = TargetOptions::new(loop_address(), name(SUBSYSTEM)?);
    options.queue_entries = entries(config.queue_depth);
    options.buffer_bytes = options.buffer_bytes.max(config.block_bytes);
    // Small files too: reading back is as many reads as there are blocks.
    let corrupt_every = NonZeroU64::new(CORRUPT_EVERY.min(blocks));
    options.corrupt_reads = corrupt_every.filter(|_| config.inject == Some(Inject::CorruptData));
    let geometry = Geometry::new(blocks, config.block_bytes);
    let geometry = geometry.map_err(|error| Error::failed("namespace", error.to_string()))?;
    let namespaces = vec![NamespacePlan::Memory { geometry, content: None, read_only: false }];
    let (name, serial) = (options.subsystem, SerialNumber::of_subsystem(&options.subsystem));
    let subsystems = vec![SubsystemPlan { name, hosts: AllowedHosts::Any, serial, namespaces }];
    Ok(TargetPlan {
        options,
        subsystems,
        pages: config.pages,
        capabilities: *capabilities,
        alone: false,
        snapshots: None,
        incidents: None,
    })
}

pub(super) fn host(config: &Config, file: &LoadedFile, capabilities: &Capabilities) -> Result<HostPlan, Error> {
    let mut options = HostOptions::new(loop_address(), name(SUBSYSTEM)?, name(HOST)?);
    options.queue_depth = config.queue_depth as u16;
    options.remote_invalidation = config.remote_invalidate;
    let job = JobPlan {
        source: Source::File { bytes: Arc::clone(&file.bytes), digest: file.digest },
        block_bytes: config.block_bytes,
        pieces: 1,
        queue_depth: config.queue_depth,
        read_share: config.read_share,
        runtime: config.runtime,
        seed: config.seed,
    };
    let (pages, capabilities, inject) = (config.pages, *capabilities, config.inject);
    // Nobody ends the loop's connection but who injects it.
    let tolerated_failures = u64::from(inject == Some(Inject::KillPeer));
    Ok(HostPlan { options, job, pages, capabilities, inject, tolerated_failures })
}

/// The target of `serve`, as each of its cores has it: `of_cores` has the subsystems of each.
pub(super) fn served(
    config: &ServeConfig,
    of_cores: Vec<Vec<SubsystemPlan>>,
    capabilities: &Capabilities,
) -> Result<Vec<TargetPlan>, Error> {
    // Not looked at where subsystems are given, as here.
    let mut options = TargetOptions::new(config.listen, default_subsystem()?);
    options.io_queues = config.io_queues;
    options.in_capsule_bytes = config.in_capsule;
    options.data_blocks = config.data_blocks;
    if let Some(entries) = config.shared_receives {
        options.receive_queues = ReceiveQueues::Shared { entries };
    }
    options.queue_entries = entries(config.queue_depth);
    options.buffer_bytes = config.max_transfer;
    options.controllers = controllers(config.hosts);
    options.returning_controllers = RETURNING;
    options.discovery_controllers = discovery_controllers(config.hosts);
    options.max_silence = config.max_silence;
    options.remote_invalidation = config.remote_invalidate;
    options.parameters = config.parameters;
    // `ServeConfig` has at most MAX_CORES.
    options.cores = of_cores.len() as u16;
    let plan = |(core, subsystems)| TargetPlan {
        options: options.on_core(core),
        subsystems,
        pages: config.pages,
        capabilities: *capabilities,
        alone: true,
        snapshots: None,
        incidents: None,
    };
    Ok((0..).zip(of_cores).map(plan).collect())
}

/// Operations that the hosts of `serve` may have in one namespace.
pub(super) fn storage_depth(config: &ServeConfig) -> usize {
    config.queue_depth as usize * usize::from(config.hosts) * usize::from(config.io_queues)
}

/// The host of `load` on so many cores; `file` is what it writes first.
pub(super) fn loaded(
    config: &LoadConfig,
    cores: usize,
    file: Option<&LoadedFile>,
    capabilities: &Capabilities,
) -> Result<HostPlan, Error> {
    let subsystem = name(config.subsystem.as_deref().unwrap_or(SUBSYSTEM))?;
    let host = name(config.host_nqn.as_deref().unwrap_or(HOST))?;
    let mut options = HostOptions::new(config.connect, subsystem, host);
    options.namespace = config.namespace;
    options.in_capsule_data = config.in_capsule;
    options.queues = config.queues;
    // Bounded far below 2^16.
    options.followers = cores.saturating_sub(1) as u16;
    // Bounded far below 2^16.
    options.queue_depth = config.queue_depth.div_ceil(config.queues.into()) as u16;
    options.remote_invalidation = config.remote_invalidate;
    options.parameters = config.parameters;
    options.max_attempts = config.reconnects;
    options.step_timeout = STEP_TIMEOUT;
    options.command_timeout = config.io_timeout;
    options.command_retries = Some(config.io_retries);
    let source = match file {
        Some(file) => Source::File { bytes: Arc::clone(&file.bytes), digest: file.digest },
        None => Source::Namespace { bytes: config.bytes, expected: config.expected },
    };
    let job = JobPlan {
        source,
        block_bytes: config.block_bytes,
        pieces: config.scatter,
        queue_depth: config.queue_depth,
        read_share: config.read_share,
        runtime: config.runtime,
        seed: config.seed,
    };
    let (pages, capabilities) = (config.pages, *capabilities);
    // The host reconnects, and gives up by itself after `reconnects` attempts in a row.
    Ok(HostPlan { options, job, pages, capabilities, inject: None, tolerated_failures: u64::MAX })
}
