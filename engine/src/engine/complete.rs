//! One poll: completions, and what else there is to look at. What was received is for `received`, what was sent for `retire`.

use super::{Engine, MAX_CONTROL_MESSAGES_PER_POLL};
use crate::{
    connection::Early,
    event::Received,
    link::LINK_CAPACITY,
    protocol::Protocol,
    provider::{Completion, CompletionBatch, CompletionQueue, MAX_COMPLETIONS_PER_POLL, Port, Success},
    shared_receives::SharedReceives,
    timestamp::Timestamp,
};
use core::{task::Waker, time::Duration};
use frwr_mempool::mutant;

/// How often an engine looks whether Control has news of a queue pair that the device keeps, or of a memory that is being removed; nothing
/// wakes who sleeps.
const KEPT_PERIOD: Duration = Duration::from_millis(1);

impl<P: Port> Engine<P> {
    /// One poll stage: completions of receives, then of sends, messages from Control, requests that wait. Returns the work
    /// done; 0 for an empty poll, behind which no event waits and nothing is to be flushed, so that both calls may be left out.
    /// `now` must not go back. Bounded: at most one batch of each kind.
    #[inline(always)]
    pub fn poll(&mut self, now: impl Into<Timestamp>, protocol: &mut impl Protocol) -> u32 {
        self.port.begin_iteration(self.polls.begin(now.into()));
        // Most polls of a core that waits end here.
        if self.has_nothing_to_do() { 0 } else { self.poll_all(protocol) }
    }

    /// Whether [`Engine::poll_all`] would do nothing.
    #[inline(always)]
    fn has_nothing_to_do(&self) -> bool {
        !self.chores.is_alert()
            && self.dirty.is_empty()
            && self.events.is_empty()
            && !self.link.has_news()
            && !self.port.may_have_completions(CompletionQueue::Receive)
            && !self.port.may_have_completions(CompletionQueue::Send)
    }

    #[inline(never)]
    fn poll_all(&mut self, protocol: &mut impl Protocol) -> u32 {
        let mut work = 0;
        // A caller that takes no events gets no more completions and messages: nothing is lost, and nothing grows.
        if !self.events.is_half_full() {
            let mut batch = CompletionBatch::new();
            self.port.poll(CompletionQueue::Receive, &mut batch);
            if !batch.is_empty() {
                self.take_receives(&batch, protocol);
                work += batch.len() as u32;
            }
            // Who ends waits for this; nobody else does.
            if !self.chores.unsettled().is_empty() && !batch.is_full() {
                self.polls.read_all_receives();
            }
            batch.clear();
            self.port.poll(CompletionQueue::Send, &mut batch);
            if !batch.is_empty() {
                work += self.take_sends(&batch);
            }
            if self.link.has_messages() {
                work += self.poll_control();
            }
        } else {
            self.polls.skip();
        }
        if self.chores.is_alert() {
            work += self.poll_chores(work, protocol);
        }
        if work == 0 && !self.has_pending() {
            return 0;
        }
        self.polls.found_work();
        work.max(1)
    }

    /// Whether messages, ends of work requests or what Control says may have arrived before the last poll, which returned `work`, and
    /// were not read by it: nobody is silent whose word may be among them. After [`Engine::polls_of_full_queues`] further polls all has been
    /// read that is there now.
    #[must_use]
    pub fn may_have_unread(&self, work: u32) -> bool {
        work as usize >= MAX_COMPLETIONS_PER_POLL
            || self.polls.was_skipped()
            || !self.events.is_empty()
            || self.link.has_messages()
    }

    /// Polls, with all events taken behind each, that read as much as the completion queues and Control's lane ever hold.
    #[must_use]
    pub fn polls_of_full_queues(&self) -> u32 {
        let sends = self.plan.sizes.send.saturating_mul(self.plan.connections);
        let completions = sends.max(self.plan.receive_buffers).div_ceil(MAX_COMPLETIONS_PER_POLL as u32);
        completions.max(LINK_CAPACITY.div_ceil(MAX_CONTROL_MESSAGES_PER_POLL) as u32) + 1
    }

    /// What is rarely there. `read`: the work of this poll so far.
    #[inline(never)]
    fn poll_chores(&mut self, read: u32, protocol: &mut impl Protocol) -> u32 {
        let mut work = 0;
        if self.chores.may_be_returned() {
            work += self.poll_returned();
        }
        if !self.chores.unsettled().is_empty() {
            work += self.settle(read);
        }
        // In front of who waits: a barrier needs an entry that has come back, and others may never leave one.
        if self.memories.are_withdrawn() {
            work += self.release_withdrawn();
        }
        if !self.chores.attention().is_empty() {
            work += self.admit_all(protocol);
        }
        // What a full budget left of Control's messages is no news.
        self.chores.looked_at(self.memories.are_withdrawn() || self.link.has_messages());
        work
    }

    /// Whether events wait for [`Engine::next_event`], or the next [`Engine::flush`] has anything to post: what the next poll counts as work.
    /// Who submits by the clock behind a poll that returned 0 asks here whether its own turn did nothing.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        let is_due = |shared: &SharedReceives| shared.is_due(self.polls.now());
        !self.events.is_empty() || !self.dirty.is_empty() || self.shared.as_ref().is_some_and(is_due)
    }

    /// Says how the core that owns the engine is woken where it sleeps ([`Engine::arm`]). To be called before it listens or connects.
    pub fn wakes(&mut self, waker: &Waker) {
        self.link.wakes(waker);
        self.port.wakes(waker);
    }

    /// The core wants to sleep: whatever arrives from now on wakes it, by the waker of [`Engine::wakes`], or because
    /// [`Port::descriptor`] becomes readable. To be called before each sleep, and the engine to be polled once more behind it: where that
    /// finds nothing, it need not be polled before it is woken, or [`Engine::poll_at`]. False where it has to be polled nevertheless.
    pub fn arm(&mut self) -> bool {
        self.link.arm();
        self.port.arm()
    }

    /// Behind [`Engine::arm`] and the poll that followed it and found nothing: nothing is left that only another poll would find.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.port.rests()
    }

    /// The latest time that it was told.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.polls.now()
    }

    /// When the engine has to be polled again although nothing arrives: the next drain time-out, refill, or attempt to post receives; now,
    /// where it waits for Control, which wakes nobody.
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        let now = self.polls.now().since_epoch();
        let kept = self.chores.unsettled().iter().filter(|index| self.connections[*index].is_kept()).count();
        if self.chores.unsettled().len() as usize > kept || self.has_pending() {
            return Some(now);
        }
        // What is destroyed, or is to be, comes back from Control alone.
        let waiting = || self.chores.attention().iter().map(|index| &self.connections[index]);
        if self.chores.frees() || waiting().any(|connection| connection.objects.has_unasked()) {
            return Some(now);
        }
        let is_awaited = kept > 0 || self.memories.are_leaving();
        let kept = is_awaited.then(|| now.saturating_add(KEPT_PERIOD));
        let refills = waiting()
            .filter(|connection| connection.waiting().requests() > 0)
            .map(|connection| connection.objects.refill_after().max(now));
        refills.chain(self.shared.as_ref().and_then(SharedReceives::due_at)).chain(kept).min()
    }

    /// The completion names a queue pair that the connection has now.
    #[inline]
    pub(super) fn is_current(&self, index: usize, completion: &Completion) -> bool {
        // S5: a completion of a queue pair that is gone is one of its successor's.
        self.connections.get(index).is_some_and(|found| {
            (mutant!(S5_current) || found.queue_pair == completion.queue_pair) && !found.is_vacant()
        })
    }

    #[inline(never)]
    fn poll_control(&mut self) -> u32 {
        let mut work = 0;
        while work < MAX_CONTROL_MESSAGES_PER_POLL as u32 {
            let Some(message) = self.link.next_message() else { break };
            self.control_message(message);
            work += 1;
        }
        // More may be left, which is no news.
        self.chores.raise_alert();
        work
    }

    /// Descriptors whose objects Control has destroyed.
    #[inline(never)]
    fn poll_returned(&mut self) -> u32 {
        let mut work = 0;
        while work < MAX_CONTROL_MESSAGES_PER_POLL as u32 {
            // Mutant: one that is destroyed is never taken back.
            let Some(descriptor) = self.pool.next_returned() else { break };
            if mutant!(S10_returned) && work > 0 {
                continue;
            }
            self.object_destroyed(descriptor);
            work += 1;
        }
        work
    }

    /// For connections where something waits.
    #[inline(never)]
    fn admit_all(&mut self, protocol: &mut impl Protocol) -> u32 {
        debug_assert!(self.all_are_attended(), "who has something that waits asks for attention");
        let (mut work, mut from) = (0, 0);
        while let Some(index) = self.chores.attention().next(from) {
            from = index + 1;
            work += self.attend(index, protocol);
            if !self.connections[index].needs_attention() {
                self.chores.attended(index);
            }
        }
        // K11: who still waits is forgotten.
        if mutant!(K11_poll) && work == 0 {
            self.chores.forget_attention();
        }
        work
    }

    /// What waits on a connection goes on, as far as there is room for it.
    fn attend(&mut self, index: usize, protocol: &mut impl Protocol) -> u32 {
        let mut work = 0;
        if !self.connections[index].objects.to_free().is_empty() {
            // Control's lane was full; a request may wait for this destruction as its fence.
            self.send_frees(index);
        }
        if self.connections[index].objects.has_unasked() {
            self.refill_unasked(index);
        }
        while self.connections[index].is_ready()
            && let Some(Early { buffer, invalidated }) = self.connections[index].next_early()
        {
            if let Some((generation, length)) = self.receives.held(buffer) {
                let received = Received { buffer, generation, length, is_reply: false };
                self.received(index, received, Success { bytes: length, invalidated }, protocol);
            }
            work += 1;
        }
        if self.connections[index].waiting().transfers() > 0 {
            work += self.admit_waiting_transfers(index);
        }
        // K12: who waits is woken by the clock alone.
        let is_time = !mutant!(K12)
            || self.polls.now().since_epoch()
                >= self.connections[index].objects.refill_after() + Duration::from_millis(250);
        if self.connections[index].waiting().requests() > 0 && is_time {
            work += self.admit_waiting(index, protocol);
        }
        work
    }

    /// Whether all connections that need attention are looked at: those that end are by each poll, whatever they wait for.
    fn all_are_attended(&self) -> bool {
        let mut connections = self.connections.iter().enumerate();
        connections.all(|(index, connection)| {
            !connection.needs_attention() || connection.is_ending() || self.chores.attention().contains(index)
        })
    }
}
