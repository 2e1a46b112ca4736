//! A completion of what was never posted, of any kind and of any queue pair (faults 12, 17).

use super::{Fault, Strike, some_party, some_queue_pair};
use crate::engine_world::party::QUEUES;
use frwr_engine::provider::{Completion, FailureStatus, QueuePairId, Success, Token};
use frwr_support::engine_harness::TOKEN_KINDS;

/// A generation that no slot comes to.
const NEVER: u32 = 0xFFFF_0000;

pub(super) const FAULT: Fault = Fault {
    name: "garbage completion",
    ends_connections: false,
    takes_objects: false,
    strike: Strike::World(|world, random| {
        let party = some_party(world, random);
        let queue_pair = some_queue_pair(party, random);
        let queue_pair = if random.one_in(2) { queue_pair } else { QueuePairId(0xDEAD) };
        let token = Token::new(random.of(&TOKEN_KINDS), random.below(1 << 28) as u32, NEVER);
        let success = Success { bytes: random.bits() as u32, invalidated: Some(random.bits() as u32) };
        let result = if random.one_in(2) { Ok(success) } else { Err(FailureStatus::Flushed.into()) };
        party.script.inject(party.port, random.of(&QUEUES), Completion { token, queue_pair, result });
    }),
};
