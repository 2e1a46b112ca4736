//! A caller gives requests up, which the target may be executing.

use super::{Effects, Fault};

pub(super) const FAULT: Fault = Fault {
    name: "given up request",
    strike: |world, random| {
        let host = random.below(world.hosts.len() as u64) as usize;
        for member in &mut world.hosts[host].members {
            if let Some(cookie) = world.ledger.desks[member.desk].some_request(random) {
                member.host.abort(cookie);
            }
        }
        // Each Abort is a command that has to be answered in time itself.
        Effects::ABORTS
    },
};
