//! p99.9 of a verified load while somebody asks for its target's metrics ten times a second and reads no answer, by
//! what it is without.
//!
//! `metered one|two PAIRS` prints `ratio FIGURE`, the median of so many pairs of runs of a second: with the cores of
//! host and target on one processor, asleep where nothing is to do, so that the other one is for who asks; or with a
//! processor each. The program `frwr` lies beside it.

use std::process::ExitCode;

use frwr_benches::{arguments::main_of, metered::run};

fn main() -> ExitCode {
    main_of("metered one|two PAIRS", |[cores], pairs| run(cores, pairs))
}
