//! Instructions of one index, request slot or idle MR that is taken and given back.
//!
//! `freelist one|slot|idle|bulk|slice|return|return-slice lifo|fifo ITERATIONS` runs that many. Count it with callgrind at two
//! numbers of iterations; divide the difference by the iterations and by the objects of each, which are printed.

use std::process::ExitCode;

use frwr_benches::arguments::main_of;
use frwr_benches::freelist::{Operation, parse_order, run};

fn main() -> ExitCode {
    main_of(
        "freelist one|slot|idle|bulk|slice|return|return-slice lifo|fifo ITERATIONS",
        |[operation, order], iterations| {
            let (operation, order) = (operation.parse::<Operation>()?, parse_order(order)?);
            let free = run(operation, order, iterations)?;
            Ok(format!("{iterations} iterations of {} objects, {free} free at the end", operation.indices()))
        },
    )
}
