//! What is served, as the text of a file that `serve --config` reads.

use super::{
    ana_name::ana_name,
    key_files::KeyFiles,
    load_file::hex,
    namespaces::{ListedNamespace, MediumConfig, NamespaceConfig, SubsystemConfig, backing_name},
};
use crate::Error;
use frwr_nvmf::{
    controller::{AllowedHosts, DEFAULT_ANA_GROUP},
    storage::{Backing, MediumKind},
    wire::{AnaState, Nqn, SerialNumber},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::Path};

/// What stands in front of it.
const HEAD: &str =
    "# Saved by `frwr ctl save`: what `frwr serve --config` begins with, and `frwr ctl apply` changes a target to.\n";

/// A file; what is left out is as it is by default.
#[derive(Serialize)]
struct Saved {
    #[serde(flatten)]
    options: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    host: Vec<SavedHost>,
    subsystem: Vec<SavedSubsystem>,
}

#[derive(Serialize)]
struct SavedHost {
    nqn: String,
    dhchap_key: String,
    dhchap_ctrl_key: Option<String>,
}

#[derive(Serialize)]
struct SavedSubsystem {
    nqn: String,
    allowed_hosts: Option<Vec<String>>,
    serial: Option<String>,
    ana_state: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ana_states: BTreeMap<String, &'static str>,
    namespace: Vec<SavedNamespace>,
}

#[derive(Default, Serialize)]
struct SavedNamespace {
    nsid: u32,
    nguid: Option<String>,
    active: Option<bool>,
    memory: Option<u64>,
    load: Option<String>,
    file: Option<String>,
    device: Option<String>,
    nbd: Option<String>,
    rbd: Option<String>,
    bytes: Option<u64>,
    backing: Option<&'static str>,
    direct: Option<bool>,
    ana_group: Option<u32>,
    block_size: u32,
    read_only: Option<bool>,
}

/// The text of a file with these options, by their keys, hosts by their names, and these subsystems.
///
/// # Errors
/// Something that TOML has no words for.
pub(super) fn text(
    options: Map<String, Value>,
    hosts: &BTreeMap<String, KeyFiles>,
    subsystems: &[SubsystemConfig],
) -> Result<String, Error> {
    let options = options.into_iter().filter(|(_, value)| !value.is_null()).collect();
    let subsystem = subsystems.iter().map(SavedSubsystem::of).collect::<Result<_, _>>()?;
    let host = hosts.iter().map(SavedHost::of).collect::<Result<_, _>>()?;
    let text = toml::to_string(&Saved { options, host, subsystem });
    let text = text.map_err(|error| Error::failed("config_file", format!("it cannot be said in TOML: {error}")))?;
    Ok(format!("{HEAD}{text}"))
}

impl SavedHost {
    fn of((host, files): (&String, &KeyFiles)) -> Result<Self, Error> {
        Ok(Self {
            nqn: host.clone(),
            dhchap_key: in_toml(&files.dhchap_key)?,
            dhchap_ctrl_key: files.dhchap_ctrl_key.as_deref().map(in_toml).transpose()?,
        })
    }
}

impl SavedSubsystem {
    fn of(subsystem: &SubsystemConfig) -> Result<Self, Error> {
        let names = |hosts: &Vec<Nqn>| hosts.iter().map(|host| host.as_str().to_owned()).collect();
        Ok(Self {
            nqn: subsystem.nqn.as_str().to_owned(),
            allowed_hosts: match &subsystem.allowed_hosts {
                AllowedHosts::Any => None,
                AllowedHosts::Listed(hosts) => Some(names(hosts)),
            },
            serial: subsystem.serial.as_ref().map(SerialNumber::as_str).map(str::to_owned),
            ana_state: (subsystem.ana.all != AnaState::default()).then(|| ana_name(subsystem.ana.all)),
            ana_states: subsystem.ana.but.iter().map(|(group, state)| (group.to_string(), ana_name(*state))).collect(),
            namespace: subsystem.namespaces.iter().map(SavedNamespace::of).collect::<Result<_, _>>()?,
        })
    }
}

impl SavedNamespace {
    fn of(namespace: &ListedNamespace) -> Result<Self, Error> {
        let ListedNamespace { identifier, nguid, active, bytes, config } = namespace;
        let NamespaceConfig { medium, block_bytes, read_only, ana_group } = config;
        let all = Self {
            nsid: *identifier,
            nguid: nguid.as_ref().map(hex),
            active: (!active).then_some(false),
            bytes: *bytes,
            ana_group: (*ana_group != DEFAULT_ANA_GROUP).then_some(*ana_group),
            block_size: *block_bytes,
            read_only: read_only.then_some(true),
            ..Self::default()
        };
        Ok(match medium {
            MediumConfig::Memory { bytes } => Self { memory: Some(*bytes), ..all },
            MediumConfig::Loaded { path } => Self { load: Some(in_toml(path)?), ..all },
            MediumConfig::Stored { path, kind, backing, direct } => {
                let path = Some(in_toml(path)?);
                let (file, device) = if *kind == MediumKind::Device { (None, path) } else { (path, None) };
                let backing = (*backing != Backing::Auto).then(|| backing_name(*backing));
                Self { file, device, backing, direct: (!direct).then_some(false), ..all }
            }
            MediumConfig::Nbd { options } => Self { nbd: Some(options.uri()), ..all },
            MediumConfig::Rbd { options } => Self { rbd: Some(options.name()), ..all },
        })
    }
}

fn in_toml(path: &Path) -> Result<String, Error> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let remedy = "files in TOML have no other names; serve it by a link with another one";
        Error::failed("config_file", format!("the name of {path:?} is not UTF-8: {remedy}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CommandLine, Task,
        runner::{ServeConfig, ana_name::AnaStates},
    };
    use clap::Parser as _;
    use frwr_nvmf::storage::{MAX_NBD_CONNECTIONS, NbdAddress, NbdOptions, RbdOptions};
    use proptest::{
        collection::{btree_map, vec},
        option,
        prelude::*,
    };
    use std::io::Write as _;

    fn medium() -> impl Strategy<Value = MediumConfig> {
        let backing = prop_oneof![Just(Backing::Auto), Just(Backing::Ring), Just(Backing::Thread)];
        // No file that there is, so that none is another one's.
        let path = "/nonexistent/[a-z \"'=#\\[\u{e4}]{1,8}";
        let kind = prop_oneof![Just(MediumKind::File), Just(MediumKind::Device)];
        prop_oneof![
            (65536u64..1 << 44).prop_map(|bytes| MediumConfig::Memory { bytes }),
            path.prop_map(|path| MediumConfig::Loaded { path: path.into() }),
            (path, kind, backing, any::<bool>()).prop_map(|(path, kind, backing, direct)| MediumConfig::Stored {
                path: path.into(),
                kind,
                backing,
                direct
            }),
            (any::<u16>(), 1u8..=16, any::<bool>(), "[a-z /%?&=]{0,8}").prop_map(
                |(port, connections, through, export)| {
                    let address = NbdAddress::Tcp { host: "host".to_owned(), port: port.max(1) };
                    let options = NbdOptions::new(address, export).connections(connections.min(MAX_NBD_CONNECTIONS));
                    MediumConfig::Nbd { options: options.write_through(through) }
                }
            ),
            ("[a-z /%?&=@]{1,8}", option::of("[a-z@/]{1,8}"), option::of("[a-z &]{1,8}")).prop_map(
                |(image, snapshot, id)| {
                    MediumConfig::Rbd { options: RbdOptions::new("pool", image).snapshot(snapshot).id(id) }
                }
            ),
        ]
    }

    fn namespace() -> impl Strategy<Value = ListedNamespace> {
        let nguid = option::of(1u128..).prop_map(|nguid| nguid.map(u128::to_be_bytes));
        let block_bytes = (9u32..=16).prop_map(|shift| 1 << shift);
        let bytes = option::of(65536u64..1 << 50);
        (nguid, any::<bool>(), bytes, medium(), block_bytes, any::<bool>(), 1u32..=128).prop_map(
            |(nguid, active, bytes, medium, block_bytes, read_only, ana_group)| ListedNamespace {
                identifier: 0,
                nguid,
                active,
                bytes: bytes.filter(|_| !matches!(medium, MediumConfig::Nbd { .. })),
                config: NamespaceConfig { medium, block_bytes, read_only, ana_group },
            },
        )
    }

    fn subsystem() -> impl Strategy<Value = SubsystemConfig> {
        let name = "[a-zA-Z0-9:._-]{1,40}".prop_map(|name| Nqn::new(&format!("nqn.2026-11.x:{name}")).unwrap());
        let hosts = option::of(vec(name.clone(), 0..3));
        let hosts = hosts.prop_map(|hosts| hosts.map_or(AllowedHosts::Any, AllowedHosts::Listed));
        let serial = option::of("[!-~]{1,20}".prop_map(|serial| SerialNumber::new(&serial).unwrap()));
        let state = prop_oneof![
            Just(AnaState::Optimized),
            Just(AnaState::NonOptimized),
            Just(AnaState::Inaccessible),
            Just(AnaState::PersistentLoss),
            Just(AnaState::Change),
        ];
        let but = btree_map(1u32..=128, state.clone(), 0..4);
        let ana = (state, but).prop_map(|(all, but)| AnaStates { all, but });
        let namespaces = btree_map(1u32..=1024, namespace(), 0..5);
        (name, hosts, serial, ana, namespaces).prop_map(|(nqn, allowed_hosts, serial, ana, namespaces)| {
            let named = |(identifier, namespace)| ListedNamespace { identifier, ..namespace };
            SubsystemConfig { nqn, allowed_hosts, serial, ana, namespaces: namespaces.into_iter().map(named).collect() }
        })
    }

    fn host_keys() -> impl Strategy<Value = BTreeMap<String, KeyFiles>> {
        let path = || "/nonexistent/[a-z \"'=#\\[\u{e4}]{1,8}".prop_map(std::path::PathBuf::from);
        let files = (path(), option::of(path()))
            .prop_map(|(dhchap_key, dhchap_ctrl_key)| KeyFiles { dhchap_key, dhchap_ctrl_key });
        btree_map("nqn\\.[a-zA-Z0-9:._-]{1,40}", files, 0..3)
    }

    fn serve(arguments: &[&str]) -> Result<ServeConfig, Error> {
        let line = CommandLine::try_parse_from([&["frwr", "serve"], arguments].concat()).unwrap();
        let Some(Task::Serve(arguments)) = line.task else { panic!("not serve") };
        ServeConfig::new(arguments)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn what_is_saved_is_read_as_it_was(subsystems in vec(subsystem(), 1..4), hosts in host_keys()) {
            // What a target cannot be, either.
            let all = || subsystems.iter().flat_map(SubsystemConfig::configs);
            let mut seen = Vec::new();
            for subsystem in &subsystems {
                prop_assume!(!seen.contains(&subsystem.nqn));
                seen.push(subsystem.nqn);
            }
            let serials: Vec<_> = subsystems.iter().filter_map(|subsystem| subsystem.serial).collect();
            prop_assume!((1..serials.len()).all(|at| !serials[..at].contains(&serials[at])));
            prop_assume!(super::super::clash::served_twice(all()).is_none());
            let device = [
                "--device", "rxe0", "--listen", "[fe80::1%lo]:4420", "--namespace", "/etc/hostname", "--cores",
                "unpinned:2", "--idle", "sleep:7", "--metrics", "127.0.0.1:9100", "--shared-receives", "4096",
            ];
            let before = serve(&device).unwrap();
            let file = text(before.options_json(), &hosts, &subsystems).unwrap();
            let mut written = tempfile::NamedTempFile::new().unwrap();
            written.write_all(file.as_bytes()).unwrap();
            let after = serve(&["--config", written.path().to_str().unwrap()]);
            let after = after.unwrap_or_else(|error| panic!("{error}:\n{file}"));
            prop_assert_eq!(&after.subsystems, &subsystems, "{}", file);
            prop_assert_eq!(&after.host_keys, &hosts, "{}", file);
            prop_assert_eq!(after.options_json(), before.options_json(), "{}", file);
        }
    }
}
