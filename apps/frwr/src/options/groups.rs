//! The smaller groups.

use super::few_bytes_with_unit;
use crate::Error;
use clap::{ArgAction, Args, ValueEnum};
use frwr_mempool::region::{PagePolicy, PageSize};
use frwr_nvmf::storage::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use std::path::PathBuf;

/// Largest request of `load`: four times what targets commonly move at a time; the host cuts it into what its target does.
pub(crate) const MAX_REQUEST_BYTES: u32 = 4 << 20;

/// What a run tells programs.
#[derive(Clone, Debug, Args)]
pub struct OutputArguments {
    /// One line of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Writes the life of every key to FILE, a line of JSON for each event: registered, told, killed, dead, and what failed; see
    /// docs/traces.md. Slows down what is measured.
    #[arg(long, value_name = "FILE")]
    pub trace_keys: Option<PathBuf>,
}

/// What memory is made of.
#[derive(Clone, Debug, Default, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct MemoryArguments {
    /// Pages of the memory: auto tries the system's default hugepages, 2M, transparent ones, then plain ones.
    #[arg(long, value_name = "PAGES", value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
}

/// Who kills the keys of hosts.
#[derive(Clone, Debug, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct InvalidationArguments {
    /// The target shall not invalidate the host's keys; the host does it by LOCAL_INV.
    #[arg(long = "no-remote-invalidate", action = ArgAction::SetFalse)]
    pub remote_invalidate: bool,
}

impl Default for InvalidationArguments {
    fn default() -> Self {
        Self { remote_invalidate: true }
    }
}

/// How large blocks are.
#[derive(Clone, Debug, Args)]
pub struct BlockArguments {
    /// Bytes per block, a power of two, such as 512 or 4K.
    #[arg(long, visible_alias = "bs", value_name = "BYTES", default_value_t = Self::DEFAULT, value_parser = block_bytes)]
    pub block_size: u32,
}

impl BlockArguments {
    /// What disks commonly have.
    pub(crate) const DEFAULT: u32 = 4096;

    /// Blocks have `most` bytes at most.
    pub(crate) fn check(value: u32, most: u32) -> Result<(), Error> {
        if value.is_power_of_two() && (MIN_BLOCK_BYTES..=most).contains(&value) {
            return Ok(());
        }
        let limits = format!("must be a power of two from {MIN_BLOCK_BYTES} to {most}");
        Err(Error::usage("block_size", format!("--block-size is {value}: {limits}; 4096 suits most")))
    }
}

/// A parser of the bytes of a block; which of them are too many is known where they are used.
fn block_bytes(text: &str) -> Result<u32, String> {
    few_bytes_with_unit(text).ok_or_else(|| {
        format!(
            "must be a power of two from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES} bytes, of `load` to {MAX_REQUEST_BYTES}, such as 512 or 4K"
        )
    })
}

/// Which pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    /// The ladder.
    #[default]
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

/// By the names of the command line.
impl<'de> Deserialize<'de> for Pages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_str(&name, false).map_err(|_| {
            D::Error::custom(format!(
                "is {name:?}: must be auto, 2M, 1G, system, transparent or plain; leave it out for auto"
            ))
        })
    }
}

impl Serialize for Pages {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.to_possible_value();
        serializer.serialize_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
