//! The chain that the next flush posts: work requests are made where their request or transfer (`transfers`) is admitted, while all that
//! goes into them is at hand, and stand in their connection's chain and send queue ring from then on.
//!
//! What is staged counts as posted for its request and its MRs. Where it is not posted after all, because its request is cancelled
//! or its connection ends first, it is taken back as if the device had refused it.

use super::Engine;
use crate::{
    chain::{Posted, SendQueue},
    mr::tag_mask,
    options::InvalidateOrder,
    provider::{Capabilities, Port, SendQueueCost, Token, TokenKind},
    request::{Phase, Request},
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
}

impl Making {
    pub(super) fn new(capabilities: &Capabilities) -> Self {
        let cost = capabilities.send_queue_cost;
        // S4, K6: the invalidation, or the registration, is not reserved for.
        let per_key = if mutant!(K6_entries) { 0 } else { cost.register }
            + if mutant!(S4_invalidation) { 0 } else { cost.invalidate };
        Self { cost, single: cost.message + per_key, per_key, key_mask: tag_mask(capabilities.rotating_key_bits) }
    }

    /// Send queue entries of a request: its message, if it sends one, and a registration and an invalidation for each MR.
    #[inline(always)]
    pub(super) fn entries(&self, sends: bool, pieces: u32) -> u32 {
        match (sends, pieces) {
            (true, 1) => self.single,
            _ => u32::from(sends) * self.cost.message + pieces * self.per_key,
        }
    }
}

/// The token of the message of the request in this slot.
#[inline(always)]
pub(super) fn message_token(request: Handle) -> Token {
    Token::of(TokenKind::Message, request.index(), request.generation())
}

impl<P: Port> Engine<P> {
    /// In front of a new request or transfer stand the invalidations that are due, where the order says so.
    #[inline(never)]
    pub(super) fn stage_invalidations_first(&mut self, index: usize) {
        if self.connections[index].has_due()
            && (mutant!(order_after_as_before) || self.options.invalidate_order == InvalidateOrder::BeforeMessages)
        {
            self.stage_invalidations(index);
        }
    }

    /// LOCAL_INV for every key that is to die (S65); the last one asks for the completion that fences them all (S67).
    #[inline(never)]
    pub(super) fn stage_invalidations(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let (due, mut places) = connection.invalidate_due();
        for &descriptor in due {
            let Some(mr) = self.pool.get_mut(descriptor) else { continue };
            if !places.put(mr) {
                break;
            }
        }
        let count = places.count();
        connection.invalidated(count);
        self.counters.invalidations_staged(count);
    }

    /// Whether a request's work requests stand in the chain and are not posted. `found` is the request in this slot.
    pub(super) fn is_staged(&self, slot: u32, found: &Request) -> bool {
        let queue = self.connections[found.connection()].sending.queue();
        found.phase() == Phase::Posted
            && queue
                .staged_behind(found.message_position())
                .is_some_and(|posted| posted.owner == slot && !posted.token.is(TokenKind::Invalidate))
    }

    /// Takes a request's work requests out of the chain; what stands behind them moves up. It is queued again, and its MRs are
    /// mapped.
    #[cold]
    pub(super) fn unstage(&mut self, handle: Handle) {
        self.record_unposted(handle);
        let Some(request) = self.requests.get_mut(handle) else { return };
        let connection = &mut self.connections[request.connection()];
        let leaving = positions(connection.sending.queue(), handle, request);
        request.unstage();
        let left = |posted: Posted| {
            if let Some(mr) = self.pool.get_mut(posted.token.index()).filter(|_| posted.token.is(TokenKind::Register)) {
                // The key stays burnt (D14).
                let _ = mr.register_refused();
            }
        };
        let moved = |posted: Posted, to: u64| {
            if posted.token.is(TokenKind::Transfer) || posted.token.is(TokenKind::Reply) {
                // The last of its work requests is the last to move.
                if let Some(other) = self.transfers.at_mut(posted.owner) {
                    other.moved_to(to);
                }
            } else if let Some((_, other)) = self.requests.at_mut(posted.owner)
                && (posted.token.is(TokenKind::Message) || posted.is_standalone())
            {
                other.moved_to(to);
            }
        };
        connection.sending.unstage(&leaving, left, moved);
    }

    /// The connection ends: nothing that is staged will be posted. Requests that were to be sent are queued as they were; what
    /// was to die is as after a refused post (S71 to S73).
    #[cold]
    pub(super) fn unstage_all(&mut self, index: usize) {
        self.record_unposted_from(index, 0);
        let (pool, requests) = (&mut self.pool, &mut self.requests);
        self.connections[index].sending.unstage_all(|posted| {
            let token = posted.token;
            match (token.kind(), pool.get_mut(token.index())) {
                (TokenKind::Register, Some(mr)) if !mutant!(K2_staged) => {
                    let _ = mr.register_refused();
                }
                (TokenKind::Invalidate, Some(mr)) => {
                    let _ = mr.invalidate_refused(token.generation());
                    return;
                }
                // They are told by their slots.
                (TokenKind::Transfer | TokenKind::Reply, _) => return,
                _ => {}
            }
            if let Some((_, request)) = requests.at_mut(posted.owner) {
                request.unstage();
            }
        });
    }
}

/// Where a staged request's work requests stand: its registrations, and its message right behind them. One that could not be staged
/// whole has all that stands from its first one on.
fn positions(queue: &SendQueue, handle: Handle, request: &Request) -> core::ops::Range<u64> {
    let registrations = request.mrs().len() as u64;
    let position = request.message_position();
    let is_whole = queue.staged_behind(position).is_some_and(|posted| posted.token == message_token(handle));
    if is_whole { position - registrations..position + 1 } else { position..position + registrations }
}
