//! Hosts that are kept away for a while.

use super::{
    super::change::Change,
    parameters::{nqn, read},
    planned::{Known, Plan, Planned, within},
};
use crate::control::Failure;
use frwr_nvmf::wire::Nqn;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drained {
    host: Option<String>,
    within_seconds: Option<u32>,
}

/// Whether a host is kept away, or all are, and nothing of them is left.
fn drained(known: &Known<'_>, host: Option<Nqn>) -> Option<bool> {
    let drained = known.findings.homes().flat_map(|home| &home.inventory.drained);
    drained.filter(|drained| drained.host == host).map(|drained| drained.done).reduce(|all, one| all && one)
}

pub(super) fn drain(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Drained { host, within_seconds } = read(parameters)?;
    let (host, within) = (host.map(|text| nqn("host", &text)).transpose()?, within(within_seconds)?);
    // One that goes on is begun anew, and tells who asks by now what holds it up.
    if drained(known, host) == Some(true) {
        return Ok(None);
    }
    Ok(Planned::at_homes(known.findings, || Change::Drain { host, within }, || Some(Change::Resume { host })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resumed {
    host: Option<String>,
}

pub(super) fn resume(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Resumed { host } = read(parameters)?;
    let host = host.map(|text| nqn("host", &text)).transpose()?;
    if drained(known, host).is_none() {
        return Ok(None);
    }
    Ok(Planned::at_homes(known.findings, || Change::Resume { host }, || None))
}
