//! Completion channels: how a core that sleeps hears that something has completed (ibv_get_cq_event(3)).

use super::{check, context::Context, wait::set_nonblocking};
use core::{
    ffi::c_int,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicU32, Ordering},
};
use ibverbs_sys::{ibv_comp_channel, ibv_cq};
use std::{io, os::fd::BorrowedFd, sync::Arc};

/// Events of a queue that are acknowledged together: each call takes a lock (ibv_get_cq_event(3)).
const ACKNOWLEDGED_AT_ONCE: u32 = 64;

/// A completion channel, whose descriptor does not block.
pub(in super::super) struct CompletionChannel {
    pub(super) raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: libibverbs counts a channel's queues under a lock; its descriptor is read by read(2) alone.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub(in super::super) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.verbs.ibv_create_comp_channel)(context.raw.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { raw, context: Arc::clone(context) };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    fn fd(&self) -> c_int {
        // SAFETY: the channel is there for as long as `self` lives, and the member does not change.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// Readable when an event waits.
    pub(in super::super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    /// The address of the queue that the next event is of; nothing where none waits.
    pub(super) fn next_event(&self) -> io::Result<Option<usize>> {
        let (mut queue, mut cookie) = (null_mut::<ibv_cq>(), null_mut());
        // SAFETY: both pointers are to memory of this size. The library looks into the queue that the event is of: it is not freed before
        // the event is acknowledged (ibv_destroy_cq(3)).
        let code = unsafe {
            (self.context.library.verbs.ibv_get_cq_event)(self.raw.as_ptr(), &raw mut queue, &raw mut cookie)
        };
        match check(code) {
            Ok(()) => Ok(Some(queue.addr())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: its queues keep it alive, so none is left.
        unsafe { (self.context.library.verbs.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// What a completion queue has of its channel.
pub(super) struct Notification {
    request: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    /// Events that were taken and not acknowledged: destroying the queue waits for all of them.
    unacknowledged: AtomicU32,
    /// Kept until the queue is destroyed.
    channel: Arc<CompletionChannel>,
}

impl Notification {
    pub(super) fn new(channel: &Arc<CompletionChannel>) -> io::Result<Self> {
        let request = channel.context.operations().req_notify_cq.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { request, unacknowledged: AtomicU32::new(0), channel: Arc::clone(channel) })
    }

    pub(super) fn channel(&self) -> *mut ibv_comp_channel {
        self.channel.raw.as_ptr()
    }

    /// Whatever completes next is an event, once.
    ///
    /// # Safety
    /// The queue is the one of this channel that this is of.
    pub(super) unsafe fn request(&self, queue: *mut ibv_cq) -> io::Result<()> {
        // SAFETY: the caller's promise. 0: not of solicited messages alone.
        check(unsafe { (self.request)(queue, 0) })
    }

    /// An event of the queue was taken.
    ///
    /// # Safety
    /// As [`Notification::request`].
    pub(super) unsafe fn got_event(&self, queue: *mut ibv_cq) {
        if self.unacknowledged.fetch_add(1, Ordering::Relaxed) + 1 >= ACKNOWLEDGED_AT_ONCE {
            // SAFETY: the caller's promise.
            unsafe { self.acknowledge(queue) };
        }
    }

    /// Acknowledges what was taken; to be called before the queue is destroyed.
    ///
    /// # Safety
    /// As [`Notification::request`].
    pub(super) unsafe fn acknowledge(&self, queue: *mut ibv_cq) {
        let events = self.unacknowledged.swap(0, Ordering::Relaxed);
        if events > 0 {
            // SAFETY: the caller's promise; so many events of it were taken, and none of them was acknowledged.
            unsafe { (self.channel.context.library.verbs.ibv_ack_cq_events)(queue, events) };
        }
    }
}
