//! A core, or a Control, does nothing for a while, perhaps for longer than every deadline (fault 28).

use super::{ENDS, Fault};

pub(super) const FAULT: Fault = Fault {
    name: "stall",
    strike: |world, random| {
        let (time, long) = world.spell(random);
        let party = random.below(world.parties.len() as u64) as usize;
        // Who is frozen stays so.
        let asleep_until = &mut world.parties[party].asleep_until;
        *asleep_until = (*asleep_until).max(world.now + time);
        ENDS().when(long)
    },
};
