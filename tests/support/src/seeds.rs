//! Running many seeds.

use crate::{Cut, Outcome, Run, panics::caught, report};
use core::fmt::Debug;
use core::str::FromStr;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

/// One seed in this many runs twice, and has to come to the same.
const TWICE: u64 = 10;

/// A simulation, and how many of its seeds are run unless somebody says otherwise.
///
/// The environment says otherwise: `FRWR_SEEDS` how many, `FRWR_FIRST_SEED` where to begin, `FRWR_SEED` which one alone, `FRWR_CUT` what
/// takes place of it ([`Cut`]), `FRWR_REQUESTS` how many requests have to be submitted before it ends, `FRWR_STOP_AT_FIRST` that the first
/// seed that fails is enough.
#[derive(Clone, Copy)]
pub struct Simulation {
    /// The name that `tests/run sim --of NAME` has for it.
    pub name: &'static str,
    /// Seeds that are run unless the environment says how many.
    pub seeds: u64,
    /// Whether the same seed comes to the same in every run.
    pub repeats: bool,
    /// What it does.
    pub run: fn(&Run) -> Result<(), String>,
}

fn variable<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|why| panic!("{name} is {text:?}: {why:?}")))
}

/// What the environment asks for.
struct Wish {
    seeds: Range<u64>,
    cut: Cut,
    /// Requests that are enough.
    requests: u64,
    stops_at_first: bool,
}

impl Wish {
    fn of(simulation: &Simulation) -> Self {
        let requests = variable("FRWR_REQUESTS");
        let first = variable("FRWR_FIRST_SEED").unwrap_or(1);
        let most = if requests.is_some() { u64::MAX - first } else { simulation.seeds };
        let seeds = match variable::<u64>("FRWR_SEED") {
            Some(seed) => seed..seed + 1,
            None => first..first + variable("FRWR_SEEDS").unwrap_or(most),
        };
        Self {
            seeds,
            cut: variable("FRWR_CUT").unwrap_or_default(),
            requests: requests.unwrap_or(u64::MAX),
            stops_at_first: std::env::var_os("FRWR_STOP_AT_FIRST").is_some(),
        }
    }
}

/// What many seeds came to.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) seeds: u64,
    pub(crate) total: Outcome,
    pub(crate) failed: Vec<(u64, String)>,
}

impl Simulation {
    /// Runs the seeds that the environment asks for, each on whichever core is free.
    ///
    /// # Panics
    /// A seed failed: the lowest of them is told, and shrunk.
    pub fn run_all(&self) {
        let wish = Wish::of(self);
        let mut tally = self.tally(&wish);
        tally.failed.sort();
        report::totals(self.name, &tally);
        let Some((seed, what)) = tally.failed.first().cloned() else { return };
        report::failure(self, seed, &wish.cut, &what);
        let numbers: Vec<u64> = tally.failed.iter().map(|(seed, _)| *seed).collect();
        panic!("{}: seeds that failed: {numbers:?}; the first one: {what}", self.name);
    }

    /// Runs these seeds, whatever the environment asks for: those that found something.
    ///
    /// # Panics
    /// One of them failed.
    pub fn run_each(&self, seeds: &[u64]) {
        for &seed in seeds {
            let (_, result) = self.seed(seed, &Cut::default());
            assert_eq!(result, Ok(()), "{}: seed {seed}", self.name);
        }
    }

    fn tally(&self, wish: &Wish) -> Tally {
        let (next, requests) = (AtomicU64::new(wish.seeds.start), AtomicU64::new(0));
        let (tally, stops) = (Mutex::new(Tally::default()), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while !stops.load(Relaxed) && requests.load(Relaxed) < wish.requests {
                        let seed = next.fetch_add(1, Relaxed);
                        if !wish.seeds.contains(&seed) {
                            break;
                        }
                        let (outcome, result) = self.seed(seed, &wish.cut);
                        requests.fetch_add(outcome.requests, Relaxed);
                        let mut tally = tally.lock().unwrap();
                        tally.seeds += 1;
                        tally.total.add(&outcome);
                        if let Err(what) = result {
                            stops.fetch_or(wish.stops_at_first, Relaxed);
                            tally.failed.push((seed, what));
                        }
                    }
                });
            }
        });
        tally.into_inner().unwrap()
    }

    fn seed(&self, seed: u64, cut: &Cut) -> (Outcome, Result<(), String>) {
        let (outcome, result) = self.once(&Run::new(seed, cut.clone(), false));
        if result.is_ok() && self.repeats && seed.is_multiple_of(TWICE) {
            let again = self.once(&Run::new(seed, cut.clone(), false));
            if again != (outcome.clone(), Ok(())) {
                return (outcome, Err("the same seed came to something else the second time".to_owned()));
            }
        }
        (outcome, result)
    }

    fn once(&self, run: &Run) -> (Outcome, Result<(), String>) {
        let result = caught(|| (self.run)(run));
        (run.outcome(), result)
    }

    /// Runs what `cut` leaves of a seed; a panic is a failure like any other.
    pub(crate) fn attempt(&self, run: &Run) -> Result<(), String> {
        self.once(run).1
    }
}
