//! What one connection sends: the chain that the next flush posts, what was posted before it, and
//! which of both ask for a completion.
//!
//! A work request that is staged stands in the chain, which the device gets, and in the ring of the
//! send queue, which knows whose its completion is; and the signaller counts it. That the three
//! agree is what this room is for, so all of them change here alone: `stage` puts work requests in,
//! `unstage` takes them out again, or looks at those that the device refused.

mod stage;
mod unstage;

pub(crate) use stage::{Asks, Invalidating};

use crate::{
    chain::{ChainBuffer, NO_OWNER, Posted, Registered, SendQueue, chain_buffer},
    mr::ReturnPolicy,
    options::{EngineOptions, InvalidateSignalling, OnPostError},
    provider::{Capabilities, Operation, SendQueueCost, Token, WorkRequest},
    signal::Signaller,
};
use frwr_mempool::{Region, mutant, region::CarveError};

/// What options and device say of everything that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A chain may be cut anywhere, so that nothing may count on a later completion (F5, F6).
    every: bool,
    /// The same of invalidations, or each of them is to ask for its completion.
    every_invalidation: bool,
    /// A message waits for the registrations in front of it.
    fence: bool,
    return_policy: ReturnPolicy,
}

impl Rules {
    pub(crate) fn new(options: &EngineOptions, capabilities: &Capabilities) -> Self {
        let may_be_cut = options.on_post_error == OnPostError::DeregisterAndContinue;
        Self {
            // F5: what was accepted waits for the completion of what was refused.
            every: may_be_cut && !mutant!(F5_every),
            every_invalidation: options.invalidate_signalling == InvalidateSignalling::Every
                || (may_be_cut && !mutant!(F5_invalidations)),
            fence: capabilities.fence_after_registration,
            return_policy: options.return_policy,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sending {
    rules: Rules,
    /// Entries, and whose the completion of each work request is that is posted or staged.
    queue: SendQueue,
    /// What of it asks for a completion.
    signaller: Signaller,
    /// What the next flush posts: work requests of requests and transfers in the order of their
    /// admission, with the invalidations that stand in front of them.
    chain: ChainBuffer,
    /// The registrations in it.
    registered: Registered,
    /// One without a message was staged, and the last of those has not asked for its completion
    /// yet.
    standalone_staged: bool,
    /// A registration may be the last work request that was posted, and what stands behind it has
    /// to wait for it: the next chain is looked at.
    fence_owed: bool,
    /// The end of something in the chain is waited for, nothing behind it asks for a completion,
    /// and perhaps nothing is ever posted behind it.
    end_unsignalled: bool,
    /// A signalled message is in flight: its completion will free the slots that those before it
    /// hold.
    relief_coming: bool,
    /// Barriers that were staged, ever: the number of each is another one, so that a completion that
    /// comes again is not the next one's.
    barriers: u32,
}

impl Sending {
    /// One that can track so many entries; [`Sending::open`] sets how many a queue pair really has.
    pub(crate) fn new_in(
        region: &mut Region,
        entries: u32,
        cost: SendQueueCost,
        rules: Rules,
        signaller: Signaller,
    ) -> Result<Self, CarveError> {
        Ok(Self {
            rules,
            queue: SendQueue::new_in(region, entries, cost)?,
            signaller,
            // Credits bound what one flush can post, so a chain is never split.
            chain: chain_buffer(region, entries)?,
            registered: Registered::default(),
            standalone_staged: false,
            fence_owed: false,
            end_unsignalled: false,
            relief_coming: false,
            barriers: 0,
        })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(entries: u32) -> Option<usize> {
        SendQueue::bytes_needed(entries)?.checked_add(ChainBuffer::bytes_needed(entries as usize)?)
    }

    /// A connection opens: of what the former one sent nothing is owed or on its way.
    pub(crate) fn begin(&mut self) {
        if !mutant!(relief_kept) {
            self.relief_coming = false;
        }
        (self.standalone_staged, self.fence_owed) = (false, false);
    }

    /// Its queue pair is made, with so many entries.
    pub(crate) fn open(&mut self, entries: u32, signaller: Signaller) {
        self.queue.open(entries);
        self.signaller = signaller;
    }

    /// What is posted and staged, and what may be.
    #[inline(always)]
    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// What the next flush posts.
    #[inline(always)]
    pub(crate) fn chain(&self) -> &[WorkRequest] {
        self.chain.as_slice()
    }

    /// The next flush posts something.
    #[inline(always)]
    pub(crate) fn has_chain(&self) -> bool {
        !self.chain.is_empty()
    }

    /// Some descriptor's keys may begin another round in the chain.
    #[inline(always)]
    pub(crate) fn begins_round(&self) -> bool {
        self.registered.first_keys
    }

    /// Takes entries out of the free ones, or says that there are too few.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, entries: u32) -> bool {
        self.queue.reserve(entries)
    }

    /// Entries that were reserved for what is not posted after all are free again.
    #[inline(always)]
    pub(crate) fn release(&mut self, entries: u32) {
        self.queue.release(entries);
    }

    /// Somebody waits for what is posted or staged at this position.
    #[inline(always)]
    pub(crate) fn await_at(&mut self, position: u64) {
        self.queue.await_at(position);
    }

    /// All that is in flight goes without a completion, and there is something: what is sent next
    /// brings one. Else nothing is changed.
    pub(crate) fn ask_next(&mut self) -> bool {
        let in_flight = self.queue.in_flight();
        let all_go_without = in_flight > 0 && in_flight <= self.signaller.unsignalled().into();
        if all_go_without {
            self.signaller.refused();
        }
        all_go_without
    }

    /// What the chain still owes is asked for, as the last thing before it is posted: completions
    /// of ends that are waited for, and the fences of messages that wait for the registrations in
    /// front of them.
    #[inline(always)]
    pub(crate) fn close_chain(&mut self) {
        // F5: the end of what stands in a chain is waited for, and never asked for.
        if self.end_unsignalled && !mutant!(F5_transfers_unasked) {
            self.ask_for_end();
        }
        if self.standalone_staged && !mutant!(F5_standalone_unasked) {
            self.ask_for_standalone();
        }
    }

    /// The last of a chain asks for a completion, which tells of transfers and messages in front of
    /// it: nothing may ever be posted behind it, and their end must come out all the same.
    fn ask_for_end(&mut self) {
        self.end_unsignalled = false;
        if let Some(last) = self.chain.last_mut()
            && !last.signalled
            && !mutant!(F5_transfers_unsignalled)
        {
            last.signalled = true;
            self.signaller.signalled();
            self.relief_coming = true;
        }
    }

    /// The last registration without a message of a chain asks for a completion, which tells of
    /// those in front of it as well: nothing may ever be posted behind it, and its caller waits.
    /// Where messages wait for the registrations in front of them, whatever stands behind one of
    /// these does as well.
    #[inline(never)]
    fn ask_for_standalone(&mut self) {
        self.standalone_staged = false;
        if self.rules.fence && !mutant!(K19_standalone) {
            self.fence_behind_registrations();
        }
        let is_alone = |at: &usize| self.queue.next_at(*at as u64).is_some_and(Posted::is_standalone);
        let Some(last) = (0..self.chain.len()).rev().find(is_alone) else { return };
        let Some(&work) = self.chain.as_slice().get(last) else { return };
        self.chain.set(last, WorkRequest { signalled: true, ..work });
        if last + 1 == self.chain.len() {
            self.signaller.signalled();
        }
    }

    /// On a device that lets messages overtake registrations: what is posted next waits for what is
    /// posted, if the chain does not begin with an invalidation, which does so anyway.
    #[cold]
    fn owe_fence(&mut self) {
        (self.fence_owed, self.standalone_staged) = (true, true);
    }

    /// Has whatever stands behind a registration in the chain, or begins it and stands behind one
    /// that is posted, wait for that.
    #[cold]
    fn fence_behind_registrations(&mut self) {
        let mut is_owed = core::mem::take(&mut self.fence_owed);
        for at in 0..self.chain.len() {
            let Some(&work) = self.chain.as_slice().get(at) else { break };
            match work.operation {
                Operation::Register(_) => is_owed = true,
                // Waits for all in front of it by itself.
                Operation::Invalidate { .. } => is_owed = false,
                _ if core::mem::take(&mut is_owed) => self.chain.set(at, WorkRequest { fence: true, ..work }),
                _ => {}
            }
        }
        if is_owed {
            self.owe_fence();
        }
    }

    /// The device took the whole chain. Returns how many work requests that are.
    #[inline(always)]
    pub(crate) fn accept_all(&mut self) -> usize {
        let all = self.chain.len();
        self.queue.accept_all(all);
        all
    }

    /// The registrations of the chain, if it has any.
    #[inline(always)]
    pub(crate) fn take_registered(&mut self) -> Option<Registered> {
        (self.registered.registrations > 0).then(|| core::mem::take(&mut self.registered))
    }

    /// The chain was posted, and what follows from that is done: the next one begins.
    #[inline(always)]
    pub(crate) fn next_chain(&mut self) {
        self.chain.clear();
    }

    /// Whether the write pad's registration, which is posted alone, asks for a completion.
    pub(crate) fn count_pad(&mut self) -> bool {
        self.signaller.registration()
    }

    /// The device took the write pad's registration.
    pub(crate) fn pad_posted(&mut self, token: Token) {
        if self.rules.fence && !mutant!(K19_pad) {
            self.owe_fence();
        }
        // Its entry is one of the two that requests cannot reserve, so retiring it must not give
        // one to them.
        self.queue.push(Posted::new(token, NO_OWNER));
    }

    /// The device took the marker behind everything else.
    pub(crate) fn marker_posted(&mut self, token: Token) {
        self.queue.push(Posted::new(token, NO_OWNER));
    }

    /// Everything up to this posted position is done; returns the first position of it. Whoever
    /// waits for one of them is found by [`Sending::take_awaited`].
    #[inline(always)]
    pub(crate) fn retire_through(&mut self, through: u64) -> u64 {
        self.relief_coming = mutant!(relief_never_over) && self.relief_coming;
        self.queue.retire_through(through)
    }

    /// See [`SendQueue::take_awaited`].
    #[inline(always)]
    pub(crate) fn take_awaited(&mut self, first: u64, through: u64) -> u64 {
        self.queue.take_awaited(first, through)
    }

    /// Takes the oldest posted work request out, in front of a failure or failed itself; its
    /// entries are free again.
    pub(crate) fn retire(&mut self) -> Option<Posted> {
        self.relief_coming = false;
        self.queue.retire()
    }

    /// The same where nothing tells that the device is done with it.
    pub(crate) fn abandon(&mut self) -> Option<Posted> {
        self.queue.abandon()
    }
}
