//! What `serve` prints at its end.

use super::{medium::fault_text, namespaces::NamespaceReport, report::CoreReport};
use crate::{
    check::Shortcoming,
    failures,
    options::{DeviceArguments, Listen},
    output::in_line,
    report::{Report, counts, object, value},
};
use core::fmt::Write as _;
use frwr_engine::{Statistics as EngineStatistics, control::ControlStatistics};
use frwr_nvmf::controller::TargetStatistics;
use frwr_nvmf::storage::{MediumFault, StorageStatistics};
use frwr_nvmf::wire::Nqn;
use serde::Serialize;
use serde_json::{Value, json};
use std::{io, net::SocketAddr};

/// What a target is there for.
#[derive(Clone, Debug, Serialize)]
pub struct ServedTarget {
    /// The device, or all of them.
    pub device: String,
    /// Commands of an I/O queue at a time, as asked for.
    pub queue_depth: u32,
    /// Of these, those whose answers can be in flight at a time, on the device that has the fewest.
    pub effective_queue_depth: u32,
    /// Each of its devices.
    #[serde(skip)]
    pub devices: Vec<ServedDevice>,
    /// Where it listens, or did until it was told to end.
    pub listen: Vec<Listen>,
    /// What it serves, at least one.
    #[serde(skip)]
    pub namespaces: Vec<NamespaceReport>,
    /// What each of them is called: its subsystem, and its identifier.
    #[serde(skip)]
    pub identities: Vec<(Nqn, u32)>,
    /// Receives that the connections of a core share; `None` where each has its own.
    pub shared_receives: Option<u32>,
}

/// Addresses, for people.
pub(super) fn addresses_text(addresses: &[Listen]) -> String {
    match addresses {
        [] => "no address".to_owned(),
        addresses => addresses.iter().map(Listen::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// A device that it serves on.
#[derive(Clone, Debug)]
pub struct ServedDevice {
    /// Its number among those that there may be.
    pub place: usize,
    /// As it was named.
    pub name: String,
    /// As reports call it.
    pub label: String,
    /// Commands of an I/O queue whose answers can be in flight at a time.
    pub effective_queue_depth: u32,
}

impl ServedDevice {
    /// As its arguments name it.
    pub(super) fn new(place: usize, device: &DeviceArguments, effective_queue_depth: u32) -> Self {
        Self { place, name: device.name().to_owned(), label: device.label(), effective_queue_depth }
    }
}

impl ServedTarget {
    /// One more of its devices serves.
    pub(super) fn join(&mut self, device: ServedDevice) {
        self.devices.push(device);
        self.devices.sort_by_key(|device| device.place);
        self.name_devices();
    }

    /// One does so no longer.
    pub(super) fn part(&mut self, place: usize) {
        self.devices.retain(|device| device.place != place);
        self.name_devices();
    }

    fn name_devices(&mut self) {
        self.device = self.devices.iter().map(|device| device.label.as_str()).collect::<Vec<_>>().join(", ");
        let depths = self.devices.iter().map(|device| device.effective_queue_depth);
        self.effective_queue_depth = depths.min().unwrap_or(self.queue_depth);
    }

    /// An address of one of its devices, as people write it.
    pub(super) fn listen_at(&self, device: usize, address: SocketAddr) -> Listen {
        let several = self.device_at(device).filter(|_| self.devices.len() > 1);
        Listen { device: several.map(|device| device.name.clone()), address }
    }

    /// One of its devices, by its place.
    pub(super) fn device_at(&self, place: usize) -> Option<&ServedDevice> {
        self.devices.iter().find(|device| device.place == place)
    }

    /// What reports call one of its devices.
    pub(super) fn label(&self, device: usize) -> &str {
        self.device_at(device).map_or(self.device.as_str(), |device| device.label.as_str())
    }

    /// One came while it serves.
    pub(super) fn add(&mut self, identity: (Nqn, u32), report: NamespaceReport) {
        let former = self.identities.iter().position(|former| *former == identity);
        match former.and_then(|at| self.namespaces.get_mut(at)) {
            Some(former) => *former = report,
            None => {
                self.identities.push(identity);
                self.namespaces.push(report);
            }
        }
    }

    /// One is gone that came while it serves: behind so many.
    pub(super) fn forget(&mut self, identity: (Nqn, u32), started: usize) {
        let at = self.identities.iter().position(|one| *one == identity);
        if let Some(at) = at.filter(|at| (started..self.namespaces.len()).contains(at)) {
            self.identities.remove(at);
            self.namespaces.remove(at);
        }
    }

    /// What it was given under this name.
    pub(super) fn namespace(&self, subsystem: &Nqn, identifier: u32) -> Option<&NamespaceReport> {
        let at = self.identities.iter().position(|(of, at)| of == subsystem && *at == identifier)?;
        self.namespaces.get(at)
    }
}

/// What a target has done. What is skipped is computed with, and told by other names.
#[derive(Clone, Debug, Serialize)]
pub struct ServeReport {
    /// What it was there for.
    #[serde(flatten)]
    pub served: ServedTarget,
    /// What they have done, in the same order.
    #[serde(skip)]
    pub storages: Vec<StorageStatistics>,
    /// The target's figures, of all cores.
    #[serde(skip)]
    pub target: TargetStatistics,
    /// Those of each core on all devices, the home core's first.
    #[serde(skip)]
    pub targets: Vec<TargetStatistics>,
    /// Its engines', of all cores.
    #[serde(skip)]
    pub engine: EngineStatistics,
    /// Its control's.
    #[serde(skip)]
    pub control: ControlStatistics,
    /// Of its reactors, in the same order.
    #[serde(skip)]
    pub cores: Vec<CoreReport>,
    /// What did not drain in time.
    pub undrained: Vec<String>,
    /// What happened to its cores, as [`crate::watch`] saw it.
    #[serde(rename = "shortcomings")]
    pub warnings: Vec<Shortcoming>,
}

impl Report for ServeReport {
    fn passed(&self) -> bool {
        self.undrained.is_empty()
            && self.target.failed_commits == 0
            && self.storages.iter().all(|storage| storage.broken == 0 && storage.fault.is_none())
    }

    fn json(&self) -> Value {
        let (target, engine, first) = (&self.target, &self.engine, self.served.namespaces.first());
        let of_target = counts!(target =>
            accepted, rejected, commands, reads, writes, flushes, failed_commits, bytes_read, bytes_written, failed_commands,
            incidents, incidents_dropped, protocol_errors, keep_alive_expirations, connect_timeouts, remote_invalidations,
            plain_responses, compares, write_zeroes, deallocations,
        );
        let of_engine = counts!(engine =>
            work_requests, doorbells, drain_markers, receive_doorbells, shared_receives_withdrawn, send_completions,
            receive_completions, disconnects,
        );
        // At the end, all of it free.
        let left = counts!(target => commands_in_flight, slots_used, orphans, queues);
        let computed = json!({
            // Of the first, which is the only one of a command line.
            "namespace": first.map(|first| &first.name),
            "namespace_bytes": first.map(|first| first.bytes),
            "sha256": first.map(|first| &first.sha256),
            "blocks": first.map(|first| first.blocks),
            "block_bytes": first.map(|first| first.block_bytes),
            "namespaces": self.served.namespaces.iter().zip(&self.storages).map(namespace_json).collect::<Vec<_>>(),
            "passed": self.passed(),
            "cores": self.cores.iter().zip(&self.targets).map(core_json).collect::<Vec<_>>(),
            "left": object([left, json!({ "buffers_used": target.buffers - target.buffers_free })]),
            // Who had to go for others, or because nobody is there any more.
            "admission": counts!(target => made_room, probes, silent_hosts),
            "failures": failures::json(engine, &self.control),
        });
        object([value(self), of_target, of_engine, computed])
    }

    fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut text);
        text
    }
}

impl ServeReport {
    fn write_table(&self, out: &mut String) -> core::fmt::Result {
        let target = &self.target;
        writeln!(out, "\n{} at {}", self.served.device, addresses_text(&self.served.listen))?;
        for (namespace, storage) in self.served.namespaces.iter().zip(&self.storages) {
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
                Some(fault) => writeln!(out, "    {}", fault_text(fault))?,
                None => {}
            }
        }
        for (core, target) in self.cores.iter().zip(&self.targets) {
            let figures = core.figures();
            writeln!(
                out,
                "  core {}, {}, {:.0}% busy, longest iteration {:.1} us",
                figures.core(),
                core.memory.kind,
                100.0 * figures.busy_share,
                figures.longest_iteration_us
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
        if let Some(shared) = self.served.shared_receives {
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

fn namespace_json((namespace, storage): (&NamespaceReport, &StorageStatistics)) -> Value {
    let of_storage = counts!(storage => failed, flushes, system_calls, cancelled, restarts);
    let computed = json!({
        "operations": storage.submitted,
        // The errno, where the kernel takes no operations any more.
        "broken": (storage.broken != 0).then_some(storage.broken),
        // A flush failed, and so will all that follow.
        "unflushed": storage.fault == Some(MediumFault::Unflushed),
        // Bytes, where it became shorter than the namespace.
        "shrunk_to": match storage.fault {
            Some(MediumFault::Shrunk { found, .. }) => Some(found),
            _ => None,
        },
        "fault": storage.fault.map(fault_text),
    });
    object([value(namespace), of_storage, computed])
}

fn core_json((core, target): (&CoreReport, &TargetStatistics)) -> Value {
    object([core.json(), counts!(target => accepted, reads, writes)])
}
