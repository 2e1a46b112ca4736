//! Who kills a mutant.

use super::Wish;
use super::build::Binaries;
use super::process::{Ended, run};
use super::table::{Mutant, Simulation, Table};
use std::time::{Duration, Instant};

/// One named test takes a fraction of it.
const TEST_LIMIT: Duration = Duration::from_secs(60);
/// A seed takes a hundredth of it: whoever takes longer hangs.
const SEED_LIMIT: Duration = Duration::from_secs(2);
/// What the first seed may take besides, on a machine with other work.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Seeds that a search runs first: most mutants die by one of them.
const FIRST_SEEDS: u64 = 16;

/// What killed a mutant.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Simulations, each with the seed, or none where a run did not end.
    pub(super) seeds: Vec<(String, Option<u64>)>,
    pub(super) tests: Vec<String>,
    /// Named tests that it lived through, and what could not be run.
    pub(super) lived: Vec<String>,
}

impl Verdict {
    pub(super) fn is_killed(&self) -> bool {
        !self.seeds.is_empty() || !self.tests.is_empty()
    }
}

pub(super) fn judge(wish: &Wish, table: &Table, binaries: &Binaries, mutant: &Mutant) -> Verdict {
    let mut verdict = Verdict::default();
    for simulation in &table.simulations {
        let recorded = mutant.seeds.get(&simulation.binary).copied();
        let seeds = match (wish.search, recorded) {
            (true, _) => search(wish, binaries, simulation, mutant),
            (false, Some(seed)) => seeds_from(binaries, simulation, mutant, seed, 1),
            (false, None) => Ok(None),
        };
        match seeds {
            Ok(Some(seed)) => verdict.seeds.push((simulation.binary.clone(), seed)),
            Ok(None) if recorded.is_some() && !wish.search => verdict.lived.push(simulation.binary.clone()),
            Ok(None) => {}
            Err(error) => verdict.lived.push(format!("{} ({error})", simulation.binary)),
        }
    }
    // By whom it is known to die is enough.
    if verdict.is_killed() && !wish.search && verdict.lived.is_empty() && !mutant.tests.is_empty() {
        named_tests(binaries, mutant, &mut verdict, 1);
    } else {
        named_tests(binaries, mutant, &mut verdict, usize::MAX);
    }
    verdict
}

fn named_tests(binaries: &Binaries, mutant: &Mutant, verdict: &mut Verdict, most: usize) {
    for (binary, test) in mutant.named_tests().take(most) {
        let name = format!("{binary}::{test}");
        let ended = match binaries.get(binary) {
            Some(found) => run(found, test, &mutant.name, &[], TEST_LIMIT).map_err(|error| error.to_string()),
            None => Err("there is no such binary".to_owned()),
        };
        match ended {
            Ok(Ended::Passed) => verdict.lived.push(name),
            Ok(Ended::Failed(_) | Ended::TimedOut) => verdict.tests.push(name),
            Err(error) => verdict.lived.push(format!("{name} ({error})")),
        }
    }
}

/// The first seed that kills it, a few seeds first, then twice as many each time, as long as there is time.
fn search(
    wish: &Wish,
    binaries: &Binaries,
    simulation: &Simulation,
    mutant: &Mutant,
) -> Result<Option<Option<u64>>, String> {
    let until = Instant::now() + Duration::from_secs(wish.limit);
    let (mut ran, mut count) = (0, FIRST_SEEDS.min(wish.seeds));
    while count > 0 && Instant::now() < until {
        let found = seeds_from(binaries, simulation, mutant, ran + 1, count)?;
        if found.is_some() {
            return Ok(found);
        }
        ran += count;
        count = (2 * count).min(wish.seeds - ran);
    }
    Ok(None)
}

/// `Some(None)`: it was killed, and no seed was named, or the run did not end.
fn seeds_from(
    binaries: &Binaries,
    simulation: &Simulation,
    mutant: &Mutant,
    first: u64,
    count: u64,
) -> Result<Option<Option<u64>>, String> {
    let limit = START_LIMIT + SEED_LIMIT * u32::try_from(count).unwrap_or(u32::MAX);
    let binary = binaries.get(&simulation.binary).ok_or("there is no such binary")?;
    let variables = [
        ("FRWR_FIRST_SEED", first.to_string()),
        ("FRWR_SEEDS", count.to_string()),
        ("FRWR_STOP_AT_FIRST", "1".to_owned()),
    ];
    let ended = run(binary, &simulation.test, &mutant.name, &variables, limit).map_err(|error| error.to_string())?;
    Ok(match ended {
        Ended::Passed => None,
        Ended::Failed(seed) => Some(seed.or((count == 1).then_some(first))),
        Ended::TimedOut => Some((count == 1).then_some(first)),
    })
}
