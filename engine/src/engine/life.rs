//! Ending connections: error state, drain, destroy every MR, report what was lost, destroy the queue pair (S94 to S97).

use super::Engine;
use crate::{
    connection::{Early, Ending, Opening, Phase},
    event::{ConnectionId, DisconnectCause, Event, Received, RequestStatus},
    link::ToControl,
    mr::{Mr, State},
    provider::{
        Chain, ElementRange, Failure, MAX_COMPLETIONS_PER_POLL, Operation, Port, Token, TokenKind, WorkRequest,
    },
    request::Phase as RequestPhase,
    trace::TracePoint,
};
use frwr_mempool::mutant;

impl<P: Port> Engine<P> {
    /// Ends a connection. Its requests end as lost unless their reply is in already; [`Event::Disconnected`] comes last.
    /// A second call changes nothing (I35).
    pub fn disconnect(&mut self, connection: ConnectionId) {
        if let Some(index) = self.index_of(connection) {
            self.fail(index, DisconnectCause::Local);
        }
    }

    /// The one way out of Ready, whoever found the reason (S97, S98, D27). Most calls are of a connection that ends already: each thing
    /// that comes back flushed is one.
    pub(super) fn fail(&mut self, index: usize, cause: DisconnectCause) {
        if self.connections[index].ends_also_by(cause) {
            self.counters.cause_while_ending();
        } else {
            self.fail_first(index, cause);
        }
    }

    /// The same of a work request. Each flush of a connection that ends is one, and changes nothing.
    #[inline]
    pub(super) fn work_request_failed(&mut self, index: usize, failure: Failure) {
        if failure.is_flush() && self.connections[index].is_ending() {
            self.counters.cause_while_ending();
            return;
        }
        self.fail(index, DisconnectCause::WorkRequest(failure));
    }

    /// [`Engine::fail`] of a connection that does not end yet.
    #[inline(never)]
    fn fail_first(&mut self, index: usize, cause: DisconnectCause) {
        let entry = &mut self.connections[index];
        match entry.phase() {
            Phase::Ready => {
                self.chores.unsettle(index);
            }
            // Connected but not ready: the queue pair is there to be failed. Or the connection manager is at work, whose answer decides,
            // and finds the caller gone.
            Phase::Opening(Opening::Filling { .. } | Opening::Handshake { .. }) => {}
            Phase::Opening(Opening::QueuePair { .. }) => return entry.doom(),
            Phase::Vacant | Phase::Ending { .. } => return,
        }
        if !mutant!(staged_at_end) {
            self.unstage_all(index);
        }
        let entry = &mut self.connections[index];
        entry.end(cause);
        // rxe does not flush a receive that comes behind the error state: the drain would wait for it.
        for receive in entry.receive_queue.next() {
            self.receives.unpost(receive.token.index(), receive.token.generation());
        }
        entry.receive_queue.clear_next();
        let _ = entry.objects.take_unasked();
        self.counters.disconnects();
        self.record(TracePoint::Disconnect(cause), index as u16, None, 0);
        self.tell_control_to_fail(index);
    }

    fn tell_control_to_fail(&mut self, index: usize) {
        let connection = self.connections[index].key;
        let told = self.link.tell(ToControl::Fail { connection });
        self.connections[index].set_step(Ending::Fail { told });
    }

    /// The peer, the connection manager or the device ended it.
    pub(super) fn ended(&mut self, connection: ConnectionId, by_device: bool) {
        if let Some(index) = self.index_of(connection) {
            let by_device = by_device && !mutant!(device_told_as_peer);
            self.fail(index, if by_device { DisconnectCause::Device } else { DisconnectCause::Peer });
        }
    }

    /// The queue pair is in the error state: from here on everything comes back. Where the device refused that nothing need
    /// come back, and a marker would be a message to the peer.
    pub(super) fn queue_pair_failed(&mut self, connection: ConnectionId, refused: bool) {
        let Some(index) = self.index_of(connection) else { return };
        // What Control needed until here is no fault of the queue pair's.
        let now = self.polls.now().since_epoch();
        // Nobody looks at the clock while nothing ends.
        let _ = self.draining.is_due(now);
        let drained_by = self.draining.watched(now).saturating_add(self.options.drain_timeout);
        if !self.connections[index].drain_by(drained_by) {
            return;
        }
        self.draining.look_by(drained_by);
        if refused {
            self.give_up_drain(index);
        }
        self.connections[index].set_step(Ending::Drain { marker_posted: refused });
    }

    /// Nothing shows when the queue pair has come to rest: its destruction is what ends its work.
    fn give_up_drain(&mut self, index: usize) {
        // Mutant: nothing is held back for a queue pair that shows no end of its work.
        self.connections[index].hold_back(!mutant!(hold_refused_fail));
        self.abandon_posted(index);
    }

    /// Moves connections on that open or end. `read`: the work of this poll so far.
    #[inline(never)]
    pub(super) fn settle(&mut self, read: u32) -> u32 {
        let mut work = 0;
        let now = self.polls.now().since_epoch();
        // What has come back may stand behind other completions.
        let unread = read as usize >= MAX_COMPLETIONS_PER_POLL || self.polls.was_skipped();
        let looks = self.draining.is_due(now);
        let judges = looks && self.draining.judges(unread, self.polls_of_full_queues());
        let mut from = 0;
        while let Some(index) = self.chores.unsettled().next(from) {
            from = index + 1;
            let moved = match *self.connections[index].phase() {
                Phase::Ending { step, deadline, .. } => {
                    // Who begins to drain says by when; a look forgets what it was told.
                    if looks {
                        self.draining.look_by(deadline);
                    }
                    self.settle_one(index, step, judges && self.draining.watched(now) >= deadline)
                }
                Phase::Opening(Opening::Handshake { told: false }) => self.tell_control_of_receives(index),
                _ => false,
            };
            work += u32::from(moved);
        }
        work
    }

    fn settle_one(&mut self, index: usize, step: Ending, overdue: bool) -> bool {
        match step {
            Ending::Fail { told: false } => {
                self.tell_control_to_fail(index);
                false
            }
            Ending::Fail { told: true } => false,
            Ending::Drain { marker_posted: false } if mutant!(K18_no_marker) => {
                self.connections[index].set_step(Ending::Drain { marker_posted: true });
                true
            }
            Ending::Drain { marker_posted: false } => {
                self.post_marker(index);
                true
            }
            Ending::Drain { marker_posted: true } => {
                // K18: not all of it is waited for.
                let sent = self.connections[index].sending.queue().posted() == 0 || mutant!(K18_sends_undrained);
                let received = self.receives_are_back(index, sent) || mutant!(K18_receives_undrained);
                let drained = sent && received;
                if !drained && overdue {
                    self.give_up_receives(index);
                }
                if drained || overdue {
                    // Mutant: a drain that timed out is taken for one that ended.
                    self.connections[index].hold_back(!drained && !mutant!(hold_overdue));
                    if !drained {
                        self.counters.drain_timeout();
                    }
                    self.destroy_all(index);
                }
                drained || overdue
            }
            Ending::Destroy => self.destroyed_all(index),
            Ending::Close { told: false } => {
                let (connection, may_work) = (self.connections[index].key, self.connections[index].holds_back());
                let told = self.link.tell(ToControl::Close { connection, may_work });
                self.connections[index].set_step(Ending::Close { told });
                told
            }
            Ending::Close { told: true } => false,
            Ending::Sweep => self.swept(index),
        }
    }

    /// A signalled work request behind everything else: once it is back, so is all the rest, also what succeeded without
    /// a completion of its own (U19). The receive queue needs none: all its entries complete.
    fn post_marker(&mut self, index: usize) {
        let queue_pair = self.connections[index].queue_pair;
        let request = WorkRequest {
            token: Token::new(TokenKind::Drain, index as u32, u32::from(self.connections[index].key.epoch)),
            signalled: !mutant!(marker_unsignalled),
            fence: false,
            operation: Operation::Send { local: ElementRange::default(), invalidate: None },
        };
        let chain = Chain { requests: &[request], elements: self.elements.all() };
        if let Err(error) = self.port.post(queue_pair, chain) {
            // A queue pair that takes nothing gives nothing back either.
            self.note_refused(index, error);
            self.give_up_drain(index);
        } else {
            self.counters.drain_marker();
            self.connections[index].sending.marker_posted(request.token);
        }
        self.connections[index].set_step(Ending::Drain { marker_posted: true });
    }

    /// Whether the queue pair has no receive any more. Shared ones are not flushed with it: it has completed all that it
    /// took once it says so (or, where the device never does, once everything sent has come back), and those completions
    /// were taken once the completion queue was found empty after that. Destroying it earlier would lose them.
    fn receives_are_back(&mut self, index: usize, sent: bool) -> bool {
        let entry = &mut self.connections[index];
        if self.shared.is_none() {
            return !entry.receive_queue.has_posted();
        }
        let is_said = self.capabilities.quirks.silent_about_last_receive && (sent || mutant!(S5_silent_unsent));
        if !entry.receive_queue.has_ended() && is_said {
            entry.receive_queue.ended(self.polls.without_receives());
        }
        entry.receive_queue.is_drained(self.polls.without_receives())
    }

    /// The queue pair said that it takes no more shared receives.
    pub(super) fn last_receive_reached(&mut self, connection: ConnectionId) {
        if let Some(index) = self.index_of(connection) {
            self.connections[index].receive_queue.ended(self.polls.without_receives());
        }
    }

    /// The queue pair is destroyed with what it may have taken of the shared receives. One that was never accepted or
    /// connected has taken none.
    fn give_up_receives(&mut self, index: usize) {
        if self.shared.is_some() {
            self.connections[index].receive_queue.give_up(self.polls.without_receives());
        }
    }

    fn abandon_posted(&mut self, index: usize) {
        while let Some(posted) = self.connections[index].sending.abandon() {
            if posted.token.kind() == TokenKind::Invalidate {
                if mutant!(K5_abandoned) {
                    // K5: what was given up counts as a fence.
                    self.retired(index, posted, Ok(()));
                    continue;
                }
                self.invalidation_lost(posted.token.index(), posted.token.generation());
            }
        }
        if self.shared.is_none() {
            self.connections[index].receive_queue.abandon();
        }
    }

    /// Every MR of the connection is destroyed, whatever its state: nobody knows what the device thinks of it (S94, S96).
    fn destroy_all(&mut self, index: usize) {
        self.abandon_posted(index);
        let connection = self.connections[index].key;
        while self.connections[index].idle.pop().is_some() {}
        self.free_again(index);
        for descriptor in self.pool.of(connection.index) {
            let Some(mr) = self.pool.get_mut(descriptor) else { continue };
            // K2, K3, F17: what was never posted, is valid, is free, or in a state that nobody knows, is left as it is.
            let is_left = match mr.state() {
                State::Mapped { .. } => mutant!(K2_mapped),
                State::Registering { .. } | State::Valid { .. } => mutant!(K3_valid),
                State::Idle { .. } => mutant!(K3_idle),
                State::Stale(_) => mutant!(F17),
                _ => false,
            };
            if is_left {
                continue;
            }
            // What has no object, or is being destroyed already, needs nothing.
            if !matches!(mr.state(), State::Absent | State::Recovering) {
                self.free_object(index, descriptor);
            }
        }
        self.connections[index].set_step(Ending::Destroy);
    }

    /// All objects are destroyed: every key is dead. What was in flight can be told to be lost, unless the queue pair did not
    /// drain: it may still read messages and write to receives and to where RDMA READs land, until it is destroyed (Hold).
    /// Nor is it told where the device kept an object: its key may die with the queue pair, or behind it.
    fn destroyed_all(&mut self, index: usize) -> bool {
        self.send_frees(index);
        let entry = &self.connections[index];
        // Mutant: told before the keys are dead, or while objects are being made.
        let is_freeing = entry.objects.are_destroyed() && !mutant!(lost_before_destruction);
        let is_allocating = entry.objects.are_made() && !mutant!(closed_while_allocating);
        if is_freeing || is_allocating {
            return false;
        }
        let entry = &mut self.connections[index];
        entry.hold_back(entry.objects.has_kept() && !mutant!(hold_kept_object));
        if !entry.holds_back() {
            self.give_back_all(index);
        }
        self.connections[index].set_step(Ending::Close { told: false });
        true
    }

    /// Nothing reaches the connection's slots and buffers any more: they are handed back, and its requests told to be lost.
    fn give_back_all(&mut self, index: usize) {
        self.report_lost(index);
        self.forget_received(index);
        self.connections[index].clear_queues();
    }

    /// Nothing is posted any more, and nobody will be told of messages that came before the connection was ready.
    pub(super) fn forget_received(&mut self, index: usize) {
        if self.shared.is_none() && !mutant!(S10_receives_posted) {
            self.receives.reset(index as u16);
        }
        while let Some(Early { buffer, .. }) = self.connections[index].next_early() {
            if let Some((generation, _)) = self.receives.held(buffer)
                && !mutant!(early_receive_lost)
                && self.receives.release(buffer, generation).is_some()
                && let Some(shared) = &mut self.shared
            {
                shared.post_next(self.receives.post(buffer, 0));
            }
        }
    }

    /// Ends every request and transfer of the connection. A request whose reply came but whose fence was flushed is lost
    /// too: its data may have changed after the reply (S80, D6).
    fn report_lost(&mut self, index: usize) {
        // Slots of all connections, up to the last one that is in use.
        let mut left = self.requests.len();
        for slot in 0..self.plan.request_slots {
            if left == 0 {
                break;
            }
            let Some((handle, request)) = self.requests.at_mut(slot) else { continue };
            left -= 1;
            if request.connection() != index {
                continue;
            }
            request.forget_message();
            self.parked.release(slot);
            match request.phase() {
                RequestPhase::Held if mutant!(held_at_end) => continue,
                RequestPhase::Held => {
                    self.requests.release(slot);
                    continue;
                }
                // K20: told once more.
                RequestPhase::Ended if !mutant!(K20_ended) => continue,
                _ => {}
            }
            request.lose_keys();
            // Mutant: a reply whose fence was flushed keeps its receive, or its good status.
            if mutant!(lost_told_as_replied) && matches!(request.outcome(), RequestStatus::Replied(_)) {
                self.end_request(handle);
                continue;
            }
            if !mutant!(lost_reply_keeps_receive)
                && let &RequestStatus::Replied(Received { buffer, generation, .. }) = request.outcome()
                && self.receives.release(buffer, generation).is_some()
                && let Some(shared) = &mut self.shared
            {
                shared.post_next(self.receives.post(buffer, 0));
            }
            if *request.outcome() != RequestStatus::Cancelled || mutant!(cancelled_told_as_lost) {
                request.ends_as(RequestStatus::Lost);
            }
            self.end_request(handle);
        }
        let mut left = self.transfers.len();
        for slot in 0..self.plan.transfer_slots {
            if left == 0 {
                break;
            }
            let Some(transfer) = self.transfers.at(slot) else { continue };
            left -= 1;
            if transfer.connection() == index && !mutant!(transfers_left_at_end) {
                self.lose_transfer(slot);
            }
        }
    }

    /// The device refused to destroy the queue pair of a connection that ends, or that did not open: the end waits for it.
    pub(super) fn queue_pair_kept(&mut self, connection: ConnectionId) {
        let Some(index) = self.index_of(connection) else { return };
        self.connections[index].queue_pair_kept();
        self.events.push_back(Event::QueuePairKept { connection });
    }

    /// The queue pair is destroyed.
    pub(super) fn closed(&mut self, connection: ConnectionId) {
        let Some(index) = self.index_of(connection) else { return };
        if !self.connections[index].is_ending() {
            return;
        }
        if !mutant!(not_freed_at_close) {
            self.free_again(index);
        }
        self.connections[index].set_step(Ending::Sweep);
        self.swept(index);
    }

    /// Ends the connection as soon as the device has destroyed its last MR, or refused it for good: its slot is free for the next one.
    fn swept(&mut self, index: usize) -> bool {
        self.send_frees(index);
        if self.connections[index].objects.are_destroyed() && !mutant!(vacant_while_freeing) {
            return false;
        }
        let connection = self.connections[index].key;
        let Phase::Ending { cause, holds_back, .. } = *self.connections[index].phase() else { return false };
        // Mutant: the end of the connection is told in front of those of its requests.
        if mutant!(disconnected_first) {
            self.events.push_back(Event::Disconnected { connection, cause, orphaned_mrs: 0 });
        }
        if holds_back {
            self.give_back_all(index);
        }
        let orphaned_mrs = self.connections[index].objects.orphans();
        self.vacate(index);
        if mutant!(disconnected_first) {
            return true;
        }
        self.events.push_back(Event::Disconnected { connection, cause, orphaned_mrs });
        true
    }
}

/// Keys of an MR that were accepted by the device and that no completion has shown to be dead: its own, and with the
/// early return (D2) an earlier one whose invalidation is still in flight.
pub(super) fn keys_at_stake(mr: &Mr) -> u64 {
    match mr.state() {
        State::Registering { pending: Some(_), .. } => 2,
        _ => u64::from(mr.is_live()),
    }
}
