//! The discovery service (Base 5.16.1.23, RDMA 3.5): which subsystems there are, and how they are reached.

use super::{DYNAMIC_CONTROLLER, Nqn};
use arrayvec::ArrayString;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The name that every discovery subsystem answers to (Base 4.5).
pub const DISCOVERY_SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Bytes of the header and of each entry.
pub const DISCOVERY_ENTRY_BYTES: usize = 1024;

/// Discovery log page header (Base figure 264).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR: changes with every change of the entries.
    pub generation: U64,
    /// NUMREC: entries.
    pub records: U64,
    /// RECFMT.
    pub record_format: U16,
    reserved: [u8; 1006],
}

/// Discovery log page entry (Base figure 265).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// TRTYPE.
    pub transport: u8,
    /// ADRFAM.
    pub address_family: u8,
    /// SUBTYPE.
    pub subsystem_type: u8,
    /// TREQ.
    pub requirements: u8,
    /// PORTID.
    pub port: U16,
    /// CNTLID.
    pub controller_id: U16,
    /// ASQSZ: largest admin queue, not 0-based.
    pub admin_queue_entries: U16,
    /// EFLAGS.
    pub flags: U16,
    reserved: [u8; 20],
    /// TRSVCID: the port number as ASCII, padded with spaces.
    pub service: [u8; 32],
    reserved_service: [u8; 192],
    /// SUBNQN.
    pub subsystem: [u8; 256],
    /// TRADDR: the address as ASCII, padded with spaces.
    pub address: [u8; 256],
    /// TSAS (RDMA figure 9): service type of the queue pair, provider, connection management.
    pub rdma: [u8; 3],
    reserved_rdma: [u8; 253],
}

const _: () = assert!(size_of::<DiscoveryHeader>() == DISCOVERY_ENTRY_BYTES);
layout!(DiscoveryEntry, DISCOVERY_ENTRY_BYTES; service: 32, subsystem: 256, address: 512, rdma: 768);

impl DiscoveryHeader {
    /// With as many entries of format 0.
    #[must_use]
    pub fn new(generation: u64, records: u64) -> Self {
        let mut header = Self::new_zeroed();
        (header.generation, header.records) = (generation.into(), records.into());
        header
    }
}

impl DiscoveryEntry {
    /// TRTYPE of RDMA.
    pub const RDMA: u8 = 1;
    /// SUBTYPE of a subsystem with namespaces.
    pub const NVM_SUBSYSTEM: u8 = 2;
    /// TREQ: a secure channel is not required.
    const NO_SECURE_CHANNEL: u8 = 2;
    /// RDMA_QPTYPE reliable connected, RDMA_PRTYPE none in particular, RDMA_CMS RDMA_CM.
    const RDMA_CM: [u8; 3] = [1, 1, 1];

    /// A subsystem that is reached at `address`, which is the target's `port` of that number (PORTID).
    #[must_use]
    pub fn new(subsystem: &Nqn, port: u16, address: SocketAddr, admin_queue_entries: u16) -> Self {
        let mut entry = Self::new_zeroed();
        entry.transport = Self::RDMA;
        entry.address_family = match address.ip() {
            IpAddr::V4(_) => 1,
            IpAddr::V6(_) => 2,
        };
        entry.subsystem_type = Self::NVM_SUBSYSTEM;
        entry.requirements = Self::NO_SECURE_CHANNEL;
        entry.port = port.into();
        entry.controller_id = DYNAMIC_CONTROLLER.into();
        entry.admin_queue_entries = admin_queue_entries.into();
        text(&mut entry.service, address.port());
        entry.subsystem = subsystem.to_field();
        text(&mut entry.address, address.ip());
        entry.rdma = Self::RDMA_CM;
        entry
    }
}

/// Longest text of an IPv6 address; a port is shorter.
const MAX_TEXT: usize = 46;

fn text<const N: usize>(field: &mut [u8; N], value: impl core::fmt::Display) {
    let mut written = ArrayString::<MAX_TEXT>::new();
    // It fits.
    let _ = write!(written, "{value}");
    // Base 1.4.2.
    *field = [b' '; N];
    for (to, from) in field.iter_mut().zip(written.bytes()) {
        *to = from;
    }
}
