//! The methods by which the trace of keys is begun and ended, and asked for.

use super::{
    super::{
        change::Change,
        start::{poller_name, unit},
        survey::Findings,
        trace::{Core, Trace, follow},
    },
    Facts,
    parameters::{none, read},
    planned::{Behind, Known, Plan, Planned, Step, stands_still},
    sums::engine,
};
use crate::control::{Failure, INVALID_PARAMS, NOT_DONE};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

pub(super) fn key_trace(facts: &Facts, findings: &Findings, parameters: Map<String, Value>) -> Result<Value, Failure> {
    none(&parameters)?;
    Ok(facts.key_trace.json(findings))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(deserialize_with = "Option::deserialize")]
    file: Option<PathBuf>,
}

pub(super) fn set_key_trace(known: &mut Known<'_>, parameters: Map<String, Value>) -> Result<Plan, Failure> {
    let Wanted { file } = read(parameters)?;
    if let Some(silent) = known.findings.silent().first() {
        return Err(stands_still(usize::from(*silent)));
    }
    match (file, known.facts.key_trace.path()) {
        (None, None) => Ok(None),
        (None, Some(_)) => Ok(Some(Box::new(ending(known.findings)))),
        (Some(file), None) => beginning(known.findings, &file).map(|planned| Some(Box::new(planned))),
        (Some(file), Some(now)) if file == now => Ok(None),
        (Some(_), Some(now)) => {
            let text = format!(
                "keys are traced into {now:?} already, and into one file at a time; end that first (`set_key_trace file=null`); \
                 nothing was changed"
            );
            Err(Failure::new(NOT_DONE, text))
        }
    }
}

/// Each core, for each device, with where it tells and what takes it.
fn lanes(findings: &Findings) -> impl Iterator<Item = (usize, Change, Core)> {
    let cores = findings.cores.len();
    findings.devices().flat_map(move |device| {
        findings.cores.iter().enumerate().map(move |(at, found)| {
            let (records, core) = follow(poller_name(device), at, found.reactor.cpu);
            (unit(device, at, cores), Change::TraceKeys { records }, core)
        })
    })
}

fn beginning(findings: &Findings, path: &Path) -> Result<Planned, Failure> {
    if !path.is_absolute() {
        let text =
            format!("params: file is {path:?}: must begin with /, since the target works in a folder of its own");
        return Err(Failure::new(INVALID_PARAMS, text));
    }
    let made = Trace::made(path, engine(findings).trace_records_dropped);
    let mut trace = made.map_err(|error| {
        let remedy = "name one that is not there yet, in a folder that the target may write to";
        Failure::new(NOT_DONE, format!("file: {path:?} cannot be made ({error}); {remedy}; nothing was changed"))
    })?;
    let step = |(unit, change, of_core)| {
        trace.take_from([of_core]);
        Step { unit, change, undo: Some(Change::EndKeyTrace) }
    };
    let steps = lanes(findings).map(step).collect();
    Ok(Planned { behind: Some(Behind::KeyTraceBegun(Box::new(trace))), ..Planned::steps(steps) })
}

/// Where a core stands still the others go on to tell, over lanes of their own.
fn ending(findings: &Findings) -> Planned {
    let (steps, spare) = lanes(findings)
        .map(|(unit, undo, of_core)| (Step { unit, change: Change::EndKeyTrace, undo: Some(undo) }, of_core))
        .unzip();
    Planned { behind: Some(Behind::KeyTraceEnded(spare)), ..Planned::steps(steps) }
}
