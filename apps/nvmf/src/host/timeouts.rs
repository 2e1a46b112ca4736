//! Commands that take too long: the controller is asked to abort them (Base 5.1). A command ends with its reply, which
//! fences its keys; where none comes although the Abort was sent, the session ends, whose drained queues are the fence.

use super::context::Context;
use super::failure::HostFailure;
use super::parts::{Abortion, Parts};
use super::time::Time;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

/// How soon an Abort that found no room is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// A command that is too late.
pub(super) struct Late {
    pub(super) slot: u16,
    pub(super) queue: u16,
    pub(super) identifier: u16,
}

/// When the deadlines of commands are looked at next, in watched time.
#[derive(Debug, Default)]
pub(super) struct Timeouts {
    at: Duration,
    /// Of what is sent now.
    of_new: Option<Duration>,
}

impl Timeouts {
    /// Commands are about to be sent, which all have the same deadline: it is worked out once.
    pub(super) fn begin<P: Port>(&mut self, context: &Context<P>) {
        let timeout = context.options.command_timeout;
        self.of_new = (!timeout.is_zero()).then(|| context.time.deadline_in(timeout));
    }

    /// When a command that is sent now is too late, if ever.
    pub(super) fn of_new(&self) -> Option<Duration> {
        self.of_new
    }

    /// No later than that.
    fn look_by(&mut self, deadline: Duration) {
        self.at = self.at.min(deadline);
    }

    pub(super) fn at(&self) -> Duration {
        self.at
    }

    /// A command is to be aborted, however late it is.
    pub(super) fn abort(&mut self, slot: u16, parts: &mut Parts, time: &mut Time) {
        parts.aborted(slot, Abortion::None, Some(time.watched()));
        self.look_by(time.watched());
        time.look();
    }

    /// What was done about a late command. From its Abort on, whoever sends it, the controller has `step_timeout`; where none
    /// could be sent, it is tried again: while one is not answered there is no other.
    pub(super) fn asked<P: Port>(
        &mut self,
        slot: u16,
        abortion: Option<Abortion>,
        parts: &mut Parts,
        context: &Context<P>,
    ) {
        let Context { time, options, .. } = context;
        match abortion {
            None | Some(Abortion::None) => self.look_by(time.deadline_in(RETRY)),
            Some(Abortion::Asked) => parts.aborted(slot, Abortion::Asked, None),
            Some(Abortion::Sent) => {
                let deadline = time.deadline_in(options.step_timeout);
                parts.aborted(slot, Abortion::Sent, Some(deadline));
                self.look_by(deadline);
            }
        }
    }

    /// Looks at the deadlines of all commands, as often as one can have passed. Returns the first one that is to be aborted:
    /// of others that are as late, no Abort would be sent before that one is answered.
    ///
    /// # Errors
    /// One was aborted, and is not answered either.
    pub(super) fn look<P: Port>(&mut self, parts: &Parts, context: &Context<P>) -> Result<Option<Late>, HostFailure> {
        let Context { transport, time, options } = context;
        if !time.has_passed(self.at) {
            return Ok(None);
        }
        // No command that is submitted later has an earlier deadline.
        let timeout = Some(options.command_timeout).filter(|timeout| !timeout.is_zero());
        self.at = timeout.map_or(Duration::MAX, |timeout| time.deadline_in(timeout));
        let mut first = None;
        for slot in parts.slots() {
            let Some(identifier) = transport.commands().identifier(slot) else { continue };
            let Some(part) = parts.get(slot) else { continue };
            let Some(deadline) = part.deadline else { continue };
            if deadline > time.watched() {
                self.look_by(deadline);
            } else if part.abortion == Abortion::Sent && !mutant!(host_abort_unanswered) {
                return Err(HostFailure::CommandTimeout { stood_still: time.stood_still() });
            } else if first.is_none() {
                first = Some(Late { slot, queue: part.queue, identifier });
            } else {
                self.look_by(time.deadline_in(RETRY));
            }
        }
        Ok(first)
    }
}
