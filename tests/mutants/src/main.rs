//! Mutants of the files that decide when a key is dead and when a slot, a credit or a queue entry is free.
//!
//! All of them are in one build, each behind a switch that a number in the environment throws, so that a thousand cost a thousand runs
//! of a few tests and not a thousand builds. `tests/run mutants generated` runs all, `tests/run mutants changed` those on changed lines.

mod blame;
mod build;
mod changed;
mod files;
mod git;
mod judge;
mod listed;
mod mutant;
mod pool;
mod process;
mod reach;
mod record;
mod report;
mod results;
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
    /// Only mutants on lines that were changed since all of their file were judged; without a record of that, since the commit before
    /// this one
    #[arg(long)]
    changed: bool,
    /// Minutes for judging, behind the build; what is not begun by then is not run, and said
    #[arg(long, default_value_t = 600.0, value_parser = minutes)]
    minutes: f64,
    /// Only files whose path contains this
    #[arg(long)]
    only: Vec<String>,
    /// Only judges whose name contains this; what survives them is not written down
    #[arg(long)]
    judge: Vec<String>,
    /// The repository
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Where the copy, its build and what became of mutants lie; a run that was cut off goes on where `results.jsonl` ends
    #[arg(long, default_value = "target/mutants")]
    work: PathBuf,
}

/// Most minutes of a run: a week.
const MOST_MINUTES: f64 = 7.0 * 24.0 * 60.0;

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.0..=MOST_MINUTES).contains(&minutes) => Ok(minutes),
        _ => Err(format!("there are 0 to {MOST_MINUTES} minutes")),
    }
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
