//! Requests of the caller, from their submission until their completion was taken.

use super::bounce::Bounce;
use super::error::{IoError, RequestError};
use super::options::MAX_SEGMENTS;
use super::reserve::Reserve;
use super::statistics::HostStatistics;
use crate::wire::Status;
use arrayvec::ArrayVec;
use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_mempool::mutant;
use std::collections::VecDeque;

/// Bytes of one request at most: what is longer keeps the queue busy for too long to be one request.
pub const MAX_REQUEST_BYTES: u32 = 64 << 20;

/// How a request ended. Its memory is not reachable for the target any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCompletion {
    /// As given.
    pub cookie: u64,
    /// How.
    pub result: Result<(), IoError>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read {
        force_unit_access: bool,
    },
    Write {
        force_unit_access: bool,
    },
    Compare,
    /// A fused pair: the segments have what is expected in front of what is written.
    CompareAndWrite,
    Flush,
    WriteZeroes {
        deallocate: bool,
    },
    /// The ranges lie in a bounce buffer.
    Deallocate {
        ranges: u32,
        bounce: u16,
    },
    /// Its keys lie in a bounce buffer.
    Reserve {
        what: Reserve,
        bounce: u16,
    },
    /// What it says goes to the caller's memory.
    ReservationReport {
        bytes: u32,
    },
}

impl Kind {
    /// It moves data of the caller's.
    pub(super) fn moves_data(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. } | Self::Compare | Self::CompareAndWrite)
    }

    /// It changes the medium: executed once more behind a later change, it would undo that.
    pub(super) fn changes_medium(self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::WriteZeroes { .. }
                | Self::Deallocate { .. }
                | Self::CompareAndWrite
                | Self::Reserve { .. }
        )
    }

    /// Executed twice it would not find what it expects, or find it there once more: it is sent once.
    pub(super) fn is_sent_once(self) -> bool {
        matches!(self, Self::CompareAndWrite)
    }

    /// Its blocks are on the medium before it ends (FUA).
    pub(super) fn forces_unit_access(self) -> bool {
        matches!(self, Self::Read { force_unit_access: true } | Self::Write { force_unit_access: true })
    }
}

/// What a host with other paths beside it does where its way to the namespace fails a command: a host alone knows no other way, and waits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detour {
    /// Another path serves that has not refused the request: it goes back at once.
    pub(super) at_once: bool,
    /// Else behind a pause: how many it has had.
    pub(super) pauses: u16,
}

/// What is asked for. Its segments are [`MAX_SEGMENTS`] at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) kind: Kind,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) segments: &'a [Segment],
    pub(super) cookie: u64,
    pub(super) detour: Detour,
}

impl<'a> Asked<'a> {
    pub(super) fn new(kind: Kind, lba: u64, blocks: u32, segments: &'a [Segment], cookie: u64) -> Self {
        Self { kind, lba, blocks, segments, cookie, detour: Detour::default() }
    }

    /// What is about no blocks, and moves no data of the caller's.
    pub(super) fn plain(kind: Kind, cookie: u64) -> Self {
        Self::new(kind, 0, 0, &[], cookie)
    }
}

/// A request, from its submission until its completion is queued. It is changed here alone: others see it by reference.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) segments: ArrayVec<Segment, MAX_SEGMENTS>,
    cookie: u64,
    /// Blocks that commands were made for.
    pub(super) cut: u32,
    /// Whether all commands were made: a flush has no blocks.
    pub(super) whole: bool,
    /// Commands that have not ended.
    outstanding: u32,
    /// Commands made so far.
    commands: u32,
    /// When the controller first refused one of them because of the path, since it last took one.
    refused: Option<Duration>,
    pub(super) detour: Detour,
    pub(super) result: Result<(), IoError>,
}

impl Request {
    pub(super) fn new(asked: &Asked<'_>) -> Self {
        let mut request = Self::vacant();
        request.begin(asked);
        request
    }

    /// None yet.
    fn vacant() -> Self {
        let (lba, blocks, cookie, cut, outstanding, commands) = (0, 0, 0, 0, 0, 0);
        let (kind, segments, detour) = (Kind::Flush, ArrayVec::new(), Detour::default());
        let (whole, refused, result) = (false, None, Ok(()));
        Self { kind, lba, blocks, segments, cookie, cut, whole, outstanding, commands, refused, detour, result }
    }

    /// It is this one from now on. In its place: it is large, and most of that are segments that few requests have.
    #[inline(always)]
    fn begin(&mut self, asked: &Asked<'_>) {
        let Asked { kind, lba, blocks, segments, cookie, detour } = *asked;
        (self.kind, self.lba, self.blocks, self.cookie, self.detour) = (kind, lba, blocks, cookie, detour);
        (self.cut, self.whole, self.outstanding, self.commands) = (0, false, 0, 0);
        (self.refused, self.result) = (None, Ok(()));
        self.segments.clear();
        debug_assert!(segments.len() <= MAX_SEGMENTS, "whoever asks has counted its segments");
        // Few, so that each by itself is less than a call.
        self.segments.extend(segments.iter().copied().take(MAX_SEGMENTS));
    }

    /// So many commands were made of its next `blocks` blocks; whether these were the last.
    #[inline(always)]
    pub(super) fn cut(&mut self, blocks: u32, commands: u32) -> bool {
        self.cut += blocks;
        self.whole = self.cut == self.blocks;
        self.outstanding += commands;
        self.commands += commands;
        self.whole
    }

    /// The same for another host, which is to know it by this cookie.
    pub(super) fn asked(&self, cookie: u64, detour: Detour) -> Asked<'_> {
        Asked { detour, ..Asked::new(self.kind, self.lba, self.blocks, &self.segments, cookie) }
    }

    pub(super) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// It fails, unless it has: nothing more is cut of it. That it may still be executed has to be known, whatever else was wrong.
    fn fail(&mut self, error: IoError) {
        let is_told = match self.kind {
            Kind::CompareAndWrite => outranks(error, self.result),
            _ => self.result.is_ok() || error == (IoError::GivenBack { in_flight: true }),
        };
        if is_told {
            self.result = Err(error);
        }
        self.whole = true;
    }
}

/// How much an error of one half says. What was compared and is different was not written, whatever became of the other
/// answer; that one half failed because the other one did says nothing.
fn weight(error: IoError) -> u8 {
    match error {
        IoError::Status(status) if status.without_flags() == Status::ABORTED_FAILED_FUSED => 0,
        IoError::Status(status) if status.without_flags() == Status::COMPARE_FAILURE => 3,
        // It may have been executed.
        IoError::GivenBack { in_flight: true } | IoError::Undecided | IoError::Abandoned => 2,
        _ => 1,
    }
}

/// A request of a pair ends with this error, in place of what is known of it.
fn outranks(error: IoError, before: Result<(), IoError>) -> bool {
    before.map_or_else(|before| weight(error) > weight(before), |()| true)
}

/// Where a request is, or was.
#[derive(Debug)]
struct Place {
    is_taken: bool,
    request: Request,
}

/// All requests of a host, by index.
#[derive(Debug)]
pub(super) struct Requests {
    places: Vec<Place>,
    free: Vec<u16>,
    /// Those of which commands are to be made, in order.
    queued: VecDeque<u16>,
    /// Those that ended and whose completion nobody took yet, in order: they keep their places until then.
    ended: VecDeque<u16>,
    statistics: HostStatistics,
}

impl Requests {
    pub(super) fn new(count: u16) -> Self {
        Self {
            places: (0..count).map(|_| Place { is_taken: false, request: Request::vacant() }).collect(),
            free: (0..count).rev().collect(),
            queued: VecDeque::with_capacity(count.into()),
            ended: VecDeque::with_capacity(count.into()),
            statistics: HostStatistics::default(),
        }
    }

    /// What it counted.
    pub(super) fn statistics(&self) -> HostStatistics {
        let outstanding = self.in_hand() as u64;
        let succeeded = self.statistics.requests - outstanding - self.statistics.failed;
        HostStatistics { outstanding, succeeded, ..self.statistics }
    }

    pub(super) fn len(&self) -> u16 {
        // Made from as many.
        self.places.len() as u16
    }

    fn in_hand(&self) -> usize {
        self.places.len() - self.free.len() - self.ended.len()
    }

    /// None is in hand.
    pub(super) fn is_empty(&self) -> bool {
        self.in_hand() == 0
    }

    /// How many may be taken: completions that nobody took yet occupy their places.
    pub(super) fn available(&self) -> usize {
        self.free.len()
    }

    pub(super) fn get(&self, index: u16) -> Option<&Request> {
        self.places.get(usize::from(index)).filter(|place| place.is_taken).map(|place| &place.request)
    }

    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut Request> {
        self.places.get_mut(usize::from(index)).filter(|place| place.is_taken).map(|place| &mut place.request)
    }

    /// Takes a request, which waits for its commands to be made.
    #[inline(always)]
    pub(super) fn take(&mut self, asked: &Asked<'_>) -> Result<(), RequestError> {
        let index = self.free.pop().ok_or(RequestError::QueueFull)?;
        if let Some(place) = self.places.get_mut(usize::from(index)) {
            place.is_taken = true;
            place.request.begin(asked);
        }
        self.statistics.requests += 1;
        self.queued.push_back(index);
        Ok(())
    }

    /// The next request that ended.
    pub(super) fn next_completion(&mut self) -> Option<HostCompletion> {
        let index = self.ended.pop_front()?;
        let Request { cookie, result, .. } = self.places.get(usize::from(index))?.request;
        self.free.push(index);
        Some(HostCompletion { cookie, result })
    }

    /// The first of which commands are to be made.
    pub(super) fn first_queued(&self) -> Option<u16> {
        self.queued.front().copied()
    }

    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// The first one lets the others pass.
    pub(super) fn pass_over(&mut self) {
        self.queued.rotate_left(1);
    }

    /// The first one leaves the queue: all its commands were made.
    pub(super) fn pop_queued(&mut self) {
        self.queued.pop_front();
    }

    /// Its commands found no room: none was made of it, and it is the first one again.
    pub(super) fn uncut(&mut self, index: u16) {
        if let Some(request) = self.get_mut(index) {
            (request.cut, request.whole, request.outstanding, request.commands) = (0, false, 0, 0);
            self.queued.push_front(index);
        }
    }

    /// The rest of a command that ended follows, unless the request has failed.
    pub(super) fn goes_on(&mut self, index: u16) -> bool {
        let Some(request) = self.get_mut(index).filter(|request| request.result.is_ok()) else { return false };
        (request.refused, request.commands) = (None, request.commands + 1);
        true
    }

    /// No command can be made of it.
    pub(super) fn fail(&mut self, index: u16, error: IoError) {
        if let Some(request) = self.get_mut(index) {
            request.fail(error);
        }
    }

    /// The caller gives it up, if it has this cookie.
    pub(super) fn give_up(&mut self, index: u16, cookie: u64) -> bool {
        let Some(request) = self.get_mut(index).filter(|request| request.cookie == cookie) else { return false };
        request.fail(IoError::Aborted);
        if !mutant!(host_aborted_queued) {
            self.queued.retain(|&queued| queued != index);
        }
        true
    }

    /// The controller may have taken a command: the next refusal is the first one of another time without a path, as behind one that
    /// succeeded.
    pub(super) fn path_is_open(&mut self, index: u16) {
        if let Some(request) = self.get_mut(index) {
            request.refused = None;
        }
    }

    /// The controller refused one of its commands because of the path: since when it does.
    ///
    /// # Errors
    /// It has failed, or was given up.
    pub(super) fn refused_since(&mut self, index: u16, now: Duration) -> Result<Duration, IoError> {
        let Some(request) = self.get_mut(index) else { return Ok(now) };
        request.result?;
        Ok(*request.refused.get_or_insert(now))
    }

    /// One of its commands ended.
    #[inline(always)]
    pub(super) fn command_ended(&mut self, index: u16, result: Result<(), IoError>, bounce: &mut Bounce) {
        let Some(request) = self.get_mut(index) else { return };
        request.outstanding -= 1;
        request.refused = None;
        if let Err(error) = result {
            let queued = !request.whole;
            request.fail(error);
            if queued {
                self.queued.retain(|&queued| queued != index);
            }
        }
        self.finish_if_ended(index, bounce);
    }

    /// Takes it out of the queue, if it is the first one there.
    pub(super) fn leave_queue(&mut self, index: u16) {
        if self.first_queued() == Some(index) {
            self.queued.pop_front();
        }
    }

    /// No command can be made of the first one, which fails where it has not.
    pub(super) fn fail_first(&mut self, index: u16, error: IoError, bounce: &mut Bounce) {
        self.fail(index, error);
        self.leave_queue(index);
        self.finish_if_ended(index, bounce);
    }

    /// Everything that is queued fails.
    pub(super) fn fail_queued(&mut self, error: IoError, bounce: &mut Bounce) {
        while let Some(index) = self.queued.pop_front() {
            self.fail(index, error);
            self.finish_if_ended(index, bounce);
        }
    }

    /// Ends a request whose commands have all ended, and that needs no more of them. It must not be queued.
    #[inline(always)]
    pub(super) fn finish_if_ended(&mut self, index: u16, bounce: &mut Bounce) {
        let Some(place) = self.places.get_mut(usize::from(index)).filter(|place| place.is_taken) else { return };
        let request = &place.request;
        // K20: a request ends with the first of its commands, or while some are in flight.
        if !(request.whole && (request.outstanding == 0 || mutant!(K20_host_outstanding))) {
            return;
        }
        if let Kind::Deallocate { bounce: buffer, .. } | Kind::Reserve { bounce: buffer, .. } = request.kind {
            bounce.give_back(buffer);
        }
        let least = if request.kind.is_sent_once() { 2 } else { 1 };
        self.statistics.split_requests += u64::from(request.commands > least);
        self.statistics.failed += u64::from(request.result.is_err());
        place.is_taken = false;
        self.ended.push_back(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_most_is_what_a_pair_comes_to() {
        let failed = IoError::Status(Status::ABORTED_FAILED_FUSED.do_not_retry());
        let differs = IoError::Status(Status::COMPARE_FAILURE.do_not_retry());
        let other = IoError::Status(Status::INTERNAL_ERROR);
        let lost = IoError::GivenBack { in_flight: true };
        for (at, error) in [failed, other, lost, differs].into_iter().enumerate() {
            assert!(outranks(error, Ok(())));
            for (before, former) in [failed, other, lost, differs].into_iter().enumerate() {
                assert_eq!(outranks(error, Err(former)), at > before, "{error} behind {former}");
            }
        }
    }
}
