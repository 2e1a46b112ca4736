//! Completion channels: an event for the first completion behind each request for a notification.

use crate::{
    raw::{Signal, minus_one, null, set_errno},
    refusals::Refusable,
    verbs::{give, take_back},
    world::{Context, with},
};
use core::ffi::{c_int, c_uint, c_void};
use ibverbs_sys::{ibv_comp_channel, ibv_context, ibv_cq};
use std::collections::VecDeque;

/// A completion channel.
#[derive(Debug)]
pub(crate) struct ChannelRecord {
    signal: Signal,
    /// Addresses of the queues that something has completed in.
    events: VecDeque<usize>,
    queues: u32,
}

/// What a completion queue has of its channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notification {
    /// Address of the channel; 0 for none.
    channel: usize,
    requested: bool,
    /// Events that were taken and not acknowledged.
    unacknowledged: u32,
}

impl Context {
    /// A queue of this channel is made; of none where it is 0.
    pub(crate) fn follow(&mut self, channel: usize) -> Result<Notification, i32> {
        if channel != 0 {
            self.channels.get_mut(&channel).ok_or(libc::EINVAL)?.queues += 1;
        }
        Ok(Notification { channel, ..Notification::default() })
    }

    /// A queue is gone, and so are its events. Returns those that were taken and not acknowledged, for which the library waits for ever.
    pub(crate) fn unfollow(&mut self, queue: usize, notification: Notification) -> u32 {
        if let Some(channel) = self.channels.get_mut(&notification.channel) {
            channel.queues -= 1;
            let before = channel.events.len();
            channel.events.retain(|of| *of != queue);
            (channel.events.len()..before).for_each(|_| channel.signal.lower());
        }
        notification.unacknowledged
    }

    /// Something has completed in a queue.
    pub(crate) fn notify(&mut self, queue: usize) {
        let Some(record) = self.queues.get_mut(&queue) else { return };
        if core::mem::take(&mut record.notification.requested)
            && let Some(channel) = self.channels.get_mut(&record.notification.channel)
        {
            channel.events.push_back(queue);
            channel.signal.raise();
        }
    }

    /// Events that wait in all channels.
    pub(crate) fn channel_events(&self) -> usize {
        self.channels.values().map(|channel| channel.events.len()).sum()
    }

    /// As libmlx5 has it: while an event of the queue was not taken, what is asked for is the notification that was given.
    fn request(&mut self, queue: usize) -> Result<(), i32> {
        self.refusals.check(Refusable::RequestNotification)?;
        let record = self.queues.get_mut(&queue).ok_or(libc::EINVAL)?;
        let channel = self.channels.get(&record.notification.channel).ok_or(libc::EINVAL)?;
        record.notification.requested = !channel.events.contains(&queue);
        Ok(())
    }
}

pub(crate) unsafe extern "C" fn create_comp_channel(raw: *mut ibv_context) -> *mut ibv_comp_channel {
    with(|world| {
        let Some(context) = world.contexts.get_mut(&raw.addr()) else { return null(libc::EINVAL) };
        if let Err(code) = context.refusals.check(Refusable::MakeChannel) {
            return null(code);
        }
        let signal = Signal::new();
        let made = give(ibv_comp_channel { context: raw, fd: signal.fd(), refcnt: 0 });
        let record = ChannelRecord { signal, events: VecDeque::new(), queues: 0 };
        context.channels.insert(made.expose_provenance(), record);
        made
    })
}

pub(crate) unsafe extern "C" fn destroy_comp_channel(raw: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's channel.
    let address = unsafe { (*raw).context }.addr();
    let destroyed = with(|world| {
        let context = world.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        if context.channels.get(&raw.addr()).ok_or(libc::EINVAL)?.queues > 0 {
            world.violation(address, "a completion channel destroyed under a completion queue");
            return Err(libc::EBUSY);
        }
        context.channels.remove(&raw.addr());
        Ok(())
    });
    match destroyed {
        Ok(()) => {
            // SAFETY: made by `create_comp_channel`, and forgotten above.
            unsafe { take_back(raw) };
            0
        }
        Err(code) => code,
    }
}

pub(crate) unsafe extern "C" fn get_cq_event(
    raw: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    _cookie: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's channel.
    let address = unsafe { (*raw).context }.addr();
    let taken = with(|world| {
        let context = world.contexts.get_mut(&address).ok_or(libc::EINVAL)?;
        let channel = context.channels.get_mut(&raw.addr()).ok_or(libc::EINVAL)?;
        let Some(taken) = channel.events.pop_front() else {
            if !channel.signal.is_nonblocking() {
                world.violation(address, "an event waited for by a thread that may not wait");
            }
            return Err(libc::EAGAIN);
        };
        channel.signal.lower();
        context.queues.get_mut(&taken).ok_or(libc::EINVAL)?.notification.unacknowledged += 1;
        Ok(taken)
    });
    match taken {
        Ok(taken) => {
            // SAFETY: the caller's pointer.
            unsafe { *queue = core::ptr::with_exposed_provenance_mut(taken) };
            0
        }
        Err(code) => minus_one(code),
    }
}

pub(crate) unsafe extern "C" fn ack_cq_events(raw: *mut ibv_cq, events: c_uint) {
    // SAFETY: the caller's queue.
    let address = unsafe { (*raw).context }.addr();
    with(|world| {
        let queue = world.contexts.get_mut(&address).and_then(|context| context.queues.get_mut(&raw.addr()));
        let left = queue.map(|queue| &mut queue.notification.unacknowledged);
        match left.and_then(|left| Some((left.checked_sub(events)?, left))) {
            Some((fewer, left)) => *left = fewer,
            None => world.violation(address, format!("{events} events acknowledged that were not taken")),
        }
    });
}

pub(crate) unsafe extern "C" fn req_notify_cq(raw: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's queue.
    let address = unsafe { (*raw).context }.addr();
    with(|world| {
        if solicited_only != 0 {
            world.violation(address, "a notification of solicited messages alone");
        }
        let context = world.contexts.get_mut(&address);
        match context.ok_or(libc::EINVAL).and_then(|context| context.request(raw.addr())) {
            Ok(()) => 0,
            Err(code) => {
                set_errno(code);
                code
            }
        }
    })
}
