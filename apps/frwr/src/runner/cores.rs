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
    Target(TargetMessage),
    /// Between cores that share a host's controller and job.
    Host {
        /// Which of them says it.
        from: u16,
        /// What.
        news: News,
    },
}

/// The context of a reactor.
pub(super) struct Core<T: Port, H: Port> {
    pub(super) target: Option<TargetSide<T>>,
    pub(super) host: Option<HostSide<H>>,
    pub(super) outbox: Outbox<Message>,
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

    /// What its host has moved, as far as it counts, or where it has none, the hosts of its target.
    pub(super) fn counted(&self) -> IoCounters {
        let of = |tally: &Tally| IoCounters { commands: tally.requests(), bytes: tally.bytes() };
        let host = self.host.as_ref().map(|host| host.tally().map(of).unwrap_or_default());
        host.or(self.target.as_ref().map(TargetSide::io)).unwrap_or_default()
    }
}

impl<T: Port, H: Port> Context for Core<T, H> {
    type Message = Message;

    fn message(&mut self, source: Source, message: Message, _: &Now) {
        match (message, source) {
            (Message::Target(message), Source::Core(core)) => {
                if let Some(target) = &mut self.target {
                    target.deliver(core, message);
                }
            }
            (Message::Host { from, news }, _) => {
                if let Some(host) = &mut self.host {
                    host.hear(from, news);
                }
            }
            // No thread of this program but the reactors sends any.
            (Message::Target(_), Source::Foreign(_)) => {}
        }
    }
}
