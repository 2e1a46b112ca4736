//! Subsystems that come and go, who may use them, and how well they can be reached.

use super::{
    super::{ana_name::AnaName, change::Change, config_file::as_key, survey::Findings},
    parameters::{nqn, read},
    planned::{Known, Plan, Planned, subsystem, within},
};
use crate::{
    control::{Failure, INVALID_PARAMS},
    options::Limit,
};
use core::time::Duration;
use frwr_nvmf::{
    controller::{AllowedHosts, MAX_ANA_GROUPS, SubsystemState},
    wire::{Nqn, SerialNumber},
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// As the method calls it.
const GROUP: Limit = Limit::new("--group", 1, MAX_ANA_GROUPS as u64);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSubsystem {
    subsystem: String,
    hosts: Option<Vec<String>>,
    serial: Option<String>,
}

pub(super) fn add_subsystem(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let NewSubsystem { subsystem, hosts, serial } = read(parameters)?;
    let name = nqn("subsystem", &subsystem)?;
    let serial = match serial {
        None => SerialNumber::of_subsystem(&name),
        Some(text) => SerialNumber::new(&text)
            .map_err(|reason| Failure::new(INVALID_PARAMS, format!("params: serial is {text:?}: {reason}")))?,
    };
    let hosts = allowed(hosts)?;
    let change = || Change::AddSubsystem { name, hosts: hosts.clone(), serial };
    let undo = || Some(Change::RemoveSubsystem { name, within: Duration::ZERO });
    Ok(Planned::at_homes(known.findings, change, undo))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OldSubsystem {
    subsystem: String,
    within_seconds: Option<u32>,
}

pub(super) fn remove_subsystem(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let OldSubsystem { subsystem: of, within_seconds } = read(parameters)?;
    let (name, state) = subsystem(known.findings, &of)?;
    let (within, findings) = (within(within_seconds)?, known.findings);
    let is_gone = |device| {
        let there = findings.home_of(device).map(|home| home.inventory.subsystems.as_slice());
        there.is_some_and(|there| there.iter().all(|one| one.name != name))
    };
    // Each core hands back each of its namespaces.
    let change = || Change::RemoveSubsystem { name, within };
    Ok(Planned::for_good(findings, state.namespaces as usize, is_gone, change))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ana {
    subsystem: String,
    group: Option<u32>,
    state: AnaName,
}

pub(super) fn set_ana_state(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Ana { subsystem: of, group, state } = read(parameters)?;
    let (subsystem, _) = subsystem(known.findings, &of)?;
    group.map_or(Ok(()), check_group)?;
    if let Some(group) = group.filter(|group| known.stock.locked_groups(subsystem).any(|locked| locked == *group)) {
        let text = format!(
            "params: group is {group}, whose state follows the lock of an image (exclusive=1); acquire_lock and release_lock \
             change whose that is"
        );
        return Err(Failure::new(INVALID_PARAMS, text));
    }
    let state = state.state();
    let change = |state| Change::Ana { subsystem, group, state };
    let before = |device| {
        let there = on_device(known.findings, device, subsystem);
        let before = there.and_then(|of| group.map_or_else(|| of.ana(), |group| of.ana_of(group)));
        (before != Some(state)).then_some(before)
    };
    Ok(Planned::where_else(known.findings, before, || change(state), |before| before.map(change)))
}

/// The subsystem as it is on a device, which may have taken a change that others did not.
fn on_device(findings: &Findings, device: usize, name: Nqn) -> Option<&SubsystemState> {
    findings.home_of(device)?.inventory.subsystems.iter().find(|subsystem| subsystem.name == name)
}

fn check_group(group: u32) -> Result<(), Failure> {
    GROUP.check(group).map_err(|error| Failure::new(INVALID_PARAMS, format!("params: {}", as_key(&error).1)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    subsystem: String,
    #[serde(deserialize_with = "Option::deserialize")]
    hosts: Option<Vec<String>>,
    within_seconds: Option<u32>,
}

pub(super) fn set_allowed_hosts(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Allowed { subsystem: of, hosts, within_seconds } = read(parameters)?;
    let (subsystem, first) = subsystem(known.findings, &of)?;
    let hosts = allowed(hosts)?;
    let within = within(within_seconds)?;
    let change = |hosts: &AllowedHosts| Change::AllowedHosts { subsystem, hosts: hosts.clone(), within };
    let before = |device| {
        let before = on_device(known.findings, device, subsystem).map_or(&first.hosts, |there| &there.hosts);
        (*before != hosts).then_some(before)
    };
    Ok(Planned::where_else(known.findings, before, || change(&hosts), |before| Some(change(before))))
}

/// Names of hosts, or all of them. How many there may be the target knows.
fn allowed(hosts: Option<Vec<String>>) -> Result<AllowedHosts, Failure> {
    let Some(names) = hosts else { return Ok(AllowedHosts::Any) };
    Ok(AllowedHosts::Listed(names.iter().map(|name| nqn("hosts", name)).collect::<Result<_, _>>()?))
}
