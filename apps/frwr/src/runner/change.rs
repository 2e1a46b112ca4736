//! What is changed of a target while it serves, as its cores are told it.

use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_nvmf::{
    controller::{AllowedHosts, ChangeError, ChangeId, Target},
    storage::Storage,
    wire::{AnaState, Nqn, SerialNumber},
};

/// One change. Each is an operation of the library, which takes it wholly or says why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A namespace is listed and takes commands, or not.
    NamespaceActive { subsystem: Nqn, identifier: u32, active: bool },
    /// A namespace goes.
    RemoveNamespace { subsystem: Nqn, identifier: u32, within: Duration },
    /// A core that is not the home core can have so many blocks of a namespace.
    PrepareResize { subsystem: Nqn, identifier: u32, blocks: u64 },
    /// A namespace has so many blocks.
    ResizeNamespace { subsystem: Nqn, identifier: u32, blocks: u64, within: Duration },
    /// How well a subsystem's namespaces can be reached here.
    Ana { subsystem: Nqn, state: AnaState },
    /// Who may use a subsystem.
    AllowedHosts { subsystem: Nqn, hosts: AllowedHosts, within: Duration },
    /// A subsystem comes, without namespaces.
    AddSubsystem { name: Nqn, hosts: AllowedHosts, serial: SerialNumber },
    /// A subsystem goes, with its namespaces.
    RemoveSubsystem { name: Nqn, within: Duration },
    /// A host is kept away, or all.
    Drain { host: Option<Nqn>, within: Duration },
    /// It may come again.
    Resume { host: Option<Nqn> },
}

impl Change {
    /// Does it, on a core's target. What takes its time has a number, and the target says what becomes of it.
    pub(super) fn apply<P: Port, S: Storage>(self, target: &mut Target<P, S>) -> Result<Option<ChangeId>, ChangeError> {
        match self {
            Self::NamespaceActive { subsystem, identifier, active } => {
                target.set_namespace_active(&subsystem, identifier, active).map(|()| None)
            }
            Self::RemoveNamespace { subsystem, identifier, within } => {
                target.remove_namespace(&subsystem, identifier, within).map(Some)
            }
            Self::PrepareResize { subsystem, identifier, blocks } => {
                target.prepare_resize(&subsystem, identifier, blocks).map(|()| None)
            }
            Self::ResizeNamespace { subsystem, identifier, blocks, within } => {
                target.resize_namespace(&subsystem, identifier, blocks, within).map(Some)
            }
            Self::Ana { subsystem, state } => target.set_ana_state(&subsystem, state).map(|()| None),
            Self::AllowedHosts { subsystem, hosts, within } => {
                target.set_allowed_hosts(&subsystem, hosts, within).map(Some)
            }
            Self::AddSubsystem { name, hosts, serial } => target.add_subsystem(name, hosts, serial).map(Some),
            Self::RemoveSubsystem { name, within } => target.remove_subsystem(&name, within).map(Some),
            Self::Drain { host, within } => target.drain(host, within).map(Some),
            Self::Resume { host } => {
                target.resume(host);
                Ok(None)
            }
        }
    }
}
