//! How a session ends, and what follows.

use super::{After, Session, State};
use crate::host::context::Context;
use crate::host::failure::HostFailure;
use crate::host::role::Role;
use frwr_engine::provider::Port;

impl Session {
    /// Ends the session because of a failure; another one follows unless the failure is permanent.
    pub(in super::super) fn fail<P: Port>(&mut self, failure: HostFailure, role: &Role, context: &mut Context<P>) {
        self.last_failure = Some(failure);
        self.failures += 1;
        let Context { time, options, .. } = context;
        self.reconnect.failed(time, options);
        let then = if self.stopping {
            After::Stop
        } else if role.follows() {
            // Whether it is the last one is for the other host to judge.
            After::Retry
        } else if failure.is_permanent(self.sessions > 0) {
            After::Fail(failure)
        } else {
            self.reconnect.given_up(time, options).map_or(After::Retry, After::Fail)
        };
        self.close(then, context);
    }

    /// Another core ended the session.
    pub(in super::super) fn ended_elsewhere(&mut self) {
        self.ends_elsewhere = true;
    }

    /// The host with the admin queue has given up.
    pub(in super::super) fn give_up<P: Port>(&mut self, failure: HostFailure, context: &mut Context<P>) {
        self.last_failure = Some(failure);
        self.close(After::Fail(failure), context);
    }

    pub(in super::super) fn close<P: Port>(&mut self, then: After, context: &mut Context<P>) {
        self.state = State::Closing { then };
        self.reconnect.ended();
        self.keep_alive.stop();
        self.renewal.stop(&mut self.queues);
        self.authentication.end();
        self.disconnect(context);
    }

    pub(in super::super) fn disconnect<P: Port>(&self, context: &mut Context<P>) {
        self.queues.disconnect(&mut context.transport);
    }

    /// All connections have ended.
    pub(in super::super) fn closed<P: Port>(&mut self, then: After, role: &Role, context: &Context<P>) {
        self.ended = self.sessions;
        self.state = match then {
            After::Retry => self.rest(role, self.reconnect.pause(&context.options), context),
            After::Stop => State::Stopped,
            After::Fail(failure) => State::Failed(failure),
        };
    }
}
