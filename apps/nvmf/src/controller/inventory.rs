//! What a target has at one time, for whoever shows it: subsystems, namespaces, controllers, queues, and who waits. Made by value
//! when somebody asks, which is the only time that anything here allocates or looks at all of it.

use super::Target;
use super::listeners::ListenerState;
use super::media::{CommandKind, Latencies, Medium};
use super::session::{Connecting, Queue};
use super::subsystem::{AllowedHosts, Namespaces, Served};
use crate::storage::{Features, Storage, StorageStatistics};
use crate::wire::{AnaState, Nqn, SerialNumber, Status};
use core::time::Duration;
use frwr_engine::provider::Port;
use std::net::SocketAddr;

/// What one core of a target has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inventory {
    /// Which of the target's cores: [`HOME_CORE`](super::HOME_CORE) has the controllers.
    pub core: u16,
    /// Where it listens, the same on all cores but for what this one took.
    pub listeners: Vec<ListenerState>,
    /// It ends, or has ended ([`Target::end`]).
    pub ending: bool,
    /// Its subsystems, the same on all cores but for `hosts` and `serial`, which hosts are told and judged by those of the home core:
    /// of others they are as they were made.
    pub subsystems: Vec<SubsystemState>,
    /// Their namespaces, in the order of subsystems and identifiers: the same on all cores but for what this one did.
    pub namespaces: Vec<NamespaceState>,
    /// How long commands of them took that succeeded on this core, of those kinds that there were.
    pub latencies: Vec<CommandLatencies>,
    /// As what others failed.
    pub errors: Vec<CommandErrors>,
    /// Controllers: on the home core all, on another one copies of those that have queues there.
    pub controllers: Vec<ControllerState>,
    /// Connections of this core.
    pub queues: Vec<QueueState>,
    /// Who is kept away ([`Target::drain`]): on the home core.
    pub drained: Vec<DrainState>,
    /// Who waits on this core now.
    pub waiting: WaitingNow,
}

/// A host that is kept away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainState {
    /// Its name; `None`: all hosts.
    pub host: Option<Nqn>,
    /// Nothing of it is left in the target or in a storage.
    pub done: bool,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubsystemState {
    /// Its name.
    pub name: Nqn,
    /// Hosts see it: not yet, where cores are still to take it, and no longer where it was removed and its controllers end.
    pub listed: bool,
    /// SN of its controllers.
    pub serial: SerialNumber,
    /// Who may use it.
    pub hosts: AllowedHosts,
    /// How each of its ANA groups can be reached here, by its identifier from 1, those without namespaces included.
    pub ana_states: Vec<AnaState>,
    /// Its ANA groups that have namespaces, in ascending order.
    pub ana_groups: Vec<AnaGroupState>,
    /// Namespaces, listed or not; those that leave are none any more.
    pub namespaces: u32,
}

impl SubsystemState {
    /// How all of its ANA groups can be reached here; `None` where they differ.
    #[must_use]
    pub fn ana(&self) -> Option<AnaState> {
        let (first, others) = self.ana_states.split_first()?;
        others.iter().all(|state| state == first).then_some(*first)
    }

    /// How one of them can be reached; `None` where there is none of this identifier.
    #[must_use]
    pub fn ana_of(&self, group: u32) -> Option<AnaState> {
        self.ana_states.get(group.wrapping_sub(1) as usize).copied()
    }
}

/// An ANA group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnaGroupState {
    /// ANAGRPID.
    pub group: u32,
    /// How its namespaces can be reached here.
    pub state: AnaState,
    /// Namespaces in it, listed or not.
    pub namespaces: u32,
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceState {
    /// Index of its subsystem in [`Inventory::subsystems`].
    pub subsystem: usize,
    /// NSID.
    pub identifier: u32,
    /// By which hosts know it again.
    pub nguid: [u8; 16],
    /// It is listed and takes commands.
    pub active: bool,
    /// ANAGRPID.
    pub ana_group: u32,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of each.
    pub block_bytes: u32,
    /// What its storage is able to do.
    pub features: Features,
    /// What its storage did on this core.
    pub storage: StorageStatistics,
    /// Bytes of Read commands that succeeded on this core.
    pub bytes_read: u64,
    /// Bytes of Write commands that succeeded on this core.
    pub bytes_written: u64,
}

/// How long commands of a namespace took that succeeded: from the iteration that found one to the one that answered it, and of one that was
/// answered in the iteration that found it as long as that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandLatencies {
    /// Index of the namespace's subsystem in [`Inventory::subsystems`].
    pub subsystem: usize,
    /// NSID.
    pub identifier: u32,
    /// Commands of this kind.
    pub kind: CommandKind,
    /// How many took how long.
    pub latencies: Latencies,
}

/// Commands of a namespace's I/O queues that were answered with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandErrors {
    /// Index of the namespace's subsystem in [`Inventory::subsystems`].
    pub subsystem: usize,
    /// NSID.
    pub identifier: u32,
    /// The status, without flags; no success.
    pub status: Status,
    /// How many.
    pub count: u64,
}

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerState {
    /// CNTLID.
    pub id: u16,
    /// It lives on this core; a copy has what I/O queues need, and the rest as it was made.
    pub at_home: bool,
    /// HOSTNQN, if the host has a name.
    pub host: Option<Nqn>,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// Index of its subsystem in [`Inventory::subsystems`]; `None` for one of the discovery service.
    pub subsystem: Option<usize>,
    /// CSTS.RDY: its I/O queues can be connected.
    pub ready: bool,
    /// Keep Alive Timeout; zero where the host asked for none.
    pub keep_alive: Duration,
    /// Since a command came from its host, in time in which its core was polled.
    pub silent: Duration,
    /// Asynchronous Event Requests that wait.
    pub event_requests: u16,
    /// Entries of its error log so far, those that were dropped included.
    pub errors: u64,
}

/// A connection, and the queue that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueState {
    /// Index of the connection on this core.
    pub connection: u16,
    /// Where the host is, if the device knows.
    pub peer: Option<SocketAddr>,
    /// Where it arrived, as the host calls it.
    pub local: Option<SocketAddr>,
    /// Address of the listener that it came by, as far as that can be said.
    pub listener: Option<SocketAddr>,
    /// The name that its host connected with.
    pub host: Option<Nqn>,
    /// QID as the connect request said it; 0 is the admin queue.
    pub id: u16,
    /// CNTLID of its controller; `None` where it is no queue, or none any more.
    pub controller: Option<u16>,
    /// Commands that the host may have outstanding.
    pub entries: u16,
    /// Commands that came, its Connect included.
    pub commands: u64,
    /// Of these, those that were not answered yet.
    pub outstanding: u16,
    /// How far it is.
    pub phase: QueuePhase,
    /// Since it was accepted, in time in which the core was polled.
    pub age: Duration,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueuePhase {
    /// No Connect has succeeded.
    Accepted,
    /// Its Connect waits for something else than the host: a storage that has commands of a former session, or the device.
    Held,
    /// It is a queue of a controller.
    Queue,
    /// It ends.
    Ending,
    /// Its end waits for a device that refuses to destroy the queue pair.
    Kept,
}

/// Commands and connections that wait now, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingNow {
    /// Commands, for a data buffer.
    pub buffers: u32,
    /// Commands, for a transfer slot or a place in their storage.
    pub transfers_or_storage: u32,
    /// Connect requests, for a connection that makes room for them.
    pub admission: u32,
    /// Connects, for commands of a former session.
    pub former_session: u32,
}

fn groups(namespaces: &Namespaces) -> Vec<AnaGroupState> {
    // At most MAX_NAMESPACES of them.
    let state = |(group, state, _, count)| AnaGroupState { group, state, namespaces: count as u32 };
    namespaces.groups().map(state).collect()
}

impl<P: Port, S: Storage> Target<P, S> {
    /// What this core has now. Allocates, and takes time that grows with the number of namespaces and connections: not for every
    /// iteration.
    #[must_use]
    pub fn inventory(&self) -> Inventory {
        Inventory {
            core: self.options.core,
            listeners: self.listeners().collect(),
            ending: self.ending.is_ending(),
            subsystems: self.subsystem_states(),
            namespaces: self.namespace_states(),
            latencies: self.latencies(),
            errors: self.errors(),
            controllers: self.controller_states(),
            queues: self.sessions.iter().map(|queue| self.queue_state(queue)).collect(),
            drained: self.pending.kept_away().map(|(host, done)| DrainState { host, done }).collect(),
            waiting: self.waiting_now(),
        }
    }

    fn subsystem_states(&self) -> Vec<SubsystemState> {
        let state = |served: &Served| SubsystemState {
            name: *served.name(),
            listed: served.is_listed(),
            serial: served.serial(),
            hosts: served.hosts().clone(),
            ana_states: served.namespaces().ana_states().collect(),
            ana_groups: groups(served.namespaces()),
            // At most MAX_NAMESPACES.
            namespaces: served.namespaces().identifiers().count() as u32,
        };
        self.subsystems.all().map(|(_, served)| state(served)).collect()
    }

    /// The place of a subsystem among those that are shown.
    fn shown(&self, subsystem: usize) -> Option<usize> {
        self.subsystems.all().position(|(at, _)| at == subsystem)
    }

    /// Each namespace, as the index of its subsystem and its identifier, with that and what it lives in.
    fn each_namespace(&self) -> impl Iterator<Item = (usize, u32, &Served, &Medium<S>)> {
        self.subsystems.all().enumerate().flat_map(move |(subsystem, (_, served))| {
            let namespaces = served.namespaces();
            let medium = move |identifier| self.media.get(namespaces.listed(identifier).ok()?);
            let all = namespaces.identifiers();
            all.filter_map(move |identifier| Some((subsystem, identifier, served, medium(identifier)?)))
        })
    }

    fn namespace_states(&self) -> Vec<NamespaceState> {
        let state = |(subsystem, identifier, served, medium): (usize, u32, &Served, &Medium<S>)| {
            let (geometry, (bytes_read, bytes_written)) = (medium.geometry(), medium.moved());
            NamespaceState {
                subsystem,
                identifier,
                nguid: served.namespaces().nguid(identifier).unwrap_or_default(),
                active: served.namespaces().is_active(identifier),
                ana_group: served.namespaces().group(identifier).unwrap_or_default(),
                blocks: geometry.blocks(),
                block_bytes: geometry.block_bytes(),
                features: medium.features(),
                storage: medium.statistics(),
                bytes_read,
                bytes_written,
            }
        };
        self.each_namespace().map(state).collect()
    }

    fn latencies(&self) -> Vec<CommandLatencies> {
        let of_one = |(subsystem, identifier, _, medium): (usize, u32, &Served, &Medium<S>)| {
            let kinds: Vec<_> = medium.tally().latencies().collect();
            kinds.into_iter().map(move |(kind, latencies)| CommandLatencies { subsystem, identifier, kind, latencies })
        };
        self.each_namespace().flat_map(of_one).collect()
    }

    fn errors(&self) -> Vec<CommandErrors> {
        let of_one = |(subsystem, identifier, _, medium): (usize, u32, &Served, &Medium<S>)| {
            let kinds: Vec<_> = medium.tally().failures().collect();
            kinds.into_iter().map(move |(status, count)| CommandErrors { subsystem, identifier, status, count })
        };
        self.each_namespace().flat_map(of_one).collect()
    }

    fn controller_states(&self) -> Vec<ControllerState> {
        let now = self.clock.watched();
        let state = |(_, controller): (usize, &super::controllers::Controller)| ControllerState {
            id: controller.id(),
            at_home: controller.admin().is_some(),
            host: controller.host(),
            host_id: controller.host_id(),
            subsystem: controller.subsystem().and_then(|subsystem| self.shown(subsystem)),
            ready: controller.is_ready(),
            keep_alive: Duration::from_millis(controller.keep_alive_milliseconds()),
            silent: now.saturating_sub(controller.seen()),
            event_requests: controller.event_requests(),
            errors: controller.error_count(),
        };
        self.controllers.iter().map(state).collect()
    }

    fn queue_state(&self, queue: &Queue) -> QueueState {
        let place = queue.association().map(|association| association.controller);
        let held = matches!(queue.connecting(), Connecting::Held(_));
        QueueState {
            connection: queue.connection().index,
            peer: queue.ends().peer,
            local: queue.ends().local,
            listener: queue.ends().listener,
            host: queue.host(),
            id: queue.id(),
            controller: place.and_then(|place| self.controllers.get(place)).map(super::controllers::Controller::id),
            entries: queue.entries(),
            commands: queue.commands(),
            outstanding: queue.outstanding(),
            phase: match place {
                _ if queue.is_kept() => QueuePhase::Kept,
                _ if queue.ends_by(&self.engine) => QueuePhase::Ending,
                _ if held => QueuePhase::Held,
                Some(_) => QueuePhase::Queue,
                None => QueuePhase::Accepted,
            },
            age: self.clock.watched().saturating_sub(queue.since()),
        }
    }

    fn waiting_now(&self) -> WaitingNow {
        let is_held = |queue: &&Queue| matches!(queue.connecting(), Connecting::Held(wait) if wait.is_for_former());
        WaitingNow {
            buffers: self.pool.count_waiting(),
            transfers_or_storage: self.commands.count_stalled(),
            // Both are bounded by the connections that there can be.
            admission: self.lobby.parked() as u32,
            former_session: self.sessions.iter().filter(is_held).count() as u32,
        }
    }
}
