//! `soak [--seconds N] [--seed X]`: hosts that come to a target and leave it in every way, over the software NIC (`frwr_tests::soak`).
//! A line every ten seconds, and one at the end. Exit code 1, and what it was, where something was violated.

use core::time::Duration;
use frwr_tests::soak::{Options, run};
use std::process::ExitCode;

#[global_allocator]
static COUNTING: frwr_allocations::Counting = frwr_allocations::Counting;

/// Unless it is said otherwise: enough for memory to be judged.
const SECONDS: u64 = 60;

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    println!("soak: seed {}, {} s", options.seed, options.runtime.as_secs());
    match run(options, &mut |line| println!("{line}")) {
        Ok(summary) => {
            println!("soak: passed: {summary}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("soak: VIOLATED: {error}");
            println!("again: tests/run soak --seed {}", options.seed);
            ExitCode::from(1)
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options { runtime: Duration::from_secs(SECONDS), seed: 1 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a number behind it"))?;
        let number =
            value.parse().map_err(|_| format!("{name} {value}: no number; give one from 0 to {}", u64::MAX))?;
        match name.as_str() {
            "--seconds" => options.runtime = Duration::from_secs(number),
            "--seed" => options.seed = number,
            _ => return Err(format!("{name}: there are --seconds and --seed")),
        }
    }
    Ok(options)
}
