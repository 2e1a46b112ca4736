//! Connections from their acceptance to their end, and the queues that they carry.

mod connecting;
mod ends;
mod leaving;
mod proofs;
mod wrongs;

pub(super) use connecting::{Connecting, Wait};
pub(super) use ends::{Ends, Names};

use super::controllers::controller::Controller;
use super::identifiers::IdentifiersInUse;
use super::incident::{Fault, Incident, Incidents};
use super::listeners::Listeners;
use super::options::TargetOptions;
use super::statistics::TargetStatistics;
use super::work::Seating;
use crate::wire::{ADMIN_QUEUE, Nqn, QueueRequest};
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine};
use frwr_mempool::mutant;
use std::net::{IpAddr, SocketAddr};

/// A queue's place in its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Association {
    /// Index in the target's table of controllers.
    pub(super) controller: usize,
    /// Entries, as Connect said.
    entries: u16,
}

/// What becomes of commands that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intake {
    /// They are taken.
    Open,
    /// Those of authentication are taken, and all others refused: its host has to prove itself first.
    Locked,
    /// They are refused because of the path: none is executed, and the host sends them elsewhere, or later.
    Drains,
    /// They are not looked at: the queue ends when those that it has have ended.
    Ends,
    /// They are not looked at: the host broke the protocol, or made room, and the connection ends.
    Doomed,
}

/// A connection, and the queue that it carries once Connect has succeeded.
#[derive(Debug)]
pub(super) struct Queue {
    connection: ConnectionId,
    ends: Ends,
    /// The name that its host connected with: it outlives the controller, which may end first.
    host: Option<Nqn>,
    /// What the connect request asked for.
    asked: QueueRequest,
    association: Option<Association>,
    /// The place of the controller that ended it, or was reset; it is no queue any more.
    ended_with: Option<usize>,
    /// Its end waits for a device that refuses to destroy its queue pair, perhaps for ever.
    kept: bool,
    connecting: Connecting,
    /// Its host will have to prove itself once it is a queue.
    has_to_prove: bool,
    /// SQHD of the next response.
    head: u16,
    /// Commands that came.
    commands: u64,
    /// Of these, those that were not answered yet.
    outstanding: u16,
    in_use: IdentifiersInUse,
    intake: Intake,
    /// It drains, and has had no commands since then.
    empty_since: Option<Duration>,
    /// When the connect request was accepted, in watched time.
    since: Duration,
    /// The connection was ready: where it is not any more, it ends.
    established: bool,
    /// When the connection ends unless Connect has succeeded, in watched time; `None` once that was decided.
    connect_by: Option<Duration>,
}

impl Queue {
    pub(super) fn connection(&self) -> ConnectionId {
        self.connection
    }

    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// The name that its host connected with.
    pub(super) fn host(&self) -> Option<Nqn> {
        self.host
    }

    /// QID as the connect request said it.
    pub(super) fn id(&self) -> u16 {
        self.asked.queue_id
    }

    #[inline]
    pub(super) fn is_admin(&self) -> bool {
        self.asked.queue_id == ADMIN_QUEUE
    }

    /// Entries that the connect request asked for.
    pub(super) fn asked_entries(&self) -> u16 {
        self.asked.entries
    }

    /// Its place in a controller; `None` where it is no queue.
    #[inline]
    pub(super) fn association(&self) -> Option<Association> {
        self.association
    }

    /// It is a queue of the controller in this place.
    pub(super) fn is_of(&self, controller: usize) -> bool {
        self.association.is_some_and(|association| association.controller == controller)
    }

    /// The place of the controller that it was a queue of.
    pub(super) fn ended_with(&self) -> Option<usize> {
        self.ended_with
    }

    /// The device refuses to destroy its queue pair.
    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    pub(super) fn connecting(&self) -> Connecting {
        self.connecting
    }

    /// When it was accepted, in watched time.
    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// Commands that came.
    pub(super) fn commands(&self) -> u64 {
        self.commands
    }

    /// Commands that were not answered.
    pub(super) fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// The host broke the protocol.
    #[inline]
    pub(super) fn is_doomed(&self) -> bool {
        self.intake == Intake::Doomed
    }

    /// Its host has to prove itself before anything else is executed.
    pub(super) fn is_locked(&self) -> bool {
        self.intake == Intake::Locked
    }

    /// Whether its host will have to prove itself once it is a queue.
    pub(super) fn has_to_prove(&mut self, has_to: bool) {
        self.has_to_prove = has_to;
    }

    /// Its end is under way.
    pub(super) fn ends_by<P: Port>(&self, engine: &Engine<P>) -> bool {
        self.is_doomed() || self.established && !engine.is_ready(self.connection)
    }

    /// Entries: as Connect said, before that as the connect request did.
    pub(super) fn entries(&self) -> u16 {
        self.association.map_or(self.asked.entries, |association| association.entries).max(1)
    }

    /// SQHD of the next response.
    #[inline]
    pub(super) fn head(&self) -> u16 {
        self.head
    }

    /// How far its Connect is from now on; how far it was.
    pub(super) fn connect(&mut self, connecting: Connecting) -> Connecting {
        core::mem::replace(&mut self.connecting, connecting)
    }

    /// Takes note of a command. False where the host has more outstanding than the queue has entries.
    #[inline]
    fn count_command(&mut self) -> bool {
        let entries = self.entries();
        self.head = if self.head + 1 >= entries { 0 } else { self.head + 1 };
        self.outstanding += 1;
        self.commands += 1;
        self.outstanding <= entries
    }

    /// A command is answered: its identifier may be used again.
    #[inline]
    pub(super) fn answered(&mut self, command_id: u16) {
        if !mutant!(S10_target_identifier) {
            self.in_use.remove(command_id);
        }
        self.outstanding = self.outstanding.saturating_sub(u16::from(!mutant!(S10_target_outstanding)));
    }

    /// Since when it has had no commands but so many; `None` where it has.
    fn empty_since(&mut self, beside: u16, now: Duration) -> Option<Duration> {
        self.empty_since = (self.outstanding <= beside).then_some(self.empty_since.unwrap_or(now));
        self.empty_since
    }

    /// It is no part of its controller any more.
    fn leave(&mut self, controller: usize) {
        (self.association, self.ended_with) = (None, Some(controller));
    }

    /// What its peer did.
    fn incident(&self, fault: Fault) -> Incident {
        let incident = Incident::new(self.ends.peer, fault);
        Incident { host: self.host, queue_id: Some(self.asked.queue_id), ..incident }
    }
}

/// A queue that is gone.
#[derive(Debug)]
pub(super) struct Closed {
    /// It was a queue of the controller in this place to its end.
    pub(super) controller: Option<usize>,
    /// The place that what storages still have of it belongs to.
    pub(super) left_to: Option<usize>,
}

/// The connections of one core, where they come by, and what their peers did wrong.
#[derive(Debug)]
pub(super) struct Sessions {
    /// By connection index.
    queues: Vec<Option<Queue>>,
    listeners: Listeners,
    /// Sets for queues that there are not.
    spare: Vec<IdentifiersInUse>,
    /// When a connection has to have become a queue, in watched time.
    next_connect_check: Option<Duration>,
    incidents: Incidents,
    /// Hosts can prove themselves.
    authenticates: bool,
    /// What came and what was ended here; the other fields are zero.
    counted: TargetStatistics,
}

impl Sessions {
    pub(super) fn new(options: &TargetOptions) -> Self {
        let connections = options.connections();
        Self {
            listeners: Listeners::new(&options.addresses, options.first_port()),
            queues: (0..connections).map(|_| None).collect(),
            spare: (0..connections).map(|_| IdentifiersInUse::new()).collect(),
            next_connect_check: None,
            incidents: Incidents::default(),
            authenticates: false,
            counted: TargetStatistics::default(),
        }
    }

    /// Where they come by.
    pub(super) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    pub(super) fn listeners_mut(&mut self) -> &mut Listeners {
        &mut self.listeners
    }

    /// Connections that there can be.
    pub(super) fn places(&self) -> usize {
        self.queues.len()
    }

    /// Those that there are.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().flatten()
    }

    /// The queue of a connection.
    #[inline]
    pub(super) fn find(&mut self, connection: ConnectionId) -> Option<&mut Queue> {
        let queue = self.queues.get_mut(usize::from(connection.index))?.as_mut()?;
        (queue.connection == connection).then_some(queue)
    }

    /// The same, to be looked at.
    #[inline]
    pub(super) fn get(&self, connection: ConnectionId) -> Option<&Queue> {
        let queue = self.queues.get(usize::from(connection.index))?.as_ref()?;
        (queue.connection == connection).then_some(queue)
    }

    /// The connection is a queue of a controller.
    #[inline]
    pub(super) fn is_queue(&mut self, connection: ConnectionId) -> bool {
        self.find(connection).is_some_and(|queue| queue.association.is_some())
    }

    /// The address that a connection comes from, if the device knows.
    pub(super) fn peer_of(&self, connection: ConnectionId) -> Option<IpAddr> {
        self.get(connection)?.ends.address()
    }

    /// How a controller's host calls this target.
    pub(super) fn local_of(&self, controller: &Controller) -> Option<SocketAddr> {
        self.get(controller.admin()?)?.ends.local
    }

    /// The controller in this place has I/O queues here.
    pub(super) fn has_io_queues(&self, controller: usize) -> bool {
        self.iter().any(|queue| !queue.is_admin() && queue.is_of(controller))
    }

    /// A controller's queue on this core.
    pub(super) fn queue_of(&self, controller: usize, queue_id: u16) -> Option<&Queue> {
        self.iter().find(|queue| queue.id() == queue_id && queue.is_of(controller))
    }

    /// A connection was accepted. It has to become a queue until then. False where there are more connections than places: somebody
    /// else uses the engine as well.
    pub(super) fn open(
        &mut self,
        connection: ConnectionId,
        ends: Ends,
        asked: QueueRequest,
        now: Duration,
        connect_by: Duration,
    ) -> bool {
        let Some(place) = self.queues.get_mut(usize::from(connection.index)) else { return false };
        let former = place.take().map(|queue| queue.in_use);
        let Some(mut in_use) = former.or_else(|| self.spare.pop()) else { return false };
        // S5: identifiers of a former queue are in use on this one.
        if !mutant!(S5_target_identifiers) {
            in_use.clear();
        }
        *place = Some(Queue {
            connection,
            ends,
            host: None,
            asked,
            association: None,
            ended_with: None,
            kept: false,
            connecting: Connecting::No,
            has_to_prove: false,
            head: 0,
            commands: 0,
            outstanding: 0,
            in_use,
            intake: Intake::Open,
            empty_since: None,
            since: now,
            established: false,
            connect_by: Some(connect_by),
        });
        self.next_connect_check = Some(self.next_connect_check.map_or(connect_by, |other| other.min(connect_by)));
        self.counted.accepted += 1;
        self.listeners.count(ends.listener, true);
        true
    }

    /// When connections are to be looked at, in watched time.
    pub(super) fn next_connect_check(&self) -> Option<Duration> {
        self.next_connect_check
    }

    /// A connection is ready.
    pub(super) fn established(&mut self, connection: ConnectionId) {
        if let Some(queue) = self.find(connection) {
            queue.established = true;
        }
    }

    /// The device refuses to destroy the queue pair of a connection. Its end is told when it has complied.
    pub(super) fn kept(&mut self, connection: ConnectionId) {
        if let Some(queue) = self.find(connection) {
            queue.kept = true;
        }
    }

    /// A connection is a queue of the controller in this place from now on, of a host of that name.
    pub(super) fn seat(&mut self, connection: ConnectionId, controller: usize, connect: Seating, host: Option<Nqn>) {
        let entries = connect.queue_size.saturating_add(1);
        if let Some(queue) = self.find(connection) {
            queue.association = Some(Association { controller, entries });
            queue.host = host;
            queue.connect_by = None;
            // The Connect itself was the first entry of the queue.
            queue.head = 1 % entries;
            if queue.has_to_prove && queue.intake == Intake::Open {
                queue.intake = Intake::Locked;
            }
        }
    }

    /// A connection is gone; `None` where that was no connection of these.
    pub(super) fn close(&mut self, connection: ConnectionId) -> Option<Closed> {
        let place = self.queues.get_mut(usize::from(connection.index))?;
        let queue = place.take_if(|queue| queue.connection == connection)?;
        self.spare.push(queue.in_use);
        let controller = queue.association.map(|association| association.controller);
        Some(Closed { controller, left_to: controller.or(queue.ended_with) })
    }

    /// It is a queue whose commands are taken.
    pub(super) fn is_open(&self, connection: ConnectionId) -> bool {
        self.get(connection).is_some_and(|queue| queue.association.is_some() && queue.intake == Intake::Open)
    }

    /// Takes note of a command of a queue: of its identifier, and of how many are outstanding. `forgets`: the command that had the
    /// identifier is answered never, because its host has forgotten it.
    #[inline]
    pub(super) fn admit(
        &mut self,
        connection: ConnectionId,
        command_id: u16,
        forgets: impl FnOnce() -> bool,
    ) -> Result<Option<(bool, Option<Association>)>, Fault> {
        self.admit_where(Intake::Open, connection, command_id, forgets)
    }

    #[inline(always)]
    fn admit_where(
        &mut self,
        intake: Intake,
        connection: ConnectionId,
        command_id: u16,
        forgets: impl FnOnce() -> bool,
    ) -> Result<Option<(bool, Option<Association>)>, Fault> {
        let Some(queue) = self.find(connection).filter(|queue| queue.intake == intake) else { return Ok(None) };
        let of = (queue.is_admin(), queue.association);
        // Mutant: two commands in flight may have one identifier.
        if !queue.in_use.insert(command_id) && !mutant!(target_identifier_twice) {
            if !forgets() {
                self.counted.commands += 1;
                return Err(Fault::CommandIdentifier { command_id });
            }
            queue.outstanding = queue.outstanding.saturating_sub(1);
        }
        // S4: a host may have more in flight than its queue has entries.
        let fits = queue.count_command() || mutant!(S4_target_overrun);
        let entries = queue.entries();
        self.counted.commands += 1;
        if fits { Ok(Some(of)) } else { Err(Fault::Overrun { entries }) }
    }

    /// A command ended without an answer: its identifier and its entry may be used again.
    pub(super) fn forget_command(&mut self, connection: ConnectionId, command_id: u16) {
        if let Some(queue) = self.find(connection) {
            queue.in_use.remove(command_id);
            queue.outstanding = queue.outstanding.saturating_sub(1);
        }
    }

    pub(super) fn statistics(&self) -> TargetStatistics {
        let (incidents, incidents_dropped) = self.incidents.counts();
        TargetStatistics {
            incidents,
            incidents_dropped,
            commands_in_flight: self.iter().map(|queue| u64::from(queue.outstanding)).sum(),
            queues: self.iter().filter(|queue| queue.association.is_some()).count() as u64,
            ..self.counted
        }
    }
}
