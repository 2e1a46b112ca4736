//! What one queue pair's receive side has: receives of its own, or so many that it may take of shared ones; and how it is known that it
//! takes no more.

use crate::{
    fixed_list::FixedList,
    provider::{ReceiveRequest, ScatterElement, Token},
};
use frwr_mempool::{Region, mutant, region::CarveError};

/// See the module.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// Receives of its own that the next flush posts.
    next: FixedList<ReceiveRequest>,
    /// Receives posted to the device; of shared ones those that this connection's peer may use.
    posted: u32,
    /// Shared receives that are for its use: of its peer, and for replies.
    shared: u32,
    /// The queue pair takes no more shared receives: known since the receive completion queue was found empty so often.
    ended_at: Option<u64>,
    /// It answers a connect request: its queue pair receives from the accept on.
    accepts: bool,
    /// It was accepted or established, so that its queue pair may have received.
    may_have_received: bool,
    /// The queue pair was given up before it was known to take no more.
    gave_up: bool,
}

impl ReceiveQueue {
    /// One that was never opened, for so many receives of its own; none where they are shared.
    pub(crate) fn new_in(region: &mut Region, receives: u32) -> Result<Self, CarveError> {
        let vacant = ReceiveRequest { token: Token(0), element: ScatterElement::default() };
        Ok(Self {
            next: FixedList::new_in(region, receives as usize, vacant)?,
            posted: 0,
            shared: 0,
            ended_at: None,
            accepts: false,
            may_have_received: false,
            gave_up: false,
        })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(receives: u32) -> Option<usize> {
        FixedList::<ReceiveRequest>::bytes_needed(receives as usize)
    }

    /// A connection opens, which is for so many shared receives; `accepts`: it answers a connect request.
    pub(crate) fn begin(&mut self, shared: u32, accepts: bool) {
        // S5: what was said of the former queue pair counts for this one.
        self.ended_at = if mutant!(S5_last_receive) { self.ended_at } else { None };
        (self.shared, self.accepts) = (shared, accepts);
        (self.posted, self.may_have_received, self.gave_up) = (0, false, false);
    }

    /// The next flush posts this receive. False where it has none of its own.
    #[inline(always)]
    pub(crate) fn post_next(&mut self, receive: ReceiveRequest) -> bool {
        self.next.push_within(receive)
    }

    /// What the next flush posts.
    #[inline(always)]
    pub(crate) fn next(&self) -> &[ReceiveRequest] {
        self.next.as_slice()
    }

    /// The next flush posts something.
    #[inline(always)]
    pub(crate) fn has_next(&self) -> bool {
        !self.next.is_empty()
    }

    /// It was posted, or will not be.
    #[inline(always)]
    pub(crate) fn clear_next(&mut self) {
        self.next.clear();
    }

    /// The queue pair may take its part of the shared receives, which are posted.
    pub(crate) fn open_shared(&mut self) {
        self.posted = self.shared;
    }

    /// Receives that are posted, or that its peer may use of shared ones.
    pub(crate) fn count(&self) -> u32 {
        self.posted
    }

    /// Shared receives that are for its use.
    pub(crate) fn shared(&self) -> u32 {
        self.shared
    }

    /// The device took so many.
    #[inline(always)]
    pub(crate) fn posted(&mut self, count: u32) {
        self.posted += count;
    }

    /// One completed.
    #[inline(always)]
    pub(crate) fn completed(&mut self) {
        self.posted -= 1;
    }

    /// The same of one that may have been given up with the others.
    pub(crate) fn completed_late(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Some are posted, or its peer may use some.
    #[inline(always)]
    pub(crate) fn has_posted(&self) -> bool {
        self.posted > 0
    }

    /// Nothing that was posted comes back any more.
    pub(crate) fn abandon(&mut self) {
        self.posted = 0;
    }

    /// Control goes on to the connection manager, if it was `told` to: whoever accepts receives from here on.
    pub(crate) fn handed_on(&mut self, told: bool) {
        self.may_have_received = told && self.accepts;
    }

    /// The connection is established.
    pub(crate) fn established(&mut self) {
        self.may_have_received = true;
    }

    /// The queue pair said that it takes no more shared receives, where the completion queue was found empty so often.
    pub(crate) fn ended(&mut self, empty_polls: u64) {
        self.ended_at = Some(empty_polls);
    }

    /// Whether it was said.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Whether it was said, and all that it took was read behind that.
    pub(crate) fn is_drained(&self, empty_polls: u64) -> bool {
        // S5: its last completions are not waited for.
        self.ended_at.is_some_and(|at| mutant!(S5_last_completions) || empty_polls > at)
    }

    /// It is given up with what it may have taken of the shared receives: nothing, where it was never accepted or connected.
    pub(crate) fn give_up(&mut self, empty_polls: u64) {
        self.gave_up = self.ended_at.is_none_or(|at| empty_polls <= at) && self.may_have_received;
    }

    /// The queue pair is gone. Returns the shared receives that went with it.
    pub(crate) fn close_shared(&mut self) -> u32 {
        let posted = core::mem::take(&mut self.posted);
        if self.gave_up && !mutant!(given_up_receives_granted) { posted } else { 0 }
    }
}
