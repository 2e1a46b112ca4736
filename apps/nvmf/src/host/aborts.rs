//! The Abort of the admin queue, of which one is in flight at a time (Base 5.1).

use super::admin_data::{AdminData, Asked};
use super::context::Context;
use super::options::AdminSlot;
use super::queues::{QueueOf, Queues};
use crate::wire::{Abort, Command};
use core::time::Duration;
use frwr_engine::provider::Port;

/// When it has to be answered: nothing else would end the wait of whoever needs the next one.
#[derive(Debug, Default)]
pub(super) struct Aborts {
    /// Of the last one that was sent, in watched time.
    by: Duration,
    sent: u64,
}

impl Aborts {
    /// How many were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Asks the controller to abort a command; false where that cannot be said now.
    pub(super) fn send<P: Port>(
        &mut self,
        queue_id: u16,
        command_id: u16,
        queues: &Queues,
        data: &AdminData,
        context: &mut Context<P>,
    ) -> bool {
        let asked = Asked::plain(Command::Abort(Abort { queue_id, command_id }));
        let admin = queues.connection(QueueOf::Admin);
        if context.is_in_flight(AdminSlot::Abort) || data.send(admin, AdminSlot::Abort, asked, context).is_err() {
            return false;
        }
        self.sent += 1;
        // The command itself has half of it, wherever its queue is, and says better what was wrong.
        self.by = context.time.deadline_in(context.options.step_timeout.saturating_mul(2));
        true
    }

    /// When the one in flight is too late.
    pub(super) fn late_at<P: Port>(&self, context: &Context<P>) -> Option<Duration> {
        context.is_in_flight(AdminSlot::Abort).then_some(self.by)
    }
}
