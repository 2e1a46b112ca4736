//! The commands of the bring-up and the shutdown, in their order.

use super::queues::QueueOf;
use core::time::Duration;

/// How often CSTS is read while a change takes: at most that much is lost of a change, and a controller that takes minutes is not asked
/// thousands of times a second.
const STATUS_PERIOD: Duration = Duration::from_millis(10);

/// How far the authentication of a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Whether there is to be one is being found out.
    Begin,
    /// What follows from the controller's latest message is.
    Judge,
    /// Our message is sent.
    Send,
    /// The controller's is asked for.
    Receive,
}

impl Stage {
    /// Nothing arrives that would say when it is over.
    pub(super) fn is_polled(self) -> bool {
        matches!(self, Self::Begin | Self::Judge)
    }
}

/// One command of the bring-up or the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Connect on the admin queue.
    Connect,
    /// Authentication of a queue that was connected.
    Authenticate(QueueOf, Stage),
    /// Property Get of CAP.
    GetCapabilities,
    /// Property Set of CC: enable.
    Enable,
    /// Property Get of CSTS until RDY is set.
    AwaitReady,
    /// Identify Controller.
    IdentifyController,
    /// Identify Controller of the NVM command set.
    IdentifyCommandSet,
    /// Set Features: Number of Queues.
    SetQueues,
    /// Set Features: Asynchronous Event Configuration.
    SetEvents,
    /// Identify: Active Namespace ID list.
    IdentifyActive,
    /// Identify: Namespace Identification Descriptor list.
    IdentifyDescriptors,
    /// Identify Namespace.
    IdentifyNamespace,
    /// Get Log Page: Asymmetric Namespace Access.
    ReadAna,
    /// Get Log Page: Discovery, a part of it.
    ReadDiscovery,
    /// Connect on an I/O queue, counted from 0.
    ConnectIo(u16),
    /// Property Set of CC: shutdown notification.
    ShutDown,
    /// Property Get of CSTS until SHST says complete.
    AwaitShutdown,
}

impl Step {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "Connect of the admin queue",
            Self::Authenticate(_, Stage::Send) => "Authentication Send",
            Self::Authenticate(_, Stage::Receive) => "Authentication Receive",
            Self::Authenticate(..) => "authentication",
            Self::GetCapabilities => "Property Get of CAP",
            Self::Enable => "Property Set of CC",
            Self::AwaitReady => "waiting for CSTS.RDY",
            Self::IdentifyController => "Identify Controller",
            Self::IdentifyCommandSet => "Identify Controller of the NVM command set",
            Self::SetQueues => "Set Features of the number of queues",
            Self::SetEvents => "Set Features of asynchronous events",
            Self::IdentifyActive => "Identify of active namespaces",
            Self::IdentifyDescriptors => "Identify of a namespace's descriptors",
            Self::IdentifyNamespace => "Identify Namespace",
            Self::ReadAna => "Get Log Page of asymmetric namespace access",
            Self::ReadDiscovery => "Get Log Page of the discovery log",
            Self::ConnectIo(_) => "Connect of an I/O queue",
            Self::ShutDown => "shutdown notification",
            Self::AwaitShutdown => "waiting for CSTS.SHST",
        }
    }

    /// The session can do without it: its refusal is no failure.
    pub(super) fn is_optional(self) -> bool {
        matches!(
            self,
            Self::IdentifyCommandSet
                | Self::SetEvents
                | Self::IdentifyActive
                | Self::IdentifyDescriptors
                | Self::ReadAna
        )
    }

    /// What passes before it is asked again where the answer says not yet.
    pub(super) fn pause(self) -> Duration {
        if matches!(self, Self::AwaitReady | Self::AwaitShutdown) { STATUS_PERIOD } else { Duration::ZERO }
    }

    /// It belongs to the end of a session.
    pub(super) fn is_shutdown(self) -> bool {
        matches!(self, Self::ShutDown | Self::AwaitShutdown)
    }
}
