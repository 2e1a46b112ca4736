//! Seeds of the simulation of two engines; `frwr_support::Simulation` says what the environment may ask for.

use frwr_tests::engine_world::ENGINE;

/// Seeds that found mistakes, of the engine or of the simulation, in runs that were longer than any default.
const FOUND: [u64; 13] =
    [459, 1017, 10_223, 30_675, 162_898, 225_112, 251_036, 300_466, 307_769, 321_868, 349_383, 517_701, 552_316];

#[test]
fn seeds_that_found_something_pass() {
    ENGINE.run_each(&FOUND);
}

#[test]
fn every_mix_of_options_and_faults_keeps_every_promise_and_ends() {
    ENGINE.run_all();
}
