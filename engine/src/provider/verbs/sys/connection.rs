//! librdmacm: one event channel, identifiers, and events as plain values.

use super::{
    check,
    cm_abi::{self, ConnectionParameters as RawParameters, RDMA_PS_TCP, event},
    library::{ConnectionManagerFunctions, Library, text},
    queue_pair::QueuePair,
    wait::set_nonblocking,
};
use crate::provider::{ConnectionParameters, PrivateData};
use core::ptr::{NonNull, null, null_mut};
use ibverbs_sys::{ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};
use std::{
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
    sync::Arc,
};

/// Longest private data of any message (IB specification, a connect reply's 196 bytes): bounds what is read of an event.
const MAX_EVENT_DATA: usize = 196;

/// An event channel that does not block.
pub(in super::super) struct EventChannel {
    raw: NonNull<cm_abi::EventChannel>,
    library: &'static Library,
}

// SAFETY: librdmacm locks inside; the descriptor does not change.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// What happened to an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum EventKind {
    AddressResolved,
    RouteResolved,
    /// A new identifier, made by librdmacm, asks on a listener.
    ConnectRequest,
    ConnectResponse,
    Established,
    Disconnected,
    Rejected,
    /// Address, route or peer could not be reached.
    Unreachable,
    DeviceRemoval,
    Other,
}

/// An event, copied and acknowledged.
pub(in super::super) struct Event {
    /// Which identifier; a new one's own for [`EventKind::ConnectRequest`].
    pub(in super::super) name: usize,
    /// The identifier of a connect request, for its taker to own.
    pub(in super::super) incoming: Option<Identifier>,
    /// The listener of a connect request.
    pub(in super::super) listener: usize,
    pub(in super::super) kind: EventKind,
    /// A negative errno, or the reason of a reject.
    pub(in super::super) status: i32,
    pub(in super::super) private_data: PrivateData,
    pub(in super::super) parameters: ConnectionParameters,
}

impl EventChannel {
    pub(in super::super) fn new(library: &'static Library) -> io::Result<Arc<Self>> {
        // SAFETY: no argument.
        let raw = unsafe { (library.connection_manager.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { raw, library };
        set_nonblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    /// Readable when an event waits.
    pub(in super::super) fn fd(&self) -> RawFd {
        // SAFETY: the channel is alive.
        unsafe { self.raw.as_ref() }.fd
    }

    /// The same, to be waited for.
    pub(in super::super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    /// The next event; `None` where none waits.
    pub(in super::super) fn next_event(self: &Arc<Self>) -> Option<Event> {
        let manager = &self.library.connection_manager;
        let mut raw = null_mut();
        // SAFETY: the channel is alive, and does not block. The event is read, then acknowledged and not touched again.
        unsafe {
            if (manager.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut raw) != 0 || raw.is_null() {
                return None;
            }
            let event = self.copy(&*raw);
            (manager.rdma_ack_cm_event)(raw);
            Some(event)
        }
    }

    /// # Safety
    /// The event was got and not yet acknowledged.
    unsafe fn copy(self: &Arc<Self>, raw: &cm_abi::Event) -> Event {
        let kind = kind(raw.event);
        // SAFETY: all events of RDMA_PS_TCP have connection parameters, zero where they mean nothing.
        let parameters = unsafe { raw.param.conn };
        let bytes = usize::from(parameters.private_data_len).min(MAX_EVENT_DATA);
        let private_data = if parameters.private_data.is_null() {
            PrivateData::new()
        } else {
            // SAFETY: the event owns as many bytes (rdma_get_cm_event(3)).
            unsafe { core::slice::from_raw_parts(parameters.private_data.cast::<u8>(), bytes) }
                .iter()
                .copied()
                .take(PrivateData::new().capacity())
                .collect()
        };
        let incoming = NonNull::new(raw.id).filter(|_| kind == EventKind::ConnectRequest);
        Event {
            name: raw.id.addr(),
            incoming: incoming.map(|raw| Identifier { raw, channel: Arc::clone(self) }),
            listener: raw.listen_id.addr(),
            kind,
            status: raw.status,
            private_data,
            parameters: ConnectionParameters {
                responder_resources: parameters.responder_resources,
                initiator_depth: parameters.initiator_depth,
                retry_count: parameters.retry_count,
                rnr_retry_count: parameters.rnr_retry_count,
            },
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its identifiers keep it alive, so none is left, and no event is unacknowledged.
        unsafe { (self.library.connection_manager.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

fn kind(raw: i32) -> EventKind {
    match raw {
        event::ADDR_RESOLVED => EventKind::AddressResolved,
        event::ROUTE_RESOLVED => EventKind::RouteResolved,
        event::CONNECT_REQUEST => EventKind::ConnectRequest,
        event::CONNECT_RESPONSE => EventKind::ConnectResponse,
        event::ESTABLISHED => EventKind::Established,
        event::DISCONNECTED => EventKind::Disconnected,
        event::REJECTED => EventKind::Rejected,
        event::ADDR_ERROR | event::ROUTE_ERROR | event::CONNECT_ERROR | event::UNREACHABLE => EventKind::Unreachable,
        event::DEVICE_REMOVAL => EventKind::DeviceRemoval,
        _ => EventKind::Other,
    }
}

/// An `rdma_cm_id`. Destroyed with its value, which ends what it stands for and waits for nothing: events are
/// acknowledged as they are read.
pub(in super::super) struct Identifier {
    raw: NonNull<cm_abi::Identifier>,
    channel: Arc<EventChannel>,
}

// SAFETY: librdmacm locks inside, and `&mut self` keeps calls on one identifier apart.
unsafe impl Send for Identifier {}

impl Identifier {
    pub(in super::super) fn new(channel: &Arc<EventChannel>) -> io::Result<Self> {
        let manager = &channel.library.connection_manager;
        let mut raw = null_mut();
        // SAFETY: the channel is alive, and kept so by the identifier.
        check(unsafe { (manager.rdma_create_id)(channel.raw.as_ptr(), &raw mut raw, null_mut(), RDMA_PS_TCP) })?;
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, channel: Arc::clone(channel) })
    }

    /// As events call it.
    pub(in super::super) fn name(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// The device that it was bound to by an address; empty where it is not bound.
    pub(in super::super) fn device(&self) -> String {
        let verbs = &self.channel.library.verbs;
        // SAFETY: the identifier is alive; a bound one's context is open for as long (librdmacm owns it).
        unsafe {
            let context = self.raw.as_ref().verbs;
            if context.is_null() { String::new() } else { text((verbs.ibv_get_device_name)((*context).device)) }
        }
    }

    /// Where the peer of a connect request is.
    pub(in super::super) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive, and librdmacm wrote its addresses before it told of the request.
        socket_address(&unsafe { self.raw.as_ref() }.destination)
    }

    /// Where the peer of a connect request connects to (rdma_get_local_addr(3) reads the same).
    pub(in super::super) fn local(&self) -> Option<SocketAddr> {
        // SAFETY: as in `peer`.
        socket_address(&unsafe { self.raw.as_ref() }.source)
    }

    pub(in super::super) fn bind(&mut self, address: SocketAddr) -> io::Result<()> {
        let mut address = RawAddress::from(address);
        // SAFETY: the address lives through the call.
        check(unsafe { (self.manager().rdma_bind_addr)(self.raw.as_ptr(), address.as_mut_ptr()) })
    }

    pub(in super::super) fn listen(&mut self, backlog: i32) -> io::Result<()> {
        // SAFETY: the identifier is alive, here and below.
        check(unsafe { (self.manager().rdma_listen)(self.raw.as_ptr(), backlog) })
    }

    /// Finds device and path; ends with an event. `source` binds it to a device.
    pub(in super::super) fn resolve_address(
        &mut self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout_milliseconds: i32,
    ) -> io::Result<()> {
        let mut source = source.map(RawAddress::from);
        let mut destination = RawAddress::from(destination);
        let source = source.as_mut().map_or(null_mut(), RawAddress::as_mut_ptr);
        let (manager, id) = (self.manager(), self.raw.as_ptr());
        // SAFETY: both addresses live through the call.
        check(unsafe { (manager.rdma_resolve_addr)(id, source, destination.as_mut_ptr(), timeout_milliseconds) })
    }

    pub(in super::super) fn resolve_route(&mut self, timeout_milliseconds: i32) -> io::Result<()> {
        // SAFETY: as above.
        check(unsafe { (self.manager().rdma_resolve_route)(self.raw.as_ptr(), timeout_milliseconds) })
    }

    /// What `ibv_modify_qp` needs for a state, by the connection's parameters.
    pub(in super::super) fn attributes(
        &mut self,
        state: ibv_qp_state::Type,
    ) -> io::Result<(ibv_qp_attr, ibv_qp_attr_mask)> {
        let mut attributes = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
        let mut mask = 0_i32;
        let (manager, id) = (self.manager(), self.raw.as_ptr());
        // SAFETY: both structures live through the call.
        check(unsafe { (manager.rdma_init_qp_attr)(id, &raw mut attributes, &raw mut mask) })?;
        Ok((attributes, ibv_qp_attr_mask(mask.cast_unsigned())))
    }

    pub(in super::super) fn connect(
        &mut self,
        queue_pair: &QueuePair,
        private_data: &PrivateData,
        parameters: &ConnectionParameters,
    ) -> io::Result<()> {
        let mut raw = raw_parameters(queue_pair, private_data, parameters);
        // SAFETY: the parameters and the data behind them live through the call.
        check(unsafe { (self.manager().rdma_connect)(self.raw.as_ptr(), &raw mut raw) })
    }

    pub(in super::super) fn accept(
        &mut self,
        queue_pair: &QueuePair,
        private_data: &PrivateData,
        parameters: &ConnectionParameters,
    ) -> io::Result<()> {
        let mut raw = raw_parameters(queue_pair, private_data, parameters);
        // SAFETY: as above.
        check(unsafe { (self.manager().rdma_accept)(self.raw.as_ptr(), &raw mut raw) })
    }

    pub(in super::super) fn reject(&mut self, private_data: &PrivateData) -> io::Result<()> {
        let (manager, id) = (self.manager(), self.raw.as_ptr());
        // SAFETY: the data live through the call.
        check(unsafe { (manager.rdma_reject)(id, private_data.as_ptr().cast(), data_length(private_data)) })
    }

    /// The active side's queue pair is ready.
    pub(in super::super) fn establish(&mut self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { (self.manager().rdma_establish)(self.raw.as_ptr()) })
    }

    pub(in super::super) fn disconnect(&mut self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { (self.manager().rdma_disconnect)(self.raw.as_ptr()) })
    }

    fn manager(&self) -> &'static ConnectionManagerFunctions {
        &self.channel.library.connection_manager
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: made, and destroyed here only; no event of it is unacknowledged.
        unsafe { (self.manager().rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

fn data_length(data: &PrivateData) -> u8 {
    const _: () = assert!(crate::provider::MAX_PRIVATE_DATA <= u8::MAX as usize, "the length is one byte");
    data.len() as u8
}

fn raw_parameters(queue_pair: &QueuePair, data: &PrivateData, parameters: &ConnectionParameters) -> RawParameters {
    RawParameters {
        private_data: if data.is_empty() { null() } else { data.as_ptr().cast() },
        private_data_len: data_length(data),
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        // Of the transport; every user of librdmacm says so.
        flow_control: 1,
        retry_count: parameters.retry_count,
        rnr_retry_count: parameters.rnr_retry_count,
        srq: queue_pair.shares_receives().into(),
        qp_num: queue_pair.id().0,
    }
}

/// A socket address as C wants it.
union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut *self).cast()
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(address) => Self {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                },
            },
        }
    }
}

/// What librdmacm wrote as an address; `None` of a family that is not IP.
fn socket_address(address: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let raw = (&raw const *address).cast::<RawAddress>();
    const _: () = assert!(size_of::<RawAddress>() <= size_of::<libc::sockaddr_storage>());
    // SAFETY: a storage is at least as large and as aligned, and each family's structure is plain bytes.
    unsafe {
        match libc::c_int::from(address.ss_family) {
            libc::AF_INET => {
                let libc::sockaddr_in { sin_addr, sin_port, .. } = (*raw).v4;
                Some((sin_addr.s_addr.to_ne_bytes(), u16::from_be(sin_port)).into())
            }
            libc::AF_INET6 => {
                let libc::sockaddr_in6 { sin6_addr, sin6_port, .. } = (*raw).v6;
                Some((sin6_addr.s6_addr, u16::from_be(sin6_port)).into())
            }
            _ => None,
        }
    }
}
