//! Asynchronous events (Base 5.2): requests that wait for one, and what has happened since.

use crate::wire::{IdentifyController, log_page};
use arrayvec::ArrayVec;

/// Event requests that a controller keeps, as Linux's own target takes.
pub(in super::super) const MAX_EVENT_REQUESTS: usize = 4;

/// Types of events (Base figure 145).
const NOTICE: u64 = 2;
const IMMEDIATE: u64 = 3;
const COMMAND_SET: u64 = 6;

/// Events that no bit of the Asynchronous Event Configuration switches, in the sets here; the mask of notifications
/// does.
const UNCONFIGURED: u32 = 1;
const _: () = assert!(UNCONFIGURED & (Notice::SUPPORTED | Notice::OF_DISCOVERY) == 0);

/// What a controller may tell its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Notice {
    /// A namespace became active or inactive, or has another size.
    NamespaceChanged,
    /// An ANA state changed.
    AnaChanged,
    /// The discovery log says something else.
    DiscoveryChanged,
    /// The subsystem shuts down.
    Shutdown,
    /// There is one more reservation notification to read.
    ReservationNotification,
}

impl Notice {
    const ALL: [Self; 5] = [
        Self::NamespaceChanged,
        Self::AnaChanged,
        Self::DiscoveryChanged,
        Self::Shutdown,
        Self::ReservationNotification,
    ];
    /// The bits of OAES, and of the Asynchronous Event Configuration, for all that an I/O controller tells.
    pub(in super::super) const SUPPORTED: u32 =
        IdentifyController::NAMESPACE_EVENTS | IdentifyController::ANA_EVENTS | IdentifyController::SHUTDOWN_EVENTS;
    /// The same for a discovery controller.
    pub(in super::super) const OF_DISCOVERY: u32 = IdentifyController::DISCOVERY_EVENTS;

    /// Its bit in OAES, the configuration, and the sets here.
    fn bit(self) -> u32 {
        match self {
            Self::NamespaceChanged => IdentifyController::NAMESPACE_EVENTS,
            Self::AnaChanged => IdentifyController::ANA_EVENTS,
            Self::DiscoveryChanged => IdentifyController::DISCOVERY_EVENTS,
            Self::Shutdown => IdentifyController::SHUTDOWN_EVENTS,
            Self::ReservationNotification => UNCONFIGURED,
        }
    }

    /// The log page that explains it; reading that page lets the next one through.
    fn page(self) -> Option<u8> {
        match self {
            Self::NamespaceChanged => Some(log_page::CHANGED_NAMESPACES),
            Self::AnaChanged => Some(log_page::ANA),
            Self::DiscoveryChanged => Some(log_page::DISCOVERY),
            Self::Shutdown => None,
            Self::ReservationNotification => Some(log_page::RESERVATION_NOTIFICATION),
        }
    }

    /// It is told when it happens or never.
    fn is_immediate(self) -> bool {
        self == Self::Shutdown
    }

    /// Dword 0 of the completion (Base 5.2): type, information, log page.
    pub(super) fn result(self) -> u64 {
        let (event, information) = match self {
            Self::NamespaceChanged => (NOTICE, 0),
            Self::AnaChanged => (NOTICE, 3),
            Self::DiscoveryChanged => (NOTICE, 0xf0),
            Self::Shutdown => (IMMEDIATE, 0),
            Self::ReservationNotification => (COMMAND_SET, 0),
        };
        event | information << 8 | u64::from(self.page().unwrap_or(0)) << 16
    }
}

/// The events of one controller.
#[derive(Debug, Default)]
pub(in super::super) struct Events {
    /// Command identifiers of requests that wait.
    waiting: ArrayVec<u16, MAX_EVENT_REQUESTS>,
    /// What the host switched on.
    configuration: u32,
    /// Happened and not told.
    pending: u32,
    /// Told, and its log page was not read since.
    masked: u32,
}

impl Events {
    /// Keeps a request. False where as many wait already.
    pub(in super::super) fn keep(&mut self, command_id: u16) -> bool {
        self.waiting.try_push(command_id).is_ok()
    }

    /// Requests that wait.
    pub(in super::super) fn waiting(&self) -> u16 {
        // At most MAX_EVENT_REQUESTS.
        self.waiting.len() as u16
    }

    /// Takes a request back that shall be aborted.
    pub(in super::super) fn withdraw(&mut self, command_id: u16) -> bool {
        let found = self.waiting.iter().position(|id| *id == command_id);
        found.is_some_and(|at| self.waiting.pop_at(at).is_some())
    }

    /// A reset forgets everything; the identifiers of the requests that waited.
    pub(in super::super) fn reset(&mut self) -> ArrayVec<u16, MAX_EVENT_REQUESTS> {
        core::mem::take(self).waiting
    }

    /// What the host switched on.
    pub(in super::super) fn configuration(&self) -> u32 {
        self.configuration
    }

    pub(in super::super) fn configure(&mut self, configuration: u32) {
        self.configuration = configuration;
    }

    pub(super) fn raise(&mut self, notice: Notice) {
        if notice.is_immediate() && self.waiting.is_empty() {
            return;
        }
        self.pending |= notice.bit() & (self.configuration | UNCONFIGURED);
    }

    /// The page was read, and its event not retained.
    pub(in super::super) fn read(&mut self, page: u8) {
        for notice in Notice::ALL.iter().filter(|notice| notice.page() == Some(page)) {
            self.masked &= !notice.bit();
            self.pending &= !notice.bit();
        }
    }

    /// An event to tell now, and the request that it answers.
    pub(super) fn next(&mut self) -> Option<(u16, Notice)> {
        let tellable = self.pending & !self.masked;
        let notice = *Notice::ALL.iter().find(|notice| tellable & notice.bit() != 0)?;
        let command_id = self.waiting.pop_at(0)?;
        self.pending &= !notice.bit();
        self.masked |= notice.bit();
        Some((command_id, notice))
    }
}
