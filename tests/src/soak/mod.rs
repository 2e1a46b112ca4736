//! Hosts that come to a target and leave it in every way there is, for as long as one likes: real reactors on real threads, over the
//! software NIC. After each round, in which every host came and went once, nobody is there, and nothing of them may be left: no key, slot,
//! receive or buffer, no thread, no file descriptor, no memory.
//!
//! What is drawn follows from the seed alone: which NICs, what a host asks for, how it ends, and behind how many requests. How threads
//! interleave does not.

mod audit;
mod host;
mod host_core;
mod ledger;
mod plan;
mod process;
mod round;
mod summary;
mod target;

pub use summary::Summary;

use core::time::Duration;
use frwr_reactor::Clock;
use ledger::Ledger;
use round::Round;
use summary::Line;

/// Hosts at a time: more than there are cores for in most places, so that threads are interrupted anywhere.
const HOSTS: usize = 3;
/// Between two lines.
const LINE_PERIOD: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long; the round that is under way then ends.
    pub runtime: Duration,
    /// Draws everything.
    pub seed: u64,
}

/// Rounds until the time is over; each line goes to `say`.
///
/// # Errors
/// What was violated, and in which round.
pub fn run(options: Options, say: &mut dyn FnMut(&str)) -> Result<Summary, String> {
    let clock = Clock::system();
    let target = target::Running::start(options.seed, &clock)?;
    let mut summary = Summary::default();
    let mut ledgers: Vec<_> = (0..HOSTS as u64).map(|host| Ledger::new(options.seed, host)).collect();
    // The target's own thread and what it holds are there from here to the end.
    let empty = process::Usage::read()?;
    let (mut line, mut round) = (Line::begin(clock.now()), 0);
    while clock.now() < options.runtime {
        let context = |error| format!("seed {}, round {round}: {error}", options.seed);
        let hosts = Round { seed: options.seed, number: round, clock: &clock, target: &target };
        ledgers = hosts.run(ledgers, &mut summary).map_err(context)?;
        target.is_empty().map_err(context)?;
        process::same_as(empty).map_err(context)?;
        summary.add_usage(process::Usage::read()?);
        if let Some(text) = line.next(clock.now(), LINE_PERIOD, &summary) {
            say(&text);
        }
        round += 1;
    }
    target.end()?;
    summary.is_flat().map_err(|error| format!("seed {}: {error}", options.seed))?;
    Ok(summary)
}
