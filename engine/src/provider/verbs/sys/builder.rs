//! A chain built in place by `ibv_wr_*`: all or nothing.

use super::{
    batch::{Sink, bind_info, flags, remote_rights},
    builder_functions::{Functions, Lists},
    check,
    data::Data,
    memory_region::MemoryRegion,
    mkey::Mkey,
    queue_pair::QueuePair,
    window::Window,
};
use crate::provider::{RegistrationFields, RemoteRange, ScatterElement, WorkRequest};
use core::marker::PhantomData;
use ibverbs_sys::{ibv_access_flags, ibv_qp_ex, ibv_send_flags};
use std::io;

/// A post under way: holds the send queue's lock until it is completed or dropped, which drops the whole batch.
pub(in super::super) struct Builder<'a> {
    raw: *mut ibv_qp_ex,
    functions: Functions,
    lists: Option<Lists>,
    open: bool,
    /// Something was asked for that the queue pair was not made for.
    unsayable: bool,
    /// Alive until the post ends.
    queue_pair: PhantomData<&'a QueuePair>,
}

impl<'a> Builder<'a> {
    /// Begins a post; `None` where the queue pair was not made for it.
    pub(in super::super) fn begin(queue_pair: &'a QueuePair) -> Option<Self> {
        let raw = queue_pair.builder()?.as_ptr();
        // SAFETY: the queue pair is alive for as long as the builder.
        let functions = unsafe { Functions::of(raw) }?;
        // SAFETY: as above; `complete` or `drop` ends what this begins.
        unsafe { (functions.start)(raw) };
        let lists = queue_pair.lists();
        Some(Self { raw, functions, lists, open: true, unsayable: false, queue_pair: PhantomData })
    }

    /// Posts everything; an error says that nothing was posted.
    pub(in super::super) fn complete(mut self) -> io::Result<()> {
        if self.unsayable {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.open = false;
        // SAFETY: begun, and ended here.
        check(unsafe { (self.functions.complete)(self.raw) })
    }

    fn prepare(&mut self, request: &WorkRequest) {
        // SAFETY: the builder is ours between start and complete: the queue's lock is held.
        unsafe {
            (*self.raw).wr_id = request.token.0;
            (*self.raw).wr_flags = flags(request);
        }
    }

    /// [`Builder::prepare`] of a work request with data. librxe asks for the flag of what is inline, others do not.
    fn prepare_data(&mut self, request: &WorkRequest, data: Data<'_>) {
        // SAFETY: as in `prepare`.
        unsafe {
            (*self.raw).wr_id = request.token.0;
            (*self.raw).wr_flags = flags(request) | data.flag();
        }
    }

    fn set_data(&mut self, data: Data<'_>) {
        match data.inline() {
            // SAFETY: begun; the bytes may be read, and are copied at once.
            Some((address, length)) => unsafe { (self.functions.set_inline)(self.raw, address, length) },
            None => self.set_list(data.elements()),
        }
    }

    fn set_list(&mut self, local: &[ScatterElement]) {
        // SAFETY: elements are `ibv_sge`s, see `queue_pair`; they are copied at once.
        unsafe { (self.functions.set_list)(self.raw, local.len(), local.as_ptr().cast()) };
    }
}

impl Drop for Builder<'_> {
    fn drop(&mut self) {
        if self.open {
            // SAFETY: begun, and ended here.
            unsafe { (self.functions.abort)(self.raw) };
        }
    }
}

impl<'a> Sink<'a> for Builder<'a> {
    fn send(&mut self, request: &WorkRequest, data: Data<'a>, invalidate: Option<u32>) {
        self.prepare_data(request, data);
        match invalidate {
            // SAFETY: begun.
            Some(key) => unsafe { (self.functions.send_invalidating)(self.raw, key) },
            // SAFETY: begun.
            None => unsafe { (self.functions.send)(self.raw) },
        }
        self.set_data(data);
    }

    fn read(&mut self, request: &WorkRequest, local: &'a [ScatterElement], remote: RemoteRange) {
        self.prepare(request);
        // SAFETY: begun.
        unsafe { (self.functions.read)(self.raw, remote.key, remote.address) };
        self.set_list(local);
    }

    fn write(&mut self, request: &WorkRequest, data: Data<'a>, remote: RemoteRange) {
        self.prepare_data(request, data);
        // SAFETY: begun.
        unsafe { (self.functions.write)(self.raw, remote.key, remote.address) };
        self.set_data(data);
    }

    fn invalidate(&mut self, request: &WorkRequest, key: u32) {
        self.prepare(request);
        // SAFETY: begun.
        unsafe { (self.functions.invalidate)(self.raw, key) };
    }

    fn bind(
        &mut self,
        request: &WorkRequest,
        fields: &RegistrationFields,
        window: &'a Window,
        region: &'a MemoryRegion,
    ) {
        let Some(bind) = self.functions.bind else {
            self.unsayable = true;
            return;
        };
        self.prepare(request);
        let info = bind_info(fields, region);
        let mut shadow = window.with_key(fields.old_key);
        // SAFETY: begun; window and memory description are read at once, the region lives as long as the builder.
        unsafe { bind(self.raw, &raw mut shadow, fields.key, &raw const info) };
    }

    fn list(
        &mut self,
        request: &WorkRequest,
        fields: &RegistrationFields,
        mkey: &'a Mkey,
        elements: &'a [ScatterElement],
    ) {
        let (Some(Lists { raw, build }), Ok(count)) = (self.lists, u16::try_from(elements.len())) else {
            self.unsayable = true;
            return;
        };
        self.prepare(request);
        let mut access = remote_rights(fields.access);
        if fields.access.permits_write() {
            // As for every memory region that a peer may write to (ibv_reg_mr(3)).
            access |= ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        }
        // SAFETY: begun; the key and the elements live as long as the builder, and are copied into the work request at once.
        // The key's structure is ours: only its port posts it. The list itself is what has to be inline
        // (mlx5dv_wr_mr_list(3)); every other work request sets its flags anew.
        unsafe {
            (*self.raw).wr_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
            ((*mkey.raw()).lkey, (*mkey.raw()).rkey) = (fields.key, fields.key);
            build(raw.as_ptr(), mkey.raw(), access, count, elements.as_ptr().cast_mut().cast());
        }
    }
}
