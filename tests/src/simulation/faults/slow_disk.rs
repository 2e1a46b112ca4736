//! A disk takes its time for a while, perhaps longer than every time-out (fault 37).

use super::{Effects, Fault};

pub(super) const FAULT: Fault = Fault {
    name: "slow disk",
    strike: |world, random| {
        let (time, long) = world.spell(random);
        world.disk_well_at = world.now + world.spell(random).0;
        world.medium.borrow_mut().extra = time;
        (Effects::TIME_OUTS | Effects::ENDS).when(long)
    },
};
