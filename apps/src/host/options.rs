//! What a host can be told, and the engine that it needs.

use crate::nvmf::{COMMAND_CAPSULE_BYTES, Nqn};
use core::time::Duration;
use frwr_engine::{EngineOptions, provider::ConnectionParameters};
use std::net::SocketAddr;

/// I/O commands outstanding at most: command identifiers keep 5 bits to tell a slot's commands apart.
pub const MAX_QUEUE_DEPTH: u16 = 2045;
/// Segments of one read or write.
pub const MAX_SEGMENTS: usize = 8;
/// Entries of the admin queue: what every controller takes.
pub(super) const ADMIN_ENTRIES: u16 = 32;
/// As the NVMe driver of Linux has it (nvme_core.io_timeout).
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Commands beside I/O: one admin command and one Keep Alive at a time.
pub(super) const ADMIN_COMMANDS: u16 = 2;
/// Connections: admin and I/O queue, and those of a former session that still drain.
const CONNECTIONS: u16 = 4;

/// What a host is.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Where the target listens.
    pub address: SocketAddr,
    /// The subsystem to connect to.
    pub subsystem: Nqn,
    /// Our name.
    pub host: Nqn,
    /// Our identifier, the same for all connections of this host. Not zero, which identifies nobody (Base 5.27.1.25);
    /// follows from the name unless it is given.
    pub host_id: [u8; 16],
    /// The namespace to read and write.
    pub namespace: u32,
    /// I/O commands outstanding at most, 1 to [`MAX_QUEUE_DEPTH`].
    pub queue_depth: u16,
    /// Invites the target to invalidate our keys with its responses, where the device can take that.
    pub remote_invalidation: bool,
    /// Sends write data of one segment in the capsule where the controller takes so much.
    pub in_capsule_data: bool,
    /// Keep Alive Timeout; half of it passes between two Keep Alives. Zero for none. Shared machines stop a thread for
    /// seconds, so the default is generous.
    pub keep_alive: Duration,
    /// How long each step of bringing a controller up may take.
    pub step_timeout: Duration,
    /// How long reads, writes and flushes may be outstanding without any of them being answered, until the session is set up
    /// again: a target may have dropped the I/O queue without being able to say so. Zero for ever.
    pub command_timeout: Duration,
    /// The pause before the first attempt to reconnect; it doubles with every failed attempt.
    pub first_back_off: Duration,
    /// The longest pause.
    pub longest_back_off: Duration,
    /// Attempts in a row that may fail before the host gives up.
    pub max_attempts: u32,
    /// Retries and RDMA READ depths of its connections.
    pub parameters: ConnectionParameters,
}

impl HostOptions {
    /// With the defaults of the reactor application.
    #[must_use]
    pub fn new(address: SocketAddr, subsystem: Nqn, host: Nqn) -> Self {
        Self {
            address,
            subsystem,
            host,
            host_id: host.identifier(1),
            namespace: 1,
            queue_depth: 32,
            remote_invalidation: true,
            in_capsule_data: true,
            keep_alive: Duration::from_secs(30),
            step_timeout: Duration::from_secs(15),
            command_timeout: COMMAND_TIMEOUT,
            first_back_off: Duration::from_millis(10),
            longest_back_off: Duration::from_secs(1),
            max_attempts: 16,
            parameters: ConnectionParameters::default(),
        }
    }

    /// The engine that serves this host. Fields that do not set its sizes may be changed before it is made.
    #[must_use]
    pub fn engine(&self) -> EngineOptions {
        let commands = u32::from(self.commands());
        EngineOptions {
            connections: CONNECTIONS,
            queue_depth: commands,
            transfer_depth: 0,
            receive_depth: u32::from(self.io_entries().max(ADMIN_ENTRIES)),
            message_bytes: COMMAND_CAPSULE_BYTES as u32,
            max_segments: MAX_SEGMENTS as u32,
            ..EngineOptions::default()
        }
    }

    /// Command slots: I/O, then admin.
    pub(super) fn commands(&self) -> u16 {
        self.queue_depth.saturating_add(ADMIN_COMMANDS)
    }

    /// Entries of the I/O queue: one of a queue's entries is never used (Base 3.3.1.2).
    pub(super) fn io_entries(&self) -> u16 {
        self.queue_depth.saturating_add(1)
    }
}
