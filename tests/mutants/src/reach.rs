//! Which test reaches which mutant, and how long it takes without any.

use crate::build::{Binary, Built};
use crate::files::Judge;
use crate::pool::for_each;
use crate::process::{Ended, Run, tests_of};
use crate::switch::RECORD;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For a test without a mutant: one that takes longer would not be asked.
const LIMIT: Duration = Duration::from_secs(30);

/// One test of one binary.
pub(crate) struct Test {
    pub(crate) judge: Judge,
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// What it takes of a processor, which is the same on a busy machine.
    pub(crate) busy: Duration,
    pub(crate) reaches: HashSet<u32>,
}

/// What is known of the tests of one binary, for the next run that has the same one.
#[derive(Default, Serialize, Deserialize)]
struct Known {
    /// Hash of the binary, in which the mutants' numbers are.
    hash: u64,
    tests: BTreeMap<String, Seen>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Seen {
    took: Duration,
    busy: Duration,
    reaches: HashSet<u32>,
}

/// Runs every test by itself that is not known from an earlier run, as `folder` has it. One that fails without a mutant judges none.
pub(crate) fn reach(built: &Built, folder: &Path) -> Result<Vec<Test>, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut all: Vec<Test> = Vec::new();
    for (judge, binary) in &built.binaries {
        let path = folder.join(format!("{}-{}.json", judge.package, judge.name));
        let known = known(&path, hash_of(&binary.path)?);
        let names = tests_of(binary)?;
        let unknown: Vec<&String> = names.iter().filter(|name| !known.tests.contains_key(*name)).collect();
        let known = Mutex::new(known);
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        for_each(&unknown, |at, name| {
            if let Some(seen) = run_alone(judge, binary, name, &folder.join(at.to_string())) {
                lock().tests.insert((*name).clone(), seen);
            }
        });
        let known = known.into_inner().unwrap_or_else(PoisonError::into_inner);
        std::fs::write(path, serde_json::to_string(&known)?)?;
        for (name, Seen { took, busy, reaches }) in known.tests.into_iter().filter(|(name, _)| names.contains(name)) {
            all.push(Test { judge: judge.clone(), name, took, busy, reaches });
        }
    }
    Ok(all)
}

fn hash_of(path: &PathBuf) -> std::io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    std::fs::read(path)?.hash(&mut hasher);
    Ok(hasher.finish())
}

/// What a file says, where it is of the binary with this hash.
fn known(path: &Path, hash: u64) -> Known {
    let read = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Known>(&text).ok());
    read.filter(|known| known.hash == hash).unwrap_or(Known { hash, ..Known::default() })
}

/// Runs one test without a mutant, which writes what it reaches to a file.
fn run_alone(judge: &Judge, binary: &Binary, name: &str, file: &Path) -> Option<Seen> {
    let _ = std::fs::remove_file(file);
    let began = Instant::now();
    let run = Run { binary, tests: &[name], mutant: RECORD, reached: Some(file), limit: LIMIT };
    let ended = run.end();
    let took = began.elapsed();
    let Ok(Ended::Passed(busy)) = ended else {
        println!("not a judge: {judge} {name} without a mutant: {ended:?}");
        return None;
    };
    let reached = std::fs::read_to_string(file).unwrap_or_default();
    Some(Seen {
        took,
        busy: busy.unwrap_or(took),
        reaches: reached.lines().filter_map(|line| line.parse().ok()).collect(),
    })
}
