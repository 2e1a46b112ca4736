//! What a target is, as a file, and a file as what it is to be.

use super::{
    super::{
        ana_name::AnaStates,
        clash::Media,
        difference::{Listening, Present, PresentNamespace, PresentSubsystem, Step, devices, difference, in_order},
        key_files::{ReadKeys, read_all},
        media_watch::MediaWatch,
        namespaces::{Identity, ListedNamespace, MediumConfig, NamespaceConfig, SubsystemConfig},
        saved,
        serve_command::ServeConfig,
        stock::Stock,
    },
    Facts,
    application::{Applied, lines},
    listeners::merged,
    parameters::{none, read},
    planned::{Known, stands_still},
    reload::text_again,
};
use crate::control::{Failure, INTERNAL, INVALID_PARAMS, NOT_DONE};
use frwr_nvmf::{
    controller::{Inventory, NamespaceState},
    storage::MediumKind,
    wire::{AnaState, SerialNumber},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{fs, path::PathBuf};

/// What a file is called whose name nobody says.
const UNNAMED: &str = "config";

pub(super) fn save(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Value, Failure> {
    none(&parameters)?;
    let Present { listeners, subsystems, .. } = present(known)?;
    let subsystems: Vec<_> = subsystems.iter().map(|subsystem| as_config(subsystem, known.media)).collect();
    if subsystems.is_empty() {
        let text = "there is no subsystem, and a file has one at least; add one first (`add_subsystem`)";
        return Err(Failure::new(NOT_DONE, text));
    }
    if listeners.is_empty() {
        let text = "the target listens nowhere, and a file has one address at least; add one first (`add_listener`)";
        return Err(Failure::new(NOT_DONE, text));
    }
    let has_none = |device: &&String| listeners.iter().all(|one| one.device.as_ref().is_some_and(|of| of != *device));
    let devices = device_names(known);
    if let Some(device) = devices.iter().find(has_none) {
        let text = format!(
            "the target listens nowhere on {device}, and in a file each device has one address at least; add one first \
             (`add_listener`)"
        );
        return Err(Failure::new(NOT_DONE, text));
    }
    let options = known.facts.config.listening_at(devices, listeners).options_json();
    let text = saved::text(options, &known.facts.host_keys.files(), &subsystems);
    text.map(Value::String).map_err(|error| Failure::new(NOT_DONE, error.to_string()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    config: String,
    name: Option<PathBuf>,
    #[serde(default)]
    dry_run: bool,
}

/// What is to be looked at before it is known what a file changes: paths, which may lie on a file system that hangs.
pub(super) struct Looking {
    name: PathBuf,
    /// What the file says; without, the file of that name is read.
    text: Option<String>,
    dry_run: bool,
    config: ServeConfig,
    served: Vec<NamespaceConfig>,
}

/// What came of that.
#[derive(Debug)]
pub(super) struct Looked {
    name: PathBuf,
    dry_run: bool,
    wanted: ServeConfig,
    media: Media,
    /// Paths of what is wanted that lead nowhere, with the reasons.
    missing: Vec<(PathBuf, String)>,
    /// The keys of hosts.
    keys: ReadKeys,
}

pub(super) fn look(facts: &Facts, stock: &Stock, parameters: Map<String, Value>) -> Result<Looking, Failure> {
    let File { config, name, dry_run } = read(parameters)?;
    Ok(looking(facts, stock, name.unwrap_or_else(|| UNNAMED.into()), Some(config), dry_run))
}

/// The same of the file that the target was started with: no client names a path that a target reads.
pub(super) fn look_again(facts: &Facts, stock: &Stock, _: Map<String, Value>) -> Result<Looking, Failure> {
    let started_with = facts.config.arguments.config.clone();
    let name = started_with.ok_or_else(|| Failure::new(INTERNAL, "there is no file that it was started with"))?;
    Ok(looking(facts, stock, name, None, false))
}

fn looking(facts: &Facts, stock: &Stock, name: PathBuf, text: Option<String>, dry_run: bool) -> Looking {
    Looking { name, text, dry_run, config: facts.config.clone(), served: stock.configs().cloned().collect() }
}

impl Looking {
    /// What people know it by.
    pub(super) fn name(&self) -> String {
        format!("{} with what it and the target name", self.name.display())
    }

    /// Looks, which takes as long as file systems do: nothing for the main thread.
    ///
    /// # Errors
    /// The file cannot be read, or the text is no configuration.
    pub(super) fn look(self) -> Result<Looked, Failure> {
        let Self { name, text, dry_run, config, served } = self;
        let unreadable = |error| Failure::new(NOT_DONE, format!("{error}; nothing was changed"));
        let text = text.map_or_else(|| text_again(&name).map_err(unreadable), Ok)?;
        let wanted = config.of_text(&name, &text);
        let wanted = wanted.map_err(|error| Failure::new(INVALID_PARAMS, error.to_string()))?;
        let configs = || wanted.subsystems.iter().flat_map(SubsystemConfig::configs);
        let media = Media::of(configs().chain(&served));
        let missing = configs().filter_map(|config| Some((config.path()?, fs::metadata(config.path()?).err()?)));
        let missing = missing.map(|(path, error)| (path.to_owned(), error.to_string())).collect();
        let keys = read_all(&wanted.host_keys);
        Ok(Looked { name, dry_run, wanted, media, missing, keys })
    }
}

pub(super) fn apply(known: &mut Known<'_>, looked: Looked) -> Result<Applied, Failure> {
    let Looked { name, dry_run, wanted, media, missing, keys } = looked;
    let mut refused = known.facts.config.other_options(&wanted);
    let clash = |one: &NamespaceConfig, other: &NamespaceConfig| media.clash(one, other);
    let keys = known.facts.host_keys.difference(&wanted.host_keys, &keys).unwrap_or_else(|reasons| {
        refused.extend(reasons);
        Vec::new()
    });
    let mut present = present(known)?;
    let is = Listening { devices: device_names(known), listen: present.listeners };
    let (names, listen) = (wanted.devices().to_vec(), wanted.arguments.target.listen.clone());
    let (of_devices, [left, listen]) = devices(&is, &Listening { devices: names, listen });
    present.listeners = left;
    let steps = difference(&present, &listen, &wanted.subsystems, &clash).unwrap_or_else(|reasons| {
        refused.extend(reasons);
        Vec::new()
    });
    let steps = in_order([keys, of_devices, steps]);
    refused.extend(steps.iter().filter_map(|step| leads_nowhere(step, &missing)));
    if !refused.is_empty() {
        let text = format!("{}: {}; nothing was changed", name.display(), refused.join("; "));
        return Err(Failure::new(NOT_DONE, text));
    }
    if dry_run {
        return Ok(Applied::Shown(json!({ "changes": lines(&steps) })));
    }
    Ok(Applied::Begins(steps))
}

/// Why a namespace cannot come, as far as that is known before it is opened.
fn leads_nowhere(step: &Step, missing: &[(PathBuf, String)]) -> Option<String> {
    let Step::AddNamespace { nqn, namespace } = step else { return None };
    let path = namespace.config.path()?;
    let (_, error) = missing.iter().find(|(missing, _)| missing == path)?;
    let (nqn, identifier) = (nqn.as_str(), namespace.identifier);
    Some(format!("{nqn}, namespace {identifier}: {path:?} cannot be had ({error}); name what there is"))
}

/// What the target is by now.
fn present(known: &mut Known<'_>) -> Result<Present, Failure> {
    let home = &known.findings.home().ok_or_else(|| stands_still(0))?.inventory;
    let mut subsystems = Vec::with_capacity(home.subsystems.len());
    // Those that leave, or that cores are still told of, are none.
    for (at, subsystem) in home.subsystems.iter().enumerate().filter(|(_, subsystem)| subsystem.listed) {
        let mut states = subsystem.ana_states.clone();
        for group in known.stock.locked_groups(subsystem.name) {
            // Which state it has is its lock's, and no file's.
            if let Some(state) = states.get_mut(group.wrapping_sub(1) as usize) {
                *state = AnaState::default();
            }
        }
        let namespaces = namespaces_of(home, at).map(|state| {
            let identity = (subsystem.name, state.identifier);
            let config = known.stock.config(identity).cloned();
            let config = config.ok_or_else(|| Failure::new(INTERNAL, format!("nobody knows what {identity:?} is")))?;
            Ok(PresentNamespace {
                identifier: state.identifier,
                nguid: state.nguid,
                active: state.active,
                blocks: state.blocks,
                medium_blocks: medium_blocks(known, identity, state.blocks),
                config,
            })
        });
        subsystems.push(PresentSubsystem {
            nqn: subsystem.name,
            serial: subsystem.serial,
            hosts: subsystem.hosts.clone(),
            ana: AnaStates::of_groups(&states),
            namespaces: namespaces.collect::<Result<_, _>>()?,
        });
    }
    let listed = merged(known.findings).into_iter().filter(|listener| listener.listed);
    let listeners = listed.map(|listener| known.facts.served.listen_at(listener.device, listener.address)).collect();
    Ok(Present { listeners, subsystems, room: known.stock.room() })
}

/// As somebody named them.
fn device_names(known: &Known<'_>) -> Vec<String> {
    known.facts.served.devices.iter().map(|device| device.name.clone()).collect()
}

fn namespaces_of(home: &Inventory, subsystem: usize) -> impl Iterator<Item = &NamespaceState> {
    home.namespaces.iter().filter(move |state| state.subsystem == subsystem)
}

/// What its medium has by now, as far as that is known: else it has what it has.
fn medium_blocks(known: &mut Known<'_>, identity: Identity, blocks: u64) -> u64 {
    match known.media.looked(identity) {
        Some(measured) => measured.map_or(blocks, |geometry| geometry.blocks()),
        None => {
            let report = known.facts.served.namespace(&identity.0, identity.1);
            report.map_or(blocks, |report| report.medium_blocks)
        }
    }
}

/// As a file says it, with what is as usual left out.
fn as_config(subsystem: &PresentSubsystem, media: &MediaWatch) -> SubsystemConfig {
    let PresentSubsystem { nqn, serial, hosts, ana, namespaces } = subsystem;
    let namespace = |one: &PresentNamespace| ListedNamespace {
        identifier: one.identifier,
        nguid: (one.nguid != nqn.identifier(one.identifier.into())).then_some(one.nguid),
        active: one.active,
        bytes: (one.blocks != one.medium_blocks).then(|| one.blocks * u64::from(one.config.block_bytes)),
        config: anywhere(&one.config, media.is_device((*nqn, one.identifier))),
    };
    SubsystemConfig {
        nqn: *nqn,
        allowed_hosts: hosts.clone(),
        serial: (*serial != SerialNumber::of_subsystem(nqn)).then_some(*serial),
        ana: ana.clone(),
        namespaces: namespaces.iter().map(namespace).collect(),
    }
}

/// The same for a process in another folder; what is a file and what a device was not asked on a command line.
fn anywhere(config: &NamespaceConfig, is_device: bool) -> NamespaceConfig {
    let medium = match config.medium.whole() {
        MediumConfig::Stored { path, kind, backing, direct } => {
            let kind = match kind {
                MediumKind::Any if is_device => MediumKind::Device,
                MediumKind::Any => MediumKind::File,
                said => said,
            };
            MediumConfig::Stored { path, kind, backing, direct }
        }
        other => other,
    };
    NamespaceConfig { medium, ..config.clone() }
}
