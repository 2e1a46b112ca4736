//! The end of a poll iteration: one chain and one post for every queue pair with work.

use super::Engine;
use crate::{
    connection::{Connection, Opening, Phase},
    counters::Counters,
    event::DisconnectCause,
    mr::{self, ReturnPolicy},
    options::OnPostError,
    provider::{Chain, Operation, Port, PostError, TokenKind},
    receive::{ENDED, Receives},
    trace::TracePoint,
};
use frwr_mempool::mutant;

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
            doorbells += self.flush_connection(usize::from(index));
        }
        let is_empty = |connection: &Connection| connection.sending.chain().is_empty();
        debug_assert!(self.connections.iter().all(is_empty), "elements are read when a chain is posted");
        self.elements.flushed();
        doorbells
    }

    /// The receives that were given back, in front of the chain: the peer may answer at once. The chain has the requests
    /// and transfers that were admitted since the last flush; invalidations that became due meanwhile stand behind them.
    /// Returns its doorbells.
    #[inline(always)]
    fn flush_connection(&mut self, index: usize) -> u32 {
        let Some(mut connection) = self.connections.get_mut(index) else { return 0 };
        connection.taken_off_list();
        let refusal = connection.post_receives(&mut self.port, &mut self.receives, &mut self.counters);
        if let Some(error) = refusal {
            self.receives_refused(index, error);
            return 0;
        }
        // K18: what is queued goes to a queue pair that is being failed, too.
        if !connection.is_ready() && !mutant!(K18_post_behind_end) {
            return 0;
        }
        if connection.has_due() {
            self.stage_invalidations(index);
            connection = &mut self.connections[index];
        }
        if !connection.sending.has_chain() {
            return 0;
        }
        connection.sending.close_chain();
        let (sending, queue_pair) = (&mut connection.sending, connection.queue_pair);
        let requests = sending.chain();
        let result = self.port.post(queue_pair, Chain { requests, elements: self.elements.all() });
        self.counters.chain_posted();
        let is_watched = self.trace.is_some() || self.options.return_policy == ReturnPolicy::OnInvalidatePosted;
        if result.is_err() || is_watched || sending.begins_round() {
            self.account(index, result);
            return 1;
        }
        self.counters.work_requests(sending.accept_all() as u64);
        if let Some(registered) = sending.take_registered() {
            self.counters.registered(&registered);
        }
        sending.next_chain();
        1
    }

    /// Receives are posted in front of anything else: a connection opens.
    pub(super) fn post_receives(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let refusal = connection.post_receives(&mut self.port, &mut self.receives, &mut self.counters);
        if let Some(error) = refusal {
            self.receives_refused(index, error);
        }
    }

    /// The device took too few receives: it starves the peer.
    #[cold]
    fn receives_refused(&mut self, index: usize, error: PostError) {
        self.note_receives_refused(index, error);
        self.fail(index, DisconnectCause::PostRefused(error));
    }

    /// Posts what was given back of shared receives, for all connections at once, and gives them credit for it.
    pub(super) fn post_shared_receives(&mut self) {
        let now = self.polls.now();
        let Some(shared) = self.shared.as_mut().filter(|shared| shared.is_due(now)) else { return };
        let Some(queue) = shared.queue() else { return };
        let requests = shared.next();
        let posts = requests.len();
        let refusal = self.port.post_shared_receives(queue, requests).err();
        let accepted = refusal.map_or(posts, |error| error.accepted.min(posts));
        self.counters.receives_posted();
        let taken = if mutant!(S2_shared_receives) { posts } else { accepted };
        let mut of_ended = 0;
        for receive in &requests[..taken] {
            let taker = self.receives.forget_taker(receive.token.index());
            match self.connections.get_mut(usize::from(taker)) {
                Some(connection) => connection.receive_queue.posted(1),
                None => of_ended += u32::from(taker == ENDED),
            }
        }
        shared.posted(taken, of_ended);
        if let Some(error) = refusal.filter(|_| accepted < posts) {
            shared.refused(now, |refused| {
                self.receives.unpost(refused.token.index(), refused.token.generation());
                *refused = self.receives.post(refused.token.index(), refused.element.lkey);
            });
            self.shared_receives_refused(error);
        } else {
            shared.all_posted();
        }
    }

    /// A queue that takes no receives starves all who share it. What was refused is tried again by the first flush
    /// behind a pause, so that a core does not look busy with it. A connection that has no queue pair yet has no peer that could
    /// starve: it opens behind the pause, or ends with its next refusal.
    #[cold]
    fn shared_receives_refused(&mut self, error: PostError) {
        self.counters.post_refused(error);
        for index in 0..self.connections.len() {
            if !matches!(self.connections[index].phase(), Phase::Opening(Opening::QueuePair { .. })) {
                self.record(TracePoint::PostReceivesRefused(error), index as u16, None, error.accepted as u32);
                self.fail(index, DisconnectCause::PostRefused(error));
            }
        }
    }

    /// What follows from a post of which somebody wants to know more, or that was refused.
    #[inline(never)]
    fn account(&mut self, index: usize, result: Result<(), PostError>) {
        let sending = &mut self.connections[index].sending;
        let all = sending.chain().len();
        let accepted = result.map_or_else(|error| error.accepted.min(all), |()| all);
        let registered = sending.accept(accepted);
        self.counters.work_requests(accepted as u64);
        self.counters.registered(&registered);
        if registered.first_keys {
            self.note_rounds(index, accepted);
        }
        if self.trace.is_some() {
            self.record_accepted(index, accepted, all);
        }
        if self.options.return_policy == ReturnPolicy::OnInvalidatePosted {
            self.return_early(index, if mutant!(F6_early_return) { all } else { accepted });
        }
        if let Err(error) = result {
            self.post_refused(index, accepted, error);
        }
        self.connections[index].sending.next_chain();
    }

    /// Notes when descriptors began another round of their keys.
    #[cold]
    fn note_rounds(&mut self, index: usize, accepted: usize) {
        let (mask, now_ns) = (self.making.key_mask, self.now_ns());
        for request in &self.connections[index].sending.chain()[..accepted] {
            if let Operation::Register(fields) = &request.operation
                && fields.key & mask == 0
            {
                self.pool.note_round(request.token.index(), now_ns);
            }
        }
    }

    /// Where the policy says so, an MR may be taken again as soon as its invalidation is posted (D2).
    fn return_early(&mut self, index: usize, accepted: usize) {
        let Connection { sending, idle, .. } = &mut self.connections[index];
        for request in &sending.chain()[..accepted] {
            let descriptor = request.token.index();
            let invalidates = matches!(request.operation, Operation::Invalidate { .. });
            let pending = invalidates
                && self.pool.get(descriptor).is_some_and(|mr| matches!(mr.state(), mr::State::IdlePending { .. }));
            if pending {
                idle.push(descriptor);
            }
        }
    }

    /// The device took only the first `accepted` of the chain.
    #[cold]
    fn post_refused(&mut self, index: usize, accepted: usize, error: PostError) {
        self.note_refused(index, error);
        let sending = &mut self.connections[index].sending;
        for at in 0..sending.refused(accepted) {
            let posted = sending.refused_at(at);
            let token = posted.token;
            match token.kind() {
                TokenKind::Register => {
                    if let Some(mr) = self.pool.get_mut(token.index()) {
                        // The key stays burnt (D14).
                        if !mutant!(F8_refused) {
                            let _ = mr.register_refused();
                        }
                    }
                }
                TokenKind::Invalidate => {
                    if let Some(mr) = self.pool.get_mut(token.index()) {
                        let _ = mr.invalidate_refused(token.generation());
                    }
                }
                _ => {}
            }
            sending.release_refused(&posted);
        }
        if self.options.on_post_error == OnPostError::Disconnect {
            self.lose_refused(index, accepted);
            self.fail(index, DisconnectCause::PostRefused(error));
        } else {
            sending.go_on_behind(accepted);
            self.fence_refused(index, accepted, error);
        }
    }
}

impl Connection {
    /// Posts the receives that were given back. What the device says where it did not take all of them.
    #[inline(always)]
    fn post_receives<P: Port>(
        &mut self,
        port: &mut P,
        buffers: &mut Receives,
        counters: &mut Counters,
    ) -> Option<PostError> {
        if !self.receive_queue.has_next() {
            return None;
        }
        let receives = self.receive_queue.next();
        let posts = receives.len();
        let refusal = port.post_receives(self.queue_pair, receives).err();
        let accepted = refusal.map_or(posts, |error| error.accepted.min(posts));
        for refused in receives.iter().skip(accepted) {
            buffers.unpost(refused.token.index(), refused.token.generation());
        }
        self.receive_queue.clear_next();
        self.receive_queue.posted(if mutant!(S2_receives_counted) { posts } else { accepted } as u32);
        counters.receives_posted();
        refusal.filter(|_| accepted < posts)
    }
}
