//! Structures of librdmacm (rdma_cma.h of rdma-core), which has no binding: those that this provider reads or fills.
//! Their layout is that of every release since 2010; the tests compare it with the installed header.

use core::ffi::{c_int, c_void};
use ibverbs_sys::{ibv_ah_attr, ibv_context, ibv_qp};

/// `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct rdma_cm_id`, up to the last member that is read. Never made here: librdmacm allocates it.
#[repr(C)]
pub(super) struct Identifier {
    pub(super) verbs: *mut ibv_context,
    channel: *mut EventChannel,
    context: *mut c_void,
    qp: *mut ibv_qp,
    /// `route.addr.src_addr`.
    source: libc::sockaddr_storage,
    /// `route.addr.dst_addr`.
    pub(super) destination: libc::sockaddr_storage,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ConnectionParameters {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// `struct rdma_ud_param`: only its size counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DatagramParameters {
    private_data: *const c_void,
    private_data_len: u8,
    ah_attr: ibv_ah_attr,
    qp_num: u32,
    qkey: u32,
}

/// `param` of [`Event`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union EventParameters {
    pub(super) conn: ConnectionParameters,
    ud: DatagramParameters,
}

/// `struct rdma_cm_event`.
#[repr(C)]
pub(super) struct Event {
    pub(super) id: *mut Identifier,
    pub(super) listen_id: *mut Identifier,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) param: EventParameters,
}

/// `RDMA_PS_TCP`: reliable connections.
pub(super) const RDMA_PS_TCP: c_int = 0x0106;

/// `enum rdma_cm_event_type`.
pub(super) mod event {
    use core::ffi::c_int;

    pub(in super::super) const ADDR_RESOLVED: c_int = 0;
    pub(in super::super) const ADDR_ERROR: c_int = 1;
    pub(in super::super) const ROUTE_RESOLVED: c_int = 2;
    pub(in super::super) const ROUTE_ERROR: c_int = 3;
    pub(in super::super) const CONNECT_REQUEST: c_int = 4;
    pub(in super::super) const CONNECT_RESPONSE: c_int = 5;
    pub(in super::super) const CONNECT_ERROR: c_int = 6;
    pub(in super::super) const UNREACHABLE: c_int = 7;
    pub(in super::super) const REJECTED: c_int = 8;
    pub(in super::super) const ESTABLISHED: c_int = 9;
    pub(in super::super) const DISCONNECTED: c_int = 10;
    pub(in super::super) const DEVICE_REMOVAL: c_int = 11;
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
