//! What a caller asks for: reads, writes, compares, flushes, zeroes and deallocation, each ended by one completion.

use super::options::MAX_SEGMENTS;
use super::{Host, State};
use crate::wire::{AnaState, DATASET_RANGE_BYTES, IdentifyController, MAX_DATASET_RANGES, Status};
use arrayvec::ArrayVec;
use core::time::Duration;
use frwr_engine::SubmitError;
use frwr_engine::gather::Segment;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

/// Bytes of one request at most: what is longer keeps the queue busy for too long to be one request.
pub const MAX_REQUEST_BYTES: u32 = 64 << 20;

/// Why a request was not taken; the caller keeps everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// All request slots are in use.
    #[error("all requests of the host are outstanding; poll, take completions and try again")]
    QueueFull,
    /// The namespace is not known yet, or the host stops or has given up.
    #[error("the host has no session; start it and poll until it is ready")]
    NotReady,
    /// Segments.
    #[error("{0} segments: a request has 1 to {MAX_SEGMENTS}; split it")]
    Segments(usize),
    /// Not a whole number of blocks, or more than a request takes.
    #[error("{bytes} bytes: must be a multiple of the block size and at most {limit}; split the request")]
    Length {
        /// Bytes of all segments.
        bytes: u64,
        /// The limit.
        limit: u32,
    },
    /// Not inside the namespace.
    #[error("the blocks are outside of the namespace; look at Host::geometry")]
    OutOfRange,
    /// The controller has no such command (ONCS).
    #[error("the controller does not have the command {0}")]
    Unsupported(&'static str),
    /// Ranges of a deallocation.
    #[error("{0} ranges: a deallocation has 1 to 256; split it")]
    Ranges(usize),
    /// All bounce buffers are in use.
    #[error("all bounce buffers are in use; try again after a completion, or give the host more memory")]
    NoBounceBuffer,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The controller said so.
    #[error("the controller answered {0}")]
    Status(Status),
    /// The engine cannot open the segments.
    #[error("the segments cannot be opened: {0}")]
    Submit(SubmitError),
    /// The segments take several keys inside one block, and the host was given no memory for bounce buffers as large as a
    /// block.
    #[error("a block lies in several ranges of memory, and there are no bounce buffers; give the host more memory")]
    TooManyKeys,
    /// It was not answered within `command_timeout`, and the controller aborted it then.
    #[error("the command was not answered within command_timeout, and was aborted")]
    TimedOut,
    /// The caller aborted it.
    #[error("the request was aborted; what it has done is not known")]
    Aborted,
    /// The namespace cannot be reached through this controller, for longer than `inaccessible_timeout` or for ever.
    #[error("the namespace cannot be reached through this controller (ANA state {0:?})")]
    Inaccessible(AnaState),
    /// Its sessions ended with it in flight, more often than `command_retries` lets it be sent again, or the device refused to post
    /// it. Other requests go on.
    #[error(
        "the command was sent {attempts} times and never answered: its session ended each time, or the device refused it; it may \
         have been executed; look at what the target says of it, or raise command_retries"
    )]
    Unanswered {
        /// How often it was sent.
        attempts: u32,
    },
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
pub(super) enum Kind {
    Read {
        force_unit_access: bool,
    },
    Write {
        force_unit_access: bool,
    },
    Compare,
    Flush,
    WriteZeroes {
        deallocate: bool,
    },
    /// The ranges lie in a bounce buffer.
    Deallocate {
        ranges: u32,
        bounce: u16,
    },
}

impl Kind {
    /// It moves data of the caller's.
    pub(super) fn moves_data(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. } | Self::Compare)
    }

    /// Its blocks are on the medium before it ends (FUA).
    pub(super) fn forces_unit_access(self) -> bool {
        matches!(self, Self::Read { force_unit_access: true } | Self::Write { force_unit_access: true })
    }
}

/// A request, from its submission until its completion is queued.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) segments: ArrayVec<Segment, MAX_SEGMENTS>,
    pub(super) cookie: u64,
    /// Blocks that commands were made for.
    pub(super) cut: u32,
    /// Whether all commands were made: a flush has no blocks.
    pub(super) whole: bool,
    /// Commands that have not ended.
    pub(super) outstanding: u32,
    /// Commands made so far.
    pub(super) commands: u32,
    /// When the controller first refused one of them because of the path, since it last took one.
    pub(super) refused: Option<Duration>,
    pub(super) result: Result<(), IoError>,
}

impl<P: Port> Host<P> {
    /// Reads the blocks from `lba` on into `segments`, in order. Ends with one [`HostCompletion`], however many commands
    /// it takes.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn read(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Read { force_unit_access: false }, lba, segments, cookie)
    }

    /// [`Host::read`] with Force Unit Access: what is read is on the medium before it ends, whoever wrote it.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn read_force_unit_access(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Read { force_unit_access: true }, lba, segments, cookie)
    }

    /// Writes `segments`, in order, to the blocks from `lba` on. Their bytes must not change before the end. Where it takes
    /// several commands and one fails, others may have been executed.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn write(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Write { force_unit_access: false }, lba, segments, cookie)
    }

    /// [`Host::write`] with Force Unit Access: what is written is on the medium before it ends, without a flush of what else was
    /// written.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn write_force_unit_access(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.transfer(Kind::Write { force_unit_access: true }, lba, segments, cookie)
    }

    /// Compares `segments`, in order, with the blocks from `lba` on; ends with [`Status::COMPARE_FAILURE`] where they
    /// differ.
    ///
    /// # Errors
    /// [`RequestError`]; nothing is left behind.
    pub fn compare(&mut self, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::COMPARE, "Compare")?;
        self.transfer(Kind::Compare, lba, segments, cookie)
    }

    /// Makes all writes durable that ended before.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn flush_namespace(&mut self, cookie: u64) -> Result<(), RequestError> {
        self.take(Kind::Flush, 0, 0, ArrayVec::new(), cookie)
    }

    /// Fills `blocks` blocks from `lba` on with zeros; they may be deallocated where `deallocate` is set and
    /// the namespace has that.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn write_zeroes(&mut self, lba: u64, blocks: u32, deallocate: bool, cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::WRITE_ZEROES, "Write Zeroes")?;
        let geometry = self.geometry.ok_or(RequestError::NotReady)?;
        geometry.extent(lba, blocks).map_err(|_| RequestError::OutOfRange)?;
        if blocks == 0 {
            return Err(RequestError::Length { bytes: 0, limit: MAX_REQUEST_BYTES });
        }
        self.take(Kind::WriteZeroes { deallocate }, lba, blocks, ArrayVec::new(), cookie)
    }

    /// Tells the controller that the blocks of `ranges`, each a first block and a count, hold nothing any more (Dataset
    /// Management). It may ignore that.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn deallocate(&mut self, ranges: &[(u64, u32)], cookie: u64) -> Result<(), RequestError> {
        self.supports(IdentifyController::DATASET_MANAGEMENT, "Dataset Management")?;
        let geometry = self.geometry.ok_or(RequestError::NotReady)?;
        if ranges.is_empty() || ranges.len() > MAX_DATASET_RANGES as usize {
            return Err(RequestError::Ranges(ranges.len()));
        }
        if ranges.iter().any(|&(lba, blocks)| geometry.extent(lba, blocks).is_err()) {
            return Err(RequestError::OutOfRange);
        }
        let bounce = self.bounce.take(ranges.len() * DATASET_RANGE_BYTES).ok_or(RequestError::NoBounceBuffer)?;
        self.bounce.write_ranges(bounce, ranges);
        // At most 256.
        let kind = Kind::Deallocate { ranges: ranges.len() as u32, bounce };
        self.take(kind, 0, 0, ArrayVec::new(), cookie).inspect_err(|_| self.bounce.give_back(bounce))
    }

    /// Gives the requests with this cookie up: nothing more is sent for them, and the controller is asked to abort what
    /// was. Each still ends with one completion, after its keys are dead. Returns how many there are.
    pub fn abort(&mut self, cookie: u64) -> usize {
        let mut found = 0;
        for index in 0..self.requests.len() {
            let Some(Some(request)) = self.requests.get_mut(index) else { continue };
            if request.cookie == cookie {
                request.result = request.result.and(Err(IoError::Aborted));
                request.whole = true;
                found += 1;
                // Indices are 16 bit.
                self.abort_commands(index as u16);
                self.finish_if_ended(index as u16);
            }
        }
        found
    }

    /// The next request that ended.
    pub fn next_completion(&mut self) -> Option<HostCompletion> {
        self.completions.pop_front()
    }

    fn supports(&self, command: u16, name: &'static str) -> Result<(), RequestError> {
        if self.geometry.is_none() {
            return Err(RequestError::NotReady);
        }
        if self.controller.optional_commands & command == 0 {
            return Err(RequestError::Unsupported(name));
        }
        Ok(())
    }

    fn transfer(&mut self, kind: Kind, lba: u64, segments: &[Segment], cookie: u64) -> Result<(), RequestError> {
        let geometry = self.geometry.ok_or(RequestError::NotReady)?;
        let held: ArrayVec<Segment, MAX_SEGMENTS> =
            segments.try_into().map_err(|_| RequestError::Segments(segments.len()))?;
        if held.is_empty() {
            return Err(RequestError::Segments(0));
        }
        let bytes: u64 = held.iter().map(|segment| u64::from(segment.length)).sum();
        let (limit, block) = (MAX_REQUEST_BYTES, u64::from(geometry.block_bytes()));
        if bytes == 0 || bytes > u64::from(limit) || !bytes.is_multiple_of(block) {
            return Err(RequestError::Length { bytes, limit });
        }
        // Compared with the limit, which is 32 bit.
        let blocks = (bytes / block) as u32;
        geometry.extent(lba, blocks).map_err(|_| RequestError::OutOfRange)?;
        self.take(kind, lba, blocks, held, cookie)
    }

    fn take(
        &mut self,
        kind: Kind,
        lba: u64,
        blocks: u32,
        segments: ArrayVec<Segment, MAX_SEGMENTS>,
        cookie: u64,
    ) -> Result<(), RequestError> {
        if self.stopping || self.geometry.is_none() || matches!(self.state, State::Stopped | State::Failed(_)) {
            return Err(RequestError::NotReady);
        }
        // Completions that nobody took yet occupy the queue as well, so that it never grows.
        if self.free_requests() == 0 {
            return Err(RequestError::QueueFull);
        }
        let index = self.free.pop().ok_or(RequestError::QueueFull)?;
        let (cut, outstanding, commands) = (0, 0, 0);
        let (whole, refused, result) = (false, None, Ok(()));
        let request =
            Request { kind, lba, blocks, segments, cookie, cut, whole, outstanding, commands, refused, result };
        if let Some(place) = self.requests.get_mut(usize::from(index)) {
            *place = Some(request);
        }
        self.statistics.requests += 1;
        self.queued.push_back(index);
        self.submit_queued();
        Ok(())
    }

    /// Ends a request whose commands have all ended, and that needs no more of them. It must not be queued.
    pub(super) fn finish_if_ended(&mut self, index: u16) {
        let Some(place) = self.requests.get_mut(usize::from(index)) else { return };
        // K20: a request ends with the first of its commands, or while some are in flight.
        let Some(request) =
            place.take_if(|request| request.whole && (request.outstanding == 0 || mutant!(K20_host_outstanding)))
        else {
            return;
        };
        if let Kind::Deallocate { bounce, .. } = request.kind {
            self.bounce.give_back(bounce);
        }
        self.free.push(index);
        self.statistics.split_requests += u64::from(request.commands > 1);
        self.statistics.succeeded += u64::from(request.result.is_ok());
        self.statistics.failed += u64::from(request.result.is_err());
        self.completions.push_back(HostCompletion { cookie: request.cookie, result: request.result });
    }

    /// There will be no other session, or none in time: everything that waits for one ends.
    pub(super) fn end_queued(&mut self, error: IoError) {
        while let Some(slot) = self.resend.pop().filter(|_| !mutant!(host_resend_forgotten)) {
            self.command_ended(slot, Err(error));
        }
        while let Some(index) = self.queued.pop_front() {
            if let Some(Some(request)) = self.requests.get_mut(usize::from(index)) {
                request.result = request.result.and(Err(error));
                request.whole = true;
            }
            self.finish_if_ended(index);
        }
    }
}
