//! Seeds of the simulation of hosts and a target; [`Simulation`] says what the environment can ask for.

use frwr_support::Simulation;
#[cfg(feature = "verbs")]
use frwr_tests::simulation::{Devices, run_on};
use frwr_tests::simulation::{run, run_reserved};

/// Few, since an ordinary test run is not optimised; `tests/run sim` runs many more.
const SEEDS: u64 = 60;
/// The same of those with reservations, in which all that is possible is looked at.
const SEEDS_WITH_RESERVATIONS: u64 = 20;
/// Of them through the verbs provider, which only an optimised run has.
#[cfg(feature = "verbs")]
const SEEDS_THROUGH_VERBS: u64 = 200;

#[test]
fn every_seed_keeps_every_promise_and_ends() {
    Simulation { name: "nvme", seeds: SEEDS, repeats: true, run }.run_all();
}

/// The same with hosts that reserve the namespace, and compare and write.
#[test]
fn reservations_and_pairs_are_what_the_model_says() {
    Simulation { name: "reservations", seeds: SEEDS_WITH_RESERVATIONS, repeats: true, run: run_reserved }.run_all();
}

/// The same through the verbs provider: windows, and lists as on ConnectX. Its devices number their objects over all tests of a
/// process, so that no two runs are the same.
#[cfg(feature = "verbs")]
#[test]
fn every_seed_keeps_every_promise_through_the_verbs_provider() {
    let run = |run: &frwr_support::Run| run_on(Devices::Fake, run);
    Simulation { name: "verbs", seeds: SEEDS_THROUGH_VERBS, repeats: false, run }.run_all();
}
