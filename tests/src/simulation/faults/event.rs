//! An asynchronous event out of nowhere (fault 34).

use super::{ENDS, Effects, Fault, Place};
use crate::simulation::party::port_of;
use frwr_engine::provider::{AsyncEvent, DeviceEvent};

pub(super) const FAULT: Fault = Fault {
    name: "event out of nowhere",
    strike: |world, random| {
        let Some(Place { side, engine, queue_pair: Some(queue_pair), .. }) = world.some_port(random) else {
            return Effects::NONE;
        };
        let events = [
            AsyncEvent::QueuePairFatal(queue_pair),
            AsyncEvent::QueuePairAccessError(queue_pair),
            AsyncEvent::LastReceiveReached(queue_pair),
        ];
        let event = random.of(&events);
        // Of a queue pair with shared receives it is the device's word that it took its last one: nothing can tell a lie.
        if port_of(engine).log.shared_receives.is_none() || event != events[2] {
            side.faults.inject_event(DeviceEvent::Async(event));
        }
        ENDS()
    },
};
