//! The end of a target: the news for its hosts, then their connections, then what was written.

use super::{HOME_CORE, Target};
use crate::storage::Storage;
use core::time::Duration;
use frwr_engine::provider::Port;

/// How long hosts are given to take the news that a target ends: some round trips.
const ANNOUNCEMENT: Duration = Duration::from_millis(50);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It serves.
    No,
    /// Hosts are told, until then at most.
    Announcing { until: Duration, stopped_listening: bool },
    /// Connections end.
    Closing { stopped_listening: bool },
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Ends it in order: it takes no further connections, tells hosts that asked for such events that their subsystems shut down
    /// (Base 3.6.3), ends all connections when they have heard of it or 50 ms behind `now`, and brings what was written to the media. Poll
    /// and flush until [`Target::is_drained`]; what could not be written is in [`TargetStatistics::failed_commits`]. Called again, it does
    /// nothing.
    ///
    /// [`TargetStatistics::failed_commits`]: super::TargetStatistics::failed_commits
    pub fn end(&mut self, now: Duration) {
        if self.ending == Ending::No {
            self.announce_shutdown();
            let until = now.max(self.now) + ANNOUNCEMENT;
            self.ending = Ending::Announcing { until, stopped_listening: self.stop_listening() };
        }
    }

    /// It was told to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending != Ending::No
    }

    /// One step of it, behind a poll that did so much work.
    #[cold]
    pub(super) fn advance_end(&mut self, work: u32) {
        match self.ending {
            Ending::No => {}
            Ending::Announcing { until, stopped_listening } => {
                let stopped_listening = stopped_listening || self.stop_listening();
                // Other cores than that of the admin queues cannot see how far the news is, but that there is nobody left.
                let told = self.engine.is_disconnected() || self.options.core == HOME_CORE && !self.is_answering();
                self.ending = if told || self.now >= until {
                    self.shut_down();
                    Ending::Closing { stopped_listening }
                } else {
                    Ending::Announcing { until, stopped_listening }
                };
            }
            Ending::Closing { stopped_listening } => {
                let stopped_listening = stopped_listening || self.stop_listening();
                // A host may have come back before the listener was gone.
                if work > 0 {
                    self.shut_down();
                }
                self.ending = Ending::Closing { stopped_listening };
            }
        }
    }
}
