//! Work requests, chains and completions: what crosses the hot half of a provider.

use super::{BaseId, Errno, Failure, QueuePairId, RegistrationId};
use arrayvec::ArrayVec;

/// Completions taken by one call of `Port::poll`: the budget of one stage of a poll iteration. 64 is what SPDK's mlx5
/// module and DPDK's burst calls settled on; an uncapped poll cost libfabric 30 % of its bandwidth.
pub const MAX_COMPLETIONS_PER_POLL: usize = 64;

/// What [`super::Port::poll`] fills.
pub type CompletionBatch = ArrayVec<Completion, MAX_COMPLETIONS_PER_POLL>;

/// What a work request was posted for; the top four bits of its `wr_id` (U16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TokenKind {
    /// Not posted by the engine: handed back to the embedder.
    Foreign = 0,
    /// A receive; the index is that of its buffer.
    Receive = 1,
    /// A registration; the index is that of its MR.
    Register = 2,
    /// A local invalidation; the index is that of its MR.
    Invalidate = 3,
    /// The message of a request; the index is that of its request slot.
    Message = 4,
    /// An RDMA READ or RDMA WRITE of a transfer; the index is that of its transfer slot.
    Transfer = 5,
    /// The reply of a transfer; the index is that of its transfer slot.
    Reply = 6,
    /// The marker that ends a drain; the index is that of its connection.
    Drain = 7,
}

/// The `wr_id` of a work request: kind (4 bits), slot index (28 bits), generation (32 bits). A completion finds its
/// object from this alone, and a late, duplicated or foreign one is recognised by it (U16, S113, F7).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Slot indices are below this: 28 bits are left beside kind and generation.
    pub const MAX_INDEX: u32 = (1 << 28) - 1;

    /// Composes a token. `index` must not exceed [`Token::MAX_INDEX`]; higher bits are cut off.
    #[must_use]
    pub const fn new(kind: TokenKind, index: u32, generation: u32) -> Self {
        Self(((kind as u64) << 60) | (((index & Self::MAX_INDEX) as u64) << 32) | generation as u64)
    }

    /// [`Token::new`] for an index that is known not to exceed [`Token::MAX_INDEX`]: of a slot or descriptor that exists, which
    /// `Plan` bounds.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn of(kind: TokenKind, index: u32, generation: u32) -> Self {
        debug_assert!(index <= Self::MAX_INDEX);
        Self(((kind as u64) << 60) + ((index as u64) << 32) + generation as u64)
    }

    /// The kind; anything that the engine does not know is [`TokenKind::Foreign`].
    #[must_use]
    pub const fn kind(self) -> TokenKind {
        match self.0 >> 60 {
            1 => TokenKind::Receive,
            2 => TokenKind::Register,
            3 => TokenKind::Invalidate,
            4 => TokenKind::Message,
            5 => TokenKind::Transfer,
            6 => TokenKind::Reply,
            7 => TokenKind::Drain,
            _ => TokenKind::Foreign,
        }
    }

    /// Whether it has this kind, which is not [`TokenKind::Foreign`].
    #[must_use]
    #[inline]
    pub const fn is(self, kind: TokenKind) -> bool {
        self.0 >> 60 == kind as u64
    }

    /// The slot index.
    #[must_use]
    pub const fn index(self) -> u32 {
        ((self.0 >> 32) & Self::MAX_INDEX as u64) as u32
    }

    /// The slot index of a token of this kind; more than [`Token::MAX_INDEX`] of one of any other kind, so that who looks a slot
    /// up by it asks for both at once.
    #[must_use]
    #[inline(always)]
    pub(crate) const fn index_of(self, kind: TokenKind) -> u32 {
        // The upper half.
        (self.0 >> 32) as u32 ^ ((kind as u32) << 28)
    }

    /// The generation of the slot when the work request was posted.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.0 as u32
    }
}

impl core::fmt::Debug for Token {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}#{}.{}", self.kind(), self.index(), self.generation())
    }
}

/// The one remote right of a registration (S32, D28).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// The peer may RDMA READ.
    RemoteRead,
    /// The peer may RDMA WRITE.
    RemoteWrite,
    /// Both, by explicit wish of the caller (S138).
    RemoteReadWrite,
}

impl Access {
    /// Whether the peer may RDMA READ.
    #[must_use]
    pub const fn permits_read(self) -> bool {
        matches!(self, Self::RemoteRead | Self::RemoteReadWrite)
    }

    /// Whether the peer may RDMA WRITE; the base registration then needs local write as well (U3).
    #[must_use]
    pub const fn permits_write(self) -> bool {
        matches!(self, Self::RemoteWrite | Self::RemoteReadWrite)
    }
}

/// A contiguous piece of a base registration (`ibv_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ScatterElement {
    /// Virtual address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Local key of the base registration.
    pub lkey: u32,
}

/// A run of elements in the table that a [`Chain`] carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ElementRange {
    /// Index of the first element.
    pub first: u32,
    /// Number of elements.
    pub count: u32,
}

/// What a peer granted: where an RDMA READ or RDMA WRITE goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// Address in the peer's registration.
    pub address: u64,
    /// The peer's key.
    pub key: u32,
}

/// The fields of a registration work request (S38). What one object has for its life stands side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RegistrationFields {
    /// The base address that the peer uses.
    pub iova: u64,
    /// The device object.
    pub object: RegistrationId,
    /// The elements covered, in order.
    pub elements: ElementRange,
    /// The base registration that all elements lie in; devices with [`super::Contiguity::SingleRange`] bind to it.
    pub base: BaseId,
    /// The key before this registration: a type 2 bind sends it along.
    pub old_key: u32,
    /// The key that this registration makes valid.
    pub key: u32,
    /// The remote right.
    pub access: Access,
    /// Bytes covered.
    pub length: u32,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a key valid: REG_MR, a type 2 BIND_MW or a UMR.
    Register(RegistrationFields),
    /// LOCAL_INV: makes a key invalid, after all earlier work requests of the queue.
    Invalidate {
        /// The device object.
        object: RegistrationId,
        /// Its current key.
        key: u32,
    },
    /// SEND, or SEND_WITH_INV where `invalidate` names a key of the peer.
    Send {
        /// What is sent; an empty range sends an empty message.
        local: ElementRange,
        /// The peer's key that its device invalidates on arrival.
        invalidate: Option<u32>,
    },
    /// RDMA READ from the peer into local memory.
    Read {
        /// Where the data goes.
        local: ElementRange,
        /// Where it comes from.
        remote: RemoteRange,
    },
    /// RDMA WRITE from local memory to the peer.
    Write {
        /// Where the data comes from.
        local: ElementRange,
        /// Where it goes.
        remote: RemoteRange,
    },
}

/// One entry of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// Comes back in the completion.
    pub token: Token,
    /// Asks for a completion on success; a failure always completes.
    pub signalled: bool,
    /// Waits for earlier RDMA READs of this queue (`IBV_SEND_FENCE`).
    pub fence: bool,
    /// What it does.
    pub operation: Operation,
}

impl WorkRequest {
    /// What stands in a place of a chain before a work request is made there; not to be posted.
    pub const VACANT: Self = {
        let nothing = ElementRange { first: 0, count: 0 };
        let operation = Operation::Send { local: nothing, invalidate: None };
        Self { token: Token(0), signalled: false, fence: false, operation }
    };
}

/// Work requests of one post, in order, and the table that their element ranges point into. The provider copies what it
/// needs before the post returns, so neither has to outlive it and nothing can change between post and execution (S116,
/// S140).
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// In execution order.
    pub requests: &'a [WorkRequest],
    /// What the ranges of `requests` index.
    pub elements: &'a [ScatterElement],
}

impl<'a> Chain<'a> {
    /// The elements of a range; empty where the range does not lie in the table.
    #[inline]
    #[must_use]
    pub fn elements_of(&self, range: ElementRange) -> &'a [ScatterElement] {
        let first = range.first as usize;
        if range.count == 1 {
            // The usual one.
            return self.elements.get(first).map_or(&[], core::slice::from_ref);
        }
        first.checked_add(range.count as usize).and_then(|end| self.elements.get(first..end)).unwrap_or(&[])
    }
}

/// One receive to post: one element, as every user of the engine needs (S2: `max_recv_sge = 1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Comes back in the completion.
    pub token: Token,
    /// Where the message goes.
    pub element: ScatterElement,
}

/// Why a post was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum PostRefusal {
    /// The queue has no room (`ENOMEM`, `ENOSPC`).
    #[error("the queue is full")]
    QueueFull,
    /// The queue pair is not in a state that takes work, or does not exist (`EINVAL`).
    #[error("the queue pair takes no work")]
    NotReady,
    /// A field of the first refused work request is not acceptable (`EINVAL`).
    #[error("a field of the work request is invalid")]
    Invalid,
    /// The device is gone (`EIO`).
    #[error("the device is gone")]
    DeviceGone,
}

impl PostRefusal {
    /// What ibv_post_send(3) says of it: for devices that are asked by no system call.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::QueueFull => Errno::ENOMEM,
            Self::NotReady | Self::Invalid => Errno::EINVAL,
            Self::DeviceGone => Errno::EIO,
        }
    }
}

/// A refused post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({errno}), behind {accepted} accepted work requests")]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PostError {
    /// Work requests accepted from the front of the chain; they will complete.
    pub accepted: usize,
    /// Why the next one was refused.
    pub reason: PostRefusal,
    /// The number that the device said it with.
    pub errno: Errno,
}

impl PostError {
    /// Refused by a device that has no numbers: the one that a device with numbers would say.
    #[must_use]
    pub const fn new(accepted: usize, reason: PostRefusal) -> Self {
        Self { accepted, reason, errno: reason.errno() }
    }
}

/// Which of a port's two completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionQueue {
    /// Of the send queues.
    Send,
    /// Of the receive queues.
    Receive,
}

/// What a successful completion says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// Bytes received; 0 for completions of the send queue.
    pub bytes: u32,
    /// The key that the peer's SEND_WITH_INV invalidated.
    pub invalidated: Option<u32>,
}

/// A work completion. Of a failed one nothing but token, queue pair, status and vendor code can be read (S113, I17, U17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token of the work request.
    pub token: Token,
    /// The queue pair it was posted to.
    pub queue_pair: QueuePairId,
    /// What happened.
    pub result: Result<Success, Failure>,
}

// A batch of them is written and read with every poll: what a failure says lies where a success says what it brought.
const _: () = assert!(size_of::<Completion>() == 24);
