//! The tests of `two_halves` with target and host as far apart as those of two processes.

#[path = "../two_halves/cores.rs"]
mod cores;
#[path = "../two_halves/endings.rs"]
mod endings;
#[path = "../two_halves/generator.rs"]
mod generator;
#[path = "../two_halves/harness.rs"]
mod harness;
#[path = "../two_halves/moves.rs"]
mod moves;
mod network;
#[path = "../two_halves/serving.rs"]
mod serving;

use harness::*;
