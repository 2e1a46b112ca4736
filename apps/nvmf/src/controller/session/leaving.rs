//! Queues that leave their controller, and connections that end before they were one.

use super::{Association, Connecting, Intake, Queue, Sessions, Wait};
use crate::controller::incident::Fault;
use core::time::Duration;
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine};
use frwr_mempool::mutant;

impl Sessions {
    /// Ends the connections of a controller's I/O queues. They are no part of the controller any more, nor of one that takes
    /// its place while they drain.
    pub(in super::super) fn end_io_queues(&mut self, controller: usize, mut ended: impl FnMut(ConnectionId)) {
        for queue in self.queues.iter_mut().flatten().filter(|queue| !queue.is_admin() && queue.is_of(controller)) {
            queue.leave(controller);
            ended(queue.connection);
        }
    }

    /// The I/O queues of a controller execute no more commands than they have.
    pub(in super::super) fn drain_io_queues(&mut self, controller: usize) {
        let all = self.queues.iter_mut().flatten();
        let takes = |queue: &Queue| matches!(queue.intake, Intake::Open | Intake::Locked);
        for queue in all.filter(|queue| takes(queue) && !queue.is_admin() && queue.is_of(controller)) {
            queue.intake = Intake::Drains;
        }
    }

    /// A command of a queue that drains. Its host is told that by the answer.
    #[cold]
    pub(in super::super) fn admit_draining(
        &mut self,
        connection: ConnectionId,
        command_id: u16,
    ) -> Result<Option<(bool, Option<Association>)>, Fault> {
        self.admit_where(Intake::Drains, connection, command_id, || false)
    }

    /// It drains: its commands are refused.
    pub(in super::super) fn is_draining(&self, connection: ConnectionId) -> bool {
        self.get(connection).is_some_and(|queue| queue.intake == Intake::Drains)
    }

    /// An I/O queue that drains, and the place of its controller. `at`: below [`Sessions::places`].
    pub(in super::super) fn draining(&self, at: usize) -> Option<(ConnectionId, usize)> {
        let queue = self.queues.get(at)?.as_ref().filter(|queue| queue.intake == Intake::Drains)?;
        Some((queue.connection, queue.association?.controller))
    }

    /// Commands of a queue that drains are not looked at any more.
    pub(in super::super) fn end_intake(&mut self, connection: ConnectionId) {
        if let Some(queue) = self.find(connection).filter(|queue| queue.intake == Intake::Drains) {
            queue.intake = Intake::Ends;
        }
    }

    /// An admin queue takes no commands any more; since when it has had none but so many that wait for ever.
    pub(in super::super) fn drain_admin_queue(
        &mut self,
        connection: ConnectionId,
        event_requests: u16,
        now: Duration,
    ) -> Option<Duration> {
        let queue = self.find(connection).filter(|queue| !queue.is_doomed())?;
        queue.intake = Intake::Ends;
        queue.empty_since(event_requests, now)
    }

    /// An I/O queue that takes no commands any more, and since when it has had none. `at`: below [`Sessions::places`].
    pub(in super::super) fn drained(&mut self, at: usize, now: Duration) -> Option<(ConnectionId, Duration)> {
        let queue = self.queues.get_mut(at)?.as_mut()?;
        let drains = queue.intake == Intake::Ends && !queue.is_admin() && queue.association.is_some();
        let since = if drains { queue.empty_since(0, now) } else { None };
        Some((queue.connection, since?))
    }

    /// Takes such a queue from its controller, and ends its connection.
    pub(in super::super) fn end_drained<P: Port>(&mut self, connection: ConnectionId, engine: &mut Engine<P>) {
        if let Some(queue) = self.find(connection)
            && let Some(Association { controller, .. }) = queue.association
        {
            queue.leave(controller);
            engine.disconnect(connection);
        }
    }

    /// Takes a queue whose connection ends from its controller, as its last event will: that comes when the device has destroyed the
    /// queue pair, and a host may have connected again long before. `at`: below [`Sessions::places`]. Of an admin queue the
    /// place of its controller, whose I/O queues end with it.
    pub(in super::super) fn leave_if_ending<P: Port>(&mut self, at: usize, engine: &Engine<P>) -> Option<usize> {
        let queue = self.queues.get_mut(at)?.as_mut()?;
        let Association { controller, .. } = queue.association.filter(|_| !engine.is_ready(queue.connection))?;
        if queue.is_admin() {
            return Some(controller);
        }
        queue.leave(controller);
        if mutant!(target_ending_place_forgotten) {
            queue.ended_with = None;
        }
        None
    }

    /// A connection that had not become a queue of a host ends, for another one to have its place. The place of its controller, which
    /// ends as well.
    pub(in super::super) fn end_unproven<P: Port>(
        &mut self,
        index: u16,
        now: Duration,
        engine: &mut Engine<P>,
    ) -> Option<usize> {
        let queue = self.queues.get_mut(usize::from(index))?.as_mut()?;
        queue.connect_by = None;
        queue.intake = Intake::Doomed;
        let association = queue.association.take();
        let after = now.saturating_sub(queue.since);
        self.counted.made_room += 1;
        self.incidents.note(queue.incident(Fault::MadeRoom { after, is_queue: association.is_some() }));
        engine.disconnect(queue.connection);
        association.map(|association| association.controller)
    }

    /// Ends connections that never became a queue: their host may be gone without a word, and they keep a place. Those whose
    /// Connect is held back here have another time-out from now.
    pub(in super::super) fn expire<P: Port>(&mut self, now: Duration, limit: Duration, engine: &mut Engine<P>) {
        if self.next_connect_check.is_none_or(|at| now < at) {
            return;
        }
        self.next_connect_check = None;
        for queue in self.queues.iter_mut().flatten() {
            let Some(by) = queue.connect_by else { continue };
            if let (Connecting::Held(held), true) = (queue.connecting, by <= now) {
                queue.connect_by = Some(now.saturating_add(limit));
                match held {
                    Wait::Short => {}
                    Wait::Late(_) => self.incidents.note(queue.incident(Fault::Held { limit })),
                    Wait::Former { .. } => self.incidents.note(queue.incident(Fault::HeldByFormer { limit })),
                }
            }
            match queue.connect_by {
                Some(at) if at <= now => {
                    queue.connect_by = None;
                    self.counted.connect_timeouts += 1;
                    self.incidents.note(queue.incident(Fault::Silent { limit }));
                    engine.disconnect(queue.connection);
                }
                later => self.next_connect_check = [self.next_connect_check, later].into_iter().flatten().min(),
            }
        }
    }
}
