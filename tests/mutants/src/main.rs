//! Mutants of the files that decide when a key is dead and when a slot, a credit or a queue entry is free.
//!
//! All of them are in one build, each behind a switch that a number in the environment throws, so that a thousand cost a thousand runs
//! of a few tests and not a thousand builds. `tests/run mutants generated` runs all, `tests/run mutants changed` those on changed lines.

mod blame;
mod build;
mod changed;
mod files;
mod judge;
mod listed;
mod mutant;
mod pool;
mod process;
mod reach;
mod report;
mod rewrite;
mod run;
mod switch;
mod tree;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs generated mutants; the last lines say "ok: " or "FAILED: " of each file.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only mutants on lines that were changed since the last whole run was recorded
    #[arg(long)]
    changed: bool,
    /// Minutes for judging, behind the build; what is not begun by then is not run, and said
    #[arg(long, default_value_t = 600.0)]
    minutes: f64,
    /// Only files whose path contains this; nothing is recorded then
    #[arg(long)]
    only: Vec<String>,
    /// The repository
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Where the copy and its build lie
    #[arg(long, default_value = "target/mutants")]
    work: PathBuf,
}

fn main() -> ExitCode {
    match run::run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
