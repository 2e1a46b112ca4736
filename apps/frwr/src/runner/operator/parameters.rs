//! Parameters of methods: what they are called, and how they are read.

use crate::control::{Failure, INVALID_PARAMS};
use frwr_nvmf::wire::Nqn;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A parameter of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: &'static str,
    /// It cannot be left out.
    pub required: bool,
    /// What it says.
    pub about: &'static str,
}

/// Those of a call, all of them known to the method.
pub(super) fn read<T: DeserializeOwned>(parameters: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(parameters)).map_err(|error| {
        Failure::new(INVALID_PARAMS, format!("params: {error}; `frwr ctl --list` says what the method takes"))
    })
}

/// For a method that takes none.
pub(super) fn none(parameters: &Map<String, Value>) -> Result<(), Failure> {
    match parameters.keys().next() {
        None => Ok(()),
        Some(name) => {
            let text = format!("params: {name:?} is unknown, the method takes no parameters; leave it out");
            Err(Failure::new(INVALID_PARAMS, text))
        }
    }
}

/// A name of a subsystem or a host.
pub(super) fn nqn(parameter: &str, text: &str) -> Result<Nqn, Failure> {
    Nqn::new(text).map_err(|reason| Failure::new(INVALID_PARAMS, format!("params: {parameter} is {text:?}: {reason}")))
}
