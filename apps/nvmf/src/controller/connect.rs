//! The Connect command (Base 6.3): from a connection to a queue of a controller.

use super::Target;
use super::commands::{Slot, Step};
use super::controllers::{Controller, Purpose};
use super::refusal::Refusal;
use super::session::{Connecting, Names, Wait};
use super::spread::Claim;
use super::work::{Phase, Reply, Seating, refused_connect};
use crate::authentication::AuthenticationFailure;
use crate::storage::Storage;
use crate::wire::{
    self, ADMIN_QUEUE, CONNECT_DATA_BYTES, ConnectData, ConnectDataError, DISCOVERY_SUBSYSTEM, DYNAMIC_CONTROLLER,
};
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

impl<P: Port, S: Storage> Target<P, S> {
    /// The data has arrived.
    pub(super) fn step_connect(&mut self, index: u32, connect: Seating) -> Step {
        let Some(connection) = self.commands.get(index).map(Slot::connection) else { return Step::Drop };
        // One that made room for another connection becomes nothing any more.
        let Some(queue) = self.sessions.find(connection).filter(|queue| !queue.is_doomed()) else { return Step::Drop };
        // Every poll looks again, and most of them at no more than what was found before.
        let before = match queue.connect(Connecting::Held(Wait::Short)) {
            Connecting::Held(wait) => wait,
            Connecting::No | Connecting::Arriving => Wait::Short,
        };
        if self.still_waits(before) {
            return self.hold(connection, before);
        }
        let data = match self.connect_data(index) {
            Ok(data) => data,
            Err(refusal) => return self.connected(index, Names::default(), Err(refusal)),
        };
        if matches!(self.purpose(&data), Ok(Purpose::Io(_))) {
            match self.has_to_prove(&data) {
                // Somebody changes keys at this moment.
                None => return self.hold(connection, Wait::Short),
                Some(Err(refusal)) => {
                    self.authentications.count_failed(AuthenticationFailure::NoKey);
                    return self.connected(index, Names::of(&data), Err(refusal));
                }
                Some(Ok(has_to)) => {
                    if let Some(queue) = self.sessions.find(connection) {
                        queue.has_to_prove(has_to);
                    }
                }
            }
        }
        if connect.queue_id == ADMIN_QUEUE {
            self.leave_ending_queues();
            if let Some(wait) = self.waits_for_former(&data, before) {
                return self.hold(connection, wait);
            }
        }
        if self.spread.is_member() {
            return self.ask_home(index, connection, connect, &data);
        }
        let answer = self.associate(connection, connect, &data);
        self.connected(index, Names::of(&data), answer)
    }

    /// The next poll looks at a Connect again.
    fn hold(&mut self, connection: ConnectionId, wait: Wait) -> Step {
        if let Some(queue) = self.sessions.find(connection) {
            queue.connect(Connecting::Held(wait));
        }
        Step::Stall
    }

    /// A Connect waits on for what it was held back for.
    fn still_waits(&mut self, before: Wait) -> bool {
        match before {
            Wait::Short => false,
            Wait::Late(place) => self.late.has_late_commands(place, self.whereabouts()),
            Wait::Former { place, question } => {
                self.controllers.ask(place, question, self.clock.watched(), &mut self.engine)
            }
        }
    }

    /// What the next session of a host has to wait for of those before it: that nothing of a former one is executed any more. Of each
    /// other that seems to live the host's device is asked, since the word that it is over may have been lost, as in an outage: it has
    /// to say so behind this Connect, or that session ends.
    fn waits_for_former(&mut self, data: &ConnectData, before: Wait) -> Option<Wait> {
        let purpose = self.purpose(data).ok().filter(|purpose| *purpose != Purpose::Discovery)?;
        if let Some(place) = self.late.late_place(data, purpose, self.whereabouts()) {
            return Some(Wait::Late(place));
        }
        let mut number = match before {
            Wait::Former { question, .. } => Some(question),
            Wait::Short | Wait::Late(_) => None,
        };
        let mut wait = None;
        for place in 0..self.controllers.places() {
            // Mutant: what seems to live is believed.
            if !self.late.is_owned(place, data, purpose) || mutant!(target_former_believed) {
                continue;
            }
            let question = *number.get_or_insert_with(|| self.controllers.next_question());
            if self.controllers.ask(place, question, self.clock.watched(), &mut self.engine) {
                wait.get_or_insert(Wait::Former { place, question });
            }
        }
        wait
    }

    /// Asks the home core whether a connection may become a queue. Where an earlier connection of this number still waits
    /// for its answer, so does this one.
    fn ask_home(&mut self, index: u32, connection: ConnectionId, connect: Seating, data: &ConnectData) -> Step {
        let subsystem = match self.purpose(data) {
            Ok(Purpose::Io(subsystem)) => subsystem,
            Ok(Purpose::Discovery) => return self.connected(index, Names::of(data), Err(Refusal::DiscoveryQueue)),
            Err(refusal) => return self.connected(index, Names::of(data), Err(refusal)),
        };
        let claim = Claim::new(connect.queue_id, data, subsystem, self.sessions.peer_of(connection));
        let Some(member) = self.spread.member_mut() else { return Step::Drop };
        match member.ask(connection, self.commands.cookie(index), claim) {
            true => self.commands.leave_to_another_core(index),
            false => Step::Stall,
        }
    }

    /// Answers a Connect: with the identifier of its controller, or with why there is none.
    pub(super) fn connected(&mut self, index: u32, names: Names, answer: Result<u16, Refusal>) -> Step {
        let Some(connection) = self.commands.get(index).map(Slot::connection) else { return Step::Drop };
        if let Some(queue) = self.sessions.find(connection) {
            queue.connect(Connecting::No);
        }
        let reply = match answer {
            Ok(id) => Reply::result(self.connect_result(connection, id)),
            Err(refusal) => self.refuse_connect(connection, names, refusal),
        };
        self.commands.go(index, Phase::Reply(reply))
    }

    /// The answer to a Connect that is refused, and the line that tells it.
    pub(super) fn refuse_connect(&mut self, connection: ConnectionId, names: Names, refusal: Refusal) -> Reply {
        if refusal.is_told() {
            let named = names.subsystem.filter(|_| refusal == Refusal::NoSubsystem);
            let offered = named.and_then(|name| self.subsystems.offered(&name));
            self.sessions.connect_refused(connection, names, refusal, offered);
        }
        refused_connect(refusal)
    }

    /// What a Connect's buffer holds.
    pub(super) fn connect_data(&self, index: u32) -> Result<ConnectData, Refusal> {
        let mut bytes = [0; CONNECT_DATA_BYTES];
        let buffer = self.commands.get(index).and_then(Slot::buffer);
        if buffer.is_none_or(|buffer| self.pool.buffers().read(buffer, 0, &mut bytes).is_err()) {
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
        if purpose != Purpose::Discovery && self.pending.keeps_away(data.host) {
            return Err(Refusal::Drains);
        }
        let controller = match purpose {
            _ if connect.queue_id == ADMIN_QUEUE => self.make_controller(connection, connect, data, purpose)?,
            Purpose::Discovery => return Err(Refusal::DiscoveryQueue),
            Purpose::Io(subsystem) => {
                let peer = self.sessions.peer_of(connection);
                let place = self.find_controller(&Claim::new(connect.queue_id, data, subsystem, peer))?;
                self.late.refuse_beside_orphans(place)?;
                place
            }
        };
        let made = self.controllers.get(controller);
        let id = made.map_or(0, Controller::id);
        self.sessions.seat(connection, controller, connect, made.and_then(Controller::host));
        self.seated(connection);
        Ok(id)
    }

    /// What the host connects to. Everybody may ask the discovery service, and sees what is for them.
    pub(super) fn purpose(&self, data: &ConnectData) -> Result<Purpose, Refusal> {
        if data.subsystem.as_str() == DISCOVERY_SUBSYSTEM {
            return Ok(Purpose::Discovery);
        }
        let index = self.subsystems.find(&data.subsystem).ok_or(Refusal::NoSubsystem)?;
        match self.subsystems.get(index) {
            // A member asks the home core, which knows who is allowed.
            Some(subsystem) if self.spread.is_member() || subsystem.allows(data.host) => Ok(Purpose::Io(index)),
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
        let times = (self.clock.watched(), self.clock.stood_still());
        self.controllers.make(place, connection, connect, data, purpose, times);
        self.late.own_place(place, data, purpose);
        Ok(place)
    }

    /// The controller that an I/O queue is for, if it may be one of it.
    pub(super) fn find_controller(&self, claim: &Claim) -> Result<usize, Refusal> {
        if !self.subsystems.get(claim.subsystem).is_some_and(|subsystem| subsystem.allows(claim.host)) {
            return Err(Refusal::NotAllowed { is_named: claim.host.is_some() });
        }
        // One whose admin queue ends gets no queues any more: who waits for its end does not wait for those.
        let named = |controller: &Controller| {
            let ends = controller.admin().is_some_and(|admin| !self.engine.is_ready(admin));
            controller.id() == claim.controller_id && controller.subsystem() == Some(claim.subsystem) && !ends
        };
        let missing = Refusal::NoController { value: claim.controller_id };
        let found = self.controllers.iter().find(|(_, controller)| named(controller));
        let (place, controller) = found.ok_or(missing)?;
        if controller.host() != claim.host || controller.host_id() != claim.host_id {
            return Err(Refusal::OtherHost);
        }
        // Who knows another host's names and the number of its controller is not that host yet.
        if let (Some(admin), Some(peer)) =
            (controller.admin().and_then(|admin| self.sessions.peer_of(admin)), claim.peer)
            && admin != peer
        {
            return Err(Refusal::OtherAddress { admin });
        }
        if controller.drains().is_some() {
            return Err(Refusal::Drains);
        }
        if !controller.is_ready() {
            return Err(Refusal::NotEnabled);
        }
        let here = self.sessions.queue_of(place, claim.queue_id).is_some();
        if here || self.spread.member_of(place, claim.queue_id).is_some() {
            return Err(Refusal::QueueExists);
        }
        Ok(place)
    }
}
