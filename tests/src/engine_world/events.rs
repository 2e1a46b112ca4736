//! What the target is told.

use super::{
    acts::inline_pattern,
    flight::INLINE_BYTES,
    jobs::{Job, Stage, parts},
    protocol::{COMMAND, read_command},
    world::World,
};
use frwr_engine::{ConnectionId, Event, IncomingId, Received, RequestStatus};
use std::collections::{BTreeMap, VecDeque};

impl World<'_> {
    pub(super) fn target_event(&mut self, event: Event) {
        self.run.event(|| format!("target: {event:?}"));
        match event {
            Event::Incoming { incoming, private_data, .. } => self.incoming(incoming, &private_data),
            Event::Disconnected { connection, cause, .. } => {
                self.note_end(1, connection);
                self.explain_end("target", &cause);
                self.granted.remove(&connection);
                self.pairs.retain(|_, theirs| *theirs != connection);
                let (left, kept) = core::mem::take(&mut self.jobs)
                    .into_iter()
                    .partition::<BTreeMap<_, _>, _>(|(_, job)| job.connection == connection && waits(job.stage));
                self.jobs = kept;
                left.into_values().for_each(|job| self.drop_job(job));
                let (left, kept) =
                    self.unserved.drain(..).partition::<VecDeque<_>, _>(|(theirs, _)| *theirs == connection);
                self.unserved = kept;
                left.into_iter().for_each(|(_, received)| self.target.engine.release(received));
            }
            Event::OpenFailed { connection, .. } => self.note_end(1, connection),
            Event::Received { connection, received } => self.command(connection, received),
            Event::Fetched { cookie, status } => self.job_went_on(cookie, Stage::Fetching, status),
            Event::Written { cookie, status } => self.job_went_on(cookie, Stage::Writing, status),
            Event::Responded { cookie, status } => self.job_went_on(cookie, Stage::Responding, status),
            Event::Registered { cookie, grant, .. } => {
                if let Some(&connection) = self.target_requests.get(&cookie)
                    && let Some(granted) = self.granted.get_mut(&connection)
                {
                    *granted = Some(grant);
                }
            }
            Event::Completed { cookie, status, .. } => {
                let ended = self.target_requests.remove(&cookie);
                assert!(ended.is_some(), "request {cookie} of the target ended twice: {status:?}");
                if let RequestStatus::Replied(received) = status {
                    self.target.engine.release(received);
                }
            }
            Event::MemoryRemoved { memory } => self.target.memory_removed(memory),
            _ => {}
        }
    }

    fn incoming(&mut self, incoming: IncomingId, private_data: &[u8]) {
        let options = self.target.connection;
        match self.target.engine.accept(incoming, b"accepted", &options) {
            Ok(connection) => {
                let name = private_data.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
                if let Some(ours) = name.and_then(|name| self.opening.get(&name)) {
                    self.pairs.insert(*ours, connection);
                }
            }
            Err(_) => self.target.engine.reject(incoming, b"busy").expect("Control is asked often enough"),
        }
    }

    fn command(&mut self, connection: ConnectionId, received: Received) {
        match self.free_slots.pop() {
            Some(slot) => self.take_up(connection, received, slot),
            None => self.unserved.push_back((connection, received)),
        }
    }

    /// What waited for slots, as far as there are some.
    pub(super) fn serve_unserved(&mut self) {
        while !self.unserved.is_empty() {
            let Some(slot) = self.free_slots.pop() else { break };
            let Some((connection, received)) = self.unserved.pop_front() else { break };
            self.take_up(connection, received, slot);
        }
    }

    fn take_up(&mut self, connection: ConnectionId, received: Received, slot: usize) {
        let mut bytes = [0; COMMAND];
        self.target.engine.message(&received, 0, &mut bytes);
        let (cookie, grants) = read_command(&bytes);
        assert!(self.seen.insert(cookie), "request {cookie} arrived twice");
        let flight = self.flights.get(&cookie);
        let (mut reads, mut writes, mut invited) = (Vec::new(), Vec::new(), false);
        if let Some(flight) = flight {
            let mut inline = [0; INLINE_BYTES];
            let found = self.target.engine.message(&received, COMMAND as u32, &mut inline);
            assert_eq!(found, if flight.inline { INLINE_BYTES } else { 0 }, "request {cookie}");
            let held = !flight.inline || inline == inline_pattern(cookie);
            assert!(held, "request {cookie}: its inline memory was not held");
            (reads, writes) = parts(&flight.chunks, &grants);
            invited = flight.invited;
        }
        let key = grants.first().map(|grant| grant.key);
        let received = Some(received);
        self.jobs
            .insert(cookie, Job { connection, cookie, reads, writes, invited, key, stage: Stage::New, slot, received });
    }
}

/// Nothing of it is with the device.
fn waits(stage: Stage) -> bool {
    matches!(stage, Stage::New | Stage::Ready)
}
