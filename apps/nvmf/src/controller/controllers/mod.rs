//! The table of controllers: what happens to them, and what their hosts are told of it.

pub(super) mod controller;
mod event;
mod features;
mod former;
mod namespace_set;
mod notifications;
mod probe;
mod silence;

use super::commands::Commands;
use super::media::{Committed, Media};
use super::options::TargetOptions;
use super::statistics::TargetStatistics;
use super::subsystem::Subsystems;
use super::work::{FailedCommand, Part, Reply, Seating, refused};
use crate::storage::Storage;
use crate::wire::{ADMIN_QUEUE, ConnectData, Nqn, ReservationNotificationKind, Status};
use controller::Identifiers;
pub(super) use controller::{ConfigurationEffect, Controller, ERROR_LOG_ENTRIES, KEEP_ALIVE_UNITS, Purpose};
use core::time::Duration;
pub(super) use event::{MAX_EVENT_REQUESTS, Notice};
pub(super) use features::Features;
use frwr_engine::ConnectionId;
pub(super) use probe::PROBE_TIMEOUT;
use silence::Watch;

/// A controller that ends since nothing was heard of its host.
#[derive(Debug)]
pub(super) struct Expired {
    pub(super) place: usize,
    pub(super) admin: Option<ConnectionId>,
    /// Its Keep Alive Timeout.
    pub(super) limit: Duration,
    /// How long its core stood still since it was made.
    pub(super) stood_still: Duration,
}

/// All controllers; on a core that is not their home those that have queues there.
#[derive(Debug)]
pub(super) struct Controllers {
    controllers: Vec<Option<Controller>>,
    identifiers: Identifiers,
    watch: Watch,
    /// How many questions were put to devices of hosts that came again.
    questions: u64,
    /// What hosts were told, and who was silent; the other fields are zero.
    counted: TargetStatistics,
}

impl Controllers {
    pub(super) fn new(options: &TargetOptions) -> Self {
        Self {
            controllers: (0..options.places()).map(|_| None).collect(),
            identifiers: Identifiers::of(options.own_ids()),
            watch: Watch::default(),
            questions: 0,
            counted: TargetStatistics::default(),
        }
    }

    pub(super) fn places(&self) -> usize {
        self.controllers.len()
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<&Controller> {
        self.controllers.get(place)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Controller> {
        self.controllers.get_mut(place)?.as_mut()
    }

    /// The one in this place, unless another one had it when that was said.
    pub(super) fn named(&mut self, place: usize, id: u16) -> Option<&mut Controller> {
        self.get_mut(place).filter(|controller| controller.id() == id)
    }

    /// With their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Controller)> {
        let all = self.controllers.iter().enumerate();
        all.filter_map(|(place, controller)| Some((place, controller.as_ref()?)))
    }

    /// Places without a controller.
    pub(super) fn vacant(&self) -> impl Iterator<Item = usize> {
        let all = self.controllers.iter().enumerate();
        all.filter(|(_, controller)| controller.is_none()).map(|(place, _)| place)
    }

    /// The controller that a command is for. Its host is there.
    #[inline]
    pub(super) fn addressed(&mut self, place: Option<usize>, now: Duration) -> Result<(usize, &mut Controller), Reply> {
        // Only Connect makes a connection a queue (Base 6.3).
        let found = place.and_then(|place| Some((place, self.get_mut(place)?)));
        let (place, controller) = found.ok_or(refused(Status::COMMAND_SEQUENCE_ERROR))?;
        controller.touch(now);
        Ok((place, controller))
    }

    /// Connect made one, in a vacant place. `times`: watched time, and for how long this core has stood still.
    pub(super) fn make(
        &mut self,
        place: usize,
        admin: ConnectionId,
        connect: Seating,
        data: &ConnectData,
        purpose: Purpose,
        times: (Duration, Duration),
    ) {
        let used = |id| self.controllers.iter().flatten().any(|controller| controller.id() == id);
        let id = self.identifiers.next(used);
        let mut controller = Controller::new(id, admin, data, purpose, times, self.questions);
        controller.set_keep_alive(connect.keep_alive_timeout);
        if let Some(vacant) = self.controllers.get_mut(place) {
            *vacant = Some(controller);
        }
    }

    /// This core has the first queue of a controller that lives elsewhere, or another one.
    pub(super) fn copy(
        &mut self,
        place: usize,
        id: u16,
        data: &ConnectData,
        purpose: Purpose,
        now: Duration,
    ) -> Option<&mut Controller> {
        let known = self.controllers.get_mut(place)?;
        if known.as_ref().is_none_or(|controller| controller.id() != id) {
            *known = Some(Controller::copy(id, data, purpose, now));
        }
        known.as_mut()
    }

    pub(super) fn end(&mut self, place: usize) {
        if let Some(controller) = self.controllers.get_mut(place) {
            *controller = None;
        }
    }

    /// The I/O queues of another core are one's whose admin queue this is.
    pub(super) fn is_admin(&self, place: usize, connection: ConnectionId) -> bool {
        self.get(place).is_some_and(|controller| controller.admin() == Some(connection))
    }

    /// Keeps an Asynchronous Event Request until there is an event. False where it cannot.
    pub(super) fn keep_event_request(&mut self, place: usize, command_id: u16, commands: &mut Commands) -> bool {
        let Some(controller) = self.get_mut(place) else { return false };
        if !controller.is_ready() || !controller.events().keep(command_id) {
            return false;
        }
        self.tell(place, commands);
        true
    }

    /// A host that uses the identifier of an event request for another command has forgotten that request, which is never answered then.
    /// SPDK's host forgets all of them before it shuts its controller down, and takes their identifiers for that.
    pub(super) fn forgets_event_request(&mut self, connection: ConnectionId, command_id: u16) -> bool {
        let is_admin = |controller: &&mut Controller| controller.admin() == Some(connection);
        let found = self.controllers.iter_mut().flatten().find(is_admin);
        found.is_some_and(|controller| controller.events().withdraw(command_id))
    }

    /// Places of controllers that drain.
    pub(super) fn draining(&self) -> impl Iterator<Item = usize> {
        self.iter().filter(|(_, controller)| controller.drains().is_some()).map(|(place, _)| place)
    }

    /// Something happened to a subsystem: its controllers tell their hosts, now or when they ask.
    pub(super) fn raise(&mut self, subsystem: usize, notice: Notice, commands: &mut Commands) {
        for place in 0..self.controllers.len() {
            if self.get(place).is_some_and(|controller| controller.subsystem() == Some(subsystem)) {
                self.raise_of(place, notice, commands);
            }
        }
    }

    /// Something happened to one controller: it tells its host, now or when that asks.
    pub(super) fn raise_of(&mut self, place: usize, notice: Notice, commands: &mut Commands) {
        if let Some(controller) = self.get_mut(place) {
            controller.events().raise(notice);
            self.tell(place, commands);
        }
    }

    /// The discovery log says something else to hosts that `concerns` names.
    pub(super) fn raise_discovery(&mut self, concerns: impl Fn(Option<Nqn>) -> bool, commands: &mut Commands) {
        for place in 0..self.controllers.len() {
            let Some(controller) = self.get_mut(place) else { continue };
            if controller.subsystem().is_none() && concerns(controller.host()) {
                controller.events().raise(Notice::DiscoveryChanged);
                self.tell(place, commands);
            }
        }
    }

    /// A namespace became active or inactive, or has another size.
    pub(super) fn namespace_changed(&mut self, subsystem: usize, identifier: u32) {
        let all = self.controllers.iter_mut().flatten();
        for controller in all.filter(|controller| controller.subsystem() == Some(subsystem)) {
            controller.changed().put(identifier, true);
        }
    }

    /// A host did something to a namespace's reservation that `concerns` names other hosts of.
    pub(super) fn notify(
        &mut self,
        (subsystem, namespace): (usize, u32),
        kind: ReservationNotificationKind,
        concerns: impl Fn(&[u8; 16]) -> bool,
        commands: &mut Commands,
    ) {
        for place in 0..self.controllers.len() {
            let Some(controller) = self.homed(place) else { continue };
            if controller.subsystem() == Some(subsystem)
                && concerns(&controller.host_id())
                && controller.notifications_mut().add(kind, namespace)
            {
                controller.events().raise(Notice::ReservationNotification);
                self.tell(place, commands);
            }
        }
    }

    /// So many notifications came too fast for this core: each of its hosts may have lost them.
    pub(super) fn lose_notifications(&mut self, lost: u64) {
        for place in 0..self.controllers.len() {
            if let Some(controller) = self.homed(place) {
                controller.notifications_mut().lose(lost);
            }
        }
    }

    /// The one in this place where it is enabled and this core its home.
    fn homed(&mut self, place: usize) -> Option<&mut Controller> {
        self.get_mut(place).filter(|controller| controller.admin().is_some() && controller.is_ready())
    }

    /// Answers event requests that something is known for.
    pub(super) fn tell(&mut self, place: usize, commands: &mut Commands) {
        loop {
            let Some(controller) = self.get_mut(place) else { return };
            // The request keeps its slot in the queue, so there is a command slot for its answer.
            if !controller.is_ready() || commands.is_full() {
                return;
            }
            let Some((command_id, notice)) = controller.events().next() else { return };
            let Some(admin) = controller.admin() else { return };
            self.counted.events += 1;
            commands.answer_without(admin, command_id, Reply::result(notice.result()));
        }
    }

    /// A log page was read.
    pub(super) fn page_read(&mut self, place: usize, part: &Part, commands: &mut Commands) {
        if let Some(controller) = self.get_mut(place) {
            controller.page_read(part);
            self.tell(place, commands);
        }
    }

    /// A command failed.
    pub(super) fn note(&mut self, place: usize, failed: &FailedCommand) {
        if let Some(controller) = self.get_mut(place) {
            controller.note(failed);
        }
    }

    /// A controller whose host has not been heard of for too long, and which was not told before.
    pub(super) fn next_expired(&mut self, now: Duration, stood_still: Duration) -> Option<Expired> {
        let is_expired =
            |controller: &Option<Controller>| controller.as_ref().is_some_and(|controller| controller.is_expired(now));
        let place = self.controllers.iter().position(is_expired)?;
        let controller = self.get_mut(place)?;
        let (admin, limit) = (controller.admin(), controller.silence_limit());
        let stood_still = stood_still.saturating_sub(controller.stood_still());
        controller.expire();
        self.counted.keep_alive_expirations += 1;
        Some(Expired { place, admin, limit, stood_still })
    }

    /// A host announced the normal shutdown of its controller (CC.SHN 01b).
    pub(super) fn shut_down<S: Storage>(&mut self, place: usize, subsystems: &Subsystems, media: &mut Media<S>) {
        let Some(controller) = self.get_mut(place) else { return };
        let subsystem = controller.subsystem().and_then(|index| subsystems.get(index));
        controller.await_commit(subsystem.and_then(|subsystem| media.commit(subsystem.namespaces().places())));
    }

    /// A flush is done that no command asked for: shutdowns that waited for it have failed, or may be complete.
    #[cold]
    pub(super) fn committed<S: Storage>(&mut self, commit: &Committed, subsystems: &Subsystems, media: &Media<S>) {
        for controller in self.controllers.iter_mut().flatten() {
            let subsystem = controller.subsystem().and_then(|index| subsystems.get(index));
            let namespaces = subsystem.map(super::subsystem::Served::namespaces);
            let Some(namespaces) = namespaces else { continue };
            let Some(identifier) = namespaces.identifier_at(commit.namespace) else { continue };
            let Some(number) = controller.awaited_commit() else { continue };
            if commit.failed && commit.served.contains(&number) {
                controller.shutdown_failed();
                controller.note(&FailedCommand {
                    queue_id: ADMIN_QUEUE,
                    command_id: u16::MAX,
                    status: Status::WRITE_FAULT.to_wire(),
                    lba: 0,
                    namespace: identifier,
                });
            } else if media.has_committed(namespaces.places(), number) {
                controller.shutdown_is_complete();
            }
        }
    }

    pub(super) fn statistics(&self) -> TargetStatistics {
        self.counted
    }
}
