//! Requests per second of one core and of two.
//!
//! `scaling engine|floor CORES REQUESTS` runs that many requests on each core at the same time and prints `per_second FIGURE`
//! of all together. It can be counted like `freelist`, too: instructions per request must not depend on the cores.

use std::process::ExitCode;

use frwr_benches::{arguments::main_of, scaling::run};

fn main() -> ExitCode {
    main_of("scaling engine|floor CORES REQUESTS", |[what, cores], requests| {
        let cores = cores.parse().map_err(|error| format!("CORES \"{cores}\": {error}"))?;
        Ok(format!("per_second {:.0}", run(what, cores, requests)?))
    })
}
