//! One run from its files to its report.

use crate::Arguments;
use crate::build::{Built, build};
use crate::changed::Changed;
use crate::files::{File, Files};
use crate::git::Git;
use crate::judge::{Fate, judge};
use crate::listed::Listed;
use crate::mutant::Mutant;
use crate::reach::reach;
use crate::record::{Begun, Record};
use crate::report::{Numbers, by_file, needless, stale, sum, told};
use crate::results::{Results, Trust};
use crate::tree::{Tree, Wanted, mutants, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FILES: &str = "tests/mutants/files.toml";
const LISTED: &str = "tests/mutants/equivalent.toml";
const RECORD: &str = "tests/mutants/judged.toml";
const RESULTS: &str = "results.jsonl";

/// Whether nothing survived that no list has.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let root =
        arguments.root.canonicalize().map_err(|error| format!("--root {}: {error}", arguments.root.display()))?;
    let mut files = Files::read(&root.join(FILES))?;
    let listed = Listed::read(&root.join(LISTED))?;
    // Only files that have entries, so that a run which has nothing else to do is done at once.
    let named: Vec<File> = files.files.iter().filter(|file| listed.has(&file.path)).cloned().collect();
    let is_sound = stale(&mutants(&root, &named, &|_, _, _| true)?, &listed) == 0;
    files.keep(&arguments.only)?;
    files.keep_judges(&arguments.judge)?;
    if !arguments.changed {
        return Ok(judged(arguments, &root, &files, &listed, &|_, _, _| true)? && is_sound);
    }
    let paths = files.files.iter().map(|file| file.path.as_str());
    let Some(changed) = Changed::since(&root, &Record::read(&root.join(RECORD))?, paths) else {
        println!("ok: git knows nothing of {}, so nobody can say what was changed", root.display());
        return Ok(is_sound);
    };
    files.files.retain(|file| changed.has(&file.path));
    if files.files.is_empty() {
        println!("ok: no listed file has changed lines since {}", changed.since);
        return Ok(is_sound);
    }
    let on_lines = |file: &str, first, last| changed.is_changed(file, first, last);
    let found = mutants(&root, &files.files, &on_lines)?;
    files.files.retain(|file| found.iter().any(|mutant| mutant.file == file.path));
    if files.files.is_empty() {
        println!("ok: no changed line of a listed file has a mutant since {}", changed.since);
        return Ok(is_sound);
    }
    println!("mutants: {} on lines that were changed since {}", found.len(), changed.since);
    Ok(judged(arguments, &root, &files, &listed, &on_lines)? && is_sound)
}

fn judged(
    arguments: &Arguments,
    root: &Path,
    files: &Files,
    listed: &Listed,
    wanted: Wanted<'_>,
) -> Result<bool, Box<dyn Error>> {
    let began = Instant::now();
    let begun = Begun::at(&Git { root }, files.files.iter().map(|file| file.path.as_str()));
    std::fs::create_dir_all(&arguments.work)?;
    let work: PathBuf = arguments.work.canonicalize()?;
    let trust = Trust { is_strict: arguments.changed, is_partial: !arguments.judge.is_empty() };
    let results = Results::open(&work.join(RESULTS), sources(root, &files.files)?, trust)?;
    let tree = Tree::copy(root, work.join("tree"), &files.files)?;
    let paths: BTreeSet<&str> = files.files.iter().map(|file| file.path.as_str()).collect();
    let judges = files.all_judges(&paths);
    let built = build(&tree, &work.join("build"), &files.files, &judges, wanted, results.left_out())?;
    results.note_left_out(&built.left_out)?;
    let Built { mutants, binaries, left_out } = &built;
    let (mutants, binaries, dropped) = (mutants.len(), binaries.len(), left_out.mutants.len());
    println!(
        "mutants: {mutants}, {dropped} that do not compile, {binaries} judges, built in {} s",
        began.elapsed().as_secs()
    );
    if mutants == 0 {
        println!("ok: no mutant compiles");
        return Ok(true);
    }
    let began_reach = Instant::now();
    let tests = reach(&built, &work.join("reached"))?;
    println!("mutants: {} tests run, {} s", tests.len(), began_reach.elapsed().as_secs());
    let budget = Duration::from_secs_f64(arguments.minutes * 60.0);
    let fates = judge(&built, files, &tests, budget, &results);
    write_report(&work.join("report.json"), &fates)?;
    for (mutant, _) in fates.iter().filter(|(_, fate)| *fate == Fate::NotRun) {
        println!("not run: {mutant}");
    }
    let by_file = by_file(&fates, listed);
    let sum = sum(&by_file);
    let needless = needless(&fates, listed);
    println!("mutants: {} in {} s", told(&sum), began.elapsed().as_secs());
    if let Some(begun) = begun.filter(|_| !arguments.changed && !trust.is_partial) {
        record(root, &begun, &by_file)?;
    }
    Ok(sum.unlisted == 0 && needless == 0)
}

/// All of it, for who looks for what survived.
fn write_report(path: &Path, fates: &[(Mutant, Fate)]) -> Result<(), Box<dyn Error>> {
    Ok(std::fs::write(path, serde_json::to_string_pretty(fates)?)?)
}

/// What the next quick run begins from.
fn record(root: &Path, begun: &Begun, files: &BTreeMap<String, Numbers>) -> Result<(), Box<dyn Error>> {
    let path = root.join(RECORD);
    let mut record = Record::read(&path)?;
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?.stdout;
    record.add(begun, files, String::from_utf8_lossy(&date).trim());
    record.write(&path)
}
