//! One build with all mutants in it.

use super::{Wish, table::Table};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How it is built, which `tests/run` tells cargo too.
const SETTINGS: &str = "tests/mutants/build.toml";
/// What of, as `TESTED` of `tests/run`.
const TESTED: [&str; 3] = ["--workspace", "--features", "serde"];

/// A test binary, and where it runs.
#[derive(Debug)]
pub(super) struct Binary {
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
}

#[derive(Debug)]
pub(super) struct Binaries(BTreeMap<String, Binary>);

/// What cargo says of what it made.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl Binaries {
    /// Builds the test binaries that the table names, as `tests/run` builds them for its unit tests.
    pub(super) fn build(wish: &Wish, table: &Table) -> Result<Self, String> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&wish.root).args(["test", "-q", "--no-run", "--message-format=json"]).args(TESTED);
        let (libraries, tests): (Vec<_>, Vec<_>) = wanted(table).into_iter().partition(|binary| is_library(binary));
        // One word for all of them.
        cargo.args((!libraries.is_empty()).then_some("--lib"));
        cargo.args(tests.iter().flat_map(|test| ["--test", test]));
        let work = std::path::absolute(&wish.work).map_err(|error| error.to_string())?;
        cargo.args(["--config", SETTINGS]).env("CARGO_TARGET_DIR", work).stderr(Stdio::inherit());
        let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo test --no-run: {}", output.status));
        }
        Ok(Self(String::from_utf8_lossy(&output.stdout).lines().filter_map(binary).collect()))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Binary> {
        self.0.get(name)
    }
}

/// The unit tests of a package are in a binary of the package's name.
fn is_library(binary: &str) -> bool {
    binary == "frwr" || binary.starts_with("frwr_")
}

/// What a line of cargo's says was made.
fn binary(line: &str) -> Option<(String, Binary)> {
    let Message { reason, executable, profile, manifest_path, target } = serde_json::from_str(line).ok()?;
    let folder = manifest_path?.parent().map(Path::to_owned)?;
    // Programs that tests start are made as well, and may have the name of one.
    (reason == "compiler-artifact" && profile?.test).then_some((target?.name, Binary { path: executable?, folder }))
}

/// Test binaries that may kill somebody.
fn wanted(table: &Table) -> BTreeSet<String> {
    let simulations = table.simulations.iter().map(|simulation| simulation.binary.clone());
    let named = table.mutants.iter().flat_map(|mutant| mutant.named_tests()).map(|(binary, _)| binary.to_owned());
    simulations.chain(named).collect()
}
