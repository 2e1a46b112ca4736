//! What a target did and has as OpenMetrics: names and units by Prometheus' conventions, values by what the cores said.

use super::{
    super::{
        lock_line::{LOCK_NAMES, lock_name},
        media_watch::LockFigures,
        serve_report::ServedDevice,
        survey::{Findings, Found},
    },
    Facts,
    families::{Families, Figure, Labels, Length},
    hosts::all_controllers,
    listeners,
    namespace_figures::{errors, latencies, status_name, status_type},
    parameters::{nqn, read},
    planned::Known,
    sums::{authenticated, engine, engine_of, home, inventories, merged, target, waiting},
};
use crate::control::Failure;
use core::time::Duration;
use frwr_engine::{Statistics, Waits, control::ControlStatistics};
use frwr_nvmf::{
    controller::{Latencies, NamespaceState, QueueState, TargetListening},
    wire::Nqn,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A figure without labels.
fn one(figure: impl Into<Figure>) -> Vec<(Labels, Figure)> {
    vec![(Vec::new(), figure.into())]
}

/// One label's values with their figures.
fn by<const N: usize>(label: &'static str, figures: [(&str, u64); N]) -> Vec<(Labels, Figure)> {
    figures.into_iter().map(|(value, count)| (vec![(label, value.to_owned())], count.into())).collect()
}

/// Of which namespaces there are figures; all by default.
#[derive(Debug, Default)]
pub(super) struct Only {
    pub(super) subsystem: Option<Nqn>,
    pub(super) namespace: Option<u32>,
}

impl Only {
    fn has(&self, subsystem: &str, identifier: u32) -> bool {
        self.subsystem.is_none_or(|only| only.as_str() == subsystem)
            && self.namespace.is_none_or(|only| only == identifier)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfNamespaces {
    subsystem: Option<String>,
    namespace: Option<u32>,
}

/// What the method of that name answers.
pub(super) fn metrics(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Value, Failure> {
    let OfNamespaces { subsystem, namespace } = read(parameters)?;
    let subsystem = subsystem.map(|text| nqn("subsystem", &text)).transpose()?;
    let (locks, only) = (known.media.lock_figures(), Only { subsystem, namespace });
    Ok(text(known.facts, known.findings, &locks, &only).into())
}

/// The text of all that the cores said, as a scrape has it.
pub(super) fn text(facts: &Facts, findings: &Findings, locks: &[LockFigures], only: &Only) -> String {
    let mut families = Families::default();
    of_process(&mut families, facts, findings);
    of_reactors(&mut families, findings);
    of_device(&mut families, facts, findings);
    of_listeners(&mut families, facts, findings);
    of_target(&mut families, findings);
    of_namespaces(&mut families, findings, only);
    of_locks(&mut families, locks, only);
    of_hosts(&mut families, findings);
    of_keys(&mut families, findings);
    of_waits(&mut families, findings);
    families.text()
}

fn of_process(families: &mut Families, facts: &Facts, findings: &Findings) {
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    families.gauge("build_info", "What serves.", vec![(version, 1_u64.into())]);
    families.gauge("uptime_seconds", "Since the cores run.", one(findings.at));
    families.counter("incidents", "What peers did wrong.", one(facts.recent.count()));
}

fn of_reactors(families: &mut Families, findings: &Findings) {
    use frwr_reactor::{Cause, PollerStatistics, Statistics};
    let labels = |reactor: &Statistics| {
        let cpu = reactor.cpu.map_or_else(|| "unpinned".to_owned(), |cpu| cpu.get().to_string());
        vec![("reactor", reactor.core.0.to_string()), ("cpu", cpu)]
    };
    let of_each = |figure: &dyn Fn(&Statistics) -> Figure| {
        findings.cores.iter().map(|core| (labels(&core.reactor), figure(&core.reactor))).collect()
    };
    families.counter("reactor_busy_seconds", "In iterations that found work.", of_each(&|core| core.busy.into()));
    families.counter("reactor_idle_seconds", "In iterations that found none.", of_each(&|core| core.idle.into()));
    families.counter("reactor_asleep_seconds", "Asleep.", of_each(&|core| core.asleep.into()));
    families.counter("reactor_sleeps", "How often it slept.", of_each(&|core| core.sleeps.into()));
    families.counter("reactor_iterations", "Iterations.", of_each(&|core| core.iterations.into()));
    families.counter(
        "reactor_busy_iterations",
        "Iterations that found work or messages.",
        of_each(&|core| core.busy_iterations.into()),
    );
    families.counter(
        "reactor_long_iterations",
        "Iterations of more than 5 microseconds.",
        of_each(&|core| core.long_iterations.into()),
    );
    let causes = |core: &Found| {
        let of_cause = |cause: Cause| {
            let labels = [labels(&core.reactor), vec![("cause", cause.name().to_owned())]].concat();
            (labels, core.reactor.long.of(cause).total().into())
        };
        Cause::ALL.map(of_cause)
    };
    families.counter(
        "reactor_long_iterations_by_cause",
        "Iterations of more than 5 microseconds, and what took their time.",
        findings.cores.iter().flat_map(causes).collect(),
    );
    let lengths = |core: &Found| {
        // Rounded once, unlike Duration::as_secs_f64, which would say 1.3107199999999999.
        let name = |end: Duration| (end.as_nanos() as f64 / 1e9).to_string();
        let name = |end: Option<Duration>| end.map_or_else(|| "+Inf".to_owned(), name);
        let of_length = |(at, (end, _))| {
            let count = |cause: Cause| core.reactor.long.of(cause).counts().nth(at).map_or(0, |(_, count)| count);
            let labels = [labels(&core.reactor), vec![("up_to", name(end))]].concat();
            (labels, Cause::ALL.into_iter().map(count).sum::<u64>().into())
        };
        core.reactor.long.work.counts().enumerate().map(of_length).collect::<Vec<_>>()
    };
    families.counter(
        "reactor_long_iterations_by_length",
        "Iterations of more than 5 microseconds, by the seconds that they took at most; each is in one of them.",
        findings.cores.iter().flat_map(lengths).collect(),
    );
    families.counter("reactor_stalls", "Iterations beyond the stall threshold.", of_each(&|core| core.stalls.into()));
    families.gauge(
        "reactor_longest_iteration_seconds",
        "The longest iteration since the start.",
        of_each(&|core| core.longest_iteration.duration.into()),
    );
    families.counter("reactor_messages", "Messages of other reactors.", of_each(&|core| core.messages.into()));
    let answered = findings.cores.iter().map(|core| (labels(&core.reactor), core.has_answered().into())).collect();
    families.gauge("reactor_answered", "1 where it answered this scrape, 0 where it stands still.", answered);
    let of_pollers = |figure: fn(&PollerStatistics) -> u64| {
        let of_core = |core: &Found| {
            let reactor = core.reactor.core.0.to_string();
            let labels = |name: &str| vec![("reactor", reactor.clone()), ("poller", name.to_owned())];
            core.reactor.pollers.iter().map(|poller| (labels(poller.name), figure(poller).into())).collect::<Vec<_>>()
        };
        findings.cores.iter().flat_map(of_core).collect()
    };
    families.counter("poller_polls", "Polls.", of_pollers(|poller| poller.polls));
    families.counter("poller_empty_polls", "Polls that found nothing.", of_pollers(|poller| poller.empty_polls));
    families.counter("poller_work", "Units of work.", of_pollers(|poller| poller.work));
    families.counter(
        "poller_long_iterations",
        "Iterations of more than 5 microseconds in which it found work.",
        of_pollers(|poller| poller.long_iterations),
    );
}

fn of_device(families: &mut Families, facts: &Facts, findings: &Findings) {
    type Of = fn(&Statistics, &ControlStatistics) -> u64;
    let found = |served: &ServedDevice| {
        let found = findings.device(served.place)?;
        Some((served.label.clone(), engine_of(findings, served.place), found.control))
    };
    let devices: Vec<_> = facts.served.devices.iter().filter_map(found).collect();
    let of_each = |figure: Of| {
        let one = |(label, engine, control): &(String, Statistics, ControlStatistics)| {
            (vec![("device", label.clone())], Figure::Count(figure(engine, control)))
        };
        devices.iter().map(one).collect()
    };
    let counters: [(_, _, Of); 12] = [
        ("device_work_requests", "Work requests that it accepted.", |engine, _| engine.work_requests),
        ("device_doorbells", "Posts to send queues.", |engine, _| engine.doorbells),
        ("device_receive_doorbells", "Posts to receive queues.", |engine, _| engine.receive_doorbells),
        ("device_send_completions", "Completions of send queues.", |engine, _| engine.send_completions),
        ("device_receive_completions", "Completions of receives.", |engine, _| engine.receive_completions),
        ("device_posts_refused", "Posts that it refused.", |engine, _| engine.posts_refused),
        ("device_connections", "Connections that were ready once.", |engine, _| engine.connections),
        ("device_disconnects", "Connections that began to end.", |engine, _| engine.disconnects),
        ("device_commands", "What Control had it do.", |_, control| control.commands),
        ("device_commands_failed", "What of that failed.", |_, control| control.commands_failed),
        ("device_async_events", "Asynchronous events.", |_, control| control.async_events),
        ("device_failures", "Times that it said that it is gone.", |_, control| control.device_failures),
    ];
    for (name, help, figure) in counters {
        families.counter(name, help, of_each(figure));
    }
    let kept = of_each(|_, control| control.queue_pairs_kept);
    families.gauge("device_queue_pairs_kept", "Queue pairs that it refuses to destroy.", kept);
}

fn of_listeners(families: &mut Families, facts: &Facts, findings: &Findings) {
    let all = listeners::merged(findings);
    let labels = |one: &listeners::Listener| {
        let address = ("address", one.address.to_string());
        // Of the only one nobody has to be told.
        let device = ("device", facts.served.label(one.device).to_owned());
        if findings.has_several() { vec![address, device] } else { vec![address] }
    };
    let of_each =
        |figure: &dyn Fn(&listeners::Listener) -> Figure| all.iter().map(|one| (labels(one), figure(one))).collect();
    let is_up = |one: &listeners::Listener| one.listening == TargetListening::Listens;
    families.gauge("listener_up", "1 where hosts can connect.", of_each(&|one| is_up(one).into()));
    families.gauge("listener_connections", "Connections that came by it.", of_each(&|one| one.connections.into()));
    families.counter("listener_accepted", "Connect requests accepted.", of_each(&|one| one.accepted.into()));
    families.counter("listener_rejected", "Connect requests rejected.", of_each(&|one| one.rejected.into()));
}

fn of_target(families: &mut Families, findings: &Findings) {
    let target = target(findings);
    let done = [
        ("read", target.reads),
        ("write", target.writes),
        ("flush", target.flushes),
        ("compare", target.compares),
        ("write_zeroes", target.write_zeroes),
    ];
    families.counter("io_commands", "I/O commands that succeeded.", by("command", done));
    families.counter("commands", "Commands that arrived, those of admin queues included.", one(target.commands));
    families.counter(
        "commands_failed",
        "Commands answered with another status than success.",
        one(target.failed_commands),
    );
    let moved = [("read", target.bytes_read), ("write", target.bytes_written)];
    families.counter("io_bytes", "What hosts read and wrote.", by("command", moved));
    families.counter("media_errors", "Operations that a medium failed.", one(target.media_errors));
    let ended = [
        ("protocol", target.protocol_errors),
        ("keep_alive", target.keep_alive_expirations),
        ("no_connect", target.connect_timeouts),
        ("silent", target.silent_hosts),
        ("made_room", target.made_room),
    ];
    families.counter("connections_ended", "Connections that the target ended.", by("reason", ended));
    families.counter(
        "authentications",
        "Times that a host was to prove itself on a queue.",
        by("outcome", authenticated(&target)),
    );
    families.gauge("authentications_running", "Queues whose hosts prove themselves now.", one(target.authenticating));
    families.gauge("commands_in_flight", "Commands that were not answered.", one(target.commands_in_flight));
    families.gauge("queues", "Queues that hosts use.", one(target.queues));
    families.gauge("data_buffers", "Data buffers.", one(target.buffers));
    families.gauge("data_buffers_free", "Data buffers that nobody uses.", one(target.buffers_free));
}

fn of_namespaces(families: &mut Families, findings: &Findings, only: &Only) {
    let (mut all, here) = (merged(findings), home(findings));
    let subsystem = |at: usize| here.and_then(|here| here.subsystems.get(at));
    let name = |at: usize| subsystem(at).map_or("", |subsystem| subsystem.name.as_str());
    let is_shown = |subsystem: usize, identifier: u32| only.has(name(subsystem), identifier);
    all.retain(|one| is_shown(one.subsystem, one.identifier));
    let labels = |subsystem: usize, identifier: u32| {
        vec![("subsystem", name(subsystem).to_owned()), ("namespace", identifier.to_string())]
    };
    let of_each = |figure: &dyn Fn(&NamespaceState) -> Figure| {
        all.iter().map(|one| (labels(one.subsystem, one.identifier), figure(one))).collect()
    };
    families.counter("namespace_operations", "Operations given to it.", of_each(&|one| one.storage.submitted.into()));
    families.counter(
        "namespace_operations_failed",
        "Operations that failed.",
        of_each(&|one| one.storage.failed.into()),
    );
    families.counter(
        "namespace_system_calls",
        "System calls for them.",
        of_each(&|one| one.storage.system_calls.into()),
    );
    families.counter("namespace_read_bytes", "What hosts read.", of_each(&|one| one.bytes_read.into()));
    families.counter("namespace_written_bytes", "What hosts wrote.", of_each(&|one| one.bytes_written.into()));
    let bytes = |one: &NamespaceState| one.blocks.saturating_mul(one.block_bytes.into());
    families.gauge("namespace_size_bytes", "Its size.", of_each(&|one| bytes(one).into()));
    families.gauge("namespace_active", "1 where hosts may use it.", of_each(&|one| one.active.into()));
    let is_well = |one: &NamespaceState| one.storage.broken == 0 && one.storage.fault.is_none();
    families.gauge(
        "namespace_out_of_order",
        "1 where its medium fails for good.",
        of_each(&|one| (!is_well(one)).into()),
    );
    let taken =
        latencies(findings).into_iter().filter(|((subsystem, identifier, _), _)| is_shown(*subsystem, *identifier));
    let taken = taken.map(|((subsystem, identifier, kind), latencies)| {
        let labels = [labels(subsystem, identifier), vec![("command", kind.name().to_owned())]].concat();
        (labels, histogram(&latencies))
    });
    families.histogram(
        "namespace_latency_seconds",
        "Commands that succeeded, from the iteration that found one to the one that answered it.",
        taken.collect(),
    );
    let failed =
        errors(findings).into_iter().filter(|((subsystem, identifier, _), _)| is_shown(*subsystem, *identifier));
    let failed = failed.map(|((subsystem, identifier, status), count)| {
        let kind = vec![("type", status_type(status).to_owned()), ("status", status_name(status))];
        ([labels(subsystem, identifier), kind].concat(), count.into())
    });
    families.counter(
        "namespace_errors",
        "Commands that were answered with another status than success.",
        failed.collect(),
    );
}

/// Of images that one of several gateways serves.
fn of_locks(families: &mut Families, locks: &[LockFigures], only: &Only) {
    let shown = || {
        let is_shown = |one: &&LockFigures| only.has(one.namespace.0.as_str(), one.namespace.1);
        locks.iter().filter(is_shown).map(|one| {
            let (subsystem, namespace) = &one.namespace;
            (vec![("subsystem", subsystem.as_str().to_owned()), ("namespace", namespace.to_string())], one)
        })
    };
    let states = shown().flat_map(|(labels, one)| {
        let of = move |state: &str| {
            let is_it = state == lock_name(&one.lock);
            ([labels.clone(), vec![("state", state.to_owned())]].concat(), is_it.into())
        };
        LOCK_NAMES.map(of)
    });
    families.gauge(
        "namespace_lock",
        "1 for what this gateway is to the image's lock; it serves the image as its owner.",
        states.collect(),
    );
    let taken = shown().flat_map(|(labels, one)| {
        let counts = [("nobody", one.taken.free), ("gone", one.taken.taken_over), ("by_force", one.taken.forced)];
        counts.map(|(from, count)| ([labels.clone(), vec![("from", from.to_owned())]].concat(), count.into()))
    });
    families.counter(
        "namespace_lock_taken",
        "Times that this gateway took the image's lock: nobody had it, or another client, which was gone or taken from by force.",
        taken.collect(),
    );
}

fn histogram(latencies: &Latencies) -> Figure {
    let counts = latencies.counts().map(|(end, count)| Length { end, count }).collect();
    Figure::Histogram { counts, sum: latencies.sum() }
}

fn of_hosts(families: &mut Families, findings: &Findings) {
    let name = |host: Option<frwr_nvmf::wire::Nqn>| host.map(|host| host.as_str().to_owned()).unwrap_or_default();
    let controllers = |figure: fn(&frwr_nvmf::controller::ControllerState) -> Figure| {
        all_controllers(findings)
            .map(|one| (vec![("host", name(one.host)), ("controller", one.id.to_string())], figure(one)))
            .collect()
    };
    families.gauge("controller_ready", "1 where its host enabled it.", controllers(|one| one.ready.into()));
    families.gauge("controller_silent_seconds", "Since its host said something.", controllers(|one| one.silent.into()));
    families.counter("controller_errors", "Entries of its error log.", controllers(|one| one.errors.into()));
    let queues = |figure: fn(&QueueState) -> Figure| {
        let of_core = |core: &frwr_nvmf::controller::Inventory| {
            let reactor = core.core.to_string();
            let labels = |queue: &QueueState| {
                let controller = queue.controller.map(|id| id.to_string())?;
                Some(vec![
                    ("host", name(queue.host)),
                    ("controller", controller),
                    ("queue", queue.id.to_string()),
                    ("reactor", reactor.clone()),
                ])
            };
            core.queues.iter().filter_map(|queue| Some((labels(queue)?, figure(queue)))).collect::<Vec<_>>()
        };
        inventories(findings).flat_map(of_core).collect()
    };
    families.counter("queue_commands", "Commands that came.", queues(|queue| queue.commands.into()));
    families.gauge(
        "queue_commands_in_flight",
        "Commands of the queue that were not answered.",
        queues(|queue| u64::from(queue.outstanding).into()),
    );
    families.gauge("queue_entries", "Commands that it may have.", queues(|queue| u64::from(queue.entries).into()));
}

fn of_keys(families: &mut Families, findings: &Findings) {
    let (target, engine) = (target(findings), engine(findings));
    families.counter("keys_made", "Keys made for peers.", one(engine.registrations));
    let killed = [
        ("here", engine.local_invalidations),
        ("peer", engine.remote_invalidations),
        ("destruction", engine.keys_destroyed_live),
    ];
    families.counter("keys_killed", "Keys that are dead, by what killed them.", by("by", killed));
    families.gauge("keys_alive", "Keys that a peer may use.", one(engine.keys_live()));
    let opened = [("read", engine.bytes_registered_read), ("write", engine.bytes_registered_write)];
    families.counter("keys_opened_bytes", "Memory that keys were made for.", by("access", opened));
    let of_hosts = [("target", target.remote_invalidations), ("host", target.plain_responses)];
    families.counter("host_keys_answered", "Keys of hosts, by who kills them behind the answer.", by("by", of_hosts));
}

fn of_waits(families: &mut Families, findings: &Findings) {
    let (target, engine, now) = (target(findings), engine(findings), waiting(findings));
    let waiting = [
        ("buffers", u64::from(now.buffers)),
        ("transfers_or_storage", now.transfers_or_storage.into()),
        ("admission", now.admission.into()),
        ("former_session", now.former_session.into()),
    ];
    families.gauge("waiting", "What waits, by what for.", by("cause", waiting));
    let Waits { registrations, peer_receives, reply_receives, send_entries, order, .. } = engine.transfer_waits;
    let waits = [
        ("buffers", target.buffer_waits),
        ("transfers_or_storage", target.stalls),
        ("transfer_registrations", registrations),
        ("transfer_peer_receives", peer_receives),
        ("transfer_reply_receives", reply_receives),
        ("transfer_send_entries", send_entries),
        ("transfer_order", order),
    ];
    families.counter("waits", "Times that something had to wait, by what for.", by("cause", waits));
}

#[cfg(test)]
mod tests {
    use super::{Families, LockFigures, Nqn, Only, of_locks};
    use frwr_nvmf::storage::{RbdLock, RbdLockTaken};

    #[test]
    fn a_lock_is_in_one_state_and_each_way_to_it_is_counted() {
        let name = |text| Nqn::new(text).unwrap();
        let one = |namespace, lock| LockFigures { namespace, lock, taken: RbdLockTaken::default() };
        let locks = [
            one((name("nqn.a"), 1), RbdLock::Lost),
            one((name("nqn.a"), 2), RbdLock::Standby { owner: None, trouble: None }),
        ];
        let text = |only| {
            let mut families = Families::default();
            of_locks(&mut families, &locks, &only);
            families.text()
        };
        let all = text(Only::default());
        assert_eq!(all.matches("frwr_namespace_lock{").count(), 10, "{all}");
        for line in [
            r#"frwr_namespace_lock{subsystem="nqn.a",namespace="1",state="lost"} 1"#,
            r#"frwr_namespace_lock{subsystem="nqn.a",namespace="1",state="owner"} 0"#,
            r#"frwr_namespace_lock{subsystem="nqn.a",namespace="2",state="standby"} 1"#,
            r#"frwr_namespace_lock_taken_total{subsystem="nqn.a",namespace="2",from="gone"} 0"#,
        ] {
            assert!(all.contains(line), "{line}: {all}");
        }
        assert!(!text(Only { subsystem: None, namespace: Some(2) }).contains(r#"namespace="1""#));
        let mut none = Families::default();
        of_locks(&mut none, &[], &Only::default());
        assert!(!none.text().contains("lock"), "a target without such an image says nothing of locks");
    }
}
