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
use super::incident::Fault;
use super::options::TargetOptions;
use super::refusal::{Refusal, Rejection};
use super::session::{Connecting, Ends, Queue};
use crate::storage::Storage;
use crate::wire::{ADMIN_QUEUE, ConnectData, QueueRequest, RejectPrivateData, RequestPrivateData};
use arrayvec::ArrayVec;
use core::cmp::Reverse;
use core::time::Duration;
use frwr_engine::provider::{IncomingId, Port};
use std::net::IpAddr;
use zerocopy::{FromBytes, IntoBytes};

/// Connect requests that wait for the end of a connection that made room for them. Each has one that ends for it, which takes some
/// milliseconds: more of them are a flood, of which the oldest give up.
const MAX_PARKED: usize = 16;
/// Those of one address, so that it does not push out the others'.
const MAX_PARKED_OF_ADDRESS: usize = MAX_PARKED / 2;

/// Of all connections, those that one address may have unproven: hosts of one machine may come back all at once, and leave room for
/// another machine's.
const UNPROVEN_SHARE: usize = 2;

/// A valid connect request that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) incoming: IncomingId,
    pub(super) ends: Ends,
    pub(super) asked: QueueRequest,
    /// When it gives up, in watched time.
    until: Duration,
}

/// A connection that may have to make room: whose, whether the target itself has it wait, since when, and which.
type Unproven = (Option<IpAddr>, bool, Duration, u16);

/// Which of what is unproven.
#[derive(Clone, Copy)]
enum Which {
    All,
    /// Controllers that are not enabled, where they have the places that one for this is to have.
    ControllersOf(Purpose),
}

/// Who waits to be let in.
#[derive(Debug)]
pub(super) struct Lobby {
    /// In order of arrival.
    parked: ArrayVec<Request, MAX_PARKED>,
    /// Room to sort the unproven in.
    unproven: Vec<Unproven>,
}

impl Lobby {
    pub(super) fn new(options: &TargetOptions) -> Self {
        Self { parked: ArrayVec::new(), unproven: Vec::with_capacity(options.connections().into()) }
    }

    /// Nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Nobody takes connect requests any more, and those that wait are answered by whoever stopped that.
    pub(super) fn clear(&mut self) {
        self.parked.clear();
    }
}

impl<P: Port, S: Storage> Target<P, S> {
    /// Accepts or rejects a connect request (RDMA 3.4), or has it wait.
    pub(super) fn incoming(&mut self, incoming: IncomingId, ends: Ends, private_data: &[u8]) {
        let (queues, entries) = (self.options.io_queues, self.options.queue_entries);
        match RequestPrivateData::parse(private_data, queues, entries) {
            Ok(asked) => {
                let until = self.watched.saturating_add(self.options.connect_timeout);
                self.asked_in(Request { incoming, ends, asked, until });
            }
            Err(error) => {
                let record = RequestPrivateData::read_from_prefix(private_data).ok();
                self.reject(incoming, ends, record.map(|(record, _)| record.queue_id.get()), error.into());
            }
        }
    }

    fn asked_in(&mut self, request: Request) {
        let (address, share) = (request.ends.address(), self.queues.len() / UNPROVEN_SHARE);
        self.list_unproven(Which::All);
        if self.lobby.unproven.iter().filter(|(of, ..)| *of == address).count() >= share.max(1) {
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
        let ending = self.ending().filter(|queue| !queue.kept).count();
        ending > self.lobby.parked.len() || {
            self.list_unproven(Which::All);
            self.end_oldest(address, |_| true)
        }
    }

    /// The oldest gives up where there is no room, one of the same address first.
    fn park(&mut self, request: Request) {
        let address = request.ends.address();
        let is_alike = |other: &Request| other.ends.address() == address;
        let parked = &mut self.lobby.parked;
        let crowded = if parked.iter().filter(|other| is_alike(other)).count() >= MAX_PARKED_OF_ADDRESS {
            parked.iter().position(is_alike)
        } else {
            parked.is_full().then_some(0)
        };
        let crowded = crowded.and_then(|at| parked.pop_at(at));
        let _ = parked.try_push(request);
        if let Some(crowded) = crowded {
            self.reject_request(&crowded, Rejection::Crowded);
        }
    }

    /// Lets in who waits, in order. True where nobody waits any more.
    pub(super) fn serve_lobby(&mut self) -> bool {
        while let Some(request) = self.lobby.parked.first().copied() {
            let over = self.watched >= request.until;
            match self.accept(&request) {
                Err(rejection) if rejection.is_shortage() && !over => return false,
                accepted => {
                    self.lobby.parked.remove(0);
                    if let Err(rejection) = accepted {
                        self.reject_request(&request, rejection);
                    }
                }
            }
        }
        true
    }

    fn reject_request(&mut self, request: &Request, rejection: Rejection) {
        self.reject(request.incoming, request.ends, Some(request.asked.queue_id), rejection);
    }

    fn reject(&mut self, incoming: IncomingId, ends: Ends, queue_id: Option<u16>, rejection: Rejection) {
        self.statistics.rejected += 1;
        self.note_rejected(ends.peer, queue_id, rejection);
        // Where even that cannot be said now, the host's connection manager times out.
        let _ = self.engine.reject(incoming, RejectPrivateData::new(rejection.status()).as_bytes());
    }

    /// Connections whose end is under way.
    fn ending(&self) -> impl Iterator<Item = &Queue> {
        let is_ending = |queue: &&Queue| queue.doomed || (queue.established && !self.engine.is_ready(queue.connection));
        self.queues.iter().flatten().filter(is_ending)
    }

    /// Why there is no connection left.
    pub(super) fn no_connection(&self) -> Rejection {
        // At most MAX_CONNECTIONS.
        let queues = self.queues.iter().flatten().filter(|queue| queue.association.is_some()).count() as u16;
        Rejection::Connections { limit: self.queues.len() as u16, queues, ending: self.ending().count() as u16 }
    }

    /// Nobody has shown yet that an NVMe host is behind it. What ends makes room already.
    fn is_unproven(&self, queue: &Queue) -> bool {
        let ends =
            queue.doomed || queue.ended_with.is_some() || queue.established && !self.engine.is_ready(queue.connection);
        !ends
            && match queue.association {
                None => true,
                Some(association) => {
                    let controller = self.controllers.get(association.controller).and_then(Option::as_ref);
                    queue.asked.queue_id == ADMIN_QUEUE && controller.is_some_and(|controller| !controller.is_proven())
                }
            }
    }

    /// Notes what is unproven, sorted by address and age, what the target itself has wait last.
    fn list_unproven(&mut self, which: Which) {
        let mut list = core::mem::take(&mut self.lobby.unproven);
        list.clear();
        let is_named = |queue: &Queue| match which {
            Which::All => true,
            Which::ControllersOf(purpose) => queue.association.is_some_and(|association| {
                let controller = self.controllers.get(association.controller).and_then(Option::as_ref);
                controller.is_some_and(|controller| controller.has_places_of(purpose))
            }),
        };
        list.extend(self.queues.iter().flatten().filter(|queue| is_named(queue) && self.is_unproven(queue)).map(
            |queue| {
                let held = matches!(queue.connecting, Connecting::Held(_));
                (queue.ends.address(), held, queue.since, queue.connection.index)
            },
        ));
        list.sort_unstable();
        self.lobby.unproven = list;
    }

    /// Ends the first of the list, of the address that has most of it, for a newcomer, who counts as one of its address. Of addresses that
    /// have as many it is the one whose first is there longest. False where nothing is listed.
    fn end_oldest(&mut self, newcomer: Option<IpAddr>, of: impl Fn(Option<IpAddr>) -> bool) -> bool {
        let groups = self.lobby.unproven.chunk_by(|left, right| left.0 == right.0).filter(|group| of(group[0].0));
        let weight = |group: &&[Unproven]| {
            let (address, held, since, _) = group[0];
            (group.len() + usize::from(address == newcomer), Reverse((held, since)))
        };
        let Some(&(.., index)) = groups.max_by_key(weight).and_then(<[_]>::first) else { return false };
        self.end_unproven(index);
        true
    }

    fn end_unproven(&mut self, index: u16) {
        let Some(Some(queue)) = self.queues.get_mut(usize::from(index)) else { return };
        let (connection, after) = (queue.connection, self.watched.saturating_sub(queue.since));
        queue.connect_by = None;
        queue.doomed = true;
        let association = queue.association.take();
        self.statistics.made_room += 1;
        self.note_fault(connection, Fault::MadeRoom { after, is_queue: association.is_some() });
        if let Some(association) = association {
            // It was never enabled: it has no I/O queues, and no storage has a command of it.
            self.controllers[association.controller] = None;
        }
        self.engine.disconnect(connection);
    }

    /// A vacant place for a host's controller.
    pub(super) fn place_for(&mut self, data: &ConnectData, purpose: Purpose) -> Result<usize, Refusal> {
        if let Some(refusal) = self.lacks_place(data, purpose) {
            self.list_unproven(Which::ControllersOf(purpose));
            if !self.end_oldest(None, |_| true) || self.lacks_place(data, purpose).is_some() {
                self.look_for_silent_hosts();
                return Err(refusal);
            }
        }
        let mut places = self.controllers.iter().enumerate();
        let vacant = places.position(|(place, controller)| controller.is_none() && !self.has_late_commands(place));
        vacant.ok_or(Refusal::Internal)
    }

    /// Why a host's controller has no place, if so.
    fn lacks_place(&self, data: &ConnectData, purpose: Purpose) -> Option<Refusal> {
        let is_alike = |controller: &&Controller| controller.has_places_of(purpose);
        let taken = self.controllers.iter().flatten().filter(is_alike).count();
        if purpose == Purpose::Discovery {
            let places = self.options.discovery_controllers;
            return (taken >= places.into()).then_some(Refusal::Discovery { places });
        }
        // One whose commands a storage still has counts until they are done.
        let mut vacant = self.controllers.iter().enumerate().filter(|(_, controller)| controller.is_none());
        let taken = taken + vacant.by_ref().filter(|(place, _)| self.has_late_commands(*place)).count();
        let TargetOptions { controllers, returning_controllers: returning, .. } = self.options;
        let places = controllers.saturating_sub(returning);
        let limit = if self.comes_back(data, purpose) { controllers } else { places };
        (taken >= limit.into()).then_some(Refusal::Hosts { places, returning })
    }
}
