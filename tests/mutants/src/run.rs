//! One run from its files to its report.

use crate::Arguments;
use crate::build::{Built, build};
use crate::changed::Changed;
use crate::files::Files;
use crate::judge::{Fate, judge};
use crate::listed::Listed;
use crate::mutant::Mutant;
use crate::reach::reach;
use crate::report::{Numbers, by_file, stale, told};
use crate::rewrite::LeftOut;
use crate::tree::{Tree, Wanted};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FILES: &str = "tests/mutants/files.toml";
const LISTED: &str = "tests/mutants/equivalent.toml";
const RECORD: &str = "tests/mutants/last-whole-run.toml";

/// Whether nothing survived that no list has.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let root = arguments.root.canonicalize()?;
    let mut files = Files::read(&root.join(FILES))?;
    files.keep(&arguments.only);
    if !arguments.changed {
        return judged(arguments, &root, &files, &|_, _, _| true);
    }
    let Some((commit, changed)) = Changed::since(&root, RECORD)? else {
        println!("SKIPPED: no commit of {RECORD} is known here");
        return Ok(true);
    };
    println!("mutants: lines changed since {commit}");
    files.files.retain(|file| changed.has(&file.path));
    if files.files.is_empty() {
        println!("ok: no line of the files in {FILES} was changed");
        return Ok(true);
    }
    judged(arguments, &root, &files, &|file, first, last| changed.is_changed(file, first, last))
}

fn judged(arguments: &Arguments, root: &Path, files: &Files, wanted: Wanted<'_>) -> Result<bool, Box<dyn Error>> {
    let began = Instant::now();
    std::fs::create_dir_all(&arguments.work)?;
    let work: PathBuf = arguments.work.canonicalize()?;
    let tree = Tree::copy(root, work.join("tree"), &files.files)?;
    let paths: BTreeSet<&str> = files.files.iter().map(|file| file.path.as_str()).collect();
    let built = build(&tree, &work.join("build"), &files.files, &files.all_judges(&paths), wanted, LeftOut::default())?;
    let Built { mutants, binaries, left_out } = &built;
    let (mutants, binaries, dropped) = (mutants.len(), binaries.len(), left_out.mutants.len());
    println!(
        "mutants: {mutants}, {dropped} that do not compile, {binaries} judges, built in {} s",
        began.elapsed().as_secs()
    );
    if mutants == 0 {
        println!("ok: no mutant is on a changed line");
        return Ok(true);
    }
    let began_reach = Instant::now();
    let tests = reach(&built, &work.join("reached"))?;
    println!("mutants: {} tests reach them, {} s", tests.len(), began_reach.elapsed().as_secs());
    let budget = Duration::from_secs_f64(arguments.minutes * 60.0).saturating_sub(if arguments.changed {
        began_reach.elapsed()
    } else {
        Duration::ZERO
    });
    let fates = judge(&built, files, &tests, budget);
    write_report(&work.join("report.json"), &fates)?;
    for (mutant, _) in fates.iter().filter(|(_, fate)| *fate == Fate::NotRun) {
        println!("not run: {mutant}");
    }
    let listed = Listed::read(&root.join(LISTED))?;
    let sum = by_file(&fates, &listed);
    let stale = if arguments.changed { 0 } else { stale(&fates, &listed, |file| paths.contains(file)) };
    println!("mutants: {} in {} s", told(&sum), began.elapsed().as_secs());
    if !arguments.changed && arguments.only.is_empty() && sum.not_run == 0 {
        record(root, &sum)?;
    }
    Ok(sum.unlisted == 0 && stale == 0)
}

/// All of it, for who looks for what survived.
fn write_report(path: &Path, fates: &[(Mutant, Fate)]) -> Result<(), Box<dyn Error>> {
    Ok(std::fs::write(path, serde_json::to_string_pretty(fates)?)?)
}

/// What the next quick run begins from.
fn record(root: &Path, sum: &Numbers) -> Result<(), Box<dyn Error>> {
    let said = |program: &str, arguments: &[&str]| -> Result<String, Box<dyn Error>> {
        Ok(String::from_utf8_lossy(&Command::new(program).args(arguments).current_dir(root).output()?.stdout)
            .trim()
            .to_owned())
    };
    let commit = said("git", &["rev-parse", "HEAD"])?;
    let date = said("date", &["-u", "+%Y-%m-%d"])?;
    let text = format!(
        "# Written by `tests/run mutants generated`; its last commit is where `tests/run mutants changed` begins.\ncommit = \"{commit}\"\ndate = \"{date}\"\nmutants = {}\nkilled = {}\nequivalent = {}\nopen = {}\n",
        sum.mutants, sum.killed, sum.equivalent, sum.open
    );
    Ok(std::fs::write(root.join(RECORD), text)?)
}
