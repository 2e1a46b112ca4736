//! `frwr load` as a person asks for it.

use super::{
    arguments::{
        CommonArguments, JobArguments, MAX_FILE_BYTES, MAX_REQUEST_BYTES, address, check_address, range, whole,
    },
    command_line::DEFAULT_READ_SHARE,
    device_arguments::{DeviceArguments, RdmaDeviceConfig},
    start::reactors,
};
use crate::{Error, address::Purpose};
use clap::Args;
use core::time::Duration;
use frwr_engine::provider::ConnectionParameters;
use frwr_mempool::region::PagePolicy;
use frwr_nvmf::host::{MAX_FOLLOWERS, MAX_QUEUES, MAX_SEGMENTS};
use frwr_reactor::Placement;
use std::{net::SocketAddr, path::PathBuf};

/// Attempts to reconnect in a row: with pauses that double up to a second, more than a hundred is minutes.
pub const MAX_RECONNECTS: u32 = 100;
/// Longest time-out of requests, in seconds.
pub const MAX_IO_TIMEOUT_SECONDS: u64 = 3600;
/// Retries at most: as many as attempts to reconnect.
pub const MAX_IO_RETRIES: u16 = 100;

/// Cores of `load`: the one with the admin queue, and those that follow it.
const MAX_CORES: usize = MAX_FOLLOWERS as usize + 1;
/// Largest identifier of one namespace (Base 3.2.1.2).
const MAX_NAMESPACE: u32 = 0xffff_fffe;

/// The host's half of the job.
#[derive(Clone, Debug, Args)]
#[command(allow_negative_numbers = true, mut_arg("device", |device| device.required(true)))]
pub struct LoadArguments {
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Where the target listens.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub connect: SocketAddr,
    /// The subsystem's NQN. Default: that of `serve`.
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<String>,
    /// The host's NQN, where the subsystem admits some hosts only.
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// The namespace.
    #[arg(long, value_name = "NSID", default_value_t = 1, value_parser = whole::<u32>(1, MAX_NAMESPACE.into()))]
    pub nsid: u32,
    /// Write data never travels in the command capsule, so that every transfer goes through a key.
    #[arg(long)]
    pub no_in_capsule: bool,
    /// I/O queues of each core, over which its requests in flight are spread; the target may grant fewer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1, MAX_QUEUES.into()))]
    pub queues: u16,
    /// Cuts every request's memory into N pieces with gaps between them: N keys on devices whose keys cover one range.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u8>(1, MAX_SEGMENTS as u64))]
    pub scatter: u8,
    /// Writes FILE to the namespace first, and checks that it comes back. The load then overwrites parts of it; `--runtime
    /// 0` leaves it there. Without FILE the namespace is only read.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Writes what was read to FILE.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Bytes of the namespace that count; the rest is padding. Default: all of it. `serve` prints its file's length.
    #[arg(long, value_name = "N", conflicts_with = "file", value_parser = whole::<u64>(1, MAX_FILE_BYTES))]
    pub bytes: Option<u64>,
    /// Fails unless what was read has this SHA-256.
    #[arg(long, value_name = "HEX", conflicts_with = "file")]
    pub expect_sha256: Option<String>,
    /// What every run takes.
    #[command(flatten)]
    pub common: CommonArguments,
    /// What the host does.
    #[command(flatten)]
    pub job: JobArguments,
    /// Attempts to connect or to reconnect that may fail in a row; pauses grow from 10 ms to 1 s. 0 ends the run with the
    /// first connection.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<u32>(0, MAX_RECONNECTS.into()))]
    pub reconnects: u32,
    /// Seconds that requests may go unanswered before the connection is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole::<u64>(1, MAX_IO_TIMEOUT_SECONDS))]
    pub io_timeout: u64,
    /// How often a command is sent again because the connection ended before it was answered, and how often because the target refused it for
    /// the time being; then its request fails, and with it the run.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<u16>(0, MAX_IO_RETRIES.into()))]
    pub io_retries: u16,
}

/// The arguments of `load`, checked.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The device.
    pub device: RdmaDeviceConfig,
    /// What connections negotiate.
    pub parameters: ConnectionParameters,
    /// Where the target listens.
    pub connect: SocketAddr,
    /// The subsystem's name; `None` for that of `serve`.
    pub subsystem: Option<String>,
    /// The host's name.
    pub host_nqn: Option<String>,
    /// Namespace identifier.
    pub namespace: u32,
    /// Writes may travel in the capsule.
    pub in_capsule: bool,
    /// I/O queues of each core.
    pub queues: u16,
    /// Pieces of a request's memory.
    pub scatter: u32,
    /// What to write first.
    pub file: Option<PathBuf>,
    /// Where what was read goes.
    pub output: Option<PathBuf>,
    /// Bytes of the namespace that count.
    pub bytes: Option<u64>,
    /// Digest of these.
    pub expected: Option<[u8; 32]>,
    /// Where the reactors go; `None` is one, where the machine says.
    pub placement: Option<Placement>,
    /// Requests in flight on each core.
    pub queue_depth: u32,
    /// Bytes per request.
    pub block_bytes: u32,
    /// How long the load goes on.
    pub runtime: Duration,
    /// Percent.
    pub read_share: u8,
    /// Machine-readable output.
    pub json: bool,
    /// Where records go.
    pub trace: Option<PathBuf>,
    /// Where the lives of keys go.
    pub trace_keys: Option<PathBuf>,
    /// The target is asked to invalidate keys.
    pub remote_invalidate: bool,
    /// Kind of memory.
    pub pages: PagePolicy,
    /// Attempts that may fail in a row.
    pub reconnects: u32,
    /// How long requests may go unanswered.
    pub io_timeout: Duration,
    /// How often a command is sent again.
    pub io_retries: u16,
    /// Seed of everything.
    pub seed: u64,
}

impl LoadConfig {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: LoadArguments) -> Result<Self, Error> {
        let LoadArguments { device, connect, file, output, bytes, expect_sha256, common, job, .. } = arguments;
        let (reconnects, io_timeout) = (arguments.reconnects, arguments.io_timeout);
        let (subsystem, host_nqn) = (arguments.subsystem, arguments.host_nqn);
        let (namespace, scatter) = (arguments.nsid, arguments.scatter);
        job.check()?;
        common.check(MAX_REQUEST_BYTES)?;
        let placement = device.placement(MAX_CORES)?;
        let cores = placement.as_ref().map_or(1, reactors);
        if job.trace.is_some() && cores > 1 {
            let text =
                format!("--trace follows one core, and --cores names {cores}; name one core, or leave --trace out");
            return Err(Error::usage("trace_cores", text));
        }
        range("--nsid", namespace.into(), 1, MAX_NAMESPACE.into())?;
        range("--queues", arguments.queues.into(), 1, MAX_QUEUES.into())?;
        range("--scatter", scatter.into(), 1, MAX_SEGMENTS as u64)?;
        range("--reconnects", reconnects.into(), 0, MAX_RECONNECTS.into())?;
        range("--io-timeout", io_timeout, 1, MAX_IO_TIMEOUT_SECONDS)?;
        range("--io-retries", arguments.io_retries.into(), 0, MAX_IO_RETRIES.into())?;
        range("--bytes", bytes.unwrap_or(1), 1, MAX_FILE_BYTES)?;
        check_address("--connect", connect, Purpose::Connect)?;
        Ok(Self {
            parameters: device.parameters()?,
            placement,
            device: device.device()?,
            connect,
            subsystem,
            host_nqn,
            namespace,
            in_capsule: !arguments.no_in_capsule,
            queues: arguments.queues,
            scatter: scatter.into(),
            read_share: read_share(job.read_share, file.is_some())?,
            file,
            output,
            bytes,
            expected: expect_sha256.as_deref().map(digest).transpose()?,
            queue_depth: job.queue_depth,
            block_bytes: common.block_size,
            runtime: Duration::from_secs(job.runtime),
            json: common.json,
            trace: job.trace,
            trace_keys: common.trace_keys,
            remote_invalidate: !common.no_remote_invalidate,
            pages: common.pages.policy(),
            reconnects,
            io_timeout: Duration::from_secs(io_timeout),
            io_retries: arguments.io_retries,
            seed: job.seed,
        })
    }
}

/// Writing blocks that are to stay what they were makes no sense.
fn read_share(asked: Option<u8>, writes: bool) -> Result<u8, Error> {
    match asked {
        Some(value) if !writes && value < 100 => {
            let remedy = "must be 100 where the namespace is only read; give --file FILE to write";
            Err(Error::usage("read_share", format!("--read-share is {value}: {remedy}")))
        }
        Some(value) => Ok(value),
        None => Ok(if writes { DEFAULT_READ_SHARE } else { 100 }),
    }
}

/// 64 hexadecimal digits.
fn digest(text: &str) -> Result<[u8; 32], Error> {
    let mut digest = [0; 32];
    let whole = text.len() == 2 * digest.len() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let wrong = || {
        let remedy = "must be 64 hexadecimal digits; `sha256sum FILE` prints them";
        Error::usage("expected_digest", format!("--expect-sha256 is {text:?}: {remedy}"))
    };
    if !whole {
        return Err(wrong());
    }
    for (byte, at) in digest.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}
