//! What a measurement prints: tables for people, one object for programs.

use super::{
    client::Measured,
    counters::{Counters, ratio},
    doorbells::Doorbells,
    parameters::{KeyKind, Parameters},
    summary::{Scale, Summary},
};
use crate::{
    check::Shortcoming,
    report::{ReactorFigures, Report, counts, object, value},
};
use core::{fmt::Write as _, time::Duration};
use frwr_reactor::{LONG_ITERATION, Statistics};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Drivers of devices that this was never run on, but for soft RoCE.
const NEVER_RUN: &str = "never run on ConnectX";

/// Entries of a list that fit the first 64 bytes of the work request that registers it (goal B2).
const SHORT_LIST: u8 = 4;

/// One core's part.
#[derive(Clone, Debug)]
pub struct LatencyCoreReport {
    pub(super) measured: Measured,
    /// The loop's figures, from its start to its end.
    pub reactor: Statistics,
}

/// The whole measurement. What is skipped is computed with, and told by other names.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyReport {
    /// The device.
    pub device: String,
    /// Its kernel driver, where there is one.
    pub driver: Option<String>,
    /// What its keys cover: page_lists, lists or windows.
    pub registration: &'static str,
    /// Where the server is.
    #[serde(rename = "server")]
    pub address: SocketAddr,
    /// What was measured; connections are those of all cores.
    #[serde(skip)]
    pub parameters: Parameters,
    /// Connections of each core.
    pub connections: u16,
    /// What was not counted in front.
    #[serde(skip)]
    pub warm_up: Duration,
    /// Requests per second that were meant to begin.
    pub rate: Option<u64>,
    /// Requests began in rounds.
    pub rounds: Option<Doorbells>,
    /// Somebody ended it early.
    pub interrupted: bool,
    /// Latencies of all cores, in nanoseconds of the clock.
    #[serde(skip)]
    pub histogram: Histogram<u64>,
    /// Per core of the client.
    #[serde(skip)]
    pub cores: Vec<LatencyCoreReport>,
    /// What may have ruined it.
    #[serde(skip)]
    pub warnings: Vec<Shortcoming>,
    /// What did not drain in time at the end, of all cores of the process.
    pub undrained: Vec<String>,
}

impl LatencyCoreReport {
    /// Requests counted.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.measured.histogram.len()
    }

    fn figures(&self) -> ReactorFigures {
        ReactorFigures::of(&self.reactor)
    }

    /// From the beginning of the measurement to its end, in seconds.
    fn seconds(&self) -> f64 {
        self.measured.last.saturating_sub(self.measured.began).as_secs_f64()
    }

    fn rate(&self) -> f64 {
        per_second(self.requests(), self.seconds())
    }
}

/// Seconds as people read them: to hundredths, and below a second to three digits that are not 0.
fn rounded(seconds: f64) -> f64 {
    let digits = if seconds > 0.0 { (2 - seconds.log10().floor() as i32).max(2) } else { 2 };
    let scale = 10_f64.powi(digits.min(9));
    (seconds * scale).round() / scale
}

fn per_second(requests: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { requests as f64 / seconds } else { 0.0 }
}

impl Report for LatencyReport {
    fn json(&self) -> Value {
        let (counters, requests, rate) = (self.counters(), self.requests(), self.rate());
        let Parameters { operation, size, segments, ranges, depth, batch, .. } = self.parameters;
        let shortcomings = self.all_warnings();
        let asked = json!({
            "op": operation.name(),
            "key": self.parameters.key_name(),
            "invalidate": self.parameters.invalidation_name(),
            "peer": self.parameters.peer_name(),
            "size": size,
            "depth": depth,
            "segments": segments,
            "ranges": ranges,
            "batch": batch,
            "warm_up": self.warm_up.as_secs_f64(),
        });
        let of_engine = counts!(counters =>
            registrations, lists_registered, local_invalidations, remote_invalidations, requests_waited,
        );
        let computed = json!({
            "cores": self.cores.len(),
            "rate_missed": self.missed(),
            "rate_late": self.late(),
            "requests": requests,
            "seconds": self.seconds(),
            "requests_per_second": rate,
            "mib_per_second": self.mebibytes(rate),
            "gbit_per_second": self.gigabits(rate),
            "latency_is": self.scale().name(),
            "latency_us": self.latency_json(&self.histogram),
            "doorbells_per_request": ratio(counters.doorbells, requests),
            "work_requests_per_request": ratio(counters.work_requests, requests),
            "completions_per_request": ratio(counters.completions(), requests),
            "send_completions_per_request": ratio(counters.send_completions, requests),
            "receive_posts_per_request": ratio(counters.receive_doorbells, requests),
            "per_core": self.cores.iter().map(|core| self.core_json(core)).collect::<Vec<_>>(),
            "warnings": shortcomings.iter().map(|warning| &warning.text).collect::<Vec<_>>(),
            "shortcomings": shortcomings,
            "hardware": self.hardware(),
            "sleeps": self.sleeps(),
            "sleeps_per_request": ratio(self.sleeps(), self.ended()),
            "page_faults": self.page_faults(),
            "page_faults_of_process": self.page_faults_of_process(),
        });
        object([value(self), asked, counters.shares_json(), of_engine, computed])
    }

    fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut text);
        text
    }
}

impl LatencyReport {
    /// Requests counted, on all cores.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.cores.iter().map(LatencyCoreReport::requests).sum()
    }

    /// Whether figures are the whole of a round trip.
    #[must_use]
    pub fn scale(&self) -> Scale {
        // Half of a time that a request waited for its turn would be half of something else.
        if self.rate.is_some() { Scale::RoundTrip } else { self.parameters.operation.scale() }
    }

    /// From the first core's beginning to the last one's end.
    pub(super) fn seconds(&self) -> f64 {
        let began = self.cores.iter().map(|core| core.measured.began).min().unwrap_or_default();
        let last = self.cores.iter().map(|core| core.measured.last).max().unwrap_or_default();
        last.saturating_sub(began).as_secs_f64()
    }

    /// Requests per second, of all cores.
    pub(super) fn rate(&self) -> f64 {
        per_second(self.requests(), self.seconds())
    }

    /// Of the cores' time, the mean of all.
    pub(super) fn busy_share(&self) -> f64 {
        let busy: f64 = self.cores.iter().map(|core| core.reactor.busy_share()).sum();
        busy / self.cores.len().max(1) as f64
    }

    pub(super) fn counters(&self) -> Counters {
        self.cores.iter().map(|core| core.measured.counters).fold(Counters::default(), |sum, counters| sum + counters)
    }

    /// Of the cores' threads, each while it measured.
    fn page_faults(&self) -> Option<u64> {
        self.cores.iter().map(|core| Some(core.measured.page_faults?.thread)).sum()
    }

    /// Of all threads of this process, while one core measured: the one with most.
    fn page_faults_of_process(&self) -> Option<u64> {
        let of_core = |core: &LatencyCoreReport| Some(core.measured.page_faults?.process);
        self.cores.iter().filter_map(of_core).max()
    }

    /// How often the cores slept, in their whole lives.
    fn sleeps(&self) -> u64 {
        self.cores.iter().map(|core| core.reactor.sleeps).sum()
    }

    /// Requests of their whole lives.
    fn ended(&self) -> u64 {
        self.cores.iter().map(|core| core.measured.ended).sum()
    }

    fn missed(&self) -> u64 {
        self.cores.iter().map(|core| core.measured.missed).sum()
    }

    /// What has to be known of the hardware; `None` for the software NIC and soft RoCE, which every test runs on.
    #[must_use]
    pub fn hardware(&self) -> Option<String> {
        match self.driver.as_deref() {
            Some("rdma_rxe") | None => None,
            Some("mlx5_core" | "mlx4_core" | "mlx4_ib") => Some(NEVER_RUN.to_owned()),
            Some(driver) => Some(format!("never run on hardware, neither of {driver} nor any other")),
        }
    }

    fn late(&self) -> u64 {
        self.cores.iter().map(|core| core.measured.late).sum()
    }

    /// All warnings: those of the machine, and a rate that was not kept.
    pub(super) fn all_warnings(&self) -> Vec<Shortcoming> {
        let slower = |count: u64, name, text: &str| {
            (count > 0).then(|| Shortcoming {
                name,
                text: format!("{count} requests {text}: the rate was not kept"),
                remedy: "lower --rate, or raise --depth or --connections".to_owned(),
            })
        };
        let missed = slower(self.missed(), "rate_missed", "were due in time and found no slot");
        let late = slower(self.late(), "rate_late", "found no slot before all were due, and began later");
        self.warnings.iter().cloned().chain(missed).chain(late).chain(self.long_lists()).collect()
    }

    /// Registrations that cost a card more than others: all of a run have as many entries as its requests have pieces.
    fn long_lists(&self) -> Option<Shortcoming> {
        let (segments, registrations) = (self.parameters.segments, self.counters().registrations);
        let long = self.registration == "lists" && segments > SHORT_LIST && registrations > 0;
        long.then(|| Shortcoming {
            name: "long_lists",
            text: format!(
                "{registrations} registrations are of lists with {segments} entries: more than {SHORT_LIST} do not fit the \
                 first 64 bytes of a work request, and a card takes one read more for each"
            ),
            remedy: format!("compare with `--segments {SHORT_LIST}`, or lay data out in fewer pieces"),
        })
    }

    fn latency_json(&self, histogram: &Histogram<u64>) -> Value {
        let summary = Summary::of(histogram, self.scale());
        // Zeros would look like figures.
        let told = |(name, value): (&str, f64)| (name.to_owned(), json!((!histogram.is_empty()).then_some(value)));
        let (named, also) = (summary.columns().map(told), [("p50", summary.typical)].map(told));
        let stated = [("is".to_owned(), json!(self.scale().name()))];
        named.into_iter().chain(also).chain(stated).collect()
    }

    fn core_json(&self, core: &LatencyCoreReport) -> Value {
        let computed = json!({
            "requests": core.requests(),
            "requests_per_second": core.rate(),
            "latency_us": self.latency_json(&core.measured.histogram),
            "page_faults": core.measured.page_faults.map(|faults| faults.thread),
            "memory": core.measured.memory.kind.to_string(),
        });
        object([value(core.figures()), core.measured.counters.shares_json(), computed])
    }

    pub(super) fn mebibytes(&self, rate: f64) -> f64 {
        rate * f64::from(self.parameters.operation.moved_bytes(self.parameters.size)) / f64::from(1 << 20)
    }

    /// In the unit of links and of perftest's --report_gbits: 10^9 bits.
    pub(super) fn gigabits(&self, rate: f64) -> f64 {
        self.mebibytes(rate) * f64::from(8 << 20) / 1e9
    }

    fn write_table(&self, out: &mut String) -> core::fmt::Result {
        writeln!(out, "{}", self.title())?;
        writeln!(out, "{}", self.settings(&self.parameters.size.to_string(), self.seconds(), ""))?;
        if let Some(hardware) = self.hardware() {
            writeln!(out, "{hardware}: check what it says against another tool, and tell us")?;
        }
        let has_figures = self.requests() > 0;
        if has_figures {
            self.write_latency_head(out)?;
            self.write_latency(out)?;
            self.write_cores(out)?;
            self.write_counts(out)?;
        }
        for warning in self.all_warnings() {
            writeln!(out, "warning: {}; {}", warning.text, warning.remedy)?;
        }
        self.write_undrained(out)?;
        if !self.interrupted && !has_figures {
            writeln!(out, "no request ended in time: nothing was measured; raise --runtime, or name --iterations")?;
        } else if !has_figures {
            writeln!(out, "interrupted before the first request that counts: nothing was measured")?;
        } else if self.interrupted {
            writeln!(out, "interrupted: these are the requests until then")?;
        }
        Ok(())
    }

    pub(super) fn write_undrained(&self, out: &mut String) -> core::fmt::Result {
        self.undrained.iter().try_for_each(|who| writeln!(out, "not drained: {who}"))
    }

    pub(super) fn title(&self) -> String {
        let keys = self.parameters.keys_in_words();
        let peer = self.parameters.peer_name().map_or_else(String::new, |does| format!(", the server {does}s"));
        let (operation, device) = (self.parameters.operation.name(), &self.device);
        format!("frwr latency {operation} on {device} ({}): {keys}{peer}", self.registration.replace('_', " "))
    }

    /// How it was measured, with `sizes` as said, in so many seconds of requests that count; `of_which` stands between these and the
    /// warm-up.
    pub(super) fn settings(&self, sizes: &str, seconds: f64, of_which: &str) -> String {
        let Parameters { operation, segments, depth, batch, .. } = self.parameters;
        let pieces = if segments > 1 { format!(" in {segments} pieces") } else { String::new() };
        let to_and_from = self.parameters.ranges_in_words();
        let batches =
            if operation.makes_keys_alone() { format!(", {batch} keys behind a doorbell") } else { String::new() };
        let rate = self.rate.map_or(String::new(), |rate| format!(", {rate} requests/s meant to begin"));
        let rounds = match self.rounds {
            None => "",
            Some(Doorbells::One) => " in rounds of one doorbell",
            Some(Doorbells::Each) => " in rounds with a doorbell each",
        };
        format!(
            "{sizes} bytes{pieces}{to_and_from}, depth {depth}{rounds}{batches}, {} connection(s) on each of {} core(s){rate}; {} s{of_which} after \
             {} s of warm-up",
            self.connections,
            self.cores.len(),
            rounded(seconds),
            self.warm_up.as_secs_f64(),
        )
    }

    pub(super) fn write_latency_head(&self, out: &mut String) -> core::fmt::Result {
        let from_to = self.parameters.operation.figures(self.rate.is_some());
        let whose = if self.device.starts_with("soft:") { " (the software NIC's, not a network's)" } else { "" };
        writeln!(out, "\nlatency in us, {from_to}{whose}")?;
        let names = ["t_min", "t_typical", "t_avg", "t_stdev", "99%", "99.9%", "t_max"];
        let heads: Vec<_> = names.iter().map(|name| format!(" {name:>9}")).collect();
        writeln!(out, "{:>9}{:>12}{}", "#bytes", "#requests", heads.join(""))
    }

    pub(super) fn write_latency(&self, out: &mut String) -> core::fmt::Result {
        let values = Summary::of(&self.histogram, self.scale()).columns().map(|(_, value)| format!(" {value:>9.2}"));
        writeln!(out, "{:>9}{:>12}{}", self.parameters.size, self.requests(), values.join(""))
    }

    fn write_cores(&self, out: &mut String) -> core::fmt::Result {
        writeln!(
            out,
            "\n core    requests/s       MiB/s    Gbit/s      average        min        max   busy  empty polls  completions/poll  \
             work requests/doorbell"
        )?;
        for core in &self.cores {
            let (summary, counters) = (Summary::of(&core.measured.histogram, self.scale()), core.measured.counters);
            let figures = core.figures();
            self.write_row(out, &figures.core(), core.rate(), &summary, figures.busy_share, &counters)?;
        }
        if self.cores.len() > 1 {
            let summary = Summary::of(&self.histogram, self.scale());
            self.write_row(out, "all", self.rate(), &summary, self.busy_share(), &self.counters())?;
        }
        Ok(())
    }

    fn write_row(
        &self,
        out: &mut String,
        name: &str,
        rate: f64,
        summary: &Summary,
        busy: f64,
        counters: &Counters,
    ) -> core::fmt::Result {
        // Of a core without requests there are none.
        let time = |value: f64| if rate > 0.0 { format!("{value:.2}") } else { "-".to_owned() };
        writeln!(
            out,
            "{name:>5}{rate:>14.0}{:>12.1}{:>10.3} {:>12} {:>10} {:>10}{:>6.0}%{:>12.1}%{:>18.2}{:>24.2}",
            self.mebibytes(rate),
            self.gigabits(rate),
            time(summary.average),
            time(summary.minimum),
            time(summary.maximum),
            100.0 * busy,
            100.0 * counters.empty_poll_share(),
            counters.completions_per_poll(),
            counters.work_requests_per_doorbell(),
        )
    }

    fn write_counts(&self, out: &mut String) -> core::fmt::Result {
        let (counters, requests) = (self.counters(), self.requests());
        let per_request = |count| ratio(count, requests);
        writeln!(
            out,
            "\nper request: {:.3} work requests, {:.3} doorbells, {:.3} posts of receives, {:.3} send and {:.3} receive \
             completions",
            per_request(counters.work_requests),
            per_request(counters.doorbells),
            per_request(counters.receive_doorbells),
            per_request(counters.send_completions),
            per_request(counters.receive_completions),
        )?;
        let makes_keys = self.parameters.operation.asks_for_rdma() || self.parameters.operation.makes_keys_alone();
        if makes_keys && self.parameters.key == KeyKind::Memory {
            writeln!(out, "keys: {requests} made by ibv_reg_mr, and killed by ibv_dereg_mr")?;
        } else {
            writeln!(
                out,
                "keys: {} made ({} of memory with gaps), {} killed by the server, {} by LOCAL_INV",
                counters.registrations,
                counters.lists_registered,
                counters.remote_invalidations,
                counters.local_invalidations
            )?;
        }
        let shown = |faults: Option<u64>| faults.map_or_else(|| "unknown".to_owned(), |faults| faults.to_string());
        let (cores, process) = (shown(self.page_faults()), shown(self.page_faults_of_process()));
        writeln!(out, "page faults meanwhile: {cores} of these cores, {process} of the whole process")?;
        self.write_sleeps(out)?;
        self.write_long_iterations(out)
    }

    /// Of cores that sleep, and of their whole lives.
    fn write_sleeps(&self, out: &mut String) -> core::fmt::Result {
        let sleeps = self.sleeps();
        if sleeps == 0 {
            return Ok(());
        }
        let asleep: f64 = self.cores.iter().map(|core| core.reactor.asleep_share()).sum();
        let share = 100.0 * asleep / self.cores.len().max(1) as f64;
        writeln!(
            out,
            "asleep: {share:.1} % of the time, {sleeps} times, {:.3} per request",
            ratio(sleeps, self.ended())
        )
    }

    /// Of the reactors' whole lives: connecting and warming up are part of them.
    fn write_long_iterations(&self, out: &mut String) -> core::fmt::Result {
        let sum = |count: fn(&Statistics) -> u64| self.cores.iter().map(|core| count(&core.reactor)).sum::<u64>();
        let (long, all) = (sum(|reactor| reactor.long_iterations), sum(|reactor| reactor.iterations));
        let limit = LONG_ITERATION.as_micros();
        let share = 100.0 * ratio(all - long, all);
        writeln!(out, "iterations of up to {limit} us: {share:.4} % of {all}, {long} took longer\n")
    }

    /// The head of the table of figures.
    pub(super) fn csv_head() -> String {
        let head: Vec<_> = Summary::default().columns().iter().map(|(name, _)| format!("{name}_us")).collect();
        format!(
            "op,key,invalidate,device,registration,size,depth,segments,batch,connections,core,requests,requests_per_second,{},\
             latency_is,rate,rounds,completions_per_poll,work_requests_per_doorbell,empty_poll_share,ranges,peer,warm_up,seconds,\
             mib_per_second,rate_missed,rate_late,gbit_per_second\n",
            head.join(",")
        )
    }

    /// Its rows: one for all cores, and one for each.
    pub(super) fn write_csv(&self, text: &mut String) {
        let Parameters { operation, size, segments, ranges, depth, batch, .. } = self.parameters;
        let what = format!(
            "{},{},{},{},{},{size},{depth},{segments},{batch},{}",
            operation.name(),
            self.parameters.key_name(),
            self.parameters.invalidation_name(),
            self.device,
            self.registration,
            self.connections
        );
        // Empty where requests began when others ended.
        let rate = self.rate.map_or_else(String::new, |rate| rate.to_string());
        let how = format!("{},{rate},{}", self.scale().name(), self.rounds.map_or("", Doorbells::name));
        let (peer, warm_up) = (self.parameters.peer_name().unwrap_or_default(), self.warm_up.as_secs_f64());
        let mut row = |core: &str, seconds: f64, histogram: &Histogram<u64>, counters: &Counters, kept: [u64; 2]| {
            // Empty of no request: zeros would look like figures.
            let told = |(_, value): (_, f64)| if histogram.is_empty() { String::new() } else { format!("{value:.3}") };
            let values = Summary::of(histogram, self.scale()).columns().map(told);
            let (requests, rate) = (histogram.len(), per_second(histogram.len(), seconds));
            let ([missed, late], mebibytes, gigabits) = (kept, self.mebibytes(rate), self.gigabits(rate));
            let _ = writeln!(
                text,
                "{what},{core},{requests},{rate:.1},{},{how},{:.4},{:.4},{:.6},{ranges},{peer},{warm_up},{seconds:.6},{mebibytes:.1},\
                 {missed},{late},{gigabits:.4}",
                values.join(","),
                counters.completions_per_poll(),
                counters.work_requests_per_doorbell(),
                counters.empty_poll_share(),
            );
        };
        row("all", self.seconds(), &self.histogram, &self.counters(), [self.missed(), self.late()]);
        for core in &self.cores {
            let name = core.reactor.cpu.map_or_else(|| "unpinned".to_owned(), |cpu| cpu.to_string());
            let measured = &core.measured;
            row(&name, core.seconds(), &measured.histogram, &measured.counters, [measured.missed, measured.late]);
        }
    }
}
