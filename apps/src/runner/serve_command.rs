//! `frwr-reactor serve` as a person asks for it.

use super::{
    arguments::{CommonArguments, MAX_QUEUE_DEPTH, MAX_RUNTIME_SECONDS, range},
    device_arguments::{DeviceArguments, RdmaDeviceConfig},
    error::RunError,
};
use crate::{
    nvmf::Nqn,
    storage::MAX_BLOCK_BYTES,
    target::{AllowedHosts, MAX_DATA_BLOCKS, MAX_IN_CAPSULE_BYTES},
};
use clap::Args;
use core::time::Duration;
use frwr_engine::provider::ConnectionParameters;
use frwr_mempool::region::PagePolicy;
use frwr_reactor::Placement;
use std::{net::SocketAddr, path::PathBuf};

/// Hosts at the same time at most: each has receives, transfer slots and data buffers of its own.
pub const MAX_HOSTS: u16 = 256;

/// I/O queues of a host at most: one core serves them all, so more than a few share nothing but memory.
const MAX_SERVED_IO_QUEUES: u16 = 16;

/// The target's half of the job.
#[derive(Clone, Debug, Args)]
pub struct ServeArguments {
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Where to listen: an IP address of the device's network interface, and a port.
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    /// The file whose bytes the namespace holds at first; it is read once and never written.
    #[arg(long, value_name = "FILE")]
    pub namespace: PathBuf,
    /// What every run takes.
    #[command(flatten)]
    pub common: CommonArguments,
    /// Requests in flight that a host may have at most.
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub queue_depth: u32,
    /// Hosts at the same time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub hosts: u16,
    /// Name of the subsystem: `nqn.` and more. Default: one under a domain that nobody can own.
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<String>,
    /// A host that may connect, by its name; may be given more than once. Default: every host.
    #[arg(long, value_name = "NQN")]
    pub allow_host: Vec<String>,
    /// I/O queues of a host.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub io_queues: u16,
    /// Bytes of data that may come with a command, a multiple of 16; 0 for none.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub in_capsule: u32,
    /// Pieces of memory that a command may list; more than one travel in the capsule's data, 16 bytes each.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub data_blocks: u8,
    /// Ends after so many seconds. Default: at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS")]
    pub runtime: Option<u64>,
}

/// The arguments of `serve`, checked.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The device.
    pub device: RdmaDeviceConfig,
    /// What connections negotiate.
    pub parameters: ConnectionParameters,
    /// Where to listen.
    pub listen: SocketAddr,
    /// What the namespace holds at first.
    pub namespace: PathBuf,
    /// Where the reactor goes; `None` lets the machine decide.
    pub placement: Option<Placement>,
    /// Requests in flight of one host.
    pub queue_depth: u32,
    /// Hosts at the same time.
    pub hosts: u16,
    /// Name of the subsystem; `None` for the default.
    pub subsystem: Option<Nqn>,
    /// Who may connect.
    pub allowed: AllowedHosts,
    /// I/O queues of a host.
    pub io_queues: u16,
    /// Bytes of data that may come with a command.
    pub in_capsule: u32,
    /// Pieces of memory that a command may list.
    pub data_blocks: u8,
    /// Bytes per block.
    pub block_bytes: u32,
    /// When it ends by itself.
    pub runtime: Option<Duration>,
    /// Machine-readable output.
    pub json: bool,
    /// The target invalidates keys.
    pub remote_invalidate: bool,
    /// Kind of memory.
    pub pages: PagePolicy,
}

impl ServeConfig {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`RunError`] names limit, value and remedy.
    pub fn new(arguments: ServeArguments) -> Result<Self, RunError> {
        let subsystem = arguments.subsystem.as_deref().map(name).transpose()?;
        let allowed = arguments.allow_host.iter().map(|host| name(host)).collect::<Result<Vec<_>, _>>()?;
        let allowed = if allowed.is_empty() { AllowedHosts::Any } else { AllowedHosts::Listed(allowed) };
        let ServeArguments { io_queues, in_capsule, data_blocks, .. } = arguments;
        let ServeArguments { device, listen, namespace, common, queue_depth, hosts, runtime, .. } = arguments;
        common.check(MAX_BLOCK_BYTES)?;
        range("--queue-depth", queue_depth.into(), 1, MAX_QUEUE_DEPTH.into())?;
        range("--hosts", hosts.into(), 1, MAX_HOSTS.into())?;
        range("--io-queues", io_queues.into(), 1, MAX_SERVED_IO_QUEUES.into())?;
        range("--in-capsule", in_capsule.into(), 0, MAX_IN_CAPSULE_BYTES.into())?;
        range("--data-blocks", data_blocks.into(), 1, MAX_DATA_BLOCKS.into())?;
        range("--runtime", runtime.unwrap_or(0), 0, MAX_RUNTIME_SECONDS)?;
        range("the port of --listen", listen.port().into(), 1, u16::MAX.into())?;
        Ok(Self {
            parameters: device.parameters()?,
            placement: device.placement()?,
            device: device.device()?,
            listen,
            namespace,
            queue_depth,
            hosts,
            subsystem,
            allowed,
            io_queues,
            in_capsule,
            data_blocks,
            block_bytes: common.block_size,
            runtime: runtime.map(Duration::from_secs),
            json: common.json,
            remote_invalidate: !common.no_remote_invalidate,
            pages: common.pages.policy(),
        })
    }
}

fn name(text: &str) -> Result<Nqn, RunError> {
    Nqn::new(text).map_err(|error| RunError::Name(format!("{text}: {error}")))
}
