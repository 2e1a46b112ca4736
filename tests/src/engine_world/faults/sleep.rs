//! A core, its Control, or who takes its events does nothing for a while (faults 28, 29).

use super::{Fault, Strike, some_party};
const STEPS: u64 = 60;

pub(super) const FAULT: Fault = Fault {
    name: "sleep",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let (steps, who) = (random.below(STEPS), random.below(3));
        let party = some_party(world, random);
        let sleeps = match who {
            0 => &mut party.sleeps,
            1 => &mut party.control_sleeps,
            _ => &mut party.taker_sleeps,
        };
        *sleeps = steps;
    }),
};
