//! What is changed of a target while it serves, as its cores are told it.

use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_nvmf::{
    controller::{AllowedHosts, ChangeError, Target},
    storage::Storage,
    wire::{AnaState, Nqn},
};

/// How long hosts that are allowed no longer may take to leave, before the target says what holds them up.
const LEAVE_TIME: Duration = Duration::from_secs(10);

/// One change. Each is an operation of the library, which takes it wholly or says why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A namespace is listed and takes commands, or not.
    NamespaceActive { subsystem: Nqn, identifier: u32, active: bool },
    /// How well a subsystem's namespaces can be reached here.
    Ana { subsystem: Nqn, state: AnaState },
    /// Who may use a subsystem.
    AllowedHosts { subsystem: Nqn, hosts: AllowedHosts },
}

/// Which cores have to be told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The home core, which tells the others.
    Home,
    /// Each of them, the home core last: what hosts are told by it holds everywhere then.
    MembersFirst,
}

impl Change {
    pub(super) fn told(&self) -> Told {
        match self {
            Self::NamespaceActive { .. } | Self::Ana { .. } => Told::Home,
            Self::AllowedHosts { .. } => Told::MembersFirst,
        }
    }

    /// Does it, on a core's target.
    pub(super) fn apply<P: Port, S: Storage>(&self, target: &mut Target<P, S>) -> Result<(), ChangeError> {
        match self {
            Self::NamespaceActive { subsystem, identifier, active } => {
                target.set_namespace_active(subsystem, *identifier, *active)
            }
            Self::Ana { subsystem, state } => target.set_ana_state(subsystem, *state),
            Self::AllowedHosts { subsystem, hosts } => {
                match target.set_allowed_hosts(subsystem, hosts.clone(), LEAVE_TIME) {
                    // The home core judges all hosts.
                    Ok(_) | Err(ChangeError::NotHome(_)) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        }
    }
}

impl Told {
    /// Those of so many cores, of which the first is the home core, in their order.
    pub(super) fn cores(self, cores: usize) -> Vec<usize> {
        match self {
            Self::Home => vec![0],
            Self::MembersFirst => (1..cores).chain([0]).collect(),
        }
    }
}
