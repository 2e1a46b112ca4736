//! Commands of Control fail (faults 21, 33).

use super::{Fault, Strike, some_party};
use frwr_engine::provider::{CommandError, fault::CommandKind};

const KINDS: [CommandKind; 9] = [
    CommandKind::AllocateRegistration,
    CommandKind::CreateQueuePair,
    CommandKind::CreateSharedReceiveQueue,
    CommandKind::RegisterMemory,
    CommandKind::AllocateDomain,
    CommandKind::FailQueuePair,
    CommandKind::DestroyQueuePair,
    CommandKind::Connect,
    CommandKind::Accept,
];

pub(super) const FAULT: Fault = Fault {
    name: "failing command",
    ends_connections: true,
    takes_objects: true,
    strike: Strike::World(|world, random| {
        let (kind, times) = (random.of(&KINDS), 1 + random.below(3) as u32);
        some_party(world, random).script.fail_command(kind, CommandError::EXHAUSTED, times);
    }),
};
