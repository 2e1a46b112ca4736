//! How a host proves itself: queue by queue while a session is set up, and once more while it goes on.

use super::{Session, State, Turn};
use crate::host::authentication::connect_of;
use crate::host::commands::Reply;
use crate::host::context::Context;
use crate::host::error::ReauthenticateError;
use crate::host::failure::HostFailure;
use crate::host::options::AdminSlot;
use crate::host::queues::QueueOf;
use crate::host::renewal::Means;
use crate::host::role::Role;
use crate::host::step::{Stage, Step};
use frwr_engine::provider::Port;

impl Session {
    /// What was answered is being judged, and takes its time.
    pub(super) fn think<P: Port>(&mut self, queue: QueueOf, stage: Stage, context: &Context<P>) {
        let (step, at) = (Step::Authenticate(queue, stage), context.time.now());
        self.state = State::Bringing { step, at, deadline: context.time.deadline_in(self.time_for(step, context)) };
    }

    /// Looks whether something is known by now.
    pub(super) fn advance_authentication<P: Port>(
        &mut self,
        queue: QueueOf,
        stage: Stage,
        context: &mut Context<P>,
    ) -> Result<Turn, HostFailure> {
        if stage == Stage::Begin {
            match self.authentication.begin(&context.options) {
                None => {}
                Some(true) => self.think(queue, Stage::Judge, context),
                Some(false) => return self.authenticated(queue, context),
            }
            return Ok(Turn::None);
        }
        match self.authentication.judged()? {
            None => {}
            Some(None) => return self.authenticated(queue, context),
            Some(Some(message)) => {
                self.data.write_message(&message);
                self.bring(Step::Authenticate(queue, Stage::Send), context)?;
            }
        }
        Ok(Turn::None)
    }

    /// What follows the Connect of a queue.
    pub(super) fn authenticated<P: Port>(
        &mut self,
        queue: QueueOf,
        context: &mut Context<P>,
    ) -> Result<Turn, HostFailure> {
        self.authentication.end();
        let (step, result) = (connect_of(queue), self.authentication.connected());
        let deadline = context.time.deadline_in(context.options.step_timeout);
        self.follow(step, (result, true), deadline, context)
    }

    /// The caller wants this host to prove itself once more.
    ///
    /// # Errors
    /// There is no session to do so in, or it was not authenticated.
    pub(in super::super) fn reauthenticate(&mut self) -> Result<(), ReauthenticateError> {
        if !self.is_ready() || self.stopping {
            return Err(ReauthenticateError::NoSession);
        }
        if !self.authentication.is_proven() {
            return Err(ReauthenticateError::NotAuthenticated);
        }
        self.renewal.ask();
        Ok(())
    }

    pub(super) fn step_renewal<P: Port>(&mut self, role: &Role, context: &mut Context<P>) -> Result<(), HostFailure> {
        if !self.renewal.has_work(context) {
            return Ok(());
        }
        let is_free = !context.is_in_flight(AdminSlot::Chore) && !context.is_in_flight(AdminSlot::Step);
        let may_begin = is_free && !self.stopping && self.authentication.is_proven();
        let Self { renewal, authentication, queues, data, .. } = self;
        renewal.step(may_begin, &mut Means { authentication, queues, data, follows: role.follows() }, context)
    }

    pub(super) fn renewal_answered<P: Port>(
        &mut self,
        reply: Reply,
        context: &mut Context<P>,
    ) -> Result<(), HostFailure> {
        let Self { renewal, authentication, queues, data, .. } = self;
        renewal.answered(reply, &mut Means { authentication, queues, data, follows: false }, context)
    }
}
