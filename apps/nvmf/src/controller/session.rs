//! Queues from the connect request to the end of their connection.

use super::Target;
use super::admission::Request;
use super::command::{Phase, Slot};
use super::connect::Seating;
use super::incident::Fault;
use super::refusal::Rejection;
use crate::storage::Storage;
use crate::wire::{ADMIN_QUEUE, AcceptPrivateData, Nqn, QueueRequest, SubmissionQueueEntry};
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, ConnectionOptions, OpenError};
use frwr_mempool::mutant;
use std::net::{IpAddr, SocketAddr};
use zerocopy::IntoBytes;

/// A queue's place in its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Association {
    /// Index in the target's table of controllers.
    pub(super) controller: usize,
    /// Entries, as Connect said.
    pub(super) entries: u16,
}

/// How far a connection's Connect command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connecting {
    /// There is none, or it was answered.
    No,
    /// Its data is fetched from the host.
    Arriving,
    /// Its data is here: what it still waits for is not the host's to do. The place whose late commands it waits for, if it does.
    Held(Option<usize>),
}

/// Where the two ends of a connection are, as far as the device knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) peer: Option<SocketAddr>,
    /// This one, as the peer calls it.
    pub(super) local: Option<SocketAddr>,
}

/// A connection, and the queue that it carries once Connect has succeeded.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) connection: ConnectionId,
    pub(super) ends: Ends,
    /// The name that its host connected with: it outlives the controller, which may end first.
    pub(super) host: Option<Nqn>,
    /// What the connect request asked for.
    pub(super) asked: QueueRequest,
    pub(super) association: Option<Association>,
    /// The place of the controller that ended it, or was reset; it is no queue any more.
    pub(super) ended_with: Option<usize>,
    /// Its end waits for a device that refuses to destroy its queue pair, perhaps for ever.
    pub(super) kept: bool,
    pub(super) connecting: Connecting,
    /// SQHD of the next response.
    pub(super) head: u16,
    /// Commands that were not answered yet.
    pub(super) outstanding: u16,
    /// The host broke the protocol, and the connection ends: what still comes is not looked at.
    pub(super) doomed: bool,
    /// When the connect request was accepted, in watched time.
    pub(super) since: Duration,
    /// The connection was ready: where it is not any more, it ends.
    pub(super) established: bool,
    /// When the connection ends unless Connect has succeeded, in watched time; `None` once that was decided.
    pub(super) connect_by: Option<Duration>,
}

impl Ends {
    /// The peer's address, without the port, which is another one for each of its queues.
    pub(super) fn address(&self) -> Option<IpAddr> {
        // A listener for both families hears of IPv4 in IPv6's clothes.
        self.peer.map(|peer| peer.ip().to_canonical())
    }
}

impl Queue {
    /// Entries: as Connect said, before that as the connect request did.
    pub(super) fn entries(&self) -> u16 {
        self.association.map_or(self.asked.entries, |association| association.entries).max(1)
    }

    /// Takes note of a command. False where the host has more outstanding than the queue has entries.
    fn count_command(&mut self) -> bool {
        let entries = self.entries();
        self.head = if self.head + 1 >= entries { 0 } else { self.head + 1 };
        self.outstanding += 1;
        self.outstanding <= entries
    }
}

/// The queue of a connection, of all of them by connection index.
#[inline]
pub(super) fn find_queue(queues: &mut [Option<Queue>], connection: ConnectionId) -> Option<&mut Queue> {
    let queue = queues.get_mut(usize::from(connection.index))?.as_mut()?;
    // S5: what is said of a former connection is said of this one.
    (queue.connection == connection || mutant!(S5_target_queue)).then_some(queue)
}

impl<P: Port, S: Storage> Target<P, S> {
    pub(super) fn queue_mut(&mut self, connection: ConnectionId) -> Option<&mut Queue> {
        find_queue(&mut self.queues, connection)
    }

    /// Accepts a connect request, where there is room.
    pub(super) fn accept(&mut self, request: &Request) -> Result<(), Rejection> {
        let Request { incoming, ends, asked, .. } = *request;
        // Controllers live at home.
        if asked.queue_id == ADMIN_QUEUE && self.spread.is_member() {
            return Err(Rejection::NotHome);
        }
        if !self.has_room_for(asked.entries) {
            return Err(Rejection::Orphans { commands: self.orphans });
        }
        let granted = self.options.granted(asked.entries);
        let private_data = AcceptPrivateData::new(granted);
        let parameters = self.options.parameters;
        let options = ConnectionOptions {
            peer_receives: asked.receives.into(),
            receives: granted.into(),
            // It asks nothing of hosts, so that no receive is for a reply.
            granted_receives: Some(granted.into()),
            parameters,
        };
        let connection = match self.engine.accept(incoming, private_data.as_bytes(), &options) {
            Ok(connection) => connection,
            Err(OpenError::NoConnection) => return Err(self.no_connection()),
            // They come back when another connection ends.
            Err(OpenError::Receives { wanted, free }) => return Err(Rejection::Receives { wanted, free }),
            Err(_) => return Err(Rejection::Busy),
        };
        let connect_by = Some(self.watched.saturating_add(self.options.connect_timeout));
        let queue = Queue {
            connection,
            ends,
            host: None,
            asked,
            association: None,
            ended_with: None,
            kept: false,
            connecting: Connecting::No,
            head: 0,
            outstanding: 0,
            doomed: false,
            since: self.watched,
            established: false,
            connect_by,
        };
        // The engine was made for as many connections as there are places; with more it is used by somebody else as well.
        let Some(place) = self.queues.get_mut(usize::from(connection.index)) else {
            self.engine.disconnect(connection);
            return Ok(());
        };
        *place = Some(queue);
        if let Some(in_use) = self.in_use.get_mut(usize::from(connection.index)) {
            // S5: identifiers of a former queue are in use on this one.
            if !mutant!(S5_target_identifiers) {
                in_use.clear();
            }
        }
        self.next_connect_check = [self.next_connect_check, connect_by].into_iter().flatten().min();
        if let Some(at) = self.next_connect_check {
            self.clock.look_by(at);
        }
        self.statistics.accepted += 1;
        Ok(())
    }

    /// Takes the queues whose connections end from their controllers, as their last event will: that comes when the device has
    /// destroyed the queue pair, and a host may have connected again long before.
    pub(super) fn leave_ending_queues(&mut self) {
        for at in 0..self.queues.len() {
            let Some(Some(queue)) = self.queues.get_mut(at) else { continue };
            let Some(Association { controller, .. }) = queue.association else { continue };
            if self.engine.is_ready(queue.connection) {
                continue;
            }
            if queue.asked.queue_id == ADMIN_QUEUE {
                self.disconnect_io_queues(controller);
            } else {
                (queue.association, queue.ended_with) = (None, Some(controller));
                if mutant!(target_ending_place_forgotten) {
                    queue.ended_with = None;
                }
            }
        }
    }

    /// A connection is a queue from now on.
    pub(super) fn seat(&mut self, connection: ConnectionId, controller: usize, connect: Seating) {
        let entries = connect.queue_size.saturating_add(1);
        let host = self.controllers.get(controller).and_then(Option::as_ref).and_then(|controller| controller.host);
        if let Some(queue) = self.queue_mut(connection) {
            queue.association = Some(Association { controller, entries });
            queue.host = host;
            queue.connect_by = None;
            // The Connect itself was the first entry of the queue.
            queue.head = 1 % entries;
        }
    }

    /// A connection is gone. With an admin queue ends its controller, and with that all its I/O queues.
    pub(super) fn close_queue(&mut self, connection: ConnectionId) {
        let Some(place) = self.queues.get_mut(usize::from(connection.index)) else { return };
        if place.as_ref().is_none_or(|queue| queue.connection != connection) {
            return;
        }
        let Some(queue) = place.take() else { return };
        let ended = queue.association;
        // Mutant: what storages still have of a session that is over is forgotten.
        if !mutant!(target_orphans_forgotten) {
            self.leave_orphans(connection, ended.map(|association| association.controller).or(queue.ended_with));
        }
        if !mutant!(S10_target_waiting) {
            self.drop_waiting(connection);
        }
        let Some(Association { controller, .. }) = ended else { return };
        self.queue_ended(connection);
        let is_admin = |controller: &super::Controller| controller.admin == Some(connection);
        if self.controllers.get(controller).and_then(Option::as_ref).is_some_and(is_admin) {
            if !mutant!(target_queues_outlive_admin) {
                self.disconnect_io_queues(controller);
            }
            self.controllers[controller] = None;
        }
    }

    /// Ends the connections of a controller's I/O queues. They are no part of the controller any more, nor of one that takes
    /// its place while they drain.
    pub(super) fn disconnect_io_queues(&mut self, controller: usize) {
        for at in 0..self.queues.len() {
            let Some(Some(queue)) = self.queues.get_mut(at) else { continue };
            let belongs = queue.association.is_some_and(|association| association.controller == controller);
            if belongs && queue.asked.queue_id != ADMIN_QUEUE {
                (queue.association, queue.ended_with) = (None, Some(controller));
                let connection = queue.connection;
                self.engine.disconnect(connection);
                self.unseat(connection);
            }
        }
        self.end_queues_on_members(controller);
    }

    /// A connection is gone, and none of its commands waits any more for a buffer, or for what another core says.
    fn drop_waiting(&mut self, connection: ConnectionId) {
        let waits = |slot: &mut Slot| {
            slot.connection == connection && matches!(slot.phase, Phase::Elsewhere | Phase::TakeBuffer)
        };
        for index in 0..self.slots.count() {
            if self.slots.get_mut(index).is_some_and(waits) {
                self.leave_waiting(index);
                self.drop_command(index);
            }
        }
    }

    /// Takes note of a command of a queue: of its identifier, and of how many are outstanding.
    pub(super) fn admit_command(
        &mut self,
        connection: ConnectionId,
        entry: &SubmissionQueueEntry,
    ) -> Result<(), Fault> {
        let command_id = entry.command_id.get();
        let in_use = self.in_use.get_mut(usize::from(connection.index));
        let is_new = in_use.is_none_or(|in_use| in_use.insert(command_id));
        // Mutant: two commands in flight may have one identifier.
        if !is_new && !self.forgets_event_request(connection, entry) && !mutant!(target_identifier_twice) {
            return Err(Fault::CommandIdentifier { command_id });
        }
        let Some(queue) = self.queue_mut(connection) else { return Ok(()) };
        match queue.count_command() {
            true => Ok(()),
            // S4: a host may have more in flight than its queue has entries.
            false if mutant!(S4_target_overrun) => Ok(()),
            false => Err(Fault::Overrun { entries: queue.entries() }),
        }
    }

    /// A command is answered, or ended without an answer: its identifier may be used again.
    pub(super) fn release_identifier(&mut self, connection: ConnectionId, command_id: u16) {
        if self.queue_mut(connection).is_some()
            && let Some(in_use) = self.in_use.get_mut(usize::from(connection.index))
        {
            in_use.remove(command_id);
        }
    }

    /// Ends connections that never became a queue: their host may be gone without a word, and they keep a place. Those whose
    /// Connect is held back here have another time-out from now.
    pub(super) fn expire_connections(&mut self) {
        if self.next_connect_check.is_none_or(|at| self.watched < at) {
            return;
        }
        self.next_connect_check = None;
        for index in 0..self.queues.len() {
            let Some(Some(queue)) = self.queues.get_mut(index) else { continue };
            if let (Connecting::Held(_), Some(by)) = (queue.connecting, queue.connect_by)
                && by <= self.watched
            {
                queue.connect_by = Some(self.watched.saturating_add(self.options.connect_timeout));
                self.note_held(index);
            }
            let Some(Some(queue)) = self.queues.get_mut(index) else { continue };
            match queue.connect_by {
                Some(at) if at <= self.watched => {
                    let connection = queue.connection;
                    queue.connect_by = None;
                    self.statistics.connect_timeouts += 1;
                    self.note_fault(connection, Fault::Silent { limit: self.options.connect_timeout });
                    self.engine.disconnect(connection);
                }
                later => self.next_connect_check = [self.next_connect_check, later].into_iter().flatten().min(),
            }
        }
        if let Some(at) = self.next_connect_check {
            self.clock.look_by(at);
        }
    }

    /// Ends controllers whose hosts have not been heard of for too long.
    pub(super) fn expire_controllers(&mut self) {
        for index in 0..self.controllers.len() {
            let Some(Some(controller)) = self.controllers.get_mut(index) else { continue };
            if controller.is_expired(self.watched) {
                let (admin, limit) = (controller.admin, controller.silence_limit());
                let stood_still = self.clock.stood_still().saturating_sub(controller.stood_still);
                controller.expire();
                self.statistics.keep_alive_expirations += 1;
                // Its host may go on elsewhere from now on, and the end of the admin queue, with which the others end, may be long
                // in coming.
                self.disconnect_io_queues(index);
                if let Some(admin) = admin {
                    self.note_fault(admin, Fault::KeepAlive { limit, stood_still });
                    self.engine.disconnect(admin);
                }
            }
        }
    }
}
