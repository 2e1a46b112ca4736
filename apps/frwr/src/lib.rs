//! What the program `frwr` is made of: the main job and its halves, the latency bench, the machine check.

#![forbid(unsafe_code)]

mod address;
pub mod check;
mod command_line;
pub mod diagnostics;
pub mod error;
mod failures;
pub mod job;
pub mod latency;
pub mod options;
pub mod output;
pub mod report;
pub mod result_file;
pub mod runner;
pub mod signals;
pub mod watch;

pub use command_line::{CommandLine, Task, mistaken};
pub use error::Error;
