//! When a load is in a steady state: what its intervals are measured by, and how far they may be apart, as fio's `steadystate`
//! has it.

use super::load_rows::Row;
use core::{fmt, str::FromStr, time::Duration};
use std::collections::VecDeque;

/// What is looked at of each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// Requests per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// The mean latency, in nanoseconds.
    Latency,
}

/// By name, with what its numbers are of.
const MEASURES: [(&str, Measure); 3] = [("iops", Measure::Iops), ("bw", Measure::Bandwidth), ("lat", Measure::Latency)];
/// Behind a name: how fast it changes, and not how far it is from its mean.
const SLOPE: &str = "_slope";
/// What a criterion looks like.
const FORM: &str =
    "must be iops, bw or lat, or one of them with _slope, a colon, and how much at most, such as iops:0.3%";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyCriterion {
    measure: Measure,
    slope: bool,
    /// At most so much; of the mean in percent where that is said.
    limit: f64,
    percent: bool,
}

impl FromStr for SteadyCriterion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, limit) = text.split_once(':').ok_or(FORM)?;
        let (name, slope) = name.strip_suffix(SLOPE).map_or((name, false), |name| (name, true));
        let measure = MEASURES.iter().find(|(named, _)| *named == name).ok_or(FORM)?.1;
        let (limit, percent) = limit.strip_suffix('%').map_or((limit, false), |limit| (limit, true));
        let limit = limit.parse().ok().filter(|limit: &f64| limit.is_finite() && *limit >= 0.0).ok_or(FORM)?;
        Ok(Self { measure, slope, limit, percent })
    }
}

impl fmt::Display for SteadyCriterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = MEASURES.iter().find(|(_, measure)| *measure == self.measure).map_or("", |(name, _)| name);
        let (slope, percent) = (if self.slope { SLOPE } else { "" }, if self.percent { "%" } else { "" });
        write!(f, "{name}{slope}:{}{percent}", self.limit)
    }
}

impl SteadyCriterion {
    fn of(&self, row: &Row) -> f64 {
        match self.measure {
            Measure::Iops => row.iops(),
            Measure::Bandwidth => row.bytes_per_second(),
            Measure::Latency => row.mean_latency(),
        }
    }
}

/// Looks at the last intervals of a load.
#[derive(Clone, Debug)]
pub(super) struct SteadyState {
    criterion: SteadyCriterion,
    every: Duration,
    window: usize,
    values: VecDeque<f64>,
    /// Of the last whole window.
    told: Option<f64>,
    attained: bool,
}

impl SteadyState {
    /// Of intervals of `every`, as many as are in `duration`, two at least.
    pub(super) fn new(criterion: SteadyCriterion, every: Duration, duration: Duration) -> Self {
        let window = (duration.as_nanos().div_ceil(every.as_nanos().max(1)) as usize).max(2);
        Self { criterion, every, window, values: VecDeque::with_capacity(window), told: None, attained: false }
    }

    /// An interval ended. Whether the last of them are as much alike as was asked for.
    pub(super) fn note(&mut self, row: &Row) -> bool {
        if self.values.len() == self.window {
            self.values.pop_front();
        }
        self.values.push_back(self.criterion.of(row));
        if self.values.len() == self.window {
            let value = self.value();
            self.told = Some(value);
            self.attained |= value <= self.criterion.limit;
        }
        self.attained
    }

    pub(super) fn criterion(&self) -> SteadyCriterion {
        self.criterion
    }

    /// What the criterion was of the last whole window; `None` before there was one.
    pub(super) fn told(&self) -> Option<f64> {
        self.told
    }

    pub(super) fn is_attained(&self) -> bool {
        self.attained
    }

    fn value(&self) -> f64 {
        let count = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / count;
        let found = if self.criterion.slope {
            self.slope(mean).abs()
        } else {
            self.values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max)
        };
        match self.criterion.percent {
            // Nothing moves: that is no state which anybody waits for.
            true if mean <= 0.0 => f64::INFINITY,
            true => 100.0 * found / mean,
            false => found,
        }
    }

    /// Per second: of the line with the least squares.
    fn slope(&self, mean: f64) -> f64 {
        let middle = (self.values.len() as f64 - 1.0) / 2.0;
        let from_middle = |at: usize| (at as f64 - middle) * self.every.as_secs_f64();
        let squares: f64 = (0..self.values.len()).map(|at| from_middle(at).powi(2)).sum();
        let products: f64 = self.values.iter().enumerate().map(|(at, value)| from_middle(at) * (value - mean)).sum();
        if squares > 0.0 { products / squares } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, SteadyCriterion, SteadyState};
    use core::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    /// After how many of those IOPS a load is steady, looking at three at a time.
    fn steady_after(criterion: &str, iops: &[u64]) -> Option<usize> {
        let mut steady = SteadyState::new(criterion.parse().unwrap(), SECOND, 3 * SECOND);
        (1..=iops.len()).find(|count| steady.note(&Row::of_requests(iops[count - 1], 4096, SECOND)))
    }

    #[test]
    fn a_load_is_steady_when_a_whole_window_is_as_alike_as_was_asked_for() {
        for (criterion, iops, wanted) in [
            ("iops:10%", &[100, 100, 100][..], Some(3)),
            // The mean of 80, 100, 120 is 100, and two of them are 20 away.
            ("iops:20%", &[80, 100, 120], Some(3)),
            ("iops:19%", &[80, 100, 120], None),
            ("iops:20", &[80, 100, 120], Some(3)),
            ("iops:19.9", &[80, 100, 120], None),
            ("iops:1%", &[10, 50, 90, 100, 100, 100, 500], Some(6)),
            // 20 more in each second, of 100.
            ("iops_slope:20", &[80, 100, 120], Some(3)),
            ("iops_slope:19%", &[80, 100, 120], None),
            // There and back is no slope.
            ("iops_slope:1%", &[80, 120, 80], Some(3)),
            ("iops:1%", &[80, 120, 80], None),
            ("bw:81920", &[80, 100, 120], Some(3)),
            ("bw:81919", &[80, 100, 120], None),
            ("lat:0%", &[80, 100, 120], Some(3)),
            ("iops:0.1%", &[0, 0, 0, 0], None),
            ("iops:10%", &[100, 100], None),
        ] {
            assert_eq!(steady_after(criterion, iops), wanted, "{criterion} of {iops:?}");
        }
    }

    #[test]
    fn criteria_are_read_as_fio_reads_them() {
        for text in ["iops:0.3%", "iops_slope:5", "bw:10%", "bw_slope:0.1%", "lat:2%", "lat_slope:0"] {
            assert_eq!(text.parse::<SteadyCriterion>().unwrap().to_string(), text);
        }
        for text in ["iops", "iops:", "iops:x%", "iops:-1", "iops:inf", "iops:NaN%", "cpu:1%", "slope:1%", ":1%", ""] {
            assert!(text.parse::<SteadyCriterion>().unwrap_err().contains("iops:0.3%"), "{text}");
        }
    }
}
