//! What the admin queue does while the session goes on: asynchronous events (Base 5.2), and what they ask to be read.

use super::admin_data::{AdminData, Asked};
use super::bring_up::Found;
use super::commands::Reply;
use super::context::Context;
use super::failure::HostFailure;
use super::options::AdminSlot;
use super::queues::{QueueOf, Queues};
use super::statistics::HostStatistics;
use super::step::Step;
use crate::wire::{Command, IDENTIFY_BYTES, ReservationNotification, ReservationNotificationKind, cns, log_page};
use core::time::Duration;
use frwr_engine::provider::Port;
use zerocopy::FromBytes;

/// Asynchronous event types 2h, Notice, 3h, Immediate, and 6h, I/O Command Specific Status (Base figure 145).
const NOTICE: u32 = 2;
const IMMEDIATE: u32 = 3;
const COMMAND_SET: u32 = 6;
/// Asynchronous event information of notices (Base figure 149).
const NAMESPACE_ATTRIBUTE_CHANGED: u32 = 0;
const ANA_CHANGE: u32 = 3;
const DISCOVERY_CHANGE: u32 = 0xf0;
/// Asynchronous event information of immediate events (Base figure 151).
const SUBSYSTEM_SHUTDOWN: u32 = 0;
/// Asynchronous event information of the I/O command set.
const RESERVATION_LOG_AVAILABLE: u32 = 0;

/// Reservation notifications that are read behind one event: one, and as many as its page can say that there are beside
/// it. There has to be an end whatever a controller says.
const MAX_NOTIFICATIONS_READ: u16 = 1 + u8::MAX as u16;

/// How often the ANA log page is read while the namespace cannot be reached: a notice may be lost with a session.
const ANA_PERIOD: Duration = Duration::from_secs(1);

/// Something to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chore {
    /// Identify Namespace, for the group that the namespace is in.
    Group,
    /// The ANA log page.
    Ana,
    /// The Changed Namespace List, which the controller wants read before it tells of further changes.
    ChangedNamespaces,
    /// Identify Namespace.
    Namespace,
    /// The next reservation notification, so that the controller tells of further ones.
    Notification,
    /// The discovery log page.
    Discovery,
}

/// What is to be read, and what is being read.
#[derive(Debug, Default)]
pub(super) struct Chores {
    group: bool,
    ana: bool,
    changed: bool,
    namespace: bool,
    /// Reservation notifications to be read at most.
    notifications: u16,
    discovery: bool,
    running: Option<Chore>,
    /// When the ANA log page is read again while the namespace cannot be reached.
    ana_at: Duration,
    /// The controller takes no Asynchronous Event Request.
    no_events: bool,
    /// When what is being read has to be there, in watched time: nothing else would end the wait of whoever needs it.
    by: Option<Duration>,
    statistics: HostStatistics,
}

impl Chores {
    fn next(&self) -> Option<Chore> {
        let wanted = [
            (self.group, Chore::Group),
            (self.ana, Chore::Ana),
            (self.changed, Chore::ChangedNamespaces),
            (self.namespace, Chore::Namespace),
            (self.notifications > 0, Chore::Notification),
            (self.discovery, Chore::Discovery),
        ];
        wanted.into_iter().find_map(|(wanted, chore)| wanted.then_some(chore))
    }

    fn want(&mut self, chore: Chore, wanted: bool) {
        match chore {
            Chore::Group => self.group = wanted,
            Chore::Ana => self.ana = wanted,
            Chore::ChangedNamespaces => self.changed = wanted,
            Chore::Namespace => self.namespace = wanted,
            Chore::Notification if wanted => self.notifications += 1,
            Chore::Notification => self.notifications = self.notifications.saturating_sub(1),
            Chore::Discovery => self.discovery = wanted,
        }
    }

    /// What it counted.
    pub(super) fn statistics(&self) -> HostStatistics {
        self.statistics
    }

    /// A session begins.
    pub(super) fn begin<P: Port>(&mut self, context: &Context<P>) {
        *self = Self { ana_at: context.time.after(ANA_PERIOD), statistics: self.statistics, ..Self::default() };
    }

    /// Does what is due. `stopping`: the session goes on until what is outstanding has ended; `occupied`: the memory for admin data is.
    pub(super) fn step<P: Port>(
        &mut self,
        (stopping, occupied): (bool, bool),
        found: &Found,
        queues: &Queues,
        data: &AdminData,
        context: &mut Context<P>,
    ) {
        let admin = queues.connection(QueueOf::Admin);
        let listens = found.limits().events != 0 && !self.no_events && !stopping;
        if listens && !context.is_in_flight(AdminSlot::Event) {
            // Where the engine has no room, the next poll tries again.
            let _ = data.send(admin, AdminSlot::Event, Asked::plain(Command::AsynchronousEventRequest), context);
        }
        if !found.ana().is_accessible() && context.time.now() >= self.ana_at {
            self.ana = found.limits().reports_ana;
            self.ana_at = context.time.after(ANA_PERIOD);
        }
        // Requests that end before a shutdown may wait for the path, and for nothing else that is read here.
        let wanted = self.next().filter(|chore| !stopping || matches!(chore, Chore::Group | Chore::Ana));
        let Some(chore) = wanted.filter(|_| !occupied && !context.is_in_flight(AdminSlot::Chore)) else { return };
        let asked = match chore {
            Chore::Ana => found.ana().asked(),
            Chore::Discovery => found.discovery().asked(),
            Chore::ChangedNamespaces => Asked::log_page(log_page::CHANGED_NAMESPACES, 0, 0),
            Chore::Notification => Asked::notification(),
            Chore::Group | Chore::Namespace => Asked::identify(cns::NAMESPACE, context.options.namespace),
        };
        if data.send(admin, AdminSlot::Chore, asked, context).is_ok() {
            self.running = Some(chore);
            // Of a page in several parts, one for all.
            self.by.get_or_insert(context.time.deadline_in(context.options.step_timeout));
            self.want(chore, false);
        }
    }

    /// What was to be read has been, or was refused. Whether that is all of it.
    ///
    /// # Errors
    /// The session cannot go on with it.
    pub(super) fn answered<P: Port>(
        &mut self,
        reply: Reply,
        found: &mut Found,
        data: &AdminData,
        context: &Context<P>,
    ) -> Result<bool, HostFailure> {
        let success = reply.status.is_success();
        match self.running.take() {
            Some(Chore::Ana) if !found.take_ana(success, data, context) => {
                self.want(Chore::Ana, true);
                return Ok(false);
            }
            // What it lists by now would never be known.
            Some(Chore::Discovery) if !success => {
                return Err(HostFailure::Command { step: Step::ReadDiscovery.name(), status: reply.status });
            }
            Some(Chore::Discovery) if !found.take_discovery(data)? => {
                self.want(Chore::Discovery, true);
                return Ok(false);
            }
            Some(Chore::Namespace) if success => found.take_changed(data)?,
            Some(Chore::Group) if success => found.take_group(data),
            Some(Chore::Notification) => self.notified(success.then(|| data.read())),
            Some(Chore::Group | Chore::Ana | Chore::ChangedNamespaces | Chore::Namespace | Chore::Discovery) | None => {
            }
        }
        self.by = None;
        Ok(true)
    }

    /// A reservation notification was read, or refused. There are others only where it says so.
    fn notified(&mut self, page: Option<[u8; IDENTIFY_BYTES]>) {
        let page = page.and_then(|page| Some(ReservationNotification::read_from_prefix(&page).ok()?.0));
        let notification = page.filter(|page| ReservationNotificationKind::from_wire(page.kind).is_some());
        self.statistics.reservation_notifications += u64::from(notification.is_some());
        // An event that came meanwhile is about others, and made it the most again.
        if notification.is_none_or(|page| page.available == 0) && self.notifications < MAX_NOTIFICATIONS_READ {
            self.notifications = 0;
        }
    }

    /// What was to be read was not sent. It is once more, until its time is over; where the session ended, the next one
    /// begins with nothing.
    pub(super) fn refused(&mut self) {
        if let Some(chore) = self.running.take() {
            self.want(chore, true);
        }
    }

    /// The controller answered the Asynchronous Event Request; the next poll sends another.
    pub(super) fn event_reported(&mut self, reply: Reply, reports_ana: bool) {
        if !reply.status.is_success() {
            self.no_events = true;
            return;
        }
        // Dword 0: type in bits 2:0, information in bits 15:8.
        let result = reply.result as u32;
        match (result & 7, result >> 8 & 0xff) {
            (NOTICE, NAMESPACE_ATTRIBUTE_CHANGED) => {
                self.statistics.namespace_events += 1;
                (self.changed, self.namespace) = (true, true);
            }
            (NOTICE, ANA_CHANGE) => {
                self.statistics.ana_events += 1;
                // It may be that the namespace is in another group (Base figure 149).
                (self.group, self.ana) = (reports_ana, reports_ana);
            }
            (NOTICE, DISCOVERY_CHANGE) => {
                self.statistics.discovery_events += 1;
                self.discovery = true;
            }
            // What is to come is the end of the connections, after which the host reconnects.
            (IMMEDIATE, SUBSYSTEM_SHUTDOWN) => self.statistics.shutdown_events += 1,
            (COMMAND_SET, RESERVATION_LOG_AVAILABLE) => {
                self.statistics.reservation_events += 1;
                self.notifications = MAX_NOTIFICATIONS_READ;
            }
            _ => self.statistics.other_events += 1,
        }
    }

    /// When what is being read is too late, in watched time.
    pub(super) fn late_at<P: Port>(&self, context: &Context<P>) -> Option<Duration> {
        self.by.filter(|_| context.is_in_flight(AdminSlot::Chore))
    }

    /// When the log page is read again while the namespace cannot be reached, by the caller's time.
    pub(super) fn reads_at(&self, found: &Found) -> Option<Duration> {
        (!found.ana().is_accessible()).then_some(self.ana_at)
    }
}
