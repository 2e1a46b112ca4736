//! The life of a queue pair as Control sees it: domain, queue pair, connection manager, error state, destruction.

use super::{Control, Pending};
use crate::{
    event::OpenFailure,
    link::{OpenOptions, OpenTarget, ToCore},
    mr::ConnectionKey,
    provider::{Command, CommandError, ConnectionEvent, Device, Errno, PrivateData, QueuePairId, RejectReason},
};
use frwr_mempool::mutant;

/// How far a queue pair has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its domain and base registrations are being made.
    Domain,
    /// It is being made.
    QueuePair,
    /// Its core posts the receives.
    Receives,
    /// The connection manager is at work.
    Connecting,
    /// It works.
    Open,
    /// It is being moved, or was moved, to the error state; the connection manager is no longer listened to.
    Failed,
    /// It could not be opened and is being destroyed.
    Aborting { reason: OpenFailure, private_data: PrivateData },
    /// It is being destroyed. Where it may still work its core waits for that.
    Closing { may_work: bool },
    /// The device keeps it, but it reaches nothing any more, and its connection has ended: its name is nobody's.
    Left,
}

/// One queue pair.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) core: usize,
    pub(super) connection: ConnectionKey,
    pub(super) target: OpenTarget,
    pub(super) options: OpenOptions,
    pub(super) private_data: PrivateData,
    pub(super) domain: usize,
    pub(super) queue_pair: Option<QueuePairId>,
    pub(super) stage: Stage,
    /// The device refused to move it to the error state.
    pub(super) not_failed: bool,
    /// Polls before its destruction is tried again; 0 as long as the device did not refuse that.
    pub(super) retry_after: u32,
    /// What it weighs on its core (`Placed::weight`).
    pub(super) weight: u32,
}

impl Link {
    /// It has, or will have, the base registrations of its domain as they were when its queue pair was made; what comes later is told.
    pub(super) fn has_bases(&self) -> bool {
        matches!(self.stage, Stage::Receives | Stage::Connecting | Stage::Open)
    }
}

impl<D: Device> Control<D> {
    pub(super) fn find(&self, core: usize, connection: ConnectionKey) -> Option<usize> {
        self.links.iter().position(|link| {
            let is_meant =
                |link: &Link| link.core == core && link.connection == connection && link.stage != Stage::Left;
            link.as_ref().is_some_and(is_meant)
        })
    }

    pub(super) fn find_queue_pair(&self, queue_pair: QueuePairId) -> Option<usize> {
        self.links.iter().position(|link| link.as_ref().is_some_and(|link| link.queue_pair == Some(queue_pair)))
    }

    pub(super) fn open(
        &mut self,
        core: usize,
        connection: ConnectionKey,
        target: OpenTarget,
        options: OpenOptions,
        private_data: PrivateData,
        weight: u32,
    ) {
        let domain = self.domain_for(options.own_domain);
        let stage = Stage::Domain;
        let link = Link {
            core,
            connection,
            target,
            options,
            private_data,
            domain,
            queue_pair: None,
            stage,
            not_failed: false,
            retry_after: 0,
            weight,
        };
        let at = match self.links.iter().position(Option::is_none) {
            Some(vacant) => {
                self.links[vacant] = Some(link);
                vacant
            }
            None => {
                self.links.push(Some(link));
                self.links.len() - 1
            }
        };
        self.advance(at);
    }

    /// Asks for the next thing that a queue pair needs before it can be made.
    pub(super) fn advance(&mut self, at: usize) {
        let Some(link) = self.links[at].as_ref().filter(|link| link.stage == Stage::Domain) else { return };
        let OpenOptions { sizes, shared_receives, .. } = link.options;
        let (domain, core) = (link.domain, link.core);
        if !self.prepare_domain(domain, core) {
            return;
        }
        let shared_receives = match shared_receives {
            None => None,
            Some(entries) => match self.prepare_shared_receives(core, entries) {
                None => return,
                made => made,
            },
        };
        let Some(id) = self.domains[domain].as_ref().and_then(|domain| domain.id) else { return };
        let port = self.cores[core].port;
        self.set_stage(at, Stage::QueuePair);
        self.command(
            Command::CreateQueuePair { port, domain: id, sizes, shared_receives },
            Pending::QueuePair { link: at },
        );
    }

    /// Something that queue pairs of a domain wait for was made, or could not be: those of one core, or of all.
    pub(super) fn domain_changed(&mut self, domain: usize, core: Option<usize>, made: Result<(), CommandError>) {
        for at in 0..self.links.len() {
            let waits = self.links[at].as_ref().is_some_and(|link| {
                // A shared receive queue is made in the domain that connections share, whichever its queue pairs' is.
                let needs =
                    link.domain == domain || (link.options.shared_receives.is_some() && self.shared == Some(domain));
                needs && link.stage == Stage::Domain && core.is_none_or(|core| link.core == core)
            });
            match made {
                Ok(()) if waits => self.advance(at),
                Err(error) if waits => self.abort(at, not_made(error), PrivateData::new()),
                _ => {}
            }
        }
    }

    pub(super) fn set_stage(&mut self, at: usize, stage: Stage) {
        if let Some(link) = self.links[at].as_mut() {
            link.stage = stage;
        }
    }

    pub(super) fn receives_posted(&mut self, core: usize, connection: ConnectionKey) {
        let Some(at) = self.find(core, connection) else { return };
        let Some(link) = self.links[at].as_mut() else { return };
        let Some(queue_pair) = link.queue_pair.filter(|_| link.stage == Stage::Receives) else { return };
        link.stage = Stage::Connecting;
        let (private_data, parameters) = (link.private_data.clone(), link.options.parameters);
        let command = match link.target {
            OpenTarget::Address(address) => Command::Connect { queue_pair, address, private_data, parameters },
            OpenTarget::Incoming(incoming) => Command::Accept { incoming, queue_pair, private_data, parameters },
        };
        self.command(command, Pending::Connect { core, connection });
    }

    pub(super) fn connection_event(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Request { listener, incoming, peer, local, private_data, .. } => {
                self.connect_request(listener, incoming, [peer, local], private_data);
            }
            ConnectionEvent::Established { queue_pair, private_data } => self.established(queue_pair, private_data),
            ConnectionEvent::Rejected { queue_pair, private_data, reason } => {
                let failure = match reason {
                    RejectReason::NoListener => OpenFailure::Unreachable(Errno::ECONNREFUSED),
                    RejectReason::Consumer => OpenFailure::Rejected,
                    RejectReason::Stale => OpenFailure::Stale,
                };
                self.not_connected(queue_pair, failure, private_data);
            }
            ConnectionEvent::Unreachable { queue_pair, errno } => {
                self.not_connected(queue_pair, OpenFailure::Unreachable(errno), PrivateData::new());
            }
            ConnectionEvent::Disconnected { queue_pair } => self.queue_pair_ended(queue_pair, false),
        }
    }

    fn established(&mut self, queue_pair: QueuePairId, private_data: PrivateData) {
        let Some(at) = self.find_queue_pair(queue_pair) else { return };
        let Some(link) = self.links[at].as_mut().filter(|link| link.stage == Stage::Connecting) else { return };
        link.stage = Stage::Open;
        let (core, connection) = (link.core, link.connection);
        self.tell(core, ToCore::Established { connection, private_data });
    }

    /// The device refused to begin with connecting or accepting.
    pub(super) fn not_begun(&mut self, core: usize, connection: ConnectionKey, error: CommandError) {
        let Some(at) = self.find(core, connection) else { return };
        let Some(link) = self.links[at].as_ref() else { return };
        let is_awaited = link.stage == Stage::Connecting;
        if let OpenTarget::Incoming(incoming) = link.target {
            // The peer may still wait for an answer, also where our core does not any more; one that has gone cannot be told,
            // which changes nothing.
            self.command(Command::Reject { incoming, private_data: PrivateData::new() }, Pending::Nothing);
        }
        if !is_awaited {
            return;
        }
        let reason = match error {
            CommandError::Exhausted(_) | CommandError::LockedMemory { .. } => not_made(error),
            CommandError::Busy(errno)
            | CommandError::Invalid(errno)
            | CommandError::Address(errno)
            | CommandError::DeviceGone(errno) => OpenFailure::Unreachable(errno),
            CommandError::Unknown => OpenFailure::Unreachable(Errno::EINVAL),
        };
        self.abort(at, reason, PrivateData::new());
    }

    fn not_connected(&mut self, queue_pair: QueuePairId, reason: OpenFailure, private_data: PrivateData) {
        let Some(at) = self.find_queue_pair(queue_pair) else { return };
        let Some(link) = self.links[at].as_ref().filter(|link| link.stage == Stage::Connecting) else { return };
        if link.options.shared_receives.is_some() && matches!(link.target, OpenTarget::Incoming(_)) {
            // It was accepted, so its peer may have sent already: its core drains it, or shared receives would go with it.
            return self.queue_pair_ended(queue_pair, false);
        }
        self.abort(at, reason, private_data);
    }

    /// Gives a queue pair up before it ever worked.
    pub(super) fn abort(&mut self, at: usize, reason: OpenFailure, private_data: PrivateData) {
        let Some(link) = self.links[at].as_mut() else { return };
        link.stage = Stage::Aborting { reason, private_data };
        if link.queue_pair.is_some() { self.destroy_queue_pair(at) } else { self.destroyed(at) }
    }

    /// The connection manager or the device says that a queue pair no longer works; its core acts, once (D27).
    pub(super) fn queue_pair_ended(&mut self, queue_pair: QueuePairId, by_device: bool) {
        let Some(at) = self.find_queue_pair(queue_pair) else { return };
        let Some(link) = self.links[at].as_ref() else { return };
        // Mutant: whoever ends by itself while the connection manager works is not told.
        if matches!(link.stage, Stage::Receives | Stage::Connecting | Stage::Open)
            && !(mutant!(ended_while_connecting) && link.stage == Stage::Connecting)
        {
            let (core, connection) = (link.core, link.connection);
            self.tell(core, ToCore::Ended { connection, by_device });
        }
    }

    /// Every queue pair of a port, or of the device, no longer works.
    pub(super) fn all_ended(&mut self, port: Option<crate::provider::PortId>) {
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_ref() else { continue };
            let concerned = port.is_none_or(|port| self.cores[link.core].port == port);
            if let Some(queue_pair) = link.queue_pair.filter(|_| concerned) {
                self.queue_pair_ended(queue_pair, true);
            }
        }
    }

    /// A core wants its queue pair in the error state, and the peer told.
    pub(super) fn fail(&mut self, core: usize, connection: ConnectionKey) {
        let Some(at) = self.find(core, connection) else { return };
        let Some(link) = self.links[at].as_mut() else { return };
        let Some(queue_pair) = link.queue_pair else { return };
        if matches!(link.stage, Stage::Aborting { .. } | Stage::Closing { .. }) {
            return;
        }
        let unanswered = match link.target {
            OpenTarget::Incoming(incoming) if link.stage == Stage::Receives => Some(incoming),
            _ => None,
        };
        link.stage = Stage::Failed;
        if let Some(incoming) = unanswered {
            // Its core gave up before the accept: the peer still waits for an answer.
            self.command(Command::Reject { incoming, private_data: PrivateData::new() }, Pending::Nothing);
        }
        self.command(Command::Disconnect { queue_pair }, Pending::Nothing);
        if mutant!(fail_without_error_state) {
            return self.tell(core, ToCore::Failed { connection, refused: false });
        }
        self.command(Command::FailQueuePair { queue_pair }, Pending::Fail { core, connection });
    }

    /// A core is done with its queue pair.
    pub(super) fn close(&mut self, core: usize, connection: ConnectionKey, may_work: bool) {
        let Some(at) = self.find(core, connection) else { return };
        let Some(link) = self.links[at].as_mut() else { return };
        link.stage = Stage::Closing { may_work: may_work || link.not_failed };
        // S6: the domain and what is registered in it go in front of the queue pair.
        let domain = link.domain;
        if mutant!(S6_domain) {
            self.leave_domain(domain);
        }
        self.destroy_queue_pair(at);
    }

    /// A queue pair is destroyed, or never was.
    pub(super) fn destroyed(&mut self, at: usize) {
        let Some(link) = self.links[at].take() else { return };
        if !mutant!(S10_domain) {
            self.leave_domain(link.domain);
        }
        let connection = link.connection;
        match link.stage {
            Stage::Aborting { reason, private_data } => {
                if let OpenTarget::Incoming(incoming) = link.target
                    && link.queue_pair.is_none()
                {
                    // Nobody will answer the peer any more.
                    self.command(Command::Reject { incoming, private_data: PrivateData::new() }, Pending::Nothing);
                }
                self.tell(link.core, ToCore::OpenFailed { connection, reason, private_data });
            }
            // Told when the device refused.
            Stage::Left => {}
            _ => self.tell(link.core, ToCore::Closed { connection }),
        }
    }
}

/// Why a connection has no queue pair, or nothing for it to stand on.
pub(super) fn not_made(error: CommandError) -> OpenFailure {
    match error {
        CommandError::LockedMemory { wanted, limit } => OpenFailure::LockedMemory { wanted, limit },
        other => OpenFailure::NotMade(other),
    }
}
