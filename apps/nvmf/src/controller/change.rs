//! What a running target's changes are called, why they are refused, and what becomes of them.

use super::addresses::MAX_LISTENERS;
use super::subsystem::ana::MAX_ANA_GROUPS;
use crate::storage::{AttachError, ResizeError};
use crate::wire::Nqn;
use core::fmt;
use frwr_engine::{OpenError, provider::CommandError};
use std::net::SocketAddr;

/// Drains of a target at a time ([`super::Target::drain`]), those of hosts that are allowed no longer and of subsystems that are removed
/// included: more than operators have under way.
pub const MAX_DRAINS: usize = 64;

/// A change that the home core has begun. Numbers are given in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeId(pub u32);

/// Why a target is not changed. Nothing of the change was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Only the home core takes changes.
    #[error("core {0} is not the home core of the target; ask core 0")]
    NotHome(u16),
    /// The target ends.
    #[error("the target ends; change the next one")]
    Ending,
    /// Cores have not taken another change.
    #[error("change {} is not taken by all cores yet; try again behind its end", .0.0)]
    Busy(ChangeId),
    /// There is no such subsystem.
    #[error("the target has no subsystem of this name; name one that it has")]
    Subsystem,
    /// There is one of this name, the discovery service has it, or one that was removed is not gone.
    #[error("the name is that of another subsystem; choose another one, or wait until that one is gone")]
    SubsystemName,
    /// As many subsystems as may be.
    #[error("{limit} subsystems there are, and may be at most; remove one, or raise TargetOptions::subsystems")]
    Subsystems {
        /// [`super::TargetOptions::subsystems`].
        limit: usize,
    },
    /// More listeners of other targets than there may be.
    #[error("{count} listeners of other targets: must be {limit} at most; name fewer")]
    ListenersElsewhere {
        /// As told.
        count: usize,
        /// Those of all other targets together.
        limit: usize,
    },
    /// There is no such namespace.
    #[error("the subsystem has {count} namespaces, and none is {identifier}; name one that it has")]
    Namespace {
        /// As asked for.
        identifier: u32,
        /// Namespaces that there are.
        count: u32,
    },
    /// As many namespaces as may be.
    #[error("{limit} namespaces there are, and may be at most; remove one, or raise TargetOptions::namespaces")]
    Namespaces {
        /// [`super::TargetOptions::namespaces`].
        limit: usize,
    },
    /// Not one that a namespace may have.
    #[error(
        "namespace identifier {identifier}: must be from 1 to {limit}; choose one, or raise TargetOptions::namespaces"
    )]
    Identifier {
        /// As asked for.
        identifier: u32,
        /// The highest.
        limit: u32,
    },
    /// There is one of this identifier.
    #[error("there is a namespace {identifier} in the subsystem; choose another identifier, or remove it")]
    Taken {
        /// As asked for.
        identifier: u32,
    },
    /// One of this identifier was removed, and is not gone.
    #[error("namespace {identifier} was removed, and commands of it have not ended; try again when they have")]
    Leaving {
        /// As asked for.
        identifier: u32,
    },
    /// Not one that an ANA group may have.
    #[error("ANA group {group}: must be from 1 to {MAX_ANA_GROUPS}; choose one")]
    AnaGroup {
        /// As asked for.
        group: u32,
    },
    /// Hosts would take two namespaces for one.
    #[error("namespace {identifier} has the NGUID of namespace {other}; give it another one")]
    Identity {
        /// The new one.
        identifier: u32,
        /// The other one.
        other: u32,
    },
    /// A block does not fit into a data buffer.
    #[error(
        "blocks of {block_bytes} bytes, and a buffer has {buffer_bytes}; choose smaller blocks, or raise buffer_bytes"
    )]
    BlockBytes {
        /// Bytes of a block.
        block_bytes: u32,
        /// Bytes of a buffer.
        buffer_bytes: u32,
    },
    /// The storage lacks a command that hosts of the subsystem were told of.
    #[error("the storage has no {0}, which hosts of the subsystem were told of; add it to another subsystem")]
    Features(&'static str),
    /// The storage cannot transfer to the buffers.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The storage cannot have this size.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// More names than a list may have.
    #[error(
        "a list of {count} hosts: at most {limit} may be allowed by name; shorten it, or raise TargetOptions::allowed_hosts"
    )]
    AllowedHosts {
        /// Names.
        count: usize,
        /// [`super::TargetOptions::allowed_hosts`].
        limit: usize,
    },
    /// It listens there already, or does so still for a while.
    #[error("there is a listener at {address}; choose another address, or wait until that one is gone")]
    ListenerTaken {
        /// As asked for.
        address: SocketAddr,
    },
    /// It does not listen there.
    #[error("the target does not listen at {address}; name an address at which it does")]
    Listener {
        /// As asked for.
        address: SocketAddr,
    },
    /// As many listeners as may be.
    #[error("{MAX_LISTENERS} listeners there are, and may be at most; remove one")]
    Listeners,
    /// Control was not asked.
    #[error(transparent)]
    Control(#[from] OpenError),
    /// As many hosts are drained, or have not left, as may be.
    #[error("{MAX_DRAINS} drains are under way; resume one, or wait until one has ended")]
    Drains,
}

/// A namespace that was not taken: why, and its storage, which may have been attached already.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused<S> {
    /// Why.
    pub error: ChangeError,
    /// The caller's again.
    pub storage: S,
}

impl<S> fmt::Debug for Refused<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

/// A namespace that is added.
#[derive(Debug)]
pub struct NewNamespace<S> {
    /// NSID, from 1.
    pub identifier: u32,
    /// By which hosts know it again, on whatever path. `None`: one that follows from the names of subsystem and namespace; to be given
    /// where another medium had the identifier before.
    pub nguid: Option<[u8; 16]>,
    /// ANAGRPID, 1 to [`MAX_ANA_GROUPS`]; [`DEFAULT_ANA_GROUP`] where nobody wants another.
    ///
    /// [`DEFAULT_ANA_GROUP`]: super::DEFAULT_ANA_GROUP
    pub ana_group: u32,
    /// Hosts may use it: one that is not active is listed nowhere and takes no commands, until [`Target::set_namespace_active`].
    ///
    /// [`Target::set_namespace_active`]: super::Target::set_namespace_active
    pub active: bool,
    /// The home core's way to its medium.
    pub storage: S,
}

/// What holds a change up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldUp {
    /// The host whose command it is, as far as this core knows.
    pub host: Option<Nqn>,
    /// Its queue; `None` where that is gone, and what it left is with the storage.
    pub queue_id: Option<u16>,
    /// The command; `None` where the target itself flushes the namespace.
    pub command_id: Option<u16>,
    /// NSID as the command said it.
    pub namespace: u32,
    /// What it waits for.
    pub waits_for: &'static str,
}

impl fmt::Display for HeldUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Some(host) => write!(f, "host {}", host.as_str().escape_debug())?,
            None => f.write_str("a host")?,
        }
        match self.queue_id {
            Some(queue) => write!(f, ", queue {queue}")?,
            None => f.write_str(", a queue that is gone")?,
        }
        match self.command_id {
            Some(command) => write!(f, ", command {command:#06x} of namespace {}", self.namespace)?,
            None => write!(f, ", namespace {}", self.namespace)?,
        }
        write!(f, ": waits for {}", self.waits_for)
    }
}

/// What became of a change ([`super::Target::next_change`]).
pub enum ChangeEvent<S> {
    /// All cores have taken it, and hosts were told; of what drains, nothing is left. Of the home core.
    Done {
        /// Which.
        id: ChangeId,
    },
    /// A core had not been given what the change needs ([`super::Target::supply_namespace`], [`super::Target::prepare_resize`]): no host
    /// was told, and what cores had is taken back. Of the home core.
    Undone {
        /// Which.
        id: ChangeId,
    },
    /// The device cannot listen at an address that was added, and no core does. Of the home core.
    CannotListen {
        /// Which.
        id: ChangeId,
        /// Why.
        reason: CommandError,
    },
    /// A namespace that was removed is gone here: no command of it is left on this core, and this is its storage. Of each core.
    Removed {
        /// Which change.
        id: ChangeId,
        /// The name of its subsystem.
        subsystem: Nqn,
        /// NSID.
        identifier: u32,
        /// The caller's again.
        storage: S,
    },
    /// No command on this core reaches beyond the end of a namespace that was made smaller: its medium may be cut, as far as this core
    /// goes. Of each core.
    Shrunk {
        /// Which change.
        id: ChangeId,
    },
    /// A namespace is removed, or is to have another size, before it was as small on this core as this change said: [`Self::Shrunk`] is
    /// not told here. Of each core that it is so on.
    Superseded {
        /// Which.
        id: ChangeId,
    },
    /// The time of a change is over, and this is why it is not done; it goes on. Told once, of each core that holds it up.
    HeldUp {
        /// Which.
        id: ChangeId,
        /// By what.
        by: HeldUp,
    },
}

impl<S> fmt::Debug for ChangeEvent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { id } => write!(f, "Done({})", id.0),
            Self::Undone { id } => write!(f, "Undone({})", id.0),
            Self::CannotListen { id, reason } => write!(f, "CannotListen({}, {reason})", id.0),
            Self::Removed { id, identifier, .. } => write!(f, "Removed({}, {identifier})", id.0),
            Self::Shrunk { id } => write!(f, "Shrunk({})", id.0),
            Self::Superseded { id } => write!(f, "Superseded({})", id.0),
            Self::HeldUp { id, by } => write!(f, "HeldUp({}, {by})", id.0),
        }
    }
}
