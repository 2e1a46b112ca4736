//! `tests/mutants/historic.toml`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Where it lies.
pub(super) const PATH: &str = "tests/mutants/historic.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(rename = "simulation")]
    pub(super) simulations: Vec<Simulation>,
    #[serde(rename = "mutant")]
    pub(super) mutants: Vec<Mutant>,
    /// Historic bugs that have no counterpart here.
    #[serde(rename = "absent")]
    pub(super) absent: Vec<Absent>,
}

/// A test that runs seeds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Simulation {
    /// By which mutants have the seeds that kill them.
    pub(super) name: String,
    /// The test binary, which may have several.
    pub(super) binary: String,
    pub(super) test: String,
    /// Folders whose mutants it may meet.
    pub(super) reaches: Vec<String>,
}

impl Simulation {
    /// Whether it runs the code that a mutant stands in.
    pub(super) fn may_meet(&self, mutant: &Mutant) -> bool {
        mutant.at.iter().any(|file| self.reaches.iter().any(|folder| Path::new(file).starts_with(folder)))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutant {
    pub(super) name: String,
    /// What is broken.
    pub(super) what: String,
    /// The file that its condition stands in, or all of them.
    pub(super) at: Vec<String>,
    /// The promise that it breaks.
    pub(super) breaks: String,
    /// Tests that kill it, as `binary::test`.
    #[serde(default)]
    pub(super) tests: Vec<String>,
    /// The lowest seed that kills it, by simulation.
    #[serde(default)]
    pub(super) seeds: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Absent {
    pub(super) name: String,
    pub(super) why: String,
}

impl Table {
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(root.join(PATH)).map_err(|error| format!("{PATH}: {error}"))?;
        toml::from_str(&text).map_err(|error| format!("{PATH}: {error}"))
    }
}

impl Mutant {
    /// Binary and test of each that kills it.
    pub(super) fn named_tests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tests.iter().filter_map(|test| test.split_once("::"))
    }
}
