//! What a run prints at its end: a table for people, one line of JSON for programs.

use super::{command_line::Inject, load_report::LoadReport};
use crate::{
    check::Shortcoming,
    failures,
    job::Tally,
    output::in_line,
    report::{ReactorFigures, Report, counts, object, value},
};
use core::fmt::Write as _;
use core::time::Duration;
use frwr_engine::{Statistics as EngineStatistics, control::ControlStatistics};
use frwr_mempool::{Region, region::RegionKind};
use frwr_nvmf::host::HostStatistics;
use frwr_reactor::Statistics as ReactorStatistics;
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// What a core's memory is made of.
#[derive(Clone, Debug)]
pub struct MemoryReport {
    /// Its rung of the ladder.
    pub kind: RegionKind,
    /// Why the first rung above gave none, with the remedy.
    pub fell_short: Option<String>,
}

impl MemoryReport {
    /// Of a region.
    #[must_use]
    pub fn of(region: &Region) -> Self {
        let fell_short = region.failed_rungs().first().map(ToString::to_string);
        Self { kind: region.kind(), fell_short }
    }
}

/// One reactor's part in the run.
#[derive(Clone, Debug)]
pub struct CoreReport {
    /// What it carried: target, host, or both.
    pub role: &'static str,
    /// What its memory is made of.
    pub memory: MemoryReport,
    /// Requests ended (host), or I/O commands that succeeded (target).
    pub requests: u64,
    /// Bytes that they have read and written.
    pub bytes: u64,
    /// The target granted no I/O queue for it; the others did its share of the load.
    pub idle: bool,
    /// The loop's figures.
    pub reactor: ReactorStatistics,
}

impl CoreReport {
    pub(super) fn figures(&self) -> ReactorFigures {
        ReactorFigures::of(&self.reactor)
    }

    /// What all reports tell of it.
    pub(super) fn json(&self) -> Value {
        let carried = json!({ "role": self.role, "region": self.memory.kind.to_string(), "requests": self.requests });
        object([value(self.figures()), carried])
    }
}

/// What the bytes that were read were held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// The file that had been written.
    File,
    /// A digest that the caller gave.
    Digest,
    /// Nothing but a second look.
    #[serde(rename = "first_copy")]
    Itself,
    /// What the load itself has written.
    Writes,
    /// Nothing: nobody wanted to know.
    Nothing,
}

impl Compared {
    fn verdict(self) -> &'static str {
        match self {
            Self::File => "SHA-256 of the file and every block read",
            Self::Digest => "SHA-256 as expected, and every later read gave the same bytes",
            Self::Itself => "every later read gave the bytes of the first; compare the SHA-256",
            Self::Writes => "every block read that the load had written",
            Self::Nothing => "nothing",
        }
    }
}

/// A fault on purpose, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Injected {
    /// Which.
    pub fault: Inject,
    /// How often it struck: reads spoiled, invalidations skipped, connections lost and set up again.
    pub struck: u64,
}

impl Injected {
    /// Why the run does not show what it was to show, where nothing was caught.
    fn shortcoming(self) -> Option<String> {
        let Self { fault, struck } = self;
        let name = fault.name();
        match struck {
            0 => Some(format!(
                "the fault did not strike (--inject {name}); a longer --runtime, or a larger file, gives it time"
            )),
            _ if fault.is_to_be_survived() => None,
            _ => Some(format!("the fault struck {struck} time(s) and nothing noticed it (--inject {name})")),
        }
    }
}

/// What a run is about.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// The device.
    pub device: String,
    /// The file's name, or which namespace it was.
    pub file: String,
    /// What is read is compared with this.
    #[serde(rename = "compared_with")]
    pub compared: Compared,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Requests in flight at most, on each core with a host.
    pub queue_depth: u32,
    /// The same as the device's queues leave it.
    pub effective_queue_depth: u32,
    /// Reads among the requests of the mixed load, in percent.
    pub read_share: u8,
    /// Where the target is.
    #[serde(skip)]
    pub address: SocketAddr,
}

/// The whole run. What is skipped is computed with, and told by other names.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// What it was about.
    #[serde(flatten)]
    pub subject: Subject,
    /// Bytes that were moved.
    pub file_bytes: u64,
    /// SHA-256 of what was read, in hexadecimal digits; `None` where not all was.
    pub sha256: Option<String>,
    /// Whether the file and every block came back right.
    #[serde(skip)]
    pub verified: bool,
    /// Whether somebody ended the run early.
    pub interrupted: bool,
    /// The first thing that was wrong.
    pub caught: Option<String>,
    /// The host's counters, of all its cores.
    #[serde(skip)]
    pub session: HostStatistics,
    /// I/O queues that it had, over all cores.
    #[serde(skip)]
    pub queues: usize,
    /// Time from the first request's submission to the last one's end; the target worked for as long.
    #[serde(skip)]
    pub elapsed: Duration,
    /// The host's engines.
    #[serde(skip)]
    pub engine: EngineStatistics,
    /// The host's control.
    #[serde(skip)]
    pub control: ControlStatistics,
    /// Bytes open to the peer when the job had ended and the connection was still up, by the device's own key table.
    pub remote_bytes_open: Option<u64>,
    /// Latency of requests, submission to end of fence, in nanoseconds.
    #[serde(skip)]
    pub latency: Histogram<u64>,
    /// Requests by their kinds, as far as they count.
    #[serde(skip)]
    pub tally: Tally,
    /// What the load was, of `frwr load`.
    #[serde(skip)]
    pub load: Option<LoadReport>,
    /// Per reactor.
    #[serde(skip)]
    pub cores: Vec<CoreReport>,
    /// What was broken on purpose.
    pub injected: Option<Injected>,
    /// Why a session of the host ended by itself, or did not come up, the last time that one did.
    pub last_failure: Option<String>,
    /// Reactors and pollers that did not drain in time.
    pub undrained: Vec<String>,
    /// What happened to its cores, as [`crate::watch`] saw it.
    #[serde(rename = "shortcomings")]
    pub warnings: Vec<Shortcoming>,
}

impl Report for RunReport {
    fn passed(&self) -> bool {
        self.caught.is_none()
            && (self.verified || self.interrupted || self.subject.compared == Compared::Nothing)
            && self.keys_accounted()
            && self.shortcoming().is_none()
    }

    fn json(&self) -> Value {
        let (engine, session) = (&self.engine, &self.session);
        let of_engine = counts!(engine =>
            requests, requests_ended, registrations, lists_registered, local_invalidations, remote_invalidations,
            keys_destroyed_live, mrs_destroyed, work_requests, doorbells, drain_markers, receive_doorbells, send_chains,
            send_completions, receive_completions, stale_completions,
        );
        let of_session = counts!(session =>
            split_requests, multi_key_commands, bounced_commands, in_capsule_writes, aborts, keep_alives,
            namespace_events, ana_events, ana_reads, reservation_notifications, reauthentications,
        );
        let computed = json!({
            "seconds": self.elapsed.as_secs_f64(),
            "verified": self.verified && self.caught.is_none(),
            "passed": self.passed(),
            "reconnects": self.reconnects(),
            "resubmitted": session.resubmitted,
            "repeated": session.repeated,
            "session": object([of_session, json!({ "queues": self.queues, "commands": session.submissions })]),
            "keys_live": engine.keys_live(),
            "shortest_key_reuse_us": engine.shortest_key_reuse_ns.map(|ns| ns as f64 / 1e3),
            // The host's.
            "region": self.cores.last().map(|core| core.memory.kind.to_string()),
            "cores": self.cores.iter().map(|core| self.core_json(core)).collect::<Vec<_>>(),
            "latency_us": self.latency_json(),
            "failures": failures::json(engine, &self.control),
        });
        let seconds = self.elapsed.as_secs_f64();
        let load = self.load.as_ref().map_or(Value::Null, |load| json!({ "load": load.json(&self.tally, seconds) }));
        object([value(self), of_engine, computed, load])
    }

    fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut text);
        text
    }
}

impl RunReport {
    /// What was to be shown by a fault on purpose, and was not.
    fn shortcoming(&self) -> Option<String> {
        self.injected.filter(|_| self.caught.is_none()).and_then(Injected::shortcoming)
    }

    /// Every key that was made is dead, and it is known how it died.
    #[must_use]
    pub fn keys_accounted(&self) -> bool {
        let engine = &self.engine;
        self.remote_bytes_open.unwrap_or(0) == 0
            && engine.registrations
                == engine.local_invalidations + engine.remote_invalidations + engine.keys_destroyed_live
    }

    /// Cores with a host.
    fn hosts(&self) -> usize {
        self.cores.iter().filter(|core| core.role.ends_with("host")).count()
    }

    /// Sessions beyond the first.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.session.sessions.saturating_sub(1)
    }

    /// By the names of JSON, in microseconds: the order of the table.
    fn latencies(&self) -> [(&'static str, f64); 6] {
        let latency = &self.latency;
        let at = |quantile| latency.value_at_quantile(quantile) as f64;
        let nanoseconds = [
            ("min", latency.min() as f64),
            ("mean", latency.mean()),
            ("p50", at(0.5)),
            ("p99", at(0.99)),
            ("p999", at(0.999)),
            ("max", latency.max() as f64),
        ];
        nanoseconds.map(|(name, value)| (name, value / 1e3))
    }

    fn latency_json(&self) -> Value {
        let told = |value: f64| (!self.latency.is_empty()).then_some(value);
        self.latencies().map(|(name, value)| (name.to_owned(), json!(told(value)))).into_iter().collect()
    }

    /// Requests and MiB per second; nothing where no request ended.
    fn rates(&self, requests: u64, bytes: u64) -> (f64, f64) {
        let seconds = self.elapsed.as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        (rate(requests), rate(bytes) / f64::from(1 << 20))
    }

    /// What all hosts have moved.
    fn bytes(&self) -> u64 {
        self.cores.iter().filter(|core| core.role.ends_with("host")).map(|core| core.bytes).sum()
    }

    fn core_json(&self, core: &CoreReport) -> Value {
        let (iops, mebibytes) = self.rates(core.requests, core.bytes);
        let figures =
            json!({ "bytes": core.bytes, "without_queue": core.idle, "iops": iops, "mib_per_second": mebibytes });
        object([core.json(), figures])
    }

    fn write_table(&self, out: &mut String) -> core::fmt::Result {
        let Subject { device, file, block_bytes, queue_depth, read_share, .. } = &self.subject;
        let file = in_line(file);
        if self.latency.is_empty() {
            // Rates and latencies of no request would look like figures.
            writeln!(out, "\n{file} on {device}: nothing was measured")?;
            return self.write_verdict(out);
        }
        writeln!(out, "\n{file} on {device}: {} bytes", self.file_bytes)?;
        if let Some(digest) = &self.sha256 {
            writeln!(out, "  SHA-256 {digest}")?;
        }
        let sizes = self.load.as_ref().map_or_else(|| block_bytes.to_string(), |load| load.sizes.clone());
        let load = match &self.load {
            Some(load) if [0, 100].contains(read_share) => load.rw.clone(),
            Some(load) => format!("{} of {read_share} % reads", load.rw),
            None => format!("mixed load of {read_share} % reads"),
        };
        writeln!(
            out,
            "  queue depth {queue_depth}{}, blocks of {sizes} bytes, {load}",
            if self.hosts() > 1 { " on each core" } else { "" },
        )?;
        self.write_cores(out)?;
        self.write_memory(out)?;
        self.write_latency(out)?;
        if let Some(load) = &self.load {
            load.write_table(&self.tally, self.elapsed.as_secs_f64(), out)?;
        }
        self.write_keys(out)?;
        self.write_queues(out)?;
        self.write_verdict(out)
    }

    fn write_cores(&self, out: &mut String) -> core::fmt::Result {
        writeln!(out, "\ncore  role         memory                      IOPS      MiB/s   busy  longest iteration")?;
        for core in &self.cores {
            let (figures, (rate, mebibytes)) = (core.figures(), self.rates(core.requests, core.bytes));
            writeln!(
                out,
                "{:>4}  {:<11}  {:<24}  {rate:>8.0}  {mebibytes:>9.1}  {:>4.0}%  {:>14.1} us",
                figures.core(),
                core.role,
                core.memory.kind.to_string(),
                100.0 * figures.busy_share,
                figures.longest_iteration_us,
            )?;
        }
        // Not the sum of the rows where target and host are reported: each request passes both cores.
        let requests = self.latency.len();
        let (rate, mebibytes) = self.rates(requests, self.bytes());
        let seconds = self.elapsed.as_secs_f64();
        let total = format!("{requests} requests in {seconds:.2} s");
        writeln!(out, "total {total:<37}  {rate:>8.0}  {mebibytes:>9.1}")?;
        writeln!(out, "busy, longest iteration: of all the time that a core ran, its set-up and its end included")?;
        let idle = self.cores.iter().filter(|core| core.idle).count();
        if idle > 0 {
            let granted = self.queues;
            writeln!(
                out,
                "\nthe target granted {granted} I/O queue(s): {idle} core(s) had none, the others did their share"
            )?;
        }
        Ok(())
    }

    /// What keeps the memory from being the best kind, once.
    fn write_memory(&self, out: &mut String) -> core::fmt::Result {
        match self.cores.iter().find_map(|core| core.memory.fell_short.as_ref()) {
            Some(reason) => writeln!(out, "\nmemory: {reason}"),
            None => Ok(()),
        }
    }

    fn write_latency(&self, out: &mut String) -> core::fmt::Result {
        let whose =
            if self.subject.device.starts_with("soft:") { " (the software NIC's, not a network's)" } else { "" };
        writeln!(out, "\nlatency, submission to dead key, in us{whose}")?;
        let values = self.latencies();
        writeln!(
            out,
            "  {}",
            values.map(|(name, _)| format!("{:>8}", if name == "p999" { "p99.9" } else { name })).join("  ")
        )?;
        writeln!(out, "  {}", values.map(|(_, value)| format!("{value:>8.1}")).join("  "))
    }

    fn write_keys(&self, out: &mut String) -> core::fmt::Result {
        let engine = &self.engine;
        writeln!(out, "\nkeys made                {:>12}", engine.registrations)?;
        writeln!(out, "  killed by the peer     {:>12}", engine.remote_invalidations)?;
        writeln!(out, "  killed by LOCAL_INV    {:>12}", engine.local_invalidations)?;
        writeln!(out, "  destroyed while live   {:>12}", engine.keys_destroyed_live)?;
        writeln!(out, "  live at the end        {:>12}", engine.keys_live())?;
        let open = self.remote_bytes_open.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
        writeln!(out, "  remote bytes open      {open:>12}")?;
        if let Some(shortest) = engine.shortest_key_reuse_ns {
            let reuse = shortest as f64 / 1e3;
            writeln!(out, "  shortest key reuse     {reuse:>12.1} us")?;
        }
        Ok(())
    }

    fn write_queues(&self, out: &mut String) -> core::fmt::Result {
        let engine = &self.engine;
        let per_request = |count: u64| count as f64 / engine.requests.max(1) as f64;
        writeln!(out, "\nper request (of {})", engine.requests)?;
        writeln!(out, "  work requests          {:>12.3}", per_request(engine.work_requests))?;
        writeln!(out, "  doorbells              {:>12.3}", per_request(engine.doorbells))?;
        writeln!(out, "  posts of receives      {:>12.3}", per_request(engine.receive_doorbells))?;
        writeln!(out, "  send completions       {:>12.3}", per_request(engine.send_completions))?;
        writeln!(out, "  receive completions    {:>12.3}", per_request(engine.receive_completions))?;
        let session = &self.session;
        if session.split_requests > 0 {
            let (split, bounced) = (session.split_requests, session.bounced_commands);
            writeln!(out, "\n{split} request(s) took several commands, {bounced} command(s) a bounce buffer")?;
        }
        if session.multi_key_commands > 0 {
            writeln!(out, "\n{} command(s) named several keys", session.multi_key_commands)?;
        }
        if self.reconnects() > 0 {
            writeln!(out, "\nreconnected {} time(s), {} request(s) again", self.reconnects(), session.resubmitted)?;
        }
        Ok(())
    }

    fn write_verdict(&self, out: &mut String) -> core::fmt::Result {
        if self.session.shutdown_events > 0 {
            let times = self.session.shutdown_events;
            writeln!(out, "\nthe target said {times} time(s) that it shuts down")?;
        }
        if let Some(failure) = &self.last_failure {
            writeln!(out, "\nthe last session that failed: {failure}")?;
        }
        for line in failures::lines(&self.engine) {
            writeln!(out, "\n{line}")?;
        }
        for who in &self.undrained {
            writeln!(out, "\nnot drained: {who}")?;
        }
        if let Some(caught) = &self.caught {
            return writeln!(out, "\nCAUGHT: {caught}");
        }
        if let Some(shortcoming) = self.shortcoming() {
            return writeln!(out, "\nFAILED: {shortcoming}");
        }
        match self.passed() {
            true if self.interrupted && self.latency.is_empty() => {
                writeln!(out, "\ninterrupted before the first request had ended")
            }
            true if self.interrupted => writeln!(out, "\ninterrupted; nothing wrong so far"),
            true if self.subject.compared == Compared::Nothing => {
                writeln!(out, "\nnothing was verified (--no-verify)")
            }
            true => writeln!(out, "\nverified: {}", self.subject.compared.verdict()),
            false => writeln!(out, "\nFAILED: keys are not all accounted for, or the file was not verified"),
        }
    }
}
