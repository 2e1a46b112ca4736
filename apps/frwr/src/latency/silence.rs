//! Whether a client is alive where nothing that is measured tells: it pings, and the server drops one of which nothing comes.
//!
//! Pings are sent from between requests, by a client's first core, where that has sent the server nothing else for a while;
//! what they cost is taken out of the counters. In one process there are none.

use super::counters::Counters;
use core::time::Duration;
use frwr_engine::WatchedClock;

/// How long nothing may come of a client before the server is free for the next one: as long as a client waits for a server.
pub(super) const CLIENT_SILENCE: Duration = Duration::from_secs(15);
/// Pings in the time of silence that a server bears: the last but one may be late.
const PINGS: u32 = 4;
/// So much of that time counts of any in which the server's core did not poll: whoever stopped it may have stopped the client as well.
const STANDSTILLS: u32 = 5;

/// A ping: the message, its completion, the answer, and the receive that is posted again; doorbells of its own.
const COST: Counters = Counters {
    doorbells: 1,
    work_requests: 1,
    receive_doorbells: 1,
    send_completions: 1,
    receive_completions: 1,
    ..Counters::NONE
};

/// A server's core: what it has heard of the client. Cores tell each other by a number that grows (`Desk::heard`).
#[derive(Debug)]
pub(super) struct Vigil {
    silence: Option<Duration>,
    /// By which it passes.
    clock: WatchedClock,
    /// Something came since the last look.
    heard: bool,
    /// The number that it saw last, and when it was another one, in watched time.
    sign: u64,
    since: Duration,
}

impl Vigil {
    /// Of clients that may be silent as long, or for ever.
    pub(super) fn new(silence: Option<Duration>) -> Self {
        let clock = WatchedClock::new(silence.unwrap_or_default() / STANDSTILLS);
        Self { silence, clock, heard: false, sign: 0, since: Duration::ZERO }
    }

    /// What the client is told: milliseconds, or 0.
    pub(super) fn milliseconds(&self) -> u32 {
        self.silence.map_or(0, |silence| u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))
    }

    /// Something came of the client.
    pub(super) fn hear(&mut self) {
        self.heard = true;
    }

    /// Time to look; returns whether anything came since the last time.
    pub(super) fn is_due(&mut self, now: Duration) -> Option<bool> {
        let is_due = self.silence.is_some() && self.clock.is_due(now);
        is_due.then(|| core::mem::take(&mut self.heard))
    }

    /// When it is time to look; [`Duration::MAX`] is never.
    pub(super) fn due_at(&self) -> Duration {
        self.silence.map_or(Duration::MAX, |_| self.clock.looks_at())
    }

    /// The number by which cores tell each other, as it is now. Returns how long nothing came where that is too long. `unread` and `polls`
    /// as in [`WatchedClock::judges`].
    pub(super) fn is_silent(&mut self, sign: u64, now: Duration, unread: bool, polls: u32) -> Option<Duration> {
        let (watched, judges) = (self.clock.watched(now), self.clock.judges(unread, polls));
        if sign != self.sign {
            (self.sign, self.since) = (sign, watched);
        }
        self.silence.filter(|silence| judges && watched.saturating_sub(self.since) > *silence)
    }
}

/// A client's first core: when it pings.
#[derive(Debug)]
pub(super) struct Pings {
    /// `None`: never.
    every: Option<Duration>,
    /// Not before then.
    pub(super) due: Duration,
    /// When the server was sent something last.
    spoke: Duration,
    /// What is awaited of a ping: its completion, and the answer.
    awaited: u8,
    /// Since the counters were read.
    sent: u64,
}

impl Pings {
    pub(super) fn none() -> Self {
        Self { every: None, due: Duration::MAX, spoke: Duration::ZERO, awaited: 0, sent: 0 }
    }

    /// The server bears so many milliseconds of silence; 0 is for ever.
    pub(super) fn begin(&mut self, silence: u32, now: Duration) {
        if silence > 0 {
            let every = Duration::from_millis(silence.into()) / PINGS;
            (self.every, self.spoke, self.due) = (Some(every), now, now.saturating_add(every));
        }
    }

    /// No more of them.
    pub(super) fn end(&mut self) {
        (self.every, self.due) = (None, Duration::MAX);
    }

    /// The server was sent something.
    pub(super) fn spoke(&mut self, now: Duration) {
        self.spoke = now;
    }

    /// It is time to look whether one is to be sent. Whether it is.
    pub(super) fn is_wanted(&mut self, now: Duration) -> bool {
        let Some(every) = self.every else { return false };
        let wanted = self.spoke.saturating_add(every);
        // One that is not answered is not repeated: the server may be stopped, and has so many receives.
        if now < wanted || self.awaited > 0 {
            self.due = if now < wanted { wanted } else { now.saturating_add(every) };
            return false;
        }
        true
    }

    /// One was sent.
    pub(super) fn sent(&mut self, now: Duration) {
        (self.spoke, self.awaited) = (now, 2);
        self.sent += 1;
        self.due = self.every.map_or(Duration::MAX, |every| now.saturating_add(every));
    }

    /// Its completion or its answer is there. False where none is awaited.
    pub(super) fn answered(&mut self) -> bool {
        let awaited = self.awaited > 0;
        self.awaited = self.awaited.saturating_sub(1);
        awaited
    }

    /// What is awaited of the last one.
    pub(super) fn awaited(&self) -> u8 {
        self.awaited
    }

    /// What those cost that were sent since the last time.
    pub(super) fn take_cost(&mut self) -> Counters {
        (0..core::mem::take(&mut self.sent)).fold(Counters::NONE, |sum, _| sum + COST)
    }
}

#[cfg(test)]
mod tests;
