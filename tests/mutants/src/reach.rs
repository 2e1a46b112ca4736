//! Which test reaches which mutant, and how long it takes without any.

use crate::build::{Binary, Built};
use crate::files::Judge;
use crate::pool::for_each;
use crate::process::{Ended, Run, tests_of};
use crate::switch::RECORD;
use std::collections::HashSet;
use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// For a test without a mutant: one that takes longer would not be asked.
const LIMIT: Duration = Duration::from_secs(30);

/// One test of one binary.
pub(crate) struct Test {
    pub(crate) judge: Judge,
    pub(crate) name: String,
    pub(crate) took: Duration,
    pub(crate) reaches: HashSet<u32>,
}

/// Runs every test by itself. One that fails without a mutant judges none.
pub(crate) fn reach(built: &Built, folder: &Path) -> Result<Vec<Test>, Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut all: Vec<(&Judge, &Binary, String)> = Vec::new();
    for (judge, binary) in &built.binaries {
        all.extend(tests_of(binary)?.into_iter().map(|test| (judge, binary, test)));
    }
    let found = Mutex::new(Vec::new());
    for_each(&all, |at, (judge, binary, name)| {
        let file = folder.join(at.to_string());
        let _ = std::fs::remove_file(&file);
        let began = Instant::now();
        let tests = [name.as_str()];
        let run = Run { binary, tests: &tests, mutant: RECORD, reached: Some(&file), limit: LIMIT };
        match run.end() {
            Ok(Ended::Passed) => {}
            other => {
                println!("not a judge: {judge} {name} without a mutant: {other:?}");
                return;
            }
        }
        let reached = std::fs::read_to_string(&file).unwrap_or_default();
        let reaches = reached.lines().filter_map(|line| line.parse().ok()).collect();
        let test = Test { judge: (*judge).clone(), name: name.clone(), took: began.elapsed(), reaches };
        found.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(test);
    });
    Ok(found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}
