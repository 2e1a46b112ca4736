//! What completions of the send queue retire.
//!
//! A queue completes in order: what stands in front of a completed work request has succeeded. Nothing of it is looked at but what
//! somebody waits for (`SendQueue::awaited`): slots that only Hold keeps, invalidations, transfers, registrations without a message,
//! messages with memory of the caller in them. A registration's success is not written down either: whoever may ask sees by the
//! position of its message whether the device is done with both.

use super::{Engine, life::keys_at_stake};
use crate::{
    chain::{Posted, SendQueue, WORD, marked_connection},
    connection::Connection,
    event::{Event, RequestStatus},
    events::Events,
    pool::Pool,
    provider::{Completion, CompletionBatch, Failure, Port, QueuePairId, Token, TokenKind},
    request::Phase,
    requests::Requests,
    trace::TracePoint,
    transfer::Transfer,
    transfers::Transfers,
};
use frwr_mempool::mutant;

impl<P: Port> Engine<P> {
    /// In the poll itself, as what it retires is in it: a completion that comes alone has no call.
    #[inline(always)]
    pub(super) fn take_sends(&mut self, batch: &CompletionBatch) -> u32 {
        let mut rest = batch.as_slice();
        while let [completion, behind @ ..] = rest {
            rest = behind;
            let Some((index, mut through)) = self.completed_message(completion) else {
                self.other_completion(completion);
                continue;
            };
            if let Err(failure) = completion.result {
                self.retire_to_failure(index, through, failure);
                continue;
            }
            if !behind.is_empty() {
                let (others, last) = self.run_behind(index, through, behind);
                (through, rest) = (last, behind.get(others..).unwrap_or_default());
            }
            self.retire_successes(index, through);
        }
        let taken = batch.len() as u32;
        self.counters.sends_completed(taken);
        taken
    }

    /// Behind a good completion of a connection's message at this position: how many of the next ones are of that
    /// connection as well, and the position of the last of them, which retires all that each would. A call, so that a
    /// completion that comes alone has no part in it.
    #[inline(never)]
    fn run_behind(&self, index: usize, position: u64, next: &[Completion]) -> (usize, u64) {
        let (mut count, mut through) = (0, position);
        let Some(connection) = self.connections.get(index) else { return (count, through) };
        let (queue_pair, queue) = (connection.queue_pair, connection.sending.queue());
        for completion in next {
            let token = completion.token;
            // Whose it is, is not asked: none but this connection has it there.
            let told = self.told_message(token).or_else(|| self.told_transfer(token));
            let Some((_, position)) = told.filter(|_| completion.result.is_ok()) else { break };
            if !completes(queue_pair, queue, completion, through + 1, position) {
                break;
            }
            through = position;
            count += 1;
        }
        (count, through)
    }

    /// Connection and position of a request's message, or of a transfer's last work request, that a completion names; `None` for any
    /// other completion.
    #[inline(always)]
    fn completed_message(&self, completion: &Completion) -> Option<(usize, u64)> {
        let token = completion.token;
        let (index, position) = self.told_transfer(token).or_else(|| self.told_message(token))?;
        let connection = self.connections.get(index)?;
        let queue = connection.sending.queue();
        completes(connection.queue_pair, queue, completion, queue.oldest(), position).then_some((index, position))
    }

    /// The same of a message, by the slot that its token names, whatever stands at that position. What is posted keeps its slot.
    #[inline(always)]
    fn told_message(&self, token: Token) -> Option<(usize, u64)> {
        let (_, request) = self.requests.at(token.index_of(TokenKind::Message))?;
        Some((request.connection(), request.message_position()))
    }

    /// The same of a transfer's last work request.
    #[inline(always)]
    fn told_transfer(&self, token: Token) -> Option<(usize, u64)> {
        if !(token.is(TokenKind::Transfer) || token.is(TokenKind::Reply)) {
            return None;
        }
        let transfer = self.transfers.at(token.index())?;
        Some((transfer.connection(), transfer.position()))
    }

    /// A completion of any other work request, or of none of ours.
    #[inline(never)]
    fn other_completion(&mut self, completion: &Completion) {
        let token = completion.token;
        let index = self.connection_of(token).filter(|&index| self.is_current(index, completion));
        let position = index.and_then(|index| self.position_of(index, token));
        let (Some(index), Some(position)) = (index, position) else {
            if token.kind() == TokenKind::Foreign {
                self.events.push_back(Event::Foreign(*completion));
            } else {
                self.counters.stale_completion();
            }
            return;
        };
        match completion.result {
            Ok(_) => self.retire_successes(index, position),
            Err(failure) => self.retire_to_failure(index, position, failure),
        }
    }

    /// Retires all up to this posted position, which succeeded, and tells those that wait for any of it: a queue completes in order, so
    /// what stands before a completed work request without a completion of its own has succeeded (S52, S67).
    #[inline(always)]
    fn retire_successes(&mut self, index: usize, through: u64) {
        let Some(mut connection) = self.connections.get_mut(index) else { return };
        let first = connection.sending.retire_through(through);
        let mut word = first - first % WORD;
        loop {
            let awaited = connection.sending.take_awaited(word, through);
            // Who waits in another word than the first is not told.
            if awaited != 0 && !(mutant!(retired_words) && word > first) {
                let queue = connection.sending.queue();
                let left = end_transfers(queue, &mut self.transfers, &mut self.events, word, awaited);
                if left != 0 {
                    self.tell_retired(index, word, left);
                }
            }
            word += WORD;
            if word > through {
                return;
            }
            let Some(same) = self.connections.get_mut(index) else { return };
            connection = same;
        }
    }

    /// Tells those that wait for what is retired, by the bits of their positions from `word` on, which come in rows of a kind.
    #[inline(never)]
    fn tell_retired(&mut self, index: usize, word: u64, mut awaited: u64) {
        while awaited != 0
            && let Some(connection) = self.connections.get(index)
        {
            let queue = connection.sending.queue();
            let position = word + u64::from(awaited.trailing_zeros());
            let token = queue.token_at(position);
            if token.is(TokenKind::Transfer) || token.is(TokenKind::Reply) {
                awaited = end_transfers(queue, &mut self.transfers, &mut self.events, word, awaited);
            } else if token.is(TokenKind::Invalidate) {
                awaited = self.end_invalidated(index, word, awaited);
            } else if token.is(TokenKind::Message) {
                awaited = self.end_messages(index, word, awaited);
            } else {
                let posted = queue.entry(position);
                awaited &= awaited - 1;
                self.retired(index, posted, Ok(()));
            }
        }
    }

    /// Messages that were waited for, up to the first position that is something else. Returns what is left of `awaited`.
    #[inline(never)]
    fn end_messages(&mut self, index: usize, word: u64, mut awaited: u64) -> u64 {
        while awaited != 0
            && let Some(connection) = self.connections.get(index)
        {
            let token = connection.sending.queue().token_at(word + u64::from(awaited.trailing_zeros()));
            if !token.is(TokenKind::Message) {
                break;
            }
            awaited &= awaited - 1;
            self.message_retired(token, true);
        }
        awaited
    }

    /// Invalidations, in the same way: each key is dead, and a request whose last one it was ends.
    #[inline(never)]
    fn end_invalidated(&mut self, index: usize, word: u64, before: u64) -> u64 {
        let Some(connection) = self.connections.get_mut(index) else { return 0 };
        let (mut awaited, told) = (before, self.events.pushed());
        while awaited != 0 {
            let position = word + u64::from(awaited.trailing_zeros());
            let token = connection.sending.queue().token_at(position);
            if !token.is(TokenKind::Invalidate) {
                break;
            }
            awaited &= awaited - 1;
            if let Some(slot) =
                key_died(connection, &mut self.pool, &mut self.requests, token, |queue| queue.owner_at(position))
            {
                self.events.push_ended(slot);
            }
        }
        self.counters.invalidated(u64::from((before & !awaited).count_ones()));
        self.counters.requests_ended(self.events.pushed() - told);
        if self.trace.is_some() {
            self.record_invalidations(index, word, before & !awaited);
        }
        awaited
    }

    /// A failure vouches for nothing that somebody waits for: a completion that was lost in between would look the same (fault 13).
    #[cold]
    fn retire_to_failure(&mut self, index: usize, position: u64, failure: Failure) {
        while self.connections[index].sending.queue().oldest() < position {
            let Some(posted) = self.connections[index].sending.retire() else { break };
            let waited_for = matches!(posted.token.kind(), TokenKind::Invalidate | TokenKind::Transfer);
            let awaited = waited_for || posted.is_standalone();
            // K5: what stands in front of a failure is taken for done.
            let awaited = awaited && !mutant!(K5_in_front);
            self.retired(index, posted, if awaited { Err(Failure::FLUSHED) } else { Ok(()) });
        }
        if let Some(posted) = self.connections[index].sending.retire() {
            self.retired(index, posted, Err(failure));
        }
        self.work_request_failed(index, failure);
    }

    /// Where a posted work request stands. Usually the ring's start tells.
    fn position_of(&self, index: usize, token: Token) -> Option<u64> {
        let queue = self.connections[index].sending.queue();
        if queue.is_oldest(token) { Some(queue.oldest()) } else { queue.position_of(token) }
    }

    /// The connection that a token of the send queue belongs to, from the token alone (S113). A message is found by its slot, which it
    /// keeps while it is posted, or is not posted.
    fn connection_of(&self, token: Token) -> Option<usize> {
        match token.kind() {
            TokenKind::Register | TokenKind::Invalidate => {
                self.pool.get(token.index()).map(|_| usize::from(self.pool.connection_of(token.index())))
            }
            TokenKind::Transfer | TokenKind::Reply => self.transfers.at(token.index()).map(Transfer::connection),
            TokenKind::Drain => Some(usize::from(marked_connection(token))),
            TokenKind::Message | TokenKind::Foreign | TokenKind::Receive => None,
        }
    }

    /// The device is done with a work request.
    pub(super) fn retired(&mut self, index: usize, posted: Posted, result: Result<(), Failure>) {
        let token = posted.token;
        match token.kind() {
            TokenKind::Register => self.register_retired(posted, result),
            TokenKind::Invalidate => self.invalidation_ended(index, posted, result),
            // Behind a failure, or in front of one, which vouches for nothing: what is told of its end.
            TokenKind::Message => self.message_retired(token, mutant!(K5_one_way)),
            // Behind a failure: those without a reply vouch for nothing then.
            TokenKind::Transfer if mutant!(K5_fetch) => self.transfer_done(token.index()),
            TokenKind::Transfer => {}
            TokenKind::Reply => self.reply_retired(token, result),
            TokenKind::Drain | TokenKind::Foreign | TokenKind::Receive => {}
        }
    }

    #[inline]
    fn register_retired(&mut self, posted: Posted, result: Result<(), Failure>) {
        let (descriptor, generation) = (posted.token.index(), posted.token.generation());
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        match result {
            Ok(()) => {
                // The peer may have invalidated it, and another request may have it by now.
                let _ = mr.registered(generation);
                if posted.is_standalone() {
                    self.registered_now(posted.owner);
                }
            }
            Err(_) if mutant!(K5_registration) && posted.is_standalone() => self.registered_now(posted.owner),
            Err(failure) => self.registration_failed(descriptor, generation, failure),
        }
    }

    #[cold]
    fn registration_failed(&mut self, descriptor: u32, generation: u32, failure: Failure) {
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        // Where its MR was taken again, its key is counted with its invalidation.
        let _ = mr.register_failed(generation);
        if self.trace.is_some() {
            self.record_of_latest(TracePoint::RegisterFailed(failure), descriptor);
        }
    }

    /// An invalidation in front of a failure, or the one that failed, which is no fence: the request waits for the MR's destruction (S74, S80, D6).
    #[cold]
    fn invalidation_ended(&mut self, index: usize, posted: Posted, result: Result<(), Failure>) {
        let (descriptor, generation) = (posted.token.index(), posted.token.generation());
        if let Err(failure) = result {
            self.invalidation_lost(descriptor, generation);
            if self.trace.is_some() {
                self.record_of_first(TracePoint::LocalInvalidateFailed(failure), descriptor);
            }
        }
        // K5: a failed fence counts as one. What stands in front of a failure never succeeded, but for other mutants.
        if (result.is_ok() || mutant!(K5_invalidation))
            && let Some(connection) = self.connections.get_mut(index)
            && let Some(slot) = key_died(connection, &mut self.pool, &mut self.requests, posted.token, |_| posted.owner)
        {
            self.counters.requests_ended(1);
            self.events.push_ended(slot);
        }
    }

    /// Nobody knows whether the invalidation of `generation` took effect. With the early return (D2) the MR may have had
    /// several keys since, and its state tells of the latest one or two: those that it does not tell of any more are
    /// counted here, because it is the object's destruction that ends them.
    pub(super) fn invalidation_lost(&mut self, descriptor: u32, generation: u32) {
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        let at_stake = keys_at_stake(mr);
        let doomed = match mr.invalidate_failed(generation) {
            Ok(()) => at_stake.saturating_sub(keys_at_stake(mr)),
            Err(_) => 1,
        };
        self.pool.doom_keys(descriptor, doomed);
    }

    /// The device is done with a request's message: a slot that only Hold kept is free, a request whose keys are dead ends, and so does
    /// one without a reply whose message was sent.
    #[inline(always)]
    fn message_retired(&mut self, token: Token, sent: bool) {
        let Some((handle, request)) = self.requests.at_mut(token.index()) else { return };
        match request.phase() {
            Phase::Held => {
                self.requests.release(handle.index());
            }
            Phase::Fencing if request.awaits_message() => self.end_if_fenced(handle),
            Phase::Posted if sent && request.is_one_way() => {
                request.ends_as(RequestStatus::Sent);
                self.end_request(handle);
            }
            // The slot goes with the message, whatever the reply says.
            Phase::Posted if mutant!(S3_send_first) => self.requests.discard(handle),
            _ => {}
        }
    }

    fn reply_retired(&mut self, token: Token, result: Result<(), Failure>) {
        // A flushed reply may have arrived or not; it is reported with the connection's end.
        if result.is_ok() || mutant!(K5_reply) {
            self.transfer_done(token.index());
        }
    }
}

/// Whether a completion is of what this queue pair has posted at this position, which is not in front of `first`: of what no completion
/// has passed.
#[inline(always)]
fn completes(queue_pair: QueuePairId, queue: &SendQueue, completion: &Completion, first: u64, position: u64) -> bool {
    // One that is vacant has nothing posted.
    (mutant!(S5_message) || queue_pair == completion.queue_pair)
        && queue.is_posted_from(first, position, completion.token)
}

/// Transfers that were waited for, up to the first position that is something else: what waits is their last work
/// request, which vouches for those in front of it. Returns what is left of `awaited`.
#[inline(always)]
fn end_transfers(
    queue: &SendQueue,
    transfers: &mut Transfers,
    events: &mut Events,
    word: u64,
    mut awaited: u64,
) -> u64 {
    while awaited != 0 {
        let token = queue.token_at(word + u64::from(awaited.trailing_zeros()));
        if !(token.is(TokenKind::Transfer) || token.is(TokenKind::Reply)) {
            break;
        }
        awaited &= awaited - 1;
        if transfers.end(token.index()) {
            events.push_transferred(token.index());
        }
    }
    awaited
}

/// A key is dead, by the invalidation of this name; `owner` says whose that was where its MR does not know any more. Returns the
/// slot of its request where that ends by it: its outcome is known, no key of it lives, and the device has read its message where the
/// caller's memory is in that (S51).
#[inline(always)]
fn key_died(
    connection: &mut Connection,
    pool: &mut Pool,
    requests: &mut Requests,
    token: Token,
    owner: impl FnOnce(&SendQueue) -> u32,
) -> Option<u32> {
    let descriptor = token.index();
    let freed = pool.get_mut(descriptor)?.invalidated(token.generation());
    // K1: also where somebody has it again.
    if matches!(freed, Ok(Some(_))) || mutant!(K1_early_return) {
        connection.idle.push(descriptor);
    }
    let owner = match freed {
        Ok(Some(owner)) => owner,
        _ => owner(connection.sending.queue()),
    };
    let (_, request) = requests.at_mut(owner)?;
    let ends = request.lose_key(descriptor)
        && (!request.awaits_message()
            || !connection.sending.queue().is_pending(request.message_position())
            || mutant!(K9_fence));
    if ends {
        request.end();
    }
    ends.then_some(owner)
}
