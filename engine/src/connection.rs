//! One connection: its parts, each of which changes only itself, and what they have in common: whether a request goes at once.

mod life;

use crate::{
    credits::Credits,
    event::DisconnectCause,
    fixed_list::FixedList,
    gather::MemoryId,
    mr::{self, ConnectionKey},
    objects::Objects,
    provider::{PrivateData, QueuePairId, SendQueueCost},
    reach::Reach,
    receive_queue::ReceiveQueue,
    request::Standing,
    sending::{Invalidating, Rules, Sending},
    signal::Signaller,
    wait_queues::WaitQueues,
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

/// The name of no connection: a core has fewer.
const NOBODY: ConnectionKey = ConnectionKey { index: u16::MAX, epoch: 0 };

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

/// A message that overtook the news that its connection is up. All else of it its buffer tells, which it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Early {
    pub(crate) buffer: u32,
    /// The key that it invalidated.
    pub(crate) invalidated: Option<u32>,
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
    /// Its key while `submit` need not look at anything else: it is ready, no request waits or has to, no invalidation is due.
    /// [`NOBODY`] otherwise ([`Connection::note_usual`]).
    usual: ConnectionKey,
    /// Of its usual request whose reply may come; the same for ever.
    pub(crate) posted: Standing,
    /// Of its MR whose registration is staged or posted.
    pub(crate) registering: mr::Standing,
    phase: Phase,
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
    pad: Option<u32>,
    /// Requests and transfers that wait for room.
    waiting: WaitQueues,
    /// MRs whose keys are to die, which the next flush, or the next request, has invalidated.
    invalidations: FixedList<u32>,
    /// It was ready, so that its caller heard of it.
    was_ready: bool,
    /// Messages that overtook the news that the connection is up: the peer may send as soon as it is up on its side. Of one that ends
    /// before it is ready nobody is told what stands here.
    early: VecDeque<Early>,
    /// What its queue pair receives into.
    pub(crate) receive_queue: ReceiveQueue,
    /// Its end waits for a queue pair that the device refused to destroy.
    is_kept: bool,
    /// The caller was not told of its end yet, and may look for what it keeps of it by its index.
    end_is_untold: bool,
    /// The receives that its messages go into, and those of its peer.
    pub(crate) credits: Credits,
    /// On the list of connections with work for the next flush.
    dirty: bool,
}

/// Most that the queues of one connection ever hold; bounds them without growth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Of messages that its caller does not have yet.
    pub(crate) receives: u32,
    /// Those of them that it does not share.
    pub(crate) own_receives: u32,
    pub(crate) registrations: u32,
    pub(crate) send_entries: u32,
    pub(crate) memories: u16,
    pub(crate) cost: SendQueueCost,
}

impl Connection {
    /// One that is vacant, with what the hot path touches of it in the region.
    pub(crate) fn new_in(
        region: &mut Region,
        index: u16,
        limits: ConnectionLimits,
        rules: Rules,
        signaller: Signaller,
        order: Order,
        absent: List,
    ) -> Result<Self, CarveError> {
        let key = ConnectionKey { index, epoch: 0 };
        Ok(Self {
            key,
            usual: NOBODY,
            posted: Standing::posted(index),
            registering: key.into(),
            phase: Phase::Vacant,
            queue_pair: QueuePairId(0),
            sending: Sending::new_in(region, limits.send_entries, limits.cost, rules, signaller)?,
            reach: Table::new_in(region, limits.memories.into(), |_| Reach::NONE)?,
            message_lkey: 0,
            idle: FreeRing::new_in(region, limits.registrations, order)?,
            objects: Objects::new(absent, limits.registrations),
            pad: None,
            waiting: WaitQueues::new(),
            invalidations: FixedList::new_in(region, limits.registrations as usize, 0)?,
            was_ready: false,
            early: VecDeque::with_capacity(limits.receives as usize),
            receive_queue: ReceiveQueue::new_in(region, limits.own_receives)?,
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
            .checked_add(ReceiveQueue::bytes_needed(receives)?)
    }

    /// To be called wherever one of the things has changed that [`Connection::usual`] stands for.
    fn note_usual(&mut self) {
        self.usual = if self.is_usual() { self.key } else { NOBODY };
    }

    /// The keys of these MRs are to die; the next flush, or the next request, posts the invalidations.
    #[inline(always)]
    pub(crate) fn invalidate(&mut self, descriptors: &[u32]) {
        match descriptors {
            // The usual one, without a loop.
            &[only] => self.invalidations.push(only),
            [] => return,
            several => {
                for &descriptor in several {
                    self.invalidations.push(descriptor);
                    if mutant!(fence_first_only) {
                        break;
                    }
                }
            }
        }
        self.usual = NOBODY;
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
        self.is_ready() && !self.waiting.stop_requests() && self.invalidations.is_empty()
    }

    /// What waits.
    #[inline(always)]
    pub(crate) fn waiting(&self) -> &WaitQueues {
        &self.waiting
    }

    /// Something begins to wait, or waits no more.
    pub(crate) fn wait(&mut self, change: impl FnOnce(&mut WaitQueues)) {
        change(&mut self.waiting);
        self.note_usual();
    }

    /// Whether the next request may go: in front of a transfer that waits for entries only where it brings some, since all that is in
    /// flight goes without a completion; then it asks for one.
    pub(crate) fn admits_requests(&mut self) -> bool {
        (!self.waiting.awaits_entries() || self.sending.ask_next()) && self.is_ready()
    }

    /// Notes whether the first transfer that waits does so for entries of the send queue.
    #[inline(always)]
    pub(crate) fn await_entries(&mut self, awaited: bool) {
        if self.waiting.awaits_entries() != awaited {
            self.wait(|waiting| waiting.await_entries(awaited));
        }
    }

    /// Whether this is its name, and nothing is in the way of a request.
    #[inline(always)]
    pub(crate) fn takes_at_once(&self, name: ConnectionKey) -> bool {
        debug_assert!(self.usual != self.key || self.is_usual(), "a change was not noted");
        self.usual == name
    }

    /// Some MR's key is to die.
    #[inline(always)]
    pub(crate) fn has_due(&self) -> bool {
        !self.invalidations.is_empty()
    }

    /// Puts it on the list of those with work for the next flush, at most once.
    #[inline(always)]
    pub(crate) fn mark_dirty(&mut self, list: &mut FixedList<u16>) {
        if !self.dirty {
            self.dirty = true;
            list.push(self.key.index);
        }
    }

    /// It is no more on that list.
    #[inline(always)]
    pub(crate) fn taken_off_list(&mut self) {
        self.dirty = false;
    }

    /// The write pad's MR, once its registration is posted.
    pub(crate) fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// This MR is its write pad, until it is vacated.
    pub(crate) fn set_pad(&mut self, descriptor: u32) {
        self.pad = Some(descriptor);
    }

    /// It reaches a memory from now on, by this: its own messages as well where `message_lkey` is their key.
    pub(crate) fn reaches(&mut self, memory: MemoryId, reach: Reach, message_lkey: Option<u32>) {
        if let Some(place) = self.reach.get_mut(usize::from(memory.place())) {
            *place = reach;
            self.message_lkey = message_lkey.unwrap_or(self.message_lkey);
        }
    }

    /// A memory is withdrawn from it. False where it does not reach that.
    pub(crate) fn withdraw(&mut self, memory: MemoryId) -> bool {
        let place = self.reach.get_mut(usize::from(memory.place()));
        place.filter(|reach| reach.key_of(memory).is_some()).map(Reach::withdraw).is_some()
    }

    /// Keeps a message that overtook the news that the connection is up.
    pub(crate) fn keep_early(&mut self, message: Early) {
        self.early.push_back(message);
    }

    /// The next of those messages.
    pub(crate) fn next_early(&mut self) -> Option<Early> {
        self.early.pop_front()
    }

    /// Something of it waits for room, and is looked at by every poll until it found some.
    pub(crate) fn needs_attention(&self) -> bool {
        !(self.objects.to_free().is_empty()
            && !self.objects.has_unasked()
            && self.early.is_empty()
            && self.waiting.are_empty())
    }

    /// Forgets all work that was not posted: its requests are reported from their slots.
    pub(crate) fn clear_queues(&mut self) {
        // Mutant: the next connection posts it.
        if mutant!(queues_kept) {
            return;
        }
        self.waiting.clear();
        self.invalidations.clear();
        self.sending.clear();
        self.receive_queue.clear_next();
        self.early.clear();
        self.note_usual();
    }
}
