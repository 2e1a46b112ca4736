//! Where hosts connect: what is told of listeners, and how they come and go.

use super::{
    super::{change::Change, survey::Findings},
    Facts,
    answers::{home, inventories, list, listening_name},
    parameters::{none, read},
    planned::{Known, Plan, Planned, within},
};
use crate::{
    address::Purpose,
    control::{Failure, INVALID_PARAMS, NOT_DONE},
    options::{address, check_address},
};
use frwr_nvmf::controller::{Inventory, ListenerState, TargetListening};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

/// A listener, of all cores together.
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    /// PORTID.
    pub(super) port: u16,
    /// It neither comes nor goes.
    pub(super) listed: bool,
    /// It listens where all cores do.
    pub(super) listening: TargetListening,
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    /// Those that came by it and are there.
    pub(super) connections: u64,
}

/// All of them, as the home core has them.
pub(super) fn merged(findings: &Findings) -> Vec<Listener> {
    let at = |address: SocketAddr| {
        let is_it = move |one: &&ListenerState| one.address == address;
        inventories(findings).filter_map(move |core| core.listeners.iter().find(is_it))
    };
    let one = |listener: &ListenerState| Listener {
        address: listener.address,
        port: listener.port,
        listed: listener.listed,
        listening: at(listener.address).map(|one| one.listening).fold(listener.listening, TargetListening::with),
        accepted: at(listener.address).map(|one| one.accepted).sum(),
        rejected: at(listener.address).map(|one| one.rejected).sum(),
        connections: inventories(findings).map(|core| connections(core, listener.address)).sum(),
    };
    home(findings).map(|here| here.listeners.iter().map(one).collect()).unwrap_or_default()
}

fn connections(core: &Inventory, address: SocketAddr) -> u64 {
    core.queues.iter().filter(|queue| queue.listener == Some(address)).count() as u64
}

/// Their addresses.
pub(super) fn addresses(here: Option<&Inventory>) -> Vec<String> {
    let all = here.map(|here| here.listeners.as_slice()).unwrap_or_default();
    all.iter().map(|listener| listener.address.to_string()).collect()
}

pub(super) fn listeners(_: &Facts, findings: &Findings, parameters: Map<String, Value>) -> Result<Value, Failure> {
    none(&parameters)?;
    let one = |one: &Listener| {
        json!({
            "address": one.address.to_string(),
            "port_id": one.port,
            "state": listening_name(one.listening),
            "accepted": one.accepted,
            "rejected": one.rejected,
            "connections": one.connections,
        })
    };
    Ok(list("listeners", merged(findings).iter().map(one).collect(), findings))
}

/// An address, as the command line takes it.
fn listened(text: &str) -> Result<SocketAddr, Failure> {
    let invalid = |reason: &str| Failure::new(INVALID_PARAMS, format!("params: address: {reason}"));
    let parsed = address(text).map_err(|reason| invalid(&format!("{text:?}: {reason}")))?;
    check_address("address", parsed, Purpose::Listen).map_err(|error| invalid(&error.to_string()))?;
    Ok(parsed)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    address: String,
}

pub(super) fn add_listener(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Added { address } = read(parameters)?;
    let address = listened(&address)?;
    let found = merged(known.findings).into_iter().find(|one| one.address == address);
    if found.is_some_and(|one| one.listed && one.listening == TargetListening::Listens) {
        return Ok(None);
    }
    Ok(Planned::at_home(Change::AddListener { address }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Removed {
    address: String,
    #[serde(default)]
    drain: bool,
    within_seconds: Option<u32>,
}

pub(super) fn remove_listener(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Removed { address, drain, within_seconds } = read(parameters)?;
    let (address, within) = (listened(&address)?, within(within_seconds)?);
    if !merged(known.findings).iter().any(|one| one.address == address) {
        let text =
            format!("the target does not listen at {address}; `listeners` says where it does; nothing was changed");
        return Err(Failure::new(NOT_DONE, text));
    }
    Ok(Planned::at_home(Change::RemoveListener { address, drain: drain.then_some(within) }))
}
