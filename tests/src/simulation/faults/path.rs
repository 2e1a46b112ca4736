//! The path to the namespace goes or comes back (ANA).

use super::{Effects, Fault};
use frwr_nvmf::wire::AnaState;

const STATES: [AnaState; 4] = [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change];

pub(super) const FAULT: Fault = Fault {
    name: "path",
    strike: |world, random| {
        world.set_path(random.of(&STATES));
        Effects::REPEATS
    },
};
