//! One build with all mutants in it.

use super::{Wish, table::Table};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A quarter of what no optimisation takes to run, and hardly longer to build.
const OPTIMISATION: &str = "1";

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
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl Binaries {
    /// Builds the test binaries that the table names.
    pub(super) fn build(wish: &Wish, table: &Table) -> Result<Self, String> {
        let mut made = BTreeMap::new();
        for (package, binaries) in wanted(&wish.root, table)? {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo.current_dir(&wish.root).args(["test", "-q", "--no-run", "--message-format=json", "-p", &package]);
            for binary in &binaries {
                match binary.as_str() {
                    library if is_library(library) => cargo.arg("--lib"),
                    other => cargo.args(["--test", other]),
                };
            }
            let work = std::path::absolute(&wish.work).map_err(|error| error.to_string())?;
            cargo
                .env("RUSTFLAGS", "--cfg frwr_mutants")
                .env("CARGO_TARGET_DIR", work)
                .env("CARGO_INCREMENTAL", "0")
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .env("CARGO_PROFILE_DEV_OPT_LEVEL", OPTIMISATION)
                .stderr(Stdio::inherit());
            let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
            if !output.status.success() {
                return Err(format!("cargo test --no-run -p {package}: {}", output.status));
            }
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                made.extend(binary(line));
            }
        }
        Ok(Self(made))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Binary> {
        self.0.get(name)
    }
}

/// The unit tests of a package are in a binary of the package's name.
fn is_library(binary: &str) -> bool {
    binary.starts_with("frwr_")
}

/// What a line of cargo's says was made.
fn binary(line: &str) -> Option<(String, Binary)> {
    let Message { reason, executable, manifest_path, target } = serde_json::from_str(line).ok()?;
    let folder = manifest_path?.parent().map(Path::to_owned)?;
    (reason == "compiler-artifact").then_some((target?.name, Binary { path: executable?, folder }))
}

/// Test binaries by package.
fn wanted(root: &Path, table: &Table) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for simulation in &table.simulations {
        wanted.entry(simulation.package.clone()).or_default().insert(simulation.binary.clone());
    }
    for (binary, _) in table.mutants.iter().flat_map(|mutant| mutant.named_tests()) {
        let package = package_of(root, binary).ok_or(format!("no package has tests/{binary}"))?;
        wanted.entry(package).or_default().insert(binary.to_owned());
    }
    Ok(wanted)
}

fn package_of(root: &Path, binary: &str) -> Option<String> {
    if is_library(binary) {
        return Some(binary.replace('_', "-"));
    }
    let has = |folder: &&str| {
        let tests = root.join(folder).join("tests");
        tests.join(format!("{binary}.rs")).is_file() || tests.join(binary).join("main.rs").is_file()
    };
    let folder = ["mempool", "engine", "reactor", "apps", "tests"].into_iter().find(has)?;
    Some(format!("frwr-{folder}"))
}
