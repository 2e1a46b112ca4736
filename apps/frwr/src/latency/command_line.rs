//! What a person can ask of `frwr latency`.

use super::{
    client::Extent,
    doorbells::Doorbells,
    failure::{combination, excess},
    operation::Operation,
    parameters::{
        Invalidation, KeyKind, MAX_ALL_CONNECTIONS, MAX_BATCH, MAX_CONNECTIONS, MAX_DEPTH, MAX_RANGES, MAX_SEGMENTS,
        MAX_SIZE, Parameters, PeerDoes, SIZE_GRAIN,
    },
    perftest::OfPerftest,
    said::SaidOfClient,
    silence::CLIENT_SILENCE,
};
use crate::{
    Error,
    address::{self, AddressError, Purpose},
    options::{
        DeviceArguments, IdleArgument, Limit, MemoryArguments, OutputArguments, RUNTIME, bytes_with_unit, check_address,
    },
};
use clap::{Args, Parser};
use core::{num::NonZeroU64, str::FromStr, time::Duration};
use frwr_engine::provider::{ConnectionParameters, soft::SoftProfile};
use frwr_reactor::{MAX_REACTORS, Placement};
use std::{net::SocketAddr, path::PathBuf};

/// Where servers listen and clients connect, unless it is said. In the range for private use (RFC 6335).
pub const DEFAULT_PORT: u16 = 49_200;
/// Far above what a core does, far below what the arithmetic of the schedule holds.
const RATE: Limit = Limit::new("--rate", 1, 1_000_000_000);
const CONNECTIONS: Limit = Limit::new("--connections", 1, MAX_CONNECTIONS as u64);
const ITERATIONS: Limit = Limit::new("--iterations", 1, u64::MAX);
const PORT: Limit = Limit::new("--port", 1, u16::MAX as u64);
// These are checked by `Parameters::check`, on both sides.
const DEPTH: Limit = Limit::new("--depth", 1, MAX_DEPTH as u64);
const SEGMENTS: Limit = Limit::new("--segments", 1, MAX_SEGMENTS as u64);
const RANGES: Limit = Limit::new("--ranges", 1, MAX_RANGES as u64);
const BATCH: Limit = Limit::new("--batch", 1, MAX_BATCH as u64);
/// Sizes of one run: all powers of two up to the largest size, and as many again.
const SIZES: Limit = Limit::new("the number of sizes of --size", 1, 48);
const _: () = assert!(SIZES.most() >= MAX_SIZE.ilog2() as u64, "all powers of two fit");
const ALL_CONNECTIONS: Limit = Limit::new("connections of all cores", 1, MAX_ALL_CONNECTIONS as u64);

/// The largest size of `--all`: perftest's.
const LARGEST_OF_ALL: u32 = 8 << 20;

/// Measures how fast memory is opened to a peer, used, and closed again.
///
/// What perftest is for verbs, for registered requests: how fast keys can be made and killed, and what a request costs that
/// has one. With `--device soft`, the default, server and client are in this process, over the software NIC; or in two processes
/// of one user: `frwr latency --listen ADDRESS` is the server, `frwr latency ADDRESS` the client. On an RDMA device
/// `frwr latency --device NAME` is the server, `frwr latency HOST --device NAME` the client. The client says what is measured,
/// the server adapts. docs/latency.md says what each figure means.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "latency",
    bin_name = "frwr latency",
    version,
    // A script's usual flags stand in front of what one line changes: the last one holds.
    args_override_self = true,
    // So that they are told the limits of their option.
    allow_negative_numbers = true,
    // perftest's names of what means the same here.
    mut_arg("ib_port", |port| port.short('i').alias("ib_port")),
    mut_arg("gid_index", |index| index.short('x').alias("gid_index")),
    mut_arg("traffic_class", |class| class.short('T').visible_aliases(["tclass", "tos"])),
    mut_arg("ack_timeout", |timeout| timeout.short('u').visible_alias("qp-timeout")),
    mut_arg("inline_size", |size| size.short('I').alias("inline_size")),
    mut_arg("device", |device| device.short('d').visible_alias("ib-dev").help("soft, soft:PROFILE (reg_mr, window, umr, umr:fixed-key, rxe), or an RDMA device such \
        as rxe0 or mlx5_0; `frwr check` lists them").default_value("soft")),
    mut_arg("cores", |cores| cores.help("Cores of the reactors, such as 1 or 0,2-3, `unpinned`, or `unpinned:N`. In one process \
        the first half carries the server, the second the client, and one core both. Default: two physical cores in one process \
        if there are, else one; the first for a server, the second for a client")),
    mut_arg("mtu", |mtu| mtu.short('m').help("Path MTU in bytes: 256, 512, 1024, 2048 or 4096, the same on both sides. Default: the port's"))
)]
pub struct Arguments {
    /// What a server would ignore.
    #[command(flatten)]
    pub said_of_client: SaidOfClient,
    /// The server: a name or an IP address. Without it this is the server, on the software NIC where --listen is given.
    #[arg(value_name = "HOST[:PORT]")]
    pub host: Option<String>,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// What is measured.
    #[command(flatten)]
    pub client: ClientArguments,
    /// Server and client in this process, on an RDMA device and with --listen too.
    #[arg(long)]
    pub one_process: bool,
    /// Where to listen: an address of the device's network interface, and a port. Default: the device's first IPv4 address. On the
    /// software NIC any address, by which clients of this user find it.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub listen: Option<Address>,
    /// Port of the server, on both sides, unless HOST or --listen names one.
    #[arg(long, short = 'p', value_name = "PORT", value_parser = PORT.parser::<u16>())]
    pub port: Option<u16>,
    /// What this side's cores do that have nothing to do: `spin` polls on; `sleep` polls on for 50 microseconds and then sleeps until
    /// something arrives, `sleep:MICROSECONDS` for so long, and with `@CORES` behind it only these of --cores. What that costs a request
    /// is the difference.
    #[arg(long, value_name = "HOW", default_value_t = IdleArgument::Spin, value_parser = IdleArgument::from_str)]
    pub idle: IdleArgument,
    /// What perftest wants to be told, and is so here: connections are made by rdma_cm (-R, -z), any governor will do (-F), no peak
    /// is looked for (-N), rates are in Gbit/s too, hugepages are taken where there are some, the cores' shares are shown.
    #[command(flatten)]
    pub of_perftest: OfPerftest,
    /// What it tells.
    #[command(flatten)]
    pub output: OutputArguments,
    /// Its memory.
    #[command(flatten)]
    pub memory: MemoryArguments,
}

/// What the client decides, and a server would ignore: what is measured, and where the results go.
#[derive(Clone, Debug, Args)]
pub struct ClientArguments {
    /// What is measured.
    #[arg(long, value_name = "OPERATION", value_enum, default_value_t = Operation::Request)]
    pub op: Operation,
    /// Whose key opens the memory, and for how long. Default: request, for `--op request` and `register`.
    #[arg(long, value_name = "KEY", value_enum)]
    pub key: Option<KeyKind>,
    /// Who kills the keys of `--op request`. Default: remote where the device can.
    #[arg(long, value_name = "WHO", value_enum)]
    pub invalidate: Option<Invalidation>,
    /// What the server does with the memory of `--op request`.
    #[arg(long, value_name = "RDMA", value_enum, default_value_t = PeerDoes::Write)]
    pub peer: PeerDoes,
    /// Bytes of one request, a multiple of 8 for each segment and range, such as 512 or 64K. Several, with commas between them, are measured
    /// one after the other.
    #[arg(long, short = 's', visible_alias = "msg-size", value_name = "BYTES[,BYTES]...", default_value = "4096")]
    pub size: Sizes,
    /// All powers of two from 8 to 8M bytes, one after the other, as far as one key of the device reaches.
    #[arg(long, short = 'a', conflicts_with = "size")]
    pub all: bool,
    /// Requests in flight of each connection; for `--op register`, batches.
    #[arg(
        long, short = 't', visible_alias = "tx-depth", value_name = "N", default_value_t = 1,
        value_parser = DEPTH.parser::<u32>()
    )]
    pub depth: u32,
    /// Pieces that the memory of one request is in, with gaps between them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEGMENTS.parser::<u8>())]
    pub segments: u8,
    /// Ranges of the server's memory that one WRITE or READ goes to or comes from, with gaps between them: a work request for each,
    /// and one completion for all (libfabric's rma_iov_count; a list of perftest's --post_list as one operation).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RANGES.parser::<u8>())]
    pub ranges: u8,
    /// Keys made, and then killed, behind one doorbell (`--op register`).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = BATCH.parser::<u16>())]
    pub batch: u16,
    /// Connections of each core of the client.
    #[arg(
        long, short = 'q', visible_alias = "qp", value_name = "N", default_value_t = 1,
        value_parser = CONNECTIONS.parser::<u16>()
    )]
    pub connections: u16,
    /// Seconds to measure.
    #[arg(long, short = 'D', visible_alias = "duration", value_name = "SECONDS", default_value = "2")]
    pub runtime: Seconds,
    /// Requests to measure instead, over all cores.
    #[arg(
        long, short = 'n', visible_alias = "iters", value_name = "N", conflicts_with = "runtime",
        value_parser = ITERATIONS.parser::<NonZeroU64>()
    )]
    pub iterations: Option<NonZeroU64>,
    /// Seconds of requests that are not counted.
    #[arg(long, value_name = "SECONDS", default_value = "0.5")]
    pub warm_up: Seconds,
    /// Requests per second over all cores, measured from when each was meant to begin. Default: the next one begins as soon as
    /// one has ended.
    #[arg(long, value_name = "N", value_parser = RATE.parser::<u64>())]
    pub rate: Option<u64>,
    /// Requests begin in rounds: as many as --depth together, when all of the round before have ended; behind one doorbell, or
    /// with a doorbell each. Default: the next one begins as soon as one has ended.
    #[arg(long, value_name = "DOORBELLS", value_enum, conflicts_with = "rate")]
    pub rounds: Option<Doorbells>,
    /// As much as can be: a day. Ctrl-C ends it with the figures that there are.
    #[arg(long = "run_infinitely", alias = "run-infinitely", conflicts_with_all = ["runtime", "iterations"])]
    pub run_infinitely: bool,
    /// Writes a table of the figures to FILE, with a row for all cores and one for each.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Writes the percentiles to FILE, as HdrHistogram's tools read them.
    #[arg(long, value_name = "FILE")]
    pub hgrm: Option<PathBuf>,
    /// Draws the percentiles to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// A time as people write it: seconds, with a fraction if need be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let most = RUNTIME.most();
        let wrong = || format!("must be 0 to {most} seconds, such as 2 or 0.5");
        let seconds: f64 = text.parse().map_err(|_| wrong())?;
        if !(0.0..=most as f64).contains(&seconds) {
            return Err(wrong());
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

/// Numbers of bytes as people write them, with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<u32>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(bytes).collect::<Result<_, _>>().map(Self)
    }
}

fn bytes(text: &str) -> Result<u32, String> {
    // Small letters as fio and dd have them.
    let bytes =
        bytes_with_unit(text).ok_or_else(|| format!("{text:?} must be a number of bytes, such as 512, 64K or 1M"))?;
    u32::try_from(bytes).map_err(|_| format!("{text:?} must be at most {MAX_SIZE}"))
}

/// An IP address, with a port or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// With port 0 where none was said.
    address: SocketAddr,
    has_port: bool,
}

impl Address {
    /// Its own port, or this one.
    #[must_use]
    pub fn or_port(self, port: u16) -> SocketAddr {
        let mut address = self.address;
        if !self.has_port {
            address.set_port(port);
        }
        address
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = match address::parse(text) {
            Err(AddressError::Syntax) => address::parse_alone(text, 0).map(|address| Self { address, has_port: false }),
            found => found.map(|address| Self { address, has_port: true }),
        };
        found.map_err(|error| match error {
            AddressError::Syntax => "must be an IP address, with :PORT behind it or without".to_owned(),
            error => error.to_string(),
        })
    }
}

/// Which device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The software NIC.
    Soft(SoftProfile),
    /// A device of the machine.
    Rdma(DeviceArguments),
}

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Both sides.
    Both,
    /// It waits for clients.
    Server,
    /// It measures against the server of this name.
    Client(String),
}

/// The arguments, checked.
#[derive(Clone, Debug)]
pub struct LatencyConfig {
    /// What this process is.
    pub role: Role,
    /// The device.
    pub device: DeviceChoice,
    /// What is measured; its connections are those of one core, its invalidation holds where somebody asked for one, and its size is the
    /// largest of `sizes`.
    pub parameters: Parameters,
    /// What is measured one after the other: bytes of one request.
    pub sizes: Vec<u32>,
    /// When it ends, over all cores.
    pub(super) extent: Extent,
    /// Where to listen.
    pub listen: Option<SocketAddr>,
    /// Port of the server where its address names none.
    pub port: u16,
    /// Where the reactors go; `None` lets the machine decide.
    pub placement: Option<Placement>,
    /// What connections negotiate.
    pub negotiated: ConnectionParameters,
    /// What cores do that have nothing to do.
    pub idle: IdleArgument,
    /// How long a server serves a client of which nothing comes: 15 s. Clients are told, and ping four times as often.
    pub client_silence: Duration,
    /// What was asked for of the client.
    pub client: ClientArguments,
    /// What it tells.
    pub output: OutputArguments,
    /// Kind of memory.
    pub memory: MemoryArguments,
}

impl LatencyConfig {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: Arguments) -> Result<Self, Error> {
        let device = device(&arguments.device)?;
        let role = role(&arguments, &device)?;
        if role == Role::Server
            && let Some(option) = arguments.said_of_client.option()
        {
            let whose =
                "is the client's to decide, and without HOST this is the server, which does what clients ask for";
            return Err(combination(
                &option,
                format!("{whose}; leave it out, or name HOST, or --one-process for both"),
            ));
        }
        let client = &arguments.client;
        client.check()?;
        arguments.idle.check()?;
        if client.key == Some(KeyKind::Memory) && matches!(device, DeviceChoice::Soft(_)) {
            let why = "registers by a system call (ibv_reg_mr), and the software NIC has none; name an RDMA device";
            return Err(combination("--key memory", why));
        }
        let sizes = if client.all { all_sizes(client) } else { client.size.0.clone() };
        let ClientArguments { op, key, peer, depth, segments, ranges, batch, connections, .. } = *client;
        SIZES.check(sizes.len() as u64)?;
        if sizes.len() > 1 && client.hgrm.is_some() {
            return Err(combination("--hgrm", "holds one measurement; name one --size, or use --svg, --csv or --json"));
        }
        if sizes.len() > 1 && arguments.output.trace_keys.is_some() {
            return Err(combination("--trace-keys", "holds one measurement; name one --size"));
        }
        CONNECTIONS.check(connections)?;
        RATE.check_said(client.rate)?;
        let port = arguments.port.unwrap_or(DEFAULT_PORT);
        let listen = arguments.listen.map(|listen| listen.or_port(port));
        if let Some(listen) = listen {
            check_address("--listen", listen, Purpose::Listen)?;
        }
        let host_port = arguments.host.as_deref().and_then(port_of_host);
        if let (Some(port), Some(named)) = (arguments.port, host_port.or(listen.map(|listen| listen.port())))
            && port != named
        {
            return Err(combination(
                "--port",
                format!("is {port}, and the address names port {named}; leave one of both out"),
            ));
        }
        let parameters = Parameters {
            operation: op,
            // Where it has none that is the server's.
            key: key.or(op.keys().first().copied()).unwrap_or(KeyKind::Static),
            invalidation: client.invalidate.unwrap_or(Invalidation::Local),
            peer_does: peer,
            size: sizes.iter().copied().max().unwrap_or_default(),
            segments,
            ranges,
            depth,
            batch,
            connections,
        };
        for &size in &sizes {
            Parameters { size, ..parameters }.check().map_err(excess)?;
        }
        let extent = match client.iterations {
            Some(iterations) => Extent::Requests(iterations.get()),
            None if client.run_infinitely => Extent::Time(Duration::from_secs(RUNTIME.most())),
            None if client.runtime.0.is_zero() => {
                return Err(combination(
                    "--runtime",
                    "is 0: nothing would be measured; choose more, or --iterations N",
                ));
            }
            None => Extent::Time(client.runtime.0),
        };
        let placement = placement(&arguments.device, &role)?;
        arguments.idle.check_cores(placement.as_ref())?;
        Ok(Self {
            placement,
            role,
            device,
            parameters,
            sizes,
            extent,
            listen,
            port,
            negotiated: arguments.device.parameters(),
            idle: arguments.idle,
            client_silence: CLIENT_SILENCE,
            client: arguments.client,
            output: arguments.output,
            memory: arguments.memory,
        })
    }

    /// The same for one size.
    pub(super) fn with_size(&self, size: u32) -> Self {
        Self { parameters: Parameters { size, ..self.parameters }, ..self.clone() }
    }

    /// The RDMA device's name.
    pub(super) fn rdma_device(&self) -> Option<&str> {
        match &self.device {
            DeviceChoice::Rdma(device) => Some(device.name()),
            DeviceChoice::Soft(_) => None,
        }
    }

    /// What is measured, for so many cores.
    pub(super) fn for_cores(&self, cores: usize, remote_invalidation: bool) -> Result<Parameters, Error> {
        // Both are bounded far below 2^16.
        let connections = (self.parameters.connections).saturating_mul(cores as u16);
        let invalidation = match (self.client.invalidate.is_some(), remote_invalidation) {
            (true, _) => self.parameters.invalidation,
            (false, true) => Invalidation::Remote,
            (false, false) => Invalidation::Local,
        };
        let parameters = Parameters { connections, invalidation, ..self.parameters };
        ALL_CONNECTIONS.check(connections)?;
        parameters.check().map_err(excess)?;
        Ok(parameters)
    }
}

/// What `--all` names: powers of two, as far as the operation and the pieces permit any.
fn all_sizes(client: &ClientArguments) -> Vec<u32> {
    let ClientArguments { op, segments, ranges, .. } = client;
    let most = op.max_size().min(LARGEST_OF_ALL);
    let least = SIZE_GRAIN * u32::from(*segments).max((*ranges).into()).next_power_of_two();
    let powers = (SIZE_GRAIN.ilog2()..=most.ilog2()).map(|power| 1 << power);
    powers.filter(|size| *size >= least).collect()
}

/// The port behind a host, if one stands there.
fn port_of_host(host: &str) -> Option<u16> {
    match host.parse::<Address>() {
        Ok(address) => Some(address.or_port(0).port()).filter(|port| *port > 0),
        Err(_) => host.rsplit_once(':')?.1.parse().ok(),
    }
}

impl ClientArguments {
    /// What keys an operation may have, and who may kill them.
    fn check(&self) -> Result<(), Error> {
        let Self { op, key, invalidate, batch, .. } = self;
        let unusual = key.filter(|key| !op.keys().contains(key));
        if let Some(key) = unusual {
            let flag = format!("--key {}", key.name());
            if op.makes_keys_alone() {
                let why = format!("makes no key again and again; --op {} takes request or memory", op.name());
                return Err(combination(&flag, why));
            }
            let why = format!("does not go with --op {}: no key of its requests; leave --key out", op.name());
            return Err(combination(&flag, why));
        }
        let per_request = op.asks_for_rdma() && key.is_none_or(|key| key == KeyKind::Request);
        if *invalidate == Some(Invalidation::Remote) && !per_request {
            let why = "needs a reply to a request that has a key: --op request --key request";
            return Err(combination("--invalidate remote", why));
        }
        if *invalidate == Some(Invalidation::Local) && !per_request && !op.makes_keys_alone() {
            let why = "kills the keys of requests, and these have none of their own: --op request --key request; leave it out";
            return Err(combination("--invalidate local", why));
        }
        if self.peer == PeerDoes::Read && !op.asks_for_rdma() {
            let others = Operation::names(Operation::asks_for_rdma);
            let why = format!("goes with --op {others}; leave it out, or measure --op {} alone", op.name());
            return Err(combination("--peer read", why));
        }
        if self.segments > 1 && op.max_segments() == 1 {
            let others = Operation::names(|op| op.max_segments() == 1);
            let why = format!("goes with all but --op {others}: what goes to and fro is one piece; leave it out");
            return Err(combination("--segments", why));
        }
        if self.ranges > 1 && op.max_ranges() == 1 {
            let others = Operation::names(|op| op.max_ranges() > 1);
            let why = format!(
                "goes with --op {others}: only these name the server's memory themselves; --segments is for pieces of our own"
            );
            return Err(combination("--ranges", why));
        }
        if *batch > 1 && !op.makes_keys_alone() {
            let others = Operation::names(Operation::makes_keys_alone);
            let why = format!("goes with --op {others} only; --depth is for requests in flight");
            return Err(combination("--batch", why));
        }
        if *batch > 1 && self.rate.is_some() {
            return Err(combination("--rate", "counts keys one by one; leave --batch out, or --rate"));
        }
        if op.makes_keys_alone() && self.rounds.is_some() {
            return Err(combination(
                "--rounds",
                "goes with requests: a batch of --op register is a round already; leave it out",
            ));
        }
        Ok(())
    }
}

fn device(arguments: &DeviceArguments) -> Result<DeviceChoice, Error> {
    arguments.check_retries()?;
    if arguments.name().is_empty() {
        return Err(combination("--device", "is empty; name soft, or an RDMA device (`frwr check` lists them)"));
    }
    match arguments.profile().map_err(|(option, why)| combination(option, why))? {
        Some(profile) => Ok(DeviceChoice::Soft(profile)),
        None => {
            arguments.check()?;
            Ok(DeviceChoice::Rdma(arguments.clone()))
        }
    }
}

fn role(arguments: &Arguments, device: &DeviceChoice) -> Result<Role, Error> {
    match (&arguments.host, device) {
        (Some(_), _) if arguments.one_process => {
            Err(combination("--one-process", "is both sides; leave HOST out, or leave this out"))
        }
        (Some(_), _) if arguments.listen.is_some() => {
            Err(combination("--listen", "is the server's, and with HOST this is the client; leave one of both out"))
        }
        (Some(host), _) => Ok(Role::Client(host.clone())),
        (None, DeviceChoice::Soft(_)) if arguments.listen.is_none() => Ok(Role::Both),
        (None, _) if arguments.one_process => Ok(Role::Both),
        (None, _) => Ok(Role::Server),
    }
}

fn placement(device: &DeviceArguments, role: &Role) -> Result<Option<Placement>, Error> {
    let placement = device.placement(MAX_REACTORS)?;
    let cores = placement.as_ref().map_or(1, crate::options::reactors);
    if *role == Role::Both && cores > 1 && !cores.is_multiple_of(2) {
        let why = format!(
            "names {cores} cores: one half carries the server, the other the client; name one, or an even number"
        );
        return Err(combination("--cores", why));
    }
    Ok(placement)
}
