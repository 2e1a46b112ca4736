//! The functions of librdmacm.

use crate::{
    GID,
    connection_manager::{Channel, Identifier, Pending, REQUEST_DATA, Stage, Terms},
    gid_bytes,
    raw::{Signal, minus_one},
    verbs::{give, take_back, zeroed},
    world::{World, with},
};
use core::{
    ffi::{c_int, c_void},
    ptr::null_mut,
};
use frwr_engine::provider::verbs::{
    ConnectionManagerFunctions,
    abi::connection_manager::{self as abi, RDMA_PS_TCP, event},
};
use ibverbs_sys::{ibv_gid, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};
use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// What programs call.
pub(crate) const FUNCTIONS: ConnectionManagerFunctions = ConnectionManagerFunctions {
    rdma_create_event_channel: create_event_channel,
    rdma_destroy_event_channel: destroy_event_channel,
    rdma_create_id: create_id,
    rdma_destroy_id: destroy_id,
    rdma_bind_addr: bind_addr,
    rdma_listen: listen,
    rdma_resolve_addr: resolve_addr,
    rdma_resolve_route: resolve_route,
    rdma_connect: connect,
    rdma_accept: accept,
    rdma_reject: reject,
    rdma_establish: establish,
    rdma_disconnect: disconnect,
    rdma_init_qp_attr: init_qp_attr,
    rdma_get_cm_event: get_cm_event,
    rdma_ack_cm_event: ack_cm_event,
};

/// `enum ibv_mtu`: 4096 bytes.
const LARGEST_MTU: u32 = 5;
/// 4.096 us * 2^18: librdmacm's order of magnitude.
const TIMEOUT: u8 = 18;

fn code(result: Result<(), i32>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(code) => minus_one(code),
    }
}

unsafe extern "C" fn create_event_channel() -> *mut abi::EventChannel {
    let signal = Signal::new();
    let raw = give(abi::EventChannel { fd: signal.fd() });
    let channel = Channel { signal, events: VecDeque::new() };
    with(|world| world.manager.channels.insert(raw.addr(), channel));
    raw
}

unsafe extern "C" fn destroy_event_channel(raw: *mut abi::EventChannel) {
    with(|world| world.manager.channels.remove(&raw.addr()));
    // SAFETY: made by `create_event_channel`, and forgotten above.
    unsafe { take_back(raw) };
}

fn make_id(channel: *mut abi::EventChannel) -> *mut abi::Identifier {
    let raw = give(abi::Identifier {
        verbs: null_mut(),
        channel,
        context: null_mut(),
        qp: null_mut(),
        source: zeroed(),
        destination: zeroed(),
    });
    raw.expose_provenance();
    raw
}

unsafe extern "C" fn create_id(
    channel: *mut abi::EventChannel,
    into: *mut *mut abi::Identifier,
    _context: *mut c_void,
    port_space: c_int,
) -> c_int {
    if port_space != RDMA_PS_TCP {
        return minus_one(libc::EINVAL);
    }
    let raw = make_id(channel);
    with(|world| world.manager.ids.insert(raw.addr(), Identifier::new(channel.addr())));
    // SAFETY: the caller's pointer.
    unsafe { *into = raw };
    0
}

unsafe extern "C" fn destroy_id(raw: *mut abi::Identifier) -> c_int {
    code(with(|world| world.destroy_id(raw.addr())))
}

/// # Safety
/// A socket address of its family.
unsafe fn socket_address(raw: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller's promise; the family tells which structure it is.
    unsafe {
        match i32::from((*raw).sa_family) {
            libc::AF_INET => {
                let v4 = &*raw.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = &*raw.cast::<libc::sockaddr_in6>();
                Some(SocketAddr::new(Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

/// An address as identifiers show it. Devices have addresses of IPv4.
fn storage(address: SocketAddr) -> libc::sockaddr_storage {
    let mut raw: libc::sockaddr_storage = zeroed();
    if let SocketAddr::V4(address) = address {
        let v4 = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
            sin_zero: [0; 8],
        };
        // SAFETY: a storage is as large and as aligned as the address of any family.
        unsafe { (&raw mut raw).cast::<libc::sockaddr_in>().write(v4) };
    }
    raw
}

unsafe extern "C" fn bind_addr(raw: *mut abi::Identifier, address: *mut libc::sockaddr) -> c_int {
    // SAFETY: the caller's address.
    let Some(address) = (unsafe { socket_address(address) }) else { return minus_one(libc::EINVAL) };
    code(with(|world| {
        let taken = |id: &Identifier| matches!(id.stage, Stage::Bound | Stage::Listening) && id.local == Some(address);
        if world.manager.ids.values().any(taken) {
            return Err(libc::EADDRINUSE);
        }
        world.bind_to(raw.addr(), address)?;
        world.id(raw)?.stage = Stage::Bound;
        Ok(())
    }))
}

impl World {
    fn id(&mut self, raw: *mut abi::Identifier) -> Result<&mut Identifier, i32> {
        self.manager.ids.get_mut(&raw.addr()).ok_or(libc::EINVAL)
    }

    /// Moves an identifier from a stage to the next.
    fn advance(&mut self, raw: *mut abi::Identifier, from: Stage, to: Stage) -> Result<(), i32> {
        let id = self.id(raw)?;
        if id.stage != from {
            return Err(libc::EINVAL);
        }
        id.stage = to;
        Ok(())
    }
}

unsafe extern "C" fn listen(raw: *mut abi::Identifier, _backlog: c_int) -> c_int {
    code(with(|world| world.advance(raw, Stage::Bound, Stage::Listening)))
}

unsafe extern "C" fn resolve_addr(
    raw: *mut abi::Identifier,
    source: *mut libc::sockaddr,
    destination: *mut libc::sockaddr,
    _milliseconds: c_int,
) -> c_int {
    // SAFETY: the caller's addresses; the source may be missing.
    let (source, destination) =
        unsafe { (if source.is_null() { None } else { socket_address(source) }, socket_address(destination)) };
    let Some(destination) = destination else { return minus_one(libc::EINVAL) };
    code(with(|world| {
        let known = world.devices.values().any(|record| destination.ip() == record.address);
        // Without a source a host reaches itself by the address itself.
        let local = source.unwrap_or(SocketAddr::new(destination.ip(), 0));
        if !known || world.bind_to(raw.addr(), local).is_err() {
            world.manager.say(raw.addr(), event::ADDR_ERROR, -libc::ENETUNREACH);
            return Ok(());
        }
        world.id(raw)?.remote = Some(destination);
        world.advance(raw, Stage::Idle, Stage::Resolved)?;
        world.manager.say(raw.addr(), event::ADDR_RESOLVED, 0);
        Ok(())
    }))
}

unsafe extern "C" fn resolve_route(raw: *mut abi::Identifier, _milliseconds: c_int) -> c_int {
    code(with(|world| {
        world.advance(raw, Stage::Resolved, Stage::Routed)?;
        world.manager.say(raw.addr(), event::ROUTE_RESOLVED, 0);
        Ok(())
    }))
}

/// # Safety
/// Parameters whose private data lie where they say.
unsafe fn terms(raw: *const abi::ConnectionParameters) -> (Terms, Vec<u8>) {
    // SAFETY: the caller's promise.
    let (raw, data) = unsafe { (*raw, bytes((*raw).private_data, (*raw).private_data_len)) };
    let terms = Terms {
        number: raw.qp_num,
        responder_resources: raw.responder_resources,
        initiator_depth: raw.initiator_depth,
        retry_count: raw.retry_count,
        rnr_retry_count: raw.rnr_retry_count,
    };
    (terms, data)
}

/// # Safety
/// As many bytes lie there; none are asked for where there is nothing.
unsafe fn bytes(first: *const c_void, count: u8) -> Vec<u8> {
    if first.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(first.cast::<u8>(), count.into()) }.to_vec()
}

unsafe extern "C" fn connect(raw: *mut abi::Identifier, parameters: *mut abi::ConnectionParameters) -> c_int {
    // SAFETY: the caller's parameters.
    let (ours, data) = unsafe { terms(parameters) };
    if data.len() > REQUEST_DATA {
        return minus_one(libc::EINVAL);
    }
    code(with(|world| {
        // The other side's identifier; its channel is set once somebody listens.
        let incoming = make_id(null_mut());
        let asked = world.manager.request(raw.addr(), incoming.addr(), ours, &data);
        if asked == Ok(true) {
            let answerer = &world.manager.ids[&incoming.addr()];
            let (local, remote) = (answerer.local.ok_or(libc::EINVAL)?, answerer.remote);
            // SAFETY: made above, and not handed out before this call returns.
            unsafe { (*incoming).source = storage(local) };
            if let Some(remote) = remote {
                // SAFETY: as above.
                unsafe { (*incoming).destination = storage(remote) };
            }
            return world.bind_to(incoming.addr(), local);
        }
        // SAFETY: made above, and seen by nobody.
        unsafe { take_back(incoming) };
        asked.map(drop)
    }))
}

unsafe extern "C" fn accept(raw: *mut abi::Identifier, parameters: *mut abi::ConnectionParameters) -> c_int {
    // SAFETY: the caller's parameters.
    let (ours, data) = unsafe { terms(parameters) };
    code(with(|world| world.manager.accept(raw.addr(), ours, &data)))
}

unsafe extern "C" fn reject(raw: *mut abi::Identifier, data: *const c_void, length: u8) -> c_int {
    // SAFETY: the caller's data.
    let data = unsafe { bytes(data, length) };
    code(with(|world| world.manager.refuse(raw.addr(), &data)))
}

unsafe extern "C" fn establish(raw: *mut abi::Identifier) -> c_int {
    code(with(|world| world.manager.establish(raw.addr())))
}

unsafe extern "C" fn disconnect(raw: *mut abi::Identifier) -> c_int {
    code(with(|world| world.manager.disconnect(raw.addr())))
}

/// What a queue pair needs for a state, as librdmacm says it without one of its own.
unsafe extern "C" fn init_qp_attr(raw: *mut abi::Identifier, attributes: *mut ibv_qp_attr, mask: *mut c_int) -> c_int {
    // SAFETY: the caller's structure, with the state that is asked for.
    let state = unsafe { (*attributes).qp_state };
    let told = with(|world| world.attributes(raw, state));
    match told {
        Ok((told, needed)) => {
            // SAFETY: the caller's structures.
            unsafe { (*attributes, *mask) = (told, needed.0.cast_signed()) };
            0
        }
        Err(code) => minus_one(code),
    }
}

impl World {
    fn attributes(
        &mut self,
        raw: *mut abi::Identifier,
        state: ibv_qp_state::Type,
    ) -> Result<(ibv_qp_attr, ibv_qp_attr_mask), i32> {
        use ibv_qp_attr_mask as mask;
        let id = self.id(raw)?;
        let (ours, theirs) = (id.ours, id.theirs);
        let Some(remote) = id.remote else { return Err(libc::EINVAL) };
        let mut told = ibv_qp_attr { qp_state: state, port_num: 1, ..ibv_qp_attr::default() };
        let needed = match state {
            ibv_qp_state::IBV_QPS_INIT => {
                mask::IBV_QP_STATE | mask::IBV_QP_ACCESS_FLAGS | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT
            }
            ibv_qp_state::IBV_QPS_RTR => {
                let IpAddr::V4(address) = remote.ip() else { return Err(libc::EINVAL) };
                told.ah_attr.grh.dgid = ibv_gid { raw: gid_bytes(address) };
                (told.ah_attr.grh.sgid_index, told.ah_attr.is_global, told.ah_attr.port_num) = (GID, 1, 1);
                (told.path_mtu, told.dest_qp_num) = (LARGEST_MTU, theirs.number);
                told.max_dest_rd_atomic = theirs.initiator_depth;
                mask::IBV_QP_STATE
                    | mask::IBV_QP_AV
                    | mask::IBV_QP_PATH_MTU
                    | mask::IBV_QP_DEST_QPN
                    | mask::IBV_QP_RQ_PSN
                    | mask::IBV_QP_MAX_DEST_RD_ATOMIC
                    | mask::IBV_QP_MIN_RNR_TIMER
            }
            ibv_qp_state::IBV_QPS_RTS => {
                (told.timeout, told.retry_cnt, told.rnr_retry) = (TIMEOUT, ours.retry_count, ours.rnr_retry_count);
                told.max_rd_atomic = theirs.responder_resources;
                mask::IBV_QP_STATE
                    | mask::IBV_QP_TIMEOUT
                    | mask::IBV_QP_RETRY_CNT
                    | mask::IBV_QP_RNR_RETRY
                    | mask::IBV_QP_SQ_PSN
                    | mask::IBV_QP_MAX_QP_RD_ATOMIC
            }
            _ => return Err(libc::EINVAL),
        };
        Ok((told, needed))
    }
}

/// An event with the data that it points to.
#[repr(C)]
struct EventBlock {
    raw: abi::Event,
    data: Vec<u8>,
}

unsafe extern "C" fn get_cm_event(channel: *mut abi::EventChannel, into: *mut *mut abi::Event) -> c_int {
    let taken = with(|world| {
        let channel = world.manager.channels.get_mut(&channel.addr())?;
        let event = channel.events.pop_front()?;
        channel.signal.lower();
        Some(event)
    });
    let Some(Pending { id, listener, kind, status, private_data, terms }) = taken else {
        return minus_one(libc::EAGAIN);
    };
    let mut event: abi::Event = zeroed_event();
    event.id = core::ptr::with_exposed_provenance_mut(id);
    event.listen_id = core::ptr::with_exposed_provenance_mut(listener);
    (event.event, event.status) = (kind, status);
    let block = give(EventBlock { raw: event, data: private_data });
    // SAFETY: just made, and the data stay where they are as long as it lives.
    unsafe {
        (*block).raw.param.conn = abi::ConnectionParameters {
            private_data: if (*block).data.is_empty() { core::ptr::null() } else { (*block).data.as_ptr().cast() },
            private_data_len: u8::try_from((*block).data.len()).unwrap_or(u8::MAX),
            // What is asked of the one who reads it (rdma_get_cm_event(3)).
            responder_resources: terms.initiator_depth,
            initiator_depth: terms.responder_resources,
            flow_control: 1,
            retry_count: terms.retry_count,
            rnr_retry_count: terms.rnr_retry_count,
            srq: 0,
            qp_num: terms.number,
        };
        *into = block.cast();
    }
    0
}

fn zeroed_event() -> abi::Event {
    abi::Event {
        id: null_mut(),
        listen_id: null_mut(),
        event: 0,
        status: 0,
        param: abi::EventParameters { conn: zeroed() },
    }
}

unsafe extern "C" fn ack_cm_event(event: *mut abi::Event) -> c_int {
    // SAFETY: the front of what `get_cm_event` made.
    unsafe { take_back(event.cast::<EventBlock>()) };
    0
}
