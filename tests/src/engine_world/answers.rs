//! What the target does with commands: out of order, in several steps, mostly well.

use super::{
    jobs::{Job, Piece, SLOT_BYTES, Stage},
    pattern::{Pattern, Writer},
    protocol,
    world::World,
};
use frwr_engine::{
    FetchRequest, RemoteRange, RemoteSegment, ResponseRequest, Segment, TransferError, TransferStatus, WriteRequest,
};

/// What a reply does that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rudeness {
    /// It invalidates a key that is none, or another request's.
    ForeignKey(u32),
    /// It invalidates a key of the request, though nobody invited it to.
    Uninvited,
}

/// Local segments and remote ranges of some pieces, whose bytes the target has in a slot.
fn lists(party: &super::party::Party, slot: usize, pieces: &[Piece]) -> (Vec<Segment>, Vec<RemoteSegment>) {
    let local = |piece: &Piece| party.segment(slot * SLOT_BYTES + piece.place(), piece.grant.length as usize);
    let remote = |piece: &Piece| RemoteSegment {
        remote: RemoteRange { address: piece.grant.address, key: piece.grant.key },
        length: piece.grant.length,
    };
    (pieces.iter().map(local).collect(), pieces.iter().map(remote).collect())
}

impl World<'_> {
    /// One look at the jobs.
    pub(super) fn answer(&mut self) {
        self.serve_unserved();
        let one_in = if self.calm { 1 } else { self.scenario.serves_one_in };
        if self.jobs.is_empty() || !self.random.one_in(one_in) {
            return;
        }
        let waiting: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| matches!(job.stage, Stage::New | Stage::Ready))
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in waiting {
            if self.calm || !self.random.one_in(4) {
                self.go_on(cookie);
            }
        }
    }

    fn go_on(&mut self, cookie: u64) {
        let Some(mut job) = self.jobs.remove(&cookie) else { return };
        let begun = match job.stage {
            Stage::New if !job.reads.is_empty() && !self.random.one_in(3) => self.fetch(&job),
            Stage::New if job.writes.len() > 1 && self.random.one_in(4) => self.write_ahead(&mut job),
            _ => self.respond(&mut job),
        };
        match begun {
            Ok(stage) => {
                job.stage = stage;
                if stage == Stage::Responding
                    && let Some(received) = job.received.take()
                {
                    self.target.engine.release(received);
                }
                self.jobs.insert(cookie, job);
            }
            Err(TransferError::NoSlot) => {
                self.jobs.insert(cookie, job);
            }
            Err(_) => self.drop_job(job),
        }
    }

    /// Nobody will be answered.
    pub(super) fn drop_job(&mut self, mut job: Job) {
        if let Some(received) = job.received.take() {
            self.target.engine.release(received);
        }
        self.free_slots.push(job.slot);
    }

    fn fetch(&mut self, job: &Job) -> Result<Stage, TransferError> {
        let (local, remote) = lists(&self.target, job.slot, &job.reads);
        let request = FetchRequest { local: &local, remote: &remote, cookie: job.cookie };
        self.target.engine.fetch(job.connection, &request)?;
        Ok(Stage::Fetching)
    }

    /// The first part of the data goes ahead.
    fn write_ahead(&mut self, job: &mut Job) -> Result<Stage, TransferError> {
        let first = [job.writes[0]];
        self.fill(job.slot, job.cookie, &first);
        let (local, remote) = lists(&self.target, job.slot, &first);
        let request = WriteRequest { local: &local, remote: &remote, cookie: job.cookie };
        self.target.engine.write(job.connection, &request)?;
        self.note_writing(job.cookie, &first);
        job.writes.remove(0);
        Ok(Stage::Writing)
    }

    fn respond(&mut self, job: &mut Job) -> Result<Stage, TransferError> {
        let writes = if self.random.one_in(6) { Vec::new() } else { job.writes.clone() };
        self.fill(job.slot, job.cookie, &writes);
        let (local, remote) = lists(&self.target, job.slot, &writes);
        let invited = job.invited && self.random.one_in(2);
        let key = match self.rude.take() {
            Some(Rudeness::ForeignKey(key)) => Some(key),
            Some(Rudeness::Uninvited) => job.key,
            None => job.key.filter(|_| invited),
        };
        let invalidate = key.filter(|_| self.host.engine.capabilities().remote_invalidation);
        let message = &protocol::reply(job.cookie);
        let request = ResponseRequest { local: &local, remote: &remote, message, invalidate, cookie: job.cookie };
        self.target.engine.respond(job.connection, &request)?;
        self.run.event(|| format!("reply to {}, {} writes, invalidates {invalidate:?}", job.cookie, writes.len()));
        self.note_writing(job.cookie, &writes);
        Ok(Stage::Responding)
    }

    /// The host may find these bytes from now on.
    fn note_writing(&mut self, cookie: u64, pieces: &[Piece]) {
        let Some(flight) = self.flights.get_mut(&cookie) else { return };
        for piece in pieces {
            let chunk = &mut flight.chunks[piece.chunk];
            assert_eq!(chunk.writing, piece.position, "pieces are written in their order");
            chunk.writing += piece.grant.length as usize;
        }
    }

    fn fill(&mut self, slot: usize, cookie: u64, pieces: &[Piece]) {
        for piece in pieces {
            let pattern = Pattern { writer: Writer::Target, cookie, chunk: piece.chunk };
            let offset = slot * SLOT_BYTES + piece.place();
            pattern.write(&self.target.data, offset, piece.position, piece.grant.length as usize);
        }
    }

    /// A part of an answer ended.
    pub(super) fn job_went_on(&mut self, cookie: u64, from: Stage, status: TransferStatus) {
        let Some(mut job) = self.jobs.remove(&cookie) else { panic!("transfer {cookie} of the target ended twice") };
        assert_eq!(job.stage, from, "an event of another kind than what was asked for");
        if from == Stage::Responding || status == TransferStatus::Lost {
            return self.drop_job(job);
        }
        if from == Stage::Fetching {
            self.check_fetched(&job);
            job.reads.clear();
        }
        job.stage = Stage::Ready;
        self.jobs.insert(cookie, job);
    }

    fn check_fetched(&self, job: &Job) {
        // A request that was cancelled or lost meanwhile has its memory back.
        if self.flights.get(&job.cookie).is_none_or(|flight| flight.cancelled) {
            return;
        }
        for piece in &job.reads {
            let mut bytes = vec![0; piece.grant.length as usize];
            self.target.data.read(job.slot * SLOT_BYTES + piece.place(), &mut bytes).expect("within the data");
            let pattern = Pattern { writer: Writer::Host, cookie: job.cookie, chunk: piece.chunk };
            let differs = pattern.differs(piece.position, &bytes);
            assert!(differs.is_none(), "request {}: what was fetched is not what it offered", job.cookie);
        }
    }
}
