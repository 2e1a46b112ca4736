//! What a part of the host is given for a call.

use super::options::{AdminSlot, HostOptions};
use super::time::Time;
use super::transport::Transport;
use frwr_engine::provider::Port;

/// The same for all parts, and none of theirs.
pub(super) struct Context<P: Port> {
    pub(super) transport: Transport<P>,
    pub(super) time: Time,
    pub(super) options: HostOptions,
}

impl<P: Port> Context<P> {
    /// A command of the admin queue is in flight.
    pub(super) fn is_in_flight(&self, slot: AdminSlot) -> bool {
        self.transport.commands().is_in_flight(self.options.admin_slot(slot))
    }
}
