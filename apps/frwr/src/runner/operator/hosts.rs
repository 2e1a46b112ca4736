//! What methods answer of hosts: who is connected, by which controllers, and by which queue pairs.

use super::{
    super::{load_file::hex, snapshot::TargetSnapshot, survey::Findings},
    Facts,
    answer::{Answer, Parameters, list},
    parameters::{none, nqn, read},
    sums::{home, inventories},
};
use crate::{control::Failure, report::object};
use frwr_nvmf::{
    controller::{ControllerState, DrainState, QueuePhase, QueueState},
    wire::Nqn,
};
use serde::Deserialize;
use serde_json::json;

/// A host, or one without a name.
fn host_text(host: Option<Nqn>) -> Option<String> {
    host.map(|host| host.as_str().to_owned())
}

/// Controllers of all devices.
pub(super) fn all_controllers(findings: &Findings) -> impl Iterator<Item = &ControllerState> {
    findings.homes().flat_map(|home| &home.inventory.controllers)
}

/// Who has a controller, each once, in the order of their first ones.
pub(super) fn host_names(findings: &Findings) -> Vec<(Option<Nqn>, [u8; 16])> {
    let mut names = Vec::new();
    for controller in all_controllers(findings) {
        let name = (controller.host, controller.host_id);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

pub(super) fn hosts(_: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let one = |(host, id): (Option<Nqn>, [u8; 16])| {
        let is_its = |controller: &&ControllerState| (controller.host, controller.host_id) == (host, id);
        let controllers: Vec<_> = all_controllers(findings).filter(is_its).map(|controller| controller.id).collect();
        let is_of = |queue: &&QueueState| queue.controller.is_some_and(|id| controllers.contains(&id));
        let queues = || inventories(findings).flat_map(|core| core.queues.iter().filter(is_of));
        let mut peers: Vec<_> = queues().filter_map(|queue| queue.peer).map(|peer| peer.ip().to_string()).collect();
        peers.sort();
        peers.dedup();
        json!({
            "host": host_text(host),
            "host_id": hex(&id),
            "addresses": peers,
            "controllers": controllers,
            "queues": queues().count(),
            "commands": queues().map(|queue| queue.commands).sum::<u64>(),
            "commands_in_flight": queues().map(|queue| u64::from(queue.outstanding)).sum::<u64>(),
        })
    };
    let drained = home(findings).map(|here| here.drained.as_slice()).unwrap_or_default();
    let is_done = |one: &DrainState| {
        let of_device = |home: &TargetSnapshot| home.inventory.drained.iter().all(|of| of.host != one.host || of.done);
        findings.homes().all(of_device)
    };
    let away = |one: &DrainState| json!({ "host": host_text(one.host), "complete": is_done(one) });
    let all = list("hosts", host_names(findings).into_iter().map(one).collect(), findings);
    Ok(object([all, json!({ "drained": drained.iter().map(away).collect::<Vec<_>>() })]))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfHost {
    host: Option<String>,
}

fn of_host(parameters: Parameters) -> Result<Option<Nqn>, Failure> {
    let OfHost { host } = read(parameters)?;
    host.map(|text| nqn("host", &text)).transpose()
}

pub(super) fn controllers(facts: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    let wanted = of_host(parameters)?;
    let Some(here) = home(findings) else { return Ok(list("controllers", Vec::new(), findings)) };
    let one = |(device, controller): (usize, &ControllerState)| {
        let is_of = |queue: &&QueueState| queue.controller == Some(controller.id);
        let queues = inventories(findings).map(|core| core.queues.iter().filter(is_of).count());
        let subsystem = controller.subsystem.and_then(|at| here.subsystems.get(at));
        json!({
            "controller": controller.id,
            "device": facts.served.label(device),
            "host": host_text(controller.host),
            "host_id": hex(&controller.host_id),
            "subsystem": subsystem.map(|subsystem| subsystem.name.as_str()),
            "discovery": controller.subsystem.is_none(),
            "ready": controller.ready,
            "queues": queues.sum::<usize>(),
            "keep_alive_seconds": (!controller.keep_alive.is_zero()).then_some(controller.keep_alive.as_secs_f64()),
            "silent_seconds": controller.silent.as_secs_f64(),
            "event_requests": controller.event_requests,
            "errors": controller.errors,
        })
    };
    let of_device = |device| {
        let home = findings.home_of(device).into_iter();
        home.flat_map(move |home| home.inventory.controllers.iter().map(move |one| (device, one)))
    };
    let all = findings.devices().flat_map(of_device);
    let shown = all.filter(|(_, one)| wanted.is_none_or(|wanted| one.host == Some(wanted)));
    Ok(list("controllers", shown.map(one).collect(), findings))
}

pub(super) fn queue_pairs(facts: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    let wanted = of_host(parameters)?;
    let mut all = Vec::new();
    for (device, core, reactor) in findings.by_device() {
        let shown = core.inventory.queues.iter().filter(|one| wanted.is_none_or(|wanted| one.host == Some(wanted)));
        all.extend(shown.map(|queue| {
            json!({
                "reactor": reactor.core.0,
                "device": facts.served.label(device),
                "connection": queue.connection,
                "peer": queue.peer.map(|peer| peer.to_string()),
                "local": queue.local.map(|local| local.to_string()),
                "listener": queue.listener.map(|listener| listener.to_string()),
                "host": host_text(queue.host),
                "controller": queue.controller,
                "queue": queue.id,
                "entries": queue.entries,
                "commands": queue.commands,
                "commands_in_flight": queue.outstanding,
                "state": phase(queue.phase),
                "age_seconds": queue.age.as_secs_f64(),
            })
        }));
    }
    Ok(list("queue_pairs", all, findings))
}

fn phase(phase: QueuePhase) -> &'static str {
    match phase {
        QueuePhase::Accepted => "accepted",
        QueuePhase::Held => "held",
        QueuePhase::Queue => "queue",
        QueuePhase::Kept => "kept by the device",
        // What is added there is told as what it comes closest to.
        _ => "ending",
    }
}
