//! What a target did between two readings.

use super::latency::{Interval, errors, in_words};
use super::reading::{List, Reading, number, text};
use crate::output::in_line;
use core::fmt::Write as _;
use serde::Serialize;
use serde_json::Value;

const MEBIBYTE: f64 = (1 << 20) as f64;

/// All of an interval.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) uptime_seconds: f64,
    pub(super) state: String,
    pub(super) device: String,
    pub(super) listen: Vec<String>,
    pub(super) queues: u64,
    pub(super) keys_alive: u64,
    pub(super) commands_in_flight: u64,
    pub(super) incidents: u64,
    pub(super) cores: Vec<Core>,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) hosts: Vec<Host>,
    pub(super) waits: Vec<Wait>,
}

/// A core.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Core {
    pub(super) reactor: u64,
    pub(super) cpu: Option<u64>,
    /// Of the interval, 0 to 1; none of a core that stood still all the while.
    pub(super) busy_share: Option<f64>,
    /// None of a core that may not sleep.
    pub(super) sleeps_per_second: Option<f64>,
    pub(super) iops: f64,
    pub(super) mib_per_second: f64,
    /// Since it was started.
    pub(super) stalls: u64,
    pub(super) stalls_in_interval: u64,
}

/// A namespace.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Namespace {
    pub(super) subsystem: String,
    pub(super) namespace: u64,
    pub(super) iops: f64,
    pub(super) mib_per_second: f64,
    /// Seconds, as [`Interval::percentile`] has them.
    pub(super) p50_seconds: Option<f64>,
    pub(super) p99_seconds: Option<f64>,
    pub(super) errors_per_second: f64,
    /// Operations that its storage failed since the start.
    pub(super) failed: u64,
    pub(super) state: String,
}

/// A host.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Host {
    pub(super) host: String,
    pub(super) queues: u64,
    pub(super) commands_in_flight: u64,
    pub(super) iops: f64,
}

/// What waits, and how often something had to in the interval.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Wait {
    pub(super) cause: String,
    pub(super) now: u64,
    pub(super) per_second: f64,
}

/// What was counted in the time of an interval, per second.
struct Rate {
    seconds: f64,
}

impl Rate {
    fn between(before: &List, after: &List) -> Self {
        Self { seconds: after.at - before.at }
    }

    /// A target that was started again counts from the beginning.
    fn of(&self, before: Option<&Value>, after: &Value, name: &str) -> f64 {
        self.of_figure(before, after, |of| number(of, name))
    }

    /// The same of any figure that counts.
    fn of_figure(&self, before: Option<&Value>, after: &Value, figure: impl Fn(&Value) -> f64) -> f64 {
        let Some(before) = before else { return 0.0 };
        let count = (figure(after) - figure(before)).max(0.0);
        if self.seconds > 0.0 { count / self.seconds } else { 0.0 }
    }
}

fn texts(of: &Value, name: &str) -> Vec<String> {
    let all = of[name].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn count(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_default()
}

impl Figures {
    /// Of two readings of one target.
    pub(super) fn between(before: &Reading, after: &Reading) -> Self {
        let status = &after.status;
        Self {
            uptime_seconds: number(status, "uptime_seconds"),
            state: text(status, "state"),
            device: in_line(&text(status, "device")),
            listen: texts(status, "listen"),
            queues: count(status, "queues"),
            keys_alive: count(status, "keys_alive"),
            commands_in_flight: count(status, "commands_in_flight"),
            incidents: count(status, "incidents"),
            cores: after.cores.all.iter().map(|core| Core::of(before, after, core)).collect(),
            namespaces: after.namespaces.all.iter().map(|one| Namespace::of(before, after, one)).collect(),
            hosts: after.hosts.all.iter().map(|host| Host::of(before, after, host)).collect(),
            waits: waits(before, after),
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        crate::report::value(self)
    }

    /// For people without a terminal.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> core::fmt::Result {
        writeln!(out, "{}", self.head())?;
        writeln!(out, "\ncore     busy  sleeps/s         IOPS      MiB/s  stalls")?;
        for core in &self.cores {
            let Core { iops, mib_per_second, .. } = core;
            let (name, busy, sleeps, stalls) = (core.name(), core.busy(), core.sleeps(), core.stalls());
            writeln!(out, "{name:<6} {busy:>6} {sleeps:>9} {iops:>12.0} {mib_per_second:>10.1} {stalls:>7}")?;
        }
        writeln!(out, "\nnamespace      IOPS      MiB/s   p50<=   p99<=  errors/s  state")?;
        for one in &self.namespaces {
            let Namespace { namespace, iops, mib_per_second, errors_per_second, state, subsystem, .. } = one;
            let (p50, p99) = one.percentiles();
            writeln!(
                out,
                "{namespace:<7} {iops:>10.0} {mib_per_second:>10.1} {p50:>7} {p99:>7} {errors_per_second:>9.0}  {state}  \
                 {subsystem}"
            )?;
        }
        writeln!(out, "\nqueues  in flight         IOPS  host")?;
        for Host { host, queues, commands_in_flight, iops } in &self.hosts {
            writeln!(out, "{queues:>6} {commands_in_flight:>10} {iops:>12.0}  {host}")?;
        }
        writeln!(out, "\n{}", self.waiting())
    }

    /// What is told first.
    pub(super) fn head(&self) -> String {
        let Self { state, device, listen, queues, keys_alive, commands_in_flight, incidents, .. } = self;
        format!(
            "{device} at {}, {state} since {:.0} s: {queues} queues, {commands_in_flight} commands in flight, {keys_alive} \
             keys alive, {incidents} incidents",
            listen.join(", "),
            self.uptime_seconds
        )
    }

    /// What waits and what had to, in a line.
    pub(super) fn waiting(&self) -> String {
        let is_there = |wait: &&Wait| wait.now > 0 || wait.per_second > 0.0;
        let of = |Wait { cause, now, per_second }: &Wait| format!("{cause} {now} ({per_second:.0}/s)");
        let all: Vec<_> = self.waits.iter().filter(is_there).map(of).collect();
        if all.is_empty() { "nothing waits".to_owned() } else { format!("waits: {}", all.join(", ")) }
    }
}

impl Core {
    fn of(before: &Reading, after: &Reading, core: &Value) -> Self {
        let former = before.cores.find(&["reactor"], core);
        let rate = Rate::between(&before.cores, &after.cores);
        Self {
            reactor: count(core, "reactor"),
            cpu: core["cpu"].as_u64(),
            busy_share: former.and_then(|former| busy_share(former, core)),
            sleeps_per_second: (core["may_sleep"] == true).then(|| rate.of(former, core, "sleeps")),
            iops: rate.of(former, core, "io_commands"),
            mib_per_second: rate.of(former, core, "io_bytes") / MEBIBYTE,
            stalls: count(core, "stalls"),
            stalls_in_interval: former
                .map_or(0, |former| count(core, "stalls").saturating_sub(count(former, "stalls"))),
        }
    }

    /// Since the start, and those of the interval.
    pub(super) fn stalls(&self) -> String {
        match self.stalls_in_interval {
            0 => self.stalls.to_string(),
            new => format!("{} +{new}", self.stalls),
        }
    }

    /// What people call it.
    pub(super) fn name(&self) -> String {
        match self.cpu {
            Some(cpu) => format!("{}@{cpu}", self.reactor),
            None => self.reactor.to_string(),
        }
    }

    /// In a second.
    pub(super) fn sleeps(&self) -> String {
        self.sleeps_per_second.map_or_else(|| "-".to_owned(), |sleeps| format!("{sleeps:.0}"))
    }

    pub(super) fn busy(&self) -> String {
        self.busy_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", 100.0 * share))
    }
}

/// Of the time between two readings, and not of all time.
fn busy_share(before: &Value, after: &Value) -> Option<f64> {
    let passed = |name| (number(after, name) - number(before, name)).max(0.0);
    let busy = passed("busy_seconds");
    let all = busy + passed("idle_seconds") + passed("asleep_seconds");
    (all > 0.0).then(|| busy / all)
}

impl Namespace {
    fn of(before: &Reading, after: &Reading, one: &Value) -> Self {
        let former = before.namespaces.find(&["subsystem", "namespace"], one);
        let rate = Rate::between(&before.namespaces, &after.namespaces);
        let moved = rate.of(former, one, "bytes_read") + rate.of(former, one, "bytes_written");
        let interval = Interval::between(former, one);
        let state = match (one["fault"].as_str(), one["broken"].as_i64(), one["active"].as_bool()) {
            (Some(fault), ..) => fault.to_owned(),
            (None, Some(error), _) => format!("io_uring refused: {error}"),
            (None, None, Some(false)) => "not active".to_owned(),
            _ => "active".to_owned(),
        };
        Self {
            subsystem: in_line(&text(one, "subsystem")),
            namespace: count(one, "namespace"),
            iops: rate.of(former, one, "completed"),
            mib_per_second: moved / MEBIBYTE,
            p50_seconds: interval.percentile(50),
            p99_seconds: interval.percentile(99),
            errors_per_second: rate.of_figure(former, one, errors),
            failed: count(one, "failed"),
            state,
        }
    }

    /// Of how long its commands took, for people.
    pub(super) fn percentiles(&self) -> (String, String) {
        (in_words(self.p50_seconds), in_words(self.p99_seconds))
    }
}

impl Host {
    fn of(before: &Reading, after: &Reading, host: &Value) -> Self {
        let former = before.hosts.find(&["host", "host_id"], host);
        Self {
            host: in_line(&text(host, "host")),
            queues: count(host, "queues"),
            commands_in_flight: count(host, "commands_in_flight"),
            iops: Rate::between(&before.hosts, &after.hosts).of(former, host, "commands"),
        }
    }
}

/// What waits now, and what had to in the interval. Causes that have no count of their own are told as what waits.
fn waits(before: &Reading, after: &Reading) -> Vec<Wait> {
    let Some(now) = after.waits["now"].as_object() else { return Vec::new() };
    let rate = Rate { seconds: number(&after.waits, "at_seconds") - number(&before.waits, "at_seconds") };
    let (former, later) = (&before.waits["so_far"], &after.waits["so_far"]);
    let of = |(cause, waiting): (&String, &Value)| Wait {
        cause: cause.clone(),
        now: waiting.as_u64().unwrap_or_default(),
        per_second: rate.of(Some(former), later, cause),
    };
    now.iter().map(of).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    /// A target after so many seconds, with two cores of which the second stands still since the first.
    pub(in super::super) fn reading(seconds: u64) -> Reading {
        let at = seconds as f64;
        let core = |reactor: u64, busy: f64, all: f64| {
            json!({
                "reactor": reactor, "cpu": reactor + 2, "busy_seconds": busy, "idle_seconds": all - busy,
                "asleep_seconds": 0.0, "may_sleep": reactor == 0, "sleeps": 20 * seconds, "io_commands": 1000 * seconds, "io_bytes": (1 << 20) * seconds, "stalls": seconds,
            })
        };
        let namespace = json!({
            "subsystem": "nqn.2026-11.invalid.frwr:file", "namespace": 1, "active": true, "completed": 500 * seconds,
            "failed": 3, "bytes_read": (1 << 20) * seconds, "bytes_written": (1 << 20) * seconds, "fault": null,
            "broken": null, "errors": { "write_fault": 2 * seconds, "invalid_field": seconds },
            "latency": { "read": { "up_to_seconds": [[0.000064, 98 * seconds], [0.002048, 2 * seconds]] } },
        });
        let host = json!({
            "host": "nqn.2026-11.invalid.frwr:\u{1b}[31mhost", "host_id": "00", "queues": 5, "commands_in_flight": 7,
            "commands": 2000 * seconds,
        });
        Reading {
            status: json!({
                "uptime_seconds": at, "state": "serving", "device": "rxe0", "listen": ["10.0.0.1:4420"], "queues": 5,
                "keys_alive": 0, "commands_in_flight": 7, "incidents": 1,
            }),
            // Busy all of the first second, and a quarter of the time since.
            cores: List { at, all: vec![core(0, 1.0 + (at - 1.0) / 4.0, at), core(1, 1.0, 1.0)] },
            namespaces: List { at, all: vec![namespace] },
            hosts: List { at, all: vec![host] },
            waits: json!({
                "at_seconds": at, "now": { "buffers": 2, "admission": 0 }, "so_far": { "buffers": 10 * seconds },
            }),
        }
    }

    #[test]
    fn all_figures_are_of_the_interval() {
        let told = Figures::between(&reading(1), &reading(5)).json();
        assert_eq!(told["cores"][0]["busy_share"], 0.25, "{told}");
        assert_eq!(told["cores"][1]["busy_share"], Value::Null, "it stood still: {told}");
        assert_eq!(told["cores"][0]["sleeps_per_second"], 20.0, "{told}");
        assert_eq!(told["cores"][1]["sleeps_per_second"], Value::Null, "it may not: {told}");
        assert_eq!((&told["cores"][0]["iops"], &told["cores"][0]["mib_per_second"]), (&json!(1000.0), &json!(1.0)));
        assert_eq!((&told["namespaces"][0]["iops"], &told["hosts"][0]["iops"]), (&json!(500.0), &json!(2000.0)));
        let namespace = &told["namespaces"][0];
        assert_eq!((&namespace["mib_per_second"], &namespace["errors_per_second"]), (&json!(2.0), &json!(3.0)));
        assert_eq!((&namespace["p50_seconds"], &namespace["p99_seconds"]), (&json!(0.000064), &json!(0.002048)));
        assert_eq!((&told["cores"][0]["stalls"], &told["cores"][0]["stalls_in_interval"]), (&json!(5), &json!(4)));
        assert_eq!(told["waits"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn who_came_or_was_started_again_has_no_rate_below_zero() {
        let (mut before, after) = (reading(5), reading(1));
        before.hosts.all.clear();
        let told = Figures::between(&before, &after);
        assert_eq!((told.hosts[0].iops, told.namespaces[0].iops, told.cores[0].iops), (0.0, 0.0, 0.0));
    }

    #[test]
    fn people_read_the_same_and_no_name_of_a_host_is_more_than_text() {
        let told = Figures::between(&reading(1), &reading(5)).table();
        for part in [
            "rxe0 at 10.0.0.1:4420, serving since 5 s",
            "25%",
            "0@2",
            "5 +4",
            "64us",
            "2ms",
            "buffers 2 (10/s)",
            "frwr:file",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains('\u{1b}'), "{told}");
    }
}
