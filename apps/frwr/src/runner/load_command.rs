//! `frwr load` as a person asks for it.

use super::{
    host_keys::of_host,
    key_files::KeyFiles,
    load_observed::ObserveArguments,
    load_paths::{LoadedWaits, PathArguments},
    load_shape::ShapeArguments,
    names::{HOST, STEP_TIMEOUT, SUBSYSTEM, name},
};
use crate::{
    Error,
    address::Purpose,
    options::{DeviceArguments, JobArguments, Limit, MAX_REQUEST_BYTES, address, check_address, reactors},
};
use clap::{ArgAction, Args};
use core::time::Duration;
use frwr_nvmf::authentication::Authenticator;
use frwr_nvmf::host::{HostOptions, MAX_FOLLOWERS, MAX_QUEUES, MAX_SEGMENTS};
use frwr_nvmf::wire::Nqn;
use frwr_reactor::Placement;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};

/// Cores: the one with the admin queue, and those that follow it.
const MAX_CORES: usize = MAX_FOLLOWERS as usize + 1;
/// Identifiers of one namespace (Base 3.2.1.2).
const NSID: Limit = Limit::new("--nsid", 1, 0xffff_fffe);
/// Each has queues and memory of its own on every core.
const MAX_NAMESPACES: usize = 32;
const QUEUES: Limit = Limit::new("--queues", 1, MAX_QUEUES as u64);
const SCATTER: Limit = Limit::new("--scatter", 1, MAX_SEGMENTS as u64);
/// Attempts in a row: with pauses that double up to a second, more than a hundred is minutes.
const RECONNECTS: Limit = Limit::new("--reconnects", 0, 100);
/// In seconds; 0 for never. A day: who wants it more seldom connects again.
const REAUTHENTICATE: Limit = Limit::new("--reauthenticate", 0, 86_400);
/// In seconds.
const IO_TIMEOUT: Limit = Limit::new("--io-timeout", 1, 3600);
/// At most as many as attempts to reconnect.
const IO_RETRIES: Limit = Limit::new("--io-retries", 0, RECONNECTS.most());

/// The host's half of the job.
#[derive(Clone, Debug, Args)]
#[command(allow_negative_numbers = true, mut_arg("device", |device| device.required(true)))]
pub struct LoadArguments {
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Where the target listens. Given several times, or with commas: paths to one namespace, by one target or by several in front of one
    /// storage; those that are optimized (ANA) are used before others, and what a lost one had goes to the next.
    #[arg(
        long, value_name = "ADDR:PORT", value_delimiter = ',', required_unless_present = "connect_all", value_parser = address
    )]
    pub connect: Vec<SocketAddr>,
    /// Asks the discovery service that listens there for all addresses of the subsystem over RDMA, and takes them as paths, as `nvme
    /// connect-all` does. Those that it lists later are taken as well, and those that it lists no longer are not tried again.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "connect", value_parser = address)]
    pub connect_all: Option<SocketAddr>,
    /// What several paths take.
    #[command(flatten)]
    pub paths: PathArguments,
    /// The subsystem's NQN. Default: that of `serve`.
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<String>,
    /// The host's NQN, where the subsystem admits some hosts only.
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// A file, which nobody else can read (mode 0600), with the key that this host proves itself with, as nvme gen-dhchap-key prints it.
    #[arg(long, value_name = "FILE")]
    pub dhchap_key: Option<PathBuf>,
    /// The same with the key that the controller has to prove itself with.
    #[arg(long, value_name = "FILE", requires = "dhchap_key")]
    pub dhchap_ctrl_key: Option<PathBuf>,
    /// Seconds after which this host proves itself once more, and where it has to the controller, on connections that go on; 0 for never.
    #[arg(
        long, value_name = "SECONDS", default_value_t = 0, requires = "dhchap_key", value_parser = REAUTHENTICATE.parser::<u64>()
    )]
    pub reauthenticate: u64,
    /// The namespace; several, with commas between them, for a load in each at the same time, which --no-verify or a --rw that writes
    /// takes. Each has a controller of its own, and on each core a queue depth.
    #[arg(
        long, value_name = "NSID", value_delimiter = ',', default_value = "1", value_parser = NSID.parser::<u32>()
    )]
    pub nsid: Vec<u32>,
    /// Write data never travels in the command capsule, so that every transfer goes through a key.
    #[arg(long = "no-in-capsule", action = ArgAction::SetFalse)]
    pub in_capsule: bool,
    /// I/O queues of each core, over which its requests in flight are spread; the target may grant fewer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = QUEUES.parser::<u16>())]
    pub queues: u16,
    /// Cuts every request's memory into N pieces with gaps between them: N keys on devices whose keys cover one range.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SCATTER.parser::<u8>())]
    pub scatter: u8,
    /// Writes FILE to the namespace first, and checks that it comes back. The load then overwrites parts of it; `--runtime
    /// 0` leaves it there. Without FILE the namespace is only read, unless --rw says otherwise.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What the load is made of.
    #[command(flatten)]
    pub shape: Box<ShapeArguments>,
    /// What is seen of it.
    #[command(flatten)]
    pub observe: Box<ObserveArguments>,
    /// Writes what was read to FILE.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Fails unless what was read has this SHA-256.
    #[arg(long, value_name = "HEX", conflicts_with = "file")]
    pub expect_sha256: Option<String>,
    /// What the host does.
    #[command(flatten)]
    pub job: JobArguments,
    /// Attempts to connect or to reconnect that may fail in a row; pauses grow from 10 ms to 1 s. 0 ends the run with the
    /// first connection. Of several paths, one that was lost is tried for ten minutes.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = RECONNECTS.parser::<u32>())]
    pub reconnects: u32,
    /// Seconds that requests may go unanswered before the connection is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = IO_TIMEOUT.parser::<u64>())]
    pub io_timeout: u64,
    /// How often a command is sent again because the connection ended before it was answered, and how often because the target refused it for
    /// the time being; then its request fails, and with it the run.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = IO_RETRIES.parser::<u16>())]
    pub io_retries: u16,
}

/// The arguments of `load`, checked.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// What was asked for, and what holds by default.
    pub arguments: LoadArguments,
    /// Digest of what is read.
    pub(super) expected: Option<[u8; 32]>,
    /// Where the reactors go; `None` is one, where the machine says.
    pub(super) placement: Option<Placement>,
    /// Paths that each core has room for.
    pub(super) places: usize,
}

impl LoadConfig {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: LoadArguments) -> Result<Self, Error> {
        let LoadArguments { device, job, .. } = &arguments;
        job.check(MAX_REQUEST_BYTES)?;
        let placement = device.placement(MAX_CORES)?;
        job.core.idle.check_cores(placement.as_ref())?;
        let cores = placement.as_ref().map_or(1, reactors);
        if let (Some(trace), 2..) = (of_keys_or_port(job), arguments.nsid.len()) {
            let text =
                format!("{trace} follows one namespace, and --nsid names several; name one, or leave {trace} out");
            return Err(Error::usage("trace_namespaces", text));
        }
        if job.trace.is_some() && cores > 1 {
            let text =
                format!("--trace follows one core, and --cores names {cores}; name one core, or leave --trace out");
            return Err(Error::usage("trace_cores", text));
        }
        arguments.check()?;
        device.check()?;
        let expected = arguments.expect_sha256.as_deref().map(digest).transpose()?;
        let places = arguments.connect.len();
        let config = Self { arguments, expected, placement, places };
        config.check_paths()?;
        Ok(config)
    }

    /// With paths to these addresses, and places for others where they are `places` at most.
    ///
    /// # Errors
    /// As [`LoadConfig::new`].
    pub(super) fn with_paths(mut self, addresses: Vec<SocketAddr>, places: Option<usize>) -> Result<Self, Error> {
        self.places = places.unwrap_or(addresses.len());
        self.arguments.connect = addresses;
        self.arguments.check_addresses()?;
        self.check_paths()?;
        Ok(self)
    }

    fn check_paths(&self) -> Result<(), Error> {
        let LoadArguments { job, paths, connect, .. } = &self.arguments;
        paths.check(connect, of_keys_or_port(job))
    }

    /// Something is traced that one path alone has.
    pub(super) fn traces_one_path(&self) -> bool {
        of_keys_or_port(&self.arguments.job).is_some()
    }

    /// The subsystem.
    pub(super) fn subsystem(&self) -> Result<Nqn, Error> {
        name(self.arguments.subsystem.as_deref().unwrap_or(SUBSYSTEM))
    }

    /// Who proves this host, where there is a key.
    ///
    /// # Errors
    /// A key cannot be read.
    pub(super) fn authenticator(&self) -> Result<Option<Arc<dyn Authenticator>>, Error> {
        let LoadArguments { host_nqn, dhchap_key, dhchap_ctrl_key, .. } = &self.arguments;
        let Some(dhchap_key) = dhchap_key.clone() else { return Ok(None) };
        let files = KeyFiles { dhchap_key, dhchap_ctrl_key: dhchap_ctrl_key.clone() };
        of_host(&name(host_nqn.as_deref().unwrap_or(HOST))?, &files).map(Some)
    }

    /// As long as a request may take: unanswered, and of several paths as long as a write waits that a lost one has not answered.
    pub(super) fn drain_time(&self) -> Duration {
        let LoadArguments { paths, io_timeout, .. } = &self.arguments;
        let fenced = if self.places > 1 { paths.longest_fence() } else { Duration::ZERO };
        fenced.max(Duration::from_secs(*io_timeout))
    }

    /// What requests wait for, and how long.
    pub(super) fn waits(&self) -> LoadedWaits {
        let LoadArguments { paths, io_timeout, io_retries, reconnects, .. } = &self.arguments;
        let (path_timeout, io_timeout) = (paths.path_timeout, *io_timeout);
        let longest_fence = (paths.keep_alive > 0).then(|| paths.longest_fence().as_secs());
        LoadedWaits { path_timeout, io_timeout, io_retries: *io_retries, reconnects: *reconnects, longest_fence }
    }

    /// The host on so many cores.
    pub(super) fn options(&self, cores: usize) -> Result<HostOptions, Error> {
        let LoadArguments { device, host_nqn, job, queues, .. } = &self.arguments;
        let subsystem = self.subsystem()?;
        let host = name(host_nqn.as_deref().unwrap_or(HOST))?;
        let mut options = HostOptions::new(self.arguments.connect[0], subsystem, host);
        options.in_capsule_data = self.arguments.in_capsule;
        options.queues = *queues;
        // Bounded far below 2^16. Of several paths each core has controllers of its own.
        options.followers = if self.places > 1 { 0 } else { cores.saturating_sub(1) as u16 };
        // Bounded far below 2^16.
        options.queue_depth = job.queue_depth.div_ceil((*queues).into()) as u16;
        options.remote_invalidation = job.invalidation.remote_invalidate;
        options.parameters = device.parameters();
        options.keep_alive = self.arguments.paths.keep_alive();
        options.inaccessible_timeout = self.arguments.paths.path_timeout();
        // Of several paths one that was lost is to come back, while the others serve.
        options.max_attempts = if self.places > 1 { u32::MAX } else { self.arguments.reconnects };
        options.step_timeout = STEP_TIMEOUT;
        options.command_timeout = Duration::from_secs(self.arguments.io_timeout);
        options.reauthentication = Duration::from_secs(self.arguments.reauthenticate);
        options.command_retries = Some(self.arguments.io_retries);
        Ok(options)
    }
}

impl LoadArguments {
    fn check_namespaces(&self) -> Result<(), Error> {
        self.nsid.iter().try_for_each(|nsid| NSID.check(*nsid))?;
        let count = self.nsid.len();
        if count > MAX_NAMESPACES {
            let text = format!("--nsid names {count} namespaces: must be 1 to {MAX_NAMESPACES}; name fewer");
            return Err(Error::usage("namespaces", text));
        }
        let twice = self.nsid.iter().enumerate().find(|(at, nsid)| self.nsid[..*at].contains(nsid));
        if let Some((_, nsid)) = twice {
            let text = format!("--nsid names {nsid} twice: two loads would write over each other's; name it once");
            return Err(Error::usage("namespaces", text));
        }
        if count > 1 && !self.shape.is_range(self.file.is_some()) {
            let text = format!(
                "--nsid names {count} namespaces: must be 1 where all of it is written or read before the load; add --no-verify, \
                 or --rw randrw --allow-overwrite"
            );
            return Err(Error::usage("namespaces", text));
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), Error> {
        let of_service = self.connect_all.map(|address| ("--connect-all", address));
        let option = if self.connect_all.is_some() { "--connect-all" } else { "--connect" };
        let paths = self.connect.iter().map(|address| (option, *address));
        of_service
            .into_iter()
            .chain(paths)
            .try_for_each(|(option, address)| check_address(option, address, Purpose::Connect))
    }

    /// Checks what `load` alone takes.
    fn check(&self) -> Result<(), Error> {
        self.check_namespaces()?;
        QUEUES.check(self.queues)?;
        SCATTER.check(self.scatter)?;
        RECONNECTS.check(self.reconnects)?;
        IO_TIMEOUT.check(self.io_timeout)?;
        REAUTHENTICATE.check(self.reauthenticate)?;
        IO_RETRIES.check(self.io_retries)?;
        self.check_addresses()?;
        let whole = [("--output", self.output.is_some()), ("--expect-sha256", self.expect_sha256.is_some())];
        let whole = whole.into_iter().find_map(|(option, said)| said.then_some(option));
        self.observe.check(self.job.runtime)?;
        self.shape.check(&self.job, self.file.is_some(), whole)
    }
}

/// The option by which something of one connection is traced.
fn of_keys_or_port(job: &JobArguments) -> Option<&'static str> {
    let traces = [("--trace", job.trace.is_some()), ("--trace-keys", job.output.trace_keys.is_some())];
    traces.into_iter().find_map(|(option, said)| said.then_some(option))
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
