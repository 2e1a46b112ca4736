//! A program never returns: it is started anew, on another device, when all is over. Its peers have nothing but their time-outs.

use super::{ENDS, Effects, Fault};
use crate::simulation::world::{Program, Who};
use core::time::Duration;

pub(super) const FAULT: Fault = Fault {
    name: "frozen program",
    strike: |world, random| {
        if world.anew.is_some() {
            return Effects::NONE;
        }
        let program = world.some_program(random);
        for party in &mut world.parties {
            let is_its = match party.who {
                Who::Host(host, _) | Who::HostControl(host) => program == Program::Host(host),
                Who::Target(_) | Who::TargetControl => program == Program::Target,
                Who::Visitor | Who::VisitorControl => false,
            };
            if is_its {
                party.asleep_until = Duration::MAX;
            }
        }
        world.anew = Some((program, Duration::MAX));
        ENDS() | Effects::BREACHES
    },
};
