//! The clock of one core jumps, forwards or back (fault 40).

use super::{Fault, Strike, some_party};
use core::time::Duration;

/// The longest jump, as a power of two of microseconds: 8 s, longer than any drain may take.
const LONGEST: u64 = 24;

pub(super) const FAULT: Fault = Fault {
    name: "clock jump",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let jump = Duration::from_micros(1 << random.below(LONGEST));
        let back = random.one_in(2);
        let party = some_party(world, random);
        party.ahead = if back { party.ahead.saturating_sub(jump) } else { party.ahead + jump };
    }),
};
