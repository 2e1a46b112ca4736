//! `equivalent.toml`: mutants that survive, and why.

use crate::mutant::Mutant;
use serde::Deserialize;
use std::error::Error;
use std::path::Path;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    /// Those that change nothing that anybody can see.
    #[serde(default)]
    pub(crate) equivalent: Vec<Entry>,
    /// Those that nobody has looked at closely enough.
    #[serde(default)]
    pub(crate) open: Vec<Entry>,
}

/// Mutants of a function. There are no line numbers, so that it survives edits elsewhere.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) file: String,
    pub(crate) function: String,
    pub(crate) what: Vec<String>,
    /// Of an open one too: what is known.
    pub(crate) reason: String,
}

impl Entry {
    pub(crate) fn is_of(&self, mutant: &Mutant) -> bool {
        self.file == mutant.file && self.function == mutant.function && self.what.contains(&mutant.what)
    }
}

impl Listed {
    /// Whether there is an entry of this file.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.equivalent.iter().chain(&self.open).any(|entry| entry.file == file)
    }

    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let listed: Self = toml::from_str(&std::fs::read_to_string(path)?)?;
        match listed.equivalent.iter().chain(&listed.open).find(|entry| entry.reason.trim().is_empty()) {
            Some(entry) => {
                Err(format!("{}: {} {}: a reason is missing", path.display(), entry.file, entry.function).into())
            }
            None => Ok(listed),
        }
    }
}
