//! What simulations share: seeds and what is drawn from them, the journal of a run, running many, shrinking one that failed, and what
//! goes wrong inside a software NIC.
//!
//! A simulation is a function of a [`Run`]: a seed, and what is left out of what the seed draws. Everything that could differ between
//! two runs comes from the seed, so that a run can be repeated, and repeated with less.

mod cut;
pub mod nic;
mod panics;
mod random;
mod report;
mod run;
mod seeds;
mod shrink;
mod trace;

pub use cut::{Cut, UnknownCut};
pub use random::Random;
pub use run::{Outcome, Run};
pub use seeds::Simulation;
pub use trace::TraceHash;
