//! The Connect command (Base 6.3): from a connection to a queue of a controller.

use super::Target;
use super::command::{Reply, Work};
use super::controller::{Controller, Purpose};
use super::session::Association;
use crate::nvmf::{
    self, ADMIN_QUEUE, CONNECT_DATA_BYTES, Connect, ConnectData, DISCOVERY_SUBSYSTEM, DYNAMIC_CONTROLLER, DataPointer,
    InvalidParameter, KeyedDataBlock, Status,
};
use crate::storage::Storage;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;

fn invalid(parameter: InvalidParameter) -> Reply {
    Reply { result: parameter.to_result(), ..Reply::of(Status::CONNECT_INVALID_PARAMETERS.do_not_retry()) }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// What can be said before the data is there.
    pub(super) fn check_connect(
        &mut self,
        connection: ConnectionId,
        connect: Connect,
    ) -> Result<(Work, DataPointer), Reply> {
        let Some(queue) = self.queue_mut(connection) else { return Err(Reply::of(Status::INTERNAL_ERROR)) };
        if connect.record_format != 0 {
            return Err(Reply::of(Status::CONNECT_INCOMPATIBLE_FORMAT.do_not_retry()));
        }
        if connect.queue_id != queue.asked.queue_id {
            return Err(invalid(InvalidParameter::QUEUE_ID));
        }
        if connect.queue_size == 0 || connect.queue_size >= queue.asked.entries {
            return Err(invalid(InvalidParameter::QUEUE_SIZE));
        }
        let (DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. }) = connect.data;
        if length as usize != CONNECT_DATA_BYTES {
            return Err(Reply::of(Status::DATA_SGL_LENGTH_INVALID.do_not_retry()));
        }
        if core::mem::replace(&mut queue.connecting, true) {
            return Err(Reply::of(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()));
        }
        Ok((Work::Connect(connect), connect.data))
    }

    /// The data has arrived.
    pub(super) fn execute_connect(&mut self, index: u32, connect: &Connect) -> Reply {
        let Some(slot) = self.slots.get_mut(index) else { return Reply::of(Status::INTERNAL_ERROR) };
        let connection = slot.connection;
        let mut bytes = [0; CONNECT_DATA_BYTES];
        let read = slot.buffer.as_ref().is_some_and(|buffer| self.buffers.read(buffer, 0, &mut bytes).is_ok());
        let Some(queue) = self.queue_mut(connection) else { return Reply::of(Status::INTERNAL_ERROR) };
        queue.connecting = false;
        if !read {
            return Reply::of(Status::INTERNAL_ERROR);
        }
        let reply = match nvmf::parse_connect_data(&bytes) {
            Ok(data) => self.associate(connection, connect, &data).unwrap_or_else(|refused| refused),
            Err((status, result)) => Reply { result, ..Reply::of(status) },
        };
        // A host may try again where it is too early; what is final is its mistake.
        if reply.status.is_final() {
            self.note_connect_refused(connection, reply.status, reply.result);
        }
        reply
    }

    fn associate(&mut self, connection: ConnectionId, connect: &Connect, data: &ConnectData) -> Result<Reply, Reply> {
        let purpose = self.purpose(data)?;
        let controller = if connect.queue_id == ADMIN_QUEUE {
            self.make_controller(connection, connect, data, purpose)?
        } else {
            self.find_controller(connect, data, purpose)?
        };
        // 0-based, and below the entries that the connect request asked for.
        let entries = connect.queue_size.saturating_add(1);
        if let Some(queue) = self.queue_mut(connection) {
            queue.association = Some(Association { controller, entries });
            queue.connect_by = None;
            // The Connect itself was the first entry of the queue.
            queue.head = 1 % entries;
        }
        let id = self.controllers.get(controller).and_then(Option::as_ref).map_or(0, |controller| controller.id);
        Ok(Reply::result(id.into()))
    }

    /// What the host connects to. Everybody may ask the discovery service, and sees what is for them.
    fn purpose(&self, data: &ConnectData) -> Result<Purpose, Reply> {
        if data.subsystem.as_str() == DISCOVERY_SUBSYSTEM {
            return Ok(Purpose::Discovery);
        }
        let found = self.subsystems.iter().position(|subsystem| subsystem.name == data.subsystem);
        let index = found.ok_or(invalid(InvalidParameter::SUBSYSTEM))?;
        match self.subsystems.get(index) {
            Some(subsystem) if subsystem.hosts.allows(&data.host) => Ok(Purpose::Io(index)),
            _ => Err(Reply::of(Status::CONNECT_INVALID_HOST.do_not_retry())),
        }
    }

    fn make_controller(
        &mut self,
        connection: ConnectionId,
        connect: &Connect,
        data: &ConnectData,
        purpose: Purpose,
    ) -> Result<usize, Reply> {
        if data.controller_id != DYNAMIC_CONTROLLER {
            return Err(invalid(InvalidParameter::CONTROLLER_ID));
        }
        let vacant = self.controllers.iter().position(Option::is_none);
        let place = vacant.ok_or(Reply::of(Status::CONNECT_CONTROLLER_BUSY))?;
        let used = |id| self.controllers.iter().flatten().any(|controller| controller.id == id);
        let id = self.identifiers.next(used);
        let mut controller = Controller::new(id, connection, data, purpose, self.now);
        controller.set_keep_alive(connect.keep_alive_timeout);
        self.controllers[place] = Some(controller);
        Ok(place)
    }

    fn find_controller(&mut self, connect: &Connect, data: &ConnectData, purpose: Purpose) -> Result<usize, Reply> {
        let Purpose::Io(subsystem) = purpose else {
            // A discovery controller has no I/O queues (Base 3.1.2.3.4).
            return Err(invalid(InvalidParameter::QUEUE_ID));
        };
        let named =
            |controller: &Controller| controller.id == data.controller_id && controller.subsystem() == Some(subsystem);
        let found = self.controllers.iter().position(|place| place.as_ref().is_some_and(named));
        let index = found.ok_or(invalid(InvalidParameter::CONTROLLER_ID))?;
        let Some(Some(controller)) = self.controllers.get(index) else {
            return Err(invalid(InvalidParameter::CONTROLLER_ID));
        };
        if controller.host != data.host || controller.host_id != data.host_id {
            return Err(Reply::of(Status::CONNECT_INVALID_HOST.do_not_retry()));
        }
        if !controller.is_ready() {
            return Err(Reply::of(Status::COMMAND_SEQUENCE_ERROR));
        }
        let taken = self.queues.iter().flatten().any(|queue| {
            queue.association.is_some_and(|association| association.controller == index)
                && queue.asked.queue_id == connect.queue_id
        });
        // A queue that exists already (Base 6.3); a host whose former connection still ends may try again.
        if taken { Err(Reply::of(Status::COMMAND_SEQUENCE_ERROR)) } else { Ok(index) }
    }
}
