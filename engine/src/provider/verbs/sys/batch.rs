//! A chain as `ibv_post_send` wants it: a linked list of work requests in memory that is made once.

use super::{data::Data, memory_region::MemoryRegion, mkey::Mkey, place_of, queue_pair::QueuePair, window::Window};
use crate::provider::{Access, RegistrationFields, RemoteRange, ScatterElement, WorkRequest};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::{NonNull, null_mut},
};
use ibverbs_sys::{ibv_access_flags, ibv_mw, ibv_mw_bind_info, ibv_send_flags, ibv_send_wr, ibv_wr_opcode};
use std::io;

/// Takes the work requests of a chain one by one, in order.
///
/// The elements of an operation are those of its range, in the chain's table; of a SEND or an RDMA WRITE it was looked at whether they
/// go inline.
pub(in super::super) trait Sink<'a> {
    /// SEND, or SEND_WITH_INV.
    fn send(&mut self, request: &WorkRequest, data: Data<'a>, invalidate: Option<u32>);
    /// RDMA READ.
    fn read(&mut self, request: &WorkRequest, local: &'a [ScatterElement], remote: RemoteRange);
    /// RDMA WRITE.
    fn write(&mut self, request: &WorkRequest, data: Data<'a>, remote: RemoteRange);
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
const _: () = assert!(EMPTY.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE, "an empty entry is one of a kind");

/// Memory for the longest list that is posted at once. Owned by a port; nothing in it is read between two posts.
///
/// Entries are linked once, and windows found by their entry's place, by pointers to all of them: a reference to one of them is made
/// from these, and takes nothing of what they may do away.
pub(in super::super) struct SendMemory {
    /// Each is followed by the next one, the last by none.
    requests: NonNull<ibv_send_wr>,
    /// As many.
    windows: NonNull<ibv_mw>,
    entries: usize,
}

// SAFETY: the pointers in it are only followed while a `Batch` lives, whose lifetime covers what they point to.
unsafe impl Send for SendMemory {}

impl SendMemory {
    /// Memory for lists of `entries` work requests.
    pub(in super::super) fn new(entries: usize) -> Self {
        let window = ibv_mw { context: null_mut(), pd: null_mut(), rkey: 0, handle: 0, type_: 0 };
        let memory = Self { requests: leak(vec![EMPTY; entries]), windows: leak(vec![window; entries]), entries };
        for at in 1..entries {
            // SAFETY: both places are inside.
            unsafe { (*memory.requests.add(at - 1).as_ptr()).next = memory.requests.add(at).as_ptr() };
        }
        memory
    }

    /// Work requests that one list can hold.
    pub(in super::super) fn entries(&self) -> usize {
        self.entries
    }

    /// Begins a list.
    pub(in super::super) fn batch<'a>(&'a mut self) -> Batch<'a> {
        Batch { memory: self, length: 0, unsayable: false, chain: PhantomData }
    }
}

impl Drop for SendMemory {
    fn drop(&mut self) {
        let Self { requests, windows, entries } = *self;
        // SAFETY: both were leaked by `new`, with so many entries, and no batch of them lives.
        unsafe {
            drop(Box::from_raw(NonNull::slice_from_raw_parts(requests, entries).as_ptr()));
            drop(Box::from_raw(NonNull::slice_from_raw_parts(windows, entries).as_ptr()));
        }
    }
}

/// A pointer to the first of them, and to all others.
fn leak<T>(all: Vec<T>) -> NonNull<T> {
    NonNull::from(Box::leak(all.into_boxed_slice())).cast()
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
        let Some(last) = self.length.checked_sub(1) else { return Ok(()) };
        let start = self.memory.requests.as_ptr();
        // SAFETY: `next` counts the entries that there are, so that the last one is inside. The list is linked up to it; elements,
        // regions and what goes inline live as long as the batch, shadows of windows in its memory.
        let posted = unsafe {
            let last = start.add(last);
            let behind = core::mem::replace(&mut (*last).next, null_mut());
            let posted = queue_pair.post_send(start);
            (*last).next = behind;
            posted
        };
        posted.map_err(|(refused, error)| (place_of(start, refused, self.length), error))
    }

    /// The next entry, empty but for what every work request has, and what others of its kind said in it.
    #[inline]
    fn next(&mut self, request: &WorkRequest, opcode: ibv_wr_opcode::Type) -> Option<&mut ibv_send_wr> {
        if self.length >= self.memory.entries {
            return None;
        }
        // SAFETY: inside, as was just seen; the batch has the memory for itself.
        let entry = unsafe { self.memory.requests.add(self.length).as_mut() };
        self.length += 1;
        // Everything else must be zero: rxe refuses leftovers in a bind. Work requests of a kind all say the same
        // things, and an empty one is an RDMA WRITE.
        if entry.opcode != opcode {
            *entry = ibv_send_wr { next: entry.next, ..EMPTY };
        }
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

/// Inline data stand in a list as well, which is read while it is posted.
fn set_data(entry: &mut ibv_send_wr, data: Data<'_>) {
    entry.send_flags |= data.flag();
    set_list(entry, data.elements());
}

impl<'a> Sink<'a> for Batch<'a> {
    fn send(&mut self, request: &WorkRequest, data: Data<'a>, invalidate: Option<u32>) {
        let opcode = match invalidate {
            Some(_) => ibv_wr_opcode::IBV_WR_SEND_WITH_INV,
            None => ibv_wr_opcode::IBV_WR_SEND,
        };
        let Some(entry) = self.next(request, opcode) else { return };
        set_data(entry, data);
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

    fn write(&mut self, request: &WorkRequest, data: Data<'a>, remote: RemoteRange) {
        let Some(entry) = self.next(request, ibv_wr_opcode::IBV_WR_RDMA_WRITE) else { return };
        set_data(entry, data);
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
        let (windows, at) = (self.memory.windows, self.length);
        let Some(entry) = self.next(request, ibv_wr_opcode::IBV_WR_BIND_MW) else { return };
        // SAFETY: inside: there are as many as entries, and there was one. The batch has the memory for itself.
        let shadow = unsafe { windows.add(at) };
        // A copy for each step: the library reads the key that is current when this one executes.
        // SAFETY: as above.
        unsafe { shadow.write(window.with_key(fields.old_key)) };
        entry.__bindgen_anon_2.bind_mw = ibverbs_sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw: shadow.as_ptr(),
            rkey: fields.key,
            bind_info: bind_info(fields, region),
        };
    }

    fn list(&mut self, _: &WorkRequest, _: &RegistrationFields, _: &'a Mkey, _: &'a [ScatterElement]) {
        self.unsayable = true;
    }
}
