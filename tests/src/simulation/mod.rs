//! The seeded simulation: host, target, engines, Controls and software NICs as they are shipped, stepped on one thread in
//! virtual time, with everything that could differ between two runs drawn from one 64-bit seed.
//!
//! A run has a phase in which faults happen and one in which they have stopped and everything must end. What is checked
//! after every step: each request ends once, with the data of the right version of the right block; the device's own key
//! table has no more bytes open than requests in flight asked for; no MR descriptor is lost; no queue is overrun; memory of
//! requests that ended stays as it was. At the end nothing is open, held, queued or unaccounted for.

mod disk;
mod faults;
mod ledger;
mod nic;
mod party;
mod random;
mod scenario;
mod world;

pub use nic::Devices;

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of every step, post, completion and counter.
    pub trace: u64,
    /// Requests that ended.
    pub requests: u64,
    /// Sessions that became ready.
    pub sessions: u64,
    /// Requests submitted once more after their connection had ended.
    pub resubmitted: u64,
    /// Faults that happened.
    pub faults: u64,
}

/// Runs one seed.
///
/// # Errors
/// What was wrong, and the scenario.
pub fn run(seed: u64) -> Result<Outcome, String> {
    run_on(Devices::Soft, seed)
}

/// Runs one seed on devices of a kind. Only software NICs do the same in every run.
///
/// # Errors
/// As [`run`].
pub fn run_on(devices: Devices, seed: u64) -> Result<Outcome, String> {
    let mut world = world::World::new(seed, devices).map_err(|error| format!("not set up: {error}"))?;
    let result = world.storm().map_err(|error| format!("in the storm: {error}"));
    let result = result.and_then(|()| world.calm().map_err(|error| format!("in the calm: {error}")));
    match result {
        Ok(()) => Ok(world.outcome()),
        Err(error) => Err(format!("{error}\n{}", world.describe())),
    }
}

/// FNV-1a of bytes, word by word.
fn digest(bytes: &[u8]) -> u64 {
    let mut hash = random::TraceHash::new();
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash.add(u64::from_le_bytes(word));
    }
    hash.0
}
