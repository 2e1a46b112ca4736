//! What tests share.
//!
//! * [`engine_harness`]: two engines that are stepped by hand, recorded and scripted; with feature `nvmf`, `nvmf_harness`: a host and a
//!   target of NVMe over Fabrics, and either beside a peer that does anything, and
//!   `storage_harness`: storages of all kinds, and disks that fail. They are a library, and not a module of each test
//!   binary, because a binary that compiles and instantiates them by itself takes five to eight times as long to build.
//! * With feature `changes`, `changes`: a target in a process of its own that is changed at random, and what should hold of it then.
//! * What simulations are made of: seeds and what is drawn from them, the journal of a run, running many, shrinking one that failed, and
//!   what goes wrong inside a software NIC.
//!
//! A simulation is a function of a [`Run`]: a seed, and what is left out of what the seed draws. Everything that could differ between
//! two runs comes from the seed, so that a run can be repeated, and repeated with less.

#[cfg(feature = "changes")]
pub mod changes;
mod cut;
#[allow(missing_docs, reason = "steps of tests, which their names say")]
pub mod engine_harness;
pub mod nic;
#[cfg(feature = "nvmf")]
#[allow(missing_docs, reason = "steps of tests, which their names say")]
pub mod nvmf_harness;
pub mod pace;
mod panics;
mod random;
mod report;
mod run;
mod seeds;
mod shrink;
#[cfg(feature = "nvmf")]
#[allow(missing_docs, reason = "steps of tests, which their names say")]
pub mod storage_harness;
mod trace;

pub use cut::{Cut, UnknownCut};
pub use random::Random;
pub use run::{Outcome, Run};
pub use seeds::Simulation;
pub use trace::TraceHash;
