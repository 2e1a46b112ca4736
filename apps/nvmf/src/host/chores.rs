//! What the admin queue does while the session goes on: asynchronous events (Base 5.2), and what they ask to be read.

use super::ana::{ANA_GROUPS_ONLY, ANA_PERIOD};
use super::bring_up::{get_log_page, identify};
use super::options::Admin;
use super::queues::QueueOf;
use super::{Host, State};
use crate::wire::{Command, CompletionQueueEntry, IDENTIFY_BYTES, cns, log_page};
use core::time::Duration;
use frwr_engine::provider::Port;

/// Asynchronous event types 2h, Notice, and 3h, Immediate (Base figure 145).
const NOTICE: u32 = 2;
const IMMEDIATE: u32 = 3;
/// Asynchronous event information of notices (Base figure 149).
const NAMESPACE_ATTRIBUTE_CHANGED: u32 = 0;
const ANA_CHANGE: u32 = 3;
/// Asynchronous event information of immediate events (Base figure 151).
const SUBSYSTEM_SHUTDOWN: u32 = 0;

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
}

/// What is to be read, and what is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chores {
    group: bool,
    ana: bool,
    changed: bool,
    namespace: bool,
    running: Option<Chore>,
    /// When the ANA log page is read again while the namespace cannot be reached.
    ana_at: Duration,
    /// The controller takes no Asynchronous Event Request.
    no_events: bool,
    /// When what is being read has to be there, and when the Abort that is in flight has to be answered, in watched time: nothing else would
    /// end the wait of whoever needs them.
    chore_by: Option<Duration>,
    pub(super) abort_by: Option<Duration>,
}

impl Chores {
    fn next(&self) -> Option<Chore> {
        let wanted = [
            (self.group, Chore::Group),
            (self.ana, Chore::Ana),
            (self.changed, Chore::ChangedNamespaces),
            (self.namespace, Chore::Namespace),
        ];
        wanted.into_iter().find_map(|(wanted, chore)| wanted.then_some(chore))
    }

    fn want(&mut self, chore: Chore, wanted: bool) {
        match chore {
            Chore::Group => self.group = wanted,
            Chore::Ana => self.ana = wanted,
            Chore::ChangedNamespaces => self.changed = wanted,
            Chore::Namespace => self.namespace = wanted,
        }
    }
}

impl<P: Port> Host<P> {
    /// A session begins.
    pub(super) fn chores_ready(&mut self) {
        self.chores = Chores { ana_at: self.context.time.after(ANA_PERIOD), ..Chores::default() };
    }

    /// What is due.
    pub(super) fn step_chores(&mut self) {
        if self.state != State::Ready {
            return;
        }
        self.step_follower_aborts();
        if self.context.options.is_discovery() {
            return;
        }
        if self.following.is_some() {
            return self.bound_inaccessible();
        }
        for (command, what) in [(Admin::Chore, "a log page or Identify"), (Admin::Abort, "an Abort")] {
            if self.late_at(command).is_some_and(|at| self.context.time.has_passed(at)) {
                return self.fail_late(what);
            }
        }
        let event = self.admin_slot(Admin::Event);
        let listens = self.limits.events != 0 && !self.chores.no_events && !self.stopping;
        if listens && !self.context.transport.commands().is_in_flight(event) {
            // Where the engine has no room, the next poll tries again.
            let _ = self.send(QueueOf::Admin, event, Command::AsynchronousEventRequest, None);
        }
        if !self.ana.is_accessible() {
            self.bound_inaccessible();
            if self.context.time.now() >= self.chores.ana_at {
                self.chores.ana = self.limits.reports_ana;
                self.chores.ana_at = self.context.time.after(ANA_PERIOD);
            }
        }
        let slot = self.admin_slot(Admin::Chore);
        // Requests that end before a shutdown may wait for the path, and for nothing else that is read here.
        let wanted = self.chores.next().filter(|chore| !self.stopping || matches!(chore, Chore::Group | Chore::Ana));
        let Some(chore) = wanted.filter(|_| !self.context.transport.commands().is_in_flight(slot)) else { return };
        let (command, data) = match chore {
            Chore::Ana => get_log_page(log_page::ANA, ANA_GROUPS_ONLY, self.ana_offset()),
            Chore::ChangedNamespaces => get_log_page(log_page::CHANGED_NAMESPACES, 0, 0),
            Chore::Group | Chore::Namespace => identify(cns::NAMESPACE, self.context.options.namespace),
        };
        if self.send(QueueOf::Admin, slot, command, data).is_ok() {
            self.chores.running = Some(chore);
            let by = self.context.time.deadline_in(self.context.options.step_timeout);
            // Of a page in several parts, one for all.
            self.chores.chore_by.get_or_insert(by);
            self.chores.want(chore, false);
        }
    }

    /// What was to be read has been, or was refused.
    pub(super) fn chore_answered(&mut self, response: &CompletionQueueEntry) {
        let success = response.status().is_success();
        match self.chores.running.take() {
            Some(Chore::Ana) if !self.take_ana(success) => return self.chores.want(Chore::Ana, true),
            Some(Chore::Namespace) if success => {
                if let Err(failure) = self.check_namespace(true) {
                    self.fail(failure);
                }
            }
            Some(Chore::Group) if success => self.take_group(),
            Some(Chore::Group | Chore::Ana | Chore::ChangedNamespaces | Chore::Namespace) | None => {}
        }
        self.chores.chore_by = None;
        self.followers.update();
    }

    /// What was to be read was not sent. It is once more, until its time is over; where the session ended, the next one begins with
    /// nothing.
    pub(super) fn chore_refused(&mut self) {
        if let Some(chore) = self.chores.running.take() {
            self.chores.want(chore, true);
        }
    }

    /// The controller answered the Asynchronous Event Request; the next poll sends another.
    pub(super) fn event_reported(&mut self, response: &CompletionQueueEntry) {
        if !response.status().is_success() {
            self.chores.no_events = true;
            return;
        }
        // Dword 0: type in bits 2:0, information in bits 15:8.
        let result = response.result.get() as u32;
        match (result & 7, result >> 8 & 0xff) {
            (NOTICE, NAMESPACE_ATTRIBUTE_CHANGED) => {
                self.statistics.namespace_events += 1;
                (self.chores.changed, self.chores.namespace) = (true, true);
            }
            (NOTICE, ANA_CHANGE) => {
                self.statistics.ana_events += 1;
                // It may be that the namespace is in another group (Base figure 149).
                (self.chores.group, self.chores.ana) = (self.limits.reports_ana, self.limits.reports_ana);
            }
            // What is to come is the end of the connections, after which the host reconnects.
            (IMMEDIATE, SUBSYSTEM_SHUTDOWN) => self.statistics.shutdown_events += 1,
            _ => self.statistics.other_events += 1,
        }
    }

    /// Bytes of admin data that are open to the controller, while the session goes on.
    #[must_use]
    pub fn admin_bytes_open(&self) -> u64 {
        let open = self.context.transport.commands().is_in_flight(self.admin_slot(Admin::Chore));
        if open { IDENTIFY_BYTES as u64 } else { 0 }
    }

    /// When a command of the admin queue that is in flight is too late.
    fn late_at(&self, command: Admin) -> Option<Duration> {
        let by = if command == Admin::Abort { self.chores.abort_by } else { self.chores.chore_by };
        by.filter(|_| self.context.transport.commands().is_in_flight(self.admin_slot(command)))
    }

    /// When it has to be polled for them although nothing arrives: by the caller's time, and in watched time.
    pub(super) fn chores_at(&self) -> (Option<Duration>, Option<Duration>) {
        if self.state != State::Ready {
            return (None, None);
        }
        let (read, path) = match self.following {
            // The other host reads; what waits here ends in time.
            Some(_) if !self.io.waits() => (None, None),
            Some(_) => {
                (None, self.ana.since.map(|since| since.saturating_add(self.context.options.inaccessible_timeout)))
            }
            None => ((!self.ana.is_accessible()).then_some(self.chores.ana_at), None),
        };
        let judged = [path, self.late_at(Admin::Chore), self.late_at(Admin::Abort)];
        (read, judged.into_iter().flatten().min())
    }
}
