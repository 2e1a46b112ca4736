//! Why somebody does not get into the target. The reason is found once, where it is decided, and travels from there to what the peer is
//! told and to the line that an operator reads.

use crate::wire::{InvalidParameter, Nqn, NqnError, QueueRequestError, RejectStatus, Status};
use core::fmt;
use std::net::IpAddr;

/// Why a connect request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// What its private data says, or that it says nothing.
    #[error(transparent)]
    Request(#[from] QueueRequestError),
    /// An admin queue that came to another core than the one that owns the controllers.
    #[error("an admin queue came to a core that takes I/O queues only")]
    NotHome,
    /// Storages have so many commands of connections that are gone that those of another one might find no slot.
    #[error("commands left of ended connections {commands}, must be 0; a disk does not answer")]
    Orphans {
        /// Those commands.
        commands: u32,
    },
    /// All connections are queues of hosts, or have to be waited for.
    #[error(
        "all {limit} connections of this core are in use: {queues} are queues of hosts, {ending} have not ended yet; raise --hosts \
         or --io-queues"
    )]
    Connections {
        /// Connections of the core.
        limit: u16,
        /// Of these, queues of hosts.
        queues: u16,
        /// Those whose end is under way.
        ending: u16,
    },
    /// The receives that connections of the core share are granted to others.
    #[error(
        "its queue needs {wanted} receives, and of the shared ones {free} are not granted to others; raise --shared-receives, or have \
         hosts use smaller or fewer queues"
    )]
    Receives {
        /// Those of its queue.
        wanted: u32,
        /// Those that nobody was granted.
        free: u32,
    },
    /// It waited for a connection to end that made room for it, and others came behind it.
    #[error("it waited for a connection to end, as too many others did")]
    Crowded,
    /// The listener that it came by was removed.
    #[error("the listener that it came by was removed")]
    ListenerRemoved,
    /// The control half did not take the answer.
    #[error("the connection manager is busy")]
    Busy,
}

impl Rejection {
    /// What the peer is told.
    #[must_use]
    pub fn status(&self) -> RejectStatus {
        match self {
            Self::Request(error) => error.status(),
            _ => RejectStatus::NoResources,
        }
    }

    /// It is said of NVMe over Fabrics what its private data says; otherwise nothing of that means anything.
    pub(super) fn is_of_nvme(&self) -> bool {
        !matches!(self, Self::Request(QueueRequestError::Foreign { .. }))
    }

    /// Room may come soon.
    pub(super) fn is_shortage(&self) -> bool {
        matches!(self, Self::Connections { .. } | Self::Receives { .. })
    }

    /// A number for each kind.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Self::Request(QueueRequestError::Foreign { .. }) => 0,
            Self::Request(error) => error.status() as u32,
            Self::NotHome => 0x11,
            Self::Orphans { .. } => 0x12,
            Self::Connections { .. } => 0x13,
            Self::Receives { .. } => 0x14,
            Self::Crowded => 0x15,
            Self::Busy => 0x16,
            Self::ListenerRemoved => 0x17,
        }
    }
}

/// What there is for who names a subsystem that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// One of its subsystems: that whose name differs in case only, or the first.
    pub name: Nqn,
    /// How many there are beside it.
    pub others: u16,
}

/// Why a Connect command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// RECFMT.
    Format {
        /// Its value; 0 is all that is known.
        value: u16,
    },
    /// QID is not that of the connect request.
    QueueId {
        /// Its value.
        value: u16,
        /// The connect request's.
        asked: u16,
    },
    /// SQSIZE is 0, or more than the connect request said.
    QueueSize {
        /// Its value.
        value: u16,
        /// What the connect request said.
        most: u16,
    },
    /// Connect's data has another length.
    DataLength {
        /// Its bytes.
        bytes: u32,
    },
    /// A second Connect came before the first one was answered.
    Twice,
    /// SUBNQN is no name.
    SubsystemName(NqnError),
    /// HOSTNQN is no name.
    HostName(NqnError),
    /// There is no subsystem of that name.
    NoSubsystem,
    /// The host is not on the subsystem's list of hosts.
    NotAllowed {
        /// It gives a name.
        is_named: bool,
    },
    /// Every host has to prove itself, and there is no key for this one.
    NoKey {
        /// It gives a name.
        is_named: bool,
    },
    /// As many hosts are connected as may be.
    Hosts {
        /// Those that may be, each with each of its subsystems ([`super::TargetOptions::controllers`] less
        /// [`super::TargetOptions::returning_controllers`]).
        places: u16,
        /// Places behind those for who has a controller already.
        returning: u16,
    },
    /// The discovery service has as many hosts as it takes.
    Discovery {
        /// Those ([`super::TargetOptions::discovery_controllers`]).
        places: u16,
    },
    /// CNTLID of an admin queue names a controller.
    NotDynamic {
        /// Its value.
        value: u16,
    },
    /// CNTLID of an I/O queue names no controller of the subsystem, or one that ends.
    NoController {
        /// Its value.
        value: u16,
    },
    /// CNTLID of an I/O queue names another host's controller.
    OtherHost,
    /// An I/O queue comes from another address than its admin queue.
    OtherAddress {
        /// The admin queue's.
        admin: IpAddr,
    },
    /// The I/O queue's controller is not enabled.
    NotEnabled,
    /// The controller has a queue of this identifier.
    QueueExists,
    /// Discovery controllers have no I/O queues (Base 3.1.2.3.4).
    DiscoveryQueue,
    /// A storage has commands of former queues of the controller.
    Orphans {
        /// Those commands.
        commands: u32,
    },
    /// The host is kept away for now ([`super::Target::drain`]), or the controller ends.
    Drains,
    /// The target lost what it was to answer.
    Internal,
}

impl Refusal {
    /// What the host is told: status, and result where the status defines one.
    #[must_use]
    pub fn answer(&self) -> (Status, u64) {
        let invalid =
            |parameter: InvalidParameter| (Status::CONNECT_INVALID_PARAMETERS.do_not_retry(), parameter.to_result());
        match self {
            Self::Format { .. } => (Status::CONNECT_INCOMPATIBLE_FORMAT.do_not_retry(), 0),
            Self::QueueId { .. } | Self::DiscoveryQueue => invalid(InvalidParameter::QUEUE_ID),
            Self::QueueSize { .. } => invalid(InvalidParameter::QUEUE_SIZE),
            Self::DataLength { .. } => (Status::DATA_SGL_LENGTH_INVALID.do_not_retry(), 0),
            Self::Twice => (Status::COMMAND_SEQUENCE_ERROR.do_not_retry(), 0),
            Self::SubsystemName(_) | Self::NoSubsystem => invalid(InvalidParameter::SUBSYSTEM),
            Self::HostName(_) => invalid(InvalidParameter::HOST),
            Self::NotAllowed { .. } | Self::NoKey { .. } | Self::OtherHost | Self::OtherAddress { .. } => {
                (Status::CONNECT_INVALID_HOST.do_not_retry(), 0)
            }
            // Somebody may go.
            Self::Hosts { .. } | Self::Discovery { .. } | Self::Drains => (Status::CONNECT_CONTROLLER_BUSY, 0),
            Self::NotDynamic { .. } | Self::NoController { .. } => invalid(InvalidParameter::CONTROLLER_ID),
            // Too early; or as for a queue that exists already (Base 6.3): a host whose former connection still ends may try again.
            Self::NotEnabled | Self::QueueExists | Self::Orphans { .. } => (Status::COMMAND_SEQUENCE_ERROR, 0),
            Self::Internal => (Status::INTERNAL_ERROR, 0),
        }
    }

    /// An operator is told: it is a mistake, or lacks something that can be given. What is only too early is neither.
    pub(super) fn is_told(&self) -> bool {
        !matches!(self, Self::NotEnabled | Self::QueueExists | Self::Drains | Self::Internal)
    }

    /// A number for each kind.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Self::Format { .. } => 1,
            Self::QueueId { .. } => 2,
            Self::QueueSize { .. } => 3,
            Self::DataLength { .. } => 4,
            Self::Twice => 5,
            Self::SubsystemName(_) => 6,
            Self::HostName(_) => 7,
            Self::NoSubsystem => 8,
            Self::NotAllowed { .. } => 9,
            Self::Hosts { .. } => 10,
            Self::Discovery { .. } => 11,
            Self::NotDynamic { .. } => 12,
            Self::NoController { .. } => 13,
            Self::OtherHost => 14,
            Self::OtherAddress { .. } => 15,
            Self::NotEnabled => 16,
            Self::QueueExists => 17,
            Self::DiscoveryQueue => 18,
            Self::Orphans { .. } => 19,
            Self::Internal => 20,
            Self::Drains => 21,
            Self::NoKey { .. } => 22,
        }
    }

    /// Says why, for a Connect to this subsystem, if it named one, where there is that one.
    pub(super) fn tell(
        &self,
        subsystem: Option<&Nqn>,
        offered: Option<&Offered>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let name = Printable(subsystem);
        match self {
            Self::Format { value } => write!(f, "RECFMT {value}, must be 0"),
            Self::QueueId { value, asked } => write!(f, "QID {value}, the connect request said {asked}"),
            Self::QueueSize { value, most } => write!(f, "SQSIZE {value}, must be from 1 to {most}"),
            Self::DataLength { bytes } => {
                write!(f, "bytes of data {bytes}, must be {}", crate::wire::CONNECT_DATA_BYTES)
            }
            Self::Twice => f.write_str("a second Connect before the first one was answered"),
            Self::SubsystemName(error) => write!(f, "SUBNQN is no name of a subsystem: {error}"),
            Self::HostName(error) => write!(f, "HOSTNQN is no name of a host: {error}"),
            Self::NoSubsystem => {
                write!(f, "no subsystem {name}")?;
                match offered {
                    Some(Offered { name, others: 0 }) => write!(f, "; there is {}", Printable(Some(name))),
                    Some(Offered { name, others: 1 }) => write!(f, "; there is {} and 1 other", Printable(Some(name))),
                    Some(Offered { name, others }) => {
                        write!(f, "; there is {} and {others} others", Printable(Some(name)))
                    }
                    None => Ok(()),
                }
            }
            Self::NotAllowed { is_named } => {
                let who = if *is_named { "the host" } else { "a host that gives no name" };
                write!(f, "{who} is on no list of {name}; allowed_hosts or --allow-host lists names")
            }
            Self::NoKey { is_named } => {
                let who = if *is_named { "the host" } else { "a host that gives no name" };
                write!(
                    f,
                    "{who} has no key, and every host has to prove itself; give it one by [[host]] or set_host_key"
                )
            }
            Self::Hosts { places, returning } => {
                match places {
                    1 => f.write_str("the one place for hosts is taken")?,
                    places => write!(f, "all {places} places for hosts are taken")?,
                }
                if *returning > 0 {
                    write!(f, ", and {returning} more for those that come back")?;
                }
                f.write_str("; raise --hosts, or disconnect a host")
            }
            Self::Discovery { places } => {
                write!(
                    f,
                    "all {places} places of the discovery service are taken; raise --hosts, or disconnect a host from it"
                )
            }
            Self::NotDynamic { value } => {
                write!(f, "CNTLID {value:#06x}, must be {:#06x}", crate::wire::DYNAMIC_CONTROLLER)
            }
            Self::NoController { value } => write!(f, "{name} has no controller {value}"),
            Self::OtherHost => f.write_str("the controller is another host's"),
            Self::OtherAddress { admin } => write!(f, "the controller's admin queue comes from {admin}"),
            Self::NotEnabled => f.write_str("the controller is not enabled"),
            Self::QueueExists => f.write_str("the controller has a queue of this identifier"),
            Self::DiscoveryQueue => f.write_str("the discovery service has no I/O queues"),
            Self::Orphans { commands } => {
                write!(f, "commands left of ended connections {commands}, must be 0; a disk does not answer")
            }
            Self::Drains => f.write_str("the host is kept away for now; resume it"),
            Self::Internal => f.write_str("an error of the target"),
        }
    }
}

/// A name that a peer chose: no line break or escape sequence of its is for whoever reads a log. At most 223 bytes, so that it is no
/// line without an end either.
pub(super) struct Printable<'a>(pub(super) Option<&'a Nqn>);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "{}", name.as_str().escape_debug()),
            None => f.write_str("without a name"),
        }
    }
}
