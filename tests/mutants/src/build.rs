//! Builds the copy with all its mutants, and leaves out of it what does not compile.

use crate::blame::blame;
use crate::files::{File, Judge};
use crate::mutant::Mutant;
use crate::rewrite::LeftOut;
use crate::tree::{Tree, Wanted};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Each round leaves out all that is at fault for the errors that the compiler told; some errors show only when others are gone.
const MAX_ROUNDS: u32 = 40;

/// A judge that was built.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    /// Where cargo would run it.
    pub(crate) folder: PathBuf,
}

pub(crate) struct Built {
    pub(crate) mutants: Vec<Mutant>,
    pub(crate) binaries: BTreeMap<Judge, Binary>,
    pub(crate) left_out: LeftOut,
}

/// Puts the mutants into the tree until it compiles, first the libraries that have them, and then the judges.
pub(crate) fn build(
    tree: &Tree,
    target: &Path,
    files: &[File],
    judges: &BTreeSet<&Judge>,
    wanted: Wanted<'_>,
    mut left_out: LeftOut,
) -> Result<Built, Box<dyn Error>> {
    for package in packages(files) {
        settle(tree, target, files, wanted, &mut left_out, &["check", "--lib", "-p", &package])?;
    }
    let arguments = judge_arguments(judges);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mutants, messages) = settle(tree, target, files, wanted, &mut left_out, &arguments)?;
    let binaries = binaries(&messages);
    match judges.iter().find(|judge| !binaries.contains_key(judge)) {
        Some(judge) => Err(format!("files.toml names {judge}, which was not built").into()),
        None => Ok(Built { mutants, binaries, left_out }),
    }
}

/// The packages of the files, each once, in order.
fn packages(files: &[File]) -> Vec<String> {
    let mut packages: Vec<String> = Vec::new();
    for file in files {
        let package = crate::files::package_of(&file.path);
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages
}

fn judge_arguments(judges: &BTreeSet<&Judge>) -> Vec<String> {
    let mut arguments = vec!["test".to_owned(), "--no-run".to_owned()];
    for package in judges.iter().map(|judge| &judge.package).collect::<BTreeSet<_>>() {
        arguments.extend(["-p".to_owned(), package.clone()]);
    }
    if judges.iter().any(|judge| judge.name == "lib") {
        arguments.push("--lib".to_owned());
    }
    for judge in judges.iter().filter(|judge| judge.name != "lib") {
        arguments.extend(["--test".to_owned(), judge.name.clone()]);
    }
    arguments
}

/// Rewrites and runs cargo until it succeeds. Returns the mutants that are left, and cargo's messages.
fn settle(
    tree: &Tree,
    target: &Path,
    files: &[File],
    wanted: Wanted<'_>,
    left_out: &mut LeftOut,
    arguments: &[&str],
) -> Result<(Vec<Mutant>, Vec<Value>), Box<dyn Error>> {
    for _ in 0..MAX_ROUNDS {
        let mutants = tree.mutate(files, left_out, wanted)?;
        let (succeeded, messages) = cargo(tree, target, arguments)?;
        if succeeded {
            return Ok((mutants, messages));
        }
        let errors: Vec<&Value> =
            messages.iter().map(|line| &line["message"]).filter(|message| message["level"] == "error").collect();
        let mut found = false;
        for error in &errors {
            found |= blame(error, &tree.root, &mutants, left_out);
        }
        if !found {
            let texts: Vec<&str> = errors.iter().filter_map(|error| error["rendered"].as_str()).collect();
            return Err(format!("the mutants do not compile, and none is at fault:\n{}", texts.join("\n")).into());
        }
        eprintln!(
            "mutants: {} do not compile, {} functions stay const",
            left_out.mutants.len(),
            left_out.constant.len()
        );
    }
    Err(format!("the mutants do not compile after {MAX_ROUNDS} rounds").into())
}

fn cargo(tree: &Tree, target: &Path, arguments: &[&str]) -> Result<(bool, Vec<Value>), Box<dyn Error>> {
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--message-format=json", "--quiet", "--locked"])
        .current_dir(&tree.root)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Nothing of it is shipped, and a mutant may leave a value unused.
        .env("RUSTFLAGS", "--cap-lints=allow")
        .stderr(Stdio::inherit())
        .output()?;
    let messages = String::from_utf8(output.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ok((output.status.success(), messages))
}

fn binaries(messages: &[Value]) -> BTreeMap<Judge, Binary> {
    let mut found = BTreeMap::new();
    for message in messages {
        let (Some(path), Some(manifest)) = (message["executable"].as_str(), message["manifest_path"].as_str()) else {
            continue;
        };
        let folder = Path::new(manifest).parent().unwrap_or(Path::new("."));
        let target = &message["target"];
        let (Some(name), Some(kind)) = (target["name"].as_str(), target["kind"][0].as_str()) else { continue };
        if message["profile"]["test"] != true {
            continue;
        }
        let package = package_of(message["package_id"].as_str().unwrap_or_default(), folder);
        let name = if kind == "lib" { "lib" } else { name };
        found.insert(Judge { package, name: name.to_owned() }, Binary { path: path.into(), folder: folder.to_owned() });
    }
    found
}

/// The name in a package's identifier: "path+file:///tree/engine#frwr-engine@0.1.0".
fn package_of(identifier: &str, folder: &Path) -> String {
    let named = identifier.rsplit_once('#').and_then(|(_, rest)| rest.split_once('@'));
    named.map_or_else(
        || folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        |(name, _)| name.to_owned(),
    )
}
