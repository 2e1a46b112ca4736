//! What was kept back comes, in order.

use super::{Fault, Strike, some_party};

pub(super) const FAULT: Fault = Fault {
    name: "release",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        some_party(world, random).script.release();
    }),
};
