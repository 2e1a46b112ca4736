//! `benches/run`: frwr beside what people would use instead, measured in one run.
//!
//! What is measured is data (`rows`): quantities of programs, and goals. Pure rooms judge and print; `programs`, `counting`,
//! `timing` and `guest` start processes. Nothing here is called by a library crate.

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

pub use command_line::run;
