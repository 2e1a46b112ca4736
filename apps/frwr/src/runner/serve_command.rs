//! `frwr serve` as a person asks for it: by its command line, or by a file.

use super::{
    ana_name::{AnaStates, ana_name},
    config_file,
    difference::fixed,
    gateway::GatewayArguments,
    host_keys::KeyFiles,
    namespaces::{ListedNamespace, NamespaceBacking, NamespaceConfig, SubsystemConfig},
    permitted::{DhChapDigest, DhChapGroup, permitted},
    plan::{RETURNING, connections, controllers, default_subsystem, discovery_controllers, entries},
    reservations,
    start::reactors,
};
use crate::{
    Error,
    address::Purpose,
    options::{
        BlockArguments, ControlArguments, CoreArguments, DeviceArguments, InvalidationArguments, Limit, Listen,
        MemoryArguments, OutputArguments, QUEUE_DEPTH, RUNTIME, RegistrationKind, check_address, cores_of,
        few_bytes_with_unit, listen_of, names,
    },
};
use clap::{ArgAction, Args, Id};
use core::{str::FromStr, time::Duration};
use frwr_engine::ReceiveQueues;
use frwr_nvmf::{
    controller::{
        ADMIN_QUEUE_ENTRIES, AllowedHosts, MAX_BUFFER_BYTES, MAX_CONNECTIONS, MAX_CORES, MAX_DATA_BLOCKS,
        MAX_IN_CAPSULE_BYTES, MAX_LISTENERS, MAX_NAMESPACES, MAX_SUBSYSTEMS, MAX_TOTAL_NAMESPACES, TargetOptions,
    },
    dhchap::Permitted,
    storage::MAX_BLOCK_BYTES,
    wire::{AnaState, DISCOVERY_SUBSYSTEM, Nqn, SGL_DESCRIPTOR_BYTES, SerialNumber},
};
use frwr_reactor::Placement;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Each host has receives, transfer slots and data buffers of its own.
const HOSTS: Limit = Limit::new("--hosts", 1, 256);
/// More than a few I/O queues on each core share nothing but memory.
const IO_QUEUES: Limit = Limit::new("--io-queues", 1, 16);
const IN_CAPSULE: Limit = Limit::new("--in-capsule", 0, MAX_IN_CAPSULE_BYTES as u64);
const DATA_BLOCKS: Limit = Limit::new("--data-blocks", 1, MAX_DATA_BLOCKS as u64);
/// Twice what devices are known to have (32767 on ConnectX), and what one core can use.
const SHARED_RECEIVES: Limit = Limit::new("--shared-receives", 1, 1 << 16);
/// As many as one subsystem may have.
const SPARE_NAMESPACES: Limit = Limit::new("--spare-namespaces", 0, MAX_NAMESPACES as u64);
const MAX_SILENCE: Limit = Limit::new("--max-silence", 0, RUNTIME.most());

/// What `--device` takes here.
const DEVICE_HELP: &str = "RDMA device, such as rxe0 or mlx5_0, of those that `frwr check` lists; or soft, or soft:PROFILE (reg_mr, \
    window, umr, umr:fixed-key, rxe): a NIC in software, which reaches those of this user's other processes on this machine. May be \
    given more than once, for the same subsystems on each of them; several software NICs have names, as in soft@a";

/// The default of --max-transfer as people write it: what SPDK's target takes, and what its hosts do without splitting.
const DEFAULT_MAX_TRANSFER: &str = "128K";

/// What a file says instead.
fn instead_of_a_file() -> impl Iterator<Item = Id> {
    let target = names::<TargetArguments>().filter(|name| name.as_str() != "runtime");
    let others = names::<SubsystemArguments>().chain(names::<BlockArguments>()).chain(names::<MemoryArguments>());
    // No target registers anything, whether a file says the rest or not: that is told, and not that a file says it.
    let device = names::<DeviceArguments>().filter(|name| name.as_str() != "registration");
    let all = target.chain(names::<CoreArguments>()).chain(device).chain(others);
    all.chain(names::<InvalidationArguments>()).chain(names::<GatewayArguments>())
}

/// The target's half of the job.
#[derive(Clone, Debug, Args)]
// So that they are told the limits of their option.
#[command(allow_negative_numbers = true)]
#[command(mut_arg("device", |device| device.required_unless_present("config").action(ArgAction::Append)
    .help(DEVICE_HELP)))]
#[command(mut_arg("registration", |registration| registration.hide(true)))]
pub struct ServeArguments {
    /// Everything of what follows in a file instead, and what has no option here: several namespaces, block devices, memory
    /// of a size; TOML, see docs/config.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = instead_of_a_file())]
    pub config: Option<PathBuf>,
    /// Prints what was understood, and ends.
    #[arg(long)]
    pub check_config: bool,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArguments,
    /// The target.
    #[command(flatten)]
    pub target: TargetArguments,
    /// What it offers.
    #[command(flatten)]
    pub subsystem: SubsystemArguments,
    /// What it shares with other gateways.
    #[command(flatten)]
    pub gateway: GatewayArguments,
    /// Its cores.
    #[command(flatten)]
    pub core: CoreArguments,
    /// Its memory.
    #[command(flatten)]
    pub memory: MemoryArguments,
    /// The keys of its hosts.
    #[command(flatten)]
    pub invalidation: InvalidationArguments,
    /// How it is asked and changed. Beside --config what is said here holds, whatever the file says.
    #[command(flatten)]
    pub control: ControlArguments,
    /// What it tells.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// What a command line offers; a file may have several.
#[derive(Clone, Debug, Args)]
pub struct SubsystemArguments {
    /// The file whose bytes the namespace holds. Read once into memory and never written, unless --backing says otherwise. Or an export
    /// of an NBD server: nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH. Or an image of a Ceph cluster: rbd:POOL/IMAGE.
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    pub namespace: Option<PathBuf>,
    /// Where the namespace's bytes live: in memory, or in FILE itself, a file or block device of whole blocks, which hosts
    /// then write to.
    #[arg(long, value_name = "BACKING", value_enum, default_value_t = NamespaceBacking::Memory)]
    pub backing: NamespaceBacking,
    /// Its blocks.
    #[command(flatten)]
    pub block: BlockArguments,
    /// Name of the subsystem: `nqn.` and more. Default: one under a domain that nobody can own.
    #[arg(long, value_name = "NQN")]
    pub subsystem: Option<String>,
    /// A host that may connect, by the name that it gives, which nobody proves; may be given more than once. Default: every host.
    #[arg(long, value_name = "NQN")]
    pub allow_host: Vec<String>,
}

/// The target, whatever it offers.
#[derive(Clone, Debug, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct TargetArguments {
    /// Where to listen: an IP address of the device's network interface, and a port; may be given more than once. Where there are several
    /// devices each has one at least, with its name in front: mlx5_0/10.0.0.1:4420.
    #[arg(long, value_name = "[DEVICE/]ADDR:PORT", required_unless_present = "config")]
    #[serde(deserialize_with = "listen_of")]
    pub listen: Vec<Listen>,
    /// Requests in flight that a host may have at most.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().queue_depth,
        value_parser = QUEUE_DEPTH.parser::<u32>()
    )]
    pub queue_depth: u32,
    /// Hosts at the same time; one that uses several subsystems counts for each. Beside these there is a place for one that comes back
    /// before its former connection is gone, and the discovery service has places of its own, one for each host and one more.
    #[arg(long, value_name = "N", default_value_t = Self::default().hosts, value_parser = HOSTS.parser::<u16>())]
    pub hosts: u16,
    /// I/O queues of a host.
    #[arg(long, value_name = "N", default_value_t = Self::default().io_queues, value_parser = IO_QUEUES.parser::<u16>())]
    pub io_queues: u16,
    /// Bytes of data that may come with a command, a multiple of 16; 0 for none.
    #[arg(
        long, value_name = "BYTES", default_value_t = Self::default().in_capsule,
        value_parser = IN_CAPSULE.parser::<u32>()
    )]
    pub in_capsule: u32,
    /// Pieces of memory that a command may list; more than one travel in the capsule's data, 16 bytes each.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().data_blocks,
        value_parser = DATA_BLOCKS.parser::<u8>()
    )]
    pub data_blocks: u8,
    /// Receives of a core that all its connections share, where the device has shared receive queues: memory for the
    /// commands that are admitted together, and one post for all of them. Hosts for whom none are left are refused. "off": each
    /// connection has as many as its largest queue.
    #[arg(long, value_name = "N|off", default_value = "off")]
    pub shared_receives: SharedReceives,
    /// Bytes of the largest transfer of a command, a power of two from 64K to 8M. Each data buffer has as many, and all of them some
    /// 200 MiB on each core, at 1M 330 MiB and at 8M 600 MiB: a line says how many there are.
    #[arg(long, value_name = "BYTES", default_value = DEFAULT_MAX_TRANSFER, value_parser = transfer_bytes)]
    #[serde(deserialize_with = "config_file::bytes_of")]
    pub max_transfer: u64,
    /// Seconds that a host which asked for no keep alive may be silent, until its device is asked whether it is there; one that answers
    /// stays. 0: for ever, so that hosts which vanish keep their places.
    #[arg(
        long, value_name = "SECONDS", default_value_t = Self::default().max_silence,
        value_parser = MAX_SILENCE.parser::<u64>()
    )]
    pub max_silence: u64,
    /// Namespaces that may be added while it serves, over its control socket; one that was removed makes room for another. Each costs
    /// some hundred bytes on each core and some for each subsystem, and hosts are told that there may be so many more.
    #[arg(
        long, value_name = "N", default_value_t = Self::default().spare_namespaces,
        value_parser = SPARE_NAMESPACES.parser::<u32>()
    )]
    pub spare_namespaces: u32,
    /// Every host has to prove itself: who has no key of a `[[host]]` in --config, or by `frwr ctl set_host_key`, is refused. Without, a
    /// host that has no key need not.
    #[arg(long)]
    pub require_authentication: bool,
    /// Hash functions that hosts may prove themselves with, the best first; the first that the host offers is used.
    #[arg(
        long, value_name = "DIGEST,...", value_enum, value_delimiter = ',',
        default_values_t = Self::default().dhchap_digests
    )]
    pub dhchap_digests: Vec<DhChapDigest>,
    /// Diffie-Hellman groups that they may do so with, the best first; the first that the host offers is used. The largest costs 60 ms of
    /// processor time for each queue that connects, whoever asks; null is no exchange.
    #[arg(
        long, value_name = "GROUP,...", value_enum, value_delimiter = ',',
        default_values_t = Self::default().dhchap_dhgroups
    )]
    pub dhchap_dhgroups: Vec<DhChapGroup>,
    /// The file in which reservations are kept that hosts want to survive a restart (persist through power loss); made where there is
    /// none. Without, no host may ask for that, and all reservations end with this process.
    #[arg(long, value_name = "FILE")]
    pub reservations: Option<PathBuf>,
    /// Ends after so many seconds. Default: at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = RUNTIME.parser::<u64>())]
    pub runtime: Option<u64>,
}

impl Default for TargetArguments {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            queue_depth: 128,
            hosts: 8,
            io_queues: 4,
            // A block.
            in_capsule: 4096,
            data_blocks: 1,
            shared_receives: SharedReceives(None),
            max_transfer: transfer_bytes(DEFAULT_MAX_TRANSFER).unwrap_or_default(),
            // Long enough to cost nothing, and short enough that places of hosts that are gone come back before somebody looks for them
            // by hand.
            max_silence: 300,
            // What somebody adds by hand before he has time to start it again.
            spare_namespaces: 8,
            require_authentication: false,
            dhchap_digests: DhChapDigest::usual(),
            dhchap_dhgroups: DhChapGroup::usual(),
            reservations: None,
            runtime: None,
        }
    }
}

impl TargetArguments {
    /// Checks the numbers, each and together.
    fn check(&self) -> Result<(), Error> {
        let Self { hosts, io_queues, in_capsule, data_blocks, .. } = *self;
        QUEUE_DEPTH.check(self.queue_depth)?;
        RUNTIME.check_said(self.runtime)?;
        HOSTS.check(hosts)?;
        IO_QUEUES.check(io_queues)?;
        let queues = connections(hosts, io_queues);
        if queues > MAX_CONNECTIONS {
            let text = format!(
                "--io-queues is {io_queues} for each of {hosts} hosts: with their admin queues, those of a host that comes back, \
                 and those of discovery and of who is not let in yet, {queues} queues, must be {MAX_CONNECTIONS} at most; lower \
                 one of the two"
            );
            return Err(Error::usage("queues", text));
        }
        IN_CAPSULE.check(in_capsule)?;
        if !in_capsule.is_multiple_of(16) {
            let text = format!("--in-capsule is {in_capsule}: must be a multiple of 16; choose the next one");
            return Err(Error::usage("in_capsule_bytes", text));
        }
        DATA_BLOCKS.check(data_blocks)?;
        let wanted = u32::from(data_blocks) * SGL_DESCRIPTOR_BYTES as u32;
        if data_blocks > 1 && wanted > in_capsule {
            let text = format!(
                "--data-blocks is {data_blocks}: their descriptors need {wanted} bytes of data in the capsule, which takes \
                 {in_capsule}; raise that, or lower this"
            );
            return Err(Error::usage("data_blocks", text));
        }
        MAX_SILENCE.check(self.max_silence)?;
        SPARE_NAMESPACES.check(self.spare_namespaces)?;
        self.check_permitted()?;
        self.check_max_transfer()
    }

    /// With none of either no host could prove itself.
    fn check_permitted(&self) -> Result<(), Error> {
        for (flag, is_empty) in [
            ("--dhchap-digests", self.dhchap_digests.is_empty()),
            ("--dhchap-dhgroups", self.dhchap_dhgroups.is_empty()),
        ] {
            if is_empty {
                let text = format!("{flag} names none: must be one at least; name some, or leave it out");
                return Err(Error::usage("dhchap", text));
            }
        }
        Ok(())
    }

    /// What hosts may prove themselves with.
    pub(super) fn permitted(&self) -> Permitted {
        permitted(&self.dhchap_digests, &self.dhchap_dhgroups)
    }

    /// Each address can be, is there once, and is of one of these devices, each of which has one. What has no device in front where there is
    /// one is that one's, and says so by naming none.
    fn check_listen(&mut self, devices: &[String]) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::usage("listen", text));
        for one in &mut self.listen {
            check_address("--listen", one.address, Purpose::Listen)?;
            one.device = device_of("--listen", one, devices).map_err(|text| Error::usage("listen", text))?;
        }
        for device in devices {
            let count = self.of_device(devices, device).count();
            let (of, example) = match devices {
                [_] => (String::new(), "10.0.0.1:4420".to_owned()),
                _ => (format!(" for {device}"), format!("{device}/10.0.0.1:4420")),
            };
            if count > MAX_LISTENERS {
                return wrong(format!(
                    "--listen is given {count} times{of}: may be {MAX_LISTENERS} times at most; leave some out"
                ));
            }
            if count == 0 {
                return wrong(format!(
                    "--listen is given no time{of}: each device has one at least; add one, such as {example}"
                ));
            }
        }
        for (at, one) in self.listen.iter().enumerate() {
            if self.listen[..at].iter().any(|other| other.address == one.address) {
                return wrong(format!("--listen has {} twice; name it once", one.address));
            }
        }
        Ok(())
    }

    /// Controllers that there may be on each device, those of discovery included.
    fn controllers(&self) -> u32 {
        u32::from(controllers(self.hosts)) + u32::from(discovery_controllers(self.hosts))
    }

    /// Those of one of the devices.
    fn of_device<'a>(&'a self, devices: &[String], device: &'a str) -> impl Iterator<Item = &'a Listen> {
        let is_alone = devices.len() == 1;
        self.listen.iter().filter(move |one| is_alone || one.device.as_deref() == Some(device))
    }

    /// Every block size that a namespace may have, and what one data block can describe.
    fn check_max_transfer(&self) -> Result<(), Error> {
        let (value, least, most) = (self.max_transfer, u64::from(MAX_BLOCK_BYTES), u64::from(MAX_BUFFER_BYTES));
        if value.is_power_of_two() && (least..=most).contains(&value) {
            return Ok(());
        }
        let remedy = "choose the next one, such as 128K or 1M";
        let text = format!("--max-transfer is {value}: must be a power of two from {least} to {most}; {remedy}");
        Err(Error::usage("max_transfer", text))
    }

    /// Checks that there are receives for all queues of one host, at least; the device's own limit is told when it is opened.
    fn check_shared_receives(&self, placement: Option<&Placement>) -> Result<(), Error> {
        let Some(value) = self.shared_receives.0 else { return Ok(()) };
        SHARED_RECEIVES.check(value)?;
        let cores = placement.map_or(1, reactors).max(1);
        // The core that has the admin queue has as many I/O queues as any. Both are far below 2^16.
        let (entries, io_queues) = (entries(self.queue_depth), usize::from(self.io_queues).div_ceil(cores) as u16);
        let wanted = u32::from(ADMIN_QUEUE_ENTRIES) + u32::from(entries) * u32::from(io_queues);
        if value >= wanted {
            return Ok(());
        }
        let text = format!(
            "--shared-receives is {value}: the queues that one host has on a core need {wanted}, {ADMIN_QUEUE_ENTRIES} for its \
             admin queue and {entries} for each of {io_queues}; raise it, or lower the number of I/O queues or the queue depth"
        );
        Err(Error::usage("shared_receives", text))
    }

    /// The target that listens at the addresses of one of the devices.
    fn options(&self, devices: &[String], device: &str) -> Result<TargetOptions, Error> {
        let addresses: Vec<_> = self.of_device(devices, device).map(|one| one.address).collect();
        // It was checked that there is one.
        let first = *addresses.first().ok_or_else(Error::lost)?;
        // Its subsystem is not looked at where subsystems are given, as here.
        let mut options = TargetOptions::new(first, default_subsystem()?);
        options.addresses = addresses;
        options.io_queues = self.io_queues;
        options.in_capsule_bytes = self.in_capsule;
        options.data_blocks = self.data_blocks;
        if let SharedReceives(Some(entries)) = self.shared_receives {
            options.receive_queues = ReceiveQueues::Shared { entries };
        }
        options.queue_entries = entries(self.queue_depth);
        // Checked: 8 MiB at most.
        options.buffer_bytes = self.max_transfer as u32;
        options.controllers = controllers(self.hosts);
        // Those that are added while it serves have room: an entry each.
        options.subsystems = MAX_SUBSYSTEMS as u16;
        options.returning_controllers = RETURNING;
        options.discovery_controllers = discovery_controllers(self.hosts);
        options.max_silence = Duration::from_secs(self.max_silence);
        Ok(options)
    }
}

/// The device that a listener names, as the option that lists them has it; `None` where there is one.
///
/// # Errors
/// There are several, and it names none, or another one.
pub(super) fn device_of(option: &str, listen: &Listen, devices: &[String]) -> Result<Option<String>, String> {
    let known = devices.join(", ");
    let named = listen.device.as_deref().map(|named| devices.iter().find(|device| is_called(device, named)));
    match (named, devices) {
        (None | Some(Some(_)), [_]) => Ok(None),
        (Some(Some(device)), _) => Ok(Some(device.clone())),
        (Some(None), _) => Err(format!("{option} is {listen}, and no --device is of that name; name one of {known}")),
        (None, _) => {
            let address = listen.address;
            Err(format!(
                "{option} is {address}, and there are several devices; say which one's, as DEVICE/{address} with one of {known}"
            ))
        }
    }
}

/// Whether somebody calls a device so: as it was given, or as reports name it.
fn is_called(device: &str, named: &str) -> bool {
    let label = |name: &str| DeviceArguments { device: vec![name.to_owned()], ..DeviceArguments::default() }.label();
    device == named || label(device) == label(named)
}

/// The value of `--shared-receives`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SharedReceives(pub Option<u32>);

impl FromStr for SharedReceives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be off, or a whole number up to {}", SHARED_RECEIVES.most());
        if text == "off" {
            Ok(Self(None))
        } else {
            text.parse().map(|entries| Self(Some(entries))).map_err(|_| wrong())
        }
    }
}

/// A parser of the bytes of the largest transfer; which of them are too many, or no power of two, is known where they are used.
fn transfer_bytes(text: &str) -> Result<u64, String> {
    few_bytes_with_unit(text).map(u64::from).ok_or_else(|| {
        format!("must be a power of two from {MAX_BLOCK_BYTES} to {MAX_BUFFER_BYTES} bytes, such as 128K or 1M")
    })
}

impl SubsystemArguments {
    /// What is offered.
    fn config(&self) -> Result<SubsystemConfig, Error> {
        let nqn = self.subsystem.as_deref().map_or_else(default_subsystem, |text| name("--subsystem", text))?;
        check_subsystem(&nqn)?;
        let allowed = self.allow_host.iter().map(|host| name("--allow-host", host));
        let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
        let allowed_hosts = if allowed.is_empty() { AllowedHosts::Any } else { AllowedHosts::Listed(allowed) };
        let block_bytes = self.block.block_size;
        BlockArguments::check(block_bytes, MAX_BLOCK_BYTES)?;
        // The command line requires it.
        let namespace = self.namespace.clone().ok_or_else(Error::lost)?;
        let config = NamespaceConfig::of_command_line(namespace, self.backing, block_bytes)?;
        let namespaces = vec![ListedNamespace { identifier: 1, nguid: None, active: true, bytes: None, config }];
        Ok(SubsystemConfig { nqn, allowed_hosts, serial: None, ana: AnaStates::default(), namespaces })
    }
}

/// The arguments of `serve`, or what its file says instead, checked.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// What was asked for, and what holds by default.
    pub arguments: ServeArguments,
    /// What it offers, at least one subsystem with at least one namespace.
    pub subsystems: Vec<SubsystemConfig>,
    /// Where the keys of hosts are that have to prove themselves, by the hosts' names.
    pub host_keys: BTreeMap<String, KeyFiles>,
    /// Where the reactors go; `None` lets the machine decide.
    pub placement: Option<Placement>,
    /// What the command line says beside a file.
    beside: Beside,
}

/// What a command line says that holds whatever a file says.
#[derive(Clone, Debug)]
struct Beside {
    control: ControlArguments,
    runtime: Option<u64>,
}

impl ServeConfig {
    /// Checks arguments.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub fn new(arguments: ServeArguments) -> Result<Self, Error> {
        RUNTIME.check_said(arguments.target.runtime)?;
        if arguments.device.registration != RegistrationKind::Auto {
            let text = "--registration: a target opens no memory to its hosts, so there is nothing that it would register by \
                        windows or by lists; leave it out, it is for load";
            return Err(Error::usage("target_registration", text));
        }
        let beside = Beside { control: arguments.control.clone(), runtime: arguments.target.runtime };
        let config = match arguments.config.clone() {
            Some(path) => config_file::read(&path, arguments),
            None => {
                let subsystem = arguments.subsystem.config()?;
                Self::checked(arguments, vec![subsystem])
            }
        };
        config.map(|config| Self { beside, ..config })
    }

    /// What a file says that is read beside the same command line.
    pub(super) fn of_text(&self, path: &Path, text: &str) -> Result<Self, Error> {
        let Beside { control, runtime } = self.beside.clone();
        let target = TargetArguments { runtime, ..self.arguments.target.clone() };
        config_file::parse(path, text, ServeArguments { control, target, ..self.arguments.clone() })
    }

    /// The same, of a target that listens there by now.
    pub(super) fn listening_at(&self, listen: Vec<Listen>) -> Self {
        let mut config = self.clone();
        config.arguments.target.listen = listen;
        config
    }

    /// Options that the other one has otherwise: none of them is changed while a target serves.
    pub(super) fn other_options(&self, other: &Self) -> Vec<String> {
        let (is, wanted) = (self.options_json(), other.options_json());
        let differing = is.iter().filter_map(|(key, is)| {
            // Listeners come and go.
            let wanted = wanted.get(key).filter(|wanted| *wanted != is && key != "listen")?;
            Some(fixed(key, said(wanted), said(is), "it is for the start alone, leave it as it is"))
        });
        differing.collect()
    }

    /// The same of what a file says.
    pub(super) fn checked(mut arguments: ServeArguments, subsystems: Vec<SubsystemConfig>) -> Result<Self, Error> {
        arguments.device.check()?;
        let devices = arguments.device.device.clone();
        arguments.target.check_listen(&devices)?;
        let ServeArguments { device, target, core, gateway, .. } = &arguments;
        target.check()?;
        reservations::check(target, gateway)?;
        gateway.check(devices.len(), &target.listen, target.controllers())?;
        core.check()?;
        let placement = device.placement(MAX_CORES.into())?;
        core.idle.check_cores(placement.as_ref())?;
        target.check_shared_receives(placement.as_ref())?;
        arguments.control.check()?;
        arguments.device.cores = placement.as_ref().map(cores_of);
        let beside = Beside { control: arguments.control.clone(), runtime: arguments.target.runtime };
        Ok(Self { subsystems, host_keys: BTreeMap::new(), placement, arguments, beside })
    }

    /// Names of the devices that it serves on, at least one.
    pub(super) fn devices(&self) -> &[String] {
        &self.arguments.device.device
    }

    /// The target of one of them, on so many cores.
    pub(super) fn options(&self, device: usize, cores: usize) -> Result<TargetOptions, Error> {
        let ServeArguments { device: arguments, target, invalidation, gateway, .. } = &self.arguments;
        let (devices, name) = (self.devices(), self.devices().get(device).ok_or_else(Error::lost)?);
        let mut options = gateway.of_target(target.options(devices, name)?);
        // At most MAX_TARGETS.
        (options.target, options.targets) = (device as u16, devices.len() as u16);
        options.remote_invalidation = invalidation.remote_invalidate;
        options.parameters = arguments.parameters();
        let started: usize = self.subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum();
        // Few enough for 32 bits, as the number of subsystems and of namespaces in each is limited.
        let namespaces = (started as u32 + target.spare_namespaces).min(MAX_TOTAL_NAMESPACES);
        // Identifiers have the same limit, and what was removed before a file was saved leaves them free.
        let identifiers = self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces).map(|one| one.identifier);
        options.namespaces = namespaces.max(identifiers.max().unwrap_or_default());
        // At most MAX_CORES.
        options.cores = cores as u16;
        Ok(options)
    }

    /// What was understood, as JSON; names as in the file.
    #[must_use]
    pub fn describe(&self) -> Value {
        let mut all = self.options_json();
        if !self.host_keys.is_empty() {
            all.insert("host".to_owned(), self.host_keys.iter().map(host_json).collect());
        }
        all.insert("subsystem".to_owned(), self.subsystems.iter().map(subsystem_json).collect());
        Value::Object(all)
    }

    /// The same without what it offers.
    pub(super) fn options_json(&self) -> Map<String, Value> {
        #[derive(Serialize)]
        struct Understood<'a> {
            #[serde(flatten)]
            device: &'a DeviceArguments,
            #[serde(flatten)]
            target: &'a TargetArguments,
            #[serde(flatten)]
            gateway: &'a GatewayArguments,
            #[serde(flatten)]
            core: &'a CoreArguments,
            #[serde(flatten)]
            memory: &'a MemoryArguments,
            #[serde(flatten)]
            invalidation: &'a InvalidationArguments,
            #[serde(flatten)]
            control: &'a ControlArguments,
        }
        let ServeArguments { device, target, gateway, core, memory, invalidation, control, .. } = &self.arguments;
        // Names and numbers: there is nothing that JSON has not.
        match serde_json::to_value(Understood { device, target, gateway, core, memory, invalidation, control }) {
            Ok(Value::Object(options)) => options,
            _ => Map::new(),
        }
    }
}

/// A value, for people.
fn said(value: &Value) -> String {
    if value.is_null() { "left out".to_owned() } else { value.to_string() }
}

/// One that is not the discovery service's, which each target has beside its subsystems.
pub(super) fn check_subsystem(nqn: &Nqn) -> Result<(), Error> {
    if nqn.as_str() != DISCOVERY_SUBSYSTEM {
        return Ok(());
    }
    let reason = "the discovery service, which is there anyway, has this name; choose another";
    Err(Error::usage("nqn", format!("--subsystem is {:?}: {reason}", nqn.as_str())))
}

fn host_json((host, files): (&String, &KeyFiles)) -> Value {
    let mut value = files.json();
    value["nqn"] = host.as_str().into();
    value
}

fn subsystem_json(subsystem: &SubsystemConfig) -> Value {
    let hosts = match &subsystem.allowed_hosts {
        AllowedHosts::Any => None,
        AllowedHosts::Listed(hosts) => Some(hosts),
    };
    let state = |(group, state): (&u32, &AnaState)| (group.to_string(), Value::from(ana_name(*state)));
    json!({
        "nqn": subsystem.nqn.as_str(),
        "allowed_hosts": hosts.map(|hosts| hosts.iter().map(Nqn::as_str).collect::<Vec<_>>()),
        "serial": subsystem.serial.as_ref().map(SerialNumber::as_str),
        "ana_state": ana_name(subsystem.ana.all),
        "ana_states": subsystem.ana.but.iter().map(state).collect::<Map<_, _>>(),
        "namespace": subsystem.namespaces.iter().map(ListedNamespace::json).collect::<Vec<_>>(),
    })
}

fn name(flag: &'static str, text: &str) -> Result<Nqn, Error> {
    Nqn::new(text).map_err(|reason| Error::usage("nqn", format!("{flag} is {text:?}: {reason}")))
}
