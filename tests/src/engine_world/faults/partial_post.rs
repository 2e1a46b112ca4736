//! A post is accepted up to somewhere (faults 3, 4).

use super::{Fault, Strike, some_party, some_queue_pair};
use frwr_engine::provider::PostRefusal;

/// Longer than most chains.
const ACCEPTED: u64 = 7;

pub(super) const FAULT: Fault = Fault {
    name: "partial post",
    ends_connections: true,
    takes_objects: true,
    strike: Strike::World(|world, random| {
        let party = some_party(world, random);
        let queue_pair = some_queue_pair(party, random);
        party.script.refuse_post(queue_pair, random.below(ACCEPTED) as usize, PostRefusal::Invalid);
    }),
};
