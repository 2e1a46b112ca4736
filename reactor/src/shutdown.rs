//! Shutting down with a deadline, and what is reported then.

use core::time::Duration;
use std::sync::Arc;

use crate::group::Group;
use crate::statistics::Statistics;

/// Asks all reactors of one wiring to shut down; clones may live on any thread and in contexts.
#[derive(Clone, Debug)]
pub struct ShutdownHandle(pub(crate) Arc<Group>);

impl ShutdownHandle {
    /// Every reactor tells its pollers and goes on until all reactors are drained, at most for `grace`, counted from the
    /// iteration in which it notices. Of several requests the shortest counts: zero ends at once.
    pub fn request(&self, grace: Duration) {
        self.0.request_shutdown(grace);
    }
}

/// How a reactor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Names of the pollers that were not drained at the deadline; empty if all were.
    pub undrained: Vec<&'static str>,
    /// Messages that were left in the inbox; they were dropped.
    pub messages_left: usize,
    /// The final figures.
    pub statistics: Statistics,
}

/// Where a reactor is in its life.
#[derive(Debug)]
pub(crate) enum Life {
    Running,
    /// Pollers were told. Nanoseconds of its grace that are over, and when that was looked at last.
    Draining {
        spent: u64,
        looked: u64,
    },
    /// The loop is over.
    Stopped {
        undrained: Vec<&'static str>,
    },
}
