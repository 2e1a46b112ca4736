//! What peers did wrong, and what follows for their connections.

use super::{Ends, Intake, Names, Sessions};
use crate::controller::incident::{Fault, Incident};
use crate::controller::refusal::{Offered, Refusal, Rejection};
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine};

impl Sessions {
    /// Notes what the peer of a connection did.
    #[cold]
    pub(in super::super) fn note(&mut self, connection: ConnectionId, fault: Fault) {
        if let Some(incident) = self.find(connection).map(|queue| queue.incident(fault)) {
            self.incidents.note(incident);
        }
    }

    /// The host broke the protocol: the queue cannot go on.
    #[cold]
    pub(in super::super) fn protocol_error<P: Port>(
        &mut self,
        connection: ConnectionId,
        fault: Fault,
        engine: &mut Engine<P>,
    ) {
        // Of messages that came in one batch the first that is wrong decides.
        let Some(queue) = self.find(connection).filter(|queue| !queue.is_doomed()) else { return };
        queue.intake = Intake::Doomed;
        self.counted.protocol_errors += 1;
        self.note(connection, fault);
        engine.disconnect(connection);
    }

    /// Notes a connect request that is rejected.
    #[cold]
    pub(in super::super) fn rejected(&mut self, ends: Ends, queue_id: Option<u16>, rejection: Rejection) {
        self.counted.rejected += 1;
        self.listeners.count(ends.listener, false);
        let queue_id = queue_id.filter(|_| rejection.is_of_nvme());
        self.incidents.note(Incident { queue_id, ..Incident::new(ends.peer, Fault::Rejected(rejection)) });
    }

    /// Notes a Connect that is refused: of a host by the name that it claims, which nobody has looked at but for lists of names.
    #[cold]
    pub(in super::super) fn connect_refused(
        &mut self,
        connection: ConnectionId,
        names: Names,
        refusal: Refusal,
        offered: Option<Offered>,
    ) {
        let Names { host, subsystem } = names;
        let Some(queue) = self.find(connection) else { return };
        let (peer, queue_id, fault) = (queue.ends.peer, Some(queue.asked.queue_id), Fault::ConnectRefused(refusal));
        self.incidents.note(Incident { peer, host, subsystem, offered, queue_id, fault });
    }

    /// The oldest incident that was not taken yet.
    pub(in super::super) fn next_incident(&mut self) -> Option<Incident> {
        self.incidents.next()
    }
}
