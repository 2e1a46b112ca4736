//! Protection domains.

use super::context::Context;
use core::ptr::NonNull;
use ibverbs_sys::ibv_pd;
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
