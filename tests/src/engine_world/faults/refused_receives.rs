//! A post of receives is accepted up to somewhere.

use super::{Fault, Strike, some_party, some_queue_pair};
use frwr_engine::provider::{PostRefusal, SharedReceiveQueueId};

pub(super) const FAULT: Fault = Fault {
    name: "refused receives",
    ends_connections: true,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let party = some_party(world, random);
        let (queue_pair, accepted) = (some_queue_pair(party, random), random.below(3) as usize);
        if party.shares_receives {
            // The first queue of a device has the first name.
            party.script.refuse_shared_receives(SharedReceiveQueueId(1), accepted, PostRefusal::Invalid);
        } else {
            party.script.refuse_receives(queue_pair, accepted, PostRefusal::Invalid);
        }
    }),
};
