//! Runs the tests that reach a mutant until one fails.

use crate::build::Built;
use crate::files::{Files, Judge};
use crate::mutant::Mutant;
use crate::pool::for_each;
use crate::process::{Ended, Run};
use crate::reach::Test;
use crate::results::Results;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A run takes so many times as long as without a mutant, and still counts as one that ends.
const SLOWER: u32 = 6;
/// At least, because machines are busy.
const SHORTEST_LIMIT: Duration = Duration::from_secs(10);
/// A run that did not end by then is tried once more, for so many times as long: on a machine that did something else meanwhile five of
/// fourteen time-outs were none.
const PATIENCE: u32 = 4;
/// No judge is asked for longer about one mutant, going by what its tests take of a processor without any; the quicker ones are asked.
const LONGEST: Duration = Duration::from_secs(20);
/// Nor all of them together.
const ALTOGETHER: Duration = Duration::from_secs(30);
/// Tests that together take no longer than this are asked before all others, whatever binary they are of.
const QUICK: Duration = Duration::from_millis(300);

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// By this test.
    Killed(String),
    Survived,
    /// No test reaches it.
    Unreached,
    /// There was no time for it.
    NotRun,
}

/// Judges all mutants that `results` does not know, and tells it; what is not begun within `budget` is not run.
pub(crate) fn judge(
    built: &Built,
    files: &Files,
    tests: &[Test],
    budget: Duration,
    results: &Results,
) -> Vec<(Mutant, Fate)> {
    let began = Instant::now();
    let is_there =
        |by: &str| tests.iter().any(|test| by == killed_by(&test.judge, &test.name) || by == timed_out(&test.judge));
    let fates = Mutex::new(Vec::new());
    let lock = || fates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let last_killers: Mutex<HashMap<String, (Judge, String)>> = Mutex::new(HashMap::new());
    for_each(&built.mutants, |_, mutant| {
        let known = results.fate_of(mutant, is_there);
        let is_news = known.is_none();
        let fate = known.unwrap_or_else(|| {
            if began.elapsed() > budget { Fate::NotRun } else { fate(built, files, tests, mutant, &last_killers) }
        });
        if is_news
            && fate != Fate::NotRun
            && let Err(error) = results.note(mutant, &fate)
        {
            println!("what became of {mutant} cannot be written down: {error}");
        }
        let mut all = lock();
        if matches!(fate, Fate::Survived | Fate::Unreached) {
            println!("{fate:?}: {mutant}");
        }
        all.push((mutant.clone(), fate));
        if all.len() % 100 == 0 {
            println!("mutants: {} of {} after {} s", all.len(), built.mutants.len(), began.elapsed().as_secs());
        }
    });
    let mut fates = fates.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    fates.sort_by_key(|(mutant, _)| mutant.number);
    fates
}

fn fate(
    built: &Built,
    files: &Files,
    tests: &[Test],
    mutant: &Mutant,
    last_killers: &Mutex<HashMap<String, (Judge, String)>>,
) -> Fate {
    let judges = files.judges_of(&mutant.file);
    let mut reaching: Vec<&Test> =
        tests.iter().filter(|test| test.reaches.contains(&mutant.number) && judges.contains(&&test.judge)).collect();
    if reaching.is_empty() {
        return Fate::Unreached;
    }
    // What killed the last one of the same function is likely to kill this one.
    let killers = || last_killers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let killer = killers().get(&mutant.function).cloned();
    let is_killer =
        |test: &Test| killer.as_ref().is_some_and(|(judge, name)| *judge == test.judge && *name == test.name);
    let rank = |test: &Test| judges.iter().position(|judge| **judge == test.judge).unwrap_or(usize::MAX);
    reaching.sort_by_key(|test| (!is_killer(test), test.busy > QUICK, rank(test), test.busy));
    let mut left = ALTOGETHER;
    for group in reaching.chunk_by(|left, right| left.judge == right.judge && is_killer(left) == is_killer(right)) {
        let group = asked(group, LONGEST.min(left));
        left -= group.iter().map(|test| test.busy).sum();
        let names: Vec<&str> = group.iter().map(|test| test.name.as_str()).collect();
        let took: Duration = group.iter().map(|test| test.took).sum();
        if names.is_empty() {
            continue;
        }
        let (Some(first), number) = (group.first(), mutant.number.to_string()) else { continue };
        let Some(binary) = built.binaries.get(&first.judge) else { continue };
        let limit = (took * SLOWER).max(SHORTEST_LIMIT);
        let run = |limit| Run { binary, tests: &names, mutant: &number, reached: None, limit }.end();
        let ended = match run(limit) {
            Ok(Ended::TimedOut) => run(limit * PATIENCE),
            ended => ended,
        };
        match ended {
            Ok(Ended::Passed(_)) => {}
            Ok(Ended::Failed(name)) => {
                killers().insert(mutant.function.clone(), (first.judge.clone(), name.clone()));
                return Fate::Killed(killed_by(&first.judge, &name));
            }
            Ok(Ended::TimedOut) => return Fate::Killed(timed_out(&first.judge)),
            Err(error) => println!("{} does not run: {error}", binary.path.display()),
        }
    }
    Fate::Survived
}

fn killed_by(judge: &Judge, test: &str) -> String {
    format!("{judge} {test}")
}

fn timed_out(judge: &Judge) -> String {
    format!("{judge} by its time-out")
}

/// The quickest tests of a group, one judge's in the order of their time, as many as take no longer than that.
fn asked<'a, 'b>(group: &'a [&'b Test], longest: Duration) -> &'a [&'b Test] {
    let mut busy = Duration::ZERO;
    let fits = |test: &&&Test| {
        busy += test.busy;
        busy <= longest
    };
    &group[..group.iter().take_while(fits).count()]
}
