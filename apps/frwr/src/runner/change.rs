//! What is changed of a target while it serves, as its cores are told it.

use core::time::Duration;
use frwr_engine::{TraceRecord, provider::Port};
use frwr_mempool::lane;
use frwr_nvmf::{
    controller::{AllowedHosts, ChangeError, ChangeId, ElsewhereListener, NewNamespace, Refused, Target},
    storage::AnyStorage,
    wire::{AnaState, Nqn, SerialNumber},
};
use std::net::SocketAddr;

/// One change. Each is an operation of the library, which takes it wholly or says why not.
#[derive(Debug)]
pub(super) enum Change {
    /// A core that is not the home core has its way to the medium of a new namespace.
    SupplyNamespace { subsystem: Nqn, identifier: u32, storage: Box<AnyStorage> },
    /// It has it no longer.
    WithdrawNamespace { subsystem: Nqn, identifier: u32 },
    /// A namespace comes, whose other cores have their ways to its medium.
    AddNamespace { subsystem: Nqn, namespace: Box<NewNamespace<AnyStorage>> },
    /// A namespace is listed and takes commands, or not.
    NamespaceActive { subsystem: Nqn, identifier: u32, active: bool },
    /// A namespace goes.
    RemoveNamespace { subsystem: Nqn, identifier: u32, within: Duration },
    /// A core that is not the home core can have so many blocks of a namespace.
    PrepareResize { subsystem: Nqn, identifier: u32, blocks: u64 },
    /// A namespace has so many blocks.
    ResizeNamespace { subsystem: Nqn, identifier: u32, blocks: u64, within: Duration },
    /// Hosts connect at one more address.
    AddListener { address: SocketAddr },
    /// They do so no longer, and where there is a time the controllers end that were connected by it.
    RemoveListener { address: SocketAddr, drain: Option<Duration> },
    /// They connect there by other devices.
    ListElsewhere { listeners: Vec<ElsewhereListener> },
    /// How well the namespaces of an ANA group of a subsystem can be reached here, or of all its groups.
    Ana { subsystem: Nqn, group: Option<u32>, state: AnaState },
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
    /// What a core does with keys it tells there from now on.
    TraceKeys { records: lane::Sender<TraceRecord> },
    /// It tells that no longer.
    EndKeyTrace,
}

/// What came of a change on one core.
#[derive(Debug)]
pub(super) struct Applied {
    /// What takes its time has a number, and the target says what becomes of it.
    pub(super) result: Result<Option<ChangeId>, ChangeError>,
    pub(super) returned: Option<Returned>,
}

/// What a core has no longer, or did not take. It goes to the main thread: a core that polls closes and frees nothing.
#[derive(Debug)]
pub(super) enum Returned {
    /// A way to a medium.
    Storage(Box<AnyStorage>),
    /// Where it told of keys.
    KeyTrace {
        records: lane::Sender<TraceRecord>,
        /// Records that have found no room, of this trace and of former ones.
        lost: u64,
    },
}

impl From<AnyStorage> for Returned {
    fn from(storage: AnyStorage) -> Self {
        Self::Storage(Box::new(storage))
    }
}

impl From<Result<Option<ChangeId>, Refused<AnyStorage>>> for Applied {
    fn from(result: Result<Option<ChangeId>, Refused<AnyStorage>>) -> Self {
        match result {
            Ok(id) => Self { result: Ok(id), returned: None },
            Err(Refused { error, storage }) => Self { result: Err(error), returned: Some(storage.into()) },
        }
    }
}

impl Change {
    /// Does it, on a core's target.
    pub(super) fn apply<P: Port>(self, target: &mut Target<P, AnyStorage>) -> Applied {
        let result = match self {
            Self::SupplyNamespace { subsystem, identifier, storage } => {
                return target.supply_namespace(&subsystem, identifier, *storage).map(|()| None).into();
            }
            Self::WithdrawNamespace { subsystem, identifier } => {
                let returned = target.withdraw_namespace(&subsystem, identifier).map(Returned::from);
                return Applied { result: Ok(None), returned };
            }
            Self::AddNamespace { subsystem, namespace } => {
                return target.add_namespace(&subsystem, *namespace).map(Some).into();
            }
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
            Self::AddListener { address } => target.add_listener(address).map(Some),
            Self::RemoveListener { address, drain } => target.remove_listener(address, drain).map(Some),
            Self::ListElsewhere { listeners } => target.list_elsewhere(&listeners).map(|()| None),
            Self::Ana { subsystem, group, state } => target.set_ana_state(&subsystem, group, state).map(|()| None),
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
            Self::TraceKeys { records } => {
                target.engine_mut().trace_to(records);
                Ok(None)
            }
            Self::EndKeyTrace => {
                let engine = target.engine_mut();
                let (ended, lost) = (engine.end_trace(), engine.statistics().trace_records_dropped);
                let returned = ended.map(|records| Returned::KeyTrace { records, lost });
                return Applied { result: Ok(None), returned };
            }
        };
        Applied { result, returned: None }
    }
}
