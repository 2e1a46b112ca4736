//! The seeded simulation: hosts, target, engines, Controls and software NICs as they are shipped, stepped on one thread in
//! virtual time, with everything that could differ between two runs drawn from one 64-bit seed.
//!
//! A run has a phase in which faults happen and one in which they have stopped and everything must end. What is checked
//! after every step: each request ends once, with the data of the right version of the right block, whatever was lost with the power;
//! every key in the device's own table covers bytes of a request in flight, with the right that it needs; no MR descriptor is lost; no
//! queue is overrun; memory of requests that ended stays as it was, and so does what is sent; and no time-out, Abort, end of a session
//! or repetition happens that no fault of the run explains. At the end nothing is open, held, queued or unaccounted for.

mod block;
mod desk;
mod disk;
mod effects;
mod faults;
mod hosts;
mod ledger;
mod nic;
mod oracle;
mod pairs;
mod paper;
mod party;
mod reservations;
mod scenario;
mod targets;
mod visitor;
mod world;

use frwr_support::Run;
pub use nic::Devices;
use world::World;

/// Runs one seed over software NICs.
///
/// # Errors
/// What was wrong, and where everything stood.
pub fn run(run: &Run) -> Result<(), String> {
    run_on(Devices::Soft, run)
}

/// Runs one seed of hosts that register, reserve and preempt, and write what they have compared, over software NICs. What hosts are
/// answered, told and let do is as a model has it; of one that is shut out nothing reaches the disk.
///
/// # Errors
/// As [`run`].
pub fn run_reserved(run: &Run) -> Result<(), String> {
    run_world(World::new(run, Devices::Soft, true))
}

/// Runs one seed on devices of a kind. Only software NICs do the same in every run.
///
/// # Errors
/// As [`run`].
pub fn run_on(devices: Devices, run: &Run) -> Result<(), String> {
    run_world(World::new(run, devices, false))
}

fn run_world(world: Result<World<'_>, String>) -> Result<(), String> {
    let mut world = world.map_err(|error| format!("not set up: {error}"))?;
    let result = world.storm().map_err(|error| format!("in the storm: {error}"));
    let result = result.and_then(|()| world.calm().map_err(|error| format!("in the calm: {error}")));
    result.map_err(|error| format!("{error}\n{}", world.describe()))
}
