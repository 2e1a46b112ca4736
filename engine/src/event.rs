//! What the engine tells its caller.

use crate::{
    gather::MemoryId,
    mr::Grant,
    provider::{CommandError, Completion, Errno, Failure, IncomingId, PostError, PrivateData},
    request::RequestHandle,
};
use std::net::SocketAddr;

/// A connection of this engine. The epoch changes when the slot is used again, so that the name of a former connection
/// is refused (I24).
pub type ConnectionId = crate::mr::ConnectionKey;

/// A received message that the caller has in hand. Its buffer goes back to the receive queue by `Engine::release`. It stays
/// readable when its connection ends; until it is released the next connection in the same place may have one receive less
/// ([`Event::Connected`]).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the receive buffer is lost to its connection until it is released"]
pub struct Received {
    pub(crate) buffer: u32,
    pub(crate) generation: u32,
    pub(crate) length: u32,
    /// It is the reply to a request of ours: released, its receive is free for another reply.
    pub(crate) is_reply: bool,
}

impl Received {
    /// Bytes of the message.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// How a request ended. In every case its keys are dead.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestStatus {
    /// The peer replied, and the keys were invalidated before this was said.
    Replied(Received),
    /// A message without a reply (`Engine::send`): the peer's device has it, and ours is done with the memory behind it.
    Sent,
    /// The caller cancelled it.
    Cancelled,
    /// The connection ended first. It is not known whether the peer executed the request; it may be submitted again.
    Lost,
    /// The device refused to take it, and the connection goes on (`OnPostError::DeregisterAndContinue`).
    PostRefused,
    /// The message had no room for the keys (S87).
    Unannounced,
    /// It waited for MRs, but needs more than its connection has, and the device made no more however often it was asked.
    /// Nothing was posted; smaller requests are served. It may be submitted again, later or in parts (S24, S43).
    TooFewRegistrations,
    /// It waited, and a memory that it names was removed meanwhile (`Engine::remove_memory`). Nothing was posted.
    MemoryRemoved,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferStatus {
    /// RDMA READs: the data has arrived. RDMA WRITEs without a reply: the peer's device has it. Replies: the device is done with message and data.
    Done,
    /// The connection ended first.
    Lost,
}

/// Why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenFailure {
    /// Nobody listens at the address, or it cannot be reached; why, as the connection manager says it.
    #[error("nobody listens at the address ({0})")]
    Unreachable(Errno),
    /// The peer said no; its private data says why.
    #[error("the peer rejected the connection")]
    Rejected,
    /// The peer still has a former connection with the same numbers: another attempt may succeed once it has noticed.
    #[error("the peer still has a former connection of ours; try again")]
    Stale,
    /// Our memory may not be locked for the device.
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
    /// The device made no shared receive queue.
    #[error(
        "the device made no shared receive queue of {entries} receives: {error}; ask for fewer, or for a queue per connection"
    )]
    SharedReceives {
        /// Receives that were asked for.
        entries: u32,
        /// What it said.
        error: CommandError,
    },
    /// The device has no queue pair, domain, base registration or connection left, or makes none for another reason: that
    /// is what it said.
    #[error("the device made no queue pair, protection domain, memory registration or connection: {0}")]
    NotMade(CommandError),
}

/// What an engine is told of an address that it listens at, or wanted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// It listens from now on.
    Began,
    /// It listens no longer, or never did: the answer to `Engine::stop_listening`.
    Stopped,
    /// It cannot listen there, for this reason.
    Failed(CommandError),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectCause {
    /// The caller asked for it.
    #[error("disconnected by us")]
    Local,
    /// The peer disconnected.
    #[error("disconnected by the peer")]
    Peer,
    /// A work request failed. [`Flushed`](crate::provider::FailureStatus::Flushed) is no reason by itself: the device had moved the queue pair to the error state
    /// before, most often since it refused the peer an access to memory. The peer hears the reason.
    #[error("a work request failed: {0}")]
    WorkRequest(Failure),
    /// The device refused a post.
    #[error("the device refused a post: {0}")]
    PostRefused(PostError),
    /// The peer invalidated a key that does not belong to the request it answered (F13, I25).
    #[error("the peer invalidated a key that the request does not own")]
    ForeignInvalidation,
    /// The peer sent what its protocol does not allow.
    #[error("the peer broke the protocol")]
    Protocol,
    /// The peer sent more messages than it was granted receives, and took a shared one of the others.
    #[error("the peer sent more messages than it was granted receives")]
    ReceivesExceeded,
    /// The device reported a fatal event, or is gone.
    #[error("the device failed")]
    Device,
}

/// An event, in the order in which things happened on their connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// What became of `Engine::listen` or `Engine::stop_listening`.
    Listening {
        /// The address.
        address: SocketAddr,
        /// Whether the engine listens there now, and else why not.
        state: Listening,
    },
    /// A peer wants to connect: answer with `Engine::accept` or `Engine::reject`. While [`crate::MAX_INCOMING`] of them
    /// are unanswered, Control rejects further ones.
    Incoming {
        /// For the answer.
        incoming: IncomingId,
        /// Where the peer is, if the device knows.
        peer: Option<SocketAddr>,
        /// Where the peer connects to, if the device knows: where the engine listens at all of a machine's addresses (`0.0.0.0`,
        /// `[::]`), the one that the peer means.
        local: Option<SocketAddr>,
        /// The peer's bytes.
        private_data: PrivateData,
    },
    /// A connection is ready for requests.
    Connected {
        /// Which.
        connection: ConnectionId,
        /// The bytes of the peer's accept; empty on the passive side.
        private_data: PrivateData,
        /// Messages that the peer may send unasked, which is what its `ConnectionOptions::peer_receives` may say: each of them is
        /// free again with our answer. `ConnectionOptions::granted_receives`, or what was left of the connection's receives
        /// beside those for replies to our requests; never more than are posted.
        ///
        /// Buffers that the caller still holds of an ended connection in the same place are missing at first, from those for
        /// replies before those of the peer. Released they join this connection, for replies; `Engine::connect` and
        /// `Engine::accept` take a place without any while there is one.
        receives: u32,
    },
    /// A memory that was declared when the connection was open already (`Engine::add_memory`) can be used on it from now on, unless the
    /// device refused to register it.
    MemoryRegistered {
        /// Which connection.
        connection: ConnectionId,
        /// Which memory.
        memory: MemoryId,
        /// What the device said where it refused: most often for the limit of locked memory. Segments in it are of an unknown memory
        /// then, on this connection; it is asked again when another memory is declared, or another connection opened.
        result: Result<(), CommandError>,
    },
    /// A memory is removed (`Engine::remove_memory`): neither the device nor a peer reaches it by this engine any more, and its place is
    /// free for another one. Late where the device refuses to deregister it: it is asked again until it does.
    MemoryRemoved {
        /// Which; no longer valid.
        memory: MemoryId,
    },
    /// A connection could not be opened; its name is free again.
    OpenFailed {
        /// Which.
        connection: ConnectionId,
        /// Why.
        reason: OpenFailure,
        /// The bytes of the peer's reject.
        private_data: PrivateData,
    },
    /// A connection is gone: all its requests and transfers were reported before, and every key of it is dead but those
    /// of `orphaned_mrs`.
    ///
    /// On a device that refuses to destroy the queue pair it may come late: [`Event::QueuePairKept`].
    Disconnected {
        /// Which.
        connection: ConnectionId,
        /// Why.
        cause: DisconnectCause,
        /// MR objects that the device refused to destroy, also behind the destruction of the queue pair (S105); 0 on devices
        /// that work. Their keys stay in the device's table until their protection domain goes. In a domain of its own
        /// no queue pair leads to them any more; in a shared one ([`crate::DomainPolicy::Shared`], or keys that are bound
        /// to queue pairs) treat memory that the connection's lost requests opened as lost with them, until the process ends.
        orphaned_mrs: u32,
    },
    /// The device refused to destroy the queue pair of a connection that ends or could not be opened, and that queue pair may
    /// still read and write what its work requests name (it did not drain, could not be moved to the error state, or the
    /// device keeps one of its MRs). So the connection has not ended, nor have its requests and transfers that were not told
    /// yet, and their memory is the device's (promise Hold). Control asks again; when the device complies all of that is told, with
    /// [`Event::Disconnected`] or [`Event::OpenFailed`] last. Told once; there is nothing to do but to wait, or to drop the engine.
    QueuePairKept {
        /// Which.
        connection: ConnectionId,
    },
    /// The peer sent a message that is no reply.
    Received {
        /// On which connection.
        connection: ConnectionId,
        /// The message.
        received: Received,
    },
    /// A request ended; every key of it is dead.
    Completed {
        /// Which; no longer valid.
        request: RequestHandle,
        /// As given at submission.
        cookie: u64,
        /// How.
        status: RequestStatus,
    },
    /// A registration made by `Engine::register_now` is valid; its grant may travel on any channel (U2, S133). Not told of one that
    /// ends before this event is taken: its key is dead then.
    Registered {
        /// Which.
        request: RequestHandle,
        /// As given.
        cookie: u64,
        /// What the peer may be told.
        grant: Grant,
    },
    /// The RDMA READs of `Engine::fetch` ended.
    Fetched {
        /// As given.
        cookie: u64,
        /// How.
        status: TransferStatus,
    },
    /// The RDMA WRITEs of `Engine::write` ended.
    Written {
        /// As given.
        cookie: u64,
        /// How.
        status: TransferStatus,
    },
    /// The device is done with a reply and the data sent in front of it.
    Responded {
        /// As given.
        cookie: u64,
        /// How.
        status: TransferStatus,
    },
    /// A completion whose token is not ours: it belongs to an embedder that shares the completion queue.
    Foreign(Completion),
}
