//! What a target says at a time: answers of its methods, as numbers.

use crate::{Error, ctl::Client};
use serde_json::{Map, Value};

/// All answers of a time. They are taken one after the other, and each says when.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) status: Value,
    pub(super) cores: List,
    pub(super) namespaces: List,
    pub(super) hosts: List,
    pub(super) waits: Value,
}

/// A list, and when it was made.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) at: f64,
    pub(super) all: Vec<Value>,
}

impl Reading {
    /// Asks.
    pub(super) fn take(client: &mut Client) -> Result<Self, Error> {
        let mut ask = |method: &str| client.call(method, Map::new());
        Ok(Self {
            status: ask("status")?,
            cores: List::of(ask("cores")?, "cores"),
            namespaces: List::of(ask("namespaces")?, "namespaces"),
            hosts: List::of(ask("hosts")?, "hosts"),
            waits: ask("waits")?,
        })
    }
}

impl List {
    /// An answer's list of that name.
    pub(super) fn of(mut answer: Value, name: &str) -> Self {
        let at = number(&answer, "at_seconds");
        let all = if let Value::Array(all) = answer[name].take() { all } else { Vec::new() };
        Self { at, all }
    }

    /// The one in which all these names say the same as in another one.
    pub(super) fn find(&self, names: &[&str], like: &Value) -> Option<&Value> {
        self.all.iter().find(|one| names.iter().all(|name| one[*name] == like[*name]))
    }
}

/// A number; 0 where there is none.
pub(super) fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_default()
}

/// Text; "-" where there is none.
pub(super) fn text(of: &Value, name: &str) -> String {
    match &of[name] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}
