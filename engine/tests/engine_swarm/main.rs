//! Two engines as no application drives them: several connections at once, any mix of options and sizes down to one of each,
//! callers that take no events, cores and Controls that sleep, devices that refuse to destroy, by seed. Each storm is followed by a
//! calm in which everything must end (promises Exactly once, Fence, Hold, Conservation).
//!
//! FRWR_SEEDS says how many, FRWR_SEED which one alone, FRWR_FIRST_SEED where to begin.

#[path = "../engine_harness/mod.rs"]
mod engine_harness;

mod chance;
mod swarm;

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

const SEEDS: u64 = 150;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn every_mix_of_options_and_faults_ends_every_request_once_behind_its_fence() {
    let seeds = match number("FRWR_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FRWR_FIRST_SEED").unwrap_or(1);
            first..first + number("FRWR_SEEDS").unwrap_or(SEEDS)
        }
    };
    // Each seed has a world of its own, so every core takes the next one that is left.
    let next = AtomicU64::new(seeds.start);
    let (ended, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let take = || Some(next.fetch_add(1, Relaxed)).filter(|seed| seeds.contains(seed));
                while let Some(seed) = take() {
                    match catch_unwind(|| swarm::run(seed)) {
                        Ok(requests) => {
                            ended.fetch_add(requests, Relaxed);
                        }
                        Err(_) => {
                            println!("seed {seed} failed; again by FRWR_SEED={seed}");
                            failed.lock().unwrap().push(seed);
                        }
                    }
                }
            });
        }
    });
    println!("{} requests", ended.into_inner());
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}
