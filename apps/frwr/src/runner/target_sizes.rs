//! How much of what a target has for so many hosts.

use frwr_nvmf::controller::{ADMIN_QUEUE_ENTRIES, UNPROVEN_CONNECTIONS};

/// Controllers of a target beside those of its hosts: one, for a host that comes back before its former connection is gone. Where several
/// do, they take turns.
pub(super) const RETURNING: u16 = 1;
/// Hosts that ask the discovery service at a time at most.
const MAX_DISCOVERY: u16 = 32;

/// Controllers of a target.
pub(super) fn controllers(hosts: u16) -> u16 {
    hosts.saturating_add(RETURNING)
}

/// Discovery controllers: one that each host may keep, and one more for who only asks.
pub(super) fn discovery_controllers(hosts: u16) -> u16 {
    hosts.saturating_add(1).min(MAX_DISCOVERY)
}

/// Connections of a target on one core.
pub(super) fn connections(hosts: u16, io_queues: u16) -> u32 {
    let queues = u32::from(controllers(hosts)) * (u32::from(io_queues) + 1);
    queues + u32::from(discovery_controllers(hosts)) + u32::from(UNPROVEN_CONNECTIONS)
}

/// Entries of an I/O queue: one request per slot, and the entry that a queue never uses. Depths are bounded far below 2^16.
pub(super) fn entries(queue_depth: u32) -> u16 {
    (queue_depth as u16 + 1).max(ADMIN_QUEUE_ENTRIES)
}
