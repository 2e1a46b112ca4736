//! Counters of a host.

frwr_mempool::statistics! {
    /// What a host has done since it was made, and what it has in hand.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
        /// Notices that the discovery log changed.
        pub discovery_events: u64,
        /// Notices that the subsystem shuts down.
        pub shutdown_events: u64,
        /// Events that there are reservation notifications.
        pub reservation_events: u64,
        /// Reservation notifications read: what other hosts did to what this one had registered or reserved.
        pub reservation_notifications: u64,
        /// Other asynchronous events.
        pub other_events: u64,
        /// ANA log pages read.
        pub ana_reads: u64,
        /// Discovery log pages read to their end.
        pub discovery_reads: u64,
        /// Requests that ended with success.
        pub succeeded: u64,
        /// Requests that ended with an error.
        pub failed: u64,
        /// Keep Alives sent.
        pub keep_alives: u64,
        /// How often this host has proven itself once more on all queues of a session.
        pub reauthentications: u64,
        /// Requests in hand now.
        pub outstanding: u64 => Gauge,
    }
}

impl HostStatistics {
    /// Of the host with the admin queue and one that follows it, together: what is counted per session is this one's.
    #[must_use]
    pub fn with_follower(self, other: &Self) -> Self {
        let Self { sessions, failures, keep_alives, reauthentications, .. } = self;
        Self { sessions, failures, keep_alives, reauthentications, ..self + *other }
    }
}

#[cfg(test)]
mod tests {
    use super::HostStatistics;

    #[test]
    fn a_follower_adds_what_it_did_and_no_session_of_its_own() {
        let host = HostStatistics {
            sessions: 2,
            failures: 1,
            keep_alives: 9,
            requests: 5,
            outstanding: 1,
            ..HostStatistics::default()
        };
        let follower = HostStatistics {
            sessions: 2,
            failures: 1,
            keep_alives: 4,
            requests: 7,
            outstanding: 2,
            ..HostStatistics::default()
        };
        let both = HostStatistics { requests: 12, outstanding: 3, ..host };
        assert_eq!(host.with_follower(&follower), both);
        // Two hosts, and what one of them did since.
        assert_eq!(host + follower, HostStatistics { sessions: 4, failures: 2, keep_alives: 13, ..both });
        let since = HostStatistics { requests: 7, outstanding: 3, ..HostStatistics::default() };
        assert_eq!(both - host, since);
    }
}
