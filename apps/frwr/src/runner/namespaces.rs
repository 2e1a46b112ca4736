//! What `serve` offers: subsystems and namespaces as they were asked for, and as they are told.

use super::{ana_name::AnaStates, load_file::hex};
use crate::{Error, output::in_line};
use clap::ValueEnum;
use frwr_nvmf::{
    controller::{AllowedHosts, DEFAULT_ANA_GROUP},
    storage::{Backing, MediumKind, NbdAddress, NbdOptions, RbdOptions, is_nbd_uri, is_rbd_name},
    wire::{AnaState, Nqn, SerialNumber},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf, absolute};

/// What a namespace is called: its subsystem, and its identifier.
pub(super) type Identity = (Nqn, u32);

/// Where the bytes of `--namespace FILE` live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NamespaceBacking {
    /// In memory, read from FILE once; FILE is never written.
    Memory,
    /// In FILE itself, by io_uring, or by a worker thread where that is refused.
    Auto,
    /// In FILE itself, by io_uring, or an error.
    Ring,
    /// In FILE itself, by a worker thread.
    Thread,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// Hosts that may connect.
    pub allowed_hosts: AllowedHosts,
    /// Serial number; `None` for one that follows from the name.
    pub serial: Option<SerialNumber>,
    /// How well its ANA groups can be reached here.
    pub ana: AnaStates,
    /// Namespaces, each with an identifier of its own.
    pub namespaces: Vec<ListedNamespace>,
}

/// A namespace of a subsystem: which it is, and how much of what it lives in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedNamespace {
    /// NSID.
    pub identifier: u32,
    /// NGUID, by which hosts know it again; `None` for one that follows from its subsystem and identifier.
    pub nguid: Option<[u8; 16]>,
    /// It is listed and takes commands.
    pub active: bool,
    /// Bytes that it has, of which whole blocks count; `None` for all that it lives in.
    pub bytes: Option<u64>,
    /// What it lives in.
    pub config: NamespaceConfig,
}

impl ListedNamespace {
    /// By which hosts know it again.
    pub(super) fn nguid(&self, of: &Nqn) -> [u8; 16] {
        self.nguid.unwrap_or_else(|| of.identifier(self.identifier.into()))
    }

    /// For `--check-config`.
    pub(super) fn json(&self) -> Value {
        let mut value = self.config.json();
        value["nsid"] = self.identifier.into();
        value["active"] = self.active.into();
        value["bytes"] = self.bytes.into();
        value["nguid"] = self.nguid.map(|nguid| hex(&nguid)).into();
        value
    }
}

/// What a namespace lives in, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// What it lives in.
    pub medium: MediumConfig,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Hosts cannot change it.
    pub read_only: bool,
    /// ANA group.
    pub ana_group: u32,
}

/// What a namespace lives in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumConfig {
    /// Memory, zeros at first.
    Memory {
        /// Bytes.
        bytes: u64,
    },
    /// Memory that holds a file's bytes at first, padded with zeros to whole blocks.
    Loaded {
        /// The file.
        path: PathBuf,
    },
    /// A file or block device.
    Stored {
        /// Where it is.
        path: PathBuf,
        /// Which of them it has to be.
        kind: MediumKind,
        /// Who carries operations out.
        backing: Backing,
        /// Past the page cache where that can be.
        direct: bool,
    },
    /// An export of an NBD server, whose blocks, and whether it is changed, the namespace says.
    Nbd {
        /// Which.
        options: NbdOptions,
    },
    /// An image of a Ceph cluster, of which the namespace says as much.
    Rbd {
        /// Which.
        options: RbdOptions,
    },
}

impl SubsystemConfig {
    /// What its namespaces are called.
    pub(super) fn identities(&self) -> impl Iterator<Item = Identity> {
        self.namespaces.iter().map(|namespace| (self.nqn, namespace.identifier))
    }

    /// What they live in.
    pub(super) fn configs(&self) -> impl Iterator<Item = &NamespaceConfig> {
        self.namespaces.iter().map(|namespace| &namespace.config)
    }

    /// States of its ANA groups at the start. Those that follow locks, which nobody has asked for yet, are inaccessible.
    pub(super) fn ana_at_start(&self) -> Vec<(u32, AnaState)> {
        let locked: Vec<_> =
            self.configs().filter(|config| config.is_exclusive()).map(|config| config.ana_group).collect();
        let mut states = self.ana.at_start();
        states.retain(|(group, _)| !locked.contains(group));
        states.extend(locked.into_iter().map(|group| (group, AnaState::Inaccessible)));
        states
    }

    /// The files and block devices of its namespaces.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.configs().filter_map(NamespaceConfig::path)
    }
}

impl NamespaceConfig {
    /// As `--namespace PATH --backing BACKING` says, or `--namespace URI`, of NBD or of RBD.
    ///
    /// # Errors
    /// A URI that cannot be used, or a backing beside it.
    pub fn of_command_line(path: PathBuf, backing: NamespaceBacking, block_bytes: u32) -> Result<Self, Error> {
        if let Some(uri) = path.to_str().filter(|text| is_nbd_uri(text) || is_rbd_name(text)) {
            if backing != NamespaceBacking::Memory {
                return Err(Error::usage("backing", "--backing: is for files and block devices only; leave it out"));
            }
            let named = if is_rbd_name(uri) { MediumConfig::rbd } else { MediumConfig::nbd };
            let (medium, ana_group) = (named("--namespace", uri)?, DEFAULT_ANA_GROUP);
            return Ok(Self { medium, block_bytes, read_only: false, ana_group });
        }
        let kind = MediumKind::Any;
        let stored = |path, backing| MediumConfig::Stored { path, kind, backing, direct: true };
        let medium = match backing {
            NamespaceBacking::Memory => MediumConfig::Loaded { path },
            NamespaceBacking::Auto => stored(path, Backing::Auto),
            NamespaceBacking::Ring => stored(path, Backing::Ring),
            NamespaceBacking::Thread => stored(path, Backing::Thread),
        };
        Ok(Self { medium, block_bytes, read_only: false, ana_group: DEFAULT_ANA_GROUP })
    }

    /// It is served by who has the lock of its image.
    pub(super) const fn is_exclusive(&self) -> bool {
        matches!(&self.medium, MediumConfig::Rbd { options } if options.exclusive)
    }

    /// The ANA group of both, of one subsystem, would follow the lock of one of them.
    pub(super) const fn shares_locked_group(&self, other: &Self) -> bool {
        self.ana_group == other.ana_group && (self.is_exclusive() || other.is_exclusive())
    }

    /// Why that cannot be.
    pub(super) fn locked_group_text(&self) -> String {
        format!(
            "ana_group is {}, which another namespace of the subsystem has, and the ANA group of an image with exclusive=1 follows its \
             lock; give each of them a group of its own",
            self.ana_group
        )
    }

    /// The file or block device that it lives in, or comes from.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.medium {
            MediumConfig::Memory { .. } | MediumConfig::Nbd { .. } | MediumConfig::Rbd { .. } => None,
            MediumConfig::Loaded { path } | MediumConfig::Stored { path, .. } => Some(path),
        }
    }

    /// For `--check-config`.
    pub(super) fn json(&self) -> Value {
        let mut value = match &self.medium {
            MediumConfig::Memory { bytes } => json!({ "memory": bytes }),
            MediumConfig::Loaded { path } => json!({ "load": path.display().to_string() }),
            MediumConfig::Stored { path, kind, backing, direct } => {
                let key = if *kind == MediumKind::Device { "device" } else { "file" };
                json!({ key: path.display().to_string(), "backing": backing_name(*backing), "direct": direct })
            }
            MediumConfig::Nbd { options } => json!({ "nbd": options.uri() }),
            MediumConfig::Rbd { options } => json!({ "rbd": options.name() }),
        };
        value["block_size"] = self.block_bytes.into();
        value["read_only"] = self.read_only.into();
        value["ana_group"] = self.ana_group.into();
        value
    }

    /// What people know it by.
    pub(super) fn name(&self) -> String {
        match &self.medium {
            MediumConfig::Memory { .. } => "memory".to_owned(),
            MediumConfig::Loaded { path } | MediumConfig::Stored { path, .. } => path.display().to_string(),
            MediumConfig::Nbd { options } => options.to_string(),
            MediumConfig::Rbd { options } => options.to_string(),
        }
    }
}

impl MediumConfig {
    /// The same, as a process in another folder says it.
    pub(super) fn whole(&self) -> Self {
        let whole = |path: &Path| absolute(path).unwrap_or_else(|_| path.to_owned());
        match self.clone() {
            Self::Loaded { path } => Self::Loaded { path: whole(&path) },
            Self::Stored { path, kind, backing, direct } => Self::Stored { path: whole(&path), kind, backing, direct },
            Self::Nbd { mut options } => {
                // A name that begins with a NUL byte lies in no folder.
                if let NbdAddress::Unix(path) = &mut options.address
                    && !path.as_os_str().as_encoded_bytes().starts_with(b"\0")
                {
                    *path = whole(path);
                }
                Self::Nbd { options }
            }
            Self::Rbd { mut options } => {
                options.conf = options.conf.as_deref().map(whole);
                options.keyring = options.keyring.as_deref().map(whole);
                Self::Rbd { options }
            }
            memory @ Self::Memory { .. } => memory,
        }
    }

    /// What an NBD URI names; `flag` is what it was given by.
    pub(super) fn nbd(flag: &str, uri: &str) -> Result<Self, Error> {
        let options = uri.parse().map_err(|error| Error::usage("nbd", format!("{flag}: {error}")))?;
        Ok(Self::Nbd { options })
    }

    /// What a name of an image says; `flag` is what it was given by.
    pub(super) fn rbd(flag: &str, name: &str) -> Result<Self, Error> {
        let options = name.parse().map_err(|error| Error::usage("rbd", format!("{flag}: {error}")))?;
        Ok(Self::Rbd { options })
    }
}

/// As files and command lines say it.
pub(super) const fn backing_name(backing: Backing) -> &'static str {
    match backing {
        Backing::Auto => "auto",
        Backing::Ring => "ring",
        Backing::Thread => "thread",
    }
}

/// What the report says of a namespace.
#[derive(Clone, Debug, Serialize)]
pub struct NamespaceReport {
    /// Path, or `memory`.
    pub name: String,
    /// `memory`, `io_uring`, `worker thread`, `NBD` or `RBD`.
    pub kind: &'static str,
    /// Bytes of the file that it held at first, or of the namespace.
    pub bytes: u64,
    /// SHA-256 of the file that it held at first, in hexadecimal digits.
    pub sha256: Option<String>,
    /// Blocks.
    pub blocks: u64,
    /// Blocks that it could have of what it lives in, when that was opened.
    #[serde(skip)]
    pub medium_blocks: u64,
    /// Bytes of each.
    pub block_bytes: u32,
    /// Hosts cannot change it.
    pub read_only: bool,
}

impl NamespaceReport {
    /// What it is, and how a host can check it.
    pub(super) fn line(&self) -> String {
        let Self { kind, bytes, .. } = self;
        let name = in_line(&self.name);
        match &self.sha256 {
            Some(sha256) => {
                format!("{name}: {bytes} bytes, SHA-256 {sha256} (load: --bytes {bytes} --expect-sha256 {sha256})")
            }
            None if self.read_only => format!("{name}: {bytes} bytes, {kind}, read-only"),
            None => format!("{name}: {bytes} bytes, {kind}"),
        }
    }

    /// How large it is.
    pub(super) fn size(&self) -> String {
        format!("namespace {}, {} blocks of {} bytes", in_line(&self.name), self.blocks, self.block_bytes)
    }
}
