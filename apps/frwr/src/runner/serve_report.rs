//! What `serve` prints at its end.

use super::{namespaces::NamespaceReport, report::CoreReport};
use crate::check::{Shortcoming, shortcomings_json};
use crate::failures;
use crate::output::in_line;
use core::fmt::Write as _;
use frwr_engine::{Statistics as EngineStatistics, control::ControlStatistics};
use frwr_nvmf::controller::TargetStatistics;
use frwr_nvmf::storage::{MediumFault, StorageStatistics};
use serde_json::{Value, json};
use std::{io, net::SocketAddr};

/// What a target has done.
#[derive(Clone, Debug)]
pub struct ServeReport {
    /// The device.
    pub device: String,
    /// Commands of an I/O queue at a time, as asked for.
    pub queue_depth: u32,
    /// Of these, those whose answers can be in flight at a time on this device.
    pub effective_queue_depth: u32,
    /// Where it listened.
    pub listen: SocketAddr,
    /// What it served, at least one.
    pub namespaces: Vec<NamespaceReport>,
    /// What they have done, in the same order.
    pub storages: Vec<StorageStatistics>,
    /// The target's figures, of all cores.
    pub target: TargetStatistics,
    /// Those of each core, the home core's first.
    pub targets: Vec<TargetStatistics>,
    /// Its engines', of all cores.
    pub engine: EngineStatistics,
    /// Its control's.
    pub control: ControlStatistics,
    /// Of its reactors, in the same order.
    pub cores: Vec<CoreReport>,
    /// Receives that the connections of a core share; `None` where each has its own.
    pub shared_receives: Option<u32>,
    /// What did not drain in time.
    pub undrained: Vec<String>,
    /// What happened to its cores, as [`crate::watch`] saw it.
    pub warnings: Vec<Shortcoming>,
}

impl ServeReport {
    /// Everything ended in order: exit code 0.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.undrained.is_empty()
            && self.target.failed_commits == 0
            && self.storages.iter().all(|storage| storage.broken == 0 && storage.fault.is_none())
    }

    /// One object, on one line.
    #[must_use]
    pub fn json(&self) -> Value {
        let (target, engine, first) = (&self.target, &self.engine, self.namespaces.first());
        let mut object = json!({
            "device": self.device,
            "listen": self.listen.to_string(),
            // Of the first, which is the only one of a command line.
            "namespace": first.map(|first| &first.name),
            "namespace_bytes": first.map(|first| first.bytes),
            "sha256": first.map(|first| &first.sha256),
            "blocks": first.map(|first| first.blocks),
            "block_bytes": first.map(|first| first.block_bytes),
            "namespaces": self.namespaces.iter().zip(&self.storages).map(namespace_json).collect::<Vec<_>>(),
            "passed": self.passed(),
            "accepted": target.accepted,
            "rejected": target.rejected,
            "commands": target.commands,
            "reads": target.reads,
            "writes": target.writes,
            "flushes": target.flushes,
            "failed_commits": target.failed_commits,
            "bytes_read": target.bytes_read,
            "bytes_written": target.bytes_written,
            "failed_commands": target.failed_commands,
            "incidents": target.incidents,
            "incidents_dropped": target.incidents_dropped,
            "protocol_errors": target.protocol_errors,
            "keep_alive_expirations": target.keep_alive_expirations,
            "connect_timeouts": target.connect_timeouts,
            "remote_invalidations": target.remote_invalidations,
            "plain_responses": target.plain_responses,
            "compares": target.compares,
            "write_zeroes": target.write_zeroes,
            "deallocations": target.deallocations,
            "work_requests": engine.work_requests,
            "doorbells": engine.doorbells,
            "drain_markers": engine.drain_markers,
            "receive_doorbells": engine.receive_doorbells,
            "shared_receives": self.shared_receives,
            "shared_receives_withdrawn": engine.shared_receives_withdrawn,
            "send_completions": engine.send_completions,
            "receive_completions": engine.receive_completions,
            "disconnects": engine.disconnects,
            "cores": self.cores.iter().zip(&self.targets).map(core_json).collect::<Vec<_>>(),
            "left": left_json(target),
            "undrained": self.undrained,
        });
        object["shortcomings"] = json!(shortcomings_json(&self.warnings));
        object["admission"] = admission_json(target);
        object["queue_depth"] = json!(self.queue_depth);
        object["effective_queue_depth"] = json!(self.effective_queue_depth);
        object["failures"] = failures::json(engine, &self.control);
        object
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, out: &mut String) -> core::fmt::Result {
        let target = &self.target;
        writeln!(out, "\n{} at {}", self.device, self.listen)?;
        for (namespace, storage) in self.namespaces.iter().zip(&self.storages) {
            let NamespaceReport { name, kind, blocks, block_bytes, .. } = namespace;
            writeln!(out, "  {}: {blocks} blocks of {block_bytes} bytes, {kind}", in_line(name))?;
            if storage.system_calls > 0 {
                let per_call = storage.submitted as f64 / storage.system_calls as f64;
                writeln!(
                    out,
                    "    {} operations, {per_call:.1} per system call, {} failed",
                    storage.submitted, storage.failed
                )?;
            }
            if storage.broken != 0 {
                let error = io::Error::from_raw_os_error(storage.broken);
                writeln!(out, "    io_uring was refused for good ({error}); --backing thread does without it")?;
            }
            match storage.fault {
                Some(MediumFault::Shrunk { found, wanted }) => {
                    writeln!(out, "    it became shorter: {found} bytes, and the namespace has {wanted}")?;
                }
                Some(MediumFault::Unflushed) => {
                    writeln!(out, "    a flush failed: what hosts were told is written may be lost")?;
                }
                None => {}
            }
        }
        for (core, target) in self.cores.iter().zip(&self.targets) {
            let cpu = core.reactor.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
            writeln!(
                out,
                "  core {cpu}, {}, {:.0}% busy, longest iteration {:.1} us",
                core.memory.kind,
                100.0 * core.reactor.busy_share(),
                core.reactor.longest_iteration.duration.as_secs_f64() * 1e6
            )?;
            if self.targets.len() > 1 {
                let TargetStatistics { accepted, commands, reads, writes, .. } = target;
                writeln!(out, "    {accepted} connections, {commands} commands, {reads} reads, {writes} writes")?;
            }
        }
        if let Some(reason) = self.cores.iter().find_map(|core| core.memory.fell_short.as_ref()) {
            writeln!(out, "  memory: {reason}")?;
        }
        writeln!(out, "\n                              number         bytes")?;
        writeln!(out, "reads                   {:>12}  {:>12}", target.reads, target.bytes_read)?;
        writeln!(out, "writes                  {:>12}  {:>12}", target.writes, target.bytes_written)?;
        for (name, value) in [
            ("all commands", target.commands),
            ("  failed", target.failed_commands),
            ("keys invalidated", target.remote_invalidations),
            ("keys left to hosts", target.plain_responses),
            ("connections", target.accepted),
            ("  rejected", target.rejected),
            ("  incidents", target.incidents),
            ("  ended: protocol", target.protocol_errors),
            ("  ended: silent", target.keep_alive_expirations + target.connect_timeouts + target.silent_hosts),
            ("  ended: to make room", target.made_room),
        ] {
            writeln!(out, "{name:<24}{value:>12}")?;
        }
        let per_command = |count: u64| count as f64 / target.commands.max(1) as f64;
        writeln!(out, "\nper command")?;
        writeln!(out, "  work requests         {:>12.3}", per_command(self.engine.work_requests))?;
        writeln!(out, "  doorbells             {:>12.3}", per_command(self.engine.doorbells))?;
        writeln!(out, "  posts of receives     {:>12.3}", per_command(self.engine.receive_doorbells))?;
        if let Some(shared) = self.shared_receives {
            let withdrawn = self.engine.shared_receives_withdrawn;
            writeln!(out, "\nshared receives         {shared:>12}\n  lost with connections {withdrawn:>12}")?;
        }
        if target.failed_commits > 0 {
            let times = target.failed_commits;
            writeln!(
                out,
                "\n{times} times a namespace could not be flushed at a shutdown: what hosts were told is written may be lost"
            )?;
        }
        for line in failures::lines(&self.engine) {
            writeln!(out, "\n{line}")?;
        }
        for who in &self.undrained {
            writeln!(out, "\nnot drained: {who}")?;
        }
        Ok(())
    }
}

/// What the target still has in hand: at the end, all of it free.
fn left_json(target: &TargetStatistics) -> Value {
    json!({
        "commands_in_flight": target.commands_in_flight,
        "slots_used": target.slots_used,
        "orphans": target.orphans,
        "buffers_used": target.buffers - target.buffers_free,
        "queues": target.queues,
    })
}

/// Who had to go for others, or because nobody is there any more.
fn admission_json(target: &TargetStatistics) -> Value {
    json!({ "made_room": target.made_room, "probes": target.probes, "silent_hosts": target.silent_hosts })
}

fn namespace_json((namespace, storage): (&NamespaceReport, &StorageStatistics)) -> Value {
    json!({
        "name": namespace.name,
        "kind": namespace.kind,
        "bytes": namespace.bytes,
        "sha256": namespace.sha256,
        "blocks": namespace.blocks,
        "block_bytes": namespace.block_bytes,
        "read_only": namespace.read_only,
        "operations": storage.submitted,
        "failed": storage.failed,
        "flushes": storage.flushes,
        "system_calls": storage.system_calls,
        "cancelled": storage.cancelled,
        "restarts": storage.restarts,
        // The errno, where the kernel takes no operations any more.
        "broken": (storage.broken != 0).then_some(storage.broken),
        // A flush failed, and so will all that follow.
        "unflushed": storage.fault == Some(MediumFault::Unflushed),
        // Bytes, where it became shorter than the namespace.
        "shrunk_to": match storage.fault {
            Some(MediumFault::Shrunk { found, .. }) => Some(found),
            Some(MediumFault::Unflushed) | None => None,
        },
    })
}

fn core_json((core, target): (&CoreReport, &TargetStatistics)) -> Value {
    json!({
        "core": core.reactor.cpu.map(|cpu| cpu.get()),
        "role": core.role,
        "region": core.memory.kind.to_string(),
        "requests": core.requests,
        "accepted": target.accepted,
        "reads": target.reads,
        "writes": target.writes,
        "busy_share": core.reactor.busy_share(),
        "iterations": core.reactor.iterations,
        "longest_iteration_us": core.reactor.longest_iteration.duration.as_secs_f64() * 1e6,
    })
}
