//! What is to be seen of a load while it goes on, and when that has been enough.

use super::steady_state::{SteadyCriterion, SteadyState};
use crate::{
    Error,
    options::{Limit, RUNTIME},
};
use clap::Args;
use core::time::Duration;
use std::path::{Path, PathBuf};

/// Unless another one is said, where one is needed.
const INTERVAL: Duration = Duration::from_secs(1);
/// Below, a line would be of a few requests, and the main thread be busy with lines.
const SHORTEST: Duration = Duration::from_millis(100);
/// An hour.
const LONGEST: Duration = Duration::from_secs(3600);
const STEADYSTATE_DURATION: Limit = Limit::new("--steadystate-duration", 1, RUNTIME.most());

/// What is looked at.
#[derive(Clone, Debug, Default, Args)]
pub struct ObserveArguments {
    /// A line for each SECONDS of the load that count, 0.1 to 3600, with latencies.
    #[arg(long, alias = "status-interval", value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<Duration>,
    /// Writes rates and latencies of each interval to FILE, as CSV.
    #[arg(long, value_name = "FILE")]
    pub latency_log: Option<PathBuf>,
    /// Draws latencies over time, to FILE.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Ends the load when its last intervals are no further from their mean than that: iops, bw or lat (mean latency), a colon, and a
    /// number, or a percentage of the mean, such as iops:0.3%; iops_slope, bw_slope and lat_slope are of the change per second.
    #[arg(long, alias = "ss", value_name = "CRITERION", requires = "steadystate_duration")]
    pub steadystate: Option<SteadyCriterion>,
    /// How many seconds --steadystate looks at.
    #[arg(
        long, aliases = ["ss_dur", "steadystate_duration"], value_name = "SECONDS",
        value_parser = STEADYSTATE_DURATION.parser::<u64>()
    )]
    pub steadystate_duration: Option<u64>,
}

impl ObserveArguments {
    /// Whether the load is watched by intervals.
    pub(super) fn is_wanted(&self) -> bool {
        self.interval.is_some() || self.latency_log.is_some() || self.svg.is_some() || self.steadystate.is_some()
    }

    /// How long an interval is.
    pub(super) fn every(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL)
    }

    pub(super) fn steady(&self) -> Option<SteadyState> {
        let duration = Duration::from_secs(self.steadystate_duration.unwrap_or(1));
        self.steadystate.map(|criterion| SteadyState::new(criterion, self.every(), duration))
    }

    /// Files of results, by their options.
    pub(super) fn files(&self) -> [(&'static str, Option<&Path>); 2] {
        [("--latency-log", self.latency_log.as_deref()), ("--svg", self.svg.as_deref())]
    }

    /// Checks it for a load of so many seconds.
    pub(super) fn check(&self, runtime: u64) -> Result<(), Error> {
        let every = self.every();
        if !(SHORTEST..=LONGEST).contains(&every) {
            let text =
                format!("--interval is {}: must be from 0.1 to 3600; choose a value inside", every.as_secs_f64());
            return Err(Error::usage("out_of_range", text));
        }
        STEADYSTATE_DURATION.check_said(self.steadystate_duration)?;
        let Some(duration) = self.steadystate_duration.filter(|_| self.steadystate.is_some()) else { return Ok(()) };
        if duration > runtime || 2 * every > Duration::from_secs(runtime) {
            let text = format!(
                "--steadystate looks at {duration} s, and at two intervals of {} s at least: --runtime is {runtime}, so that it \
                 would never be attained; raise --runtime",
                every.as_secs_f64()
            );
            return Err(Error::usage("steadystate", text));
        }
        Ok(())
    }
}

/// A parser of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "must be a number of seconds from 0.1 to 3600".to_owned())
}
