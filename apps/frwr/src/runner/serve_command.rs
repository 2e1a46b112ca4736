//! `frwr serve` as a person asks for it: by its command line, or by a file.

mod target;

pub use target::{SharedReceives, TargetArguments};

use super::{
    ana_name::{AnaStates, ana_name},
    difference::fixed,
    gateway::GatewayArguments,
    key_files::KeyFiles,
    names::default_subsystem,
    namespaces::{ListedNamespace, NamespaceBacking, NamespaceConfig, SubsystemConfig},
};
use crate::{
    Error,
    options::{
        BlockArguments, ControlArguments, CoreArguments, DeviceArguments, InvalidationArguments, Listen,
        MemoryArguments, OutputArguments, RUNTIME, RegistrationKind, cores_of, names,
    },
};
use clap::{ArgAction, Args, Id};
use frwr_nvmf::{
    controller::{AllowedHosts, MAX_CORES, MAX_TOTAL_NAMESPACES, TargetOptions},
    storage::MAX_BLOCK_BYTES,
    wire::{AnaState, DISCOVERY_SUBSYSTEM, Nqn, SerialNumber},
};
use frwr_reactor::Placement;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

/// What `--device` takes here.
const DEVICE_HELP: &str = "RDMA device, such as rxe0 or mlx5_0, of those that `frwr check` lists; or soft, or soft:PROFILE (reg_mr, \
    window, umr, umr:fixed-key, rxe): a NIC in software, which reaches those of this user's other processes on this machine. May be \
    given more than once, for the same subsystems on each of them; several software NICs have names, as in soft@a";

/// What a file says instead.
fn instead_of_a_file() -> impl Iterator<Item = Id> {
    let target = names::<TargetArguments>().filter(|name| name.as_str() != "runtime");
    let others = names::<SubsystemArguments>().chain(names::<BlockArguments>()).chain(names::<MemoryArguments>());
    // No target registers anything, whether a file says the rest or not: that is told, and not that a file says it.
    let device = names::<DeviceArguments>().filter(|name| name.as_str() != "registration");
    let all = target.chain(names::<CoreArguments>()).chain(device).chain(others);
    all.chain(names::<InvalidationArguments>()).chain(names::<GatewayArguments>())
}

/// What is kept here holds for hosts of this gateway alone.
///
/// # Errors
/// There are others, and somebody wants reservations in a file.
fn check_reservations(target: &TargetArguments, gateway: &GatewayArguments) -> Result<(), Error> {
    if target.reservations.is_none() || !gateway.is_one_of_several() {
        return Ok(());
    }
    let text = "--reservations: is not for one of several gateways (--controller-ids, --first-port-id, --other-gateway), since \
                hosts of the others would not be held to what is kept here; leave it out";
    Err(Error::usage("reservations", text))
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
pub(super) fn is_called(device: &str, named: &str) -> bool {
    let label = |name: &str| DeviceArguments { device: vec![name.to_owned()], ..DeviceArguments::default() }.label();
    device == named || label(device) == label(named)
}

impl SubsystemArguments {
    /// What is offered.
    pub(super) fn config(&self) -> Result<SubsystemConfig, Error> {
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
    /// What only a command line can say wrong.
    ///
    /// # Errors
    /// [`Error`] names limit, value and remedy.
    pub(super) fn check_command_line(arguments: &ServeArguments) -> Result<(), Error> {
        RUNTIME.check_said(arguments.target.runtime)?;
        if arguments.device.registration != RegistrationKind::Auto {
            let text = "--registration: a target opens no memory to its hosts, so there is nothing that it would register by \
                        windows or by lists; leave it out, it is for load";
            return Err(Error::usage("target_registration", text));
        }
        Ok(())
    }

    /// The same, as a command line with these arguments says it, whatever file it names.
    pub(super) fn beside(self, arguments: &ServeArguments) -> Self {
        let beside = Beside { control: arguments.control.clone(), runtime: arguments.target.runtime };
        Self { beside, ..self }
    }

    /// The command line beside which a file is read.
    pub(super) fn command_line(&self) -> ServeArguments {
        let Beside { control, runtime } = self.beside.clone();
        let target = TargetArguments { runtime, ..self.arguments.target.clone() };
        ServeArguments { control, target, ..self.arguments.clone() }
    }

    /// The same, of a target that has these devices by now, and listens there.
    pub(super) fn listening_at(&self, devices: Vec<String>, listen: Vec<Listen>) -> Self {
        let mut config = self.clone();
        (config.arguments.device.device, config.arguments.target.listen) = (devices, listen);
        config
    }

    /// Options that the other one has otherwise: none of them is changed while a target serves.
    pub(super) fn other_options(&self, other: &Self) -> Vec<String> {
        let (is, wanted) = (self.options_json(), other.options_json());
        let differing = is.iter().filter_map(|(key, is)| {
            // Devices and listeners come and go.
            let comes_and_goes = matches!(key.as_str(), "device" | "listen");
            let wanted = wanted.get(key).filter(|wanted| *wanted != is && !comes_and_goes)?;
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
        check_reservations(target, gateway)?;
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

    /// Devices that there may be at a time, those that it is started with included.
    pub(super) fn places(&self) -> u16 {
        let ServeArguments { target, gateway, .. } = &self.arguments;
        gateway.places(target.controllers())
    }

    /// The target of one of the devices that it is started with, on so many cores.
    pub(super) fn options(&self, device: usize, cores: usize) -> Result<TargetOptions, Error> {
        let name = self.devices().get(device).ok_or_else(Error::lost)?;
        self.options_at(device, self.arguments.target.addresses(self.devices(), name), cores)
    }

    /// The target of the device of a place, at these addresses, on so many cores.
    pub(super) fn options_at(
        &self,
        place: usize,
        addresses: Vec<SocketAddr>,
        cores: usize,
    ) -> Result<TargetOptions, Error> {
        let ServeArguments { device: arguments, target, invalidation, gateway, .. } = &self.arguments;
        let mut options = gateway.of_target(target.options(addresses)?);
        // At most MAX_TARGETS.
        (options.target, options.targets) = (place as u16, self.places());
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
