//! How a target ends, at once or in order.

use super::Target;
use super::controllers::Notice;
use super::options::HOME_CORE;
use crate::storage::Storage;
use core::time::Duration;
use frwr_engine::OpenError;
use frwr_engine::provider::Port;
use std::net::SocketAddr;

impl<P: Port, S: Storage> Target<P, S> {
    /// Ends it in order: it takes no further connections, tells hosts that asked for such events that their subsystems shut down
    /// (Base 3.6.3), and drains all of them as [`Target::drain`] does, so that a host with another path goes on there at once. Connections
    /// end when that is done, a second behind `now` where hosts have I/O queues and a little more at most, whatever their media still have;
    /// then what was written is brought to these. Poll and flush until [`Target::is_drained`]; what could not be written is in
    /// [`TargetStatistics::failed_commits`]. Called again, it does nothing.
    ///
    /// [`TargetStatistics::failed_commits`]: super::TargetStatistics::failed_commits
    pub fn end(&mut self, now: Duration) {
        if !self.ending.is_ending() {
            for (subsystem, _) in self.subsystems.listed() {
                self.controllers.raise(subsystem, Notice::Shutdown, &mut self.commands);
            }
            let id = self.pending.next_id();
            for place in 0..self.controllers.places() {
                if self.controllers.get(place).is_some_and(|controller| controller.subsystem().is_some()) {
                    // Nobody waits for it to be told what holds it up.
                    self.drain_controller(place, id, Duration::MAX);
                }
            }
            self.go_on();
            self.ending.announce(now.max(self.clock.now()));
            let stopped = self.stop_listening();
            self.ending.stopped_listening(stopped);
        }
    }

    /// It was told to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.is_ending()
    }

    /// One step of it, behind a poll that did so much work.
    #[cold]
    pub(super) fn advance_end(&mut self, work: u32) {
        if self.ending.listens() {
            let stopped = self.stop_listening();
            self.ending.stopped_listening(stopped);
        }
        // Other cores than that of the admin queues cannot see how far the news is, but that there is nobody left.
        let told = self.engine.is_disconnected()
            || self.options.core == HOME_CORE && !self.commands.has_plain_answers() && !self.drains_io_queues();
        if self.ending.closes(self.clock.now(), told, work) {
            self.shut_down();
        }
    }

    /// Ends all connections at once, and brings what was written to the media; whoever connects again is served. [`Target::end`] is the end
    /// in order. Poll until [`Target::is_drained`]; what could not be
    /// written is in [`TargetStatistics::failed_commits`].
    ///
    /// [`TargetStatistics::failed_commits`]: super::TargetStatistics::failed_commits
    pub fn shut_down(&mut self) {
        self.lobby.clear();
        self.media.commit_at_end();
        for queue in self.sessions.iter() {
            self.engine.disconnect(queue.connection());
        }
    }

    /// Takes no further connections; those that are open stay. False where that has to be tried again.
    pub fn stop_listening(&mut self) -> bool {
        self.lobby.clear();
        let mut all = self.sessions.listeners().addresses().into_iter();
        all.all(|address| self.stop_listening_at(address))
    }

    /// The same at one address.
    pub(super) fn stop_listening_at(&mut self, address: SocketAddr) -> bool {
        // Without Control nobody listens.
        matches!(self.engine.stop_listening(address), Ok(()) | Err(OpenError::NoControl))
    }

    /// No connection is open and no command in flight; behind [`Target::end`] and [`Target::shut_down`] all that was answered is on its
    /// medium, too, as far as that could be done.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let ended = self.ending.is_over();
        ended && self.engine.is_disconnected() && self.commands.is_empty() && self.media.is_committed()
    }
}
