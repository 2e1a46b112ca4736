//! What a device's connection manager remembers of each connection.

use super::fabric::Remote;
use super::queue_pair::Negotiated;
use super::wire::WireEnd;
use crate::provider::{ConnectionParameters, ListenerId, PrivateData};
use std::net::SocketAddr;

/// How far a queue pair's connection is.
pub(super) enum Link {
    Unconnected,
    /// Our request is out.
    Connecting,
    /// The wire is on its way to the port; what the port's answer sets off.
    Wiring {
        peer: Remote,
        private_data: PrivateData,
        /// The active side's end, which leaves when the passive side's is in place.
        peer_end: Option<(Box<WireEnd>, Negotiated)>,
    },
    /// Both ends are in place, or will be when the peer says so.
    Connected {
        peer: Remote,
    },
    /// One side ended it.
    Ended,
}

/// A connect request that waits for accept or reject.
pub(super) struct Incoming {
    pub(super) listener: ListenerId,
    pub(super) from: Remote,
    /// Where that is, as far as it says so.
    pub(super) peer: Option<SocketAddr>,
    pub(super) parameters: ConnectionParameters,
}
