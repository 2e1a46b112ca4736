//! A core's clock jumps back: its program takes its time for what it was until it has caught up (fault 40).

use super::{ENDS, Fault};

pub(super) const FAULT: Fault = Fault {
    name: "clock behind",
    strike: |world, random| {
        let (time, long) = world.spell(random);
        let party = random.below(world.parties.len() as u64) as usize;
        world.parties[party].behind += time;
        // What it owes to others is late by as much.
        ENDS().when(long)
    },
};
