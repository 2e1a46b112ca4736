//! Trace points (1.L): what happened to which MR and which key, in a bounded ring that somebody else empties.

use crate::{
    counters::Counters,
    event::DisconnectCause,
    mr::{Grant, Mr, NO_SLOT},
    pad::PadFailure,
    provider::{Access, CommandError, Failure, MAX_COMPLETIONS_PER_POLL, PostError},
};
use arrayvec::ArrayVec;
use frwr_mempool::lane;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePoint {
    /// mr_map: segments were mapped to an MR whose registration no device took. Of others [`TracePoint::MrRegister`]
    /// says so as well: an MR is mapped in the iteration in which it is posted.
    MrMapped,
    /// An MR went back unused (S85).
    MrReset,
    /// mr_fastreg: the device took a registration. A key's life begins.
    MrRegister {
        /// And with it the message that tells the peer of the key, or the key is that of a pad, which is there to be
        /// told of from now on.
        told: bool,
    },
    /// The caller was handed the grant of a key that was registered without a message.
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

/// No MR or no request slot.
pub(crate) const NONE: u32 = u32::MAX;
const _: () = assert!(NONE == NO_SLOT, "a pad's owner is none");

/// A key, and what it opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) key: u32,
    pub(crate) owner: u32,
    pub(crate) length: u32,
    pub(crate) address: u64,
    pub(crate) access: Option<Access>,
}

impl Life {
    /// That of the latest key of an MR.
    #[inline(always)]
    pub(crate) const fn latest(mr: &Mr) -> Self {
        let (Grant { key, address, length }, access, owner) = mr.latest();
        Self { key, owner, length, address, access: Some(access) }
    }

    /// Of a key of which no more is known: a former one of ours, or one of the peer's, of which so many bytes are read
    /// or written.
    #[inline(always)]
    pub(crate) const fn of(key: u32, length: u32) -> Self {
        Self { key, owner: NONE, length, address: 0, access: None }
    }

    /// This happened to it.
    #[inline(always)]
    const fn record(self, time_ns: u64, point: TracePoint, connection: u16, mr: u32) -> TraceRecord {
        let Self { key: handle, owner, length, address: offset, access } = self;
        TraceRecord { time_ns, point, connection, mr, owner, handle, length, offset, access }
    }
}

/// What an engine has that is traced: where records go, and which keys are about to end.
#[derive(Debug)]
pub(crate) struct Tracer {
    sender: lane::Sender<TraceRecord>,
    pub(crate) keys: Keys,
    /// MRs whose keys the peer killed by the replies that are being taken. Their records are made together, behind the
    /// last one.
    killed: ArrayVec<u32, MAX_COMPLETIONS_PER_POLL>,
}

/// By descriptor, in the order of their registrations, keys whose end is under way, by invalidation or with their object: one
/// at most as a rule. It is told with what they opened, which their MR does not know any more where it has another key by
/// then (the early return, D2). Whether its latest key lives is what its state says. Allocates: only who traces has it.
#[derive(Debug)]
pub(crate) struct Keys(Box<[Vec<Life>]>);

/// Records of one time, which whoever takes records sees when this is dropped.
pub(crate) struct Recording<'a> {
    records: lane::Filling<'a, TraceRecord>,
    is_closed: bool,
    counters: &'a mut Counters,
    time_ns: u64,
}

impl Tracer {
    pub(crate) fn new(sender: lane::Sender<TraceRecord>, descriptors: usize) -> Self {
        Self { sender, keys: Keys(vec![Vec::new(); descriptors].into()), killed: ArrayVec::new() }
    }

    /// The sending end.
    pub(crate) fn into_sender(self) -> lane::Sender<TraceRecord> {
        self.sender
    }

    /// Nobody takes records any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Takes records of this time, and what is known of keys beside it. What finds no room is counted, where anybody
    /// misses it.
    #[inline(always)]
    pub(crate) fn at<'a>(&'a mut self, time_ns: u64, counters: &'a mut Counters) -> (Recording<'a>, &'a mut Keys) {
        let Self { sender, keys, .. } = self;
        (Recording::of(sender, time_ns, counters), keys)
    }

    /// Takes records of this time, and the MRs whose keys the peer killed, once.
    #[inline(always)]
    pub(crate) fn of_killed<'a>(
        &'a mut self,
        time_ns: u64,
        counters: &'a mut Counters,
    ) -> (Recording<'a>, impl Iterator<Item = u32>) {
        let Self { sender, killed, .. } = self;
        (Recording::of(sender, time_ns, counters), killed.drain(..))
    }

    /// The peer killed the latest key of this MR; [`Tracer::of_killed`] is to follow.
    #[inline(always)]
    pub(crate) fn killed(&mut self, descriptor: u32) {
        // A poll takes no more replies than there is room for.
        let _ = self.killed.try_push(descriptor);
    }
}

impl<'a> Recording<'a> {
    #[inline(always)]
    fn of(sender: &'a mut lane::Sender<TraceRecord>, time_ns: u64, counters: &'a mut Counters) -> Self {
        let is_closed = sender.is_closed();
        Self { records: sender.filling(), is_closed, counters, time_ns }
    }

    /// This happened to a key.
    #[inline(always)]
    pub(crate) fn put(&mut self, point: TracePoint, connection: u16, mr: u32, life: Life) {
        let time_ns = self.time_ns;
        self.push(|| life.record(time_ns, point, connection, mr));
    }

    /// This happened to the latest key of an MR, which is asked where there is room, so that nothing of it need be kept at hand.
    #[inline(always)]
    pub(crate) fn put_latest(&mut self, point: TracePoint, descriptor: u32, mr: &Mr) {
        let time_ns = self.time_ns;
        self.push(|| Life::latest(mr).record(time_ns, point, mr.connection(), descriptor));
    }

    /// A record of this time.
    #[inline(always)]
    pub(crate) fn push(&mut self, record: impl FnOnce() -> TraceRecord) {
        if !self.records.push_with(record) && !self.is_closed {
            self.counters.trace_record_dropped();
        }
    }
}

impl Keys {
    /// The end of the latest key of an MR is under way, or of a former one. Of the latest that may be known.
    pub(crate) fn dies(&mut self, descriptor: u32, life: Life) {
        if let Some(dying) = self.0.get_mut(descriptor as usize)
            && dying.last().is_none_or(|last| last.key != life.key)
        {
            dying.push(life);
        }
    }

    /// Those of an MR.
    pub(crate) fn of(&self, descriptor: u32) -> &[Life] {
        self.0.get(descriptor as usize).map_or(&[], Vec::as_slice)
    }

    /// The life of the first of them ends.
    pub(crate) fn end_first(&mut self, descriptor: u32) -> Option<Life> {
        let dying = self.0.get_mut(descriptor as usize).filter(|dying| !dying.is_empty())?;
        Some(dying.remove(0))
    }
}
