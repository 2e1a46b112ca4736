//! The trace of keys of a target that serves, written while it goes on.

use super::{
    super::{
        survey::Findings,
        trace::{Core, Trace},
    },
    sums::engine,
};
use crate::{
    Error,
    control::{Failure, NOT_DONE},
};
use core::{mem, time::Duration};
use serde_json::{Value, json};
use std::path::Path;

/// The trace, where there is one.
#[derive(Debug, Default)]
pub(in super::super) struct KeyTrace {
    trace: Option<Trace>,
    /// Since the cores began.
    began: Duration,
    /// Lost records that each core had counted for each device when it told no longer, of this trace and of former ones.
    lost: Vec<u64>,
    /// What became of the last one.
    last: Option<Value>,
    /// Why the run cannot go on.
    trouble: Option<Error>,
}

impl KeyTrace {
    /// The one that was asked for on the command line.
    pub(in super::super) fn of_option(trace: Option<Trace>) -> Self {
        Self { trace, ..Self::default() }
    }

    /// Somebody has to take records soon.
    pub(super) fn is_on(&self) -> bool {
        self.trace.is_some()
    }

    /// Where it is written.
    pub(super) fn path(&self) -> Option<&Path> {
        self.trace.as_ref().map(Trace::path)
    }

    /// The name of the file, of `status`.
    pub(super) fn file(&self) -> Option<String> {
        self.path().map(text)
    }

    /// How it is doing, by what the cores say.
    pub(super) fn json(&self, findings: &Findings) -> Value {
        let Self { trace, began, last, .. } = self;
        let trace = trace.as_ref();
        json!({
            "file": self.file(),
            "bytes": trace.map(Trace::bytes),
            "records_lost": trace.map(|trace| trace.lost_of(engine(findings).trace_records_dropped)),
            "age_seconds": trace.map(|_| findings.at.saturating_sub(*began).as_secs_f64()),
            "last": last,
            "silent_reactors": findings.silent(),
        })
    }

    /// What the run cannot go on with: that a file was asked for on the command line and cannot be written.
    pub(super) fn trouble(&mut self) -> Option<Error> {
        self.trouble.take()
    }

    /// The cores end: what is under way.
    pub(super) fn end(self) -> Option<Trace> {
        self.trace
    }

    /// Writes what has come since. A file that takes no more ends it: the cores find that nobody takes what they tell.
    pub(super) fn drain(&mut self, say: &mut dyn FnMut(&str)) -> u32 {
        let Some(trace) = &mut self.trace else { return 0 };
        let error = match trace.drain() {
            Ok(work) => return work,
            Err(error) => error,
        };
        let (path, bytes, is_of_option) = (text(trace.path()), trace.bytes(), trace.is_of_option());
        self.trace = None;
        if is_of_option {
            self.trouble = Some(error);
        } else {
            self.last =
                Some(json!({ "file": path, "bytes": bytes, "records_lost": null, "failed": error.to_string() }));
            say(&format!("keys are traced no longer: {error}; what was written is deleted, and the target goes on"));
        }
        1
    }

    /// A core tells no longer of one device, and has counted so many lost records.
    pub(super) fn ended_on(&mut self, unit: usize, lost: u64) {
        self.lost.resize(self.lost.len().max(unit + 1), 0);
        self.lost[unit] = lost;
    }

    /// All cores tell.
    pub(super) fn begin(&mut self, trace: Trace, now: Duration) {
        (self.trace, self.began) = (Some(trace), now);
    }

    /// They were to tell no longer, and do so all the same.
    pub(super) fn resume(&mut self, cores: Vec<Core>) {
        self.trace.iter_mut().zip([cores]).for_each(|(trace, cores)| trace.take_from(cores));
    }

    /// No core tells any more: the file has all of it.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        let Some(mut trace) = self.trace.take() else {
            let text = self.last.as_ref().and_then(|last| last["failed"].as_str()).unwrap_or("it has ended by itself");
            return Err(Failure::new(
                NOT_DONE,
                format!("keys are traced no longer, and the file is not there: {text}"),
            ));
        };
        // Units that go take theirs with them.
        let counted = mem::take(&mut self.lost).iter().sum();
        let (path, lost) = (text(trace.path()), trace.lost_of(counted));
        let written = trace.ended(counted).and_then(|()| trace.finish());
        let failed = written.as_ref().err().map(Error::to_string);
        self.last =
            Some(json!({ "file": path, "bytes": written.as_ref().ok(), "records_lost": lost, "failed": failed }));
        written.map(drop).map_err(|error| {
            Failure::new(NOT_DONE, format!("{error}; keys are traced no longer, and what was written is deleted"))
        })
    }
}

/// A path as JSON has it.
fn text(path: &Path) -> String {
    path.display().to_string()
}
