//! What was received: whose it is, what its protocol says it means, and what follows. The one way of a message, whatever it is and
//! whoever posted its receive; what is rare is a branch.

use super::{Engine, stage::Making};
use crate::{
    connection::{Connection, Early},
    counters::Counters,
    event::{ConnectionId, DisconnectCause, Event, Received, RequestStatus},
    events::Events,
    fixed_list::FixedList,
    pool::Pool,
    protocol::{CLASSIFY_BYTES, Message, Protocol},
    provider::{Completion, CompletionBatch, Port, Success, TokenKind},
    request::{Request, RequestHandle},
    requests::Requests,
};
use frwr_mempool::{
    device_memory::{self, DeviceTable},
    mutant,
};

/// No connection: a core has fewer.
const NOBODY: u16 = u16::MAX;

/// What taking a reply touches, beside its connection.
struct Replies<'a> {
    requests: &'a mut Requests,
    pool: &'a mut Pool,
    events: &'a mut Events,
    dirty: &'a mut FixedList<u16>,
    counters: &'a mut Counters,
    making: &'a Making,
    /// The MR whose key the peer killed by the reply that was taken.
    killed: Option<u32>,
}

/// That of an engine, whose connections are borrowed apart.
macro_rules! replies {
    ($engine:ident) => {
        Replies {
            requests: &mut $engine.requests,
            pool: &mut $engine.pool,
            events: &mut $engine.events,
            dirty: &mut $engine.dirty,
            counters: &mut $engine.counters,
            making: &$engine.making,
            killed: None,
        }
    };
}

impl Replies<'_> {
    /// A reply arrived on a connection for one of its requests: match the key that the peer invalidated (S58), fence the
    /// others. False, with nothing changed, where there is no such request, or it has no such key.
    #[inline(always)]
    fn take(
        &mut self,
        connection: &mut Connection,
        RequestHandle(handle): RequestHandle,
        invalidated: &Option<u32>,
        received: &Received,
    ) -> bool {
        let Some(request) = self.requests.get_mut(handle) else { return false };
        if !awaits_reply(connection, request) {
            return false;
        }
        if let &Some(key) = invalidated {
            // A reply that kills a foreign key is no reply: the request stays as it is and ends with its connection.
            let Some(dead) = take_invalidated(self.pool, request, handle.index(), connection, key) else {
                return false;
            };
            // S4: the entry that is kept for the invalidation never comes back.
            connection.sending.release(if mutant!(S4_remote) { 0 } else { self.making.cost.invalidate });
            connection.idle.push(dead);
            self.killed = Some(dead);
            self.counters.remotely_invalidated(request.is_invited() || mutant!(uninvited));
        }
        let Received { buffer, generation, length, .. } = *received;
        request.ends_as(RequestStatus::Replied(Received { buffer, generation, length, is_reply: true }));
        // K9: the reply alone ends a request whose message the device may read again.
        let waits_for_send = request.awaits_message()
            && connection.sending.queue().is_pending(request.message_position())
            && !mutant!(K9_reply);
        // K13: told before the keys are dead.
        if (request.mrs().is_empty() && !waits_for_send) || mutant!(K13_reply) {
            request.end();
            self.counters.requests_ended(1);
            self.events.push_ended(handle.index());
            return true;
        }
        if waits_for_send {
            self.counters.reply_waits_for_send();
        }
        request.fence();
        connection.invalidate(request.mrs());
        connection.mark_dirty(self.dirty);
        // F12: told before the invalidations are posted.
        if mutant!(F12) {
            request.end();
            self.events.push_ended(handle.index());
        }
        true
    }
}

impl<P: Port> Engine<P> {
    #[inline(never)]
    pub(super) fn take_receives(&mut self, batch: &CompletionBatch, protocol: &mut impl Protocol) {
        // Before they are taken: behind that the loop would keep the number at hand.
        self.counters.receives_completed(batch.len() as u32);
        let is_traced = self.trace.is_some();
        match (self.shared.is_some(), is_traced) {
            (false, false) => batch.iter().for_each(|it| self.take_receive::<false, false>(it, protocol)),
            (true, false) => batch.iter().for_each(|it| self.take_receive::<true, false>(it, protocol)),
            (false, true) => batch.iter().for_each(|it| self.take_receive::<false, true>(it, protocol)),
            (true, true) => batch.iter().for_each(|it| self.take_receive::<true, true>(it, protocol)),
        }
        if is_traced {
            self.record_killed();
        }
    }

    /// A completion of a receive queue that a connection has for itself, or `SHARED`: the queue pair that it names tells the connection.
    /// `TRACED`: which key a reply killed is recorded, and else not kept at hand.
    #[inline(always)]
    fn take_receive<const SHARED: bool, const TRACED: bool>(
        &mut self,
        completion: &Completion,
        protocol: &mut impl Protocol,
    ) {
        let token = completion.token;
        let stride = self.receives.stride();
        let Some(entry) = self.receives.posted_mut(token) else { return self.stray_receive(completion) };
        let owner = match &self.shared {
            Some(shared) if SHARED => shared.connection_of(completion.queue_pair).unwrap_or(NOBODY),
            _ => entry.connection(),
        };
        let (Some(connection), Ok(success)) = (self.connections.get_mut(usize::from(owner)), &completion.result) else {
            return self.receive_otherwise(completion, owner, protocol);
        };
        // S5: a completion of a queue pair that is gone is one of its successor's.
        let is_its = SHARED || connection.queue_pair == completion.queue_pair || mutant!(S5_receive);
        if !(is_its && connection.is_ready() && (!SHARED || connection.receive_queue.has_posted())) {
            return self.receive_otherwise(completion, owner, protocol);
        }
        let length = success.bytes.min(stride);
        entry.hold(length);
        if SHARED {
            entry.taken_by(owner);
        }
        connection.receive_queue.completed();
        let received = Received { buffer: token.index(), generation: token.generation(), length, is_reply: true };
        connection.credits.message_came();
        match classify(self.receives.messages(), token.index(), protocol, connection.key, length) {
            Message::Reply(request) => {
                let mut replies = replies!(self);
                let (taken, killed) =
                    (replies.take(connection, request, &success.invalidated, &received), replies.killed);
                if !taken {
                    self.unexpected_reply(completion, owner, request);
                } else if TRACED {
                    self.note_killed(killed);
                }
            }
            message => self.other_message(completion, owner, message),
        }
    }

    /// [`Engine::not_taken`] of a reply. All but its request is found once more, so that who calls need not keep it at hand.
    #[inline(never)]
    fn unexpected_reply(&mut self, completion: &Completion, owner: u16, request: RequestHandle) {
        self.other_message(completion, owner, Message::Reply(request));
    }

    /// The same of any message.
    #[inline(never)]
    fn other_message(&mut self, completion: &Completion, owner: u16, message: Message) {
        let (token, Ok(success)) = (completion.token, completion.result) else { return };
        let length = success.bytes.min(self.receives.stride());
        let received = Received { buffer: token.index(), generation: token.generation(), length, is_reply: false };
        self.not_taken(usize::from(owner), received, success, message);
    }

    /// The same of a connection that is not ready, of none, or where nothing was received that anybody may have.
    #[cold]
    #[inline(never)]
    fn receive_otherwise(&mut self, completion: &Completion, owner: u16, protocol: &mut impl Protocol) {
        let (token, index) = (completion.token, usize::from(owner));
        let shares = self.shared.is_some();
        let takes = self.connections.get(index).is_some_and(|connection| match shares {
            true => connection.takes_shared_receives() || mutant!(S5_shared),
            false => self.is_current(index, completion),
        });
        let (true, Ok(success)) = (takes, completion.result) else {
            return if shares {
                self.shared_receive_wasted(completion, owner)
            } else {
                self.receive_failed(completion, index)
            };
        };
        let length = success.bytes.min(self.receives.stride());
        if let Some(entry) = self.receives.posted_mut(token) {
            entry.hold(length);
        }
        self.receive_returned(index, token.index());
        let received = Received { buffer: token.index(), generation: token.generation(), length, is_reply: false };
        if self.connections[index].was_ready() {
            self.received(index, received, success, protocol);
        } else {
            // It overtook the news that its connection is up.
            let early = Early { buffer: received.buffer, invalidated: success.invalidated };
            self.connections[index].keep_early(early);
            self.chores.ask_attention(index);
        }
    }

    /// A receive of a connection is not posted any more.
    fn receive_returned(&mut self, index: usize, buffer: u32) {
        // After a drain that timed out the count is zero already, and the completions may still come.
        self.connections[index].receive_queue.completed_late();
        if self.shared.is_some()
            && let Some(entry) = self.receives.get_mut(buffer)
        {
            // One core has at most u16::MAX connections.
            entry.taken_by(index as u16);
        }
    }

    /// What was received means something now: its connection is up, or was.
    pub(super) fn received(
        &mut self,
        index: usize,
        received: Received,
        success: Success,
        protocol: &mut impl Protocol,
    ) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.credits.message_came();
        let message = classify(self.receives.messages(), received.buffer, protocol, connection.key, received.length);
        if let Message::Reply(request) = message {
            let mut replies = replies!(self);
            let (taken, killed) = (replies.take(connection, request, &success.invalidated, &received), replies.killed);
            if taken {
                self.note_killed(killed);
                return self.record_killed();
            }
        }
        self.not_taken(index, received, success, message);
    }

    /// A completion that no posted buffer has the name of.
    #[cold]
    fn stray_receive(&mut self, completion: &Completion) {
        if completion.token.kind() == TokenKind::Foreign {
            self.events.push_back(Event::Foreign(*completion));
        } else {
            self.counters.stale_completion();
        }
    }

    /// A receive that a connection has for itself brought nothing.
    fn receive_failed(&mut self, completion: &Completion, index: usize) {
        let Err(failure) = completion.result else {
            self.counters.stale_completion();
            return;
        };
        if !self.is_current(index, completion) {
            self.counters.stale_completion();
            return;
        }
        self.receives.unpost(completion.token.index(), completion.token.generation());
        if !mutant!(flushed_receive_uncounted) {
            self.receive_returned(index, completion.token.index());
        }
        self.work_request_failed(index, failure);
    }

    /// A shared receive that nobody can use: it failed, its connection is gone or going, or its peer was not granted it.
    fn shared_receive_wasted(&mut self, completion: &Completion, owner: u16) {
        let (buffer, Some(shared)) = (completion.token.index(), &mut self.shared) else { return };
        self.receives.unpost(buffer, completion.token.generation());
        shared.post_next(self.receives.post(buffer, 0));
        let index = usize::from(owner);
        let Some(connection) = self.connections.get(index) else {
            self.counters.stale_completion();
            shared.found(completion.queue_pair);
            return;
        };
        let granted = connection.receive_queue.has_posted();
        if granted {
            self.receive_returned(index, buffer);
        }
        match completion.result {
            Err(failure) => self.work_request_failed(index, failure),
            Ok(_) if granted => self.counters.stale_completion(),
            Ok(_) => self.fail(index, DisconnectCause::ReceivesExceeded),
        }
    }

    /// A message that ends no request.
    #[inline(never)]
    fn not_taken(&mut self, index: usize, mut received: Received, success: Success, message: Message) {
        // A key died that nobody can be found for, or that of another request: what it covered is unknown (I25, F13).
        let (is_foreign, mutant) = match message {
            // F13: what the command invalidated is not looked at.
            Message::Command | Message::OneWay if success.invalidated.is_none() || mutant!(F13_command) => {
                let entry = &mut self.connections[index];
                if message == Message::OneWay && !mutant!(one_way_brings_receive) {
                    entry.credits.message_was_one_way();
                }
                let connection = entry.key;
                self.receives.tell(received.buffer, connection);
                return self.events.push_received(received.buffer);
            }
            // A message that is no reply has no request whose key it could kill.
            Message::Command | Message::OneWay => (true, mutant!(F13_reply)),
            Message::Reply(request) if success.invalidated.is_some() && self.is_awaited(index, request) => {
                (true, mutant!(F13_reply))
            }
            Message::Malformed | Message::Reply(_) => {
                if matches!(message, Message::Malformed) {
                    self.fail(index, DisconnectCause::Protocol);
                }
                self.counters.bad_reply();
                received.is_reply = self.answers_cancelled(index);
                (success.invalidated.is_some(), mutant!(F13_unknown))
            }
        };
        if is_foreign && !mutant {
            self.counters.foreign_invalidation();
            self.fail(index, DisconnectCause::ForeignInvalidation);
        }
        self.release(received);
    }

    /// Whether a request awaits its reply on this connection.
    fn is_awaited(&self, index: usize, RequestHandle(handle): RequestHandle) -> bool {
        let (connection, request) = (self.connections.get(index), self.requests.get(handle));
        connection.zip(request).is_some_and(|(connection, request)| awaits_reply(connection, request))
    }

    /// A reply to no request: where some were cancelled it is one of theirs, in a receive that was kept for it.
    #[cold]
    fn answers_cancelled(&mut self, index: usize) -> bool {
        self.connections[index].credits.take_abandoned()
    }
}

/// Whether a reply to a request may come on this connection: nobody answers what was not sent.
#[inline(always)]
fn awaits_reply(connection: &Connection, request: &Request) -> bool {
    // Mutant: an answer to what was not sent counts.
    let was_posted = connection.sending.queue().was_posted(request.message_position()) || mutant!(answer_before_post);
    was_posted && request.is_posted_on(connection.posted)
}

/// Takes the MR whose key the peer invalidated off its request. `None` when the request has no such valid key.
#[inline(always)]
fn take_invalidated(
    pool: &mut Pool,
    request: &mut Request,
    slot: u32,
    connection: &Connection,
    key: u32,
) -> Option<u32> {
    let &[only] = request.mrs() else {
        return take_one_of_several(pool, request, slot, connection.key, key);
    };
    pool.get_mut(only)?.remotely_invalidated(slot, connection.registering, key).ok()?;
    request.lose_keys();
    Some(only)
}

/// The same of a request of several MRs, or of none. A call, so that the usual one keeps what it has at hand and goes on behind it.
#[cold]
#[inline(never)]
fn take_one_of_several(
    pool: &mut Pool,
    request: &mut Request,
    slot: u32,
    connection: ConnectionId,
    key: u32,
) -> Option<u32> {
    let mut dies =
        |descriptor| pool.get_mut(descriptor).is_some_and(|mr| mr.remotely_invalidated(slot, connection, key).is_ok());
    let at = request.mrs().iter().position(|&descriptor| dies(descriptor))?;
    // K15: the wrong one of several is taken for dead, or all are.
    let at = if mutant!(K15_wrong) { 0 } else { at };
    let dead = request.lose_key_at(at);
    if mutant!(K15_all) {
        request.lose_keys();
    }
    Some(dead)
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
