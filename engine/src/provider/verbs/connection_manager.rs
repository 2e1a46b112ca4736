//! Connections by librdmacm's external route: queue pairs are ours, and moved from state to state with the attributes that
//! the connection manager gives.

use super::{
    device::VerbsDevice,
    errno::command_error,
    options::{MAX_MTU, VerbsOptions},
    sys::{
        connection::{Event, EventChannel, EventKind, Identifier},
        queue_pair::{PEER_ACCESS, QueuePair},
    },
    system,
};
use crate::provider::{
    Answer, AsyncEvent, CommandError, ConnectionEvent, ConnectionParameters, Device as _, DeviceEvent, Errno,
    IncomingId, ListenerId, PrivateData, QueuePairId, RejectReason,
};
use ibverbs_sys::{ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
    sync::Arc,
};

/// Milliseconds until an address, then a route, counts as not found: rping's and SPDK's order of magnitude.
const RESOLVE_MILLISECONDS: i32 = 2000;

/// Connect requests that may wait: the default of net.rdma_ucm.max_backlog, which bounds it in the kernel as well.
const LISTEN_BACKLOG: i32 = 1024;

/// Events taken by one poll of the device: peers may ask faster than they are answered.
const EVENTS_PER_POLL: usize = 256;

/// Reasons of a reject that stand for something (IB specification, table 107).
mod reject {
    pub(super) const INVALID_SERVICE: i32 = 8;
    pub(super) const STALE_CONNECTION: i32 = 10;
}

/// How far a connection is.
#[derive(Clone, Debug)]
enum Stage {
    /// Address, then route are being found.
    Resolving {
        private_data: PrivateData,
        parameters: ConnectionParameters,
    },
    /// The request is out.
    Requested {
        parameters: ConnectionParameters,
    },
    /// Accepted; the peer has not said yet that it is ready.
    Accepted,
    Established,
    /// Nothing that comes now is news.
    Ended,
}

/// A queue pair's connection.
struct Connection {
    id: Identifier,
    stage: Stage,
}

/// What an identifier stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Listener(ListenerId),
    Incoming(IncomingId),
    Connection(QueuePairId),
}

/// A connect request that waits for an answer.
struct Incoming {
    listener: ListenerId,
    id: Identifier,
}

/// Objects by numbers that do not come back before all others were used: an event or an answer that is still on its way
/// when its object goes must not meet the next one.
struct Numbered<T> {
    objects: BTreeMap<u32, T>,
    next: u32,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), next: 0 }
    }
}

impl<T> Numbered<T> {
    /// Puts an object in. Identifiers of the kernel run out long before numbers do, so that the search ends.
    fn insert(&mut self, object: T) -> u32 {
        while self.objects.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.objects.insert(number, object);
        number
    }

    fn remove(&mut self, number: u32) -> Option<T> {
        self.objects.remove(&number)
    }
}

/// All identifiers of a device.
pub(super) struct ConnectionManager {
    roles: HashMap<usize, Role>,
    listeners: Numbered<Identifier>,
    incoming: Numbered<Incoming>,
    connections: HashMap<QueuePairId, Connection>,
    channel: Arc<EventChannel>,
}

impl ConnectionManager {
    pub(super) fn new(channel: Arc<EventChannel>) -> Self {
        Self {
            roles: HashMap::new(),
            listeners: Numbered::default(),
            incoming: Numbered::default(),
            connections: HashMap::new(),
            channel,
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.channel.fd()
    }

    /// The same, to be waited for.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// A queue pair is going: its connection ends, and nothing of it is told any more.
    pub(super) fn forget(&mut self, queue_pair: QueuePairId) {
        if let Some(connection) = self.connections.remove(&queue_pair) {
            self.roles.remove(&connection.id.name());
        }
    }

    /// A connect request that is being answered.
    fn take_incoming(&mut self, incoming: IncomingId) -> Result<Identifier, CommandError> {
        let Incoming { id, .. } = self.incoming.remove(incoming.0).ok_or(CommandError::Unknown)?;
        self.roles.remove(&id.name());
        Ok(id)
    }

    /// The device that an identifier is bound to; `None` where it is bound to none, or unknown.
    fn device_of(&self, name: usize) -> Option<String> {
        let id = match *self.roles.get(&name)? {
            Role::Listener(listener) => self.listeners.objects.get(&listener.0)?,
            Role::Incoming(incoming) => &self.incoming.objects.get(&incoming.0)?.id,
            Role::Connection(queue_pair) => &self.connections.get(&queue_pair)?.id,
        };
        Some(id.device()).filter(|device| !device.is_empty())
    }

    fn connection(&mut self, queue_pair: QueuePairId) -> Option<&mut Connection> {
        self.connections.get_mut(&queue_pair)
    }
}

type Outcome = Result<Answer, CommandError>;

impl VerbsDevice {
    pub(super) fn listen(&mut self, address: SocketAddr) -> Outcome {
        let mut id = Identifier::new(&self.connections.channel).map_err(|error| command_error(&error))?;
        id.bind(address).and_then(|()| id.listen(LISTEN_BACKLOG)).map_err(|error| command_error(&error))?;
        let bound = id.device();
        if !bound.is_empty() && bound != self.capabilities().name {
            // The address is another device's.
            return Err(CommandError::ADDRESS);
        }
        let name = id.name();
        let listener = ListenerId(self.connections.listeners.insert(id));
        self.connections.roles.insert(name, Role::Listener(listener));
        Ok(Answer::Listener(listener))
    }

    pub(super) fn stop_listening(&mut self, listener: ListenerId) -> Outcome {
        let id = self.connections.listeners.remove(listener.0).ok_or(CommandError::Unknown)?;
        self.connections.roles.remove(&id.name());
        let waiting: Vec<IncomingId> = self
            .connections
            .incoming
            .objects
            .iter()
            .filter(|(_, incoming)| incoming.listener == listener)
            .map(|(number, _)| IncomingId(*number))
            .collect();
        for incoming in waiting {
            self.reject(incoming, &PrivateData::new())?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn connect(
        &mut self,
        queue_pair: QueuePairId,
        address: SocketAddr,
        private_data: PrivateData,
        parameters: ConnectionParameters,
    ) -> Outcome {
        self.queue_pair(queue_pair)?;
        if self.connections.connections.contains_key(&queue_pair) {
            return Err(CommandError::INVALID);
        }
        let parameters = self.within_limits(parameters);
        let source = source(&self.gids, self.options.gid_index, address)?;
        let mut id = Identifier::new(&self.connections.channel).map_err(|error| command_error(&error))?;
        id.resolve_address(source, address, RESOLVE_MILLISECONDS).map_err(|error| command_error(&error))?;
        self.connections.roles.insert(id.name(), Role::Connection(queue_pair));
        let stage = Stage::Resolving { private_data, parameters };
        self.connections.connections.insert(queue_pair, Connection { id, stage });
        Ok(Answer::Done)
    }

    /// What the device and the table of devices allow of what is asked for.
    fn within_limits(&self, asked: ConnectionParameters) -> ConnectionParameters {
        let limits = ConnectionParameters {
            responder_resources: byte(self.capabilities().attributes.max_rdma_reads),
            initiator_depth: byte(self.max_initiator_depth),
            retry_count: self.known.max_retry_count,
            rnr_retry_count: MAX_RNR_RETRY_COUNT,
        };
        limited(self.options.parameters.unwrap_or(asked), limits)
    }

    pub(super) fn accept(
        &mut self,
        incoming: IncomingId,
        queue_pair: QueuePairId,
        private_data: &PrivateData,
        parameters: ConnectionParameters,
    ) -> Outcome {
        let found = self.queue_pair(queue_pair)?;
        if self.connections.connections.contains_key(&queue_pair) {
            return Err(CommandError::INVALID);
        }
        let parameters = self.within_limits(parameters);
        let mut id = self.connections.take_incoming(incoming)?;
        let accepted = make_ready(&found, &mut id, &self.options, &self.gids, &parameters)
            .and_then(|()| id.accept(&found, private_data, &parameters));
        if let Err(error) = accepted {
            // The peer may be gone already.
            let _ = id.reject(&PrivateData::new());
            return Err(command_error(&error));
        }
        self.connections.roles.insert(id.name(), Role::Connection(queue_pair));
        self.connections.connections.insert(queue_pair, Connection { id, stage: Stage::Accepted });
        Ok(Answer::Done)
    }

    pub(super) fn reject(&mut self, incoming: IncomingId, private_data: &PrivateData) -> Outcome {
        let mut id = self.connections.take_incoming(incoming)?;
        // A peer that has given up needs no answer.
        let _ = id.reject(private_data);
        Ok(Answer::Done)
    }

    /// Also answers the peer's own disconnect, which it waits for.
    pub(super) fn disconnect(&mut self, queue_pair: QueuePairId) -> Outcome {
        self.queue_pair(queue_pair)?;
        if let Some(connection) = self.connections.connection(queue_pair) {
            connection.stage = Stage::Ended;
            // One that was never up has nobody to be told.
            let _ = connection.id.disconnect();
        }
        Ok(Answer::Done)
    }

    pub(super) fn take_connection_events(&mut self) {
        for _ in 0..EVENTS_PER_POLL {
            let Some(event) = self.connections.channel.next_event() else { break };
            self.connection_event(event);
        }
    }

    /// Events of identifiers that were destroyed do not come: librdmacm is asked by this thread only, and the kernel drops
    /// what nobody has read.
    fn connection_event(&mut self, event: Event) {
        if event.kind == EventKind::DeviceRemoval {
            // An identifier may have been bound to another device before that was noticed.
            if self.connections.device_of(event.name).is_none_or(|device| device == self.capabilities().name) {
                self.events.push_back(DeviceEvent::Async(AsyncEvent::DeviceFatal));
            }
            return;
        }
        if event.incoming.is_some() {
            self.connect_request(event);
            return;
        }
        // An incoming one whose peer gives up is answered all the same, and the answer fails.
        if let Some(Role::Connection(queue_pair)) = self.connections.roles.get(&event.name).copied()
            && let Some(told) = self.advance(queue_pair, event)
        {
            self.events.push_back(DeviceEvent::Connection(told));
        }
    }

    fn connect_request(&mut self, event: Event) {
        let Some(mut id) = event.incoming else { return };
        let listener = match self.connections.roles.get(&event.listener) {
            Some(Role::Listener(listener)) => *listener,
            _ => return,
        };
        if id.device() != self.capabilities().name {
            // It came by another device of an address that is all devices'.
            let _ = id.reject(&PrivateData::new());
            return;
        }
        let (name, peer, local) = (id.name(), id.peer(), id.local());
        let incoming = IncomingId(self.connections.incoming.insert(Incoming { listener, id }));
        self.connections.roles.insert(name, Role::Incoming(incoming));
        let (private_data, parameters) = (event.private_data, event.parameters);
        let request = ConnectionEvent::Request { listener, incoming, peer, local, private_data, parameters };
        self.events.push_back(DeviceEvent::Connection(request));
    }

    /// The next step of a connection, and what is to be told of it.
    fn advance(&mut self, queue_pair: QueuePairId, event: Event) -> Option<ConnectionEvent> {
        let found = self.queue_pair(queue_pair).ok()?;
        let (options, gids, name) = (&self.options, &self.gids, self.capabilities().name);
        let connection = self.connections.connections.get_mut(&queue_pair)?;
        let Connection { id, stage } = connection;
        match (&*stage, event.kind) {
            (Stage::Ended, _) | (_, EventKind::Other) => None,
            (Stage::Resolving { .. }, EventKind::AddressResolved) => {
                let begun = if id.device() == name { id.resolve_route(RESOLVE_MILLISECONDS) } else { Err(elsewhere()) };
                give_up_on_error(stage, queue_pair, begun)
            }
            (Stage::Resolving { private_data, parameters }, EventKind::RouteResolved) => {
                let parameters = *parameters;
                let begun = id.connect(&found, private_data, &parameters);
                *stage = Stage::Requested { parameters };
                give_up_on_error(stage, queue_pair, begun)
            }
            (Stage::Requested { parameters }, EventKind::ConnectResponse) => {
                let ready = make_ready(&found, id, options, gids, parameters).and_then(|()| id.establish());
                *stage = Stage::Established;
                if ready.is_err() {
                    return give_up_on_error(stage, queue_pair, ready);
                }
                Some(ConnectionEvent::Established { queue_pair, private_data: event.private_data })
            }
            (Stage::Accepted, EventKind::Established) => {
                *stage = Stage::Established;
                Some(ConnectionEvent::Established { queue_pair, private_data: PrivateData::new() })
            }
            (Stage::Requested { .. }, EventKind::Rejected) => {
                *stage = Stage::Ended;
                let (reason, private_data) = (reject_reason(event.status), event.private_data);
                Some(ConnectionEvent::Rejected { queue_pair, reason, private_data })
            }
            // The peer gave up between its accept and our word that we are ready: it never knew of the connection.
            (Stage::Established, EventKind::Unreachable | EventKind::Rejected) => {
                *stage = Stage::Ended;
                Some(ConnectionEvent::Disconnected { queue_pair })
            }
            (_, kind @ (EventKind::Unreachable | EventKind::Rejected)) => {
                *stage = Stage::Ended;
                // A rejection has a reason of InfiniBand, and no errno.
                let errno = if kind == EventKind::Rejected { Errno::ECONNREFUSED } else { unreachable(event.status) };
                Some(ConnectionEvent::Unreachable { queue_pair, errno })
            }
            (_, EventKind::Disconnected) => {
                *stage = Stage::Ended;
                Some(ConnectionEvent::Disconnected { queue_pair })
            }
            _ => None,
        }
    }
}

/// A step that could not be begun ends the connection.
fn give_up_on_error(stage: &mut Stage, queue_pair: QueuePairId, begun: io::Result<()>) -> Option<ConnectionEvent> {
    begun.err().map(|error| {
        *stage = Stage::Ended;
        ConnectionEvent::Unreachable { queue_pair, errno: unreachable(error.raw_os_error().unwrap_or_default()) }
    })
}

/// The errno of an event, which rdma_cm has below zero, or of an error; where there is none, that there is no way there.
fn unreachable(status: i32) -> Errno {
    if status == 0 { Errno::EHOSTUNREACH } else { Errno(status.saturating_abs()) }
}

fn elsewhere() -> io::Error {
    io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)
}

fn reject_reason(status: i32) -> RejectReason {
    match status {
        reject::INVALID_SERVICE => RejectReason::NoListener,
        reject::STALE_CONNECTION => RejectReason::Stale,
        _ => RejectReason::Consumer,
    }
}

/// The address that a connection leaves from: that of the wanted GID, or the device's only one of the peer's family. An
/// address binds the connection to this device where routing alone could choose another.
fn source(
    gids: &[system::Gid],
    wanted: Option<u8>,
    destination: SocketAddr,
) -> Result<Option<SocketAddr>, CommandError> {
    let usable = |gid: &system::Gid| gid.address().filter(|address| address.is_ipv4() == destination.is_ipv4());
    if wanted.is_some() {
        // A GID without an address of the peer's family leads to no peer.
        let found = system::choose_gid(gids, wanted).as_ref().and_then(usable);
        return found.map(|address| Some(SocketAddr::new(address, 0))).ok_or(CommandError::ADDRESS);
    }
    let mut found: Vec<_> = gids.iter().filter_map(usable).collect();
    found.sort_unstable();
    found.dedup();
    Ok(match found[..] {
        [address] => Some(SocketAddr::new(address, 0)),
        _ => None,
    })
}

/// Whether a path begins where the options say. `source` is the index of its GID, `None` for paths without one
/// (InfiniBand inside of a subnet). One address has a GID for each version of RoCE, and which of them is used is up to the
/// connection manager (default_roce_mode of configfs).
fn is_chosen(options: &VerbsOptions, gids: &[system::Gid], port: u8, source: Option<u8>) -> bool {
    let bytes = |index| gids.iter().find(|gid| gid.index == index).map(|gid| gid.bytes);
    let is_wanted = |wanted: u8| source.is_none_or(|used| used == wanted || bytes(used) == bytes(wanted));
    port == options.port && options.gid_index.is_none_or(is_wanted)
}

/// Largest count of receiver-not-ready retries: 3 bits.
const MAX_RNR_RETRY_COUNT: u8 = 7;

fn byte(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// What is asked for, within limits: librdmacm refuses to connect with more.
fn limited(asked: ConnectionParameters, limits: ConnectionParameters) -> ConnectionParameters {
    ConnectionParameters {
        responder_resources: asked.responder_resources.min(limits.responder_resources),
        initiator_depth: asked.initiator_depth.min(limits.initiator_depth),
        retry_count: asked.retry_count.min(limits.retry_count),
        rnr_retry_count: asked.rnr_retry_count.min(limits.rnr_retry_count),
    }
}

/// From INIT to RTS by the connection manager's attributes, with what the options change of them.
fn make_ready(
    queue_pair: &QueuePair,
    id: &mut Identifier,
    options: &VerbsOptions,
    gids: &[system::Gid],
    parameters: &ConnectionParameters,
) -> io::Result<()> {
    let (mut attributes, mask) = id.attributes(ibv_qp_state::IBV_QPS_INIT)?;
    let port = attributes.port_num;
    // The active side's proposal has no rights; partition and port are the path's.
    attributes.qp_access_flags = PEER_ACCESS;
    queue_pair.modify(&mut attributes, mask | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS)?;

    let (mut attributes, mask) = id.attributes(ibv_qp_state::IBV_QPS_RTR)?;
    let path = &attributes.ah_attr;
    if !is_chosen(options, gids, port, (path.is_global != 0).then_some(path.grh.sgid_index)) {
        return Err(elsewhere());
    }
    change_receiving(&mut attributes, options, parameters);
    queue_pair.modify(&mut attributes, mask)?;

    let (mut attributes, mask) = id.attributes(ibv_qp_state::IBV_QPS_RTS)?;
    change_sending(&mut attributes, options, parameters);
    queue_pair.modify(&mut attributes, mask)
}

/// What the options change of the attributes of RTR.
fn change_receiving(attributes: &mut ibv_qp_attr, options: &VerbsOptions, parameters: &ConnectionParameters) {
    attributes.max_dest_rd_atomic = attributes.max_dest_rd_atomic.min(parameters.responder_resources);
    attributes.path_mtu = attributes.path_mtu.min(mtu_code(options.mtu.unwrap_or(MAX_MTU)));
    if let Some(class) = options.traffic_class {
        attributes.ah_attr.grh.traffic_class = class;
    }
    attributes.min_rnr_timer = options.min_rnr_timer.unwrap_or(attributes.min_rnr_timer);
}

/// What the options change of the attributes of RTS. The passive side's proposal of retries is the peer's wish.
fn change_sending(attributes: &mut ibv_qp_attr, options: &VerbsOptions, parameters: &ConnectionParameters) {
    attributes.max_rd_atomic = attributes.max_rd_atomic.min(parameters.initiator_depth);
    attributes.timeout = options.ack_timeout.unwrap_or(attributes.timeout);
    attributes.retry_cnt = parameters.retry_count;
    attributes.rnr_retry = parameters.rnr_retry_count;
}

/// `enum ibv_mtu`: 1 for 256 bytes, and one more for each doubling.
pub(super) fn mtu_code(bytes: u32) -> u32 {
    bytes.ilog2().saturating_sub(7).clamp(1, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_LIMITS: ConnectionParameters =
        ConnectionParameters { responder_resources: 128, initiator_depth: 4, retry_count: 6, rnr_retry_count: 7 };

    fn gid(index: u8, text: &str, is_roce_v2: bool) -> system::Gid {
        let address: std::net::Ipv6Addr = text.parse().expect("an address");
        system::Gid { index, bytes: address.octets(), is_roce_v2 }
    }

    /// Both versions of a link-local GID and of an IPv4 address, and one of IPv6.
    fn table() -> [system::Gid; 5] {
        [
            gid(0, "fe80::5054:ff:fe12:3456", false),
            gid(1, "fe80::5054:ff:fe12:3456", true),
            gid(2, "::ffff:10.9.0.1", false),
            gid(3, "::ffff:10.9.0.1", true),
            gid(4, "fd00::1", true),
        ]
    }

    #[test]
    fn an_mtu_is_a_code() {
        let codes = [256, 512, 1024, 2048, 4096].map(mtu_code);
        assert_eq!(codes, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_reject_has_a_reason() {
        for (status, reason) in [
            (8, RejectReason::NoListener),
            (10, RejectReason::Stale),
            (28, RejectReason::Consumer),
            (0, RejectReason::Consumer),
            (-1, RejectReason::Consumer),
        ] {
            assert_eq!(reject_reason(status), reason, "{status}");
        }
    }

    #[test]
    fn a_connection_leaves_by_the_wanted_gid_or_the_only_address() {
        let peer = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let (v4, v6) = (peer("10.9.0.2:4420"), peer("[fd00::2]:4420"));
        let (ours_v4, ours_v6) = (Some(peer("10.9.0.1:0")), Some(peer("[fd00::1]:0")));
        let mut two = table().to_vec();
        two.push(gid(5, "::ffff:10.9.1.1", true));
        for (gids, wanted, destination, expected) in [
            (&table()[..], None, v4, Ok(ours_v4)),
            (&table()[..], None, v6, Ok(ours_v6)),
            (&table()[..4], None, v6, Ok(None)),
            (&[][..], None, v4, Ok(None)),
            // Routing chooses.
            (&two[..], None, v4, Ok(None)),
            (&two[..], Some(2), v4, Ok(ours_v4)),
            (&two[..], Some(5), v4, Ok(Some(peer("10.9.1.1:0")))),
            (&two[..], Some(4), v6, Ok(ours_v6)),
            // Never silently by another one.
            (&two[..], Some(0), v4, Err(CommandError::ADDRESS)),
            (&two[..], Some(4), v4, Err(CommandError::ADDRESS)),
            (&two[..], Some(9), v4, Err(CommandError::ADDRESS)),
        ] {
            assert_eq!(source(gids, wanted, destination), expected, "{wanted:?} to {destination}");
        }
    }

    #[test]
    fn a_path_begins_at_the_chosen_port_and_gid() {
        let gids = table();
        for (wanted, port, used, good) in [
            (None, 1, Some(0), true),
            (None, 1, None, true),
            (None, 2, Some(0), false),
            (Some(3), 1, Some(3), true),
            // The other version of the same address.
            (Some(3), 1, Some(2), true),
            (Some(3), 1, Some(4), false),
            (Some(3), 2, Some(3), false),
            (Some(3), 1, None, true),
        ] {
            let options = VerbsOptions::new("rxe0").gid_index(wanted);
            assert_eq!(is_chosen(&options, &gids, port, used), good, "{wanted:?} {port} {used:?}");
        }
    }

    #[test]
    fn parameters_stay_within_the_limits_of_the_device() {
        let asked =
            ConnectionParameters { responder_resources: 255, initiator_depth: 255, retry_count: 7, rnr_retry_count: 9 };
        assert_eq!(limited(asked, READ_LIMITS), READ_LIMITS);
        let less =
            ConnectionParameters { responder_resources: 1, initiator_depth: 2, retry_count: 3, rnr_retry_count: 4 };
        assert_eq!(limited(less, READ_LIMITS), less);
        assert_eq!([0, 16, 255, 256, u32::MAX].map(byte), [0, 16, 255, 255, 255]);
    }

    /// Both sides go through the same two functions.
    #[test]
    fn options_change_the_attributes_of_a_queue_pair() {
        let proposed = || ibv_qp_attr {
            path_mtu: mtu_code(2048),
            max_dest_rd_atomic: 16,
            max_rd_atomic: 16,
            timeout: 18,
            min_rnr_timer: 0,
            retry_cnt: 7,
            rnr_retry: 7,
            ..ibv_qp_attr::default()
        };
        let plain = VerbsOptions::new("rxe0");
        let (mut receiving, mut sending) = (proposed(), proposed());
        change_receiving(&mut receiving, &plain, &READ_LIMITS);
        change_sending(&mut sending, &plain, &READ_LIMITS);
        assert_eq!((receiving.path_mtu, receiving.max_dest_rd_atomic, receiving.min_rnr_timer), (4, 16, 0));
        assert_eq!(receiving.ah_attr.grh.traffic_class, 0);
        assert_eq!((sending.max_rd_atomic, sending.timeout, sending.retry_cnt, sending.rnr_retry), (4, 18, 6, 7));
        let chosen = plain.mtu(Some(1024)).traffic_class(Some(106)).ack_timeout(Some(14)).min_rnr_timer(Some(12));
        let (mut receiving, mut sending) = (proposed(), proposed());
        change_receiving(&mut receiving, &chosen, &READ_LIMITS);
        change_sending(&mut sending, &chosen, &READ_LIMITS);
        assert_eq!((receiving.path_mtu, receiving.min_rnr_timer, receiving.ah_attr.grh.traffic_class), (3, 12, 106));
        assert_eq!(sending.timeout, 14);
    }

    #[test]
    fn numbers_do_not_come_back_at_once() {
        let mut numbered = Numbered::default();
        assert_eq!([numbered.insert('a'), numbered.insert('b')], [0, 1]);
        assert_eq!((numbered.remove(0), numbered.remove(0)), (Some('a'), None));
        assert_eq!(numbered.insert('c'), 2);
        numbered.next = u32::MAX;
        assert_eq!([numbered.insert('d'), numbered.insert('e'), numbered.insert('f')], [u32::MAX, 0, 3]);
    }
}
