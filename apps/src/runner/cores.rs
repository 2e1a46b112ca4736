//! What one core carries: the target, the host, or both.

use super::{host_side::HostSide, report::MemoryReport, target_side::TargetSide};
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

    /// What its memory is made of. The host's where it carries both: its keys are what the run is about.
    pub(super) fn memory(&self) -> Option<&MemoryReport> {
        let host = self.host.as_ref().map(HostSide::memory);
        host.or(self.target.as_ref().map(TargetSide::memory))
    }

    /// Requests ended, or commands answered where it has no host.
    pub(super) fn requests(&self) -> u64 {
        let host = self.host.as_ref().map(HostSide::requests);
        host.or(self.target.as_ref().map(TargetSide::commands)).unwrap_or(0)
    }
}

impl<T: Port, H: Port> Context for Core<T, H> {
    /// The cores talk through the wire only.
    type Message = Infallible;

    fn message(&mut self, _: Source, message: Infallible, _: Duration) {
        match message {}
    }
}
