//! What a host that follows another one's session has to tell that one.

use super::attachment::FollowerReport;
use super::failure::HostFailure;
use crate::wire::AnaState;

/// What a follower knows of the other one, and has to tell it. All reports are of the same session: the next one begins only
/// when the other has heard of the end of this one.
#[derive(Debug, Default)]
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

    /// It takes part in the session.
    pub(super) fn is_engaged(&self) -> bool {
        self.engaged
    }

    /// It is told of another session. Who shuts down, or gets no queue, has none to give back.
    pub(super) fn begin(&mut self, session: u64, engaged: bool) {
        (self.session, self.engaged, self.detached) = (session, engaged, !engaged);
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

    pub(super) fn next_report(&mut self) -> Option<FollowerReport> {
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
