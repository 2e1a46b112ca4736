//! What methods answer: figures of cores, put together and named for people and programs.

use super::{
    super::{
        ana_name::ana_name,
        live_line::name as doing_name,
        lock_line::{LOCK_NAMES, lock_name},
        media_watch::MediaWatch,
        medium::fault_text,
        serve_report::ServedDevice,
        survey::{DeviceFound, Findings},
    },
    Facts,
    answer::{Answer, Parameters, list},
    hosts::{all_controllers, host_names},
    listeners::{addresses, listening_name},
    namespace_figures::NamespaceFigures,
    parameters::{none, nqn, read},
    planned::Known,
    sums::{authenticated, engine, engine_of, home, merged, target, waiting},
};
use crate::{
    control::{Failure, INTERNAL, INVALID_PARAMS},
    diagnostics,
    report::{counts, object},
};
use core::ops::Add;
use frwr_engine::Waits;
use frwr_nvmf::{
    controller::{AllowedHosts, ControllerState, NamespaceState, SubsystemState, TargetStatistics, WaitingNow},
    storage::RbdLock,
    wire::{AnaState, Nqn},
};
use frwr_reactor::{Longest, Statistics as ReactorStatistics};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) fn version(facts: &mut Facts, parameters: Parameters) -> Answer {
    none(&parameters)?;
    Ok(version_json(facts))
}

fn version_json(facts: &Facts) -> Value {
    object([json!({ "program": "frwr", "process": std::process::id() }), facts.about.clone()])
}

pub(super) fn options(facts: &mut Facts, parameters: Parameters) -> Answer {
    none(&parameters)?;
    Ok(facts.config.describe())
}

pub(super) fn incidents(facts: &mut Facts, parameters: Parameters) -> Answer {
    none(&parameters)?;
    Ok(facts.recent.json(facts.now))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: String,
}

pub(super) fn set_log_level(_: &mut Facts, parameters: Parameters) -> Answer {
    let Level { level } = read(parameters)?;
    match diagnostics::set_levels(&level) {
        Ok(true) => Ok(super::changes::done(true)),
        Ok(false) => Err(Failure::new(INTERNAL, "this process writes no lines of its own; look at its embedder's")),
        Err(error) => {
            let text = error.to_string().replacen(diagnostics::LEVELS, "level", 1);
            Err(Failure::new(INVALID_PARAMS, format!("params: {text}")))
        }
    }
}

pub(super) fn stop(facts: &mut Facts, parameters: Parameters) -> Answer {
    none(&parameters)?;
    facts.progress.stop();
    Ok(super::changes::done(true))
}

pub(super) fn status(known: &mut Known<'_>, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let Known { facts, findings, media, .. } = known;
    let (target, engine) = (target(findings), engine(findings));
    let here = home(findings);
    let controllers = all_controllers(findings).filter(|one| one.subsystem.is_some()).count();
    let cores: Vec<_> = findings.cores.iter().map(|core| core_figures(&core.reactor)).collect();
    let computed = json!({
        "uptime_seconds": findings.at.as_secs_f64(),
        "state": state(facts, findings),
        "listening": listening_name(target.listening),
        "listen": addresses(facts, findings),
        "device": facts.served.device,
        "subsystems": here.map_or(0, |here| here.subsystems.len()),
        "namespaces": here.map_or(0, |here| here.namespaces.len()),
        "hosts": host_names(findings).len(),
        "controllers": controllers,
        "queues": target.queues,
        "keys_alive": engine.keys_live(),
        "key_trace": facts.key_trace.file(),
        "awaited_medium": facts.awaited.as_ref().map(|awaited| awaited.json(facts.now)),
        "waiting": waiting_json(waiting(findings)),
        "authentications": authentications(&target),
        "faults": faults(findings),
        "locks": locks(media),
        "cores": cores,
        "silent_reactors": findings.silent(),
    });
    let done = counts!(target =>
        commands, reads, writes, bytes_read, bytes_written, failed_commands, media_errors, commands_in_flight, incidents,
    );
    Ok(object([version_json(facts), computed, done]))
}

/// How many images of those that one of several gateways serves are what to this one.
fn locks(media: &MediaWatch) -> Value {
    let locks = media.lock_figures();
    let count = |name| locks.iter().filter(|one| lock_name(&one.lock) == name).count();
    LOCK_NAMES.map(|name| (name, count(name))).into_iter().collect()
}

/// What became of proofs, and how many run.
fn authentications(target: &TargetStatistics) -> Value {
    let outcomes = authenticated(target).into_iter().map(|(name, count)| (name.to_owned(), count.into()));
    let running = [("running".to_owned(), target.authenticating.into())];
    Value::Object(running.into_iter().chain(outcomes).collect())
}

fn state(facts: &Facts, findings: &Findings) -> &'static str {
    if findings.homes().any(|home| home.inventory.ending) { "ending" } else { doing_name(facts.progress.doing()) }
}

/// Namespaces that are out of order.
fn faults(findings: &Findings) -> usize {
    let broken = |namespace: &&NamespaceState| namespace.storage.broken != 0 || namespace.storage.fault.is_some();
    merged(findings).iter().filter(broken).count()
}

fn core_figures(reactor: &ReactorStatistics) -> Value {
    json!({
        "reactor": reactor.core.0,
        "cpu": reactor.cpu.map(|cpu| cpu.get()),
        "busy_share": reactor.busy_share(),
        "busy_seconds": reactor.busy.as_secs_f64(),
        "idle_seconds": reactor.idle.as_secs_f64(),
        "asleep_seconds": reactor.asleep.as_secs_f64(),
    })
}

pub(super) fn cores(facts: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let one = |found: &super::super::survey::Found| {
        let reactor = &found.reactor;
        let memory = found.said().next().map(|core| core.memory.kind.to_string());
        let io = found.said().chain(&found.former).map(|core| core.io).reduce(Add::add);
        let counted = counts!(reactor =>
            iterations, busy_iterations, sleeps, work, messages, would_blocks, long_iterations, stalls,
        );
        let computed = json!({
            "at_seconds": reactor.at.as_secs_f64(),
            "may_sleep": facts.config.arguments.core.idle.sleeps_on(reactor.cpu),
            "longest_iteration": longest(reactor.longest_iteration),
            "long_iterations_by_cause": reactor.long,
            "pollers": reactor.pollers.iter().map(poller).collect::<Vec<_>>(),
            "memory": memory,
            "io_commands": io.map(|io| io.commands),
            "io_bytes": io.map(|io| io.bytes),
            "answered": found.has_answered(),
        });
        object([core_figures(reactor), counted, computed])
    };
    Ok(list("cores", findings.cores.iter().map(one).collect(), findings))
}

fn poller(poller: &frwr_reactor::PollerStatistics) -> Value {
    let counted = counts!(poller => name, polls, empty_polls, work, long_iterations);
    object([counted, json!({ "longest_iteration": longest(poller.longest_iteration) })])
}

fn longest(longest: Longest) -> Value {
    json!({ "seconds": longest.duration.as_secs_f64(), "at_seconds": longest.at.as_secs_f64() })
}

pub(super) fn devices(facts: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let all = facts.served.devices.iter().filter_map(|served| Some((served, findings.device(served.place)?)));
    let all = all.map(|(served, found)| device(facts, findings, served, found));
    Ok(list("devices", all.collect(), findings))
}

fn device(facts: &Facts, findings: &Findings, of: &ServedDevice, found: DeviceFound) -> Value {
    let (served, control, engine) = (&facts.served, found.control, engine_of(findings, of.place));
    let named = json!({
        "name": of.label,
        "state": device_state(found),
        "queue_depth": served.queue_depth,
        "effective_queue_depth": of.effective_queue_depth,
        "shared_receives": served.shared_receives,
        "command_error": control.command_error.map(|error| format!("{error:?}")),
    });
    let of_control = counts!(control =>
        commands, commands_failed, frees_refused, async_events, device_failures, memories_refused, incoming,
        incoming_overflow, domains_kept, queue_pairs_kept, memories_kept, listeners_kept,
    );
    let of_engine = counts!(engine =>
        work_requests, doorbells, receive_doorbells, send_completions, receive_completions, stale_completions,
        posts_refused, connections, disconnects, drain_timeouts,
    );
    object([named, of_control, of_engine])
}

/// Whether it is there.
fn device_state(found: DeviceFound) -> &'static str {
    match (found.control.device_failures, found.serves) {
        (0, true) => "serves",
        (0, false) => "leaves",
        _ => "gone",
    }
}

pub(super) fn subsystems(_: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let here = home(findings);
    let one = |(at, subsystem): (usize, &SubsystemState)| {
        let hosts = match &subsystem.hosts {
            AllowedHosts::Any => None,
            AllowedHosts::Listed(names) => Some(names.iter().map(Nqn::as_str).collect::<Vec<_>>()),
        };
        let of_it = |controller: &&ControllerState| controller.subsystem == Some(at);
        json!({
            "nqn": subsystem.name.as_str(),
            "serial": subsystem.serial.as_str(),
            "allowed_hosts": hosts,
            "ana_state": subsystem.ana().map(ana_name),
            "ana_groups": ana_groups(subsystem),
            "namespaces": subsystem.namespaces,
            "controllers": all_controllers(findings).filter(of_it).count(),
        })
    };
    let all = here.map(|here| here.subsystems.iter().enumerate().map(one).collect()).unwrap_or_default();
    Ok(list("subsystems", all, findings))
}

/// Groups that have namespaces, and those without that somebody gave another state than most have.
fn ana_groups(subsystem: &SubsystemState) -> Vec<Value> {
    let of_most = subsystem.ana_states.iter().max_by_key(|state| count(&subsystem.ana_states, **state));
    let group = |(group, state): (u32, &AnaState)| {
        let namespaces = subsystem.ana_groups.iter().find(|one| one.group == group).map_or(0, |one| one.namespaces);
        let is_shown = namespaces > 0 || Some(state) != of_most;
        is_shown.then(|| json!({ "group": group, "state": ana_name(*state), "namespaces": namespaces }))
    };
    (1..).zip(&subsystem.ana_states).filter_map(group).collect()
}

fn count(states: &[AnaState], state: AnaState) -> usize {
    states.iter().filter(|other| **other == state).count()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfSubsystem {
    subsystem: Option<String>,
}

pub(super) fn namespaces(known: &mut Known<'_>, parameters: Parameters) -> Answer {
    let OfSubsystem { subsystem } = read(parameters)?;
    let wanted = subsystem.map(|text| nqn("subsystem", &text)).transpose()?;
    let Known { facts, findings, media, .. } = known;
    let here = home(findings);
    let name = |namespace: &NamespaceState| here?.subsystems.get(namespace.subsystem).map(|subsystem| &subsystem.name);
    let (all, figures) = (merged(findings), NamespaceFigures::of(findings));
    let shown = all.iter().filter(|one| wanted.is_none_or(|wanted| name(one) == Some(&wanted)));
    let one = |namespace: &NamespaceState| {
        let report = name(namespace).and_then(|name| facts.served.namespace(name, namespace.identifier));
        let storage = &namespace.storage;
        let lock = name(namespace).and_then(|name| media.locked((*name, namespace.identifier))).map(|(_, lock)| lock);
        let owner = if let Some(RbdLock::Standby { owner, .. }) = &lock { owner.as_deref() } else { None };
        let named = json!({
            "subsystem": name(namespace).map(Nqn::as_str),
            "namespace": namespace.identifier,
            "active": namespace.active,
            "ana_group": namespace.ana_group,
            "blocks": namespace.blocks,
            "block_bytes": namespace.block_bytes,
            "read_only": report.is_some_and(|report| report.read_only),
            "medium": report.map(|report| &report.name),
            "kind": report.map(|report| report.kind),
            "operations": storage.submitted,
            "bytes_read": namespace.bytes_read,
            "bytes_written": namespace.bytes_written,
            "broken": (storage.broken != 0).then_some(storage.broken),
            "fault": storage.fault.map(fault_text),
            "lock": lock.as_ref().map(lock_name),
            "lock_owner": owner,
        });
        let counted = counts!(storage => completed, failed, cancelled, flushes, system_calls, restarts);
        object([named, counted, figures.json(namespace)])
    };
    Ok(list("namespaces", shown.map(one).collect(), findings))
}

pub(super) fn keys(_: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let (target, engine) = (target(findings), engine(findings));
    Ok(json!({
        // Of this end: what it opened to peers.
        "alive": engine.keys_live(),
        "made": engine.registrations,
        "killed_here": engine.local_invalidations,
        "killed_by_peer": engine.remote_invalidations,
        "destroyed_alive": engine.keys_destroyed_live,
        "bytes_opened_to_read": engine.bytes_registered_read,
        "bytes_opened_to_write": engine.bytes_registered_write,
        // Of hosts: those that came with commands.
        "of_hosts_killed_here": target.remote_invalidations,
        "of_hosts_left_to_them": target.plain_responses,
        "silent_reactors": findings.silent(),
    }))
}

fn waiting_json(now: WaitingNow) -> Value {
    counts!(now => buffers, transfers_or_storage, admission, former_session)
}

pub(super) fn waits(_: &Facts, findings: &Findings, parameters: Parameters) -> Answer {
    none(&parameters)?;
    let (target, engine) = (target(findings), engine(findings));
    let by_cause = |waits: Waits| counts!(waits => registrations, peer_receives, reply_receives, send_entries, order);
    Ok(json!({
        "now": waiting_json(waiting(findings)),
        "so_far": {
            "buffers": target.buffer_waits,
            "transfers_or_storage": target.stalls,
            "transfers": by_cause(engine.transfer_waits),
            "requests": by_cause(engine.request_waits),
            "transfers_without_slot": engine.transfers_without_slot,
        },
        "buffers": target.buffers,
        "buffers_free": target.buffers_free,
        "commands_in_flight": target.commands_in_flight,
        "at_seconds": findings.at.as_secs_f64(),
        "silent_reactors": findings.silent(),
    }))
}
