//! Memory windows.

use super::{check, protection_domain::ProtectionDomain};
use core::ptr::NonNull;
use ibverbs_sys::{IBV_MW_TYPE_2, ibv_mw};
use std::{io, sync::Arc};

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
