//! Who waits to be let in, and who may have to make room.

use super::options::TargetOptions;
use super::session::Ends;
use crate::wire::QueueRequest;
use arrayvec::ArrayVec;
use core::cmp::Reverse;
use core::time::Duration;
use frwr_engine::provider::IncomingId;
use std::net::{IpAddr, SocketAddr};

/// Connect requests that wait for the end of a connection that made room for them. Each has one that ends for it, which takes some
/// milliseconds: more of them are a flood, of which the oldest give up.
const MAX_PARKED: usize = 16;
/// Those of one address, so that it does not push out the others'.
const MAX_PARKED_OF_ADDRESS: usize = MAX_PARKED / 2;

/// A valid connect request that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) incoming: IncomingId,
    pub(super) ends: Ends,
    pub(super) asked: QueueRequest,
    /// When it gives up, in watched time.
    pub(super) until: Duration,
}

/// A connection that may have to make room: whose, whether the target itself has it wait, since when, and which.
pub(super) type Unproven = (Option<IpAddr>, bool, Duration, u16);

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
        let unproven = Vec::with_capacity(options.connections().into());
        Self { parked: ArrayVec::new(), unproven }
    }

    /// Nobody waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// How many wait.
    pub(super) fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Nobody takes connect requests any more, and those that wait are answered by whoever stopped that.
    pub(super) fn clear(&mut self) {
        self.parked.clear();
    }

    /// Who waits longest.
    pub(super) fn first(&self) -> Option<Request> {
        self.parked.first().copied()
    }

    /// That one waits no longer.
    pub(super) fn leave_first(&mut self) {
        self.parked.pop_at(0);
    }

    /// One that came by a listener which takes nobody any more.
    pub(super) fn leave(&mut self, listener: SocketAddr) -> Option<Request> {
        let at = self.parked.iter().position(|request| request.ends.listener == Some(listener))?;
        self.parked.pop_at(at)
    }

    /// One more waits. Where there is no room the oldest one gives up, one of the same address first.
    pub(super) fn park(&mut self, request: Request) -> Option<Request> {
        let address = request.ends.address();
        let is_alike = |other: &Request| other.ends.address() == address;
        let crowded = if self.parked.iter().filter(|other| is_alike(other)).count() >= MAX_PARKED_OF_ADDRESS {
            self.parked.iter().position(is_alike)
        } else {
            self.parked.is_full().then_some(0)
        };
        let crowded = crowded.and_then(|at| self.parked.pop_at(at));
        let _ = self.parked.try_push(request);
        crowded
    }

    /// Room to list the unproven in, which is handed back by [`Lobby::list`].
    pub(super) fn take_list(&mut self) -> Vec<Unproven> {
        let mut list = core::mem::take(&mut self.unproven);
        list.clear();
        list
    }

    /// What is unproven, which is sorted by address and age, what the target itself has wait last.
    pub(super) fn list(&mut self, mut list: Vec<Unproven>) {
        list.sort_unstable();
        self.unproven = list;
    }

    /// How many are listed of an address.
    pub(super) fn unproven_of(&self, address: Option<IpAddr>) -> usize {
        self.unproven.iter().filter(|(of, ..)| *of == address).count()
    }

    /// The first of the list, of the address that has most of it, for a newcomer, who counts as one of its address. Of addresses that
    /// have as many it is the one whose first is there longest. `None` where nothing is listed.
    pub(super) fn oldest(&self, newcomer: Option<IpAddr>, of: impl Fn(Option<IpAddr>) -> bool) -> Option<u16> {
        let groups = self.unproven.chunk_by(|left, right| left.0 == right.0).filter(|group| of(group[0].0));
        let weight = |group: &&[Unproven]| {
            let (address, held, since, _) = group[0];
            (group.len() + usize::from(address == newcomer), Reverse((held, since)))
        };
        groups.max_by_key(weight).and_then(<[_]>::first).map(|&(.., index)| index)
    }
}
