//! Work requests as libibverbs' two interfaces bring them, before the device sees them.

use frwr_engine::provider::{Access, RemoteRange, ScatterElement};
use ibverbs_sys::{ibv_access_flags, ibv_mr, ibv_mw_bind_info, ibv_send_flags, ibv_sge, ibv_wc_opcode};

/// What a work request does.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Send { invalidate: Option<u32> },
    Read(RemoteRange),
    Write(RemoteRange),
    Invalidate { key: u32 },
    Bind(Bind),
    List(List),
}

/// The fields of a UMR, copied when it is built.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// Address of the key's structure.
    pub(crate) mkey: usize,
    /// What stood in it.
    pub(crate) key: u32,
    pub(crate) access: u32,
}

/// The fields of a bind, copied when it is posted.
#[derive(Clone, Debug)]
pub(crate) struct Bind {
    /// Number of the window: programs post copies of its structure.
    pub(crate) window: u32,
    /// The key in the structure, which the device takes for the current one.
    pub(crate) old_key: u32,
    pub(crate) key: u32,
    /// Address of the region's structure.
    pub(crate) region: usize,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
}

impl Bind {
    pub(crate) fn new(window: &ibverbs_sys::ibv_mw, key: u32, info: &ibv_mw_bind_info) -> Self {
        Self {
            window: window.handle,
            old_key: window.rkey,
            key,
            region: address_of(info.mr),
            address: info.addr,
            length: info.length,
            access: info.mw_access_flags,
        }
    }
}

impl Bind {
    /// What libraries that note it write: the index of the current key, and the low byte of the new one.
    pub(crate) fn new_key(&self) -> u32 {
        (self.old_key & !0xff) | (self.key & 0xff)
    }
}

fn address_of(region: *mut ibv_mr) -> usize {
    region.addr()
}

/// A work request.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) wr_id: u64,
    pub(crate) flags: u32,
    pub(crate) verb: Verb,
    pub(crate) elements: Vec<ScatterElement>,
}

impl Work {
    pub(crate) fn has(&self, flag: ibv_send_flags) -> bool {
        self.flags & flag.0 != 0
    }

    /// `opcode` of its completion.
    pub(crate) fn opcode(&self) -> u32 {
        match self.verb {
            Verb::Send { .. } => ibv_wc_opcode::IBV_WC_SEND,
            Verb::Read(_) => ibv_wc_opcode::IBV_WC_RDMA_READ,
            Verb::Write(_) => ibv_wc_opcode::IBV_WC_RDMA_WRITE,
            Verb::Invalidate { .. } => ibv_wc_opcode::IBV_WC_LOCAL_INV,
            Verb::Bind(_) => ibv_wc_opcode::IBV_WC_BIND_MW,
            // MLX5DV_WC_UMR.
            Verb::List(_) => ibv_wc_opcode::IBV_WC_DRIVER1,
        }
    }

    /// Whether it carries a list of elements of its own.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self.verb, Verb::Send { .. } | Verb::Read(_) | Verb::Write(_))
    }
}

/// The remote right of access flags; `None` where the engine would never ask for that.
pub(crate) fn remote_right(flags: u32) -> Option<Access> {
    let reads = flags & ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 != 0;
    let writes = flags & ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 != 0;
    match (reads, writes) {
        (true, false) => Some(Access::RemoteRead),
        (false, true) => Some(Access::RemoteWrite),
        (true, true) => Some(Access::RemoteReadWrite),
        (false, false) => None,
    }
}

/// A list of elements, copied.
///
/// # Safety
/// `count` elements lie at `first`.
pub(crate) unsafe fn elements_at(first: *const ibv_sge, count: usize) -> Vec<ScatterElement> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let list = unsafe { core::slice::from_raw_parts(first, count) };
    list.iter().map(|sge| ScatterElement { address: sge.addr, length: sge.length, lkey: sge.lkey }).collect()
}
