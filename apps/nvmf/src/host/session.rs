//! A session's life: connections opened one after the other, kept alive, closed together, and set up again.

use super::bring_up::Step;
use super::options::{ADMIN_ENTRIES, Admin};
use super::parts::Abortion;
use super::queues::QueueOf;
use super::timeouts::Late;
use super::transport::Answer;
use super::{After, Host, HostFailure, IoError, KeepAlive, State};
use crate::wire::{AcceptPrivateData, Command, CompletionQueueEntry};
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, DisconnectCause, Event, RequestStatus};
use frwr_mempool::mutant;

/// The back-off's exponent stays below the bits of its factor.
const MAX_DOUBLINGS: u32 = 16;

impl<P: Port> Host<P> {
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Connected { connection, private_data, .. } => self.connected(connection, &private_data),
            Event::OpenFailed { connection, reason, private_data } => {
                self.closed(connection, HostFailure::of_open(reason, &private_data));
            }
            Event::Disconnected { connection, cause, .. } => self.closed(connection, HostFailure::Disconnected(cause)),
            Event::Completed { cookie, status, .. } => self.completed(cookie, status),
            // `classify` calls nothing a command; if the engine did, the buffer would have to go back all the same.
            Event::Received { received, .. } => self.context.transport.engine_mut().release(received),
            // It neither listens nor transfers, and shares its completion queues with nobody; an end that waits for the device is told later.
            _ => {}
        }
    }

    /// What is due without an event.
    pub(super) fn step_session(&mut self) {
        match self.state {
            State::Stopped | State::Failed(_) => {}
            State::Detached if self.stopping => self.stop(),
            State::Detached => {}
            State::BackOff { .. } if self.stopping => self.stop(),
            State::BackOff { until } if self.context.time.now() >= until => self.open_next(QueueOf::Admin),
            State::BackOff { .. } => {}
            State::Opening { .. } if self.stopping => self.stop(),
            State::Opening { deadline, .. } if self.context.time.has_passed(deadline) => self.fail_late("connecting"),
            State::Opening { queue, .. } => self.queues.open(queue, &mut self.context),
            State::Bringing { step, .. } if self.stopping && !step.is_shutdown() => self.stop(),
            State::Bringing { step, deadline, .. } if self.context.time.has_passed(deadline) => {
                self.fail_late(step.name())
            }
            State::Bringing { step, at, .. }
                if self.context.time.now() >= at
                    && !self.context.transport.commands().is_in_flight(self.admin_slot(Admin::Step)) =>
            {
                self.issue(step);
            }
            State::Bringing { .. } => {}
            State::Ready if self.stopping && self.is_quiet() => match self.following {
                Some(_) => self.stop(),
                None => {
                    // With the notification the controller's timer stops.
                    self.keep_alive = KeepAlive::default();
                    self.bring(Step::ShutDown);
                }
            },
            State::Ready => {}
            State::Closing { then } => {
                // K18: the next session begins while the queues of this one are drained.
                let closed = self.queues.all_closed() || mutant!(K18_host_session);
                let detached = self.followers.all_detached() || mutant!(host_followers_left);
                if closed && detached {
                    self.all_closed(then);
                }
            }
        }
    }

    /// Nothing of ours is outstanding but an Asynchronous Event Request, which stays until the end, and nobody follows.
    fn is_quiet(&self) -> bool {
        let admin = [Admin::KeepAlive, Admin::Chore, Admin::Abort];
        self.io.is_idle()
            && self.followers.all_detached()
            && !admin
                .into_iter()
                .any(|command| self.context.transport.commands().is_in_flight(self.admin_slot(command)))
    }

    pub(super) fn fail_late(&mut self, what: &'static str) {
        self.fail(HostFailure::Timeout { what, stood_still: self.context.time.stood_still() });
    }

    pub(super) fn open_next(&mut self, queue: QueueOf) {
        if queue == QueueOf::Admin || self.following.is_some() && queue == QueueOf::Io(0) {
            self.context.time.connects();
        }
        self.state =
            State::Opening { queue, deadline: self.context.time.deadline_in(self.context.options.step_timeout) };
        self.queues.open(queue, &mut self.context);
    }

    fn connected(&mut self, connection: ConnectionId, private_data: &[u8]) {
        let State::Opening { queue, .. } = self.state else { return };
        let (entries, step) = match queue {
            QueueOf::Admin => (ADMIN_ENTRIES, Step::Connect),
            QueueOf::Io(queue) => (self.context.options.io_entries(), Step::ConnectIo(queue)),
        };
        if self.queues.connection(queue) != Some(connection) {
            return;
        }
        match AcceptPrivateData::parse(private_data) {
            Ok(receives) if receives >= entries => self.bring(step),
            Ok(_) if queue == QueueOf::Admin => {
                self.fail(HostFailure::Unsupported("an admin queue of 32 entries, which every controller has to take"));
            }
            Ok(receives) => {
                let wanted = self.context.options.queue_depth;
                self.fail(HostFailure::QueueDepth { wanted, limit: u32::from(receives.saturating_sub(1)) });
            }
            Err(_) => self.fail(HostFailure::Unsupported("record format 0 of private data")),
        }
    }

    pub(super) fn bring(&mut self, step: Step) {
        self.state = State::Bringing {
            step,
            at: self.context.time.now(),
            deadline: self.context.time.deadline_in(self.time_for(step)),
        };
        self.issue(step);
    }

    /// A controller may take as long to become ready as it says in CAP.TO, whatever the options say.
    fn time_for(&self, step: Step) -> Duration {
        let timeout = self.context.options.step_timeout;
        match step {
            Step::AwaitReady => timeout.max(self.limits.capabilities.ready_timeout()),
            _ => timeout,
        }
    }

    pub(super) fn ready(&mut self) {
        self.ends_elsewhere = false;
        self.statistics.sessions += 1;
        self.chores_ready();
        if let Some(following) = &mut self.following {
            following.attached();
        }
        self.followers.begin();
        self.settle();
        self.state = State::Ready;
    }

    /// The controller is ready, and its Keep Alive Timer runs (Base 3.9): also while its I/O queues are brought up, of which each
    /// may take as long as a step.
    pub(super) fn begin_keep_alive(&mut self) {
        let half = self.context.options.keep_alive / 2;
        self.keep_alive =
            KeepAlive { at: (!half.is_zero()).then(|| self.context.time.after(half)), answer_by: Duration::MAX };
    }

    /// Sends a Keep Alive where it is due. One that is not answered within the Keep Alive Timeout ends the session.
    pub(super) fn step_keep_alive(&mut self) {
        let KeepAlive { at: Some(at), answer_by } = self.keep_alive else { return };
        if self.context.time.now() < at {
            return;
        }
        let (slot, period) = (self.admin_slot(Admin::KeepAlive), self.context.options.keep_alive);
        if self.context.transport.commands().is_in_flight(slot) {
            if self.context.time.has_passed(answer_by) {
                self.fail(HostFailure::KeepAlive { stood_still: self.context.time.stood_still() });
            }
            return;
        }
        // Where the engine has no room, the next poll tries again.
        if self.send(QueueOf::Admin, slot, Command::KeepAlive, None).is_ok() {
            self.statistics.keep_alives += 1;
            self.keep_alive = KeepAlive {
                at: Some(self.context.time.after(period / 2)),
                answer_by: self.context.time.deadline_in(period),
            };
        }
    }

    /// When the next Keep Alive is due, by the caller's time, or when the one in flight has to be answered, in watched time.
    pub(super) fn keep_alive_at(&self) -> (Option<Duration>, Option<Duration>) {
        let KeepAlive { at, answer_by } = self.keep_alive;
        match at {
            Some(_) if self.context.transport.commands().is_in_flight(self.admin_slot(Admin::KeepAlive)) => {
                (None, Some(answer_by))
            }
            at => (at, None),
        }
    }

    fn completed(&mut self, cookie: u64, status: RequestStatus) {
        let Some((index, answer)) = self.context.transport.ended(cookie, status) else { return };
        match (answer, index < self.io_slots()) {
            (answer, true) => self.io_ended(index, answer),
            (Answer::Replied(response), false) => self.admin_answered(index, &response),
            (_, false) if index == self.admin_slot(Admin::Chore) => self.chore_refused(),
            // A step that was lost with its connection fails with it; one that the engine refused fails by its deadline. A
            // command that the controller says it could not abort has its own reply, or its deadline.
            (_, false) => {}
        }
    }

    fn io_ended(&mut self, slot: u16, answer: Answer) {
        let (elsewhere, last) = (self.ends_elsewhere, matches!(self.state, State::Stopped | State::Failed(_)));
        let Some((mut path, io, context)) = self.path() else { return };
        match answer {
            Answer::Replied(response) => {
                if let Some(state) = io.answered(slot, &response, &mut path, context) {
                    self.path_refused(state);
                }
            }
            Answer::Refused(error) => io.unsent(slot, error, &mut path),
            Answer::Lost => io.lost(slot, &mut path, elsewhere, last),
        }
    }

    /// Has a command aborted that takes too long.
    pub(super) fn step_timeouts(&mut self) {
        if self.state != State::Ready {
            return;
        }
        let Some((mut path, io, context)) = self.path() else { return };
        match io.late(&mut path, context) {
            Ok(None) => {}
            Ok(Some(late)) => self.send_abort(&late),
            Err(failure) => self.fail(failure),
        }
    }

    fn send_abort(&mut self, late: &Late) {
        let queue_id = self.queues.id(late.queue);
        let (sent, abortion) = match &mut self.following {
            Some(following) => (following.abort(queue_id, late.identifier), Abortion::Asked),
            None => (self.send_abort_of(queue_id, late.identifier), Abortion::Sent),
        };
        self.io.asked_to_abort(late.slot, sent.then_some(abortion), &self.context);
    }

    fn admin_answered(&mut self, index: u16, response: &CompletionQueueEntry) {
        if index == self.admin_slot(Admin::Step) {
            self.step_answered(response);
        } else if index == self.admin_slot(Admin::Chore) {
            self.chore_answered(response);
        } else if index == self.admin_slot(Admin::Event) {
            self.event_reported(response);
        }
    }

    /// A connection is gone, or could not be opened.
    fn closed(&mut self, connection: ConnectionId, failure: HostFailure) {
        if !self.queues.closed(connection) {
            return;
        }
        match (self.state, failure) {
            (State::Closing { .. }, _) => {}
            // A controller that is told to shut down may end the session before we do: that is the end that was asked for.
            (_, HostFailure::Disconnected(DisconnectCause::Peer)) if self.stopping && self.is_quiet() => self.stop(),
            _ => self.fail(failure),
        }
    }

    /// Ends the session because of a failure; another one follows unless the failure is permanent.
    pub(super) fn fail(&mut self, failure: HostFailure) {
        self.last_failure = Some(failure);
        self.statistics.failures += 1;
        self.attempts += 1;
        self.count_hasty();
        if let Some(following) = &mut self.following {
            following.failed(failure);
        }
        let then = if self.stopping {
            After::Stop
        } else if self.following.is_some() {
            // Whether it is the last one is for the other host to judge.
            After::Retry
        } else if failure.is_permanent(self.statistics.sessions > 0) {
            After::Fail(failure)
        } else if self.attempts > self.context.options.max_attempts {
            After::Fail(HostFailure::TooManyAttempts)
        } else if self.is_lost() {
            After::Fail(HostFailure::ControllerLoss)
        } else {
            After::Retry
        };
        self.close(then);
    }

    /// The controller has been away for longer than it may.
    fn is_lost(&mut self) -> bool {
        let since = *self.lost_at.get_or_insert(self.context.time.watched());
        let timeout = self.context.options.controller_loss_timeout;
        !timeout.is_zero() && self.context.time.watched().saturating_sub(since) >= timeout
    }

    /// Ends the session because the caller wants it.
    pub(super) fn stop(&mut self) {
        self.close(After::Stop);
    }

    pub(super) fn close(&mut self, then: After) {
        self.state = State::Closing { then };
        self.settled_at = None;
        self.keep_alive = KeepAlive::default();
        self.followers.end();
        self.disconnect_all();
    }

    pub(super) fn disconnect_all(&mut self) {
        self.queues.disconnect(&mut self.context.transport);
    }

    fn all_closed(&mut self, then: After) {
        if let Some(following) = &mut self.following {
            following.closed();
        }
        self.state = match then {
            After::Retry if self.following.is_some() => State::Detached,
            After::Retry => State::BackOff { until: self.context.time.after(self.back_off()) },
            After::Stop => State::Stopped,
            After::Fail(failure) => State::Failed(failure),
        };
        if let After::Fail(_) = then {
            self.followers.give_up();
        }
        if then != After::Retry {
            self.io.end_queued(IoError::Abandoned);
        }
    }

    /// One that lasted no longer than the longest pause is no reason to begin with the shortest again: a target that ends each session
    /// as soon as it is set up would be asked for another a hundred times a second, for ever.
    fn count_hasty(&mut self) {
        let lasted = self.settled_at.map_or(Duration::ZERO, |since| self.context.time.now().saturating_sub(since));
        if lasted > self.context.options.longest_back_off {
            self.hasty = 0;
        }
        self.hasty = self.hasty.saturating_add(1);
    }

    /// Doubles with every failed attempt in a row, and with every session that ended soon.
    fn back_off(&self) -> Duration {
        let doublings = self.hasty.saturating_sub(1).min(MAX_DOUBLINGS);
        self.context.options.first_back_off.saturating_mul(1 << doublings).min(self.context.options.longest_back_off)
    }
}
