//! Reads, writes and flushes.

use super::options::MAX_SEGMENTS;
use super::{Host, State};
use crate::nvmf::{
    BlockRange, Command, CompletionQueueEntry, DataPointer, KEYED_DATA_BLOCK_LIMIT, KeyedDataBlock, Status,
};
use arrayvec::ArrayVec;
use frwr_engine::gather::Segment;
use frwr_engine::provider::{Access, Port};
use frwr_engine::{Chunk, ConnectionId, Submission, SubmitError};
use zerocopy::IntoBytes;

/// NLB is 16 bit and 0-based.
const MAX_BLOCKS: u64 = 1 << 16;

/// Why a request was not taken; the caller keeps everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// All command slots are in use.
    #[error("all commands of the queue are outstanding; poll, take completions and try again")]
    QueueFull,
    /// The namespace is not known yet, or the host stops or has given up.
    #[error("the host has no session; start it and poll until it is ready")]
    NotReady,
    /// Segments.
    #[error("{0} segments: a request has 1 to {MAX_SEGMENTS}; split it")]
    Segments(usize),
    /// Not a whole number of blocks, or more than the controller takes at once.
    #[error("{bytes} bytes: must be a multiple of the block size and at most {limit}; split the request")]
    Length {
        /// Bytes of all segments.
        bytes: u64,
        /// What the controller takes.
        limit: u32,
    },
    /// Not inside the namespace.
    #[error("the blocks are outside of the namespace; look at Host::geometry")]
    OutOfRange,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The controller said so.
    #[error("the controller answered {0}")]
    Status(Status),
    /// The engine cannot open the segments with one key, or at all.
    #[error("the segments cannot be opened with one key: {0}")]
    Submit(SubmitError),
    /// They take more than one key, which a command has no room for.
    #[error("the segments take more than one key; use one contiguous segment on this device")]
    TooManyKeys,
    /// The host has given up, or was stopped; the command may have been executed.
    #[error("the host has no session any more; the command may have been executed")]
    Abandoned,
}

/// How a request ended. Its memory is not reachable for the target any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCompletion {
    /// As given.
    pub cookie: u64,
    /// How.
    pub result: Result<(), IoError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
}

/// A request, from its submission until its completion is queued.
#[derive(Debug)]
pub(super) struct Request {
    kind: Kind,
    lba: u64,
    blocks: u32,
    bytes: u32,
    segments: ArrayVec<Segment, MAX_SEGMENTS>,
    cookie: u64,
    /// It was lost with a connection.
    lost: bool,
}

impl<P: Port> Host<P> {
    /// Reads the blocks from `lba` on into `segments`, in order. Ends with a [`HostCompletion`].
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn read(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Read, lba, segments, cookie)
    }

    /// Writes `segments`, in order, to the blocks from `lba` on. Their bytes must not change before the end.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn write(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Write, lba, segments, cookie)
    }

    /// Makes all writes durable that ended before.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn flush_namespace(&mut self, cookie: u64) -> Result<(), RequestError> {
        let (kind, segments) = (Kind::Flush, ArrayVec::new());
        self.take(Request { kind, lba: 0, blocks: 0, bytes: 0, segments, cookie, lost: false })
    }

    /// The next request that ended.
    pub fn next_completion(&mut self) -> Option<HostCompletion> {
        self.completions.pop_front()
    }

    fn transfer(&mut self, kind: Kind, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        let geometry = self.geometry.ok_or(RequestError::NotReady)?;
        let held: ArrayVec<Segment, MAX_SEGMENTS> =
            segments.try_into().map_err(|_| RequestError::Segments(segments.len()))?;
        if held.is_empty() {
            return Err(RequestError::Segments(0));
        }
        let bytes: u64 = held.iter().map(|segment| u64::from(segment.length)).sum();
        let (limit, block) = (self.transfer_limit(), u64::from(geometry.block_bytes()));
        if bytes == 0 || bytes > u64::from(limit) || !bytes.is_multiple_of(block) {
            return Err(RequestError::Length { bytes, limit });
        }
        // Both were compared with the limit, which is 32 bit.
        let (blocks, bytes) = ((bytes / block) as u32, bytes as u32);
        geometry.extent(lba, blocks).map_err(|_| RequestError::OutOfRange)?;
        self.take(Request { kind, lba, blocks, bytes, segments: held, cookie, lost: false })
    }

    /// Bytes of the largest transfer: MDTS, NLB and the length of a keyed data block.
    pub(super) fn transfer_limit(&self) -> u32 {
        let block = self.geometry.map_or(1, |geometry| geometry.block_bytes());
        let limit = self.controller.max_transfer.unwrap_or(u64::MAX);
        let limit = limit.min(u64::from(block) * MAX_BLOCKS).min(u64::from(KEYED_DATA_BLOCK_LIMIT));
        // At most KEYED_DATA_BLOCK_LIMIT.
        limit as u32 / block * block
    }

    fn take(&mut self, request: Request) -> Result<(), RequestError> {
        if self.stopping || self.geometry.is_none() || matches!(self.state, State::Stopped | State::Failed(_)) {
            return Err(RequestError::NotReady);
        }
        // Completions that nobody took yet occupy the queue as well, so that it never grows.
        if self.completions.len() + (self.requests.len() - self.free.len()) >= self.requests.len() {
            return Err(RequestError::QueueFull);
        }
        let index = self.free.pop().ok_or(RequestError::QueueFull)?;
        self.requests[usize::from(index)] = Some(request);
        self.statistics.requests += 1;
        self.queued.push_back(index);
        self.submit_queued();
        Ok(())
    }

    /// Hands queued requests to the engine while there is a session and room.
    pub(super) fn submit_queued(&mut self) {
        let (State::Ready { .. }, Some(io)) = (self.state, self.connections.io) else { return };
        while let Some(&index) = self.queued.front() {
            match self.submit(index, io) {
                Ok(()) => {}
                Err(SubmitError::NoSlot | SubmitError::NotConnected) => break,
                Err(SubmitError::Unannounced) => self.complete(index, Err(IoError::TooManyKeys)),
                Err(error) => self.complete(index, Err(IoError::Submit(error))),
            }
            self.queued.pop_front();
        }
    }

    fn submit(&mut self, index: u16, io: ConnectionId) -> Result<(), SubmitError> {
        // It is still queued itself.
        let first = self.requests.len() - self.free.len() == self.queued.len();
        let Some(Some(request)) = self.requests.get_mut(usize::from(index)) else { return Ok(()) };
        let namespace = self.options.namespace;
        let in_capsule = self.options.in_capsule_data
            && request.kind == Kind::Write
            && request.segments.len() == 1
            && u64::from(request.bytes) <= self.controller.in_capsule_bytes;
        let invite = self.options.remote_invalidation
            && self.engine.capabilities().remote_invalidation
            && request.kind != Kind::Flush
            && !in_capsule;
        let data = if in_capsule {
            DataPointer::InCapsule { offset: 0, length: request.bytes }
        } else {
            // The engine asks for address and key to be filled in when it knows them.
            DataPointer::Keyed(KeyedDataBlock { address: 0, length: request.bytes, key: 0, invalidate: invite })
        };
        let range = BlockRange { namespace, lba: request.lba, blocks: request.blocks, data };
        let (command, access) = match request.kind {
            Kind::Read => (Command::Read(range), Access::RemoteWrite),
            Kind::Write => (Command::Write(range), Access::RemoteRead),
            Kind::Flush => (Command::Flush { namespace }, Access::RemoteRead),
        };
        let identifier = self.commands.next_identifier(index);
        let entry = command.encode(identifier).map_err(|_| SubmitError::MessageLength)?;
        let segments = request.segments.as_slice();
        let chunk = [Chunk { access, segments }];
        let opens_memory = request.kind != Kind::Flush && !in_capsule;
        let submission = Submission {
            message: entry.as_bytes(),
            inline: if in_capsule { segments } else { &[] },
            chunks: if opens_memory { &chunk } else { &[] },
            invite_invalidation: invite,
            iova_cookie: identifier.into(),
            cookie: identifier.into(),
        };
        let handle = self.engine.submit(io, &submission, &mut self.commands)?;
        self.commands.posted(identifier, io, handle);
        if first {
            self.answered_at = self.now;
        }
        self.statistics.submissions += 1;
        self.statistics.resubmitted += u64::from(core::mem::take(&mut request.lost));
        Ok(())
    }

    /// The controller answered.
    pub(super) fn answered(&mut self, index: u16, response: &CompletionQueueEntry) {
        self.answered_at = self.now;
        let status = response.status();
        self.complete(index, if status.is_success() { Ok(()) } else { Err(IoError::Status(status)) });
    }

    /// The connection ended before the answer: the request waits for the next session.
    pub(super) fn lost(&mut self, index: u16) {
        let Some(Some(request)) = self.requests.get_mut(usize::from(index)) else { return };
        request.lost = true;
        self.statistics.lost += 1;
        if matches!(self.state, State::Stopped | State::Failed(_)) {
            return self.complete(index, Err(IoError::Abandoned));
        }
        self.queued.push_back(index);
    }

    pub(super) fn complete(&mut self, index: u16, result: Result<(), IoError>) {
        let Some(request) = self.requests.get_mut(usize::from(index)).and_then(Option::take) else { return };
        self.free.push(index);
        self.statistics.succeeded += u64::from(result.is_ok());
        self.statistics.failed += u64::from(result.is_err());
        self.completions.push_back(HostCompletion { cookie: request.cookie, result });
    }

    /// There will be no other session: requests that wait for one end.
    pub(super) fn abandon_queued(&mut self) {
        while let Some(index) = self.queued.pop_front() {
            self.complete(index, Err(IoError::Abandoned));
        }
    }
}
