//! What a person can ask of `frwr-reactor`.

use super::{
    arguments::{CommonArguments, JobArguments},
    discover::DiscoverArguments,
    error::RunError,
    load_command::LoadArguments,
    serve_command::ServeArguments,
};
use crate::storage::MAX_BLOCK_BYTES;
use clap::{Args, Parser, Subcommand, ValueEnum};
use core::time::Duration;
use frwr_engine::provider::soft::SoftProfile;
use frwr_mempool::region::PagePolicy;
use frwr_reactor::{CoreList, Placement};
use std::path::PathBuf;

/// Share of reads in a mixed load unless another one is asked for, in percent.
pub(super) const DEFAULT_READ_SHARE: u8 = 70;

/// Moves a file through registered requests between a storage target and a host, each on its own core.
///
/// Writes FILE into a namespace, reads it back in random order, checks its SHA-256, then keeps a mixed load with
/// per-block verification going. Without FILE it moves its own executable. Target and host are in this process, over the
/// software NIC; `serve` and `load` are the two halves over an RDMA device. A file of such a name is given as ./serve.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "frwr-reactor",
    version,
    allow_negative_numbers = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct CommandLine {
    /// Half of the job, if not all of it.
    #[command(subcommand)]
    pub task: Option<Task>,
    /// Arguments of the whole job.
    #[command(flatten)]
    pub arguments: Arguments,
}

/// Half of the job.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// The target: serves a file's bytes as a namespace over an RDMA device, until SIGINT or SIGTERM.
    ///
    /// The namespace holds the file's bytes, padded with zeros to whole blocks. It lives in memory: hosts may write to it,
    /// the file itself is never written, unless --backing says that the namespace is the file. With --config, whatever the
    /// file says.
    Serve(ServeArguments),
    /// The host: moves a namespace, or a file, over an RDMA device from or to a target, then keeps a load going.
    ///
    /// Connects to a target and reads its namespace in random order, or writes FILE there first; prints the SHA-256 of what
    /// was read, then keeps a load going in which every block is checked: against FILE and what was written since, or
    /// against the first copy. Nobody else may write to the same blocks meanwhile. A connection that ends is set up again.
    Load(LoadArguments),
    /// Lists what a discovery service knows: transport, address, port, kind and name of each subsystem.
    Discover(DiscoverArguments),
}

/// The whole job, in one process.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The file to move.
    pub file: Option<PathBuf>,
    /// Device: soft, or soft:PROFILE with PROFILE one of reg_mr, window, umr, umr:fixed-key, rxe.
    #[arg(long, value_name = "DEVICE", default_value = "soft")]
    pub device: String,
    /// Cores, such as 0,1 or 2-3: the first carries the target, the second the host; one core carries both; `unpinned`
    /// leaves both to the kernel. Default: two physical cores if there are, else one.
    #[arg(long, value_name = "LIST")]
    pub cores: Option<String>,
    /// What every run takes.
    #[command(flatten)]
    pub common: CommonArguments,
    /// What the host does.
    #[command(flatten)]
    pub job: JobArguments,
    /// Breaks something on purpose.
    #[arg(long, value_name = "FAULT", value_enum)]
    pub inject: Option<Inject>,
}

/// What to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Inject {
    /// The target spoils data: the run must fail.
    CorruptData,
    /// The host's device says that keys are invalidated while they are not: the run must fail.
    SkipInvalidate,
    /// The target drops the connection in mid-load: the run must go on and lose nothing.
    KillPeer,
}

impl Inject {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CorruptData => "corrupt-data",
            Self::SkipInvalidate => "skip-invalidate",
            Self::KillPeer => "kill-peer",
        }
    }

    /// The run is to go on without loss, and not to fail.
    #[must_use]
    pub fn is_to_be_survived(self) -> bool {
        match self {
            Self::CorruptData | Self::SkipInvalidate => false,
            Self::KillPeer => true,
        }
    }
}

/// The arguments of the whole job, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file to move.
    pub file: PathBuf,
    /// Which device the software NIC imitates.
    pub profile: SoftProfile,
    /// Where the reactors go; `None` lets the machine decide.
    pub placement: Option<Placement>,
    /// Requests in flight.
    pub queue_depth: u32,
    /// Bytes per block.
    pub block_bytes: u32,
    /// How long the mixed load goes on.
    pub runtime: Duration,
    /// Percent.
    pub read_share: u8,
    /// Machine-readable output.
    pub json: bool,
    /// Where records go.
    pub trace: Option<PathBuf>,
    /// Where the lives of keys go.
    pub trace_keys: Option<PathBuf>,
    /// The target invalidates keys.
    pub remote_invalidate: bool,
    /// Kind of memory.
    pub pages: PagePolicy,
    /// What to break.
    pub inject: Option<Inject>,
    /// Seed of everything.
    pub seed: u64,
}

impl Config {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`RunError`] names limit, value and remedy.
    pub fn new(arguments: Arguments) -> Result<Self, RunError> {
        let Arguments { file, device, cores, common, job, inject } = arguments;
        job.check()?;
        common.check(MAX_BLOCK_BYTES)?;
        let file = match file {
            Some(file) => file,
            None => std::env::current_exe().map_err(|source| RunError::OwnExecutable { source })?,
        };
        Ok(Self {
            file,
            profile: profile(&device)?,
            placement: cores.as_deref().map(placement).transpose()?,
            queue_depth: job.queue_depth,
            block_bytes: common.block_size,
            runtime: Duration::from_secs(job.runtime),
            read_share: job.read_share.unwrap_or(DEFAULT_READ_SHARE),
            json: common.json,
            trace: job.trace,
            trace_keys: common.trace_keys,
            remote_invalidate: !common.no_remote_invalidate,
            pages: common.pages.policy(),
            inject,
            seed: job.seed,
        })
    }
}

fn profile(device: &str) -> Result<SoftProfile, RunError> {
    let unknown = || RunError::Device { value: device.to_owned() };
    match device.split_once(':') {
        None if device == "soft" => Ok(SoftProfile::RegMr),
        Some(("soft", name)) => name.parse().map_err(|_| unknown()),
        _ => Err(unknown()),
    }
}

fn placement(list: &str) -> Result<Placement, RunError> {
    if list == "unpinned" {
        return Ok(Placement::Unpinned { reactors: 2 });
    }
    let cores: CoreList = list.parse().map_err(|source| RunError::CoreList { source })?;
    match cores.cores().len() {
        1 | 2 => Ok(Placement::Cores(cores.cores().to_vec())),
        count => Err(RunError::CoreCount { value: count }),
    }
}
