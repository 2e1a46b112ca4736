//! Layouts of the interface of rdma_ucm: what librdmacm writes and expects. Facts of rdma_user_cm.h, ib_user_sa.h and
//! ib_user_verbs.h of rdma-core 44. Numbers are the machine's own unless it is said.

use super::Errno;
use crate::layouts::layouts;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Commands.
pub(super) mod command {
    pub(in super::super) const CREATE: u32 = 0;
    pub(in super::super) const DESTROY: u32 = 1;
    pub(in super::super) const BIND: u32 = 2;
    pub(in super::super) const RESOLVE_ADDRESS: u32 = 3;
    pub(in super::super) const RESOLVE_ROUTE: u32 = 4;
    pub(in super::super) const QUERY_ROUTE: u32 = 5;
    pub(in super::super) const CONNECT: u32 = 6;
    pub(in super::super) const LISTEN: u32 = 7;
    pub(in super::super) const ACCEPT: u32 = 8;
    pub(in super::super) const REJECT: u32 = 9;
    pub(in super::super) const DISCONNECT: u32 = 10;
    pub(in super::super) const INIT_ATTRIBUTES: u32 = 11;
    pub(in super::super) const GET_EVENT: u32 = 12;
    pub(in super::super) const SET_OPTION: u32 = 14;
    pub(in super::super) const NOTIFY: u32 = 15;
}

/// Events (rdma_get_cm_event(3)).
pub(super) mod event {
    pub(in super::super) const ADDRESS_RESOLVED: u32 = 0;
    pub(in super::super) const ADDRESS_ERROR: u32 = 1;
    pub(in super::super) const ROUTE_RESOLVED: u32 = 2;
    pub(in super::super) const CONNECT_REQUEST: u32 = 4;
    pub(in super::super) const CONNECT_RESPONSE: u32 = 5;
    pub(in super::super) const UNREACHABLE: u32 = 7;
    pub(in super::super) const REJECTED: u32 = 8;
    pub(in super::super) const ESTABLISHED: u32 = 9;
    pub(in super::super) const DISCONNECTED: u32 = 10;
    pub(in super::super) const TIMEWAIT_EXIT: u32 = 15;
}

/// Room for private data in every command.
pub(super) const PRIVATE_DATA: usize = 256;

layouts! {
    /// In front of each command; lengths in bytes, without it.
    Header, 8 { command: u32, in_bytes: u16, out_bytes: u16 }
    Create, 24 { user: u64, response: u64, space: u16, kind: u8, reserved: [u8; 5] }
    CreateAnswer, 4 { id: u32 }
    Destroy, 16 { response: u64, id: u32, reserved: u32 }
    DestroyAnswer, 4 { events: u32 }
    /// A sockaddr_in in the room of a sockaddr_in6; port and address are big-endian.
    Address, 28 { family: u16, port: [u8; 2], ip: [u8; 4], rest: [u8; 20] }
    Bind, 40 { response: u64, address: Address, id: u32 }
    ResolveAddress, 64 { source: Address, destination: Address, id: u32, timeout: u32 }
    ResolveRoute, 8 { id: u32, timeout: u32 }
    Query, 16 { response: u64, id: u32, option: u32 }
    /// A path; numbers are big-endian where they are bytes.
    Path, 64 {
        destination: [u8; 16], source: [u8; 16], destination_lid: [u8; 2], source_lid: [u8; 2], raw: u32,
        flow: u32, reversible: u32, mtu: u32, partition: [u8; 2], hops: u8, class: u8, paths: u8, level: u8,
        mtu_selector: u8, rate_selector: u8, rate: u8, life_selector: u8, life: u8, preference: u8
    }
    RouteAnswer, 208 {
        node_guid: u64, paths: [Path; 2], source: Address, destination: Address, path_count: u32, port: u8,
        reserved: [u8; 3], device_index: u32, more_reserved: u32
    }
    Parameters, 272 {
        queue_pair: u32, queue_key: u32, private_data: [u8; PRIVATE_DATA], private_data_bytes: u8, shared: u8, reads_in: u8,
        reads_out: u8, flow_control: u8, retries: u8, receiver_retries: u8, valid: u8
    }
    Connect, 288 { parameters: Parameters, id: u32, reserved: u32, enhanced: [u32; 2] }
    Listen, 8 { id: u32, backlog: u32 }
    Accept, 296 { user: u64, parameters: Parameters, id: u32, reserved: u32, enhanced: [u32; 2] }
    Reject, 264 { id: u32, private_data_bytes: u8, reason: u8, reserved: [u8; 2], private_data: [u8; PRIVATE_DATA] }
    Disconnect, 4 { id: u32 }
    InitAttributes, 16 { response: u64, id: u32, state: u32 }
    GetEvent, 8 { response: u64 }
    EventAnswer, 336 {
        user: u64, id: u32, event: u32, status: i32, parameters: Parameters, room: [u8; 32], reserved: u32,
        enhanced: [u32; 2]
    }
    AddressHandle, 32 {
        gid: [u8; 16], flow: u32, gid_index: u8, hops: u8, class: u8, route_reserved: u8, lid: u16, level: u8,
        path_bits: u8, rate: u8, is_global: u8, port: u8, reserved: u8
    }
    Attributes, 144 {
        mask: u32, state: u32, current_state: u32, mtu: u32, migration: u32, queue_key: u32, receive_number: u32,
        send_number: u32, destination: u32, access: u32, path: AddressHandle, alternative: AddressHandle,
        room: [u32; 5], partition: u16, alternative_partition: u16, notify: u8, draining: u8, reads_out: u8, reads_in: u8,
        receiver_timer: u8, port: u8, timeout: u8, retries: u8, receiver_retries: u8, alternative_port: u8,
        alternative_timeout: u8, reserved: [u8; 5]
    }
}

impl Address {
    pub(super) fn of(address: SocketAddrV4) -> Self {
        let (port, ip) = (address.port().to_be_bytes(), address.ip().octets());
        Self { family: libc::AF_INET as u16, port, ip, rest: [0; 20] }
    }

    pub(super) fn none() -> Self {
        Self { family: 0, port: [0; 2], ip: [0; 4], rest: [0; 20] }
    }

    /// What it says; only IPv4 is known here.
    pub(super) fn get(&self) -> Result<SocketAddrV4, Errno> {
        if i32::from(self.family) != libc::AF_INET {
            return Err(libc::EAFNOSUPPORT);
        }
        Ok(SocketAddrV4::new(Ipv4Addr::from(self.ip), u16::from_be_bytes(self.port)))
    }
}

impl Parameters {
    pub(super) fn empty() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }

    /// The private data that was given, where it is no longer than a message has room for.
    pub(super) fn private_data(&self, room: usize) -> Result<&[u8], Errno> {
        self.private_data
            .get(..usize::from(self.private_data_bytes))
            .filter(|data| data.len() <= room)
            .ok_or(libc::EINVAL)
    }

    /// As the other end gets it: what one reads the other is read. Private data fills the message's room.
    pub(super) fn turned(&self, data: &[u8], room: usize) -> Self {
        let mut private_data = [0; PRIVATE_DATA];
        private_data[..data.len()].copy_from_slice(data);
        // At most 196, of a connect reply.
        let private_data_bytes = room as u8;
        Self { reads_in: self.reads_out, reads_out: self.reads_in, private_data, private_data_bytes, ..*self }
    }
}
