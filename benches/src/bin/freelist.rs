//! Runs one operation of the freelist so often, for counting its instructions:
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/freelist bulk lifo 1000`
//!
//! The difference of two runs, divided by the difference of their iterations and by the indices per iteration (which is
//! printed), is the cost of one index.

use std::process::ExitCode;

use frwr_benches::freelist::{Operation, parse_order, run};

fn main() -> ExitCode {
    match measured(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("freelist: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(arguments: &[String]) -> Result<String, String> {
    let [operation, order, iterations] = arguments else {
        return Err("three arguments are needed: one|bulk|return lifo|fifo ITERATIONS".to_owned());
    };
    let (operation, order) = (operation.parse::<Operation>()?, parse_order(order)?);
    let iterations = iterations.parse().map_err(|error| format!("\"{iterations}\": {error}"))?;
    let free = run(operation, order, iterations);
    Ok(format!("{iterations} iterations of {} indices, {free} free at the end", operation.indices()))
}
