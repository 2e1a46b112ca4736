//! An asynchronous event out of nowhere (fault 34).

use super::{Fault, Strike, some_party, some_queue_pair};
use frwr_engine::provider::{AsyncEvent, DeviceEvent};

pub(super) const FAULT: Fault = Fault {
    name: "unfounded event",
    ends_connections: true,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let party = some_party(world, random);
        let queue_pair = some_queue_pair(party, random);
        let events = [AsyncEvent::QueuePairFatal(queue_pair), AsyncEvent::QueuePairAccessError(queue_pair)];
        party.script.inject_event(DeviceEvent::Async(random.of(&events)));
    }),
};
