//! A session's life: connections opened one after the other, kept alive, closed together, and set up again.

mod beside;
mod end;
mod proofs;
mod set_up;

use super::aborts::Aborts;
use super::admin_data::AdminData;
use super::attachment::Attachment;
use super::authentication::Authentication;
use super::bring_up::Found;
use super::chores::Chores;
use super::context::Context;
use super::failure::HostFailure;
use super::keep_alive::KeepAlive;
use super::limits::check_depth;
use super::options::AdminSlot;
use super::path::Path;
use super::queues::{QueueOf, Queues};
use super::reconnect::Reconnect;
use super::renewal::Renewal;
use super::role::Role;
use super::statistics::HostStatistics;
use super::step::Step;
use crate::authentication::Authenticator;
use crate::wire::AnaState;
use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;
use std::sync::Arc;

/// What the host is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing, until it is started.
    Stopped,
    /// A follower: it waits for a session.
    Detached,
    /// It waits for the next attempt.
    BackOff { until: Duration },
    /// A connection is to be opened, or is being opened. The deadline is of watched time, here and below.
    Opening { queue: QueueOf, deadline: Duration },
    /// A command of the bring-up is to be sent at a time of the caller's, or was sent.
    Bringing { step: Step, at: Duration, deadline: Duration },
    /// Reads and writes go to the controller.
    Ready,
    /// All connections are to end.
    Closing { then: After },
    /// It has given up.
    Failed(HostFailure),
}

/// What follows when all connections have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Retry,
    Stop,
    Fail(HostFailure),
}

/// What a session has come to, which others have to know.
pub(super) enum Turn {
    /// Nothing that concerns them.
    None,
    /// All its queues are up.
    Ready,
    /// It is to end because the caller wants it.
    Stop,
    /// All its connections are gone.
    Closed(After),
}

/// A host's way to one controller: one session after the other.
#[derive(Debug)]
pub(super) struct Session {
    state: State,
    /// The caller wants the end.
    stopping: bool,
    /// The session ends because a queue of another core did.
    ends_elsewhere: bool,
    queues: Queues,
    found: Found,
    data: AdminData,
    authentication: Authentication,
    renewal: Renewal,
    keep_alive: KeepAlive,
    chores: Chores,
    aborts: Aborts,
    reconnect: Reconnect,
    last_failure: Option<HostFailure>,
    /// The latest session whose connections are all gone.
    ended: u64,
    /// Sessions that became ready, and failures.
    sessions: u64,
    failures: u64,
}

impl Session {
    pub(super) fn new(queues: Queues, found: Found, data: AdminData) -> Self {
        Self {
            state: State::Stopped,
            stopping: false,
            ends_elsewhere: false,
            queues,
            found,
            data,
            authentication: Authentication::default(),
            renewal: Renewal::default(),
            keep_alive: KeepAlive::default(),
            chores: Chores::default(),
            aborts: Aborts::default(),
            reconnect: Reconnect::default(),
            last_failure: None,
            ended: 0,
            sessions: 0,
            failures: 0,
        }
    }

    /// Who proves this host, and controllers to it.
    pub(super) fn authenticates(&mut self, authenticator: Arc<dyn Authenticator>) {
        self.authentication.set(authenticator);
    }

    /// What it counted.
    pub(super) fn statistics(&self) -> HostStatistics {
        HostStatistics {
            sessions: self.sessions,
            failures: self.failures,
            keep_alives: self.keep_alive.sent(),
            aborts: self.aborts.sent(),
            ana_reads: self.found.ana().reads(),
            discovery_reads: self.found.discovery().reads(),
            reauthentications: self.renewal.ended(),
            ..self.chores.statistics()
        }
    }

    /// Sessions that became ready: the number of the latest one.
    pub(super) fn number(&self) -> u64 {
        self.sessions
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Nothing is done, and nothing will be.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Stopped | State::Failed(_))
    }

    /// The caller wants the end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    pub(super) fn ends_elsewhere(&self) -> bool {
        self.ends_elsewhere
    }

    /// Why it has given up.
    pub(super) fn failure(&self) -> Option<HostFailure> {
        if let State::Failed(failure) = self.state { Some(failure) } else { None }
    }

    pub(super) fn last_failure(&self) -> Option<HostFailure> {
        self.last_failure
    }

    /// Nothing of ours can reach the controller of a session any more.
    pub(super) fn has_ended(&self, session: u64) -> bool {
        self.ended >= session
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    pub(super) fn found(&self) -> &Found {
        &self.found
    }

    /// Requests are taken: now, or as soon as there is a session.
    pub(super) fn admits(&self) -> bool {
        !self.stopping && !self.is_over() && self.found.namespace().geometry().is_some()
    }

    /// Commands of I/O are executed.
    pub(super) fn takes_commands(&self) -> bool {
        self.is_ready() && self.found.ana().is_accessible()
    }

    /// As commands of I/O see it; `None` before the first session.
    pub(super) fn path(&mut self) -> Option<Path<'_>> {
        let block = self.found.namespace().geometry()?.block_bytes();
        Some(Path { queues: &mut self.queues, limits: self.found.limits(), block, session: self.sessions })
    }

    /// Starts to connect, or to wait for a session to follow.
    pub(super) fn start<P: Port>(&mut self, role: &Role, context: &Context<P>) {
        if self.is_over() {
            self.stopping = false;
            // What was lost or closed when it was stopped has not been waited for since.
            (self.reconnect, self.last_failure) = (Reconnect::default(), None);
            self.found.ana_mut().unknown();
            self.state = self.rest(role, Duration::ZERO, context);
        }
    }

    /// What it does until the next session begins.
    fn rest<P: Port>(&self, role: &Role, pause: Duration, context: &Context<P>) -> State {
        if role.follows() { State::Detached } else { State::BackOff { until: context.time.after(pause) } }
    }

    /// It is to end when all that is outstanding has ended.
    pub(super) fn shut_down(&mut self) {
        self.stopping = true;
    }

    /// What is due without an event. `idle`: no request is in hand.
    ///
    /// # Errors
    /// The session, or the attempt at one, has failed.
    pub(super) fn step<P: Port>(
        &mut self,
        idle: bool,
        role: &Role,
        context: &mut Context<P>,
    ) -> Result<Turn, HostFailure> {
        match self.state {
            State::Detached | State::BackOff { .. } | State::Opening { .. } if self.stopping => return Ok(Turn::Stop),
            State::Bringing { step, .. } if self.stopping && !step.is_shutdown() => return Ok(Turn::Stop),
            State::Stopped | State::Failed(_) | State::Detached => {}
            State::BackOff { until } if context.time.now() >= until => self.open(QueueOf::Admin, true, context),
            State::BackOff { .. } => {}
            State::Opening { deadline, .. } if context.time.has_passed(deadline) => {
                return Err(late("connecting", context));
            }
            State::Opening { queue, .. } => self.queues.open(queue, context),
            State::Bringing { step, deadline, .. } if context.time.has_passed(deadline) => {
                return Err(late(step.name(), context));
            }
            State::Bringing { step: Step::Authenticate(queue, stage), .. } if stage.is_polled() => {
                return self.advance_authentication(queue, stage, context);
            }
            State::Bringing { step, at, .. } if context.time.now() >= at && !context.is_in_flight(AdminSlot::Step) => {
                self.issue(step, context)?;
            }
            State::Bringing { .. } => {}
            State::Ready if self.stopping && self.is_quiet(idle, role, context) => {
                if role.follows() {
                    return Ok(Turn::Stop);
                }
                // With the notification the controller's timer stops.
                self.keep_alive.stop();
                self.bring(Step::ShutDown, context)?;
            }
            State::Ready => self.step_renewal(role, context)?,
            State::Closing { then } => {
                // K18: the next session begins while the queues of this one are drained.
                let closed = self.queues.all_closed() || mutant!(K18_host_session);
                let detached = role.all_detached() || mutant!(host_followers_left);
                if closed && detached {
                    return Ok(Turn::Closed(then));
                }
            }
        }
        Ok(Turn::None)
    }

    /// Nothing of ours is outstanding but an Asynchronous Event Request, which stays until the end, and nobody follows.
    pub(super) fn is_quiet<P: Port>(&self, idle: bool, role: &Role, context: &Context<P>) -> bool {
        let admin = [AdminSlot::KeepAlive, AdminSlot::Chore, AdminSlot::Abort];
        idle && role.all_detached()
            && !self.renewal.is_running()
            && !admin.into_iter().any(|slot| context.is_in_flight(slot))
    }

    /// Opens a connection; `first`: of the session.
    fn open<P: Port>(&mut self, queue: QueueOf, first: bool, context: &mut Context<P>) {
        if first {
            context.time.connects();
        }
        self.state = State::Opening { queue, deadline: context.time.deadline_in(context.options.step_timeout) };
        self.queues.open(queue, context);
    }

    /// A connection is gone, or could not be opened; whether that is news.
    pub(super) fn disconnected(&mut self, connection: ConnectionId) -> bool {
        self.queues.closed(connection) && !self.is_closing()
    }

    /// All queues of all cores are up.
    pub(super) fn settled<P: Port>(&mut self, context: &Context<P>) {
        self.reconnect.settled(&context.time);
    }

    /// Takes part in a session of the host with the admin queue, with I/O queues from `attachment.first_queue` on.
    ///
    /// # Errors
    /// They are not as deep as they have to be.
    pub(super) fn attach<P: Port>(
        &mut self,
        attachment: &Attachment,
        context: &mut Context<P>,
    ) -> Result<(), HostFailure> {
        self.queues.count_from(attachment.first_queue);
        let limit = attachment.limits.capabilities.max_queue_entries();
        check_depth(&context.options, context.options.io_entries(), limit)?;
        self.open(QueueOf::Io(0), true, context);
        Ok(())
    }

    /// A follower could take part in a session.
    pub(super) fn is_detached(&self) -> bool {
        self.state == State::Detached && !self.stopping
    }

    /// What the host with the admin queue says of a session.
    pub(super) fn learn<P: Port>(&mut self, attachment: &Attachment, context: &Context<P>) {
        self.found.learn(attachment, context);
    }

    /// How the namespace can be reached was told by a command, or by another host.
    pub(super) fn told<P: Port>(&mut self, state: AnaState, context: &Context<P>) {
        self.found.ana_mut().set(state, context.time.watched());
    }

    /// The namespace cannot be reached, and has not for so long that requests do not wait any longer.
    pub(super) fn is_unreachable<P: Port>(&self, context: &Context<P>) -> Option<AnaState> {
        let (ana, timeout) = (self.found.ana(), context.options.inaccessible_timeout);
        let since = ana.since().filter(|_| self.is_ready())?;
        let waited = context.time.has_waited(since, timeout);
        (waited || ana.state() == AnaState::PersistentLoss).then_some(ana.state())
    }

    /// When it has to be polled again although nothing arrives: by the caller's time, and in watched time. `waits`: a
    /// request waits to be sent.
    pub(super) fn due<P: Port>(
        &self,
        waits: bool,
        role: &Role,
        context: &Context<P>,
    ) -> (Option<Duration>, Option<Duration>) {
        let (own, judged) = match self.state {
            State::BackOff { until } => (Some(until), None),
            // What is due already is done by whatever poll comes next.
            State::Bringing { step: Step::Authenticate(_, stage), deadline, .. } if stage.is_polled() => {
                (Some(context.time.now()), Some(deadline))
            }
            State::Bringing { at, deadline, .. } => (Some(at).filter(|at| *at > context.time.now()), Some(deadline)),
            State::Opening { deadline, .. } => (None, Some(deadline)),
            State::Closing { .. } => (Some(context.time.now()), None),
            State::Ready if role.follows() => {
                // The other host reads; what waits here ends in time.
                let since = self.found.ana().since().filter(|_| waits);
                (None, since.map(|since| since.saturating_add(context.options.inaccessible_timeout)))
            }
            State::Ready => {
                let late_at = [self.chores.late_at(context), self.aborts.late_at(context)];
                (self.chores.reads_at(&self.found), late_at.into_iter().flatten().min())
            }
            State::Stopped | State::Detached | State::Failed(_) => (None, None),
        };
        let (keep_alive, answer) = self.keep_alive.due(context);
        let (renewal, over) = self.renewal.due(context);
        // None begins before the end.
        let renewal = renewal.filter(|_| !self.stopping || self.renewal.is_running());
        (own.into_iter().chain(keep_alive).chain(renewal).min(), judged.into_iter().chain(answer).chain(over).min())
    }
}

/// Something took longer than `step_timeout`.
fn late<P: Port>(what: &'static str, context: &Context<P>) -> HostFailure {
    HostFailure::Timeout { what, stood_still: context.time.stood_still() }
}
