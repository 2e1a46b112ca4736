//! Instructions that it costs a core with work that it may sleep (goal A26), and any core that its figures are read
//! (A27).
//!
//! `sleep-cost spin|sleep BATCH N` reads N blocks over the software NIC, `BATCH` at a time, with host and target on one reactor
//! that polls on or may sleep. `sleep-cost idle spin|sleep N` makes N iterations that find nothing, before it would
//! sleep. `sleep-cost watched alone|read|readings N` makes N iterations that find nothing, the same with a reading each
//! tenth, or only as many readings. Count them with callgrind at two numbers and divide the difference.
#![allow(clippy::print_stdout, reason = "a program that prints what it did")]

use frwr_benches::{
    asleep,
    watched::{self, What},
};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    if let ["watched", what, count] = arguments[..] {
        return watched(what, count.parse()?);
    }
    let (statistics, count) = match arguments[..] {
        ["idle", how @ ("spin" | "sleep"), count] => (asleep::idle(how == "sleep", count.parse()?)?, count),
        [how @ ("spin" | "sleep"), batch, count] => {
            (asleep::load(how == "sleep", batch.parse()?, count.parse()?)?, count)
        }
        _ => {
            let usage = "usage: sleep-cost spin|sleep BATCH READS, sleep-cost idle spin|sleep ITERATIONS, or sleep-cost \
                         watched alone|read|readings ITERATIONS";
            return Err(usage.into());
        }
    };
    let (iterations, sleeps) = (statistics.iterations, statistics.sleeps);
    println!("{count} iterations of 1 read or look, in {iterations} of the reactor, which slept {sleeps} times");
    Ok(())
}

fn watched(what: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let what = match what {
        "alone" => What::Alone,
        "read" => What::Read,
        "readings" => What::Readings,
        _ => return Err("usage: sleep-cost watched alone|read|readings ITERATIONS".into()),
    };
    watched::run(what, count)?;
    println!("{count} iterations of 1 look");
    Ok(())
}
