//! `judged.toml`: of which commit all mutants of a file were judged, and what became of them.

use crate::git::Git;
use crate::report::Numbers;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

const HEAD: &str = "\
# Written by `tests/run mutants generated`, file by file: `tests/run mutants changed` looks at what was changed since that commit.
";

/// Where the repository stood when its files were copied: a run takes hours, and somebody may commit meanwhile.
pub(crate) struct Begun {
    commit: String,
    /// Those that are as that commit has them.
    files: BTreeSet<String>,
}

impl Begun {
    /// `None` without a commit.
    pub(crate) fn at<'a>(git: &Git<'_>, files: impl Iterator<Item = &'a str>) -> Option<Self> {
        let files = files.filter(|file| git.is_committed(file)).map(str::to_owned).collect();
        Some(Self { commit: git.head()?, files })
    }
}

/// The files that were judged whole, by their paths.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Record {
    #[serde(default)]
    files: BTreeMap<String, Judged>,
}

/// One file's last judging of all its mutants. Only the commit is read again; the rest is for readers.
#[derive(Debug, Deserialize)]
struct Judged {
    commit: String,
    date: String,
    mutants: usize,
    killed: usize,
    equivalent: usize,
    open: usize,
}

impl Record {
    /// What the file at `path` says; nothing where there is none.
    pub(crate) fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        if !path.exists() {
            return Ok(Self::default());
        }
        toml::from_str(&std::fs::read_to_string(path)?).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// The commit of which a file was judged.
    pub(crate) fn commit(&self, file: &str) -> Option<&str> {
        self.files.get(file).map(|judged| judged.commit.as_str())
    }

    /// Adds the files of which every mutant was judged and all that survived is listed.
    pub(crate) fn add(&mut self, begun: &Begun, numbers: &BTreeMap<String, Numbers>, date: &str) {
        for (file, numbers) in numbers {
            let Numbers { mutants, killed, equivalent, open, not_run, unlisted } = *numbers;
            if not_run + unlisted == 0 && begun.files.contains(file) {
                let (commit, date) = (begun.commit.clone(), date.to_owned());
                let judged = Judged { commit, date, mutants, killed, equivalent, open };
                self.files.insert(file.clone(), judged);
            }
        }
    }

    /// Writes it to the file at `path`. By hand, because a toml crate that can write is another one for all that is built beside this.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let mut text = HEAD.to_owned();
        for (file, Judged { commit, date, mutants, killed, equivalent, open }) in &self.files {
            text += &format!(
                "\n[files.\"{file}\"]\ncommit = \"{commit}\"\ndate = \"{date}\"\nmutants = {mutants}\nkilled = {killed}\nequivalent = {equivalent}\nopen = {open}\n"
            );
        }
        Ok(std::fs::write(path, text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::repository;

    fn numbers(not_run: usize, unlisted: usize) -> Numbers {
        Numbers { mutants: 9, killed: 7, equivalent: 1, open: 1, not_run, unlisted }
    }

    /// Whether the only file of a repository is recorded, and with its commit after it was written and read again.
    fn is_recorded(name: &str, is_changed: bool, numbers: Numbers) -> bool {
        let root = repository(name, 2);
        if is_changed {
            std::fs::write(root.join("a.rs"), "// other\n").unwrap();
        }
        let git = Git { root: &root };
        let begun = Begun::at(&git, ["a.rs"].into_iter()).unwrap();
        let mut record = Record::default();
        record.add(&begun, &BTreeMap::from([("a.rs".to_owned(), numbers)]), "2026-01-02");
        let path = root.join("record.toml");
        record.write(&path).unwrap();
        let read = Record::read(&path).unwrap();
        let commit = git.head();
        std::fs::remove_dir_all(&root).unwrap();
        read.commit("a.rs").inspect(|found| assert_eq!(Some(*found), commit.as_deref())).is_some()
    }

    #[test]
    fn a_file_whose_mutants_were_all_judged_is_recorded_with_its_commit() {
        assert!(is_recorded("judged", false, numbers(0, 0)));
    }

    #[test]
    fn a_file_is_not_recorded_while_something_is_missing() {
        assert!(!is_recorded("not-run", false, numbers(1, 0)), "one was not judged");
        assert!(!is_recorded("unlisted", false, numbers(0, 1)), "one survived, and no list has it");
        assert!(!is_recorded("not-committed", true, numbers(0, 0)), "no commit has what was judged");
    }

    #[test]
    fn what_others_were_judged_by_stays() {
        let root = repository("others", 1);
        let begun = Begun::at(&Git { root: &root }, ["a.rs"].into_iter()).unwrap();
        let mut record = Record::default();
        record.files.insert(
            "b.rs".to_owned(),
            Judged { commit: "b".to_owned(), date: String::new(), mutants: 1, killed: 1, equivalent: 0, open: 0 },
        );
        record.add(&begun, &BTreeMap::from([("a.rs".to_owned(), numbers(0, 0))]), "2026-01-02");
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!((record.commit("b.rs"), record.commit("a.rs").is_some()), (Some("b"), true));
    }
}
