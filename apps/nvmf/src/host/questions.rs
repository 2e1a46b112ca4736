//! What a caller asks a host.

use super::Host;
use super::discovery::Discovered;
use super::failure::HostFailure;
use super::options::AdminSlot;
use super::queues::QueueOf;
use super::statistics::HostStatistics;
use crate::storage::Geometry;
use crate::wire::{AnaState, IDENTIFY_BYTES, SerialNumber};
use frwr_engine::provider::Port;
use frwr_engine::{ConnectionId, Engine};
use std::net::SocketAddr;

impl<P: Port> Host<P> {
    /// Reads and writes go to the controller at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.session.is_ready() && !self.session.is_stopping()
    }

    /// Not started, or all connections have ended after [`Host::shut_down`] or a failure.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.session.is_over() && self.context.transport.engine().is_disconnected()
    }

    /// Why the host has given up.
    #[must_use]
    pub fn failure(&self) -> Option<HostFailure> {
        self.session.failure()
    }

    /// Why the last session ended or could not be set up.
    #[must_use]
    pub fn last_failure(&self) -> Option<HostFailure> {
        self.session.last_failure()
    }

    /// Size of the namespace; `None` before the first session.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        self.session.found().namespace().geometry()
    }

    /// Largest command in bytes; 0 before the first session. Longer requests are split.
    #[must_use]
    pub fn max_transfer_bytes(&self) -> u32 {
        let most = |block| self.session.found().limits().transfer(block) * block;
        self.geometry().map_or(0, |geometry| most(geometry.block_bytes()))
    }

    /// Data blocks, and so keys, that the controller takes per command (MSDBD); 0 for no limit.
    #[must_use]
    pub fn max_data_blocks(&self) -> u8 {
        self.session.found().limits().max_data_blocks
    }

    /// Serial number of the subsystem; `None` before the first session, and where it has none.
    #[must_use]
    pub fn serial_number(&self) -> Option<SerialNumber> {
        self.session.found().limits().serial
    }

    /// I/O queues of the session.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.session.queues().open_count()
    }

    /// How the namespace can be reached, as the controller said last.
    #[must_use]
    pub fn ana_state(&self) -> AnaState {
        self.session.found().ana().state()
    }

    /// The first active namespaces of the subsystem.
    #[must_use]
    pub fn active_namespaces(&self) -> &[u32] {
        self.session.found().namespace().active()
    }

    /// Where its sessions are.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.context.options.address
    }

    /// What the discovery service listed when it was read last ([`HostStatistics::discovery_reads`]), where it is asked.
    #[must_use]
    pub fn discovered(&self) -> &[Discovered] {
        self.session.found().discovery().listed()
    }

    /// The discovery service tells of changes, and is read again then: it was asked for a persistent connection
    /// ([`HostOptions::keep_alive`](super::HostOptions::keep_alive)), and has that event.
    #[must_use]
    pub fn follows_discovery(&self) -> bool {
        self.context.options.is_discovery() && self.session.found().limits().events != 0
    }

    /// Requests that may be submitted now: completions that nobody took yet occupy their places.
    #[must_use]
    pub fn free_requests(&self) -> usize {
        self.io.available()
    }

    /// Counters, by value.
    #[must_use]
    pub fn statistics(&self) -> HostStatistics {
        self.session.statistics() + self.io.statistics()
    }

    /// The connections of the admin and the first I/O queue, while they are open or being opened; for tools.
    #[must_use]
    pub fn connections(&self) -> [Option<ConnectionId>; 2] {
        [QueueOf::Admin, QueueOf::Io(0)].map(|queue| self.session.queues().connection(queue))
    }

    /// Its engine.
    #[must_use]
    pub fn engine(&self) -> &Engine<P> {
        self.context.transport.engine()
    }

    /// Its engine, to declare memory, and for tools. Events taken from it are lost to the host.
    #[must_use]
    pub fn engine_mut(&mut self) -> &mut Engine<P> {
        self.context.transport.engine_mut()
    }

    /// Bytes of admin data that are open to the controller at most, while a session goes on or is set up.
    #[must_use]
    pub fn admin_bytes_open(&self) -> u64 {
        let reads = [AdminSlot::Step, AdminSlot::Chore].into_iter().any(|slot| self.context.is_in_flight(slot));
        if reads { IDENTIFY_BYTES as u64 } else { 0 }
    }
}
