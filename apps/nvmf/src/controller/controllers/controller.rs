//! A controller: what Connect makes, and what properties and keep alive act on.

use super::super::change::ChangeId;
use super::super::pending::Deadline;
use super::super::work::{FailedCommand, Part};
use super::event::Events;
use super::features::Features;
use super::namespace_set::NamespaceSet;
use super::notifications::Notifications;
use super::probe::Probe;
use crate::wire::{
    ConnectData, ControllerConfiguration, ControllerStatus, DiscoveryEntry, ErrorLogEntry, Nqn, SetFeatures,
    ShutdownNotification, ShutdownStatus, Status, log_page,
};
use arrayvec::ArrayVec;
use core::ops::RangeInclusive;
use core::time::Duration;
use frwr_engine::ConnectionId;

/// KAS counts in units of 100 ms; Keep Alive Timeouts are rounded up to 1 s.
pub(in super::super) const KEEP_ALIVE_UNITS: u16 = 10;
const KEEP_ALIVE_STEP_MS: u64 = 100 * KEEP_ALIVE_UNITS as u64;

/// How long a host of a discovery controller may be silent where it asked for no keep alive: two minutes, as the standard suggests and
/// as Linux's target has it. `nvme discover` is done in seconds; who stays to hear of changes keeps its controller alive.
const DISCOVERY_SILENCE: Duration = Duration::from_secs(120);

/// Entries of the Error Information log: what a person reads, and few enough for every controller to have its own.
pub(in super::super) const ERROR_LOG_ENTRIES: usize = 16;

/// What a controller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Purpose {
    /// To say which subsystems there are.
    Discovery,
    /// To serve the subsystem of this index.
    Io(usize),
}

/// What a host set up by Connect on its admin queue.
#[derive(Debug)]
pub(in super::super) struct Controller {
    id: u16,
    /// Its admin queue; `None` in a member's copy.
    admin: Option<ConnectionId>,
    host: Option<Nqn>,
    host_id: [u8; 16],
    purpose: Purpose,
    events: Events,
    features: Features,
    /// Counts changes of features that commands of I/O queues are executed by.
    settings_version: u32,
    /// Namespaces that became active or inactive, or have another size, since the host last read the list.
    changed: NamespaceSet,
    notifications: Notifications,
    /// The newest is the last.
    errors: ArrayVec<ErrorLogEntry, ERROR_LOG_ENTRIES>,
    error_count: u64,
    configuration: ControllerConfiguration,
    readiness: Readiness,
    fatal: bool,
    shutdown: ShutdownStatus,
    /// The commit that the shutdown waits for.
    commit: Option<u64>,
    /// The shutdown lost something.
    lost: bool,
    /// Zero for none.
    keep_alive: Duration,
    /// When a command arrived last, in watched time.
    seen: Duration,
    /// How long its core had stood still when it was made.
    stood_still: Duration,
    expired: bool,
    /// It was enabled once: its host is one.
    proven: bool,
    probe: Probe,
    /// It ends as soon as the commands of its queues have.
    drain: Option<Draining>,
}

/// Its I/O queues execute no more commands than they have.
#[derive(Clone, Copy, Debug)]
struct Draining {
    deadline: Deadline,
    /// Behind which time it is told what holds that up, from its begin on.
    within: Duration,
    /// When its host has had the time that it needs to hear of that, in watched time.
    told_at: Duration,
}

/// How CSTS.RDY follows CC.EN (Base 3.1.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    /// CC.EN and CSTS.RDY are clear.
    Disabled,
    /// Both are set: I/O queues can be connected.
    Ready,
    /// CC.EN was cleared, and storage may still have commands of the queues that this ended: CSTS.RDY is set until it has none,
    /// since one of them could undo what the host writes once it has enabled the controller again.
    Resetting,
}

/// What a change of CC asks of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum ConfigurationEffect {
    /// Nothing.
    None,
    /// The controller was reset: its I/O queues are gone (Base 3.7.2).
    Reset,
}

impl Controller {
    /// `now`: watched time, as everywhere here. `stood_still`: for how long its core has, until then. `question`: the newest one that was
    /// put to devices ([`super::former`]).
    pub(in super::super) fn new(
        id: u16,
        admin: ConnectionId,
        data: &ConnectData,
        purpose: Purpose,
        (now, stood_still): (Duration, Duration),
        question: u64,
    ) -> Self {
        Self {
            id,
            admin: Some(admin),
            host: data.host,
            host_id: data.host_id,
            purpose,
            events: Events::default(),
            features: Features::default(),
            settings_version: 0,
            changed: NamespaceSet::default(),
            notifications: Notifications::default(),
            errors: ArrayVec::new(),
            error_count: 0,
            configuration: ControllerConfiguration::default(),
            readiness: Readiness::Disabled,
            fatal: false,
            shutdown: ShutdownStatus::Normal,
            commit: None,
            lost: false,
            keep_alive: Duration::ZERO,
            seen: now,
            stood_still,
            expired: false,
            proven: false,
            probe: Probe::behind(question),
            drain: None,
        }
    }

    /// What a core that is not its home keeps of it: its I/O queues are executed by it, as it is enabled.
    pub(in super::super) fn copy(id: u16, data: &ConnectData, purpose: Purpose, now: Duration) -> Self {
        let admin = ConnectionId::default();
        let copied = Self::new(id, admin, data, purpose, (now, Duration::ZERO), 0);
        Self { admin: None, readiness: Readiness::Ready, ..copied }
    }

    pub(in super::super) fn id(&self) -> u16 {
        self.id
    }

    /// Its admin queue's connection; `None` in a member's copy.
    pub(in super::super) fn admin(&self) -> Option<ConnectionId> {
        self.admin
    }

    /// HOSTNQN.
    pub(in super::super) fn host(&self) -> Option<Nqn> {
        self.host
    }

    /// HOSTID.
    pub(in super::super) fn host_id(&self) -> [u8; 16] {
        self.host_id
    }

    pub(in super::super) fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// Event requests that wait.
    pub(in super::super) fn event_requests(&self) -> u16 {
        self.events.waiting()
    }

    pub(in super::super) fn features(&self) -> &Features {
        &self.features
    }

    /// Set Features of what commands of no other queue are executed by; true where it is the write cache that changed, which is
    /// counted as another version of the settings.
    pub(in super::super) fn set_feature(&mut self, set: &SetFeatures) -> Result<bool, Status> {
        let before = self.features.has_write_cache();
        self.features.set(set)?;
        let changed = self.features.has_write_cache() != before;
        if changed {
            self.settings_version = self.settings_version.wrapping_add(1);
        }
        Ok(changed)
    }

    /// What commands of its I/O queues are executed by on another core than this one: whether there is a write cache.
    pub(in super::super) fn follow(&mut self, write_cache: bool) {
        self.features.set_write_cache(write_cache);
    }

    /// Counts changes of features that commands of I/O queues are executed by.
    pub(in super::super) fn settings_version(&self) -> u32 {
        self.settings_version
    }

    pub(super) fn changed(&mut self) -> &mut NamespaceSet {
        &mut self.changed
    }

    /// Reservation notifications.
    pub(in super::super) fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// The same, to be changed.
    pub(in super::super) fn notifications_mut(&mut self) -> &mut Notifications {
        &mut self.notifications
    }

    /// A log page was read.
    pub(super) fn page_read(&mut self, part: &Part) {
        // It is gone whether the event is retained or not (Base 5.16.1.24). What lies behind its begin is no page of
        // its own.
        if part.page == log_page::RESERVATION_NOTIFICATION && part.offset == 0 {
            self.notifications.take();
        }
        if part.retain_event {
            return;
        }
        if part.page == log_page::CHANGED_NAMESPACES {
            self.changed.clear();
        }
        self.events.read(part.page);
    }

    /// Namespaces that changed since the host last read the list, in ascending order.
    pub(in super::super) fn changed_namespaces(&self) -> impl Iterator<Item = u32> {
        self.changed.iter()
    }

    /// Index of its subsystem; `None` for a discovery controller.
    pub(in super::super) fn subsystem(&self) -> Option<usize> {
        match self.purpose {
            Purpose::Discovery => None,
            Purpose::Io(subsystem) => Some(subsystem),
        }
    }

    /// Its host enabled it, now or before.
    pub(in super::super) fn is_proven(&self) -> bool {
        self.proven
    }

    /// It has a place that one for this purpose might have had.
    pub(in super::super) fn has_places_of(&self, purpose: Purpose) -> bool {
        (self.purpose == Purpose::Discovery) == (purpose == Purpose::Discovery)
    }

    /// Notes a failed command in the Error Information log (Base 5.16.1.2).
    pub(in super::super) fn note(&mut self, failed: &FailedCommand) {
        self.error_count += 1;
        if self.errors.is_full() {
            self.errors.remove(0);
        }
        let mut entry = ErrorLogEntry::default();
        entry.count = self.error_count.into();
        entry.queue_id = failed.queue_id.into();
        entry.command_id = failed.command_id.into();
        entry.status = failed.status.into();
        entry.parameter = ErrorLogEntry::NO_PARAMETER.into();
        entry.lba = failed.lba.into();
        entry.namespace = failed.namespace.into();
        entry.transport = DiscoveryEntry::RDMA;
        self.errors.push(entry);
    }

    /// Counts failed commands of which nothing else is known.
    pub(in super::super) fn note_skipped(&mut self, count: u64) {
        self.error_count += count;
    }

    /// Failed commands, the newest first.
    pub(in super::super) fn errors(&self) -> impl Iterator<Item = &ErrorLogEntry> {
        self.errors.iter().rev()
    }

    pub(in super::super) fn error_count(&self) -> u64 {
        self.error_count
    }

    pub(in super::super) fn keep_alive_milliseconds(&self) -> u64 {
        // It was made of 32 bits of milliseconds, rounded up.
        self.keep_alive.as_millis() as u64
    }

    pub(in super::super) fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    /// CSTS.RDY waits for commands that were there before the reset.
    pub(in super::super) fn is_resetting(&self) -> bool {
        self.readiness == Readiness::Resetting
    }

    /// Storage has no command from before the reset any more.
    pub(in super::super) fn reset_is_complete(&mut self) {
        if self.is_resetting() {
            self.readiness = Readiness::Disabled;
        }
    }

    pub(in super::super) fn configuration(&self) -> ControllerConfiguration {
        self.configuration
    }

    pub(in super::super) fn status(&self) -> ControllerStatus {
        let status = ControllerStatus::new(self.readiness != Readiness::Disabled, self.shutdown);
        if self.fatal { ControllerStatus(status.0 | ControllerStatus::FATAL_STATUS.0) } else { status }
    }

    /// Property Set of CC (Base 3.1.3.5, 3.5.3, 3.6.1).
    pub(in super::super) fn configure(&mut self, wanted: ControllerConfiguration) -> ConfigurationEffect {
        let before = core::mem::replace(&mut self.configuration, wanted);
        let mut effect = ConfigurationEffect::None;
        match (before.is_enabled(), wanted.is_enabled()) {
            (false, true) if wanted.is_supported() => {
                (self.readiness, self.fatal, self.shutdown) = (Readiness::Ready, false, ShutdownStatus::Normal);
                self.proven = true;
            }
            (false, true) => self.fatal = true,
            (true, false) => {
                (self.readiness, self.fatal, self.shutdown) = (Readiness::Resetting, false, ShutdownStatus::Normal);
                self.features = Features::default();
                self.notifications = Notifications::default();
                effect = ConfigurationEffect::Reset;
            }
            _ => {}
        }
        if effect == ConfigurationEffect::Reset {
            (self.commit, self.lost) = (None, false);
        }
        match wanted.shutdown() {
            ShutdownNotification::Normal => self.shutdown = ShutdownStatus::Occurring,
            // What is in caches may be lost.
            ShutdownNotification::Abrupt => (self.shutdown, self.commit) = (ShutdownStatus::Complete, None),
            ShutdownNotification::None | ShutdownNotification::Reserved => {}
        }
        effect
    }

    /// A normal shutdown was announced, and nothing was done for it. What failed is not tried again: a second flush says nothing
    /// of what the first one could not keep.
    pub(in super::super) fn begins_shutdown(&self) -> bool {
        self.shutdown == ShutdownStatus::Occurring && self.commit.is_none() && !self.lost
    }

    /// The shutdown is complete when that commit is, or now.
    pub(in super::super) fn await_commit(&mut self, number: Option<u64>) {
        match number {
            Some(_) => self.commit = number,
            None => self.shutdown_is_complete(),
        }
    }

    pub(in super::super) fn awaited_commit(&self) -> Option<u64> {
        self.commit
    }

    pub(in super::super) fn shutdown_is_complete(&mut self) {
        (self.shutdown, self.commit) = (ShutdownStatus::Complete, None);
    }

    /// Something could not be brought to its medium. There is no command that could say so: CSTS.CFS does, and SHST never says
    /// that the shutdown is complete, which is all that some hosts look at.
    pub(in super::super) fn shutdown_failed(&mut self) {
        (self.fatal, self.lost, self.commit) = (true, true, None);
    }

    /// Its I/O queues execute no more commands than they have, and end with those. `told_at`: when its host will have had the time that it
    /// needs to hear of that, in watched time. False where that is so already.
    pub(in super::super) fn begin_drain(
        &mut self,
        id: ChangeId,
        now: Duration,
        within: Duration,
        told_at: Duration,
    ) -> bool {
        let begins = self.drain.is_none();
        self.drain.get_or_insert_with(|| Draining { deadline: Deadline::new(id, now, within), within, told_at });
        begins
    }

    /// It drains, and its host has had the time that it needs to hear of that. `watched`: watched time.
    pub(in super::super) fn has_told_of_drain(&self, watched: Duration) -> bool {
        self.drain.is_some_and(|drain| watched >= drain.told_at)
    }

    /// It ends as soon as its commands have: by which change, and how long that may take.
    pub(in super::super) fn drains(&self) -> Option<(ChangeId, Duration)> {
        self.drain.map(|drain| (drain.deadline.id, drain.within))
    }

    /// That takes longer than it may: by which change. Told once.
    pub(in super::super) fn drains_for_long(&mut self, now: Duration) -> Option<ChangeId> {
        let deadline = self.drain.as_mut().map(|drain| &mut drain.deadline).filter(|deadline| deadline.is_over(now))?;
        deadline.is_told();
        Some(deadline.id)
    }

    /// A command arrived on any of its queues.
    pub(in super::super) fn touch(&mut self, now: Duration) {
        self.seen = now;
    }

    /// When the last one did.
    pub(in super::super) fn seen(&self) -> Duration {
        self.seen
    }

    /// KATO; 0 switches keep alive off.
    pub(in super::super) fn set_keep_alive(&mut self, milliseconds: u32) {
        self.keep_alive = Duration::from_millis(u64::from(milliseconds).next_multiple_of(KEEP_ALIVE_STEP_MS));
    }

    /// How long nothing need be heard of the host; zero for ever. A host that asks for no keep alive of a discovery controller would
    /// otherwise keep its place for ever, once it is gone without a word.
    pub(in super::super) fn silence_limit(&self) -> Duration {
        if self.keep_alive.is_zero() && self.purpose == Purpose::Discovery {
            DISCOVERY_SILENCE
        } else {
            self.keep_alive
        }
    }

    /// Nothing bounds its host's silence but that there is a host ([`super::silence`]).
    pub(in super::super) fn may_be_silent(&self) -> bool {
        !self.expired && self.silence_limit().is_zero()
    }

    /// Its host was silent for so long, and is not being asked already.
    pub(in super::super) fn wants_probe(&self, now: Duration, silence: Duration) -> bool {
        !self.probe.is_under_way() && now.saturating_sub(self.seen) >= silence
    }

    pub(super) fn probe(&mut self) -> &mut Probe {
        &mut self.probe
    }

    /// The host's device has answered. Of a host that has a Keep Alive Timeout that is no sign: its software may hang.
    pub(in super::super) fn answered_probe(&mut self, now: Duration) {
        self.probe.answer();
        if self.silence_limit().is_zero() {
            self.touch(now);
        }
    }

    /// Its host's device was asked whether this session lives, and has not said so for too long.
    pub(super) fn leaves_question_open(&self, now: Duration) -> bool {
        !self.expired && self.probe.is_left_open(now)
    }

    /// Neither the host nor its device said anything for so long behind the probe.
    pub(in super::super) fn leaves_probe_unanswered(&self, now: Duration, limit: Duration) -> bool {
        self.probe.sent().is_some_and(|at| self.seen <= at && now.saturating_sub(at) >= limit)
    }

    /// How long its core had stood still when it was made.
    pub(super) fn stood_still(&self) -> Duration {
        self.stood_still
    }

    /// It ends by that. Once is enough to be told: it may take a while.
    pub(in super::super) fn expire(&mut self) {
        self.expired = true;
    }

    /// Nothing was heard of the host for so long (Base 3.9).
    pub(in super::super) fn is_expired(&self, now: Duration) -> bool {
        let limit = self.silence_limit();
        !self.expired && !limit.is_zero() && now.saturating_sub(self.seen) > limit
    }
}

/// The next controller identifier: none is used again before all others were.
#[derive(Debug)]
pub(in super::super) struct Identifiers {
    first: u16,
    last: u16,
    latest: u16,
}

impl Identifiers {
    /// Those of a target, of which it has more than controllers.
    pub(in super::super) fn of(own: RangeInclusive<u16>) -> Self {
        let (first, last) = own.into_inner();
        // The next one is the first.
        Self { first, last, latest: last }
    }

    pub(in super::super) fn next(&mut self, is_used: impl Fn(u16) -> bool) -> u16 {
        loop {
            self.latest = if self.latest >= self.last { self.first } else { self.latest + 1 };
            // There are far fewer controllers than identifiers.
            if !is_used(self.latest) {
                return self.latest;
            }
        }
    }
}
