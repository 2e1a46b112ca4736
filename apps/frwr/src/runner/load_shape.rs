//! What the load of `frwr load` is made of, in fio's words where fio has one.

use super::load_file::MAX_FILE_BYTES;
use crate::{
    Error,
    job::{AddressOrder, Change, LoadOptions, Mix, Rate, Sizes},
    options::{JobArguments, Limit, MAX_REQUEST_BYTES, RUNTIME, bytes_with_unit, few_bytes_with_unit},
};
use clap::{ArgAction, Args, ValueEnum};
use core::{num::NonZeroU64, time::Duration};
use serde::Serialize;

const BYTES: Limit = Limit::new("--bytes", 1, MAX_FILE_BYTES);
const SIZE: Limit = Limit::new("--bytes", 1, u64::MAX);
const RAMP_TIME: Limit = Limit::new("--ramp-time", 0, RUNTIME.most());
/// Far above what cores do, far below what the arithmetic of a schedule holds.
const RATE_IOPS: Limit = Limit::new("--rate-iops", 1, 1_000_000_000);
/// A TiB per second: far above what a port moves.
const RATE: Limit = Limit::new("--rate", 1, 1 << 40);
const IO_SIZE: Limit = Limit::new("--io-size", 1, u64::MAX);

/// Which requests, and in which order: fio's `rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadWrite {
    /// Reads, one behind the other.
    Read,
    /// Writes, one behind the other.
    Write,
    /// Trims (deallocation), one behind the other.
    Trim,
    /// Reads at random places.
    Randread,
    /// Writes at random places.
    Randwrite,
    /// Trims at random places.
    Randtrim,
    /// Reads and writes, each one behind the other.
    #[value(alias = "readwrite")]
    Rw,
    /// Reads and writes at random places.
    Randrw,
}

impl ReadWrite {
    fn order(self) -> AddressOrder {
        match self {
            Self::Read | Self::Write | Self::Trim | Self::Rw => AddressOrder::Sequential,
            Self::Randread | Self::Randwrite | Self::Randtrim | Self::Randrw => AddressOrder::Random,
        }
    }

    fn is_mixed(self) -> bool {
        matches!(self, Self::Rw | Self::Randrw)
    }

    fn changes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What the load is made of.
#[derive(Clone, Debug, Args)]
pub struct ShapeArguments {
    /// The load: sequential or random, reads, writes, trims, or reads and writes mixed by --read-share. Default: randrw where a file was
    /// written, else randread. Without --file, what changes the namespace takes --allow-overwrite.
    #[arg(long, value_name = "KIND", value_enum, hide_possible_values = false)]
    pub rw: Option<ReadWrite>,
    /// Sizes of requests with their percentages, such as 4K/60:64K/40; with commas a list each for reads, writes and trims. Sizes without a
    /// percentage share what is left. In place of --block-size.
    #[arg(long, value_name = "SIZES", conflicts_with = "block_size", value_parser = sizes)]
    pub bssplit: Option<Sizes>,
    /// Bytes of the namespace that count; the rest is padding, or not part of the load. Default: all of it. `serve` prints its file's
    /// length.
    #[arg(long, visible_alias = "size", value_name = "N", conflicts_with = "file", value_parser = bytes)]
    pub bytes: Option<u64>,
    /// Bytes in front of those that count: a multiple of the size of requests.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = bytes)]
    pub offset: u64,
    /// Checks nothing of what is read, and reads nothing before the load, so that the namespace may have any size.
    #[arg(long = "no-verify", action = ArgAction::SetFalse, conflicts_with_all = ["file", "output", "expect_sha256"])]
    pub verify: bool,
    /// What --rw writes or trims may be lost: nothing of it is kept, or written back.
    #[arg(long)]
    pub allow_overwrite: bool,
    /// Requests that begin in a second, on all cores together, whether or not those before them have ended. Latencies count from when a
    /// request was meant to begin, so that none hides behind a stall. Default: as many as --queue-depth lets.
    #[arg(long, alias = "rate_iops", value_name = "N", conflicts_with = "rate", value_parser = RATE_IOPS.parser::<u64>())]
    pub rate_iops: Option<u64>,
    /// The same in bytes per second, such as 500M.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub rate: Option<u64>,
    /// Seconds of the load before it is measured, in front of --runtime.
    #[arg(
        long, alias = "ramp_time", value_name = "SECONDS", default_value_t = 0, value_parser = RAMP_TIME.parser::<u64>()
    )]
    pub ramp_time: u64,
    /// Bytes after which the load ends, where that is before --runtime is over.
    #[arg(long, alias = "io_size", value_name = "N", value_parser = bytes)]
    pub io_size: Option<u64>,
}

impl ShapeArguments {
    /// The load begins at once: nothing is written for it, or read once.
    pub(super) fn is_range(&self, has_file: bool) -> bool {
        !has_file && (!self.verify || self.kind(has_file).changes())
    }

    fn kind(&self, has_file: bool) -> ReadWrite {
        self.rw.unwrap_or(if has_file { ReadWrite::Randrw } else { ReadWrite::Randread })
    }

    /// What the load is called.
    pub(super) fn name(&self, has_file: bool) -> String {
        self.kind(has_file).name()
    }

    /// Reads of the load, in percent.
    pub(super) fn read_share(&self, job: &JobArguments, has_file: bool) -> u8 {
        match self.kind(has_file) {
            kind if kind.is_mixed() => job.read_share(),
            kind => {
                if kind.changes() {
                    0
                } else {
                    100
                }
            }
        }
    }

    /// How large requests are.
    pub(super) fn sizes(&self, job: &JobArguments) -> Sizes {
        self.bssplit.clone().unwrap_or_else(|| Sizes::uniform(job.block.block_size))
    }

    /// The load that is asked for.
    pub(super) fn load(&self, job: &JobArguments, has_file: bool) -> LoadOptions {
        let kind = self.kind(has_file);
        let trims = matches!(kind, ReadWrite::Trim | ReadWrite::Randtrim);
        let requests = self.rate_iops.and_then(NonZeroU64::new).map(Rate::Requests);
        let bytes = self.rate.and_then(NonZeroU64::new).map(Rate::Bytes);
        LoadOptions {
            order: kind.order(),
            mix: Mix {
                reads: self.read_share(job, has_file),
                change: if trims { Change::Trim } else { Change::Write },
            },
            sizes: self.sizes(job),
            verify: self.verify,
            rate: requests.or(bytes),
            ramp: Duration::from_secs(self.ramp_time),
            runtime: Duration::from_secs(job.runtime),
            bytes: self.io_size,
            number: 0,
            loads: 1,
        }
    }

    /// Checks it all. `reads_whole` is the first option that wants all of it read.
    pub(super) fn check(
        &self,
        job: &JobArguments,
        has_file: bool,
        reads_whole: Option<&'static str>,
    ) -> Result<(), Error> {
        let is_range = self.is_range(has_file);
        if is_range { SIZE } else { BYTES }.check_said(self.bytes)?;
        RATE_IOPS.check_said(self.rate_iops)?;
        RATE.check_said(self.rate)?;
        RAMP_TIME.check(self.ramp_time)?;
        IO_SIZE.check_said(self.io_size)?;
        self.check_kind(job, has_file)?;
        let unit = self.sizes(job).unit();
        if !self.offset.is_multiple_of(unit.into()) {
            let text =
                format!("--offset is {}: must be a multiple of {unit}, which all sizes of requests are", self.offset);
            return Err(Error::usage("offset", format!("{text}; choose one, or other sizes")));
        }
        if !is_range {
            return Ok(());
        }
        if let Some(option) = reads_whole {
            let text = format!("{option} wants all of the namespace read, and --rw {} does not", self.name(has_file));
            return Err(Error::usage("reads_whole", format!("{text}; leave one of them out")));
        }
        if job.runtime == 0 {
            let text = "--runtime is 0: must be 1 or more where there is nothing but the load; choose a longer one";
            return Err(Error::usage("out_of_range", text));
        }
        Ok(())
    }

    fn check_kind(&self, job: &JobArguments, has_file: bool) -> Result<(), Error> {
        let kind = self.kind(has_file);
        match job.read_share {
            // Writing blocks that are to stay what they were makes no sense.
            Some(value) if !kind.is_mixed() && value != self.read_share(job, has_file) => {
                let remedy = match kind.changes() {
                    true => format!("must be 0 with --rw {}; give --rw randrw for a mixed load", kind.name()),
                    false => "must be 100 where the namespace is only read; give --file FILE to write, or --rw randrw \
                              to write without a file"
                        .to_owned(),
                };
                return Err(Error::usage("read_share", format!("--read-share is {value}: {remedy}")));
            }
            _ => {}
        }
        if !has_file && kind.changes() && !self.allow_overwrite {
            let text = format!(
                "--rw is {}: it destroys what the namespace holds, and nothing of that is kept; add --allow-overwrite \
                 where it may be lost, or choose --rw randread",
                kind.name()
            );
            return Err(Error::usage("overwrite", text));
        }
        Ok(())
    }
}

/// A parser of bytes.
fn bytes(text: &str) -> Result<u64, String> {
    bytes_with_unit(text).ok_or_else(|| "must be a whole number of bytes, such as 4096, 64K or 10G".to_owned())
}

/// A parser of mixes.
fn sizes(text: &str) -> Result<Sizes, String> {
    Sizes::parse(text, few_bytes_with_unit, MAX_REQUEST_BYTES)
}
