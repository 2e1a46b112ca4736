//! Commands that are to be aborted: since their request was given up, or since they take too long.

use super::Io;
use crate::host::context::Context;
use crate::host::error::IoError;
use crate::host::failure::HostFailure;
use crate::host::parts::{Abortion, Part};
use crate::host::path::Path;
use crate::host::queues::Queues;
use crate::host::timeouts::Late;
use frwr_engine::provider::Port;
use frwr_mempool::mutant;

impl Io {
    /// Gives the requests with this cookie up: commands in flight are to be aborted, others end. Returns how many there are.
    pub(in super::super) fn abort<P: Port>(&mut self, cookie: u64, context: &mut Context<P>) -> usize {
        let mut found = 0;
        for index in 0..self.requests.len() {
            if self.requests.give_up(index, cookie) {
                found += 1;
                self.abort_commands(index, context);
                self.requests.finish_if_ended(index, &mut self.bounce);
            }
        }
        found
    }

    /// A request was given up: its commands are aborted, or end here if they were not sent.
    fn abort_commands<P: Port>(&mut self, request: u16, context: &mut Context<P>) {
        for slot in self.parts.slots() {
            let Some(part) = self.parts.get(slot).filter(|part| part.request == request) else { continue };
            if self.half.is_some_and(|half| half.is(slot)) {
                // Its first one would wait for it.
                continue;
            }
            if !context.transport.commands().is_in_flight(slot) {
                self.resend.remove(slot);
                self.command_ended(slot, Err(IoError::Aborted));
            } else if part.abortion == Abortion::None {
                self.timeouts.abort(slot, &mut self.parts, &mut context.time);
            }
        }
    }

    /// The first command that takes too long and is to be aborted, where it is time to look.
    ///
    /// # Errors
    /// One was aborted, and is not answered either.
    pub(in super::super) fn late<P: Port>(
        &mut self,
        path: &mut Path<'_>,
        context: &Context<P>,
    ) -> Result<Option<Late>, HostFailure> {
        let late = self.timeouts.look(&self.parts, context)?;
        if let Some(Late { slot, .. }) = late
            && mutant!(K20_host_timeout)
        {
            // K20: a command that is too late ends without its fence.
            self.unsent(slot, IoError::TimedOut, path);
            return Ok(None);
        }
        Ok(late)
    }

    /// What was done about a late command; `None` where nothing could be done now.
    pub(in super::super) fn asked_to_abort<P: Port>(
        &mut self,
        slot: u16,
        abortion: Option<Abortion>,
        context: &Context<P>,
    ) {
        self.timeouts.asked(slot, abortion, &mut self.parts, context);
    }

    /// The host that has the admin queue sent the Abort of a command.
    pub(in super::super) fn abort_told<P: Port>(
        &mut self,
        (queue_id, identifier): (u16, u16),
        queues: &Queues,
        context: &Context<P>,
    ) {
        let Some(slot) = context.transport.commands().in_flight(identifier) else { return };
        let asked = |part: &&Part| part.abortion == Abortion::Asked && queues.id(part.queue) == queue_id;
        if self.parts.get(slot).filter(asked).is_some() {
            self.asked_to_abort(slot, Some(Abortion::Sent), context);
        }
    }
}
