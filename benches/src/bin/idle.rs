//! Instructions of a reactor's iteration that finds nothing.
//!
//! `idle REACTORS QUEUES|engine ITERATIONS` steps one of some reactors, with one poller that polls that many empty completion queues,
//! or polls and flushes an idle engine, which has two; to be counted like `freelist`. Each further queue, or inbox of another reactor: the difference of two numbers of them.

use std::process::ExitCode;

use frwr_benches::{
    arguments::main_of,
    idle::{run, run_engine},
};

fn main() -> ExitCode {
    main_of("idle REACTORS QUEUES|engine ITERATIONS", |[reactors, queues], iterations| {
        let number = |name, text: &str| text.parse().map_err(|error| format!("{name} \"{text}\": {error}"));
        let reactors = number("REACTORS", reactors)?;
        let idle = match queues {
            "engine" => run_engine(reactors, iterations)?,
            queues => run(reactors, number("QUEUES", queues)?, iterations)?,
        };
        Ok(format!("{iterations} iterations of 1 objects, {idle} found nothing"))
    })
}
