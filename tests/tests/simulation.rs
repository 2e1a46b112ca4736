//! Seeds of the simulation. FRWR_SEEDS says how many (default 300), FRWR_SEED which one alone, FRWR_FIRST_SEED where to
//! begin.

#[cfg(feature = "verbs")]
use frwr_tests::simulation::{Devices, run_on};
use frwr_tests::simulation::{Outcome, run};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const SEEDS: u64 = 300;
/// One seed in this many runs twice.
const TWICE: u64 = 10;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: must be a number")))
}

/// The seeds that the environment asks for.
fn seeds() -> Range<u64> {
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

/// What the seeds came to.
#[derive(Default)]
struct Tally {
    failed: Vec<(u64, String)>,
    /// Requests, sessions, requests submitted again, faults.
    totals: [u64; 4],
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Result<Outcome, String>) {
        match outcome {
            Ok(Outcome { requests, sessions, resubmitted, faults, .. }) => {
                for (total, one) in self.totals.iter_mut().zip([requests, sessions, resubmitted, faults]) {
                    *total += one;
                }
            }
            Err(what) => self.failed.push((seed, what)),
        }
    }
}

/// Each seed has a world of its own, so every core takes the next one that is left.
fn tally(seeds: Range<u64>, run: impl Fn(u64) -> Result<Outcome, String> + Sync) -> Tally {
    let (next, tally) = (AtomicU64::new(seeds.start), Mutex::new(Tally::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let take = || Some(next.fetch_add(1, Relaxed)).filter(|seed| seeds.contains(seed));
                while let Some(seed) = take() {
                    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
                    let outcome = outcome.unwrap_or_else(|_| Err("panicked, see above".to_owned()));
                    tally.lock().unwrap().add(seed, outcome);
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap();
    tally.failed.sort();
    tally
}

fn run_all(again: &str, run: impl Fn(u64) -> Result<Outcome, String> + Sync) {
    let seeds = seeds();
    let Tally { failed, totals } = tally(seeds.clone(), run);
    for (seed, what) in &failed {
        println!("seed {seed}: {what}");
        println!("  again: FRWR_SEED={seed} cargo test --release -p frwr-tests {again} -- --nocapture");
    }
    let ([requests, sessions, resubmitted, faults], seeds) = (totals, seeds.end - seeds.start);
    println!("{seeds} seeds: {requests} requests, {resubmitted} of them again, {sessions} sessions, {faults} faults");
    let numbers: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(failed.is_empty(), "seeds that failed: {numbers:?}");
}
