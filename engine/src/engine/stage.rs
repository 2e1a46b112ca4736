//! The chain that the next flush posts: work requests are made where their request is admitted, while all that goes into them is
//! at hand, and stand in their connection's chain and send queue ring from then on.
//!
//! What is staged counts as posted for its request and its MRs. Where it is not posted after all, because its request is cancelled
//! or its connection ends first, it is taken back as if the device had refused it.

use super::Engine;
use crate::{
    chain::{NO_OWNER, Posted, Registered},
    connection::Connection,
    mr::{ConnectionKey, Mapping, Mr},
    options::{InvalidateOrder, InvalidateSignalling, OnPostError},
    pool::Pool,
    provider::{
        Capabilities, ElementRange, Operation, Port, RegistrationFields, SendQueueCost, Token, TokenKind, WorkRequest,
    },
    request::{Phase, Request},
    signal::{Signaller, held_slots_limit},
};
use frwr_mempool::slab::Handle;

/// What all work requests of an engine are made with, worked out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Making {
    /// Send queue entries.
    pub(super) cost: SendQueueCost,
    /// The same of a request of one registration, with its invalidation.
    pub(super) single: u32,
    /// See [`Pool::key_mask`].
    key_mask: u32,
    /// With so many slots held a message asks for a completion.
    held_limit: u32,
    /// A message waits for the registrations in front of it.
    fence: bool,
    /// A chain may be cut anywhere, so that nothing may count on a later completion (F5, F6).
    every: bool,
}

impl Making {
    pub(super) fn new(capabilities: &Capabilities, request_slots: u32, on_post_error: OnPostError) -> Self {
        let cost = capabilities.send_queue_cost;
        Self {
            cost,
            single: cost.message + cost.register + cost.invalidate,
            key_mask: Pool::key_mask(capabilities.rotating_key_bits),
            held_limit: held_slots_limit(request_slots),
            fence: capabilities.fence_after_registration,
            every: on_post_error == OnPostError::DeregisterAndContinue,
        }
    }
}

/// A request's message as a work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageToSend {
    pub(super) request: Handle,
    pub(super) elements: ElementRange,
    /// Registrations in front of it.
    pub(super) registrations: u32,
    /// Its request waits for its completion (S51).
    pub(super) awaited: bool,
    /// Slots that only Hold keeps.
    pub(super) held: u32,
}

impl MessageToSend {
    #[inline(always)]
    fn posted(&self, making: &Making) -> Posted {
        let token = Token::new(TokenKind::Message, self.request.index(), self.request.generation());
        Posted::new(token, self.request.index(), making.cost.message)
    }

    #[inline(always)]
    fn signalled(&self, making: &Making, signaller: &mut Signaller, relief_coming: &mut bool) -> bool {
        let slots_short = self.held >= making.held_limit && !*relief_coming;
        if slots_short {
            return self.signalled_for_slots(signaller, relief_coming);
        }
        let signalled = signaller.message(self.registrations + 1, self.awaited, false);
        if signalled {
            *relief_coming = true;
        }
        signalled
    }

    #[cold]
    fn signalled_for_slots(&self, signaller: &mut Signaller, relief_coming: &mut bool) -> bool {
        let signalled = signaller.message(self.registrations + 1, self.awaited, true);
        *relief_coming |= signalled;
        signalled
    }

    #[inline(always)]
    fn operation(&self) -> Operation {
        Operation::Send { local: self.elements, invalidate: None }
    }
}

/// Stages the registration of a mapped MR, without the message that stands behind it. One that is not mapped is none of ours, and
/// is left out. `alone`: no message stands behind it that could vouch for it; the last of those asks in the flush.
fn stage_registration(
    connection: &mut Connection,
    making: &Making,
    mr: &mut Mr,
    descriptor: u32,
    slot: u32,
    alone: bool,
) {
    let token = mr.token_register(descriptor);
    let Ok(fields) = mr.enter_chain() else { return };
    if alone {
        push_standalone(connection, making, token, slot, fields);
        return;
    }
    connection.registered.add(fields, making.key_mask);
    connection.send_queue.stage(Posted::new(token, slot, making.cost.register).vouched_for());
    let signalled = connection.signaller.registration();
    connection.chain.push(WorkRequest { token, signalled, fence: false, operation: Operation::Register(*fields) });
}

/// Stages a registration that no message follows. Returns its position.
#[inline]
fn push_standalone(
    connection: &mut Connection,
    making: &Making,
    token: Token,
    slot: u32,
    fields: &RegistrationFields,
) -> u32 {
    connection.registered.add(fields, making.key_mask);
    connection.standalone_staged = true;
    let signalled = connection.signaller.standalone(making.every);
    connection.chain.push(WorkRequest { token, signalled, fence: false, operation: Operation::Register(*fields) });
    connection.send_queue.stage(Posted::new(token, slot, making.cost.register).standalone())
}

/// The same of a free MR, for a slot. `opening` is connection, mapping and first element. `None` where it cannot be registered.
pub(super) fn stage_standalone(
    connection: &mut Connection,
    making: &Making,
    (mr, descriptor): (&mut Mr, u32),
    slot: u32,
    (key, mapping, first): (ConnectionKey, &Mapping, u32),
) -> Option<u32> {
    let fields = mr.open_in_chain(slot, key, mapping, first).ok()?;
    Some(push_standalone(connection, making, mr.token_register(descriptor), slot, &fields))
}

/// Stages a request's last registration and its message behind it (S45, S46): of an MR that is mapped, or with `opening` of a free
/// one, for which that is connection, mapping and first element. Returns the message's position, and what was registered; `None`
/// where the MR cannot be registered, so that the request is to be taken back.
#[inline(always)]
pub(super) fn stage_single(
    connection: &mut Connection,
    making: &Making,
    (mr, descriptor): (&mut Mr, u32),
    message: &MessageToSend,
    opening: Option<(ConnectionKey, &Mapping, u32)>,
) -> Option<(u32, RegistrationFields)> {
    let Connection { chain, send_queue, signaller, registered, relief_coming, .. } = connection;
    // Both places are at hand before there is anything to put there.
    let [registration, send] = chain.next()?;
    let fields = match opening {
        Some((key, mapping, first)) => mr.open_in_chain(message.request.index(), key, mapping, first),
        None => mr.register_posted(),
    };
    let fields = fields.ok()?;
    let token = mr.token_register(descriptor);
    let signalled = signaller.registration();
    *registration = WorkRequest { token, signalled, fence: false, operation: Operation::Register(fields) };
    registered.add(&fields, making.key_mask);
    let posted = message.posted(making);
    let signalled = message.signalled(making, signaller, relief_coming);
    *send = WorkRequest { token: posted.token, signalled, fence: making.fence, operation: message.operation() };
    let registered = Posted::new(token, message.request.index(), making.cost.register).vouched_for();
    let position = send_queue.stage_pair(registered, posted);
    Some((position, fields))
}

/// Stages a request's message, behind all its registrations. Returns its position.
#[inline(always)]
pub(super) fn stage_message(connection: &mut Connection, making: &Making, message: &MessageToSend) -> u32 {
    let signalled = message.signalled(making, &mut connection.signaller, &mut connection.relief_coming);
    let posted = message.posted(making);
    let fence = message.registrations > 0 && making.fence;
    connection.chain.push(WorkRequest { token: posted.token, signalled, fence, operation: message.operation() });
    connection.send_queue.stage(posted)
}

impl<P: Port> Engine<P> {
    /// Stages all of a request whose memory is mapped and whose message stands in its buffer. False where not all of it can be.
    pub(super) fn stage_request(&mut self, index: usize, handle: Handle) -> bool {
        self.stage_invalidations_first(index);
        let making = &self.making;
        let Some(request) = self.requests.get_mut(handle) else { return false };
        let connection = &mut self.connections[index];
        request.phase = Phase::Posted;
        request.message_position = connection.send_queue.next_position();
        let slot = handle.index();
        let (alone, last) = match request.mrs.as_slice() {
            // No message stands behind it that could vouch for it.
            mrs if request.standalone => (mrs, None),
            [front @ .., last] => (front, Some(*last)),
            [] => (&[][..], None),
        };
        for &descriptor in alone {
            if let Some(mr) = self.pool.get_mut(descriptor) {
                stage_registration(connection, making, mr, descriptor, slot, request.standalone);
            }
        }
        if request.standalone {
            return true;
        }
        let message = MessageToSend {
            request: handle,
            elements: ElementRange {
                first: self.plan.request_element(slot),
                count: 1 + u32::from(request.inline_segments),
            },
            registrations: request.mrs.len() as u32,
            awaited: request.awaits_message,
            held: self.held,
        };
        request.hold.message = true;
        let last = last.and_then(|descriptor| self.pool.get_mut(descriptor).map(|mr| (mr, descriptor)));
        request.message_position = match last {
            Some(last) => match stage_single(connection, making, last, &message, None) {
                Some((position, _)) => position,
                None => return false,
            },
            None => stage_message(connection, making, &message),
        };
        true
    }

    /// The last registration without a message of a chain asks for a completion, which tells of those in front of it as well:
    /// nothing may ever be posted behind it, and its caller waits.
    #[inline(never)]
    pub(super) fn ask_for_standalone(&mut self, index: usize) {
        let Connection { chain, send_queue, signaller, standalone_staged, .. } = &mut self.connections[index];
        *standalone_staged = false;
        // A chain is as long as its send queue at most.
        let is_alone = |at: &usize| send_queue.next_at(*at as u32).is_some_and(Posted::is_standalone);
        let Some(last) = (0..chain.len()).rev().find(is_alone) else { return };
        let Some(&work) = chain.as_slice().get(last) else { return };
        chain.set(last, WorkRequest { signalled: true, ..work });
        if last + 1 == chain.len() {
            signaller.signalled();
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
        let (mut kept, mut asked) = (0, false);
        for at in 0..staged {
            let (Some(posted), Some(&work)) =
                (connection.send_queue.next_at(at), connection.chain.as_slice().get(at as usize))
            else {
                break;
            };
            if posted.owner() == handle.index() && !posted.token.is(TokenKind::Invalidate) {
                if let Some(mr) =
                    self.pool.get_mut(posted.token.index()).filter(|_| posted.token.is(TokenKind::Register))
                {
                    // The key stays burnt (D14).
                    let _ = mr.register_refused();
                }
                asked |= work.signalled;
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
        // Others may count on a completion that is not asked for any more: what was staged behind it did not ask because it did.
        if asked && let Some(last) = connection.chain.last_mut() {
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
        connection.standalone_staged = false;
    }
}
