//! First commands of fused pairs whose second one has not come: of each queue one at most, since whatever comes next is its
//! second, or ends the wait.

use crate::wire::SubmissionQueueEntry;
use frwr_engine::{ConnectionId, Received};

/// A command as it came. Nothing was looked at but that it is a first one.
#[derive(Debug)]
pub(super) struct First {
    pub(super) connection: ConnectionId,
    pub(super) entry: SubmissionQueueEntry,
    /// Its capsule, which it keeps.
    pub(super) received: Received,
}

/// Those of one core.
#[derive(Debug)]
pub(super) struct Firsts(Vec<First>);

impl Firsts {
    /// Of so many connections.
    pub(super) fn new(connections: u16) -> Self {
        Self(Vec::with_capacity(connections.into()))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One that waits from now on; its queue has none.
    pub(super) fn keep(&mut self, first: First) {
        self.0.push(first);
    }

    /// One of which this holds; it waits no more.
    pub(super) fn take(&mut self, is_it: impl FnMut(&First) -> bool) -> Option<First> {
        let at = self.0.iter().position(is_it)?;
        Some(self.0.swap_remove(at))
    }
}
