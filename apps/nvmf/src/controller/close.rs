//! How connections and controllers end.

use super::Target;
use super::controllers::{Expired, PROBE_TIMEOUT};
use super::incident::Fault;
use super::late::Whereabouts;
use super::session::Closed;
use super::spread::ControllerName;
use crate::storage::Storage;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, DisconnectCause};
use frwr_mempool::mutant;

impl<P: Port, S: Storage> Target<P, S> {
    /// Where commands of sessions that are over may be.
    pub(super) fn whereabouts(&self) -> Whereabouts<'_> {
        Whereabouts { sessions: &self.sessions, commands: &self.commands, spread: &self.spread }
    }

    /// A connection is gone. With an admin queue ends its controller, and with that all its I/O queues.
    pub(super) fn close_queue(&mut self, connection: ConnectionId) {
        let Some(Closed { controller, left_to }) = self.sessions.close(connection) else { return };
        self.authentications.close(connection);
        // Mutant: what storages still have of a session that is over is forgotten.
        if !mutant!(target_orphans_forgotten) {
            self.late.leave_orphans(connection, left_to, &mut self.commands);
        }
        if !mutant!(S10_target_waiting) {
            self.commands.end_waiting(connection, &mut self.engine, &mut self.pool);
        }
        let Some(place) = controller else { return };
        self.spread.queue_ended(connection);
        if self.controllers.is_admin(place, connection) {
            if !mutant!(target_queues_outlive_admin) {
                self.end_io_queues(place);
            }
            self.controllers.end(place);
        }
    }

    /// Ends the connections of a controller's I/O queues, on all cores.
    pub(super) fn end_io_queues(&mut self, place: usize) {
        let Self { engine, spread, .. } = self;
        self.sessions.end_io_queues(place, |connection| {
            engine.disconnect(connection);
            spread.unseat(connection);
        });
        if let Some(controller) = self.controllers.get(place) {
            self.spread.end_queues(ControllerName::new(place, controller.id()));
        }
    }

    /// Takes the queues whose connections end from their controllers, as their last event will: that comes when the device has
    /// destroyed the queue pair, and a host may have connected again long before.
    pub(super) fn leave_ending_queues(&mut self) {
        for at in 0..self.sessions.places() {
            if let Some(place) = self.sessions.leave_if_ending(at, &self.engine) {
                self.end_io_queues(place);
            }
        }
    }

    /// Notes how a connection ended, where that was not by common consent.
    pub(super) fn note_end(&mut self, connection: ConnectionId, cause: DisconnectCause) {
        let fault = match cause {
            DisconnectCause::Local => return,
            DisconnectCause::Peer => match self.unanswered(connection) {
                0 => return,
                commands => Fault::Vanished { commands },
            },
            cause => Fault::Connection { cause },
        };
        self.sessions.note(connection, fault);
    }

    /// Commands without an answer, but for event requests: those wait for ever.
    fn unanswered(&self, connection: ConnectionId) -> u16 {
        let Some(queue) = self.sessions.get(connection) else { return 0 };
        let controller = queue.association().and_then(|association| self.controllers.get(association.controller));
        let of_admin = controller.filter(|controller| controller.admin() == Some(connection));
        queue.outstanding().saturating_sub(of_admin.map_or(0, |controller| controller.event_requests()))
    }

    /// Ends what has been silent for too long, unless a word of it may be among what was not read yet. `read`: the engine's work in this poll.
    #[cold]
    pub(super) fn expire(&mut self, read: u32) {
        if self.clock.judges(self.engine.may_have_unread(read), self.engine.polls_of_full_queues()) {
            self.expire_controllers();
            self.expire_connections();
            self.expire_authentications();
            self.watch_silent_hosts();
            self.expire_former_sessions();
        }
    }

    /// Ends connections that never became a queue.
    fn expire_connections(&mut self) {
        self.sessions.expire(self.clock.watched(), self.options.connect_timeout, &mut self.engine);
        self.clock.look_by(self.sessions.next_connect_check());
    }

    /// Ends controllers whose hosts have not been heard of for too long.
    fn expire_controllers(&mut self) {
        let (now, stood_still) = (self.clock.watched(), self.clock.stood_still());
        while let Some(Expired { place, admin, limit, stood_still }) = self.controllers.next_expired(now, stood_still) {
            // Its host may go on elsewhere from now on, and the end of the admin queue, with which the others end, may be long
            // in coming.
            self.end_io_queues(place);
            if let Some(admin) = admin {
                self.sessions.note(admin, Fault::KeepAlive { limit, stood_still });
                self.engine.disconnect(admin);
            }
        }
    }

    /// Probes hosts that are silent, and ends the controllers of those whose devices say nothing either.
    fn watch_silent_hosts(&mut self) {
        let (now, silence) = (self.clock.watched(), self.options.max_silence);
        let Some(enough) = self.controllers.begin_watch(now, silence, self.options.connect_timeout) else { return };
        for place in 0..self.controllers.places() {
            let Some(admin) = self.controllers.watch(place, now, enough, &mut self.engine) else { continue };
            self.end_io_queues(place);
            self.sessions.note(admin, Fault::Unanswered { silence, probe: PROBE_TIMEOUT });
            self.engine.disconnect(admin);
        }
    }

    /// Ends controllers of hosts that came again, whose devices did not say that those live.
    fn expire_former_sessions(&mut self) {
        while let Some((place, admin)) = self.controllers.next_unanswered(self.clock.watched()) {
            self.end_io_queues(place);
            self.sessions.note(admin, Fault::Left { probe: PROBE_TIMEOUT });
            self.engine.disconnect(admin);
        }
    }
}
