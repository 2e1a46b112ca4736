//! Connections by librdmacm's external route: queue pairs are ours, and moved from state to state with the attributes that
//! the connection manager gives (verbs.md 5.8).

use super::{
    commands::PEER_ACCESS,
    device::{VerbsDevice, command_error},
    options::{MAX_MTU, VerbsOptions},
    publish::Table,
    quirks::KnownDevice,
    sys::{
        connection::{Event, EventChannel, EventKind, Identifier},
        queue_pair::QueuePair,
    },
    system,
};
use crate::provider::{
    Answer, AsyncEvent, CommandError, ConnectionEvent, ConnectionParameters, Device as _, DeviceEvent, IncomingId,
    ListenerId, PrivateData, QueuePairId, RejectReason,
};
use ibverbs_sys::{ibv_qp_attr_mask, ibv_qp_state};
use std::{collections::HashMap, io, net::SocketAddr, os::fd::RawFd, sync::Arc};

/// Milliseconds until an address, then a route, counts as not found: rping's and SPDK's order of magnitude.
const RESOLVE_MILLISECONDS: i32 = 2000;

/// Connect requests that may wait: the default of net.rdma_ucm.max_backlog, which bounds it in the kernel as well.
const LISTEN_BACKLOG: i32 = 1024;

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

/// All identifiers of a device.
pub(super) struct ConnectionManager {
    roles: HashMap<usize, Role>,
    listeners: Table<Identifier>,
    incoming: Table<Incoming>,
    connections: HashMap<QueuePairId, Connection>,
    channel: Arc<EventChannel>,
}

impl ConnectionManager {
    pub(super) fn new(channel: Arc<EventChannel>) -> Self {
        Self {
            roles: HashMap::new(),
            listeners: Table::default(),
            incoming: Table::default(),
            connections: HashMap::new(),
            channel,
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.channel.fd()
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
            return Err(CommandError::Address);
        }
        let name = id.name();
        let listener = ListenerId(self.connections.listeners.insert(id).ok_or(CommandError::Exhausted)?);
        self.connections.roles.insert(name, Role::Listener(listener));
        Ok(Answer::Listener(listener))
    }

    pub(super) fn stop_listening(&mut self, listener: ListenerId) -> Outcome {
        let id = self.connections.listeners.remove(listener.0).ok_or(CommandError::Unknown)?;
        self.connections.roles.remove(&id.name());
        let waiting: Vec<IncomingId> = self
            .connections
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.listener == listener)
            .map(|(number, _)| IncomingId(number))
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
            return Err(CommandError::Invalid);
        }
        let parameters = self.within_limits(parameters);
        let mut id = Identifier::new(&self.connections.channel).map_err(|error| command_error(&error))?;
        let source = source(&self.gids, self.options.gid_index, address);
        id.resolve_address(source, address, RESOLVE_MILLISECONDS).map_err(|error| command_error(&error))?;
        self.connections.roles.insert(id.name(), Role::Connection(queue_pair));
        let stage = Stage::Resolving { private_data, parameters };
        self.connections.connections.insert(queue_pair, Connection { id, stage });
        Ok(Answer::Done)
    }

    /// What the device and the table of devices allow of what is asked for.
    fn within_limits(&self, asked: ConnectionParameters) -> ConnectionParameters {
        let wanted = self.options.parameters.unwrap_or(asked);
        let reads = u8::try_from(self.capabilities().attributes.max_rdma_reads).unwrap_or(u8::MAX);
        ConnectionParameters {
            responder_resources: wanted.responder_resources.min(reads),
            initiator_depth: wanted.initiator_depth.min(reads),
            retry_count: wanted.retry_count.min(self.known.max_retry_count),
            ..wanted
        }
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
            return Err(CommandError::Invalid);
        }
        let parameters = self.within_limits(parameters);
        let mut id = self.connections.take_incoming(incoming)?;
        let accepted = make_ready(&found, &mut id, &self.options, self.known, &parameters)
            .and_then(|()| id.accept(queue_pair, private_data, &parameters));
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
        while let Some(event) = self.connections.channel.next_event() {
            self.connection_event(event);
        }
    }

    fn connection_event(&mut self, event: Event) {
        if event.kind == EventKind::DeviceRemoval {
            self.events.push_back(DeviceEvent::Async(AsyncEvent::DeviceFatal));
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
        let name = id.name();
        let Some(incoming) = self.connections.incoming.insert(Incoming { listener, id }).map(IncomingId) else {
            return;
        };
        self.connections.roles.insert(name, Role::Incoming(incoming));
        let (private_data, parameters) = (event.private_data, event.parameters);
        let request = ConnectionEvent::Request { listener, incoming, private_data, parameters };
        self.events.push_back(DeviceEvent::Connection(request));
    }

    /// The next step of a connection, and what is to be told of it.
    fn advance(&mut self, queue_pair: QueuePairId, event: Event) -> Option<ConnectionEvent> {
        let found = self.queue_pair(queue_pair).ok()?;
        let (options, known, name) = (&self.options, self.known, self.capabilities().name);
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
                let begun = id.connect(queue_pair, private_data, &parameters);
                *stage = Stage::Requested { parameters };
                give_up_on_error(stage, queue_pair, begun)
            }
            (Stage::Requested { parameters }, EventKind::ConnectResponse) => {
                let ready = make_ready(&found, id, options, known, parameters).and_then(|()| id.establish());
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
            (_, EventKind::Unreachable | EventKind::Rejected) => {
                *stage = Stage::Ended;
                Some(ConnectionEvent::Unreachable { queue_pair })
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
    begun.err().map(|_| {
        *stage = Stage::Ended;
        ConnectionEvent::Unreachable { queue_pair }
    })
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
fn source(gids: &[system::Gid], wanted: Option<u8>, destination: SocketAddr) -> Option<SocketAddr> {
    let usable = |gid: &system::Gid| gid.address().filter(|address| address.is_ipv4() == destination.is_ipv4());
    let mut found: Vec<_> = match wanted {
        Some(_) => system::choose_gid(gids, wanted).iter().filter_map(usable).collect(),
        None => gids.iter().filter_map(usable).collect(),
    };
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [address] => Some(SocketAddr::new(address, 0)),
        _ => None,
    }
}

/// From INIT to RTS by the connection manager's attributes, with what the options change of them.
fn make_ready(
    queue_pair: &QueuePair,
    id: &mut Identifier,
    options: &VerbsOptions,
    known: &KnownDevice,
    parameters: &ConnectionParameters,
) -> io::Result<()> {
    let (mut attributes, mask) = id.attributes(ibv_qp_state::IBV_QPS_INIT)?;
    // The active side's proposal has no rights; partition and port are the path's (verbs.md 5.8).
    attributes.qp_access_flags = PEER_ACCESS;
    queue_pair.modify(&mut attributes, mask | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS)?;

    let (mut attributes, mask) = id.attributes(ibv_qp_state::IBV_QPS_RTR)?;
    attributes.max_dest_rd_atomic = attributes.max_dest_rd_atomic.min(parameters.responder_resources);
    attributes.path_mtu = attributes.path_mtu.min(mtu_code(options.mtu.unwrap_or(MAX_MTU)));
    if let Some(class) = options.traffic_class {
        attributes.ah_attr.grh.traffic_class = class;
    }
    attributes.min_rnr_timer = options.min_rnr_timer.unwrap_or(attributes.min_rnr_timer);
    queue_pair.modify(&mut attributes, mask)?;

    let (mut attributes, mask) = id.attributes(ibv_qp_state::IBV_QPS_RTS)?;
    attributes.max_rd_atomic = attributes.max_rd_atomic.min(parameters.initiator_depth);
    attributes.timeout = options.ack_timeout.unwrap_or(attributes.timeout);
    // The passive side's proposal is the peer's wish.
    attributes.retry_cnt = parameters.retry_count.min(known.max_retry_count);
    attributes.rnr_retry = parameters.rnr_retry_count;
    queue_pair.modify(&mut attributes, mask)
}

/// `enum ibv_mtu`: 1 for 256 bytes, and one more for each doubling.
pub(super) fn mtu_code(bytes: u32) -> u32 {
    bytes.ilog2().saturating_sub(7).clamp(1, 5)
}
