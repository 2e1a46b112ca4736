//! Asynchronous events (Base 5.2): requests that wait for one, and what has happened since.

use super::Target;
use super::command::{Data, Phase, Reply, Slot, Work};
use super::controllers::Controller;
use crate::storage::Storage;
use crate::wire::{IdentifyController, Nqn, SubmissionQueueEntry, log_page, opcode};
use arrayvec::ArrayVec;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;

/// Event requests that a controller keeps, as Linux's own target takes.
pub(super) const MAX_EVENT_REQUESTS: usize = 4;

/// Types of events (Base figure 145).
const NOTICE: u64 = 2;
const IMMEDIATE: u64 = 3;

/// What a controller may tell its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A namespace became active or inactive, or has another size.
    NamespaceChanged,
    /// An ANA state changed.
    AnaChanged,
    /// The discovery log says something else.
    DiscoveryChanged,
    /// The subsystem shuts down.
    Shutdown,
}

impl Notice {
    const ALL: [Self; 4] = [Self::NamespaceChanged, Self::AnaChanged, Self::DiscoveryChanged, Self::Shutdown];
    /// The bits of OAES, and of the Asynchronous Event Configuration, for all that an I/O controller tells.
    pub(super) const SUPPORTED: u32 =
        IdentifyController::NAMESPACE_EVENTS | IdentifyController::ANA_EVENTS | IdentifyController::SHUTDOWN_EVENTS;
    /// The same for a discovery controller.
    pub(super) const OF_DISCOVERY: u32 = IdentifyController::DISCOVERY_EVENTS;

    /// Its bit in OAES, the configuration, and the sets here.
    fn bit(self) -> u32 {
        match self {
            Self::NamespaceChanged => IdentifyController::NAMESPACE_EVENTS,
            Self::AnaChanged => IdentifyController::ANA_EVENTS,
            Self::DiscoveryChanged => IdentifyController::DISCOVERY_EVENTS,
            Self::Shutdown => IdentifyController::SHUTDOWN_EVENTS,
        }
    }

    /// The log page that explains it; reading that page lets the next one through.
    fn page(self) -> Option<u8> {
        match self {
            Self::NamespaceChanged => Some(log_page::CHANGED_NAMESPACES),
            Self::AnaChanged => Some(log_page::ANA),
            Self::DiscoveryChanged => Some(log_page::DISCOVERY),
            Self::Shutdown => None,
        }
    }

    /// It is told when it happens or never.
    fn is_immediate(self) -> bool {
        self == Self::Shutdown
    }

    /// Dword 0 of the completion (Base figures 145, 149 and 151): type, information, log page.
    fn result(self) -> u64 {
        let (event, information) = match self {
            Self::NamespaceChanged => (NOTICE, 0),
            Self::AnaChanged => (NOTICE, 3),
            Self::DiscoveryChanged => (NOTICE, 0xf0),
            Self::Shutdown => (IMMEDIATE, 0),
        };
        event | information << 8 | u64::from(self.page().unwrap_or(0)) << 16
    }
}

/// The events of one controller.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Command identifiers of requests that wait.
    waiting: ArrayVec<u16, MAX_EVENT_REQUESTS>,
    /// What the host switched on.
    pub(super) configuration: u32,
    /// Happened and not told.
    pending: u32,
    /// Told, and its log page was not read since.
    masked: u32,
}

impl Events {
    /// Keeps a request. False where as many wait already.
    pub(super) fn keep(&mut self, command_id: u16) -> bool {
        self.waiting.try_push(command_id).is_ok()
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> u16 {
        // At most MAX_EVENT_REQUESTS.
        self.waiting.len() as u16
    }

    /// Takes a request back that shall be aborted.
    pub(super) fn withdraw(&mut self, command_id: u16) -> bool {
        let found = self.waiting.iter().position(|id| *id == command_id);
        found.is_some_and(|at| self.waiting.pop_at(at).is_some())
    }

    /// A reset forgets everything; the identifiers of the requests that waited.
    pub(super) fn reset(&mut self) -> ArrayVec<u16, MAX_EVENT_REQUESTS> {
        core::mem::take(self).waiting
    }

    fn raise(&mut self, notice: Notice) {
        if notice.is_immediate() && self.waiting.is_empty() {
            return;
        }
        self.pending |= notice.bit() & self.configuration;
    }

    /// The page was read, and its event not retained.
    pub(super) fn read(&mut self, page: u8) {
        for notice in Notice::ALL.iter().filter(|notice| notice.page() == Some(page)) {
            self.masked &= !notice.bit();
            self.pending &= !notice.bit();
        }
    }

    /// An event to tell now, and the request that it answers.
    fn next(&mut self) -> Option<(u16, Notice)> {
        let tellable = self.pending & !self.masked;
        let notice = *Notice::ALL.iter().find(|notice| tellable & notice.bit() != 0)?;
        let command_id = self.waiting.pop_at(0)?;
        self.pending &= !notice.bit();
        self.masked |= notice.bit();
        Some((command_id, notice))
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Something happened to a subsystem: its controllers tell their hosts, now or when they ask.
    pub(super) fn raise(&mut self, subsystem: usize, notice: Notice) {
        for index in 0..self.controllers.len() {
            let Some(Some(controller)) = self.controllers.get_mut(index) else { continue };
            if controller.subsystem() == Some(subsystem) {
                controller.events.raise(notice);
                self.tell(index);
            }
        }
    }

    /// A host that uses the identifier of an event request for another command has forgotten that request, which is never answered then.
    /// SPDK's host forgets all of them before it shuts its controller down, and takes their identifiers for that.
    pub(super) fn forgets_event_request(&mut self, connection: ConnectionId, entry: &SubmissionQueueEntry) -> bool {
        if entry.opcode == opcode::ASYNCHRONOUS_EVENT_REQUEST {
            return false;
        }
        let command_id = entry.command_id.get();
        let is_admin = |controller: &&mut Controller| controller.admin == Some(connection);
        let found = self.controllers.iter_mut().flatten().find(is_admin);
        let forgotten = found.is_some_and(|controller| controller.events.withdraw(command_id));
        if forgotten && let Some(queue) = self.queue_mut(connection) {
            queue.outstanding = queue.outstanding.saturating_sub(1);
        }
        forgotten
    }

    /// The discovery log says something else to hosts that `concerns` names.
    pub(super) fn raise_discovery(&mut self, concerns: impl Fn(Option<Nqn>) -> bool) {
        for index in 0..self.controllers.len() {
            let Some(Some(controller)) = self.controllers.get_mut(index) else { continue };
            if controller.subsystem().is_none() && concerns(controller.host) {
                controller.events.raise(Notice::DiscoveryChanged);
                self.tell(index);
            }
        }
    }

    /// Tells hosts that asked for it that their subsystems shut down (Base 3.6.3).
    pub(super) fn announce_shutdown(&mut self) {
        for subsystem in 0..self.subsystems.len() {
            self.raise(subsystem, Notice::Shutdown);
        }
    }

    /// Answers are on their way that hosts wait for outside of I/O, such as those of [`Target::announce_shutdown`].
    pub(super) fn is_answering(&self) -> bool {
        self.slots.answers()
    }

    /// Answers event requests that something is known for.
    pub(super) fn tell(&mut self, controller: usize) {
        loop {
            let Some(Some(found)) = self.controllers.get_mut(controller) else { return };
            // The request keeps its slot in the queue, so there is a command slot for its answer.
            if !found.is_ready() || self.slots.is_full() {
                return;
            }
            let Some((command_id, notice)) = found.events.next() else { return };
            self.statistics.events += 1;
            self.answer(controller, command_id, Reply::result(notice.result()));
        }
    }

    /// Answers a command of the admin queue that has no slot.
    pub(super) fn answer(&mut self, controller: usize, command_id: u16, reply: Reply) {
        let Some(Some(found)) = self.controllers.get(controller) else { return };
        let Some(admin) = found.admin else { return };
        let slot = Slot { phase: Phase::Reply(reply), ..Slot::new(admin, command_id, Work::Nothing, Data::None) };
        if let Some(index) = self.slots.insert(slot) {
            self.advance(index);
        }
    }
}
