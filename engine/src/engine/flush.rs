//! The end of a poll iteration: one chain and one post for every queue pair with work.

use super::Engine;
use crate::{
    chain::{NO_OWNER, Posted, Staging},
    event::DisconnectCause,
    mr::{self, Mr, ReturnPolicy},
    options::{InvalidateOrder, InvalidateSignalling, MAX_TRANSFER_OPERATIONS, OnPostError},
    pool::Pool,
    provider::{
        Access, Chain, ElementRange, Operation, Port, PostError, RegistrationFields, Token, TokenKind, WorkRequest,
    },
    request::Phase,
    shared_receives::Taker,
    signal::{self, Signaller},
    trace::TracePoint,
    transfer::{self, Kind},
};

impl<P: Port> Engine<P> {
    /// Posts everything that was queued since the last flush: for each connection with work one post of receives and one
    /// of its chain, with one doorbell each. Returns the doorbells of send queues. To be called at the end of every
    /// iteration, also when something in it failed; it never waits for company.
    #[inline]
    pub fn flush(&mut self) -> u32 {
        // Most iterations of a core that waits end here.
        if self.dirty.is_empty() && self.shared.is_none() {
            return 0;
        }
        self.flush_all()
    }

    #[inline(never)]
    fn flush_all(&mut self) -> u32 {
        // In front of all chains: a peer may answer any of them at once.
        if self.shared.is_some() {
            self.post_shared_receives();
        }
        let mut doorbells = 0;
        while let Some(index) = self.dirty.pop() {
            let connection = &mut self.connections[usize::from(index)];
            connection.dirty = false;
            if !connection.has_work() {
                continue;
            }
            self.post_receives(usize::from(index));
            if self.connections[usize::from(index)].is_ready() {
                doorbells += self.post_chain(usize::from(index));
            }
        }
        doorbells
    }

    /// Posts the receives that were given back. They stand in front of the chain: the peer may answer at once.
    pub(super) fn post_receives(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.receives.is_empty() {
            return;
        }
        let lkey = connection.bases[0].lkey;
        let receives = &mut self.receives;
        self.scratch.receives.clear();
        self.scratch.receives.extend(connection.receives.as_slice().iter().map(|&buffer| receives.post(buffer, lkey)));
        connection.receives.clear();
        let posts = self.scratch.receives.len();
        let accepted = match self.port.post_receives(connection.queue_pair, &self.scratch.receives) {
            Ok(()) => posts,
            Err(error) => error.accepted.min(posts),
        };
        connection.receives_posted += accepted as u32;
        self.statistics.receive_doorbells += 1;
        for refused in accepted..posts {
            let token = self.scratch.receives[refused].token;
            self.receives.unpost(token.index(), token.generation());
        }
        if accepted < posts {
            self.statistics.posts_refused += 1;
            self.fail(index, DisconnectCause::PostRefused);
        }
    }

    /// Posts what was given back of shared receives, for all connections at once, and gives them credit for it.
    pub(super) fn post_shared_receives(&mut self) {
        let Some(shared) = self.shared.as_mut().filter(|shared| !shared.released.is_empty()) else { return };
        let Some((queue, lkey)) = shared.queue() else { return };
        let receives = &mut self.receives;
        self.scratch.receives.clear();
        self.scratch.receives.extend(shared.released.iter().map(|&buffer| receives.post(buffer, lkey)));
        let posts = self.scratch.receives.len();
        let accepted = match self.port.post_shared_receives(queue, &self.scratch.receives) {
            Ok(()) => posts,
            Err(error) => error.accepted.min(posts),
        };
        self.statistics.receive_doorbells += 1;
        for refused in &self.scratch.receives[accepted..] {
            self.receives.unpost(refused.token.index(), refused.token.generation());
        }
        for taken in &self.scratch.receives[..accepted] {
            if let Taker::Connection(index) = shared.posted(taken.token.index()) {
                self.connections[usize::from(index)].receives_posted += 1;
            }
        }
        shared.released.drain(..accepted);
        if accepted < posts {
            self.shared_receives_refused();
        }
    }

    /// A queue that takes no receives starves all who share it. What was refused is tried again by the next flush.
    #[cold]
    fn shared_receives_refused(&mut self) {
        self.statistics.posts_refused += 1;
        for index in 0..self.connections.len() {
            self.fail(index, DisconnectCause::PostRefused);
        }
    }

    fn post_chain(&mut self, index: usize) -> u32 {
        self.scratch.chain.clear();
        self.connections[index].send_queue.begin();
        let mut registered = Registered::default();
        if self.options.invalidate_order == InvalidateOrder::BeforeMessages {
            self.chain_invalidations(index);
        }
        self.chain_messages(index, &mut registered);
        if !self.connections[index].transfers.is_empty() {
            self.chain_transfers(index);
        }
        if self.options.invalidate_order == InvalidateOrder::AfterMessages {
            self.chain_invalidations(index);
        }
        if self.scratch.chain.is_empty() {
            return 0;
        }
        self.statistics.queue_pairs_flushed += 1;
        self.post(index, registered);
        1
    }

    /// Posts the chain buffer and accounts for what the device took.
    #[inline]
    fn post(&mut self, index: usize, registered: Registered) {
        let connection = &mut self.connections[index];
        let chain = Chain { requests: self.scratch.chain.as_slice(), elements: &self.elements };
        let all = chain.requests.len();
        let result = self.port.post(connection.queue_pair, chain);
        self.statistics.doorbells += 1;
        match result {
            Ok(()) => {
                connection.send_queue.accept(all);
                self.count_accepted(index, all, registered);
                self.record(TracePoint::PostSend, index as u16, None, all as u32);
            }
            Err(error) => {
                let accepted = error.accepted.min(all);
                connection.send_queue.accept(accepted);
                self.count_accepted(index, accepted, Registered::of(&self.scratch.chain.as_slice()[..accepted]));
                self.record(TracePoint::PostSend, index as u16, None, all as u32);
                self.post_refused(index, accepted, error);
            }
        }
    }

    /// Accounts for the work requests that the device took.
    #[inline]
    fn count_accepted(&mut self, index: usize, accepted: usize, registered: Registered) {
        self.statistics.work_requests += accepted as u64;
        self.statistics.registrations += registered.registrations;
        for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteReadWrite] {
            let bytes = registered.bytes[access as usize];
            self.statistics.bytes_registered_read += if access.permits_read() { bytes } else { 0 };
            self.statistics.bytes_registered_write += if access.permits_write() { bytes } else { 0 };
        }
        if registered.first_keys {
            self.note_rounds(accepted);
        }
        if self.trace.is_some() {
            self.record_accepted(index, accepted);
        }
        if self.options.return_policy == ReturnPolicy::OnInvalidatePosted {
            self.return_early(index, accepted);
        }
    }

    /// Notes when descriptors began another round of their keys.
    #[cold]
    fn note_rounds(&mut self, accepted: usize) {
        let (mask, now_ns) = (Pool::key_mask(self.capabilities.rotating_key_bits), self.now_ns());
        for request in &self.scratch.chain.as_slice()[..accepted] {
            if let Operation::Register(fields) = &request.operation
                && fields.key & mask == 0
            {
                self.pool.note_round(request.token.index(), now_ns);
            }
        }
    }

    #[cold]
    fn record_accepted(&mut self, index: usize, accepted: usize) {
        for at in 0..accepted {
            let request = self.scratch.chain.as_slice()[at];
            let slot = request.token.index();
            match request.operation {
                Operation::Register(fields) => {
                    self.record(TracePoint::MrRegister, index as u16, Some(slot), fields.length);
                }
                Operation::Invalidate { .. } => self.record(TracePoint::MrLocalInvalidate, index as u16, Some(slot), 0),
                _ => {}
            }
        }
    }

    /// Where the policy says so, an MR may be taken again as soon as its invalidation is posted (D2).
    fn return_early(&mut self, index: usize, accepted: usize) {
        for request in &self.scratch.chain.as_slice()[..accepted] {
            let descriptor = request.token.index();
            let invalidates = matches!(request.operation, Operation::Invalidate { .. });
            let pending = invalidates
                && self.pool.get(descriptor).is_some_and(|mr| matches!(mr.state(), mr::State::IdlePending { .. }));
            if pending {
                self.pool.put(&mut self.connections[index].idle, descriptor);
            }
        }
    }

    /// LOCAL_INV for every key that is to die (S65); the last one asks for the completion that fences them all (S67).
    #[inline]
    fn chain_invalidations(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.invalidations.is_empty() {
            return;
        }
        let chain = &mut self.scratch.chain;
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

    /// For each new request its registrations, unsignalled, then its message (S45, S46).
    #[inline(never)]
    fn chain_messages(&mut self, index: usize, registered: &mut Registered) {
        let cost = self.capabilities.send_queue_cost;
        let connection = &mut self.connections[index];
        let mut slots_short =
            signal::held_slots_pressure(self.held, self.plan.request_slots) && !connection.relief_coming;
        let mut relief_coming = connection.relief_coming;
        let fence = self.capabilities.fence_after_registration;
        let mut chain = Building {
            stage: connection.send_queue.staging(),
            places: self.scratch.chain.places(),
            filled: 0,
            signaller: &mut connection.signaller,
            registered,
            register_cost: cost.register,
            key_mask: Pool::key_mask(self.capabilities.rotating_key_bits),
        };
        for &slot in connection.messages.as_slice() {
            let Some((handle, request)) = self.requests.at_mut(slot) else { continue };
            if request.standalone {
                // No message stands behind it whose completion could vouch for it.
                request.phase = Phase::Posted;
                for &descriptor in &request.mrs {
                    chain.register(self.pool.get_mut(descriptor), descriptor, slot, true);
                }
                continue;
            }
            let registrations = request.mrs.len() as u32;
            if let &[only] = request.mrs.as_slice() {
                chain.register(self.pool.get_mut(only), only, slot, false);
            } else {
                for &descriptor in &request.mrs {
                    chain.register(self.pool.get_mut(descriptor), descriptor, slot, false);
                }
            }
            request.phase = Phase::Posted;
            request.hold.message = true;
            let signalled = chain.signaller.message(registrations + 1, request.awaits_message, slots_short);
            if signalled {
                relief_coming = true;
                slots_short = false;
            }
            let token = Token::new(TokenKind::Message, slot, handle.generation());
            request.message_position = chain.stage.push(Posted::new(token, slot, cost.message));
            let first = self.plan.request_element(slot);
            let local = ElementRange { first, count: 1 + u32::from(request.inline_segments) };
            let fence = registrations > 0 && fence;
            let Some(place) = chain.next() else { continue };
            *place = WorkRequest { token, signalled, fence, operation: Operation::Send { local, invalidate: None } };
        }
        let (filled, position) = (chain.filled, chain.stage.position);
        connection.send_queue.staged_to(position);
        connection.relief_coming = relief_coming;
        connection.messages.clear();
        self.scratch.chain.grow(filled);
    }

    fn chain_transfers(&mut self, index: usize) {
        // Where a refused post does not end the connection a chain may be cut anywhere (F5, F6).
        let every = self.options.on_post_error == OnPostError::DeregisterAndContinue;
        while let Some(slot) = self.connections[index].transfers.pop_front() {
            let Some(handle) = self.transfers.handle_at(slot) else { continue };
            let Some(transfer) = self.transfers.get_mut(handle) else { continue };
            transfer.phase = transfer::Phase::Posted;
            let (kind, operations) = (transfer.kind, u32::from(transfer.operations));
            let first = self.plan.transfer_element(slot);
            for at in 0..operations {
                let remote = self.remote_segments[slot as usize * MAX_TRANSFER_OPERATIONS + at as usize].remote;
                let local = ElementRange { first: first + at, count: 1 };
                let last = at + 1 == operations;
                let signalled = match kind {
                    Kind::Fetch => last,
                    // One completion tells of all RDMA WRITEs of a chain.
                    Kind::Write => last && (every || self.transfer_completes(index, operations)),
                    // The reply asks, if anything does.
                    Kind::Respond { .. } => false,
                };
                let operation = match kind {
                    Kind::Fetch => Operation::Read { local, remote },
                    Kind::Write | Kind::Respond { .. } => Operation::Write { local, remote },
                };
                self.chain_transfer(index, handle, TokenKind::Transfer, signalled, operation);
            }
            if let Kind::Respond { invalidate, .. } = kind {
                let local = ElementRange { first: first + MAX_TRANSFER_OPERATIONS as u32, count: 1 };
                let waiting = self.transfers.len();
                // The data's buffers come back with this completion: a responder must not starve for them.
                let pressure = signal::held_slots_pressure(waiting, self.plan.transfer_slots);
                // Nothing may ever be posted behind the last one, and its end must come out all the same.
                let connection = &mut self.connections[index];
                let last = connection.transfers.is_empty();
                let signalled = connection.signaller.reply(operations + 1, last, pressure);
                let operation = Operation::Send { local, invalidate };
                self.chain_transfer(index, handle, TokenKind::Reply, signalled, operation);
            }
        }
    }

    /// Whether a transfer of so many RDMA WRITEs is to complete by itself: the last of a chain is, since nothing may ever be
    /// posted behind it, and what the bound of the send queue asks for.
    fn transfer_completes(&mut self, index: usize, operations: u32) -> bool {
        let connection = &mut self.connections[index];
        let last = connection.transfers.is_empty();
        connection.signaller.reply(operations, last, false)
    }

    fn chain_transfer(
        &mut self,
        index: usize,
        handle: frwr_mempool::slab::Handle,
        kind: TokenKind,
        signalled: bool,
        operation: Operation,
    ) {
        if signalled {
            self.connections[index].signaller.signalled();
        }
        let token = Token::new(kind, handle.index(), handle.generation());
        let cost = self.capabilities.send_queue_cost.message;
        self.connections[index].send_queue.stage(Posted::new(token, handle.index(), cost));
        self.scratch.chain.push(WorkRequest { token, signalled, fence: false, operation });
    }

    /// The device took only the first `accepted` of the chain.
    #[cold]
    fn post_refused(&mut self, index: usize, accepted: usize, error: PostError) {
        let _ = error;
        self.statistics.posts_refused += 1;
        self.record(TracePoint::PostSendRefused, index as u16, None, accepted as u32);
        for at in accepted..self.scratch.chain.len() {
            let request = self.scratch.chain.as_slice()[at];
            let posted = self.connections[index].send_queue.staged_at(at);
            let token = request.token;
            match token.kind() {
                TokenKind::Register => {
                    if let Some(mr) = self.pool.get_mut(token.index()) {
                        // The key stays burnt (D14).
                        let _ = mr.register_refused();
                    }
                }
                TokenKind::Invalidate => {
                    if let Some(mr) = self.pool.get_mut(token.index()) {
                        let _ = mr.invalidate_refused(token.generation());
                    }
                }
                _ => {}
            }
            self.connections[index].send_queue.release(posted.cost);
        }
        if self.options.on_post_error == OnPostError::Disconnect {
            self.fail(index, DisconnectCause::PostRefused);
        } else {
            let refused = self.scratch.chain.as_slice().iter().skip(accepted);
            let invalidations = refused.filter(|request| request.token.kind() == TokenKind::Invalidate).count();
            let signaller = &mut self.connections[index].signaller;
            if invalidations > 0 {
                signaller.invalidations(invalidations as u32, false);
            }
            signaller.refused();
            self.fence_refused(index, accepted);
        }
    }
}

/// What the loop over new requests writes to.
struct Building<'a> {
    stage: Staging<'a>,
    places: &'a mut [WorkRequest],
    filled: usize,
    signaller: &'a mut Signaller,
    registered: &'a mut Registered,
    register_cost: u32,
    key_mask: u32,
}

impl Building<'_> {
    /// Where the next work request goes: it is written there and nowhere before.
    #[inline(always)]
    fn next(&mut self) -> Option<&mut WorkRequest> {
        debug_assert!(self.filled < self.places.len(), "credits bound the chain");
        let place = self.places.get_mut(self.filled)?;
        self.filled += 1;
        Some(place)
    }

    /// The registration of a mapped MR. One that is not mapped is none of ours, and is left out.
    #[inline(always)]
    fn register(&mut self, mr: Option<&mut Mr>, descriptor: u32, slot: u32, alone: bool) {
        let Some(mr) = mr else { return };
        let token = mr.token_register(descriptor);
        let Ok(fields) = mr.enter_chain() else { return };
        self.registered.add(fields, self.key_mask);
        let posted = Posted::new(token, slot, self.register_cost);
        self.stage.push(if alone { posted.standalone() } else { posted });
        let wanted = self.signaller.registration();
        if alone {
            self.signaller.signalled();
        }
        let signalled = alone || wanted;
        let Some(place) = self.next() else { return };
        *place = WorkRequest { token, signalled, fence: false, operation: Operation::Register(*fields) };
    }
}

/// Registrations of a chain, for the statistics.
#[derive(Clone, Copy, Debug, Default)]
struct Registered {
    registrations: u64,
    /// By right.
    bytes: [u64; 3],
    /// Some descriptor's keys begin another round.
    first_keys: bool,
}

impl Registered {
    #[inline]
    fn add(&mut self, fields: &RegistrationFields, key_mask: u32) {
        self.registrations += 1;
        if let Some(bytes) = self.bytes.get_mut(fields.access as usize) {
            *bytes += u64::from(fields.length);
        }
        self.first_keys |= fields.key & key_mask == 0;
    }

    /// What the device took of a chain that it refused in part; its keys' rounds are looked for in any case.
    fn of(requests: &[WorkRequest]) -> Self {
        let mut registered = Self { first_keys: true, ..Self::default() };
        for request in requests {
            if let Operation::Register(fields) = &request.operation {
                registered.add(fields, 0);
            }
        }
        registered
    }
}
