//! A disk fails operations for a while, some of them in the middle (fault 37).

use super::{Effects, Fault};

pub(super) const FAULT: Fault = Fault {
    name: "failing disk",
    strike: |world, random| {
        let (time, _) = world.spell(random);
        world.disk_well_at = world.now + time;
        if let Some(paper) = &world.paper {
            paper.fails(1 + random.below(30));
        }
        let mut medium = world.medium.borrow_mut();
        (medium.fails_one_in, medium.is_short) = (1 + random.below(30), random.one_in(2));
        // What may be tried again is, and then the caller is told.
        Effects::ERRORS | Effects::REPEATS
    },
};
