//! The clock of one core jumps, forwards or back (fault 40).

use super::{Fault, Strike, some_party};
use crate::engine_world::world::{LONG_TICK, PATIENCE};
use core::time::Duration;

/// The longest jump, as a power of two of microseconds: 8 s, longer than any drain may take.
const LONGEST: u64 = 24;
/// How far a clock gets ahead in all, and so how far it may go back: what waits for it waits for less than the calm is patient.
const FURTHEST: Duration = Duration::from_secs(16);

const _: () = assert!(
    FURTHEST.as_millis() < LONG_TICK.as_millis() * PATIENCE as u128 / 2,
    "a calm has room for a drain behind the longest way back"
);

pub(super) const FAULT: Fault = Fault {
    name: "clock jump",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let jump = Duration::from_micros(1 << random.below(LONGEST));
        let back = random.one_in(2);
        let party = some_party(world, random);
        party.ahead = if back { party.ahead.saturating_sub(jump) } else { (party.ahead + jump).min(FURTHEST) };
    }),
};
