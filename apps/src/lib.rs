//! NVMe-oF host and target over `frwr-engine`, and what their programs share.

// `storage::file::sys` is its one room.
#![deny(unsafe_code)]

mod address;
pub mod check;
mod failures;
pub mod host;
pub mod job;
pub mod latency;
pub mod nvmf;
pub mod output;
pub mod result_file;
pub mod runner;
pub mod signals;
mod stood_still;
pub mod storage;
pub mod target;
pub mod watch;
