//! Protection domains, base registrations, windows and completion queues.

use super::{
    check,
    completion_channel::{CompletionChannel, Notification},
    context::{Context, address_of},
    registered::KeyObjects,
};
use crate::provider::Access;
use core::{mem::MaybeUninit, ptr::NonNull};
use frwr_mempool::DeviceMemory;
use ibverbs_sys::{IBV_MW_TYPE_2, ibv_access_flags, ibv_cq, ibv_mr, ibv_mw, ibv_pd, ibv_wc};
use std::{io, sync::Arc};

/// A protection domain.
pub(in super::super) struct ProtectionDomain {
    pub(super) raw: NonNull<ibv_pd>,
    pub(super) context: Arc<Context>,
}

// SAFETY: libibverbs locks inside; the pointer is only handed to it.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(in super::super) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.verbs.ibv_alloc_pd)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, context: Arc::clone(context) })
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: everything in the domain keeps it alive, so nothing is left in it.
        unsafe { (self.context.library.verbs.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Memory registered for local use and for windows, without any remote right.
pub(in super::super) struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    registered: bool,
    lkey: u32,
    rkey: u32,
    /// Mapped for as long as the device may reach it.
    memory: Option<DeviceMemory>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for the domain; the memory itself is only reached through `DeviceMemory`.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    pub(in super::super) fn new(
        domain: &Arc<ProtectionDomain>,
        memory: DeviceMemory,
        local_write: bool,
        keys: KeyObjects,
    ) -> io::Result<Self> {
        // A device without windows may refuse memory that is registered for them.
        let mut access = match keys {
            KeyObjects::None => 0,
            KeyObjects::Windows | KeyObjects::Lists(_) => ibv_access_flags::IBV_ACCESS_MW_BIND.0,
        };
        if local_write {
            access |= ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        }
        Self::with_access(domain, memory, access)
    }

    /// With a remote right of its own, and no windows.
    pub(in super::super) fn remote(
        domain: &Arc<ProtectionDomain>,
        memory: DeviceMemory,
        right: Access,
    ) -> io::Result<Self> {
        let mut access = 0;
        if right.permits_read() {
            access |= ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
        }
        if right.permits_write() {
            access |= ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 | ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        }
        Self::with_access(domain, memory, access)
    }

    fn with_access(domain: &Arc<ProtectionDomain>, memory: DeviceMemory, access: u32) -> io::Result<Self> {
        let verbs = &domain.context.library.verbs;
        let start = core::ptr::without_provenance_mut(memory.address() as usize);
        // SAFETY: the range is mapped for as long as `memory` lives, which is kept until it is deregistered; the library
        // only hands its address to the kernel.
        let raw = unsafe { (verbs.ibv_reg_mr)(domain.raw.as_ptr(), start, memory.len(), access as i32) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a registered region's members do not change.
        let (lkey, rkey) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        Ok(Self { raw, registered: true, lkey, rkey, memory: Some(memory), domain: Arc::clone(domain) })
    }

    pub(in super::super) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Its first byte's address, and how many bytes it has; none once it is deregistered.
    pub(super) fn range(&self) -> (u64, u64) {
        self.memory.as_ref().map_or((0, 0), |memory| (memory.address(), memory.len() as u64))
    }

    /// Its protection domain.
    pub(super) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// What a peer may use, where it has a remote right.
    pub(in super::super) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// For bind work requests.
    pub(super) fn raw(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }

    /// Deregisters it, or hands it back: `EINVAL` says that a window is bound to it.
    pub(in super::super) fn destroy(mut self) -> Result<(), (Self, io::Error)> {
        match self.deregister() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    fn deregister(&mut self) -> io::Result<()> {
        // SAFETY: registered, and not yet deregistered.
        check(unsafe { (self.domain.context.library.verbs.ibv_dereg_mr)(self.raw.as_ptr()) })?;
        self.registered = false;
        Ok(())
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.registered && self.deregister().is_err() {
            // The device can still reach it: it stays mapped for the rest of the process.
            core::mem::forget(self.memory.take());
        }
    }
}

/// A type 2 memory window.
pub(in super::super) struct Window {
    raw: NonNull<ibv_mw>,
    allocated: bool,
    /// As it was allocated: what a bind work request names, with the key that is current then.
    shadow: ibv_mw,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for the domain; the shadow is a plain copy whose pointers are never followed here.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    pub(in super::super) fn new(domain: &Arc<ProtectionDomain>) -> io::Result<Self> {
        let allocate = domain.context.operations().alloc_mw.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the domain is alive.
        let raw = NonNull::new(unsafe { allocate(domain.raw.as_ptr(), IBV_MW_TYPE_2) });
        let raw = raw.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: just allocated, and nobody else has it.
        let mut shadow = unsafe { *raw.as_ref() };
        // verbs.h's inline does so: some libraries leave them empty.
        shadow.context = domain.context.raw.as_ptr();
        shadow.pd = domain.raw.as_ptr();
        shadow.type_ = IBV_MW_TYPE_2;
        // SAFETY: as above.
        unsafe { *raw.as_ptr() = shadow };
        Ok(Self { raw, allocated: true, shadow, domain: Arc::clone(domain) })
    }

    /// The key that it was allocated with.
    pub(in super::super) fn key(&self) -> u32 {
        self.shadow.rkey
    }

    /// The window as a bind work request names it.
    pub(super) fn with_key(&self, key: u32) -> ibv_mw {
        ibv_mw { rkey: key, ..self.shadow }
    }

    /// Deallocates it, which unbinds it, or hands it back.
    pub(in super::super) fn destroy(mut self) -> Result<(), (Self, io::Error)> {
        match self.deallocate() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    fn deallocate(&mut self) -> io::Result<()> {
        let deallocate = self.domain.context.operations().dealloc_mw.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: allocated, and not yet deallocated. rxe compares the key that it was last bound with by index only.
        check(unsafe { deallocate(self.raw.as_ptr()) })?;
        self.allocated = false;
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.allocated {
            // One that the device keeps goes with the process; nothing here can do better.
            let _ = self.deallocate();
        }
    }
}

/// A completion queue.
pub(in super::super) struct CompletionQueue {
    pub(super) raw: NonNull<ibv_cq>,
    poll: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
    /// `None` where it is only polled.
    notification: Option<Notification>,
    context: Arc<Context>,
}

// SAFETY: as for the domain.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// One of at least `entries` entries, without a completion channel: it is polled.
    pub(in super::super) fn new(context: &Arc<Context>, entries: u32) -> io::Result<Self> {
        Self::make(context, entries, None, 0)
    }

    /// The same with a channel of that context, whose events come by this completion vector, of those that the device has.
    pub(in super::super) fn with_channel(
        context: &Arc<Context>,
        entries: u32,
        channel: &Arc<CompletionChannel>,
        vector: i32,
    ) -> io::Result<Self> {
        Self::make(context, entries, Some(Notification::new(channel)?), vector)
    }

    fn make(context: &Arc<Context>, entries: u32, notification: Option<Notification>, vector: i32) -> io::Result<Self> {
        let entries = i32::try_from(entries).map_err(|_| io::ErrorKind::InvalidInput)?;
        let poll = context.operations().poll_cq.ok_or(io::ErrorKind::Unsupported)?;
        let channel = notification.as_ref().map_or(core::ptr::null_mut(), Notification::channel);
        let no_cookie = core::ptr::null_mut();
        // SAFETY: the context is open, and the channel, if there is one, is of it and kept until the queue is destroyed.
        let raw =
            unsafe { (context.library.verbs.ibv_create_cq)(context.raw.as_ptr(), entries, no_cookie, channel, vector) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, poll, notification, context: Arc::clone(context) })
    }

    /// Whatever completes next is an event of its channel, once; what has completed already is none.
    ///
    /// # Errors
    /// The device cannot, or there is no channel.
    pub(in super::super) fn request_notification(&self) -> io::Result<()> {
        let notification = self.notification.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the queue was made with it.
        unsafe { notification.request(self.raw.as_ptr()) }
    }

    /// An event of this queue was taken.
    pub(super) fn got_event(&self) {
        if let Some(notification) = &self.notification {
            // SAFETY: as above.
            unsafe { notification.got_event(self.raw.as_ptr()) };
        }
    }

    /// Its name in asynchronous events.
    pub(in super::super) fn address(&self) -> usize {
        address_of(self.raw.as_ptr())
    }

    /// Takes completions; what was taken lies at the front of `into`.
    ///
    /// # Errors
    /// [`CompletionsLost`].
    pub(in super::super) fn poll<'a>(&self, into: &'a mut [ibv_wc]) -> Result<&'a [ibv_wc], CompletionsLost> {
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: there is room for as many. Libraries write only the members that mean something, so the rest is of an
        // earlier completion, and never uninitialised.
        let taken = unsafe { (self.poll)(self.raw.as_ptr(), room, into.as_mut_ptr()) };
        let taken = usize::try_from(taken).map_err(|_| CompletionsLost)?.min(into.len());
        Ok(&into[..taken])
    }
}

/// The library said that it failed to poll (ibv_poll_cq(3)). libmlx5 does so for a completion that it cannot read, which it
/// does not show again.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct CompletionsLost;

/// A completion that says nothing: room for [`CompletionQueue::poll`].
pub(in super::super) const fn no_completion() -> ibv_wc {
    // SAFETY: zeroes are a value of this plain structure of integers.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if let Some(notification) = &self.notification {
            // SAFETY: as for requests; nobody else has the queue any more.
            unsafe { notification.acknowledge(self.raw.as_ptr()) };
        }
        // SAFETY: its queue pairs keep it alive, so none is left.
        unsafe { (self.context.library.verbs.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}

/// A completion for tests, whose members are private in Rust: token 77, queue pair 17, key 0x1234, vendor code 0x88.
#[cfg(test)]
pub(in super::super) fn test_completion(
    status: ibverbs_sys::ibv_wc_status::Type,
    opcode: ibverbs_sys::ibv_wc_opcode::Type,
    flags: ibverbs_sys::ibv_wc_flags,
) -> ibv_wc {
    /// The front of `struct ibv_wc`.
    #[repr(C)]
    struct Front {
        token: u64,
        status: ibverbs_sys::ibv_wc_status::Type,
        opcode: ibverbs_sys::ibv_wc_opcode::Type,
        vendor_code: u32,
    }
    let mut raw = no_completion();
    raw.imm_data = 0x1234;
    raw.qp_num = 17;
    raw.wc_flags = flags;
    // SAFETY: both are plain structures of C, and begin with the same members.
    unsafe { (&raw mut raw).cast::<Front>().write(Front { token: 77, status, opcode, vendor_code: 0x88 }) };
    raw
}
