//! The whole engine, host and target, over every provider: each profile of the software NIC, or the real device that the
//! environment names (`harness/subject.rs`). What needs scripted faults is in `engine_*.rs`.

#[path = "../harness/mod.rs"]
mod harness;

mod cancellation;
mod cores;
mod credits;
mod cycles;
mod ends;
#[cfg(feature = "verbs")]
mod kept;
mod requests;
mod rig;
mod shared_receives;
