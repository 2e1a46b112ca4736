//! A reply invalidates its request's key, though nobody invited it to (fault 19).

use super::{Fault, Strike};
use crate::engine_world::answers::Rudeness;

pub(super) const FAULT: Fault = Fault {
    name: "uninvited invalidation",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let _ = random;
        // Our own invalidation may be on its way, and a second one crashes rxe's host.
        if !world.host.is_rxe() {
            world.rude = Some(Rudeness::Uninvited);
        }
    }),
};
