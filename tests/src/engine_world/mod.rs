//! Two engines as no application drives them, by seed: several connections at once, any mix of options and sizes down to one of each,
//! requests of several chunks with differing rights, inline memory, cancels, standalone keys, transfers of lists in both directions,
//! callers that take no events, cores and Controls that sleep, devices that go wrong inside.
//!
//! Every step is followed by checks: the promises (exactly once, fence, hold, conservation, credits, least right with the
//! device's own table), every byte of every request, and that nothing ended a connection but a fault that was drawn. A storm is
//! followed by a calm in which everything must end.

mod acts;
mod answers;
mod checks;
mod events;
mod faults;
mod flight;
mod host_events;
mod jobs;
mod party;
mod pattern;
mod protocol;
mod scenario;
mod world;

use frwr_support::{Run, Simulation};

/// Seeds that an ordinary test run takes.
const SEEDS: u64 = 300;

/// The simulation of two engines.
pub const ENGINE: Simulation = Simulation { name: "engine", seeds: SEEDS, repeats: true, run };

fn run(run: &Run) -> Result<(), String> {
    let mut world = world::World::new(run)?;
    world.storm();
    world.calm();
    Ok(())
}
