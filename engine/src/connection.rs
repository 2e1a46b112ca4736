//! One queue pair's life: opening, ready, ending, gone.

use crate::{
    credits::Credits,
    event::{DisconnectCause, Received},
    fixed_list::FixedList,
    mr::ConnectionKey,
    objects::Objects,
    provider::{PrivateData, QueuePairId, ReceiveRequest, ScatterElement, SendQueueCost, Success, Token},
    reach::Reach,
    receive_queue::ReceiveQueue,
    request::Standing,
    sending::{Invalidating, Rules, Sending},
    signal::Signaller,
};
use core::time::Duration;
use frwr_mempool::{
    Region,
    freelist::{FreeRing, List, Order},
    mutant,
    region::CarveError,
    slab::Table,
};
use std::collections::VecDeque;

/// How far opening has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Control makes the queue pair. `doomed`: the caller gave it up before it had one.
    QueuePair { doomed: bool },
    /// The receives are posted; once Control was told of them the connection manager is at work.
    Handshake { told: bool },
    /// Connected; the first MRs are being made (S22).
    Filling { private_data: PrivateData },
}

/// How far ending has come. Each step waits for something that is bound to come, or for the drain time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Control is to move the queue pair to the error state.
    Fail { told: bool },
    /// It is in the error state; everything posted comes back flushed, behind it the marker (U19). Where it could not be moved
    /// there, or refuses the marker, nothing is waited for but shared receives.
    Drain { marker_posted: bool },
    /// Drained, or given up. All MRs of the connection are being destroyed (S94).
    Destroy,
    /// All keys are dead, and every request is reported, unless the connection holds back. Control is to destroy the queue pair.
    Close { told: bool },
    /// The queue pair is destroyed; MRs that the device kept until then are being destroyed once more (S105).
    Sweep,
}

/// Where a connection is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Vacant,
    Opening(Opening),
    Ready,
    Ending {
        step: Ending,
        cause: DisconnectCause,
        /// Of the drain, in the engine's watched time.
        deadline: Duration,
        /// The queue pair is destroyed with work in flight, or with MRs that the device keeps: what it may reach is handed back only
        /// behind that (Hold).
        holds_back: bool,
    },
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: ConnectionKey,
    /// Its key while `submit` need not look at anything else: it is ready, no request waits or has to, no invalidation is due. Of another
    /// connection otherwise ([`Connection::note_usual`]).
    pub(crate) usual: ConnectionKey,
    /// Of its usual request whose reply may come.
    pub(crate) posted: Standing,
    pub(crate) phase: Phase,
    pub(crate) queue_pair: QueuePairId,
    /// What it sends.
    pub(crate) sending: Sending,
    /// Where each declared memory lies, by its place, and its base registration in the connection's domain.
    pub(crate) reach: Table<Reach>,
    /// Of the engine's own memory there, which has all messages.
    pub(crate) message_lkey: u32,
    /// MRs that may be taken.
    pub(crate) idle: FreeRing,
    /// Its MR objects on their way.
    pub(crate) objects: Objects,
    /// The write pad's MR, once its registration is posted.
    pub(crate) pad: Option<u32>,
    /// Requests and transfers that wait for room, in order.
    pub(crate) waiting_requests: VecDeque<u32>,
    pub(crate) waiting_transfers: VecDeque<u32>,
    /// The first of those transfers needs more entries of the send queue than are free: requests wait behind it, or small ones would
    /// pass it for ever.
    pub(crate) entries_awaited: bool,
    /// MRs whose keys are to die, which the next flush, or the next request, has invalidated.
    pub(crate) invalidations: FixedList<u32>,
    /// The receives that it posts.
    pub(crate) receives: FixedList<ReceiveRequest>,
    /// It was ready, so that its caller heard of it.
    pub(crate) was_ready: bool,
    /// Messages that overtook the news that the connection is up: the peer may send as soon as it is up on its side. Of one that ends
    /// before it is ready nobody is told what stands here.
    pub(crate) early: VecDeque<(Received, Success)>,
    /// What its queue pair receives into.
    pub(crate) receive_queue: ReceiveQueue,
    /// Its end waits for a queue pair that the device refused to destroy.
    pub(crate) is_kept: bool,
    /// The caller was not told of its end yet, and may look for what it keeps of it by its index.
    pub(crate) end_is_untold: bool,
    /// The receives that its messages go into, and those of its peer.
    pub(crate) credits: Credits,
    /// On the list of connections with work for the next flush.
    pub(crate) dirty: bool,
}

/// Most that the queues of one connection ever hold; bounds them without growth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) requests: u32,
    pub(crate) transfers: u32,
    pub(crate) receives: u32,
    pub(crate) registrations: u32,
    pub(crate) send_entries: u32,
    pub(crate) memories: u16,
    pub(crate) cost: SendQueueCost,
}

impl Connection {
    /// One that is vacant, with what the hot path touches of it in the region. What waits is on the heap: any request of the core may wait
    /// here, and hardly one does.
    pub(crate) fn new_in(
        region: &mut Region,
        index: u16,
        limits: ConnectionLimits,
        rules: Rules,
        signaller: Signaller,
        order: Order,
        absent: List,
    ) -> Result<Self, CarveError> {
        let queue = |entries: u32| VecDeque::with_capacity(entries as usize);
        let vacant = ReceiveRequest { token: Token(0), element: ScatterElement::default() };
        Ok(Self {
            key: ConnectionKey { index, epoch: 0 },
            usual: ConnectionKey { index: !index, epoch: 0 },
            posted: Standing::posted(index),
            phase: Phase::Vacant,
            queue_pair: QueuePairId(0),
            sending: Sending::new_in(region, limits.send_entries, limits.cost, rules, signaller)?,
            reach: Table::new_in(region, limits.memories.into(), |_| Reach::NONE)?,
            message_lkey: 0,
            idle: FreeRing::new_in(region, limits.registrations, order)?,
            objects: Objects::new(absent, limits.registrations),
            pad: None,
            waiting_requests: queue(limits.requests),
            waiting_transfers: queue(limits.transfers),
            entries_awaited: false,
            invalidations: FixedList::new_in(region, limits.registrations as usize, 0)?,
            receives: FixedList::new_in(region, limits.receives as usize, vacant)?,
            was_ready: false,
            early: VecDeque::with_capacity(limits.receives as usize),
            receive_queue: ReceiveQueue::default(),
            is_kept: false,
            end_is_untold: false,
            credits: Credits::default(),
            dirty: false,
        })
    }

    /// Bytes of the region that [`Connection::new_in`] takes.
    pub(crate) fn bytes_needed(send_entries: u32, registrations: u32, receives: u32, memories: u16) -> Option<usize> {
        Sending::bytes_needed(send_entries)?
            .checked_add(Table::<Reach>::bytes_needed(memories.into())?)?
            .checked_add(FreeRing::bytes_needed(registrations)?)?
            .checked_add(FixedList::<u32>::bytes_needed(registrations as usize)?)?
            .checked_add(FixedList::<ReceiveRequest>::bytes_needed(receives as usize)?)
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// To be called wherever one of the things has changed that [`Connection::usual`] stands for.
    pub(crate) fn note_usual(&mut self) {
        // Nobody can name a connection of another index in this one's place.
        let index = if self.is_usual() { self.key.index } else { !self.key.index };
        self.usual = ConnectionKey { index, ..self.key };
    }

    /// An MR's key is to die; the next flush, or the next request, posts the invalidation.
    #[inline(always)]
    pub(crate) fn invalidate(&mut self, descriptor: u32) {
        self.invalidations.push(descriptor);
        self.usual = ConnectionKey { index: !self.key.index, ..self.key };
    }

    /// The MRs whose keys are to die, and the places of their invalidations; [`Connection::invalidated`] says how many were put there.
    #[inline(always)]
    pub(crate) fn invalidate_due(&mut self) -> (&[u32], Invalidating<'_>) {
        (self.invalidations.as_slice(), self.sending.invalidate())
    }

    /// Nothing is due any more, and so many invalidations are in the chain.
    #[inline(always)]
    pub(crate) fn invalidated(&mut self, count: u64) {
        self.sending.stage_invalidations(count);
        self.invalidations.clear();
        self.note_usual();
    }

    fn is_usual(&self) -> bool {
        self.is_ready() && !self.requests_wait() && self.invalidations.is_empty()
    }

    /// What the queue pair may reach is handed back only behind its destruction.
    pub(crate) fn hold_back(&mut self, needed: bool) {
        if let Phase::Ending { holds_back, .. } = &mut self.phase {
            *holds_back |= needed;
        }
    }

    /// Whether it is.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self.phase, Phase::Ending { holds_back: true, .. })
    }

    /// A request would find others in front of it that wait, of its kind, or a transfer for the entries that it needs.
    pub(crate) fn requests_wait(&self) -> bool {
        self.entries_awaited || !self.waiting_requests.is_empty()
    }

    /// Whether the next request may go: in front of a transfer that waits for entries only where it brings some, since all that is in
    /// flight goes without a completion; then it asks for one.
    pub(crate) fn admits_requests(&mut self) -> bool {
        (!self.entries_awaited || self.sending.ask_next()) && self.is_ready()
    }

    /// Notes whether the first transfer that waits does so for entries of the send queue.
    pub(crate) fn await_entries(&mut self, awaited: bool) {
        if self.entries_awaited != awaited {
            self.entries_awaited = awaited;
            self.note_usual();
        }
    }

    /// Whether this is its name, and nothing is in the way of a request.
    #[inline(always)]
    pub(crate) fn takes_at_once(&self, name: ConnectionKey) -> bool {
        debug_assert!(self.usual != self.key || self.is_usual(), "a change was not noted");
        self.usual == name
    }

    pub(crate) fn is_vacant(&self) -> bool {
        matches!(self.phase, Phase::Vacant)
    }

    /// What its queue pair receives into a shared buffer is for somebody, and within its grant.
    pub(crate) fn takes_shared_receives(&self) -> bool {
        let is_over = matches!(
            self.phase,
            Phase::Vacant | Phase::Ending { step: Ending::Destroy | Ending::Close { .. } | Ending::Sweep, .. }
        );
        self.receive_queue.has_posted() && !is_over
    }
    /// Something of it waits for room, and is looked at by every poll until it found some.
    pub(crate) fn needs_attention(&self) -> bool {
        !(self.objects.to_free().is_empty()
            && !self.objects.has_unasked()
            && self.early.is_empty()
            && self.waiting_transfers.is_empty()
            && self.waiting_requests.is_empty())
    }

    /// Forgets all work that was not posted: its requests are reported from their slots.
    pub(crate) fn clear_queues(&mut self) {
        // Mutant: the next connection posts it.
        if mutant!(queues_kept) {
            return;
        }
        self.waiting_requests.clear();
        self.waiting_transfers.clear();
        self.entries_awaited = false;
        self.invalidations.clear();
        self.sending.clear();
        self.receives.clear();
        self.early.clear();
        self.note_usual();
    }
}
