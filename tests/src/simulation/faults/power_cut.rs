//! The target's machine loses its power: its program and its device are gone at once, and what the disk had not brought to its medium.
//! Or it does so while it writes the file of its reservations.

use super::{ENDS, Effects, Fault};

/// Steps of writing that file.
const STEPS: u64 = 4;

pub(super) const FAULT: Fault = Fault {
    name: "power cut",
    strike: |world, random| {
        if let Some(paper) = world.paper.as_ref().filter(|_| !random.one_in(3)) {
            paper.ends_after(random.below(STEPS));
        } else if !world.cut_power() {
            return Effects::NONE;
        }
        ENDS() | Effects::BREACHES
    },
};
