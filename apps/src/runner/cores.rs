//! What one core carries: the target, the host, or both.

use super::{host_side::HostSide, target_side::TargetSide};
use core::{convert::Infallible, time::Duration};
use frwr_engine::provider::Port;
use frwr_reactor::{Context, Source};

/// The context of a reactor.
pub(super) struct Core<T: Port, H: Port> {
    pub(super) target: Option<TargetSide<T>>,
    pub(super) host: Option<HostSide<H>>,
}

impl<T: Port, H: Port> Core<T, H> {
    /// What it carries, for reports.
    pub(super) fn role(&self) -> &'static str {
        match (&self.target, &self.host) {
            (Some(_), Some(_)) => "target+host",
            (Some(_), None) => "target",
            (None, _) => "host",
        }
    }
}

impl<T: Port, H: Port> Context for Core<T, H> {
    /// The cores talk through the wire only.
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: Duration) {
        match message {}
    }
}
