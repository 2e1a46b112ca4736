//! Mutants that were written by hand: the historic bugs of the field, and others of their kinds.
//!
//! Each is a condition in the code (`frwr_mempool::mutant!`) that only a build with `--cfg frwr_mutants` can switch on, by the environment
//! variable `FRWR_MUTANT`. What they are, and what kills them, stands in `tests/mutants/historic.toml`.

#[path = "../historic/mod.rs"]
mod historic;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Applies mutants one by one; a line for each says who killed it.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only compares the table with the code; builds nothing
    #[arg(long)]
    check: bool,
    /// Searches for seeds and runs every named test, instead of one test each and a simulation of those that die soon
    #[arg(long)]
    search: bool,
    /// Writes what a search found into the table
    #[arg(long, requires = "search")]
    record: bool,
    /// Seeds of each simulation that a search runs at most
    #[arg(long, default_value_t = historic::MOST_SEEDS)]
    seeds: u64,
    /// Seconds that one simulation may take for one mutant
    #[arg(long, default_value_t = historic::SEARCH_LIMIT_SECONDS)]
    limit: u64,
    /// Only mutants whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// The repository
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Where the build lies
    #[arg(long, default_value = "target/mutants/historic")]
    work: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { check, search, record, seeds, limit, only, root, work } = Arguments::parse();
    let wish = historic::Wish { check, search, record, seeds, limit, only: only.unwrap_or_default(), root, work };
    match historic::run(&wish) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
