//! Counters of a target.

use frwr_engine::{Listening, provider::CommandError};
use frwr_mempool::statistics::Figure;

/// Whether a target listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum TargetListening {
    /// It was not told to.
    #[default]
    NotAsked,
    /// It was told to, and the device has not answered.
    Asked,
    /// Hosts may connect.
    Listens,
    /// It was told to listen no longer.
    Stopped,
    /// The device cannot listen at the address.
    Failed(CommandError),
}

impl TargetListening {
    /// Of two cores of one target, which listens where all its cores do: that of the one that is further from it.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        if self.distance() >= other.distance() { self } else { other }
    }

    fn distance(self) -> u8 {
        match self {
            Self::Listens => 0,
            Self::Asked => 1,
            Self::NotAsked => 2,
            Self::Stopped => 3,
            Self::Failed(_) => 4,
        }
    }

    /// Behind an answer of the device. That it listens no longer is no news of one that never could, and keeps the reason.
    #[must_use]
    pub(super) fn then(self, answer: Listening) -> Self {
        match (self, answer) {
            (_, Listening::Began) => Self::Listens,
            (_, Listening::Failed(reason)) => Self::Failed(reason),
            (Self::Failed(reason), Listening::Stopped) => Self::Failed(reason),
            (_, Listening::Stopped) => Self::Stopped,
        }
    }
}

impl Figure for TargetListening {
    fn sum(self, other: Self) -> Self {
        self.with(other)
    }

    /// It is a state, which has no difference.
    fn since(self, _before: Self) -> Self {
        self
    }
}

frwr_mempool::statistics! {
    /// What a target has done since it was made, and what it has in hand.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct TargetStatistics {
        /// Whether it listens.
        pub listening: TargetListening => Gauge,
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
        /// Commands aborted instead of executed.
        pub aborted_commands: u64,
        /// Operations that the medium failed.
        pub media_errors: u64,
        /// Operations that a storage refused because its way to the medium is broken.
        pub broken_operations: u64,
        /// Flushes of a shutdown, a host's or the target's own, that failed: what was answered before may be lost.
        pub failed_commits: u64,
        /// Bytes of the above reads.
        pub bytes_read: u64,
        /// Bytes of the above writes.
        pub bytes_written: u64,
        /// Commands answered with another status than success.
        pub failed_commands: u64,
        /// Responses with SEND_WITH_INV.
        pub remote_invalidations: u64,
        /// Responses to commands that named memory of the host, refused ones too, that were plain SENDs: the host kills its keys.
        pub plain_responses: u64,
        /// Times that a command found no free data buffer.
        pub buffer_waits: u64,
        /// Times that a command found no transfer slot or no place in the storage, or a Connect what it has to wait for; each poll
        /// tries again.
        pub stalls: u64,
        /// What peers did that no correct one does ([`crate::controller::Incident`]).
        pub incidents: u64,
        /// Of these, those that nobody took in time.
        pub incidents_dropped: u64,
        /// Connections ended because the host broke the protocol.
        pub protocol_errors: u64,
        /// Controllers ended because their Keep Alive Timeout expired.
        pub keep_alive_expirations: u64,
        /// Connections ended because no Connect made them a queue in time.
        pub connect_timeouts: u64,
        /// Connections ended that had not become queues of a host, to make room for others.
        pub made_room: u64,
        /// Times that a host's device was asked whether it is there: of hosts that asked for no keep alive and were silent, and of those
        /// that came again beside a session that seemed to live.
        pub probes: u64,
        /// Controllers ended because the device did not answer that.
        pub silent_hosts: u64,
        /// Times that a host proved itself on a queue.
        pub authentications: u64,
        /// Times that one was not believed since its proof does not follow from the key.
        pub authentications_wrong: u64,
        /// Times that one was not believed since nobody has a key for it; Connects included that were refused for that.
        pub authentications_without_key: u64,
        /// Times that both sides permit no protocol, hash function or group in common.
        pub authentications_without_choice: u64,
        /// Times that a host did not prove itself in time.
        pub authentications_late: u64,
        /// Times that a host did not believe the controller.
        pub authentications_refused: u64,
        /// Times that a host's message was wrong, or that it could not be judged here.
        pub authentications_broken: u64,
        /// Queues whose hosts prove themselves now.
        pub authenticating: u64 => Gauge,
        /// Reads whose data was spoiled on purpose.
        pub corrupted_reads: u64,
        /// Commands not answered yet, the Asynchronous Event Requests included that wait for ever.
        pub commands_in_flight: u64 => Gauge,
        /// Command slots in use now: commands in flight, and responses that the device has not reported as done.
        pub slots_used: u64 => Gauge,
        /// Commands of ended connections that the storage still has.
        pub orphans: u64 => Gauge,
        /// Data buffers.
        pub buffers: u64 => Gauge,
        /// Data buffers free now.
        pub buffers_free: u64 => Gauge,
        /// Queues that a host uses now.
        pub queues: u64 => Gauge,
    }
}

#[cfg(test)]
mod tests {
    use super::{TargetListening, TargetStatistics};
    use frwr_engine::{Listening, provider::CommandError};

    #[test]
    fn why_it_could_not_listen_is_kept_to_the_end() {
        let failed = TargetListening::Asked.then(Listening::Failed(CommandError::ADDRESS));
        assert_eq!(failed.then(Listening::Stopped), TargetListening::Failed(CommandError::ADDRESS));
        assert_eq!(failed.then(Listening::Began), TargetListening::Listens);
        let stopped = TargetListening::Asked.then(Listening::Began).then(Listening::Stopped);
        assert_eq!((stopped, stopped.then(Listening::Stopped)), (TargetListening::Stopped, TargetListening::Stopped));
    }

    #[test]
    fn cores_together_listen_where_all_do_and_a_difference_has_what_is_there_now() {
        let one = TargetStatistics {
            listening: TargetListening::Listens,
            reads: 5,
            queues: 2,
            ..TargetStatistics::default()
        };
        let other =
            TargetStatistics { listening: TargetListening::Asked, reads: 7, queues: 1, ..TargetStatistics::default() };
        let both =
            TargetStatistics { listening: TargetListening::Asked, reads: 12, queues: 3, ..TargetStatistics::default() };
        assert_eq!((one + other, other + one), (both, both));
        assert_eq!(other - one, TargetStatistics { reads: 2, ..other });
    }
}
