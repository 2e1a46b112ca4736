//! A device is taken out of its machine; after a while its program begins anew on another one (faults 35, 36).

use super::{ENDS, Effects, Fault};

pub(super) const FAULT: Fault = Fault {
    name: "removed device",
    strike: |world, random| {
        let (time, _) = world.spell(random);
        let program = world.some_program(random);
        let Some(monitor) = world.side(program).monitor.as_ref().filter(|_| world.anew.is_none()) else {
            return Effects::NONE;
        };
        monitor.remove_device();
        world.anew = Some((program, world.now + time));
        ENDS() | Effects::BREACHES
    },
};
