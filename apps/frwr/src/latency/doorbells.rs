//! How requests of a round are posted.

use clap::ValueEnum;
use serde::Serialize;

/// Doorbells of a round: requests that begin together, when all of the round before have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Doorbells {
    /// One for all that begin, of each connection.
    One,
    /// One for each request.
    Each,
}

impl Doorbells {
    /// As the command line and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Each => "each",
        }
    }
}
