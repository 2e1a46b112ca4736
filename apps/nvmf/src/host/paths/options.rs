//! What several paths to one namespace can be told, and why they cannot be made.

use core::time::Duration;
use frwr_engine::AddMemoryError;

/// Paths to one namespace: two gateways with two ports each, and as many again.
pub const MAX_PATHS: usize = 8;
/// As a host waits for a namespace that one controller does not reach.
const PATH_TIMEOUT: Duration = Duration::from_secs(30);
/// What a message needs that left us last, and what a controller's timer is late by: targets look at their timers some times a second.
const QUIESCE_MARGIN: Duration = Duration::from_secs(2);
/// As [`super::super::HostOptions::command_retries`].
const COMMAND_RETRIES: u16 = 5;

/// Which of the paths that are as good as each other a request takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathPolicy {
    /// The one with most room in its queues; of equals, the first.
    #[default]
    QueueRoom,
    /// One after the other.
    RoundRobin,
}

frwr_mempool::options! {
    /// How several paths are used.
    #[derive(Clone, Debug)]
    pub struct PathsOptions {
        /// Which of equal paths a request takes.
        pub policy: PathPolicy,
        /// How long requests wait while no path serves, before they fail ([`super::super::IoError::NoPath`]).
        pub path_timeout: Duration,
        /// How often a request is sent again because a session ended before it was answered; then it fails
        /// ([`super::super::IoError::Unanswered`]). `None` for ever.
        pub command_retries: Option<u16>,
        /// What has to pass, beside the time in which a controller ends a host that is silent, before a change of the medium that it was
        /// sent and did not answer goes to another controller.
        pub quiesce_margin: Duration,
        /// A controller that admits a host again has nothing more of its former session, as this crate's target promises of a session that it
        /// knows to be over. Then such a change goes on as soon as the same path is back. To be cleared where an address may lead to another
        /// machine than before, and for targets that promise no such thing.
        pub reconnect_ends_former: bool,
        /// The storage behind the controllers sees to it that a controller which was lost changes nothing any more before another one serves,
        /// as Ceph does where the lock of an image is broken. Then such a change goes on at once.
        pub storage_fences: bool,
    }
}

impl Default for PathsOptions {
    fn default() -> Self {
        Self {
            policy: PathPolicy::default(),
            path_timeout: PATH_TIMEOUT,
            command_retries: Some(COMMAND_RETRIES),
            quiesce_margin: QUIESCE_MARGIN,
            reconnect_ends_former: true,
            storage_fences: false,
        }
    }
}

/// Why hosts are no paths to one namespace, or memory is not declared to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathsError {
    /// How many there are.
    #[error("{0} paths: must be 1 to {MAX_PATHS}; give one host for each path")]
    Count(usize),
    /// The names that a host was made with.
    #[error(
        "path {path} has another subsystem, namespace, host name or host identifier than path 0; make its host with the same"
    )]
    Names {
        /// Which.
        path: u16,
    },
    /// A host that follows others, or is followed.
    #[error(
        "path {path} shares its controller with hosts on other cores, which one path alone can; use one core, or one path"
    )]
    Cores {
        /// Which.
        path: u16,
    },
    /// It is to lead somewhere, and does.
    #[error("path {path} leads somewhere already, or is none of these; retire it first, and wait until it is vacant")]
    Taken {
        /// Which.
        path: u16,
    },
    /// An engine did not take the memory.
    #[error(transparent)]
    Memory(#[from] AddMemoryError),
    /// Memory goes by one name on all paths.
    #[error(
        "the engine of path {path} gave the memory another name than that of path 0; declare memory by Paths::add_memory alone"
    )]
    MemoryName {
        /// Which.
        path: u16,
    },
}
