//! Instructions of one index that is taken and given back.
//!
//! `freelist-cost one|bulk|return lifo|fifo ITERATIONS` runs that many. Count it with callgrind at two numbers of iterations;
//! divide the difference by the iterations and by the indices of each, which are printed.

use std::process::ExitCode;

use frwr_benches::freelist::{Operation, parse_order, run};

fn main() -> ExitCode {
    match measured(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("freelist-cost: {error}");
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
