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

/// Counts by file, and prints what survived and no list has.
pub(crate) fn by_file(fates: &[(Mutant, Fate)], listed: &Listed) -> BTreeMap<String, Numbers> {
    let mut files: BTreeMap<String, Numbers> = BTreeMap::new();
    for (mutant, fate) in fates {
        let numbers = files.entry(mutant.file.clone()).or_default();
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
    files
}

/// Prints a line of each file, "ok: " or "FAILED: "; returns the sum.
pub(crate) fn sum(files: &BTreeMap<String, Numbers>) -> Numbers {
    let mut sum = Numbers::default();
    for (file, numbers) in files {
        println!("{}: {file}: {}", if numbers.unlisted == 0 { "ok" } else { "FAILED" }, told(numbers));
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

/// Prints entries of mutants that there are none of; returns how many.
pub(crate) fn stale(mutants: &[Mutant], listed: &Listed) -> usize {
    let is_stale = |entry: &Entry, what: &str| !mutants.iter().any(|mutant| entry.is_of(mutant) && mutant.what == what);
    told_each(listed, |entry, what| {
        is_stale(entry, what).then(|| "there is no such mutant; take the entry away".to_owned())
    })
}

/// Prints entries of mutants that a test kills; returns how many.
pub(crate) fn needless(fates: &[(Mutant, Fate)], listed: &Listed) -> usize {
    told_each(listed, |entry, what| {
        fates.iter().find_map(|(mutant, fate)| match fate {
            Fate::Killed(by) if entry.is_of(mutant) && mutant.what == what => {
                Some(format!("it is killed by {by}; take the entry away"))
            }
            _ => None,
        })
    })
}

/// Prints a line of each entry that something is wrong with; returns how many.
fn told_each(listed: &Listed, wrong: impl Fn(&Entry, &str) -> Option<String>) -> usize {
    let mut count = 0;
    for entry in listed.equivalent.iter().chain(&listed.open) {
        for what in &entry.what {
            if let Some(why) = wrong(entry, what) {
                println!("FAILED: equivalent.toml: {} {}: {what}: {why}", entry.file, entry.function);
                count += 1;
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(what: &str) -> Mutant {
        let (file, function) = ("a.rs".to_owned(), "f".to_owned());
        Mutant { number: 1, file, line: 1, last_line: 1, function, what: what.to_owned() }
    }

    fn listed(what: &str) -> Listed {
        let entry = |what: &str| {
            let (file, function) = ("a.rs".to_owned(), "f".to_owned());
            Entry { file, function, what: vec![what.to_owned()], reason: "seen".to_owned() }
        };
        Listed { equivalent: vec![entry(what)], open: Vec::new() }
    }

    #[test]
    fn an_entry_of_no_mutant_is_told() {
        assert_eq!(stale(&[mutant("x")], &listed("x")), 0);
        assert_eq!(stale(&[mutant("x")], &listed("y")), 1);
    }

    #[test]
    fn an_entry_of_a_mutant_that_is_killed_is_told() {
        assert_eq!(needless(&[(mutant("x"), Fate::Survived)], &listed("x")), 0);
        assert_eq!(needless(&[(mutant("x"), Fate::Killed("t".to_owned()))], &listed("x")), 1);
        assert_eq!(needless(&[(mutant("z"), Fate::Killed("t".to_owned()))], &listed("x")), 0);
    }

    #[test]
    fn what_survived_is_counted_once_and_by_the_list_that_has_it() {
        let fates = [
            (mutant("x"), Fate::Survived),
            (mutant("y"), Fate::Unreached),
            (mutant("z"), Fate::Killed("t".to_owned())),
            (mutant("n"), Fate::NotRun),
        ];
        let Numbers { mutants, killed, equivalent, open, not_run, unlisted } = sum(&by_file(&fates, &listed("x")));
        assert_eq!((mutants, killed, equivalent, open, not_run, unlisted), (4, 1, 1, 0, 1, 1));
    }
}
