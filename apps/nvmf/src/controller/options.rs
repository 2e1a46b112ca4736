//! What a target can be told, and the engine that it needs.

use super::addresses::{ElsewhereListener, MAX_LISTENERS};
use crate::wire::{COMMAND_CAPSULE_BYTES, Nqn, SGL_DESCRIPTOR_BYTES};
use core::num::NonZeroU64;
use core::ops::RangeInclusive;
use core::time::Duration;
use frwr_engine::{EngineOptions, ReceiveQueues, SLOTS_PER_REQUEST, provider::ConnectionParameters};
use std::net::SocketAddr;

/// Cores of one target: what knows of each member has a bit for it in a word.
pub const MAX_CORES: u16 = 64;
/// Targets that serve the same subsystems, one for each of a machine's devices: each has a share of the controller identifiers, and every
/// one of its listeners is in the discovery log of all others.
pub const MAX_TARGETS: u16 = 8;
/// The largest controller identifier: those above are reserved (Base figure 275).
pub const MAX_CONTROLLER_ID: u16 = 0xffef;
/// Controller identifiers that a target has for each of its controllers, at least, so that who names a controller that is gone
/// does not name the next one.
pub const IDS_PER_CONTROLLER: u16 = 2;
/// The core that owns the controllers.
pub const HOME_CORE: u16 = 0;
/// Smallest admin queue that a controller has to take, and what Linux asks for.
pub const ADMIN_QUEUE_ENTRIES: u16 = 32;
/// Largest queue: well below the 65536 that MQES can say, and each entry costs receives and transfer slots.
pub const MAX_QUEUE_ENTRIES: u16 = 4096;
/// I/O queues of one controller: one per core of a large machine.
pub const MAX_IO_QUEUES: u16 = 256;
/// Connections of one engine, as its own limit says: admin and I/O queues of all controllers.
pub const MAX_CONNECTIONS: u32 = 4096;
/// Connections of each core beside those that may be queues of hosts, so that who comes is told why it stays outside, and makes room
/// where somebody is there who never became a host: the queues that some hosts bring at a time.
pub const UNPROVEN_CONNECTIONS: u16 = 8;
/// Memory of data buffers that replies may hold whose end is not known yet, and once more of those that are in use, as a rule: what
/// thousands of commands of some blocks hold. Where buffers are large, or connections many, these are fewer than there are commands, and
/// commands wait for them.
const HELD_BUFFER_BYTES: u32 = 192 << 20;
/// Buffers of each of both at least, however large: that many commands a target may have in hand.
const LEAST_HELD_BUFFERS: u32 = 32;
/// Smallest data buffer: two units of MDTS, which cannot say one, and more than an Identify structure.
pub const MIN_BUFFER_BYTES: u32 = 8192;
/// MDTS counts in the smallest page that CAP names.
pub(super) const TRANSFER_UNIT: u32 = 4096;
/// Largest data buffer: 8 MiB, the largest power of two that a keyed data block can describe.
pub const MAX_BUFFER_BYTES: u32 = 8 << 20;
/// Largest in-capsule data: half of the engine's largest message.
pub const MAX_IN_CAPSULE_BYTES: u32 = 64 << 10;

/// Namespaces of one subsystem: identifiers 1 to this. One Identify list, and one list of changed ones, holds 1024.
pub const MAX_NAMESPACES: usize = 1024;

/// Subsystems of one target: their entries, and the header, are a discovery log of 64 KiB, which hosts read as a whole.
pub const MAX_SUBSYSTEMS: usize = 63;

/// Namespaces of a target, of all subsystems: as many as all of those may have.
pub const MAX_TOTAL_NAMESPACES: u32 = (MAX_SUBSYSTEMS * MAX_NAMESPACES) as u32;
/// Hosts that may be allowed by name: a quarter of a megabyte of names.
const DEFAULT_ALLOWED_HOSTS: u32 = 1024;

/// Most data blocks of one command: what the engine moves as one transfer.
pub const MAX_DATA_BLOCKS: u8 = frwr_engine::MAX_TRANSFER_OPERATIONS as u8;

const _: () = assert!(MIN_BUFFER_BYTES > TRANSFER_UNIT);
// A controller has a connection at least, and an I/O controller two.
const _: () = assert!(
    (MAX_CONTROLLER_ID / MAX_TARGETS) as u32
        >= IDS_PER_CONTROLLER as u32 * (MAX_CONNECTIONS - UNPROVEN_CONNECTIONS as u32 - 1),
    "each target has enough of all of them"
);
const _: () = assert!(MIN_BUFFER_BYTES as usize >= crate::wire::IDENTIFY_BYTES);
const _: () = assert!(MAX_BUFFER_BYTES <= crate::wire::KEYED_DATA_BLOCK_LIMIT);
const _: () = assert!(MAX_IN_CAPSULE_BYTES + COMMAND_CAPSULE_BYTES as u32 <= frwr_engine::MAX_MESSAGE_BYTES);

frwr_mempool::options! {
    /// What a target is.
    #[derive(Clone, Debug)]
    pub struct TargetOptions {
        /// Where it listens: 1 to [`MAX_LISTENERS`] addresses, each once.
        pub addresses: Vec<SocketAddr>,
        /// Name of its subsystem.
        pub subsystem: Nqn,
        /// Which core of the target this is, from 0; core 0 owns the controllers.
        pub core: u16,
        /// Cores that the I/O queues are spread over, 1 to [`super::MAX_CORES`]. All of them are made with the same options but for
        /// `core`, and with the same subsystems over storages of the same geometry and features.
        pub cores: u16,
        /// Which of the targets it is that serve the same subsystems, from 0: each over devices of its own, with controllers, changes and
        /// listeners of its own. Hosts take them for ports of one subsystem, since no two of them give a controller or a port the same
        /// identifier.
        pub target: u16,
        /// How many of these there may be at the same time, 1 to [`MAX_TARGETS`]: identifiers are shared out by it. Each is told where the
        /// others listen ([`super::Target::list_elsewhere`]).
        pub targets: u16,
        /// Controller identifiers of all of these targets together, from 1 to [`MAX_CONTROLLER_ID`]: all of them, unless other
        /// gateways serve the same subsystems. Hosts refuse a controller whose identifier another one of its subsystem has, so no two
        /// gateways may have any in common. Each target has its share, [`IDS_PER_CONTROLLER`] for each of its controllers at least.
        pub controller_ids: RangeInclusive<u16>,
        /// The lowest PORTID of these targets, from 1: target n has the [`MAX_LISTENERS`] behind n times as many. Ports of other
        /// gateways have others.
        pub first_port_id: u16,
        /// Controllers of hosts at the same time, those of discovery apart: one for each subsystem that a host uses, and
        /// `returning_controllers`. One whose commands a storage still has counts until they are done.
        pub controllers: u16,
        /// Of these, those that only a host gets that has one for the same subsystem already, since it may have come back before its
        /// former connection was gone; fewer than `controllers`.
        pub returning_controllers: u16,
        /// Discovery controllers at the same time: one for each host that asks, or stays to hear of changes.
        pub discovery_controllers: u16,
        /// Subsystems that there may be at the same time, up to [`MAX_SUBSYSTEMS`]; those that the target is made with at least.
        pub subsystems: u16,
        /// Namespaces that there may be at the same time, of all subsystems; those that the target is made with at least. Each subsystem
        /// has identifiers from 1 to this, at most [`MAX_NAMESPACES`], or to as many as it is made with. A namespace that was removed
        /// counts until it is gone.
        pub namespaces: u32,
        /// Hosts that may be allowed by name, of each subsystem.
        pub allowed_hosts: u32,
        /// I/O queues of one controller, 1 to [`MAX_IO_QUEUES`].
        pub io_queues: u16,
        /// Entries of the largest queue, [`ADMIN_QUEUE_ENTRIES`] to [`MAX_QUEUE_ENTRIES`].
        pub queue_entries: u16,
        /// Bytes of a data buffer, and so of the largest transfer: a power of two from [`MIN_BUFFER_BYTES`] to
        /// [`MAX_BUFFER_BYTES`].
        pub buffer_bytes: u32,
        /// Data that an I/O command's capsule may carry, a multiple of 16 up to [`MAX_IN_CAPSULE_BYTES`] and
        /// `buffer_bytes`; 0 for none.
        pub in_capsule_bytes: u32,
        /// Data blocks that a command may list, 1 to [`MAX_DATA_BLOCKS`] (MSDBD); more than one need room for their
        /// descriptors in the capsule, so `in_capsule_bytes` of 16 for each.
        pub data_blocks: u8,
        /// Where the receives of its connections are posted. Of a shared queue each connection is granted as many as its host's
        /// queue has entries, and hosts for whom none are left are told "no resources".
        pub receive_queues: ReceiveQueues,
        /// How long a connection may take until Connect has made it a queue; it is ended then, so that silent peers keep no place.
        /// It begins anew while the target itself holds a Connect back.
        pub connect_timeout: Duration,
        /// How long a host that asked for no keep alive may be silent, until its device is asked whether it is there
        /// ([`frwr_engine::Engine::probe`]); one that answers stays. Zero: for ever.
        pub max_silence: Duration,
        /// Spoils one byte of every n-th read's data, to prove that verification catches it (`--inject corrupt-data`).
        pub corrupt_reads: Option<NonZeroU64>,
        /// Answers with SEND_WITH_INV where the host asks for it, and the device can. Without, hosts have to invalidate their keys themselves:
        /// to ask for it is no claim (NVMe over RDMA 3.2), and a host sees by each response whether its key is dead.
        pub remote_invalidation: bool,
        /// Retries and RDMA READ depths of its connections.
        pub parameters: ConnectionParameters,
    }
}

impl TargetOptions {
    /// With the defaults of the program, at one address.
    #[must_use]
    pub fn new(address: SocketAddr, subsystem: Nqn) -> Self {
        Self {
            addresses: vec![address],
            subsystem,
            core: HOME_CORE,
            cores: 1,
            target: 0,
            targets: 1,
            controller_ids: 1..=MAX_CONTROLLER_ID,
            first_port_id: 1,
            controllers: 2,
            returning_controllers: 0,
            discovery_controllers: 2,
            subsystems: 0,
            namespaces: 0,
            allowed_hosts: DEFAULT_ALLOWED_HOSTS,
            io_queues: 1,
            queue_entries: 64,
            buffer_bytes: 128 << 10,
            in_capsule_bytes: 0,
            data_blocks: 1,
            receive_queues: ReceiveQueues::PerConnection,
            connect_timeout: Duration::from_secs(5),
            max_silence: Duration::from_secs(300),
            corrupt_reads: None,
            remote_invalidation: true,
            parameters: ConnectionParameters::default(),
        }
    }

    /// Where it listens at its start, as the other targets that serve the same subsystems are told ([`super::Target::list_elsewhere`]).
    pub fn listeners(&self) -> impl Iterator<Item = ElsewhereListener> {
        let ports = self.first_port()..;
        ports.zip(&self.addresses).map(|(port, address)| ElsewhereListener { port, address: *address })
    }

    /// The lowest PORTID of its listeners.
    pub(super) fn first_port(&self) -> u16 {
        self.first_port_id.saturating_add(self.target.saturating_mul(MAX_LISTENERS as u16))
    }

    /// Controller identifiers of each of the targets, of a range that is not empty.
    fn ids_of_each(&self) -> u16 {
        self.controller_ids.end().saturating_sub(*self.controller_ids.start()).saturating_add(1) / self.targets.max(1)
    }

    /// Its share of the controller identifiers.
    pub(super) fn own_ids(&self) -> RangeInclusive<u16> {
        let each = self.ids_of_each();
        let first = self.controller_ids.start().saturating_add(each.saturating_mul(self.target));
        first..=first.saturating_add(each.saturating_sub(1))
    }

    /// The same for another core of the target.
    #[must_use]
    pub fn on_core(&self, core: u16) -> Self {
        self.clone().core(core)
    }

    /// Connections of this core at the same time: those of hosts, on the home core those of discovery, and [`UNPROVEN_CONNECTIONS`].
    #[must_use]
    pub fn connections(&self) -> u16 {
        let discovery = if self.core == HOME_CORE { self.discovery_controllers } else { 0 };
        self.host_queues().saturating_add(discovery).saturating_add(UNPROVEN_CONNECTIONS)
    }

    /// Queues of hosts on this core: its share of the I/O queues, which a core gets while no other has fewer, and on the home core each
    /// controller's admin queue.
    fn host_queues(&self) -> u16 {
        let share = self.controllers.saturating_mul(self.io_queues).div_ceil(self.cores.max(1));
        share.saturating_add(if self.core == HOME_CORE { self.controllers } else { 0 })
    }

    /// Places in the table of controllers.
    pub(super) fn places(&self) -> u16 {
        self.controllers.saturating_add(self.discovery_controllers)
    }

    /// Data buffers that the target needs at least, so that replies whose completion nobody has asked for yet cannot hold
    /// them all: the engine asks for completions from so many transfers on. Beside them are those that nobody but admin queues has.
    #[must_use]
    pub fn least_buffers(&self) -> u32 {
        self.transfers_held().saturating_add(1).saturating_add(self.admin_buffers())
    }

    /// A quarter of all transfers of hosts, as engines have it by themselves, or fewer where those are too many buffers.
    fn transfers_held(&self) -> u32 {
        let slots = u32::from(self.queue_entries) * SLOTS_PER_REQUEST;
        self.bounded(slots.saturating_mul(self.host_queues().into()).div_ceil(4))
    }

    /// As many buffers, or as fit the memory of a share.
    fn bounded(&self, buffers: u32) -> u32 {
        buffers.min((HELD_BUFFER_BYTES / self.buffer_bytes.max(1)).max(LEAST_HELD_BUFFERS))
    }

    /// Data buffers that namespaces leave to what belongs to none: a Connect of each controller, which may have to wait for a
    /// storage with its data in hand, and one more for who need not wait.
    pub(super) fn admin_buffers(&self) -> u32 {
        u32::from(self.controllers) + 1
    }

    /// Bytes of buffer memory for `busy` transfers at the same time beside what replies may hold.
    #[must_use]
    pub fn buffer_memory_bytes(&self, busy: u32) -> usize {
        (self.least_buffers().saturating_add(busy) as usize).saturating_mul(self.buffer_bytes as usize)
    }

    /// The same for as many transfers as the largest queue has entries, or as are worth their memory.
    #[must_use]
    pub fn usual_buffer_memory_bytes(&self) -> usize {
        self.buffer_memory_bytes(self.bounded(self.queue_entries.into()))
    }

    /// The engine that serves this target. Fields that do not set its sizes may be changed before it is made.
    #[must_use]
    pub fn engine(&self) -> EngineOptions {
        EngineOptions::default()
            .connections(self.connections())
            // A target opens no memory of its own to hosts.
            .opens_keys(false)
            .queue_depth(0)
            .transfer_depth(u32::from(self.queue_entries))
            .transfers_held(self.transfers_held())
            .receive_depth(u32::from(self.receives()))
            .receive_queues(self.receive_queues)
            .message_bytes(COMMAND_CAPSULE_BYTES as u32 + self.in_capsule_bytes)
            .max_segments(1)
    }

    /// Receives of each connection: a queue of n entries has at most n commands outstanding, and each occupies its
    /// receive no longer than that.
    pub(super) fn receives(&self) -> u16 {
        self.queue_entries
    }

    /// Receives of a connection whose host has a queue of this many entries.
    pub(super) fn granted(&self, entries: u16) -> u16 {
        match self.receive_queues {
            ReceiveQueues::PerConnection => self.receives(),
            ReceiveQueues::Shared { .. } => self.receives().min(entries.max(1)),
        }
    }

    fn transfer_slots(&self) -> u32 {
        let slots = u32::from(self.queue_entries) * SLOTS_PER_REQUEST;
        slots.saturating_mul(u32::from(self.connections()))
    }

    /// Commands that can exist at a time: those that were not answered, and replies that the device still holds.
    pub(super) fn command_slots(&self) -> u32 {
        self.transfer_slots().saturating_add(self.command_entries())
    }

    /// Commands that have not been answered: entries of all queues, if each were as large as can be, and what storages still have of
    /// queues that are gone. On one core no controller has more of both than it may have queues. Where there are several, what is gone may have
    /// been here, and what came for it from other hosts as well: each controller's share of a core once more.
    pub(super) fn command_entries(&self) -> u32 {
        let shares = u32::from(self.controllers) * u32::from(self.io_queues.div_ceil(self.cores.max(1)));
        let late = if self.cores > 1 { shares } else { 0 };
        u32::from(self.queue_entries).saturating_mul(u32::from(self.connections()).saturating_add(late))
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        let entries = (u32::from(ADMIN_QUEUE_ENTRIES), u32::from(MAX_QUEUE_ENTRIES));
        let queues = u32::from(self.controllers).saturating_mul(u32::from(self.io_queues) + 1);
        let connections = queues + u32::from(self.discovery_controllers) + u32::from(UNPROVEN_CONNECTIONS);
        // Far fewer than 2^32.
        let listeners = self.addresses.len() as u32;
        let (first_id, last_id) = (self.controller_ids.start(), self.controller_ids.end());
        // At most MAX_TARGETS is looked at first.
        let ports = u32::from(self.targets.min(MAX_TARGETS)) * MAX_LISTENERS as u32;
        for (name, value, (least, most)) in [
            ("addresses", listeners, (1, MAX_LISTENERS as u32)),
            ("cores", self.cores.into(), (1, MAX_CORES.into())),
            ("core", self.core.into(), (0, u32::from(self.cores.saturating_sub(1)))),
            ("targets", self.targets.into(), (1, MAX_TARGETS.into())),
            ("target", self.target.into(), (0, u32::from(self.targets.saturating_sub(1)))),
            ("controller_ids.start", (*first_id).into(), (1, MAX_CONTROLLER_ID.into())),
            ("controller_ids.end", (*last_id).into(), ((*first_id).into(), MAX_CONTROLLER_ID.into())),
            ("first_port_id", self.first_port_id.into(), (1, u32::from(u16::MAX) - ports + 1)),
            ("controllers", u32::from(self.controllers), (1, MAX_CONNECTIONS)),
            (
                "returning_controllers",
                self.returning_controllers.into(),
                (0, u32::from(self.controllers.saturating_sub(1))),
            ),
            ("discovery_controllers", self.discovery_controllers.into(), (1, MAX_CONNECTIONS)),
            // Few enough for 32 bits.
            ("subsystems", self.subsystems.into(), (0, MAX_SUBSYSTEMS as u32)),
            ("namespaces", self.namespaces, (0, MAX_TOTAL_NAMESPACES)),
            ("io_queues", u32::from(self.io_queues), (1, u32::from(MAX_IO_QUEUES))),
            ("controllers * (io_queues + 1) + discovery_controllers + 8", connections, (2, MAX_CONNECTIONS)),
            ("queue_entries", u32::from(self.queue_entries), entries),
            ("buffer_bytes", self.buffer_bytes, (MIN_BUFFER_BYTES, MAX_BUFFER_BYTES)),
            ("data_blocks", self.data_blocks.into(), (1, MAX_DATA_BLOCKS.into())),
            ("in_capsule_bytes", self.in_capsule_bytes, (0, MAX_IN_CAPSULE_BYTES.min(self.buffer_bytes))),
        ] {
            if !(least..=most).contains(&value) {
                return Err(OptionError::Range { name, value, least, most });
            }
        }
        let (each, wanted) = (self.ids_of_each().into(), u32::from(self.places()) * u32::from(IDS_PER_CONTROLLER));
        if each < wanted {
            return Err(OptionError::ControllerIds { each, wanted });
        }
        for (at, address) in self.addresses.iter().enumerate() {
            if self.addresses[..at].contains(address) {
                return Err(OptionError::AddressTwice(*address));
            }
        }
        if !self.buffer_bytes.is_power_of_two() {
            return Err(OptionError::BufferBytes(self.buffer_bytes));
        }
        if !self.in_capsule_bytes.is_multiple_of(16) {
            return Err(OptionError::InCapsuleBytes(self.in_capsule_bytes));
        }
        let descriptors = u32::from(self.data_blocks) * SGL_DESCRIPTOR_BYTES as u32;
        if self.data_blocks > 1 && descriptors > self.in_capsule_bytes {
            return Err(OptionError::DataBlocks { blocks: self.data_blocks, wanted: descriptors });
        }
        Ok(())
    }
}

/// An option that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Out of its range.
    #[error("{name} is {value}: must be from {least} to {most}; choose a value inside")]
    Range {
        /// The option's name.
        name: &'static str,
        /// Its value.
        value: u32,
        /// Lowest value.
        least: u32,
        /// Highest value.
        most: u32,
    },
    /// Identifiers would come again too soon.
    #[error("controller_ids has {each} for each target: must be {wanted} at least; widen it, or lower controllers")]
    ControllerIds {
        /// Of each target.
        each: u32,
        /// [`IDS_PER_CONTROLLER`] for each of its controllers.
        wanted: u32,
    },
    /// It listens at each address once.
    #[error("addresses has {0} twice; name it once")]
    AddressTwice(SocketAddr),
    /// MDTS counts in powers of two.
    #[error("buffer_bytes is {0}: must be a power of two; choose the next one")]
    BufferBytes(u32),
    /// IOCCSZ counts in units of 16 bytes.
    #[error("in_capsule_bytes is {0}: must be a multiple of 16; choose the next one")]
    InCapsuleBytes(u32),
    /// Descriptors travel in the capsule.
    #[error("data_blocks is {blocks}: their descriptors need {wanted} bytes of the capsule; raise in_capsule_bytes")]
    DataBlocks {
        /// Data blocks.
        blocks: u8,
        /// Bytes for their descriptors.
        wanted: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::TargetOptions;
    use crate::wire::Nqn;

    /// As docs/config.md says for the defaults of `serve`, and for more hosts than anybody has.
    #[test]
    fn buffers_are_bounded_by_their_memory() {
        let address = "127.0.0.1:4420".parse().unwrap();
        let of = |controllers, buffer_bytes| {
            let options = TargetOptions::new(address, Nqn::new("nqn.x").unwrap());
            let options = options.controllers(controllers).io_queues(4).queue_entries(129).buffer_bytes(buffer_bytes);
            options.check().unwrap();
            let bytes = options.usual_buffer_memory_bytes();
            (bytes / buffer_bytes as usize, bytes >> 20)
        };
        assert_eq!(of(9, 64 << 10), (3043, 190));
        assert_eq!(of(9, 128 << 10), (1676, 209));
        assert_eq!(of(9, 1 << 20), (332, 332));
        assert_eq!(of(9, 8 << 20), (75, 600));
        assert_eq!(of(257, 128 << 10), (1536 + 1 + 258 + 129, 240));
    }
}
