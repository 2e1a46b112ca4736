//! Requests per second of one core and of two.
//!
//! `scaling turns WHAT ROUNDS` prints `ratio FIGURE`: what two cores are worth to a load, by turns of one core alone, the other
//! alone and both. WHAT is engine, or floor or wide, which only compute; `engine/wide` is the first beside the second in the same
//! rounds. `scaling engine|floor CORES REQUESTS` runs that many requests on each core at the same time and prints `per_second
//! FIGURE` of all together. It can be counted like `freelist`, too: instructions per request must not depend on the cores.

use std::process::ExitCode;

use frwr_benches::{arguments::main_of, scaling, turns};

fn main() -> ExitCode {
    main_of(
        "scaling turns engine|floor|wide|engine/wide ROUNDS, or scaling engine|floor CORES REQUESTS",
        |words, count| {
            if let ["turns", what] = words {
                return turns::run(what, count);
            }
            let [what, cores] = words;
            let cores = cores.parse().map_err(|error| format!("CORES \"{cores}\": {error}"))?;
            Ok(format!("per_second {:.0}", scaling::run(what, cores, count)?))
        },
    )
}
