//! Commands that storages still have of sessions that are over, and who has to wait for them.
//!
//! A disk that hangs may keep them for ever. They keep the place in the table of controllers that their controller had, so that they are
//! no more than what its queues could have in flight: whoever brings a queue, or a session, back again and again beside such a disk
//! uses up what is its own. Who waits for them is who could be harmed by them, and nobody else.

use super::commands::Commands;
use super::controllers::{Controllers, Purpose};
use super::refusal::Refusal;
use super::session::{Queue, Sessions};
use super::spread::Spread;
use crate::wire::{ConnectData, Nqn};
use frwr_engine::ConnectionId;
use frwr_mempool::mutant;

/// A place in the table of controllers, as the sessions that had it left it.
#[derive(Debug, Default)]
struct Place {
    /// Whose controller it is, or was last; only the home core knows.
    owner: Option<Owner>,
    /// Commands of its queues that this core's storages have, and whose connections are gone.
    orphans: u32,
}

/// HOSTID of a host that says not who it is (Base 5.27.1.25).
const NO_IDENTIFIER: [u8; 16] = [0; 16];

/// A host, and what it is connected to.
#[derive(Clone, Copy, Debug)]
struct Owner {
    host: Option<Nqn>,
    host_id: [u8; 16],
    purpose: Purpose,
}

impl Owner {
    /// Hosts go by their names, and by their identifiers: who shares either is held to be the same. Those without a name share none, and
    /// an identifier of zeros is one only where there is no name either, as nothing else tells such hosts apart.
    fn is(&self, data: &ConnectData, purpose: Purpose) -> bool {
        let is_identified = data.host_id != NO_IDENTIFIER || self.host.is_none() && data.host.is_none();
        let same_name = self.host.is_some() && self.host == data.host;
        self.purpose == purpose && (same_name || is_identified && self.host_id == data.host_id)
    }
}

/// What storages still have of sessions that are over, by places in the table of controllers.
#[derive(Debug)]
pub(super) struct Late {
    places: Vec<Place>,
    /// Commands of all ended connections that this core's storages have.
    orphans: u32,
}

/// Where late commands may be: lent for one question.
#[derive(Clone, Copy)]
pub(super) struct Whereabouts<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) commands: &'a Commands,
    pub(super) spread: &'a Spread,
}

impl Late {
    pub(super) fn new(places: u16) -> Self {
        Self { places: (0..places).map(|_| Place::default()).collect(), orphans: 0 }
    }

    /// Commands of ended connections that this core's storages have.
    pub(super) fn orphans(&self) -> u32 {
        self.orphans
    }

    /// A host gets a controller in a place.
    pub(super) fn own_place(&mut self, place: usize, data: &ConnectData, purpose: Purpose) {
        if let Some(found) = self.places.get_mut(place) {
            found.owner = Some(Owner { host: data.host, host_id: data.host_id, purpose });
        }
    }

    /// A connection is gone: what the storages still have of it belongs to the place of its controller from now on.
    pub(super) fn leave_orphans(&mut self, connection: ConnectionId, place: Option<usize>, commands: &mut Commands) {
        let orphans = commands.orphan(connection, place);
        self.orphans += orphans;
        if let Some(found) = place.and_then(|place| self.places.get_mut(place)) {
            found.orphans += orphans;
        }
    }

    /// A storage has done a command whose connection is gone, and which belongs to this place.
    #[cold]
    pub(super) fn orphan_is_done(&mut self, place: Option<usize>) {
        self.orphans = self.orphans.saturating_sub(1);
        if let Some(found) = place.and_then(|place| self.places.get_mut(place))
            && !mutant!(S10_target_orphan)
        {
            found.orphans = found.orphans.saturating_sub(1);
        }
    }

    /// Commands that this core's storages have of connections that are gone, by the place of their controller.
    pub(super) fn orphans_of(&self, place: usize) -> u32 {
        self.places.get(place).map_or(0, |place| place.orphans)
    }

    /// A storage has commands of ended queues of this place, here or on a member, or may have.
    pub(super) fn has_late_commands(&self, place: usize, of: Whereabouts<'_>) -> bool {
        // Mutant: commands of queues that still end, or of those that have, or of other cores, are not waited for.
        let has_orphans = self.orphans_of(place) > 0 && !mutant!(target_late_orphans);
        let has_members = !of.spread.is_quiet(place) && !mutant!(target_late_members);
        has_orphans || has_members || (of.is_storing_for(place) && !mutant!(target_late_ending))
    }

    /// Where the storages have, or may have, commands of a session that is over of the same host with the same subsystem: a write
    /// among them could undo what the host writes in its next session.
    pub(super) fn late_place(&self, data: &ConnectData, purpose: Purpose, of: Whereabouts<'_>) -> Option<usize> {
        let mut owned = (0..self.places.len()).filter(|place| self.is_owned(*place, data, purpose));
        owned.find(|place| self.has_late_commands(*place, of))
    }

    /// The name of the host whose controller has a place, or had it last; only the home core knows.
    pub(super) fn host_of(&self, place: usize) -> Option<Nqn> {
        self.places.get(place)?.owner?.host
    }

    /// A host has a controller for this already, which may be a former one that it left.
    pub(super) fn comes_back(&self, data: &ConnectData, purpose: Purpose, controllers: &Controllers) -> bool {
        controllers.iter().any(|(place, _)| self.is_owned(place, data, purpose))
    }

    /// A place is that host's for this, or was so last.
    pub(super) fn is_owned(&self, place: usize, data: &ConnectData, purpose: Purpose) -> bool {
        let owner = self.places.get(place).and_then(|place| place.owner);
        owner.is_some_and(|owner| owner.is(data, purpose))
    }

    /// A controller gets no new queue on a core whose storages have commands of one that is gone: each round would leave more of
    /// them, until other hosts found no slots.
    pub(super) fn refuse_beside_orphans(&self, place: usize) -> Result<(), Refusal> {
        match self.orphans_of(place) {
            0 => Ok(()),
            commands => Err(Refusal::Orphans { commands }),
        }
    }

    /// There are slots for all commands of another connection, whatever becomes of those that there are: of a queue that ends
    /// all commands may stay with a storage. A connection that no Connect made a queue, and queues that many controllers had here in turn,
    /// are all that this ever refuses. `most`: commands that there may be.
    pub(super) fn has_room_for(&self, entries: u16, sessions: &Sessions, most: u32) -> bool {
        let open: u32 = sessions.iter().map(|queue| u32::from(queue.asked_entries())).sum();
        self.orphans == 0 || self.orphans + open + u32::from(entries) <= most
    }
}

impl Whereabouts<'_> {
    /// The storages have commands of queues that ended with the controller of a place, or before it, and whose connections still
    /// end. Looks at every slot.
    fn is_storing_for(self, place: usize) -> bool {
        let ending = |queue: &Queue| queue.ended_with() == Some(place);
        if !self.sessions.iter().any(ending) {
            return false;
        }
        self.commands.has_storing(|connection| self.sessions.get(connection).is_some_and(ending))
    }
}
