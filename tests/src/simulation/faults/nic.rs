//! What goes wrong inside a software NIC (`frwr_support::nic`).

use super::{ENDS, Effects, Place};
use crate::simulation::{party::port_of, world::World};
use frwr_support::{
    Random,
    nic::{Harm, NicFault, Victim},
};

/// Polls of a port that one of these lasts at most.
const LONGEST: u32 = 1000;

pub(super) fn strike(fault: &NicFault, world: &mut World<'_>, random: &mut Random) -> Effects {
    let Some(Place { side, engine, port, .. }) = world.some_port(random) else { return Effects::NONE };
    let Some(monitor) = &side.monitor else { return Effects::NONE };
    let queue_pairs = &port_of(engine).log.recent;
    let hangs_without_receive = side.hangs_without_receive;
    (fault.strike)(Victim { monitor, port, queue_pairs, hangs_without_receive }, random);
    let ends = ENDS() | Effects::BREACHES | Effects::NO_RECEIVES;
    // Where completions stay in their queue, others may find it full: those of connections that ended and were replaced meanwhile.
    let overruns = (ends | Effects::OVERRUNS).when(fault.port != Harm::None);
    overruns | ends.when(fault.ends_connections) | ENDS().when(world.is_long(world.scenario.round * LONGEST))
}
