//! A completion fails although its work request was executed, and all later ones of its queue pair are flushed (faults 1, 2, 5 to 8).

use super::{ENDS, Effects, Fault, Place};
use frwr_engine::provider::FailureStatus;

const STATUSES: [FailureStatus; 3] = [FailureStatus::Bind, FailureStatus::Flushed, FailureStatus::RemoteAccess];

pub(super) const FAULT: Fault = Fault {
    name: "failed completion",
    strike: |world, random| {
        let Some(Place { side, queue_pair: Some(queue_pair), .. }) = world.some_port(random) else {
            return Effects::NONE;
        };
        side.faults.fail_from_now(queue_pair, random.of(&STATUSES));
        ENDS() | Effects::BREACHES
    },
};
