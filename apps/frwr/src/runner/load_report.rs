//! What a report tells of the load of `frwr load`: what it was asked for, and each kind of request by itself.

use super::{load_command::LoadArguments, load_paths::LoadedPath, steady_state::SteadyState};
use crate::job::{Side, Tally};
use core::{fmt::Write as _, time::Duration};
use serde::Serialize;
use serde_json::{Value, json};

/// Percentiles by the names of JSON.
const PERCENTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)];

/// The load of a run.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// What it was made of: a value of `--rw`.
    pub rw: String,
    /// Sizes of its requests, as `--bssplit` takes them.
    pub sizes: String,
    /// Every block read was checked that it had written.
    pub verify: bool,
    /// Requests that were to begin in a second.
    pub rate_iops: Option<u64>,
    /// Bytes that were to begin in a second.
    pub rate: Option<u64>,
    /// Seconds that it went on before it counted.
    pub ramp_time: u64,
    /// How far it was behind its rate when it ended, on the core where that was most.
    pub behind: Option<Duration>,
    /// Bytes that were read, and not checked since the load had not written them before.
    pub unchecked_bytes: u64,
    /// What was moved in each of the namespaces.
    pub namespaces: Vec<LoadedNamespace>,
    /// What each of several paths did.
    pub paths: Vec<LoadedPath>,
    /// The steady state that was to end it.
    pub steady_state: Option<SteadyReport>,
}

/// What a load moved in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadedNamespace {
    /// Its identifier.
    pub nsid: u32,
    /// Requests that ended.
    pub requests: u64,
    /// What they moved.
    pub bytes: u64,
}

/// Whether a load came to the steady state that was to end it.
#[derive(Clone, Debug, Serialize)]
pub struct SteadyReport {
    /// As `--steadystate` takes it.
    pub criterion: String,
    /// It did.
    pub attained: bool,
    /// What the criterion was of the last whole window; `None` where there was none.
    pub value: Option<f64>,
}

impl SteadyReport {
    pub(super) fn of(steady: &SteadyState) -> Self {
        // Of a load that stands still a percentage is no number.
        let value = steady.told().filter(|value| value.is_finite());
        Self { criterion: steady.criterion().to_string(), attained: steady.is_attained(), value }
    }
}

impl LoadReport {
    /// What was asked for, before anything is known of what became of it.
    pub(super) fn of(arguments: &LoadArguments) -> Self {
        let LoadArguments { shape, job, file, .. } = arguments;
        Self {
            rw: shape.name(file.is_some()),
            sizes: shape.sizes(job).to_string(),
            verify: shape.verify,
            rate_iops: shape.rate_iops,
            rate: shape.rate,
            ramp_time: shape.ramp_time,
            behind: None,
            unchecked_bytes: 0,
            namespaces: Vec::new(),
            paths: Vec::new(),
            steady_state: None,
        }
    }

    /// For programs. `seconds` is how long it counted.
    pub(super) fn json(&self, tally: &Tally, seconds: f64) -> Value {
        json!({
            "rw": self.rw,
            "sizes": self.sizes,
            "verify": self.verify,
            "rate_iops": self.rate_iops,
            "rate": self.rate,
            "ramp_time": self.ramp_time,
            "behind_us": self.behind.map(|behind| behind.as_secs_f64() * 1e6),
            "unchecked_bytes": self.unchecked_bytes,
            "namespaces": self.namespaces,
            "paths": self.paths,
            "steady_state": self.steady_state,
            "read": of_side(tally.reads(), seconds),
            "write": of_side(tally.writes(), seconds),
            "other": of_side(tally.others(), seconds),
        })
    }

    /// For people.
    pub(super) fn write_table(&self, tally: &Tally, seconds: f64, out: &mut String) -> core::fmt::Result {
        let sides = [("read", tally.reads()), ("write", tally.writes()), ("other", tally.others())];
        if sides.iter().filter(|(_, side)| side.requests > 0).count() > 1 {
            write!(out, "\n{:<5}  {:>10}  {:>10}  {:>9}  {:>8}", "", "requests", "IOPS", "MiB/s", "mean")?;
            PERCENTILES.iter().try_for_each(|(name, _)| write!(out, "  {:>8}", percentile(name)))?;
            writeln!(out, "  {:>8}", "max")?;
            for (name, side) in sides.iter().filter(|(_, side)| side.requests > 0) {
                let (iops, mebibytes) = rates(side, seconds);
                let mean = side.latency.mean() / 1e3;
                write!(out, "{name:<5}  {:>10}  {iops:>10.0}  {mebibytes:>9.1}  {mean:>8.1}", side.requests)?;
                for (_, quantile) in PERCENTILES {
                    write!(out, "  {:>8.1}", side.latency.value_at_quantile(quantile) as f64 / 1e3)?;
                }
                writeln!(out, "  {:>8.1}", side.latency.max() as f64 / 1e3)?;
            }
        }
        if self.namespaces.len() > 1 {
            writeln!(out, "\nnamespace    requests        IOPS      MiB/s")?;
            for LoadedNamespace { nsid, requests, bytes } in &self.namespaces {
                let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
                let (iops, mebibytes) = (rate(*requests as f64), rate(*bytes as f64 / f64::from(1 << 20)));
                writeln!(out, "{nsid:>9}  {requests:>10}  {iops:>10.0}  {mebibytes:>9.1}")?;
            }
        }
        if !self.paths.is_empty() {
            writeln!(out, "\n{}", LoadedPath::HEADER)?;
            self.paths.iter().try_for_each(|path| writeln!(out, "{}", path.row()))?;
        }
        if let Some(behind) = self.behind.filter(|behind| *behind >= LATE) {
            let behind = behind.as_secs_f64();
            writeln!(out, "\nthe rate was not kept: when the load ended it was {behind:.3} s behind")?;
        }
        if let Some(SteadyReport { criterion, attained: false, .. }) = &self.steady_state {
            writeln!(out, "\nno steady state: {criterion} was not attained before --runtime was over")?;
        }
        if self.unchecked_bytes > 0 {
            let mebibytes = self.unchecked_bytes as f64 / f64::from(1 << 20);
            writeln!(out, "\nnot checked: {mebibytes:.1} MiB that the load read before it had written there")?;
        }
        Ok(())
    }
}

/// Less than that is what a load is behind that has just begun its next request.
const LATE: Duration = Duration::from_millis(100);

/// As tables have it.
fn percentile(name: &str) -> String {
    match name.split_at(3.min(name.len())) {
        (whole, "") => whole.to_owned(),
        (whole, rest) => format!("{whole}.{rest}"),
    }
}

fn rates(side: &Side, seconds: f64) -> (f64, f64) {
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    (rate(side.requests), rate(side.bytes) / f64::from(1 << 20))
}

/// `null` of no request.
fn of_side(side: &Side, seconds: f64) -> Value {
    if side.requests == 0 {
        return Value::Null;
    }
    let (iops, mebibytes) = rates(side, seconds);
    let latency = &side.latency;
    let us = |nanoseconds: f64| json!(nanoseconds / 1e3);
    let mut told = json!({
        "min": us(latency.min() as f64),
        "mean": us(latency.mean()),
        "stdev": us(latency.stdev()),
        "max": us(latency.max() as f64),
    });
    for (name, quantile) in PERCENTILES {
        told[name] = us(latency.value_at_quantile(quantile) as f64);
    }
    json!({
        "requests": side.requests, "bytes": side.bytes, "iops": iops, "mib_per_second": mebibytes, "latency_us": told,
    })
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_told_with_a_point() {
        assert_eq!(["p50", "p99", "p999", "p9999"].map(percentile), ["p50", "p99", "p99.9", "p99.99"]);
    }
}
