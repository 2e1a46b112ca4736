//! What a person can ask of `frwr latency`.

use super::{
    client::Extent,
    failure::{combination, excess},
    parameters::{
        Invalidation, KeyKind, MAX_ALL_CONNECTIONS, MAX_BATCH, MAX_CONNECTIONS, MAX_DEPTH, MAX_RANGES, MAX_SEGMENTS,
        MAX_SEND_BYTES, MAX_SIZE, Operation, Parameters, PeerDoes, SIZE_GRAIN,
    },
    perftest::OfPerftest,
    said::SaidOfClient,
    schedule::Doorbells,
    silence::CLIENT_SILENCE,
};
use crate::runner::{
    DeviceArguments, MAX_RUNTIME_SECONDS, Pages, RdmaDeviceConfig, RegistrationKind, bytes_with_unit, check_address,
    range, whole,
};
use crate::{
    Error,
    address::{self, AddressError, Purpose},
};
use clap::Parser;
use core::{num::NonZeroU64, str::FromStr, time::Duration};
use frwr_engine::provider::{ConnectionParameters, soft::SoftProfile};
use frwr_mempool::region::PagePolicy;
use frwr_reactor::{MAX_REACTORS, Placement};
use std::{net::SocketAddr, path::PathBuf};

/// Where servers listen and clients connect, unless it is said. In the range for private use (RFC 6335).
pub const DEFAULT_PORT: u16 = 49_200;
/// Highest rate: far above what a core does, far below what the arithmetic of the schedule holds.
const MAX_RATE: u64 = 1_000_000_000;

/// The largest size of `--all`: perftest's.
const LARGEST_OF_ALL: u32 = 8 << 20;
/// Sizes of one run: all powers of two up to the largest size, and as many again.
const MAX_SIZES: usize = 48;
const _: () = assert!(MAX_SIZES >= MAX_SIZE.ilog2() as usize, "all powers of two fit");

/// Measures how fast memory is opened to a peer, used, and closed again.
///
/// What perftest is for verbs, for registered requests: how fast keys can be made and killed, and what a request costs that
/// has one. With `--device soft`, the default, server and client are in this process, over the software NIC. On an RDMA device
/// `frwr latency --device NAME` is the server, `frwr latency HOST --device NAME` the client: the client says what is measured,
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
    /// The server: a name or an IP address. Without it an RDMA device is the server.
    #[arg(value_name = "HOST[:PORT]")]
    pub host: Option<String>,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
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
        value_parser = whole::<u32>(1, MAX_DEPTH.into())
    )]
    pub depth: u32,
    /// Pieces that the memory of one request is in, with gaps between them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u8>(1, MAX_SEGMENTS.into()))]
    pub segments: u8,
    /// Ranges of the server's memory that one WRITE or READ goes to or comes from, with gaps between them: a work request for each,
    /// and one completion for all (libfabric's rma_iov_count; a list of perftest's --post_list as one operation).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u8>(1, MAX_RANGES.into()))]
    pub ranges: u8,
    /// Keys made, and then killed, behind one doorbell (`--op register`).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1, MAX_BATCH.into()))]
    pub batch: u16,
    /// Connections of each core of the client.
    #[arg(
        long, short = 'q', visible_alias = "qp", value_name = "N", default_value_t = 1,
        value_parser = whole::<u16>(1, MAX_CONNECTIONS.into())
    )]
    pub connections: u16,
    /// Seconds to measure.
    #[arg(long, short = 'D', visible_alias = "duration", value_name = "SECONDS", default_value = "2")]
    pub runtime: Seconds,
    /// Requests to measure instead, over all cores.
    #[arg(
        long, short = 'n', visible_alias = "iters", value_name = "N", conflicts_with = "runtime",
        value_parser = whole::<NonZeroU64>(1, u64::MAX)
    )]
    pub iterations: Option<NonZeroU64>,
    /// Seconds of requests that are not counted.
    #[arg(long, value_name = "SECONDS", default_value = "0.5")]
    pub warm_up: Seconds,
    /// Requests per second over all cores, measured from when each was meant to begin. Default: the next one begins as soon as
    /// one has ended.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, MAX_RATE))]
    pub rate: Option<u64>,
    /// Requests begin in rounds: as many as --depth together, when all of the round before have ended; behind one doorbell, or
    /// with a doorbell each. Default: the next one begins as soon as one has ended.
    #[arg(long, value_name = "DOORBELLS", value_enum, conflicts_with = "rate")]
    pub rounds: Option<Doorbells>,
    /// Server and client in this process, on an RDMA device too.
    #[arg(long)]
    pub one_process: bool,
    /// Where to listen: an address of the device's network interface, and a port. Default: the device's first IPv4 address.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub listen: Option<Address>,
    /// Port of the server, on both sides, unless HOST or --listen names one.
    #[arg(long, short = 'p', value_name = "PORT", value_parser = whole::<u16>(1, u16::MAX.into()))]
    pub port: Option<u16>,
    /// As much as can be: a day. Ctrl-C ends it with the figures that there are.
    #[arg(long = "run_infinitely", alias = "run-infinitely", conflicts_with_all = ["runtime", "iterations"])]
    pub run_infinitely: bool,
    /// What perftest wants to be told, and is so here: connections are made by rdma_cm (-R, -z), any governor will do (-F), no peak
    /// is looked for (-N), rates are in Gbit/s too, hugepages are taken where there are some, the cores' shares are shown.
    #[command(flatten)]
    pub of_perftest: OfPerftest,
    /// One object as JSON on standard output instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Writes a table of the figures to FILE, with a row for all cores and one for each.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Writes the percentiles to FILE, as HdrHistogram's tools read them.
    #[arg(long, value_name = "FILE")]
    pub hgrm: Option<PathBuf>,
    /// Draws the percentiles to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Writes the life of every key to FILE, a line of JSON for each event: registered, told, killed, dead, and what failed; see
    /// docs/traces.md. Slows down what is measured.
    #[arg(long, value_name = "FILE")]
    pub trace_keys: Option<PathBuf>,
    /// Pages of the memory: auto tries 2M, the system's hugepages, transparent ones, then plain ones.
    #[arg(long, value_name = "PAGES", value_enum, default_value_t = Pages::Auto)]
    pub pages: Pages,
}

/// A time as people write it: seconds, with a fraction if need be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let most = MAX_RUNTIME_SECONDS;
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
    let bytes = bytes_with_unit(&text.to_ascii_uppercase())
        .ok_or_else(|| format!("{text:?} must be a number of bytes, such as 512, 64K or 1M"))?;
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
    Rdma(RdmaDeviceConfig),
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
    /// What is measured; its connections are those of one core, its invalidation holds where [`Self::chosen`] says so, and its size is the
    /// largest of `sizes`.
    pub parameters: Parameters,
    /// What is measured one after the other: bytes of one request.
    pub sizes: Vec<u32>,
    /// Somebody asked for the way of invalidation; else the device decides.
    pub chosen: bool,
    /// When it ends, over all cores.
    pub(super) extent: Extent,
    /// What is not counted in front.
    pub warm_up: Duration,
    /// Requests per second.
    pub rate: Option<u64>,
    /// Requests begin in rounds.
    pub rounds: Option<Doorbells>,
    /// Where to listen.
    pub listen: Option<SocketAddr>,
    /// Port of the server where its address names none.
    pub port: u16,
    /// Of the sizes those that one key of the device covers: others are left out, and told.
    pub reaching: bool,
    /// Where the reactors go; `None` lets the machine decide.
    pub placement: Option<Placement>,
    /// What connections negotiate.
    pub negotiated: ConnectionParameters,
    /// Kind of memory.
    pub pages: PagePolicy,
    /// How long a server serves a client of which nothing comes: 15 s. Clients are told, and ping four times as often.
    pub client_silence: Duration,
    /// Machine-readable output.
    pub json: bool,
    /// Where the table of figures goes.
    pub csv: Option<PathBuf>,
    /// Where the percentiles go.
    pub hgrm: Option<PathBuf>,
    /// Where the curve goes.
    pub svg: Option<PathBuf>,
    /// Where the lives of keys go.
    pub trace_keys: Option<PathBuf>,
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
        check_key(&arguments)?;
        let sizes = if arguments.all { all_sizes(&arguments) } else { arguments.size.0.clone() };
        let Arguments { op, key, invalidate, peer, depth, segments, ranges, batch, connections, .. } = arguments;
        range("the number of sizes of --size", sizes.len() as u64, 1, MAX_SIZES as u64)?;
        if sizes.len() > 1 && arguments.hgrm.is_some() {
            return Err(combination("--hgrm", "holds one measurement; name one --size, or use --svg, --csv or --json"));
        }
        if sizes.len() > 1 && arguments.trace_keys.is_some() {
            return Err(combination("--trace-keys", "holds one measurement; name one --size"));
        }
        range("--connections", connections.into(), 1, MAX_CONNECTIONS.into())?;
        range("--rate", arguments.rate.unwrap_or(1), 1, MAX_RATE)?;
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
            key: key.unwrap_or(default_key(op)),
            invalidation: invalidate.unwrap_or(Invalidation::Local),
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
        let extent = match arguments.iterations {
            Some(iterations) => Extent::Requests(iterations.get()),
            None if arguments.run_infinitely => Extent::Time(Duration::from_secs(MAX_RUNTIME_SECONDS)),
            None if arguments.runtime.0.is_zero() => {
                return Err(combination(
                    "--runtime",
                    "is 0: nothing would be measured; choose more, or --iterations N",
                ));
            }
            None => Extent::Time(arguments.runtime.0),
        };
        Ok(Self {
            placement: placement(&arguments.device, &role)?,
            role,
            device,
            parameters,
            sizes,
            chosen: invalidate.is_some(),
            extent,
            warm_up: arguments.warm_up.0,
            rate: arguments.rate,
            rounds: arguments.rounds,
            listen,
            port,
            reaching: arguments.all,
            negotiated: arguments.device.parameters()?,
            pages: arguments.pages.policy(),
            client_silence: CLIENT_SILENCE,
            json: arguments.json,
            csv: arguments.csv,
            hgrm: arguments.hgrm,
            svg: arguments.svg,
            trace_keys: arguments.trace_keys,
        })
    }

    /// The same for one size.
    pub(super) fn with_size(&self, size: u32) -> Self {
        Self { parameters: Parameters { size, ..self.parameters }, ..self.clone() }
    }

    /// The RDMA device's name.
    pub(super) fn rdma_device(&self) -> Option<&str> {
        match &self.device {
            DeviceChoice::Rdma(device) => Some(&device.device),
            DeviceChoice::Soft(_) => None,
        }
    }

    /// What is measured, for so many cores.
    pub(super) fn for_cores(&self, cores: usize, remote_invalidation: bool) -> Result<Parameters, Error> {
        // Both are bounded far below 2^16.
        let connections = (self.parameters.connections).saturating_mul(cores as u16);
        let invalidation = match (self.chosen, remote_invalidation) {
            (true, _) => self.parameters.invalidation,
            (false, true) => Invalidation::Remote,
            (false, false) => Invalidation::Local,
        };
        let parameters = Parameters { connections, invalidation, ..self.parameters };
        range("connections of all cores", connections.into(), 1, MAX_ALL_CONNECTIONS.into())?;
        parameters.check().map_err(excess)?;
        Ok(parameters)
    }
}

/// What `--all` names: powers of two, as far as the operation and the pieces permit any.
fn all_sizes(arguments: &Arguments) -> Vec<u32> {
    let Arguments { op, segments, ranges, .. } = arguments;
    let most = if *op == Operation::Send { MAX_SEND_BYTES } else { LARGEST_OF_ALL };
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

/// The key where nobody chose one.
fn default_key(operation: Operation) -> KeyKind {
    match operation {
        Operation::Request | Operation::Register => KeyKind::Request,
        // The server's.
        Operation::Write | Operation::Read | Operation::Send | Operation::Pingpong => KeyKind::Static,
    }
}

/// What keys an operation may have, and who may kill them.
fn check_key(arguments: &Arguments) -> Result<(), Error> {
    let Arguments { op, key, invalidate, batch, .. } = arguments;
    let is_request = *op == Operation::Request;
    match (op, key) {
        (Operation::Request, _)
        | (_, None)
        | (Operation::Register, Some(KeyKind::Request | KeyKind::Memory))
        | (Operation::Write | Operation::Read | Operation::Pingpong, Some(KeyKind::Static | KeyKind::Memory)) => {}
        (Operation::Register, Some(KeyKind::Static)) => {
            return Err(combination(
                "--key static",
                "makes no key again and again; --op register takes request or memory",
            ));
        }
        (_, Some(key)) => {
            let why = format!("does not go with --op {}: no key of its requests; leave --key out", op.name());
            let flag = match key {
                KeyKind::Request => "--key request",
                KeyKind::Static => "--key static",
                KeyKind::Memory => "--key memory",
            };
            return Err(combination(flag, why));
        }
    }
    let per_request = is_request && key.is_none_or(|key| key == KeyKind::Request);
    if *invalidate == Some(Invalidation::Remote) && !per_request {
        let why = "needs a reply to a request that has a key: --op request --key request";
        return Err(combination("--invalidate remote", why));
    }
    if *invalidate == Some(Invalidation::Local) && !per_request && *op != Operation::Register {
        let why =
            "kills the keys of requests, and these have none of their own: --op request --key request; leave it out";
        return Err(combination("--invalidate local", why));
    }
    if arguments.peer == PeerDoes::Read && !is_request {
        let why = format!("goes with --op request; leave it out, or measure --op {} alone", op.name());
        return Err(combination("--peer read", why));
    }
    if arguments.segments > 1 && !op.takes_segments() {
        return Err(combination(
            "--segments",
            "goes with all but --op send and pingpong: what goes to and fro is one piece; leave it out",
        ));
    }
    if arguments.ranges > 1 && !op.takes_ranges() {
        let why = "goes with --op write and read: only these name the server's memory themselves; --segments is for pieces of our own";
        return Err(combination("--ranges", why));
    }
    if *batch > 1 && *op != Operation::Register {
        return Err(combination("--batch", "goes with --op register only; --depth is for requests in flight"));
    }
    if *batch > 1 && arguments.rate.is_some() {
        return Err(combination("--rate", "counts keys one by one; leave --batch out, or --rate"));
    }
    if *op == Operation::Register && arguments.rounds.is_some() {
        return Err(combination(
            "--rounds",
            "goes with requests: a batch of --op register is a round already; leave it out",
        ));
    }
    if *key == Some(KeyKind::Memory) && is_soft(&arguments.device) {
        let why = "registers by a system call (ibv_reg_mr), and the software NIC has none; name an RDMA device";
        return Err(combination("--key memory", why));
    }
    Ok(())
}

fn is_soft(device: &DeviceArguments) -> bool {
    device.device.as_deref().is_none_or(|name| name == "soft" || name.starts_with("soft:"))
}

fn device(arguments: &DeviceArguments) -> Result<DeviceChoice, Error> {
    if arguments.device.as_deref() == Some("") {
        return Err(combination("--device", "is empty; name soft, or an RDMA device (`frwr check` lists them)"));
    }
    if !is_soft(arguments) {
        return Ok(DeviceChoice::Rdma(arguments.device()?));
    }
    let name = arguments.device.as_deref().unwrap_or("soft");
    let of_ports = [
        ("--gid-index", arguments.gid_index.is_some()),
        ("--ib-port", arguments.ib_port != 1),
        ("--mtu", arguments.mtu.is_some()),
        ("--traffic-class", arguments.traffic_class.is_some()),
        ("--ack-timeout", arguments.ack_timeout.is_some()),
        ("--inline-size", arguments.inline_size.is_some()),
        ("--no-thread-domains", arguments.no_thread_domains),
    ];
    if let Some((flag, _)) = of_ports.into_iter().find(|(_, is_said)| *is_said) {
        return Err(combination(flag, format!("is of an RDMA device's port, and {name} has none; leave it out")));
    }
    let profile = match name.split_once(':') {
        None => match arguments.registration {
            RegistrationKind::Auto => SoftProfile::RegMr,
            RegistrationKind::Windows => SoftProfile::Window,
            RegistrationKind::Lists => SoftProfile::Umr { rotating_key_bits: 8 },
        },
        Some((_, profile)) if arguments.registration == RegistrationKind::Auto => profile.parse().map_err(|_| {
            combination("--device", format!("is {name:?}: PROFILE must be reg_mr, window, umr, umr:fixed-key or rxe"))
        })?,
        Some(_) => return Err(combination("--registration", "is what a soft:PROFILE says; leave one of both out")),
    };
    Ok(DeviceChoice::Soft(profile))
}

fn role(arguments: &Arguments, device: &DeviceChoice) -> Result<Role, Error> {
    match (&arguments.host, device) {
        (Some(_), DeviceChoice::Soft(_)) => {
            let why = "is soft: the software NIC lives inside one process; leave HOST out, or name an RDMA device";
            Err(combination("--device", why))
        }
        (Some(_), _) if arguments.one_process => {
            Err(combination("--one-process", "is both sides; leave HOST out, or leave this out"))
        }
        (Some(_), _) if arguments.listen.is_some() => {
            Err(combination("--listen", "is the server's, and with HOST this is the client; leave one of both out"))
        }
        (Some(host), _) => Ok(Role::Client(host.clone())),
        (None, DeviceChoice::Soft(_)) => Ok(Role::Both),
        (None, DeviceChoice::Rdma(_)) if arguments.one_process => Ok(Role::Both),
        (None, DeviceChoice::Rdma(_)) => Ok(Role::Server),
    }
}

fn placement(device: &DeviceArguments, role: &Role) -> Result<Option<Placement>, Error> {
    let placement = device.placement(MAX_REACTORS)?;
    let cores = placement.as_ref().map_or(1, crate::runner::reactors);
    if *role == Role::Both && cores > 1 && !cores.is_multiple_of(2) {
        let why = format!(
            "names {cores} cores: one half carries the server, the other the client; name one, or an even number"
        );
        return Err(combination("--cores", why));
    }
    Ok(placement)
}
