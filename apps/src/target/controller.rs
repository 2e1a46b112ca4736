//! Controllers: what Connect makes, and what properties and keep alive act on.

use crate::nvmf::{ControllerConfiguration, ControllerStatus, Nqn, ShutdownNotification, ShutdownStatus};
use core::time::Duration;
use frwr_engine::ConnectionId;

/// Controller identifiers from here on are reserved (Base 5.17.2.1).
const FIRST_RESERVED_ID: u16 = 0xfff0;

/// KAS counts in units of 100 ms; Keep Alive Timeouts are rounded up to 1 s.
pub(super) const KEEP_ALIVE_UNITS: u16 = 10;
const KEEP_ALIVE_STEP_MS: u64 = 100 * KEEP_ALIVE_UNITS as u64;

/// What a host set up by Connect on its admin queue.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) admin: ConnectionId,
    pub(super) host: Nqn,
    pub(super) host_id: [u8; 16],
    /// An Asynchronous Event Request waits for an event, for ever.
    pub(super) awaits_event: bool,
    configuration: ControllerConfiguration,
    ready: bool,
    fatal: bool,
    shutdown: ShutdownStatus,
    /// Zero for none.
    keep_alive: Duration,
    seen: Duration,
}

/// What a change of CC asks of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigurationEffect {
    /// Nothing.
    None,
    /// The controller was reset: its I/O queues are gone (Base 3.7.2).
    Reset,
}

impl Controller {
    pub(super) fn new(id: u16, admin: ConnectionId, host: Nqn, host_id: [u8; 16], now: Duration) -> Self {
        Self {
            id,
            admin,
            host,
            host_id,
            awaits_event: false,
            configuration: ControllerConfiguration::default(),
            ready: false,
            fatal: false,
            shutdown: ShutdownStatus::Normal,
            keep_alive: Duration::ZERO,
            seen: now,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn configuration(&self) -> ControllerConfiguration {
        self.configuration
    }

    pub(super) fn status(&self) -> ControllerStatus {
        let status = ControllerStatus::new(self.ready, self.shutdown);
        if self.fatal { ControllerStatus(status.0 | ControllerStatus::FATAL_STATUS.0) } else { status }
    }

    /// Property Set of CC (Base 3.1.3.5, 3.5.3, 3.6.1). Memory needs no time to become ready or to shut down.
    pub(super) fn configure(&mut self, wanted: ControllerConfiguration) -> ConfigurationEffect {
        let before = core::mem::replace(&mut self.configuration, wanted);
        let mut effect = ConfigurationEffect::None;
        match (before.is_enabled(), wanted.is_enabled()) {
            (false, true) if wanted.is_supported() => {
                (self.ready, self.fatal, self.shutdown) = (true, false, ShutdownStatus::Normal);
            }
            (false, true) => self.fatal = true,
            (true, false) => {
                (self.ready, self.fatal, self.shutdown) = (false, false, ShutdownStatus::Normal);
                effect = ConfigurationEffect::Reset;
            }
            _ => {}
        }
        match wanted.shutdown() {
            ShutdownNotification::Normal | ShutdownNotification::Abrupt => self.shutdown = ShutdownStatus::Complete,
            ShutdownNotification::None | ShutdownNotification::Reserved => {}
        }
        effect
    }

    /// A command arrived on any of its queues.
    pub(super) fn touch(&mut self, now: Duration) {
        self.seen = now;
    }

    /// KATO; 0 switches keep alive off.
    pub(super) fn set_keep_alive(&mut self, milliseconds: u32) {
        self.keep_alive = Duration::from_millis(u64::from(milliseconds).next_multiple_of(KEEP_ALIVE_STEP_MS));
    }

    /// Nothing was heard of the host for its Keep Alive Timeout (Base 3.9).
    pub(super) fn is_expired(&self, now: Duration) -> bool {
        !self.keep_alive.is_zero() && now.saturating_sub(self.seen) > self.keep_alive
    }
}

/// The next controller identifier: none is used again before all others were.
#[derive(Debug, Default)]
pub(super) struct Identifiers(u16);

impl Identifiers {
    pub(super) fn next(&mut self, is_used: impl Fn(u16) -> bool) -> u16 {
        loop {
            self.0 = if self.0 >= FIRST_RESERVED_ID - 1 { 1 } else { self.0 + 1 };
            // There are far fewer controllers than identifiers.
            if !is_used(self.0) {
                return self.0;
            }
        }
    }
}
