//! `benches/run`: frwr beside what people would use instead, measured in one run.
//!
//! What is measured is data (`rows`): quantities of programs, and goals. Pure rooms judge and print; `programs`, `counting`,
//! `timing` and `guest` start processes. What is measured lies in the library beside this, and holds none of it.

mod callgrind;
mod command_line;
mod counting;
mod documents;
mod figure;
mod goal;
mod guard;
mod guarded_rows;
mod guest;
mod judge;
mod machine;
mod measuring;
mod plot;
mod programs;
mod quantity;
mod report;
mod result_files;
mod rows;
mod standard_output;
mod table;
mod timing;

use std::process::ExitCode;

fn main() -> ExitCode {
    command_line::run(std::env::args_os())
}
