//! The connections of a session, and how much of what is in flight each I/O queue has.

use super::context::Context;
use super::options::ADMIN_ENTRIES;
use super::transport::Transport;
use crate::wire::{ADMIN_QUEUE, RequestPrivateData};
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, ConnectionOptions};
use frwr_mempool::mutant;

/// Queue identifier of a controller's first I/O queue.
pub(super) const FIRST_IO_QUEUE: u16 = 1;

/// One of the queues of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueOf {
    Admin,
    /// I/O, counted from 0.
    Io(u16),
}

#[derive(Clone, Copy, Debug, Default)]
struct IoQueue {
    connection: Option<ConnectionId>,
    /// Commands in flight.
    in_flight: u16,
}

/// Connections that are open or being opened.
#[derive(Debug)]
pub(super) struct Queues {
    admin: Option<ConnectionId>,
    io: Vec<IoQueue>,
    /// Identifier of the first I/O queue; those of the others follow.
    first: u16,
}

impl Queues {
    pub(super) fn new(count: u16) -> Self {
        Self { admin: None, io: vec![IoQueue::default(); count.into()], first: FIRST_IO_QUEUE }
    }

    /// I/O queues get other identifiers. All are closed.
    pub(super) fn count_from(&mut self, first: u16) {
        self.first = first;
    }

    /// Identifier of an I/O queue.
    pub(super) fn id(&self, queue: u16) -> u16 {
        self.first.saturating_add(queue)
    }

    pub(super) fn connection(&self, queue: QueueOf) -> Option<ConnectionId> {
        match queue {
            QueueOf::Admin => self.admin,
            QueueOf::Io(queue) => self.io.get(usize::from(queue))?.connection,
        }
    }

    /// I/O queues that are open or being opened.
    pub(super) fn open_count(&self) -> usize {
        self.io.iter().filter(|queue| queue.connection.is_some()).count()
    }

    /// Opens the connection unless that was begun already; where the engine cannot begin now, the next poll tries again.
    pub(super) fn open<P: Port>(&mut self, queue: QueueOf, context: &mut Context<P>) {
        let Context { transport, options, .. } = context;
        let (queue_id, entries) = match queue {
            QueueOf::Admin => (ADMIN_QUEUE, ADMIN_ENTRIES),
            QueueOf::Io(queue) => (self.id(queue), options.io_entries()),
        };
        let place = match queue {
            QueueOf::Admin => Some(&mut self.admin),
            QueueOf::Io(queue) => self.io.get_mut(usize::from(queue)).map(|queue| &mut queue.connection),
        };
        let Some(place @ None) = place else { return };
        let private_data = RequestPrivateData::new(queue_id, entries);
        let asked = ConnectionOptions::default()
            .peer_receives(entries.into())
            // A host's RDMA is its controller's: it issues none itself.
            .parameters(options.parameters.initiator_depth(0))
            // A controller sends nothing but replies.
            .granted_receives(Some(0));
        // What fails here is tried again, until the deadline of what it is for.
        *place = transport.connect(options.address, &private_data, &asked);
    }

    /// A connection is gone, or could not be opened; false where it is none of these.
    pub(super) fn closed(&mut self, connection: ConnectionId) -> bool {
        let io = self.io.iter_mut().map(|queue| &mut queue.connection);
        let mut places = core::iter::once(&mut self.admin).chain(io);
        places.find_map(|place| place.take_if(|open| *open == connection)).is_some()
    }

    pub(super) fn all_closed(&self) -> bool {
        self.admin.is_none() && self.open_count() == 0
    }

    pub(super) fn disconnect<P: Port>(&self, transport: &mut Transport<P>) {
        for connection in self.io.iter().map(|queue| queue.connection).chain([self.admin]).flatten() {
            transport.disconnect(connection);
        }
    }

    /// The queue with the least in flight, if one has room. `depth`: of each.
    pub(super) fn roomiest(&self, depth: u16) -> Option<(u16, ConnectionId)> {
        let (mut roomiest, others) = self.io.split_first()?;
        let mut at = 0;
        for (io, queue) in others.iter().zip(1..) {
            if io.connection.is_some() && (roomiest.connection.is_none() || io.in_flight < roomiest.in_flight) {
                (roomiest, at) = (io, queue);
            }
        }
        roomiest.connection.filter(|_| roomiest.in_flight < depth).map(|connection| (at, connection))
    }

    /// An I/O queue takes a command more.
    pub(super) fn has_room(&self, queue: u16, depth: u16) -> bool {
        self.io.get(usize::from(queue)).is_some_and(|queue| queue.in_flight < depth)
    }

    /// A command was sent on an I/O queue.
    pub(super) fn enter(&mut self, queue: u16) {
        if let Some(queue) = self.io.get_mut(usize::from(queue)) {
            queue.in_flight += 1;
        }
    }

    /// A command of an I/O queue was answered, or lost.
    pub(super) fn leave(&mut self, queue: u16) {
        if let Some(queue) = self.io.get_mut(usize::from(queue)) {
            // S4: a queue is thought to be fuller, or emptier, than it is.
            queue.in_flight = if mutant!(S4_host_in_flight) {
                0
            } else {
                queue.in_flight.saturating_sub(u16::from(!mutant!(S10_host_in_flight)))
            };
        }
    }
}
