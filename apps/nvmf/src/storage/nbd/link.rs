//! A connection that is made again when it has ended: when, and to which address.

use super::{
    access::Access,
    connection::Connection,
    handshake::{Export, HANDSHAKE_LIMIT},
};
use core::time::Duration;

/// Between two attempts at first; each one doubles it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The longest that becomes: a server that was started is found soon, and one that is not costs nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Between two looks at a connection that nothing is asked of: whether its server is still there.
const IDLE_LOOK: Duration = Duration::from_millis(100);

/// One of a storage's connections.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    next_attempt: Duration,
    pause: Duration,
    /// When the attempt that runs is over.
    deadline: Duration,
    /// Attempts; they take one address after the other.
    attempts: usize,
    next_look: Duration,
}

impl Link {
    pub(super) const fn new(connection: Connection) -> Self {
        Self {
            connection,
            next_attempt: Duration::ZERO,
            pause: Duration::ZERO,
            deadline: Duration::ZERO,
            attempts: 0,
            next_look: Duration::ZERO,
        }
    }

    /// Something may have come: it has requests in flight, or nobody has looked for long.
    pub(super) fn is_to_be_looked_at(&mut self, now: Duration) -> bool {
        if self.connection.in_flight() > 0 {
            return true;
        }
        let is_time = now >= self.next_look;
        if is_time {
            self.next_look = now.saturating_add(IDLE_LOOK);
        }
        is_time
    }

    /// Behind a poll: nothing is left for another one before a core that sleeps is told of its socket, or has slept long.
    pub(super) fn rests(&self, now: Duration) -> bool {
        let is_due = self.connection.is_down() && now >= self.next_attempt;
        !is_due && self.connection.rests()
    }

    /// Its server does what it is asked for.
    pub(super) const fn has_answered(&mut self) {
        self.pause = Duration::ZERO;
    }

    /// It has ended; the next attempt is at once, or after a pause where the one before came to nothing.
    pub(super) fn went(&mut self, now: Duration) {
        self.next_attempt = now.saturating_add(self.pause);
        self.pause = (self.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    }

    /// Goes on with becoming open where it is not; the export once it is.
    pub(super) fn reconnect(&mut self, now: Duration, access: &Access) -> Option<Export> {
        if self.connection.is_open() {
            return None;
        }
        if self.connection.is_down() {
            if now < self.next_attempt {
                return None;
            }
            let place = access.places.get(self.attempts % access.places.len().max(1))?;
            self.attempts = self.attempts.wrapping_add(1);
            self.deadline = now.saturating_add(HANDSHAKE_LIMIT);
            if self.connection.connect(place).is_err() {
                self.went(now);
            }
            return None;
        }
        match self.connection.negotiate(&access.options.export) {
            Ok(Some(found)) => return Some(found),
            Ok(None) if now < self.deadline => {}
            Ok(None) | Err(_) => {
                self.connection.close();
                self.went(now);
            }
        }
        None
    }
}
