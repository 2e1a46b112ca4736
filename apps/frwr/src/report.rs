//! What runs come to: a value each, which is told as JSON or as tables.

use crate::{
    error::FAILED,
    output::{Output, success},
};
use frwr_reactor::{LONG_ITERATION, LongIterations, Statistics};
use serde::Serialize;
use serde_json::Value;

/// What a run came to.
pub trait Report {
    /// For programs: one object.
    fn json(&self) -> Value;

    /// For people.
    fn table(&self) -> String;

    /// Nothing was wrong: exit code 0.
    fn passed(&self) -> bool {
        true
    }

    /// What the program prints of it, and how it ends.
    fn output(&self, json: bool) -> Output {
        let told = success(if json { self.json().to_string() } else { self.table() });
        Output { exit_code: if self.passed() { 0 } else { FAILED }, ..told }
    }
}

/// A value of names, numbers and lists: there is nothing in it that JSON has not.
pub(crate) fn value(of: impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// One object of several.
pub(crate) fn object<const PARTS: usize>(parts: [Value; PARTS]) -> Value {
    let parts = parts.into_iter().filter_map(|part| if let Value::Object(part) = part { Some(part) } else { None });
    Value::Object(parts.flatten().collect())
}

/// Those counts of a statistics by their names.
macro_rules! counts {
    ($statistics:expr => $($name:ident),* $(,)?) => {
        serde_json::json!({ $(stringify!($name): $statistics.$name),* })
    };
}
pub(crate) use counts;

/// A reactor, as all reports tell of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ReactorFigures {
    core: Option<usize>,
    pub(crate) busy_share: f64,
    /// Not busy.
    asleep_share: f64,
    pub(crate) sleeps: u64,
    iterations: u64,
    long_iterations: u64,
    /// From when on one is long.
    long_iteration_us: f64,
    long_iterations_by_cause: LongIterations,
    stalls: u64,
    pub(crate) longest_iteration_us: f64,
}

impl ReactorFigures {
    pub(crate) fn of(reactor: &Statistics) -> Self {
        Self {
            core: reactor.cpu.map(|cpu| cpu.get()),
            busy_share: reactor.busy_share(),
            asleep_share: reactor.asleep_share(),
            sleeps: reactor.sleeps,
            iterations: reactor.iterations,
            long_iterations: reactor.long_iterations,
            long_iteration_us: LONG_ITERATION.as_secs_f64() * 1e6,
            long_iterations_by_cause: reactor.long,
            stalls: reactor.stalls,
            longest_iteration_us: reactor.longest_iteration.duration.as_secs_f64() * 1e6,
        }
    }

    /// Where it is, for people.
    pub(crate) fn core(&self) -> String {
        self.core.map_or_else(|| "-".to_owned(), |core| core.to_string())
    }
}
