//! What one core carries: the target, the host, or both.

use super::{
    host_side::HostSide, host_team::News, progress::IoCounters, report::MemoryReport, target_side::TargetSide,
};
use crate::job::Tally;
use frwr_engine::provider::Port;
use frwr_nvmf::controller::TargetMessage;
use frwr_reactor::{Context, Now, Outbox, Source};

/// What cores tell each other; data goes through the wire only.
#[derive(Debug)]
pub(super) enum Message {
    /// Between the cores of one target, whose numbers are those of their reactors.
    Target {
        /// Of which of its devices.
        device: u16,
        /// What.
        message: TargetMessage,
    },
    /// Between cores that share a host's controller and job.
    Host {
        /// In which of the jobs that such cores have.
        job: u16,
        /// Which of them says it.
        from: u16,
        /// What.
        news: News,
    },
}

/// The context of a reactor.
pub(super) struct Core<T: Port, H: Port> {
    /// On the only device that is served, or the first.
    pub(super) target: Option<TargetSide<T>>,
    /// On further devices, in their order.
    pub(super) others: Vec<TargetSide<T>>,
    /// One for each namespace of a load.
    pub(super) hosts: Vec<HostSide<H>>,
    pub(super) outbox: Outbox<Message>,
}

impl<T: Port, H: Port> Core<T, H> {
    /// The target on one of the devices.
    fn target_on(&mut self, device: u16) -> Option<&mut TargetSide<T>> {
        match usize::from(device).checked_sub(1) {
            None => self.target.as_mut(),
            Some(other) => self.others.get_mut(other),
        }
    }

    /// What it carries, for reports.
    pub(super) fn role(&self) -> &'static str {
        match (&self.target, self.hosts.is_empty()) {
            (Some(_), false) => "target+host",
            (Some(_), true) => "target",
            (None, _) => "host",
        }
    }

    /// What its memory is made of. The host's where it carries both: its keys are what the run is about.
    pub(super) fn memory(&self) -> Option<&MemoryReport> {
        let host = self.hosts.first().map(HostSide::memory);
        host.or(self.target.as_ref().map(TargetSide::memory))
    }

    /// What its host has moved, as far as it counts, or where it has none, the hosts of its target.
    pub(super) fn counted(&self) -> IoCounters {
        let of = |tally: &Tally| IoCounters { commands: tally.requests(), bytes: tally.bytes() };
        let hosts = self.hosts.iter().map(|host| host.tally().map(of).unwrap_or_default());
        let host = hosts.reduce(|sum, host| sum + host);
        let target = self.target.iter().chain(&self.others).map(TargetSide::io).reduce(|sum, one| sum + one);
        host.or(target).unwrap_or_default()
    }
}

impl<T: Port, H: Port> Context for Core<T, H> {
    type Message = Message;

    fn message(&mut self, source: Source, message: Message, _: &Now) {
        match (message, source) {
            (Message::Target { device, message }, Source::Core(core)) => {
                if let Some(target) = self.target_on(device) {
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
