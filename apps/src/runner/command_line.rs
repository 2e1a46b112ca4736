//! What a person can ask of `frwr-reactor`.

use super::error::RunError;
use crate::storage::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES};
use clap::{Parser, ValueEnum};
use core::time::Duration;
use frwr_engine::provider::soft::SoftProfile;
use frwr_mempool::region::{PagePolicy, PageSize};
use frwr_reactor::{CoreList, Placement};
use std::path::PathBuf;

/// Largest file: the job keeps it three times, as it was, as the namespace and as it came back.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// Largest queue depth: an I/O queue of NVMe over Fabrics has as many entries plus one, and the target takes 4096.
pub const MAX_QUEUE_DEPTH: u32 = 1024;

/// Longest run: a day. A run that shall go on for ever is a service, not a bench.
pub const MAX_RUNTIME_SECONDS: u64 = 86_400;

/// Moves a file through registered requests between a storage target and a host, each on its own core.
///
/// Writes FILE into a namespace, reads it back in random order, checks its SHA-256, then keeps a mixed load with
/// per-block verification going. Without FILE it moves its own executable.
#[derive(Clone, Debug, Parser)]
#[command(name = "frwr-reactor", version)]
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
    /// Requests in flight.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub queue_depth: u32,
    /// Bytes per block, a power of two.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub block_size: u32,
    /// Seconds of mixed load.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub runtime: u64,
    /// Share of reads in the mixed load, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 70)]
    pub read_share: u8,
    /// One line of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Writes every post and completion of the host's port to FILE.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The target shall not invalidate the host's keys; the host does it by LOCAL_INV.
    #[arg(long)]
    pub no_remote_invalidate: bool,
    /// Pages of the memory: auto tries 2M, the system's hugepages, transparent ones, then plain ones.
    #[arg(long, value_name = "PAGES", value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
    /// Breaks something on purpose.
    #[arg(long, value_name = "FAULT", value_enum)]
    pub inject: Option<Inject>,
    /// Chooses order, patterns and first keys; the same seed makes the same choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Which pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// The ladder.
    Auto,
    /// Hugepages of 2 MiB, or an error.
    #[value(name = "2M")]
    TwoMebibytes,
    /// Hugepages of 1 GiB, or an error.
    #[value(name = "1G")]
    OneGibibyte,
    /// The system's default hugepages, or an error.
    System,
    /// Transparent hugepages, or an error.
    Transparent,
    /// Ordinary pages.
    Plain,
}

impl Pages {
    /// As mempool says it.
    #[must_use]
    pub fn policy(self) -> PagePolicy {
        match self {
            Self::Auto => PagePolicy::Ladder { allow_plain: true },
            Self::TwoMebibytes => PagePolicy::Exactly(PageSize::TwoMebibytes),
            Self::OneGibibyte => PagePolicy::Exactly(PageSize::OneGibibyte),
            Self::System => PagePolicy::Exactly(PageSize::SystemDefault),
            Self::Transparent => PagePolicy::Exactly(PageSize::Transparent),
            Self::Plain => PagePolicy::Exactly(PageSize::Plain),
        }
    }
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

/// The arguments, checked.
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
        range("--queue-depth", arguments.queue_depth.into(), 1, MAX_QUEUE_DEPTH.into())?;
        range("--runtime", arguments.runtime, 0, MAX_RUNTIME_SECONDS)?;
        range("--read-share", arguments.read_share.into(), 0, 100)?;
        let block = arguments.block_size;
        if !block.is_power_of_two() || !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block) {
            return Err(RunError::BlockSize { value: block, least: MIN_BLOCK_BYTES, most: MAX_BLOCK_BYTES });
        }
        let file = match arguments.file {
            Some(file) => file,
            None => std::env::current_exe().map_err(|source| RunError::OwnExecutable { source })?,
        };
        Ok(Self {
            file,
            profile: profile(&arguments.device)?,
            placement: arguments.cores.as_deref().map(placement).transpose()?,
            queue_depth: arguments.queue_depth,
            block_bytes: block,
            runtime: Duration::from_secs(arguments.runtime),
            read_share: arguments.read_share,
            json: arguments.json,
            trace: arguments.trace,
            remote_invalidate: !arguments.no_remote_invalidate,
            pages: arguments.pages.policy(),
            inject: arguments.inject,
            seed: arguments.seed,
        })
    }
}

fn range(flag: &'static str, value: u64, least: u64, most: u64) -> Result<(), RunError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(RunError::Range { flag, value, least, most }) }
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
