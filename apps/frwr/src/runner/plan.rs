//! What the command line means for each side.

use super::{
    command_line::{Config, Inject},
    host_plan::HostPlan,
    job_plan::{JobPlan, Source},
    load_command::{LoadArguments, LoadConfig},
    load_file::LoadedFile,
    memory_medium::MemoryMedium,
    names::{HOST, SUBSYSTEM, loop_address, name},
    namespace_plan::{NamespacePlan, PlannedNamespace, SubsystemPlan},
    serve_command::{ServeConfig, TargetArguments},
    target_side::TargetPlan,
    target_sizes::entries,
};
use crate::Error;
use core::num::NonZeroU64;
use frwr_engine::provider::Capabilities;
use frwr_nvmf::{
    controller::{AllowedHosts, DEFAULT_ANA_GROUP, ElsewhereListener, TargetOptions},
    host::{HostOptions, PathsOptions},
    storage::Geometry,
    wire::SerialNumber,
};

/// One read in this many at most is spoilt by `--inject corrupt-data`.
const CORRUPT_EVERY: u64 = 100;
/// Blocks of a namespace: the file, rounded up.
fn blocks(block_bytes: u32, file: &LoadedFile) -> u64 {
    (file.bytes.len() as u64).div_ceil(block_bytes.into())
}

/// The target's half of the main job, whose core is on this node.
pub(super) fn target(
    config: &Config,
    file: &LoadedFile,
    node: Option<u32>,
    capabilities: &Capabilities,
) -> Result<TargetPlan, Error> {
    let blocks = blocks(config.job.block.block_size, file);
    let mut options = TargetOptions::new(loop_address(), name(SUBSYSTEM)?);
    options.queue_entries = entries(config.job.queue_depth);
    options.buffer_bytes = options.buffer_bytes.max(config.job.block.block_size);
    // Small files too: reading back is as many reads as there are blocks.
    let corrupt_every = NonZeroU64::new(CORRUPT_EVERY.min(blocks));
    options.corrupt_reads = corrupt_every.filter(|_| config.inject == Some(Inject::CorruptData));
    let geometry = Geometry::new(blocks, config.job.block.block_size);
    let geometry = geometry.map_err(|error| Error::failed("namespace", error.to_string()))?;
    let memory = MemoryMedium::new(geometry, None, false, config.job.memory.pages.policy(), node);
    let medium = NamespacePlan::Memory(memory.map_err(|error| Error::of_core(0, error))?);
    let namespaces = vec![PlannedNamespace {
        identifier: 1,
        nguid: None,
        ana_group: DEFAULT_ANA_GROUP,
        active: true,
        blocks,
        medium,
    }];
    let (name, serial) = (options.subsystem, SerialNumber::of_subsystem(&options.subsystem));
    let hosts = AllowedHosts::Any;
    let subsystems = vec![SubsystemPlan { name, hosts, serial, ana_states: Vec::new(), namespaces }];
    Ok(TargetPlan {
        options,
        subsystems,
        pages: config.job.memory.pages.policy(),
        capabilities: *capabilities,
        elsewhere: Vec::new(),
        alone: false,
        desk: None,
        incidents: None,
        authenticator: None,
        reservations: None,
    })
}

pub(super) fn host(config: &Config, file: &LoadedFile, capabilities: &Capabilities) -> Result<HostPlan, Error> {
    let Config { job, inject, .. } = config;
    let mut options = HostOptions::new(loop_address(), name(SUBSYSTEM)?, name(HOST)?);
    options.queue_depth = job.queue_depth as u16;
    options.remote_invalidation = job.invalidation.remote_invalidate;
    Ok(HostPlan {
        drain_time: options.command_timeout,
        options,
        job: JobPlan::new(job, file.source()),
        pages: job.memory.pages.policy(),
        capabilities: *capabilities,
        inject: *inject,
        authenticator: None,
        // Nobody ends the loop's connection but who injects it.
        tolerated_failures: u64::from(*inject == Some(Inject::KillPeer)),
        intervals: None,
        addresses: vec![loop_address()],
        paths: PathsOptions::default(),
        desk: None,
        attempts: 0,
    })
}

/// Said where hosts that ask for the end of their keys do not get it.
pub(super) const PLAIN_REPLIES: &str =
    "this device's SEND_WITH_INV does not work: responses are plain SENDs, and hosts invalidate their keys themselves";

/// The target of `serve` on one core, for a device; nobody tells it anything yet.
pub(super) fn of_core(
    config: &ServeConfig,
    options: TargetOptions,
    subsystems: Vec<SubsystemPlan>,
    capabilities: &Capabilities,
    elsewhere: &[ElsewhereListener],
) -> TargetPlan {
    TargetPlan {
        options,
        subsystems,
        pages: config.arguments.memory.pages.policy(),
        capabilities: *capabilities,
        elsewhere: elsewhere.to_vec(),
        alone: true,
        desk: None,
        incidents: None,
        authenticator: None,
        reservations: None,
    }
}

/// The target of `serve` on one of its devices, as each of its cores has it: `of_cores` has the subsystems of each.
pub(super) fn served(
    config: &ServeConfig,
    device: usize,
    of_cores: Vec<Vec<SubsystemPlan>>,
    capabilities: &Capabilities,
) -> Result<Vec<TargetPlan>, Error> {
    let options = config.options(device, of_cores.len())?;
    let others = (0..config.devices().len()).filter(|other| *other != device);
    let others = others.map(|other| config.options(other, of_cores.len())).collect::<Result<Vec<_>, _>>()?;
    let devices = others.iter().flat_map(TargetOptions::listeners);
    let elsewhere: Vec<_> = devices.chain(config.arguments.gateway.elsewhere()).collect();
    let plan = |(core, of_core)| self::of_core(config, options.on_core(core), of_core, capabilities, &elsewhere);
    Ok((0..).zip(of_cores).map(plan).collect())
}

/// Operations that the hosts of `serve` may have in one namespace.
pub(super) fn storage_depth(target: &TargetArguments) -> usize {
    target.queue_depth as usize * usize::from(target.hosts) * usize::from(target.io_queues)
}

/// The host of `load` on so many cores; `file` is what it writes first.
pub(super) fn loaded(
    config: &LoadConfig,
    cores: usize,
    file: Option<&LoadedFile>,
    capabilities: &Capabilities,
) -> Result<HostPlan, Error> {
    let LoadArguments { job, scatter, shape, connect, paths, io_retries, reconnects, .. } = &config.arguments;
    let source = match file {
        Some(file) => file.source(),
        None if shape.is_range(false) => Source::Range { bytes: shape.bytes },
        None => Source::Namespace { bytes: shape.bytes, expected: config.expected },
    };
    let (load, offset, pieces) = (shape.load(job, file.is_some()), shape.offset, (*scatter).into());
    Ok(HostPlan {
        options: config.options(cores)?,
        job: JobPlan { offset, pieces, load, ..JobPlan::new(job, source) },
        pages: job.memory.pages.policy(),
        capabilities: *capabilities,
        inject: None,
        authenticator: config.authenticator()?,
        // The host reconnects, and gives up by itself after `reconnects` attempts in a row.
        tolerated_failures: u64::MAX,
        intervals: None,
        addresses: connect.clone(),
        paths: paths.options(*io_retries),
        desk: None,
        attempts: *reconnects,
        drain_time: config.drain_time(),
    })
}
