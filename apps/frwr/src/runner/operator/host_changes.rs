//! Hosts that are kept away for a while.

use super::{
    super::change::Change,
    parameters::{nqn, read},
    planned::{Known, Plan, Planned, within},
};
use crate::control::Failure;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drained {
    host: Option<String>,
    within_seconds: Option<u32>,
}

pub(super) fn drain(_: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Drained { host, within_seconds } = read(parameters)?;
    let host = host.map(|text| nqn("host", &text)).transpose()?;
    Ok(Planned::at_home(Change::Drain { host, within: within(within_seconds)? }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resumed {
    host: Option<String>,
}

pub(super) fn resume(_: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Resumed { host } = read(parameters)?;
    let host = host.map(|text| nqn("host", &text)).transpose()?;
    Ok(Planned::at_home(Change::Resume { host }))
}
