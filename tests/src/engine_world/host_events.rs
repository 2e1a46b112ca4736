//! What the host is told.

use super::{
    flight::{Data, PLACES},
    world::{Transfer, World},
};
use frwr_engine::{ConnectionId, DisconnectCause, Event, RequestStatus, TransferStatus};

impl World<'_> {
    pub(super) fn host_event(&mut self, event: Event) {
        self.run.event(|| format!("host: {event:?}"));
        match event {
            Event::Disconnected { connection, cause, orphaned_mrs } => {
                self.note_end(0, connection);
                self.explain_end("host", &cause);
                if orphaned_mrs > 0 {
                    // What the device keeps stays open, and may be written.
                    self.rests.fill(None);
                }
                self.pairs.remove(&connection);
            }
            Event::OpenFailed { connection, .. } => self.note_end(0, connection),
            Event::Received { received, .. } => self.host.engine.release(received),
            Event::Registered { request, cookie, grant } => {
                let flight = self.flights.get(&cookie);
                assert!(flight.is_some_and(|flight| flight.standalone), "request {cookie} registered unasked");
                self.standalones.push((cookie, request, grant));
            }
            Event::Completed { cookie, status, .. } => self.ended(cookie, status),
            Event::Fetched { cookie, status } => self.transferred(cookie, Transfer::Fetch, status),
            Event::Written { cookie, status } => self.transferred(cookie, Transfer::Write, status),
            Event::Responded { cookie, status } => self.transferred(cookie, Transfer::Respond, status),
            Event::MemoryRemoved { memory } => self.host.memory_removed(memory),
            _ => {}
        }
    }

    fn transferred(&mut self, cookie: u64, kind: Transfer, status: TransferStatus) {
        let was = self.transfers.remove(&cookie);
        assert_eq!(was, Some(kind), "transfer {cookie} was told twice, or as another kind");
        self.run.note(cookie);
        let explained = status == TransferStatus::Done || self.may_end.is_some();
        assert!(explained, "transfer {cookie} was lost, and nothing explains it");
    }

    fn ended(&mut self, cookie: u64, status: RequestStatus) {
        let Some(flight) = self.flights.remove(&cookie) else { panic!("request {cookie} ended twice: {status:?}") };
        self.standalones.retain(|(open, ..)| *open != cookie);
        self.run.note(cookie);
        self.check_dead(cookie, &flight);
        let data = match status {
            RequestStatus::Replied(received) => {
                self.run.count("replied", 1);
                self.host.engine.release(received);
                assert!(!flight.standalone, "a key of its own was answered");
                Data::Whole
            }
            RequestStatus::Cancelled => {
                self.run.count("cancelled", 1);
                assert!(flight.cancelled, "request {cookie} ended as cancelled, and nobody cancelled it");
                Data::Partial
            }
            RequestStatus::Lost | RequestStatus::PostRefused | RequestStatus::Sent => {
                self.run.count("lost", 1);
                assert!(self.may_end.is_some(), "request {cookie} ended as {status:?}, and nothing explains it");
                Data::Partial
            }
            RequestStatus::Unannounced => Data::Partial,
            RequestStatus::MemoryRemoved => {
                self.run.count("of a removed memory", 1);
                Data::Partial
            }
            RequestStatus::TooFewRegistrations => {
                assert!(self.may_lack, "request {cookie} found too few MRs, and no command of Control failed");
                Data::Partial
            }
        };
        let orphans = self.host.engine.statistics().mrs_orphaned > 0;
        if !orphans {
            flight.check(&self.host.data, cookie, data);
        }
        if flight.place < PLACES {
            self.busy_places[flight.place] = false;
            if !orphans {
                let (place, digest) = (flight.place, flight.digest(&self.host.data));
                self.rests[place] = Some((flight, digest));
            }
        }
    }

    /// A connection is told to be gone once (S97, D27).
    pub(super) fn note_end(&mut self, side: usize, connection: ConnectionId) {
        assert!(self.gone[side].insert(connection), "{connection:?} ended twice");
        if side == 0 {
            let left = self.flights.values().any(|flight| flight.connection == connection);
            assert!(!left, "{connection:?} is gone, and a request of it was not told");
        }
    }

    /// No connection ends by itself.
    pub(super) fn explain_end(&mut self, who: &str, cause: &DisconnectCause) {
        self.run.count("connections ended", 1);
        assert!(self.may_end.is_some(), "{who}: a connection ended ({cause}), and nothing explains it");
    }
}
