//! Slow commands fail (faults 21, 33).

use super::{ENDS, Effects, Fault, Place};
use frwr_engine::provider::{CommandError, fault::CommandKind};

/// Commands that may fail. Where a device refuses to destroy an MR it keeps its key until its domain goes, so that one
/// is left out; listening is not a matter of the datapath.
const COMMANDS: [CommandKind; 9] = [
    CommandKind::AllocateDomain,
    CommandKind::RegisterMemory,
    CommandKind::CreateQueuePair,
    CommandKind::FailQueuePair,
    CommandKind::DestroyQueuePair,
    CommandKind::AllocateRegistration,
    CommandKind::Connect,
    CommandKind::Accept,
    CommandKind::Disconnect,
];

pub(super) const FAULT: Fault = Fault {
    name: "refused command",
    strike: |world, random| {
        let Some(Place { side, .. }) = world.some_port(random) else { return Effects::NONE };
        let error = random.of(&[CommandError::EXHAUSTED, CommandError::BUSY, CommandError::INVALID]);
        side.faults.fail_command(random.of(&COMMANDS), error, 1 + random.below(4) as u32);
        ENDS()
    },
};
