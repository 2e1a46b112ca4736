//! Why a host's session ended, or never began.

use super::step::Step;
use crate::authentication::AuthenticationFailure;
use crate::stood_still::StoodStill;
use crate::wire::{RejectPrivateData, RejectStatus, Status, UnsupportedFormat};
use core::time::Duration;
use frwr_engine::{DisconnectCause, OpenFailure};

/// Why a session with a controller ended, or could not be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostFailure {
    /// A connection could not be opened.
    #[error("the connection could not be opened: {0}")]
    Open(OpenFailure),
    /// The target rejected a connection with a status of the RDMA transport.
    #[error("the target rejected the connection: {0}")]
    Rejected(RejectStatus),
    /// A connection ended.
    #[error("the connection ended: {0}")]
    Disconnected(DisconnectCause),
    /// The controller refused a command of the bring-up.
    #[error("{step} failed: {status}")]
    Command {
        /// Which step.
        step: &'static str,
        /// What the controller said.
        status: Status,
    },
    /// The controller does not let anybody in who has not proven itself.
    #[error("the controller asks for a proof of who this host is; give a key (--dhchap-key)")]
    AuthenticationRequired,
    /// This host is not believed, or does not believe the controller.
    #[error("authentication failed: {0}")]
    Authentication(AuthenticationFailure),
    /// A step, or a command of the admin queue behind them, took longer than `step_timeout`.
    #[error("{what} took longer than step_timeout{}; raise it, or look at the target", StoodStill(*.stood_still))]
    Timeout {
        /// Which.
        what: &'static str,
        /// How long nobody polled this host since it began to connect. That does not count.
        stood_still: Duration,
    },
    /// A command was not answered within `command_timeout`, and neither it nor the Abort that was sent for it then within `step_timeout`.
    #[error(
        "a command was not answered within command_timeout, its Abort was sent, and it was not answered within step_timeout \
         either{}; raise them, or look at the target",
        StoodStill(*.stood_still)
    )]
    CommandTimeout {
        /// As in [`HostFailure::Timeout`].
        stood_still: Duration,
    },
    /// A Keep Alive was not answered in time.
    #[error(
        "the controller did not answer a Keep Alive within the Keep Alive Timeout{}; raise it, or look at the target",
        StoodStill(*.stood_still)
    )]
    KeepAlive {
        /// As in [`HostFailure::Timeout`].
        stood_still: Duration,
    },
    /// CSTS.CFS is set.
    #[error("the controller reports a fatal status (CSTS.CFS)")]
    ControllerFatal,
    /// The controller lacks something.
    #[error("the controller does not support {0}")]
    Unsupported(&'static str),
    /// The queue depth does not fit the controller.
    #[error("queue depth {wanted}: the controller takes {limit}; choose a smaller depth")]
    QueueDepth {
        /// What was asked for.
        wanted: u16,
        /// What the controller takes.
        limit: u32,
    },
    /// The namespace's format.
    #[error("the namespace cannot be used: {0}")]
    Format(UnsupportedFormat),
    /// The namespace is not what it was: another name (NGUID, EUI64, UUID), another block size, or without a name another size after a
    /// reconnect.
    #[error(
        "the namespace has another NGUID, EUI64, UUID or block size than before, or no name and another size than before the reconnect"
    )]
    NamespaceChanged,
    /// The controller did not come back within `controller_loss_timeout`.
    #[error("the controller did not come back within controller_loss_timeout")]
    ControllerLoss,
    /// Too many attempts failed in a row; the last cause was reported before.
    #[error("gave up after max_attempts failed attempts")]
    TooManyAttempts,
}

impl HostFailure {
    /// Another attempt would fail in the same way. `had_session`: there was a session with this subsystem, so a refusal
    /// now means that it is away for a while, as when its port is taken down and made again.
    #[must_use]
    pub fn is_permanent(&self, had_session: bool) -> bool {
        match self {
            // Every attempt registers the same memory.
            Self::Open(OpenFailure::LockedMemory { .. }) => true,
            Self::Open(_)
            | Self::Disconnected(_)
            | Self::Timeout { .. }
            | Self::CommandTimeout { .. }
            | Self::KeepAlive { .. }
            | Self::ControllerFatal => false,
            // The controller that an I/O queue names was made by this session's admin queue: where the target does not know it,
            // or any longer, the next session has another one.
            Self::Command { step, status } if status.code() == Status::CONNECT_INVALID_PARAMETERS.code() => {
                *step != Step::ConnectIo(0).name() && status.is_final() && !had_session
            }
            Self::Command { status, .. } => status.is_final(),
            // A target whose places are taken by our own former connections has room soon.
            Self::Rejected(status) => *status != RejectStatus::NoResources && !had_session,
            Self::AuthenticationRequired
            | Self::Authentication(_)
            | Self::Unsupported(_)
            | Self::QueueDepth { .. }
            | Self::Format(_)
            | Self::NamespaceChanged
            | Self::ControllerLoss
            | Self::TooManyAttempts => true,
        }
    }

    /// From a connection that could not be opened.
    pub(super) fn of_open(reason: OpenFailure, private_data: &[u8]) -> Self {
        match RejectPrivateData::parse(private_data).ok().and_then(RejectStatus::from_wire) {
            Some(status) if reason == OpenFailure::Rejected => Self::Rejected(status),
            _ => Self::Open(reason),
        }
    }
}
