//! What the kernel tells the card when it makes an object, and what the card tells the kernel of one.

/// A completion queue in the program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletionQueueContext {
    /// Address of the first entry.
    pub(crate) buffer: u64,
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Bytes of an entry: 64 or 128; of the latter the second half is used.
    pub(crate) entry_bytes: u32,
    /// Address of the doorbell record: how far the program has taken entries (first word, big-endian, 24 bits).
    pub(crate) doorbell: u64,
}

/// A queue pair in the program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePairContext {
    /// Protection domain.
    pub(crate) domain: u32,
    /// Address of the send queue.
    pub(crate) send_queue: u64,
    /// Basic blocks of 64 bytes in it, a power of two.
    pub(crate) send_blocks: u32,
    /// Address of the receive queue.
    pub(crate) receive_queue: u64,
    /// Entries of it, a power of two; 0 where receives are shared.
    pub(crate) receive_entries: u32,
    /// Bytes of one of them.
    pub(crate) receive_stride: u32,
    /// Address of the doorbell record: receives posted (first word), send blocks posted (second word), both big-endian, 16 bits.
    pub(crate) doorbell: u64,
    /// Number of the completion queue of sends.
    pub(crate) send_completions: u32,
    /// Number of the completion queue of receives.
    pub(crate) receive_completions: u32,
    /// Number of the shared receive queue, if there is one.
    pub(crate) shared_receives: Option<u32>,
    /// What completions call it.
    pub(crate) user_index: u32,
}

/// A shared receive queue in the program's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedReceiveContext {
    /// Protection domain.
    pub(crate) domain: u32,
    /// Address of the first entry; they are linked.
    pub(crate) buffer: u64,
    /// Entries, a power of two.
    pub(crate) entries: u32,
    /// Bytes of one of them.
    pub(crate) stride: u32,
    /// Address of the doorbell record: receives posted (first word, big-endian, 16 bits).
    pub(crate) doorbell: u64,
}

/// State of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePairState {
    /// Nothing works.
    Reset,
    /// Receives may be posted.
    Initialised,
    /// Messages are received.
    ReadyToReceive,
    /// Messages are sent.
    ReadyToSend,
    /// All that is posted is flushed.
    Error,
}

/// What ibv_modify_qp(3) changes, as far as the card cares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Modification {
    /// The next state.
    pub(crate) state: Option<QueuePairState>,
    /// Number of the queue pair at the other end.
    pub(crate) destination: Option<u32>,
    /// Rights of the peer (`IBV_ACCESS_REMOTE_*`).
    pub(crate) remote_access: Option<u32>,
    /// How often a message that finds no receive is tried again; 7 is for ever.
    pub(crate) receiver_not_ready_retries: Option<u8>,
}

/// What a memory key is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKey {
    /// ibv_reg_mr(3): usable at once.
    Region {
        /// Protection domain.
        domain: u32,
        /// Of the first byte.
        address: u64,
        /// Bytes.
        length: u64,
        /// `IBV_ACCESS_*`.
        access: u32,
        /// Addresses begin at 0 (`IBV_ACCESS_ZERO_BASED`).
        zero_based: bool,
    },
    /// A type 2 memory window: free until it is bound by a work request.
    Window {
        /// Protection domain.
        domain: u32,
    },
    /// An indirect key, made by the firmware's CREATE_MKEY: free until a work request gives it a list.
    List {
        /// Protection domain.
        domain: u32,
        /// Entries of 16 bytes that it has room for.
        entries: u32,
        /// A peer's SEND_WITH_INV may end it.
        remote_invalidation: bool,
    },
}

/// What the card tells of an object by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// A queue pair is in the error state for a reason that no completion tells (number).
    QueuePairFatal(u32),
    /// A peer broke its rights (number).
    AccessError(u32),
    /// The last shared receive of a queue pair in the error state is taken (number).
    LastReceive(u32),
}

/// Why the card does not make, change or destroy an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no object of that number.
    Unknown,
    /// It is used by another one.
    Busy,
    /// A value is not acceptable.
    Invalid,
}
