//! Counters of a host.

/// What a host has done since it was made, and what it has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Sessions that became ready.
    pub sessions: u64,
    /// Attempts that failed, and sessions that ended without being asked to.
    pub failures: u64,
    /// Reads, writes and flushes taken.
    pub requests: u64,
    /// Those handed to the engine; one that was lost counts again for each new connection.
    pub submissions: u64,
    /// Requests that came back as lost.
    pub lost: u64,
    /// Lost requests that were submitted on a new connection.
    pub resubmitted: u64,
    /// Requests that ended with success.
    pub succeeded: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Keep Alives sent.
    pub keep_alives: u64,
    /// Requests in hand now.
    pub outstanding: u64,
}
