//! What can be changed.

use super::Model;
use serde_json::{Value, json};
use std::{
    fs::OpenOptions,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Seconds within which a change is to be complete: the most that may be asked for.
const WITHIN: u32 = 20;

/// How well a subsystem can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of the standard")]
pub enum Ana {
    Optimized,
    NonOptimized,
    Inaccessible,
    PersistentLoss,
    Change,
}

impl Ana {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Optimized, Self::NonOptimized, Self::Inaccessible, Self::PersistentLoss, Self::Change];

    /// As the control socket has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non_optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent_loss",
            Self::Change => "change",
        }
    }

    /// Hosts may use it.
    #[must_use]
    pub fn is_path(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }
}

/// The ANA group of a namespace, which follows from its identifier: 1 or 2, so that 3 has none.
#[must_use]
pub fn ana_group(namespace: u32) -> u32 {
    2 - namespace % 2
}

/// What a namespace lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Memory, zeros at first; the number makes it another one than those before it.
    Memory(u32),
    /// A file, which keeps what it has until it comes again.
    File(usize),
}

impl Medium {
    /// By which hosts know it again.
    #[must_use]
    pub fn nguid(self) -> String {
        match self {
            Self::Memory(number) => format!("{:032x}", 0x3E00_0000_0000_u64 + u64::from(number)),
            Self::File(number) => format!("{:032x}", 0xF1E0_0000_0000_u64 + number as u64),
        }
    }

    /// Where a file is.
    #[must_use]
    pub fn path(self, folder: &Path) -> Option<PathBuf> {
        if let Self::File(number) = self { Some(folder.join(format!("medium-{number}"))) } else { None }
    }
}

/// One change. Another one is a variant, an arm in [`Self::call`], [`Model::expects`] and `Model::make`, and a row of the table in
/// draw.rs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "parameters of the control socket's methods, by their names there")]
pub enum Change {
    AddNamespace { subsystem: String, namespace: u32, medium: Medium, bytes: u64, read_only: bool },
    RemoveNamespace { subsystem: String, namespace: u32 },
    ResizeNamespace { subsystem: String, namespace: u32, bytes: u64 },
    SetNamespaceActive { subsystem: String, namespace: u32, active: bool },
    AddSubsystem { subsystem: String, hosts: Option<Vec<String>> },
    RemoveSubsystem { subsystem: String },
    SetAllowedHosts { subsystem: String, hosts: Option<Vec<String>> },
    SetAnaState { subsystem: String, group: Option<u32>, state: Ana },
    Drain { host: Option<String> },
    Resume { host: Option<String> },
    SetLogLevel { level: &'static str },
    AddListener { device: Option<String>, address: SocketAddr },
    RemoveListener { address: SocketAddr },
    AddDevice { device: String, listen: SocketAddr },
    RemoveDevice { device: String },
}

impl Change {
    /// The method, and what it takes.
    #[must_use]
    pub fn call(&self, folder: &Path) -> (&'static str, Value) {
        match self {
            Self::AddNamespace { subsystem, namespace, medium, bytes, read_only } => {
                let (kind, value) = match medium.path(folder) {
                    Some(path) => ("file", json!(path)),
                    None => ("memory", json!(bytes.to_string())),
                };
                let all = json!({
                    "subsystem": subsystem, "namespace": namespace, kind: value, "read_only": read_only,
                    "nguid": medium.nguid(), "ana_group": ana_group(*namespace),
                });
                ("add_namespace", all)
            }
            Self::RemoveNamespace { subsystem, namespace } => (
                "remove_namespace",
                json!({ "subsystem": subsystem, "namespace": namespace, "within_seconds": WITHIN }),
            ),
            Self::ResizeNamespace { subsystem, namespace, bytes } => (
                "resize_namespace",
                json!({ "subsystem": subsystem, "namespace": namespace, "bytes": bytes, "within_seconds": WITHIN }),
            ),
            Self::SetNamespaceActive { subsystem, namespace, active } => {
                ("set_namespace_active", json!({ "subsystem": subsystem, "namespace": namespace, "active": active }))
            }
            Self::AddSubsystem { subsystem, hosts } => {
                ("add_subsystem", json!({ "subsystem": subsystem, "hosts": hosts }))
            }
            Self::RemoveSubsystem { subsystem } => {
                ("remove_subsystem", json!({ "subsystem": subsystem, "within_seconds": WITHIN }))
            }
            Self::SetAllowedHosts { subsystem, hosts } => {
                ("set_allowed_hosts", json!({ "subsystem": subsystem, "hosts": hosts, "within_seconds": WITHIN }))
            }
            Self::SetAnaState { subsystem, group, state } => {
                ("set_ana_state", json!({ "subsystem": subsystem, "group": group, "state": state.name() }))
            }
            Self::Drain { host: None } => ("drain", json!({ "within_seconds": WITHIN })),
            Self::Drain { host } => ("drain", json!({ "host": host, "within_seconds": WITHIN })),
            Self::Resume { host: None } => ("resume", json!({})),
            Self::Resume { host } => ("resume", json!({ "host": host })),
            Self::SetLogLevel { level } => ("set_log_level", json!({ "level": level })),
            Self::AddListener { device, address } => {
                let device = device.as_ref().map(|device| format!("{device}/")).unwrap_or_default();
                ("add_listener", json!({ "address": format!("{device}{address}") }))
            }
            Self::RemoveListener { address } => {
                ("remove_listener", json!({ "address": address.to_string(), "within_seconds": WITHIN }))
            }
            Self::AddDevice { device, listen } => {
                ("add_device", json!({ "device": device, "listen": listen.to_string() }))
            }
            Self::RemoveDevice { device } => ("remove_device", json!({ "device": device, "within_seconds": WITHIN })),
        }
    }

    /// Makes the file that it needs as long as it has to be.
    pub(super) fn prepare(&self, folder: &Path, model: &Model) -> io::Result<()> {
        match self {
            Self::AddNamespace { medium, bytes, .. } if model.expects(self) == Some(true) => {
                set_length(medium.path(folder), *bytes)
            }
            Self::ResizeNamespace { subsystem, namespace, bytes } => {
                let found = model.namespace(subsystem, *namespace);
                let longer = found.filter(|found| *bytes > found.bytes);
                longer.map_or(Ok(()), |found| set_length(found.medium.path(folder), *bytes))
            }
            _ => Ok(()),
        }
    }

    /// Where a namespace has become smaller for all, its file may be cut.
    pub(super) fn behind(&self, folder: &Path, model: &Model) -> io::Result<()> {
        let Self::ResizeNamespace { subsystem, namespace, .. } = self else { return Ok(()) };
        let found = model.namespace(subsystem, *namespace);
        found.map_or(Ok(()), |found| set_length(found.medium.path(folder), found.bytes))
    }
}

fn set_length(path: Option<PathBuf>, bytes: u64) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    OpenOptions::new().write(true).create(true).truncate(false).open(path)?.set_len(bytes)
}
