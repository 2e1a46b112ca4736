//! Queues from the connect request to the end of their connection.

use super::{Controller, Target};
use crate::nvmf::{ADMIN_QUEUE, AcceptPrivateData, QueueRequest, RejectPrivateData, RejectStatus, RequestPrivateData};
use crate::storage::Storage;
use core::time::Duration;
use frwr_engine::provider::{IncomingId, Port};
use frwr_engine::{ConnectionId, ConnectionOptions, OpenError};
use zerocopy::IntoBytes;

/// How long a connection may stay without a Connect that succeeded. Nothing else would ever end one whose host died
/// before its Connect: Keep Alive begins with the controller. As long as hosts wait for each step of a bring-up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between two looks for what has expired: the unit of Keep Alive Timeouts is ten times as long.
const EXPIRY_PERIOD: Duration = Duration::from_millis(100);

/// A queue's place in its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Association {
    /// Index in the target's table of controllers.
    pub(super) controller: usize,
    /// The controller's identifier: the place may have gone to another one while this queue's connection ends.
    pub(super) controller_id: u16,
    /// Entries, as Connect said.
    pub(super) entries: u16,
}

/// A connection, and the queue that it carries once Connect has succeeded.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) connection: ConnectionId,
    /// What the connect request asked for.
    pub(super) asked: QueueRequest,
    pub(super) association: Option<Association>,
    /// A Connect command is being executed.
    pub(super) connecting: bool,
    /// When the connection was accepted.
    pub(super) since: Duration,
    /// SQHD of the next response.
    pub(super) head: u16,
    /// Commands that were not answered yet.
    pub(super) outstanding: u16,
}

impl Queue {
    /// Takes note of a command. False where the host has more outstanding than the queue has entries.
    pub(super) fn count_command(&mut self) -> bool {
        let entries = self.association.map_or(self.asked.entries, |association| association.entries).max(1);
        self.head = if self.head + 1 >= entries { 0 } else { self.head + 1 };
        self.outstanding += 1;
        self.outstanding <= entries
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    pub(super) fn queue_mut(&mut self, connection: ConnectionId) -> Option<&mut Queue> {
        let queue = self.queues.get_mut(usize::from(connection.index))?.as_mut()?;
        (queue.connection == connection).then_some(queue)
    }

    /// The controller that a queue belongs to, unless it is gone.
    pub(super) fn controller_mut(&mut self, association: Association) -> Option<&mut Controller> {
        let controller = self.controllers.get_mut(association.controller)?.as_mut()?;
        (controller.id == association.controller_id).then_some(controller)
    }

    /// Accepts or rejects a connect request (RDMA 3.4).
    pub(super) fn incoming(&mut self, incoming: IncomingId, private_data: &[u8]) {
        let (queues, entries) = (self.options.io_queues, self.options.queue_entries);
        let refused = match RequestPrivateData::parse(private_data, queues, entries) {
            Ok(asked) => self.accept(incoming, asked).err(),
            Err(status) => Some(status),
        };
        let Some(status) = refused else { return };
        self.statistics.rejected += 1;
        // Where even that cannot be said now, the host's connection manager times out.
        let _ = self.engine.reject(incoming, RejectPrivateData::new(status).as_bytes());
    }

    fn accept(&mut self, incoming: IncomingId, asked: QueueRequest) -> Result<(), RejectStatus> {
        // A write of an ended session that the storage still has could undo what the host writes in its next session.
        if asked.queue_id == ADMIN_QUEUE && self.orphans > 0 {
            return Err(RejectStatus::NoResources);
        }
        let admins = self.queues.iter().flatten().filter(|queue| queue.asked.queue_id == ADMIN_QUEUE).count();
        if asked.queue_id == ADMIN_QUEUE && admins >= self.controllers.len() {
            return Err(RejectStatus::NoResources);
        }
        let private_data = AcceptPrivateData::new(self.options.receives());
        let options = ConnectionOptions { peer_receives: u32::from(asked.receives), ..ConnectionOptions::default() };
        let connection = match self.engine.accept(incoming, private_data.as_bytes(), &options) {
            Ok(connection) => connection,
            Err(OpenError::NoConnection | OpenError::PrivateData(_) | OpenError::WouldBlock) => {
                return Err(RejectStatus::NoResources);
            }
        };
        let since = self.now;
        let queue = Queue { connection, asked, association: None, connecting: false, since, head: 0, outstanding: 0 };
        // The engine was made for as many connections as there are places; with more it is used by somebody else as well.
        let Some(place) = self.queues.get_mut(usize::from(connection.index)) else {
            self.engine.disconnect(connection);
            return Ok(());
        };
        *place = Some(queue);
        self.statistics.accepted += 1;
        Ok(())
    }

    /// A connection is gone. With an admin queue ends its controller, and with that all its I/O queues.
    pub(super) fn close_queue(&mut self, connection: ConnectionId) {
        let Some(place) = self.queues.get_mut(usize::from(connection.index)) else { return };
        if place.as_ref().is_none_or(|queue| queue.connection != connection) {
            return;
        }
        self.orphans += self.slots.storing(connection);
        let ended = place.take().and_then(|queue| queue.association);
        let Some(Association { controller, .. }) = ended else { return };
        let is_admin = |controller: &Controller| controller.admin == connection;
        if self.controllers.get(controller).and_then(Option::as_ref).is_some_and(is_admin) {
            self.disconnect_io_queues(controller);
            self.controllers[controller] = None;
        }
    }

    /// Ends the connections of a controller's I/O queues.
    pub(super) fn disconnect_io_queues(&mut self, controller: usize) {
        for queue in self.queues.iter().flatten() {
            let belongs = queue.association.is_some_and(|association| association.controller == controller);
            if belongs && queue.asked.queue_id != ADMIN_QUEUE {
                self.engine.disconnect(queue.connection);
            }
        }
    }

    /// Ends controllers whose hosts have not been heard of for too long, and connections that never became a queue.
    pub(super) fn expire(&mut self) {
        if self.now < self.expire_at {
            return;
        }
        self.expire_at = self.now + EXPIRY_PERIOD;
        for controller in self.controllers.iter_mut().flatten() {
            if controller.is_expired(self.now) {
                controller.set_keep_alive(0);
                self.statistics.keep_alive_expirations += 1;
                self.engine.disconnect(controller.admin);
            }
        }
        for queue in self.queues.iter_mut().flatten() {
            if queue.association.is_none() && self.now.saturating_sub(queue.since) > CONNECT_TIMEOUT {
                // Once is enough: its connection is drained now.
                queue.since = self.now;
                self.statistics.connect_timeouts += 1;
                self.engine.disconnect(queue.connection);
            }
        }
    }

    /// The host broke the protocol: the queue cannot go on.
    #[cold]
    pub(super) fn protocol_error(&mut self, connection: ConnectionId) {
        self.statistics.protocol_errors += 1;
        self.engine.disconnect(connection);
    }
}
