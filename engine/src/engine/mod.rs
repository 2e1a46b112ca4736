//! All of FRWR for one core: `submit`, `poll`, `flush`.
//!
//! [`Engine`] owns a port, the slots of requests and transfers, and the MRs. Its rooms, in the order of a request: `builder` (what it is
//! made of), `submit` (a request as its caller says it), `pieces` (its memory, gathered into idle MRs, by `run` and `resolve`), `issue`
//! (the one way into the chain), `parking` (those that wait), `stage` (the chain), `flush` (posts), `complete` (polls), `received` (what
//! a message means), `retire` (what was sent), `fence` (keys that are to die), `life` and `opening` (connections), `supply` (their MR
//! objects), `standalone` (`register_now` and cancelling), `send` (messages without a reply), `credits`, `respond` and `transfers` (the
//! responder's half, as its caller says it, and its one way into the chain), `waiting` (for what), `withdrawal` (memory that is removed),
//! `tracing`.

mod builder;
mod complete;
mod credits;
mod fence;
mod flush;
mod issue;
mod life;
mod opening;
mod parking;
mod pieces;
mod received;
mod resolve;
mod respond;
mod retire;
mod run;
mod send;
mod stage;
mod standalone;
mod submit;
mod supply;
mod tracing;
mod transfers;
mod waiting;
mod withdrawal;

pub use builder::{EngineBuilder, OpenEngineError};
pub use credits::CreditError;
pub use opening::OpenError;
pub use respond::{FetchRequest, ResponseRequest, TransferError, WriteRequest};
pub use send::SendRequest;
pub use standalone::{CancelError, CancelNowError};
pub use submit::{Chunk, Coverage, Submission, SubmitError};
pub use withdrawal::RemoveMemoryError;

use crate::{
    chores::Chores,
    connection::Connection,
    counters::Counters,
    event::{ConnectionId, Event, Received, RequestStatus},
    events::{Events, Told},
    fixed_list::FixedList,
    gather::{GatherRules, Limits, MemoryId, Resolved},
    link::{CoreLink, DeclaredMemory, MemoryAccess, ToControl},
    memories::Memories,
    mr::IovaRule,
    options::EngineOptions,
    parked::Parked,
    plan::{EngineError, GUARD_BYTES, Plan},
    polls::Polls,
    pool::Pool,
    provider::{Capabilities, Port, QueuePairId, ReceiveRequest, ScatterElement},
    receive::Receives,
    request::RequestHandle,
    requests::Requests,
    sending::Rules,
    shared_receives::SharedReceives,
    sizes::{ConnectionSizes, EngineSizes},
    statistics::Statistics,
    trace::Tracer,
    transfers::Transfers,
    watched_clock::WatchedClock,
};
use frwr_mempool::mutant;
use frwr_mempool::{
    DeviceMemory, Region, device_memory::DeviceTable, freelist::Order, region::CarveError, slab::Table,
};
use stage::Making;

/// Control messages taken in one poll iteration: enough to open a connection at once, little beside a batch of
/// completions.
const MAX_CONTROL_MESSAGES_PER_POLL: usize = 32;

/// Waiting requests and transfers admitted per connection in one poll iteration.
const MAX_ADMITTED_PER_POLL: usize = 64;

/// A memory could not be declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddMemoryError {
    /// All places are taken.
    #[error(
        "the engine takes {limit} memories, its own among them, and has them; raise EngineOptions::memories, declare fewer and larger \
         ones, or remove some"
    )]
    TooMany {
        /// [`EngineOptions::memories`].
        limit: u16,
    },
    /// Control has not taken earlier messages yet.
    #[error("control is busy; poll it and try again")]
    WouldBlock,
    /// The engine's Control was dropped.
    #[error("the engine's Control was dropped, so that no memory can be registered; keep it as long as its engines")]
    NoControl,
}

/// FRWR for one core, over the port `P`. Not shared: its owner's core alone calls it.
///
/// It may be dropped at any time, also with work in flight: [`crate::control::Control`] notices, stops its listeners, tells
/// its peers and moves its queue pairs to the error state. Their device objects, and the memory under them, then stay with the
/// device until that is dropped. Control has to outlive the connections of its engines: without it none can open or end.
pub struct Engine<P: Port> {
    port: P,
    link: CoreLink,
    options: EngineOptions,
    plan: Plan,
    capabilities: Capabilities,
    making: Making,
    gather: Limits,
    iova: IovaRule,
    polls: Polls,
    memories: Memories,
    /// The engine's own memory, the first of them.
    messages: DeviceMemory,
    /// Requests' messages in it, by slot.
    request_messages: DeviceTable,
    requests: Requests,
    /// What is kept of those that wait.
    parked: Parked,
    transfers: Transfers,
    pool: Pool,
    receives: Receives,
    /// What there is to know of them where all connections share them.
    shared: Option<SharedReceives>,
    connections: Table<Connection>,
    /// Connections with work for the next flush, each at most once.
    dirty: FixedList<u16>,
    elements: Table<ScatterElement>,
    events: Events,
    /// What each poll has to look at beside completions.
    chores: Chores,
    counters: Counters,
    /// By which drain time-outs pass; looked at while a connection opens or ends.
    draining: WatchedClock,
    scratch: Scratch,
    trace: Option<Box<Tracer>>,
}

/// Room that one call uses and the next one overwrites; here so that nothing is allocated after start-up.
struct Scratch {
    /// Addresses of a chunk that is being gathered.
    resolved: Vec<Resolved>,
    message: Table<u8>,
    /// Of shared receives.
    receives: Vec<ReceiveRequest>,
}

impl<P: Port> Engine<P> {
    /// Bytes that [`Engine::new`] carves out of its region with these options on this device.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn region_bytes(options: &EngineOptions, capabilities: &Capabilities) -> Result<usize, EngineError> {
        Plan::new(options, capabilities).map(|plan| plan.region_bytes())
    }

    /// Entries of the send and the receive completion queue that the options can fill at worst (promise Credits).
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn completion_entries(options: &EngineOptions, capabilities: &Capabilities) -> Result<(u32, u32), EngineError> {
        let plan = Plan::new(options, capabilities)?;
        Ok((plan.sizes.send * plan.connections, plan.receive_buffers))
    }

    /// An engine on `port`, with its slabs, tables and messages carved from `region`, on lines and pages that no other core's data shares.
    /// Allocates everything else that it will need.
    ///
    /// # Errors
    /// [`EngineError`] when an option is out of range, the device too small or the region too small.
    pub fn new(
        port: P,
        mut link: CoreLink,
        region: &mut Region,
        options: EngineOptions,
        capabilities: &Capabilities,
    ) -> Result<Self, EngineError> {
        let plan = Plan::new(&options, capabilities)?;
        let gather = Limits::of(GatherRules {
            contiguity: capabilities.contiguity,
            depth: plan.mr_depth,
            max_bytes: capabilities.max_registration_bytes,
        })?;
        // Nobody ever uses these bytes, here and behind the last table.
        drop(region.carve(GUARD_BYTES, 1)?);
        let requests = Requests::new_in(region, plan.request_slots)?;
        let transfers = Transfers::new_in(region, plan.transfer_slots, plan.transfers_held)?;
        let mut pool = Pool::new(region, plan.connections, plan.registrations, plan.mr_depth)?;
        let messages = region.carve(plan.message_area(), 64)?.into_device_memory();
        let stride = plan.message_bytes as usize;
        let request_messages = messages.table(plan.request_offset(0), stride, plan.request_slots);
        debug_assert_eq!(request_messages.len(), plan.request_slots);
        let receives = Receives::new_in(
            region,
            messages.clone(),
            plan.receive_offset(),
            plan.message_bytes,
            plan.receive_depth,
            plan.receive_buffers,
            plan.shares_receives,
        )?;
        let shared = plan.shares_receives.then(|| SharedReceives::new(plan.receive_buffers, plan.connections));
        let connections = connections(region, &plan, &options, capabilities, &mut pool)?;
        // The lane is empty and holds one returner: the push cannot fail.
        let _ = link.returner.push(pool.returner());
        let elements = elements(region, &plan, &messages, &request_messages)?;
        let mut engine = Self {
            gather,
            iova: IovaRule::of(options.iova, capabilities.base_address),
            port,
            link,
            capabilities: *capabilities,
            making: Making::new(capabilities),
            polls: Polls::NONE,
            memories: Memories::new(plan.memories),
            messages: messages.clone(),
            request_messages,
            requests,
            parked: Parked::new_in(region, plan.request_slots, options.max_segments)?,
            transfers,
            pool,
            receives,
            shared,
            connections,
            dirty: FixedList::new_in(region, plan.connections as usize, 0)?,
            elements,
            events: Events::new_in(region, plan.events())?,
            chores: Chores::new(plan.shares_receives),
            counters: Counters::default(),
            draining: WatchedClock::new(WatchedClock::STANDSTILL),
            scratch: Scratch {
                resolved: Vec::with_capacity(options.max_segments as usize + crate::options::MAX_MRS_PER_REQUEST),
                message: Table::new_in(region, plan.message_bytes as usize, |_| 0)?,
                receives: Vec::with_capacity(if plan.shares_receives { plan.receive_buffers } else { 0 } as usize),
            },
            trace: None,
            options,
            plan,
        };
        drop(region.carve(GUARD_BYTES, 1)?);
        // Memory 0 is the engine's own.
        let _ = engine.add_memory(messages, MemoryAccess::ReadWrite);
        Ok(engine)
    }

    /// Declares a memory that segments may lie in. Connections opened afterwards can use it at once, those that are open already when
    /// [`Event::MemoryRegistered`] says so: until then segments in it are refused there ([`SubmitError::UnknownMemory`]).
    /// The memory stays registered until [`Engine::remove_memory`]; in protection domains of single connections
    /// ([`crate::DomainPolicy`]) until these end, in the one that connections share until Control is dropped.
    ///
    /// One that is [`MemoryAccess::ReadOnly`] is sent, written to peers, and opened to their RDMA READs; a chunk that a peer could write
    /// to and a fetch into it are refused ([`GatherError::ReadOnly`](crate::GatherError::ReadOnly)). That goes for this name of the
    /// bytes alone: under another one, declared with [`MemoryAccess::ReadWrite`], they are written.
    ///
    /// # Errors
    /// [`AddMemoryError`].
    pub fn add_memory(&mut self, memory: DeviceMemory, access: MemoryAccess) -> Result<MemoryId, AddMemoryError> {
        let id = self.memories.next().ok_or(AddMemoryError::TooMany { limit: self.options.memories })?;
        if self.link.to_control.is_closed() {
            return Err(AddMemoryError::NoControl);
        }
        let declared = DeclaredMemory { bytes: memory, access };
        let told = self.link.to_control.push(ToControl::AddMemory { memory: id, declared: declared.clone() });
        told.map_err(|_| AddMemoryError::WouldBlock)?;
        self.memories.declare(id, declared);
        Ok(id)
    }

    /// A declared memory; none that is being removed.
    #[must_use]
    pub fn memory(&self, memory: MemoryId) -> Option<&DeviceMemory> {
        self.memories.get(memory).map(|declared| &declared.bytes)
    }

    /// The next event, oldest first.
    #[inline(always)]
    pub fn next_event(&mut self) -> Option<Event> {
        let slot = match self.events.pop()? {
            Told::Ended(slot) => slot,
            Told::Transferred(slot) => return self.transferred(slot),
            Told::Whole => return self.told_whole(),
        };
        let (handle, request) = self.requests.at_mut(slot)?;
        // The usual status, known to the compiler.
        let &RequestStatus::Replied(Received { buffer, generation, length, .. }) = request.outcome() else {
            return self.ended_without_reply(slot);
        };
        let cookie = request.cookie();
        self.leave_slot(slot);
        let status = RequestStatus::Replied(Received { buffer, generation, length, is_reply: true });
        Some(Event::Completed { request: RequestHandle(handle), cookie, status })
    }

    /// Behind the end of a connection its index is free for another one.
    #[cold]
    #[inline(never)]
    fn told_whole(&mut self) -> Option<Event> {
        let event = self.events.pop_whole();
        if let Some(Event::Disconnected { connection, .. } | Event::OpenFailed { connection, .. }) = &event
            && let Some(entry) = self.connections.get_mut(usize::from(connection.index))
        {
            entry.end_told();
        }
        event
    }

    #[cold]
    #[inline(never)]
    fn ended_without_reply(&mut self, slot: u32) -> Option<Event> {
        let (handle, request) = self.requests.at_mut(slot)?;
        let status = request.take_outcome();
        let cookie = request.cookie();
        self.leave_slot(slot);
        Some(Event::Completed { request: RequestHandle(handle), cookie, status })
    }

    /// A slot is kept until its event is taken; nothing but Hold keeps it from here on.
    #[inline(always)]
    fn leave_slot(&mut self, slot: u32) {
        self.requests.leave(slot, |connection, position| match self.connections.get_mut(connection) {
            // K10: the reply frees a slot that the device may read again.
            Some(connection) if connection.sending.queue().is_pending(position) && !mutant!(K10) => {
                if !mutant!(held_unawaited) {
                    connection.sending.await_at(position);
                }
                true
            }
            _ => false,
        });
    }

    /// Copies a received message, from its byte `from` on. Returns how many bytes were copied: also when its connection has ended
    /// meanwhile, until it is released.
    pub fn message(&self, received: &Received, from: u32, into: &mut [u8]) -> usize {
        self.receives.read(received.buffer, received.generation, from, into)
    }

    /// Gives a receive buffer back; the next flush posts it again.
    #[inline(always)]
    pub fn release(&mut self, received: Received) {
        let Received { buffer, generation, is_reply, .. } = received;
        let Some(held) = self.receives.held_mut(buffer, generation) else { return };
        let owner = held.connection();
        // Shared buffers are nobody's: there may be more of them than all connections could own. Nor are those of former connections.
        if let Some(connection) = self.connections.get_mut(usize::from(owner))
            && (connection.is_ready() || mutant!(released_to_ending))
        {
            connection.credits.reply_released(is_reply);
            connection.receive_queue.post_next(held.post(connection.message_lkey));
            connection.mark_dirty(&mut self.dirty);
            return;
        }
        held.put_by();
        self.release_otherwise(buffer, owner, is_reply);
    }

    /// The rest of [`Engine::release`] for a shared receive, one of a connection that is not ready, or one that was held since a former
    /// connection and joins that in its place, for its replies. Apart, so that the usual release has no part in it.
    #[inline(never)]
    fn release_otherwise(&mut self, buffer: u32, owner: u16, is_reply: bool) {
        let mut owner = owner;
        if self.shared.is_none()
            && let Some(place) = self.receives.bring_home(buffer)
        {
            owner = place;
            if let Some(connection) = self.connections.get_mut(usize::from(place)) {
                connection.credits.add_reply_receive();
            }
        } else if is_reply {
            self.free_shared_reply(buffer);
        }
        self.repost(buffer, owner);
    }

    /// The connection that a shared receive brought a reply of may await another one in it.
    fn free_shared_reply(&mut self, buffer: u32) {
        let taker = self.shared.as_ref().and_then(|shared| shared.taker(buffer));
        if let Some(connection) = taker.and_then(|index| self.connections.get_mut(usize::from(index))) {
            connection.credits.reply_released(true);
        }
    }

    /// Counters, by value.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (polls, empty_polls) = self.polls.counts();
        Statistics {
            polls,
            empty_polls,
            request_slots_used: u64::from(self.requests.len()),
            slots_held: u64::from(self.requests.held()),
            shortest_key_reuse_ns: self.pool.shortest_key_reuse_ns(),
            shared_receives_free: self.shared.as_ref().map_or(0, |shared| shared.free().into()),
            shared_receives_withdrawn: self.shared.as_ref().map_or(0, |shared| shared.withdrawn().into()),
            ..self.counters.read()
        }
    }

    /// The engine's port.
    #[must_use]
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The engine's port, for wrappers that are told something per iteration. Posting through it breaks the engine's
    /// accounts.
    #[must_use]
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// What it has of everything: less than its options ask for, where the device's queues are short.
    #[must_use]
    pub fn sizes(&self) -> EngineSizes {
        EngineSizes::of_plan(&self.plan, &self.options, self.capabilities.send_queue_cost)
    }

    /// What a connection has in effect now; `None` for one that is not ready.
    #[must_use]
    pub fn connection_sizes(&self, connection: ConnectionId) -> Option<ConnectionSizes> {
        let found = &self.connections[self.index_of(connection)?];
        let (send_entries, usable_entries) = found.sending.queue().entries();
        let (reply_receives, free_reply_receives) = found.credits.replies();
        let Descriptors { free, used, .. } = self.descriptors(connection);
        found.is_ready().then_some(ConnectionSizes {
            send_entries,
            usable_entries,
            registrations: free + used - u32::from(found.pad().is_some()),
            peer_receives: found.credits.offered(),
            free_peer_receives: found.credits.free_of_peer(),
            granted_receives: found.credits.granted(),
            reply_receives,
            free_reply_receives,
        })
    }

    /// What the device can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Nothing is in flight, waits, or is left to be told: a core may sleep until somebody submits something, unless a peer may
    /// connect, send or disconnect meanwhile. Nobody wakes a core for that; it has to look. So it has to for the end of a memory that
    /// nothing uses any more ([`Engine::remove_memory`]), which a device may refuse for long.
    ///
    /// For a clean end let requests end, [`Engine::disconnect`] each of [`Engine::connections`], and drop the engine when
    /// [`Engine::is_disconnected`] says so.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.chores.unsettled() == 0
            && self.events.is_empty()
            && self.dirty.is_empty()
            && self.shared.as_ref().is_none_or(|shared| shared.queue().is_none() || shared.released.is_empty())
            && self.requests.have_ended()
            && self.transfers.is_empty()
            && !self.memories.are_withdrawn()
    }

    /// Every connection is gone.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.connections.iter().all(|connection| connection.is_vacant())
    }

    /// Whether the connection takes requests now.
    #[must_use]
    pub fn is_ready(&self, connection: ConnectionId) -> bool {
        self.index_of(connection).is_some_and(|index| self.connections[index].is_ready())
    }

    /// The connections that exist, ready or not, by their current names.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.connections.iter().filter(|connection| !connection.is_vacant()).map(|connection| connection.key)
    }

    /// The queue pair of an open connection, for tools that look at the device.
    #[must_use]
    pub fn queue_pair(&self, connection: ConnectionId) -> Option<QueuePairId> {
        self.index_of(connection).map(|index| self.connections[index].queue_pair)
    }

    /// What the peer may be told of the write pad, on a connection that has one (S91).
    #[must_use]
    pub fn write_pad(&self, connection: ConnectionId) -> Option<crate::mr::Grant> {
        let index = self.index_of(connection)?;
        self.pool.get(self.connections[index].pad()?)?.grant()
    }

    /// Free, used, stale and absent MR descriptors of a connection; their sum is constant (promise Conservation).
    #[must_use]
    pub fn descriptors(&self, connection: ConnectionId) -> Descriptors {
        let mut count = Descriptors::default();
        for descriptor in self.pool.of(connection.index) {
            match self.pool.get(descriptor).map(crate::mr::Mr::state) {
                Some(crate::mr::State::Idle { .. } | crate::mr::State::IdlePending { .. }) => count.free += 1,
                Some(crate::mr::State::Stale(_) | crate::mr::State::Recovering) => count.quarantined += 1,
                Some(crate::mr::State::Absent) | None => count.absent += 1,
                Some(_) => count.used += 1,
            }
        }
        count
    }

    /// Where the receive buffers of all connections are; their sum is constant (promise Conservation).
    #[must_use]
    pub fn receive_buffers(&self) -> ReceiveBuffers {
        let (posted, held, idle) = self.receives.counts();
        // Those that were given back have their work request already.
        let next: usize = self.connections.iter().map(|connection| connection.receive_queue.next().len()).sum();
        let next = next as u32;
        ReceiveBuffers { posted: posted - next, held, idle: idle + next }
    }

    /// The table index of a connection that is meant by this name and not vacant (I24).
    fn index_of(&self, connection: ConnectionId) -> Option<usize> {
        let index = usize::from(connection.index);
        let found = self.connections.get(index)?;
        // S5: the name of a former connection is this one's.
        ((found.key == connection || mutant!(S5_name)) && !found.is_vacant()).then_some(index)
    }

    /// Puts a connection on the list for the next flush.
    fn mark_dirty(&mut self, connection: u16) {
        self.connections[usize::from(connection)].mark_dirty(&mut self.dirty);
    }
}

/// MR descriptors of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// On the free list.
    pub free: u32,
    /// In use by requests, and the write pad.
    pub used: u32,
    /// In a state that nobody knows, on their way to be destroyed.
    pub quarantined: u32,
    /// Without a device object.
    pub absent: u32,
}

/// Receive buffers of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveBuffers {
    /// Posted, or in a completion that was not taken yet.
    pub posted: u32,
    /// In the caller's hands.
    pub held: u32,
    /// To be posted, or of a connection that is not there.
    pub idle: u32,
}

/// All elements; those of requests' messages and of replies have their address, which stays.
fn elements(
    region: &mut Region,
    plan: &Plan,
    messages: &DeviceMemory,
    requests: &DeviceTable,
) -> Result<Table<ScatterElement>, CarveError> {
    let mut elements = Table::new_in(region, plan.elements(), |_| ScatterElement::default())?;
    for slot in 0..plan.request_slots {
        elements[plan.request_element(slot) as usize].address = requests.address(slot);
    }
    for slot in 0..plan.transfer_slots {
        elements[plan.reply_element(slot) as usize].address = messages.address() + plan.reply_offset(slot) as u64;
    }
    Ok(elements)
}

/// All connections, vacant, with what they own in front of them.
fn connections(
    region: &mut Region,
    plan: &Plan,
    options: &EngineOptions,
    capabilities: &Capabilities,
    pool: &mut Pool,
) -> Result<Table<Connection>, CarveError> {
    // Fixed keys repeat at once: the longest way round the pool keeps a late access from meeting a new grant (U10).
    // Otherwise the MR used last has the warmest descriptor (S23).
    let order = if capabilities.rotating_key_bits == 0 { Order::FirstInFirstOut } else { Order::LastInFirstOut };
    let limits = plan.connection_limits(capabilities.send_queue_cost);
    let rules = Rules::new(options, capabilities);
    let mut vacant = |index| {
        let mut absent = pool.list(Order::FirstInFirstOut);
        pool.fill_absent(index, &mut absent);
        let signaller = plan.signaller(options, plan.sizes.send);
        Connection::new_in(region, index, limits, rules, signaller, order, absent)
    };
    let made = (0..options.connections).map(&mut vacant).collect::<Result<_, _>>()?;
    Table::of(region, made)
}
