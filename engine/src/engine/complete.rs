//! Completions: what was received, what was sent, and what that retires.

use super::{Engine, MAX_CONTROL_MESSAGES_PER_POLL, fence::Replied, life::keys_at_stake};
use crate::{
    chain::Posted,
    connection::{Connection, Opening, Phase as Connected},
    event::{DisconnectCause, Event, Received, TransferStatus},
    pool::Pool,
    protocol::{CLASSIFY_BYTES, Message, Protocol},
    provider::{Completion, CompletionBatch, CompletionQueue, FailureStatus, Port, Success, Token, TokenKind},
    request::{Outcome, Phase, Request, RequestHandle},
    trace::TracePoint,
    transfer::Kind,
};
use core::time::Duration;

impl<P: Port> Engine<P> {
    /// One poll stage: completions of receives, then of sends, messages from Control, requests that wait. Returns the work
    /// done; 0 for an empty poll. `now` must not go back. Bounded: at most one batch of each kind.
    pub fn poll(&mut self, now: Duration, protocol: &mut impl Protocol) -> u32 {
        if now > self.now {
            self.now = now;
        }
        self.port.begin_iteration(self.statistics.polls);
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
        }
        if self.freeing > 0 {
            work += self.poll_returned();
        }
        if self.unsettled > 0 {
            work += self.settle();
        }
        if self.attention {
            work += self.admit_all(protocol);
        }
        self.statistics.polls += 1;
        if work == 0 {
            self.statistics.empty_polls += 1;
        }
        work
    }

    /// When the engine has to be polled again although nothing arrives: the next drain time-out or refill.
    #[must_use]
    pub fn poll_at(&self) -> Option<Duration> {
        if self.unsettled > 0 || !self.events.is_empty() {
            return Some(self.now);
        }
        if self.connections.iter().any(|connection| !connection.to_free.is_empty()) {
            return Some(self.now);
        }
        let waiting = |connection: &&Connection| !connection.waiting_requests.is_empty();
        self.connections.iter().filter(waiting).map(|connection| connection.refill_after.max(self.now)).min()
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
        if !token.is(TokenKind::Receive) {
            return self.other_receive_completion(completion, protocol);
        }
        let stride = self.receives.stride();
        let Some(entry) = self.receives.posted_mut(token.index(), token.generation()) else {
            return self.other_receive_completion(completion, protocol);
        };
        let index = entry.connection;
        let (Some(connection), Ok(success)) = (self.connections.get_mut(usize::from(index)), completion.result) else {
            return self.other_receive_completion(completion, protocol);
        };
        if connection.queue_pair != completion.queue_pair || !connection.is_ready() {
            return self.other_receive_completion(completion, protocol);
        }
        let length = success.bytes.min(stride);
        entry.hold(length);
        connection.receives_posted = connection.receives_posted.saturating_sub(1);
        connection.peer_receives += 1;
        // A buffer has CLASSIFY_BYTES bytes or more, and is ours until it is released. What stands behind a shorter message
        // is not shown to anybody.
        let prefix: [u8; CLASSIFY_BYTES] =
            self.messages.read_line(self.receives.offset_of(token.index())).unwrap_or([0; CLASSIFY_BYTES]);
        let prefix = &prefix[..CLASSIFY_BYTES.min(length as usize)];
        let message = protocol.classify(connection.key, prefix, length);
        let Message::Reply(RequestHandle(handle)) = message else {
            return self.classified_late(usize::from(index), token, length, success, message);
        };
        if let Some(request) = self.requests.get_mut(handle).map(|request| &mut **request)
            && request.connection == index
            && request.phase == Phase::Posted
            && !request.standalone
            && !request.awaits_message
            && !connection.send_queue.may_be_staged(request.message_position)
        {
            match (request.mrs.as_slice(), success.invalidated) {
                ([], None) => {}
                (mrs, None) => {
                    // At most MAX_MRS_PER_REQUEST.
                    request.phase = Phase::Fencing { fences: mrs.len() as u8 };
                    for &descriptor in mrs {
                        connection.invalidations.push(descriptor);
                    }
                    connection.awaiting_reply -= 1;
                    let (buffer, generation) = (token.index(), token.generation());
                    request.outcome = Outcome::Replied { buffer, generation, length };
                    if !core::mem::replace(&mut connection.dirty, true) {
                        self.dirty.push(index);
                    }
                    return;
                }
                (&[only], Some(key))
                    if let Some(mr) = self.pool.get_mut(only)
                        && mr.remotely_invalidated(handle.index(), connection.key, key).is_ok() =>
                {
                    request.mrs.clear();
                    let cost = self.capabilities.send_queue_cost.invalidate;
                    connection.send_queue.release(cost);
                    connection.idle.push(only);
                    if !request.invited {
                        self.statistics.uninvited_invalidations += 1;
                    }
                    self.statistics.remote_invalidations += 1;
                }
                _ => return self.classified_late(usize::from(index), token, length, success, message),
            }
            connection.awaiting_reply -= 1;
            let (buffer, generation) = (token.index(), token.generation());
            request.outcome = Outcome::Replied { buffer, generation, length };
            request.phase = Phase::Ended;
            request.hold.event = true;
            self.statistics.requests_ended += 1;
            self.events.push_ended(handle.index());
            return;
        }
        self.classified_late(usize::from(index), token, length, success, message);
    }

    /// [`Engine::classified`] for a message of a receive that is in the caller's hands already.
    #[inline(never)]
    fn classified_late(&mut self, index: usize, token: Token, length: u32, success: Success, message: Message) {
        let received = Received { buffer: token.index(), generation: token.generation(), length };
        self.classified(index, received, success, message);
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
        let (token, Err(status)) = (completion.token, completion.result) else { return };
        if !self.receives.unpost(token.index(), token.generation()) {
            self.statistics.stale_completions += 1;
            return;
        }
        self.receive_returned(index);
        self.fail(index, DisconnectCause::WorkRequest(status));
    }

    /// A completion of a shared receive: the queue pair that it names tells the connection.
    fn shared_receive_completion(&mut self, completion: Completion, protocol: &mut impl Protocol) {
        let (token, Some(shared)) = (completion.token, &mut self.shared) else { return };
        let (buffer, generation) = (token.index(), token.generation());
        let index = shared.connection_of(completion.queue_pair).map(usize::from);
        if let (Ok(success), Some(index)) = (completion.result, index)
            && token.kind() == TokenKind::Receive
            && self.connections[index].takes_shared_receives()
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
            Err(status) => self.fail(index, DisconnectCause::WorkRequest(status)),
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
    fn is_current(&self, index: usize, completion: &Completion) -> bool {
        self.connections.get(index).is_some_and(|found| found.queue_pair == completion.queue_pair && !found.is_vacant())
    }

    fn received(&mut self, index: usize, received: Received, success: Success, protocol: &mut impl Protocol) {
        let connection = &mut self.connections[index];
        if matches!(connection.phase, Connected::Opening(_)) {
            connection.early.push_back((received, success));
            self.attention = true;
            return;
        }
        connection.peer_receives += 1;
        let key = connection.key;
        let mut prefix = [0u8; CLASSIFY_BYTES];
        let _ = self.messages.read(self.receives.offset_of(received.buffer), &mut prefix);
        let prefix = &prefix[..CLASSIFY_BYTES.min(received.length as usize)];
        let message = protocol.classify(key, prefix, received.length);
        self.classified(index, received, success, message);
    }

    /// A message whose protocol has said what it is.
    #[inline(never)]
    fn classified(&mut self, index: usize, received: Received, success: Success, message: Message) {
        let replied = match message {
            Message::Reply(request) => self.reply(index, request.0, success.invalidated, &received),
            Message::Command if success.invalidated.is_none() => {
                let connection = self.connections[index].key;
                self.events.push_back(Event::Received { connection, received });
                return;
            }
            // A message that is no reply has no request whose key it could kill (I25).
            Message::Command => Replied::Foreign,
            Message::Malformed => {
                self.statistics.bad_reply_count += 1;
                self.fail(index, DisconnectCause::Protocol);
                Replied::Unknown
            }
        };
        match replied {
            Replied::Taken => {}
            Replied::Unknown => {
                self.statistics.bad_reply_count += 1;
                self.unknown_reply(index);
                // A key died that nobody can be found for: what it covered is unknown.
                if success.invalidated.is_some() {
                    self.foreign_invalidation(index);
                }
                self.release(received);
            }
            Replied::Foreign => {
                self.foreign_invalidation(index);
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
            connection.receives.push(buffer);
            self.mark_dirty(owner);
        }
    }

    #[inline(never)]
    fn take_sends(&mut self, batch: &CompletionBatch) -> u32 {
        for completion in batch {
            if !self.message_completion(completion) {
                self.send_completion(*completion);
            }
        }
        let taken = batch.len() as u32;
        self.statistics.send_completions += u64::from(taken);
        taken
    }

    /// A good completion of a request's message: all that [`Engine::send_completion`] does with it, with one look-up of each
    /// thing, and nothing more where the oldest that are posted are a registration and this message behind it, as where every
    /// message asks for a completion. False: nothing was done.
    #[inline(always)]
    fn message_completion(&mut self, completion: &Completion) -> bool {
        let token = completion.token;
        if completion.result.is_err() || !token.is(TokenKind::Message) {
            return false;
        }
        let slot = token.index();
        let Some((_, request)) = self.requests.at_mut(slot) else { return false };
        let index = usize::from(request.connection);
        let Some(connection) = self.connections.get_mut(index) else { return false };
        if connection.queue_pair != completion.queue_pair || connection.is_vacant() {
            return false;
        }
        // A message that is posted keeps its slot.
        let Some(ahead) = connection.send_queue.ahead_at(request.message_position, token) else { return false };
        connection.relief_coming = false;
        if ahead == 1
            && !request.awaits_message
            && let [registration, message] = connection.send_queue.oldest_run(2)
            && registration.is_vouched_for()
        {
            let cost = registration.cost + message.cost;
            connection.send_queue.retire_run(2, cost);
            if message_sent(request, &mut self.pool) {
                self.held -= 1;
                self.requests.discard_at(slot);
            }
        } else {
            self.retire_successes(index, ahead + 1);
        }
        true
    }

    /// Retires everything up to the completed work request: a queue completes in order, so what stands before it without
    /// a completion of its own has succeeded (S52, S67). A failure vouches for nothing that somebody waits for: a
    /// completion that was lost in between would look the same (fault 13).
    fn send_completion(&mut self, completion: Completion) {
        let token = completion.token;
        let index = self.connection_of(token).filter(|&index| self.is_current(index, &completion));
        let ahead = index.and_then(|index| self.ahead_of(index, token));
        let (Some(index), Some(ahead)) = (index, ahead) else {
            if token.kind() == TokenKind::Foreign {
                self.events.push_back(Event::Foreign(completion));
            } else {
                self.statistics.stale_completions += 1;
            }
            return;
        };
        self.connections[index].relief_coming = false;
        match completion.result {
            Ok(_) => self.retire_successes(index, ahead + 1),
            Err(status) => self.retire_to_failure(index, ahead, status),
        }
    }

    /// Retires the oldest `count`, which all succeeded.
    fn retire_successes(&mut self, index: usize, count: u32) {
        let mut left = count;
        while left > 0 {
            left -= self.retire_usual(index, left);
            if left > 0 {
                left -= 1;
                if let Some(posted) = self.connections[index].send_queue.retire() {
                    self.retired(index, posted, Ok(()));
                }
            }
        }
    }

    /// Retires, in one pass over the ring, registrations and messages of requests that nothing waits for, and invalidations that
    /// end their request. Stops in front of anything else, and returns how many it has retired, at most `most`.
    #[inline(never)]
    fn retire_usual(&mut self, index: usize, most: u32) -> u32 {
        let Connection { send_queue, idle, .. } = &mut self.connections[index];
        let traced = self.trace.is_some();
        let (mut retired, mut cost) = (0, 0);
        for posted in send_queue.oldest_run(most) {
            let slot = posted.token.index();
            if posted.is_vouched_for() {
                // Its message, behind it, tells of both.
            } else if posted.token.is(TokenKind::Message)
                && let Some((_, request)) = self.requests.at_mut(slot)
                && !request.awaits_message
            {
                if message_sent(request, &mut self.pool) {
                    self.held -= 1;
                    self.requests.discard_at(slot);
                }
            } else if posted.token.is(TokenKind::Invalidate)
                && !traced
                && let Some((handle, request)) = self.requests.at_mut(posted.owner())
                && request.phase == (Phase::Fencing { fences: 1 })
                && request.mrs.as_slice() == [slot]
                && !request.awaits_message
                && let Some(mr) = self.pool.get_mut(slot)
                && mr.is_invalidating()
                && mr.invalidated(posted.token.generation()).is_ok()
            {
                self.statistics.local_invalidations += 1;
                idle.push(slot);
                request.mrs.clear();
                request.phase = Phase::Ended;
                request.hold.event = true;
                self.statistics.requests_ended += 1;
                self.events.push_ended(handle.index());
            } else {
                break;
            }
            retired += 1;
            cost += posted.cost;
        }
        send_queue.retire_run(retired, cost);
        retired
    }

    #[cold]
    fn retire_to_failure(&mut self, index: usize, ahead: u32, status: FailureStatus) {
        for _ in 0..ahead {
            if let Some(posted) = self.connections[index].send_queue.retire() {
                let waited_for = matches!(posted.token.kind(), TokenKind::Invalidate | TokenKind::Transfer);
                let awaited = waited_for || posted.is_standalone();
                self.retired(index, posted, if awaited { Err(FailureStatus::Flushed) } else { Ok(()) });
            }
        }
        if let Some(posted) = self.connections[index].send_queue.retire() {
            self.retired(index, posted, Err(status));
        }
        self.fail(index, DisconnectCause::WorkRequest(status));
    }

    /// How many posted work requests stand in front of the completed one. Usually its slot or the ring's start tells.
    #[inline]
    fn ahead_of(&self, index: usize, token: Token) -> Option<u32> {
        let queue = &self.connections[index].send_queue;
        if queue.is_oldest(token) {
            return Some(0);
        }
        if token.kind() == TokenKind::Message {
            // A message that is posted keeps its slot.
            let (_, request) = self.requests.at(token.index())?;
            return queue.ahead_at(request.message_position, token);
        }
        queue.ahead_of(token)
    }

    /// The connection that a token of the send queue belongs to, from the token alone (S113).
    #[inline]
    fn connection_of(&self, token: Token) -> Option<usize> {
        let index = match token.kind() {
            TokenKind::Register | TokenKind::Invalidate => {
                self.pool.get(token.index()).map(|_| self.pool.connection_of(token.index()))
            }
            TokenKind::Message => self.requests.at(token.index()).map(|(_, request)| request.connection),
            TokenKind::Transfer | TokenKind::Reply => {
                self.transfers.at(token.index()).map(|(_, transfer)| transfer.connection)
            }
            TokenKind::Drain => u16::try_from(token.index()).ok(),
            TokenKind::Foreign | TokenKind::Receive => None,
        };
        index.map(usize::from)
    }

    /// The device is done with a work request.
    pub(super) fn retired(&mut self, index: usize, posted: Posted, result: Result<(), FailureStatus>) {
        let token = posted.token;
        match token.kind() {
            TokenKind::Register => self.register_retired(index, posted, result),
            TokenKind::Invalidate => self.invalidate_retired(index, posted, result),
            TokenKind::Message => self.message_retired(token),
            TokenKind::Transfer => self.fetch_retired(token, result),
            TokenKind::Reply => self.reply_retired(token, result),
            TokenKind::Drain | TokenKind::Foreign | TokenKind::Receive => {}
        }
    }

    #[inline]
    fn register_retired(&mut self, index: usize, posted: Posted, result: Result<(), FailureStatus>) {
        let (descriptor, generation) = (posted.token.index(), posted.token.generation());
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        match result {
            Ok(()) => {
                // The peer may have invalidated it, and another request may have it by now.
                let _ = mr.registered(generation);
                if posted.is_standalone() {
                    self.registered_now(posted.owner());
                }
            }
            Err(status) => self.registration_failed(index, descriptor, generation, status),
        }
    }

    #[cold]
    fn registration_failed(&mut self, index: usize, descriptor: u32, generation: u32, status: FailureStatus) {
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        let at_stake = keys_at_stake(mr);
        let _ = mr.register_failed(generation);
        self.statistics.mrs_destroyed_live += at_stake.saturating_sub(keys_at_stake(mr));
        self.record(TracePoint::RegisterFailed(status), index as u16, Some(descriptor), 0);
    }

    #[inline]
    fn invalidate_retired(&mut self, index: usize, posted: Posted, result: Result<(), FailureStatus>) {
        let (descriptor, generation) = (posted.token.index(), posted.token.generation());
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        match result {
            Ok(()) => {
                // Without the early return the MR was this request's until now; with it, it is free or taken again.
                let held = mr.is_invalidating();
                let news = mr.invalidated(generation);
                self.statistics.local_invalidations += 1;
                self.record(TracePoint::LocalInvalidateDone, index as u16, Some(descriptor), 0);
                if held && news.is_ok() {
                    self.connections[index].idle.push(descriptor);
                }
                self.fenced(posted.owner(), descriptor);
            }
            Err(status) => self.invalidation_failed(index, descriptor, generation, status),
        }
    }

    /// No fence: the request waits for the MR's destruction (S74, S80, D6).
    #[cold]
    fn invalidation_failed(&mut self, index: usize, descriptor: u32, generation: u32, status: FailureStatus) {
        self.invalidation_lost(descriptor, generation);
        self.record(TracePoint::LocalInvalidateFailed(status), index as u16, Some(descriptor), 0);
    }

    /// Nobody knows whether the invalidation of `generation` took effect. With the early return (D2) the MR may have had
    /// several keys since, and its state tells of the latest one or two: those that it does not tell of any more are
    /// counted here, because it is the object's destruction that ends them.
    pub(super) fn invalidation_lost(&mut self, descriptor: u32, generation: u32) {
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        let at_stake = keys_at_stake(mr);
        self.statistics.mrs_destroyed_live += match mr.invalidate_failed(generation) {
            Ok(()) => at_stake.saturating_sub(keys_at_stake(mr)),
            Err(_) => 1,
        };
    }

    /// The device is done with a request's message: Hold ends.
    #[inline]
    fn message_retired(&mut self, token: Token) {
        let Some((handle, request)) = self.requests.at_mut(token.index()) else { return };
        let held = request.is_held_only();
        request.hold.message = false;
        self.held -= u32::from(held);
        if request.is_recyclable() {
            self.requests.discard_at(handle.index());
        } else if request.awaits_message && request.phase == (Phase::Fencing { fences: 0 }) {
            self.end_if_fenced(handle);
        }
    }

    fn fetch_retired(&mut self, token: Token, result: Result<(), FailureStatus>) {
        let Some((_, transfer)) = self.transfers.at_mut(token.index()) else { return };
        // RDMA WRITEs of a response end with its reply.
        if matches!(transfer.kind, Kind::Respond { .. }) || result.is_err() {
            return;
        }
        transfer.operations = transfer.operations.saturating_sub(1);
        if transfer.operations == 0 {
            self.end_transfer(token.index(), TransferStatus::Done);
        }
    }

    fn reply_retired(&mut self, token: Token, result: Result<(), FailureStatus>) {
        // A flushed reply may have arrived or not; it is reported with the connection's end.
        if result.is_ok() {
            self.end_transfer(token.index(), TransferStatus::Done);
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
        work
    }

    /// Descriptors whose objects Control has destroyed.
    #[inline(never)]
    fn poll_returned(&mut self) -> u32 {
        let mut work = 0;
        while work < MAX_CONTROL_MESSAGES_PER_POLL as u32 {
            let Some(descriptor) = self.pool.next_returned() else { break };
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
            while self.connections[index].is_ready()
                && let Some((received, success)) = self.connections[index].early.pop_front()
            {
                self.received(index, received, success, protocol);
                work += 1;
            }
            if !self.connections[index].waiting_transfers.is_empty() {
                work += self.admit_waiting_transfers(index);
            }
            if !self.connections[index].waiting_requests.is_empty() {
                work += self.admit_waiting(index, protocol);
            }
        }
        self.attention = self.connections.iter().any(Connection::needs_attention);
        work
    }
}

/// The device is done with the message of a request that does not wait for it. Whether nothing keeps the slot any more.
#[inline(always)]
fn message_sent(request: &mut Request, pool: &mut Pool) -> bool {
    request.hold.message = false;
    if request.phase == Phase::Posted {
        vouch(pool, request);
    }
    request.phase == Phase::Ended && !request.hold.event
}

/// A request's message completed, and with it the registrations in front of it. Of a request that was answered the peer or an
/// invalidation has told as much.
fn vouch(pool: &mut Pool, request: &Request) {
    for &descriptor in &request.mrs {
        if let Some(mr) = pool.get_mut(descriptor) {
            let _ = mr.registered(mr.generation());
        }
    }
}
