//! Hosts that leave: who is kept away, controllers that end in order, and whether what changes wait for has ended.

use super::Target;
use super::change::{ChangeError, ChangeEvent, ChangeId, HeldUp};
use super::commands::Slot;
use super::controllers::{Controller, Notice};
use super::notice::{LAST_ANSWERS, NOTICE};
use super::pending::{Drain, Drained, Until};
use super::spread::{ControllerName, Order};
use super::subsystem::AllowedHosts;
use super::work::{Phase, Work};
use crate::storage::Storage;
use crate::wire::Nqn;
use core::time::Duration;
use frwr_engine::ConnectionId;
use frwr_engine::provider::Port;

impl<P: Port, S: Storage> Target<P, S> {
    /// Says who may use a subsystem from now on. Controllers of hosts that are allowed no longer end as [`Target::drain`] says; such a
    /// host hears why when it connects again. Hosts that asked the discovery service for it are told by an asynchronous event where the
    /// subsystem appears or disappears for them. Done when no controller of a host is left that may not be ([`ChangeEvent::Done`]). For
    /// the home core.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn set_allowed_hosts(
        &mut self,
        subsystem: &Nqn,
        hosts: AllowedHosts,
        within: Duration,
    ) -> Result<ChangeId, ChangeError> {
        self.may_change_here()?;
        self.pending.has_room_to_drain()?;
        let at = self.subsystems.find(subsystem).ok_or(ChangeError::Subsystem)?;
        let before = self.subsystems.set_hosts(at, hosts)?;
        let id = self.pending.next_id();
        if let (Some(before), Some(served)) = (before, self.subsystems.get(at)) {
            let concerns = |host| before.allows(host) != served.allows(host);
            self.controllers.raise_discovery(concerns, &mut self.commands);
            self.go_on();
        }
        self.begin_drain(id, Drained::Barred(at), within);
        Ok(id)
    }

    /// Removes a subsystem: hosts see it no longer, those that use it are told that it shuts down where they asked for that event, their
    /// controllers end as [`Target::drain`] says, then all cores hand its storages back ([`ChangeEvent::Removed`]). For the home core.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn remove_subsystem(&mut self, name: &Nqn, within: Duration) -> Result<ChangeId, ChangeError> {
        self.may_change()?;
        self.pending.has_room_to_drain()?;
        let at = self.subsystems.find(name).ok_or(ChangeError::Subsystem)?;
        let id = self.pending.next_id();
        self.subsystems.begin_removal(at);
        self.tell_discovery(at);
        self.controllers.raise(at, Notice::Shutdown, &mut self.commands);
        self.go_on();
        self.begin_drain(id, Drained::Subsystem(at), within);
        Ok(id)
    }

    /// Keeps a host away, or all (`None`): its controllers execute no more commands of I/O queues than they have, and end when those are
    /// answered. The host is told, where it asked for that event, that by these controllers it reaches no namespace any more (their ANA
    /// groups are inaccessible); for a second at least all that it still sends is answered so, and it sends that elsewhere, or later. Its
    /// Connects are refused with a status that tells it to try again, until [`Target::resume`]. Done when nothing of it is left here or in a
    /// storage ([`ChangeEvent::Done`]); what holds that up behind `within` is told, and waited for. The discovery service goes on. For the
    /// home core.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn drain(&mut self, host: Option<Nqn>, within: Duration) -> Result<ChangeId, ChangeError> {
        self.may_change_here()?;
        self.resume(host);
        self.pending.has_room_to_drain()?;
        let id = self.pending.next_id();
        self.begin_drain(id, host.map_or(Drained::All, Drained::Host), within);
        Ok(id)
    }

    /// Lets a host come again, or all; those that are drained by name stay away. Controllers that end already do. False where nobody was
    /// kept away by that. For the home core.
    pub fn resume(&mut self, host: Option<Nqn>) -> bool {
        self.pending.resume(host.map_or(Drained::All, Drained::Host))
    }

    pub(super) fn begin_drain(&mut self, id: ChangeId, of: Drained, within: Duration) {
        let now = self.clock.now();
        for place in 0..self.controllers.places() {
            if self.controllers.get(place).is_some_and(|controller| self.is_drained_by(controller, of)) {
                self.drain_controller(place, id, within);
            }
        }
        self.spread.tell_members();
        self.go_on();
        self.pending.drain(Drain::new(id, of, now, within));
    }

    /// A controller drains from now on, here.
    pub(super) fn drain_controller(&mut self, place: usize, id: ChangeId, within: Duration) {
        let (now, told_at) = (self.clock.now(), self.clock.watched().saturating_add(NOTICE));
        let Some(controller) = self.controllers.get_mut(place) else { return };
        if controller.begin_drain(id, now, within, told_at) {
            self.controllers.raise_of(place, Notice::AnaChanged, &mut self.commands);
            self.sessions.drain_io_queues(place);
            self.pending.controllers_drain(true);
        }
    }

    /// A controller is to end by this.
    fn is_drained_by(&self, controller: &Controller, of: Drained) -> bool {
        let Some(subsystem) = controller.subsystem() else { return false };
        match of {
            Drained::All => true,
            Drained::Host(host) => controller.host() == Some(host),
            Drained::Subsystem(at) => subsystem == at,
            Drained::Listener(address) => {
                let admin = controller.admin().and_then(|admin| self.sessions.get(admin));
                admin.is_some_and(|queue| queue.ends().listener == Some(address))
            }
            Drained::Barred(at) => {
                let served = self.subsystems.get(at).filter(|_| subsystem == at);
                served.is_some_and(|served| !served.allows(controller.host()))
            }
        }
    }

    /// The home core drains a controller that has queues here.
    pub(super) fn drain_here(&mut self, name: ControllerName, id: ChangeId, within: Duration) {
        let place = usize::from(name.place);
        if self.controllers.named(place, name.id).is_some() {
            self.drain_controller(place, id, within);
        }
    }

    /// Looks whether what changes wait for has ended.
    #[cold]
    pub(super) fn advance_changes(&mut self) {
        let now = self.clock.now();
        if !self.pending.looks(now) {
            return;
        }
        self.end_drained_queues(now);
        self.end_waiting_namespaces(now);
        self.end_drains(now);
        if self.pending.shares_buffers() {
            self.share_buffers();
        }
        if self.pending.stops_listeners() {
            self.stop_leaving();
        }
    }

    /// Queues that drain take no commands any more where their hosts have heard of that, and they have nothing left to execute.
    fn end_intakes(&mut self) {
        let watched = self.clock.watched();
        for at in 0..self.sessions.places() {
            let Some((connection, place)) = self.sessions.draining(at) else { continue };
            let controller = self.controllers.get(place);
            if !controller.is_none_or(|controller| controller.has_told_of_drain(watched)) {
                continue;
            }
            let executes = |slot: &Slot| slot.connection() == connection && !matches!(slot.phase(), Phase::Reply(_));
            if self.commands.unanswered(executes).is_none() {
                self.sessions.end_intake(connection);
            }
        }
    }

    /// Ends queues that take no commands any more and have answered everything; an admin queue when its controller has no other queue.
    fn end_drained_queues(&mut self, now: Duration) {
        self.end_intakes();
        for at in 0..self.sessions.places() {
            let Some((connection, since)) = self.sessions.drained(at, now) else { continue };
            if self.has_answered(connection, since, now) {
                self.sessions.end_drained(connection, &mut self.engine);
                self.spread.queue_ended(connection);
            }
        }
        for place in 0..self.controllers.places() {
            let Some(controller) = self.controllers.get_mut(place) else { continue };
            if controller.drains().is_none() {
                continue;
            }
            let late = controller.drains_for_long(now);
            let (admin, requests) = (controller.admin(), controller.event_requests());
            if let Some(id) = late
                && let Some(by) = self.held_up_by(place)
            {
                self.pending.tell(ChangeEvent::HeldUp { id, by });
            }
            if let Some(admin) = admin.filter(|_| !self.has_io_queues(place))
                && let Some(since) = self.sessions.drain_admin_queue(admin, requests, now)
                && self.has_answered(admin, since, now)
                && self.engine.is_ready(admin)
            {
                self.engine.disconnect(admin);
            }
        }
        self.pending.controllers_drain(self.controllers.draining().next().is_some());
    }

    /// A controller has I/O queues, on whichever core.
    fn has_io_queues(&self, place: usize) -> bool {
        self.sessions.has_io_queues(place) || self.spread.has_queues(place)
    }

    /// Some controller that drains has.
    pub(super) fn drains_io_queues(&self) -> bool {
        self.controllers.draining().any(|place| self.has_io_queues(place))
    }

    /// The device is done with all answers of a queue that has no commands since then, or has had its time.
    fn has_answered(&self, connection: ConnectionId, since: Duration, now: Duration) -> bool {
        now >= since.saturating_add(LAST_ANSWERS) || !self.commands.has_of(connection)
    }

    /// A command of a controller's queues here.
    fn held_up_by(&self, place: usize) -> Option<HeldUp> {
        let is_of = |slot: &Slot| self.sessions.get(slot.connection()).is_some_and(|queue| queue.is_of(place));
        self.commands.unanswered(is_of).map(|slot| self.held_up(slot))
    }

    fn held_up(&self, slot: &Slot) -> HeldUp {
        let queue = self.sessions.get(slot.connection());
        let left_by = || slot.left_to().flatten().and_then(|place| self.late.host_of(place));
        HeldUp {
            host: queue.map_or_else(left_by, |queue| queue.host()),
            queue_id: queue.map(|queue| queue.id()),
            command_id: Some(slot.command_id()),
            namespace: slot.namespace(),
            waits_for: slot.phase().waits_for(),
        }
    }

    /// Hands storages back that nobody uses any more, and tells media that may be cut.
    fn end_waiting_namespaces(&mut self, now: Duration) {
        let mut at = 0;
        while let Some(waiting) = self.pending.waiting(at) {
            let (place, id) = (waiting.place, waiting.deadline.id);
            let (is_gone, end) = match waiting.until {
                Until::Gone => (true, 0),
                Until::Within { blocks } => (false, blocks),
            };
            let concerns = |work: &Work| is_gone || work.may_reach_beyond(end);
            let held = self.commands.unanswered_of(place, concerns).map(|slot| self.held_up(slot));
            let flushes = (is_gone && self.media.is_committing(place)).then_some(HeldUp {
                host: None,
                queue_id: None,
                command_id: None,
                namespace: waiting.identifier,
                waits_for: "a flush of the target",
            });
            match held.or(flushes) {
                Some(by) => {
                    if waiting.deadline.is_over(now) {
                        self.pending.waiting_is_told(at, by);
                    }
                    at += 1;
                }
                None => {
                    self.pending.waits_no_longer(at);
                    if is_gone {
                        self.hand_back(place, waiting.subsystem, waiting.identifier, id);
                    } else {
                        // One that cannot has more than hosts know, which is no harm.
                        let _ = self.media.resize_storage(place, end);
                        self.pending.tell(ChangeEvent::Shrunk { id });
                    }
                }
            }
        }
    }

    fn hand_back(&mut self, place: usize, subsystem: Nqn, identifier: u32, id: ChangeId) {
        let at = self.subsystems.find_any(&subsystem);
        if let Some(namespaces) = at.and_then(|at| self.subsystems.namespaces_mut(at)) {
            namespaces.end_removal(identifier, place);
        }
        if let Some(storage) = self.detach(place) {
            self.pending.tell(ChangeEvent::Removed { id, subsystem, identifier, storage });
        }
    }

    /// Tells drains that are done.
    fn end_drains(&mut self, now: Duration) {
        let mut at = 0;
        while let Some(drain) = self.pending.drains().get(at).copied() {
            at += 1;
            if drain.is_done {
                continue;
            }
            if self.is_left_of(&drain) {
                if drain.deadline.is_over(now)
                    && let Some(by) = self.left_by(drain.of)
                {
                    self.pending.drain_is_told(drain.id, by);
                }
                continue;
            }
            if let Drained::Subsystem(subsystem) = drain.of {
                // Behind a change that is under way.
                let Some(served) = self.subsystems.get(subsystem).filter(|_| self.pending.may_begin().is_ok()) else {
                    continue;
                };
                let order = Order::RemoveSubsystem { name: *served.name(), id: drain.id, within: drain.within };
                self.pending.drain_is_done(drain.id);
                self.begin_as(drain.id, order, false);
            } else {
                self.pending.drain_is_done(drain.id);
                self.pending.tell(ChangeEvent::Done { id: drain.id });
            }
            at = 0;
        }
    }

    /// A controller that is to end by this has not, or a storage has commands of one.
    fn is_left_of(&self, drain: &Drain) -> bool {
        let (mut all, of) = (self.controllers.iter(), drain.of);
        let is_it = |controller: &Controller| match of {
            // There may be a listener at this address again, by which others come.
            Drained::Listener(_) => controller.drains().is_some_and(|(id, _)| id == drain.id),
            of => self.is_drained_by(controller, of),
        };
        all.any(|(_, controller)| is_it(controller)) || {
            let mut vacant = self.controllers.vacant().filter(|place| self.is_left_behind_by(*place, of));
            vacant.any(|place| self.late.has_late_commands(place, self.whereabouts()))
        }
    }

    /// What a controller left that had this place is waited for.
    fn is_left_behind_by(&self, place: usize, of: Drained) -> bool {
        match of {
            Drained::All => true,
            Drained::Host(host) => self.late.host_of(place) == Some(host),
            // Namespaces wait for theirs; and of who may not come any more, or comes by another way, it is no matter.
            Drained::Barred(_) | Drained::Subsystem(_) | Drained::Listener(_) => false,
        }
    }

    /// A command of a connection that is gone. Controllers that are there tell themselves what holds them up.
    fn left_by(&self, of: Drained) -> Option<HeldUp> {
        let is_left = |slot: &Slot| slot.left_to().flatten().is_some_and(|place| self.is_left_behind_by(place, of));
        self.commands.unanswered(is_left).map(|slot| self.held_up(slot))
    }
}
