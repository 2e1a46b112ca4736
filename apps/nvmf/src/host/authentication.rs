//! A host's side of proving who it is, and who the controller is: one queue after the other.

use super::failure::HostFailure;
use super::options::HostOptions;
use super::queues::QueueOf;
use super::step::Step;
use crate::authentication::{AuthenticationFailure, Authenticator, Exchange, Parties, Turn, Verdict};
use crate::wire::AUTHENTICATION_REQUIRED;
use core::task::Waker;
use std::sync::Arc;

/// Who judges, and the transaction that is under way.
#[derive(Debug, Default)]
pub(super) struct Authentication {
    authenticator: Option<Arc<dyn Authenticator>>,
    exchange: Option<Box<dyn Exchange>>,
    /// What it has come to once our latest message was taken.
    verdict: Option<Verdict>,
    /// The result of the Connect that it follows.
    connected: u64,
    /// It was followed by a proof.
    proven: bool,
}

impl Authentication {
    pub(super) fn set(&mut self, authenticator: Arc<dyn Authenticator>) {
        self.authenticator = Some(authenticator);
    }

    /// The queue that was connected last was authenticated, and so were all of its session.
    pub(super) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Whether something is to be done behind a Connect with this result.
    pub(super) fn follows(&mut self, result: u64) -> Result<bool, HostFailure> {
        (self.connected, self.proven) = (result, false);
        let required = result & AUTHENTICATION_REQUIRED != 0;
        if required && self.authenticator.is_none() {
            return Err(HostFailure::AuthenticationRequired);
        }
        Ok(self.authenticator.is_some())
    }

    /// The result of the Connect that it follows.
    pub(super) fn connected(&self) -> u64 {
        self.connected
    }

    /// Begins a transaction where there is to be one; `None` where that cannot be said now.
    pub(super) fn begin(&mut self, options: &HostOptions) -> Option<bool> {
        let authenticator = self.authenticator.as_ref()?;
        if self.connected & AUTHENTICATION_REQUIRED == 0 && !authenticator.insists(&options.host)? {
            return Some(false);
        }
        self.renew(options);
        Some(true)
    }

    /// Begins a transaction, where there is somebody who can prove this host.
    pub(super) fn renew(&mut self, options: &HostOptions) {
        let Some(authenticator) = &self.authenticator else { return };
        let mut exchange = authenticator.host_side(Parties { host: options.host, subsystem: options.subsystem });
        exchange.tell(&[], None::<&Waker>);
        (self.exchange, self.verdict, self.proven) = (Some(exchange), None, true);
    }

    /// The controller said something.
    pub(super) fn told(&mut self, message: &[u8]) {
        if let Some(exchange) = &mut self.exchange {
            exchange.tell(message, None);
        }
    }

    /// What follows from what it said last: a message of ours, or that it is over.
    ///
    /// # Errors
    /// One side does not believe the other, and there is nothing to be said.
    pub(super) fn judged(&mut self) -> Result<Option<Option<Vec<u8>>>, HostFailure> {
        let Some(exchange) = &mut self.exchange else {
            return Err(HostFailure::Authentication(AuthenticationFailure::Message));
        };
        let Some(Turn { say, verdict }) = exchange.poll() else { return Ok(None) };
        match (&say, verdict) {
            (None, Verdict::Failed(failure)) => return Err(HostFailure::Authentication(failure)),
            (None, Verdict::Open) => return Err(HostFailure::Authentication(AuthenticationFailure::Message)),
            _ => self.verdict = Some(verdict),
        }
        Ok(Some(say))
    }

    /// Our message was taken: whether the controller has something to say.
    ///
    /// # Errors
    /// We do not believe it.
    pub(super) fn said(&mut self) -> Result<bool, HostFailure> {
        match self.verdict {
            Some(Verdict::Failed(failure)) => Err(HostFailure::Authentication(failure)),
            verdict => Ok(verdict == Some(Verdict::Open)),
        }
    }

    /// It is over.
    pub(super) fn end(&mut self) {
        (self.exchange, self.verdict) = (None, None);
    }
}

/// The queue that a step connects, if it does so.
pub(super) fn connects(step: Step) -> Option<QueueOf> {
    match step {
        Step::Connect => Some(QueueOf::Admin),
        Step::ConnectIo(queue) => Some(QueueOf::Io(queue)),
        _ => None,
    }
}

/// The Connect of a queue.
pub(super) fn connect_of(queue: QueueOf) -> Step {
    match queue {
        QueueOf::Admin => Step::Connect,
        QueueOf::Io(queue) => Step::ConnectIo(queue),
    }
}
