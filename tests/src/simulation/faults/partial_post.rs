//! A post is accepted up to somewhere (faults 3, 4, 14).

use super::{ENDS, Effects, Fault, Place};
use frwr_engine::provider::PostRefusal;

/// Longer than most chains.
const ACCEPTED: u64 = 7;

pub(super) const FAULT: Fault = Fault {
    name: "partial post",
    strike: |world, random| {
        let Some(Place { side, queue_pair: Some(queue_pair), .. }) = world.some_port(random) else {
            return Effects::NONE;
        };
        let reason = random.of(&[PostRefusal::QueueFull, PostRefusal::NotReady, PostRefusal::Invalid]);
        side.faults.refuse_post(queue_pair, random.below(ACCEPTED) as usize, reason);
        ENDS()
    },
};
