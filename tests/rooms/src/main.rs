//! What `tests/run lint` asks of how files name one another: that no more than two of them name each other in a circle, in each crate
//! that is embedded or run. Lines for each larger circle, with the names that tie it, and exit code 1 if there is one.
//!
//! A file names another one where its code, without tests, has a path that leads to something that is defined there, by whatever module
//! hands it on. That a module hands on what a file of its defines ties nothing, and neither does what a file names of the modules that it
//! is in, with which it is one thing in several files. What methods return is not seen.

mod circles;
mod modules;
mod names;

use modules::Modules;
use std::{path::Path, process::ExitCode};

/// Files that may name each other: two types, or a type and what is made of it, may be each other's definition.
const MOST: usize = 2;

/// Of the crates that are judged.
const ROOTS: [&str; 5] =
    ["mempool/src/lib.rs", "reactor/src/lib.rs", "engine/src/lib.rs", "apps/nvmf/src/lib.rs", "apps/frwr/src/lib.rs"];

fn main() -> ExitCode {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut found = 0;
    for root in ROOTS {
        let modules = match Modules::read(repository, Path::new(root)) {
            Ok(modules) => modules,
            Err(error) => {
                eprintln!("{root}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let arrows = names::arrows(&modules);
        for circle in circles::of(&arrows).into_iter().filter(|circle| circle.len() > MOST) {
            found += 1;
            println!("{root}: {} files name each other in a circle; at most {MOST} may:", circle.len());
            let inside = |file: &usize| circle.contains(file);
            for ((from, to), what) in arrows.iter().filter(|((from, to), _)| inside(from) && inside(to)) {
                let what: Vec<_> = what.iter().map(String::as_str).collect();
                println!("    {} -> {}: {}", modules.file(*from), modules.file(*to), what.join(", "));
            }
        }
    }
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
