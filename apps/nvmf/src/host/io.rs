//! Requests on their way: cut into commands, sent on the queue with the least in flight, sent again where it has to be, and
//! put together again.

mod aborts;
mod pairs;

use super::bounce::Bounce;
use super::context::Context;
use super::cut::{Uncut, cut, cut_again};
use super::error::{IoError, RequestError};
use super::parts::{Abortion, Extent, Part, Parts};
use super::path::Path;
use super::recourse::{Verdict, is_of_path, judge};
use super::requests::{Asked, Detour, HostCompletion, Kind, Request, Requests};
use super::reserve::Reserve;
use super::retries::{Resend, blame};
use super::statistics::HostStatistics;
use super::submit::{copy_bounced, submit};
use super::timeouts::Timeouts;
use crate::wire::{AnaState, DATASET_RANGE_BYTES, ReservationKeys, Status};
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, SubmitError};
use frwr_mempool::mutant;
use pairs::Half;

/// What became of an attempt to submit.
enum Attempt {
    Done,
    /// When a bounce buffer is free, which a command or request behind it may hold.
    NoBuffer,
    /// Later.
    NoRoom,
}

/// Commands, and requests, that one poll passes over because they lack a bounce buffer: the holder of one may stand behind
/// them, and is found in as many polls as it takes.
const MAX_PASSED_OVER: usize = 16;

/// All requests of a host, and their commands.
#[derive(Debug)]
pub(super) struct Io {
    requests: Requests,
    parts: Parts,
    resend: Resend,
    bounce: Bounce,
    timeouts: Timeouts,
    /// What has lost its session, or its way to the namespace, ends here ([`IoError::GivenBack`]) in place of waiting for another.
    gives_back: bool,
    half: Option<Half>,
    statistics: HostStatistics,
}

impl Io {
    /// `commands`: requests, and commands, at most. `retries` as in [`Resend::new`].
    pub(super) fn new(commands: u16, retries: Option<u16>, bounce: Bounce) -> Self {
        Self {
            requests: Requests::new(commands),
            parts: Parts::new(commands),
            resend: Resend::new(commands, retries),
            bounce,
            timeouts: Timeouts::default(),
            gives_back: false,
            half: None,
            statistics: HostStatistics::default(),
        }
    }

    /// What it counted.
    pub(super) fn statistics(&self) -> HostStatistics {
        self.statistics + self.requests.statistics()
    }

    /// From now on, what has lost its session or its way is for the caller to send again. Nothing is in hand.
    pub(super) fn give_back(&mut self) {
        self.gives_back = true;
    }

    /// What waits for a way to the namespace goes back, where that is the caller's.
    pub(super) fn give_back_queued(&mut self) {
        if self.gives_back && self.waits() {
            self.end_queued(IoError::GivenBack { in_flight: false });
        }
    }

    /// No request is in hand.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Requests that may be taken.
    pub(super) fn available(&self) -> usize {
        self.requests.available()
    }

    /// Something waits to be sent.
    pub(super) fn waits(&self) -> bool {
        self.requests.queued() > 0 || !self.resend.is_empty()
    }

    /// When the first pause of a command is over, by the caller's time.
    pub(super) fn paused_until(&self) -> Option<Duration> {
        self.resend.paused_until()
    }

    /// When a deadline of a command may pass, in watched time.
    pub(super) fn deadline(&self) -> Option<Duration> {
        (!self.parts.is_empty()).then_some(self.timeouts.at())
    }

    #[inline(always)]
    pub(super) fn take(&mut self, asked: &Asked<'_>) -> Result<(), RequestError> {
        self.requests.take(asked)
    }

    /// There are bounce buffers, in use or not, that hold the list of a deallocation.
    pub(super) fn has_buffers_for(&self, ranges: &[(u64, u32)]) -> bool {
        self.bounce.exists() && ranges.len() * DATASET_RANGE_BYTES <= self.bounce.bytes()
    }

    /// Takes a deallocation of 256 ranges at most.
    pub(super) fn take_ranges(
        &mut self,
        ranges: &[(u64, u32)],
        cookie: u64,
        detour: Detour,
    ) -> Result<(), RequestError> {
        let bounce = self.bounce.take(ranges.len() * DATASET_RANGE_BYTES).ok_or(RequestError::NoBounceBuffer)?;
        self.bounce.write_ranges(bounce, ranges);
        // At most 256.
        let kind = Kind::Deallocate { ranges: ranges.len() as u32, bounce };
        let asked = Asked { detour, ..Asked::plain(kind, cookie) };
        self.requests.take(&asked).inspect_err(|_| self.bounce.give_back(bounce))
    }

    /// Takes a command about reservations, with these keys.
    pub(super) fn take_keys(&mut self, what: Reserve, keys: &ReservationKeys, cookie: u64) -> Result<(), RequestError> {
        let bounce = self.bounce.take(size_of::<ReservationKeys>()).ok_or(RequestError::NoBounceBuffer)?;
        self.bounce.write_keys(bounce, keys);
        let asked = Asked::plain(Kind::Reserve { what, bounce }, cookie);
        self.requests.take(&asked).inspect_err(|_| self.bounce.give_back(bounce))
    }

    pub(super) fn next_completion(&mut self) -> Option<HostCompletion> {
        self.requests.next_completion()
    }

    /// Hands commands to the engine while there is room.
    pub(super) fn submit<P: Port>(&mut self, path: &mut Path<'_>, context: &mut Context<P>) {
        if self.half.is_none() && !self.waits() {
            return;
        }
        self.timeouts.begin(context);
        if self.half.is_some() && !self.send_half(path, context) {
            return;
        }
        let has_again = !self.resend.is_empty();
        if has_again && !(self.submit_again(false, path, context) && self.submit_again(true, path, context)) {
            return;
        }
        self.submit_new(path, context);
    }

    /// Submits commands that wait; false where there is no room for more. Of suspects one is in flight at a time: requests
    /// that no command was made of yet overtake the others.
    fn submit_again<P: Port>(&mut self, suspects: bool, path: &mut Path<'_>, context: &mut Context<P>) -> bool {
        let mut passed_over = 0;
        while let Some(slot) = self.resend.first(suspects) {
            if let Some(error) = self.given_up(slot) {
                self.resend.pop_first(suspects);
                self.command_ended(slot, Err(error));
                continue;
            }
            match self.fit(slot, path, context) {
                Ok(()) => {}
                Err(Uncut::Impossible(error)) => {
                    self.resend.pop_first(suspects);
                    self.command_ended(slot, Err(error));
                    continue;
                }
                Err(Uncut::NoBuffer) if passed_over < MAX_PASSED_OVER.min(self.resend.len(suspects)) => {
                    passed_over += 1;
                    self.resend.pass_over(suspects);
                    continue;
                }
                // The holder may also be in the other line, or a request that no command was made of yet.
                Err(Uncut::NoBuffer) => break,
                Err(Uncut::NoRoom) => return false,
            }
            let Some(queue) = path.queues.roomiest(context.options.queue_depth) else { return false };
            let submitted = self.submit_on(slot, queue, path, context);
            if matches!(self.attempted(slot, submitted), Attempt::NoRoom) {
                return false;
            }
            self.resend.pop_first(suspects);
        }
        true
    }

    /// Cuts requests that were not sent yet.
    fn submit_new<P: Port>(&mut self, path: &mut Path<'_>, context: &mut Context<P>) {
        let mut passed_over = 0;
        while let Some(index) = self.requests.first_queued() {
            match self.cut_next(index, path, context) {
                Attempt::Done => {}
                Attempt::NoBuffer if passed_over < MAX_PASSED_OVER.min(self.requests.queued()) => {
                    passed_over += 1;
                    self.requests.pass_over();
                }
                Attempt::NoBuffer | Attempt::NoRoom => return,
            }
        }
    }

    /// Makes and submits the next command of the request that is first in the queue.
    fn cut_next<P: Port>(&mut self, index: u16, path: &mut Path<'_>, context: &mut Context<P>) -> Attempt {
        let Some(request) = self.requests.get_mut(index).filter(|request| !request.whole) else {
            self.requests.leave_queue(index);
            return Attempt::Done;
        };
        if request.kind.is_sent_once() {
            return self.cut_pair(index, path, context);
        }
        let Some(queue) = path.queues.roomiest(context.options.queue_depth) else { return Attempt::NoRoom };
        if self.parts.is_full() {
            return Attempt::NoRoom;
        }
        let (first, rest) = (request.cut, request.blocks - request.cut);
        // What is left is cut when its turn comes.
        let extent = match cut(request, (first, rest), queue.1, path, &mut self.bounce, context) {
            Ok(extent) => Extent { rest: 0, ..extent },
            Err(Uncut::NoBuffer) => return Attempt::NoBuffer,
            Err(Uncut::NoRoom) => return Attempt::NoRoom,
            Err(Uncut::Impossible(error)) => {
                self.requests.fail_first(index, error, &mut self.bounce);
                return Attempt::Done;
            }
        };
        if request.cut(extent.blocks, 1) {
            self.requests.pop_queued();
        }
        let Some(slot) = self.parts.begin(index, first, extent) else { return Attempt::NoRoom };
        if extent.bounce.is_some() {
            self.statistics.bounced_commands += 1;
            self.copy_bounced(slot, true, path, context);
        }
        let submitted = self.send(slot, queue, path, context);
        let attempt = self.attempted(slot, submitted);
        if matches!(attempt, Attempt::NoRoom) {
            self.send_again(slot);
        }
        attempt
    }

    /// Fits a command to this session.
    fn fit<P: Port>(&mut self, slot: u16, path: &mut Path<'_>, context: &mut Context<P>) -> Result<(), Uncut> {
        let Some((part, request)) = part_of(slot, &self.parts, &self.requests) else { return Ok(()) };
        if part.extent.session == path.session {
            return Ok(());
        }
        let (_, connection) = path.queues.roomiest(context.options.queue_depth).ok_or(Uncut::NoRoom)?;
        let had_buffer = part.extent.bounce.is_some();
        let extent = cut_again(request, part, connection, path, &mut self.bounce, context)?;
        self.statistics.bounced_commands += u64::from(!had_buffer && extent.bounce.is_some());
        self.parts.fit(slot, extent);
        self.copy_bounced(slot, true, path, context);
        Ok(())
    }

    /// What became of a command that was handed to the engine.
    #[inline(always)]
    fn attempted(&mut self, slot: u16, submitted: Result<(), SubmitError>) -> Attempt {
        match submitted {
            Ok(()) => {}
            Err(SubmitError::NoSlot | SubmitError::NotConnected) => return Attempt::NoRoom,
            Err(error) => {
                let error = match error {
                    SubmitError::Unannounced => IoError::TooManyKeys,
                    error => IoError::Submit(error),
                };
                self.command_ended(slot, Err(error));
            }
        }
        Attempt::Done
    }

    /// Hands a command to the engine that few are like: it is sent again, or half of a pair.
    #[cold]
    fn submit_on<P: Port>(
        &mut self,
        slot: u16,
        queue: (u16, ConnectionId),
        path: &mut Path<'_>,
        context: &mut Context<P>,
    ) -> Result<(), SubmitError> {
        self.send(slot, queue, path, context)
    }

    /// Hands a command to the engine, in this queue.
    #[inline(always)]
    fn send<P: Port>(
        &mut self,
        slot: u16,
        (queue, connection): (u16, ConnectionId),
        path: &mut Path<'_>,
        context: &mut Context<P>,
    ) -> Result<(), SubmitError> {
        let Some(part) = self.parts.get_mut(slot) else { return Ok(()) };
        let Some(request) = self.requests.get(part.request) else { return Ok(()) };
        let sent = submit(request, (slot, part), connection, path, &self.bounce, context)?;
        self.resend.sent(slot, part);
        path.queues.enter(queue);
        self.statistics.submissions += 1;
        self.statistics.in_capsule_writes += u64::from(sent.in_capsule);
        self.statistics.multi_key_commands += u64::from(sent.keys > 1);
        self.statistics.resubmitted += u64::from(part.lost);
        part.sent(queue, self.timeouts.of_new());
        Ok(())
    }

    /// The controller answered. Returns how the namespace can be reached, where it says that it cannot.
    #[inline(always)]
    pub(super) fn answered<P: Port>(
        &mut self,
        slot: u16,
        status: Status,
        path: &mut Path<'_>,
        context: &mut Context<P>,
    ) -> Option<AnaState> {
        let part = self.leave_queue(slot, path)?;
        let (is_plain, aborted) = (part.extent.is_plain(), part.abortion != Abortion::None);
        let result = match status.code() {
            0 if is_plain => Ok(()),
            0 => {
                self.copy_bounced(slot, false, path, context);
                if self.goes_on(slot) {
                    return None;
                }
                Ok(())
            }
            code if Status::COMMAND_ABORT_REQUESTED.code() == code && aborted && mutant!(host_aborted_succeeds) => {
                Ok(())
            }
            code if Status::COMMAND_ABORT_REQUESTED.code() == code && aborted => Err(IoError::TimedOut),
            // It was not executed, or failed: what follows depends on how.
            _ => return self.refused(slot, status, path, context),
        };
        self.end(slot, result);
        None
    }

    /// A command ended with a status that is no success: it waits to be sent again, or ends.
    #[cold]
    fn refused<P: Port>(
        &mut self,
        slot: u16,
        status: Status,
        path: &Path<'_>,
        context: &Context<P>,
    ) -> Option<AnaState> {
        if self.gives_back && is_of_path(status, path.limits.reports_ana) && !mutant!(host_paths_refused) {
            self.refused_by_path(slot, status, path, context);
            return None;
        }
        let part = self.parts.get(slot)?;
        let is_once = self.is_sent_once(part.request);
        let (verdict, told) = judge(status, part, &mut self.requests, path.limits, context);
        match verdict {
            // It was answered: nobody executes it.
            Verdict::AwaitPath if self.gives_back => {
                self.command_ended(slot, Err(IoError::GivenBack { in_flight: false }));
            }
            // Both halves would have to go again: that is for the caller.
            Verdict::AwaitPath | Verdict::Pause(_) if is_once => self.command_ended(slot, Err(IoError::Status(status))),
            Verdict::AwaitPath => self.send_again(slot),
            Verdict::Pause(pause) => {
                self.parts.refused(slot);
                self.statistics.repeated += 1;
                self.resend.pause(slot, context.time.after(pause));
            }
            Verdict::Fail(error) => self.command_ended(slot, Err(error)),
        }
        told
    }

    /// The way to the namespace failed a command, which was answered, so that nobody executes it: it is for the caller to say by which path
    /// it goes, at once where there is another one, else behind a pause.
    fn refused_by_path<P: Port>(&mut self, slot: u16, status: Status, path: &Path<'_>, context: &Context<P>) {
        let Some((_, request)) = part_of(slot, &self.parts, &self.requests) else { return };
        let Detour { at_once, pauses } = request.detour;
        if at_once || request.result.is_err() {
            return self.command_ended(slot, Err(IoError::Status(status)));
        }
        self.parts.failed_by_path(slot, status);
        self.resend.pause(slot, context.time.after(path.limits.retry_delays.pause(pauses, status)));
    }

    /// Has what has paused long enough be sent, by whoever says where.
    pub(super) fn end_pauses(&mut self, now: Duration) {
        while let Some(slot) = self.resend.pause_over(now) {
            match self.parts.get(slot).and_then(|part| part.failed_by_path) {
                Some(status) => self.command_ended(slot, Err(IoError::Status(status))),
                None => self.send_again(slot),
            }
        }
    }

    /// Has the rest of a command follow that was cut again, unless its request has failed.
    fn goes_on(&mut self, slot: u16) -> bool {
        let Some(part) = self.parts.get(slot) else { return false };
        if part.extent.rest == 0 || !self.requests.goes_on(part.request) {
            return false;
        }
        if let Some(buffer) = self.parts.go_on(slot) {
            self.bounce.give_back(buffer);
        }
        self.send_again(slot);
        true
    }

    /// The engine did not send a command.
    pub(super) fn unsent(&mut self, slot: u16, error: IoError, path: &mut Path<'_>) {
        self.leave_queue(slot, path);
        self.command_ended(slot, Err(error));
    }

    /// The connection ended before the answer: the command waits for the next session. `posted`: the controller may have it; else the device
    /// refused it. `elsewhere`: the session ended because a queue of another core did; `last`: there will be none.
    pub(super) fn lost(&mut self, slot: u16, posted: bool, path: &mut Path<'_>, (elsewhere, last): (bool, bool)) {
        if !mutant!(host_lost_in_flight) {
            self.leave_queue(slot, path);
        }
        self.statistics.lost += 1;
        let Some(part) = self.parts.lost(slot, blame(elsewhere)) else { return };
        let (request, judged) = (part.request, self.resend.judge(part));
        self.requests.path_is_open(request);
        if self.is_sent_once(request) {
            return self.lost_of_pair(slot, request, posted, last);
        }
        match self.given_up(slot) {
            _ if self.gives_back => self.command_ended(slot, Err(IoError::GivenBack { in_flight: posted })),
            _ if last => self.command_ended(slot, Err(IoError::Abandoned)),
            Some(error) => self.command_ended(slot, Err(error)),
            // Mutant: a command that was lost counts as executed, or is never sent again.
            None if mutant!(host_lost_succeeds) => self.command_ended(slot, Ok(())),
            None if mutant!(host_lost_forgotten) => {}
            None => match judged {
                Ok(()) => self.send_again(slot),
                Err(error) => self.command_ended(slot, Err(error)),
            },
        }
    }

    /// There will be no other session, or none in time: everything that waits for one ends.
    pub(super) fn end_queued(&mut self, error: IoError) {
        while let Some(slot) = self.resend.pop().filter(|_| !mutant!(host_resend_forgotten)) {
            self.command_ended(slot, Err(error));
        }
        self.requests.fail_queued(error, &mut self.bounce);
    }

    /// Neither a request nor a command of it is sent twice.
    fn is_sent_once(&self, request: u16) -> bool {
        self.requests.get(request).is_some_and(|request| request.kind.is_sent_once())
    }

    /// Why a command that waits is not to be sent: its request has failed meanwhile.
    fn given_up(&self, slot: u16) -> Option<IoError> {
        part_of(slot, &self.parts, &self.requests)?.1.result.err()
    }

    /// Has a command wait until it may be sent.
    fn send_again(&mut self, slot: u16) {
        if let Some(part) = self.parts.get(slot) {
            self.resend.push(slot, part);
        }
    }

    /// A command is not in flight any more.
    fn leave_queue(&mut self, slot: u16, path: &mut Path<'_>) -> Option<&Part> {
        let part = self.parts.get(slot)?;
        path.queues.leave(part.queue);
        self.resend.landed(slot);
        Some(part)
    }

    /// A command ended otherwise than by its answer.
    #[cold]
    fn command_ended(&mut self, slot: u16, result: Result<(), IoError>) {
        self.end(slot, result);
    }

    /// A command ended, and its keys are dead.
    #[inline(always)]
    fn end(&mut self, slot: u16, result: Result<(), IoError>) {
        let Some(part) = self.parts.end(slot) else { return };
        // S10: a command's bounce buffer never comes back.
        if let Some(buffer) = part.extent.bounce
            && !mutant!(S10_host_bounce)
        {
            self.bounce.give_back(buffer);
        }
        self.requests.command_ended(part.request, result, &mut self.bounce);
    }

    fn copy_bounced<P: Port>(&mut self, slot: u16, gather: bool, path: &Path<'_>, context: &Context<P>) {
        if let Some((part, request)) = part_of(slot, &self.parts, &self.requests) {
            let copied = copy_bounced(request, part, gather, path.block, &self.bounce, context);
            self.statistics.bounced_bytes += copied;
        }
    }
}

/// A slot's command, and its request.
fn part_of<'a>(slot: u16, parts: &'a Parts, requests: &'a Requests) -> Option<(&'a Part, &'a Request)> {
    let part = parts.get(slot)?;
    Some((part, requests.get(part.request)?))
}
