//! Where hosts connect: what is told of listeners, and how they come and go.

use super::{
    super::{change::Change, serve_command::device_of, serve_report::ServedDevice, survey::Findings},
    Facts,
    answer::list,
    changes::done,
    parameters::{none, read},
    planned::{Behind, Known, Plan, Planned, Step, home, within},
};
use crate::{
    address::Purpose,
    control::{Call, Failure, INVALID_PARAMS, NOT_DONE},
    options::{Listen, check_address},
};
use frwr_nvmf::controller::{ElsewhereListener, Inventory, ListenerState, TargetListening};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{collections::VecDeque, net::SocketAddr};

/// A listener, of all cores together.
pub(super) struct Listener {
    /// Which device it is of.
    pub(super) device: usize,
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

impl Listener {
    /// Hosts can connect there.
    fn is_up(&self) -> bool {
        self.listed && self.listening == TargetListening::Listens
    }
}

/// All of them, as the home core has them of each device.
pub(super) fn merged(findings: &Findings) -> Vec<Listener> {
    findings.devices().flat_map(|device| of_device(findings, device)).collect()
}

/// The same of the device of one place.
pub(super) fn of_device(findings: &Findings, device: usize) -> Vec<Listener> {
    let cores = || findings.of_device(device).map(|core| &core.inventory);
    let at = |address: SocketAddr| {
        let is_it = move |one: &&ListenerState| one.address == address;
        cores().filter_map(move |core| core.listeners.iter().find(is_it))
    };
    let one = |listener: &ListenerState| Listener {
        device,
        address: listener.address,
        port: listener.port,
        listed: listener.listed,
        listening: at(listener.address).map(|one| one.listening).fold(listener.listening, TargetListening::with),
        accepted: at(listener.address).map(|one| one.accepted).sum(),
        rejected: at(listener.address).map(|one| one.rejected).sum(),
        connections: cores().map(|core| connections(core, listener.address)).sum(),
    };
    findings.home_of(device).map(|home| home.inventory.listeners.iter().map(one).collect()).unwrap_or_default()
}

fn connections(core: &Inventory, address: SocketAddr) -> u64 {
    core.queues.iter().filter(|queue| queue.listener == Some(address)).count() as u64
}

/// Their addresses, as people write them.
pub(super) fn addresses(facts: &Facts, findings: &Findings) -> Vec<String> {
    merged(findings).iter().map(|one| facts.served.listen_at(one.device, one.address).to_string()).collect()
}

pub(super) fn listeners(facts: &Facts, findings: &Findings, parameters: Map<String, Value>) -> Result<Value, Failure> {
    none(&parameters)?;
    let one = |one: &Listener| {
        json!({
            "device": facts.served.label(one.device),
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
pub(super) fn listened(text: &str) -> Result<Listen, Failure> {
    let parsed: Listen = text.parse().map_err(|reason| invalid(&format!("{text:?}: {reason}")))?;
    check_address("address", parsed.address, Purpose::Listen).map_err(|error| invalid(&error.to_string()))?;
    Ok(parsed)
}

fn invalid(reason: &str) -> Failure {
    Failure::new(INVALID_PARAMS, format!("params: address: {reason}"))
}

/// The device that an address is of: the one that it names, or the only one.
fn device(known: &Known<'_>, listen: &Listen) -> Result<usize, Failure> {
    let devices = &known.facts.served.devices;
    let names: Vec<_> = devices.iter().map(|device| device.name.clone()).collect();
    let named = device_of("address", listen, &names).map_err(|reason| invalid(&reason))?;
    let is_it = |device: &&ServedDevice| named.as_ref().is_none_or(|named| device.name == *named);
    Ok(devices.iter().find(is_it).map(|device| device.place).unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    address: String,
}

pub(super) fn add_listener(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Added { address } = read(parameters)?;
    let listen = listened(&address)?;
    let (device, address) = (device(known, &listen)?, listen.address);
    let found = merged(known.findings).into_iter().find(|one| one.address == address);
    if let Some(other) = found.as_ref().filter(|one| one.device != device) {
        let (of, is) = (known.facts.served.label(other.device), known.facts.served.label(device));
        let text = format!("{of} listens at {address}, and {is} shall: remove it there first; nothing was changed");
        return Err(Failure::new(NOT_DONE, text));
    }
    if found.is_some_and(|one| one.is_up()) {
        // Whoever was not told of it is told now.
        let parameters = telling(done(false)).parameters;
        return if known.findings.has_several() { tell_devices(known, parameters) } else { Ok(None) };
    }
    Ok(changed(known.findings, device, Change::AddListener { address }))
}

/// A change of one device, of which the others are told.
fn changed(findings: &Findings, device: usize, change: Change) -> Plan {
    let behind = findings.has_several().then_some(Behind::Listeners);
    Some(Box::new(Planned { behind, ..Planned::at_home_of(findings, device, change) }))
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
    let (listen, within) = (listened(&address)?, within(within_seconds)?);
    // An address is of one device: it need not be named.
    let device = listen.device.is_some().then(|| device(known, &listen)).transpose()?;
    let is_it = |one: &Listener| one.address == listen.address && device.is_none_or(|device| device == one.device);
    let Some(found) = merged(known.findings).into_iter().find(is_it) else {
        let text =
            format!("the target does not listen at {listen}; `listeners` says where it does; nothing was changed");
        return Err(Failure::new(NOT_DONE, text));
    };
    let change = Change::RemoveListener { address: found.address, drain: drain.then_some(within) };
    Ok(changed(known.findings, found.device, change))
}

/// The call that tells each device of the others; `answer` is what is answered then.
pub(super) fn telling(answer: Value) -> Call {
    Call { id: None, method: "listeners".to_owned(), parameters: Map::from_iter([("answer".to_owned(), answer)]) }
}

/// What each device's target is told of the others: where hosts can connect by devices that are there, and by other gateways.
pub(super) fn tell_devices(known: &mut Known<'_>, mut parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let steps = telling_steps(known, None);
    // What it follows has been done.
    let (for_good, made) = (true, 1);
    Ok(Some(Box::new(Planned { for_good, made, answers: parameters.remove("answer"), ..Planned::steps(steps) })))
}

/// Each device's target is told of the others, but for that of a place, which leaves: nobody is told of that one, and it of nobody.
pub(super) fn telling_steps(known: &Known<'_>, leaves: Option<usize>) -> VecDeque<Step> {
    let findings = known.findings;
    let up: Vec<_> = up(findings).into_iter().filter(|one| Some(one.device) != leaves).collect();
    let step = |device| {
        let listeners = beside(known, &up, device);
        Step { unit: home(findings, device), change: Change::ListElsewhere { listeners }, undo: None }
    };
    findings.devices().filter(|device| Some(*device) != leaves).map(step).collect()
}

/// Where hosts find others than the device of a place.
pub(super) fn elsewhere(known: &Known<'_>, place: usize) -> Vec<ElsewhereListener> {
    beside(known, &up(known.findings), place)
}

/// Where hosts can connect, by devices that are there.
fn up(findings: &Findings) -> Vec<Listener> {
    let is_there = |device: usize| findings.device(device).is_some_and(|found| found.control.device_failures == 0);
    merged(findings).into_iter().filter(|one| one.is_up() && is_there(one.device)).collect()
}

fn beside(known: &Known<'_>, up: &[Listener], place: usize) -> Vec<ElsewhereListener> {
    let others = up.iter().filter(|one| one.device != place);
    let devices = others.map(|one| ElsewhereListener { port: one.port, address: one.address });
    devices.chain(known.facts.config.arguments.gateway.elsewhere()).collect()
}

/// Of people and programs.
pub(super) fn listening_name(listening: TargetListening) -> String {
    match listening {
        TargetListening::NotAsked | TargetListening::Asked => "starting".to_owned(),
        TargetListening::Listens => "listening".to_owned(),
        TargetListening::Stopped => "stopped".to_owned(),
        TargetListening::Failed(reason) => format!("failed: {reason:?}"),
    }
}
