//! Who is at the ends of a connection.

use crate::wire::{ConnectData, Nqn};
use std::net::{IpAddr, SocketAddr};

/// Where the two ends of a connection are, as far as the device knows.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Ends {
    pub(in super::super) peer: Option<SocketAddr>,
    /// This one, as the peer calls it.
    pub(in super::super) local: Option<SocketAddr>,
    /// The listener that it came by, as far as that can be said.
    pub(in super::super) listener: Option<SocketAddr>,
}

impl Ends {
    /// The peer's address, without the port, which is another one for each of its queues.
    pub(in super::super) fn address(&self) -> Option<IpAddr> {
        // A listener for both families hears of IPv4 in IPv6's clothes.
        self.peer.map(|peer| peer.ip().to_canonical())
    }
}

/// What a host says of itself and of what it connects to, as far as it could be read.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Names {
    pub(in super::super) host: Option<Nqn>,
    pub(in super::super) subsystem: Option<Nqn>,
}

impl Names {
    pub(in super::super) fn of(data: &ConnectData) -> Self {
        Self { host: data.host, subsystem: Some(data.subsystem) }
    }
}
