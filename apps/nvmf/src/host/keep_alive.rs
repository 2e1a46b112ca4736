//! Keep Alives (Base 3.9).

use super::admin_data::{AdminData, Asked};
use super::context::Context;
use super::failure::HostFailure;
use super::options::AdminSlot;
use super::queues::{QueueOf, Queues};
use crate::wire::Command;
use core::time::Duration;
use frwr_engine::provider::Port;

/// When Keep Alives are sent.
#[derive(Debug, Default)]
pub(super) struct KeepAlive {
    /// When the next one is due, by the caller's time, since the controller's timer runs on whatever happens here; `None`
    /// while that does not run.
    at: Option<Duration>,
    /// When the one in flight has to be answered, in watched time.
    answer_by: Duration,
    sent: u64,
}

impl KeepAlive {
    /// How many were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The controller is ready, and its Keep Alive Timer runs: also while its I/O queues are brought up, of which each may
    /// take as long as a step.
    pub(super) fn begin<P: Port>(&mut self, context: &Context<P>) {
        let half = context.options.keep_alive / 2;
        let at = (!half.is_zero()).then(|| context.time.after(half));
        (self.at, self.answer_by) = (at, Duration::MAX);
    }

    /// The session ends, or the controller was told to shut down: its timer stops.
    pub(super) fn stop(&mut self) {
        self.at = None;
    }

    /// Sends one where it is due.
    ///
    /// # Errors
    /// One is not answered within the Keep Alive Timeout.
    pub(super) fn step<P: Port>(
        &mut self,
        queues: &Queues,
        data: &AdminData,
        context: &mut Context<P>,
    ) -> Result<(), HostFailure> {
        if self.at.is_none_or(|at| context.time.now() < at) {
            return Ok(());
        }
        if context.is_in_flight(AdminSlot::KeepAlive) {
            let late = context.time.has_passed(self.answer_by);
            return if late { Err(HostFailure::KeepAlive { stood_still: context.time.stood_still() }) } else { Ok(()) };
        }
        let (admin, asked) = (queues.connection(QueueOf::Admin), Asked::plain(Command::KeepAlive));
        // Where the engine has no room, the next poll tries again.
        if data.send(admin, AdminSlot::KeepAlive, asked, context).is_ok() {
            let period = context.options.keep_alive;
            self.sent += 1;
            (self.at, self.answer_by) = (Some(context.time.after(period / 2)), context.time.deadline_in(period));
        }
        Ok(())
    }

    /// When the next one is due, by the caller's time, or when the one in flight has to be answered, in watched time.
    pub(super) fn due<P: Port>(&self, context: &Context<P>) -> (Option<Duration>, Option<Duration>) {
        match self.at {
            Some(_) if context.is_in_flight(AdminSlot::KeepAlive) => (None, Some(self.answer_by)),
            at => (at, None),
        }
    }
}
