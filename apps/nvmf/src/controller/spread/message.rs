//! What targets of several cores tell each other.

use super::super::change::ChangeId;
use super::super::media::Counters;
use super::super::refusal::Refusal;
use super::super::subsystem::Untold;
use super::super::work::FailedCommand;
use crate::wire::{ConnectData, Nqn};
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

/// A message from one core's target to another's, to be carried as it is: in order, and each once.
#[derive(Clone, Copy, Debug)]
pub struct TargetMessage(pub(in super::super) Direction);

#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "messages are copied, and a Connect is no hot path")]
pub(in super::super) enum Direction {
    ToHome(ToHome),
    ToMember(ToMember),
}

/// A controller on a core that is not its home: its place in the table of controllers, and its identifier, which tells it
/// from the one that had the place before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct ControllerName {
    pub(in super::super) place: u16,
    pub(in super::super) id: u16,
}

impl ControllerName {
    pub(in super::super) fn new(place: usize, id: u16) -> Self {
        // There are at most 4096 controllers.
        Self { place: place as u16, id }
    }
}

/// What an I/O queue's Connect says, as far as the member cannot judge it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Claim {
    pub(in super::super) queue_id: u16,
    pub(in super::super) controller_id: u16,
    /// Index of the subsystem, which is the same on all cores.
    pub(in super::super) subsystem: usize,
    pub(in super::super) host: Option<Nqn>,
    pub(in super::super) host_id: [u8; 16],
    /// Where the connection comes from, if the device knows.
    pub(in super::super) peer: Option<IpAddr>,
}

impl Claim {
    pub(in super::super) fn new(queue_id: u16, data: &ConnectData, subsystem: usize, peer: Option<IpAddr>) -> Self {
        let ConnectData { controller_id, host, host_id, .. } = *data;
        Self { queue_id, controller_id, subsystem, host, host_id, peer }
    }
}

/// What commands of I/O queues need to know of their controller.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Settings {
    pub(in super::super) write_cache: bool,
    /// Counts changes, so that the members' answers can be told apart.
    pub(in super::super) version: u32,
}

/// What the home core changes everywhere. Subsystems go by their names here: which place one has is each core's.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Order {
    /// There is another subsystem, as yet without namespaces.
    AddSubsystem { name: Nqn },
    /// It is gone: no controller of it is left.
    RemoveSubsystem { name: Nqn, id: ChangeId, within: Duration },
    /// The namespace whose storage this core was given is there, and takes commands where it is active.
    AddNamespace { subsystem: Nqn, identifier: u32, group: u32, active: bool },
    /// It takes none any more.
    RemoveNamespace { subsystem: Nqn, identifier: u32, id: ChangeId, within: Duration },
    /// All cores listen at one more address.
    AddListener { address: SocketAddr },
    /// They do so no longer. How long the controllers that were connected by it may take, where they are to end.
    RemoveListener { address: SocketAddr, drain: Option<Duration> },
    /// It has so many blocks.
    ResizeNamespace { subsystem: Nqn, identifier: u32, blocks: u64, id: ChangeId, within: Duration },
}

impl Order {
    /// The listener that it is about.
    pub(in super::super) fn listener(&self) -> Option<SocketAddr> {
        match *self {
            Self::AddListener { address } | Self::RemoveListener { address, .. } => Some(address),
            _ => None,
        }
    }
}

/// From a member to the home core. A seat is the number of a member's connection.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "messages are copied, and a Connect is no hot path")]
pub(in super::super) enum ToHome {
    /// May this connection become that queue? Answered by `Admitted` or `Refused`.
    Judge { seat: u16, claim: Claim },
    /// A queue that was admitted is gone.
    QueueEnded { seat: u16 },
    /// For the error log; as many as `skipped` failed before and were not kept.
    Failed { name: ControllerName, failed: FailedCommand, skipped: u64 },
    /// A command arrived: the host is alive.
    Heard { name: ControllerName },
    /// All that was counted so far.
    Counted(Counters),
    /// Commands that arrive from now on are executed by these settings.
    SettingsApplied { place: u16, version: u32 },
    /// So many `EndQueues` are done: those queues are gone, but for some that the device keeps, and no storage holds a command
    /// of an ended connection.
    QueuesEnded { place: u16, count: u32 },
    /// The answer to `Abort`.
    Aborted { cookie: u64, place: u16, aborted: bool },
    /// The answer to `Order`: false where this core had not been given what it needs for that.
    Obeyed { taken: bool },
}

/// From the home core to a member.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "messages are copied, and orders are no hot path")]
pub(in super::super) enum ToMember {
    /// The connection is a queue of that controller now.
    Admitted { seat: u16, name: ControllerName, settings: Settings },
    /// It is none.
    Refused { seat: u16, refusal: Refusal },
    /// The controller has ended, or was reset. Answered by `QueuesEnded`.
    EndQueues { name: ControllerName },
    /// A feature was changed. Answered by `SettingsApplied`.
    Settings { name: ControllerName, settings: Settings },
    /// Answered by `Aborted`.
    Abort { cookie: u64, place: u16, queue_id: u16, command_id: u16 },
    /// Of a subsystem or a namespace.
    State(Untold),
    /// Answered by `Obeyed`; until then there is no other one.
    Order(Order),
    /// Queues of the controller get no commands any more, and end when they have none. What holds that up is told behind this time.
    Drain { name: ControllerName, id: ChangeId, within: Duration },
}
