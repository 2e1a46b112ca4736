//! The Connect command (Base 6.3): from a connection to a queue of a controller.

use super::Target;
use super::command::{Phase, Reply, Work};
use super::controller::{Controller, Purpose};
use super::io::Step;
use super::session::Connecting;
use super::spread::Claim;
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

/// A discovery controller has no I/O queues (Base 3.1.2.3.4).
pub(super) fn no_io_queues() -> Reply {
    invalid(InvalidParameter::QUEUE_ID)
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
        if core::mem::replace(&mut queue.connecting, Connecting::Arriving) != Connecting::No {
            return Err(Reply::of(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()));
        }
        Ok((Work::Connect(connect), connect.data))
    }

    /// The data has arrived.
    pub(super) fn step_connect(&mut self, index: u32, connect: &Connect) -> Step {
        let Some(connection) = self.slots.get_mut(index).map(|slot| slot.connection) else { return Step::Drop };
        let Some(queue) = self.queue_mut(connection) else { return Step::Drop };
        // Every poll looks again, and most of them at no more than what was found before.
        let before = core::mem::replace(&mut queue.connecting, Connecting::Held(None));
        if self.still_waits(before) {
            return self.hold(connection, before);
        }
        let data = self.connect_data(index);
        if connect.queue_id == ADMIN_QUEUE
            && let Ok(data) = &data
        {
            self.leave_ending_queues();
            let late = self.purpose(data).ok().and_then(|purpose| self.late_place(data, purpose));
            if late.is_some() {
                return self.hold(connection, Connecting::Held(late));
            }
        }
        if self.spread.is_member()
            && let Ok(data) = &data
        {
            return self.ask_home(index, connect, data);
        }
        let Some(queue) = self.queue_mut(connection) else { return Step::Drop };
        queue.connecting = Connecting::No;
        let reply = data.and_then(|data| self.associate(connection, connect, &data));
        Step::Go(Phase::Reply(self.connect_reply(connection, reply.unwrap_or_else(|refused| refused))))
    }

    /// The next poll looks at a Connect again.
    fn hold(&mut self, connection: ConnectionId, held: Connecting) -> Step {
        if let Some(queue) = self.queue_mut(connection) {
            queue.connecting = held;
        }
        Step::Stall
    }

    /// The answer to a Connect. A host may try again where it is too early; what is final is its mistake.
    pub(super) fn connect_reply(&mut self, connection: ConnectionId, reply: Reply) -> Reply {
        if reply.status.is_final() {
            self.note_connect_refused(connection, reply.status, reply.result);
        }
        reply
    }

    /// What a Connect's buffer holds.
    pub(super) fn connect_data(&mut self, index: u32) -> Result<ConnectData, Reply> {
        let mut bytes = [0; CONNECT_DATA_BYTES];
        let buffer = self.slots.get_mut(index).and_then(|slot| slot.buffer.as_ref());
        if buffer.is_none_or(|buffer| self.buffers.read(buffer, 0, &mut bytes).is_err()) {
            return Err(Reply::of(Status::INTERNAL_ERROR));
        }
        nvmf::parse_connect_data(&bytes).map_err(|(status, result)| Reply { result, ..Reply::of(status) })
    }

    fn associate(&mut self, connection: ConnectionId, connect: &Connect, data: &ConnectData) -> Result<Reply, Reply> {
        let purpose = self.purpose(data)?;
        let controller = match purpose {
            _ if connect.queue_id == ADMIN_QUEUE => self.make_controller(connection, connect, data, purpose)?,
            Purpose::Discovery => return Err(no_io_queues()),
            Purpose::Io(subsystem) => {
                let ConnectData { controller_id, host, host_id, .. } = *data;
                let claim = Claim { queue_id: connect.queue_id, controller_id, subsystem, host, host_id };
                let place = self.find_controller(&claim)?;
                if let Some(refused) = self.refuse_beside_orphans(connection, place) {
                    return Err(refused);
                }
                place
            }
        };
        self.seat(connection, controller, connect);
        let id = self.controllers.get(controller).and_then(Option::as_ref).map_or(0, |controller| controller.id);
        Ok(Reply::result(id.into()))
    }

    /// What the host connects to. Everybody may ask the discovery service, and sees what is for them.
    pub(super) fn purpose(&self, data: &ConnectData) -> Result<Purpose, Reply> {
        if data.subsystem.as_str() == DISCOVERY_SUBSYSTEM {
            return Ok(Purpose::Discovery);
        }
        let found = self.subsystems.iter().position(|subsystem| subsystem.name == data.subsystem);
        let index = found.ok_or(invalid(InvalidParameter::SUBSYSTEM))?;
        match self.subsystems.get(index) {
            Some(subsystem) if subsystem.hosts.allows(data.host) => Ok(Purpose::Io(index)),
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
        let mut places = self.controllers.iter().enumerate();
        let vacant = places.position(|(place, controller)| controller.is_none() && !self.has_late_commands(place));
        let place = vacant.ok_or(Reply::of(Status::CONNECT_CONTROLLER_BUSY))?;
        let used = |id| self.controllers.iter().flatten().any(|controller| controller.id == id);
        let id = self.identifiers.next(used);
        let mut controller = Controller::new(id, connection, data, purpose, self.watched);
        controller.stood_still = self.clock.stood_still();
        controller.set_keep_alive(connect.keep_alive_timeout);
        self.controllers[place] = Some(controller);
        self.own_place(place, data, purpose);
        Ok(place)
    }

    /// The controller that an I/O queue is for, if it may be one of it.
    pub(super) fn find_controller(&self, claim: &Claim) -> Result<usize, Reply> {
        // One whose admin queue ends gets no queues any more: who waits for its end does not wait for those.
        let named = |controller: &Controller| {
            let ends = controller.admin.is_some_and(|admin| !self.engine.is_ready(admin));
            controller.id == claim.controller_id && controller.subsystem() == Some(claim.subsystem) && !ends
        };
        let found = self.controllers.iter().position(|place| place.as_ref().is_some_and(named));
        let index = found.ok_or(invalid(InvalidParameter::CONTROLLER_ID))?;
        let Some(Some(controller)) = self.controllers.get(index) else {
            return Err(invalid(InvalidParameter::CONTROLLER_ID));
        };
        if controller.host != claim.host || controller.host_id != claim.host_id {
            return Err(Reply::of(Status::CONNECT_INVALID_HOST.do_not_retry()));
        }
        if !controller.is_ready() {
            return Err(Reply::of(Status::COMMAND_SEQUENCE_ERROR));
        }
        let here = self.queues.iter().flatten().any(|queue| {
            queue.association.is_some_and(|association| association.controller == index)
                && queue.asked.queue_id == claim.queue_id
        });
        // A queue that exists already (Base 6.3); a host whose former connection still ends may try again.
        if here || self.member_of(index, claim.queue_id).is_some() {
            return Err(Reply::of(Status::COMMAND_SEQUENCE_ERROR));
        }
        Ok(index)
    }
}
