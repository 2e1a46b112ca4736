//! One poll: completions, what was received, and what else there is to look at. What was sent is for `retire`.

use super::{Engine, MAX_CONTROL_MESSAGES_PER_POLL, fence::Replied};
use crate::{
    connection::{Connection, Opening, Phase as Connected},
    event::{ConnectionId, DisconnectCause, Event, Received, RequestStatus},
    link::LINK_CAPACITY,
    protocol::{CLASSIFY_BYTES, Message, Protocol},
    provider::{Completion, CompletionBatch, CompletionQueue, MAX_COMPLETIONS_PER_POLL, Port, Success, TokenKind},
    request::{Phase, RequestHandle},
    shared_receives::SharedReceives,
    timestamp::Timestamp,
};
use arrayvec::ArrayVec;
use core::time::Duration;
use frwr_mempool::mutant;
use frwr_mempool::{
    device_memory::{self, DeviceTable},
    slab::Handle,
};

/// How often an engine looks whether Control has news of a queue pair that the device keeps; nothing wakes who sleeps.
const KEPT_PERIOD: Duration = Duration::from_millis(1);

impl<P: Port> Engine<P> {
    /// One poll stage: completions of receives, then of sends, messages from Control, requests that wait. Returns the work
    /// done; 0 for an empty poll, behind which no event waits and nothing is to be flushed, so that both calls may be left out.
    /// `now` must not go back. Bounded: at most one batch of each kind.
    #[inline(always)]
    pub fn poll(&mut self, now: impl Into<Timestamp>, protocol: &mut impl Protocol) -> u32 {
        self.now = self.now.max(now.into());
        self.port.begin_iteration(self.statistics.polls);
        self.statistics.polls += 1;
        // Most polls of a core that waits end here.
        if self.has_nothing_to_do() { 0 } else { self.poll_all(protocol) }
    }

    /// Whether [`Engine::poll_all`] would do nothing.
    #[inline(always)]
    fn has_nothing_to_do(&self) -> bool {
        debug_assert!(self.alert || !self.has_chores(), "who makes work for a poll raises the alert");
        !self.alert
            && self.dirty.is_empty()
            && self.events.is_empty()
            && !self.link.from_control.has_news()
            && !self.port.may_have_completions(CompletionQueue::Receive)
            && !self.port.may_have_completions(CompletionQueue::Send)
    }

    /// Some connection has something that waits: the next poll looks at all of them.
    #[inline(always)]
    pub(super) fn ask_attention(&mut self) {
        self.attention = true;
        self.alert = true;
    }

    /// Whether each poll has to look at more than a core that waits does.
    fn has_chores(&self) -> bool {
        self.freeing > 0 || self.unsettled > 0 || self.attention || self.shared.is_some()
    }

    #[inline(never)]
    fn poll_all(&mut self, protocol: &mut impl Protocol) -> u32 {
        let mut work = 0;
        // A caller that takes no events gets no more completions and messages: nothing is lost, and nothing grows.
        if !self.events.is_half_full() {
            let mut batch = CompletionBatch::new();
            self.port.poll(CompletionQueue::Receive, &mut batch);
            if !batch.is_empty() {
                work += self.take_receives(&batch, protocol);
            }
            // Who ends waits for this; nobody else does.
            if self.unsettled > 0 && !batch.is_full() {
                self.empty_receive_polls += 1;
            }
            batch.clear();
            self.port.poll(CompletionQueue::Send, &mut batch);
            if !batch.is_empty() {
                work += self.take_sends(&batch);
            }
            if !self.link.from_control.is_empty() {
                work += self.poll_control();
            }
        } else {
            self.skip_queues();
        }
        if self.alert {
            work += self.poll_chores(work, protocol);
        }
        if work == 0 && !self.has_pending() {
            return 0;
        }
        self.full_polls += 1;
        work.max(1)
    }

    #[cold]
    fn skip_queues(&mut self) {
        self.skipped_in = self.statistics.polls;
    }

    /// Whether messages, ends of work requests or what Control says may have arrived before the last poll, which returned `work`, and
    /// were not read by it: nobody is silent whose word may be among them. After [`Engine::polls_of_full_queues`] further polls all has been
    /// read that is there now.
    #[must_use]
    pub fn may_have_unread(&self, work: u32) -> bool {
        work as usize >= MAX_COMPLETIONS_PER_POLL
            || self.skipped_in == self.statistics.polls
            || !self.events.is_empty()
            || !self.link.from_control.is_empty()
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
        if self.freeing > 0 && !(mutant!(returned_behind_others) && self.unsettled > 0) {
            work += self.poll_returned();
        }
        if self.unsettled > 0 {
            work += self.settle(read);
        }
        if self.attention {
            work += self.admit_all(protocol);
        }
        // What a full budget left of Control's messages is no news.
        self.alert = self.has_chores() || !self.link.from_control.is_empty();
        work
    }

    /// Whether events wait for [`Engine::next_event`], or the next [`Engine::flush`] has anything to post: what the next poll counts as work.
    /// Who submits by the clock behind a poll that returned 0 asks here whether its own turn did nothing.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        let is_due = |shared: &SharedReceives| shared.is_due(self.now);
        !self.events.is_empty() || !self.dirty.is_empty() || self.shared.as_ref().is_some_and(is_due)
    }

    /// When the engine has to be polled again although nothing arrives: the next drain time-out, refill, or attempt to post receives; now,
    /// where it waits for Control, which wakes nobody.
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        let now = self.now.since_epoch();
        let kept = self.connections.iter().filter(|connection| connection.is_kept).count();
        if self.unsettled as usize > kept || self.has_pending() {
            return Some(now);
        }
        // What is destroyed, or is to be, comes back from Control alone.
        if self.freeing > 0 || self.connections.iter().any(|connection| connection.unasked > 0) {
            return Some(now);
        }
        let kept = (kept > 0).then(|| now.saturating_add(KEPT_PERIOD));
        let waiting = |connection: &&Connection| !connection.waiting_requests.is_empty();
        let refills = self.connections.iter().filter(waiting).map(|connection| connection.refill_after.max(now));
        refills.chain(self.shared.as_ref().and_then(SharedReceives::due_at)).chain(kept).min()
    }

    #[inline(never)]
    fn take_receives(&mut self, batch: &CompletionBatch, protocol: &mut impl Protocol) -> u32 {
        if self.shared.is_none() && self.trace.is_none() {
            for completion in batch {
                self.receive_completion(completion, protocol);
            }
        } else {
            for completion in batch {
                self.other_receive_completion(completion, protocol);
            }
        }
        let taken = batch.len() as u32;
        self.statistics.receive_completions += u64::from(taken);
        taken
    }

    /// The usual completion: a reply on a ready connection with a receive queue of its own, which ends its request. All that
    /// [`Engine::own_receive_completion`], `received` and `reply` do, with one look-up of each thing; they do whatever differs.
    #[inline(always)]
    fn receive_completion(&mut self, completion: &Completion, protocol: &mut impl Protocol) {
        let token = completion.token;
        let stride = self.receives.stride();
        let Some(entry) = self.receives.posted_mut(token) else {
            return self.other_receive_completion(completion, protocol);
        };
        let index = entry.connection;
        let (Some(connection), Ok(success)) = (self.connections.get_mut(usize::from(index)), completion.result) else {
            return self.other_receive_completion(completion, protocol);
        };
        if (connection.queue_pair != completion.queue_pair && !mutant!(S5_receive)) || !connection.is_ready() {
            return self.other_receive_completion(completion, protocol);
        }
        let length = success.bytes.min(stride);
        entry.hold(length);
        // This one was posted and counted; only a drain that timed out forgets them, and that connection is not ready.
        connection.receives_posted -= 1;
        connection.peer_receives += 1;
        let message = classify(self.receives.messages(), token.index(), protocol, connection.key, length);
        let Message::Reply(RequestHandle(handle)) = message else {
            return self.classified_late(completion, message);
        };
        let Some(request) = self.requests.get_mut(handle).map(|request| &mut **request) else {
            return self.replied_late(completion, handle);
        };
        // Mutant: an answer to what was not sent counts.
        let was_posted = mutant!(answer_before_post) || connection.send_queue.was_posted(request.message_position);
        if request.standing != connection.posted || !was_posted {
            return self.replied_late(completion, handle);
        }
        if let Some(key) = success.invalidated {
            let &[only] = request.mrs.as_slice() else {
                return self.replied_late(completion, handle);
            };
            let Some(mr) = self.pool.get_mut(only) else {
                return self.replied_late(completion, handle);
            };
            debug_assert_eq!(mr.connection(), connection.key, "a request's MRs are of its connection");
            // K14: any key that the peer names is the request's.
            let key = if mutant!(K14_at_once) { mr.key() } else { key };
            if mr.key_died(handle.index(), key).is_err() {
                return self.replied_late(completion, handle);
            }
            // Not cleared: that would look once more how many there are.
            request.mrs = ArrayVec::new();
            let cost = self.capabilities.send_queue_cost.invalidate;
            connection.send_queue.release(cost);
            connection.idle.push(only);
            if !request.invited && !mutant!(uninvited_at_once) {
                self.statistics.uninvited_invalidations += 1;
            }
            self.statistics.remote_invalidations += 1;
        }
        let received = Received { buffer: token.index(), generation: token.generation(), length, is_reply: true };
        request.outcome = RequestStatus::Replied(received);
        // K13: told before the key is dead.
        if success.invalidated.is_some() || request.mrs.is_empty() || mutant!(K13_at_once) {
            request.standing.phase = Phase::Ended;
            self.statistics.requests_ended += 1;
            self.events.push_ended(handle.index());
            return;
        }
        let &[only] = request.mrs.as_slice() else { return self.fence_all(handle) };
        request.standing.phase = Phase::Fencing;
        connection.invalidate(only);
        if !core::mem::replace(&mut connection.dirty, true) {
            self.dirty.push(index);
        }
    }

    /// [`Engine::classified_late`] for a reply that does not end its request at once.
    #[inline(never)]
    fn replied_late(&mut self, completion: &Completion, request: Handle) {
        self.classified_late(completion, Message::Reply(RequestHandle(request)));
    }

    /// [`Engine::classified`] for a message of a receive that is in the caller's hands already. All but the message is found once more,
    /// so that who calls need not keep it at hand.
    #[inline(never)]
    fn classified_late(&mut self, completion: &Completion, message: Message) {
        let buffer = completion.token.index();
        let (Some(index), Ok(success)) = (self.receives.owner(buffer), completion.result) else { return };
        let length = success.bytes.min(self.receives.stride());
        let received = Received { buffer, generation: completion.token.generation(), length, is_reply: false };
        self.classified(usize::from(index), received, success, message);
    }

    /// A completion of a receive queue that one connection has for itself.
    fn own_receive_completion(&mut self, completion: &Completion, protocol: &mut impl Protocol) {
        let (buffer, generation) = (completion.token.index(), completion.token.generation());
        let Some(index) =
            self.receives.owner(buffer).map(usize::from).filter(|&index| self.is_current(index, completion))
        else {
            self.statistics.stale_completions += 1;
            return;
        };
        let Ok(success) = completion.result else {
            self.receive_failed(index, completion);
            return;
        };
        let Some(received) = self.receives.fill(buffer, generation, success.bytes) else {
            self.statistics.stale_completions += 1;
            return;
        };
        self.receive_returned(index);
        self.received(index, received, success, protocol);
    }

    /// Any completion of a receive queue.
    #[inline(never)]
    fn other_receive_completion(&mut self, completion: &Completion, protocol: &mut impl Protocol) {
        match completion.token.kind() {
            TokenKind::Foreign => self.events.push_back(Event::Foreign(*completion)),
            _ if self.shared.is_some() => self.shared_receive_completion(*completion, protocol),
            TokenKind::Receive => self.own_receive_completion(completion, protocol),
            _ => self.statistics.stale_completions += 1,
        }
    }

    #[cold]
    fn receive_failed(&mut self, index: usize, completion: &Completion) {
        let (token, Err(failure)) = (completion.token, completion.result) else { return };
        if !self.receives.unpost(token.index(), token.generation()) {
            self.statistics.stale_completions += 1;
            return;
        }
        if mutant!(flushed_receive_uncounted) {
            return self.work_request_failed(index, failure);
        }
        self.receive_returned(index);
        self.work_request_failed(index, failure);
    }

    /// A completion of a shared receive: the queue pair that it names tells the connection.
    fn shared_receive_completion(&mut self, completion: Completion, protocol: &mut impl Protocol) {
        let (token, Some(shared)) = (completion.token, &mut self.shared) else { return };
        let (buffer, generation) = (token.index(), token.generation());
        let index = shared.connection_of(completion.queue_pair).map(usize::from);
        if let (Ok(success), Some(index)) = (completion.result, index)
            && token.kind() == TokenKind::Receive
            && (mutant!(S5_shared) || self.connections[index].takes_shared_receives())
            && let Some(received) = self.receives.fill(buffer, generation, success.bytes)
        {
            self.connections[index].receives_posted -= 1;
            shared.taken(buffer, index as u16);
            self.received(index, received, success, protocol);
        } else {
            self.shared_receive_wasted(completion, index);
        }
    }

    /// A shared receive that nobody can use: it failed, its connection is gone or going, or its peer was not granted it.
    #[cold]
    fn shared_receive_wasted(&mut self, completion: Completion, index: Option<usize>) {
        let (token, Some(shared)) = (completion.token, &mut self.shared) else { return };
        let buffer = token.index();
        if token.kind() != TokenKind::Receive || !self.receives.unpost(buffer, token.generation()) {
            self.statistics.stale_completions += 1;
            return;
        }
        shared.released.push(buffer);
        let Some(index) = index else {
            self.statistics.stale_completions += 1;
            shared.found(completion.queue_pair);
            return;
        };
        let connection = &mut self.connections[index];
        let granted = connection.receives_posted > 0;
        if granted {
            connection.receives_posted -= 1;
            shared.taken(buffer, index as u16);
        }
        match completion.result {
            Err(failure) => self.work_request_failed(index, failure),
            Ok(_) if granted => self.statistics.stale_completions += 1,
            Ok(_) => self.fail(index, DisconnectCause::ReceivesExceeded),
        }
    }

    #[inline]
    fn receive_returned(&mut self, index: usize) {
        // After a drain that timed out the count is zero already, and the completions may still come.
        let posted = &mut self.connections[index].receives_posted;
        *posted = posted.saturating_sub(1);
    }

    /// The completion names a queue pair that the connection has now.
    #[inline]
    pub(super) fn is_current(&self, index: usize, completion: &Completion) -> bool {
        // S5: a completion of a queue pair that is gone is one of its successor's.
        self.connections.get(index).is_some_and(|found| {
            (mutant!(S5_current) || found.queue_pair == completion.queue_pair) && !found.is_vacant()
        })
    }

    fn received(&mut self, index: usize, received: Received, success: Success, protocol: &mut impl Protocol) {
        let connection = &mut self.connections[index];
        if !connection.was_ready {
            connection.early.push_back((received, success));
            self.ask_attention();
            return;
        }
        connection.peer_receives += 1;
        let key = connection.key;
        let message = classify(self.receives.messages(), received.buffer, protocol, key, received.length);
        self.classified(index, received, success, message);
    }

    /// A message whose protocol has said what it is.
    #[inline(never)]
    fn classified(&mut self, index: usize, mut received: Received, success: Success, message: Message) {
        let replied = match message {
            Message::Reply(request) => self.reply(index, request.0, success.invalidated, &received),
            // F13: what the command invalidated is not looked at.
            Message::Command if success.invalidated.is_none() || mutant!(F13_command) => {
                let connection = self.connections[index].key;
                self.events.push_back(Event::Received { connection, received });
                return;
            }
            // A message that is no reply has no request whose key it could kill (I25).
            Message::Command => Replied::Foreign,
            // Counted below, as one to no request.
            Message::Malformed => {
                self.fail(index, DisconnectCause::Protocol);
                Replied::Unknown
            }
        };
        match replied {
            Replied::Taken => {}
            Replied::Unknown => {
                self.statistics.bad_reply_count += 1;
                received.is_reply = self.answers_cancelled(index);
                // A key died that nobody can be found for: what it covered is unknown.
                if success.invalidated.is_some() && !mutant!(F13_unknown) {
                    self.foreign_invalidation(index);
                }
                self.release(received);
            }
            Replied::Foreign => {
                if !mutant!(F13_reply) {
                    self.foreign_invalidation(index);
                }
                self.release(received);
            }
        }
    }

    fn foreign_invalidation(&mut self, index: usize) {
        self.statistics.foreign_invalidations += 1;
        self.fail(index, DisconnectCause::ForeignInvalidation);
    }

    /// A buffer goes back to its queue pair with the next flush.
    #[inline]
    pub(super) fn repost(&mut self, buffer: u32, owner: u16) {
        if let Some(shared) = &mut self.shared {
            shared.released.push(buffer);
            return;
        }
        let connection = &mut self.connections[usize::from(owner)];
        if matches!(
            connection.phase,
            Connected::Ready | Connected::Opening(Opening::Handshake { .. } | Opening::Filling { .. })
        ) {
            connection.receives.push(self.receives.post(buffer, connection.bases[0].lkey));
            self.mark_dirty(owner);
        }
    }

    #[inline(never)]
    fn poll_control(&mut self) -> u32 {
        let mut work = 0;
        while work < MAX_CONTROL_MESSAGES_PER_POLL as u32 {
            let Some(message) = self.link.from_control.pop() else { break };
            self.control_message(message);
            work += 1;
        }
        // More may be left, which is no news.
        self.alert = true;
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
        let mut work = 0;
        for index in 0..self.connections.len() {
            if !self.connections[index].to_free.is_empty() {
                // Control's lane was full; a request may wait for this destruction as its fence.
                self.send_frees(index);
            }
            if self.connections[index].unasked > 0 {
                self.refill_unasked(index);
            }
            while self.connections[index].is_ready()
                && let Some((received, success)) = self.connections[index].early.pop_front()
            {
                self.received(index, received, success, protocol);
                work += 1;
            }
            if !self.connections[index].waiting_transfers.is_empty() {
                work += self.admit_waiting_transfers(index);
            }
            // K12: who waits is woken by the clock alone.
            let is_time = !mutant!(K12)
                || self.now.since_epoch() >= self.connections[index].refill_after + Duration::from_millis(250);
            if !self.connections[index].waiting_requests.is_empty() && is_time {
                work += self.admit_waiting(index, protocol);
            }
        }
        // K11: who still waits is forgotten.
        self.attention = !(mutant!(K11_poll) && work == 0) && self.connections.iter().any(Connection::needs_attention);
        work
    }
}

/// Has the protocol say what stands in this buffer, which has [`CLASSIFY_BYTES`] bytes or more, and is ours
/// until it is released. What stands behind a shorter message is not shown to anybody.
#[inline(always)]
fn classify<Q: Protocol>(
    messages: &DeviceTable,
    buffer: u32,
    protocol: &mut Q,
    connection: ConnectionId,
    length: u32,
) -> Message {
    const SHORT: usize = 2 * device_memory::WORD;
    const { assert!(Q::CLASSIFIED_BYTES <= CLASSIFY_BYTES, "a protocol sees CLASSIFY_BYTES bytes at most") };
    let shown = Q::CLASSIFIED_BYTES.min(CLASSIFY_BYTES);
    if Q::CLASSIFIED_BYTES == 0 {
        return protocol.classify(connection, &[], length);
    }
    if Q::CLASSIFIED_BYTES <= SHORT {
        let prefix = messages.read_front::<2>(buffer).unwrap_or_default();
        return protocol.classify(connection, &prefix.as_flattened()[..shown.min(length as usize)], length);
    }
    let prefix: [u8; CLASSIFY_BYTES] = messages.read_line(buffer).unwrap_or([0; CLASSIFY_BYTES]);
    protocol.classify(connection, &prefix[..shown.min(length as usize)], length)
}
