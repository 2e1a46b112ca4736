//! A device is taken out of the machine, for good (fault 33).

use super::{ENDS_ONE_IN, Fault, Strike, some_party};
pub(super) const FAULT: Fault = Fault {
    name: "device removal",
    ends_connections: true,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        if random.one_in(ENDS_ONE_IN) {
            let party = some_party(world, random);
            party.lost = true;
            party.monitor.remove_device();
        }
    }),
};
