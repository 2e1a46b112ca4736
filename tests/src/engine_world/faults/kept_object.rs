//! The device refuses to destroy an MR object (fault 21).

use super::{Fault, Strike, some_party};
use frwr_engine::provider::{CommandError, fault::CommandKind};

pub(super) const FAULT: Fault = Fault {
    name: "kept object",
    ends_connections: true,
    takes_objects: true,
    strike: Strike::World(|world, random| {
        let times = 1 + random.below(3) as u32;
        some_party(world, random).script.fail_command(CommandKind::FreeRegistration, CommandError::BUSY, times);
    }),
};
