//! What the loop, `serve` and `load` are told in the same words, and how it is checked.

use crate::{
    Error,
    address::{self, Purpose},
};
use clap::{Args, ValueEnum};
use frwr_mempool::region::{PagePolicy, PageSize};
use frwr_nvmf::controller::MAX_BUFFER_BYTES;
use frwr_nvmf::storage::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES};
use std::{net::SocketAddr, path::PathBuf};

/// Largest file or namespace: the job keeps it up to three times, as it was, as the namespace and as it came back.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// Largest queue depth: an I/O queue of NVMe over Fabrics has as many entries plus one, and the target takes 4096.
pub const MAX_QUEUE_DEPTH: u32 = 1024;

/// Largest request of `load`: what targets commonly move at a time (MDTS of Linux's target).
pub(super) const MAX_REQUEST_BYTES: u32 = 1 << 20;

/// Longest run: a day. A run that shall go on for ever is a service, not a bench.
pub const MAX_RUNTIME_SECONDS: u64 = 86_400;

/// What every run takes.
#[derive(Clone, Debug, Args)]
pub struct CommonArguments {
    /// One line of JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Pages of the memory: auto tries 2M, the system's hugepages, transparent ones, then plain ones.
    #[arg(long, value_name = "PAGES", value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
    /// Bytes per block, a power of two, such as 512 or 4K.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = block_bytes)]
    pub block_size: u32,
    /// The target shall not invalidate the host's keys; the host does it by LOCAL_INV.
    #[arg(long)]
    pub no_remote_invalidate: bool,
    /// Writes the life of every key to FILE, a line of JSON for each event: registered, told, killed, dead, and what failed; see
    /// docs/traces.md.
    #[arg(long, value_name = "FILE")]
    pub trace_keys: Option<PathBuf>,
}

/// What a host's job takes.
#[derive(Clone, Debug, Args)]
pub struct JobArguments {
    /// Requests in flight, on each core where there are several.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1, MAX_QUEUE_DEPTH.into()))]
    pub queue_depth: u32,
    /// Seconds of load behind the file.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = whole::<u64>(0, MAX_RUNTIME_SECONDS))]
    pub runtime: u64,
    /// Share of reads in the load, in percent. Default: 70 where a file was written, else 100.
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(0, 100))]
    pub read_share: Option<u8>,
    /// Writes every post and completion of the host's port to FILE.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Chooses order, patterns and first keys; the same seed makes the same choices.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
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

impl CommonArguments {
    /// Checks the numbers; blocks have `most` bytes at most.
    pub(super) fn check(&self, most: u32) -> Result<(), Error> {
        check_block_size(self.block_size, most)
    }
}

pub(super) fn check_block_size(value: u32, most: u32) -> Result<(), Error> {
    if !value.is_power_of_two() || !(MIN_BLOCK_BYTES..=most).contains(&value) {
        let text = format!(
            "--block-size is {value}: must be a power of two from {MIN_BLOCK_BYTES} to {most}; 4096 suits most"
        );
        return Err(Error::usage("block_size", text));
    }
    Ok(())
}

impl JobArguments {
    /// Checks the numbers.
    pub(super) fn check(&self) -> Result<(), Error> {
        range("--queue-depth", self.queue_depth.into(), 1, MAX_QUEUE_DEPTH.into())?;
        range("--runtime", self.runtime, 0, MAX_RUNTIME_SECONDS)?;
        range("--read-share", self.read_share.unwrap_or(0).into(), 0, 100)
    }
}

/// Bytes as people write them: a number, or one with K, M, G or T behind it, for powers of 1024.
pub(crate) fn bytes_with_unit(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let shift = match unit {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        '0'..='9' => return text.parse().ok(),
        _ => return None,
    };
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    number.checked_mul(1 << shift)
}

/// A parser of the bytes of a block; which of them are too many is known where they are used.
fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes_with_unit(text).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        format!(
            "must be a power of two from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES} bytes, of `load` to {MAX_REQUEST_BYTES}, such as 512 or 4K"
        )
    })
}

/// A parser of the bytes of the largest transfer; which of them are too many, or no power of two, is known where they are used.
pub(super) fn transfer_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes_with_unit(text).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        format!("must be a power of two from {MAX_BLOCK_BYTES} to {MAX_BUFFER_BYTES} bytes, such as 128K or 1M")
    })
}

/// A parser of addresses; names of hosts are not looked up.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    address::parse(text).map_err(|error| error.to_string())
}

/// Refuses an address that no connection can use.
pub(crate) fn check_address(flag: &str, address: SocketAddr, purpose: Purpose) -> Result<(), Error> {
    address::check(address, purpose).map_err(|reason| Error::usage("address", format!("{flag} is {address}: {reason}")))
}

/// A parser of whole numbers. What does not even fit the type is told the limits here, everything else by [`range`].
pub(crate) fn whole<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
    }
}

pub(crate) fn range(flag: &str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let text = format!("{flag} is {value}: must be from {least} to {most}; choose a value inside");
    Err(Error::usage("out_of_range", text))
}
