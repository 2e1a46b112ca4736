//! The target's machine loses its power: its program and its device are gone at once, and what the disk had not brought to its medium.

use super::{ENDS, Effects, Fault};
use crate::simulation::world::Program;

pub(super) const FAULT: Fault = Fault {
    name: "power cut",
    strike: |world, _| {
        let Some(monitor) = world.target.side.monitor.clone().filter(|_| world.anew.is_none()) else {
            return Effects::NONE;
        };
        monitor.remove_device();
        // With the program go the operations that the disk had not begun.
        world.target.cores.clear();
        world.medium.borrow_mut().lose_power();
        world.ledger.lost_power();
        world.anew = Some((Program::Target, world.now));
        ENDS() | Effects::BREACHES
    },
};
