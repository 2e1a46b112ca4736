//! What `serve` prints at its end.

use super::report::CoreReport;
use crate::target::TargetStatistics;
use core::fmt::Write as _;
use frwr_engine::{Statistics as EngineStatistics, control::ControlStatistics};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// What a target has done.
#[derive(Clone, Debug)]
pub struct ServeReport {
    /// The device.
    pub device: String,
    /// Where it listened.
    pub listen: SocketAddr,
    /// The file that the namespace held at first.
    pub namespace: String,
    /// Its size.
    pub namespace_bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Blocks of the namespace.
    pub blocks: u64,
    /// Bytes of each.
    pub block_bytes: u32,
    /// The target's figures.
    pub target: TargetStatistics,
    /// Its engine's.
    pub engine: EngineStatistics,
    /// Its control's.
    pub control: ControlStatistics,
    /// Of its reactor.
    pub cores: Vec<CoreReport>,
    /// What did not drain in time.
    pub undrained: Vec<String>,
}

impl ServeReport {
    /// Everything ended in order: exit code 0.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.undrained.is_empty()
    }

    /// One object, on one line.
    #[must_use]
    pub fn json(&self) -> Value {
        let (target, engine) = (&self.target, &self.engine);
        json!({
            "device": self.device,
            "listen": self.listen.to_string(),
            "namespace": self.namespace,
            "namespace_bytes": self.namespace_bytes,
            "sha256": self.sha256,
            "blocks": self.blocks,
            "block_bytes": self.block_bytes,
            "passed": self.passed(),
            "accepted": target.accepted,
            "rejected": target.rejected,
            "commands": target.commands,
            "reads": target.reads,
            "writes": target.writes,
            "flushes": target.flushes,
            "bytes_read": target.bytes_read,
            "bytes_written": target.bytes_written,
            "failed_commands": target.failed_commands,
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
            "send_completions": engine.send_completions,
            "receive_completions": engine.receive_completions,
            "disconnects": engine.disconnects,
            "cores": self.cores.iter().map(core_json).collect::<Vec<_>>(),
            "undrained": self.undrained,
        })
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
        writeln!(out, "\n{} on {} at {}", self.namespace, self.device, self.listen)?;
        writeln!(out, "  {} blocks of {} bytes", self.blocks, self.block_bytes)?;
        for core in &self.cores {
            let cpu = core.reactor.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
            writeln!(
                out,
                "  core {cpu}, {}, {:.0}% busy, longest iteration {:.1} us",
                core.memory.kind,
                100.0 * core.reactor.busy_share(),
                core.reactor.longest_iteration.duration.as_secs_f64() * 1e6
            )?;
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
            ("  ended: protocol", target.protocol_errors),
            ("  ended: silent", target.keep_alive_expirations + target.connect_timeouts),
        ] {
            writeln!(out, "{name:<24}{value:>12}")?;
        }
        let per_command = |count: u64| count as f64 / target.commands.max(1) as f64;
        writeln!(out, "\nper command")?;
        writeln!(out, "  work requests         {:>12.3}", per_command(self.engine.work_requests))?;
        writeln!(out, "  doorbells             {:>12.3}", per_command(self.engine.doorbells))?;
        writeln!(out, "  posts of receives     {:>12.3}", per_command(self.engine.receive_doorbells))?;
        for who in &self.undrained {
            writeln!(out, "\nnot drained: {who}")?;
        }
        Ok(())
    }
}

fn core_json(core: &CoreReport) -> Value {
    json!({
        "core": core.reactor.cpu.map(|cpu| cpu.get()),
        "role": core.role,
        "region": core.memory.kind.to_string(),
        "requests": core.requests,
        "busy_share": core.reactor.busy_share(),
        "iterations": core.reactor.iterations,
        "longest_iteration_us": core.reactor.longest_iteration.duration.as_secs_f64() * 1e6,
    })
}
