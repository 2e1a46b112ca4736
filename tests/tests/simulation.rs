//! Seeds of the simulation. FRWR_SEEDS says how many (default 300), FRWR_SEED which one alone, FRWR_FIRST_SEED where to
//! begin.

#[cfg(feature = "verbs")]
use frwr_tests::simulation::{Devices, run_on};
use frwr_tests::simulation::{Outcome, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 300;
/// One seed in this many runs twice.
const TWICE: u64 = 10;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: must be a number")))
}

/// The seeds that the environment asks for.
fn seeds() -> std::ops::Range<u64> {
    match number("FRWR_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FRWR_FIRST_SEED").unwrap_or(1);
            first..first + number("FRWR_SEEDS").unwrap_or(SEEDS)
        }
    }
}

#[test]
fn every_seed_keeps_every_promise_and_ends() {
    run_all("--test simulation", |seed| {
        let outcome = run(seed)?;
        if seed % TWICE == 0 && run(seed) != Ok(outcome) {
            return Err("the same seed ended otherwise the second time".to_owned());
        }
        Ok(outcome)
    });
}

/// The same through the verbs provider: windows, and lists as on ConnectX. Its devices number their objects over all tests of a
/// process, so that no two runs are the same.
#[cfg(feature = "verbs")]
#[test]
fn every_seed_keeps_every_promise_through_the_verbs_provider() {
    run_all("--features verbs --test simulation", |seed| run_on(Devices::Fake, seed));
}

fn run_all(again: &str, run: impl Fn(u64) -> Result<Outcome, String>) {
    let seeds = seeds();
    let (mut failed, mut totals) = (Vec::new(), [0; 4]);
    for seed in seeds.clone() {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(Ok(outcome)) => {
                let Outcome { requests, sessions, resubmitted, faults, .. } = outcome;
                for (total, one) in totals.iter_mut().zip([requests, sessions, resubmitted, faults]) {
                    *total += one;
                }
            }
            Ok(Err(what)) => failed.push((seed, what)),
            Err(_) => failed.push((seed, "panicked, see above".to_owned())),
        }
    }
    for (seed, what) in &failed {
        println!("seed {seed}: {what}");
        println!("  again: FRWR_SEED={seed} cargo test --release -p frwr-tests {again} -- --nocapture");
    }
    let ([requests, sessions, resubmitted, faults], seeds) = (totals, seeds.end - seeds.start);
    println!("{seeds} seeds: {requests} requests, {resubmitted} of them again, {sessions} sessions, {faults} faults");
    let numbers: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "seeds that failed: {numbers:?}");
}
