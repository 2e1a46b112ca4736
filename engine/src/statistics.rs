//! Counters of one engine: written plainly by its core, copied out by value.

use crate::{
    pad::PadFailure,
    provider::{CommandError, PostError},
    waits::Waits,
};

frwr_mempool::statistics! {
    /// What happened since the engine was made. All counters only grow, but for those said to be gauges.
    /// `+` is of several engines together, `-` what came behind an earlier reading of the same one.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct Statistics {
        /// Calls of `poll`.
        pub polls: u64,
        /// Calls of `poll` that found nothing at all.
        pub empty_polls: u64,
        /// Requests admitted: mapped and queued for posting.
        pub requests: u64,
        /// Requests whose end was reported, also of those that waited and were never admitted.
        pub requests_ended: u64,
        /// Requests that had to wait for MRs, send queue entries or receives, or behind others that did.
        pub requests_waited: u64,
        /// The same by what each waited for first.
        pub request_waits: Waits,
        /// Requests that were not taken since all slots were in use (`SubmitError::NoSlot`); each attempt counts.
        pub requests_without_slot: u64,
        /// Transfers admitted.
        pub transfers: u64,
        /// Transfers that had to wait, by what each waited for first.
        pub transfer_waits: Waits,
        /// Transfers that were not taken since all slots were in use (`TransferError::NoSlot`); each attempt counts.
        pub transfers_without_slot: u64,
        /// MR objects that the device made for us (mrs_allocated of S120).
        pub mrs_allocated: u64,
        /// MR objects that the device could not make.
        pub mr_allocations_failed: u64,
        /// What it said to the last of them.
        pub mr_allocation_error: Option<CommandError> => Latest,
        /// MR objects destroyed; with `mrs_orphaned` and those alive they are `mrs_allocated`.
        pub mrs_destroyed: u64,
        /// MR objects that the device refused to destroy, also behind the destruction of their queue pair (mrs_orphaned of S120, S105).
        pub mrs_orphaned: u64,
        /// Attempts to destroy an MR object that the device refused: each object is tried up to three times before it is orphaned.
        pub deregistrations_failed: u64,
        /// What it said to the last of them.
        pub deregistration_error: Option<CommandError> => Latest,
        /// Write pads that were wanted and not made: their connections have none.
        pub pads_failed: u64,
        /// Why the last of them was not.
        pub pad_failure: Option<PadFailure> => Latest,
        /// Keys that were valid, or may have been, when their MR object was destroyed; counted when the device has answered that.
        pub keys_destroyed_live: u64,
        /// Stale MRs replaced by a new object on a connection that goes on (mrs_recovered of S120).
        pub mrs_recovered: u64,
        /// Registrations accepted by the device.
        pub registrations: u64,
        /// Of these, registrations of more than one element: memory with gaps, which the device reads through a list (goal B11).
        pub lists_registered: u64,
        /// MRs put on an invalidation chain (local_inv_needed of S119, per MR).
        pub local_inv_needed: u64,
        /// Chains that carried local invalidations (D25).
        pub local_inv_chains: u64,
        /// Local invalidations that completed: each fenced one key.
        pub local_invalidations: u64,
        /// Keys that the peer invalidated.
        pub remote_invalidations: u64,
        /// Remote invalidations of requests that had not invited one (fault 19).
        pub uninvited_invalidations: u64,
        /// Replies that named a key that the request does not own (F13, I25).
        pub foreign_invalidations: u64,
        /// Requests undone because the message had no room for their keys (S87).
        pub failed_marshal_count: u64,
        /// Bytes registered for the peer to read from (S121).
        pub bytes_registered_read: u64,
        /// Bytes registered for the peer to write to (S121).
        pub bytes_registered_write: u64,
        /// Work requests accepted by the device, but for the marker behind which a connection drains.
        pub work_requests: u64,
        /// Posts to a send queue, but for the marker behind which a connection drains.
        pub doorbells: u64,
        /// Markers posted behind which connections drain: one work request and one post each, in none of the two above.
        pub drain_markers: u64,
        /// Posts that the device refused, in whole or in part.
        pub posts_refused: u64,
        /// What it said to the last of them.
        pub post_error: Option<PostError> => Latest,
        /// Chains of work requests for a send queue: one for each flush and queue pair that had any. Equal to `doorbells`, since a chain is
        /// posted by one post.
        pub send_chains: u64,
        /// Posts to a receive queue.
        pub receive_doorbells: u64,
        /// Completions taken from the send completion queue.
        pub send_completions: u64,
        /// Completions taken from the receive completion queue.
        pub receive_completions: u64,
        /// Completions that were late, duplicated or named nothing of ours (I16).
        pub stale_completions: u64,
        /// Replies that had to wait for the completion of their message, as it carried memory of the caller
        /// (reply_waits_for_send of S51, S122).
        pub reply_waits_for_send: u64,
        /// Messages that the peer should not have sent (bad_reply_count of S122).
        pub bad_reply_count: u64,
        /// Connections that were ready once.
        pub connections: u64,
        /// Connections that began to end, also of those that had a queue pair but were never ready.
        pub disconnects: u64,
        /// Causes to end a connection that came when it was ending already (I35): most often what was posted and came back flushed, one
        /// for each work request and receive.
        pub causes_while_ending: u64,
        /// Connections whose queue pair was destroyed before it had drained.
        pub drain_timeouts: u64,
        /// Gauge: requests that hold a slot.
        pub request_slots_used: u64 => Gauge,
        /// Gauge: slots kept only by Hold.
        pub slots_held: u64 => Gauge,
        /// Gauge: shared receives that no connection was granted; 0 where each has its own.
        pub shared_receives_free: u64 => Gauge,
        /// Gauge: shared receives that queue pairs may have taken with them, as they were destroyed before they had drained.
        pub shared_receives_withdrawn: u64 => Gauge,
        /// Trace records that found no room.
        pub trace_records_dropped: u64,
        /// Shortest time between two registrations under one full key, in nanoseconds; `None` where no key came twice.
        pub shortest_key_reuse_ns: Option<u64> => Least,
    }
}

impl Statistics {
    /// Keys that the device accepted and that nothing has shown to be dead: no invalidation that completed, or that the peer told of,
    /// and no destruction of their object that the device has answered. Where this is 0 no peer reaches anything; a key whose
    /// object the device keeps for good (`mrs_orphaned`) is live.
    #[must_use]
    pub fn keys_live(&self) -> u64 {
        let dead = self.local_invalidations + self.remote_invalidations + self.keys_destroyed_live;
        self.registrations.saturating_sub(dead)
    }
}
