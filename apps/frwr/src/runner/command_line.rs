//! The whole job as a person asks for it.

use crate::{
    Error,
    options::{JobArguments, core_list},
};
use clap::{Args, ValueEnum};
use frwr_engine::provider::soft::SoftProfile;
use frwr_nvmf::storage::MAX_BLOCK_BYTES;
use frwr_reactor::Placement;
use serde::Serialize;
use std::path::PathBuf;

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
    /// What the host does.
    #[command(flatten)]
    pub job: JobArguments,
    /// Breaks something on purpose.
    #[arg(long, value_name = "FAULT", value_enum)]
    pub inject: Option<Inject>,
}

/// What to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
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
    /// What the host does.
    pub job: JobArguments,
    /// What to break.
    pub inject: Option<Inject>,
}

impl Config {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { file, device, cores, job, inject } = arguments;
        job.check(MAX_BLOCK_BYTES)?;
        let file = match file {
            Some(file) => file,
            None => std::env::current_exe().map_err(|source| {
                let text = format!("the path of this executable is unknown ({source}); name a file to move");
                Error::failed("own_executable", text)
            })?,
        };
        let placement = cores.as_deref().map(placement).transpose()?;
        job.core.idle.check_cores(placement.as_ref())?;
        Ok(Self { file, profile: profile(&device)?, placement, job, inject })
    }
}

fn profile(device: &str) -> Result<SoftProfile, Error> {
    let unknown = || {
        let text = format!(
            "--device is {device:?}: must be soft or soft:PROFILE with PROFILE one of reg_mr, window, umr, umr:fixed-key, rxe; \
             RDMA devices are used by `frwr serve` and `frwr load`"
        );
        Error::usage("unknown_device", text)
    };
    match device.split_once(':') {
        None if device == "soft" => Ok(SoftProfile::RegMr),
        Some(("soft", name)) => name.parse().map_err(|_| unknown()),
        _ => Err(unknown()),
    }
}

fn placement(list: &str) -> Result<Placement, Error> {
    if list == "unpinned" {
        return Ok(Placement::Unpinned { reactors: 2 });
    }
    let cores = core_list(list)?;
    match cores.len() {
        1 | 2 => Ok(Placement::Cores(cores)),
        count => {
            let text = "the job uses 1 or 2, one for the target and one for the host; name two";
            Err(Error::usage("core_count", format!("--cores names {count} cores: {text}")))
        }
    }
}
