//! FRWR for polled-mode user space: memory is opened to a peer by a work request that is posted in front of the message
//! that needs it, and closed by another one before the caller hears of completion.
//!
//! The engine takes completions and the time, and emits chains of work requests. It never reads a clock, never sleeps
//! and never allocates after start-up; whoever owns a poll loop calls `Engine::poll` and `Engine::flush` from it.
//! `docs/design.md` says which room may touch what.

#![forbid(unsafe_code)]
#[cfg(not(target_os = "linux"))]
compile_error!("frwr runs on Linux only: pinned cores, hugepages and RDMA devices are reached through its interfaces.");

pub mod gather;
pub mod mr;
pub mod provider;
pub mod signal;
pub mod sizing;
