//! What the admin queue does beside I/O.

use super::{Session, late};
use crate::host::commands::Reply;
use crate::host::context::Context;
use crate::host::failure::HostFailure;
use frwr_engine::provider::Port;

impl Session {
    /// Sends a Keep Alive where one is due.
    ///
    /// # Errors
    /// One was not answered in time.
    pub(in super::super) fn step_keep_alive<P: Port>(&mut self, context: &mut Context<P>) -> Result<(), HostFailure> {
        self.keep_alive.step(&self.queues, &self.data, context)
    }

    /// What the admin queue does beside I/O.
    ///
    /// # Errors
    /// Something was not answered in time.
    pub(in super::super) fn step_chores<P: Port>(&mut self, context: &mut Context<P>) -> Result<(), HostFailure> {
        let late_at =
            [("a log page or Identify", self.chores.late_at(context)), ("an Abort", self.aborts.late_at(context))];
        for (what, at) in late_at {
            if at.is_some_and(|at| context.time.has_passed(at)) {
                return Err(late(what, context));
            }
        }
        self.chores.step((self.stopping, self.renewal.is_running()), &self.found, &self.queues, &self.data, context);
        Ok(())
    }

    /// Something that the admin queue asked for was answered. Whether all of it is there.
    ///
    /// # Errors
    /// The session cannot go on with it.
    pub(in super::super) fn chore_answered<P: Port>(
        &mut self,
        reply: Reply,
        context: &Context<P>,
    ) -> Result<bool, HostFailure> {
        self.chores.answered(reply, &mut self.found, &self.data, context)
    }

    /// It was not sent, or lost.
    pub(in super::super) fn chore_refused(&mut self) {
        self.chores.refused();
    }

    pub(in super::super) fn event_reported(&mut self, reply: Reply) {
        self.chores.event_reported(reply, self.found.limits().reports_ana);
    }

    /// Asks the controller to abort a command; false where that cannot be said now.
    pub(in super::super) fn send_abort<P: Port>(
        &mut self,
        queue_id: u16,
        command_id: u16,
        context: &mut Context<P>,
    ) -> bool {
        self.aborts.send(queue_id, command_id, &self.queues, &self.data, context)
    }
}
