//! Seeds of the simulation of two engines; `frwr_support::Simulation` says what the environment may ask for.

use frwr_tests::engine_world::ENGINE;

#[test]
fn every_mix_of_options_and_faults_keeps_every_promise_and_ends() {
    ENGINE.run_all();
}
