//! What is asked about an engine: counters, sizes, where descriptors and buffers are, whether anything is left to do.

use super::Engine;
use crate::{
    event::ConnectionId,
    provider::{Capabilities, Port, QueuePairId},
    shared_receives::SharedReceives,
    sizes::{ConnectionSizes, EngineSizes},
    statistics::Statistics,
};

impl<P: Port> Engine<P> {
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
        self.chores.unsettled().is_empty()
            && self.events.is_empty()
            && self.dirty.is_empty()
            && !self.shared.as_ref().is_some_and(SharedReceives::has_to_post)
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
        let own: usize = self.connections.iter().map(|connection| connection.receive_queue.next().len()).sum();
        let next = (own + self.shared.as_ref().map_or(0, |shared| shared.next().len())) as u32;
        ReceiveBuffers { posted: posted - next, held, idle: idle + next }
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
