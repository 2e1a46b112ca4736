//! NVMe-oF host and target over `frwr-engine`, and what their programs share.

#![forbid(unsafe_code)]

pub mod check;
pub mod host;
pub mod nvmf;
pub mod storage;
pub mod target;
