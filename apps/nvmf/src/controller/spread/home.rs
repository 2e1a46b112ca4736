//! What the home core knows of its members, and has to tell them.

use super::super::controllers::Controllers;
use super::super::media::Counters;
use super::super::options::TargetOptions;
use super::super::refusal::Refusal;
use super::super::subsystem::Subsystems;
use super::super::work::MAX_ABORTS;
use super::message::{ControllerName, Order, Settings, ToMember};
use crate::wire::Abort;
use std::collections::VecDeque;

/// A member as the home core knows it.
#[derive(Debug)]
struct Peer {
    /// Answers, ends and Aborts in order. Bounded: each of the member's connections waits for at most one answer, each end
    /// follows an answer or is the first of its place, Aborts are limited, and there is one change at a time.
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
    /// It was told that the controller drains.
    drains: bool,
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
    fn new(member: &TargetOptions) -> Self {
        let (seats, places) = (usize::from(member.connections()), usize::from(member.places()));
        let bound = 2 * seats + (1 + usize::from(MAX_ABORTS)) * places + 1;
        Self {
            outbox: VecDeque::with_capacity(bound),
            guests: vec![None; seats],
            places: vec![Place::default(); places],
            counters: Counters::default(),
            stale: false,
        }
    }

    fn guests(&self) -> impl Iterator<Item = &Guest> {
        self.guests.iter().flatten()
    }

    /// A state that it was not told.
    fn untold(&mut self, bit: u64, controllers: &Controllers, subsystems: &mut Subsystems) -> Option<ToMember> {
        for (place, controller) in controllers.iter() {
            let Some(known) = self.places.get_mut(place) else { continue };
            let (version, write_cache) = (controller.settings_version(), controller.features().has_write_cache());
            if let Some((id, within)) = controller.drains().filter(|_| known.admitted && !known.drains) {
                known.drains = true;
                return Some(ToMember::Drain { name: ControllerName::new(place, controller.id()), id, within });
            }
            if known.admitted && known.told != version {
                known.told = version;
                let name = ControllerName::new(place, controller.id());
                return Some(ToMember::Settings { name, settings: Settings { write_cache, version } });
            }
        }
        subsystems.next_untold(bit).map(ToMember::State)
    }
}

/// The members of a home core, of which there may be none. A member's number is that of its core less one.
#[derive(Debug)]
pub(in super::super) struct Home {
    peers: Vec<Peer>,
}

impl Home {
    pub(super) fn new(options: &TargetOptions) -> Self {
        Self { peers: (1..options.cores).map(|core| Peer::new(&options.on_core(core))).collect() }
    }

    pub(in super::super) fn members(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn all_members(&self) -> u64 {
        // At most MAX_CORES - 1 of them.
        (1 << self.peers.len()) - 1
    }

    pub(super) fn tell_members(&mut self) {
        for peer in &mut self.peers {
            peer.stale = true;
        }
    }

    pub(super) fn is_quiet(&self, place: usize) -> bool {
        self.peers.iter().all(|peer| peer.places.get(place).is_none_or(|place| place.ends_owed == 0))
    }

    pub(super) fn has_queues(&self, place: usize) -> bool {
        self.peers.iter().any(|peer| peer.guests().any(|guest| guest.place == place))
    }

    pub(super) fn member_of(&self, place: usize, queue_id: u16) -> Option<usize> {
        let named = |guest: &Guest| guest.place == place && guest.queue_id == queue_id;
        self.peers.iter().position(|peer| peer.guests().any(named))
    }

    pub(super) fn is_any_behind(&self, place: usize, version: u32) -> bool {
        self.peers.iter().filter_map(|peer| peer.places.get(place)).any(|known| known.is_behind(version))
    }

    pub(super) fn end_queues(&mut self, name: ControllerName) {
        let place = usize::from(name.place);
        for peer in &mut self.peers {
            let Some(known) = peer.places.get_mut(place).filter(|known| known.admitted) else { continue };
            known.admitted = false;
            known.ends_owed += 1;
            for guest in peer.guests.iter_mut().filter(|guest| guest.is_some_and(|guest| guest.place == place)) {
                *guest = None;
            }
            peer.outbox.push_back(ToMember::EndQueues { name });
        }
    }

    pub(super) fn counted(&self, own: Counters) -> Counters {
        let mut sum = own;
        for peer in &self.peers {
            sum += peer.counters;
        }
        sum
    }

    /// The next message, and the core that it is for.
    pub(in super::super) fn next_message(
        &mut self,
        controllers: &Controllers,
        subsystems: &mut Subsystems,
    ) -> Option<(u16, ToMember)> {
        for (at, peer) in self.peers.iter_mut().enumerate() {
            // Fewer than MAX_CORES.
            let core = at as u16 + 1;
            if let Some(message) = peer.outbox.pop_front() {
                return Some((core, message));
            }
            if peer.stale {
                match peer.untold(1 << at, controllers, subsystems) {
                    Some(message) => return Some((core, message)),
                    None => peer.stale = false,
                }
            }
        }
        None
    }

    /// A member's connection is a queue of the controller from now on.
    pub(in super::super) fn admit(
        &mut self,
        member: usize,
        seat: u16,
        guest: Guest,
        controllers: &Controllers,
    ) -> Result<(), Refusal> {
        let controller = controllers.get(guest.place).ok_or(Refusal::Internal)?;
        let (version, write_cache) = (controller.settings_version(), controller.features().has_write_cache());
        let peer = self.peers.get_mut(member).ok_or(Refusal::Internal)?;
        *peer.guests.get_mut(usize::from(seat)).ok_or(Refusal::Internal)? = Some(guest);
        let known = peer.places.get_mut(guest.place).ok_or(Refusal::Internal)?;
        // Queues that it has already go by what they were told, until its answer to that comes.
        if !known.admitted {
            (known.admitted, known.told, known.applied, known.drains) = (true, version, version, false);
        }
        let name = ControllerName::new(guest.place, controller.id());
        peer.outbox.push_back(ToMember::Admitted { seat, name, settings: Settings { write_cache, version } });
        Ok(())
    }

    /// A member's connection may not become a queue.
    pub(in super::super) fn refuse(&mut self, member: usize, seat: u16, refusal: Refusal) {
        if let Some(peer) = self.peers.get_mut(member) {
            peer.outbox.push_back(ToMember::Refused { seat, refusal });
        }
    }

    /// A queue that was admitted is gone.
    pub(in super::super) fn queue_ended(&mut self, member: usize, seat: u16) {
        let peer = self.peers.get_mut(member);
        if let Some(guest) = peer.and_then(|peer| peer.guests.get_mut(usize::from(seat))) {
            *guest = None;
        }
    }

    /// All that a member has counted.
    pub(in super::super) fn count(&mut self, member: usize, counters: Counters) {
        if let Some(peer) = self.peers.get_mut(member) {
            peer.counters = counters;
        }
    }

    /// A member's commands are executed by these settings.
    pub(in super::super) fn settings_applied(&mut self, member: usize, place: usize, version: u32) {
        // It may be about queues that were reset since: then those that there are now began with a newer version.
        if let Some(known) = self.place_mut(member, place)
            && is_older(known.applied, version)
        {
            known.applied = version;
        }
    }

    /// A member has done so many `EndQueues`.
    pub(in super::super) fn queues_ended(&mut self, member: usize, place: usize, count: u32) {
        if let Some(known) = self.place_mut(member, place) {
            known.ends_owed = known.ends_owed.saturating_sub(count);
        }
    }

    /// Tells all members of a change.
    pub(in super::super) fn order(&mut self, order: Order) {
        for peer in &mut self.peers {
            peer.outbox.push_back(ToMember::Order(order));
        }
    }

    /// Asks a member to abort a command. False where it was asked for as many of the controller's as may be.
    pub(in super::super) fn ask_abort(&mut self, member: usize, place: usize, cookie: u64, abort: Abort) -> bool {
        let Some(known) = self.place_mut(member, place).filter(|known| known.aborts < MAX_ABORTS) else { return false };
        known.aborts += 1;
        let Abort { queue_id, command_id } = abort;
        if let Some(peer) = self.peers.get_mut(member) {
            // There are at most 4096 controllers.
            peer.outbox.push_back(ToMember::Abort { cookie, place: place as u16, queue_id, command_id });
        }
        true
    }

    /// A member has answered an Abort.
    pub(in super::super) fn abort_answered(&mut self, member: usize, place: usize) {
        if let Some(known) = self.place_mut(member, place) {
            known.aborts = known.aborts.saturating_sub(1);
        }
    }

    fn place_mut(&mut self, member: usize, place: usize) -> Option<&mut Place> {
        self.peers.get_mut(member)?.places.get_mut(place)
    }
}
