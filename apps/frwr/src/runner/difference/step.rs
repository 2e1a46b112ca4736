//! One change of a target: what people are told, and the method that makes it.

use super::super::{
    ana_name::ana_name,
    key_files::KeyFiles,
    load_file::hex,
    namespaces::{ListedNamespace, NamespaceConfig},
};
use crate::{options::Listen, output::in_line};
use frwr_nvmf::{
    controller::AllowedHosts,
    wire::{AnaState, Nqn, SerialNumber},
};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

/// What has to be gone before something else can come is waited for as long as a change may be.
const FIRST_WITHIN: u32 = 20;

/// One change, which is one call of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Step {
    AddSubsystem {
        nqn: Nqn,
        serial: Option<SerialNumber>,
        hosts: AllowedHosts,
    },
    Ana {
        nqn: Nqn,
        group: Option<u32>,
        from: AnaState,
        to: AnaState,
    },
    Hosts {
        nqn: Nqn,
        from: AllowedHosts,
        to: AllowedHosts,
    },
    AddNamespace {
        nqn: Nqn,
        namespace: ListedNamespace,
    },
    Resize {
        nqn: Nqn,
        identifier: u32,
        from: u64,
        to: u64,
    },
    Active {
        nqn: Nqn,
        identifier: u32,
        active: bool,
    },
    RemoveNamespace {
        nqn: Nqn,
        identifier: u32,
        medium: NamespaceConfig,
        first: bool,
    },
    RemoveSubsystem {
        nqn: Nqn,
        namespaces: usize,
        first: bool,
    },
    AddDevice {
        device: String,
        listen: Vec<SocketAddr>,
    },
    RemoveDevice {
        device: String,
        first: bool,
    },
    AddListener {
        listen: Listen,
    },
    RemoveListener {
        listen: Listen,
        first: bool,
    },
    /// The keys of a host are those of these files, where it may have `had` others.
    HostKey {
        host: String,
        files: KeyFiles,
        had: bool,
    },
    ClearHostKey {
        host: String,
    },
}

impl Step {
    /// What goes makes room for what comes.
    pub(super) fn before_what_comes(mut self) -> Self {
        if let Self::RemoveNamespace { first, .. } | Self::RemoveSubsystem { first, .. } = &mut self {
            *first = true;
        }
        self
    }

    /// The order in which steps are made.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::RemoveNamespace { first: true, .. } | Self::RemoveSubsystem { first: true, .. } => 0,
            // Who connects from now on proves itself by them.
            Self::HostKey { .. } => 0,
            Self::AddSubsystem { .. } => 1,
            Self::Ana { .. } => 2,
            Self::Hosts { .. } => 3,
            Self::AddNamespace { .. } => 4,
            Self::Resize { .. } => 5,
            Self::Active { .. } => 6,
            // Nobody can come meanwhile: as short as that can be.
            Self::RemoveListener { first: true, .. } | Self::RemoveDevice { first: true, .. } => 7,
            // Who comes by it finds what there is to be.
            Self::AddListener { .. } | Self::AddDevice { .. } => 8,
            Self::RemoveListener { .. } => 9,
            Self::RemoveNamespace { .. } => 10,
            Self::RemoveSubsystem { .. } => 11,
            // Who says that it is a host without a key is believed: by then lists of hosts are what they are to be.
            Self::ClearHostKey { .. } => 12,
            // Behind everything that may fail: hosts that use it lose it.
            Self::RemoveDevice { .. } => 13,
        }
    }

    /// What people are told: + for what comes, - for what goes, ~ for what is otherwise.
    pub(in super::super) fn lines(&self) -> Vec<String> {
        let one = match self {
            Self::AddSubsystem { nqn, .. } => format!("+ subsystem {}", name(nqn)),
            Self::Ana { nqn, group, from, to } => {
                let of = group.map_or_else(String::new, |group| format!("ANA group {group} of "));
                format!("~ ana_state of {of}{}: {} -> {}", name(nqn), ana_name(*from), ana_name(*to))
            }
            Self::Hosts { nqn, from, to } => return hosts(nqn, from, to),
            Self::AddNamespace { nqn, namespace } => {
                let ListedNamespace { identifier, config, active, .. } = namespace;
                let inactive = if *active { "" } else { ", inactive" };
                format!("+ namespace {identifier} of {}: {}{inactive}", name(nqn), lives_in(config))
            }
            Self::Resize { nqn, identifier, from, to } => {
                format!("~ size of namespace {identifier} of {}: {from} -> {to} bytes", name(nqn))
            }
            Self::Active { nqn, identifier, active } => {
                let to = if *active { "inactive -> active" } else { "active -> inactive" };
                format!("~ namespace {identifier} of {}: {to}", name(nqn))
            }
            Self::RemoveNamespace { nqn, identifier, medium, .. } => {
                format!("- namespace {identifier} of {}: {}", name(nqn), lives_in(medium))
            }
            Self::RemoveSubsystem { nqn, namespaces, .. } => {
                format!("- subsystem {}, with {namespaces} namespaces", name(nqn))
            }
            Self::HostKey { host, had, .. } => {
                format!("{} key of host {}", if *had { '~' } else { '+' }, in_line(host))
            }
            Self::ClearHostKey { host } => format!("- key of host {}", in_line(host)),
            Self::AddDevice { device, listen } => {
                let at: Vec<_> = listen.iter().map(ToString::to_string).collect();
                format!("+ device {device}, at {}", at.join(", "))
            }
            Self::RemoveDevice { device, .. } => format!("- device {device}"),
            Self::AddListener { listen } => format!("+ listener {listen}"),
            Self::RemoveListener { listen, .. } => format!("- listener {listen}"),
        };
        vec![one]
    }

    /// The method that makes it, as if somebody had typed it.
    pub(in super::super) fn call(&self) -> (&'static str, Map<String, Value>) {
        let (method, parameters) = match self {
            Self::AddSubsystem { nqn, serial, hosts } => {
                let serial = serial.as_ref().map(SerialNumber::as_str);
                ("add_subsystem", json!({ "subsystem": nqn.as_str(), "hosts": hosts_json(hosts), "serial": serial }))
            }
            Self::Ana { nqn, group, to, .. } => {
                ("set_ana_state", json!({ "subsystem": nqn.as_str(), "group": group, "state": ana_name(*to) }))
            }
            Self::Hosts { nqn, to, .. } => {
                ("set_allowed_hosts", json!({ "subsystem": nqn.as_str(), "hosts": hosts_json(to) }))
            }
            Self::AddNamespace { nqn, namespace } => ("add_namespace", new_namespace(nqn, namespace)),
            Self::Resize { nqn, identifier, to, .. } => {
                ("resize_namespace", json!({ "subsystem": nqn.as_str(), "namespace": identifier, "bytes": to }))
            }
            Self::Active { nqn, identifier, active } => (
                "set_namespace_active",
                json!({ "subsystem": nqn.as_str(), "namespace": identifier, "active": active }),
            ),
            Self::RemoveNamespace { nqn, identifier, first, .. } => {
                let within = first.then_some(FIRST_WITHIN);
                let parameters =
                    json!({ "subsystem": nqn.as_str(), "namespace": identifier, "within_seconds": within });
                ("remove_namespace", parameters)
            }
            Self::RemoveSubsystem { nqn, first, .. } => {
                let within = first.then_some(FIRST_WITHIN);
                ("remove_subsystem", json!({ "subsystem": nqn.as_str(), "within_seconds": within }))
            }
            Self::HostKey { host, files, .. } => {
                let mut parameters = files.json();
                parameters["host"] = host.as_str().into();
                ("set_host_key", parameters)
            }
            Self::ClearHostKey { host } => ("clear_host_key", json!({ "host": host })),
            Self::AddDevice { device, listen } => {
                let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
                ("add_device", json!({ "device": device, "listen": listen }))
            }
            Self::RemoveDevice { device, first } => {
                let within = first.then_some(FIRST_WITHIN);
                ("remove_device", json!({ "device": device, "within_seconds": within }))
            }
            Self::AddListener { listen } => ("add_listener", json!({ "address": listen.to_string() })),
            Self::RemoveListener { listen, .. } => ("remove_listener", json!({ "address": listen.to_string() })),
        };
        let Value::Object(parameters) = parameters else { return (method, Map::new()) };
        (method, parameters)
    }
}

fn name(nqn: &Nqn) -> String {
    in_line(nqn.as_str())
}

fn lives_in(config: &NamespaceConfig) -> String {
    in_line(&config.name())
}

fn hosts_json(hosts: &AllowedHosts) -> Value {
    match hosts {
        AllowedHosts::Any => Value::Null,
        AllowedHosts::Listed(hosts) => hosts.iter().map(Nqn::as_str).collect(),
    }
}

fn hosts(of: &Nqn, from: &AllowedHosts, to: &AllowedHosts) -> Vec<String> {
    if let (AllowedHosts::Listed(from), AllowedHosts::Listed(to)) = (from, to) {
        let line = |sign: char, host: &Nqn| format!("{sign} host {} of {}", name(host), name(of));
        let come = to.iter().filter(|host| !from.contains(host)).map(|host| line('+', host));
        let go = from.iter().filter(|host| !to.contains(host)).map(|host| line('-', host));
        return come.chain(go).collect();
    }
    let told = |hosts: &AllowedHosts| match hosts {
        AllowedHosts::Any => "all".to_owned(),
        AllowedHosts::Listed(hosts) if hosts.is_empty() => "none".to_owned(),
        AllowedHosts::Listed(hosts) => hosts.iter().map(name).collect::<Vec<_>>().join(", "),
    };
    vec![format!("~ hosts of {}: {} -> {}", name(of), told(from), told(to))]
}

fn new_namespace(of: &Nqn, namespace: &ListedNamespace) -> Value {
    let mut parameters = namespace.config.json();
    parameters["subsystem"] = of.as_str().into();
    parameters["namespace"] = namespace.identifier.into();
    parameters["nguid"] = namespace.nguid.as_ref().map(hex).into();
    parameters["bytes"] = namespace.bytes.into();
    parameters["active"] = namespace.active.into();
    parameters
}
