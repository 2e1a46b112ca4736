//! Completion queues.

use super::{
    completion_channel::{CompletionChannel, Notification},
    context::{Context, address_of},
};
use core::{mem::MaybeUninit, ptr::NonNull};
use ibverbs_sys::{ibv_cq, ibv_wc};
use std::{io, sync::Arc};

/// Events that are taken at a time: a queue has one for each time that a notification was asked for, so that two queues have two.
const EVENTS_AT_ONCE: usize = 16;

/// A completion queue.
pub(in super::super) struct CompletionQueue {
    pub(super) raw: NonNull<ibv_cq>,
    poll: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
    /// `None` where it is only polled.
    notification: Option<Notification>,
    context: Arc<Context>,
}

// SAFETY: libibverbs locks inside; the pointer is only handed to it.
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

    /// Takes the events that wait, of these queues of a channel, and says whether none is left.
    pub(in super::super) fn take_events(channel: &CompletionChannel, queues: [&Self; 2]) -> bool {
        for _ in 0..EVENTS_AT_ONCE {
            match channel.next_event() {
                Ok(Some(address)) => {
                    let queue = queues.iter().find(|queue| queue.address() == address);
                    debug_assert!(queue.is_some(), "an event of a queue that is not its port's");
                    queue.into_iter().for_each(|queue| queue.got_event());
                }
                Ok(None) => return true,
                // The device is gone: it wakes nobody any more.
                Err(_) => return false,
            }
        }
        false
    }

    /// An event of this queue was taken.
    fn got_event(&self) {
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
