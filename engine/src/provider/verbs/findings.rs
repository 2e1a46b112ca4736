//! What is found out about a device when it is opened, for people and for the engine.

use crate::provider::Capabilities;
use std::io;

/// Why a device cannot be used, or not be tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestError {
    /// The port has no address to loop back to.
    #[error("port {port} has no GID{index}; bring its link up and give its network device an IP address")]
    NoGid {
        /// The port.
        port: u8,
        /// Which index was asked for.
        index: String,
    },
    /// The system refused.
    #[error("{step}: {source}{remedy}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What it said.
        source: io::Error,
        /// What a person can do, if that is known.
        remedy: &'static str,
    },
    /// A completion did not come.
    #[error("{step}: no completion within {seconds} s")]
    Silent {
        /// What was tried.
        step: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The device does not do what the engine cannot do without.
    #[error("{name}: {text}")]
    Unusable {
        /// The finding.
        name: &'static str,
        /// What happened.
        text: String,
    },
}

/// How a finding compares with what the specification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As specified.
    AsSpecified,
    /// Not as specified, and the engine takes account of it.
    Deviates,
    /// Not as specified, and the engine cannot do without it.
    Unusable,
}

/// One thing that was tried.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its name, for reports.
    pub name: &'static str,
    /// How it compares.
    pub outcome: Outcome,
    /// What happened, for people.
    pub text: String,
}

/// What was seen that the table of devices may say otherwise; `None` where it was not tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) remote_invalidation: Option<bool>,
    pub(super) send_with_invalidate: Option<bool>,
    pub(super) flag_misplaced: Option<bool>,
    pub(super) enforces_bounds: Option<bool>,
}

/// What the self-test found, and what follows for the engine.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    rows: Vec<Finding>,
    pub(super) seen: Seen,
}

impl Findings {
    /// In the order in which they were tried; none where the self-test was switched off.
    #[must_use]
    pub fn rows(&self) -> &[Finding] {
        &self.rows
    }

    /// What was seen holds, whatever the table of devices says.
    pub(super) fn apply(&self, capabilities: &mut Capabilities) -> Result<(), SelfTestError> {
        if let Some(bad) = self.rows.iter().find(|row| row.outcome == Outcome::Unusable) {
            return Err(SelfTestError::Unusable { name: bad.name, text: bad.text.clone() });
        }
        let update = |known: &mut bool, seen: Option<bool>| *known = seen.unwrap_or(*known);
        update(&mut capabilities.remote_invalidation, self.seen.remote_invalidation);
        update(&mut capabilities.send_with_invalidate, self.seen.send_with_invalidate);
        update(&mut capabilities.quirks.invalidate_flag_misplaced, self.seen.flag_misplaced);
        update(&mut capabilities.enforces_bounds, self.seen.enforces_bounds);
        Ok(())
    }

    /// Adds what ended the self-test early, so that the rows show it too.
    pub(super) fn broke_off(&mut self, error: &SelfTestError) {
        if !matches!(error, SelfTestError::Unusable { .. }) {
            self.need("the self-test comes to its end", false, error.to_string());
        }
    }

    pub(super) fn add(&mut self, name: &'static str, outcome: Outcome, text: impl Into<String>) {
        self.rows.push(Finding { name, outcome, text: text.into() });
    }

    /// What the engine cannot do without.
    pub(super) fn need(&mut self, name: &'static str, good: bool, text: impl Into<String>) {
        self.add(name, if good { Outcome::AsSpecified } else { Outcome::Unusable }, text);
    }

    /// What the engine can do without.
    pub(super) fn expect(&mut self, name: &'static str, good: bool, text: impl Into<String>) {
        self.add(name, if good { Outcome::AsSpecified } else { Outcome::Deviates }, text);
    }
}

#[cfg(test)]
mod tests {
    use super::{Findings, Outcome, SelfTestError};

    #[test]
    fn findings_end_with_what_broke_the_self_test_off() {
        let mut findings = Findings::default();
        findings.need("bind", true, "succeeded");
        findings.expect("flag", false, "another bit");
        findings.broke_off(&SelfTestError::Silent { step: "LOCAL_INV", seconds: 20 });
        // It is a row already.
        findings.broke_off(&SelfTestError::Unusable { name: "bind", text: String::new() });
        let rows: Vec<_> = findings.rows().iter().map(|row| (row.outcome, row.text.as_str())).collect();
        assert_eq!(
            rows,
            [
                (Outcome::AsSpecified, "succeeded"),
                (Outcome::Deviates, "another bit"),
                (Outcome::Unusable, "LOCAL_INV: no completion within 20 s"),
            ]
        );
    }
}
