//! A program never returns: it is started anew, on another device, when all is over. Its peers have nothing but their time-outs.

use super::{ENDS, Effects, Fault};
use core::time::Duration;

pub(super) const FAULT: Fault = Fault {
    name: "frozen program",
    strike: |world, random| {
        if world.anew.is_some() {
            return Effects::NONE;
        }
        let program = world.some_program(random);
        for party in &mut world.parties {
            if party.who.is_of(program) {
                party.asleep_until = Duration::MAX;
            }
        }
        world.anew = Some((program, Duration::MAX));
        ENDS() | Effects::BREACHES
    },
};
