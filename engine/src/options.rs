//! What can be chosen when an engine is made, with its default, by the behaviours where versions differ (D ids).

pub use crate::mr::{IovaPolicy, ReturnPolicy};
use crate::{signal::SignalPolicy, sizing};
use core::time::Duration;

/// MRs of one request: the RDMA segments that one transport header may carry (H, S4; D17).
pub const MAX_MRS_PER_REQUEST: usize = 16;

/// Chunks of one request: read list, write list and reply chunk of RPC-over-RDMA, and one to spare.
pub const MAX_CHUNKS: usize = 4;

/// Memories of one engine at most. Each connection finds all of them in a table of its own, a cache line for each: 64 KiB then. Base
/// registrations are few and large; what is small and many is a part of one.
pub const MAX_MEMORIES: u16 = 1024;

/// RDMA READs or WRITEs of one transfer: as many as a peer's header may carry segments.
pub const MAX_TRANSFER_OPERATIONS: usize = 16;

/// Elements of one transfer, of all its RDMA operations together: at least one for each of those. A responder has its data in few
/// buffers, so that more would be memory for every slot that nobody uses.
pub const MAX_TRANSFER_ELEMENTS: usize = MAX_TRANSFER_OPERATIONS;

/// Receives for replies beyond those of the requests in flight, unless the caller parts them himself
/// ([`ConnectionOptions::granted_receives`]): so many replies may wait as events, or be in the caller's hands, while
/// [`EngineOptions::queue_depth`] requests are in flight. As many as sizing adds: a batch of refilling (S8) and the drain's one. No more than
/// there are requests.
pub const SPARE_REPLY_RECEIVES: u32 = 8;

/// What happens when the device refuses a post (D7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPostError {
    /// The connection ends; what was refused comes back as lost.
    #[default]
    Disconnect,
    /// The MRs of what was refused are destroyed, which fences them, and the connection goes on. Every message behind a
    /// registration asks for a completion, whatever `signal` says: an MR is destroyed on a queue pair that works only where a
    /// completion has passed its registration (I11). Where none has, the connection ends.
    DeregisterAndContinue,
}

/// What becomes of an MR whose state on the device is unknown (D8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StalePolicy {
    /// It is destroyed; the pool refills when it is empty (S94, S100).
    #[default]
    Destroy,
    /// It is destroyed and a new object takes its place at once, so that the number of MRs stays the same (S103, S106).
    Repair,
}

/// Which local invalidations ask for a completion (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidateSignalling {
    /// The last one of a chain: its completion vouches for those before it (S67).
    #[default]
    LastOfChain,
    /// Every one (S66, versions N and O).
    Every,
}

/// Where local invalidations stand in a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidateOrder {
    /// In front of the registrations of requests, and of transfers, that are submitted when they are due already; needed where MRs
    /// return at posting (D2).
    #[default]
    BeforeMessages,
    /// Behind new messages.
    AfterMessages,
}

/// Which protection domain a connection's queue pair and memory live in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DomainPolicy {
    /// One per connection where keys are valid in the whole domain, else the shared one.
    #[default]
    ByKeyScope,
    /// One for all connections of the process.
    Shared,
    /// One per connection.
    PerConnection,
}

/// Where the receives of connections are posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveQueues {
    /// Each connection has a queue of `receive_depth` receives.
    #[default]
    PerConnection,
    /// All connections of the engine take their receives from one queue (an SRQ): one post for all of them in an
    /// iteration, and memory for what peers are granted together instead of for the worst of each. Only where the device
    /// has such queues (`DeviceAttributes::max_srq`).
    Shared {
        /// Receives in the queue; 0 for `receive_depth` of each connection. With fewer, connections are refused
        /// (`OpenError::Receives`) while those that are open have been granted too many.
        entries: u32,
    },
}

frwr_mempool::options! {
    /// Everything that an engine can be told.
    #[derive(Clone, Debug)]
    pub struct EngineOptions {
        /// Connections at the same time.
        pub connections: u16,
        /// Requests of one connection at the same time; the request slab has twice as many slots (hold outlives fence). 0 for a mere
        /// responder.
        pub queue_depth: u32,
        /// Transfers of one connection at the same time; 0, the default, for a mere requester, which can neither fetch, write nor respond.
        pub transfer_depth: u32,
        /// Transfers of all connections in progress from which on each reply asks for its completion, because what they hold of their caller
        /// comes back with that: no more than this many are ever over without its knowing. A quarter of all transfers, the default, where
        /// that is less: a caller that has less to give them than that says how much.
        pub transfers_held: u32,
        /// RDMA READs or WRITEs of one transfer as a rule, at most [`MAX_TRANSFER_OPERATIONS`]: the send queue has room for
        /// `transfer_depth` transfers of so many. Those of more wait for others.
        pub transfer_operations: u32,
        /// Receives posted per connection, or granted to it of shared ones; 0 for what sizing asks (S8).
        pub receive_depth: u32,
        /// Where they are posted.
        pub receive_queues: ReceiveQueues,
        /// Bytes of the largest message sent or received.
        pub message_bytes: u32,
        /// Segments of the largest request, over all its chunks.
        pub max_segments: u32,
        /// Memories that are declared at the same time ([`Engine::add_memory`](crate::Engine::add_memory)), the engine's own among
        /// them: 1 up to [`MAX_MEMORIES`].
        pub memories: u16,
        /// Requests open memory to peers. Where false there are no MRs, on any device, and a request that names memory is refused
        /// ([`SubmitError::TooManyRegistrations`](crate::SubmitError)): for mere responders, and for messages alone. It is all that a device
        /// without memory management extensions can do.
        pub opens_keys: bool,
        /// MRs of one connection; 0 for one per request. Each has an entry in the send queue for its invalidation, which is made as long as
        /// that takes; fewer, where the device's send queues cannot have so many beside the largest request or transfer.
        pub registrations: u32,
        /// MRs made before a connection is ready (S22); 0 for all of them.
        pub first_fill: u32,
        /// Page size and the like for sizing; requests are overwritten with `queue_depth`.
        pub wishes: sizing::Wishes,
        /// Which work request of a chain asks for a completion (D21).
        pub signal: SignalPolicy,
        /// Which local invalidations do (D4).
        pub invalidate_signalling: InvalidateSignalling,
        /// Where local invalidations stand.
        pub invalidate_order: InvalidateOrder,
        /// When an MR returns to the free list (D2).
        pub return_policy: ReturnPolicy,
        /// What a refused post does (D7).
        pub on_post_error: OnPostError,
        /// What becomes of a stale MR (D8).
        pub stale_policy: StalePolicy,
        /// Which base address the peer is told (D13).
        pub iova: IovaPolicy,
        /// Protection domains.
        pub domain: DomainPolicy,
        /// A write pad of four bytes per connection (S90 to S93).
        pub write_pad: bool,
        /// How long a failed connection may take to drain, from the moment on in which its queue pair is in the error state, before that
        /// is destroyed all the same. Time in which nobody polled the engine does not count ([`crate::WatchedClock`]).
        pub drain_timeout: Duration,
        /// Trace records kept until somebody takes them; 0 switches tracing off.
        pub trace_records: usize,
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            queue_depth: 32,
            transfer_depth: 0,
            transfers_held: u32::MAX,
            transfer_operations: 1,
            receive_depth: 0,
            receive_queues: ReceiveQueues::default(),
            message_bytes: 4096,
            max_segments: 32,
            memories: 16,
            opens_keys: true,
            registrations: 0,
            first_fill: 0,
            wishes: sizing::Wishes::default(),
            signal: SignalPolicy::Sparse,
            invalidate_signalling: InvalidateSignalling::default(),
            invalidate_order: InvalidateOrder::default(),
            return_policy: ReturnPolicy::default(),
            on_post_error: OnPostError::default(),
            stale_policy: StalePolicy::default(),
            iova: IovaPolicy::default(),
            domain: DomainPolicy::default(),
            write_pad: false,
            drain_timeout: Duration::from_secs(5),
            trace_records: 0,
        }
    }
}

frwr_mempool::options! {
    /// What a connection can be told, beyond its engine's options.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct ConnectionOptions {
        /// Receives that the peer has posted for what we send unasked: how many messages that may be before it answers one. Every message
        /// received gives one back. With 0, the default, nothing can be sent unasked, as is right for a mere responder: each command that
        /// arrives brings the receive of its reply. A request is refused then ([`SubmitError::NoPeerReceives`](crate::SubmitError)).
        ///
        /// No more than what the peer grants: [`Event::Connected`](crate::Event::Connected) tells it how many that are. Nobody but the device
        /// notices a message that meets no receive: the software NIC counts them (`SoftMonitor::messages_without_receive`), others end the
        /// connection when its retries are used up, or have it wait.
        ///
        /// Known before the connection is: what the peer says when it accepts comes too late. So protocols fix the number, or the
        /// side that connects says it in its private data, and the other one rejects what is more than its `receive_depth`.
        pub peer_receives: u32,
        /// Receives of the connection, where the engine's connections share theirs: for what the peer sends unasked, and for replies. 0, and
        /// whatever is more, is `EngineOptions::receive_depth`.
        pub receives: u32,
        /// Receives that the peer is granted: how many messages it may send unasked, which has to be no less than its own `peer_receives`
        /// says. A receive that it used is free for it again with our answer. What is left of the connection's receives is for replies: a
        /// request waits while none of those is free, so that the peer may use all that it is granted, and all requests are
        /// answered all the same. Never more than the connection has.
        ///
        /// `None`, the default: all but [`EngineOptions::queue_depth`] and [`SPARE_REPLY_RECEIVES`]; all of a mere responder
        /// (`queue_depth` 0). `Some(0)` for a mere requester: then all are for replies. What it is in the end
        /// [`Event::Connected`](crate::Event::Connected) says.
        pub granted_receives: Option<u32>,
        /// Retries and RDMA READ depths.
        pub parameters: crate::provider::ConnectionParameters,
    }
}
