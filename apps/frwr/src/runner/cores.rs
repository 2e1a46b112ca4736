//! What one core carries: the target, the host, or both.

use super::{
    host_side::HostSide, messages::Message, progress::IoCounters, report::MemoryReport, target_side::TargetSide,
};
use crate::job::Tally;
use frwr_engine::provider::Port;
use frwr_reactor::{Context, Now, Outbox, Running, Source};

/// The reactors' threads.
pub(super) type Threads<T, H> = Running<Message, Core<T, H>>;

/// The context of a reactor.
pub(super) struct Core<T: Port, H: Port> {
    /// On the only device that is served, or the first.
    pub(super) target: Option<TargetSide<T>>,
    /// On further devices, by their places behind the first, of which there are as many as there may be.
    pub(super) others: Vec<Option<TargetSide<T>>>,
    /// One for each namespace of a load.
    pub(super) hosts: Vec<HostSide<H>>,
    pub(super) outbox: Outbox<Message>,
}

impl<T: Port, H: Port> Core<T, H> {
    /// Where the target on a device of this place is, if there is one; `None` where there is no such place.
    pub(super) fn place(&mut self, place: usize) -> Option<&mut Option<TargetSide<T>>> {
        match place.checked_sub(1) {
            None => Some(&mut self.target),
            Some(other) => self.others.get_mut(other),
        }
    }

    /// Targets on all devices.
    fn targets(&self) -> impl Iterator<Item = &TargetSide<T>> {
        self.target.iter().chain(self.others.iter().flatten())
    }

    /// What it carries, for reports.
    pub(super) fn role(&self) -> &'static str {
        match (self.targets().next(), self.hosts.is_empty()) {
            (Some(_), false) => "target+host",
            (Some(_), true) => "target",
            (None, _) => "host",
        }
    }

    /// What its memory is made of. The host's where it carries both: its keys are what the run is about.
    pub(super) fn memory(&self) -> Option<&MemoryReport> {
        let host = self.hosts.first().map(HostSide::memory);
        host.or(self.targets().next().map(TargetSide::memory))
    }

    /// What its host has moved, as far as it counts, or where it has none, the hosts of its target.
    pub(super) fn counted(&self) -> IoCounters {
        let of = |tally: &Tally| IoCounters { commands: tally.requests(), bytes: tally.bytes() };
        let hosts = self.hosts.iter().map(|host| host.tally().map(of).unwrap_or_default());
        let host = hosts.reduce(|sum, host| sum + host);
        let target = self.targets().map(TargetSide::io).reduce(|sum, one| sum + one);
        host.or(target).unwrap_or_default()
    }
}

impl<T: Port, H: Port> Context for Core<T, H> {
    type Message = Message;

    fn message(&mut self, source: Source, message: Message, _: &Now) {
        match (message, source) {
            (Message::Target { device, message }, Source::Core(core)) => {
                if let Some(target) = self.place(device.into()).and_then(Option::as_mut) {
                    target.deliver(core, message);
                }
            }
            (Message::Host { job, from, news }, _) => {
                if let Some(host) = self.hosts.get_mut(usize::from(job)) {
                    host.hear(from, news);
                }
            }
            // No thread of this program but the reactors sends any.
            (Message::Target { .. }, Source::Foreign(_)) => {}
        }
    }
}
