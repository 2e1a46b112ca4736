//! Where targets listen, as they are told and tell each other.

use std::net::SocketAddr;

/// Addresses that a target listens at: ports of a machine are fewer, and each is an entry of the discovery log for every subsystem.
pub const MAX_LISTENERS: usize = 16;

/// Where another target listens that serves the same subsystems, on this machine or on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElsewhereListener {
    /// PORTID, as that target has it.
    pub port: u16,
    /// Its address.
    pub address: SocketAddr,
}
