//! A program ends all its connections, without a word of its protocol (fault 31).

use super::{ENDS, Effects, Fault};
use crate::simulation::world::Program;

pub(super) const FAULT: Fault = Fault {
    name: "dropped connections",
    strike: |world, random| {
        match world.some_program(random) {
            Program::Host(host) => {
                let members = &mut world.hosts[host].members;
                let member = random.below(members.len() as u64) as usize;
                members[member].host.drop_connections();
            }
            Program::Target => {
                let core = random.below(world.target.cores.len() as u64) as usize;
                world.target.cores[core].target.shut_down();
            }
        }
        ENDS() | Effects::BREACHES
    },
};
