//! Base registrations.

use super::{check, protection_domain::ProtectionDomain, registered::KeyObjects};
use crate::provider::Access;
use core::ptr::NonNull;
use frwr_mempool::DeviceMemory;
use ibverbs_sys::{ibv_access_flags, ibv_mr};
use std::{io, sync::Arc};

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
