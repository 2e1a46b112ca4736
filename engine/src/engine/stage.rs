//! The chain that the next flush posts: work requests are made where their request is admitted, while all that goes into them is
//! at hand, and stand in their connection's chain and send queue ring from then on.
//!
//! What is staged counts as posted for its request and its MRs. Where it is not posted after all, because its request is cancelled
//! or its connection ends first, it is taken back as if the device had refused it.

use super::Engine;
use crate::{
    chain::{NO_OWNER, Posted},
    connection::Connection,
    mr::Mr,
    options::{InvalidateOrder, InvalidateSignalling, OnPostError},
    pool::Pool,
    provider::{ElementRange, Operation, Port, RegistrationFields, Token, TokenKind, WorkRequest},
    request::{Phase, Request},
    signal,
};
use frwr_mempool::slab::Handle;

/// Registrations of a chain, for the statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registered {
    pub(super) registrations: u64,
    /// By right.
    pub(super) bytes: [u64; 3],
    /// Some descriptor's keys begin another round.
    pub(super) first_keys: bool,
}

impl Registered {
    #[inline(always)]
    fn add(&mut self, fields: &RegistrationFields, key_mask: u32) {
        self.registrations += 1;
        if let Some(bytes) = self.bytes.get_mut(fields.access as usize) {
            *bytes += u64::from(fields.length);
        }
        if fields.key & key_mask == 0 {
            self.first_keys = true;
        }
    }

    /// What stands in a part of a chain; its keys' rounds are looked for in any case.
    pub(super) fn of(requests: &[WorkRequest]) -> Self {
        let mut registered = Self { first_keys: true, ..Self::default() };
        for request in requests {
            if let Operation::Register(fields) = &request.operation {
                registered.add(fields, 0);
            }
        }
        registered
    }
}

/// What all work requests of an engine are made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    /// Send queue entries of a registration and of a message.
    pub(super) register_cost: u32,
    pub(super) message_cost: u32,
    /// See [`Pool::key_mask`].
    pub(super) key_mask: u32,
    /// A message waits for the registrations in front of it.
    pub(super) fence: bool,
    /// So many slots are held that a message should ask for a completion.
    pub(super) slots_short: bool,
}

/// Stages the registration of a mapped MR. One that is not mapped is none of ours, and is left out. `alone`: no message stands
/// behind it whose completion could vouch for it.
#[inline(always)]
pub(super) fn stage_registration(
    connection: &mut Connection,
    making: &Making,
    mr: &mut Mr,
    descriptor: u32,
    slot: u32,
    alone: bool,
) {
    let token = mr.token_register(descriptor);
    let Ok(fields) = mr.enter_chain() else { return };
    connection.registered.add(fields, making.key_mask);
    let posted = Posted::new(token, slot, making.register_cost);
    connection.send_queue.stage(if alone { posted.standalone() } else { posted });
    let wanted = connection.signaller.registration();
    if alone {
        connection.signaller.signalled();
    }
    let operation = Operation::Register(*fields);
    connection.chain.push(WorkRequest { token, signalled: alone || wanted, fence: false, operation });
}

/// Stages a request's message, behind its registrations (S45, S46); its elements stand from `first_element` on.
#[inline(always)]
pub(super) fn stage_message(
    connection: &mut Connection,
    making: &Making,
    request: &mut Request,
    handle: Handle,
    first_element: u32,
) {
    let registrations = request.mrs.len() as u32;
    let slots_short = making.slots_short && !connection.relief_coming;
    let signalled = connection.signaller.message(registrations + 1, request.awaits_message, slots_short);
    if signalled {
        connection.relief_coming = true;
    }
    let token = Token::new(TokenKind::Message, handle.index(), handle.generation());
    request.message_position = connection.send_queue.stage(Posted::new(token, handle.index(), making.message_cost));
    let local = ElementRange { first: first_element, count: 1 + u32::from(request.inline_segments) };
    let fence = registrations > 0 && making.fence;
    let operation = Operation::Send { local, invalidate: None };
    connection.chain.push(WorkRequest { token, signalled, fence, operation });
}

impl<P: Port> Engine<P> {
    #[inline(always)]
    pub(super) fn making(&self) -> Making {
        let cost = self.capabilities.send_queue_cost;
        Making {
            register_cost: cost.register,
            message_cost: cost.message,
            key_mask: Pool::key_mask(self.capabilities.rotating_key_bits),
            fence: self.capabilities.fence_after_registration,
            slots_short: signal::held_slots_pressure(self.held, self.plan.request_slots),
        }
    }

    /// Stages all of a request whose memory is mapped and whose message stands in its buffer.
    pub(super) fn stage_request(&mut self, index: usize, handle: Handle) {
        self.stage_invalidations_first(index);
        let making = self.making();
        let Some(request) = self.requests.get_mut(handle) else { return };
        let connection = &mut self.connections[index];
        request.phase = Phase::Posted;
        request.message_position = connection.send_queue.next_position();
        for &descriptor in &request.mrs {
            if let Some(mr) = self.pool.get_mut(descriptor) {
                stage_registration(connection, &making, mr, descriptor, handle.index(), request.standalone);
            }
        }
        if !request.standalone {
            request.hold.message = true;
            stage_message(connection, &making, request, handle, self.plan.request_element(handle.index()));
        }
    }

    /// In front of a new request stand the invalidations that are due, where the order says so.
    #[inline(never)]
    pub(super) fn stage_invalidations_first(&mut self, index: usize) {
        if !self.connections[index].invalidations.is_empty()
            && self.options.invalidate_order == InvalidateOrder::BeforeMessages
        {
            self.stage_invalidations(index);
        }
    }

    /// LOCAL_INV for every key that is to die (S65); the last one asks for the completion that fences them all (S67).
    #[inline(never)]
    pub(super) fn stage_invalidations(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let chain = &mut connection.chain;
        let first = chain.len();
        // Where a refused post does not end the connection a chain may be cut anywhere, so no invalidation may count on
        // a later one's completion (F5, F6).
        let every = self.options.invalidate_signalling == InvalidateSignalling::Every
            || self.options.on_post_error == OnPostError::DeregisterAndContinue;
        let cost = self.capabilities.send_queue_cost.invalidate;
        for &descriptor in connection.invalidations.as_slice() {
            let Some(mr) = self.pool.get_mut(descriptor) else { continue };
            let owner = mr.owner().unwrap_or(NO_OWNER);
            let token = mr.token_invalidate(descriptor);
            let Ok(operation) = mr.invalidate_posted(mr.key(), self.options.return_policy) else { continue };
            connection.send_queue.stage(Posted::new(token, owner, cost));
            chain.push(WorkRequest { token, signalled: every, fence: false, operation });
        }
        connection.invalidations.clear();
        let count = chain.len() - first;
        if count > 0 {
            if let Some(last) = chain.last_mut() {
                last.signalled = true;
            }
            self.statistics.local_inv_needed += count as u64;
            self.statistics.local_inv_chains += 1;
            connection.signaller.invalidations(count as u32, true);
        }
    }

    /// Whether a request's work requests stand in the chain and are not posted. `found` is the request in this slot.
    pub(super) fn is_staged(&self, slot: u32, found: &Request) -> bool {
        let queue = &self.connections[usize::from(found.connection)].send_queue;
        found.phase == Phase::Posted
            && queue
                .staged_behind(found.message_position)
                .is_some_and(|posted| posted.owner() == slot && !posted.token.is(TokenKind::Invalidate))
    }

    /// Takes a request's work requests out of the chain; what stands behind them moves up. It is queued again, and its MRs are
    /// mapped.
    #[cold]
    pub(super) fn unstage(&mut self, handle: Handle) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        request.phase = Phase::Queued;
        request.hold.message = false;
        let connection = &mut self.connections[usize::from(request.connection)];
        let staged = connection.send_queue.unstage();
        let mut kept = 0;
        for at in 0..staged {
            let (Some(posted), Some(&work)) =
                (connection.send_queue.next_at(at), connection.chain.as_slice().get(at as usize))
            else {
                break;
            };
            if posted.owner() == handle.index() && !posted.token.is(TokenKind::Invalidate) {
                if let Some(mr) = self.pool.get_mut(posted.token.index()).filter(|_| posted.token.is(TokenKind::Register)) {
                    // The key stays burnt (D14).
                    let _ = mr.register_refused();
                }
                continue;
            }
            let position = connection.send_queue.stage(posted);
            let moved = self.requests.at_mut(posted.owner()).filter(|_| !posted.token.is(TokenKind::Invalidate));
            if let Some((_, other)) = moved
                && (posted.token.is(TokenKind::Message) || other.standalone)
            {
                other.message_position = position;
            }
            connection.chain.set(kept, work);
            kept += 1;
        }
        connection.chain.truncate(kept);
        connection.registered = Registered::of(connection.chain.as_slice());
        // What went may have been what others count on.
        connection.signaller.refused();
        connection.relief_coming = false;
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
            let Some(posted) = connection.send_queue.next_at(at) else { break };
            let token = posted.token;
            let mr = self.pool.get_mut(token.index());
            match (token.kind(), mr) {
                (TokenKind::Register, Some(mr)) => {
                    let _ = mr.register_refused();
                }
                (TokenKind::Invalidate, Some(mr)) => {
                    let _ = mr.invalidate_refused(token.generation());
                    continue;
                }
                _ => {}
            }
            if let Some((_, request)) = self.requests.at_mut(posted.owner()) {
                request.phase = Phase::Queued;
                request.hold.message = false;
            }
        }
        connection.chain.clear();
        connection.registered = Registered::default();
    }
}
