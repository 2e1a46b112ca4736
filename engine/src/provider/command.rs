//! Commands to the cold half of a device, and what comes back.

use super::{BaseId, DomainId, Errno, PortId, QueuePairId, RegistrationId, SharedReceiveQueueId};
use arrayvec::ArrayVec;
use frwr_mempool::DeviceMemory;
use std::net::SocketAddr;

/// Private data of a connection manager message: 56 bytes is what an RDMA_PS_TCP connect request carries to the peer
/// (rdma_connect(3)), the smallest of the limits of connect, accept and reject.
pub const MAX_PRIVATE_DATA: usize = 56;

/// Bytes that travel with a connection manager message.
pub type PrivateData = ArrayVec<u8, MAX_PRIVATE_DATA>;

/// Chosen by whoever submits a command; comes back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// A listening address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// A connect request that was neither accepted nor rejected yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IncomingId(pub u32);

/// Sizes of a queue pair, asked for or granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Work requests that the send queue holds.
    pub send: u32,
    /// Receives that the receive queue holds; not looked at where it receives from a shared queue.
    pub receive: u32,
    /// Scatter elements of one send queue entry.
    pub max_send_sge: u32,
}

frwr_mempool::options! {
    /// What the connection manager negotiates beside private data.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ConnectionParameters {
        /// RDMA READs that the peer may have outstanding towards us.
        pub responder_resources: u8,
        /// RDMA READs that we may have outstanding towards the peer.
        pub initiator_depth: u8,
        /// Transport retries, 0 to 7; 7 is finite, but rxe retries for ever with it, so the default is 6.
        pub retry_count: u8,
        /// Receiver-not-ready retries, 0 to 7; 7 retries for ever.
        pub rnr_retry_count: u8,
    }
}

impl Default for ConnectionParameters {
    fn default() -> Self {
        Self { responder_resources: 16, initiator_depth: 16, retry_count: 6, rnr_retry_count: 6 }
    }
}

/// A slow command: a system call or a firmware command on real hardware.
#[derive(Clone, Debug)]
pub enum Command {
    /// Answer: [`Answer::Domain`].
    AllocateDomain,
    /// Refused with [`CommandError::BUSY`] while anything lives in it.
    FreeDomain {
        /// Which.
        domain: DomainId,
    },
    /// Registers memory for local use, windows allowed, without a remote right. Answer: [`Answer::Base`].
    RegisterMemory {
        /// In which protection domain.
        domain: DomainId,
        /// What; the device keeps it alive until deregistered.
        memory: DeviceMemory,
        /// The device may write to it.
        local_write: bool,
    },
    /// Refused with [`CommandError::BUSY`] while a registration covers part of it (I33).
    DeregisterMemory {
        /// Which.
        base: BaseId,
    },
    /// Creates a reliable connected queue pair that takes receives but no sends. Answer: [`Answer::QueuePair`].
    CreateQueuePair {
        /// The port whose completion queues it uses.
        port: PortId,
        /// Its protection domain.
        domain: DomainId,
        /// Its sizes.
        sizes: QueueSizes,
        /// Where its receives come from, if not from a queue of its own: a queue of the same port.
        shared_receives: Option<SharedReceiveQueueId>,
    },
    /// Creates a shared receive queue. Answer: [`Answer::SharedReceiveQueue`].
    CreateSharedReceiveQueue {
        /// The port that posts to it, and whose queue pairs may use it.
        port: PortId,
        /// The protection domain that the local keys of its receives are of.
        domain: DomainId,
        /// Receives that it is to hold, each of one element.
        entries: u32,
    },
    /// Destroys a shared receive queue with the receives in it, without completions. Refused with
    /// [`CommandError::BUSY`] while a queue pair uses it.
    DestroySharedReceiveQueue {
        /// Which.
        queue: SharedReceiveQueueId,
    },
    /// Moves a queue pair to the error state: everything posted to it is flushed. Receives of a shared queue stay there
    /// for the other queue pairs, but for those that it has taken already; with the last of them it raises
    /// [`AsyncEvent::LastReceiveReached`].
    FailQueuePair {
        /// Which.
        queue_pair: QueuePairId,
    },
    /// Destroys a queue pair; what is still posted is dropped without completion.
    DestroyQueuePair {
        /// Which.
        queue_pair: QueuePairId,
    },
    /// Makes an object that can be registered by work request. Answer: [`Answer::Registration`].
    AllocateRegistration {
        /// The port that will register it.
        port: PortId,
        /// Its protection domain.
        domain: DomainId,
        /// The queue pair it will be used on.
        queue_pair: QueuePairId,
        /// Elements that it must be able to cover.
        depth: u32,
    },
    /// Destroys such an object; a key that is still valid dies with it.
    FreeRegistration {
        /// Which.
        object: RegistrationId,
    },
    /// Starts to listen. Answer: [`Answer::Listener`].
    Listen {
        /// Where.
        address: SocketAddr,
    },
    /// Stops listening; connect requests that were not answered yet are rejected.
    StopListening {
        /// Which.
        listener: ListenerId,
    },
    /// Starts to connect a queue pair; ends with a [`ConnectionEvent`] for it.
    Connect {
        /// Which.
        queue_pair: QueuePairId,
        /// Where to.
        address: SocketAddr,
        /// For the peer.
        private_data: PrivateData,
        /// What is negotiated.
        parameters: ConnectionParameters,
    },
    /// Accepts a connect request on a queue pair; ends with a [`ConnectionEvent`] for it.
    Accept {
        /// Which request.
        incoming: IncomingId,
        /// On which queue pair; its receives are posted.
        queue_pair: QueuePairId,
        /// For the peer.
        private_data: PrivateData,
        /// What is negotiated.
        parameters: ConnectionParameters,
    },
    /// Rejects a connect request.
    Reject {
        /// Which request.
        incoming: IncomingId,
        /// For the peer.
        private_data: PrivateData,
    },
    /// Tells the peer that the connection ends. The queue pair's state is left to [`Command::FailQueuePair`].
    Disconnect {
        /// Which.
        queue_pair: QueuePairId,
    },
}

/// What a successful command answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing to say.
    Done,
    /// A new protection domain.
    Domain(DomainId),
    /// A new base registration.
    Base {
        /// Its name.
        base: BaseId,
        /// The key for local use.
        lkey: u32,
    },
    /// A new queue pair with what the device granted.
    QueuePair {
        /// Its number.
        queue_pair: QueuePairId,
        /// Its sizes, at least what was asked for.
        sizes: QueueSizes,
    },
    /// A new shared receive queue.
    SharedReceiveQueue {
        /// Its name.
        queue: SharedReceiveQueueId,
        /// Receives that it holds, at least what was asked for.
        entries: u32,
    },
    /// A new object that can be registered.
    Registration {
        /// Its name.
        object: RegistrationId,
        /// Its key; not valid yet.
        key: u32,
    },
    /// A new listener.
    Listener(ListenerId),
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum CommandError {
    /// The device or the system has none left (`ENOMEM`, `ENOSPC`, `EMFILE`, `EAGAIN`).
    #[error("the device has none left ({0})")]
    Exhausted(Errno),
    /// The memory may not be locked: it is beyond what the process may lock (`RLIMIT_MEMLOCK`).
    #[error(
        "{wanted} bytes of memory cannot be locked for the device, the limit of the process is {limit} bytes; raise it \
         (ulimit -l unlimited, or LimitMEMLOCK=infinity in the service)"
    )]
    LockedMemory {
        /// Bytes that were to be registered.
        wanted: u64,
        /// The limit in bytes, for all that the process locks.
        limit: u64,
    },
    /// Something still depends on the object (`EBUSY`, `EINVAL` of `ibv_dereg_mr`).
    #[error("the object is in use ({0})")]
    Busy(Errno),
    /// No such object.
    #[error("no such object")]
    Unknown,
    /// An argument is not acceptable to the device.
    #[error("the device does not accept the argument ({0})")]
    Invalid(Errno),
    /// The address is taken or cannot be reached.
    #[error("the address is taken or cannot be reached ({0})")]
    Address(Errno),
    /// The device is gone.
    #[error("the device is gone ({0})")]
    DeviceGone(Errno),
}

/// As devices say it that are asked by no system call, with the number that one with system calls would say.
impl CommandError {
    /// [`CommandError::Exhausted`].
    pub const EXHAUSTED: Self = Self::Exhausted(Errno::ENOMEM);
    /// [`CommandError::Busy`].
    pub const BUSY: Self = Self::Busy(Errno::EBUSY);
    /// [`CommandError::Invalid`].
    pub const INVALID: Self = Self::Invalid(Errno::EINVAL);
    /// [`CommandError::Address`].
    pub const ADDRESS: Self = Self::Address(Errno::EADDRNOTAVAIL);
    /// [`CommandError::DeviceGone`].
    pub const DEVICE_GONE: Self = Self::DeviceGone(Errno::EIO);

    /// The number of the system's error; of what needs none to be refused, the one that fits.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Exhausted(errno)
            | Self::Busy(errno)
            | Self::Invalid(errno)
            | Self::Address(errno)
            | Self::DeviceGone(errno) => errno,
            Self::LockedMemory { .. } => Errno::ENOMEM,
            Self::Unknown => Errno::ENOENT,
        }
    }
}

/// Why a peer, or the network, refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// Nobody listens there.
    NoListener,
    /// The peer's program said no.
    Consumer,
    /// The peer still has the old connection.
    Stale,
}

/// What the connection manager says; the flow is that of rdma_cm.
#[derive(Clone, Debug)]
pub enum ConnectionEvent {
    /// RDMA_CM_EVENT_CONNECT_REQUEST.
    Request {
        /// On which listener.
        listener: ListenerId,
        /// For accept or reject.
        incoming: IncomingId,
        /// Where the peer is, if the device knows.
        peer: Option<SocketAddr>,
        /// Where the peer connects to, if the device knows: of a listener at all of a machine's addresses, the one that was meant.
        local: Option<SocketAddr>,
        /// The peer's bytes.
        private_data: PrivateData,
        /// What the peer asks for.
        parameters: ConnectionParameters,
    },
    /// RDMA_CM_EVENT_ESTABLISHED: the queue pair sends and receives.
    Established {
        /// Which.
        queue_pair: QueuePairId,
        /// The bytes of the peer's accept; empty on the passive side.
        private_data: PrivateData,
    },
    /// RDMA_CM_EVENT_REJECTED.
    Rejected {
        /// Which.
        queue_pair: QueuePairId,
        /// Why.
        reason: RejectReason,
        /// The bytes of the peer's reject.
        private_data: PrivateData,
    },
    /// RDMA_CM_EVENT_UNREACHABLE, CONNECT_ERROR, or the address or route could not be resolved.
    Unreachable {
        /// Which.
        queue_pair: QueuePairId,
        /// Why, as the connection manager says it.
        errno: Errno,
    },
    /// RDMA_CM_EVENT_DISCONNECTED: the peer ended the connection.
    Disconnected {
        /// Which.
        queue_pair: QueuePairId,
    },
}

/// `ibv_async_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// IBV_EVENT_QP_FATAL.
    QueuePairFatal(QueuePairId),
    /// IBV_EVENT_QP_ACCESS_ERR.
    QueuePairAccessError(QueuePairId),
    /// IBV_EVENT_QP_LAST_WQE_REACHED: a queue pair in the error state takes no more receives from its shared queue; what it
    /// took has completed, in the completion queue if not taken from there yet (ibv_get_async_event(3)).
    LastReceiveReached(QueuePairId),
    /// IBV_EVENT_CQ_ERR or IBV_EVENT_SRQ_ERR: completions or receives were lost, and all queue pairs of the port fail.
    CompletionQueueOverrun(PortId),
    /// IBV_EVENT_DEVICE_FATAL, or the device was removed.
    DeviceFatal,
}

/// What [`super::Device::poll`] returns.
#[derive(Clone, Debug)]
pub enum DeviceEvent {
    /// A command ended.
    Answered {
        /// As given with the command.
        ticket: Ticket,
        /// How it ended.
        result: Result<Answer, CommandError>,
    },
    /// From the connection manager.
    Connection(ConnectionEvent),
    /// From the device.
    Async(AsyncEvent),
}
