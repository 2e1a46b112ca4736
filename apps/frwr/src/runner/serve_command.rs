//! `frwr serve` as a person asks for it.

use super::{
    arguments::{
        CommonArguments, MAX_QUEUE_DEPTH, MAX_RUNTIME_SECONDS, address, check_address, range, transfer_bytes, whole,
    },
    config_file,
    device_arguments::{DeviceArguments, RdmaDeviceConfig, RegistrationKind},
    namespaces::{NamespaceBacking, NamespaceConfig, SubsystemConfig},
    plan::{connections, default_subsystem, entries},
    start::reactors,
};
use crate::{Error, address::Purpose};
use clap::Args;
use core::{str::FromStr, time::Duration};
use frwr_engine::provider::ConnectionParameters;
use frwr_mempool::region::PagePolicy;
use frwr_nvmf::{
    controller::{
        ADMIN_QUEUE_ENTRIES, AllowedHosts, MAX_BUFFER_BYTES, MAX_CONNECTIONS, MAX_CORES, MAX_DATA_BLOCKS,
        MAX_IN_CAPSULE_BYTES,
    },
    storage::MAX_BLOCK_BYTES,
    wire::{DISCOVERY_SUBSYSTEM, Nqn, SGL_DESCRIPTOR_BYTES, SerialNumber},
};
use frwr_reactor::Placement;
use serde_json::{Value, json};
use std::{net::SocketAddr, path::PathBuf};

/// Hosts at the same time at most: each has receives, transfer slots and data buffers of its own.
pub const MAX_HOSTS: u16 = 256;

/// Requests in flight of one host, unless it is said.
pub(super) const DEFAULT_QUEUE_DEPTH: u32 = 128;
/// Hosts at the same time, unless it is said.
pub(super) const DEFAULT_HOSTS: u16 = 8;
/// I/O queues of a host, unless it is said.
pub(super) const DEFAULT_IO_QUEUES: u16 = 4;
/// Data that may come with a command, unless it is said: a block.
pub(super) const DEFAULT_IN_CAPSULE: u32 = 4096;
/// Largest transfer of a command, unless it is said: what SPDK's target takes, and what its hosts do without splitting.
pub(super) const DEFAULT_MAX_TRANSFER: u32 = 128 << 10;
/// The same as people write it.
const DEFAULT_MAX_TRANSFER_TEXT: &str = "128K";
/// Seconds of silence behind which a host without keep alive is probed, unless it is said: long enough to cost nothing, and short enough
/// that places of hosts that are gone come back before somebody looks for them by hand.
pub(super) const DEFAULT_MAX_SILENCE: u64 = 300;
/// I/O queues of a host at most: more than a few on each core share nothing but memory.
pub(super) const MAX_SERVED_IO_QUEUES: u16 = 16;

/// Receives of one shared queue: twice what devices are known to have (32767 on ConnectX), and what one core can use.
const MAX_SHARED_RECEIVES: u32 = 1 << 16;

/// What a file says instead.
const INSTEAD_OF_CONFIG: [&str; 27] = [
    "device",
    "gid_index",
    "ib_port",
    "mtu",
    "traffic_class",
    "ack_timeout",
    "inline_size",
    "no_thread_domains",
    "retry_count",
    "rnr_retry_count",
    "cores",
    "listen",
    "namespace",
    "backing",
    "pages",
    "block_size",
    "no_remote_invalidate",
    "queue_depth",
    "hosts",
    "subsystem",
    "allow_host",
    "io_queues",
    "in_capsule",
    "data_blocks",
    "shared_receives",
    "max_transfer",
    "max_silence",
];

/// The target's half of the job.
#[derive(Clone, Debug, Args)]
// So that they are told the limits of their option.
#[command(allow_negative_numbers = true)]
#[command(mut_arg("device", |device| device.required_unless_present("config")))]
#[command(mut_arg("registration", |registration| registration.hide(true)))]
pub struct ServeArguments {
    /// Everything of what follows in a file instead, and what has no option here: several namespaces, block devices, memory
    /// of a size; TOML, see docs/config.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = INSTEAD_OF_CONFIG)]
    pub config: Option<PathBuf>,
    /// Prints what was understood, and ends.
    #[arg(long)]
    pub check_config: bool,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Where to listen: an IP address of the device's network interface, and a port.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "config", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// The file whose bytes the namespace holds. Read once into memory and never written, unless --backing says otherwise.
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    pub namespace: Option<PathBuf>,
    /// Where the namespace's bytes live: in memory, or in FILE itself, a file or block device of whole blocks, which hosts
    /// then write to.
    #[arg(long, value_name = "BACKING", value_enum, default_value_t = NamespaceBacking::Memory)]
    pub backing: NamespaceBacking,
    /// What every run takes.
    #[command(flatten)]
    pub common: CommonArguments,
    /// Requests in flight that a host may have at most.
    #[arg(
        long, value_name = "N", default_value_t = DEFAULT_QUEUE_DEPTH,
        value_parser = whole::<u32>(1, MAX_QUEUE_DEPTH.into())
    )]
    pub queue_depth: u32,
    /// Hosts at the same time; one that uses several subsystems counts for each. Beside these there is a place for one that comes back
    /// before its former connection is gone, and the discovery service has places of its own, one for each host and one more.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_HOSTS, value_parser = whole::<u16>(1, MAX_HOSTS.into()))]
    pub hosts: u16,
    /// Name of the subsystem: `nqn.` and more. Default: one under a domain that nobody can own.
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<String>,
    /// A host that may connect, by the name that it gives, which nobody proves; may be given more than once. Default: every host.
    #[arg(long, value_name = "NQN")]
    pub allow_host: Vec<String>,
    /// I/O queues of a host.
    #[arg(
        long, value_name = "N", default_value_t = DEFAULT_IO_QUEUES,
        value_parser = whole::<u16>(1, MAX_SERVED_IO_QUEUES.into())
    )]
    pub io_queues: u16,
    /// Bytes of data that may come with a command, a multiple of 16; 0 for none.
    #[arg(
        long, value_name = "BYTES", default_value_t = DEFAULT_IN_CAPSULE,
        value_parser = whole::<u32>(0, MAX_IN_CAPSULE_BYTES.into())
    )]
    pub in_capsule: u32,
    /// Pieces of memory that a command may list; more than one travel in the capsule's data, 16 bytes each.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u8>(1, MAX_DATA_BLOCKS.into()))]
    pub data_blocks: u8,
    /// Receives of a core that all its connections share, where the device has shared receive queues: memory for the
    /// commands that are admitted together, and one post for all of them. Hosts for whom none are left are refused. "off": each
    /// connection has as many as its largest queue.
    #[arg(long, value_name = "N|off", default_value = "off")]
    pub shared_receives: SharedReceives,
    /// Bytes of the largest transfer of a command, a power of two from 64K to 8M. Each data buffer has as many, and all of them some
    /// 200 MiB on each core, at 1M 330 MiB and at 8M 600 MiB: a line says how many there are.
    #[arg(long, value_name = "BYTES", default_value = DEFAULT_MAX_TRANSFER_TEXT, value_parser = transfer_bytes)]
    pub max_transfer: u32,
    /// Seconds that a host which asked for no keep alive may be silent, until its device is asked whether it is there; one that answers
    /// stays. 0: for ever, so that hosts which vanish keep their places.
    #[arg(
        long, value_name = "SECONDS", default_value_t = DEFAULT_MAX_SILENCE,
        value_parser = whole::<u64>(0, MAX_RUNTIME_SECONDS)
    )]
    pub max_silence: u64,
    /// Ends after so many seconds. Default: at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>(0, MAX_RUNTIME_SECONDS))]
    pub runtime: Option<u64>,
}

/// The value of `--shared-receives`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceives(pub Option<u32>);

impl FromStr for SharedReceives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be off, or a whole number up to {MAX_SHARED_RECEIVES}");
        if text == "off" {
            Ok(Self(None))
        } else {
            text.parse().map(|entries| Self(Some(entries))).map_err(|_| wrong())
        }
    }
}

/// The arguments of `serve`, checked.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The device.
    pub device: RdmaDeviceConfig,
    /// What connections negotiate.
    pub parameters: ConnectionParameters,
    /// Where to listen.
    pub listen: SocketAddr,
    /// What it offers, at least one subsystem with at least one namespace.
    pub subsystems: Vec<SubsystemConfig>,
    /// Where the reactors go; `None` lets the machine decide.
    pub placement: Option<Placement>,
    /// Requests in flight of one host.
    pub queue_depth: u32,
    /// Hosts at the same time.
    pub hosts: u16,
    /// I/O queues of a host.
    pub io_queues: u16,
    /// Bytes of data that may come with a command; 0 for none.
    pub in_capsule: u32,
    /// Pieces of memory that a command may list.
    pub data_blocks: u8,
    /// Receives that the connections of a core share; `None` where each has its own.
    pub shared_receives: Option<u32>,
    /// Bytes of the largest transfer.
    pub max_transfer: u32,
    /// How long a host without keep alive may be silent until it is probed; zero for ever.
    pub max_silence: Duration,
    /// When it ends by itself.
    pub runtime: Option<Duration>,
    /// Machine-readable output.
    pub json: bool,
    /// Nothing is to be served: [`ServeConfig::describe`] is to be printed.
    pub check_only: bool,
    /// The target invalidates keys.
    pub remote_invalidate: bool,
    /// Kind of memory.
    pub pages: PagePolicy,
    /// Where it goes what is done with the keys of hosts.
    pub trace_keys: Option<PathBuf>,
}

impl ServeConfig {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: ServeArguments) -> Result<Self, Error> {
        let ServeArguments { config, check_config, common, runtime, .. } = &arguments;
        range("--runtime", runtime.unwrap_or(0), 0, MAX_RUNTIME_SECONDS)?;
        if arguments.device.registration != RegistrationKind::Auto {
            let text = "--registration: a target opens no memory to its hosts, so there is nothing that it would register by \
                        windows or by lists; leave it out, it is for load";
            return Err(Error::usage("target_registration", text));
        }
        let (check_only, json, runtime) = (*check_config, common.json, runtime.map(Duration::from_secs));
        let trace_keys = common.trace_keys.clone();
        let config = match config {
            Some(path) => config_file::read(path)?,
            None => Self::of_command_line(arguments)?,
        };
        Ok(Self { json, check_only, trace_keys, runtime: runtime.or(config.runtime), ..config })
    }

    fn of_command_line(arguments: ServeArguments) -> Result<Self, Error> {
        let nqn = arguments.subsystem.as_deref().map_or_else(default_subsystem, |text| name("--subsystem", text))?;
        check_subsystem(&nqn)?;
        let allowed = arguments.allow_host.iter().map(|host| name("--allow-host", host));
        let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
        let allowed_hosts = if allowed.is_empty() { AllowedHosts::Any } else { AllowedHosts::Listed(allowed) };
        let ServeArguments { io_queues, in_capsule, data_blocks, backing, max_transfer, max_silence, .. } = arguments;
        let SharedReceives(shared_receives) = arguments.shared_receives;
        let ServeArguments { device, listen, namespace, common, queue_depth, hosts, .. } = arguments;
        common.check(MAX_BLOCK_BYTES)?;
        // The command line requires both.
        let (listen, namespace) = listen.zip(namespace).ok_or_else(Error::lost)?;
        range("--queue-depth", queue_depth.into(), 1, MAX_QUEUE_DEPTH.into())?;
        check_queues(hosts, io_queues, in_capsule, data_blocks)?;
        let placement = device.placement(MAX_CORES.into())?;
        check_shared_receives(shared_receives, queue_depth, io_queues, placement.as_ref())?;
        check_max_transfer(max_transfer.into())?;
        range("--max-silence", max_silence, 0, MAX_RUNTIME_SECONDS)?;
        check_address("--listen", listen, Purpose::Listen)?;
        Ok(Self {
            parameters: device.parameters()?,
            placement,
            device: device.device()?,
            listen,
            subsystems: vec![SubsystemConfig {
                nqn,
                allowed_hosts,
                serial: None,
                namespaces: vec![NamespaceConfig::of_command_line(namespace, backing, common.block_size)],
            }],
            queue_depth,
            hosts,
            io_queues,
            in_capsule,
            data_blocks,
            shared_receives,
            max_transfer,
            max_silence: Duration::from_secs(max_silence),
            runtime: None,
            json: false,
            check_only: false,
            remote_invalidate: !common.no_remote_invalidate,
            pages: common.pages.policy(),
            trace_keys: None,
        })
    }

    /// What was understood, as JSON; names as in the file.
    #[must_use]
    pub fn describe(&self) -> Value {
        let subsystems: Vec<_> = self.subsystems.iter().map(subsystem_json).collect();
        json!({
            "device": self.device.device,
            "ib_port": self.device.port,
            "gid_index": self.device.gid_index,
            "mtu": self.device.mtu,
            "traffic_class": self.device.traffic_class,
            "ack_timeout": self.device.ack_timeout,
            "inline_size": self.device.inline_size,
            "thread_domains": self.device.thread_domains,
            "retry_count": self.parameters.retry_count,
            "rnr_retry_count": self.parameters.rnr_retry_count,
            "listen": self.listen.to_string(),
            "cores": self.placement.as_ref().map(|placement| match placement {
                Placement::Cores(cores) => cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
                Placement::Unpinned { reactors: reactors @ 2.. } => format!("unpinned:{reactors}"),
                Placement::Spread { .. } | Placement::Unpinned { .. } => "unpinned".to_owned(),
            }),
            "queue_depth": self.queue_depth,
            "hosts": self.hosts,
            "io_queues": self.io_queues,
            "in_capsule": self.in_capsule,
            "data_blocks": self.data_blocks,
            "shared_receives": self.shared_receives,
            "max_transfer": self.max_transfer,
            "max_silence": self.max_silence.as_secs(),
            "remote_invalidate": self.remote_invalidate,
            "runtime": self.runtime.map(|runtime| runtime.as_secs()),
            "subsystem": subsystems,
        })
    }
}

/// What of hosts, queues and capsules has limits, each and together.
pub(super) fn check_queues(hosts: u16, io_queues: u16, in_capsule: u32, data_blocks: u8) -> Result<(), Error> {
    range("--hosts", hosts.into(), 1, MAX_HOSTS.into())?;
    range("--io-queues", io_queues.into(), 1, MAX_SERVED_IO_QUEUES.into())?;
    let queues = connections(hosts, io_queues);
    if queues > MAX_CONNECTIONS {
        let text = format!(
            "--io-queues is {io_queues} for each of {hosts} hosts: with their admin queues, those of a host that comes back, and \
             those of discovery and of who is not let in yet, {queues} queues, must be {MAX_CONNECTIONS} at most; lower one of \
             the two"
        );
        return Err(Error::usage("queues", text));
    }
    range("--in-capsule", in_capsule.into(), 0, MAX_IN_CAPSULE_BYTES.into())?;
    if !in_capsule.is_multiple_of(16) {
        let text = format!("--in-capsule is {in_capsule}: must be a multiple of 16; choose the next one");
        return Err(Error::usage("in_capsule_bytes", text));
    }
    range("--data-blocks", data_blocks.into(), 1, MAX_DATA_BLOCKS.into())?;
    let wanted = u32::from(data_blocks) * SGL_DESCRIPTOR_BYTES as u32;
    if data_blocks > 1 && wanted > in_capsule {
        let text = format!(
            "--data-blocks is {data_blocks}: their descriptors need {wanted} bytes of data in the capsule, which takes \
             {in_capsule}; raise that, or lower this"
        );
        return Err(Error::usage("data_blocks", text));
    }
    Ok(())
}

/// All queues of one host, at least; the device's own limit is told when it is opened.
pub(super) fn check_shared_receives(
    shared: Option<u32>,
    queue_depth: u32,
    io_queues: u16,
    placement: Option<&Placement>,
) -> Result<(), Error> {
    let Some(value) = shared else { return Ok(()) };
    range("--shared-receives", value.into(), 1, MAX_SHARED_RECEIVES.into())?;
    let cores = placement.map_or(1, reactors);
    // The core that has the admin queue has as many I/O queues as any. Both are far below 2^16.
    let (entries, io_queues) = (entries(queue_depth), usize::from(io_queues).div_ceil(cores.max(1)) as u16);
    let wanted = u32::from(ADMIN_QUEUE_ENTRIES) + u32::from(entries) * u32::from(io_queues);
    if value < wanted {
        let text = format!(
            "--shared-receives is {value}: the queues that one host has on a core need {wanted}, {ADMIN_QUEUE_ENTRIES} for its \
             admin queue and {entries} for each of {io_queues}; raise it, or lower the number of I/O queues or the queue depth"
        );
        return Err(Error::usage("shared_receives", text));
    }
    Ok(())
}

/// Every block size that a namespace may have, and what one data block can describe.
pub(super) fn check_max_transfer(value: u64) -> Result<(), Error> {
    let (least, most) = (MAX_BLOCK_BYTES, MAX_BUFFER_BYTES);
    if !value.is_power_of_two() || !(u64::from(least)..=most.into()).contains(&value) {
        let remedy = "choose the next one, such as 128K or 1M";
        let text = format!("--max-transfer is {value}: must be a power of two from {least} to {most}; {remedy}");
        return Err(Error::usage("max_transfer", text));
    }
    Ok(())
}

/// One that is not the discovery service's, which each target has beside its subsystems.
pub(super) fn check_subsystem(nqn: &Nqn) -> Result<(), Error> {
    if nqn.as_str() != DISCOVERY_SUBSYSTEM {
        return Ok(());
    }
    let reason = "the discovery service, which is there anyway, has this name; choose another";
    Err(Error::usage("nqn", format!("--subsystem is {:?}: {reason}", nqn.as_str())))
}

fn subsystem_json(subsystem: &SubsystemConfig) -> Value {
    let hosts = match &subsystem.allowed_hosts {
        AllowedHosts::Any => None,
        AllowedHosts::Listed(hosts) => Some(hosts),
    };
    json!({
        "nqn": subsystem.nqn.as_str(),
        "allowed_hosts": hosts.map(|hosts| hosts.iter().map(Nqn::as_str).collect::<Vec<_>>()),
        "serial": subsystem.serial.as_ref().map(SerialNumber::as_str),
        "namespace": subsystem.namespaces.iter().map(NamespaceConfig::json).collect::<Vec<_>>(),
    })
}

fn name(flag: &'static str, text: &str) -> Result<Nqn, Error> {
    Nqn::new(text).map_err(|reason| Error::usage("nqn", format!("{flag} is {text:?}: {reason}")))
}
