//! Proving this host once more while its session goes on (Base 8.13): on one queue after the other, beside the requests.

use super::admin_data::AdminData;
use super::authentication::Authentication;
use super::commands::Reply;
use super::context::Context;
use super::failure::HostFailure;
use super::options::AdminSlot;
use super::queues::{QueueOf, Queues};
use super::step::Stage;
use super::step::Step;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

/// The transaction of a queue.
#[derive(Clone, Copy, Debug)]
struct Running {
    queue: QueueOf,
    stage: Stage,
    /// A command of it is in flight.
    sent: bool,
    /// When this stage has to be over, in watched time. Nobody is late while the queue has no room for a command.
    by: Duration,
}

/// When it is due, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// By the caller's time; `None` for never.
    at: Option<Duration>,
    /// The caller asked for one.
    wanted: bool,
    running: Option<Running>,
    ended: u64,
}

/// What it works with.
pub(super) struct Means<'a> {
    pub(super) authentication: &'a mut Authentication,
    pub(super) queues: &'a mut Queues,
    /// Nobody else uses it while this runs.
    pub(super) data: &'a mut AdminData,
    /// This host has no admin queue.
    pub(super) follows: bool,
}

impl Renewal {
    /// How many came to their end.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// The memory for admin data is in use.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The caller wants one.
    pub(super) fn ask(&mut self) {
        self.wanted = true;
    }

    /// A session begins, on whose queues this host has just proven itself, or not.
    pub(super) fn begin<P: Port>(&mut self, proven: bool, context: &Context<P>) {
        (self.wanted, self.running) = (false, None);
        self.at = next_at(context).filter(|_| proven);
    }

    /// The session ends.
    pub(super) fn stop(&mut self, queues: &mut Queues) {
        self.landed(queues);
        (self.at, self.wanted, self.running) = (None, false, None);
    }

    /// It runs, or is due.
    pub(super) fn has_work<P: Port>(&self, context: &Context<P>) -> bool {
        self.running.is_some() || self.wanted || self.at.is_some_and(|at| context.time.now() >= at)
    }

    /// Does what there is to be done ([`Renewal::has_work`]). `may_begin`: nobody uses the memory for admin data, and the session is not to end.
    ///
    /// # Errors
    /// One side does not believe the other any more, or it took too long.
    pub(super) fn step<P: Port>(
        &mut self,
        may_begin: bool,
        means: &mut Means<'_>,
        context: &mut Context<P>,
    ) -> Result<(), HostFailure> {
        let Some(running) = self.running else {
            if may_begin {
                (self.wanted, self.at) = (false, None);
                let first = if means.follows { QueueOf::Io(0) } else { QueueOf::Admin };
                self.go_to(first, means, context);
            }
            return Ok(());
        };
        if context.time.has_passed(running.by) {
            let stood_still = context.time.stood_still();
            return Err(HostFailure::Timeout { what: "proving this host once more", stood_still });
        }
        match running.stage {
            Stage::Begin | Stage::Judge => match means.authentication.judged()? {
                None => {}
                Some(None) => self.next(running.queue, means, context),
                Some(Some(message)) => {
                    means.data.write_message(&message);
                    self.goes_on(Stage::Send, Duration::MAX);
                    self.send(means, context);
                }
            },
            Stage::Send | Stage::Receive => self.send(means, context),
        }
        Ok(())
    }

    /// A command of it was answered.
    ///
    /// # Errors
    /// It was refused, or one side does not believe the other any more.
    pub(super) fn answered<P: Port>(
        &mut self,
        reply: Reply,
        means: &mut Means<'_>,
        context: &mut Context<P>,
    ) -> Result<(), HostFailure> {
        let Some(Running { queue, stage, sent: true, .. }) = self.running else { return Ok(()) };
        self.landed(means.queues);
        let status = reply.status;
        if !status.is_success() {
            return Err(HostFailure::Command { step: Step::Authenticate(queue, stage).name(), status });
        }
        match stage {
            Stage::Send => {
                if means.authentication.said()? {
                    self.goes_on(Stage::Receive, Duration::MAX);
                    self.send(means, context);
                } else {
                    self.next(queue, means, context);
                }
            }
            Stage::Receive => {
                means.authentication.told(&means.data.read());
                self.goes_on(Stage::Judge, context.time.deadline_in(context.options.step_timeout));
            }
            Stage::Begin | Stage::Judge => {}
        }
        Ok(())
    }

    /// When it has to be polled although nothing arrives, by the caller's time, and until when it has time, in watched time.
    pub(super) fn due<P: Port>(&self, context: &Context<P>) -> (Option<Duration>, Option<Duration>) {
        match self.running {
            Some(Running { stage, by, .. }) => {
                (stage.is_polled().then(|| context.time.now()), Some(by).filter(|by| *by != Duration::MAX))
            }
            None if self.wanted => (Some(context.time.now()), None),
            None => (self.at, None),
        }
    }

    /// Sends what its stage is for, unless that was. Where there is no room, the next poll tries again.
    fn send<P: Port>(&mut self, means: &mut Means<'_>, context: &mut Context<P>) {
        let Some(running) = self.running.as_mut().filter(|running| !running.sent) else { return };
        let asked = match running.stage {
            Stage::Receive => AdminData::receive_message(),
            _ => means.data.send_message(),
        };
        let has_room = match running.queue {
            QueueOf::Admin => true,
            QueueOf::Io(queue) => means.queues.has_room(queue, context.options.queue_depth),
        };
        let connection = means.queues.connection(running.queue);
        if has_room && means.data.send(connection, AdminSlot::Step, asked, context).is_ok() {
            (running.sent, running.by) = (true, context.time.deadline_in(context.options.step_timeout));
            if let QueueOf::Io(queue) = running.queue {
                means.queues.enter(queue);
            }
        }
    }

    /// No command of it is in flight any more.
    fn landed(&mut self, queues: &mut Queues) {
        let Some(running) = self.running.as_mut().filter(|running| running.sent) else { return };
        running.sent = false;
        if let QueueOf::Io(queue) = running.queue {
            queues.leave(queue);
        }
    }

    fn goes_on(&mut self, stage: Stage, by: Duration) {
        if let Some(running) = &mut self.running {
            (running.stage, running.by) = (stage, by);
        }
    }

    fn go_to<P: Port>(&mut self, queue: QueueOf, means: &mut Means<'_>, context: &Context<P>) {
        // Mutant: this host proves itself on its first queue alone.
        let is_first = self.running.is_none();
        if means.queues.connection(queue).is_none() || (!is_first && mutant!(host_renewal_first_alone)) {
            return self.end(means, context);
        }
        let by = context.time.deadline_in(context.options.step_timeout);
        means.authentication.renew(&context.options);
        self.running = Some(Running { queue, stage: Stage::Judge, sent: false, by });
    }

    /// A queue is done.
    fn next<P: Port>(&mut self, queue: QueueOf, means: &mut Means<'_>, context: &Context<P>) {
        means.authentication.end();
        let next = match queue {
            QueueOf::Admin => QueueOf::Io(0),
            // Far below 2^16.
            QueueOf::Io(queue) => QueueOf::Io(queue + 1),
        };
        self.go_to(next, means, context);
    }

    fn end<P: Port>(&mut self, means: &mut Means<'_>, context: &Context<P>) {
        means.authentication.end();
        self.at = next_at(context);
        self.ended += u64::from(self.running.take().is_some());
    }
}

/// When one is due by the interval.
fn next_at<P: Port>(context: &Context<P>) -> Option<Duration> {
    let every = context.options.reauthentication;
    (!every.is_zero()).then(|| context.time.after(every))
}
