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

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} {}: {}", self.file, self.line, self.function, self.what)
    }
}
