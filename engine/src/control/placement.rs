//! Which of several cores that listen at one address gets a connect request.

use crate::{link::MAX_INCOMING, provider::IncomingId};
use arrayvec::ArrayVec;
use std::net::SocketAddr;

/// A core that listens at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListeningCore {
    /// Its number in the order of [`super::Control::open_core`], from 0.
    pub core: usize,
    /// Its queue pairs until they are destroyed, or drained where the device refuses that, and connect requests that it was told of
    /// and has not answered.
    pub connections: usize,
    /// The weights of those that were placed.
    pub weight: u64,
}

/// A connect request that has to go to one of several cores.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// Where it arrived.
    pub address: SocketAddr,
    /// What the peer says with it; not checked by anybody.
    pub private_data: &'a [u8],
    /// The cores that listen there, at least one, in ascending order of their numbers.
    pub members: &'a [ListeningCore],
}

/// Where a connect request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Index in [`ConnectRequest::members`]. One that is out of range counts as 0.
    pub member: usize,
    /// What the connection adds to the member's weight as long as it lives, in any unit of the caller's.
    pub weight: u32,
}

/// Decides. Called on the thread of Control, once per connect request; what it refers to must not be a core's.
pub type Placement = Box<dyn FnMut(&ConnectRequest<'_>) -> Placed + Send>;

/// To the core with the fewest connections, the first of several.
pub(super) fn fewest_connections(request: &ConnectRequest<'_>) -> Placed {
    let fewest = request.members.iter().enumerate().min_by_key(|(_, member)| member.connections);
    Placed { member: fewest.map_or(0, |(at, _)| at), weight: 1 }
}

/// Connect requests that a core was told of and has not answered, with their weights.
pub(super) type Unanswered = ArrayVec<(IncomingId, u32), MAX_INCOMING>;
