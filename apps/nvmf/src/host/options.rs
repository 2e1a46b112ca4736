//! What a host can be told, and the engine that it needs.

use crate::wire::{COMMAND_CAPSULE_BYTES, DISCOVERY_SUBSYSTEM, IDENTIFY_BYTES, Nqn, SGL_DESCRIPTOR_BYTES};
use core::time::Duration;
use frwr_engine::{AddMemoryError, EngineOptions, provider::ConnectionParameters};
use std::net::SocketAddr;

/// I/O commands outstanding at most, over all queues: command identifiers keep 5 bits to tell a slot's commands apart.
pub const MAX_QUEUE_DEPTH: u16 = 2042;
/// I/O queues of one host. A host belongs to one core; more queues than a few only help a controller that spreads them.
pub const MAX_QUEUES: u16 = 16;
/// Hosts that follow one: with [`MAX_QUEUES`] queues each, a sixteenth of what NVMe counts, and more cores than a machine
/// gives to storage.
pub const MAX_FOLLOWERS: u16 = 255;
/// Segments of one read or write.
pub const MAX_SEGMENTS: usize = 8;
/// Keys of one command: one for each segment.
pub const MAX_DATA_BLOCKS: u8 = MAX_SEGMENTS as u8;
/// Entries of the admin queue: what every controller takes.
pub(super) const ADMIN_ENTRIES: u16 = 32;
/// As the NVMe driver of Linux has it (nvme_core.io_timeout).
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Keep Alive Timeout of I/O controllers.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// As the NVMe driver of Linux has it (nvme_core.max_retries).
const COMMAND_RETRIES: u16 = 5;
/// As the NVMe driver of Linux has it (ctrl_loss_tmo).
const CONTROLLER_LOSS_TIMEOUT: Duration = Duration::from_secs(600);
/// Three times the longest ANA transition time that Linux's target announces.
const INACCESSIBLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Commands beside I/O: one of each kind at a time.
pub(super) const ADMIN_COMMANDS: u16 = 5;
/// Bytes of device memory that a host needs for the data of its admin commands.
pub const ADMIN_DATA_BYTES: usize = IDENTIFY_BYTES;
/// Bytes of a bounce buffer: the block sizes that are in use, and the largest list of ranges.
const BOUNCE_BYTES: u32 = 4096;
/// Bounce buffers that [`HostOptions::memory_bytes`] asks for at most: blocks that lie in several ranges are rare.
const BOUNCE_BUFFERS: u16 = 32;

/// The commands of the admin queue, each with a place of its own behind those of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminSlot {
    /// Bring-up and shutdown.
    Step,
    /// Keep Alive.
    KeepAlive,
    /// Asynchronous Event Request.
    Event,
    /// Log pages and Identify while the session goes on.
    Chore,
    /// Abort.
    Abort,
}

/// Why a host cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The queue depth.
    #[error("queue depth {0}: must be from 1 to {MAX_QUEUE_DEPTH} over all queues; choose a value inside")]
    QueueDepth(u16),
    /// The number of queues.
    #[error("{0} I/O queues: must be from 1 to {MAX_QUEUES}; choose a value inside")]
    Queues(u16),
    /// Keys of one command.
    #[error("data_blocks is {0}: must be from 1 to {MAX_DATA_BLOCKS}; choose a value inside")]
    DataBlocks(u8),
    /// The number of followers.
    #[error("{0} followers: a host has at most {MAX_FOLLOWERS}; use fewer cores")]
    Followers(u16),
    /// The discovery service has no I/O queues to be shared (Base 3.1.2.3).
    #[error("{0} followers of a discovery controller, which has no I/O queues: must be 0; use one core")]
    DiscoveryFollowers(u16),
    /// The memory for admin data is too small.
    #[error("{0} bytes for admin data: {ADMIN_DATA_BYTES} are needed; give a larger block")]
    AdminData(usize),
    /// The engine did not take the memory.
    #[error(transparent)]
    Memory(#[from] AddMemoryError),
}

frwr_mempool::options! {
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
        /// I/O queues of this host, 1 to [`MAX_QUEUES`]; the controller may grant fewer.
        pub queues: u16,
        /// Hosts on other cores that follow this one, 0 to [`MAX_FOLLOWERS`]; the controller is asked for as many queues for
        /// each of them.
        pub followers: u16,
        /// I/O commands outstanding at most on each queue, 1 to [`MAX_QUEUE_DEPTH`] over all queues.
        pub queue_depth: u16,
        /// Invites the target to invalidate our keys with its responses, where the device can take that.
        pub remote_invalidation: bool,
        /// Sends write data of one segment in the capsule where the controller takes so much; no key is made then.
        pub in_capsule_data: bool,
        /// Keys of one command at most, 1 to [`MAX_DATA_BLOCKS`], where the controller takes as many (MSDBD).
        pub data_blocks: u8,
        /// Bytes of a bounce buffer, at least the namespace's block size for scatter lists that cut blocks.
        pub bounce_bytes: u32,
        /// Bounce buffers at most; as many as fit into the memory that the host is given.
        pub bounce_buffers: u16,
        /// Keep Alive Timeout; half of it passes between two Keep Alives. Zero for none, which is the default for a discovery service: with
        /// a timeout it is asked for a persistent connection (Base 3.1.2.3), which not every one has. Shared machines stop a thread for
        /// seconds, so the default of others is generous.
        pub keep_alive: Duration,
        /// How long each step of bringing a controller up may take, and later what the host reads for itself; an Abort may take twice
        /// as long.
        pub step_timeout: Duration,
        /// How long a command of an I/O queue may take. Then the controller is asked to abort it, and if it does not answer
        /// within `step_timeout` either, the session is set up again. Zero for ever.
        pub command_timeout: Duration,
        /// How often a command is sent again because its session ended before it was answered; then its request fails
        /// ([`super::IoError::Unanswered`]), for a command that makes a target end its session would do so for ever. 0 for never, `None` for
        /// ever. Commands that were in flight with such a one are not failed for it: what was lost twice is sent one at a time, and an
        /// end that another core of this host saw first counts half. As often, apart from that, a command is sent again because the controller
        /// refused it with a status that permits that; 0 and `None` as above.
        pub command_retries: Option<u16>,
        /// The pause before the first attempt to reconnect; it doubles with every failed attempt, and with every session that lasted no longer
        /// than `longest_back_off`.
        pub first_back_off: Duration,
        /// The longest pause.
        pub longest_back_off: Duration,
        /// Attempts in a row that may fail before the host gives up.
        pub max_attempts: u32,
        /// How long the host tries to get a controller back before it gives up. Zero for ever.
        pub controller_loss_timeout: Duration,
        /// How long requests wait for a namespace that cannot be reached through this controller (ANA), or that is away for another reason
        /// that may pass (Internal Path Error, Namespace Not Ready), before they fail.
        pub inaccessible_timeout: Duration,
        /// How often this host proves itself once more on the queues of a session that goes on, where it has proven itself before. Zero for
        /// never, beside what [`super::Host::reauthenticate`] asks for.
        pub reauthentication: Duration,
        /// Retries of its connections, and RDMA READs that a controller may have outstanding. `initiator_depth` counts as 0: a host
        /// issues none itself, and SPDK's target complains of one that asks for it.
        pub parameters: ConnectionParameters,
    }
}

impl HostOptions {
    /// With the defaults of the program.
    #[must_use]
    pub fn new(address: SocketAddr, subsystem: Nqn, host: Nqn) -> Self {
        Self {
            address,
            subsystem,
            host,
            host_id: host.identifier(1),
            namespace: 1,
            queues: 1,
            followers: 0,
            queue_depth: 32,
            remote_invalidation: true,
            in_capsule_data: true,
            data_blocks: MAX_DATA_BLOCKS,
            bounce_bytes: BOUNCE_BYTES,
            bounce_buffers: BOUNCE_BUFFERS,
            keep_alive: if is_discovery(&subsystem) { Duration::ZERO } else { KEEP_ALIVE },
            step_timeout: Duration::from_secs(15),
            command_timeout: COMMAND_TIMEOUT,
            command_retries: Some(COMMAND_RETRIES),
            first_back_off: Duration::from_millis(10),
            longest_back_off: Duration::from_secs(1),
            max_attempts: 16,
            controller_loss_timeout: CONTROLLER_LOSS_TIMEOUT,
            inaccessible_timeout: INACCESSIBLE_TIMEOUT,
            reauthentication: Duration::ZERO,
            parameters: ConnectionParameters::default(),
        }
    }

    /// The engine that serves this host. Fields that do not set its sizes may be changed before it is made.
    #[must_use]
    pub fn engine(&self) -> EngineOptions {
        // Admin and I/O queues, and those of a former session that still drain.
        let connections = self.queues.clamp(1, MAX_QUEUES).saturating_add(1).saturating_mul(2);
        EngineOptions::default()
            .connections(connections)
            .queue_depth(u32::from(self.queue_depth.saturating_add(ADMIN_COMMANDS)))
            .transfer_depth(0)
            .receive_depth(u32::from(self.io_entries().max(ADMIN_ENTRIES)))
            .message_bytes(self.capsule_bytes() as u32)
            .max_segments(MAX_SEGMENTS as u32)
            // One per command, and enough for the largest command.
            .registrations(u32::from(self.queue_depth.saturating_add(ADMIN_COMMANDS).max(self.data_blocks.into())))
    }

    /// Whether a host can be that.
    pub(super) fn check(&self) -> Result<(), HostError> {
        let depth = self.queue_depth;
        if self.queues == 0 || self.queues > MAX_QUEUES {
            return Err(HostError::Queues(self.queues));
        }
        if self.followers > MAX_FOLLOWERS {
            return Err(HostError::Followers(self.followers));
        }
        if self.followers > 0 && self.is_discovery() {
            return Err(HostError::DiscoveryFollowers(self.followers));
        }
        if depth == 0 || depth > MAX_QUEUE_DEPTH / self.queues {
            return Err(HostError::QueueDepth(depth));
        }
        if !(1..=MAX_DATA_BLOCKS).contains(&self.data_blocks) {
            return Err(HostError::DataBlocks(self.data_blocks));
        }
        Ok(())
    }

    /// Bytes of the largest capsule, beside in-capsule data.
    fn capsule_bytes(&self) -> usize {
        let listed = if self.data_blocks > 1 { usize::from(self.data_blocks) } else { 0 };
        COMMAND_CAPSULE_BYTES + listed * SGL_DESCRIPTOR_BYTES
    }

    /// Bytes of device memory for admin data and bounce buffers. [`ADMIN_DATA_BYTES`] are enough for a host that
    /// is never given a block in several ranges.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        ADMIN_DATA_BYTES + self.bounce_bytes as usize * usize::from(self.bounce_buffers)
    }

    /// The discovery service is to be asked, rather than a namespace used (Base 3.1.2.3).
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        is_discovery(&self.subsystem)
    }

    /// I/O queues that the controller is asked for: this host's and its followers'. Both are bounded far below 2^16.
    pub(super) fn all_queues(&self) -> u16 {
        self.queues.saturating_mul(self.followers.saturating_add(1))
    }

    /// Commands of I/O, over all queues.
    pub(super) fn io_commands(&self) -> u16 {
        self.queue_depth.saturating_mul(self.queues)
    }

    /// The command slot of a command of the admin queue.
    pub(super) fn admin_slot(&self, slot: AdminSlot) -> u16 {
        self.io_commands().saturating_add(slot as u16)
    }

    /// What a slot that is none of I/O is for.
    pub(super) fn admin_of(&self, slot: u16) -> Option<AdminSlot> {
        const ALL: [AdminSlot; ADMIN_COMMANDS as usize] =
            [AdminSlot::Step, AdminSlot::KeepAlive, AdminSlot::Event, AdminSlot::Chore, AdminSlot::Abort];
        ALL.get(usize::from(slot.checked_sub(self.io_commands())?)).copied()
    }

    /// Command slots: I/O, then admin.
    pub(super) fn commands(&self) -> u16 {
        self.io_commands().saturating_add(ADMIN_COMMANDS)
    }

    /// Entries of an I/O queue: one of a queue's entries is never used (Base 3.3.1.2).
    pub(super) fn io_entries(&self) -> u16 {
        self.queue_depth.saturating_add(1)
    }
}

fn is_discovery(subsystem: &Nqn) -> bool {
    subsystem.as_str() == DISCOVERY_SUBSYSTEM
}
