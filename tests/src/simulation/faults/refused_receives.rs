//! A post of receives is refused.

use super::{ENDS, Effects, Fault, Place};
use crate::simulation::party::port_of;
use frwr_engine::provider::PostRefusal;

pub(super) const FAULT: Fault = Fault {
    name: "refused receives",
    strike: |world, random| {
        let Some(Place { side, engine, queue_pair: Some(queue_pair), .. }) = world.some_port(random) else {
            return Effects::NONE;
        };
        let accepted = random.below(3) as usize;
        match port_of(engine).log.shared_receives {
            Some(queue) => side.faults.refuse_shared_receives(queue, accepted, PostRefusal::QueueFull),
            None => side.faults.refuse_receives(queue_pair, accepted, PostRefusal::QueueFull),
        }
        ENDS() | Effects::NO_RECEIVES
    },
};
