//! Who gets a connection and a place in the table of controllers, where more want one than there are.
//!
//! A connection is proven once a Connect has made it a queue, and an admin queue once its host has enabled its controller. What is
//! unproven costs whoever brings it nothing, so it keeps nobody out: an address has no more of it than a share, and where a connection
//! or a place is missing, the oldest of the address that has most of it ends. Who comes meanwhile waits for that end.
//!
//! Places in the table are apart for hosts, for hosts that come back before their former controller is gone, and for the discovery
//! service.

use super::Target;
use super::controllers::{Controller, Purpose};
use super::lobby::Request;
use super::options::TargetOptions;
use super::refusal::{Refusal, Rejection};
use super::session::{Association, Connecting, Ends, Queue};
use crate::storage::Storage;
use crate::wire::{ADMIN_QUEUE, AcceptPrivateData, ConnectData, RejectPrivateData, RequestPrivateData};
use frwr_engine::provider::{IncomingId, Port};
use frwr_engine::{ConnectionOptions, OpenError};
use std::net::IpAddr;
use zerocopy::{FromBytes, IntoBytes};

/// Of all connections, those that one address may have unproven: hosts of one machine may come back all at once, and leave room for
/// another machine's.
const UNPROVEN_SHARE: usize = 2;

/// Which of what is unproven.
#[derive(Clone, Copy)]
enum Which {
    All,
    /// Controllers that are not enabled, where they have the places that one for this is to have.
    ControllersOf(Purpose),
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Accepts or rejects a connect request (RDMA 3.4), or has it wait.
    pub(super) fn incoming(&mut self, incoming: IncomingId, ends: Ends, private_data: &[u8]) {
        let (queues, entries) = (self.options.io_queues, self.options.queue_entries);
        let is_leaving = ends.listener.is_some_and(|address| self.sessions.listeners().is_leaving(address));
        match RequestPrivateData::parse(private_data, queues, entries) {
            Ok(asked) if is_leaving => {
                self.reject(incoming, ends, Some(asked.queue_id), Rejection::ListenerRemoved);
            }
            Ok(asked) => {
                let until = self.clock.watched().saturating_add(self.options.connect_timeout);
                self.asked_in(Request { incoming, ends, asked, until });
            }
            Err(error) => {
                let record = RequestPrivateData::read_from_prefix(private_data).ok();
                self.reject(incoming, ends, record.map(|(record, _)| record.queue_id.get()), error.into());
            }
        }
    }

    fn asked_in(&mut self, request: Request) {
        let (address, share) = (request.ends.address(), self.sessions.places() / UNPROVEN_SHARE);
        self.list_unproven(Which::All);
        if self.lobby.unproven_of(address) >= share.max(1) {
            self.end_oldest(address, |of| of == address);
        }
        // Who waits already goes first.
        let waits = !self.lobby.is_empty() && !self.serve_lobby();
        let accepted = if waits { Err(self.no_connection()) } else { self.accept(&request) };
        match accepted {
            Ok(()) => {}
            Err(rejection) if rejection.is_shortage() && self.makes_room(address) => self.park(request),
            Err(rejection) => self.reject_request(&request, rejection),
        }
    }

    /// Something ends, or does already, that nobody waits for yet.
    fn makes_room(&mut self, address: Option<IpAddr>) -> bool {
        let ending = self.ending().filter(|queue| !queue.is_kept()).count();
        ending > self.lobby.parked() || {
            self.list_unproven(Which::All);
            self.end_oldest(address, |_| true)
        }
    }

    /// The oldest gives up where there is no room.
    fn park(&mut self, request: Request) {
        if let Some(crowded) = self.lobby.park(request) {
            self.reject_request(&crowded, Rejection::Crowded);
        }
    }

    /// Lets in who waits, in order. True where nobody waits any more.
    pub(super) fn serve_lobby(&mut self) -> bool {
        while let Some(request) = self.lobby.first() {
            let over = self.clock.watched() >= request.until;
            match self.accept(&request) {
                Err(rejection) if rejection.is_shortage() && !over => return false,
                accepted => {
                    self.lobby.leave_first();
                    if let Err(rejection) = accepted {
                        self.reject_request(&request, rejection);
                    }
                }
            }
        }
        true
    }

    pub(super) fn reject_request(&mut self, request: &Request, rejection: Rejection) {
        self.reject(request.incoming, request.ends, Some(request.asked.queue_id), rejection);
    }

    fn reject(&mut self, incoming: IncomingId, ends: Ends, queue_id: Option<u16>, rejection: Rejection) {
        self.sessions.rejected(ends, queue_id, rejection);
        // Where even that cannot be said now, the host's connection manager times out.
        let _ = self.engine.reject(incoming, RejectPrivateData::new(rejection.status()).as_bytes());
    }

    /// Connections whose end is under way.
    fn ending(&self) -> impl Iterator<Item = &Queue> {
        self.sessions.iter().filter(|queue| queue.ends_by(&self.engine))
    }

    /// Why there is no connection left.
    fn no_connection(&self) -> Rejection {
        // At most MAX_CONNECTIONS.
        let queues = self.sessions.iter().filter(|queue| queue.association().is_some()).count() as u16;
        Rejection::Connections { limit: self.sessions.places() as u16, queues, ending: self.ending().count() as u16 }
    }

    /// Nobody has shown yet that an NVMe host is behind it. What ends makes room already.
    fn is_unproven(&self, queue: &Queue) -> bool {
        let ends = queue.ends_by(&self.engine) || queue.ended_with().is_some();
        let is_proven = |association: Association| {
            !queue.is_admin() || self.controllers.get(association.controller).is_none_or(Controller::is_proven)
        };
        !ends && !queue.association().is_some_and(is_proven)
    }

    /// Notes what is unproven, sorted by address and age, what the target itself has wait last.
    fn list_unproven(&mut self, which: Which) {
        let mut list = self.lobby.take_list();
        let is_named = |queue: &Queue| match which {
            Which::All => true,
            Which::ControllersOf(purpose) => queue.association().is_some_and(|association| {
                let controller = self.controllers.get(association.controller);
                controller.is_some_and(|controller| controller.has_places_of(purpose))
            }),
        };
        let unproven = self.sessions.iter().filter(|queue| is_named(queue) && self.is_unproven(queue));
        list.extend(unproven.map(|queue| {
            let held = matches!(queue.connecting(), Connecting::Held(_));
            (queue.ends().address(), held, queue.since(), queue.connection().index)
        }));
        self.lobby.list(list);
    }

    /// Ends the first of the list, of the address that has most of it, for a newcomer, who counts as one of its address. Of addresses that
    /// have as many it is the one whose first is there longest. False where nothing is listed.
    fn end_oldest(&mut self, newcomer: Option<IpAddr>, of: impl Fn(Option<IpAddr>) -> bool) -> bool {
        let Some(index) = self.lobby.oldest(newcomer, of) else { return false };
        if let Some(place) = self.sessions.end_unproven(index, self.clock.watched(), &mut self.engine) {
            // It was never enabled: it has no I/O queues, and no storage has a command of it.
            self.controllers.end(place);
        }
        true
    }

    /// A vacant place for a host's controller.
    pub(super) fn place_for(&mut self, data: &ConnectData, purpose: Purpose) -> Result<usize, Refusal> {
        if let Some(refusal) = self.lacks_place(data, purpose) {
            self.list_unproven(Which::ControllersOf(purpose));
            if !self.end_oldest(None, |_| true) || self.lacks_place(data, purpose).is_some() {
                self.controllers.look_for_silent_hosts();
                return Err(refusal);
            }
        }
        self.controllers.vacant().find(|place| !self.is_late(*place)).ok_or(Refusal::Internal)
    }

    /// Why a host's controller has no place, if so.
    fn lacks_place(&self, data: &ConnectData, purpose: Purpose) -> Option<Refusal> {
        let taken = self.controllers.iter().filter(|(_, controller)| controller.has_places_of(purpose)).count();
        if purpose == Purpose::Discovery {
            let places = self.options.discovery_controllers;
            return (taken >= places.into()).then_some(Refusal::Discovery { places });
        }
        // One whose commands a storage still has counts until they are done.
        let taken = taken + self.controllers.vacant().filter(|place| self.is_late(*place)).count();
        let TargetOptions { controllers, returning_controllers: returning, .. } = self.options;
        let places = controllers.saturating_sub(returning);
        let limit = if self.late.comes_back(data, purpose, &self.controllers) { controllers } else { places };
        (taken >= limit.into()).then_some(Refusal::Hosts { places, returning })
    }

    fn is_late(&self, place: usize) -> bool {
        self.late.has_late_commands(place, self.whereabouts())
    }

    /// Accepts a connect request, where there is room.
    fn accept(&mut self, request: &Request) -> Result<(), Rejection> {
        let Request { incoming, ends, asked, .. } = *request;
        // Controllers live at home.
        if asked.queue_id == ADMIN_QUEUE && self.spread.is_member() {
            return Err(Rejection::NotHome);
        }
        if !self.late.has_room_for(asked.entries, &self.sessions, self.options.command_entries()) {
            return Err(Rejection::Orphans { commands: self.late.orphans() });
        }
        let granted = self.options.granted(asked.entries);
        let private_data = AcceptPrivateData::new(granted);
        let options = ConnectionOptions::default()
            .peer_receives(asked.receives.into())
            .receives(granted.into())
            // It asks nothing of hosts, so that no receive is for a reply.
            .granted_receives(Some(granted.into()))
            .parameters(self.options.parameters);
        let connection = match self.engine.accept(incoming, private_data.as_bytes(), &options) {
            Ok(connection) => connection,
            Err(OpenError::NoConnection) => return Err(self.no_connection()),
            // They come back when another connection ends.
            Err(OpenError::Receives { wanted, free }) => return Err(Rejection::Receives { wanted, free }),
            Err(_) => return Err(Rejection::Busy),
        };
        let now = self.clock.watched();
        let connect_by = now.saturating_add(self.options.connect_timeout);
        // The engine was made for as many connections as there are places; with more it is used by somebody else as well.
        if !self.sessions.open(connection, ends, asked, now, connect_by) {
            self.engine.disconnect(connection);
        }
        self.clock.look_by(self.sessions.next_connect_check());
        Ok(())
    }
}
