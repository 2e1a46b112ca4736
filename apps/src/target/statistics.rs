//! Counters of a target.

/// What a target has done since it was made, and what it has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetStatistics {
    /// Whether listening worked; `None` until the device has answered.
    pub listening: Option<bool>,
    /// Connect requests accepted.
    pub accepted: u64,
    /// Connect requests rejected.
    pub rejected: u64,
    /// Commands that arrived.
    pub commands: u64,
    /// Read commands that succeeded.
    pub reads: u64,
    /// Write commands that succeeded.
    pub writes: u64,
    /// Flush commands that succeeded.
    pub flushes: u64,
    /// Compare commands that found equal blocks.
    pub compares: u64,
    /// Write Zeroes commands that succeeded.
    pub write_zeroes: u64,
    /// Ranges deallocated.
    pub deallocations: u64,
    /// Asynchronous events told.
    pub events: u64,
    /// Commands that waited, and were aborted instead of executed.
    pub aborted_commands: u64,
    /// Operations that the medium failed.
    pub media_errors: u64,
    /// Bytes of the above reads.
    pub bytes_read: u64,
    /// Bytes of the above writes.
    pub bytes_written: u64,
    /// Commands answered with another status than success.
    pub failed_commands: u64,
    /// Responses with SEND_WITH_INV.
    pub remote_invalidations: u64,
    /// Responses to commands with data in the host's memory that were plain SENDs, so that the host kills its keys.
    pub plain_responses: u64,
    /// Times that a command found no free data buffer.
    pub buffer_waits: u64,
    /// Times that a command found no transfer slot or no place in the storage; each poll tries again.
    pub stalls: u64,
    /// What peers did that no correct one does ([`crate::target::Incident`]).
    pub incidents: u64,
    /// Of these, those that nobody took in time.
    pub incidents_dropped: u64,
    /// Connections ended because the host broke the protocol.
    pub protocol_errors: u64,
    /// Controllers ended because their Keep Alive Timeout expired.
    pub keep_alive_expirations: u64,
    /// Connections ended because no Connect made them a queue in time.
    pub connect_timeouts: u64,
    /// Reads whose data was spoiled on purpose.
    pub corrupted_reads: u64,
    /// Commands not answered yet, the Asynchronous Event Requests included that wait for ever.
    pub commands_in_flight: u64,
    /// Command slots in use now: commands in flight, and responses that the device has not reported as done.
    pub slots_used: u64,
    /// Commands of ended connections that the storage still has.
    pub orphans: u64,
    /// Data buffers.
    pub buffers: u64,
    /// Data buffers free now.
    pub buffers_free: u64,
    /// Queues that a host uses now.
    pub queues: u64,
}
