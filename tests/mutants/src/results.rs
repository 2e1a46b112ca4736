//! What became of each mutant, a line each as soon as it is known: a run that was cut off is gone on with by starting it again.

use crate::judge::Fate;
use crate::mutant::{Identity, Mutant};
use crate::rewrite::LeftOut;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// Hash of the mutated file.
    of: u64,
    /// Hash of all else that is built.
    beside: u64,
    file: String,
    function: String,
    what: String,
    became: Became,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Became {
    Judged(Fate),
    DoesNotCompile,
    /// Of a function, whose change is no text.
    StaysConst,
}

/// What the sources are, of which results are.
pub(crate) struct Sources {
    /// Hash of each mutated file.
    pub(crate) of: HashMap<String, u64>,
    /// Hash of all else that is built, the tests among it.
    pub(crate) beside: u64,
}

/// How far results go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trust {
    /// A kill is only believed while nothing was changed.
    pub(crate) is_strict: bool,
    /// Some judges are not asked: what survives the others is not written down, and what those killed before counts.
    pub(crate) is_partial: bool,
}

/// The file, and what it knew of the same sources.
pub(crate) struct Results {
    sources: Sources,
    trust: Trust,
    file: Mutex<File>,
    /// With whether all else was the same too.
    known: HashMap<Identity, (Became, bool)>,
}

impl Results {
    /// Opens the file at `path`, or begins it. Lines that say nothing, like one that was cut off, are passed over.
    pub(crate) fn open(path: &Path, sources: Sources, trust: Trust) -> std::io::Result<Self> {
        let mut known = HashMap::new();
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
            if sources.of.get(&line.file) == Some(&line.of) {
                let is_same = line.beside == sources.beside;
                known.insert((line.file, line.function, line.what), (line.became, is_same));
            }
        }
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        // Behind a line that was cut off.
        writeln!(file)?;
        Ok(Self { sources, trust, file: Mutex::new(file), known })
    }

    /// What is known of a mutant. That it survived holds while nothing was changed; that a test killed it, while `is_there` says that
    /// this test is still there.
    pub(crate) fn fate_of(&self, mutant: &Mutant, is_there: impl Fn(&str) -> bool) -> Option<Fate> {
        match self.known.get(&mutant.identity())? {
            (Became::Judged(Fate::Killed(by)), is_same)
                if *is_same || !self.trust.is_strict && (self.trust.is_partial || is_there(by)) =>
            {
                Some(Fate::Killed(by.clone()))
            }
            (Became::Judged(fate @ (Fate::Survived | Fate::Unreached)), true) => Some(fate.clone()),
            _ => None,
        }
    }

    /// What is known not to compile: a build that begins without it need not begin again.
    pub(crate) fn left_out(&self) -> LeftOut {
        let mut left_out = LeftOut::default();
        for (identity @ (file, function, _), (became, _)) in &self.known {
            match became {
                Became::DoesNotCompile => drop(left_out.mutants.insert(identity.clone())),
                Became::StaysConst => drop(left_out.constant.insert((file.clone(), function.clone()))),
                Became::Judged(_) => {}
            }
        }
        left_out
    }

    /// Writes down what became of a mutant.
    pub(crate) fn note(&self, mutant: &Mutant, fate: &Fate) -> std::io::Result<()> {
        if self.trust.is_partial && !matches!(fate, Fate::Killed(_)) {
            return Ok(());
        }
        self.append(mutant.identity(), Became::Judged(fate.clone()))
    }

    /// Writes down what does not compile, as far as it is news.
    pub(crate) fn note_left_out(&self, left_out: &LeftOut) -> std::io::Result<()> {
        let known = self.left_out();
        for identity in left_out.mutants.difference(&known.mutants) {
            self.append(identity.clone(), Became::DoesNotCompile)?;
        }
        for (file, function) in left_out.constant.difference(&known.constant) {
            self.append((file.clone(), function.clone(), String::new()), Became::StaysConst)?;
        }
        Ok(())
    }

    fn append(&self, (file, function, what): Identity, became: Became) -> std::io::Result<()> {
        let Some(&of) = self.sources.of.get(&file) else { return Ok(()) };
        let line = Line { of, beside: self.sources.beside, file, function, what, became };
        let line = serde_json::to_string(&line)? + "\n";
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: u64 = 7;
    const BESIDE: u64 = 8;

    fn sources(of: u64, beside: u64) -> Sources {
        Sources { of: HashMap::from([("a.rs".to_owned(), of)]), beside }
    }

    fn mutant(what: &str) -> Mutant {
        let (file, function) = ("a.rs".to_owned(), "f".to_owned());
        Mutant { number: 1, file, line: 1, last_line: 1, function, what: what.to_owned() }
    }

    fn killed() -> Fate {
        Fate::Killed("p:lib t".to_owned())
    }

    /// A file in which "x" is killed, "y" survived, "z" does not compile, "g" stays const, and a line was cut off.
    fn file(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("frwr-results-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let results = Results::open(&path, sources(OF, BESIDE), Trust::default()).unwrap();
        results.note(&mutant("x"), &killed()).unwrap();
        results.note(&mutant("y"), &Fate::Survived).unwrap();
        let constant = [("a.rs".to_owned(), "g".to_owned())].into();
        let broken = LeftOut { mutants: [mutant("z").identity()].into(), constant };
        results.note_left_out(&broken).unwrap();
        write!(OpenOptions::new().append(true).open(&path).unwrap(), "{{\"of\":7,\"besi").unwrap();
        path
    }

    /// What is known of "x" and "y" then.
    fn known(name: &str, sources: Sources, is_strict: bool, is_there: bool) -> [Option<Fate>; 2] {
        let path = file(name);
        let trust = Trust { is_strict, ..Trust::default() };
        let results = Results::open(&path, sources, trust).unwrap();
        let known = ["x", "y"].map(|what| results.fate_of(&mutant(what), |_| is_there));
        std::fs::remove_file(path).unwrap();
        known
    }

    #[test]
    fn a_run_that_was_cut_off_goes_on_where_it_ended() {
        assert_eq!(known("same", sources(OF, BESIDE), true, true), [Some(killed()), Some(Fate::Survived)]);
        let path = file("more");
        let results = Results::open(&path, sources(OF, BESIDE), Trust::default()).unwrap();
        assert_eq!(results.left_out().mutants, [mutant("z").identity()].into());
        assert_eq!(results.left_out().constant, [("a.rs".to_owned(), "g".to_owned())].into());
        // What comes behind the line that was cut off is read again.
        results.note(&mutant("w"), &Fate::Unreached).unwrap();
        let results = Results::open(&path, sources(OF, BESIDE), Trust::default()).unwrap();
        assert_eq!(results.fate_of(&mutant("w"), |_| true), Some(Fate::Unreached));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_survives_some_of_the_judges_is_not_written_down() {
        let path = file("partial");
        let trust = Trust { is_partial: true, ..Trust::default() };
        let results = Results::open(&path, sources(OF, BESIDE), trust).unwrap();
        results.note(&mutant("v"), &Fate::Survived).unwrap();
        results.note(&mutant("w"), &killed()).unwrap();
        let results = Results::open(&path, sources(OF, BESIDE), Trust::default()).unwrap();
        let known = ["v", "w"].map(|what| results.fate_of(&mutant(what), |_| true));
        assert_eq!(known, [None, Some(killed())]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn of_a_file_that_was_changed_nothing_is_known() {
        assert_eq!(known("file", sources(OF + 1, BESIDE), false, true), [None, None]);
    }

    #[test]
    fn other_tests_may_kill_what_survived_and_those_that_are_gone_kill_nothing() {
        assert_eq!(known("tests", sources(OF, BESIDE + 1), false, true), [Some(killed()), None]);
        assert_eq!(known("gone", sources(OF, BESIDE + 1), false, false), [None, None]);
        assert_eq!(known("strict", sources(OF, BESIDE + 1), true, true), [None, None]);
    }
}
