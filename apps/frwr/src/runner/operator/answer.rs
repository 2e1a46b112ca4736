//! What a method is told, and answers.

use super::super::survey::Findings;
use crate::control::Failure;
use serde_json::{Map, Value, json};

/// By their names.
pub(super) type Parameters = Map<String, Value>;
/// Or why there is none.
pub(super) type Answer = Result<Value, Failure>;

/// What a list was asked for, with the reactors whose part is missing.
pub(super) fn list(name: &str, all: Vec<Value>, findings: &Findings) -> Value {
    json!({ name: all, "at_seconds": findings.at.as_secs_f64(), "silent_reactors": findings.silent() })
}
