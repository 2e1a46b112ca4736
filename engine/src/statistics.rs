//! Counters of one engine: written plainly by its core, copied out by value.

use crate::{
    pad::PadFailure,
    provider::{CommandError, PostError},
    waits::Waits,
};

/// What happened since the engine was made. All counters only grow, but for those said to be gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    pub mr_allocation_error: Option<CommandError>,
    /// MR objects destroyed; with `mrs_orphaned` and those alive they are `mrs_allocated`.
    pub mrs_destroyed: u64,
    /// MR objects that the device refused to destroy, also behind the destruction of their queue pair (mrs_orphaned of S120, S105).
    pub mrs_orphaned: u64,
    /// Attempts to destroy an MR object that the device refused: each object is tried up to three times before it is orphaned.
    pub deregistrations_failed: u64,
    /// What it said to the last of them.
    pub deregistration_error: Option<CommandError>,
    /// Write pads that were wanted and not made: their connections have none.
    pub pads_failed: u64,
    /// Why the last of them was not.
    pub pad_failure: Option<PadFailure>,
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
    pub post_error: Option<PostError>,
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
    pub request_slots_used: u64,
    /// Gauge: slots kept only by Hold.
    pub slots_held: u64,
    /// Gauge: shared receives that no connection was granted; 0 where each has its own.
    pub shared_receives_free: u64,
    /// Gauge: shared receives that queue pairs may have taken with them, as they were destroyed before they had drained.
    pub shared_receives_withdrawn: u64,
    /// Trace records that found no room.
    pub trace_records_dropped: u64,
    /// Shortest time between two registrations under one full key, in nanoseconds; `None` where no key came twice.
    pub shortest_key_reuse_ns: Option<u64>,
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

/// What the device said to the last of each kind of failure.
#[derive(Debug, Default)]
pub(crate) struct LastErrors {
    pub(crate) mr_allocation: Option<CommandError>,
    pub(crate) deregistration: Option<CommandError>,
    pub(crate) pad: Option<PadFailure>,
    pub(crate) post: Option<PostError>,
}

/// Of several engines together: sums, and the shortest of times.
impl core::ops::Add for Statistics {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            polls: self.polls + other.polls,
            empty_polls: self.empty_polls + other.empty_polls,
            requests: self.requests + other.requests,
            requests_ended: self.requests_ended + other.requests_ended,
            requests_waited: self.requests_waited + other.requests_waited,
            request_waits: self.request_waits + other.request_waits,
            requests_without_slot: self.requests_without_slot + other.requests_without_slot,
            transfers: self.transfers + other.transfers,
            transfer_waits: self.transfer_waits + other.transfer_waits,
            transfers_without_slot: self.transfers_without_slot + other.transfers_without_slot,
            mrs_allocated: self.mrs_allocated + other.mrs_allocated,
            mr_allocations_failed: self.mr_allocations_failed + other.mr_allocations_failed,
            mr_allocation_error: other.mr_allocation_error.or(self.mr_allocation_error),
            deregistrations_failed: self.deregistrations_failed + other.deregistrations_failed,
            deregistration_error: other.deregistration_error.or(self.deregistration_error),
            pads_failed: self.pads_failed + other.pads_failed,
            pad_failure: other.pad_failure.or(self.pad_failure),
            mrs_destroyed: self.mrs_destroyed + other.mrs_destroyed,
            mrs_orphaned: self.mrs_orphaned + other.mrs_orphaned,
            keys_destroyed_live: self.keys_destroyed_live + other.keys_destroyed_live,
            mrs_recovered: self.mrs_recovered + other.mrs_recovered,
            registrations: self.registrations + other.registrations,
            lists_registered: self.lists_registered + other.lists_registered,
            local_inv_needed: self.local_inv_needed + other.local_inv_needed,
            local_inv_chains: self.local_inv_chains + other.local_inv_chains,
            local_invalidations: self.local_invalidations + other.local_invalidations,
            remote_invalidations: self.remote_invalidations + other.remote_invalidations,
            uninvited_invalidations: self.uninvited_invalidations + other.uninvited_invalidations,
            foreign_invalidations: self.foreign_invalidations + other.foreign_invalidations,
            failed_marshal_count: self.failed_marshal_count + other.failed_marshal_count,
            bytes_registered_read: self.bytes_registered_read + other.bytes_registered_read,
            bytes_registered_write: self.bytes_registered_write + other.bytes_registered_write,
            work_requests: self.work_requests + other.work_requests,
            doorbells: self.doorbells + other.doorbells,
            drain_markers: self.drain_markers + other.drain_markers,
            posts_refused: self.posts_refused + other.posts_refused,
            post_error: other.post_error.or(self.post_error),
            send_chains: self.send_chains + other.send_chains,
            receive_doorbells: self.receive_doorbells + other.receive_doorbells,
            send_completions: self.send_completions + other.send_completions,
            receive_completions: self.receive_completions + other.receive_completions,
            stale_completions: self.stale_completions + other.stale_completions,
            reply_waits_for_send: self.reply_waits_for_send + other.reply_waits_for_send,
            bad_reply_count: self.bad_reply_count + other.bad_reply_count,
            connections: self.connections + other.connections,
            disconnects: self.disconnects + other.disconnects,
            causes_while_ending: self.causes_while_ending + other.causes_while_ending,
            drain_timeouts: self.drain_timeouts + other.drain_timeouts,
            request_slots_used: self.request_slots_used + other.request_slots_used,
            slots_held: self.slots_held + other.slots_held,
            shared_receives_free: self.shared_receives_free + other.shared_receives_free,
            shared_receives_withdrawn: self.shared_receives_withdrawn + other.shared_receives_withdrawn,
            trace_records_dropped: self.trace_records_dropped + other.trace_records_dropped,
            shortest_key_reuse_ns: shortest(self.shortest_key_reuse_ns, other.shortest_key_reuse_ns),
        }
    }
}

/// The shorter of two times, of which either may be unknown.
fn shortest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
