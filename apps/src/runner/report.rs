//! What a run prints at its end: a table for people, one line of JSON for programs.

use core::fmt::Write as _;
use core::time::Duration;
use frwr_engine::{Statistics as EngineStatistics, control::ControlStatistics};
use frwr_mempool::region::RegionKind;
use frwr_reactor::Statistics as ReactorStatistics;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// One reactor's part in the run.
#[derive(Clone, Debug)]
pub struct CoreReport {
    /// What it carried: target, host, or both.
    pub role: &'static str,
    /// What its memory is made of.
    pub region: RegionKind,
    /// Requests ended (host) or commands answered (target).
    pub requests: u64,
    /// Time over which they ended.
    pub elapsed: Duration,
    /// The loop's figures.
    pub reactor: ReactorStatistics,
}

/// The whole run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The device.
    pub device: String,
    /// The file's name.
    pub file: String,
    /// Its size.
    pub file_bytes: u64,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Requests in flight at most.
    pub queue_depth: u32,
    /// Whether the file and every block came back right.
    pub verified: bool,
    /// Whether somebody ended the run early.
    pub interrupted: bool,
    /// The first thing that was wrong.
    pub caught: Option<String>,
    /// Connections that ended while requests were in flight, and requests that were submitted again.
    pub reconnects: u64,
    /// Requests that were lost with a connection and submitted again.
    pub resubmitted: u64,
    /// The host's engine.
    pub engine: EngineStatistics,
    /// The host's control.
    pub control: ControlStatistics,
    /// Bytes open to the peer when the job had ended and the connection was still up, by the device's own key table.
    pub remote_bytes_open: Option<u64>,
    /// Latency of requests, submission to end of fence, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Per reactor.
    pub cores: Vec<CoreReport>,
    /// Reactors and pollers that did not drain in time.
    pub undrained: Vec<String>,
}

impl RunReport {
    /// Nothing was wrong: exit code 0.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.caught.is_none() && (self.verified || self.interrupted) && self.keys_accounted()
    }

    /// Every key that was made is dead, and it is known how it died.
    #[must_use]
    pub fn keys_accounted(&self) -> bool {
        let engine = &self.engine;
        self.remote_bytes_open.unwrap_or(0) == 0
            && engine.registrations
                == engine.local_invalidations + engine.remote_invalidations + engine.mrs_destroyed_live
    }

    /// One object, on one line.
    #[must_use]
    pub fn json(&self) -> Value {
        let engine = &self.engine;
        json!({
            "device": self.device,
            "file": self.file,
            "file_bytes": self.file_bytes,
            "block_bytes": self.block_bytes,
            "queue_depth": self.queue_depth,
            "verified": self.verified && self.caught.is_none(),
            "passed": self.passed(),
            "interrupted": self.interrupted,
            "caught": self.caught,
            "requests": engine.requests,
            "requests_ended": engine.requests_ended,
            "reconnects": self.reconnects,
            "resubmitted": self.resubmitted,
            "registrations": engine.registrations,
            "local_invalidations": engine.local_invalidations,
            "remote_invalidations": engine.remote_invalidations,
            "mrs_destroyed": engine.mrs_destroyed_live,
            "mr_objects_destroyed": engine.mrs_destroyed,
            "work_requests": engine.work_requests,
            "doorbells": engine.doorbells,
            "queue_pairs_flushed": engine.queue_pairs_flushed,
            "send_completions": engine.send_completions,
            "receive_completions": engine.receive_completions,
            "stale_completions": engine.stale_completions,
            "remote_bytes_open": self.remote_bytes_open,
            "shortest_key_reuse_us": (engine.shortest_key_reuse_ns != u64::MAX)
                .then(|| engine.shortest_key_reuse_ns as f64 / 1e3),
            "region": self.host_region(),
            "cores": self.cores.iter().map(core_json).collect::<Vec<_>>(),
            "latency_us": self.latency_json(),
            "undrained": self.undrained,
        })
    }

    fn host_region(&self) -> Option<String> {
        self.cores.last().map(|core| core.region.to_string())
    }

    fn latency_json(&self) -> Value {
        let at = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e3;
        json!({
            "min": self.latency.min() as f64 / 1e3,
            "p50": at(0.5),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": self.latency.max() as f64 / 1e3,
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
        writeln!(out, "\n{} on {}: {} bytes", self.file, self.device, self.file_bytes)?;
        writeln!(out, "  queue depth {}, blocks of {} bytes", self.queue_depth, self.block_bytes)?;
        writeln!(out, "\ncore  role         memory                      IOPS      MiB/s   busy  longest iteration")?;
        for core in &self.cores {
            let seconds = core.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
            let rate = core.requests as f64 / seconds;
            writeln!(
                out,
                "{:>4}  {:<11}  {:<24}  {:>8.0}  {:>9.1}  {:>4.0}%  {:>14.1} us",
                core.reactor.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
                core.role,
                core.region.to_string(),
                rate,
                rate * f64::from(self.block_bytes) / (1 << 20) as f64,
                100.0 * core.reactor.busy_share(),
                core.reactor.longest_iteration.duration.as_secs_f64() * 1e6,
            )?;
        }
        self.write_latency(out)?;
        self.write_keys(out)?;
        self.write_queues(out)?;
        self.write_verdict(out)
    }

    fn write_latency(&self, out: &mut String) -> core::fmt::Result {
        let at = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1e3;
        writeln!(out, "\nlatency, submission to dead key, in us (the software NIC's, not a network's)")?;
        writeln!(out, "       min       p50       p99     p99.9       max")?;
        writeln!(
            out,
            "  {:>8.1}  {:>8.1}  {:>8.1}  {:>8.1}  {:>8.1}",
            self.latency.min() as f64 / 1e3,
            at(0.5),
            at(0.99),
            at(0.999),
            self.latency.max() as f64 / 1e3,
        )
    }

    fn write_keys(&self, out: &mut String) -> core::fmt::Result {
        let engine = &self.engine;
        writeln!(out, "\nkeys made                {:>12}", engine.registrations)?;
        writeln!(out, "  killed by the peer     {:>12}", engine.remote_invalidations)?;
        writeln!(out, "  killed by LOCAL_INV    {:>12}", engine.local_invalidations)?;
        writeln!(out, "  destroyed while live   {:>12}", engine.mrs_destroyed_live)?;
        let open = self.remote_bytes_open.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
        writeln!(out, "  remote bytes open      {open:>12}")?;
        if self.engine.shortest_key_reuse_ns != u64::MAX {
            let reuse = engine.shortest_key_reuse_ns as f64 / 1e3;
            writeln!(out, "  shortest reuse of a full key {reuse:>8.1} us")?;
        }
        Ok(())
    }

    fn write_queues(&self, out: &mut String) -> core::fmt::Result {
        let engine = &self.engine;
        let per_request = |count: u64| count as f64 / engine.requests.max(1) as f64;
        writeln!(out, "\nper request (of {})", engine.requests)?;
        writeln!(out, "  work requests          {:>12.3}", per_request(engine.work_requests))?;
        writeln!(out, "  doorbells              {:>12.3}", per_request(engine.doorbells))?;
        writeln!(out, "  send completions       {:>12.3}", per_request(engine.send_completions))?;
        if self.reconnects > 0 {
            writeln!(out, "\nreconnected {} time(s), {} request(s) again", self.reconnects, self.resubmitted)?;
        }
        Ok(())
    }

    fn write_verdict(&self, out: &mut String) -> core::fmt::Result {
        for who in &self.undrained {
            writeln!(out, "\nnot drained: {who}")?;
        }
        match (&self.caught, self.passed()) {
            (Some(caught), _) => writeln!(out, "\nCAUGHT: {caught}"),
            (None, true) if self.interrupted => writeln!(out, "\ninterrupted; nothing wrong so far"),
            (None, true) => writeln!(out, "\nverified: SHA-256 of the file and every block read"),
            (None, false) => writeln!(out, "\nFAILED: keys are not all accounted for, or the file was not verified"),
        }
    }
}

fn core_json(core: &CoreReport) -> Value {
    let seconds = core.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    json!({
        "core": core.reactor.cpu.map(|cpu| cpu.get()),
        "role": core.role,
        "region": core.region.to_string(),
        "iops": core.requests as f64 / seconds,
        "busy_share": core.reactor.busy_share(),
        "iterations": core.reactor.iterations,
        "longest_iteration_us": core.reactor.longest_iteration.duration.as_secs_f64() * 1e6,
    })
}
