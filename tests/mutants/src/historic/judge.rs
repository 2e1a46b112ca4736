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

/// The lowest seed that killed it, of those that a run without a search simulates too.
const SOON: u64 = 4;
/// Within so many seeds they die again, whatever a change of the simulation has done to the order of what it draws.
const SOON_AGAIN: u64 = 16 * SOON;

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
    if wish.search {
        simulate(wish, table, binaries, mutant, wish.seeds, &mut verdict);
        named_tests(binaries, mutant, &mut verdict, usize::MAX);
        return verdict;
    }
    named_tests(binaries, mutant, &mut verdict, 1);
    // Those that died soon when they were searched for have to die soon again: a simulation that sees less than before is noticed.
    let died_soon = mutant.seeds.values().any(|&seed| seed <= SOON);
    match (verdict.is_killed(), died_soon) {
        (true, true) => simulate(wish, table, binaries, mutant, SOON_AGAIN, &mut verdict),
        (true, false) => {}
        (false, _) => simulate(wish, table, binaries, mutant, wish.seeds, &mut verdict),
    }
    verdict
}

/// By each simulation that may meet it.
fn simulate(wish: &Wish, table: &Table, binaries: &Binaries, mutant: &Mutant, seeds: u64, verdict: &mut Verdict) {
    for simulation in table.simulations.iter().filter(|simulation| simulation.may_meet(mutant)) {
        match search(wish, binaries, simulation, mutant, seeds) {
            Ok(Some(seed)) => verdict.seeds.push((simulation.name.clone(), seed)),
            Ok(None) => {}
            Err(error) => verdict.lived.push(format!("{} ({error})", simulation.name)),
        }
        // One is enough to know that it dies.
        if !wish.search && !verdict.seeds.is_empty() {
            return;
        }
    }
}

/// Until so many have killed it.
fn named_tests(binaries: &Binaries, mutant: &Mutant, verdict: &mut Verdict, most: usize) {
    for (binary, test) in mutant.named_tests() {
        if verdict.tests.len() >= most {
            return;
        }
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
    seeds: u64,
) -> Result<Option<Option<u64>>, String> {
    let until = Instant::now() + Duration::from_secs(wish.limit);
    let (mut ran, mut count) = (0, FIRST_SEEDS.min(seeds));
    while count > 0 && Instant::now() < until {
        let found = seeds_from(binaries, simulation, mutant, ran + 1, count)?;
        if found.is_some() {
            return Ok(found);
        }
        ran += count;
        count = (2 * count).min(seeds - ran);
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
