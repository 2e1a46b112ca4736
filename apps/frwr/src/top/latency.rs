//! How long commands of an interval took: percentiles of what two readings of histograms differ by.

use super::reading::number;
use serde_json::Value;
use std::collections::BTreeMap;

/// Microseconds of a second.
const MICROSECONDS: f64 = 1e6;

/// Commands by the end of their length in microseconds; `u64::MAX` is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Interval(BTreeMap<u64, u64>);

impl Interval {
    /// Of a namespace as two readings have it, all kinds of commands together. Without a former one there is nothing to compare with, and
    /// one that was started again counts from the beginning.
    pub(super) fn between(before: Option<&Value>, after: &Value) -> Self {
        let Some(before) = before else { return Self::default() };
        let mut counts = Self::default();
        for (kind, latency) in after["latency"].as_object().into_iter().flatten() {
            let former = lengths(&before["latency"][kind]);
            for (end, count) in lengths(latency) {
                let former = former.get(&end).copied().unwrap_or_default();
                *counts.0.entry(end).or_default() += count.saturating_sub(former);
            }
        }
        counts
    }

    /// The end of the length in which so many of a hundred commands have ended, in seconds: at most twice as long as it took. Infinite
    /// beyond the last end, and `None` where there was no command.
    pub(super) fn percentile(&self, percent: u64) -> Option<f64> {
        let all: u64 = self.0.values().sum();
        let wanted = all.saturating_mul(percent).div_ceil(100).max(1);
        let mut ended = 0;
        let (end, _) = self.0.iter().find(|(_, count)| {
            ended += **count;
            ended >= wanted
        })?;
        Some(if *end == u64::MAX { f64::INFINITY } else { *end as f64 / MICROSECONDS })
    }
}

/// Of one kind of command.
fn lengths(latency: &Value) -> BTreeMap<u64, u64> {
    let of_one = |pair: &Value| {
        let microseconds = pair[0].as_f64().map_or(u64::MAX, |seconds| (seconds * MICROSECONDS).round() as u64);
        Some((microseconds, pair[1].as_u64()?))
    };
    latency["up_to_seconds"].as_array().into_iter().flatten().filter_map(of_one).collect()
}

/// A percentile for people.
pub(super) fn in_words(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds.is_infinite() => ">1s".to_owned(),
        Some(seconds) if seconds >= 1.0 => format!("{seconds:.1}s"),
        Some(seconds) if seconds >= 1e-3 => format!("{:.0}ms", seconds * 1e3),
        Some(seconds) => format!("{:.0}us", seconds * MICROSECONDS),
    }
}

/// What else was answered than success, so far.
pub(super) fn errors(namespace: &Value) -> f64 {
    let all = namespace["errors"].as_object();
    all.map_or(0.0, |all| all.keys().map(|status| number(&namespace["errors"], status)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn namespace(read: &Value, write: &Value) -> Value {
        json!({ "latency": { "read": { "up_to_seconds": read }, "write": { "up_to_seconds": write } } })
    }

    #[test]
    fn percentiles_are_of_what_came_since_of_all_kinds() {
        let before = namespace(&json!([[0.000001, 1000]]), &json!([]));
        let after = namespace(&json!([[0.000001, 1049], [0.000128, 50]]), &json!([[null, 1]]));
        let interval = Interval::between(Some(&before), &after);
        assert_eq!((interval.percentile(50), interval.percentile(49)), (Some(128e-6), Some(1e-6)));
        assert_eq!((interval.percentile(99), interval.percentile(100)), (Some(128e-6), Some(f64::INFINITY)));
    }

    #[test]
    fn where_nothing_came_or_nothing_is_known_there_is_none() {
        let one = namespace(&json!([[0.000001, 7]]), &json!([]));
        for (before, after) in
            [(None, &one), (Some(&one), &one), (Some(&one), &json!({})), (Some(&json!(1)), &json!([2]))]
        {
            assert_eq!(Interval::between(before, after).percentile(99), None);
        }
        let again = namespace(&json!([[0.000001, 3]]), &json!("x"));
        assert_eq!(Interval::between(Some(&one), &again).percentile(99), None, "it was started again");
    }

    #[test]
    fn people_read_short_words() {
        let told =
            [None, Some(1e-6), Some(512e-6), Some(0.001024), Some(0.524288), Some(1.048576), Some(f64::INFINITY)]
                .map(in_words);
        assert_eq!(told, ["-", "1us", "512us", "1ms", "524ms", "1.0s", ">1s"]);
    }
}
