//! What a recorded port tells.

use crate::provider::{
    Access, Completion, CompletionQueue, Errno, PostRefusal, QueuePairId, RegistrationId, SharedReceiveQueueId, Token,
};

/// What a recorded work request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOperation {
    /// A registration.
    Register {
        /// The device object.
        object: RegistrationId,
        /// The key it makes valid.
        key: u32,
        /// The right it grants.
        access: Access,
        /// The address that the peer uses.
        iova: u64,
        /// Elements covered.
        elements: u32,
    },
    /// A local invalidation.
    Invalidate {
        /// The device object.
        object: RegistrationId,
        /// Its key.
        key: u32,
    },
    /// A SEND.
    Send {
        /// The peer's key that it invalidates.
        invalidate: Option<u32>,
    },
    /// An RDMA READ.
    Read {
        /// The peer's key.
        key: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// The peer's key.
        key: u32,
    },
}

/// One thing that happened, with the iteration it happened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A work request of a post, accepted or not.
    Posted {
        /// As told by `mark_iteration`.
        iteration: u64,
        /// Where it was posted.
        queue_pair: QueuePairId,
        /// Its token.
        token: Token,
        /// Whether it asked for a completion.
        signalled: bool,
        /// Whether it waits for earlier RDMA READs.
        fence: bool,
        /// Whether the device took it.
        accepted: bool,
        /// Bytes that it covers or moves.
        length: u64,
        /// What it was.
        operation: RecordedOperation,
    },
    /// A post was refused, wholly or in part; follows its work requests.
    Refused {
        /// As told by `mark_iteration`.
        iteration: u64,
        /// Where it was posted.
        queue_pair: QueuePairId,
        /// Work requests accepted from the front.
        accepted: u32,
        /// Why not more.
        reason: PostRefusal,
        /// The number that the device said it with.
        errno: Errno,
    },
    /// A receive was posted.
    Receive {
        /// As told by `mark_iteration`.
        iteration: u64,
        /// Where it was posted.
        queue_pair: QueuePairId,
        /// Its token.
        token: Token,
        /// Whether the device took it.
        accepted: bool,
    },
    /// A receive was posted to a shared queue.
    SharedReceive {
        /// As told by `mark_iteration`.
        iteration: u64,
        /// Where it was posted.
        queue: SharedReceiveQueueId,
        /// Its token.
        token: Token,
        /// Whether the device took it.
        accepted: bool,
    },
    /// A completion was taken.
    Completed {
        /// As told by `mark_iteration`.
        iteration: u64,
        /// From which queue.
        queue: CompletionQueue,
        /// What it said.
        completion: Completion,
    },
}
