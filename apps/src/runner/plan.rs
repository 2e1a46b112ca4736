//! What the command line means for each side.

use super::{
    command_line::{Config, Inject},
    error::RunError,
    host_side::HostPlan,
    load_file::LoadedFile,
    target_side::TargetPlan,
};
use crate::{
    host::HostOptions,
    job::JobOptions,
    nvmf::{DEFAULT_PORT, Nqn},
    target::{ADMIN_QUEUE_ENTRIES, TargetOptions},
};
use core::num::NonZeroU64;
use frwr_engine::provider::Capabilities;
use std::{net::SocketAddr, sync::Arc};

/// One read in this many at most is spoilt by `--inject corrupt-data`.
const CORRUPT_EVERY: u64 = 100;
/// Names under a domain that nobody can own (RFC 6761).
const SUBSYSTEM: &str = "nqn.2026-11.invalid.frwr:file";
const HOST: &str = "nqn.2026-11.invalid.frwr:host";

fn name(text: &str) -> Result<Nqn, RunError> {
    Nqn::new(text).map_err(|error| RunError::Name(error.to_string()))
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))
}

/// Blocks of the namespace: the file, rounded up.
fn blocks(config: &Config, file: &LoadedFile) -> u64 {
    (file.bytes.len() as u64).div_ceil(config.block_bytes.into())
}

/// Requests in flight; [`Config`] bounds them far below 2^16.
fn depth(config: &Config) -> u16 {
    config.queue_depth as u16
}

pub(super) fn target(config: &Config, file: &LoadedFile, capabilities: &Capabilities) -> Result<TargetPlan, RunError> {
    let blocks = blocks(config, file);
    let mut options = TargetOptions::new(address(), name(SUBSYSTEM)?);
    // One request per slot, and the entry that a queue never uses.
    options.queue_entries = (depth(config) + 1).max(ADMIN_QUEUE_ENTRIES);
    options.buffer_bytes = options.buffer_bytes.max(config.block_bytes);
    // Small files too: reading back is as many reads as there are blocks.
    let corrupt_every = NonZeroU64::new(CORRUPT_EVERY.min(blocks));
    options.corrupt_reads = corrupt_every.filter(|_| config.inject == Some(Inject::CorruptData));
    let (block_bytes, pages) = (config.block_bytes, config.pages);
    Ok(TargetPlan { options, blocks, block_bytes, pages, capabilities: *capabilities })
}

pub(super) fn host(config: &Config, file: &LoadedFile, capabilities: &Capabilities) -> Result<HostPlan, RunError> {
    let mut options = HostOptions::new(address(), name(SUBSYSTEM)?, name(HOST)?);
    options.queue_depth = depth(config);
    options.remote_invalidation = config.remote_invalidate;
    let job = JobOptions {
        file: Arc::clone(&file.bytes),
        digest: file.digest,
        block_bytes: config.block_bytes,
        queue_depth: config.queue_depth,
        read_share: config.read_share,
        runtime: config.runtime,
        seed: config.seed,
    };
    Ok(HostPlan { options, job, pages: config.pages, capabilities: *capabilities, inject: config.inject })
}
