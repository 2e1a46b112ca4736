//! Asynchronous events (Base 5.2): requests that wait for one, and what has happened since.

use super::Target;
use super::command::{Data, Phase, Reply, Slot, Work};
use crate::nvmf::{IdentifyController, log_page};
use crate::storage::Storage;
use arrayvec::ArrayVec;
use frwr_engine::provider::Port;

/// Event requests that a controller keeps, as Linux's own target takes.
pub(super) const MAX_EVENT_REQUESTS: usize = 4;

/// Type of an event that can be switched on (Base figure 146).
const NOTICE: u64 = 2;

/// What a controller may tell its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A namespace became active or inactive.
    NamespaceChanged,
    /// An ANA state changed.
    AnaChanged,
}

impl Notice {
    const ALL: [Self; 2] = [Self::NamespaceChanged, Self::AnaChanged];
    /// The bits of OAES, and of the Asynchronous Event Configuration, for all of them.
    pub(super) const SUPPORTED: u32 = IdentifyController::NAMESPACE_EVENTS | IdentifyController::ANA_EVENTS;

    /// Its bit in OAES, the configuration, and the sets here.
    fn bit(self) -> u32 {
        match self {
            Self::NamespaceChanged => IdentifyController::NAMESPACE_EVENTS,
            Self::AnaChanged => IdentifyController::ANA_EVENTS,
        }
    }

    /// The log page that explains it; reading that page lets the next one through.
    fn page(self) -> u8 {
        match self {
            Self::NamespaceChanged => log_page::CHANGED_NAMESPACES,
            Self::AnaChanged => log_page::ANA,
        }
    }

    /// Dword 0 of the completion (Base figures 145 and 149): type, information, log page.
    fn result(self) -> u64 {
        let information = match self {
            Self::NamespaceChanged => 0,
            Self::AnaChanged => 3,
        };
        NOTICE | information << 8 | u64::from(self.page()) << 16
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

    /// Takes a request back that shall be aborted.
    pub(super) fn withdraw(&mut self, command_id: u16) -> bool {
        let found = self.waiting.iter().position(|id| *id == command_id);
        found.is_some_and(|at| self.waiting.pop_at(at).is_some())
    }

    /// A reset forgets everything; how many requests waited.
    pub(super) fn reset(&mut self) -> u16 {
        // At most MAX_EVENT_REQUESTS.
        let waited = self.waiting.len() as u16;
        *self = Self::default();
        waited
    }

    fn raise(&mut self, notice: Notice) {
        self.pending |= notice.bit() & self.configuration;
    }

    /// The page was read, and its event not retained.
    pub(super) fn read(&mut self, page: u8) {
        for notice in Notice::ALL.iter().filter(|notice| notice.page() == page) {
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
