//! `frwr-reactor`: the main job and its two halves, from their command lines to their reports.

mod arguments;
mod command_line;
mod cores;
mod device_arguments;
mod error;
mod host_side;
mod job_plan;
mod launch;
mod load;
mod load_command;
mod load_file;
mod main_loop;
mod outcome;
mod plan;
mod progress;
mod rdma;
mod report;
mod serve;
mod serve_command;
mod serve_report;
mod start;
mod target_side;
mod trace;

pub use arguments::{CommonArguments, JobArguments, MAX_FILE_BYTES, MAX_QUEUE_DEPTH, MAX_RUNTIME_SECONDS, Pages};
pub use command_line::{Arguments, CommandLine, Config, Inject, Task};
pub use device_arguments::{DeviceArguments, RdmaDeviceConfig};
pub use error::{RunError, SetupError};
pub use launch::run;
pub use load::load;
pub use load_command::{LoadArguments, LoadConfig, MAX_IO_TIMEOUT_SECONDS, MAX_RECONNECTS};
pub use rdma::{load_on_rdma, serve_on_rdma};
pub use report::{Compared, CoreReport, MemoryReport, RunReport};
pub use serve::serve;
pub use serve_command::{MAX_HOSTS, ServeArguments, ServeConfig};
pub use serve_report::ServeReport;
