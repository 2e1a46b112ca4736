//! Why an MR refuses a transition, by what is wrong (I1 to I30).

/// A refused transition. The MR is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[repr(u32)]
pub enum MrError {
    /// The state has no such arrow (I1 to I4, I13, I21, I30).
    #[error("the MR's state does not allow this step; check the order of open, invalidate and give back")]
    InvalidState,
    /// The key was invalidated before, or its invalidation is on the way (I5).
    #[error("the key is invalid already, or its invalidation is in flight; invalidate a key once")]
    AlreadyInvalid,
    /// The key is not the MR's current one (I6).
    #[error("the key is not the MR's current key; take it from the latest grant")]
    StaleKey,
    /// The device may still use the MR (I7, I8, I9, I11).
    #[error("the device may still use the MR; invalidate it or drain the queue pair first")]
    Busy,
    /// The MR belongs to another queue pair (I23).
    #[error("the MR belongs to another connection's queue pair")]
    WrongQueue,
    /// The MR belongs to an earlier connection of this slot (I24).
    #[error("the MR belongs to an earlier connection; destroy it")]
    StaleConnection,
    /// The peer invalidated a key that it had no right to invalidate (I25, F13).
    #[error("the peer invalidated a key that the replying request does not hold; fail the connection")]
    ProtocolError,
    /// The pad lives as long as its connection (I26).
    #[error("the pad MR is never invalidated, reset or given back; it ends with its connection")]
    Denied,
    /// A completion of an earlier use; to be counted and dropped (I16).
    #[error("the completion belongs to an earlier use of the MR; count and drop it")]
    StaleCompletion,
}
