//! Queues whose hosts have to prove themselves.

use super::{Association, Intake, Sessions};
use crate::controller::incident::Fault;
use frwr_engine::ConnectionId;

impl Sessions {
    /// There are commands of authentication.
    pub(in super::super) fn authenticates(&self) -> bool {
        self.authenticates
    }

    /// From now on.
    pub(in super::super) fn begin_to_authenticate(&mut self) {
        self.authenticates = true;
    }

    /// Its host has proven itself.
    pub(in super::super) fn unlock(&mut self, connection: ConnectionId) {
        if let Some(queue) = self.find(connection).filter(|queue| queue.is_locked()) {
            queue.intake = Intake::Open;
        }
    }

    /// Its host is not believed any more.
    pub(in super::super) fn lock(&mut self, connection: ConnectionId) {
        if let Some(queue) = self.find(connection).filter(|queue| queue.intake == Intake::Open) {
            queue.intake = Intake::Locked;
        }
    }

    /// The same of a queue whose host has to prove itself first.
    #[cold]
    pub(in super::super) fn admit_locked(
        &mut self,
        connection: ConnectionId,
        command_id: u16,
    ) -> Result<Option<(bool, Option<Association>)>, Fault> {
        self.admit_where(Intake::Locked, connection, command_id, || false)
    }
}
