//! Shared receive queues.

use super::{check, protection_domain::ProtectionDomain, receive_list::ReceiveList};
use crate::provider::{MAX_COMPLETIONS_PER_POLL, ReceiveRequest};
use core::ptr::{NonNull, null_mut};
use ibverbs_sys::{ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr};
use std::{io, sync::Arc};

/// Receives that one call of ibv_post_srq_recv(3) gets: what one poll can have taken goes back with one doorbell.
const RECEIVES_PER_CALL: usize = MAX_COMPLETIONS_PER_POLL;

/// A shared receive queue; its queue pairs keep it alive.
pub(in super::super) struct SharedReceiveQueue {
    pub(super) raw: NonNull<ibv_srq>,
    created: bool,
    entries: u32,
    post: unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs' functions lock the queue; the members that are read here never change.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// A queue of at least `entries` receives of one element each (ibv_create_srq(3)).
    pub(in super::super) fn new(domain: &Arc<ProtectionDomain>, entries: u32) -> io::Result<Self> {
        let post = domain.context.operations().post_srq_recv.ok_or(io::ErrorKind::Unsupported)?;
        let attributes = ibv_srq_attr { max_wr: entries, max_sge: 1, srq_limit: 0 };
        let mut wanted = ibv_srq_init_attr { srq_context: null_mut(), attr: attributes };
        // SAFETY: the domain is alive; the attributes are a plain structure that lives through the call.
        let raw = unsafe { (domain.context.library.verbs.ibv_create_srq)(domain.raw.as_ptr(), &raw mut wanted) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, created: true, entries: wanted.attr.max_wr, post, domain: Arc::clone(domain) })
    }

    /// Its name in events.
    pub(in super::super) fn address(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// Receives that it holds.
    pub(in super::super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Posts receives; an error says how many were taken in front of the one that was refused.
    pub(in super::super) fn post(&self, receives: &[ReceiveRequest]) -> Result<(), (usize, io::Error)> {
        let mut list = ReceiveList::<RECEIVES_PER_CALL>::new();
        list.post(receives, |first, refused| {
            // SAFETY: the list and its elements live through the call, which copies them; the queue is alive.
            check(unsafe { (self.post)(self.raw.as_ptr(), first, refused) })
        })
    }

    /// Destroys it, or hands it back: `EBUSY` says that a queue pair uses it.
    pub(in super::super) fn destroy(mut self) -> Result<(), (Self, io::Error)> {
        match self.end() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        // SAFETY: made, and not yet destroyed.
        check(unsafe { (self.domain.context.library.verbs.ibv_destroy_srq)(self.raw.as_ptr()) })?;
        self.created = false;
        Ok(())
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        if self.created {
            // One that the device keeps goes with the process.
            let _ = self.end();
        }
    }
}
