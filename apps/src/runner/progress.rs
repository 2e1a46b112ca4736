//! What the cores tell the main thread while they run, and the other way round: plain stores and loads of words that one
//! side writes and the other reads. Nobody waits for anybody.

use crate::job::Phase;
use crossbeam_utils::CachePadded;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
};

/// What the core that is reported of is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The host has no session yet.
    Connecting,
    /// The host's job.
    Job(Phase),
    /// The target has not been told that it listens.
    OpeningListener,
    /// The target listens.
    Serving,
    /// The target cannot listen.
    CannotListen,
}

/// All, by the number that stands for it.
const ALL: [Doing; 11] = [
    Doing::Connecting,
    Doing::Job(Phase::Write),
    Doing::Job(Phase::Flush),
    Doing::Job(Phase::Read),
    Doing::Job(Phase::Digest),
    Doing::Job(Phase::Load),
    Doing::Job(Phase::Drain),
    Doing::Job(Phase::Done),
    Doing::OpeningListener,
    Doing::Serving,
    Doing::CannotListen,
];

impl Doing {
    fn number(self) -> u8 {
        match self {
            Self::Connecting => 0,
            Self::Job(phase) => 1 + phase as u8,
            Self::OpeningListener => 8,
            Self::Serving => 9,
            Self::CannotListen => 10,
        }
    }
}

/// Written by the core that is reported of: the host's where there is one, else the target's.
#[derive(Debug, Default)]
struct FromCore {
    requests: AtomicU64,
    doing: AtomicU8,
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
pub(super) struct Progress(Arc<(CachePadded<FromCore>, CachePadded<FromMain>)>);

impl Progress {
    /// The core: requests ended, and what it is doing.
    pub(super) fn publish(&self, requests: u64, doing: Doing) {
        self.0.0.requests.store(requests, Relaxed);
        self.0.0.doing.store(doing.number(), Relaxed);
    }

    /// Requests ended so far.
    #[must_use]
    pub(super) fn requests(&self) -> u64 {
        self.0.0.requests.load(Relaxed)
    }

    /// As last published.
    #[must_use]
    pub(super) fn doing(&self) -> Doing {
        ALL.get(usize::from(self.0.0.doing.load(Relaxed))).copied().unwrap_or(Doing::Connecting)
    }

    /// The core: its work is over.
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

    /// The core: whether to end early.
    #[must_use]
    pub(super) fn wants_stop(&self) -> bool {
        self.0.1.stop.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Progress};

    #[test]
    fn what_a_core_does_is_told_from_everything_else() {
        let progress = Progress::default();
        for (count, doing) in ALL.into_iter().enumerate() {
            progress.publish(count as u64, doing);
            assert_eq!((progress.requests(), progress.doing()), (count as u64, doing));
        }
    }
}
