//! Connections that end, and what becomes of what their servers had: it waits for the next one, or ends.

use super::super::socket::End;
use super::{NbdStorage, StorageError};

impl NbdStorage {
    /// A connection has ended.
    #[cold]
    pub(super) fn lost(&mut self, at: usize, end: End) {
        let in_flight = self.tasks.in_flight(at);
        let changes = |slot: &u32| self.tasks.get(*slot).is_some_and(|task| task.operation.changes());
        match end {
            End::ByServer => {}
            End::Given(_) if !in_flight.iter().any(changes) => {}
            End::Given(_) => self.shared().left_unanswered(),
            End::Breach(_) => self.shared().breached(),
        }
        if let Some(link) = self.links.get_mut(at) {
            link.connection.close();
        }
        for slot in in_flight {
            self.unanswered(slot);
        }
        self.went(at);
    }

    /// The server that had an operation is gone.
    fn unanswered(&mut self, slot: u32) {
        let Some(task) = self.tasks.get_mut(slot) else { return };
        let Some(sent) = task.sent.take() else { return };
        let (again, overtaken) = (task.again(), task.is_overtaken());
        if let Some(begun) = sent.flush {
            // It may have failed, and said so for the only time.
            if begun.covers_something {
                self.shared().interrupted();
            }
            self.shared().end_flush(begun);
        }
        if again && !overtaken {
            self.statistics.restarts += 1;
            self.queue_again(slot);
        } else {
            self.end(slot, Err(StorageError::Unreachable));
        }
    }

    /// A connection is down: there is another one soon, or none.
    pub(super) fn went(&mut self, at: usize) {
        let now = self.now;
        if let Some(link) = self.links.get_mut(at) {
            link.went(now);
        }
        if !self.links.iter().any(|link| link.connection.is_open()) {
            self.away_since.get_or_insert(now);
            self.tell(true);
        }
    }

    pub(super) fn tell(&mut self, away: bool) {
        if core::mem::replace(&mut self.told_away, away) != away {
            self.shared().is_away(away);
        }
    }

    /// Makes connections that are missing, and fails what has waited for one too long.
    #[cold]
    pub(super) fn reconnect(&mut self) {
        for at in 0..self.links.len() {
            let link = &mut self.links[at];
            let Some(found) = link.reconnect(self.now, &self.access) else { continue };
            let wanted = self.access.bytes();
            if found.bytes < wanted {
                self.shared().shrunk(found.bytes);
            } else if !self.access.is_kept_by(&found) {
                self.shared().changed();
            } else {
                self.shared().opened();
                self.tell(false);
                if self.queue.is_empty() {
                    self.away_since = None;
                }
                continue;
            }
            // Nothing goes there.
            self.links[at].connection.close();
            return;
        }
        let waited = self.away_since.map(|since| self.now.saturating_sub(since));
        if waited.is_some_and(|waited| waited >= self.access.options.patience) {
            self.flushed = 0;
            while let Some(slot) = self.queue.pop_front() {
                self.end(slot, Err(StorageError::Unreachable));
            }
        }
    }

    /// Nothing is done any more: whatever there is ends.
    #[cold]
    pub(super) fn refuse(&mut self, error: StorageError) {
        for at in 0..self.links.len() {
            if self.links[at].connection.is_down() {
                continue;
            }
            self.links[at].connection.close();
            for slot in self.tasks.in_flight(at) {
                if let Some(begun) = self.tasks.get_mut(slot).and_then(|task| task.sent.take()?.flush) {
                    self.shared().end_flush(begun);
                }
                self.end(slot, Err(error));
            }
        }
        self.flushed = 0;
        while let Some(slot) = self.queue.pop_front() {
            self.end(slot, Err(error));
        }
        while let Some((slot, _)) = self.doubted.pop_front() {
            self.end(slot, Err(error));
        }
    }
}
