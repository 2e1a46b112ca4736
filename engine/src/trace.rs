//! Trace points (1.L): what happened to which MR and which key, in a bounded ring that somebody else empties.

use crate::{
    event::DisconnectCause,
    pad::PadFailure,
    provider::{Access, CommandError, Failure, PostError},
};
use frwr_mempool::lane;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePoint {
    /// mr_map: segments were mapped to an MR.
    MrMapped,
    /// An MR went back unused (S85).
    MrReset,
    /// mr_fastreg: the device took a registration. A key's life begins.
    MrRegister,
    /// The device took the message that tells the peer of the key; the caller was handed the grant of one that was registered
    /// without a message; or a pad is there to be told of.
    KeyTold,
    /// mr_localinv: the device took a local invalidation.
    MrLocalInvalidate,
    /// mr_reminv: the peer invalidated the key, which is dead.
    MrRemoteInvalidate,
    /// The MR's object is to be destroyed, and its key with it.
    KeyDoomed,
    /// wc_fastreg: a registration completed badly. The key may be valid all the same; its MR's object is destroyed.
    RegisterFailed(Failure),
    /// wc_li: a local invalidation completed: the key is dead.
    LocalInvalidateDone,
    /// The same, badly: the key is dead when its MR's object is destroyed.
    LocalInvalidateFailed(Failure),
    /// A key died with its MR's object; in front of [`TracePoint::MrDestroyed`].
    KeyDestroyed,
    /// The device keeps the MR's object for good, and the key lives on until its protection domain goes (S105).
    KeyOrphaned,
    /// The device took an RDMA READ that goes by a key of the peer (in `handle`; its bytes in `length`).
    PeerKeyRead,
    /// The same, an RDMA WRITE.
    PeerKeyWritten,
    /// The device took a SEND_WITH_INV, which kills a key of the peer (in `handle`).
    PeerKeyInvalidated,
    /// The MR's object was destroyed (mr_recycle of version O; mrs_zap).
    MrDestroyed,
    /// frwr_dereg: the device refused to destroy an object.
    MrDestroyFailed(CommandError),
    /// frwr_alloc: the device could not make an object. The record names the connection, never the object (S125, F10).
    MrAllocationFailed(CommandError),
    /// createmrs: this many objects exist now (in `length`).
    MrsCreated,
    /// nomrs_err: a request found too few MRs for its pieces (in `length`).
    NoMrs,
    /// A connection gets no write pad (S93).
    PadFailed(PadFailure),
    /// marshal_failed.
    MarshalFailed,
    /// post_send: a chain was posted (`length` work requests).
    PostSend,
    /// post_send_err, post_linv_err: a chain was refused (`length` of it accepted).
    PostSendRefused(PostError),
    /// post_recvs_err: receives were refused (`length` of them accepted).
    PostReceivesRefused(PostError),
    /// A connection began to end.
    Disconnect(DisconnectCause),
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

/// What an engine that is traced knows besides: which keys live, so that the end of each is told with what it opened, also
/// where its MR has another one by now (the early return, D2). Allocates: only who traces has it.
#[derive(Debug)]
pub(crate) struct Tracer {
    sender: lane::Sender<TraceRecord>,
    /// By descriptor, in the order of their registrations, the records that began their lives: one as a rule.
    live: Box<[Vec<TraceRecord>]>,
}

impl Tracer {
    pub(crate) fn new(sender: lane::Sender<TraceRecord>, descriptors: usize) -> Self {
        Self { sender, live: vec![Vec::new(); descriptors].into() }
    }

    /// The sending end.
    pub(crate) fn into_sender(self) -> lane::Sender<TraceRecord> {
        self.sender
    }

    /// Nobody takes records any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// False where there is no room for it.
    pub(crate) fn push(&mut self, record: TraceRecord) -> bool {
        self.sender.push(record).is_ok()
    }

    /// A key's life begins with this record.
    pub(crate) fn begin(&mut self, record: TraceRecord) {
        if let Some(live) = self.live.get_mut(record.mr as usize) {
            live.push(record);
        }
    }

    /// The living key of a descriptor with this number; without a number the one that was registered first.
    pub(crate) fn living(&self, descriptor: u32, key: Option<u32>) -> Option<TraceRecord> {
        let live = self.live.get(descriptor as usize)?;
        live.iter().find(|life| key.is_none_or(|key| life.handle == key)).copied()
    }

    /// The same, whose life ends.
    pub(crate) fn end(&mut self, descriptor: u32, key: Option<u32>) -> Option<TraceRecord> {
        let live = self.live.get_mut(descriptor as usize)?;
        let at = live.iter().position(|life| key.is_none_or(|key| life.handle == key))?;
        Some(live.remove(at))
    }

    /// Living keys of a descriptor.
    pub(crate) fn count(&self, descriptor: u32) -> usize {
        self.live.get(descriptor as usize).map_or(0, Vec::len)
    }

    /// One of them, by its place in their order.
    pub(crate) fn nth(&self, descriptor: u32, at: usize) -> Option<TraceRecord> {
        self.live.get(descriptor as usize)?.get(at).copied()
    }
}
