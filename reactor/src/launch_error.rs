//! Why reactors did not start.

use core::fmt;

use crate::inbox::CoreIndex;
use crate::pin::PinError;
use crate::placement::PlacementError;
use crate::seat::WiringError;

/// Why reactors did not start. None of them runs then: those that were ready have been taken down, unless they were given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError<E: fmt::Debug + fmt::Display + 'static> {
    /// The placement does not fit the machine.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The wiring is out of its limits.
    #[error(transparent)]
    Wiring(#[from] WiringError),
    /// The system gave no thread.
    #[error("reactor {core}: no thread ({source}); check the process limit (ulimit -u)")]
    Thread {
        /// Which reactor.
        core: CoreIndex,
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread could not be pinned.
    #[error("reactor {core}: {source}")]
    Pin {
        /// Which reactor.
        core: CoreIndex,
        /// Why.
        source: PinError,
    },
    /// The initialisation of one reactor failed.
    #[error("reactor {core}: {error}")]
    Init {
        /// Which reactor.
        core: CoreIndex,
        /// What it returned. Not named `source`, so that it may be a `Box<dyn Error + Send + Sync>`, which is no error itself.
        error: E,
    },
    /// The initialisation of one reactor panicked.
    #[error("reactor {core} panicked while it was set up: {message}")]
    Panicked {
        /// Which reactor.
        core: CoreIndex,
        /// What it said.
        message: String,
    },
    /// Who watched the launch gave it up. Threads that are not done with their initialisation go on with it, and then end; nobody
    /// will hear of it: for a process that is about to end.
    #[error("the reactors were given up before all of them were set up")]
    GivenUp,
}
