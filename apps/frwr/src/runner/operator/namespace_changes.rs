//! Namespaces that come and go, are listed or not, or have another size.

use super::{
    super::{
        change::Change,
        config_file::{NamespaceTable, Size, as_key},
        namespaces::{Identity, ListedNamespace, NamespaceReport},
        start::unit,
        stock::Reserved,
    },
    parameters::read,
    planned::{Behind, Known, Plan, Planned, Step, home, is_it, listed, listed_on, subsystem, units, within},
};
use crate::control::{Failure, INVALID_PARAMS, NOT_DONE};
use core::time::Duration;
use frwr_nvmf::{
    controller::{HOME_CORE, NewNamespace},
    storage::{AnyStorage, Geometry, MediumFault},
    wire::Nqn,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Which one `add_namespace` adds, beside what a file says of a namespace.
#[derive(Deserialize)]
struct Named {
    subsystem: String,
    namespace: u32,
}

/// Their names.
const NAMED: [&str; 2] = ["subsystem", "namespace"];

pub(super) fn add_namespace(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Reserved, Failure> {
    let (named, table): (Map<_, _>, Map<_, _>) =
        parameters.into_iter().partition(|(name, _)| NAMED.contains(&name.as_str()));
    let Named { subsystem: of, namespace: identifier } = read(named)?;
    let invalid = |text: String| Failure::new(INVALID_PARAMS, format!("params: {text}"));
    if table.contains_key(NamespaceTable::OF_FILES) {
        let name = NamespaceTable::OF_FILES;
        return Err(invalid(format!("{name} is for files; `frwr ctl --list` says what the method takes")));
    }
    let table: NamespaceTable = read(table)?;
    let namespace = table.listed(identifier).map_err(|error| invalid(as_key(&error).1))?;
    let (subsystem, _) = subsystem(known.findings, &of)?;
    let reserved = known.stock.reserve(subsystem, namespace, units(known.findings));
    reserved.map_err(|error| Failure::new(NOT_DONE, format!("{error}; nothing was changed")))
}

/// What is told the cores of a namespace that is open for each of them; so many cores serve each device.
pub(super) fn with_opened(
    reserved: &Reserved,
    opened: Vec<AnyStorage>,
    report: NamespaceReport,
    cores: usize,
) -> Planned {
    let ListedNamespace { identifier, nguid, active, ref config, .. } = reserved.namespace;
    let (subsystem, ana_group) = (reserved.subsystem, config.ana_group);
    let step = |(unit, storage): (usize, AnyStorage)| {
        if unit % cores == usize::from(HOME_CORE) {
            let namespace = Box::new(NewNamespace { identifier, nguid, ana_group, active, storage });
            let undo = Change::RemoveNamespace { subsystem, identifier, within: Duration::ZERO };
            Step { unit, change: Change::AddNamespace { subsystem, namespace }, undo: Some(undo) }
        } else {
            let undo = Some(Change::WithdrawNamespace { subsystem, identifier });
            let storage = Box::new(storage);
            Step { unit, change: Change::SupplyNamespace { subsystem, identifier, storage }, undo }
        }
    };
    // On no device it comes before all cores of all devices have their ways to it.
    let (homes, others): (Vec<_>, Vec<_>) = reserved
        .units
        .iter()
        .copied()
        .zip(opened)
        .map(step)
        .partition(|step| step.unit % cores == usize::from(HOME_CORE));
    let steps = others.into_iter().chain(homes).collect();
    let behind = Some(Behind::Added(reserved.identity(), report));
    Planned { behind, ..Planned::steps(steps) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceActive {
    subsystem: String,
    namespace: u32,
    active: bool,
}

pub(super) fn set_namespace_active(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let NamespaceActive { subsystem: of, namespace: identifier, active } = read(parameters)?;
    let (name, state) = subsystem(known.findings, &of)?;
    listed(known.findings, state, identifier)?;
    let change = |active| Change::NamespaceActive { subsystem: name, identifier, active };
    let before = |device| {
        let there = listed_on(known.findings, device, name, identifier);
        there.is_none_or(|there| there.active != active).then_some(())
    };
    Ok(Planned::where_else(known.findings, before, || change(active), |()| Some(change(!active))))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfNamespace {
    subsystem: String,
    namespace: u32,
    within_seconds: Option<u32>,
}

pub(super) fn remove_namespace(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let OfNamespace { subsystem: of, namespace: identifier, within_seconds } = read(parameters)?;
    let (subsystem, state) = subsystem(known.findings, &of)?;
    listed(known.findings, state, identifier)?;
    let (within, findings) = (within(within_seconds)?, known.findings);
    let is_gone = |device| {
        let there = findings.home_of(device).map(|home| &home.inventory);
        there.is_some_and(|there| !there.namespaces.iter().any(|one| is_it(there, one, subsystem, identifier)))
    };
    let change = || Change::RemoveNamespace { subsystem, identifier, within };
    Ok(Planned::for_good(findings, 1, is_gone, change))
}

/// The namespace that is named, if one is.
pub(super) fn named(parameters: &Map<String, Value>) -> Option<Identity> {
    let subsystem = Nqn::new(parameters.get("subsystem")?.as_str()?).ok()?;
    let identifier = u32::try_from(parameters.get("namespace")?.as_u64()?).ok()?;
    Some((subsystem, identifier))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resized {
    subsystem: String,
    namespace: u32,
    bytes: Option<Size>,
    within_seconds: Option<u32>,
}

pub(super) fn resize_namespace(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Resized { subsystem: of, namespace: identifier, bytes, within_seconds } = read(parameters)?;
    let (subsystem, state) = subsystem(known.findings, &of)?;
    let (first, within) = (listed(known.findings, state, identifier)?, within(within_seconds)?);
    let (block_bytes, first) = (first.block_bytes, first.blocks);
    let wanted = bytes.map(|Size(bytes)| bytes / u64::from(block_bytes.max(1)));
    let blocks = resizable(known, (subsystem, identifier), wanted, block_bytes)?;
    let (cores, findings) = (known.findings.cores.len(), known.findings);
    let has = |device| listed_on(findings, device, subsystem, identifier).map_or(first, |there| there.blocks);
    let others = findings.devices().map(|device| (device, has(device))).filter(|(_, has)| *has != blocks);
    let others: Vec<_> = others.collect();
    let Some(before) = others.iter().map(|(_, has)| *has).max() else { return Ok(None) };
    // Until it is done neither what goes nor what comes is missed.
    known.media.resized((subsystem, identifier), blocks.min(before));
    let preparing = |blocks| Change::PrepareResize { subsystem, identifier, blocks };
    let prepare = |(unit, has)| Step { unit, change: preparing(blocks), undo: Some(preparing(has)) };
    let members =
        others.iter().flat_map(|(device, has)| (1..cores).map(move |core| (unit(*device, core, cores), *has)));
    let resize = |blocks| Change::ResizeNamespace { subsystem, identifier, blocks, within };
    let homes = others.iter().map(|(device, has)| (home(findings, *device), *has));
    let at_home = |(unit, has)| Step { unit, change: resize(blocks), undo: Some(resize(has)) };
    let steps = members.map(prepare).chain(homes.map(at_home)).collect();
    // Each core says when nothing reaches beyond its new end.
    let parts = cores * others.iter().filter(|(_, has)| blocks < *has).count();
    let behind = Some(Behind::Resized { namespace: (subsystem, identifier), blocks, before });
    // What was made smaller gets its blocks back as it gets others: members first.
    Ok(Some(Box::new(Planned { parts, behind, in_order: true, ..Planned::steps(steps) })))
}

/// Blocks that a namespace can have of those that are wanted, or of all.
fn resizable(
    known: &mut Known<'_>,
    namespace: Identity,
    wanted: Option<u64>,
    block_bytes: u32,
) -> Result<u64, Failure> {
    let invalid = |text: String| Failure::new(INVALID_PARAMS, format!("params: {text}"));
    let bytes = |blocks: u64| blocks.saturating_mul(block_bytes.into());
    let (has, of, remedy) = match known.media.find(namespace).map(|(name, fault)| (name.to_owned(), fault)) {
        Some((name, Some(MediumFault::Shrunk { found, wanted }))) => {
            let text = format!(
                "{name:?} was found with {found} bytes, and its namespace had {wanted}: every command to it fails until serve is \
                 started again; another time make the namespace smaller first"
            );
            return Err(Failure::new(NOT_DONE, text));
        }
        Some((name, _)) => {
            let measured = known.media.measured(namespace).transpose();
            let geometry = measured.map_err(|error| Failure::new(NOT_DONE, error.to_string()))?;
            let remedy = "make it longer first, or choose fewer";
            (geometry.map_or(0, |geometry| geometry.blocks()), format!("{name:?}"), remedy)
        }
        None if wanted.is_none() => {
            return Err(invalid(
                "bytes: missing, and the namespace lives in memory; say how many it shall have".into(),
            ));
        }
        None => {
            let report = known.facts.served.namespace(&namespace.0, namespace.1);
            let remedy = "choose fewer: memory stays as long as it was made";
            (report.map_or(0, |report| report.medium_blocks), "its memory".to_owned(), remedy)
        }
    };
    let blocks = wanted.unwrap_or(has);
    if blocks > has {
        return Err(invalid(format!("bytes is {}: {of} has {}; {remedy}", bytes(blocks), bytes(has))));
    }
    Geometry::new(blocks, block_bytes).map_err(|error| invalid(format!("bytes is {}: {error}", bytes(blocks))))?;
    Ok(blocks)
}
