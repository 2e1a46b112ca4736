//! What one engine counts. Each counter of its [`Statistics`] is changed here alone, by the name of
//! what happened, so that what belongs together is counted together.

use crate::{
    chain::Registered,
    pad::PadFailure,
    provider::{CommandError, PostError},
    statistics::Statistics,
    waits::WaitCause,
};
use frwr_mempool::mutant;

/// See the module. What polls count is [`Polls`](crate::polls::Polls), gauges are read where they are.
#[derive(Default)]
pub(crate) struct Counters {
    counted: Statistics,
    /// Keys that the peer killed, uninvited and invited: which of both is no branch.
    remotely_invalidated: [u64; 2],
    /// Apart from the counters, which are hot.
    last: Box<LastErrors>,
}

/// What the device said to the last of each kind of failure.
#[derive(Debug, Default)]
struct LastErrors {
    mr_allocation: Option<CommandError>,
    deregistration: Option<CommandError>,
    pad: Option<PadFailure>,
    post: Option<PostError>,
}

/// Requests.
impl Counters {
    /// One was admitted.
    #[inline(always)]
    pub(crate) fn request(&mut self) {
        self.counted.requests += 1;
    }

    /// The end of so many was reported.
    #[inline(always)]
    pub(crate) fn requests_ended(&mut self, count: u64) {
        self.counted.requests_ended += count;
    }

    /// One was not taken, since all slots were in use.
    #[inline(always)]
    pub(crate) fn request_without_slot(&mut self) {
        self.counted.requests_without_slot += 1;
    }

    /// One has to wait, first for this.
    pub(crate) fn request_waits(&mut self, cause: WaitCause) {
        self.counted.requests_waited += 1;
        self.counted.request_waits.add(cause, 1);
    }

    /// The message of one had no room for its keys.
    pub(crate) fn request_unannounced(&mut self) {
        self.counted.failed_marshal_count += 1;
    }

    /// The reply of one waits for the completion of its message.
    #[inline(always)]
    pub(crate) fn reply_waits_for_send(&mut self) {
        self.counted.reply_waits_for_send += 1;
    }
}

/// Transfers.
impl Counters {
    /// One was admitted.
    #[inline(always)]
    pub(crate) fn transfer(&mut self) {
        self.counted.transfers += 1;
    }

    /// One was not taken, since all slots were in use.
    #[inline(always)]
    pub(crate) fn transfer_without_slot(&mut self) {
        self.counted.transfers_without_slot += 1;
    }

    /// One has to wait, first for this.
    pub(crate) fn transfer_waits(&mut self, cause: WaitCause) {
        self.counted.transfer_waits.add(cause, 1);
    }
}

/// Keys, and what kills them.
impl Counters {
    /// The device took these registrations.
    #[inline(always)]
    pub(crate) fn registered(&mut self, registered: &Registered) {
        self.counted.registrations += registered.registrations;
        self.counted.lists_registered += registered.lists;
        let [read, write, both] = registered.bytes;
        self.counted.bytes_registered_read += read + both;
        self.counted.bytes_registered_write += write + if mutant!(both_rights_uncounted) { 0 } else { both };
    }

    /// The device took the registration of a write pad, posted alone.
    pub(crate) fn pad_registered(&mut self) {
        self.counted.registrations += 1;
        self.counted.work_requests += 1;
    }

    /// A connection has no write pad, although it should.
    pub(crate) fn pad_failed(&mut self, failure: PadFailure) {
        self.counted.pads_failed += 1;
        self.last.pad = Some(failure);
    }

    /// So many invalidations were put into one chain.
    pub(crate) fn invalidations_staged(&mut self, count: u64) {
        self.counted.local_inv_needed += count;
        self.counted.local_inv_chains += u64::from(count > 0);
    }

    /// So many invalidations completed.
    #[inline(always)]
    pub(crate) fn invalidated(&mut self, count: u64) {
        self.counted.local_invalidations += count;
    }

    /// The peer killed a key of a request, which had `invited` it or not.
    #[inline(always)]
    pub(crate) fn remotely_invalidated(&mut self, invited: bool) {
        self.remotely_invalidated[usize::from(invited)] += 1;
    }

    /// The peer named a key that is not the request's.
    pub(crate) fn foreign_invalidation(&mut self) {
        self.counted.foreign_invalidations += 1;
    }
}

/// MR objects.
impl Counters {
    /// One was made; `recovers`: in place of one that was stale.
    pub(crate) fn mr_allocated(&mut self, recovers: bool) {
        self.counted.mrs_allocated += 1;
        self.counted.mrs_recovered += u64::from(recovers);
    }

    /// One was not made.
    pub(crate) fn mr_not_allocated(&mut self, error: CommandError) {
        self.counted.mr_allocations_failed += 1;
        self.last.mr_allocation = Some(error);
    }

    /// One was destroyed, with so many keys that were alive or may have been.
    pub(crate) fn mr_destroyed(&mut self, live_keys: u64) {
        self.counted.mrs_destroyed += 1;
        self.counted.keys_destroyed_live += live_keys;
    }

    /// An attempt to destroy one was refused.
    pub(crate) fn mr_not_destroyed(&mut self, error: CommandError) {
        self.counted.deregistrations_failed += 1;
        self.last.deregistration = Some(error);
    }

    /// The last attempt was.
    pub(crate) fn mr_orphaned(&mut self) {
        self.counted.mrs_orphaned += 1;
    }
}

/// Posts and completions.
impl Counters {
    /// A chain was posted: one doorbell.
    #[inline(always)]
    pub(crate) fn chain_posted(&mut self) {
        self.counted.doorbells += 1;
        self.counted.send_chains += 1;
    }

    /// The device took so many work requests of a chain.
    #[inline(always)]
    pub(crate) fn work_requests(&mut self, accepted: u64) {
        self.counted.work_requests += accepted;
    }

    /// Receives were posted.
    #[inline(always)]
    pub(crate) fn receives_posted(&mut self) {
        self.counted.receive_doorbells += 1;
    }

    /// The device refused a post, in whole or in part.
    pub(crate) fn post_refused(&mut self, error: PostError) {
        self.counted.posts_refused += 1;
        self.last.post = Some(error);
    }

    /// So many completions of sends were taken.
    #[inline(always)]
    pub(crate) fn sends_completed(&mut self, count: u32) {
        self.counted.send_completions += u64::from(count);
    }

    /// So many completions of receives were taken.
    #[inline(always)]
    pub(crate) fn receives_completed(&mut self, count: u32) {
        self.counted.receive_completions += u64::from(count);
    }

    /// A completion named nothing of ours, or nothing any more.
    pub(crate) fn stale_completion(&mut self) {
        self.counted.stale_completions += 1;
    }

    /// The peer should not have sent this.
    pub(crate) fn bad_reply(&mut self) {
        self.counted.bad_reply_count += 1;
    }

    /// A trace record found no room.
    pub(crate) fn trace_record_dropped(&mut self) {
        self.counted.trace_records_dropped += 1;
    }
}

/// Connections.
impl Counters {
    /// One is ready.
    pub(crate) fn connected(&mut self) {
        self.counted.connections += 1;
    }

    /// One begins to end.
    pub(crate) fn disconnects(&mut self) {
        self.counted.disconnects += 1;
    }

    /// There is one more reason why one ends that ends already.
    #[inline(always)]
    pub(crate) fn cause_while_ending(&mut self) {
        self.counted.causes_while_ending += 1;
    }

    /// The marker behind which one drains was posted.
    pub(crate) fn drain_marker(&mut self) {
        self.counted.drain_markers += 1;
    }

    /// The queue pair of one is destroyed before it has drained.
    pub(crate) fn drain_timeout(&mut self) {
        self.counted.drain_timeouts += 1;
    }
}

impl Counters {
    /// All that was counted; what polls count, and gauges, are 0.
    pub(crate) fn read(&self) -> Statistics {
        let [uninvited, invited] = self.remotely_invalidated;
        Statistics {
            mr_allocation_error: self.last.mr_allocation,
            deregistration_error: self.last.deregistration,
            pad_failure: self.last.pad,
            post_error: self.last.post,
            remote_invalidations: uninvited + invited,
            uninvited_invalidations: uninvited,
            ..self.counted
        }
    }
}
