//! The cold half: objects, commands to ports, answers.

use super::bases::Base;
use super::fabric::{DeviceNumber, SoftFabric};
use super::link::{Incoming, Link};
use super::nic::{Report, SoftMonitor};
use super::port::{Numbered, PortCommand, Sleep, SoftPort};
use super::profile::SoftOptions;
use super::sockets::Gateway;
use crate::provider::{
    Answer, AsyncEvent, BaseId, Capabilities, Command, CommandError, Device, DeviceEvent, DomainId, IncomingId,
    ListenerId, PortId, QueuePairId, RegistrationId, SharedReceiveQueueId, Ticket,
};
use frwr_mempool::lane::{self, Receiver, Sender};
use frwr_mempool::{Bell, Full};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Commands and reports that a port's lanes hold.
const LANE_ENTRIES: usize = 256;
/// Commands that may wait for room in a port's lane, and events for `poll`, before the device takes no more commands.
const BACKLOG: usize = 256;
/// Ports of one device: a port is a core.
const MAX_PORTS: usize = 1024;

/// One port, seen from the device.
pub(super) struct PortHandle {
    commands: Sender<Numbered>,
    reports: Receiver<Report>,
    backlog: VecDeque<Numbered>,
    /// Numbers of commands that the port has not answered, in order.
    outstanding: VecDeque<u64>,
    /// The port's.
    bell: Arc<Bell>,
}

/// What happens when all ports have executed a command.
pub(super) enum Effect {
    Answer(Answer),
    QueuePairRemoved(QueuePairId),
    /// A shared receive queue of this domain.
    SharedReceiveQueueRemoved(DomainId),
    RegistrationRemoved(RegistrationId),
    BaseRetired(u32),
    BaseRestored,
    BaseRemoved(u32),
    /// The passive side's end of the wire is in place.
    Accepted(QueuePairId),
    /// The active side's end of the wire is in place.
    Connected(QueuePairId),
    /// What moves its packets to and from another process is in place.
    Bridged(QueuePairId),
}

/// A command that ports are executing.
pub(super) struct Pending {
    pub(super) ticket: Option<Ticket>,
    pub(super) effect: Effect,
    awaited: usize,
    refused: bool,
    port_gone: bool,
}

/// A queue pair, seen from the device.
pub(super) struct QueuePairRecord {
    pub(super) port: PortId,
    pub(super) domain: DomainId,
    pub(super) shared_receives: Option<SharedReceiveQueueId>,
    pub(super) link: Link,
}

/// A shared receive queue, seen from the device.
pub(super) struct SharedReceiveQueueRecord {
    pub(super) port: PortId,
    pub(super) domain: DomainId,
    /// Queue pairs that receive from it.
    pub(super) users: u32,
}

/// The cold half of a software NIC. One thread at a time; [`SoftFabric::device`] makes it.
pub struct SoftDevice {
    pub(super) fabric: SoftFabric,
    /// Where the fabric reaches other processes.
    pub(super) gateway: Option<Gateway>,
    pub(super) number: DeviceNumber,
    pub(super) options: SoftOptions,
    pub(super) monitor: SoftMonitor,
    pub(super) events: VecDeque<DeviceEvent>,
    pub(super) queue_pairs: BTreeMap<QueuePairId, QueuePairRecord>,
    pub(super) shared_receive_queues: BTreeMap<SharedReceiveQueueId, SharedReceiveQueueRecord>,
    pub(super) listeners: BTreeSet<ListenerId>,
    pub(super) incoming: BTreeMap<IncomingId, Incoming>,
    pub(super) names: super::names::Names,
    /// Domains, each with the number of objects that live in it.
    pub(super) domains: BTreeMap<DomainId, u32>,
    pub(super) bases: BTreeMap<u32, Base>,
    pub(super) registrations: BTreeMap<RegistrationId, (PortId, DomainId)>,
    ports: Vec<PortHandle>,
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
    told_removal: bool,
    /// Rung by ports behind reports.
    bell: Arc<Bell>,
}

impl core::fmt::Debug for SoftDevice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftDevice").field("number", &self.number).field("options", &self.options).finish()
    }
}

impl SoftFabric {
    /// A new NIC on this network.
    #[must_use]
    pub fn device(&self, options: SoftOptions) -> SoftDevice {
        SoftDevice::new(self.clone(), options)
    }
}

impl SoftDevice {
    fn new(fabric: SoftFabric, options: SoftOptions) -> Self {
        let number = fabric.join();
        let gateway = fabric.rendezvous().map(Gateway::new);
        Self {
            fabric,
            gateway,
            number,
            options: options.in_range(),
            monitor: SoftMonitor::default(),
            events: VecDeque::new(),
            queue_pairs: BTreeMap::new(),
            shared_receive_queues: BTreeMap::new(),
            listeners: BTreeSet::new(),
            incoming: BTreeMap::new(),
            names: super::names::Names::new(options.seed ^ u64::from(number.0)),
            domains: BTreeMap::new(),
            bases: BTreeMap::new(),
            registrations: BTreeMap::new(),
            ports: Vec::new(),
            pending: BTreeMap::new(),
            next_number: 0,
            told_removal: false,
            bell: Arc::default(),
        }
    }

    /// A view on the NIC for tests and statistics.
    #[must_use]
    pub fn monitor(&self) -> SoftMonitor {
        self.monitor.clone()
    }

    pub(super) fn answer(&mut self, ticket: Ticket, result: Result<Answer, CommandError>) {
        self.events.push_back(DeviceEvent::Answered { ticket, result });
    }

    pub(super) fn has_port(&self, port: PortId) -> bool {
        self.ports.get(port.0 as usize).is_some_and(|handle| !handle.commands.is_closed())
    }

    pub(super) fn port_exists(&self, port: PortId) -> bool {
        self.ports.get(port.0 as usize).is_some()
    }

    fn begin(&mut self, ticket: Option<Ticket>, effect: Effect, awaited: usize) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.pending.insert(number, Pending { ticket, effect, awaited, refused: false, port_gone: false });
        number
    }

    /// Tells one port.
    pub(super) fn tell(&mut self, port: PortId, ticket: Option<Ticket>, effect: Effect, command: PortCommand) {
        let number = self.begin(ticket, effect, 1);
        if let Some(handle) = self.ports.get_mut(port.0 as usize) {
            handle.outstanding.push_back(number);
            handle.backlog.push_back(Numbered { number, command });
        }
        self.exchange();
    }

    /// Tells every port.
    pub(super) fn tell_all(&mut self, ticket: Option<Ticket>, effect: Effect, command: impl Fn() -> PortCommand) {
        let number = self.begin(ticket, effect, self.ports.len());
        for handle in &mut self.ports {
            handle.outstanding.push_back(number);
            handle.backlog.push_back(Numbered { number, command: command() });
        }
        if self.ports.is_empty() {
            self.finish(number);
        }
        self.exchange();
    }

    /// Moves commands to the ports and reports from them.
    fn exchange(&mut self) {
        for index in 0..self.ports.len() {
            let gone = self.ports[index].commands.is_closed();
            self.push_backlog(index);
            while let Some(report) = self.ports[index].reports.pop() {
                self.hear(index, report);
            }
            if gone {
                self.ports[index].backlog.clear();
                while let Some(number) = self.ports[index].outstanding.pop_front() {
                    if let Some(pending) = self.pending.get_mut(&number) {
                        pending.port_gone = true;
                    }
                    self.finish(number);
                }
            }
        }
    }

    fn push_backlog(&mut self, index: usize) {
        let handle = &mut self.ports[index];
        let waited = handle.backlog.len();
        while let Some(command) = handle.backlog.pop_front() {
            if let Err(Full(command)) = handle.commands.push(command) {
                handle.backlog.push_front(command);
                break;
            }
        }
        if handle.backlog.len() < waited {
            handle.bell.ring();
        }
    }

    fn hear(&mut self, index: usize, report: Report) {
        let (number, refused) = match report {
            Report::Event(event) => return self.events.push_back(DeviceEvent::Async(event)),
            Report::Done(number) => (number, false),
            Report::Busy(number) => (number, true),
        };
        self.ports[index].outstanding.pop_front();
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.refused |= refused;
        }
        self.finish(number);
    }

    /// One port has executed a command; the last one ends it.
    fn finish(&mut self, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        pending.awaited = pending.awaited.saturating_sub(1);
        if pending.awaited > 0 {
            return;
        }
        if let Some(pending) = self.pending.remove(&number) {
            self.apply(pending);
        }
    }

    /// A deregistration failed: every port goes on with the base, those that were opened in the meantime too.
    fn restore_base(&mut self, ticket: Option<Ticket>, index: u32) {
        let Some(base) = self.bases.get_mut(&index) else { return };
        base.retiring = false;
        let base = base.clone();
        self.tell_all(ticket, Effect::BaseRestored, || PortCommand::RestoreBase(base.clone()));
    }

    /// The device was taken out: its owner is told, and whoever is connected to it.
    fn tell_removal(&mut self) {
        if core::mem::replace(&mut self.told_removal, true) {
            return;
        }
        self.leave();
        self.events.push_back(DeviceEvent::Async(AsyncEvent::DeviceFatal));
    }

    fn apply(&mut self, pending: Pending) {
        let Pending { ticket, effect, refused, port_gone, .. } = pending;
        let mut result = Ok(Answer::Done);
        match effect {
            Effect::Answer(answer) => {
                let creates = matches!(
                    answer,
                    Answer::QueuePair { .. } | Answer::SharedReceiveQueue { .. } | Answer::Registration { .. }
                );
                result = if port_gone && creates { Err(CommandError::DEVICE_GONE) } else { Ok(answer) };
            }
            Effect::QueuePairRemoved(id) => self.forget_queue_pair(id),
            Effect::SharedReceiveQueueRemoved(domain) => self.count_out(domain),
            Effect::RegistrationRemoved(object) => self.forget_registration(object),
            Effect::BaseRetired(index) if refused => {
                return self.restore_base(ticket, index);
            }
            Effect::BaseRetired(index) => {
                return self.tell_all(ticket, Effect::BaseRemoved(index), || PortCommand::RemoveBase(index));
            }
            Effect::BaseRestored => result = Err(CommandError::BUSY),
            Effect::BaseRemoved(index) => self.forget_base(index),
            Effect::Accepted(id) => self.wire_is_in_place(id, refused || port_gone, true),
            Effect::Connected(id) => self.wire_is_in_place(id, refused || port_gone, false),
            Effect::Bridged(id) if refused => {
                self.events.push_back(DeviceEvent::Async(AsyncEvent::QueuePairFatal(id)));
            }
            Effect::Bridged(_) => {}
        }
        if let Some(ticket) = ticket {
            self.answer(ticket, result);
        }
    }
}

impl Device for SoftDevice {
    type Port = SoftPort;

    fn capabilities(&self) -> &Capabilities {
        &self.options.capabilities
    }

    fn open_port(&mut self, send_entries: u32, receive_entries: u32) -> Result<SoftPort, CommandError> {
        let limit = self.options.capabilities.attributes.max_cqe;
        if send_entries == 0 || receive_entries == 0 {
            return Err(CommandError::INVALID);
        }
        if self.ports.len() >= MAX_PORTS || send_entries > limit || receive_entries > limit {
            return Err(CommandError::EXHAUSTED);
        }
        let id = PortId(self.ports.len() as u16);
        let (commands, port_commands) = lane::bounded(LANE_ENTRIES);
        let (port_reports, reports) = lane::bounded(LANE_ENTRIES);
        let entries = (send_entries, receive_entries);
        let monitor = self.monitor.clone();
        let bell = Arc::<Bell>::default();
        let (bell_of_port, device) = (Arc::clone(&bell), Arc::clone(&self.bell));
        let sleep = Sleep { bell: bell_of_port, device, network: self.fabric.sleeps(), waker: None };
        let mut port = SoftPort::new(id, self.options, entries, monitor, port_commands, port_reports, sleep);
        // What is being deregistered comes only if that fails.
        for base in self.bases.values().filter(|base| !base.retiring) {
            port.add_base(base.clone());
        }
        let (backlog, outstanding) = (VecDeque::new(), VecDeque::new());
        self.ports.push(PortHandle { commands, reports, backlog, outstanding, bell });
        Ok(port)
    }

    fn submit(&mut self, ticket: Ticket, command: Command) -> Result<(), Command> {
        self.exchange();
        if self.events.len() >= BACKLOG || self.ports.iter().any(|handle| handle.backlog.len() >= BACKLOG) {
            return Err(command);
        }
        if self.monitor.is_gone() {
            self.answer(ticket, Err(CommandError::DEVICE_GONE));
            return Ok(());
        }
        if let Err(error) = self.execute(ticket, command) {
            self.answer(ticket, Err(error));
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<DeviceEvent> {
        self.exchange();
        if self.monitor.is_removed() {
            self.tell_removal();
        }
        // Peers are heard once everything of before is told: what they send never piles up here.
        while self.events.is_empty() && (self.take_message() || self.hear_other_processes()) {}
        self.events.pop_front()
    }

    fn rings(&mut self, bell: &Arc<Bell>) -> bool {
        self.fabric.rings(self.number, bell);
        self.bell = Arc::clone(bell);
        true
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.gateway.as_ref().map(Gateway::descriptors).unwrap_or_default()
    }
}

/// The id of a base registration is the index in its key.
pub(super) const fn base_index(base: BaseId) -> u32 {
    base.0
}

impl Drop for SoftDevice {
    fn drop(&mut self) {
        self.leave();
    }
}
