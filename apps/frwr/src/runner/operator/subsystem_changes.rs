//! Subsystems that come and go, who may use them, and how well they can be reached.

use super::{
    super::{ana_name::AnaName, change::Change, config_file::as_key},
    parameters::{nqn, read},
    planned::{Known, Plan, Planned, subsystem, within},
};
use crate::{
    control::{Failure, INVALID_PARAMS},
    options::Limit,
};
use frwr_nvmf::{
    controller::{AllowedHosts, MAX_ANA_GROUPS},
    wire::SerialNumber,
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

pub(super) fn add_subsystem(_: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let NewSubsystem { subsystem, hosts, serial } = read(parameters)?;
    let name = nqn("subsystem", &subsystem)?;
    let serial = match serial {
        None => SerialNumber::of_subsystem(&name),
        Some(text) => SerialNumber::new(&text)
            .map_err(|reason| Failure::new(INVALID_PARAMS, format!("params: serial is {text:?}: {reason}")))?,
    };
    Ok(Planned::at_home(Change::AddSubsystem { name, hosts: allowed(hosts)?, serial }))
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
    // Each core hands back each of its namespaces.
    let parts = state.namespaces as usize * known.findings.cores.len();
    Ok(Planned::at_home_and_in(parts, Change::RemoveSubsystem { name, within: within(within_seconds)? }))
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
    let (subsystem, before) = subsystem(known.findings, &of)?;
    group.map_or(Ok(()), check_group)?;
    let state = state.state();
    if group.map_or_else(|| before.ana(), |group| before.ana_of(group)) == Some(state) {
        return Ok(None);
    }
    Ok(Planned::at_home(Change::Ana { subsystem, group, state }))
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
    let (subsystem, before) = subsystem(known.findings, &of)?;
    let hosts = allowed(hosts)?;
    if before.hosts == hosts {
        return Ok(None);
    }
    Ok(Planned::at_home(Change::AllowedHosts { subsystem, hosts, within: within(within_seconds)? }))
}

/// Names of hosts, or all of them. How many there may be the target knows.
fn allowed(hosts: Option<Vec<String>>) -> Result<AllowedHosts, Failure> {
    let Some(names) = hosts else { return Ok(AllowedHosts::Any) };
    Ok(AllowedHosts::Listed(names.iter().map(|name| nqn("hosts", name)).collect::<Result<_, _>>()?))
}
