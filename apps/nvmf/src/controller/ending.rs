//! How far the end of a target is: the news for its hosts, then their connections, then what was written.

use super::notice::{LAST_ANSWERS, NOTICE};
use core::time::Duration;

/// How long hosts are given to take the news that a target ends, and to hear of each command that it is not executed.
const ANNOUNCEMENT: Duration = NOTICE.saturating_add(LAST_ANSWERS).saturating_add(LAST_ANSWERS);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It serves.
    No,
    /// Hosts are told, until then at most.
    Announcing { until: Duration },
    /// Connections end.
    Closing,
}

/// The end of a target.
#[derive(Debug)]
pub(super) struct Ending {
    stage: Stage,
    /// Whoever listens for it has taken that this is over.
    stopped_listening: bool,
}

impl Ending {
    pub(super) fn new() -> Self {
        Self { stage: Stage::No, stopped_listening: false }
    }

    /// It was told to end.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        self.stage != Stage::No
    }

    /// Hosts are told from now on.
    pub(super) fn announce(&mut self, now: Duration) {
        self.stage = Stage::Announcing { until: now + ANNOUNCEMENT };
    }

    /// Whether listening has to be stopped, since that was not taken yet.
    pub(super) fn listens(&self) -> bool {
        !self.stopped_listening
    }

    pub(super) fn stopped_listening(&mut self, stopped: bool) {
        self.stopped_listening |= stopped;
    }

    /// True where connections are to be ended: the first time when hosts were told or had their time, then whenever a poll did some
    /// work, since a host may have come back before the listener was gone.
    pub(super) fn closes(&mut self, now: Duration, told: bool, work: u32) -> bool {
        match self.stage {
            Stage::No => false,
            Stage::Announcing { until } => {
                let closes = told || now >= until;
                if closes {
                    self.stage = Stage::Closing;
                }
                closes
            }
            Stage::Closing => work > 0,
        }
    }

    /// Nothing of it is left to do but what connections and commands take; true where it was not begun.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::No || self.stage == Stage::Closing && self.stopped_listening
    }
}
