//! What is printed, and what is written down.

use crate::judge::Fate;
use crate::listed::{Entry, Listed};
use crate::mutant::Mutant;
use std::collections::BTreeMap;

/// Numbers of mutants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) mutants: usize,
    pub(crate) killed: usize,
    pub(crate) equivalent: usize,
    pub(crate) open: usize,
    pub(crate) not_run: usize,
    /// Survivors that no list has.
    pub(crate) unlisted: usize,
}

/// Prints a line of each file, "ok: " or "FAILED: "; returns the sum.
pub(crate) fn by_file(fates: &[(Mutant, Fate)], listed: &Listed) -> Numbers {
    let mut files: BTreeMap<&str, Numbers> = BTreeMap::new();
    for (mutant, fate) in fates {
        let numbers = files.entry(&mutant.file).or_default();
        numbers.mutants += 1;
        let is_in = |list: &[Entry]| list.iter().any(|entry| entry.is_of(mutant));
        *match fate {
            Fate::Killed(_) => &mut numbers.killed,
            Fate::NotRun => &mut numbers.not_run,
            _ if is_in(&listed.equivalent) => &mut numbers.equivalent,
            _ if is_in(&listed.open) => &mut numbers.open,
            _ => {
                println!("SURVIVED: {mutant}{}", if *fate == Fate::Unreached { " (no test reaches it)" } else { "" });
                &mut numbers.unlisted
            }
        } += 1;
    }
    let mut sum = Numbers::default();
    for (file, numbers) in files {
        println!("{}: {file}: {}", if numbers.unlisted == 0 { "ok" } else { "FAILED" }, told(&numbers));
        sum.mutants += numbers.mutants;
        sum.killed += numbers.killed;
        sum.equivalent += numbers.equivalent;
        sum.open += numbers.open;
        sum.not_run += numbers.not_run;
        sum.unlisted += numbers.unlisted;
    }
    sum
}

pub(crate) fn told(numbers: &Numbers) -> String {
    let Numbers { mutants, killed, equivalent, open, not_run, unlisted } = numbers;
    format!(
        "{mutants} mutants, {killed} killed, {equivalent} equivalent, {open} open, {unlisted} survived, {not_run} not run"
    )
}

/// Prints entries that say nothing of what is: their mutant is killed, or there is none. Only a whole run can tell.
pub(crate) fn stale(fates: &[(Mutant, Fate)], listed: &Listed, is_judged: impl Fn(&str) -> bool) -> usize {
    let mut stale = 0;
    for entry in listed.equivalent.iter().chain(&listed.open).filter(|entry| is_judged(&entry.file)) {
        for what in &entry.what {
            let found = fates.iter().find(|(mutant, _)| entry.is_of(mutant) && mutant.what == *what);
            let why = match found {
                None => "there is no such mutant".to_owned(),
                Some((_, Fate::Killed(by))) => format!("it is killed by {by}"),
                Some(_) => continue,
            };
            println!("FAILED: equivalent.toml: {} {}: {what}: {why}", entry.file, entry.function);
            stale += 1;
        }
    }
    stale
}
