//! What is printed.

use super::judge::Verdict;
use super::table::Mutant;
use super::{MOST_SEEDS, Wish};
use std::collections::BTreeMap;

/// Mutants that a simulation kills in every run.
const LEAST_SIMULATED: usize = 20;

/// A mutant, what killed it, and how many seeds that took.
pub(super) fn line(mutant: &Mutant, verdict: &Verdict) {
    let mut by: Vec<String> = verdict
        .seeds
        .iter()
        .map(|(simulation, seed)| match seed {
            Some(seed) => format!("{simulation} seed {seed}"),
            None => format!("{simulation}, which did not end"),
        })
        .collect();
    by.extend(verdict.tests.iter().cloned());
    let word = if verdict.is_killed() { "ok" } else { "FAILED" };
    let by = if by.is_empty() { "nobody".to_owned() } else { by.join(", ") };
    println!("{word}: {}: killed by {by}", mutant.name);
    if !verdict.lived.is_empty() {
        println!("  lived through {}", verdict.lived.join(", "));
    }
}

/// True where simulations see as many as they have to.
pub(super) fn totals(wish: &Wish, verdicts: &BTreeMap<String, Verdict>) -> bool {
    let killed = verdicts.values().filter(|verdict| verdict.is_killed()).count();
    let by_seeds = verdicts.values().filter(|verdict| !verdict.seeds.is_empty()).count();
    let seeds_alone = verdicts.values().filter(|verdict| !verdict.seeds.is_empty() && verdict.tests.is_empty()).count();
    println!(
        "{killed} of {} mutants were killed, {by_seeds} by a simulation, {seeds_alone} of those by nothing else",
        verdicts.len()
    );
    if wish.search && wish.seeds < MOST_SEEDS {
        println!("each simulation ran {} seeds at most, of {MOST_SEEDS}", wish.seeds);
    }
    let all = wish.only.is_empty();
    if all {
        let word = if by_seeds >= LEAST_SIMULATED { "ok" } else { "FAILED" };
        println!("{word}: {by_seeds} mutants die in a simulation, without any other test; {LEAST_SIMULATED} at least");
    }
    !all || by_seeds >= LEAST_SIMULATED
}
