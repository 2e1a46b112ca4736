//! A host that follows another one's session with I/O queues of its own. It takes requests, cuts, bounces and sends them as
//! every host; what needs the admin queue it asks the other one for.

use super::attachment::{Attachment, FollowerOrder, FollowerReport};
use super::limits::Limits;
use super::queues::QueueOf;
use super::{After, Host, HostError, HostFailure, HostOptions, State};
use crate::wire::AnaState;
use frwr_engine::Engine;
use frwr_engine::provider::Port;
use frwr_mempool::DeviceMemory;

/// What a follower knows of the other one, and has to tell it. All reports are of the same session: the next one begins only
/// when the other has heard of the end of this one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Following {
    session: u64,
    /// It takes part in the session, and the other one waits for its end.
    engaged: bool,
    attached: bool,
    path: Option<AnaState>,
    abort: Option<(u16, u16)>,
    failed: Option<HostFailure>,
    detached: bool,
}

impl Following {
    pub(super) fn session(&self) -> u64 {
        self.session
    }

    /// All queues are up.
    pub(super) fn attached(&mut self) {
        self.attached = true;
    }

    /// The controller refused a command because of the path.
    pub(super) fn refused(&mut self, state: AnaState) {
        self.path = Some(state);
    }

    /// Takes a command that is to be aborted; false where another one has not been told yet.
    pub(super) fn abort(&mut self, queue_id: u16, command_id: u16) -> bool {
        let room = self.abort.is_none();
        self.abort = self.abort.or(Some((queue_id, command_id)));
        room
    }

    pub(super) fn failed(&mut self, failure: HostFailure) {
        self.failed = Some(failure).filter(|_| self.engaged);
    }

    /// All its connections are gone.
    pub(super) fn closed(&mut self) {
        self.detached |= core::mem::take(&mut self.engaged);
        (self.path, self.abort) = (None, None);
    }

    fn next_report(&mut self) -> Option<FollowerReport> {
        let session = self.session;
        if core::mem::take(&mut self.attached) {
            Some(FollowerReport::Attached { session })
        } else if let Some(state) = self.path.take() {
            Some(FollowerReport::Path { session, state })
        } else if let Some((queue_id, command_id)) = self.abort.take() {
            Some(FollowerReport::Abort { session, queue_id, command_id })
        } else if let Some(failure) = self.failed.take() {
            Some(FollowerReport::Failed { session, failure })
        } else {
            core::mem::take(&mut self.detached).then_some(FollowerReport::Detached { session })
        }
    }
}

impl<P: Port> Host<P> {
    /// A host without an admin queue, which takes part in the sessions of another one, made with
    /// [`HostOptions::followers`]. Memory and options as in [`Host::new`]; address, names, identifier, namespace and depths
    /// have to be those of the other one. It brings its queues up when [`Host::follow`] tells it of a session.
    ///
    /// # Errors
    /// [`HostError`].
    pub fn follower(engine: Engine<P>, memory: DeviceMemory, options: HostOptions) -> Result<Self, HostError> {
        let mut host = Self::new(engine, memory, HostOptions { followers: 0, ..options })?;
        host.following = Some(Following::default());
        Ok(host)
    }

    /// Takes an order of the host that has the admin queue. Nothing happens where this host has an admin queue itself.
    pub fn follow(&mut self, order: FollowerOrder) {
        match order {
            FollowerOrder::Attach(attachment) => self.attach(&attachment),
            FollowerOrder::Detach { session } => self.detach(session),
            FollowerOrder::Aborting { session, queue_id, command_id } => {
                if self.session() == session
                    && let Some((path, io, context)) = self.path()
                {
                    io.abort_told((queue_id, command_id), &path, context);
                }
            }
            FollowerOrder::GiveUp(failure) => {
                if self.following.is_some() && !matches!(self.state, State::Stopped | State::Failed(_)) {
                    self.last_failure = Some(failure);
                    self.close(After::Fail(failure));
                }
            }
        }
    }

    /// The next report to the host that has the admin queue. To be asked for after every poll; each has to reach the other's
    /// [`Host::heard`].
    pub fn next_report(&mut self) -> Option<FollowerReport> {
        self.following.as_mut()?.next_report()
    }

    /// It was told of a session in which the controller granted no queue for it.
    #[must_use]
    pub fn has_no_queue(&self) -> bool {
        self.following.is_some_and(|following| following.session > 0) && self.limits.queues == 0
    }

    fn attach(&mut self, attachment: &Attachment) {
        let Some(following) = &mut self.following else { return };
        if following.session == attachment.session {
            // Its queues may be gone already; then the other host hears of it.
            if following.engaged {
                self.learn(attachment);
            }
            return;
        }
        let waits = self.state == State::Detached && !self.stopping;
        following.session = attachment.session;
        following.engaged = waits && attachment.limits.queues > 0;
        // Who shuts down, or gets no queue, has none to give back.
        following.detached = !following.engaged;
        let engaged = following.engaged;
        self.learn(attachment);
        if !engaged {
            return;
        }
        self.queues.count_from(attachment.first_queue);
        let capabilities = attachment.limits.capabilities;
        match self.check_depth(self.context.options.io_entries(), capabilities.max_queue_entries()) {
            Ok(()) => self.open_next(QueueOf::Io(0)),
            Err(failure) => self.fail(failure),
        }
    }

    fn learn(&mut self, attachment: &Attachment) {
        // More than it has places for would be a mistake of the other one's.
        let queues = attachment.limits.queues.min(self.context.options.queues);
        self.limits = Limits { queues, ..attachment.limits };
        self.geometry = Some(attachment.geometry);
        self.ana.set(attachment.ana, self.context.time.watched());
    }

    fn detach(&mut self, session: u64) {
        let Some(following) = &self.following else { return };
        if following.engaged && following.session == session && !matches!(self.state, State::Closing { .. }) {
            self.ends_elsewhere = true;
            self.close(if self.stopping { After::Stop } else { After::Retry });
        }
    }
}
