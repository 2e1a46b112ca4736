//! The Connect command (Base 6.3): from a connection to a queue of a controller.

use super::Target;
use super::command::{Phase, Reply, Work};
use super::controllers::{Controller, Purpose};
use super::io::Step;
use super::receive::refused;
use super::refusal::Refusal;
use super::session::Connecting;
use super::spread::Claim;
use super::table::{Accepted, Arrival};
use crate::storage::Storage;
use crate::wire::{
    self, ADMIN_QUEUE, CONNECT_DATA_BYTES, Connect, ConnectData, ConnectDataError, DISCOVERY_SUBSYSTEM,
    DYNAMIC_CONTROLLER, DataPointer, KeyedDataBlock, Nqn, Status,
};
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;
use std::net::IpAddr;

/// What a host says of itself and of what it connects to, as far as it could be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Names {
    pub(super) host: Option<Nqn>,
    pub(super) subsystem: Option<Nqn>,
}

/// What of a Connect is needed once its data is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seating {
    pub(super) queue_id: u16,
    /// 0-based, and below the entries that the connect request asked for.
    pub(super) queue_size: u16,
    keep_alive_timeout: u32,
}

impl Seating {
    fn of(connect: &Connect) -> Self {
        let &Connect { queue_id, queue_size, keep_alive_timeout, .. } = connect;
        Self { queue_id, queue_size, keep_alive_timeout }
    }
}

impl Names {
    pub(super) fn of(data: &ConnectData) -> Self {
        Self { host: data.host, subsystem: Some(data.subsystem) }
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Connect (Base 6.3): what can be said before the data is there.
    pub(super) fn connect(&mut self, arrival: &Arrival<'_>) -> Accepted {
        let (connect, connection) = (Connect::decode(arrival.entry).map_err(Reply::of)?, arrival.connection);
        if arrival.association.is_some() {
            self.addressed(arrival)?;
            return Err(refused(Status::COMMAND_SEQUENCE_ERROR));
        }
        let judged = self.judge_command(connection, &connect);
        let judged = judged.map(|()| (Work::Connect(Seating::of(&connect)), connect.data));
        judged.map_err(|refusal| self.refuse_connect(connection, Names::default(), refusal))
    }

    fn judge_command(&mut self, connection: ConnectionId, connect: &Connect) -> Result<(), Refusal> {
        let queue = self.queue_mut(connection).ok_or(Refusal::Internal)?;
        let (asked, entries) = (queue.asked.queue_id, queue.asked.entries);
        if connect.record_format != 0 {
            return Err(Refusal::Format { value: connect.record_format });
        }
        if connect.queue_id != asked {
            return Err(Refusal::QueueId { value: connect.queue_id, asked });
        }
        if connect.queue_size == 0 || connect.queue_size >= entries {
            return Err(Refusal::QueueSize { value: connect.queue_size, most: entries.saturating_sub(1) });
        }
        let (DataPointer::Keyed(KeyedDataBlock { length, .. }) | DataPointer::InCapsule { length, .. }) = connect.data;
        if length as usize != CONNECT_DATA_BYTES {
            return Err(Refusal::DataLength { bytes: length });
        }
        if core::mem::replace(&mut queue.connecting, Connecting::Arriving) != Connecting::No {
            return Err(Refusal::Twice);
        }
        Ok(())
    }

    /// The data has arrived.
    pub(super) fn step_connect(&mut self, index: u32, connect: Seating) -> Step {
        let Some(connection) = self.slots.get_mut(index).map(|slot| slot.connection) else { return Step::Drop };
        // One that made room for another connection becomes nothing any more.
        let Some(queue) = self.queue_mut(connection).filter(|queue| !queue.doomed) else { return Step::Drop };
        // Every poll looks again, and most of them at no more than what was found before.
        let before = core::mem::replace(&mut queue.connecting, Connecting::Held(None));
        if self.still_waits(before) {
            return self.hold(connection, before);
        }
        let data = match self.connect_data(index) {
            Ok(data) => data,
            Err(refusal) => return self.connected(index, Names::default(), Err(refusal)),
        };
        if connect.queue_id == ADMIN_QUEUE {
            self.leave_ending_queues();
            let late = self.purpose(&data).ok().and_then(|purpose| self.late_place(&data, purpose));
            if late.is_some() {
                return self.hold(connection, Connecting::Held(late));
            }
        }
        if self.spread.is_member() {
            return self.ask_home(index, connect, &data);
        }
        let answer = self.associate(connection, connect, &data);
        self.connected(index, Names::of(&data), answer)
    }

    /// The next poll looks at a Connect again.
    fn hold(&mut self, connection: ConnectionId, held: Connecting) -> Step {
        if let Some(queue) = self.queue_mut(connection) {
            queue.connecting = held;
        }
        Step::Stall
    }

    /// Answers a Connect: with the identifier of its controller, or with why there is none.
    pub(super) fn connected(&mut self, index: u32, names: Names, answer: Result<u16, Refusal>) -> Step {
        let Some(connection) = self.slots.get_mut(index).map(|slot| slot.connection) else { return Step::Drop };
        if let Some(queue) = self.queue_mut(connection) {
            queue.connecting = Connecting::No;
        }
        let reply = match answer {
            Ok(id) => Reply::result(id.into()),
            Err(refusal) => self.refuse_connect(connection, names, refusal),
        };
        self.go(index, Phase::Reply(reply))
    }

    /// The answer to a Connect that is refused, and the line that tells it.
    pub(super) fn refuse_connect(&mut self, connection: ConnectionId, names: Names, refusal: Refusal) -> Reply {
        if refusal.is_told() {
            self.note_connect_refused(connection, names, refusal);
        }
        let (status, result) = refusal.answer();
        Reply { result, ..Reply::of(status) }
    }

    /// What a Connect's buffer holds.
    pub(super) fn connect_data(&mut self, index: u32) -> Result<ConnectData, Refusal> {
        let mut bytes = [0; CONNECT_DATA_BYTES];
        let buffer = self.slots.get_mut(index).and_then(|slot| slot.buffer.as_ref());
        if buffer.is_none_or(|buffer| self.buffers.read(buffer, 0, &mut bytes).is_err()) {
            return Err(Refusal::Internal);
        }
        wire::parse_connect_data(&bytes).map_err(|error| match error {
            ConnectDataError::Length(_) => Refusal::Internal,
            ConnectDataError::Subsystem(error) => Refusal::SubsystemName(error),
            ConnectDataError::Host(error) => Refusal::HostName(error),
        })
    }

    fn associate(&mut self, connection: ConnectionId, connect: Seating, data: &ConnectData) -> Result<u16, Refusal> {
        let purpose = self.purpose(data)?;
        let controller = match purpose {
            _ if connect.queue_id == ADMIN_QUEUE => self.make_controller(connection, connect, data, purpose)?,
            Purpose::Discovery => return Err(Refusal::DiscoveryQueue),
            Purpose::Io(subsystem) => {
                let peer = self.peer_of(connection);
                let place = self.find_controller(&Claim::new(connect.queue_id, data, subsystem, peer))?;
                self.refuse_beside_orphans(place)?;
                place
            }
        };
        self.seat(connection, controller, connect);
        Ok(self.controllers.get(controller).and_then(Option::as_ref).map_or(0, |controller| controller.id))
    }

    /// What the host connects to. Everybody may ask the discovery service, and sees what is for them.
    pub(super) fn purpose(&self, data: &ConnectData) -> Result<Purpose, Refusal> {
        if data.subsystem.as_str() == DISCOVERY_SUBSYSTEM {
            return Ok(Purpose::Discovery);
        }
        let found = self.subsystems.iter().position(|subsystem| subsystem.name == data.subsystem);
        let index = found.ok_or(Refusal::NoSubsystem)?;
        match self.subsystems.get(index) {
            Some(subsystem) if subsystem.hosts.allows(data.host) => Ok(Purpose::Io(index)),
            _ => Err(Refusal::NotAllowed { is_named: data.host.is_some() }),
        }
    }

    fn make_controller(
        &mut self,
        connection: ConnectionId,
        connect: Seating,
        data: &ConnectData,
        purpose: Purpose,
    ) -> Result<usize, Refusal> {
        if data.controller_id != DYNAMIC_CONTROLLER {
            return Err(Refusal::NotDynamic { value: data.controller_id });
        }
        let place = self.place_for(data, purpose)?;
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
    pub(super) fn find_controller(&self, claim: &Claim) -> Result<usize, Refusal> {
        // One whose admin queue ends gets no queues any more: who waits for its end does not wait for those.
        let named = |controller: &Controller| {
            let ends = controller.admin.is_some_and(|admin| !self.engine.is_ready(admin));
            controller.id == claim.controller_id && controller.subsystem() == Some(claim.subsystem) && !ends
        };
        let missing = Refusal::NoController { value: claim.controller_id };
        let found = self.controllers.iter().position(|place| place.as_ref().is_some_and(named));
        let index = found.ok_or(missing)?;
        let Some(Some(controller)) = self.controllers.get(index) else { return Err(missing) };
        if controller.host != claim.host || controller.host_id != claim.host_id {
            return Err(Refusal::OtherHost);
        }
        // Who knows another host's names and the number of its controller is not that host yet.
        if let (Some(admin), Some(peer)) = (controller.admin.and_then(|admin| self.peer_of(admin)), claim.peer)
            && admin != peer
        {
            return Err(Refusal::OtherAddress { admin });
        }
        if !controller.is_ready() {
            return Err(Refusal::NotEnabled);
        }
        let here = self.queues.iter().flatten().any(|queue| {
            queue.association.is_some_and(|association| association.controller == index)
                && queue.asked.queue_id == claim.queue_id
        });
        if here || self.member_of(index, claim.queue_id).is_some() {
            return Err(Refusal::QueueExists);
        }
        Ok(index)
    }

    /// The address that a connection comes from, if the device knows.
    pub(super) fn peer_of(&self, connection: ConnectionId) -> Option<IpAddr> {
        let queue = self.queues.get(usize::from(connection.index))?.as_ref()?;
        queue.ends.address().filter(|_| queue.connection == connection)
    }
}
