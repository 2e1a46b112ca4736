//! A core, or a Control, does nothing for a while, perhaps for longer than every deadline (fault 28).

use super::{ENDS, Fault};

pub(super) const FAULT: Fault = Fault {
    name: "stall",
    strike: |world, random| {
        let (time, long) = world.spell(random);
        let party = random.below(world.parties.len() as u64) as usize;
        world.parties[party].asleep_until = world.now + time;
        ENDS().when(long)
    },
};
