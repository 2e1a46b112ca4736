//! What the host's core tells the main thread while it runs, and the other way round: plain stores and loads of words
//! that one side writes and the other reads. Nobody waits for anybody.

use crossbeam_utils::CachePadded;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
};

/// Written by the host's core.
#[derive(Debug, Default)]
struct FromHost {
    requests: AtomicU64,
    phase: AtomicU8,
    finished: AtomicBool,
    kill_peer: AtomicBool,
}

/// Written by the main thread.
#[derive(Debug, Default)]
struct FromMain {
    stop: AtomicBool,
}

/// Both directions, each on cache lines of its own. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<(CachePadded<FromHost>, CachePadded<FromMain>)>);

impl Progress {
    /// The host's core: requests ended, and how far the job is.
    pub(super) fn publish(&self, requests: u64, phase: u8) {
        self.0.0.requests.store(requests, Relaxed);
        self.0.0.phase.store(phase, Relaxed);
    }

    /// Requests ended so far.
    #[must_use]
    pub(super) fn requests(&self) -> u64 {
        self.0.0.requests.load(Relaxed)
    }

    /// The phase as last published.
    #[must_use]
    pub(super) fn phase(&self) -> u8 {
        self.0.0.phase.load(Relaxed)
    }

    /// The host's core: the job is over and the connection is gone.
    pub(super) fn finish(&self) {
        self.0.0.finished.store(true, Relaxed);
    }

    /// Whether it is.
    #[must_use]
    pub(super) fn is_finished(&self) -> bool {
        self.0.0.finished.load(Relaxed)
    }

    /// The host's core: now is the time for the target to drop the connection.
    pub(super) fn kill_peer(&self) {
        self.0.0.kill_peer.store(true, Relaxed);
    }

    /// The target's core: whether it shall.
    #[must_use]
    pub(super) fn wants_kill(&self) -> bool {
        self.0.0.kill_peer.load(Relaxed)
    }

    /// The main thread: end early.
    pub(super) fn stop(&self) {
        self.0.1.stop.store(true, Relaxed);
    }

    /// The host's core: whether to end early.
    #[must_use]
    pub(super) fn wants_stop(&self) -> bool {
        self.0.1.stop.load(Relaxed)
    }
}
