//! A reply invalidates a key that is not its request's: one of another request, or none at all (fault 17).

use super::{Fault, Strike};
use crate::engine_world::answers::Rudeness;

pub(super) const FAULT: Fault = Fault {
    name: "foreign key",
    ends_connections: true,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        // Whatever the invalidation hits on rxe, whose host crashes of a second one.
        if world.host.is_rxe() {
            return;
        }
        let keys: Vec<u32> = world.host.open_keys().map(|key| key.key).collect();
        let key = if keys.is_empty() || random.one_in(3) { random.bits() as u32 } else { random.of(&keys) };
        world.rude = Some(Rudeness::ForeignKey(key));
    }),
};
