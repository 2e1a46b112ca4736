//! How a session is set up: what follows each connection, and each answer.

use super::{Session, State, Turn};
use crate::host::authentication::connects;
use crate::host::bring_up::Next;
use crate::host::commands::Reply;
use crate::host::context::Context;
use crate::host::failure::HostFailure;
use crate::host::options::{ADMIN_ENTRIES, AdminSlot};
use crate::host::queues::QueueOf;
use crate::host::step::{Stage, Step};
use crate::wire::AcceptPrivateData;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, SubmitError};

impl Session {
    /// A connection is there.
    ///
    /// # Errors
    /// The controller's queue is not what is needed.
    pub(in super::super) fn connected<P: Port>(
        &mut self,
        connection: ConnectionId,
        private_data: &[u8],
        context: &mut Context<P>,
    ) -> Result<(), HostFailure> {
        let State::Opening { queue, .. } = self.state else { return Ok(()) };
        if self.queues.connection(queue) != Some(connection) {
            return Ok(());
        }
        let (entries, step) = match queue {
            QueueOf::Admin => (ADMIN_ENTRIES, Step::Connect),
            QueueOf::Io(queue) => (context.options.io_entries(), Step::ConnectIo(queue)),
        };
        match AcceptPrivateData::parse(private_data) {
            Ok(receives) if receives >= entries => self.bring(step, context),
            Ok(_) if queue == QueueOf::Admin => {
                Err(HostFailure::Unsupported("an admin queue of 32 entries, which every controller has to take"))
            }
            Ok(receives) => {
                let wanted = context.options.queue_depth;
                Err(HostFailure::QueueDepth { wanted, limit: u32::from(receives.saturating_sub(1)) })
            }
            Err(_) => Err(HostFailure::Unsupported("record format 0 of private data")),
        }
    }

    pub(super) fn bring<P: Port>(&mut self, step: Step, context: &mut Context<P>) -> Result<(), HostFailure> {
        let deadline = context.time.deadline_in(self.time_for(step, context));
        self.state = State::Bringing { step, at: context.time.now(), deadline };
        self.issue(step, context)
    }

    /// A controller may take as long to become ready as it says in CAP.TO, whatever the options say.
    pub(super) fn time_for<P: Port>(&self, step: Step, context: &Context<P>) -> Duration {
        let timeout = context.options.step_timeout;
        match step {
            Step::AwaitReady => timeout.max(self.found.limits().capabilities.ready_timeout()),
            _ => timeout,
        }
    }

    /// Sends the step's command; tried again by the next poll where the engine has no room.
    pub(super) fn issue<P: Port>(&mut self, step: Step, context: &mut Context<P>) -> Result<(), HostFailure> {
        let asked = self.found.command_of(step, &self.queues, &self.data, context);
        let queue = match step {
            Step::ConnectIo(queue) => QueueOf::Io(queue),
            Step::Authenticate(queue, _) => queue,
            _ => QueueOf::Admin,
        };
        match self.data.send(self.queues.connection(queue), AdminSlot::Step, asked, context) {
            Ok(()) | Err(SubmitError::NoSlot | SubmitError::NotConnected) => Ok(()),
            Err(_) => Err(HostFailure::Unsupported("the engine's way to open admin data")),
        }
    }

    /// The step's command was answered.
    ///
    /// # Errors
    /// The controller refused it, or is not one that this host can use.
    pub(in super::super) fn step_answered<P: Port>(
        &mut self,
        reply: Reply,
        context: &mut Context<P>,
    ) -> Result<Turn, HostFailure> {
        let State::Bringing { step, deadline, .. } = self.state else {
            self.renewal_answered(reply, context)?;
            return Ok(Turn::None);
        };
        let (status, result) = (reply.status, reply.result);
        if !status.is_success() && !step.is_optional() {
            return Err(HostFailure::Command { step: step.name(), status });
        }
        if let Some(queue) = connects(step)
            && self.authentication.follows(result)?
        {
            self.think(queue, Stage::Begin, context);
            return Ok(Turn::None);
        }
        match step {
            Step::Authenticate(queue, Stage::Send) => {
                match self.authentication.said()? {
                    true => self.bring(Step::Authenticate(queue, Stage::Receive), context)?,
                    false => return self.authenticated(queue, context),
                }
                Ok(Turn::None)
            }
            Step::Authenticate(queue, _) => {
                self.authentication.told(&self.data.read());
                self.think(queue, Stage::Judge, context);
                Ok(Turn::None)
            }
            step => self.follow(step, (result, status.is_success()), deadline, context),
        }
    }

    /// What follows a step that was answered so.
    pub(super) fn follow<P: Port>(
        &mut self,
        step: Step,
        (result, success): (u64, bool),
        deadline: Duration,
        context: &mut Context<P>,
    ) -> Result<Turn, HostFailure> {
        match self.found.next_step(step, result, success, &self.data, context)? {
            Next::Step(next) if next == step => {
                self.state = State::Bringing { step, at: context.time.after(step.pause()), deadline };
            }
            Next::Step(step) => self.bring(step, context)?,
            Next::Enabled => {
                self.keep_alive.begin(context);
                self.bring(Step::IdentifyController, context)?;
            }
            Next::OpenIo(queue) => self.open(QueueOf::Io(queue), false, context),
            Next::Ready => {
                self.ready(context);
                return Ok(Turn::Ready);
            }
            Next::ShutDown => return Ok(Turn::Stop),
        }
        Ok(Turn::None)
    }

    fn ready<P: Port>(&mut self, context: &Context<P>) {
        self.ends_elsewhere = false;
        self.sessions += 1;
        self.chores.begin(context);
        self.renewal.begin(self.authentication.is_proven(), context);
        self.state = State::Ready;
    }
}
