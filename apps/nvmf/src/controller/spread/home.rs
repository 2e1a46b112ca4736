//! The home core: it judges Connects that arrived on members, and tells members what becomes of controllers.

use super::super::Target;
use super::super::command::{Phase, Reply, Work};
use super::super::event::Notice;
use super::super::io::Step;
use super::super::options::TargetOptions;
use super::super::refusal::Refusal;
use super::{Claim, ControllerName, Counters, Settings, Spread, ToHome, ToMember};
use crate::storage::Storage;
use crate::wire::{Abort, Status};
use frwr_engine::provider::Port;
use std::collections::VecDeque;

/// Aborts of one controller that one member has been asked for at a time (ACL, Base figure 275).
pub(in super::super) const MAX_ABORTS: u8 = 4;

/// A member as the home core knows it.
#[derive(Debug)]
pub(in super::super) struct Peer {
    /// Answers, ends and Aborts in order. Bounded: each of the member's connections waits for at most one answer, each end
    /// follows an answer or is the first of its place, and Aborts are limited.
    outbox: VecDeque<ToMember>,
    /// I/O queues by the member's connections.
    guests: Vec<Option<Guest>>,
    /// By place in the table of controllers.
    places: Vec<Place>,
    counters: Counters,
    /// Settings or states have changed that the member was not told.
    stale: bool,
}

/// An I/O queue on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Guest {
    pub(in super::super) place: usize,
    pub(in super::super) queue_id: u16,
}

/// A place in the table of controllers, and what a member has to do with it.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// It may have queues of the controller.
    admitted: bool,
    /// `EndQueues` that it has not answered.
    ends_owed: u32,
    /// The last version of the settings that it was told, and that it has applied.
    told: u32,
    applied: u32,
    aborts: u8,
}

impl Place {
    /// Commands of the controller may be executed there by settings older than this version.
    fn is_behind(&self, version: u32) -> bool {
        self.admitted && is_older(self.applied, version)
    }
}

/// Versions wrap around.
fn is_older(version: u32, than: u32) -> bool {
    version.wrapping_sub(than) > u32::MAX / 2
}

impl Peer {
    /// `member`: the options of that core.
    pub(super) fn new(member: &TargetOptions) -> Self {
        let (seats, places) = (usize::from(member.connections()), usize::from(member.places()));
        let bound = 2 * seats + (1 + usize::from(MAX_ABORTS)) * places;
        Self {
            outbox: VecDeque::with_capacity(bound),
            guests: vec![None; seats],
            places: vec![Place::default(); places],
            counters: Counters::default(),
            stale: false,
        }
    }

    pub(in super::super) fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.guests.iter().flatten()
    }

    pub(in super::super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Nothing of the controller that had this place before is left on the member.
    pub(in super::super) fn is_quiet(&self, place: usize) -> bool {
        self.places.get(place).is_none_or(|place| place.ends_owed == 0)
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    pub(super) fn next_to_member(&mut self) -> Option<(u16, ToMember)> {
        for at in 0..self.spread.peers().len() {
            // Fewer than MAX_CORES.
            let core = at as u16 + 1;
            let peer = self.spread.peers_mut().get_mut(at)?;
            if let Some(message) = peer.outbox.pop_front() {
                return Some((core, message));
            }
            if peer.stale {
                match self.untold(at) {
                    Some(message) => return Some((core, message)),
                    None => self.spread.peers_mut().get_mut(at)?.stale = false,
                }
            }
        }
        None
    }

    /// A state that a member was not told.
    fn untold(&mut self, member: usize) -> Option<ToMember> {
        let peer = self.spread.peers_mut().get_mut(member)?;
        for (place, (known, controller)) in peer.places.iter_mut().zip(&self.controllers).enumerate() {
            let Some(controller) = controller else { continue };
            if known.admitted && known.told != controller.settings_version {
                known.told = controller.settings_version;
                // There are at most 4096 controllers.
                let name = ControllerName { place: place as u16, id: controller.id };
                let (write_cache, version) = (controller.features.write_cache, controller.settings_version);
                return Some(ToMember::Settings { name, settings: Settings { write_cache, version } });
            }
        }
        let bit = 1 << member;
        for (subsystem, served) in self.subsystems.iter_mut().enumerate() {
            if served.untold & bit != 0 {
                served.untold &= !bit;
                return Some(ToMember::AnaState { subsystem, state: served.ana });
            }
        }
        let found = self.namespaces.iter_mut().enumerate().find(|(_, namespace)| namespace.untold & bit != 0);
        let (namespace, found) = found?;
        found.untold &= !bit;
        Some(ToMember::NamespaceActive { namespace, active: found.active })
    }

    /// Something changed that members have to know; what, is noted where it lies.
    pub(in super::super) fn tell_members(&mut self) {
        for peer in self.spread.peers_mut() {
            peer.stale = true;
        }
    }

    pub(super) fn deliver_to_home(&mut self, member: usize, message: ToHome) {
        match message {
            ToHome::Judge { seat, claim } => self.judge(member, seat, &claim),
            ToHome::QueueEnded { seat } => {
                if let Some(guest) = self.guest_mut(member, seat) {
                    *guest = None;
                }
            }
            ToHome::Failed { name, failed, skipped } => {
                if let Some(controller) = self.controller_named(name) {
                    controller.note_skipped(skipped);
                    controller.note(&failed);
                }
            }
            ToHome::Heard { name } => {
                let now = self.watched;
                if let Some(controller) = self.controller_named(name) {
                    controller.touch(now);
                }
            }
            ToHome::Counted(counters) => {
                if let Some(peer) = self.spread.peers_mut().get_mut(member) {
                    peer.counters = counters;
                }
            }
            ToHome::SettingsApplied { place, version } => {
                // It may be about queues that were reset since: then those that there are now began with a newer version.
                if let Some(known) = self.place_mut(member, place.into())
                    && is_older(known.applied, version)
                {
                    known.applied = version;
                }
            }
            ToHome::QueuesEnded { place, count } => {
                if let Some(known) = self.place_mut(member, place.into()) {
                    known.ends_owed = known.ends_owed.saturating_sub(count);
                }
            }
            ToHome::Aborted { cookie, place, aborted } => self.aborted_elsewhere(member, cookie, place.into(), aborted),
        }
    }

    fn guest_mut(&mut self, member: usize, seat: u16) -> Option<&mut Option<Guest>> {
        self.spread.peers_mut().get_mut(member)?.guests.get_mut(usize::from(seat))
    }

    fn place_mut(&mut self, member: usize, place: usize) -> Option<&mut Place> {
        self.spread.peers_mut().get_mut(member)?.places.get_mut(place)
    }

    /// What a member says may be about a controller that is gone.
    fn controller_named(&mut self, name: ControllerName) -> Option<&mut super::super::Controller> {
        let found = self.controllers.get_mut(usize::from(name.place))?.as_mut()?;
        (found.id == name.id).then_some(found)
    }

    /// A Connect that arrived on a member.
    fn judge(&mut self, member: usize, seat: u16, claim: &Claim) {
        let refused = |refusal| ToMember::Refused { seat, refusal };
        let answer = self.find_controller(claim).map_or_else(refused, |place| {
            let admitted = self.admit(member, seat, Guest { place, queue_id: claim.queue_id });
            admitted.unwrap_or(refused(Refusal::Internal))
        });
        if let Some(peer) = self.spread.peers_mut().get_mut(member) {
            peer.outbox.push_back(answer);
        }
    }

    fn admit(&mut self, member: usize, seat: u16, guest: Guest) -> Option<ToMember> {
        let controller = self.controllers.get(guest.place)?.as_ref()?;
        let (id, version, write_cache) = (controller.id, controller.settings_version, controller.features.write_cache);
        *self.guest_mut(member, seat)? = Some(guest);
        let known = self.place_mut(member, guest.place)?;
        // Queues that it has already go by what they were told, until its answer to that comes.
        if !known.admitted {
            (known.admitted, known.told, known.applied) = (true, version, version);
        }
        // There are at most 4096 controllers.
        let name = ControllerName { place: guest.place as u16, id };
        Some(ToMember::Admitted { seat, name, settings: Settings { write_cache, version } })
    }

    /// A controller has ended or was reset: so have its queues on members.
    pub(in super::super) fn end_queues_on_members(&mut self, place: usize) {
        let Some(Some(controller)) = self.controllers.get(place) else { return };
        let name = ControllerName { place: place as u16, id: controller.id };
        for peer in self.spread.peers_mut() {
            let Some(known) = peer.places.get_mut(place).filter(|known| known.admitted) else { continue };
            known.admitted = false;
            known.ends_owed += 1;
            for guest in peer.guests.iter_mut().filter(|guest| guest.is_some_and(|guest| guest.place == place)) {
                *guest = None;
            }
            peer.outbox.push_back(ToMember::EndQueues { name });
        }
    }

    /// Features of a controller have changed.
    pub(in super::super) fn settings_changed(&mut self, place: usize) {
        if let Some(Some(controller)) = self.controllers.get_mut(place) {
            controller.settings_version = controller.settings_version.wrapping_add(1);
            self.tell_members();
        }
    }

    /// What remains to be done before a host may rely on the features that it set; `None` where all cores go by them, which
    /// need not be so where it set what was set before.
    pub(in super::super) fn spread_settings(&self, place: usize) -> Option<Work> {
        let version = self.controllers.get(place)?.as_ref()?.settings_version;
        self.is_any_behind(place, version).then_some(Work::SettingsEverywhere { controller: place, version })
    }

    /// A host may rely on a feature once all cores go by it. Every poll looks again, so that no answer of a member leads to a
    /// search for the commands that wait for it.
    pub(in super::super) fn step_settings(&mut self, index: u32, place: usize, version: u32) -> Step {
        let waits = self.is_any_behind(place, version);
        if waits { Step::Stall } else { self.go(index, Phase::Reply(Reply::result(0))) }
    }

    fn is_any_behind(&self, place: usize, version: u32) -> bool {
        let mut known = self.spread.peers().iter().filter_map(|peer| peer.places.get(place));
        known.any(|known| known.is_behind(version))
    }

    /// The member that has a queue of a controller.
    pub(in super::super) fn member_of(&self, place: usize, queue_id: u16) -> Option<usize> {
        let named = |guest: &Guest| guest.place == place && guest.queue_id == queue_id;
        self.spread.peers().iter().position(|peer| peer.guests().any(named))
    }

    /// Asks the member that has the queue to abort a command.
    pub(in super::super) fn step_abort(&mut self, index: u32, controller: usize, abort: Abort) -> Step {
        let Abort { queue_id, command_id } = abort;
        let cookie = self.slots.cookie(index);
        // It had the queue when the command arrived.
        let Some(member) = self.member_of(controller, queue_id) else {
            return self.go(index, Phase::Reply(super::super::admin::not_aborted()));
        };
        let Some(known) = self.place_mut(member, controller) else { return Step::Drop };
        if known.aborts >= MAX_ABORTS {
            return self.go(index, Phase::Reply(Reply::of(Status::ABORT_COMMAND_LIMIT_EXCEEDED)));
        }
        known.aborts += 1;
        if let Some(peer) = self.spread.peers_mut().get_mut(member) {
            // There are at most 4096 controllers.
            peer.outbox.push_back(ToMember::Abort { cookie, place: controller as u16, queue_id, command_id });
        }
        self.set_phase(index, Phase::Elsewhere);
        Step::Pending
    }

    fn aborted_elsewhere(&mut self, member: usize, cookie: u64, place: usize, aborted: bool) {
        if let Some(known) = self.place_mut(member, place) {
            known.aborts = known.aborts.saturating_sub(1);
        }
        let Some(index) = self.slots.index_of(cookie) else { return };
        let reply = if aborted { Reply::result(0) } else { super::super::admin::not_aborted() };
        self.set_phase(index, Phase::Reply(reply));
        self.advance(index);
    }

    /// A state of a subsystem changed, and its hosts are told; members first, so that they act by it.
    pub(in super::super) fn raise_everywhere(&mut self, subsystem: usize, notice: Notice) {
        self.tell_members();
        self.raise(subsystem, notice);
    }

    /// What all cores have done for hosts.
    pub(in super::super) fn counted(&self) -> Counters {
        let mut sum = self.own_counters();
        for peer in self.spread.peers() {
            sum += peer.counters();
        }
        sum
    }

    pub(super) fn own_counters(&self) -> Counters {
        let statistics = &self.statistics;
        Counters {
            reads: statistics.reads,
            compares: statistics.compares,
            writes: statistics.writes,
            bytes_read: statistics.bytes_read,
            bytes_written: statistics.bytes_written,
            media_errors: statistics.media_errors,
        }
    }

    /// The bit of each member, to be noted where something changed that they have to be told.
    pub(in super::super) fn all_members(&self) -> u64 {
        Spread::all_members(&self.spread)
    }
}
