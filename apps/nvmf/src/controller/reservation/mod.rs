//! Reservations (Base 7.2 to 7.5, 8.19) of a target's namespaces: which hosts may read and write each.
//!
//! Who may do what is a table ([`rules`]); what commands do to the registrations of one namespace are functions of a plain value
//! ([`state`]). All cores of all targets of a process share one book of these ([`book`]), since a host that is shut out has to be so
//! everywhere at once: its lock is taken for moments by commands that change something, and a core that does not get it tries again.
//! What every other command looks at is one word of its namespace ([`published`]). Hosts are told of what others do
//! ([`news`]). What survives a loss of power is in a file ([`store`], [`medium`], [`text`]).

pub(super) mod book;
mod entry;
mod error;
mod medium;
mod news;
mod published;
mod rules;
pub(super) mod state;
mod store;
mod text;

use super::Target;
use super::commands::Step;
use super::media::Media;
use super::subsystem::{Namespaces, Served};
use super::work::{Phase, Reply, Work, refused};
use crate::storage::Storage;
use crate::wire::{
    AcquireAction, BROADCAST_NAMESPACE, RELEASE_KEY_BYTES, RESERVATION_KEYS_BYTES, RegisteredControllerExtended,
    ReservationKeys, Status,
};
use book::Report;
pub use book::Reservations;
pub(super) use book::{Order, Reservation, Seat, Settling};
use entry::Key;
pub use error::ReservationFileError;
use frwr_engine::provider::Port;
pub use medium::ReservationMedium;
use news::News;
pub(super) use rules::Access;
pub use state::MAX_REGISTRANTS;
pub(super) use state::Request;
pub use store::ReservationWriter;
use zerocopy::{FromZeros, IntoBytes};

impl Request {
    /// Bytes of keys that the host sends with it.
    pub(super) fn data_bytes(self) -> u32 {
        if matches!(self, Self::Release { .. }) { RELEASE_KEY_BYTES } else { RESERVATION_KEYS_BYTES }
    }

    /// Commands of the hosts that it unregisters end before it does.
    fn aborts(self) -> bool {
        matches!(self, Self::Acquire { action: AcquireAction::PreemptAndAbort, .. })
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Its namespaces have reservations from now on, but for those whose storage others may serve, too
    /// ([`Features::shared`](crate::storage::Features::shared)): these could not be kept for them. Every core, and every target that
    /// serves the same namespaces, has to be given the same ones, before hosts come; without, commands of reservations are Invalid
    /// Opcode.
    pub fn reserve_by(&mut self, reservations: &Reservations) {
        let seat = Seat::new(reservations);
        for (_, served) in self.subsystems.all() {
            for identifier in served.namespaces().identifiers() {
                let Ok(place) = served.namespaces().listed(identifier) else { continue };
                self.media.reserve(place, || seat.open(key(served, served.namespaces(), identifier)));
            }
        }
        self.media.has_reservations(seat.can_persist());
        self.reservations = Some(seat);
    }

    /// A namespace has come, whose storage is in that place.
    pub(super) fn reserve_new(&mut self, subsystem: usize, identifier: u32, nguid: [u8; 16], place: usize) {
        let (Some(seat), Some(served)) = (&self.reservations, self.subsystems.get(subsystem)) else { return };
        let key = Key { subsystem: *served.name(), identifier, nguid };
        self.media.reserve(place, || seat.open(key));
    }

    /// A command's keys are there, or somebody looked into the book: what it asks for is done, unless somebody does again.
    pub(super) fn step_reserve(&mut self, index: u32, namespace: usize, request: Request) -> Step {
        let Some(slot) = self.commands.get(index) else { return Step::Drop };
        // What waited longer than its connection lived is not done any more.
        let Some((_, controller)) = self.controller_of(slot) else { return Step::Drop };
        let (Some(buffer), Some(seat), Some(reservation)) =
            (slot.buffer(), &self.reservations, self.media.reservation(namespace))
        else {
            return self.commands.go(index, Phase::Reply(refused(Status::INTERNAL_ERROR)));
        };
        let mut keys = ReservationKeys::new_zeroed();
        let bytes = &mut keys.as_mut_bytes()[..request.data_bytes() as usize];
        if self.pool.buffers().read(buffer, 0, bytes).is_err() {
            return self.commands.go(index, Phase::Reply(refused(Status::INTERNAL_ERROR)));
        }
        let keys = (keys.current.get(), keys.other.get());
        match seat.apply(reservation, &controller.host_id(), request, keys, request.aborts()) {
            None => Step::Stall,
            Some(Err(status)) => self.commands.go(index, Phase::Reply(Reply::of(status))),
            Some(Ok(settling)) => {
                self.commands.becomes(index, Work::ReservationSettles { namespace: Some(namespace), settling });
                self.step_settle(index, settling)
            }
        }
    }

    /// Reservation Persistence (Base 5.27.1.27) of a namespace, or of all, is set, or asked of one.
    pub(super) fn step_persistence(&mut self, index: u32, identifier: u32, persists: Option<bool>) -> Step {
        let Some(slot) = self.commands.get(index) else { return Step::Drop };
        let Some((_, controller)) = self.controller_of(slot) else { return Step::Drop };
        let served = controller.subsystem().and_then(|subsystem| self.subsystems.get(subsystem));
        let (Some(seat), Some(served)) = (&self.reservations, served) else {
            return self.commands.go(index, Phase::Reply(refused(Status::INVALID_FIELD)));
        };
        let mut all = reservations(&self.media, served.namespaces(), identifier).map(|(_, reservation)| reservation);
        let Some(persists) = persists else {
            // It may have gone meanwhile.
            let Some(reservation) = all.next() else {
                return self.commands.go(index, Phase::Reply(refused(Status::INVALID_FIELD)));
            };
            let Some(persists) = seat.persists(reservation) else { return Step::Stall };
            return self.commands.go(index, Phase::Reply(Reply::result(persists.into())));
        };
        match seat.persist(all, persists) {
            None => Step::Stall,
            Some(Err(status)) => self.commands.go(index, Phase::Reply(Reply::of(status))),
            Some(Ok(settling)) => {
                self.commands.becomes(index, Work::ReservationSettles { namespace: None, settling });
                self.step_settle(index, settling)
            }
        }
    }

    /// It was done, and is answered when all of it is so everywhere.
    pub(super) fn step_settle(&mut self, index: u32, settling: Settling) -> Step {
        // Nobody waits for the answer any more: another core, or a disk, may keep it for ever.
        if self.commands.get(index).is_none_or(|slot| self.controller_of(slot).is_none()) {
            return Step::Drop;
        }
        let settled = self.reservations.as_ref().map_or(Some(Ok(())), |seat| seat.has_settled(settling));
        match settled {
            None => Step::Stall,
            Some(Ok(())) => self.commands.go(index, Phase::Reply(Reply::result(0))),
            Some(Err(status)) => self.commands.go(index, Phase::Reply(Reply::of(status))),
        }
    }

    /// Reservation Report (Base 7.5): as much of it as the host has room for.
    pub(super) fn step_report(&mut self, index: u32, namespace: usize, length: u32) -> Step {
        let Some(slot) = self.commands.get(index) else { return Step::Drop };
        let (Some(buffer), Some(seat), Some(reservation)) =
            (slot.buffer(), &self.reservations, self.media.reservation(namespace))
        else {
            return self.commands.go(index, Phase::Reply(refused(Status::INTERNAL_ERROR)));
        };
        let Some(report) = seat.report(reservation) else { return Step::Stall };
        let bytes = written(&report);
        // At most a buffer's bytes. What lies behind the report's end is zeros.
        let length = length as usize;
        let buffers = self.pool.buffers();
        let part = bytes.get(..length.min(bytes.len())).unwrap_or_default();
        let fits = buffers.clear(buffer, length).is_ok() && buffers.write(buffer, 0, part).is_ok();
        let reply = if fits { Reply::data() } else { refused(Status::INTERNAL_ERROR) };
        self.commands.go(index, Phase::Reply(reply))
    }

    /// Hosts are told what is new. Commands of hosts that were preempted end on this core, which says so when none is
    /// left of those that it had.
    #[cold]
    pub(super) fn serve_reservations(&mut self) {
        // At most MAX_NEWS.
        while let Some((news, lost)) = self.reservations.as_mut().and_then(Seat::next_news) {
            self.tell_of(&news, lost);
        }
        if let Some(order) = self.reservations.as_ref().and_then(Seat::next_order) {
            let place = self.media.place_of(|reservation| reservation.is(order.entry));
            let left = place.map_or_else(Vec::new, |place| self.end_commands_of(place, &order));
            if let Some(seat) = &mut self.reservations {
                seat.begin(&order, left);
            }
        }
        let Self { reservations, commands, .. } = self;
        if let Some(seat) = reservations {
            seat.go_on(|cookie| commands.has_ended(cookie));
        }
        self.go_on();
    }

    fn tell_of(&mut self, news: &News, lost: u64) {
        let Self { media, subsystems, controllers, commands, .. } = self;
        if lost > 0 {
            controllers.lose_notifications(lost);
        }
        let place = media.place_of(|reservation| reservation.is(news.entry));
        let named = place.and_then(|place| {
            let mut all = subsystems.all();
            all.find_map(|(subsystem, served)| Some((subsystem, served.namespaces().identifier_at(place)?)))
        });
        if let Some(named) = named {
            controllers.notify(named, news.told.kind, |host| news.told.hosts.contains(host), commands);
        }
    }

    /// What names those that have not ended.
    fn end_commands_of(&mut self, place: usize, order: &Order) -> Vec<u64> {
        let Self { sessions, controllers, commands, pool, media, .. } = self;
        let host = |connection| {
            let association = sessions.get(connection)?.association()?;
            controllers.get(association.controller).map(super::controllers::Controller::host_id)
        };
        // Of connections that are gone nobody knows whose they were.
        let concerns = |connection| host(connection).map(|host| order.hosts.contains(&host));
        commands.end_all_of(place, concerns, pool, media)
    }
}

/// The reservations that a feature names by a namespace's identifier, or [`BROADCAST_NAMESPACE`], with the identifiers
/// of namespaces.
pub(super) fn reservations<'a, S: Storage>(
    media: &'a Media<S>,
    namespaces: &'a Namespaces,
    identifier: u32,
) -> impl Iterator<Item = (u32, &'a Reservation)> {
    let named = namespaces.identifiers().filter(move |of| [*of, BROADCAST_NAMESPACE].contains(&identifier));
    named.filter_map(|of| Some((of, media.reservation(namespaces.listed(of).ok()?)?)))
}

fn key(served: &Served, namespaces: &Namespaces, identifier: u32) -> Key {
    let nguid = namespaces.nguid(identifier).unwrap_or_default();
    Key { subsystem: *served.name(), identifier, nguid }
}

/// A report as hosts read it.
fn written((head, entries): &Report) -> [u8; (MAX_REGISTRANTS + 1) * RegisteredControllerExtended::BYTES] {
    let mut bytes = [0; (MAX_REGISTRANTS + 1) * RegisteredControllerExtended::BYTES];
    let head = head.as_bytes();
    bytes[..head.len()].copy_from_slice(head);
    let (places, _) = bytes.as_chunks_mut::<{ RegisteredControllerExtended::BYTES }>();
    for (place, entry) in places.iter_mut().skip(1).zip(entries) {
        place.copy_from_slice(entry.as_bytes());
    }
    bytes
}
