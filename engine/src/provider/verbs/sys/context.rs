//! An open device: its attributes, its asynchronous events, and the functions behind verbs.h's inlines.

use super::{
    super::system::SystemView,
    check,
    library::{Library, NoMlx5, text},
    wait::set_nonblocking,
};
use core::{mem::MaybeUninit, ptr::NonNull};
use ibverbs_sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_ERR, IBV_TRANSPORT_IWARP, ibv_async_event,
    ibv_context, ibv_cq, ibv_device_attr,
};
use std::{
    io,
    os::fd::{BorrowedFd, RawFd},
};

/// An asynchronous event, as libibverbs names things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum RawEvent {
    QueuePairFatal(u32),
    /// Access and request errors of the peer: the queue pair is in the error state.
    QueuePairAccessError(u32),
    LastReceiveReached(u32),
    /// Compared with [`super::completion_queue::CompletionQueue::address`].
    CompletionQueueError(usize),
    /// Compared with [`super::shared_receive_queue::SharedReceiveQueue::address`].
    SharedReceiveQueueError(usize),
    DeviceFatal,
    /// The GID table of a port is another one now.
    AddressesChanged,
    /// Ports and paths: nothing that a queue pair does not say by itself.
    Other,
}

/// An open device.
pub(in super::super) struct Context {
    pub(super) raw: NonNull<ibv_context>,
    pub(super) library: &'static Library,
}

// SAFETY: an `ibv_context` may be used by any thread (ibv_open_device(3) and what it links to; libibverbs locks inside).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Names of the devices that libibverbs has a driver for.
    pub(in super::super) fn names(library: &'static Library) -> io::Result<Vec<String>> {
        with_devices(library, |devices| devices.iter().map(|(name, _)| name.clone()).collect())
    }

    /// Opens a device by name.
    pub(in super::super) fn open(library: &'static Library, name: &str) -> io::Result<Self> {
        let raw = with_devices(library, |devices| {
            let (_, device) = devices.iter().find(|(known, _)| known == name)?;
            // SAFETY: the device is of a list that is freed after this call; an open context keeps its device.
            Some(NonNull::new(unsafe { (library.verbs.ibv_open_device)(*device) }).ok_or_else(io::Error::last_os_error))
        })?;
        let raw = raw.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))??;
        let context = Self { raw, library };
        set_nonblocking(context.async_fd())?;
        Ok(context)
    }

    pub(super) fn operations(&self) -> &ibverbs_sys::ibv_context_ops {
        // SAFETY: the context is open for as long as `self` lives. The table does not change once the device is open, unlike
        // other members, so that there is no reference to the whole.
        unsafe { &(*self.raw.as_ptr()).ops }
    }

    /// Who is asked what libibverbs does not tell.
    pub(in super::super) fn system(&self) -> &SystemView {
        &self.library.system
    }

    /// The libraries that it was opened with.
    pub(in super::super) fn library(&self) -> &'static Library {
        self.library
    }

    /// Readable when an asynchronous event waits.
    pub(in super::super) fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open, and the member does not change.
        unsafe { (*self.raw.as_ptr()).async_fd }
    }

    /// The same, to be waited for.
    pub(in super::super) fn async_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: open for as long as `self` lives.
        unsafe { BorrowedFd::borrow_raw(self.async_fd()) }
    }

    /// Whether libibverbs still lists the very device that was opened; true where it cannot be asked. One that was reset comes again by
    /// the same name, and is another: the list has a structure for each that the kernel registers, and an open one's is not
    /// freed (ibv_get_device_list(3)).
    pub(in super::super) fn is_listed(&self) -> bool {
        // SAFETY: an open context keeps its device, which does not change.
        let own = unsafe { (*self.raw.as_ptr()).device };
        with_devices(self.library, |devices| devices.iter().any(|(_, device)| *device == own)).unwrap_or(true)
    }

    /// Whether connections are those of iWARP, which librdmacm drives in another way.
    pub(in super::super) fn is_iwarp(&self) -> bool {
        // SAFETY: an open context keeps its device, whose kind does not change.
        unsafe { (*(*self.raw.as_ptr()).device).transport_type == IBV_TRANSPORT_IWARP }
    }

    /// Whether libmlx5 knows the device (mlx5dv_is_supported(3)).
    pub(in super::super) fn is_mlx5(&self) -> bool {
        // SAFETY: an open context keeps its device.
        self.library.mlx5().is_some_and(|mlx5| unsafe { (mlx5.mlx5dv_is_supported)((*self.raw.as_ptr()).device) })
    }

    /// Whether there is a libmlx5.
    pub(in super::super) fn has_mlx5(&self) -> Result<(), NoMlx5> {
        self.library.has_mlx5()
    }

    /// Whether the device's library has memory windows at all (siw, efa, hns and others have none).
    pub(in super::super) fn has_windows(&self) -> bool {
        self.operations().alloc_mw.is_some() && self.operations().dealloc_mw.is_some()
    }

    /// By which of the device's completion vectors the events of this port come: they are spread over the vectors, since those of one are
    /// one processor's to take.
    pub(in super::super) fn completion_vector(&self, port: u16) -> i32 {
        // SAFETY: the context is open, and the member does not change.
        let vectors = unsafe { (*self.raw.as_ptr()).num_comp_vectors };
        i32::from(port) % vectors.max(1)
    }

    /// What the device says of itself (ibv_query_device(3)).
    pub(in super::super) fn attributes(&self) -> io::Result<ibv_device_attr> {
        let mut attributes = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the pointer is to memory of this size; zeroes are a value of this plain structure.
        unsafe {
            check((self.library.verbs.ibv_query_device)(self.raw.as_ptr(), attributes.as_mut_ptr()))?;
            Ok(attributes.assume_init())
        }
    }

    /// The next asynchronous event; `None` where none waits.
    pub(in super::super) fn next_event(&self) -> Option<RawEvent> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: as above; the descriptor does not block. Only an event that was got is read and acknowledged, and the
        // object that it names exists at least until then (ibv_get_async_event(3)).
        unsafe {
            if (self.library.verbs.ibv_get_async_event)(self.raw.as_ptr(), event.as_mut_ptr()) != 0 {
                return None;
            }
            let mut event = event.assume_init();
            let seen = match event.event_type {
                IBV_EVENT_QP_FATAL => RawEvent::QueuePairFatal((*event.element.qp).qp_num),
                IBV_EVENT_QP_ACCESS_ERR | IBV_EVENT_QP_REQ_ERR => {
                    RawEvent::QueuePairAccessError((*event.element.qp).qp_num)
                }
                IBV_EVENT_QP_LAST_WQE_REACHED => RawEvent::LastReceiveReached((*event.element.qp).qp_num),
                IBV_EVENT_CQ_ERR => RawEvent::CompletionQueueError(address_of(event.element.cq)),
                IBV_EVENT_SRQ_ERR => RawEvent::SharedReceiveQueueError(event.element.srq.addr()),
                IBV_EVENT_DEVICE_FATAL => RawEvent::DeviceFatal,
                IBV_EVENT_GID_CHANGE => RawEvent::AddressesChanged,
                _ => RawEvent::Other,
            };
            (self.library.verbs.ibv_ack_async_event)(&raw mut event);
            Some(seen)
        }
    }
}

/// A completion queue's name in events.
pub(super) fn address_of(queue: *mut ibv_cq) -> usize {
    queue.addr()
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: every object of the context keeps it alive, so none is left.
        unsafe { (self.library.verbs.ibv_close_device)(self.raw.as_ptr()) };
    }
}

/// Runs `look` over the names and pointers of all devices; the list is freed afterwards.
fn with_devices<T>(
    library: &'static Library,
    look: impl FnOnce(&[(String, *mut ibverbs_sys::ibv_device)]) -> T,
) -> io::Result<T> {
    let mut count = 0;
    // SAFETY: the list has `count` entries and lives until it is freed below; names live as long.
    unsafe {
        let list = (library.verbs.ibv_get_device_list)(&raw mut count);
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        let devices: Vec<_> = (0..usize::try_from(count).unwrap_or(0))
            .map(|index| *list.add(index))
            .map(|device| (text((library.verbs.ibv_get_device_name)(device)), device))
            .collect();
        let result = look(&devices);
        (library.verbs.ibv_free_device_list)(list);
        Ok(result)
    }
}
