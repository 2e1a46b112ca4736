//! What a mutant is, and where.

use serde::{Deserialize, Serialize};

/// One change of one place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mutant {
    /// What switches it on.
    pub(crate) number: u32,
    /// Path in the repository.
    pub(crate) file: String,
    /// Lines that it is of.
    pub(crate) line: usize,
    pub(crate) last_line: usize,
    /// The function, with its type.
    pub(crate) function: String,
    /// The change, in source text. No two of one function are the same.
    pub(crate) what: String,
}

/// What a mutant is whichever number it has: file, function and change.
pub(crate) type Identity = (String, String, String);

impl Mutant {
    /// What it is called where numbers say nothing: in lists, and in other runs.
    pub(crate) fn identity(&self) -> Identity {
        (self.file.clone(), self.function.clone(), self.what.clone())
    }
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} {}: {}", self.file, self.line, self.function, self.what)
    }
}
