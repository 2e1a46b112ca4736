//! A chain as `ibv_post_send` wants it: a linked list of work requests in memory that is made once.

use super::{
    mkey::Mkey,
    objects::{MemoryRegion, Window},
    queue_pair::{QueuePair, place_of},
};
use crate::provider::{Access, RegistrationFields, RemoteRange, ScatterElement, WorkRequest};
use core::{marker::PhantomData, mem::MaybeUninit, ptr::null_mut};
use ibverbs_sys::{ibv_access_flags, ibv_mw, ibv_mw_bind_info, ibv_send_flags, ibv_send_wr, ibv_wr_opcode};
use std::io;

/// Takes the work requests of a chain one by one, in order.
///
/// The elements of an operation are those of its range, in the chain's table.
pub(in super::super) trait Sink<'a> {
    /// SEND, or SEND_WITH_INV.
    fn send(&mut self, request: &WorkRequest, local: &'a [ScatterElement], invalidate: Option<u32>);
    /// RDMA READ.
    fn read(&mut self, request: &WorkRequest, local: &'a [ScatterElement], remote: RemoteRange);
    /// RDMA WRITE.
    fn write(&mut self, request: &WorkRequest, local: &'a [ScatterElement], remote: RemoteRange);
    /// LOCAL_INV.
    fn invalidate(&mut self, request: &WorkRequest, key: u32);
    /// BIND_MW of a range that begins at `fields.iova`.
    fn bind(
        &mut self,
        request: &WorkRequest,
        fields: &RegistrationFields,
        window: &'a Window,
        region: &'a MemoryRegion,
    );
    /// A UMR of a list, in order, whose first byte the peer finds at address 0.
    fn list(
        &mut self,
        request: &WorkRequest,
        fields: &RegistrationFields,
        mkey: &'a Mkey,
        elements: &'a [ScatterElement],
    );
}

/// `send_flags` of a work request.
pub(super) fn flags(request: &WorkRequest) -> u32 {
    let signalled = if request.signalled { ibv_send_flags::IBV_SEND_SIGNALED.0 } else { 0 };
    let fence = if request.fence { ibv_send_flags::IBV_SEND_FENCE.0 } else { 0 };
    signalled | fence
}

/// The remote rights of a registration.
pub(super) fn remote_rights(access: Access) -> u32 {
    let mut rights = 0;
    if access.permits_read() {
        rights |= ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    }
    if access.permits_write() {
        rights |= ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    }
    rights
}

/// What a bind work request says of memory and rights.
pub(super) fn bind_info(fields: &RegistrationFields, region: &MemoryRegion) -> ibv_mw_bind_info {
    let mw_access_flags = remote_rights(fields.access);
    ibv_mw_bind_info { mr: region.raw(), addr: fields.iova, length: fields.length.into(), mw_access_flags }
}

/// A work request that says nothing.
// SAFETY: zeroes are a value of this plain structure of integers, pointers and unions of them.
const EMPTY: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };

/// Memory for the longest list that is posted at once. Owned by a port; nothing in it is read between two posts.
pub(in super::super) struct SendMemory {
    requests: Box<[ibv_send_wr]>,
    windows: Box<[ibv_mw]>,
}

// SAFETY: the pointers in it are only followed while a `Batch` lives, whose lifetime covers what they point to.
unsafe impl Send for SendMemory {}

impl SendMemory {
    /// Memory for lists of `entries` work requests.
    pub(in super::super) fn new(entries: usize) -> Self {
        let window = ibv_mw { context: null_mut(), pd: null_mut(), rkey: 0, handle: 0, type_: 0 };
        Self { requests: vec![EMPTY; entries].into_boxed_slice(), windows: vec![window; entries].into_boxed_slice() }
    }

    /// Work requests that one list can hold.
    pub(in super::super) fn entries(&self) -> usize {
        self.requests.len()
    }

    /// Begins a list.
    pub(in super::super) fn batch<'a>(&'a mut self) -> Batch<'a> {
        Batch { memory: self, length: 0, unsayable: false, chain: PhantomData }
    }
}

/// A list in the making. What is pushed beyond the memory's entries is not posted: callers cut their chains.
pub(in super::super) struct Batch<'a> {
    memory: &'a mut SendMemory,
    length: usize,
    /// Something was pushed that `ibv_post_send` has no work request for.
    unsayable: bool,
    /// What the list points to.
    chain: PhantomData<&'a ScatterElement>,
}

impl Batch<'_> {
    /// Posts the list; an error says how many work requests were taken in front of the one that was refused.
    pub(in super::super) fn post(self, queue_pair: &QueuePair) -> Result<(), (usize, io::Error)> {
        if self.unsayable {
            return Err((0, io::ErrorKind::Unsupported.into()));
        }
        let Some(list) = self.memory.requests.get_mut(..self.length).filter(|list| !list.is_empty()) else {
            return Ok(());
        };
        let start = list.as_mut_ptr();
        // Pointers to the shadows are made here and not while the list grows: each later access to the table would take
        // the earlier ones' rights away.
        let shadows = self.memory.windows.as_mut_ptr();
        for at in 0..self.length {
            let more = at + 1 < self.length;
            // SAFETY: all places are inside: there are as many shadows as entries. `bind_mw` is written where the entry is a
            // bind, whose member of the union it is.
            unsafe {
                let entry = start.add(at);
                (*entry).next = if more { start.add(at + 1) } else { null_mut() };
                if (*entry).opcode == ibv_wr_opcode::IBV_WR_BIND_MW {
                    (*entry).__bindgen_anon_2.bind_mw.mw = shadows.add(at);
                }
            }
        }
        // SAFETY: the list is linked; elements and regions live as long as the batch, shadows of windows in its memory.
        let posted = unsafe { queue_pair.post_send(start) };
        posted.map_err(|(refused, error)| (place_of(start, refused, self.length), error))
    }

    /// The next entry, empty but for what every work request has.
    fn next(&mut self, request: &WorkRequest, opcode: ibv_wr_opcode::Type) -> Option<&mut ibv_send_wr> {
        let entry = self.memory.requests.get_mut(self.length)?;
        self.length += 1;
        // Everything else must be zero: rxe refuses leftovers in a bind (verbs.md, section 3). In its place: what is made elsewhere is
        // copied, in other pieces than it was made in.
        *entry = EMPTY;
        (entry.wr_id, entry.opcode, entry.send_flags) = (request.token.0, opcode, flags(request));
        Some(entry)
    }
}

/// Elements are `ibv_sge`s, and only read.
fn set_list(entry: &mut ibv_send_wr, local: &[ScatterElement]) {
    entry.sg_list = local.as_ptr().cast_mut().cast();
    // No queue pair takes anywhere near as many.
    entry.num_sge = i32::try_from(local.len()).unwrap_or(i32::MAX);
}

impl<'a> Sink<'a> for Batch<'a> {
    fn send(&mut self, request: &WorkRequest, local: &'a [ScatterElement], invalidate: Option<u32>) {
        let opcode = match invalidate {
            Some(_) => ibv_wr_opcode::IBV_WR_SEND_WITH_INV,
            None => ibv_wr_opcode::IBV_WR_SEND,
        };
        let Some(entry) = self.next(request, opcode) else { return };
        set_list(entry, local);
        if let Some(key) = invalidate {
            entry.__bindgen_anon_1.invalidate_rkey = key;
        }
    }

    fn read(&mut self, request: &WorkRequest, local: &'a [ScatterElement], remote: RemoteRange) {
        let Some(entry) = self.next(request, ibv_wr_opcode::IBV_WR_RDMA_READ) else { return };
        set_list(entry, local);
        entry.wr.rdma.remote_addr = remote.address;
        entry.wr.rdma.rkey = remote.key;
    }

    fn write(&mut self, request: &WorkRequest, local: &'a [ScatterElement], remote: RemoteRange) {
        let Some(entry) = self.next(request, ibv_wr_opcode::IBV_WR_RDMA_WRITE) else { return };
        set_list(entry, local);
        entry.wr.rdma.remote_addr = remote.address;
        entry.wr.rdma.rkey = remote.key;
    }

    fn invalidate(&mut self, request: &WorkRequest, key: u32) {
        let Some(entry) = self.next(request, ibv_wr_opcode::IBV_WR_LOCAL_INV) else { return };
        entry.__bindgen_anon_1.invalidate_rkey = key;
    }

    fn bind(
        &mut self,
        request: &WorkRequest,
        fields: &RegistrationFields,
        window: &'a Window,
        region: &'a MemoryRegion,
    ) {
        let at = self.length;
        let Some(shadow) = self.memory.windows.get_mut(at) else { return };
        // A copy for each step: the library reads the key that is current when this one executes.
        *shadow = window.with_key(fields.old_key);
        let Some(entry) = self.next(request, ibv_wr_opcode::IBV_WR_BIND_MW) else { return };
        entry.__bindgen_anon_2.bind_mw = ibverbs_sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            // Set when the list is posted.
            mw: null_mut(),
            rkey: fields.key,
            bind_info: bind_info(fields, region),
        };
    }

    fn list(&mut self, _: &WorkRequest, _: &RegistrationFields, _: &'a Mkey, _: &'a [ScatterElement]) {
        self.unsayable = true;
    }
}
