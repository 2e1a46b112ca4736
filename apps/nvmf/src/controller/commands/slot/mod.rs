//! A command: what it asks for, how far it is, and what it holds.

mod fused;
mod medium;
mod transfer;

use super::super::media::{Buffer, Media, Pool};
use super::super::session::Sessions;
use super::super::work::{Phase, Reply, Work};
use crate::storage::Storage;
use crate::wire::Status;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine, Received, RemoteSegment};
use frwr_mempool::mutant;
pub(super) use transfer::Answers;
pub(in super::super) use transfer::listed;

/// Data of a command as its capsule describes it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Data {
    /// None.
    None,
    /// In the host's memory.
    Remote(RemoteSegment),
    /// In several pieces of the host's memory, which the capsule lists: its receive is kept until the device has
    /// the list.
    Scattered {
        /// Where the list of keyed data blocks starts in it.
        offset: u32,
        /// Data blocks, at most [`frwr_engine::MAX_TRANSFER_OPERATIONS`].
        count: u32,
        /// Bytes of all of them.
        length: u32,
    },
    /// In the capsule, whose receive is kept until the data was copied.
    InCapsule {
        /// Where the data starts in it.
        offset: u32,
        /// Bytes.
        length: u32,
    },
}

impl Data {
    fn length(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Remote(remote) => remote.length,
            Self::InCapsule { length, .. } | Self::Scattered { length, .. } => *length,
        }
    }
}

/// What one step led to.
pub(in super::super) enum Step {
    /// On to the next one, which its phase names now.
    Go,
    /// An event or completion takes it from here, in the phase that it is in now.
    Pending,
    /// No buffer is free.
    WaitForBuffer,
    /// A transfer slot or a place in the storage is missing, or another core is not as far.
    Stall,
    /// The connection is gone, or ends.
    Drop,
    /// The engine does not take what the peer described: the connection has to end.
    Refused,
    /// It is answered, with a status that is no success.
    Failed(Status),
    /// It is to be executed by whoever has what it is about.
    Execute,
}

/// How far an Abort came.
pub(super) enum Aborted {
    /// It is executed, or was already.
    No,
    /// It is answered as soon as it gets there.
    Later,
    /// Its next step is the answer.
    Now,
}

/// A command.
#[derive(Debug)]
pub(in super::super) struct Slot {
    connection: ConnectionId,
    command_id: u16,
    /// The key that the response invalidates.
    invalidate: Option<u32>,
    /// It names memory of the host's.
    names_keys: bool,
    /// NSID as the command said it, for the error log.
    namespace: u32,
    /// A write has to be on the medium before it is answered.
    durable: bool,
    /// Blocks are read when what a volatile cache holds is on the medium: next, or now, that is flushed.
    commit_first: bool,
    /// When the poll began that found it, in nanoseconds.
    found: u64,
    work: Work,
    data: Data,
    /// The capsule, where that has data, or lists it.
    received: Option<Received>,
    buffer: Option<Buffer>,
    /// What [`Work::Compare`] compares its data with.
    second: Option<Buffer>,
    phase: Phase,
    /// It was aborted while its data was fetched: it is answered then, and not executed.
    aborted: bool,
    /// Its connection is gone: the place of the controller whose queue brought it, if it was any's.
    left_to: Option<Option<u16>>,
}

impl Slot {
    /// A command that takes a buffer next; it invalidates nothing. `found`: when the poll began that found it.
    #[inline(always)]
    pub(in super::super) fn new(connection: ConnectionId, command_id: u16, work: Work, data: Data, found: u64) -> Self {
        Self {
            connection,
            command_id,
            invalidate: None,
            names_keys: false,
            namespace: 0,
            durable: false,
            commit_first: false,
            found,
            work,
            data,
            received: None,
            buffer: None,
            second: None,
            phase: Phase::TakeBuffer,
            aborted: false,
            left_to: None,
        }
    }

    /// With another first step.
    #[inline(always)]
    pub(in super::super) fn at(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    /// Of a host that names keys, of which the response kills this one; and the namespace as the host says it.
    #[inline(always)]
    pub(in super::super) fn naming(self, invalidate: Option<u32>, names_keys: bool, namespace: u32) -> Self {
        Self { invalidate, names_keys, namespace, ..self }
    }

    /// Its data is read from the capsule, or by what that lists.
    pub(super) fn keep(&mut self, received: Received) {
        self.received = Some(received);
    }

    /// A write to be on the medium before it is answered, or a read behind what a cache holds.
    #[inline(always)]
    pub(in super::super) fn hardened(self, durable: bool, commit_first: bool) -> Self {
        Self { durable, commit_first, ..self }
    }

    #[inline]
    pub(in super::super) fn connection(&self) -> ConnectionId {
        self.connection
    }

    pub(in super::super) fn command_id(&self) -> u16 {
        self.command_id
    }

    #[inline]
    pub(in super::super) fn work(&self) -> Work {
        self.work
    }

    pub(in super::super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(in super::super) fn namespace(&self) -> u32 {
        self.namespace
    }

    pub(in super::super) fn buffer(&self) -> Option<&Buffer> {
        self.buffer.as_ref()
    }

    /// Its buffer, if what is written there goes to one place of the host's memory.
    pub(in super::super) fn answer_buffer(&self) -> Option<&Buffer> {
        self.buffer.as_ref().filter(|_| matches!(self.data, Data::Remote(_)))
    }

    /// Its connection is gone: the place of the controller that had it, if one had.
    #[inline]
    pub(in super::super) fn left_to(&self) -> Option<Option<usize>> {
        self.left_to.map(|place| place.map(usize::from))
    }

    pub(super) fn set_work(&mut self, work: Work) {
        self.work = work;
    }

    /// It is to end without being executed, as soon as it can.
    pub(super) fn is_aborted(&self) -> bool {
        self.aborted
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// It was not answered yet.
    pub(super) fn is_unanswered(&self) -> bool {
        !matches!(self.phase, Phase::Reply(_) | Phase::Replying)
    }

    /// A storage has it.
    pub(super) fn is_storing(&self) -> bool {
        matches!(self.phase, Phase::Storing)
    }

    /// Its connection is gone: it belongs to a controller's place from now on, if a storage has it.
    pub(super) fn leave_to(&mut self, place: Option<u16>) -> bool {
        if self.is_storing() {
            self.left_to = Some(place);
        }
        self.is_storing()
    }

    /// Takes steps as far as it goes by itself; what the last one led to.
    #[inline(always)]
    pub(super) fn advance<P: Port, S: Storage>(
        &mut self,
        cookie: u64,
        engine: &mut Engine<P>,
        sessions: &mut Sessions,
        pool: &mut Pool,
        media: &mut Media<S>,
        answers: &mut Answers,
    ) -> Step {
        loop {
            match self.step(cookie, engine, sessions, pool, media, answers) {
                Step::Go => {}
                step => return step,
            }
        }
    }

    #[inline(always)]
    fn step<P: Port, S: Storage>(
        &mut self,
        cookie: u64,
        engine: &mut Engine<P>,
        sessions: &mut Sessions,
        pool: &mut Pool,
        media: &mut Media<S>,
        answers: &mut Answers,
    ) -> Step {
        if let Phase::TakeBuffer = self.phase {
            if !pool.take(&self.work, &mut self.buffer, &mut self.second) {
                return Step::WaitForBuffer;
            }
            self.phase = self.work.first_phase();
        }
        match &self.phase {
            Phase::Fetch => self.fetch(cookie, engine, pool),
            Phase::Execute => self.execute(pool, media),
            Phase::Submit => self.submit(cookie, sessions, pool, media),
            Phase::Reply(reply) => self.reply(cookie, *reply, engine, pool, sessions, answers),
            Phase::TakeBuffer
            | Phase::Fetching
            | Phase::Storing
            | Phase::Elsewhere
            | Phase::Paired
            | Phase::Replying => Step::Pending,
        }
    }

    /// Has it end without being executed, if it is not too late for that. A storage is asked by `cancel` to give it back.
    pub(super) fn abort(&mut self, cancel: impl FnOnce(usize) -> bool) -> Aborted {
        if self.work.is_half_done() && !mutant!(target_aborted_half_done) {
            return Aborted::No;
        }
        let aborted = Phase::Reply(Reply::of(Status::COMMAND_ABORT_REQUESTED));
        match self.phase {
            // Its turn may be long in coming.
            Phase::TakeBuffer => {
                self.phase = aborted;
                return Aborted::Now;
            }
            // It waits for a transfer slot or the storage: every poll looks at it, and then it is answered.
            Phase::Fetch | Phase::Submit => self.phase = aborted,
            // Mutant: it is said to be aborted, and executed.
            Phase::Fetching => self.aborted = !mutant!(target_aborted_executed),
            Phase::Storing => {
                let cancelled = self.work.namespace().is_some_and(cancel);
                // Mutant: it is answered as aborted while the storage executes it.
                if !cancelled && !mutant!(target_aborted_storing) {
                    return Aborted::No;
                }
                self.phase = aborted;
                return Aborted::Now;
            }
            Phase::Execute | Phase::Elsewhere | Phase::Paired | Phase::Reply(_) | Phase::Replying => {
                return Aborted::No;
            }
        }
        Aborted::Later
    }

    /// Gives its buffers back.
    #[inline(always)]
    fn put_buffers(&mut self, pool: &mut Pool) {
        if let Some(buffer) = self.buffer.take() {
            pool.put(buffer);
        }
        // Few have one.
        if self.second.is_some()
            && let Some(second) = self.second.take()
        {
            pool.put(second);
        }
    }

    /// Gives back whatever it holds.
    #[inline(always)]
    pub(super) fn end<P: Port>(&mut self, engine: &mut Engine<P>, pool: &mut Pool) {
        // S10: buffers of commands that are dropped never come back.
        if !mutant!(S10_target_buffer) {
            self.put_buffers(pool);
        }
        // Few keep their capsule until here.
        if self.received.is_some()
            && let Some(received) = self.received.take()
            && !mutant!(S10_target_receive)
        {
            engine.release(received);
        }
    }
}
