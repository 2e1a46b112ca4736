//! The fence: from a reply, a cancellation or a refusal to keys that are known to be dead, and the request's end.

use super::Engine;
use crate::{
    chain::Posted,
    event::{DisconnectCause, RequestStatus},
    mr::State,
    provider::{Port, PostError, TokenKind},
    request::{Mrs, Phase},
};
use frwr_mempool::mutant;
use frwr_mempool::slab::Handle;

impl<P: Port> Engine<P> {
    /// Puts every MR that a posted request still has on the invalidation chain; ends the request at once if it has none.
    #[inline]
    pub(super) fn fence(&mut self, handle: Handle) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        request.fence();
        let index = request.connection();
        if request.mrs().is_empty() {
            self.end_if_fenced(handle);
            return;
        }
        let connection = &mut self.connections[index];
        connection.invalidate(request.mrs());
        self.mark_dirty(index as u16);
        // F12: told before the invalidations are posted.
        if mutant!(F12) {
            self.end_request(handle);
        }
    }

    /// One key of a request is dead, with its MR's object.
    pub(super) fn fenced(&mut self, slot: u32, descriptor: u32) {
        let Some((handle, request)) = self.requests.at_mut(slot) else { return };
        if request.lose_key(descriptor) {
            self.end_if_fenced(handle);
        }
    }

    /// Reports the end of a request whose keys are all dead, and whose message the device has read where the caller's
    /// memory is in it (S51).
    #[inline]
    pub(super) fn end_if_fenced(&mut self, handle: Handle) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        let queue = self.connections[request.connection()].sending.queue();
        if request.phase() != Phase::Fencing
            || !request.mrs().is_empty()
            || (!mutant!(K9_fence) && request.awaits_message() && queue.is_pending(request.message_position()))
        {
            return;
        }
        self.end_request(handle);
    }

    /// Reports the end of a request, by its outcome.
    #[inline]
    pub(super) fn end_request(&mut self, handle: Handle) {
        let Some(request) = self.requests.get_mut(handle) else { return };
        request.end();
        if request.is_standalone() {
            // It has no message that the device could read.
            request.forget_message();
        }
        self.counters.requests_ended(1);
        self.events.push_ended(handle.index());
    }

    /// After a refused post on a connection that ends by it: messages that were not sent can have no reply, so whatever the peer
    /// sends from here on is none. Their requests end with the connection; what was reserved for them goes with it.
    pub(super) fn lose_refused(&mut self, index: usize, accepted: usize) {
        let sending = &self.connections[index].sending;
        for at in 0..sending.refused(accepted) {
            let Posted { token, owner, .. } = sending.refused_at(at);
            if token.kind() != TokenKind::Message {
                continue;
            }
            if let Some((_, request)) = self.requests.at_mut(owner).filter(|(_, found)| found.phase() == Phase::Posted)
            {
                if mutant!(refused_may_be_answered) {
                    continue;
                }
                request.forget_message();
                request.ends_as(RequestStatus::Lost);
                request.fence();
            }
        }
    }

    /// After a refused post on a connection that goes on: where the invalidation was refused, destroying the MR is the
    /// fence (D7, S72, S84).
    pub(super) fn fence_refused(&mut self, index: usize, accepted: usize, error: PostError) {
        for at in 0..self.connections[index].sending.refused(accepted) {
            let Posted { token, owner, .. } = self.connections[index].sending.refused_at(at);
            match token.kind() {
                TokenKind::Invalidate
                    if !mutant!(K18_registration_runs) && self.registration_may_run(index, token.index()) =>
                {
                    self.fail(index, DisconnectCause::PostRefused(error));
                }
                TokenKind::Invalidate => {
                    self.quarantine(index, token.index());
                    // F6: told while the key is alive.
                    if mutant!(F6) {
                        self.fenced(owner, token.index());
                    }
                }
                TokenKind::Message => self.refuse_request(owner),
                TokenKind::Register
                    if self.requests.handle_at(owner).is_some_and(|handle| {
                        self.requests.get(handle).is_some_and(|request| request.is_standalone())
                    }) =>
                {
                    self.refuse_request(owner);
                }
                // The peer waits for a reply that can no longer be sent in order: nothing less than the end is honest.
                TokenKind::Transfer | TokenKind::Reply if mutant!(S2_transfer) => {}
                TokenKind::Transfer | TokenKind::Reply => self.fail(index, DisconnectCause::PostRefused(error)),
                _ => {}
            }
        }
    }

    /// Whether the registration of an MR may still be in flight: no completion passed it. A reply shows nothing: a peer can
    /// guess whom to answer before the message behind the registration is sent. Then its object must not be destroyed while
    /// the queue pair works (I11).
    fn registration_may_run(&self, index: usize, descriptor: u32) -> bool {
        self.connections[index].sending.queue().is_posted(TokenKind::Register, descriptor)
    }

    /// A request whose message was refused: what the device never heard of goes back; registrations that it took are
    /// invalidated behind themselves in the same queue, since an object with work in flight is not destroyed (I11).
    fn refuse_request(&mut self, slot: u32) {
        let Some(handle) = self.requests.handle_at(slot) else { return };
        let Some(request) = self.requests.get_mut(handle) else { return };
        if !matches!(request.phase(), Phase::Posted) {
            return;
        }
        request.ends_as(RequestStatus::PostRefused);
        request.forget_message();
        let index = request.connection();
        let mrs = request.take_mrs();
        let mut unused = Mrs::new();
        for descriptor in mrs {
            let posted = self.pool.get(descriptor).is_some_and(|mr| matches!(mr.state(), State::Registering { .. }));
            // K3: a key that the device knows goes back as unused.
            if posted && !mutant!(K3_refused) { request.add_mr(descriptor) } else { unused.push(descriptor) }
        }
        let entries = unused.len() as u32 * self.capabilities.send_queue_cost.invalidate;
        let standalone = request.is_standalone();
        let (answered, one_way) = (request.awaits_reply(), request.is_one_way());
        let connection = &mut self.connections[index];
        // S2: entries, receives or MRs of what was refused are not given back.
        connection.sending.release(if mutant!(S2_entries) { 0 } else { entries });
        if !standalone {
            let (peers, ours) = (!mutant!(S2_peer_receives), answered && !mutant!(S2_reply_receives));
            connection.credits.give_back(peers, ours, one_way);
        }
        for descriptor in unused {
            if mutant!(S2_registrations) {
                break;
            }
            self.give_back_unused(index, descriptor);
        }
        self.fence(handle);
    }
}
