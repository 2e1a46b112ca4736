//! Trace points (1.L): what happened to which MR, in a bounded ring that somebody else empties.

use crate::provider::{Access, FailureStatus};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePoint {
    /// mr_map: segments were mapped to an MR.
    MrMapped,
    /// An MR went back unused (S85).
    MrReset,
    /// mr_fastreg: a registration joined a chain.
    MrRegister,
    /// mr_localinv: a local invalidation joined a chain.
    MrLocalInvalidate,
    /// mr_reminv: the peer invalidated the key.
    MrRemoteInvalidate,
    /// wc_fastreg: a registration completed badly.
    RegisterFailed(FailureStatus),
    /// wc_li: a local invalidation completed.
    LocalInvalidateDone,
    /// The same, badly.
    LocalInvalidateFailed(FailureStatus),
    /// The MR's object was destroyed (mr_recycle of version O; mrs_zap).
    MrDestroyed,
    /// frwr_alloc: the device could not make an object. The record names the connection, never the object (S125, F10).
    MrAllocationFailed,
    /// createmrs: this many objects exist now (in `length`).
    MrsCreated,
    /// nomrs_err: a request found too few MRs.
    NoMrs,
    /// marshal_failed.
    MarshalFailed,
    /// post_send: a chain was posted (`length` work requests).
    PostSend,
    /// post_send_err, post_linv_err: a chain was refused (`length` of it accepted).
    PostSendRefused,
    /// A connection began to end.
    Disconnect,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Time of the iteration, in nanoseconds of the caller's epoch.
    pub time_ns: u64,
    /// What happened.
    pub point: TracePoint,
    /// The connection's index.
    pub connection: u16,
    /// The MR's descriptor; `u32::MAX` where there is none.
    pub mr: u32,
    /// The request slot that owns the MR; `u32::MAX` where there is none (the pad).
    pub owner: u32,
    /// The key, as told to the peer.
    pub handle: u32,
    /// Bytes registered.
    pub length: u32,
    /// Base address, as told to the peer.
    pub offset: u64,
    /// The remote right.
    pub access: Option<Access>,
}
