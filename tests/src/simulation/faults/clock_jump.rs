//! A core's clock jumps ahead (fault 40). What others owe it counts only as far as it polled meanwhile; what it owes to others is due.

use super::{ENDS, Fault};
use core::time::Duration;
use frwr_engine::WatchedClock;

/// A clock's jump is no longer than an hour: clocks of machines are set, but not from epoch to epoch.
const LONGEST: Duration = Duration::from_secs(3600);

pub(super) const FAULT: Fault = Fault {
    name: "clock jump",
    strike: |world, random| {
        let (time, _) = world.spell(random);
        let time = if random.one_in(2) { time } else { LONGEST / (1 << random.below(12)) as u32 };
        let party = random.below(world.parties.len() as u64) as usize;
        world.parties[party].ahead += time;
        // So much of a jump counts as time that passed, each time.
        ENDS().when(world.is_long(time.min(WatchedClock::STANDSTILL)))
    },
};
