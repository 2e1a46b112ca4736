//! What the program `frwr` is made of: the main job and its halves, the latency bench, the machine check.

#![forbid(unsafe_code)]

mod about;
mod address;
pub mod check;
mod command_line;
mod control;
pub mod ctl;
pub mod diagnostics;
pub mod error;
mod failures;
pub mod job;
pub mod latency;
pub mod options;
pub mod output;
mod plot;
pub mod report;
pub mod result_file;
mod result_files;
pub mod runner;
mod schedule;
mod service;
pub mod signals;
pub mod top;
pub mod watch;

pub use about::About;
pub use command_line::{CommandLine, Task, completions, manual, mistaken};
pub use error::Error;
