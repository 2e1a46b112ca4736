//! `frwr-reactor serve` as a person asks for it.

use super::{
    arguments::{CommonArguments, MAX_QUEUE_DEPTH, MAX_RUNTIME_SECONDS, range},
    device_arguments::{DeviceArguments, RdmaDeviceConfig},
    error::RunError,
};
use crate::storage::MAX_BLOCK_BYTES;
use clap::Args;
use core::time::Duration;
use frwr_engine::provider::ConnectionParameters;
use frwr_mempool::region::PagePolicy;
use frwr_reactor::Placement;
use std::{net::SocketAddr, path::PathBuf};

/// Hosts at the same time at most: each has receives, transfer slots and data buffers of its own.
pub const MAX_HOSTS: u16 = 256;

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
        let ServeArguments { device, listen, namespace, common, queue_depth, hosts, runtime } = arguments;
        common.check(MAX_BLOCK_BYTES)?;
        range("--queue-depth", queue_depth.into(), 1, MAX_QUEUE_DEPTH.into())?;
        range("--hosts", hosts.into(), 1, MAX_HOSTS.into())?;
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
            block_bytes: common.block_size,
            runtime: runtime.map(Duration::from_secs),
            json: common.json,
            remote_invalidate: !common.no_remote_invalidate,
            pages: common.pages.policy(),
        })
    }
}
