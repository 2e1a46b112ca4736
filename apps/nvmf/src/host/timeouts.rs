//! Commands that take too long: the controller is asked to abort them (Base 5.1). A command ends with its reply, which
//! fences its keys; where none comes although the Abort was sent, the session ends, whose drained queues are the fence.

use super::{Host, HostFailure, State};
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

/// How soon an Abort that found no room is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// Whether the controller was asked to abort a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abortion {
    /// No.
    None,
    /// The host that has the admin queue was asked to, and has not said that it did.
    Asked,
    /// Its Abort was sent.
    Sent,
}

impl<P: Port> Host<P> {
    /// Looks at the deadlines of all commands, as often as one can have passed.
    pub(super) fn step_timeouts(&mut self) {
        if !self.context.time.has_passed(self.scan_at) || self.state != State::Ready {
            return;
        }
        let mut next = Duration::MAX;
        // No command that is submitted later has an earlier deadline.
        if !self.context.options.command_timeout.is_zero() {
            next = self.context.time.deadline_in(self.context.options.command_timeout);
        }
        for slot in 0..self.io_slots() {
            if !self.context.transport.commands().is_in_flight(slot) {
                continue;
            }
            let Some(Some(part)) = self.parts.get(usize::from(slot)) else { continue };
            let Some(deadline) = part.deadline else { continue };
            let (queue, abortion) = (part.queue, part.abortion);
            if deadline > self.context.time.watched() {
                next = next.min(deadline);
                continue;
            }
            // K20: a command that is too late ends without its fence.
            if mutant!(K20_host_timeout) {
                self.leave_queue(slot);
                self.command_ended(slot, Err(super::IoError::TimedOut));
                continue;
            }
            if abortion == Abortion::Sent && !mutant!(host_abort_unanswered) {
                return self.fail(HostFailure::CommandTimeout { stood_still: self.context.time.stood_still() });
            }
            // While an Abort is not answered no other one is sent; that has a time of its own (`Chores::abort_by`).
            next = next.min(self.send_abort(slot, queue));
        }
        self.scan_at = next;
    }

    /// Returns when to look at the command again.
    fn send_abort(&mut self, slot: u16, queue: u16) -> Duration {
        let retry = self.context.time.deadline_in(RETRY);
        let Some(command_id) = self.context.transport.commands().identifier(slot) else { return retry };
        let queue_id = self.queue_id(queue);
        let (sent, abortion) = match &mut self.following {
            Some(following) => (following.abort(queue_id, command_id), Abortion::Asked),
            None => (self.send_abort_of(queue_id, command_id), Abortion::Sent),
        };
        if !sent {
            return retry;
        }
        // From the Abort on, whoever sends it.
        let deadline =
            (abortion == Abortion::Sent).then(|| self.context.time.deadline_in(self.context.options.step_timeout));
        if let Some(Some(part)) = self.parts.get_mut(usize::from(slot)) {
            (part.abortion, part.deadline) = (abortion, deadline);
        }
        deadline.unwrap_or(Duration::MAX)
    }

    /// The host that has the admin queue sent the Abort of a command.
    pub(super) fn abort_sent(&mut self, queue_id: u16, command_id: u16) {
        let deadline = self.context.time.deadline_in(self.context.options.step_timeout);
        let slot = self.context.transport.commands().in_flight(command_id);
        let Some(Some(part)) = slot.and_then(|slot| self.parts.get_mut(usize::from(slot))) else { return };
        let first_queue = self.following.map_or(0, |following| following.first_queue);
        if part.abortion == Abortion::Asked && part.queue.checked_add(first_queue) == Some(queue_id) {
            (part.abortion, part.deadline) = (Abortion::Sent, Some(deadline));
            self.scan_at = self.scan_at.min(deadline);
        }
    }

    /// A request was given up: its commands are aborted, or end here if they were not sent.
    pub(super) fn abort_commands(&mut self, request: u16) {
        if !mutant!(host_aborted_queued) {
            self.queued.retain(|&queued| queued != request);
        }
        for slot in 0..self.io_slots() {
            let in_flight = self.context.transport.commands().is_in_flight(slot);
            let Some(Some(part)) = self.parts.get_mut(usize::from(slot)) else { continue };
            if part.request != request {
                continue;
            }
            if in_flight {
                if part.abortion == Abortion::None {
                    part.deadline = Some(self.context.time.watched());
                    self.scan_at = self.context.time.watched();
                    self.context.time.look();
                }
            } else {
                self.resend.remove(slot);
                self.command_ended(slot, Err(super::IoError::Aborted));
            }
        }
    }

    /// When the next deadline may pass.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let outstanding = self.free_slots.len() < self.parts.len();
        (outstanding && self.state == State::Ready).then_some(self.scan_at)
    }
}
