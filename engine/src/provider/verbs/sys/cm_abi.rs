//! Structures of librdmacm (rdma_cma.h of rdma-core), which has no binding: those that this provider reads or fills.
//! Their layout is that of every release since 2010; the tests compare it with the installed header.

#![allow(missing_docs, reason = "members and events are those of the header, by their names")]

use core::ffi::{c_int, c_void};
use ibverbs_sys::{ibv_ah_attr, ibv_context, ibv_qp};

/// `struct rdma_event_channel`.
#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

/// `struct rdma_cm_id`, up to the last member that is read. Never made here: librdmacm allocates it.
#[repr(C)]
pub struct Identifier {
    pub verbs: *mut ibv_context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    /// `route.addr.src_addr`.
    pub source: libc::sockaddr_storage,
    /// `route.addr.dst_addr`.
    pub destination: libc::sockaddr_storage,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConnectionParameters {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `struct rdma_ud_param`: only its size counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DatagramParameters {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: ibv_ah_attr,
    pub qp_num: u32,
    pub qkey: u32,
}

/// `param` of [`Event`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union EventParameters {
    pub conn: ConnectionParameters,
    pub ud: DatagramParameters,
}

/// `struct rdma_cm_event`.
#[repr(C)]
pub struct Event {
    pub id: *mut Identifier,
    pub listen_id: *mut Identifier,
    pub event: c_int,
    pub status: c_int,
    pub param: EventParameters,
}

/// `RDMA_PS_TCP`: reliable connections.
pub const RDMA_PS_TCP: c_int = 0x0106;

/// `enum rdma_cm_event_type`.
pub mod event {
    use core::ffi::c_int;

    pub const ADDR_RESOLVED: c_int = 0;
    pub const ADDR_ERROR: c_int = 1;
    pub const ROUTE_RESOLVED: c_int = 2;
    pub const ROUTE_ERROR: c_int = 3;
    pub const CONNECT_REQUEST: c_int = 4;
    pub const CONNECT_RESPONSE: c_int = 5;
    pub const CONNECT_ERROR: c_int = 6;
    pub const UNREACHABLE: c_int = 7;
    pub const REJECTED: c_int = 8;
    pub const ESTABLISHED: c_int = 9;
    pub const DISCONNECTED: c_int = 10;
    pub const DEVICE_REMOVAL: c_int = 11;
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<EventChannel>() == 4);
    assert!(offset_of!(Identifier, verbs) == 0 && offset_of!(Identifier, source) == 32);
    assert!(offset_of!(Identifier, destination) == 160 && size_of::<Identifier>() == 288);
    assert!(offset_of!(ConnectionParameters, private_data_len) == 8);
    assert!(offset_of!(ConnectionParameters, srq) == 14 && offset_of!(ConnectionParameters, qp_num) == 16);
    assert!(size_of::<ConnectionParameters>() == 24);
    assert!(offset_of!(DatagramParameters, ah_attr) == 16 && size_of::<DatagramParameters>() == 56);
    assert!(offset_of!(Event, event) == 16 && offset_of!(Event, status) == 20);
    assert!(offset_of!(Event, param) == 24 && size_of::<Event>() == 80);
};
