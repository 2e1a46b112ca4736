//! Hosts that are kept away for a while, and the keys by which they prove themselves.

use super::{
    super::{change::Change, key_files::KeyFiles},
    Facts, changes,
    parameters::{nqn, read},
    planned::{Known, Plan, Planned, within},
};
use crate::control::{Failure, INVALID_PARAMS};
use frwr_nvmf::wire::Nqn;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::PathBuf;

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keyed {
    host: String,
    dhchap_key: PathBuf,
    dhchap_ctrl_key: Option<PathBuf>,
}

/// Whose keys are to be read, and where they are.
pub(super) fn set_host_key(parameters: Map<String, Value>) -> Result<(Nqn, KeyFiles), Failure> {
    let Keyed { host, dhchap_key, dhchap_ctrl_key } = read(parameters)?;
    if let Some(path) =
        [Some(&dhchap_key), dhchap_ctrl_key.as_ref()].into_iter().flatten().find(|path| !path.is_absolute())
    {
        let text = format!("params: {path:?} must begin with /: the target is in another folder than who asks");
        return Err(Failure::new(INVALID_PARAMS, text));
    }
    Ok((nqn("host", &host)?, KeyFiles { dhchap_key, dhchap_ctrl_key }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unkeyed {
    host: String,
}

pub(super) fn clear_host_key(facts: &mut Facts, parameters: Map<String, Value>) -> Result<Value, Failure> {
    let Unkeyed { host } = read(parameters)?;
    Ok(changes::done(facts.host_keys.clear(&nqn("host", &host)?)))
}
