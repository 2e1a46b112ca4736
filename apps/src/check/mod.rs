//! `frwr-check`: what this machine offers and what falls short, and what the engine would ask of a device.

mod advice;
mod command_line;
mod machine;
mod report;
mod sizing;

pub use crate::output::Output;
pub use advice::{Shortcoming, shortcomings};
pub use command_line::run;
pub use machine::{Clock, HugePages, Machine, RdmaDevice};
pub use report::{machine_json, machine_text};
pub use sizing::{SizingArguments, sizing_output};
