//! Devices that are to serve what a target serves by now, or no longer: what is checked, and what is known of it.

use super::{
    super::{
        change::Change,
        fleet::{Wanted, WantedNamespace, WantedSubsystem, named},
        namespaces::MediumConfig,
        plan::storage_depth,
        prepared::Patience,
        serve_report::ServedDevice,
        survey::Findings,
    },
    Facts,
    listeners::{elsewhere, listened, merged, telling_steps},
    parameters::read,
    planned::{Behind, Known, Planned, Step, home, stands_still, within},
};
use crate::{
    control::{Failure, INVALID_PARAMS, NOT_DONE},
    options::DeviceArguments,
};
use frwr_nvmf::{
    controller::{Inventory, MAX_LISTENERS, SubsystemState},
    storage::Backing,
    wire::AnaState,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::net::SocketAddr;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    device: String,
    listen: Addresses,
}

/// One address, or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "must be an address, or a list of addresses")]
enum Addresses {
    One(String),
    Several(Vec<String>),
}

fn invalid(text: String) -> Failure {
    Failure::new(INVALID_PARAMS, format!("params: {text}"))
}

fn refused(text: String) -> Failure {
    Failure::new(NOT_DONE, format!("{text}; nothing was changed"))
}

/// Of a device that comes, with what people are told that it is called. `place` is one that is free.
pub(super) fn add_device(
    known: &mut Known<'_>,
    parameters: Map<String, Value>,
    place: Option<usize>,
) -> Result<(Wanted, String), Failure> {
    let Added { device: name, listen } = read(parameters)?;
    let arguments = named(&known.facts.config.arguments.device, &name);
    check_device(known, &arguments)?;
    let place = place.ok_or_else(|| refused(no_place(known.facts)))?;
    let addresses = addresses(known, &name, listen)?;
    check_quiet(known)?;
    let wanted = Wanted {
        place,
        addresses,
        elsewhere: elsewhere(known, place),
        subsystems: subsystems(known)?,
        kept_away: known.findings.home().iter().flat_map(|home| &home.inventory.drained).map(|one| one.host).collect(),
        authenticator: known.facts.host_keys.authenticator(),
        wait: Patience::default(),
        name,
    };
    Ok((wanted, arguments.label()))
}

/// That it can be one more of those that there are.
fn check_device(known: &Known<'_>, device: &DeviceArguments) -> Result<(), Failure> {
    device.check().map_err(|error| invalid(format!("device: {error}")))?;
    let label = device.label();
    let devices = &known.facts.served.devices;
    if let Some(there) = devices.iter().find(|there| there.label == label) {
        let serves = known.findings.device(there.place).is_some_and(|found| found.serves);
        let text = if serves {
            format!("the target serves on {label} already; `add_listener` has it listen at more addresses")
        } else {
            format!("{label} has not left yet; `remove_device` waits for that")
        };
        return Err(refused(text));
    }
    let is_soft = |device: &DeviceArguments| device.profile().is_ok_and(|profile| profile.is_some());
    let first = devices.first().map(|first| named(device, &first.name));
    match first.filter(|first| is_soft(first) != is_soft(device)) {
        None => Ok(()),
        Some(first) => {
            let (there, name) = (first.label(), device.name());
            Err(invalid(format!(
                "device is {name:?}, and the target serves on {there}: software NICs and RDMA devices are not served together; run \
                 serve twice"
            )))
        }
    }
}

/// Why there is no place.
fn no_place(facts: &Facts) -> String {
    let (count, gateway) = (facts.config.places(), &facts.config.arguments.gateway);
    let why = if gateway.is_one_of_several() {
        format!(
            ", as the identifiers of --controller-ids {} and the PORTIDs from {} on suffice for; start serve with more of them",
            gateway.controller_ids, gateway.first_port_id
        )
    } else {
        String::new()
    };
    format!("there are {count} devices, and may be {count}{why}; remove one (`remove_device`)")
}

/// Where it is to listen.
fn addresses(known: &Known<'_>, name: &str, listen: Addresses) -> Result<Vec<SocketAddr>, Failure> {
    let texts = match listen {
        Addresses::One(text) => vec![text],
        Addresses::Several(texts) => texts,
    };
    if !(1..=MAX_LISTENERS).contains(&texts.len()) {
        let count = texts.len();
        return Err(invalid(format!("listen has {count} addresses: must be from 1 to {MAX_LISTENERS}; name as many")));
    }
    let mut all = Vec::with_capacity(texts.len());
    for text in texts {
        let listen = listened(&text)?;
        if let Some(other) = listen.device.as_ref().filter(|device| *device != name) {
            return Err(invalid(format!("listen is {text:?}: {other} is another device; leave it out")));
        }
        let address = listen.address;
        if all.contains(&address) {
            return Err(invalid(format!("listen has {address} twice; name it once")));
        }
        if let Some(other) = merged(known.findings).iter().find(|one| one.address == address) {
            let of = known.facts.served.label(other.device);
            return Err(refused(format!("{of} listens at {address}, and {name} shall: remove it there first")));
        }
        all.push(address);
    }
    Ok(all)
}

/// That what every device has is the same on all of them by now, and is told by all cores.
fn check_quiet(known: &Known<'_>) -> Result<(), Failure> {
    if let Some(silent) = known.findings.silent().first() {
        return Err(stands_still(usize::from(*silent)));
    }
    if known.facts.key_trace.is_on() {
        let text =
            "keys are traced, by the devices that there were when that began; end it first (`set_key_trace file=null`)";
        return Err(refused(text.to_owned()));
    }
    Ok(())
}

/// What the devices serve that there are.
fn subsystems(known: &Known<'_>) -> Result<Vec<WantedSubsystem>, Failure> {
    let home = &known.findings.home().ok_or_else(|| stands_still(0))?.inventory;
    let listed = home.subsystems.iter().enumerate().filter(|(_, subsystem)| subsystem.listed);
    listed.map(|(at, state)| subsystem(known, home, at, state)).collect()
}

fn subsystem(
    known: &Known<'_>,
    home: &Inventory,
    at: usize,
    state: &SubsystemState,
) -> Result<WantedSubsystem, Failure> {
    let (cores, depth) = (known.findings.cores.len(), storage_depth(&known.facts.config.arguments.target));
    let namespace = |one: &frwr_nvmf::controller::NamespaceState| {
        let identity = (state.name, one.identifier);
        let backing = match known.stock.config(identity).map(|config| &config.medium) {
            Some(MediumConfig::Stored { backing, .. }) => *backing,
            _ => Backing::Auto,
        };
        let ways = known.media.ways(identity, backing, depth, cores).map_err(|reason| {
            let (nqn, identifier) = (state.name.as_str(), one.identifier);
            refused(format!("namespace {identifier} of {nqn} cannot be served by one more device: {reason}"))
        })?;
        let (nguid, ana_group) = (one.nguid, one.ana_group);
        let (identifier, active, blocks) = (one.identifier, one.active, one.blocks);
        Ok(WantedNamespace { identifier, nguid, ana_group, active, blocks, ways })
    };
    let namespaces = home.namespaces.iter().filter(|one| one.subsystem == at).map(namespace);
    let groups = (1..).zip(&state.ana_states).map(|(group, state)| (group, *state));
    Ok(WantedSubsystem {
        name: state.name,
        hosts: state.hosts.clone(),
        serial: state.serial,
        ana_states: groups.filter(|(_, state)| *state != AnaState::default()).collect(),
        namespaces: namespaces.collect::<Result<_, _>>()?,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Removed {
    device: String,
    within_seconds: Option<u32>,
}

/// How a device leaves.
pub(super) enum Departs {
    /// Its hosts are drained first.
    Drained(Box<Planned>),
    /// It leaves already.
    Already,
}

pub(super) fn remove_device(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Departs, Failure> {
    let Removed { device: name, within_seconds } = read(parameters)?;
    let within = within(within_seconds)?;
    let label = named(&known.facts.config.arguments.device, &name).label();
    let devices = &known.facts.served.devices;
    let Some(ServedDevice { place, .. }) = devices.iter().find(|device| device.label == label).cloned() else {
        let known: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
        let text = format!("device is {name:?}, and the target does not serve on it; name one of {}", known.join(", "));
        return Err(invalid(text));
    };
    if known.findings.device(place).is_some_and(|found| !found.serves) {
        return Ok(Departs::Already);
    }
    if !known.findings.devices().any(|other| other != place && is_well(known.findings, other)) {
        let text =
            format!("no other device serves than {label}; add one first (`add_device`), or end the target (`stop`)");
        return Err(refused(text));
    }
    check_quiet(known)?;
    let mut steps = telling_steps(known, Some(place));
    let (drain, undo) = (Change::Drain { host: None, within }, Change::Resume { host: None });
    steps.push_back(Step { unit: home(known.findings, place), change: drain, undo: Some(undo) });
    let behind = Some(Behind::Departs(place));
    Ok(Departs::Drained(Box::new(Planned { behind, ..Planned::steps(steps) })))
}

/// It has not failed.
fn is_well(findings: &Findings, place: usize) -> bool {
    findings.device(place).is_some_and(|found| found.control.device_failures == 0)
}
