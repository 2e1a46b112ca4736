//! Reliable connected queue pairs.

use super::{
    builder_functions::{Functions, Lists},
    check,
    completion_queue::CompletionQueue,
    mlx5_abi::{
        DISABLE_SCATTER_TO_COMPLETION, MASK_CREATE_FLAGS, MASK_SEND_OPERATIONS, QueuePairAttributes, WITH_LIST,
    },
    protection_domain::ProtectionDomain,
    receive_list::ReceiveList,
    shared_receive_queue::SharedReceiveQueue,
    thread_domain::QueuePairDomain,
    verbs_abi,
};
use crate::provider::{QueuePairId, QueueSizes, ReceiveRequest, ScatterElement};
use core::ptr::{NonNull, null_mut};
use ibverbs_sys::{
    IBV_QP_EX_WITH_BIND_MW, IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    ibv_access_flags, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
};
use std::{io, sync::Arc};

/// What every work request builder is asked to be able to do.
const BUILDER_OPERATIONS: u64 = (IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_LOCAL_INV) as u64;

/// Bytes of one entry of a list that is inline in its work request, and what of the first entry is no inline data: a queue
/// pair with N bytes of inline data takes (N + 4) / 16 entries.
const ENTRY_BYTES: u32 = 16;
const FIRST_ENTRY_BYTES: u32 = 4;

/// What a queue pair allows its peer; windows and nothing else have these rights.
pub(in super::super) const PEER_ACCESS: u32 =
    ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;

/// How work requests get into a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Posting {
    /// As lists of work requests: `ibv_post_send`.
    PostSend,
    /// In place: `ibv_wr_*`.
    Builder,
    /// In place, and UMRs of lists with this many entries besides: `mlx5dv_wr_mr_list`.
    Lists { entries: u16 },
}

/// How work requests get into a queue pair, and what of their data is copied into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct SendInterface {
    pub(in super::super) posting: Posting,
    /// Bytes of a SEND or an RDMA WRITE that go inline, if the device has so much room; 0 for none.
    pub(in super::super) inline_bytes: u32,
}

/// Receives that one call of ibv_post_recv(3) gets: they are put together on the stack.
const RECEIVES_PER_CALL: usize = 32;

/// A scatter element is an `ibv_sge`, so that lists are handed over as they are.
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<ScatterElement>() == size_of::<ibv_sge>());
    assert!(align_of::<ScatterElement>() >= align_of::<ibv_sge>());
    assert!(offset_of!(ScatterElement, address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(ScatterElement, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(ScatterElement, lkey) == offset_of!(ibv_sge, lkey));
};

/// A queue pair. Posting and modifying may happen on different threads: modifying takes none of the locks that a thread domain leaves out.
/// Destroying comes when nobody can post any more.
pub(in super::super) struct QueuePair {
    raw: NonNull<ibv_qp>,
    created: bool,
    number: u32,
    sizes: QueueSizes,
    /// Where work requests are built by `ibv_wr_*`.
    builder: Option<NonNull<ibv_qp_ex>>,
    lists: Option<Lists>,
    max_entries: u32,
    inline_bytes: u32,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    post_recv: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
    /// Boxed since a queue pair that the device keeps comes back inside of an error.
    domain: Box<QueuePairDomain>,
    _queues: [Arc<CompletionQueue>; 2],
    /// Where it takes its receives from, if not from a queue of its own.
    shared: Option<Arc<SharedReceiveQueue>>,
}

// SAFETY: libibverbs' functions lock the queue pair, or it is in the thread domain of a port, which is the only one that posts to it and
// is used by one thread at a time; the members that are read here never change.
unsafe impl Send for QueuePair {}
// SAFETY: as above. `ibv_wr_start` takes the send queue's lock until `ibv_wr_complete`; only the builder calls them.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair in the RESET state.
    pub(in super::super) fn new(
        domain: QueuePairDomain,
        send_queue: &Arc<CompletionQueue>,
        receive_queue: &Arc<CompletionQueue>,
        sizes: QueueSizes,
        shared: Option<Arc<SharedReceiveQueue>>,
        SendInterface { posting, inline_bytes }: SendInterface,
    ) -> io::Result<Self> {
        let context = Arc::clone(domain.context());
        let operations = context.operations();
        let post_send = operations.post_send.ok_or(io::ErrorKind::Unsupported)?;
        let post_recv = match shared {
            None => operations.post_recv.ok_or(io::ErrorKind::Unsupported)?,
            Some(_) => refuse_receive,
        };
        let mut cap = ibv_qp_cap {
            max_send_wr: sizes.send,
            // Of a queue of its own (ibv_create_qp(3)).
            max_recv_wr: if shared.is_some() { 0 } else { sizes.receive },
            max_send_sge: sizes.max_send_sge,
            max_recv_sge: u32::from(shared.is_none()),
            max_inline_data: 0,
        };
        let queues = [Arc::clone(send_queue), Arc::clone(receive_queue)];
        let source = shared.as_ref().map_or_else(null_mut, |shared| shared.raw.as_ptr());
        let make = match posting {
            Posting::PostSend => create,
            Posting::Builder => create_for_builder,
            Posting::Lists { .. } => create_for_lists,
        };
        let for_lists = match posting {
            Posting::Lists { entries } => u32::from(entries) * ENTRY_BYTES - FIRST_ENTRY_BYTES,
            Posting::PostSend | Posting::Builder => 0,
        };
        let mut try_with = |inline_bytes: u32| {
            let mut tried = ibv_qp_cap { max_inline_data: for_lists.max(inline_bytes), ..cap };
            let raw = make(&domain, &queues, source, &mut tried)?;
            let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
            cap = tried;
            Ok::<_, io::Error>((raw, inline_bytes.min(tried.max_inline_data)))
        };
        // Room for inline data makes entries larger, of which fewer fit a send queue; and some devices have none.
        let made = try_with(inline_bytes).or_else(|error| if inline_bytes > 0 { try_with(0) } else { Err(error) });
        let (raw, inline_bytes) = made?;
        // SAFETY: just made; its number does not change.
        let number = unsafe { raw.as_ref() }.qp_num;
        // SAFETY: the queue pair is alive; the result is null where its library has no builder for it.
        let extended = unsafe { (context.library.verbs.ibv_qp_to_qp_ex)(raw.as_ptr()) };
        let lists = match (posting, context.library.mlx5(), NonNull::new(extended)) {
            // SAFETY: the same queue pair, which is alive as long as the value.
            (Posting::Lists { .. }, Some(mlx5), Some(extended)) => unsafe {
                Lists::of((mlx5.mlx5dv_qp_ex_from_ibv_qp_ex)(extended.as_ptr()))
            },
            _ => None,
        };
        Ok(Self {
            raw,
            created: true,
            number,
            sizes: QueueSizes { send: cap.max_send_wr, receive: cap.max_recv_wr, max_send_sge: cap.max_send_sge },
            builder: NonNull::new(extended).filter(|extended| {
                // SAFETY: the same queue pair, which is alive.
                let functions = unsafe { Functions::of(extended.as_ptr()) };
                functions.is_some_and(|functions| match posting {
                    Posting::PostSend => false,
                    Posting::Builder => functions.binds(),
                    Posting::Lists { .. } => lists.is_some(),
                })
            }),
            lists,
            inline_bytes,
            max_entries: (cap.max_inline_data + FIRST_ENTRY_BYTES) / ENTRY_BYTES,
            post_send,
            post_recv,
            domain: Box::new(domain),
            _queues: queues,
            shared,
        })
    }

    pub(in super::super) fn id(&self) -> QueuePairId {
        QueuePairId(self.number)
    }

    /// Its protection domain.
    pub(in super::super) fn domain(&self) -> &Arc<ProtectionDomain> {
        self.domain.protection()
    }

    /// Whether it receives from a shared queue.
    pub(in super::super) fn shares_receives(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether it receives from this shared queue.
    pub(in super::super) fn receives_from(&self, queue: &Arc<SharedReceiveQueue>) -> bool {
        self.shared.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, queue))
    }

    /// What was granted.
    pub(in super::super) fn sizes(&self) -> QueueSizes {
        self.sizes
    }

    /// Where its work requests are built by `ibv_wr_*`.
    pub(super) fn builder(&self) -> Option<NonNull<ibv_qp_ex>> {
        self.builder
    }

    /// How UMRs of lists are built.
    pub(super) fn lists(&self) -> Option<Lists> {
        self.lists
    }

    /// Entries of the longest list that fits one of its work requests; 0 where it was not made for lists.
    pub(in super::super) fn max_entries(&self) -> u32 {
        if self.lists.is_some() { self.max_entries } else { 0 }
    }

    /// Bytes of a SEND or an RDMA WRITE that go inline: what was asked for, as far as it has room.
    pub(in super::super) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Whether its work requests are built by `ibv_wr_*`.
    pub(in super::super) fn has_builder(&self) -> bool {
        self.builder.is_some()
    }

    /// ibv_modify_qp(3).
    pub(in super::super) fn modify(&self, attributes: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) -> io::Result<()> {
        let verbs = &self.domain.context().library.verbs;
        // SAFETY: the queue pair is alive, and the attributes are a plain structure without pointers.
        check(unsafe { (verbs.ibv_modify_qp)(self.raw.as_ptr(), attributes, mask.0 as i32) })
    }

    /// From RESET to INIT: takes receives, sends nothing.
    pub(in super::super) fn initialise(&self, port: u8) -> io::Result<()> {
        let mut attributes = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_INIT,
            port_num: port,
            qp_access_flags: PEER_ACCESS,
            ..ibv_qp_attr::default()
        };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ibv_qp_attr_mask::IBV_QP_PORT
            | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attributes, mask)
    }

    /// Posts a list; an error says which entry was refused first, `None` where the device does not tell.
    ///
    /// # Safety
    /// `first` is the first of a list of work requests, linked by `next`, whose lists, windows and regions are alive.
    pub(super) unsafe fn post_send(&self, first: *mut ibv_send_wr) -> Result<(), (*mut ibv_send_wr, io::Error)> {
        let mut refused = null_mut();
        // SAFETY: the caller's promise; what the list points to is copied before the call returns.
        let code = unsafe { (self.post_send)(self.raw.as_ptr(), first, &raw mut refused) };
        check(code).map_err(|error| (refused, error))
    }

    /// Posts receives; an error says how many were taken in front of the one that was refused.
    pub(in super::super) fn post_receives(&self, receives: &[ReceiveRequest]) -> Result<(), (usize, io::Error)> {
        let mut list = ReceiveList::<RECEIVES_PER_CALL>::new();
        list.post(receives, |first, refused| {
            // SAFETY: the list and its elements live through the call, which copies them; the queue pair is alive.
            check(unsafe { (self.post_recv)(self.raw.as_ptr(), first, refused) })
        })
    }

    /// Destroys it, or hands it back.
    pub(in super::super) fn destroy(mut self) -> Result<(), (Self, io::Error)> {
        match self.end() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        // SAFETY: made, and not yet destroyed. Waits for events of it to be acknowledged, which happens when they are read.
        check(unsafe { (self.domain.context().library.verbs.ibv_destroy_qp)(self.raw.as_ptr()) })?;
        self.created = false;
        Ok(())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.created {
            // One that the device keeps goes with the process.
            let _ = self.end();
        }
    }
}

/// What stands in for ibv_post_recv(3) where a queue pair has no receive queue of its own: not all libraries look.
unsafe extern "C" fn refuse_receive(_: *mut ibv_qp, first: *mut ibv_recv_wr, refused: *mut *mut ibv_recv_wr) -> i32 {
    // SAFETY: as for ibv_post_recv(3), there is a place for the refused entry.
    unsafe { *refused = first };
    libc::EINVAL
}

fn create(
    domain: &QueuePairDomain,
    [send, receive]: &[Arc<CompletionQueue>; 2],
    shared: *mut ibv_srq,
    cap: &mut ibv_qp_cap,
) -> io::Result<*mut ibv_qp> {
    let mut wanted = ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: send.raw.as_ptr(),
        recv_cq: receive.raw.as_ptr(),
        srq: shared,
        cap: *cap,
        qp_type: ibv_qp_type::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: domain and queues are alive and of one context; the shared queue is null or such a one.
    let raw = unsafe { (domain.context().library.verbs.ibv_create_qp)(domain.raw(), &raw mut wanted) };
    *cap = wanted.cap;
    Ok(raw)
}

/// What a queue pair for a builder of `operations` is asked for.
fn extended_attributes(
    domain: &QueuePairDomain,
    [send, receive]: &[Arc<CompletionQueue>; 2],
    shared: *mut ibv_srq,
    cap: ibv_qp_cap,
    operations: u64,
) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        send_cq: send.raw.as_ptr(),
        recv_cq: receive.raw.as_ptr(),
        srq: shared,
        cap,
        qp_type: ibv_qp_type::IBV_QPT_RC,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: domain.raw(),
        send_ops_flags: operations,
        ..ibv_qp_init_attr_ex::default()
    }
}

/// UMRs beside the usual, and no payload in completions, which is wrong for keys whose addresses begin at 0
/// (mlx5dv_create_mkey(3)).
fn create_for_lists(
    domain: &QueuePairDomain,
    queues: &[Arc<CompletionQueue>; 2],
    shared: *mut ibv_srq,
    cap: &mut ibv_qp_cap,
) -> io::Result<*mut ibv_qp> {
    let mlx5 = domain.context().library.mlx5().ok_or(io::ErrorKind::Unsupported)?;
    let mut wanted = extended_attributes(domain, queues, shared, *cap, BUILDER_OPERATIONS);
    let mut more = QueuePairAttributes {
        comp_mask: MASK_CREATE_FLAGS | MASK_SEND_OPERATIONS,
        create_flags: DISABLE_SCATTER_TO_COMPLETION,
        send_ops_flags: WITH_LIST,
        ..QueuePairAttributes::default()
    };
    let context = domain.context().raw.as_ptr();
    // SAFETY: domain and queues are alive and of this context; members outside of the masks are zero.
    let raw = unsafe { (mlx5.mlx5dv_create_qp)(context, &raw mut wanted, &raw mut more) };
    *cap = wanted.cap;
    Ok(raw)
}

fn create_for_builder(
    domain: &QueuePairDomain,
    queues: &[Arc<CompletionQueue>; 2],
    shared: *mut ibv_srq,
    cap: &mut ibv_qp_cap,
) -> io::Result<*mut ibv_qp> {
    let context = domain.context().raw.as_ptr();
    // SAFETY: the context is open.
    let create = unsafe { verbs_abi::create_qp_ex(context) }.ok_or(io::ErrorKind::Unsupported)?;
    let operations = BUILDER_OPERATIONS | u64::from(IBV_QP_EX_WITH_BIND_MW);
    let mut wanted = extended_attributes(domain, queues, shared, *cap, operations);
    // SAFETY: domain and queues are alive and of this context; members outside of comp_mask are zero.
    let raw = unsafe { create(context, &raw mut wanted) };
    *cap = wanted.cap;
    Ok(raw)
}
