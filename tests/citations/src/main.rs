//! What `tests/run lint` asks of all comments and documents: that they cite only what is in the repository. A line for each citation that
//! leads nowhere, and exit code 1 if there is one.
//!
//! Judged are documents (`.md`) and comments of sources (`.rs`, `.c`, `.h`, `.sh`, `.toml`, `.py`, and files without an ending that begin
//! with `#!`). Names of documents are judged in string literals as well, since programs tell them to people.

mod comments;
mod exceptions;
mod ids;
mod judge;
mod tree;

use judge::Judge;
use std::{path::Path, process::ExitCode};
use tree::Tree;

fn main() -> ExitCode {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let tree = match Tree::of(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("the files of the repository: {error}");
            return ExitCode::FAILURE;
        }
    };
    let found = Judge::new(&tree).all();
    let (told, owed) = exceptions::sorted(found);
    told.iter().for_each(|line| println!("{line}"));
    if owed > 0 {
        println!("{owed} more are listed in tests/citations/src/exceptions.rs, for their owners to mend");
    }
    if told.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
