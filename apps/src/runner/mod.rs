//! `frwr-reactor`: the main job, from its command line to its report.

mod command_line;
mod cores;
mod error;
mod host_side;
mod launch;
mod load_file;
mod main_loop;
mod outcome;
mod plan;
mod progress;
mod report;
mod target_side;
mod trace;

pub use command_line::{Arguments, Config, Inject, MAX_FILE_BYTES, MAX_QUEUE_DEPTH, MAX_RUNTIME_SECONDS, Pages};
pub use error::{RunError, SetupError};
pub use launch::run;
pub use report::{CoreReport, MemoryReport, RunReport};
