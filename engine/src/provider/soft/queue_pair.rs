//! A queue pair: its two queues, its state, and what it does in one progress step.

use super::nic::Nic;
use super::profile::Rules;
use super::receive_queue::ReceiveQueue;
use super::registration::Asker;
use super::requester::{self, Requester};
use super::responder::{self, Responder};
use super::send_queue::{Progress, SendQueue, range_of};
use super::wire::WireEnd;
use crate::provider::{
    AsyncEvent, Chain, DomainId, Failure, FailureStatus, Operation, PostError, PostModel, PostRefusal, QueuePairId,
    QueueSizes, ReceiveRequest, WorkRequest,
};
use core::task::Waker;

/// Packets and work requests that one queue pair moves in one call, so that one cannot starve the others.
pub(super) const QUEUE_PAIR_BUDGET: u32 = 256;

/// What the connection manager agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub(super) max_reads: u32,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
}

/// A queue pair's way to its peer.
struct Connection {
    wire: WireEnd,
    requester: Requester,
    responder: Responder,
}

/// The states of verbs that make a difference here.
enum State {
    /// INIT: takes receives.
    Unconnected,
    /// RTS.
    Connected(Box<Connection>),
    /// ERR: everything posted is flushed.
    Failed,
}

/// One queue pair of a port.
pub(super) struct QueuePair {
    asker: Asker,
    sizes: QueueSizes,
    state: State,
    sends: SendQueue,
    receives: ReceiveQueue,
}

impl QueuePair {
    /// A queue pair whose send queue entries have room for `stride` elements.
    pub(super) fn new(
        id: QueuePairId,
        domain: DomainId,
        sizes: QueueSizes,
        stride: u32,
        receives: ReceiveQueue,
    ) -> Self {
        Self {
            asker: Asker { queue_pair: id, domain },
            sizes,
            state: State::Unconnected,
            sends: SendQueue::new(sizes.send, stride),
            receives,
        }
    }

    pub(super) const fn id(&self) -> QueuePairId {
        self.asker.queue_pair
    }

    /// Send queue entries came free.
    pub(super) fn free(&mut self, units: u32) {
        self.sends.free(units);
    }

    /// Joins the queue pair to its peer. False where it is not waiting for that.
    pub(super) fn connect(&mut self, wire: WireEnd, negotiated: Negotiated, rules: &Rules) -> bool {
        if !matches!(self.state, State::Unconnected) {
            return false;
        }
        let Negotiated { max_reads, retry_count, rnr_retry_count } = negotiated;
        let requester = Requester::new(max_reads, retry_count, rnr_retry_count, rules);
        self.state = State::Connected(Box::new(Connection { wire, requester, responder: Responder::new() }));
        true
    }

    /// Says how the core is woken for what the peer sends.
    pub(super) fn wakes(&self, waker: &Waker) {
        if let State::Connected(connection) = &self.state {
            connection.wire.wakes(waker);
        }
    }

    /// The core may sleep: whatever the peer sends wakes it. False where there is something to do before, or nothing wakes.
    pub(super) fn arm(&self) -> bool {
        match &self.state {
            State::Unconnected | State::Failed => true,
            State::Connected(connection) => self.owes_nothing(connection) && connection.wire.arm(),
        }
    }

    /// Another progress step would find nothing: all that the peer sent was taken, and what is unfinished waits for the peer.
    pub(super) fn rests(&self) -> bool {
        match &self.state {
            State::Unconnected | State::Failed => true,
            State::Connected(connection) => self.owes_nothing(connection) && connection.wire.request_in.is_empty(),
        }
    }

    /// It has nothing to do before the peer sends something, in either role.
    fn owes_nothing(&self, connection: &Connection) -> bool {
        connection.requester.rests(&self.sends, &connection.wire) && connection.responder.rests()
    }

    /// The device is gone, and with it the way to the peer; nothing completes any more.
    pub(super) fn hang_up(&mut self) {
        self.state = State::Unconnected;
    }

    /// Takes a chain, or the front of it.
    pub(super) fn post(&mut self, chain: Chain<'_>, nic: &Nic) -> Result<(), PostError> {
        if matches!(self.state, State::Unconnected) {
            return Err(PostError::new(0, PostRefusal::NotReady));
        }
        let (costs, reads) = (nic.options.capabilities.send_queue_cost, nic.options.capabilities.attributes.max_sge_rd);
        let cost_of = |request: &WorkRequest| match request.operation {
            Operation::Register(_) => costs.register,
            Operation::Invalidate { .. } => costs.invalidate,
            _ => costs.message,
        };
        let mut planned = 0;
        if nic.options.capabilities.post_model == PostModel::AllOrNothing {
            for request in chain.requests {
                let reason = self.refusal(request, chain, reads, cost_of(request), planned);
                if let Some(reason) = reason {
                    return Err(PostError::new(0, reason));
                }
                planned += cost_of(request);
            }
        }
        for (accepted, request) in chain.requests.iter().enumerate() {
            let cost = cost_of(request);
            if let Some(reason) = self.refusal(request, chain, reads, cost, 0) {
                return Err(PostError::new(accepted, reason));
            }
            self.sends.push(*request, chain.elements_of(range_of(&request.operation)), cost);
        }
        Ok(())
    }

    /// `reads`: elements that one RDMA READ may have.
    fn refusal(
        &self,
        request: &WorkRequest,
        chain: Chain<'_>,
        reads: u32,
        cost: u32,
        planned: u32,
    ) -> Option<PostRefusal> {
        let range = range_of(&request.operation);
        let count = range.count as usize;
        let too_many = match request.operation {
            Operation::Register(_) | Operation::Invalidate { .. } => false,
            // Every device that has READs takes one.
            Operation::Read { .. } => range.count > self.sizes.max_send_sge.min(reads.max(1)),
            Operation::Send { .. } | Operation::Write { .. } => range.count > self.sizes.max_send_sge,
        };
        if too_many || chain.elements_of(range).len() != count || !self.sends.takes_elements(count) {
            return Some(PostRefusal::Invalid);
        }
        if self.sends.has_room(cost, planned) { None } else { Some(PostRefusal::QueueFull) }
    }

    /// Takes receives, or the front of them.
    pub(super) fn post_receives(&mut self, receives: &[ReceiveRequest]) -> Result<(), PostError> {
        self.receives.post(receives)
    }

    /// The doorbell: what was posted sets out, within the budget of one step.
    pub(super) fn ring(&mut self, nic: &mut Nic) {
        let mut budget = QUEUE_PAIR_BUDGET;
        self.step(nic, &mut budget);
    }

    /// Makes progress within a budget of packets, and wakes the peer for what it sent.
    pub(super) fn step(&mut self, nic: &mut Nic, budget: &mut u32) {
        self.progress(nic, budget);
        if let State::Connected(connection) = &mut self.state {
            connection.wire.wake_peer();
        }
    }

    fn progress(&mut self, nic: &mut Nic, budget: &mut u32) {
        let State::Connected(connection) = &mut self.state else {
            if matches!(self.state, State::Failed) {
                self.flush(None, nic);
            }
            return;
        };
        if nic.lost_completions {
            if nic.rules.queue_pair_events {
                nic.raise(AsyncEvent::QueuePairFatal(self.asker.queue_pair));
            }
            self.fail(None, nic);
            return;
        }
        let Connection { wire, requester, responder } = &mut **connection;
        if nic.interferences.any(&nic.monitor, |one| one.cuts_wire(self.asker.queue_pair)) {
            if let requester::Step::Failed(failure) = requester.hear_nothing(&self.sends) {
                self.fail(Some(failure), nic);
            }
            return;
        }
        if responder.step(&mut self.receives, wire, nic, self.asker, budget) == responder::Step::Failed {
            self.fail(None, nic);
            return;
        }
        match requester.step(&mut self.sends, wire, nic, self.asker, budget) {
            requester::Step::Alive => {}
            requester::Step::Failed(failure) => {
                // A local error is an error of the queue pair itself; the others have their own events or none.
                if matches!(failure.status, FailureStatus::LocalOperation | FailureStatus::Bind)
                    && nic.rules.queue_pair_events
                {
                    nic.raise(AsyncEvent::QueuePairFatal(self.asker.queue_pair));
                }
                self.fail(Some(failure), nic);
            }
        }
    }

    /// Moves to the error state; the oldest work request fails with `failure`, all others are flushed.
    pub(super) fn fail(&mut self, failure: Option<Failure>, nic: &mut Nic) {
        let before = core::mem::replace(&mut self.state, State::Failed);
        let was_alive = !matches!(before, State::Failed);
        if let State::Connected(mut connection) = before
            && let Some(receive) = connection.responder.take_receiving()
        {
            nic.complete_receive(self.asker.queue_pair, receive.token, Err(Failure::FLUSHED));
        }
        self.flush(failure, nic);
        if was_alive && self.receives.is_shared() && !nic.options.capabilities.quirks.silent_about_last_receive {
            nic.raise_last_receive(self.asker.queue_pair);
        }
    }

    fn flush(&mut self, mut failure: Option<Failure>, nic: &mut Nic) {
        while let Some((entry, frees)) = self.sends.retire(true) {
            if let (Operation::Register(fields), Progress::Done) = (entry.request.operation, entry.progress)
                && !nic.options.capabilities.quirks.flushed_registration_may_be_live
            {
                nic.keys.roll_back(&fields, &mut nic.bases);
            }
            self.sends.check_unchanged(&entry, nic, self.asker);
            let failure = failure.take().unwrap_or(Failure::FLUSHED);
            nic.complete_send(self.asker.queue_pair, entry.request.token, Err(failure), frees);
        }
        while let Some(receive) = self.receives.take_own() {
            nic.complete_receive(self.asker.queue_pair, receive.token, Err(Failure::FLUSHED));
        }
    }
}
