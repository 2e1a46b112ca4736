//! What goes wrong inside a software NIC (`frwr_support::nic`).

use super::{ENDS, Effects, Fault, Place};
use crate::simulation::{party::port_of, world::World};
use frwr_support::{
    Random,
    nic::{NIC_FAULTS, Victim},
};

/// Polls of a port that one of these lasts at most.
const LONGEST: u32 = 1000;

/// The one that leaves a port without a use: its program has to begin anew.
const OVERRUN: &str = "completion queue overrun";

/// One of them, by its index in that list.
pub(super) const fn of<const INDEX: usize>() -> Fault {
    Fault { name: NIC_FAULTS[INDEX].name, strike: strike::<INDEX> }
}

fn strike<const INDEX: usize>(world: &mut World<'_>, random: &mut Random) -> Effects {
    let fault = &NIC_FAULTS[INDEX];
    let is_final = fault.name == OVERRUN;
    let program = world.some_program(random);
    if is_final && world.anew.is_some() {
        return Effects::NONE;
    }
    let Some(Place { side, engine, port, .. }) = world.port_of(program, random) else { return Effects::NONE };
    let Some(monitor) = &side.monitor else { return Effects::NONE };
    let queue_pairs = &port_of(engine).log.recent;
    let hangs_without_receive = side.hangs_without_receive;
    (fault.strike)(Victim { monitor, port, queue_pairs, hangs_without_receive }, random);
    if is_final {
        world.anew = Some((program, world.now + world.spell(random).0));
    }
    let ends = ENDS() | Effects::BREACHES | Effects::NO_RECEIVES;
    ends.when(fault.ends_connections) | ENDS().when(world.is_long(world.scenario.round * LONGEST))
}
