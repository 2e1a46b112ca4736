//! The chain that the next flush posts: work requests are made where their request or transfer (`transfers`) is admitted, while all that
//! goes into them is at hand, and stand in their connection's chain and send queue ring from then on.
//!
//! What is staged counts as posted for its request and its MRs. Where it is not posted after all, because its request is cancelled
//! or its connection ends first, it is taken back as if the device had refused it.

use super::Engine;
use crate::{
    chain::{NOT_POSTED, Posted, Registered, SendQueue},
    connection::Connection,
    mr::tag_mask,
    options::{InvalidateOrder, InvalidateSignalling, OnPostError},
    provider::{Capabilities, ElementRange, Operation, Port, SendQueueCost, Token, TokenKind, WorkRequest},
    request::{Phase, Request},
    signal::held_slots_limit,
};
use frwr_mempool::mutant;
use frwr_mempool::slab::Handle;

/// What all work requests of an engine are made with, worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    /// Send queue entries.
    pub(super) cost: SendQueueCost,
    /// The same of a registration with its invalidation.
    per_key: u32,
    /// The same of the usual request, which has one.
    single: u32,
    /// The bits of a key that change.
    pub(super) key_mask: u32,
    /// With so many slots held a message asks for a completion.
    held_limit: u32,
    /// A message waits for the registrations in front of it.
    pub(super) fence: bool,
    /// A chain may be cut anywhere, so that nothing may count on a later completion (F5, F6).
    pub(super) every: bool,
}

impl Making {
    pub(super) fn new(capabilities: &Capabilities, request_slots: u32, on_post_error: OnPostError) -> Self {
        let cost = capabilities.send_queue_cost;
        // S4, K6: the invalidation, or the registration, is not reserved for.
        let per_key = if mutant!(K6_entries) { 0 } else { cost.register }
            + if mutant!(S4_invalidation) { 0 } else { cost.invalidate };
        Self {
            cost,
            single: cost.message + per_key,
            per_key,
            key_mask: tag_mask(capabilities.rotating_key_bits),
            held_limit: held_slots_limit(request_slots),
            fence: capabilities.fence_after_registration,
            // F5: what was accepted waits for the completion of what was refused.
            every: on_post_error == OnPostError::DeregisterAndContinue && !mutant!(F5_every),
        }
    }

    /// Send queue entries of a request: its message, if it sends one, and a registration and an invalidation for each MR.
    #[inline(always)]
    pub(super) fn entries(&self, sends: bool, pieces: u32) -> u32 {
        match (sends, pieces) {
            (true, 1) => self.single,
            _ => u32::from(sends) * self.cost.message + pieces * self.per_key,
        }
    }

    /// So many slots are kept only by Hold that a message is to ask for a completion, unless one is coming anyway.
    #[inline(always)]
    pub(super) fn slots_are_short(&self, held: u32, relief_coming: bool) -> bool {
        held >= self.held_limit && !relief_coming && !mutant!(held_slots_unasked)
    }
}

/// A request's message as a work request.
#[inline(always)]
pub(super) fn message_request(token: Token, elements: ElementRange, signalled: bool, fence: bool) -> WorkRequest {
    WorkRequest { token, signalled, fence, operation: Operation::Send { local: elements, invalidate: None } }
}

/// The token of the message of the request in this slot.
#[inline(always)]
pub(super) fn message_token(request: Handle) -> Token {
    Token::of(TokenKind::Message, request.index(), request.generation())
}

impl<P: Port> Engine<P> {
    /// The last registration without a message of a chain asks for a completion, which tells of those in front of it as well:
    /// nothing may ever be posted behind it, and its caller waits. Where messages wait for the registrations in front of them, whatever
    /// stands behind one of these does as well.
    #[inline(never)]
    pub(super) fn ask_for_standalone(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.standalone_staged = false;
        if self.making.fence && !mutant!(K19_standalone) {
            connection.fence_behind_registrations();
        }
        let Connection { chain, send_queue, signaller, .. } = connection;
        let is_alone = |at: &usize| send_queue.next_at(*at as u64).is_some_and(Posted::is_standalone);
        let Some(last) = (0..chain.len()).rev().find(is_alone) else { return };
        let Some(&work) = chain.as_slice().get(last) else { return };
        chain.set(last, WorkRequest { signalled: true, ..work });
        if last + 1 == chain.len() {
            signaller.signalled();
        }
    }

    /// In front of a new request or transfer stand the invalidations that are due, where the order says so.
    #[inline(never)]
    pub(super) fn stage_invalidations_first(&mut self, index: usize) {
        if !self.connections[index].invalidations.is_empty()
            && (mutant!(order_after_as_before) || self.options.invalidate_order == InvalidateOrder::BeforeMessages)
        {
            self.stage_invalidations(index);
        }
    }

    /// LOCAL_INV for every key that is to die (S65); the last one asks for the completion that fences them all (S67).
    #[inline(never)]
    pub(super) fn stage_invalidations(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let Connection { chain, send_queue, invalidations, .. } = &mut *connection;
        let mut position = send_queue.next_position();
        let first = position;
        let mut places = chain.vacant_places().iter_mut();
        debug_assert!(invalidations.len() <= places.len(), "what was reserved bounds the chain");
        // Where a refused post does not end the connection a chain may be cut anywhere, so no invalidation may count on
        // a later one's completion (F5, F6).
        let every = self.options.invalidate_signalling == InvalidateSignalling::Every
            || (self.options.on_post_error == OnPostError::DeregisterAndContinue && !mutant!(F5_invalidations));
        for &descriptor in invalidations.as_slice() {
            let Some(mr) = self.pool.get_mut(descriptor) else { continue };
            // F7: one token for both work requests of an MR.
            let token = if mutant!(F7_token) { mr.token_register() } else { mr.token_invalidate() };
            let begun = mr.invalidate_posted(mr.key(), self.options.return_policy);
            let Ok((owner, operation)) = begun else { continue };
            let Some(place) = places.next() else { break };
            *place = WorkRequest { token, signalled: every, fence: false, operation };
            send_queue.put_invalidation(position, token, owner);
            position += 1;
        }
        let count = position - first;
        if count > 0 {
            send_queue.stage_invalidations(count);
            chain.filled(count as usize);
            if let Some(last) = chain.last_mut()
                && !mutant!(F5_last_unsignalled)
            {
                last.signalled = true;
            }
            self.statistics.local_inv_needed += count;
            self.statistics.local_inv_chains += 1;
            connection.signaller.invalidations(count as u32, true);
        }
        connection.invalidations.clear();
        connection.note_usual();
    }

    /// Whether a request's work requests stand in the chain and are not posted. `found` is the request in this slot.
    pub(super) fn is_staged(&self, slot: u32, found: &Request) -> bool {
        let queue = &self.connections[usize::from(found.standing.connection)].send_queue;
        found.standing.phase == Phase::Posted
            && queue
                .staged_behind(found.message_position)
                .is_some_and(|posted| posted.owner == slot && !posted.token.is(TokenKind::Invalidate))
    }

    /// Takes a request's work requests out of the chain; what stands behind them moves up. It is queued again, and its MRs are
    /// mapped.
    #[cold]
    pub(super) fn unstage(&mut self, handle: Handle) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        let connection = &mut self.connections[usize::from(request.standing.connection)];
        let leaving = positions(&connection.send_queue, handle, request);
        request.standing.phase = Phase::Queued;
        request.message_position = NOT_POSTED;
        let staged = connection.send_queue.unstage();
        let (mut kept, mut asked) = (0, false);
        for at in 0..staged {
            let (position, posted) = connection.send_queue.take_next(at);
            let Some(&work) = connection.chain.as_slice().get(at as usize) else { break };
            if leaving.contains(&position) {
                if mutant!(unstaged_registration_posted) {
                    continue;
                }
                if let Some(mr) =
                    self.pool.get_mut(posted.token.index()).filter(|_| posted.token.is(TokenKind::Register))
                {
                    // The key stays burnt (D14).
                    let _ = mr.register_refused();
                }
                asked |= work.signalled;
                continue;
            }
            let moved = connection.send_queue.stage(posted);
            if posted.token.is(TokenKind::Transfer) || posted.token.is(TokenKind::Reply) {
                // The last of its work requests is the last to move.
                if let Some((_, other)) = self.transfers.at_mut(posted.owner) {
                    other.position = moved;
                }
            } else if let Some((_, other)) = self.requests.at_mut(posted.owner)
                && (posted.token.is(TokenKind::Message) || posted.is_standalone())
            {
                other.message_position =
                    if mutant!(unstaged_message_position) { other.message_position } else { moved };
            }
            connection.chain.set(kept, work);
            kept += 1;
        }
        connection.chain.truncate(kept);
        connection.registered = Registered::of(connection.chain.as_slice());
        // Others may count on a completion that is not asked for any more: what was staged behind it did not ask because it did.
        if mutant!(F5_unstaged) {
            // F5: the completion that others wait for left with the cancelled one.
        } else if asked && let Some(last) = connection.chain.last_mut() {
            last.signalled = true;
            connection.signaller.signalled();
        } else if asked {
            connection.signaller.refused();
            connection.relief_coming = false;
        }
    }

    /// The connection ends: nothing that is staged will be posted. Requests that were to be sent are queued as they were; what
    /// was to die is as after a refused post (S71 to S73).
    #[cold]
    pub(super) fn unstage_all(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let staged = connection.send_queue.unstage();
        // A chain that is being posted is looked at until all of it is accounted for.
        if staged == 0 {
            return;
        }
        for at in 0..staged {
            let (_, posted) = connection.send_queue.take_next(at);
            let token = posted.token;
            let mr = self.pool.get_mut(token.index());
            match (token.kind(), mr) {
                (TokenKind::Register, Some(mr)) if !mutant!(K2_staged) => {
                    let _ = mr.register_refused();
                }
                (TokenKind::Invalidate, Some(mr)) => {
                    let _ = mr.invalidate_refused(token.generation());
                    continue;
                }
                // They are told by their slots.
                (TokenKind::Transfer | TokenKind::Reply, _) => continue,
                _ => {}
            }
            if let Some((_, request)) = self.requests.at_mut(posted.owner) {
                request.standing.phase = Phase::Queued;
                request.message_position = NOT_POSTED;
            }
        }
        connection.chain.clear();
        connection.registered = Registered::default();
        (connection.standalone_staged, connection.end_unsignalled) = (false, false);
    }
}

/// Where a staged request's work requests stand: its registrations, and its message right behind them. One that could not be staged
/// whole has all that stands from its first one on.
fn positions(queue: &SendQueue, handle: Handle, request: &Request) -> core::ops::Range<u64> {
    let registrations = request.mrs.len() as u64;
    let position = request.message_position;
    let is_whole = queue.staged_behind(position).is_some_and(|posted| posted.token == message_token(handle));
    if is_whole { position - registrations..position + 1 } else { position..position + registrations }
}
