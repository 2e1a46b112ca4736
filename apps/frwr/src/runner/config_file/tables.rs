//! What a file says of subsystems and namespaces, and the control socket of namespaces that come.

use super::super::{
    ana_name::AnaName,
    namespaces::{ListedNamespace, MediumConfig, NamespaceConfig},
};
use crate::{
    Error,
    options::{BlockArguments, Limit, bytes_with_unit},
};
use frwr_nvmf::{
    controller::{DEFAULT_ANA_GROUP, MAX_ANA_GROUPS, MAX_NAMESPACES},
    storage::{Backing, MAX_BLOCK_BYTES, MediumKind},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use std::{collections::BTreeMap, path::PathBuf};
use toml::Spanned;

/// Largest namespace in memory: what no machine has, so that sizes can be added up.
const MAX_MEMORY_BYTES: u64 = 1 << 44;
/// As many as the target has for each subsystem.
pub(super) const ANA_GROUP: Limit = Limit::new("--ana-group", 1, MAX_ANA_GROUPS as u64);
pub(super) const NSID: Limit = Limit::new("--nsid", 1, MAX_NAMESPACES as u64);

/// What is in the file beside the groups of options of the command line.
#[derive(Debug, Deserialize)]
pub(super) struct Tables {
    #[serde(default)]
    pub(super) host: Vec<Spanned<HostTable>>,
    #[serde(default)]
    pub(super) subsystem: Vec<Spanned<SubsystemTable>>,
}

/// A host that has to prove itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    pub(super) nqn: String,
    pub(super) dhchap_key: PathBuf,
    pub(super) dhchap_ctrl_key: Option<PathBuf>,
}

/// A subsystem.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsystemTable {
    pub(super) nqn: String,
    pub(super) allowed_hosts: Option<Vec<String>>,
    pub(super) serial: Option<String>,
    pub(super) ana_state: Option<AnaName>,
    #[serde(default)]
    pub(super) ana_states: BTreeMap<String, AnaName>,
    #[serde(default)]
    pub(super) namespace: Vec<Spanned<NamespaceTable>>,
}

/// A namespace, as this file and the control socket say it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct NamespaceTable {
    nsid: Option<u32>,
    nguid: Option<String>,
    active: Option<bool>,
    bytes: Option<Size>,
    memory: Option<Size>,
    load: Option<PathBuf>,
    file: Option<PathBuf>,
    device: Option<PathBuf>,
    nbd: Option<String>,
    rbd: Option<String>,
    block_size: Option<u32>,
    read_only: Option<bool>,
    backing: Option<BackingName>,
    direct: Option<bool>,
    ana_group: Option<u32>,
}

impl NamespaceTable {
    /// The key that is of a file alone: the control socket has a parameter for what it says.
    pub(in super::super) const OF_FILES: &str = "nsid";

    /// What it says of a namespace that has this identifier where it says no other. Errors name keys as options: `--block-size`.
    pub(in super::super) fn listed(&self, identifier: u32) -> Result<ListedNamespace, Error> {
        let (config, identifier) = (self.config()?, self.nsid.unwrap_or(identifier));
        let nguid = self.nguid.as_deref().map(parse_nguid).transpose()?;
        let bytes = self.bytes.map(|Size(bytes)| bytes);
        Limit::new("--bytes", config.block_bytes.into(), u64::MAX).check_said(bytes)?;
        if bytes.is_some() && matches!(config.medium, MediumConfig::Nbd { .. }) {
            let text = "--bytes: an NBD export has one size for ever here; leave it out";
            return Err(Error::usage("config", text));
        }
        Ok(ListedNamespace { identifier, nguid, active: self.active.unwrap_or(true), bytes, config })
    }

    fn config(&self) -> Result<NamespaceConfig, Error> {
        let block_bytes = self.block_size.unwrap_or(BlockArguments::DEFAULT);
        BlockArguments::check(block_bytes, MAX_BLOCK_BYTES)?;
        let backing = match self.backing {
            None | Some(BackingName::Auto) => Backing::Auto,
            Some(BackingName::Ring) => Backing::Ring,
            Some(BackingName::Thread) => Backing::Thread,
        };
        let direct = self.direct.unwrap_or(true);
        let stored = |path: &PathBuf, kind| MediumConfig::Stored { path: path.clone(), kind, backing, direct };
        let medium = match (self.memory, &self.load, &self.file, &self.device, &self.nbd, &self.rbd) {
            (Some(Size(bytes)), None, None, None, None, None) => {
                Limit::new("--memory", block_bytes.into(), MAX_MEMORY_BYTES).check(bytes)?;
                MediumConfig::Memory { bytes }
            }
            (None, Some(path), None, None, None, None) => MediumConfig::Loaded { path: path.clone() },
            (None, None, Some(path), None, None, None) => stored(path, MediumKind::File),
            (None, None, None, Some(path), None, None) => stored(path, MediumKind::Device),
            (None, None, None, None, Some(uri), None) => MediumConfig::nbd("--nbd", uri)?,
            (None, None, None, None, None, Some(name)) => MediumConfig::rbd("--rbd", name)?,
            _ => {
                let text = "namespace: name exactly one of memory, load, file, device, nbd and rbd";
                return Err(Error::usage("config", text));
            }
        };
        if !matches!(medium, MediumConfig::Stored { .. }) && (self.backing.is_some() || self.direct.is_some()) {
            let flag = if self.backing.is_some() { "--backing" } else { "--direct" };
            return Err(Error::usage("config", format!("{flag}: is for file and device only; leave it out")));
        }
        let ana_group = self.ana_group.unwrap_or(DEFAULT_ANA_GROUP);
        ANA_GROUP.check(ana_group)?;
        Ok(NamespaceConfig { medium, block_bytes, read_only: self.read_only.unwrap_or(false), ana_group })
    }

    /// The key of a medium that is served once.
    pub(super) const fn medium_key(&self) -> &'static str {
        match (&self.device, &self.nbd, &self.rbd) {
            (Some(_), ..) => "device",
            (None, Some(_), _) => "nbd",
            (None, None, Some(_)) => "rbd",
            (None, None, None) => "file",
        }
    }
}

/// 32 hexadecimal digits, not all of them 0, which says that there is none.
fn parse_nguid(text: &str) -> Result<[u8; 16], Error> {
    let is_hex = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|number| is_hex && *number != 0);
    number.map(u128::to_be_bytes).ok_or_else(|| {
        let text = format!("--nguid is {text:?}: must be 32 hexadecimal digits, not all 0; or leave it out");
        Error::usage("nguid", text)
    })
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BackingName {
    Auto,
    Ring,
    Thread,
}

/// Bytes, as a number or as text with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Size(pub(in super::super) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        let bytes = match Written::deserialize(deserializer).map_err(|_| D::Error::custom(SIZE_HELP))? {
            Written::Number(bytes) => Some(bytes),
            Written::Text(text) => bytes_with_unit(&text),
        };
        bytes.map(Self).ok_or_else(|| D::Error::custom(SIZE_HELP))
    }
}

const SIZE_HELP: &str = "must be a number of bytes, or one with K, M, G or T behind it, such as \"64M\"";
