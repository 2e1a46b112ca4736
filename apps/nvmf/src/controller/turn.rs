//! One iteration of a target: what the engine has for it, what storages have done, and who waited.

use super::Target;
use super::reservation::Seat;
use super::session::Ends;
use crate::storage::Storage;
use core::{task::Waker, time::Duration};
use frwr_engine::provider::Port;
use frwr_engine::{AnnounceError, Announcement, ConnectionId, Event, Message, Protocol, TransferStatus, WatchedClock};
use std::{io, os::fd::BorrowedFd};

/// Events handled by one poll: each costs at most one more transfer, so that an iteration stays bounded.
const MAX_EVENTS_PER_POLL: usize = 256;

/// Longest sleep at a time: twenty wake-ups in a second are a small part of a percent of a core, and it is far below what counts as a
/// standstill.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
const _: () = assert!(LONGEST_SLEEP.as_millis() * 2 <= WatchedClock::STANDSTILL.as_millis());

/// The target's half of the protocol: it sends no requests, so everything that arrives is a command.
#[derive(Debug)]
struct Arrivals;

impl Protocol for Arrivals {
    fn announce(&mut self, _message: &mut [u8], _: &Announcement<'_>) -> Result<(), AnnounceError> {
        Err(AnnounceError)
    }

    const CLASSIFIED_BYTES: usize = 0;

    fn classify(&mut self, _connection: ConnectionId, _prefix: &[u8], _length: u32) -> Message {
        Message::Command
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// One iteration: completions, commands, storage. Returns the work done; 0 for an empty poll. `now` must not go back; time in which
    /// nobody polled counts against no peer ([`frwr_engine::WatchedClock`]).
    pub fn poll(&mut self, now: Duration) -> u32 {
        let looks = self.clock.begin(now);
        self.commands.begin();
        let read = self.engine.poll(self.clock.now(), &mut Arrivals);
        let mut work = read;
        for _ in 0..MAX_EVENTS_PER_POLL {
            match self.engine.next_event() {
                // What every command has. The others are larger, and not moved for them.
                Some(Event::Received { connection, received }) => self.received(connection, received),
                Some(Event::Responded { cookie, .. }) => {
                    self.commands.responded(cookie, &mut self.engine, &mut self.pool)
                }
                Some(event) => self.event(event),
                None => break,
            }
            work += 1;
        }
        if self.reservations.as_ref().is_some_and(Seat::is_due) {
            self.serve_reservations();
        }
        if self.media.is_due() {
            self.media.settle(self.clock.nanoseconds());
            if !self.media.has_nothing_to_commit() {
                let busy = !self.engine.is_disconnected() || !self.commands.is_empty();
                self.media.advance_commits(busy);
            }
        }
        // What this poll found starts now, so that storage without delay answers in the same iteration.
        self.media.start();
        work += self.poll_storage();
        self.serve_waiting();
        if !self.firsts.is_empty() {
            self.expire_firsts();
        }
        if self.authentications.is_busy() {
            self.advance_authentications();
        }
        if looks {
            self.expire(read);
        }
        if !self.lobby.is_empty() {
            self.serve_lobby();
        }
        if self.pending.is_any() {
            self.advance_changes();
        }
        if self.ending.is_ending() {
            self.advance_end(work);
        }
        work
    }

    /// Says how the core that owns it is woken where it sleeps ([`Target::arm`]): its engine is told ([`Engine::wakes`](frwr_engine::Engine::wakes)),
    /// and so are its storages, those of namespaces that are added later too. To be called before it listens.
    ///
    /// # Errors
    /// The process has no descriptor left for what storages wake by.
    pub fn wakes(&mut self, waker: &Waker) -> io::Result<()> {
        self.engine.wakes(waker);
        self.authentications.wakes(waker);
        self.media.wakes(waker)
    }

    /// What becomes readable where an armed target has something to do, beside the calls of its waker: of its engine's port, and of its
    /// storages. To be waited for edge-triggered. Constant behind [`Target::wakes`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.engine.port().descriptor().into_iter().chain(self.media.descriptor())
    }

    /// The core wants to sleep: whatever arrives, and whatever its storages complete, wakes it from now on. To be called before each sleep,
    /// and the target to be polled once more behind it, which finds what came before. False where it has to be polled nevertheless, as
    /// with a storage that has operations and wakes nobody ([`Storage::arm`]).
    pub fn arm(&mut self) -> bool {
        (!self.awaits_storage() || self.media.arm()) && self.engine.arm()
    }

    /// A storage may have something of it.
    fn awaits_storage(&self) -> bool {
        !self.commands.is_empty() || !self.media.has_nothing_to_commit() || self.late.orphans() > 0
    }

    /// Until when its core may sleep if nothing arrives that wakes it ([`Target::arm`]), as of the last poll, which found nothing: a short
    /// while, since hosts' deadlines are looked at, and other cores and its caller ask for something without a word. `None`: not now.
    /// While connections open or end that is so, and with commands in it where nobody said how it is woken ([`Target::wakes`]), or a storage
    /// has something that only a poll brings on ([`Storage::rests`]).
    #[must_use]
    pub fn sleeps_until(&self) -> Option<Duration> {
        let (now, engine) = (self.clock.now(), self.engine.poll_at());
        let needs_polls = self.authentications.needs_polls() || self.awaits_storage() && !self.media.rest();
        if needs_polls || !self.engine.rests() || self.ending.is_ending() || engine.is_some_and(|at| at <= now) {
            return None;
        }
        let until = now.saturating_add(LONGEST_SLEEP);
        Some(engine.map_or(until, |at| at.min(until)))
    }

    /// Starts the iteration's storage operations and posts its transfers; to be called at the end of every iteration.
    pub fn flush(&mut self) {
        self.media.start();
        self.engine.flush();
    }

    /// An event that is not of every command.
    #[inline(never)]
    fn event(&mut self, event: Event) {
        match event {
            Event::Listening { address, state } => self.heard(address, state),
            Event::Incoming { incoming, peer, local, private_data } => {
                let listener = self.sessions.listeners().called(local);
                self.incoming(incoming, Ends { peer, local, listener }, &private_data);
            }
            Event::Connected { connection, .. } => self.sessions.established(connection),
            // Its end is told when the device has complied.
            Event::QueuePairKept { connection } => self.sessions.kept(connection),
            Event::OpenFailed { connection, .. } => self.close_queue(connection),
            Event::Disconnected { connection, cause, .. } => {
                self.note_end(connection, cause);
                self.close_queue(connection);
            }
            Event::Fetched { cookie, status } => {
                let done = status == TransferStatus::Done;
                if let Some(index) = self.commands.fetched(cookie, done, &mut self.engine, &mut self.pool) {
                    self.advance(index);
                }
            }
            Event::Written { cookie, status } => self.controllers.probed(cookie, status, self.clock.watched()),
            // It submits no requests, and shares its completion queues with nobody.
            _ => {}
        }
    }
}
