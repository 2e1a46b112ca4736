//! Work requests go into the chain: those of a request, of a transfer, and the invalidations that
//! are due.

use super::{Rules, Sending};
use crate::{
    chain::{Posted, Registered, SendQueue, barrier_token},
    fixed_list::Vacant,
    mr::{Mr, ReturnPolicy},
    provider::{Access, ElementRange, Operation, RemoteRange, Token, WorkRequest},
    signal::Signaller,
    transfer::RdmaOperation,
};
use frwr_mempool::mutant;

/// The places of a request's work requests in the chain, while they are being made: it is in the
/// chain behind [`Staging::message`] or [`Staging::standalone`], and not at all where that does not
/// come.
pub(crate) struct Staging<'a> {
    rules: &'a Rules,
    places: Vacant<'a, WorkRequest>,
    registered: &'a mut Registered,
    queue: &'a mut SendQueue,
    signaller: &'a mut Signaller,
    standalone_staged: &'a mut bool,
    end_unsignalled: &'a mut bool,
    relief_coming: &'a mut bool,
}

/// Invalidations that are put into places of the chain. A struct, not a method of all: with as much
/// known to be nobody else's, the compiler keeps more at hand in the loop than there are registers.
pub(crate) struct Invalidating<'a> {
    policy: ReturnPolicy,
    queue: &'a mut SendQueue,
    places: core::slice::IterMut<'a, WorkRequest>,
    first: u64,
    position: u64,
}

/// What may have a message ask for its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    /// Its request's end waits for it (S51).
    pub(crate) awaited: bool,
    /// So many slots are kept only by Hold that it is to ask, unless a completion is coming anyway.
    pub(crate) slots_are_short: bool,
}

impl Sending {
    /// Places for so many work requests of a request, whose entries are free, as was seen, and are
    /// its own from here on. `None` where the chain has no places.
    #[inline(always)]
    pub(crate) fn stage(&mut self, works: usize, entries: u32) -> Option<Staging<'_>> {
        let places = self.chain.vacant(works)?;
        self.queue.take(entries);
        Some(Staging {
            rules: &self.rules,
            places,
            registered: &mut self.registered,
            queue: &mut self.queue,
            signaller: &mut self.signaller,
            standalone_staged: &mut self.standalone_staged,
            end_unsignalled: &mut self.end_unsignalled,
            relief_coming: &mut self.relief_coming,
        })
    }

    /// LOCAL_INV for every key that is to die, in front of what is sent next (S65).
    #[inline(always)]
    pub(crate) fn invalidate(&mut self) -> Invalidating<'_> {
        let queue = &mut self.queue;
        let first = queue.next_position();
        Invalidating {
            policy: self.rules.return_policy,
            queue,
            places: self.chain.vacant_places().iter_mut(),
            first,
            position: first,
        }
    }

    /// So many stand in their places, and are in the chain from here on: the last one asks for the
    /// completion that fences them all (S67).
    #[inline(always)]
    pub(crate) fn stage_invalidations(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        self.queue.stage_invalidations(count);
        // At most the places of the chain.
        self.chain.filled(count as usize);
        if self.rules.every_invalidation {
            self.chain.last_of(count as usize).iter_mut().for_each(|work| work.signalled = true);
        } else if let Some(last) = self.chain.last_mut()
            && !mutant!(F5_last_unsignalled)
        {
            last.signalled = true;
        }
        self.signaller.invalidations(count as u32, true);
    }

    /// Stages the RDMA READs of a transfer, the last of which asks for its completion.
    #[inline(always)]
    pub(crate) fn stage_reads(&mut self, token: Token, operations: &[RdmaOperation]) {
        self.signaller.signalled();
        self.end_unsignalled = false;
        // Mutant: RDMA READs ask for no completion, and are counted as if they did.
        self.stage_operations(token, operations, !mutant!(fetch_unsignalled), true, read);
    }

    /// Stages the RDMA WRITEs of a transfer without a reply: one completion tells of all of a
    /// chain, which the flush asks for.
    #[inline(always)]
    pub(crate) fn stage_writes(&mut self, token: Token, operations: &[RdmaOperation]) {
        // At most MAX_TRANSFER_OPERATIONS.
        let signalled = self.signaller.reply(operations.len() as u32, self.rules.every, false);
        self.end_unsignalled = !signalled;
        self.stage_operations(token, operations, signalled, true, write);
    }

    /// Stages the RDMA WRITEs in front of a reply, which asks if anything does.
    #[inline(always)]
    pub(crate) fn stage_answer(&mut self, token: Token, operations: &[RdmaOperation]) {
        self.stage_operations(token, operations, false, false, write);
    }

    /// Stages an RDMA WRITE of no bytes that asks for its completion, which tells that all in front
    /// of it is done. Nobody else waits for it. Returns its position.
    pub(crate) fn stage_barrier(&mut self, connection: u16) -> u64 {
        self.barriers = self.barriers.wrapping_add(1);
        let token = barrier_token(connection, self.barriers);
        self.signaller.signalled();
        self.end_unsignalled = false;
        let position = self.queue.next_position();
        self.stage_operations(token, &[RdmaOperation::NOTHING], true, false, write);
        position
    }

    /// Stages RDMA operations, of which the last one asks for a completion or none does.
    #[inline(always)]
    fn stage_operations(
        &mut self,
        token: Token,
        operations: &[RdmaOperation],
        signalled: bool,
        awaited: bool,
        operation: impl Fn(ElementRange, RemoteRange) -> Operation,
    ) {
        if let &[RdmaOperation { remote, local }] = operations {
            self.chain.push(WorkRequest { token, signalled, fence: false, operation: operation(local, remote) });
            return self.queue.stage_operation(token, awaited);
        }
        self.chain.extend(operations.iter().map(|&RdmaOperation { remote, local }| WorkRequest {
            token,
            signalled: false,
            fence: false,
            operation: operation(local, remote),
        }));
        if let Some(last) = self.chain.last_mut().filter(|_| signalled) {
            last.signalled = true;
        }
        self.queue.stage_operations(token, operations.len() as u64, awaited);
    }

    /// Stages the reply of a transfer, behind so many RDMA operations. `pressure`: so many slots
    /// are in use that it is to ask, because its data's buffers come back with its completion, and
    /// a responder must not starve for them.
    #[inline(always)]
    pub(crate) fn stage_reply(&mut self, token: Token, operation: Operation, operations: u32, pressure: bool) {
        let signalled = self.signaller.reply(operations + 1, self.rules.every, pressure);
        self.end_unsignalled = !signalled && !mutant!(F5_reply_unasked);
        self.chain.push(WorkRequest { token, signalled, fence: false, operation });
        self.queue.stage_operation(token, true);
    }
}

impl Staging<'_> {
    /// Where the last of its work requests will stand.
    #[inline(always)]
    pub(crate) fn last_position(&self) -> u64 {
        self.queue.next_position() + self.places.len() as u64 - 1
    }

    /// The places, those of registrations first, and what is to be said where some descriptor's
    /// keys begin another round.
    #[inline(always)]
    pub(crate) fn places(&mut self) -> (&mut [WorkRequest], &mut bool) {
        (self.places.as_mut_slice(), &mut self.registered.first_keys)
    }

    /// Counts one of its registrations.
    #[inline(always)]
    pub(crate) fn registers(&mut self, access: Access, bytes: u32, elements: u32) {
        self.registered.add(access, bytes, elements);
    }

    /// Puts its message, which has these elements, into the last place.
    #[inline(always)]
    pub(crate) fn put_message(&mut self, token: Token, elements: ElementRange) {
        let places = self.places.as_mut_slice();
        // K19: the message overtakes its registrations.
        let fence = places.len() > 1 && self.rules.fence && !mutant!(K19_message);
        if let Some(place) = places.last_mut() {
            let operation = Operation::Send { local: elements, invalidate: None };
            *place = WorkRequest { token, signalled: false, fence, operation };
        }
    }

    /// All of a request is in the chain, its message behind its registrations.
    #[inline(always)]
    pub(crate) fn message(mut self, asks: Asks) {
        let Asks { awaited, slots_are_short } = asks;
        let places = self.places.as_mut_slice();
        let pressure = slots_are_short && !*self.relief_coming;
        // One completion tells of all messages of a chain that are waited for: the flush asks for
        // it, where no policy does.
        let must_signal = awaited && (self.rules.every || self.signaller.counts_by_policy()) && !mutant!(F15);
        if self.signaller.request(places, must_signal, pressure) {
            (*self.relief_coming, *self.end_unsignalled) = (true, false);
        } else if awaited {
            // F15: a message that is waited for asks for no completion.
            *self.end_unsignalled = !mutant!(F15);
        }
        self.queue.stage_request(places, awaited);
        self.places.fill();
    }

    /// A request that is one registration alone is in the chain. `owner`: its slot.
    #[inline(always)]
    pub(crate) fn standalone(mut self, owner: u32) {
        if let [registration] = self.places.as_mut_slice() {
            registration.signalled = self.signaller.standalone(self.rules.every);
            self.queue.stage(Posted::new(registration.token, owner));
            *self.standalone_staged = true;
        }
        self.places.fill();
    }
}

impl Invalidating<'_> {
    /// Puts that of this MR's key into the next place, unless that key is none that can be
    /// invalidated. False where there is no place.
    #[inline(always)]
    pub(crate) fn put(&mut self, mr: &mut Mr) -> bool {
        // F7: one token for both work requests of an MR.
        let token = if mutant!(F7_token) { mr.token_register() } else { mr.token_invalidate() };
        let Ok((owner, operation)) = mr.invalidate_posted(mr.key(), self.policy) else { return true };
        let Some(place) = self.places.next() else {
            debug_assert!(false, "what was reserved bounds the chain");
            return false;
        };
        *place = WorkRequest { token, signalled: false, fence: false, operation };
        self.queue.put_invalidation(self.position, token, owner);
        self.position += 1;
        true
    }

    /// How many were put.
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        self.position - self.first
    }
}

fn read(local: ElementRange, remote: RemoteRange) -> Operation {
    Operation::Read { local, remote }
}

fn write(local: ElementRange, remote: RemoteRange) -> Operation {
    Operation::Write { local, remote }
}
