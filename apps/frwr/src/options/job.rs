//! What the main job and `load` move, and how.

use super::{BlockArguments, CoreArguments, InvalidationArguments, Limit, MemoryArguments, OutputArguments};
use crate::Error;
use clap::Args;
use std::path::PathBuf;

/// Largest queue depth: an I/O queue of NVMe over Fabrics has as many entries plus one, and the target takes 4096.
pub(crate) const QUEUE_DEPTH: Limit = Limit::new("--queue-depth", 1, 1024);
/// Longest run: a day. A run that shall go on for ever is a service, not a bench.
pub(crate) const RUNTIME: Limit = Limit::new("--runtime", 0, 86_400);
const READ_SHARE: Limit = Limit::new("--read-share", 0, 100);
/// Share of reads in a mixed load unless another one is asked for, in percent.
const DEFAULT_READ_SHARE: u8 = 70;
const SEED: Limit = Limit::new("--seed", 0, u64::MAX);

/// What a host's job takes.
#[derive(Clone, Debug, Args)]
pub struct JobArguments {
    /// What it tells.
    #[command(flatten)]
    pub output: OutputArguments,
    /// Its memory.
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// Its cores.
    #[command(flatten)]
    pub core: CoreArguments,
    /// Its blocks.
    #[command(flatten)]
    pub block: BlockArguments,
    /// Its keys.
    #[command(flatten)]
    pub invalidation: InvalidationArguments,
    /// Requests in flight, on each core where there are several.
    #[arg(long, visible_alias = "iodepth", value_name = "N", default_value_t = 32, value_parser = QUEUE_DEPTH.parser::<u32>())]
    pub queue_depth: u32,
    /// Seconds of load behind the file.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = RUNTIME.parser::<u64>())]
    pub runtime: u64,
    /// Share of reads in a mixed load, in percent. Default: 70.
    #[arg(long, visible_alias = "rwmixread", value_name = "PERCENT", value_parser = READ_SHARE.parser::<u8>())]
    pub read_share: Option<u8>,
    /// Writes every post and completion of the host's port to FILE.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Chooses order, patterns and first keys; the same seed makes the same choices.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEED.parser::<u64>())]
    pub seed: u64,
}

impl JobArguments {
    /// Share of reads in a mixed load, in percent.
    pub(crate) fn read_share(&self) -> u8 {
        self.read_share.unwrap_or(DEFAULT_READ_SHARE)
    }

    /// Checks the numbers; blocks have `most` bytes at most.
    pub(crate) fn check(&self, most: u32) -> Result<(), Error> {
        QUEUE_DEPTH.check(self.queue_depth)?;
        RUNTIME.check(self.runtime)?;
        self.core.check()?;
        READ_SHARE.check_said(self.read_share)?;
        BlockArguments::check(self.block.block_size, most)
    }
}
