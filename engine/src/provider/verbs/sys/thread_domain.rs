//! What queue pairs are made in: a protection domain, and, where a port has one, its thread domain.

use super::{
    context::Context,
    protection_domain::ProtectionDomain,
    verbs_abi::{self, ThreadDomainFunctions},
};
use core::ptr::NonNull;
use ibverbs_sys::{ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};
use std::{io, sync::Arc};

/// A thread domain (ibv_alloc_td(3)): the caller sees to it that what is made in it is posted to by one thread at a time. For that libmlx5
/// leaves the locks of its queue pairs out, and has them ring a register that no others ring.
pub(in super::super) struct ThreadDomain {
    raw: NonNull<ibv_td>,
    functions: ThreadDomainFunctions,
    context: Arc<Context>,
}

// SAFETY: the pointer is only handed to the library's functions, which count who uses it atomically.
unsafe impl Send for ThreadDomain {}
// SAFETY: as above.
unsafe impl Sync for ThreadDomain {}

impl ThreadDomain {
    /// A new one.
    ///
    /// # Errors
    /// `Unsupported` where the device's library has none, else what the system says: registers are limited.
    pub(in super::super) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let functions = unsafe { verbs_abi::thread_domains(context.raw.as_ptr()) };
        let functions = functions.ok_or(io::ErrorKind::Unsupported)?;
        let mut wanted = ibv_td_init_attr::default();
        // SAFETY: the context is open; the attributes are a plain structure that lives through the call.
        let raw = unsafe { (functions.allocate)(context.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, functions, context: Arc::clone(context) })
    }
}

impl Drop for ThreadDomain {
    fn drop(&mut self) {
        // SAFETY: everything in the domain keeps it alive, so nothing is left in it.
        unsafe { (self.functions.free)(self.raw.as_ptr()) };
    }
}

/// A protection domain and a thread domain together (ibv_alloc_parent_domain(3)).
struct ParentDomain {
    raw: NonNull<ibv_pd>,
    _thread: Arc<ThreadDomain>,
    domain: Arc<ProtectionDomain>,
}

impl ParentDomain {
    fn new(domain: &Arc<ProtectionDomain>, thread: &Arc<ThreadDomain>) -> io::Result<Self> {
        let mut wanted = ibv_parent_domain_init_attr {
            pd: domain.raw.as_ptr(),
            td: thread.raw.as_ptr(),
            ..ibv_parent_domain_init_attr::default()
        };
        // SAFETY: both domains are alive and of one context; members outside of the mask are zero.
        let raw = unsafe { (thread.functions.allocate_parent)(thread.context.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, _thread: Arc::clone(thread), domain: Arc::clone(domain) })
    }
}

impl Drop for ParentDomain {
    fn drop(&mut self) {
        // SAFETY: its queue pair is gone; the library lets go of both domains by this.
        unsafe { (self.domain.context.library.verbs.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// What one queue pair is made in.
pub(in super::super) struct QueuePairDomain {
    /// Of its own: it costs the library some bytes and the device nothing.
    parent: Option<ParentDomain>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for its parts.
unsafe impl Send for QueuePairDomain {}
// SAFETY: as above.
unsafe impl Sync for QueuePairDomain {}

impl QueuePairDomain {
    /// A protection domain, with a thread domain where there is one.
    ///
    /// # Errors
    /// What the library says.
    pub(in super::super) fn new(
        domain: &Arc<ProtectionDomain>,
        thread: Option<&Arc<ThreadDomain>>,
    ) -> io::Result<Self> {
        let parent = thread.map(|thread| ParentDomain::new(domain, thread)).transpose()?;
        Ok(Self { parent, domain: Arc::clone(domain) })
    }

    /// As the library wants it.
    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.parent.as_ref().map_or(self.domain.raw, |parent| parent.raw).as_ptr()
    }

    /// The protection domain.
    pub(super) fn protection(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// Where it is open.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.domain.context
    }
}
