//! Counters of a host.

/// What a host has done since it was made, and what it has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStatistics {
    /// Sessions that became ready.
    pub sessions: u64,
    /// Attempts that failed, and sessions that ended without being asked to: also those that their controller ended in order.
    pub failures: u64,
    /// Requests taken.
    pub requests: u64,
    /// Commands of theirs handed to the engine; one that was lost counts again for each new connection.
    pub submissions: u64,
    /// Requests that took more than one command.
    pub split_requests: u64,
    /// Commands that named several keys.
    pub multi_key_commands: u64,
    /// Commands whose data went through a bounce buffer.
    pub bounced_commands: u64,
    /// Bytes copied for them.
    pub bounced_bytes: u64,
    /// Commands whose data travelled in the capsule.
    pub in_capsule_writes: u64,
    /// Commands that came back as lost.
    pub lost: u64,
    /// Lost commands that were submitted on a new connection.
    pub resubmitted: u64,
    /// Commands sent again because the controller refused them for the time being.
    pub repeated: u64,
    /// Abort commands sent.
    pub aborts: u64,
    /// Namespace attribute notices of the controller.
    pub namespace_events: u64,
    /// Notices that an ANA state changed.
    pub ana_events: u64,
    /// Notices that the subsystem shuts down.
    pub shutdown_events: u64,
    /// Other asynchronous events.
    pub other_events: u64,
    /// ANA log pages read.
    pub ana_reads: u64,
    /// Requests that ended with success.
    pub succeeded: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Keep Alives sent.
    pub keep_alives: u64,
    /// Requests in hand now.
    pub outstanding: u64,
}

impl HostStatistics {
    /// Of the host with the admin queue and one that follows it, together: what is counted per session is this one's.
    #[must_use]
    pub fn with_follower(self, other: &Self) -> Self {
        let Self { sessions, failures, keep_alives, .. } = self;
        Self {
            sessions,
            failures,
            requests: self.requests + other.requests,
            submissions: self.submissions + other.submissions,
            split_requests: self.split_requests + other.split_requests,
            multi_key_commands: self.multi_key_commands + other.multi_key_commands,
            bounced_commands: self.bounced_commands + other.bounced_commands,
            bounced_bytes: self.bounced_bytes + other.bounced_bytes,
            in_capsule_writes: self.in_capsule_writes + other.in_capsule_writes,
            lost: self.lost + other.lost,
            resubmitted: self.resubmitted + other.resubmitted,
            repeated: self.repeated + other.repeated,
            aborts: self.aborts + other.aborts,
            namespace_events: self.namespace_events + other.namespace_events,
            ana_events: self.ana_events + other.ana_events,
            shutdown_events: self.shutdown_events + other.shutdown_events,
            other_events: self.other_events + other.other_events,
            ana_reads: self.ana_reads + other.ana_reads,
            succeeded: self.succeeded + other.succeeded,
            failed: self.failed + other.failed,
            keep_alives,
            outstanding: self.outstanding + other.outstanding,
        }
    }
}
